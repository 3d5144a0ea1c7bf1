# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kept runs of case studies are made into: pairs by seed, gains whose ends are the worst
and best case.
"""

import statistics
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

from ramlab.bench import cases, entries
from ramlab.cases import conditions, sweep
from ramlab.common import ROOT


def joules(low, high):
    return {"low": low / 1e3, "high": high / 1e3}


def run(
    setting,
    low,
    high,
    seed=1,
    scale="full",
    start="fresh",
    off=30.0,
    read=0,
    dropped=0,
    emptying=(0, 0),
    cpu=20.0,
    disk=0,
    work="w",
):
    """A kept run of 10 real seconds, 50 of the guest, that saved and invested so much energy in
    mJ.
    """
    return {
        "setting": setting,
        "seed": seed,
        "scale": scale,
        "start": start,
        "disk_read_bytes": read,
        "cpu_s": cpu,
        "disk_used": {"bytes": disk},
        "disk": {"read_bytes_per_s": 1000},
        "work": work,
        "elapsed_s": 50.0,
        "depends": {"kernel/patches": "now"},
        "energy": {
            "saved_joules": joules(low, high),
            "time_seconds": {"low": 10.0, "high": 10.0},
            "lines": [
                {"term": "emptying", "joules": joules(*emptying)},
                {"term": "refaults", "joules": None},
            ],
            "net_joules": joules(low - emptying[1], high - emptying[0]),
            "work": {"dropped_pages": dropped},
        },
        "slice_seconds": {"off": off, "attainable": 40.0},
    }


def kept(*runs):
    return mock.patch.object(cases, "load", lambda name: list(runs))


class Cases(unittest.TestCase):
    def test_what_is_uncertain_is_the_same_in_both_runs(self):
        # Twice as much is off: whatever that saves, it is more
        self.assertEqual(
            [round(end, 6) for end in cases.gain(run("ours", 20, 40), run("nothing", 10, 20))],
            [1.0, 2.0],
        )
        # The price of emptying is not known so well that this pays
        low, high = cases.gain(run("ours", 20, 40, emptying=(5, 15)), run("nothing", 10, 20))
        self.assertEqual([round(low, 6), round(high, 6)], [-0.5, 1.5])
        # Of a price that both have paid, nothing is left
        both = {"emptying": (5, 15)}
        self.assertEqual(
            cases.gain(run("ours", 20, 40, **both), run("nothing", 20, 40, **both)), (0, 0)
        )

    def test_work_that_took_longer_costs_the_whole_machines_power(self):
        low, high = cases.platform_watts()
        ours, nothing = run("ours", 20, 40, cpu=20.05), run("nothing", 10, 20)
        found = cases.gain(ours, nothing)
        # A thousandth of the time
        self.assertEqual(
            [round(end, 6) for end in found], [round(1.0 - high, 6), round(2.0 - low, 6)]
        )
        self.assertEqual(
            [round(end, 6) for end in cases.gain(ours, nothing, run_time=False)], [1.0, 2.0]
        )
        faster = cases.gain(run("ours", 20, 40, cpu=19.95), nothing)
        self.assertEqual(
            [round(end, 6) for end in faster], [round(1.0 + low, 6), round(2.0 + high, 6)]
        )

    def test_for_what_else_was_read_the_work_waits_for_nothing_at_least_and_for_all_at_most(self):
        _, high = cases.platform_watts()
        # 50 bytes at 1000 a second
        found = cases.longer(run("ours", 20, 40, disk=50), run("nothing", 10, 20))
        self.assertEqual([round(end, 6) for end in found], [0.0, round(high, 6)])
        found = cases.longer(run("ours", 20, 40), run("nothing", 10, 20, disk=50))
        self.assertEqual([round(end, 6) for end in found], [round(-high, 6), 0.0])

    def test_only_runs_of_one_work_seed_scale_and_start_are_compared(self):
        runs = [
            run("ours", 1, 2, seed=1),
            run("nothing", 1, 2, seed=2),
            run("nothing", 1, 2, scale="tiny"),
            run("nothing", 1, 2, start="aged"),
        ]
        self.assertEqual(cases.pairs(runs), [])
        self.assertEqual(cases.pairs([*runs, run("nothing", 1, 2, work="other")]), [])
        self.assertEqual(len(cases.pairs([*runs, run("nothing", 1, 2, seed=1)])), 1)

    def test_only_runs_that_were_made_with_the_same_are_compared_and_others_are_told_of(self):
        told = []
        ours, nothing = run("ours", 1, 2), run("nothing", 1, 2)
        for change, why in (
            ({"depends": {"kernel/patches": "then"}}, "kernel/patches"),
            ({"disk": {"read_bytes_per_s": 999}}, "disk limits"),
            ({"energy": nothing["energy"] | {"time_factor": {"low": 4, "high": 5}}}, "time factor"),
            ({"native_machine": "x"}, "native machine"),
            ({"work": "x"}, "work"),
        ):
            with self.subTest(why):
                self.assertEqual(cases.pairs([ours, nothing | change], tell=told.append), [])
                self.assertEqual(
                    told.pop(),
                    f"full, fresh, seed 1: ours and nothing are not compared: they differ in {why}",
                )
                self.assertEqual(len(cases.pairs([ours | change, nothing | change])), len(told) + 1)
        old = {key: value for key, value in ours.items() if key != "disk_used"}
        self.assertEqual(cases.pairs([old, nothing], tell=told.append), [])
        self.assertIn("so old", told[0])

    def test_seeds_that_differ_widen_the_interval(self):
        one = [run("ours", 20, 30), run("nothing", 10, 15)]
        with kept(*one):
            [entry] = cases.net_entry("compile")
        self.assertEqual((entry["n"], [round(v, 6) for v in entry["ci95"]]), (1, [1.0, 1.5]))
        with kept(*one, run("ours", 40, 50, seed=2), run("nothing", 10, 15, seed=2)):
            [entry] = cases.net_entry("compile")
        self.assertEqual(entry["n"], 2)
        self.assertLess(entry["ci95"][0], 0)

    def test_the_import_does_not_count_unless_its_cache_is_used_again_and_unlimited_loses(self):
        ours, nothing = run("ours", 20, 30), run("nothing", 10, 15)
        for unlimited, counts in ((run("unlimited", -20, -10, read=3 * 4096, dropped=10), True),
                                  (run("unlimited", -20, -10, read=2 * 4096, dropped=10), False),
                                  (run("unlimited", -20, 12, read=3 * 4096, dropped=10), False)):
            with self.subTest(counts=counts), kept(ours, nothing, unlimited):
                self.assertEqual(len(cases.import_entry()), counts)

    def test_slices_that_are_off_at_a_loss_are_worth_nothing(self):
        unlimited = run("unlimited", -20, -10, read=3 * 4096, dropped=10)
        for low, share in ((20, 0.75), (5, 0.0)):
            with kept(run("ours", low, 30), run("nothing", 10, 15), unlimited):
                self.assertEqual(cases.import_entry()[0]["value"], share)

    def test_small_runs_are_no_evidence(self):
        with kept(run("ours", 20, 30, scale="small"), run("nothing", 10, 15, scale="small")):
            self.assertEqual(cases.net_entry("compile"), [])

    def test_an_import_that_surely_took_longer_is_worth_nothing(self):
        runs = [
            run("unlimited", -20, -10, seed=seed, read=3 * 4096, dropped=10) for seed in (1, 2, 3)
        ]
        runs += [run("nothing", 10, 15, seed=seed) for seed in (1, 2, 3)]
        for cpu, share in (((20.5, 20.6, 20.7), 0.0), ((20.5, 19.0, 20.4), 0.75)):
            ours = [run("ours", 20, 30, seed=seed + 1, cpu=took) for seed, took in enumerate(cpu)]
            with kept(*runs, *ours):
                self.assertEqual(cases.import_entry()[0]["value"], share)

    @mock.patch("ramlab.provenance.changed", lambda *_, **__: [])
    def test_above_means_the_whole_interval(self):
        entry = {"name": "x", "value": 1.0, "n": 3}
        for ci95, verdict in (([0.1, 2.0], "true"), ([-0.1, 2.0], "false"), ([0.0, 2.0], "false")):
            self.assertEqual(
                entries.judge(entry | {"ci95": ci95}, {"above": 0, "need_n": 3}), verdict
            )


def played(saved, cost, off, moved):
    """What the simulator says of one play, in J, slices and pages."""
    both = {f"{term}_joules": {"low": 0.0, "high": 0.0} for term in sweep.COSTS}
    return both | {
        "saved_joules": {"low": saved, "high": saved},
        "emptying_joules": {"low": cost, "high": 2 * cost},
        "net_joules": {"low": saved - 2 * cost, "high": saved - cost},
        "mean_offline": off,
        "assumptions": ["assumed"],
        "work": {"migrated_pages": moved, "dropped_pages": 0},
        "stats": {"packing_refault_pages": 0, "demand_wakes": 0},
    }


class Prices(unittest.TestCase):
    """What is said of the profile's prices follows from them."""

    def setUp(self):
        self.profile = tomllib.loads((ROOT / f"profiles/{conditions.PROFILE}.toml").read_text())

    def test_when_a_full_slice_has_paid_is_told_as_the_profile_has_it(self):
        machine, [state] = self.profile["machine"], self.profile["state"]
        price = {name: of["value"] for name, of in machine["prices"].items()}
        pages = 4096
        watts = state["saving"]["value"] / 1e3 * pages * 4096 / 2**30
        fixed = price["isolate_slice"] + price["isolate_page"] / 1024 * pages
        page = [
            price["migrate_page"] + price["migrate_mapping"] + price[to]
            for to in ("alloc_buddy", "alloc_cache")
        ]
        joules_per_cycle = machine["compacting_power"]["value"] / (
            machine["frequency"]["value"] * 1e9
        )
        joules = [(fixed + pages * cycles) * joules_per_cycle for cycles in page]
        minutes = [round(each / watts / 60) for each in joules]
        affordable = [
            (conditions.PAYBACK_S * watts / joules_per_cycle - fixed) / cycles for cycles in page
        ]
        self.assertTrue(affordable[1] < 60 < affordable[0])
        guide = " ".join((ROOT / "docs/reference/case-studies.md").read_text().split())
        cause = entries.targets()["energy"]["compile-net"]["cause"]
        self.assertIn(
            f"{joules[0]:.2f} to {joules[1]:.2f} J, and saves {1e3 * watts:.2f} mW", guide
        )
        for text, about in ((guide, "about 60 pages of 4096"), (cause, "some 60 pages of 4096")):
            self.assertIn(f"after {minutes[0]} to {minutes[1]} minutes", text)
            self.assertIn(about, text)

    def test_accounting_is_no_less_than_the_kept_page_faults_say(self):
        """It is of the version that counted pages, which the kept case studies ran on and are
        priced by; a daemon's ledger is set aside with another profile.
        """
        accounting, kept = self.profile["machine"]["accounting"], entries.load("slices", kept=True)
        for name in ("fault-1-on", "fault-2-on"):
            entry = kept[name]
            more = statistics.fmean(entry["values"]) - statistics.fmean(entry["baseline"])
            self.assertLessEqual(more, accounting["high"], name)
            self.assertIn(name, accounting["source"])


