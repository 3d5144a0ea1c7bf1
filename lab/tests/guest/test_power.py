#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Power drivers: nobody touches what is off, waking works from everywhere, and a driver that fails costs a slice.

Wants slices of 16 MiB. If RAMSLICE_GUEST_MEMORY names the file that is the guest's memory, tests read and write
physical memory behind the kernel's back.
"""

import errno
import os
import subprocess
import threading
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Memory

# More than compaction leaves awake, in MiB.
BURST = 250


class Test(harness.Test):
    """Ends with every slice awake, no driver, and the books true."""

    allowed_violations = 0

    def setUp(self):
        super().setUp()
        self.log = harness.KernelLog()
        self.addCleanup(self.log.close)
        self.addCleanup(self.check_end)

    def check_end(self):
        self.device.request("online_all")
        self.assert_sane()
        if harness.SIM.exists():
            self.assertEqual(harness.violations(), self.allowed_violations)
            harness.unload_sim()
        self.assertEqual(self.device.info().power_driver, b"none")

    def compact(self):
        """What is not in use goes offline: most of memory, less of a debug kernel's."""
        nr = harness.compact(self.device)
        self.assertGreater(nr, self.device.info().nr_slices // 3)
        return nr


class WithoutDriver(Test):
    def test_slices_go_offline_and_come_back(self):
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
        number, = self.empty()
        self.assertEqual(self.device.request("offline", id=number).status, 0)
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        self.assertEqual(self.device.request("online", id=number).status, 0)
        self.assertEqual(self.row(number).state, dev.ONLINE)
        self.assertEqual(self.row(number).counter("free"), self.row(number).nr_pages)

    def test_most_of_memory_goes_offline_and_comes_back(self):
        nr = self.compact()
        done = self.device.request("online_all")
        self.assertEqual((done.status, done.nr_done), (0, nr))

    def test_memory_that_was_off_holds_what_is_put_there(self):
        self.compact()
        with Memory(BURST) as memory:
            self.assertIsNone(memory.touch().wrong_at())


class Simulated(Test):
    def test_normal_use_violates_nothing(self):
        harness.load_sim()
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "sim")
        for _ in range(2):
            self.compact()
            with Memory(BURST) as memory:
                self.assertIsNone(memory.touch().wrong_at())
                self.device.request("compact")
                self.assertIsNone(memory.wrong_at())
            self.device.request("online_all")
        self.assertEqual(harness.violations(), 0)

    def test_unloading_wakes_everything(self):
        harness.load_sim()
        self.compact()
        harness.unload_sim()
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.assertFalse([line for line in self.log.lines() if "violation" in line])

    def test_loading_wakes_everything(self):
        self.compact()
        harness.load_sim()
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        # The driver never put them off, so that it may not be asked to wake them
        self.assertEqual(harness.violations(), 0)

    def test_unloading_while_a_request_runs_waits_for_it(self):
        harness.load_sim(off_delay_us=100_000)
        outcome = []
        worker = threading.Thread(target=lambda: outcome.append(self.device.request("compact", max_slices=10)))
        with dev.Device(os.O_RDONLY) as reader:
            worker.start()
            self.assertTrue(harness.until(lambda: harness.ids(reader, dev.OFFLINE)))
            harness.unload_sim()
            worker.join()
        self.assertEqual(outcome[0].status, 0)
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])

    def test_there_is_one_driver_at_a_time(self):
        harness.load_sim()
        number, = self.empty()
        self.device.request("offline", id=number)
        # The same once more is no news to modprobe: a second driver is this one by another name
        first = next(Path(os.environ["RAMSLICE_KERNEL"]).rglob("ramslice_sim.ko"))
        second = Path("/tmp/ramslice_si2.ko")
        second.write_bytes(first.read_bytes().replace(b"ramslice_sim", b"ramslice_si2"))
        for path, message in ((first, "File exists"), (second, "busy")):
            done = subprocess.run(["insmod", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertNotEqual(done.returncode, 0, path)
            self.assertIn(message, done.stdout)
        # The first is none the worse
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "sim")
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        self.assertEqual(self.device.request("online", id=number).status, 0)
        self.assertEqual(harness.violations(), 0)
        harness.unload_sim()
        # And now the second may
        subprocess.run(["insmod", second], check=True)
        subprocess.run(["rmmod", "ramslice_si2"], check=True)

    def test_a_driver_that_refuses_leaves_the_slice_online_and_usable(self):
        harness.load_sim(fail_off=1)
        number, = self.empty()
        before = harness.meminfo()
        done = self.device.request("offline", id=number)
        self.assertEqual((done.status, done.why(), done.nr_done, done.nr_failed), (errno.EIO, "power", 0, 1))
        self.assertEqual(self.device.info().offline_pages, 0)
        row = self.row(number)
        self.assertEqual((row.state, row.counter("free")), (dev.ONLINE, row.nr_pages))
        self.assertEqual(harness.meminfo()["MemTotal"], before["MemTotal"])
        # It says why, and is left alone for a while
        self.assertEqual(dev.REASONS[row.reason], "power")
        self.assertTrue(row.flags & dev.BACKOFF)
        self.assertTrue(0 < row.retry_ms <= 1000)
        done = self.device.request("offline", id=number)
        self.assertEqual((done.status, done.why()), (errno.EAGAIN, "backoff"))
        # Unless told otherwise
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, done.nr_done), (0, 1))
        self.device.request("online", id=number)

    def test_a_slice_that_failed_is_tried_again_after_a_while(self):
        harness.load_sim(fail_off=1)
        number, = self.empty()
        self.device.request("offline", id=number)
        time.sleep(1.1)
        self.assertFalse(self.row(number).flags & dev.BACKOFF)
        self.assertEqual(self.device.request("offline", id=number).status, 0)

    def test_a_slice_that_fails_repeatedly_is_left_alone_for_longer(self):
        harness.load_sim(fail_off=3)
        number, = self.empty()
        for wait_ms in (1000, 2000, 4000):
            begin = time.monotonic()
            self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
            left = self.row(number).retry_ms
            passed = (time.monotonic() - begin) * 1000
            # Ticks are of 4 ms, and both ends are rounded
            self.assertGreaterEqual(left, max(0, wait_ms - passed - 20))
            self.assertLessEqual(left, wait_ms)

    def test_compaction_goes_on_past_a_slice_that_is_refused(self):
        harness.load_sim(fail_off=2)
        done = self.device.request("compact", max_slices=5)
        self.assertEqual((done.status, done.nr_done, done.nr_failed), (0, 5, 2))
        # What was tried is charged for
        self.assertGreaterEqual(done.price_predicted, 7 * 695)

    def test_a_slow_driver_wakes_on_demand(self):
        harness.load_sim(wake_delay_us=20_000)
        self.compact()
        self.demand()

    def test_a_driver_that_sleeps_wakes_on_request(self):
        harness.load_sim(sleeping=1, wake_delay_us=20_000)
        number, = self.empty()
        self.device.request("offline", id=number)
        begin = time.monotonic()
        self.assertEqual(self.device.request("online", id=number).status, 0)
        self.assertGreater(time.monotonic() - begin, 0.02)
        nr = self.compact()
        done = self.device.request("online_all")
        self.assertEqual((done.status, done.nr_done), (0, nr))
        self.assertEqual(harness.violations(), 0)

    def test_a_driver_that_sleeps_wakes_on_demand(self):
        harness.load_sim(sleeping=1, wake_delay_us=10_000)
        self.compact()
        self.demand()

    def test_several_wake_at_the_same_time(self):
        for sleeping in (0, 1):
            harness.load_sim(sleeping=sleeping, wake_delay_us=5_000)
            nr = self.compact()
            done = []
            workers = [threading.Thread(target=lambda: done.append(self.device.request("online_all").nr_done))
                       for _ in range(3)]
            for worker in workers:
                worker.start()
            with Memory(BURST) as memory:
                self.assertIsNone(memory.touch().wrong_at())
                for worker in workers:
                    worker.join()
            self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
            self.assertLessEqual(nr, sum(done) + harness.woken_by_demand(self.device))
            self.assertEqual(harness.violations(), 0)
            harness.unload_sim()

    def demand(self):
        """A burst is served by waking, and by nothing else."""
        self.serve(BURST, still=("pswpout", "oom_kill", "pgsteal_direct", "pgsteal_kswapd"))
        self.assertEqual(harness.violations(), 0)


