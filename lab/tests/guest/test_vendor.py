#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A vendor's power driver on a kernel that nobody patched: what ramslice switches off is what the driver powers down.

RAMSLICE_PROGRAM and RAMSLICE_DAEMON are the programs, RAMSLICE_SEGMENTS is the driver: vendor/segments.c, built for this
kernel. Wants 2 GiB of memory in blocks of 128 MiB. What has no power is compared with /sys/devices/system/memory.
"""

import json
import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from ramlab.guest import harness
from test_daemon import Daemon
from test_stock import MEMORY, MIB, PROGRAM, blocks, off, ramslice

DRIVER = Path("/sys/module/segments/parameters")
SEGMENT = 64 * MIB


def driver(name):
    return (DRIVER / name).read_text().strip()


def unpowered():
    """Numbers of the segments that have no power, by the driver: 3-5,9."""
    runs = [run.split("-") for run in driver("unpowered").split(",") if run]
    return {number for run in runs for number in range(int(run[0]), int(run[-1]) + 1)}


class Vendor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run(["insmod", os.environ["RAMSLICE_SEGMENTS"]], check=True)
        cls.block = int((MEMORY / "block_size_bytes").read_text(), 16)
        cls.found = blocks()
        cls.touched = 0

    def setUp(self):
        self.assertEqual((off(), unpowered()), (set(), set()), "everything is on before a test")
        self.log = harness.KernelLog()
        self.addCleanup(self.log.close)

    def tearDown(self):
        self.tell(refuse_up=0, keep=-1)
        ramslice("online", "--all")
        ramslice("slices", "--resize", self.block)
        self.assertEqual(blocks(), self.found, "each block is on, and in the zone it was in")
        self.assert_agreed()
        self.assertEqual(int(driver("nr_touched")), self.touched, "nobody wrote to a segment without power")
        self.assertEqual(driver("nr_up"), driver("nr_down"))

    @staticmethod
    def tell(**parameters):
        for name, value in parameters.items():
            (DRIVER / name).write_text(str(value))

    def assert_agreed(self):
        """Exactly the segments of the blocks that are off have no power; returns the blocks."""
        blocks_off, each = off(), self.block // SEGMENT
        self.assertEqual(unpowered(), {block * each + n for block in blocks_off for n in range(each)})
        return blocks_off

    def switch(self, *words):
        """A request's outcome; after each, what is off has no power."""
        done = subprocess.run([PROGRAM, "--json", *map(str, words)], text=True, capture_output=True)
        document = json.loads(done.stdout)
        outcome = document.get("outcome") or document["results"][0]["outcome"]
        self.assertEqual(done.returncode == 0, outcome["status_errno"] == 0, done)
        self.assert_agreed()
        return outcome

    def some_off(self, count=1):
        self.assertEqual(self.switch("compact", "--max-slices", count)["slices_done"], count)
        return sorted(off())

    def test_what_is_off_is_what_has_no_power(self):
        before = int(driver("nr_down"))
        low, high = self.some_off(2)
        self.assertEqual(int(driver("nr_down")) - before, 2 * self.block // SEGMENT)
        self.assertEqual(self.switch("online", high)["slices_done"], 1)
        self.assertEqual(off(), {low})
        self.assertEqual(self.switch("offline", high)["slices_done"], 1)
        self.assertEqual(self.switch("online", "--all")["slices_done"], 2)
        self.assertEqual(unpowered(), set())

    def test_writing_to_what_has_no_power_is_found_out(self):
        number, = self.some_off()
        self.tell(touch=number * self.block // SEGMENT)
        type(self).touched += 1
        self.switch("online", number)
        self.assertEqual(int(driver("nr_touched")), self.touched)

    def test_power_that_does_not_come_back_is_told_and_the_slice_stays_ours(self):
        first, second = self.some_off(2)
        self.tell(refuse_up=1)
        done = subprocess.run([PROGRAM, "online", str(first)], text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"slice {first}: refused: power: the power driver refused; see the kernel log", done.stdout)
        self.assertTrue(any("do not power up" in line for line in self.log.lines()))
        self.assertEqual(self.assert_agreed(), {first, second})
        # Of several, the others wake.
        self.tell(refuse_up=1)
        answer = self.switch("online", "--all")
        self.assertEqual((answer["reason"], answer["slices_done"], answer["slices_failed"]), ("power", 1, 1))
        self.assertEqual(len(off()), 1)
        self.assertEqual(self.switch("online", "--all")["slices_done"], 1)

    def test_a_segment_that_must_stay_powered_leaves_the_slice_as_found(self):
        number, = self.some_off()
        self.switch("online", number)
        self.tell(keep=number * self.block // SEGMENT)
        answer = self.switch("offline", number)
        self.assertEqual((answer["reason"], answer["slices_failed"]), ("power", 1))
        self.assertEqual(blocks(), self.found)

    def test_a_block_that_cannot_come_back_is_named_and_comes_back_later(self):
        # Of a slice of two blocks, the upper one is off when the lower one is refused, and gets no power to come back.
        ramslice("slices", "--resize", 2 * self.block)
        number = next(s["id"] for s in reversed(ramslice("status")["snapshot"]["slices"])
                      if not s["unreclaimable"] and not s["unmovable"])
        lower, upper = 2 * number, 2 * number + 1
        self.tell(keep=lower * self.block // SEGMENT, refuse_up=1)
        done = subprocess.run([PROGRAM, "offline", str(number)], text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"slice {number}: refused: power: ", done.stdout)
        self.assertRegex(done.stderr, f"a block did not come back.*block={upper}")
        self.assertEqual(self.assert_agreed(), {upper})
        self.assertEqual(self.switch("online", "--all")["slices_done"], 1)

    def test_a_guard_says_once_that_nothing_wakes_and_goes_on(self):
        self.some_off(2)
        self.tell(refuse_up=1000)
        # More than there is: it wants everything awake.
        words = [PROGRAM, "--json", "guard", "--floor", "4GiB"]
        guard = subprocess.Popen(words, text=True, stdout=subprocess.PIPE)
        self.addCleanup(guard.kill)
        self.assertTrue(harness.until(lambda: int(driver("refuse_up")) <= 994, 30), "it tries again")
        self.assertEqual(len(self.assert_agreed()), 2)
        self.tell(refuse_up=0)
        self.assertTrue(harness.until(lambda: not off(), 30), "it wakes them as soon as there is power")
        guard.send_signal(signal.SIGINT)
        said = [json.loads(line) for line in guard.communicate(timeout=60)[0].splitlines()]
        told = [(line["outcome"]["reason"], line["outcome"]["slices_done"]) for line in said]
        self.assertEqual(told[0], ("power", 0), said)
        self.assertEqual(sum(done for _, done in told), 2, said)
        self.assertLessEqual(len(told), 3, said)

    def test_the_daemon_switches_power_and_says_when_it_does_not_come_back(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        daemon = Daemon(folder.name, mode="on", policy="periodic", stop="auto")
        self.addCleanup(daemon.end, signal.SIGKILL)
        daemon.start()
        daemon.until_no_more_goes_off()
        self.assertGreaterEqual(len(unpowered()), 2)
        self.tell(refuse_up=1000000)
        with harness.Memory(1300) as memory:
            touched = daemon.press(memory, 0, "slices do not wake: see the kernel log")
            self.assertNotIn("slices were woken", daemon.log())
            self.tell(refuse_up=0)
            daemon.press(memory, touched, "memory is short: slices were woken")
        self.assertEqual(daemon.log().count("slices do not wake"), 1)
        self.assertEqual(daemon.end(), 0)
        self.assertEqual(self.assert_agreed(), set())


if __name__ == "__main__":
    harness.main()
