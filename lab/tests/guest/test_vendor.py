# SPDX-License-Identifier: GPL-2.0-or-later
"""A vendor's power driver on a stock kernel powers down exactly what `ramslice` takes offline.

RAMSLICE_SEGMENTS names the driver, lab/guest/vendor/segments.c built for this kernel. The segments
without power are compared with /sys/devices/system/memory.
"""

import json
import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest.daemon import Daemon
from ramlab.guest.hotplug_blocks import MEMORY, MIB, PROGRAM, blocks, off, ramslice
from ramlab.pytest_vm import vm

SOURCE = {"RAMSLICE_SEGMENTS": "lab/guest/vendor/segments.c"}
ALL = vm(kernel=["debian-6.1", "debian-6.12", "debian-7"], mem="2G", modules=SOURCE)
NEWER = vm(kernel="debian-6.12", mem="2G", modules=SOURCE)
DRIVER = Path("/sys/module/segments/parameters")
SEGMENT = 64 * MIB


def driver(name):
    return (DRIVER / name).read_text().strip()


def unpowered():
    """Numbers of the segments without power, which the driver prints as 3-5,9."""
    runs = [run.split("-") for run in driver("unpowered").split(",") if run]
    return {number for run in runs for number in range(int(run[0]), int(run[-1]) + 1)}