class GuestMemory(Test):
    """Physical memory as a file: the controller's own view, and that of a device that writes where it should not."""

    def setUp(self):
        super().setUp()
        path = os.environ.get("RAMSLICE_GUEST_MEMORY")
        if not path:
            self.skipTest("RAMSLICE_GUEST_MEMORY is not set: the guest's memory is not a file")
        self.memory = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, self.memory)
        harness.load_sim()
        number, = self.empty()
        self.number = number
        self.start = number * self.device.info().slice_bytes
        self.device.request("offline", id=number)

    def page(self, nr):
        data = os.pread(self.memory, PAGE, self.start + nr * PAGE)
        self.assertEqual(len(data), PAGE)
        return data

    def test_what_is_off_has_lost_its_contents(self):
        last = self.row(self.number).nr_pages - 1
        pages = [self.page(nr) for nr in (0, 1, 2, last // 2, last)]
        self.assertEqual(len(set(pages)), len(pages))
        for data in pages:
            self.assertEqual(data, data[:8] * (PAGE // 8))
            self.assertNotEqual(data, bytes(PAGE))

    def test_writing_to_what_is_off_is_found_out(self):
        self.allowed_violations = 1
        written = self.start + 1234 * PAGE + 800
        os.pwrite(self.memory, b"\0" * 8, written)
        os.fsync(self.memory)
        self.assertEqual(self.device.request("online", id=self.number).status, 0)
        self.assertEqual(harness.violations(), 1)
        lines = [line for line in self.log.lines() if "violation" in line]
        self.assertEqual(len(lines), 1)
        self.assertIn(f"slice {self.number} ", lines[0])
        self.assertIn(f"pfn {written // PAGE} offset 800 ", lines[0])

    def test_writing_to_its_neighbours_is_not(self):
        size = self.device.info().slice_bytes
        neighbours = [n for n in (self.number - 1, self.number + 1) if n in harness.empty_ids(self.device)]
        self.assertTrue(neighbours)
        for neighbour in neighbours:
            # Free pages of the kernel's: their contents are nobody's
            os.pwrite(self.memory, b"\xff" * 8, neighbour * size + 100 * PAGE)
        os.fsync(self.memory)
        self.device.request("online", id=self.number)
        self.assertEqual(harness.violations(), 0)


class Quarantine(Test):
    """A slice that does not wake is lost for good: these want a boot of their own, in this order."""

    def setUp(self):
        super().setUp()
        self.size = self.device.info().slice_bytes
        self.begin()

    def begin(self):
        self.before, self.lost = self.figures(), len(harness.ids(self.device, dev.QUARANTINED))

    @staticmethod
    def figures():
        zones = harness.zoneinfo()
        return {
            "MemTotal": harness.meminfo()["MemTotal"],
            "node": int(dev.read("/sys/devices/system/node/node0/meminfo").splitlines()[0].split()[-2]),
            "managed": 4 * sum(zone["managed"] for zone in zones.values()),
        }

    def check_lost(self, nr):
        """This many slices are gone since, and that is all that is gone."""
        kib = nr * self.size // 1024
        self.assertEqual(self.figures(), {name: value - kib for name, value in self.before.items()})
        gone = harness.ids(self.device, dev.QUARANTINED)
        self.assertEqual(len(gone), self.lost + nr)
        info = self.device.info()
        self.assertEqual(info.quarantined_pages * PAGE, (self.lost + nr) * self.size)
        self.assertEqual(sum(zone.nr_quarantined for zone in self.device.zones()), self.lost + nr)
        self.assertEqual(len([line for line in self.log.lines() if "quarantined" in line and "did not wake" in line]), nr)
        for row in self.device.snapshot():
            if row.id in gone:
                self.assertEqual(dev.REASONS[row.reason], "quarantined")
                self.assertTrue(row.flags & dev.UNRECLAIMABLE)

    def offline(self):
        number = harness.empty_ids(self.device)[10]
        self.assertEqual(self.device.request("offline", id=number).status, 0)
        return number

    def test_1_a_slice_that_does_not_wake_on_request_is_lost(self):
        for sleeping in (0, 1):
            self.begin()
            harness.load_sim(sleeping=sleeping)
            number = self.offline()
            dev.write(harness.SIM / "fail_wake", 1)
            done = self.device.request("online", id=number)
            self.assertEqual((done.status, done.why(), done.nr_done, done.nr_failed), (errno.EIO, "quarantined", 0, 1))
            self.check_lost(1)
            harness.unload_sim()

    def test_2_it_never_comes_back(self):
        lost, *_ = harness.ids(self.device, dev.QUARANTINED)
        for driver in (False, True):
            if driver:
                harness.load_sim()
            for op in ("online", "offline"):
                done = self.device.request(op, id=lost)
                self.assertEqual(done.status, errno.EBUSY)
                self.assertEqual(done.why(), "state" if op == "online" else "quarantined")
            self.device.request("online_all")
            harness.compact(self.device)
            self.device.request("online_all")
            self.check_lost(0)
            self.assertIn(lost, harness.ids(self.device, dev.QUARANTINED))
        # Its place in the geometry is taken
        with self.assertRaises(OSError) as caught:
            dev.write(dev.SYSFS / "slice_bytes", 64 * MIB)
        self.assertEqual(caught.exception.errno, errno.EBUSY)

    def test_3_waking_everything_reports_the_loss_and_wakes_the_others(self):
        harness.load_sim()
        harness.compact(self.device)
        dev.write(harness.SIM / "fail_wake", 2)
        done = self.device.request("online_all")
        self.assertEqual((done.status, done.why()), (errno.EIO, "quarantined"))
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.check_lost(2)

    def test_4_demand_goes_on_with_the_next_slice(self):
        for sleeping in (0, 1):
            self.begin()
            harness.load_sim(sleeping=sleeping)
            harness.compact(self.device)
            dev.write(harness.SIM / "fail_wake", 2)
            self.serve(BURST)
            self.check_lost(2)
            self.device.request("online_all")
            harness.unload_sim()

    def test_5_unloading_a_driver_that_fails_works(self):
        harness.load_sim()
        self.offline()
        dev.write(harness.SIM / "fail_wake", 1)
        harness.unload_sim()
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.check_lost(1)


class Contents(Test):
    """What wakes is what the allocator expects of free pages: for boots with init_on_free=1 or page_poison=on.

    With init_on_free, small anonymous pages are zero only if free ones were.
    """

    def fill(self):
        """Offset of the first page that is not as it should be, with nearly all there is in use."""
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 60) as memory:
            return memory.touch().wrong_at()

    def complaints(self):
        return [line for line in self.log.lines() if "pagealloc" in line or "violation" in line or "corrupt" in line]

    def test_1_memory_woken_on_demand_is_as_the_allocator_left_it(self):
        harness.load_sim()
        self.compact()
        self.assertIsNone(self.fill())
        self.assertEqual(harness.violations(), 0)
        # In huge pages, too
        self.compact()
        with Memory(harness.meminfo()["MemAvailable"] // 2048, huge=True) as memory:
            self.assertIsNone(memory.touch().wrong_at())
        self.assertEqual(self.complaints(), [])

    def test_2_memory_woken_on_request_is_so_too(self):
        # Refused slices come back another way
        harness.load_sim(fail_off=4)
        self.compact()
        self.device.request("online_all")
        self.assertIsNone(self.fill())
        self.assertEqual(self.complaints(), [])

    def test_3_the_test_would_notice(self):
        """Bytes in a free page that should not be there."""
        path = os.environ.get("RAMSLICE_GUEST_MEMORY")
        if not path:
            self.skipTest("RAMSLICE_GUEST_MEMORY is not set: the guest's memory is not a file")
        with open(path, "r+b", buffering=0) as memory:
            size = self.device.info().slice_bytes
            for number in self.empty(3):
                for nr in range(64):
                    os.pwrite(memory.fileno(), b"\xff" * 8, number * size + nr * 16 * PAGE + 800)
        words = dev.read("/proc/cmdline").split()
        wrong, complaints = self.fill(), self.complaints()
        if "init_on_free=1" in words:
            self.assertIsNotNone(wrong)
        elif "page_poison=on" in words:
            self.assertTrue(any("pagealloc" in line for line in complaints), complaints)
        else:
            self.skipTest("neither init_on_free=1 nor page_poison=on is on the command line")


if __name__ == "__main__":
    harness.main()
