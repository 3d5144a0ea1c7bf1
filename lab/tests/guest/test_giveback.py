# SPDX-License-Identifier: GPL-2.0-or-later
"""Empty slices go to the host, by the power driver ramslice_report and a virtio balloon.

The guest's memory is a file that the guest can open, too; RAMSLICE_GUEST_MEMORY names it. What the
host has dropped is a hole in it: it reads as zeroes, and takes no room.
"""

import contextlib
import csv
import errno
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from ramlab.common import ROOT
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import PORT, Daemon
from ramlab.guest.harness import MIB, PAGE, Memory, check_contents
from ramlab.guest.hotplug_blocks import LAB_PROGRAM, PROGRAM, ramslice
from ramlab.pytest_vm import memory_file, vm

BALLOON = "-device virtio-balloon-pci,free-page-reporting=on"
DRIVER = Path("/sys/bus/virtio/drivers/virtio_balloon")
# Every huge page of the host is looked at
SAMPLE = MIB
PARAMETERS = Path("/sys/module/ramslice_report/parameters")
REPORTED = PARAMETERS / "reported_pages"
LIMIT = PARAMETERS / "max_mib_per_s"
TIMEOUT = dev.SYSFS / "driver_timeout_ms"


class GivebackTest(harness.RamsliceTest):
    """Ends with every slice online and no driver."""

    def setUp(self):
        super().setUp()
        subprocess.run(["modprobe", "ramslice_report"], check=True)
        self.addCleanup(subprocess.run, ["modprobe", "-r", "ramslice_report"], check=True)
        self.memory = os.open(os.environ["RAMSLICE_GUEST_MEMORY"], os.O_RDWR)
        self.addCleanup(os.close, self.memory)
        self.addCleanup(self.assert_sane)
        self.addCleanup(self.device.request, "online_all")

    def samples(self, number):
        """Where a slice lies in the memory's file: a place in each of its huge pages."""
        size = self.device.info().slice_bytes
        return range(number * size, (number + 1) * size, SAMPLE)

    def held(self, number):
        """Is anything of what the slice held still there?"""
        return any(any(os.pread(self.memory, PAGE, at)) for at in self.samples(number))

    def held_bytes(self):
        """What the host holds of all the memory."""
        return os.stat(os.environ["RAMSLICE_GUEST_MEMORY"]).st_blocks * 512

    def fill(self, number, byte=b"\xa5"):
        """Writes to a slice behind the guest's back, so that the host holds some of it."""
        for at in self.samples(number):
            os.pwrite(self.memory, byte * PAGE, at)

    def balloon(self):
        return next(path.name for path in DRIVER.glob("virtio*"))

    def bind(self, name, what):
        dev.write(DRIVER / what, name)


DAEMON = """schema_version = 1
mode = "on"
policy = "{policy}"
period_seconds = 1.0
[periodic]
period_seconds = 3.0
budget_100cycles = "inf"
[energy]
profile = "giveback"
[limits]
floor_mib = {floor_mib}
burst_reserve_mib = {burst_mib}
[state]
save_seconds = 0
[metrics]
listen = "127.0.0.1:{port}"
"""


