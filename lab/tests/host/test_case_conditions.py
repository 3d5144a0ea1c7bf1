# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs of case studies are made with: of other things than as they are now, they are
stale, say why, and are done again.
"""

import argparse
import contextlib
import copy
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ramlab.bench import cases
from ramlab.cases import command, conditions, prepared, table

FACTOR = {"low": 4.00001, "high": 5.00001, "native_machine": "one", "command": "it"}
# What a run depends on: counted for real in one test alone.
DEPENDS = mock.patch.object(conditions, "depends", lambda: {"kernel/patches": "now"})
KEYS = {"seed": 1, "scale": "full", "start": "fresh", "setting": "ours"}


def lab_case():
    """The command's module."""
    return command


def run(**changes):
    """A kept run, made as things are now but for the changes."""
    parts = conditions.now("compile", "full", FACTOR)
    return KEYS | parts | {"energy": {"time_factor": parts.pop("time_factor")}} | changes


def summary(*runs, **factor):
    return {"case": "compile", "time_factor": FACTOR | factor, "runs": list(runs)}


class Conditioned(unittest.TestCase):
    """Tests for which a run's dependencies are made up."""

    real_depends = staticmethod(conditions.depends)

    def setUp(self):
        DEPENDS.start()
        self.addCleanup(DEPENDS.stop)


