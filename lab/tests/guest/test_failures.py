# SPDX-License-Identifier: GPL-2.0-or-later
"""Waking fails: drivers that hang, memory that cannot be had, and strict mode, in which every
wake sleeps.

A slice whose driver call hangs is lost until the next boot, so each test counts its losses.
"""

import contextlib
import errno
import os
import signal
import threading
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE, Memory, check_contents
from ramlab.guest.memory_eater import end_of_eater
from ramlab.guest.pinned_memory import MCL_CURRENT, setting
from ramlab.pytest_vm import vm

# More than compaction leaves awake, in MiB.
BURST = 250
PM = Path("/sys/power")
PM_DELAY = Path("/sys/module/suspend/parameters/pm_test_delay")
# After this time a hanging call of the driver is given up; no working call takes so long
HANG_MS = 5000
FAULTS = [dev.DEBUGFS / "fail_page_alloc", dev.DEBUGFS / "failslab"]


class FailureTest(harness.RamsliceTest):
    """Ends without a driver, with every slice online that is not lost, and with true summaries."""

    def setUp(self):
        super().setUp()
        self.log = harness.KernelLog()
        self.addCleanup(self.log.close)
        self.lost = len(harness.ids(self.device, dev.QUARANTINED))
        self.total = harness.meminfo()["MemTotal"]
        self.addCleanup(self.check_end)

    def check_end(self):
        if harness.SIM.exists():
            dev.write(harness.SIM / "hanging", 0)
            self.device.request("online_all")
            harness.check_violations(0)
            harness.unload_sim()
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.assert_sane()

    def check_lost(self, nr):
        """Exactly this many slices are lost since the test began."""
        size = self.device.info().slice_bytes
        self.assertEqual(len(harness.ids(self.device, dev.QUARANTINED)), self.lost + nr)
        self.assertEqual(self.total - harness.meminfo()["MemTotal"], nr * size // 1024)
        self.assertEqual(self.device.info().quarantined_pages * PAGE, (self.lost + nr) * size)

    def offline(self, nr=1):
        numbers = self.empty(nr)
        for number in numbers:
            self.assertEqual(self.device.request("offline", id=number).status, 0)
        return numbers


@vm(mem="1G", append="ramslice=16M", fresh=True)
class Hanging(FailureTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(
            dev.write, dev.SYSFS / "driver_timeout_ms", dev.read(dev.SYSFS / "driver_timeout_ms")
        )

    @staticmethod
    def set_limit(milliseconds):
        """Sets how long a call of the driver may take."""
        dev.write(dev.SYSFS / "driver_timeout_ms", milliseconds)

    def load(self, **parameters):
        """Loads the driver with a long limit, which only a call that hangs has to have shorter."""
        self.set_limit(600_000)
        harness.load_sim(**parameters)

    def hangs(self, op, number):
        """Sends a request in which the driver hangs and is given up."""
        self.set_limit(HANG_MS)
        try:
            return self.device.request(op, id=number)
        finally:
            self.set_limit(600_000)

    def test_a_slice_is_lost_when_taking_it_offline_hangs(self):
        self.load(hang_off=1)
        number, other = self.empty(2)
        done = self.hangs("offline", number)
        self.assertEqual(
            (done.status, done.why(), done.nr_done, done.nr_failed), (errno.EIO, "power", 0, 1)
        )
        self.check_lost(1)
        self.assertTrue(any("does not answer (power off)" in line for line in self.log.lines()))
        # The next slice is not affected
        self.assertEqual(self.device.request("offline", id=other).status, 0)
        # A late answer changes nothing
        dev.write(harness.SIM / "hanging", 0)
        self.assertTrue(
            harness.until(lambda: any("after it was given up" in line for line in self.log.lines()))
        )
        self.assertEqual(self.row(number).state, dev.QUARANTINED)
        self.check_lost(1)

    def test_a_slice_is_lost_when_waking_it_hangs(self):
        self.load(sleeping=1, hang_wake=1)
        number, other = self.offline(2)
        done = self.hangs("online", number)
        self.assertEqual((done.status, done.why(), done.nr_failed), (errno.EIO, "quarantined", 1))
        self.check_lost(1)
        self.assertEqual(self.device.request("online", id=other).status, 0)
        dev.write(harness.SIM / "hanging", 0)
        self.assertTrue(
            harness.until(lambda: any("after it was given up" in line for line in self.log.lines()))
        )
        self.assertEqual(self.row(number).state, dev.QUARANTINED)

    def test_a_driver_that_hangs_keeps_sleep_waiting_once_and_costs_one_slice(self):
        self.load(sleeping=1, hang_wake=100)
        self.offline(4)
        self.set_limit(HANG_MS)
        with self.assertRaises(OSError) as caught:
            dev.write(PM / "state", "freeze")
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        self.set_limit(600_000)
        dev.write(harness.SIM / "hang_wake", 0)
        self.check_lost(1)

    def test_a_request_gives_up_at_its_deadline_and_the_slice_wakes_later(self):
        self.load(sleeping=1, hang_wake=1)
        number, = self.offline()
        done = self.device.request("online", id=number, deadline_ms=3000)
        self.assertEqual((done.status, done.why()), (errno.ETIMEDOUT, "deadline"))
        self.assertEqual(self.row(number).state, dev.WAKING)
        dev.write(harness.SIM / "hanging", 0)
        self.assertTrue(harness.until(lambda: self.row(number).state == dev.ONLINE))
        self.check_lost(0)

    def test_a_signal_ends_a_request_that_waits_for_the_driver(self):
        self.load(sleeping=1, hang_wake=1)
        number, = self.offline()
        pid = os.fork()
        if not pid:
            with dev.Device() as device:
                device.request("online", id=number)
            os._exit(0)
        self.assertTrue(harness.until(lambda: self.row(number).state == dev.WAKING))
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(harness.until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid))
        dev.write(harness.SIM / "hanging", 0)
        self.assertTrue(harness.until(lambda: self.row(number).state == dev.ONLINE))
        self.check_lost(0)

    def test_demand_goes_on_with_the_next_slice(self):
        self.load(sleeping=1)
        harness.compact(self.device)
        self.set_limit(HANG_MS)
        dev.write(harness.SIM / "hang_wake", 2)
        self.serve(BURST)
        self.assertEqual(int(dev.read(harness.SIM / "hang_wake")), 0)
        self.assertTrue(harness.until(lambda: not harness.ids(self.device, dev.WAKING)))
        self.check_lost(2)

    def test_unloading_waits_for_a_call_that_hangs(self):
        self.load(sleeping=1, hang_wake=1)
        number, = self.offline()
        self.hangs("online", number)
        remover = threading.Thread(target=harness.unload_sim)
        remover.start()
        time.sleep(1.5)
        self.assertTrue(remover.is_alive())
        # No other request waits with it
        other, = self.empty()
        self.assertEqual(self.device.request("offline", id=other).status, 0)
        dev.write(harness.SIM / "hanging", 0)
        remover.join()
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
        self.check_lost(1)

    def test_the_time_limit_has_limits(self):
        for value, number in (("99", errno.ERANGE), ("3600001", errno.ERANGE), ("-1", errno.EINVAL),
                              ("1s", errno.EINVAL), ("", errno.EINVAL)):
            with self.assertRaises(OSError, msg=value) as caught:
                dev.write(dev.SYSFS / "driver_timeout_ms", value or "\n")
            self.assertEqual(caught.exception.errno, number, value)


@vm(mem="1G", append="ramslice=16M movablecore=512M", fresh=True)
class HangingRequest(FailureTest):
    def test_neither_hotplug_nor_sleep_waits_for_a_request_that_hangs(self):
        """The driver would be waited for ten minutes. The slice has power, and stays as it is."""
        limit = dev.SYSFS / "driver_timeout_ms"
        self.addCleanup(dev.write, limit, dev.read(limit))
        dev.write(limit, 600_000)
        harness.load_sim(hang_off=1)
        number, = self.empty()
        block = self.movable_block()
        pid = os.fork()
        if not pid:
            with dev.Device() as device:
                device.request("offline", id=number)
            os._exit(0)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(dev.write, harness.SIM / "hanging", 0)
        self.assertTrue(harness.until(lambda: dev.read(harness.SIM / "hang_off") == "0"))
        with self.refused(errno.EBUSY, "memory offline"):
            dev.write(block, "offline")
        with self.refused(errno.EBUSY, "sleep"):
            dev.write("/sys/power/state", "freeze")
        self.assertEqual(self.row(number).state, dev.EMPTYING)
        dev.write(harness.SIM / "hanging", 0)
        self.assertTrue(harness.until(lambda: self.row(number).state == dev.OFFLINE))
        # Nothing else stood in its way
        dev.write(block, "offline")
        dev.write(block, "online_movable")

    def movable_block(self):
        """The state file of a memory block of ZONE_MOVABLE."""
        blocks = Path("/sys/devices/system/memory").glob("memory[0-9]*")
        return next(path / "state" for path in sorted(blocks)
                    if dev.read(path / "valid_zones").split()[0] == "Movable")


# On the machine of test_cache.py, whose tests are before this one: it loses slices
@vm(mem="1G", disk="1G", append="ramslice=4M")
class AllHanging(FailureTest):
    """Every possible call hangs; there are more slices than calls."""

    CALLS = 64

    def test_unreachable_offline_memory_delays_no_allocation(self):
        self.addCleanup(
            dev.write, dev.SYSFS / "driver_timeout_ms", dev.read(dev.SYSFS / "driver_timeout_ms")
        )
        harness.load_sim(sleeping=1)
        self.assertGreater(harness.compact(self.device), self.CALLS + 30)
        dev.write(dev.SYSFS / "driver_timeout_ms", 100)
        dev.write(harness.SIM / "hang_wake", 1000)
        while True:
            off = harness.ids(self.device, dev.OFFLINE)
            done = self.device.request("online", id=off[0])
            if done.status == errno.EBUSY:
                break
            self.assertEqual((done.status, done.why()), (errno.EIO, "quarantined"))
        self.check_lost(self.CALLS)
        # A process that wants more than is awake ends as on a machine without the rest
        kills = harness.vmstat()["oom_kill"]
        self.assertEqual(end_of_eater(harness.meminfo()["MemTotal"] // 1024), -signal.SIGKILL)
        self.assertEqual(harness.vmstat()["oom_kill"], kills + 1)
        self.assertLessEqual(set(off), set(harness.ids(self.device, dev.OFFLINE)))
        # The machine does not suspend while memory is out of reach
        with self.assertRaises(OSError) as caught:
            self.sleep()
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        # Late answers change nothing, but other slices can be woken again
        dev.write(dev.SYSFS / "driver_timeout_ms", 600_000)
        dev.write(harness.SIM / "hang_wake", 0)
        dev.write(harness.SIM / "hanging", 0)
        self.assertTrue(harness.until(lambda: self.device.request("online_all").status == 0))
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.check_lost(self.CALLS)

    def sleep(self):
        with setting(PM / "pm_test", "freezer"), setting(PM_DELAY, 0):
            dev.write(PM / "state", "freeze")


@vm(mem="1G", disk="1G", append="ramslice=16M")
class Sleep(FailureTest):
    def test_suspend_waits_for_a_slice_that_is_being_woken(self):
        harness.load_sim(sleeping=1, hang_wake=1)
        number, = self.offline()
        self.assertEqual(
            self.device.request("online", id=number, deadline_ms=3000).status, errno.ETIMEDOUT
        )
        asleep = threading.Event()

        def sleep():
            with setting(PM / "pm_test", "freezer"), setting(PM_DELAY, 0):
                dev.write(PM / "state", "freeze")
            asleep.set()

        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        self.assertFalse(asleep.wait(1))
        self.assertEqual(self.row(number).state, dev.WAKING)
        dev.write(harness.SIM / "hanging", 0)
        sleeper.join()
        self.assertEqual(self.row(number).state, dev.ONLINE)
        self.check_lost(0)


@vm(mem="1G", disk="1G", append="ramslice=16M")
@vm(kernel="debug", slow=True, mem="1G", append="ramslice=16M")
class Strict(FailureTest):
    """Offline slices are not in the direct map, and woken ones are in it again."""

    def setUp(self):
        super().setUp()
        dev.write(dev.SYSFS / "strict", 1)
        self.addCleanup(dev.write, dev.SYSFS / "strict", 0)
        self.addCleanup(self.device.request, "online_all")

    def test_slices_come_back_on_request_and_on_demand(self):
        for driver in (False, True):
            with self.subTest(driver=driver):
                if driver:
                    harness.load_sim()
                self.assertGreater(harness.compact(self.device), self.device.info().nr_slices // 3)
                self.serve(BURST)
                harness.compact(self.device)
                done = self.device.request("online_all")
                self.assertEqual((done.status, done.nr_failed), (0, 0))
                with Memory(BURST, huge=True) as memory:
                    check_contents(memory.touch())
                self.check_lost(0)

    def test_strict_mode_changes_only_while_every_slice_is_online(self):
        number, = self.offline()
        for value in (0, 1):
            with self.assertRaises(OSError) as caught:
                dev.write(dev.SYSFS / "strict", value)
            self.assertEqual(caught.exception.errno, errno.EBUSY)
        self.assertEqual(dev.read(dev.SYSFS / "strict"), "1")
        self.device.request("online", id=number)
        dev.write(dev.SYSFS / "strict", 0)
        self.assertEqual(dev.read(dev.SYSFS / "strict"), "0")
        with self.assertRaises(OSError) as caught:
            dev.write(dev.SYSFS / "strict", "perhaps")
        self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_a_failed_wake_loses_the_slice(self):
        harness.load_sim()
        number, = self.offline()
        dev.write(harness.SIM / "fail_wake", 1)
        done = self.device.request("online", id=number)
        self.assertEqual((done.status, done.why()), (errno.EIO, "quarantined"))
        self.check_lost(1)


@vm(mem="3G", append="ramslice=32M")
class Gigabyte(FailureTest):
    """The direct map is in pieces of 1 GiB, of which a slice is a small part."""

    def test_strict_mode_splits_a_gigabyte_mapping(self):
        dev.write(dev.SYSFS / "strict", 1)
        self.addCleanup(dev.write, dev.SYSFS / "strict", 0)
        self.addCleanup(self.device.request, "online_all")
        pieces = harness.meminfo()["DirectMap1G"]
        # The last GiB is one piece unless a module lies in it, and none is loaded
        number = [row.id for row in self.device.snapshot() if row.node == 0][-9]
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, done.nr_done), (0, 1), done)
        self.assertEqual(harness.meminfo()["DirectMap1G"], pieces - (1 << 20))
        # More than is online: slices wake on demand without a page for tables
        harness.compact(self.device)
        self.assertGreater(
            len(harness.ids(self.device, dev.OFFLINE)), self.device.info().nr_slices // 2
        )
        self.serve(1600)
        self.assertNotIn(number, harness.ids(self.device, dev.OFFLINE))
        self.device.request("online_all")
        self.check_lost(0)


@vm(kernel="debug", mem="1G", append="ramslice=16M", fresh=True)
class NoMemory(FailureTest):
    """Waking allocates nothing: it works while every allocation of the task fails.

    In a machine of its own: while all allocations fail, the root file system may drop what it
    knows.
    """

    def setUp(self):
        super().setUp()
        for folder in FAULTS:
            if not folder.exists():
                self.skipTest(f"{folder} is missing: the kernel has no fault injection")
            for name, value in (
                ("task-filter", "Y"),
                ("probability", 100),
                ("times", -1),
                ("verbose", 0),
                ("interval", 0),
            ):
                dev.write(folder / name, value)
            for name in ("ignore-gfp-wait", "ignore-gfp-highmem"):
                if (folder / name).exists():
                    dev.write(folder / name, "N")
        if (FAULTS[0] / "min-order").exists():
            dev.write(FAULTS[0] / "min-order", 0)
        for folder in FAULTS:
            self.addCleanup(dev.write, folder / "probability", 0)

    def with_failures(self, op, **fields):
        """Sends a request while all allocations of this task fail."""
        path = f"/proc/self/task/{threading.get_native_id()}/make-it-fail"
        fd = os.open(path, os.O_WRONLY)
        try:
            os.write(fd, b"1")
            return self.device.request(op, **fields)
        finally:
            os.pwrite(fd, b"0", 0)
            os.close(fd)

    @contextlib.contextmanager
    def all_failing(self):
        """Every allocation fails meanwhile, in interrupts, too."""
        files = [os.open(folder / "probability", os.O_WRONLY) for folder in FAULTS]
        for file, folder in zip(files, FAULTS):
            os.write(file, b"0")
            dev.write(folder / "task-filter", "N")
            # A task that faults a page in meanwhile tries again and again
            dev.write(folder / "times", 100_000)
        if harness.libc.mlockall(MCL_CURRENT):
            raise OSError("mlockall")
        try:
            for file in files:
                os.write(file, b"100")
            yield
        finally:
            for file in files:
                os.write(file, b"0")
                os.close(file)
            harness.libc.munlockall()
        for folder in FAULTS:
            self.assertGreater(
                int(dev.read(folder / "times")), 0, "allocations had begun to succeed"
            )

    def test_slices_wake_in_strict_mode_while_all_allocations_fail(self):
        """A worker wakes them then, to which no filter for tasks applies."""
        dev.write(dev.SYSFS / "strict", 1)
        self.addCleanup(dev.write, dev.SYSFS / "strict", 0)
        self.addCleanup(self.device.request, "online_all")
        for driver in (False, True):
            if driver:
                harness.load_sim()
            numbers = self.offline(3)
            with self.all_failing():
                one = self.device.request("online", id=numbers[0])
                rest = self.device.request("online_all")
            self.assertEqual(
                (one.status, one.nr_done, rest.status, rest.nr_done, rest.nr_failed),
                (0, 1, 0, 2, 0),
            )
            self.offline(3)
            self.device.request("online_all")
        self.check_lost(0)

    def test_slices_wake_while_allocations_fail(self):
        for driver in (False, True):
            if driver:
                harness.load_sim()
            numbers = self.offline(3)
            done = self.with_failures("online", id=numbers[0])
            self.assertEqual((done.status, done.nr_done), (0, 1))
            done = self.with_failures("online_all")
            self.assertEqual((done.status, done.nr_failed), (0, 0))
        self.check_lost(0)

    def test_the_injected_failures_take_effect(self):
        done = self.with_failures("compact", max_slices=1)
        self.assertEqual((done.nr_done, done.why()), (0, "pressure"))
        with self.all_failing():
            done = self.device.request("compact", max_slices=1)
        self.assertEqual((done.nr_done, done.why()), (0, "pressure"))
