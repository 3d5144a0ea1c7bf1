# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmarks' own arithmetic and judgement: figures from tables, and each verdict made to
happen.
"""

import contextlib
import io
import json
import random
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ramlab import provenance
from ramlab.bench import (
    command,
    energy,
    entries,
    flame,
    governor,
    machines,
    provenance_page,
    slices,
    stats,
)

ENTRY = {"name": "x", "value": 0.6, "ci95": [0.59, 0.61], "n": 10, "source": "run",
         "depends": {"kernel/files/mm": "now"}, "equivalence": {"margin": 0.01, "p": 0.01}}
GOAL = {"what": "x", "most": 0.7, "need_n": 10}


class OneFigure(unittest.TestCase):
    def show(self, name, kept, changed=()):
        """The page of an entry of a made-up suite with these kept figures."""
        def loaded(_, **which):
            return {e["name"]: e for e in kept} if which.get("kept") else {}

        goals = {"slices": {"x-1": GOAL, "x-2": GOAL}}
        with mock.patch.object(entries, "targets", return_value=goals), \
                mock.patch.object(entries, "load", side_effect=loaded), \
                mock.patch.object(provenance, "changed", return_value=list(changed)):
            return provenance_page.describe(name)

    def test_it_is_shown_with_its_command_and_what_changed_below_it(self):
        depends = {"kernel/files/mm": "0123456789abcdef", "package gcc-12": "12.2.0-14+deb12u1"}
        entry = ENTRY | {"name": "x-1", "depends": depends, "seed": 7,
                         "command": "lab/bench slices --only loops"}
        page = self.show("x-1", [entry], ["kernel/files/mm"])
        self.assertIn("ramlab bench slices --only loops --seed 7\n", page)
        self.assertRegex(page, r"kernel/files/mm +changed +0123456789ab\n")
        self.assertRegex(page, r"package gcc-12 +12\.2\.0-14\+deb12u1$")

    def test_a_figure_without_provenance_says_so(self):
        page = self.show("x-1", [ENTRY | {"name": "x-1", "depends": None, "ci95": None}])
        self.assertIn("counts as stale", page)
        self.assertIn("one run", page)

    def test_a_figure_that_was_never_measured_names_its_suite(self):
        self.assertIn("measure it  ramlab bench slices", self.show("x-2", []))

    def test_a_name_that_is_wrong_brings_those_that_are_close(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as end:
            self.show("x-3", [])
        self.assertEqual(end.exception.code, 2)
        self.assertIn("no figure x-3: close are x-", said.getvalue())

    def test_a_figure_that_documents_name_and_no_entry_is_says_where_it_comes_from(self):
        for name, place in (("x-1/beside/stock", "a field of an entry: ramlab bench --entry x-1"),
                            ("size/quicksort/plenty/elapsed_s", "ramlab size NAME repeats it"),
                            ("case/tpch/fresh/ours/off", "results/cases/runs.json")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as end:
                self.show(name, [])
            self.assertEqual(end.exception.code, 2)
            self.assertIn(place, said.getvalue())

    def test_every_part_is_listed_by_a_whole_sentence(self):
        for suite in command.SUITES.values():
            for part, function in suite.PARTS.items():
                line = command._first_sentence(f"  {part} ", function.__doc__)
                self.assertTrue(line.endswith("."), line)


class Statistics(unittest.TestCase):
    def test_students_t_is_that_of_the_tables(self):
        for p, df, t in (
            (0.975, 9, 2.2622),
            (0.975, 18, 2.1009),
            (0.95, 4, 2.1318),
            (0.995, 30, 2.7500),
        ):
            self.assertAlmostEqual(stats.t_quantile(p, df), t, 4)

    def test_the_interval_of_a_mean(self):
        mean, (low, high) = stats.mean([1, 2, 3, 4, 5])
        self.assertEqual(mean, 3)
        self.assertAlmostEqual(high - 3, 2.7764 * (2.5 / 5) ** 0.5, 3)
        self.assertAlmostEqual(3 - low, high - 3)

    def test_a_ratio_and_its_inverse_are_one_finding(self):
        a, b = [1.0, 1.1, 0.9, 1.05], [2.0, 2.2, 2.1, 1.9]
        value, (low, high) = stats.ratio(a, b)
        inverse, (inverse_low, inverse_high) = stats.ratio(b, a)
        self.assertAlmostEqual(value * inverse, 1)
        self.assertAlmostEqual(low * inverse_high, 1)
        self.assertAlmostEqual(high * inverse_low, 1)

    def test_equivalence_needs_both_closeness_and_certainty(self):
        rnd = random.Random(1)
        same, other = ([1 + rnd.gauss(0, 0.001) for _ in range(10)] for _ in range(2))
        noisy = [1 + rnd.gauss(0, 0.05) for _ in range(10)]
        self.assertLess(stats.equivalent(same, other, 0.01), 0.001)
        self.assertGreater(stats.equivalent(noisy, other, 0.01), 0.05)
        self.assertGreater(stats.equivalent([v * 1.02 for v in same], other, 0.01), 0.95)
        self.assertGreater(stats.equivalent([v * 0.98 for v in same], other, 0.01), 0.95)

    def test_samples_without_spread_are_compared_as_they_are(self):
        self.assertEqual(stats.equivalent([1, 1], [1, 1], 0.01), 0)
        self.assertEqual(stats.equivalent([1.1, 1.1], [1, 1], 0.01), 1)

    def test_the_interval_of_a_median_is_that_of_the_tables(self):
        self.assertEqual(stats.median(list(range(1, 31))), (15.5, [10, 21]))
        self.assertEqual(stats.median(list(range(1, 11))), (5.5, [2, 9]))
        self.assertEqual(stats.median([3, 1, 2, 5, 4]), (3, None))

    def test_the_interval_of_a_share_is_wilsons(self):
        found, (low, high) = stats.share([1] * 7 + [0] * 23)
        self.assertAlmostEqual(found, 7 / 30)
        self.assertAlmostEqual(low, 0.1179, 4)
        self.assertAlmostEqual(high, 0.4093, 4)
        self.assertEqual(stats.share([0] * 30)[1][0], 0)
        self.assertAlmostEqual(stats.share([0] * 30)[1][1], 0.1135, 4)

    def test_of_the_largest_no_more_is_said_than_was_seen(self):
        rnd = random.Random(1)
        values = [rnd.gauss(0, 1) for _ in range(30)]
        found, (low, high) = stats.largest(values)
        self.assertEqual((found, high), (max(values), max(values)))
        self.assertLess(low, found)


@mock.patch("ramlab.bench.slices.images_of", lambda *flavours: {})
class Samples(unittest.TestCase):
    """Boots of which each has figures about its own number."""

    # Per unit of the figures, by part
    SCALE = {"loops": 1, "threads": 1, "together": 1, "tlb": 1, "snapshot": 1e-6}

    @staticmethod
    def figures(number):
        rounds = [number + part for part in (-0.4, -0.3, 0, 0, 0.3, 0.4)]
        rows = [
            dict.fromkeys(("migrated", "interrupts", "snapshot_ns", "order_ns"), value)
            for value in rounds
        ]
        flushes = [row | {"migrated": 1} for row in rows]
        return {
            "loops": {
                "calibrate": {"ticks": 1, "instructions": 1},
                "fault": rounds,
                "fork": rounds,
                "read": rounds,
            },
            "together": [row | {"had_to_move": 1} for row in rows],
            "snapshot": [row | {"slices": slices} for slices in (8192, 98304) for row in rows],
            "tlb": {"folios": 128, "usual": flushes, "one": flushes},
        }

    def entries(self, part):
        """What comes of a part, and the boots' numbers by arm."""
        numbers = {}

        def run(boots, *_, jobs=None):
            numbers.clear()
            for number, boot in enumerate(boots, 1):
                numbers.setdefault(boot.arm, []).append(number)
            return {arm: list(map(self.figures, mine)) for arm, mine in numbers.items()}

        with mock.patch("ramlab.bench.machines.run", run):
            new, _ = slices.PARTS[part](mock.Mock(quick=False, jobs=1, seed=1))
        return new, numbers

    def test_each_is_a_boot_where_boots_are_cheap_and_there_are_as_many_as_the_target_wants(self):
        goals = entries.targets()["slices"]
        for part, scale in self.SCALE.items():
            new, numbers = self.entries(part)
            for entry in new:
                with self.subTest(entry["name"]):
                    self.assertGreaterEqual(entry["n"], goals[entry["name"]]["need_n"])
                    arm = entry["name"].split("-")[-1]
                    booted = numbers[arm if arm in numbers else "ours"]
                    self.assertEqual([round(value / scale, 9) for value in entry["values"]], booted)
                    self.assertEqual(entry.get("baseline"), numbers.get("stock"))

    def test_lists_are_as_long_as_the_kernel_has_them(self):
        self.assertEqual(self.entries("tlb")[0][0]["beside"]["folios in a list"], 128)


