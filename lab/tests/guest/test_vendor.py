# SPDX-License-Identifier: GPL-2.0-or-later
"""A vendor's power driver on a stock kernel powers down what `ramslice` takes offline as a whole.

RAMSLICE_SEGMENTS names the driver, lab/guest/vendor/segments.c built for this kernel. Segments
differ in size, as a phone's may. Those without power are compared with /sys/devices/system/memory.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import pytest

from ramlab.guest import harness
from ramlab.guest.daemon import Daemon
from ramlab.guest.hotplug_blocks import MEMORY, MIB, PROGRAM, blocks, off, ramslice
from ramlab.pytest_vm import vm

MACHINE = {
    "mem": "2G",
    # As on a phone, what is to go offline is in Movable: from 768 MiB on, with the kernel below
    "append": "movablecore=1280M nokaslr",
    "modules": {"RAMSLICE_SEGMENTS": "lab/guest/vendor/segments.c"},
}
ALL = vm(kernel=["debian-6.1", "debian-6.12", "debian-7"], **MACHINE)
NEWER = vm(kernel="debian-6.12", **MACHINE)
# Where each block is a segment, and everything can go offline
EQUAL = vm(kernel="debian-6.12", **MACHINE | {"append": "nokaslr"})
# START:LENGTH:FIRST:GRANULE in MiB: two segments of 256, two of 128, one of 512, two of 64, one of
# 128. The last two blocks, where the kernel has memory from the boot, are in none.
REGIONS = "0:512:0:256,768:256:0:128,1024:512:0:512,1536:128:0:64,1664:128:0:128"
EQUAL_REGIONS = "0:2048:0:128"
# Of blocks of 128 MiB: a segment has four, two share one, and these two have one each
LARGE, LARGE_BLOCKS, SHARED_BLOCK, SINGLE, SINGLE_BLOCKS = 4, (8, 9, 10, 11), 12, 7, (7, 13)
DRIVER = Path("/sys/module/segments/parameters")
FILES = Path("/sys/kernel/mem-offline")
# The driver's parameters before each test
CALM = {
    "refuse_up": 0,
    "others_refuse": 0,
    "lost": 0,
    "mailbox_ms": 4000,
    "alarm_ms": 7000,
    "own_errno": 62,
    "keep": -1,
}


def driver(name):
    return (DRIVER / name).read_text().strip()


def unpowered():
    """Numbers of the segments without power, which the driver prints as 3-5,9."""
    runs = [run.split("-") for run in driver("unpowered").split(",") if run]
    return {number for run in runs for number in range(int(run[0]), int(run[-1]) + 1)}


def segments():
    """{segment: its blocks}, from the driver's files; they list only unequal ones."""
    if not (FILES / "seg_info").exists():
        return {number: {number} for number in range(16)}
    found = {}
    for folder in FILES.glob("seg_info/segment*"):
        first, count = (
            int((folder / name).read_text()) for name in ("memblk_start", "num_memblks")
        )
        found[int(folder.name[7:])] = set(range(first, first + count))
    return found


def statistics():
    """{block: {(part, label): cell}} of the driver's table."""
    found, part, columns = {}, "", []
    for line in (FILES / "stats").read_text().splitlines():
        label, colon, cells = line.partition(":")
        if not colon:
            part = line.strip() if line.strip() in ("ONLINE", "OFFLINE") else part
            columns = [int(name[3:]) for name in line.split() if name[:3] == "mem"] or columns
            continue
        if "time" not in label and "count" not in label or label.strip()[:2] in ("On", "Of"):
            part = ""
        for block, cell in zip(columns, cells.split()):
            found.setdefault(block, {})[(part, label.strip())] = cell
    return found