class Sweep(unittest.TestCase):
    def test_budgets_are_those_of_the_thesis_for_slices_of_this_size(self):
        tried = sweep.settings(16 << 20)
        self.assertEqual(len(tried), len(set(tried)))
        for each in (False, True):
            budgets = [
                budget
                for policy, budget, per_slice in tried
                if per_slice is each and policy == "periodic"
            ]
            self.assertEqual(budgets, [15625 << n for n in range(7)])
        self.assertEqual([b for p, b, each in tried if p == "periodic" and each is None], [0, None])

    def test_a_setting_is_a_file_for_the_simulator(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.toml"
            for setting in sweep.settings(16 << 20):
                sweep.policy_file(setting, 20, path)
                found = tomllib.loads(path.read_text())
                self.assertEqual(found["policy"], setting[0])
                if setting[0] == "periodic":
                    self.assertEqual(
                        found["periodic"],
                        {
                            "period_seconds": 20,
                            "budget_100cycles": "inf" if setting[1] is None else setting[1],
                            "per_slice": setting[2] is True,
                        },
                    )

    def test_a_row_is_the_mean_of_its_plays_and_its_net_their_least_and_most(self):
        row = sweep.row(
            "fresh",
            ("periodic", 15625, False),
            [played(1.0, 0.25, 10, 100), played(2.0, 0.75, 12, 300)],
        )
        self.assertEqual((row["n"], row["slices_off"], row["migrated_pages"]), (2, 11, 200))
        self.assertEqual(
            (row["saved_joules"]["low"], row["invested_joules"]), (1.5, {"low": 0.5, "high": 1.0})
        )
        self.assertEqual(row["net_joules"], {"low": 0.5, "high": 1.0})
        self.assertEqual(row["net_range_joules"], {"low": 0.5, "high": 1.25})

    def test_each_start_has_all_settings_and_what_was_measured_stands_beside_what_was_simulated(
        self,
    ):
        recordings = [
            ({"start": start, "seed": seed, "scale": "full", "period_s": 20}, f"{start}-{seed}")
            for start in ("fresh", "aged")
            for seed in (1, 2)
        ]
        runs = [run("nothing", 1, 2, seed=seed, off=100.0 * seed) for seed in (1, 2, 3)] + [
            run("unlimited", 1, 2, off=400.0)
        ]
        with mock.patch.object(
            sweep,
            "play",
            lambda program, recording, policy, profile, factor, seed: played(1, 0, seed, 0),
        ):
            rows, assumed = sweep.swept(
                "ramslice", recordings, 16 << 20, "p", {"low": 4, "high": 5}, (1, 2), runs
            )
        self.assertEqual(assumed, ["assumed"])
        self.assertEqual(
            [r["start"] for r in rows],
            [s for s in ("fresh", "aged") for _ in sweep.settings(16 << 20)],
        )
        self.assertTrue(all(r["n"] == 4 for r in rows))
        found = {(r["start"], r["policy"], r["budget_100cycles"]): r for r in rows}
        # Seeds 1 and 2: 100 and 200 slice-seconds in 50 s; the third was not recorded.
        self.assertEqual(found["fresh", "periodic", 0]["measured_slices_off"], 3)
        self.assertEqual(found["fresh", "periodic", None]["measured_slices_off"], 8)
        self.assertEqual(found["fresh", "governor", None]["attainable_slices_off"], 0.8)
        self.assertNotIn("measured_slices_off", found["aged", "periodic", 0])

    def test_a_recording_is_kept_with_what_is_known_of_its_run(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(sweep, "CACHE", Path(folder)),
        ):
            (Path(folder) / "r").mkdir()
            for start in ("aged", "fresh"):
                for date in ("then", "now"):
                    (Path(folder) / "r/part").write_text(date)
                    sweep.keep(
                        Path(folder) / "r",
                        "tpch",
                        {
                            "scale": "full",
                            "start": start,
                            "seed": 1,
                            "date": date,
                            "elapsed_s": 200,
                        },
                    )
            found = sweep.kept("tpch", "full")
            self.assertEqual(
                [(r["start"], r["date"]) for r, _ in found], [("fresh", "now"), ("aged", "now")]
            )
            self.assertEqual(found[0][0]["period_s"], 20)
            self.assertEqual((found[0][1] / "part").read_text(), "now")
            self.assertEqual(sweep.kept("tpch", "small"), [])


if __name__ == "__main__":
    unittest.main()