def changes(*names):
    """Has these dependencies count as changed, and no others."""
    return mock.patch.object(provenance, "changed", lambda stored, root=None, tree=None: [
        name for name in stored or {"everything": None} if not stored or name in names])


class Judgement(unittest.TestCase):
    def judge(self, goal=None, **entry):
        with changes("kernel/patches"):
            return entries.judge(ENTRY | entry, GOAL | (goal or {}))

    def test_met(self):
        self.assertEqual(self.judge(), "true")

    def test_missed_if_the_interval_reaches_over_the_target(self):
        self.assertEqual(self.judge(value=0.69, ci95=[0.67, 0.71]), "false")
        self.assertEqual(self.judge(value=0.8, ci95=None), "false")

    def test_unmeasured_without_an_entry_or_with_too_few_samples(self):
        self.assertEqual(entries.judge(None, GOAL), "unmeasured")
        self.assertEqual(self.judge(n=9), "unmeasured")

    def test_stale_if_a_dependency_has_changed_or_none_is_stored(self):
        self.assertEqual(self.judge(depends={"kernel/patches": "then"}), "stale")
        self.assertEqual(self.judge(depends=None), "stale")

    def test_equivalence_is_asked_for_where_a_margin_is_named(self):
        self.assertEqual(self.judge({"margin": 0.01}), "true")
        self.assertEqual(self.judge({"margin": 0.01}, equivalence={"margin": 0.01, "p": 0.2}),
                         "false")
        self.assertEqual(self.judge({"margin": 0.01}, equivalence={}), "false")

    def test_every_target_names_what_it_is_about(self):
        for suite, wanted in entries.targets().items():
            for name, goal in wanted.items():
                self.assertTrue(goal["what"] and ("most" in goal) != ("above" in goal),
                                f"{suite}.{name}")