class Kept(Conditioned):
    def load(self, document):
        """What counts of a summary, and what was told."""
        text = io.StringIO()
        with (
            mock.patch.object(cases, "summary", lambda name: copy.deepcopy(document)),
            contextlib.redirect_stdout(text),
        ):
            return cases.load("compile"), text.getvalue()

    def test_a_run_counts_while_everything_is_as_it_was(self):
        document = summary(run())
        self.assertEqual(self.load(document), (document["runs"], ""))

    def test_a_run_under_other_conditions_is_left_out_and_they_are_named(self):
        document = summary(run())
        for target, name, value, called in (
                (conditions, "depends", lambda: {"kernel/patches": "then"}, "kernel/patches"),
                (conditions, "depends", lambda: {"kernel/patches": "now", "new": "1"}, "new"),
                (conditions, "depends", lambda: None, "unknown code"),
                (conditions, "DISK", {"read_bytes_per_s": 1e6}, "disk limits"),
                (conditions.compile, "SCALES", {"full": {}}, "work")):
            with self.subTest(called), mock.patch.object(target, name, value):
                self.assertEqual(self.load(document),
                                 ([], f"compile, full, fresh: 1 stale, of another {called}\n"))
        self.assertEqual(self.load(summary(run(), native_machine="two"))[1],
                         "compile, full, fresh: 1 stale, of another native machine\n")
        self.assertEqual(self.load(summary(run(), high=5.1))[1],
                         "compile, full, fresh: 1 stale, of another time factor, disk limits\n")

    def test_a_run_depends_on_kernel_module_guest_script_profile_and_program(self):
        self.real_depends.cache_clear()
        found = self.real_depends()
        self.assertLessEqual({"kernel/files/mm", "lab/ramlab/cases/conditions.py",
                              "lab/ramlab/cases/compile.py", "lab/ramlab/guest/case.py",
                              f"profiles/{conditions.PROFILE}.toml", "crates/energy",
                              "crates/record", "crates/fragment", "crate serde"}, found.keys())
        self.assertNotIn(None, found.values())

    def test_a_run_of_a_program_named_by_hand_is_of_unknown_code(self):
        self.real_depends.cache_clear()
        with mock.patch.dict("os.environ", RAMSLICE_PROGRAM="/x"):
            self.assertIsNone(self.real_depends())
        self.real_depends.cache_clear()

    def test_runs_from_before_anything_was_told_are_stale_and_no_error(self):
        old = KEYS | {"energy": {}}
        for document in (summary(old), {"case": "compile", "runs": [old]}):
            kept, told = self.load(document)
            self.assertEqual(kept, [])
            self.assertIn("1 stale, of another work", told)
        self.assertEqual(self.load({"case": "compile", "runs": []}), ([], ""))

    def test_summaries_that_are_kept_can_be_read_and_shown(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            table.show({name: cases.summary(name) for name in conditions.STUDIES})
        self.assertIn("compile", text.getvalue())

    def test_without_runs_in_the_cache_the_table_names_the_summary_that_git_keeps(self):
        kept = json.loads(table.KEPT.read_text())["runs"]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            table.show({"tpch": {"case": "tpch", "runs": []}})
        nr = sum(row["case"] == "tpch" for row in kept)
        self.assertIn(f"results/cases/runs.json has {nr}\n", text.getvalue())

    def test_with_the_native_time_stands_where_it_was_taken(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch("ramlab.cases.subprocess.run"),
            mock.patch("ramlab.cases.processor", lambda: "one"),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            home = prepared(
                Path(folder) / "compile-tiny-x", lambda disk, _: ({"native_cpu_s": [1.0]}, 1)
            )
            self.assertEqual(
                json.loads((home / "expected.json").read_text()),
                {"native_cpu_s": [1.0], "native_machine": "one"},
            )


class ToDo(Conditioned):
    """Which runs ramlab case does."""

    def to_do(self, document, resume=True, again=False, starts=("fresh",)):
        """Settings of the runs to do, what was told, and why it refused."""
        args = argparse.Namespace(
            name="compile",
            scale="full",
            seeds=1,
            setting=["ours", "nothing"],
            start=list(starts),
            resume=resume,
            again=again,
        )
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                runs = lab_case().to_do(
                    document, args, conditions.now("compile", "full", document["time_factor"])
                )
            except SystemExit as end:
                self.assertEqual(end.code, 2)
                return None, out.getvalue(), err.getvalue()
        return [r["setting"] for r in runs], out.getvalue(), err.getvalue()

    def test_resumed_it_does_what_is_missing_and_again_what_was_made_with_something_else(self):
        self.assertEqual(self.to_do(summary(run()))[:2], (["nothing"], ""))
        runs, told, _ = self.to_do(summary(run(depends={"kernel/patches": "then"}, work="x")))
        self.assertEqual(runs, ["ours", "nothing"])
        self.assertEqual(
            told,
            "case: 1 fresh ours is done again: it was made with another work, kernel/patches\n",
        )
        self.assertEqual(self.to_do(summary(run()), resume=False)[0], None)

    def test_what_it_keeps_of_a_run_that_was_done_counts_and_is_not_done_again(self):
        lab = lab_case()
        figures = KEYS | {
            "case": "compile",
            "samples": [[0, 3, 1, 2]],
            "disk_used": {"busy_s": 0},
            "recording": None,
            "elapsed_s": 1.0,
            "energy": {
                "net_joules": {"low": 0, "high": 1},
                "time_factor": conditions.rounded(FACTOR),
            },
        }
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            path, home = Path(folder) / "compile.json", conditions.compile.home("full")
            path.write_text(json.dumps(summary()))
            stdout = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            for target, name, what in (
                (lab, "summary_path", lambda name: path),
                (lab, "summary", lambda name: json.loads(path.read_text())),
                (lab, "OUT", Path(folder)),
                (lab, "image", lambda flavour: None),
                (lab, "provenance", lambda *_: {}),
                (table, "keep", lambda found: None),
                (conditions.compile, "prepare", lambda scale: home),
                (lab, "job", lambda *_, **__: None),
                (
                    lab,
                    "boot",
                    lambda folder, jobs, drives, timeout, each: each(copy.deepcopy(figures)),
                ),
            ):
                stack.enter_context(mock.patch.object(target, name, what))
            args = argparse.Namespace(
                name="compile",
                scale="full",
                seeds=1,
                setting=["ours"],
                start=["fresh"],
                resume=True,
                again=False,
                no_record=True,
            )
            lab.study(args)
            self.assertEqual(conditions.sort_out(json.loads(path.read_text()))[1], [])
            kept = path.read_text()
            lab.study(args)
            self.assertEqual(path.read_text(), kept)
            self.assertIn("case: compile, 0 runs at scale full", stdout.getvalue())
            # Nor is a run kept that took too long
            figures["elapsed_s"] = lab.LIMIT_S + 1
            path.write_text(json.dumps(summary()))
            with contextlib.redirect_stderr(io.StringIO()) as stderr, self.assertRaises(SystemExit):
                lab.study(args)
            self.assertIn("901 s of the guest", stderr.getvalue())
            self.assertEqual(json.loads(path.read_text()), summary())

    def test_runs_that_were_timed_by_two_processors_do_not_stand_beside_each_other(self):
        aged = run(start="aged", native_machine="two")
        runs, _, why = self.to_do(summary(aged))
        self.assertIsNone(runs)
        self.assertIn(
            "that of another processor: two; now it is that of one. They are not to be mixed", why
        )
        # All are done again, or nothing is to be done, or it is unknown
        self.assertEqual(len(self.to_do(summary(aged), starts=("fresh", "aged"))[0]), 4)
        self.assertEqual(
            len(
                self.to_do(summary(aged | {"setting": "nothing"}), False, True, ("fresh", "aged"))[
                    0
                ]
            ),
            4,
        )
        self.assertEqual(self.to_do(summary(aged, run(), run(setting="nothing")))[0], [])
        self.assertEqual(len(self.to_do(summary(aged | {"native_machine": None}))[0]), 2)
        self.assertEqual(len(self.to_do(summary(aged | {"scale": "small"}))[0]), 2)