class Vendor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        module = os.environ["RAMSLICE_SEGMENTS"]
        if not module:
            raise unittest.SkipTest("the vendor's driver cannot be built for this kernel")
        # It stays: a driver that forgot what has no power could not be unloaded
        is_unequal = "movablecore" in Path("/proc/cmdline").read_text()
        regions = REGIONS if is_unequal else EQUAL_REGIONS
        subprocess.run(["insmod", module, f"regions={regions}"], check=True)
        cls.block = int((MEMORY / "block_size_bytes").read_text(), 16)
        cls.found = blocks()
        cls.segments = segments()
        cls.touched = 0

    def setUp(self):
        self.assertEqual(
            (off(), unpowered()), (set(), set()), "every block is online before a test"
        )
        self.log = harness.KernelLog()
        self.addCleanup(self.log.close)

    def tearDown(self):
        self.configure(**CALM)
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
        """Exactly the segments whose blocks are all offline have no power; returns these blocks."""
        blocks_off = off()
        whole = {number for number, of in self.segments.items() if of <= blocks_off}
        self.assertEqual(unpowered(), whole)
        return blocks_off

    def run_program(self, *words, status=0):
        """What a command prints, and on stderr, and how long it took."""
        began = time.monotonic()
        done = subprocess.run([PROGRAM, *map(str, words)], text=True, capture_output=True)
        self.assertEqual(done.returncode, status, done)
        return done.stdout, done.stderr, time.monotonic() - began

    def switch(self, *words):
        """Sends a request and returns its outcome; afterwards power is where it belongs."""
        done = subprocess.run([PROGRAM, "--json", *map(str, words)], text=True, capture_output=True)
        document = json.loads(done.stdout)
        outcome = document.get("outcome") or document["results"][0]["outcome"]
        self.assertEqual(done.returncode == 0, outcome["status_errno"] == 0, done)
        self.assert_agreed()
        return outcome

    def some_off(self, count=1):
        self.assertEqual(self.switch("compact", "--max-slices", count)["slices_done"], count)
        return sorted(off())

    def all_off(self, numbers):
        """Takes these blocks offline, from the top."""
        for number in sorted(numbers, reverse=True):
            self.assertEqual(self.switch("offline", number)["slices_done"], 1, number)

    @ALL
    def test_a_segment_has_no_power_from_its_last_block_offline_to_its_first_online(self):
        self.assertEqual(self.segments[LARGE], set(LARGE_BLOCKS))
        self.assertEqual(self.segments[SINGLE], {SINGLE_BLOCKS[1]})
        self.assertEqual(sorted(map(len, self.segments.values())), [1] * 5 + [2] * 2 + [4])
        total = harness.meminfo()["MemTotal"]
        self.all_off(LARGE_BLOCKS[1:])
        self.assertEqual(unpowered(), set(), "a segment that is half offline stays on")
        self.all_off(LARGE_BLOCKS[:1])
        self.assertEqual(unpowered(), {LARGE})
        self.assertEqual(harness.meminfo()["MemTotal"], total, "as with the vendor's driver")
        self.assertEqual(self.switch("online", LARGE_BLOCKS[2])["slices_done"], 1)
        self.assertEqual(unpowered(), set())
        self.assertEqual(self.switch("online", "--all")["slices_done"], 3)
        # Two segments are in one block, and go together
        before = int(driver("nr_down"))
        self.all_off([SHARED_BLOCK])
        self.assertEqual(int(driver("nr_down")) - before, 2)

    @NEWER
    def test_slices_shows_what_the_driver_measured(self):
        number = LARGE_BLOCKS[-1]
        self.all_off([number])
        self.switch("online", number)
        words = ["slices", "-n", "-r", "-o", "slice,on-best,on-mean,on-worst,off-worst,off"]
        text = subprocess.run([PROGRAM, *words], text=True, check=True, capture_output=True).stdout
        rows = {int(row[0]): row[1:] for row in map(str.split, text.splitlines())}
        table = statistics()[number]
        microseconds = [int(table[part, f"{name} time"].removesuffix("us"))
                        for part, name in (("ONLINE", "Best"), ("ONLINE", "Avg"),
                                           ("ONLINE", "Worst"), ("OFFLINE", "Worst"))]
        self.assertEqual([round(float(cell) * 1000) for cell in rows[number][:4]], microseconds)
        self.assertGreater(min(microseconds), 0)
        self.assertTrue(rows[number][4].isdigit())
        # One that was never switched
        self.assertEqual(rows[min(rows)], ["-"] * 4 + ["0"])

    @ALL
    def test_compact_and_online_switch_whatever_they_choose(self):
        low, high = self.some_off(2)
        self.assertEqual(self.switch("online", high)["slices_done"], 1)
        self.assertEqual(off(), {low})
        self.assertEqual(self.switch("offline", high)["slices_done"], 1)
        self.assertEqual(self.switch("online", "--all")["slices_done"], 2)
        self.assertEqual(unpowered(), set())

    @NEWER
    def test_the_drivers_files_count_and_time_each_block(self):
        def numbers(block, part):
            rows = statistics()[block]
            names = ("Success count", "Fail count", "Best time", "Avg time", "Worst time")
            return [int(rows[(part, name)].rstrip("us")) for name in names]

        before, failed = numbers(13, "OFFLINE"), numbers(13, "ONLINE")[1]
        self.all_off([13])
        self.configure(refuse_up=1)
        self.assertEqual(self.switch("online", 13)["slices_failed"], 1)
        successes, failures, *times = numbers(13, "OFFLINE")
        self.assertEqual((successes - before[0], failures - before[1]), (1, 0))
        self.assertTrue(0 < times[0] <= times[1] <= times[2], times)
        self.assertEqual(numbers(13, "ONLINE")[1], failed + 1)
        rows = statistics()[13]
        self.assertEqual(rows[("", "State")], "Offline")
        self.assertIn(int(rows[("", "Online %")][:-1]) + int(rows[("", "Offline %")][:-1]),
                      (99, 100))
        self.assertTrue(harness.until(
            lambda: int(statistics()[13][("", "Offline time")][:-1]) > 0))
        self.assertEqual(self.switch("online", 13)["slices_done"], 1)
        self.assertEqual(numbers(13, "ONLINE")[1], failed + 1)
        self.assertEqual((FILES / "offline_granule").read_text(), f"{256 * MIB}\n")
        self.assertEqual((FILES / "differing_seg_sizes").read_text(), "1\n")
        with harness.Memory(600) as memory:
            memory.touch()
            used = sum(int(path.read_text()) for path in FILES.glob("memory*/allocated_bytes"))
            self.assertGreater(used, 100 * MIB)

    @NEWER
    def test_slices_that_are_a_part_of_a_segment_are_reported_with_the_size_that_is_not(self):
        part = "may be a part of a DRAM segment: these are not equal, from 64 MiB to 512 MiB"
        for words in (["offline", 11], ["slices", "--resize", "256MiB"]):
            error = self.run_program(*words)[1]
            self.assertIn(part, error)
            self.assertIn("`ramslice slices --resize 512MiB` makes slices of whole", error)
            self.switch("online", "--all")
        said, error, _ = self.run_program("slices", "--resize", "512MiB")
        self.assertEqual(error, "")
        self.assertIn(" slices of 512 MiB now; before, ", said)
        self.assertEqual(self.run_program("offline", 2)[1], "")
        self.assertEqual(self.assert_agreed(), set(LARGE_BLOCKS))
        self.assertEqual(unpowered(), {LARGE})
        says = self.run_program("doctor")[0]
        self.assertIn("Qualcomm mem-offline, units of 64 MiB to 512 MiB", " ".join(says.split()))

    @NEWER
    def test_a_write_to_a_powered_down_segment_is_detected(self):
        self.all_off([13])
        self.configure(touch=SINGLE)
        type(self).touched += 1
        self.switch("online", 13)
        self.assertEqual(int(driver("nr_touched")), self.touched)

    @ALL
    def test_a_failed_power_up_is_reported_and_the_slice_stays_known(self):
        self.all_off(SINGLE_BLOCKS)
        for own_errno, shown in ((62, "refused: Timer expired (os error 62)"), (1, "refused")):
            self.configure(refuse_up=1, own_errno=own_errno)
            said = self.run_program("online", 7, status=1)[0]
            self.assertIn(
                f"slice 7: refused: power: the power driver {shown}; see the kernel log", said
            )
            self.assertTrue(any("does not power up" in line for line in self.log.lines()))
            self.assertEqual(self.assert_agreed(), set(SINGLE_BLOCKS))
        # Of several slices, the others wake
        self.configure(refuse_up=1, own_errno=121)
        answer = self.switch("online", "--all")
        self.assertEqual((answer["reason"], answer["status_errno"]), ("power", 121))
        self.assertEqual((answer["slices_done"], answer["slices_failed"]), (1, 1))
        self.assertEqual(len(off()), 1)
        self.assertEqual(self.switch("online", "--all")["slices_done"], 1)

    @NEWER
    def test_a_block_that_another_listener_refuses_leaves_its_segment_without_power(self):
        self.all_off(LARGE_BLOCKS)
        before = int(driver("nr_up"))
        self.configure(others_refuse=1)
        self.assertEqual(self.switch("online", 9)["reason"], "power")
        self.assertEqual(int(driver("nr_up")) - before, 1, "it had power for a moment")
        self.assertEqual(self.assert_agreed(), set(LARGE_BLOCKS))
        # Where it is not the first block, nothing is switched
        self.assertEqual(self.switch("online", 9)["slices_done"], 1)
        self.configure(others_refuse=1)
        self.assertEqual(self.switch("online", 10)["reason"], "power")
        self.assertEqual(int(driver("nr_up")) - before, 2)

    @ALL
    def test_a_mailbox_that_times_out_holds_a_request_for_two_messages_at_most(self):
        self.all_off([7, 12, 13])
        self.configure(lost=1)
        said, _, seconds = self.run_program("online", 7, status=1)
        self.assertIn("power: the power driver refused: Timer expired", said)
        self.assertGreater(seconds, 4)
        self.assertEqual(self.assert_agreed(), {7, 12, 13})
        self.assertEqual(self.switch("online", 7)["slices_done"], 1, "one message was lost")
        self.all_off([7])
        self.configure(lost=1000, mailbox_ms=2000)
        answer = self.switch("online", "--all")
        self.assertEqual((answer["reason"], answer["status_errno"]), ("power", 62))
        self.assertEqual((answer["slices_done"], answer["slices_failed"]), (0, 2))
        self.assertEqual(int(driver("lost")), 998)
        # One lost message keeps no other slice offline
        self.configure(lost=1)
        self.assertEqual(self.switch("online", "--all")["slices_done"], 2)

    @NEWER
    def test_ctrl_c_ends_a_request_as_soon_as_the_mailbox_has_timed_out(self):
        self.all_off([7, 12, 13])
        self.configure(lost=1000)
        words = [PROGRAM, "--json", "online", "--all"]
        program = subprocess.Popen(words, text=True, stdout=subprocess.PIPE)
        self.addCleanup(program.kill)
        self.assertTrue(harness.until(lambda: int(driver("lost")) == 999))
        program.send_signal(signal.SIGINT)
        result, = json.loads(program.communicate(timeout=harness.PATIENCE)[0])["results"]
        self.assertEqual(result["outcome"]["reason"], "signal")
        self.assertEqual(int(driver("lost")), 999, "it was not asked again")
        self.assertEqual(self.assert_agreed(), {7, 12, 13})

    @NEWER
    def test_a_slice_whose_segment_stays_on_comes_back(self):
        # The driver learns it too late to refuse, and says so in its files alone
        self.configure(lost=1, mailbox_ms=1500)
        said, error, _ = self.run_program("offline", 13, status=1)
        self.assertIn("slice 13: refused: power: ", said)
        self.assertIn("could not switch the DRAM segment of these blocks off", error)
        self.assertIn("blocks=[13]", error)
        self.assertTrue(any("does not power down" in line for line in self.log.lines()))
        self.assertEqual(self.assert_agreed(), set())
        self.assertEqual(self.switch("offline", "--ignore-backoff", 13)["slices_done"], 1)
        # While the firmware is dead, compact does not empty one slice after another
        self.configure(lost=1000)
        answer = self.switch("compact")
        self.assertEqual((answer["reason"], answer["slices_failed"]), ("power", 2))
        self.assertNotEqual(answer["status_errno"], 0)
        self.assertEqual(driver("lost"), "998")

    @NEWER
    def test_the_drivers_alarm_ends_a_slice_and_not_the_program(self):
        self.configure(alarm_ms=0)
        with harness.Memory(600) as memory:
            memory.touch()
            said = self.run_program("offline", 11, status=1)[0]
            self.assertRegex(said, "slice 11: refused: (migration|pinned): ")
            answer = self.switch("compact", "--max-slices", 2)
            self.assertGreater(answer["slices_failed"], 1, "it goes on with the next slice")
            self.assertLessEqual(self.assert_agreed(), {14, 15}, "those are not the driver's")
            self.configure(alarm_ms=7000)
            self.assertEqual(self.switch("offline", "--ignore-backoff", 11)["slices_done"], 1)

    @NEWER
    def test_a_block_that_must_stay_powered_leaves_the_slice_online(self):
        self.configure(keep=7)
        answer = self.switch("offline", 7)
        self.assertEqual((answer["reason"], answer["slices_failed"]), ("power", 1))
        self.assertEqual(blocks(), self.found)

    @NEWER
    def test_a_segment_whose_last_block_is_refused_comes_back_and_was_on_all_along(self):
        ramslice("slices", "--resize", 4 * self.block)
        before = driver("nr_down")
        self.configure(keep=LARGE_BLOCKS[0])
        answer = self.switch("offline", LARGE_BLOCKS[0] // 4)
        self.assertEqual((answer["reason"], answer["slices_failed"]), ("power", 1))
        self.assertEqual(blocks(), self.found)
        self.assertEqual(driver("nr_down"), before)

    @NEWER
    def test_a_block_that_cannot_come_back_is_named_and_comes_back_later(self):
        # The upper block is offline when the lower one is refused, and gets no power to come back
        ramslice("slices", "--resize", 2 * self.block)
        self.configure(keep=12, refuse_up=1)
        said, error, _ = self.run_program("offline", 6, status=1)
        self.assertIn("slice 6: refused: power: ", said)
        self.assertRegex(error, "a block did not come back.*block=13")
        self.assertEqual(self.assert_agreed(), {13})
        self.assertEqual(self.switch("online", "--all")["slices_done"], 1)

    @pytest.mark.slow
    @NEWER
    def test_a_guard_reports_once_that_nothing_wakes_and_continues(self):
        # Refusals come at once; a driver that is silent is asked rarely
        for trouble, asked, seconds in (("refuse_up", 6, 0), ("lost", 4, 20)):
            with self.subTest(trouble):
                self.all_off(SINGLE_BLOCKS)
                self.configure(**{trouble: 1000, "mailbox_ms": 1500})
                # The floor is more than there is, so the guard wants everything awake
                words = [PROGRAM, "--json", "guard", "--floor", "4GiB"]
                guard = subprocess.Popen(words, text=True, stdout=subprocess.PIPE)
                self.addCleanup(guard.kill)
                self.assertTrue(harness.until(lambda: int(driver(trouble)) <= 1000 - asked),
                                "the guard tries again")
                before = int(driver(trouble))
                time.sleep(seconds)
                if seconds:
                    # Two slices rest for 3, 6, 12 s; without a rest it would be 13 messages
                    self.assertLessEqual(before - int(driver(trouble)), 6)
                self.assertEqual(len(self.assert_agreed()), 2)
                self.configure(**{trouble: 0})
                self.assertTrue(harness.until(lambda: not off()),
                                "the guard wakes them as soon as there is power")
                guard.send_signal(signal.SIGINT)
                reported = [
                    json.loads(line)
                    for line in guard.communicate(timeout=harness.PATIENCE)[0].splitlines()
                ]
                outcomes = [
                    (line["outcome"]["reason"], line["outcome"]["slices_done"])
                    for line in reported
                ]
                self.assertEqual(outcomes[0], ("power", 0), reported)
                self.assertEqual(sum(done for _, done in outcomes), 2, reported)
                self.assertLessEqual(len(outcomes), 3, reported)

    @pytest.mark.slow
    @EQUAL
    def test_the_daemon_reports_power_that_does_not_come_back(self):
        for trouble in ("refuse_up", "lost"):
            with self.subTest(trouble):
                folder = tempfile.TemporaryDirectory()
                self.addCleanup(folder.cleanup)
                daemon = Daemon(folder.name, mode="on", policy="periodic", stop="auto")
                self.addCleanup(daemon.end, signal.SIGKILL)
                daemon.start()
                daemon.until_no_more_goes_off()
                self.assertGreaterEqual(len(unpowered()), 2)
                self.configure(**{trouble: 1000000, "mailbox_ms": 1500})
                with harness.Memory(1300) as memory:
                    touched = daemon.press(memory, 0, "slices do not wake: see the kernel log")
                    self.assertNotIn("slices were woken", daemon.log())
                    self.configure(**{trouble: 0})
                    daemon.press(memory, touched, "memory is short: slices were woken")
                self.assertEqual(daemon.log().count("slices do not wake"), 1)
                self.assertIn("error=Timer expired (os error 62)", daemon.log())
                self.assertEqual(daemon.end(), 0)
                self.assertEqual(self.assert_agreed(), set())