class Stored(unittest.TestCase):
    """What an entry stores of what it depends on."""

    def stored(self, images, **environment):
        used = provenance.Used(governor)
        used.guest_script("bench_slices.py")
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(entries, "path", lambda suite, kept=False:
                                  Path(folder) / f"{suite}-{kept}.json"), \
                mock.patch.object(machines, "describe", lambda images: {}), \
                mock.patch.dict("os.environ", environment):
            entries.store("x", [{"name": "fork-on", "value": 0.5, "n": 1}], images, used,
                          "ramlab bench x", 7)
            return entries.load("x", kept=True)["fork-on"]

    def test_a_look_whether_it_works_is_not_judged(self):
        quick = ENTRY | {"proves": False}
        self.assertEqual(entries.judge(quick, GOAL), "unmeasured")
        with mock.patch.object(entries, "load", lambda suite, kept=False: {
                "x": ENTRY | {"source": "kept", "value": 0.5} if kept else quick}), \
                mock.patch.object(provenance, "changed", return_value=[]):
            found, state = entries.chosen("slices", "x", GOAL, None)
        self.assertEqual((found["source"], state), ("kept", "true"))

    def test_an_entry_stores_suite_guest_script_and_kernel(self):
        found = self.stored({"plain": None})
        self.assertLessEqual({"lab/ramlab/bench/governor.py", "lab/ramlab/guest/bench_slices.py",
                              "kernel/base.lock", "kernel/patches", "kernel/files/mm",
                              "package qemu-system-x86"}, found["depends"].keys())
        # What takes the figures in the guest, and what decides the machine
        self.assertLessEqual({"lab/guest/bench.c", "lab/guest/ticks.h", "lab/ramlab/vm/boot.py",
                              "package linux-source-6.12"}, found["depends"].keys())
        self.assertNotIn("lab/guest/fuzz.c", found["depends"])
        self.assertNotIn("kernel/files/Documentation", found["depends"])
        self.assertEqual(found["seed"], 7)
        self.assertEqual(provenance.changed(found["depends"]), [])

    def test_the_unpatched_kernel_alone_does_not_depend_on_patches(self):
        self.assertNotIn("kernel/patches", self.stored({"stock": None})["depends"])

    def test_an_image_named_by_hand_is_of_unknown_code(self):
        self.assertIsNone(self.stored({"plain": None}, RAMSLICE_IMAGE_PLAIN="/x")["depends"])