class Vendor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        module = os.environ["RAMSLICE_SEGMENTS"]
        if not module:
            raise unittest.SkipTest("the vendor's driver cannot be built for this kernel")
        # It stays: a driver that forgot what has no power could not be unloaded
        subprocess.run(["insmod", module], check=True)
        cls.block = int((MEMORY / "block_size_bytes").read_text(), 16)
        cls.found = blocks()
        cls.touched = 0

    def setUp(self):
        self.assertEqual(
            (off(), unpowered()), (set(), set()), "every block is online before a test"
        )
        self.log = harness.KernelLog()
        self.addCleanup(self.log.close)

    def tearDown(self):
        self.configure(refuse_up=0, keep=-1)
        ramslice("online", "--all")
        ramslice("slices", "--resize", self.block)
        self.assertEqual(blocks(), self.found, "each block is online, in its old zone")
        self.assert_agreed()
        self.assertEqual(
            int(driver("nr_touched")),
            self.touched,
            "only the test wrote to a segment without power",
        )
        self.assertEqual(driver("nr_up"), driver("nr_down"))

    @staticmethod
    def configure(**parameters):
        for name, value in parameters.items():
            (DRIVER / name).write_text(str(value))

    def assert_agreed(self):
        """Exactly the segments of the offline blocks have no power; returns these blocks."""
        blocks_off, each = off(), self.block // SEGMENT
        self.assertEqual(
            unpowered(), {block * each + n for block in blocks_off for n in range(each)}
        )
        return blocks_off

    def switch(self, *words):
        """Sends a request and returns its outcome; afterwards the offline blocks have no power."""
        done = subprocess.run([PROGRAM, "--json", *map(str, words)], text=True, capture_output=True)
        document = json.loads(done.stdout)
        outcome = document.get("outcome") or document["results"][0]["outcome"]
        self.assertEqual(done.returncode == 0, outcome["status_errno"] == 0, done)
        self.assert_agreed()
        return outcome

    def some_off(self, count=1):
        self.assertEqual(self.switch("compact", "--max-slices", count)["slices_done"], count)
        return sorted(off())

    @ALL
    def test_exactly_the_offline_blocks_have_no_power(self):
        before = int(driver("nr_down"))
        low, high = self.some_off(2)
        self.assertEqual(int(driver("nr_down")) - before, 2 * self.block // SEGMENT)
        self.assertEqual(self.switch("online", high)["slices_done"], 1)
        self.assertEqual(off(), {low})
        self.assertEqual(self.switch("offline", high)["slices_done"], 1)
        self.assertEqual(self.switch("online", "--all")["slices_done"], 2)
        self.assertEqual(unpowered(), set())

    @NEWER
    def test_a_write_to_a_powered_down_segment_is_detected(self):
        number, = self.some_off()
        self.configure(touch=number * self.block // SEGMENT)
        type(self).touched += 1
        self.switch("online", number)
        self.assertEqual(int(driver("nr_touched")), self.touched)

    @ALL
    def test_a_failed_power_up_is_reported_and_the_slice_stays_known(self):
        first, second = self.some_off(2)
        self.configure(refuse_up=1)
        done = subprocess.run([PROGRAM, "online", str(first)], text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(
            f"slice {first}: refused: power: the power driver refused; see the kernel log",
            done.stdout,
        )
        self.assertTrue(any("do not power up" in line for line in self.log.lines()))
        self.assertEqual(self.assert_agreed(), {first, second})
        # Of several slices, the others wake
        self.configure(refuse_up=1)
        answer = self.switch("online", "--all")
        self.assertEqual(
            (answer["reason"], answer["slices_done"], answer["slices_failed"]), ("power", 1, 1)
        )
        self.assertEqual(len(off()), 1)
        self.assertEqual(self.switch("online", "--all")["slices_done"], 1)

    @NEWER
    def test_a_segment_that_must_stay_powered_leaves_the_slice_online(self):
        number, = self.some_off()
        self.switch("online", number)
        self.configure(keep=number * self.block // SEGMENT)
        answer = self.switch("offline", number)
        self.assertEqual((answer["reason"], answer["slices_failed"]), ("power", 1))
        self.assertEqual(blocks(), self.found)

    @NEWER
    def test_a_block_that_cannot_come_back_is_named_and_comes_back_later(self):
        # The upper block is offline when the lower one is refused, and gets no power to come back
        ramslice("slices", "--resize", 2 * self.block)
        number = next(s["id"] for s in reversed(ramslice("status")["snapshot"]["slices"])
                      if not s["unreclaimable"] and not s["unmovable"])
        lower, upper = 2 * number, 2 * number + 1
        self.configure(keep=lower * self.block // SEGMENT, refuse_up=1)
        done = subprocess.run([PROGRAM, "offline", str(number)], text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"slice {number}: refused: power: ", done.stdout)
        self.assertRegex(done.stderr, f"a block did not come back.*block={upper}")
        self.assertEqual(self.assert_agreed(), {upper})
        self.assertEqual(self.switch("online", "--all")["slices_done"], 1)

    @NEWER
    def test_a_guard_reports_once_that_nothing_wakes_and_continues(self):
        self.some_off(2)
        self.configure(refuse_up=1000)
        # The floor is more than there is, so the guard wants everything awake
        words = [PROGRAM, "--json", "guard", "--floor", "4GiB"]
        guard = subprocess.Popen(words, text=True, stdout=subprocess.PIPE)
        self.addCleanup(guard.kill)
        self.assertTrue(harness.until(lambda: int(driver("refuse_up")) <= 994),
                        "the guard tries again")
        self.assertEqual(len(self.assert_agreed()), 2)
        self.configure(refuse_up=0)
        self.assertTrue(harness.until(lambda: not off()),
                        "the guard wakes them as soon as there is power")
        guard.send_signal(signal.SIGINT)
        reported = [
            json.loads(line) for line in guard.communicate(timeout=harness.PATIENCE)[0].splitlines()
        ]
        outcomes = [
            (line["outcome"]["reason"], line["outcome"]["slices_done"]) for line in reported
        ]
        self.assertEqual(outcomes[0], ("power", 0), reported)
        self.assertEqual(sum(done for _, done in outcomes), 2, reported)
        self.assertLessEqual(len(outcomes), 3, reported)

    @NEWER
    def test_the_daemon_reports_power_that_does_not_come_back(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        daemon = Daemon(folder.name, mode="on", policy="periodic", stop="auto")
        self.addCleanup(daemon.end, signal.SIGKILL)
        daemon.start()
        daemon.until_no_more_goes_off()
        self.assertGreaterEqual(len(unpowered()), 2)
        self.configure(refuse_up=1000000)
        with harness.Memory(1300) as memory:
            touched = daemon.press(memory, 0, "slices do not wake: see the kernel log")
            self.assertNotIn("slices were woken", daemon.log())
            self.configure(refuse_up=0)
            daemon.press(memory, touched, "memory is short: slices were woken")
        self.assertEqual(daemon.log().count("slices do not wake"), 1)
        self.assertEqual(daemon.end(), 0)
        self.assertEqual(self.assert_agreed(), set())