@vm(**memory_file("1G", BALLOON), append="ramslice=16M")
class ByDaemon(GivebackTest):
    """ramsliced gives back, and says what that came to."""

    def setUp(self):
        super().setUp()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.daemon = Daemon(folder)
        self.addCleanup(self.daemon.end, signal.SIGKILL)

    def start(self, policy="governor", floor_mib=0, burst_mib=0):
        settings = DAEMON.format(
            policy=policy, floor_mib=floor_mib, burst_mib=burst_mib, port=PORT)
        (self.daemon.folder / "c.toml").write_text(settings)
        self.daemon.start()

    def on_mib(self):
        info = self.device.info()
        return (info.managed_pages - info.offline_pages) * PAGE // MIB

    def test_the_governor_gives_idle_memory_to_the_host_and_it_comes_back(self):
        self.give_back_and_return("governor")

    def test_the_policy_periodic_does_the_same(self):
        self.give_back_and_return("periodic")

    def give_back_and_return(self, policy):
        with Memory(500) as memory:
            memory.touch()
        self.start(policy)
        self.daemon.until(lambda: self.on_mib() < 450)
        self.assertLess(self.held_bytes() // MIB, 600)
        self.serve(400)
        given = self.daemon.until(lambda: (self.daemon.status() or {}).get("given_back"))
        self.assertRegex(given["sentence"], r"^gave back [0-9.]+ GiB for [0-9.]+ (s|minutes) \(")
        self.assertEqual(self.daemon.end(), 0)
        self.assertIn("gave back ", self.daemon.log())

    def test_what_a_program_had_goes_at_one_look(self):
        settings = (ROOT / "packaging/examples/giveback.toml").read_text()
        rare = settings.replace("period_seconds = 9 ", "period_seconds = 900 ")
        self.assertNotEqual(rare, settings)
        (self.daemon.folder / "c.toml").write_text(f"schema_version = 1\n{rare}")
        self.daemon.start()
        self.daemon.until(lambda: self.on_mib() < 450)
        # It looks after the program, not while that ends
        with Memory(400) as memory:
            memory.touch()
            self.daemon.process.send_signal(signal.SIGSTOP)
        known = len(self.daemon.log())
        on = self.on_mib()
        self.daemon.process.send_signal(signal.SIGCONT)

        def first():
            done = re.findall(r"has carried out a request .*done=([1-9]\d*)",
                              self.daemon.log()[known:])
            return int(done[0]) if done else None

        # Of 25 slices; the rest of them may be in use by others, or be the reserve
        self.assertGreaterEqual(self.daemon.until(first), 18, (on, self.daemon.log()[known:]))

    def test_the_floor_and_the_burst_reserve_stay_on(self):
        self.start(floor_mib=600)
        self.daemon.until(lambda: self.on_mib() < 700)
        self.daemon.steps(10)
        self.assertGreaterEqual(self.on_mib(), 600)
        self.daemon.end()
        harness.wake(self.device)
        self.start(burst_mib=400)
        self.daemon.until(lambda: self.on_mib() < 700)
        self.daemon.steps(10)
        self.assertGreaterEqual(self.device.info().free_pages * PAGE // MIB, 400)


@vm(**memory_file("1G", BALLOON), append="ramslice=16M")
class Reported(GivebackTest):
    def test_the_host_drops_an_empty_slice_at_once(self):
        number, = self.empty()
        self.fill(number)
        self.assertTrue(self.held(number))
        before, held = int(dev.read(REPORTED)), self.held_bytes()
        self.assertEqual(self.device.request("offline", id=number).status, 0)
        self.assertFalse(self.held(number))
        self.assertLess(self.held_bytes(), held)
        self.assertEqual(int(dev.read(REPORTED)) - before, self.row(number).nr_pages)

    def test_no_slice_that_is_off_is_held_by_the_host(self):
        with Memory(600) as memory:
            memory.touch()
        nr = harness.compact(self.device)
        self.assertGreater(nr, self.device.info().nr_slices // 2)
        self.assertEqual([n for n in harness.ids(self.device, dev.OFFLINE) if self.held(n)], [])
        info = self.device.info()
        self.assertLess(self.held_bytes(), (info.nr_slices - nr) * info.slice_bytes)

    def test_used_memory_is_packed_and_its_contents_stay(self):
        with Memory(400) as memory:
            check_contents(memory.touch().punch())
            harness.compact(self.device)
            self.assertEqual([n for n in harness.ids(self.device, dev.OFFLINE) if self.held(n)], [])
            check_contents(memory)

    def test_memory_comes_back_on_demand(self):
        for _ in range(3):
            harness.compact(self.device)
            self.serve(500)

    def test_memory_comes_back_to_callers_that_cannot_wait(self):
        log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
        self.assertIn("power driver report, atomic wake", log)

    def test_the_command_gives_back_until_so_much_is_left_on(self):
        before = ramslice("giveback")
        self.assertEqual(before["power_driver"], "report")
        self.assertEqual(before["devices"][0]["by_itself"], True)
        size = before["on_bytes"] // 2
        done = ramslice("giveback", "--until", size)
        self.assertLessEqual(done["on_bytes"], size)
        self.assertGreater(done["on_bytes"], size - self.device.info().slice_bytes)
        self.assertEqual(done["reported_bytes"],
                         self.device.info().offline_pages * PAGE)
        self.assertEqual(done["reported_slices"], len(harness.ids(self.device, dev.OFFLINE)))
        # Not even packed memory is that little
        ramslice("giveback", "--until", MIB, status=1)
        self.assertGreater(ramslice("giveback")["reported_bytes"], done["reported_bytes"])

    def test_watching_says_what_was_given_back_and_ends_with_ctrl_c(self):
        harness.wake(self.device)
        before = int(dev.read(REPORTED))
        began = time.monotonic()
        with subprocess.Popen([PROGRAM, "giveback", "--watch", "--interval", "200ms", "--json"],
                              stdout=subprocess.PIPE, text=True) as watching:
            lines = [json.loads(watching.stdout.readline())]
            self.assertGreater(harness.compact(self.device), 5)
            # From now on, a slice may wake at any time
            off = [self.device.info().offline_pages]
            compacted_us = (time.monotonic() - began) * 1e6
            while lines[-1]["elapsed_us"] <= compacted_us:
                lines.append(json.loads(watching.stdout.readline()))
            # The look of that line may have begun before
            lines.append(json.loads(watching.stdout.readline()))
            watching.send_signal(signal.SIGINT)
            lines += [json.loads(line) for line in watching.stdout]
        self.assertEqual(watching.returncode, 0)
        self.assertEqual(lines[0]["reported_bytes"], 0)
        self.assertNotIn("gave_back_bytes", lines[0])
        off.append(self.device.info().offline_pages)
        self.assertGreaterEqual(lines[-1]["reported_bytes"], off[1] * PAGE)
        self.assertLessEqual(lines[-1]["reported_bytes"], off[0] * PAGE)
        self.assertEqual(sum(line["gave_back_bytes"] for line in lines[1:]),
                         (int(dev.read(REPORTED)) - before) * PAGE)
        self.assertGreaterEqual(min(line["stalled_us"] for line in lines[1:]), 0)

    def test_a_recording_shows_what_was_reported_over_time(self):
        harness.wake(self.device)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            work = f"sleep 1; {PROGRAM} giveback --now; sleep 1"
            subprocess.run([LAB_PROGRAM, "record", "-o", folder / "run", "--every", "200ms",
                            "--", "sh", "-c", work], check=True)
            subprocess.run([LAB_PROGRAM, "report", folder / "run", "-o", folder / "run.html",
                            "--csv", folder / "csv"], check=True)
            with open(folder / "csv/giveback.csv") as table:
                rows = [{name: float(value) for name, value in row.items()}
                        for row in csv.DictReader(table)]
        memory = {row["on_bytes"] + row["reported_bytes"] for row in rows}
        self.assertEqual(len(memory), 1)
        self.assertEqual(rows[0]["reported_bytes"], 0)
        self.assertGreater(rows[-1]["reported_bytes"], memory.pop() // 2)
        for row in rows:
            self.assertLess(0, row["used_bytes"])
            self.assertLessEqual(row["used_bytes"], row["used_with_cache_bytes"])
            self.assertLessEqual(row["used_with_cache_bytes"], row["on_bytes"])

    def test_free_page_reporting_goes_on_beside_it(self):
        """What is free and on is found by the kernel itself, two seconds later."""
        order = Path("/sys/module/page_reporting/parameters/page_reporting_order")
        self.assertEqual(dev.read(order), "9")
        number, = self.empty()
        self.fill(number)
        # Used and freed, it counts as not reported
        self.assertEqual(self.device.request("offline", id=number).status, 0)
        self.assertEqual(self.device.request("online", id=number).status, 0)
        self.fill(number)
        self.assertTrue(harness.until(lambda: not self.held(number)))

    def test_nothing_is_reported_while_the_device_is_gone(self):
        first, second = self.empty(2)
        self.assertEqual(self.device.request("offline", id=first).status, 0)
        name = self.balloon()
        self.bind(name, "unbind")
        with contextlib.ExitStack() as stack:
            stack.callback(self.bind, name, "bind")
            self.fill(second)
            done = self.device.request("offline", id=second)
            self.assertEqual((done.status, done.why()), (errno.EIO, "power"))
            self.assertEqual(self.row(second).state, dev.ONLINE)
            self.assertTrue(self.held(second))
            # What was off before comes back all the same
            self.assertEqual(self.device.request("online", id=first).status, 0)
        done = self.device.request("offline", id=second, flags=dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, self.held(second)), (0, False))

    def test_a_device_that_goes_waits_for_the_report_under_way(self):
        name = self.balloon()
        for number in self.empty(8):
            unbind = subprocess.Popen(["sh", "-c", f"echo {name} >{DRIVER}/unbind"])
            status = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF).status
            self.assertIn(status, (0, errno.EIO))
            self.assertEqual(unbind.wait(), 0)
            self.bind(name, "bind")


@vm(**memory_file("1G"), append="ramslice=16M")
class WithoutDevice(GivebackTest):
    def test_slices_stay_and_keep_their_contents(self):
        number, = self.empty()
        done = self.device.request("offline", id=number)
        self.assertEqual((done.status, done.why()), (errno.EIO, "power"))
        self.assertEqual(self.row(number).state, dev.ONLINE)
        # Few slices are emptied for nothing
        done = self.device.request("compact")
        self.assertEqual((done.status, done.why(), done.nr_failed), (0, "power", 8))
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 60) as memory:
            check_contents(memory.touch())


class ContentsTest(GivebackTest):
    """Contents after a report are up to the host; allocations get what they must all the same."""

    def check(self):
        harness.compact(self.device)
        offline = harness.ids(self.device, dev.OFFLINE)
        self.assertTrue(offline)
        for number in offline[::3]:
            self.fill(number, os.urandom(1))
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 60) as memory:
            self.assertIsNone(memory.touch().wrong_at())