class Check(unittest.TestCase):
    """The exit status of --check, and what it prints."""

    GOALS = {"slices": {"x": GOAL}}

    def check(self, entry, goal=None, changed=()):
        goals = {"slices": {"x": GOAL | (goal or {}), **({"y": GOAL} if goal else {})}}
        kept = {"x": entry | {"source": "kept"}} if entry else {}
        if goal:
            kept["y"] = ENTRY | {"name": "y", "source": "kept"}
        text = io.StringIO()
        with mock.patch.object(entries, "targets", lambda: goals), \
                mock.patch.object(entries, "load", lambda suite, kept=False, found=kept:
                                  found if kept else {}), \
                mock.patch.object(flame, "stale", lambda tree, folder=None, names=None: []), \
                changes(*changed), contextlib.redirect_stdout(text):
            return entries.check([]), text.getvalue()

    def test_0_if_every_target_is_met(self):
        status, text = self.check(ENTRY)
        self.assertEqual(status, 0)
        self.assertIn("met (kept)", text)

    def test_1_if_a_figure_is_stale_and_the_change_is_named(self):
        status, text = self.check(ENTRY, changed=["kernel/files/mm"])
        self.assertEqual(status, 1)
        self.assertIn("x: stale, changed: kernel/files/mm", text)

    def test_1_if_a_figure_is_unmeasured(self):
        self.assertEqual(self.check(None)[0], 1)

    def test_1_if_a_miss_has_no_cause_or_nothing_backs_it(self):
        missed = ENTRY | {"value": 0.9, "ci95": [0.8, 1.0]}
        for goal, why in (({"need_n": 10}, "no cause is given"),
                          ({"cause": "rain"}, "no kept measurement backs the cause"),
                          ({"cause": "rain", "evidence": ["slices.z"]},
                           "of the evidence, the kept entry slices.z is missing"),
                          ({"cause": "rain", "evidence": ["slices.y/beside/wind"]},
                           "of the evidence, the kept entry slices.y has no beside/wind"),
                          ({"cause": "rain", "evidence": ["flame-none.svg"]},
                           "of the evidence, results/flame-none.svg is missing"),
                          ({"cause": "rain", "evidence": ["flame-emptying.svg/rain"]},
                           "of the evidence, results/flame-emptying.svg has no function rain")):
            with self.subTest(why):
                status, text = self.check(missed, goal)
                self.assertEqual(status, 1)
                self.assertIn(f"NOT EXPLAINED: {why}", text)

    def test_3_if_a_kept_measurement_backs_the_cause_of_every_miss(self):
        missed = ENTRY | {"value": 0.9, "ci95": [0.8, 1.0]}
        for evidence in ("slices.y", "slices.y/ci95", "flame-emptying.svg/migrate_pages"):
            with self.subTest(evidence):
                status, text = self.check(missed, {"cause": "rain", "evidence": [evidence]})
                self.assertEqual(status, 3)
                self.assertIn("cause: rain", text)

    def test_evidence_that_is_stale_backs_nothing(self):
        missed = ENTRY | {"value": 0.9, "ci95": [0.8, 1.0], "depends": {"other": "now"}}
        status, text = self.check(missed, {"cause": "rain", "evidence": ["slices.y"]},
                                  changed=["kernel/files/mm"])
        self.assertEqual(status, 1)
        self.assertIn("NOT EXPLAINED: the evidence slices.y is stale", text)

    def test_every_cause_names_evidence_that_is_kept(self):
        named = [name for wanted in entries.targets().values() for goal in wanted.values()
                 for name in goal.get("evidence", ())]
        self.assertGreater(len(named), 10)
        for name in named:
            self.assertIsNone(entries.missing_evidence(name), name)

    def test_the_table_has_a_line_for_every_target(self):
        table = io.StringIO()
        with contextlib.redirect_stdout(table):
            entries.check([])
        lines = {line.split()[0]: line for line in table.getvalue().splitlines()
                 if line and not line.startswith(" ")}
        for wanted in entries.targets().values():
            for name, goal in wanted.items():
                self.assertIn(entries.limit(goal), lines[name])


