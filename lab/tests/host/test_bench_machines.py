# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots: which are carried out, in which order, and which an interrupted run need not repeat; with
a made-up runner.
"""

import argparse
import contextlib
import io
import json
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from ramlab.bench import machines

# What tests replace
CARRY_OUT = machines._carry_out
IMAGES = {"plain": Path("plain-1")}


class Interrupted(Exception):
    """The program is ended between two boots."""


class Boots(unittest.TestCase):
    """Boots of two arms; the figures of each are its words and how many were carried out before
    it.
    """

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)
        self.images, self.lab = IMAGES, "now"
        self.carried_out, self.ends_at, self.fails_at = [], None, None
        for target, name, what in ((machines, "OUT", self.out),
                                   (machines, "_carry_out", self.carry_out),
                                   (machines.provenance, "path_ids", lambda _: self.lab)):
            patch = mock.patch.object(target, name, what)
            patch.start()
            self.addCleanup(patch.stop)

    def carry_out(self, boot, _images, _quick, _at_work):
        nr = len(self.carried_out)
        if nr == self.ends_at:
            raise Interrupted
        self.carried_out.append((boot.arm, *boot.parts))
        # A guest may write figures and fail nevertheless
        (boot.folder / machines.RESULT).write_text(json.dumps({"part": boot.parts[0], "nr": nr}))
        status, output = (3, "the kernel complained") if nr == self.fails_at else (0, "")
        return status, output, {"faults": 1}

    def run_all(
        self,
        resume=False,
        seed=None,
        quick=False,
        words=(),
        number=4,
        script="bench_placement.py",
        jobs=1,
    ):
        """{arm: figures} and what was printed."""
        self.carried_out = []
        boots = [
            machines.Boot(arm, "plain", [*words], script, [n])
            for arm in ("one", "two")
            for n in range(number)
        ]
        args = argparse.Namespace(
            resume=resume, seed=seed, quick=quick, jobs=jobs,
            used=mock.Mock(modules={"settings.toml"})
        )
        args.seed = machines.seed_of("suite", "part", args)
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            try:
                return machines.run(boots, self.images, "part", args), text.getvalue()
            except (Interrupted, SystemExit):
                return None, text.getvalue()

    def test_all_boots_are_carried_out_in_an_order_by_seed(self):
        found, text = self.run_all(seed=5)
        self.assertEqual(
            {arm: sorted(one["part"] for one in figures) for arm, figures in found.items()},
            {"one": [0, 1, 2, 3], "two": [0, 1, 2, 3]},
        )
        self.assertEqual(found["one"][0]["host"], {"faults": 1})
        order = list(self.carried_out)
        self.assertIn("8 boots, order by seed 5\n", text)
        self.run_all(seed=5)
        self.assertEqual(self.carried_out, order)
        self.run_all(seed=6)
        self.assertNotEqual(self.carried_out, order)

    def test_resumed_it_does_what_is_left_in_the_order_that_it_began_with(self):
        self.run_all(seed=5)
        whole = list(self.carried_out)
        self.ends_at = 3
        self.assertIsNone(self.run_all(seed=9)[0])
        begun = list(self.carried_out)
        self.ends_at = None
        # Without a seed by hand, too
        found, text = self.run_all(resume=True)
        self.assertEqual(len(begun), 3)
        self.assertIn(
            "8 boots, order by seed 9, 3 of them done before; 5 left, about 0 min\n", text
        )
        self.assertIn("  4/8 ", text)
        resumed = begun + self.carried_out
        self.run_all(seed=9)
        self.assertEqual(resumed, self.carried_out)
        self.assertNotEqual(resumed, whole)
        parts = {arm: sorted(one["part"] for one in figures) for arm, figures in found.items()}
        self.assertEqual(parts, {"one": [0, 1, 2, 3], "two": [0, 1, 2, 3]})

    def test_resumed_after_the_end_it_does_nothing_and_finds_the_same(self):
        found, _ = self.run_all()
        again, text = self.run_all(resume=True)
        self.assertEqual((self.carried_out, again), ([], found))
        self.assertIn("8 of them done before\n", text)

    def test_without_being_asked_nothing_is_taken_as_done(self):
        self.run_all(seed=5)
        self.run_all(seed=5)
        self.assertEqual(len(self.carried_out), 8)

    def test_a_boot_that_failed_is_done_again_though_it_left_figures(self):
        self.fails_at = 2
        found, text = self.run_all(seed=5)
        self.assertIsNone(found)
        self.assertIn(
            "failed with status 3:\nthe kernel complained\n--resume goes on from here", text
        )
        failed, well = self.carried_out[2], self.carried_out[:2] + self.carried_out[3:]
        self.fails_at = None
        self.run_all(resume=True)
        self.assertEqual(self.carried_out[0], failed)
        self.assertEqual(
            sorted(well + self.carried_out), [(arm, n) for arm in ("one", "two") for n in range(4)]
        )

    def test_what_is_of_something_else_is_done_again(self):
        self.run_all(seed=5)
        for change in ({"words": ["--mem", "1G"]}, {"script": "bench_slices.py"}):
            with self.subTest(change):
                self.run_all(resume=True, **change)
                self.assertEqual(len(self.carried_out), 8)
                self.run_all(resume=True, **change)
                self.assertEqual(self.carried_out, [])
        with self.subTest("another image"):
            self.run_all(seed=5)
            self.images = {"plain": Path("plain-2")}
            self.run_all(resume=True)
            self.assertEqual(len(self.carried_out), 8)
        with self.subTest("what guests run has changed"):
            self.lab = "then"
            self.run_all(resume=True)
            self.assertEqual(len(self.carried_out), 8)
        with self.subTest("a program has changed"):
            program = self.out / "program"
            program.write_text("one")
            self.run_all(words=[f"P={program}"])
            program.write_text("two")
            self.run_all(resume=True, words=[f"P={program}"])
            self.assertEqual(len(self.carried_out), 8)

    def test_figures_that_are_cut_short_are_none(self):
        self.run_all(seed=5)
        torn = next((self.out / "bench/boots/part").glob("003-*")) / machines.RESULT
        torn.write_text('{"part": 1,')
        self.run_all(resume=True)
        self.assertEqual(len(self.carried_out), 1)

    def test_a_look_whether_it_works_leaves_the_long_run_alone(self):
        found, _ = self.run_all(seed=5)
        self.run_all(seed=6, quick=True)
        self.assertEqual(self.run_all(resume=True)[0], found)
        self.assertEqual(self.carried_out, [])

    @contextlib.contextmanager
    def interrupted_after(self, nr):
        """Boots are real processes that last for long, in which the program is ended as soon as so
        many have begun.
        """
        program = self.out / "bin/ramlab"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho $$ >>'%s/pids'\nexec sleep 300\n" % self.out)
        program.chmod(0o755)
        began = time.monotonic()

        def end(_futures):
            while len(self.pids()) < nr:
                self.assertLess(time.monotonic() - began, 60, "they do not begin")
                time.sleep(0.01)
            raise Interrupted

        with (
            mock.patch.object(machines, "_carry_out", CARRY_OUT),
            mock.patch.object(machines, "RAMLAB", self.out / "bin/ramlab"),
            mock.patch.object(machines, "identity", lambda *_: "one"),
            mock.patch("concurrent.futures.as_completed", end),
        ):
            yield
        self.assertLess(time.monotonic() - began, 60, "it waited for their own end")
        self.assertEqual(len(self.pids()), nr)
        self.assertFalse([pid for pid in self.pids() if Path("/proc", pid).exists()])

    def pids(self):
        return (self.out / "pids").read_text().split() if (self.out / "pids").exists() else []

    def test_whoever_ends_it_ends_the_machines(self):
        # Also one that began just now: it has written its number before we know it
        def slow(*args, begin=machines.subprocess.Popen, **options):
            machine = begin(*args, **options)
            time.sleep(0.2)
            return machine

        with self.interrupted_after(2), mock.patch.object(machines.subprocess, "Popen", slow):
            self.assertIsNone(self.run_all(jobs=2)[0])

    def test_once_it_ended_no_machine_begins(self):
        ended = threading.Event()

        def end(at_work, end=machines.AtWork.end):
            end(at_work)
            ended.set()

        def identity(boot, *_):
            # The second is not as far as to begin when the first is ended
            if boot.number:
                self.assertTrue(ended.wait(60))
            return "one"

        with self.interrupted_after(1), mock.patch.object(machines, "identity", identity), \
                mock.patch.object(machines.AtWork, "end", end):
            self.assertIsNone(self.run_all(jobs=2)[0])

    def test_what_is_left_takes_as_long_as_what_was_done(self):
        self.assertEqual(machines.ahead([100, 200], 40, 2), "; 40 left, about 50 min")
        # The last one is not shared
        self.assertEqual(machines.ahead([120], 1, 2), "; 1 left, about 2 min")
        self.assertEqual((machines.ahead([], 5, 1), machines.ahead([9], 0, 1)), ("", ""))
