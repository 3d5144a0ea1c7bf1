# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs of case studies are made with: of other things than as they are now, they are stale, say why, and are done again."""

import argparse
import contextlib
import copy
import io
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ramlab.bench import cases, entries, machines, programs
from ramlab.cases import command, made, prepared, table
from ramlab.common import ROOT

FACTOR = {"low": 4.00001, "high": 5.00001, "native_machine": "one", "command": "it"}
KEYS = {"seed": 1, "scale": "full", "start": "fresh", "setting": "ours"}


def lab_case():
    """The command's module."""
    return command


def run(**changes):
    """A kept run, made as things are now but for the changes."""
    parts = made.now("compile", "full", FACTOR)
    return KEYS | parts | {"energy": {"time_factor": parts.pop("time_factor")}} | changes


def summary(*runs, **factor):
    return {"case": "compile", "time_factor": FACTOR | factor, "runs": list(runs)}


class Made(unittest.TestCase):
    def load(self, document):
        """What counts of a summary, and what was told."""
        text = io.StringIO()
        with mock.patch.object(cases, "summary", lambda name: copy.deepcopy(document)), contextlib.redirect_stdout(text):
            return cases.load("compile"), text.getvalue()

    def test_a_run_counts_while_everything_is_as_it_was(self):
        document = summary(run())
        self.assertEqual(self.load(document), (document["runs"], ""))

    def test_a_run_of_something_else_is_left_out_and_it_is_told_of_what(self):
        document = summary(run())
        for target, name, value, called in (
                (machines, "code", lambda flavour: "x", "kernel"), (made, "program", lambda: "x", "program ramslice"),
                (made, "guest", lambda: "x", "guest's script"), (made, "profile", lambda: "x", "profile"),
                (made, "PAYBACK_S", 30, "payback time"), (made, "PERIOD_S", {"full": 30}, "period"),
                (made, "DISK", {"read_bytes_per_s": 1e6}, "disk limits"), (made, "MEMORY", "1G", "size of memory"),
                (made, "SLICE", "32M", "size of slices"), (made, "ICOUNT", "-icount shift=1", "clock and CPU"),
                (made.compile, "SCALES", {"full": {}}, "work")):
            with self.subTest(called), mock.patch.object(target, name, value):
                self.assertEqual(self.load(document), ([], f"compile, full, fresh: 1 stale, of another {called}\n"))
        self.assertEqual(self.load(summary(run(), native_machine="two"))[1],
                         "compile, full, fresh: 1 stale, of another native machine\n")
        self.assertEqual(self.load(summary(run(), high=5.1))[1],
                         "compile, full, fresh: 1 stale, of another time factor, disk limits\n")

    def test_runs_from_before_anything_was_told_are_stale_and_no_error(self):
        old = KEYS | {"energy": {}}
        for document in (summary(old), {"case": "compile", "runs": [old]}):
            kept, told = self.load(document)
            self.assertEqual(kept, [])
            self.assertIn("1 stale, of another kernel, work, program ramslice", told)
        self.assertEqual(self.load({"case": "compile", "runs": []}), ([], ""))

    def test_summaries_that_are_kept_can_be_read_and_shown(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            table.show({name: cases.summary(name) for name in made.STUDIES})
        self.assertIn("compile", text.getvalue())

    def test_a_profile_is_its_figures_not_its_texts(self):
        text = (ROOT / f"profiles/{made.PROFILE}.toml").read_text()
        found = {}
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(made, "ROOT", Path(folder)):
            (Path(folder) / "profiles").mkdir()
            for what, content in (("it", text), ("source", text.replace("Hannover 2024", "elsewhere")),
                                  ("figure", text.replace("value = 9.19", "value = 9.2"))):
                (Path(folder) / f"profiles/{made.PROFILE}.toml").write_text(content)
                found[what] = made.profile()
        self.assertEqual(found["it"], found["source"])
        self.assertNotEqual(found["it"], found["figure"])

    def test_the_guests_script_is_what_it_imports_too(self):
        before = made.guest()
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "harness.py"
            other.write_text("other\n")
            paths = [other if path.name == other.name else path for path in machines.modules("case.py")]
            self.assertIn(other, paths)
            with mock.patch.object(machines, "modules", lambda script: paths):
                self.assertNotEqual(made.guest(), before)

    def test_the_program_is_what_it_is_made_of_or_the_file_that_was_named(self):
        ours, _ = programs.closure(made.CRATES)
        self.assertLessEqual({"ramslice-energy", "ramslice-record", "ramslice-fragment", "ramslice-types"}, set(ours))
        for pattern in made.COMMANDS:
            self.assertTrue(list(ROOT.glob(pattern)), pattern)
        self.assertNotEqual(programs.digest(made.CRATES), programs.digest(made.CRATES, made.COMMANDS))
        before = made.program()
        with tempfile.NamedTemporaryFile() as file, mock.patch.dict(os.environ, {"RAMSLICE_PROGRAM": file.name}):
            named = made.program()
            Path(file.name).write_text("other")
            self.assertEqual(len({before, named, made.program()}), 3)

    def test_an_entry_that_was_worked_out_from_what_is_stale_now_is_stale(self):
        entry = {"name": "compile-net", "value": 1.0, "ci95": [0.1, 2.0], "n": 3, "kernel": {}}
        goal = {"above": 0, "need_n": 3}
        with mock.patch.object(cases, "summary", lambda name: summary()):
            entry["made"] = cases.identity("compile")
            self.assertEqual(entries.judge(entry, goal), "true")
            with mock.patch.object(made, "profile", lambda: "x"):
                self.assertEqual(entries.judge(entry, goal), "stale")
        del entry["made"]
        self.assertEqual(entries.judge(entry, goal), "stale")

    def test_with_the_native_time_stands_where_it_was_taken(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("ramlab.cases.subprocess.run"), \
                mock.patch("ramlab.cases.processor", lambda: "one"), contextlib.redirect_stdout(io.StringIO()):
            home = prepared(Path(folder) / "compile-tiny-x", lambda disk, _: ({"native_cpu_s": [1.0]}, 1))
            self.assertEqual(json.loads((home / "expected.json").read_text()), {"native_cpu_s": [1.0], "native_machine": "one"})


class ToDo(unittest.TestCase):
    """Which runs ramlab case does."""

    def to_do(self, document, resume=True, again=False, starts=("fresh",)):
        """Settings of the runs to do, what was told, and why it refused."""
        args = argparse.Namespace(name="compile", scale="full", seeds=1, setting=["ours", "nothing"], start=list(starts),
                                  resume=resume, again=again)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                runs = lab_case().to_do(document, args, made.now("compile", "full", document["time_factor"]))
            except SystemExit as end:
                self.assertEqual(end.code, 2)
                return None, out.getvalue(), err.getvalue()
        return [r["setting"] for r in runs], out.getvalue(), err.getvalue()

    def test_resumed_it_does_what_is_missing_and_again_what_was_made_with_something_else(self):
        self.assertEqual(self.to_do(summary(run()))[:2], (["nothing"], ""))
        runs, told, _ = self.to_do(summary(run(program="x", payback_s=1)))
        self.assertEqual(runs, ["ours", "nothing"])
        self.assertEqual(told, "case: 1 fresh ours is done again: it was made with another program ramslice, payback time\n")
        self.assertEqual(self.to_do(summary(run()), resume=False)[0], None)

    def test_what_it_keeps_of_a_run_that_was_done_counts_and_is_not_done_again(self):
        lab = lab_case()
        figures = KEYS | {"case": "compile", "samples": [[0, 3, 1, 2]], "disk_used": {"busy_s": 0}, "recording": None, "elapsed_s": 1.0,
                          "energy": {"net_joules": {"low": 0, "high": 1}, "time_factor": made.rounded(FACTOR)}}
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            path, home = Path(folder) / "compile.json", made.compile.home("full")
            path.write_text(json.dumps(summary()))
            stdout = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            for target, name, what in (
                    (lab, "summary_path", lambda name: path), (lab, "summary", lambda name: json.loads(path.read_text())),
                    (lab, "OUT", Path(folder)), (lab, "image", lambda flavour: None), (lab, "provenance", lambda *_: {}),
                    (made.compile, "prepare", lambda scale: home), (lab, "job", lambda *_, **__: None),
                    (lab, "boot", lambda folder, jobs, drives, timeout, each: each(copy.deepcopy(figures)))):
                stack.enter_context(mock.patch.object(target, name, what))
            args = argparse.Namespace(name="compile", scale="full", seeds=1, setting=["ours"], start=["fresh"], resume=True,
                                      again=False, no_record=True)
            lab.study(args)
            self.assertEqual(made.sort_out(json.loads(path.read_text()))[1], [])
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
        self.assertIn("that of another processor: two; now it is that of one. They are not to be mixed", why)
        # All are done again, or nothing is to be done, or nobody knows
        self.assertEqual(len(self.to_do(summary(aged), starts=("fresh", "aged"))[0]), 4)
        self.assertEqual(len(self.to_do(summary(aged | {"setting": "nothing"}), False, True, ("fresh", "aged"))[0]), 4)
        self.assertEqual(self.to_do(summary(aged, run(), run(setting="nothing")))[0], [])
        self.assertEqual(len(self.to_do(summary(aged | {"native_machine": None}))[0]), 2)
        self.assertEqual(len(self.to_do(summary(aged | {"scale": "small"}))[0]), 2)


if __name__ == "__main__":
    unittest.main()