class Graphs(unittest.TestCase):
    def test_a_graph_is_stale_if_something_changed_or_it_does_not_say_of_what_it_is(self):
        with tempfile.TemporaryDirectory() as folder, changes("kernel/patches"):
            path = Path(folder) / "flame-targets.svg"
            self.assertEqual(flame.stale(folder=Path(folder)), [])
            self.assertEqual(flame.stale(folder=Path(folder), names=[path.name]), [path.name])
            for text, found in (("", [path.name]),
                                ('<!-- depends {"kernel/patches": "then"} -->', [path.name]),
                                ('<!-- depends {"kernel/config": "now"} -->', [])):
                path.write_text(f"<svg></svg>{text}\n")
                self.assertEqual(flame.stale(folder=Path(folder)), found)


class Governor(unittest.TestCase):
    def test_each_figure_has_its_inputs_and_its_interval(self):
        def score(policy, seed, net, share):
            return {
                "policy": policy,
                "input": "batch",
                "seed": seed,
                "net_joules": {"low": net - 1, "high": net + 1},
                "share_of_clairvoyant": share,
                "loss_cap_joules": 10,
                "settings": policy,
            }

        # Better than the periodic one on 7 of 10 inputs, as good on one, worse on two
        ours = [score("governor", seed, 20 + seed, 0.9 + seed / 1000) for seed in range(10)]
        periodic = [
            score("periodic", seed, 20 + seed + (1 if seed < 2 else 0 if seed == 2 else -1), 0.9)
            for seed in range(10)
        ]
        never = [score("never", seed, 0, 0) for seed in range(10)]
        total = {"net_joules": {"low": 235, "high": 255}, "inputs": 10}
        report = {"scores": ours + periodic + never, "tried": periodic,
                  "standings": [total | {"policy": "governor", "governor_better": None},
                                total | {"policy": "periodic", "governor_better": 7},
                                total | {"policy": "never", "governor_better": 10},
                                total | {"policy": "clairvoyant", "governor_better": 0}]}
        found = {entry["name"]: entry for entry in governor.judged(report, [1])}
        for name, entry in found.items():
            self.assertEqual((entry["n"], len(entry["values"])), (10, 10), name)
            low, high = entry["ci95"]
            self.assertTrue(low <= entry["value"] <= high, name)
        better = found["governor-better"]
        self.assertEqual(
            (better["value"], better["policy"], better["values"]),
            (0.3, "periodic", [1, 1, 1] + 7 * [0]),
        )
        self.assertEqual(better["by_policy"], {"periodic": 0.3, "never": 0})
        self.assertAlmostEqual(found["governor-share"]["value"], 1 - 0.9045)
        self.assertEqual(found["governor-cap"]["value"], -2)
        self.assertEqual(found["governor-total"]["values"][0], -20)