# With init_on_free, small anonymous pages are zero only if free ones were
@vm(**memory_file("512M", BALLOON), append="ramslice=16M init_on_free=1")
class Zeroed(ContentsTest):
    def test_what_the_host_leaves_behind_is_not_seen(self):
        self.check()


# The kernel negotiates the value of free pages with the host, and QEMU then ignores reports
@vm(**memory_file("640M", BALLOON), append="ramslice=16M page_poison=on", kernel="debug")
class Poisoned(ContentsTest):
    def test_a_host_that_drops_reports_costs_nothing_but_memory(self):
        log = harness.KernelLog()
        self.addCleanup(log.close)
        # Free pages hold a pattern
        number, = self.empty()
        self.assertTrue(self.held(number))
        self.assertEqual(self.device.request("offline", id=number).status, 0)
        self.assertTrue(self.held(number))
        self.check()
        self.assertEqual([line for line in log.lines() if "pagealloc" in line], [])


@vm(**memory_file("1G", BALLOON), append="ramslice=2M")
class SmallSlices(GivebackTest):
    def cycle(self, cycles):
        """So many slices go off and wake, a hundred at a time, beside memory in use."""
        refused = 0
        with Memory(300) as memory:
            memory.touch().punch()
            for _ in range(cycles // 100):
                for number in self.empty(100):
                    status = self.device.request("offline", id=number).status
                    # A page may have come to it meanwhile
                    self.assertIn(status, (0, errno.EAGAIN, errno.EBUSY))
                    refused += status != 0
                self.assertGreater(len(harness.ids(self.device, dev.OFFLINE)), 50)
                self.assertEqual(self.device.request("online_all").status, 0)
            check_contents(memory)
        self.assertLess(refused, cycles // 10)
        self.assertEqual(harness.ids(self.device, dev.QUARANTINED), [])

    def test_cycles_of_off_and_wake_change_no_contents(self):
        self.cycle(300)

    @pytest.mark.slow
    def test_ten_thousand_cycles_of_off_and_wake_change_no_contents(self):
        self.cycle(10_000)


# Kernel pages together, so that some slices have none
@vm(**memory_file("6G", BALLOON), append="ramslice=1G ramslice_placement=packed")
class SlicesOfAGib(GivebackTest):
    def samples(self, number):
        # There is no memory between what lies low and 4 GiB, and no gap in the file
        slices = [s.id for s in self.device.snapshot()]
        low = number if number < 4 else slices.index(number)
        return range(low << 30, (low + 1) << 30, SAMPLE)

    def test_a_slice_of_a_gib_goes_to_the_host_and_comes_back(self):
        for s in self.device.snapshot():
            self.assertEqual(s.nr_pages * PAGE, 1 << 30)
            # Most hold pages of the kernel
            if not s.flags and self.device.request("offline", id=s.id).status == 0:
                break
        else:
            self.fail(f"no slice could be emptied: {self.device.snapshot()}")
        self.assertFalse(self.held(s.id))
        self.fill(s.id)
        self.assertTrue(self.held(s.id))
        self.assertEqual(self.device.request("online", id=s.id).status, 0)
        self.assertEqual(self.device.request("offline", id=s.id).status, 0)
        self.assertFalse(self.held(s.id))


@vm(**memory_file("1G", BALLOON), append="ramslice=2M")
class Limited(GivebackTest):
    """The module's parameter max_mib_per_s: what is beyond it waits."""

    def setUp(self):
        super().setUp()
        self.addCleanup(dev.write, TIMEOUT, dev.read(TIMEOUT))

    def test_there_is_no_limit_unless_one_is_set(self):
        self.assertEqual(dev.read(LIMIT), "0")

    def test_a_guest_that_cycles_reports_no_more_than_the_limit(self):
        limit = 16
        dev.write(LIMIT, limit)
        slice_mib = self.device.info().slice_bytes // MIB
        before, began = int(dev.read(REPORTED)), time.monotonic()
        for _ in range(4):
            for number in self.empty(12):
                self.assertEqual(self.device.request("offline", id=number).status, 0)
                reported = (int(dev.read(REPORTED)) - before) * PAGE / MIB
                # A burst is what a second allows, and the slice with which it ends
                allowed = limit * (time.monotonic() - began + 1) + slice_mib
                self.assertLessEqual(reported, allowed)
            self.assertEqual(self.device.request("online_all").status, 0)
        self.assertEqual(reported, 4 * 12 * slice_mib)

    def test_a_slice_that_would_wait_for_too_long_stays_online(self):
        """A driver that waits for longer than its time would lose the slice."""
        first, second = self.empty(2)
        dev.write(LIMIT, 1)
        dev.write(TIMEOUT, 100)
        self.assertEqual(self.device.request("offline", id=first).status, 0)
        done = self.device.request("offline", id=second)
        self.assertEqual((done.status, done.why()), (errno.EIO, "power"))
        self.assertEqual(self.row(second).state, dev.ONLINE)
        # Another limit counts from when it is set
        dev.write(LIMIT, 1024)
        done = self.device.request("offline", id=second, flags=dev.IGNORE_BACKOFF)
        self.assertEqual(done.status, 0)

    def test_a_limit_that_is_none_is_refused(self):
        dev.write(LIMIT, 1 << 20)
        for text in ("-1", str((1 << 20) + 1), "1e3", "fast", "\n"):
            with self.assertRaises(OSError) as caught:
                dev.write(LIMIT, text)
            self.assertEqual(caught.exception.errno, errno.EINVAL, text)
            self.assertEqual(dev.read(LIMIT), str(1 << 20))


@vm(**memory_file("1G", BALLOON), disk="1G", append="ramslice=2M")
class CacheOfFiles(GivebackTest):
    """The module's parameter cache_percent: for so much cache, reading ahead wakes memory."""

    # Together less than the share that is the default, each more than what stays awake
    FILES = [Path("/mnt/first"), Path("/mnt/second")]
    FILE_MIB = 100

    def setUp(self):
        super().setUp()
        dev.file_system("/mnt")
        self.addCleanup(subprocess.run, ["umount", "/mnt"], check=True)
        for file in self.FILES:
            file.write_bytes(os.urandom(MIB) * self.FILE_MIB)
        os.sync()

    def read_again_mib(self):
        """With memory off, reads all files for the first time; what the first one then lacks."""
        dev.write("/proc/sys/vm/drop_caches", 3)
        self.assertGreater(self.device.request("compact").nr_done, 0)
        for file in self.FILES:
            self.read(file)
        before = dev.vmstat("pgpgin")
        self.read(self.FILES[0])
        return (dev.vmstat("pgpgin") - before) >> 10

    def read(self, path):
        with open(path, "rb", buffering=0) as file:
            while file.read(MIB):
                pass

    def test_cache_below_the_share_is_not_recycled(self):
        self.assertLess(self.read_again_mib(), self.FILE_MIB / 10)

    def test_without_a_share_it_is(self):
        subprocess.run(["modprobe", "-r", "ramslice_report"], check=True)
        subprocess.run(["modprobe", "ramslice_report", "cache_percent=0"], check=True)
        self.assertGreater(self.read_again_mib(), self.FILE_MIB / 2)

    def test_a_share_above_all_is_refused(self):
        subprocess.run(["modprobe", "-r", "ramslice_report"], check=True)
        words = ["modprobe", "ramslice_report"]
        done = subprocess.run([*words, "cache_percent=101"], capture_output=True, text=True)
        subprocess.run(words, check=True)
        self.assertIn("Invalid argument", done.stderr)


@vm(**memory_file("2560M", BALLOON), append="ramslice=256M")
class LargeSlices(GivebackTest):
    def test_a_large_slice_is_dropped_whole(self):
        number, = self.empty()
        self.fill(number)
        self.assertEqual(self.device.request("offline", id=number).status, 0)
        self.assertFalse(self.held(number))
        self.serve(1500)