class Prices(unittest.TestCase):
    """Boots with samples of programs, of which there are too many, and of mixtures."""

    def boots(self, *numbers):
        def sample(number, origin, label):
            return {"origin": origin, "label": label, "place": number}

        return [
            [sample(n, {"artificial": "cache"}, "cache") for n in range(50)]
            + [
                sample(n, "program", label)
                for label, number in counts.items()
                for n in range(number)
            ]
            for counts in numbers
        ]

    def counted(self, boots):
        return [
            {
                label: sum(row["label"] == label for row in rows)
                for label in {row["label"] for row in rows}
            }
            for rows in boots
        ]

    def test_programs_and_boots_have_equal_shares_of_what_is_kept_and_mixtures_are_all_kept(self):
        kept = energy.drawn(
            self.boots({"make": 700, "sort": 30}, {"make": 500}, {"make": 600, "sort": 600})
        )
        # 30 of the one that has no more; what is left is shared by four, at most one apart.
        self.assertEqual(
            self.counted(kept),
            [
                {"cache": 50, "make": 93, "sort": 30},
                {"cache": 50, "make": 93},
                {"cache": 50, "make": 92, "sort": 92},
            ],
        )

    def test_few_are_all_kept_as_they_are(self):
        boots = self.boots({"make": 100, "sort": 100}, {"make": energy.MOST_HELD_OUT - 200})
        self.assertEqual(energy.drawn(boots), boots)

    def test_what_is_kept_is_drawn_by_chance_the_same_each_time_and_in_its_order(self):
        boots = self.boots({"make": 1000})
        kept = energy.drawn(boots)
        self.assertEqual(kept, energy.drawn(boots))
        places = [row["place"] for row in kept[0] if row["origin"] == "program"]
        self.assertEqual(places, sorted(places))
        self.assertEqual(len(places), energy.MOST_HELD_OUT)
        # Of each quarter about a quarter: slices of a program change while it works.
        for quarter in range(4):
            self.assertAlmostEqual(
                sum(place // 250 == quarter for place in places), energy.MOST_HELD_OUT / 4, delta=30
            )

    def test_what_is_kept_is_a_file_that_holds_no_more_than_what_is_judged(self):
        documents = [{"schema_version": 1, "changed_samples": 2, "noise": noise, "samples": rows}
                     for noise, rows in zip((0.1, 0.2), self.boots({"make": 700}, {"make": 700}))]
        with tempfile.TemporaryDirectory() as folder:
            boots = []
            for number, document in enumerate(documents):
                (Path(folder) / str(number)).mkdir()
                (Path(folder) / str(number) / "result.json").write_text(json.dumps(document))
                boots.append(mock.Mock(folder=Path(folder) / str(number)))
            energy.together(boots, Path(folder) / "prices.json")
            text = (Path(folder) / "prices.json").read_text()
        found = json.loads(text)
        self.assertEqual((found["changed_samples"], found["noise"]), (4, 0.2))
        self.assertEqual(
            sum(row["origin"] == "program" for row in found["samples"]), energy.MOST_HELD_OUT
        )
        self.assertEqual(len(found["samples"]), 100 + energy.MOST_HELD_OUT)
        self.assertEqual(len(text.splitlines()), 2 + len(found["samples"]))

