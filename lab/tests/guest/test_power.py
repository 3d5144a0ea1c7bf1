# SPDX-License-Identifier: GPL-2.0-or-later
"""Power drivers: nothing touches an offline slice, waking works everywhere, and a failing driver
loses a slice.

RAMSLICE_GUEST_MEMORY names the file that is the guest's memory: with it, tests read and write
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
from ramlab.guest.harness import MIB, PAGE, Memory, check_contents
from ramlab.pytest_vm import memory_file, vm

# More than compaction leaves awake, in MiB.
BURST = 250


GIBIBYTE = vm(**memory_file("1G"), append="ramslice=16M")
ZEROED = vm(**memory_file("512M"), append="ramslice=16M init_on_free=1")
ON_ALLOC = vm(**memory_file("512M"), append="ramslice=16M init_on_alloc=1")
POISONED = vm(kernel="debug", slow=True, **memory_file("640M"),
              append="ramslice=16M page_poison=on")


class PowerTest(harness.RamsliceTest):
    """Ends with every slice online, no driver, and true summaries."""

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
        """Takes unused memory offline, which is less on a debug kernel.

        Returns the number of slices.
        """
        nr = harness.compact(self.device)
        self.assertGreater(nr, self.device.info().nr_slices // 3)
        return nr


@GIBIBYTE
class WithoutDriver(PowerTest):
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

    def test_woken_memory_holds_what_is_written(self):
        self.compact()
        with Memory(BURST) as memory:
            check_contents(memory.touch())


@GIBIBYTE
class Simulated(PowerTest):
    def test_normal_use_violates_nothing(self):
        harness.load_sim()
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "sim")
        for _ in range(2):
            self.compact()
            with Memory(BURST) as memory:
                check_contents(memory.touch())
                self.device.request("compact")
                check_contents(memory)
            self.device.request("online_all")
        harness.check_violations(0)

    def test_unloading_the_driver_wakes_everything(self):
        harness.load_sim()
        self.compact()
        harness.unload_sim()
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.assertFalse([line for line in self.log.lines() if "violation" in line])

    def test_loading_a_driver_wakes_everything(self):
        self.compact()
        harness.load_sim()
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        # The driver did not power them down, so it must not be asked to wake them
        harness.check_violations(0)

    def test_unloading_waits_for_a_running_request(self):
        harness.load_sim(off_delay_us=100_000)
        outcome = []
        worker = threading.Thread(
            target=lambda: outcome.append(self.device.request("compact", max_slices=10))
        )
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
        # modprobe ignores a loaded module, so the second driver is the same one by another name
        first = next(Path(os.environ["RAMSLICE_KERNEL"]).rglob("ramslice_sim.ko"))
        second = Path("/tmp/ramslice_si2.ko")
        second.write_bytes(first.read_bytes().replace(b"ramslice_sim", b"ramslice_si2"))
        for path, message in ((first, "File exists"), (second, "busy")):
            done = subprocess.run(
                ["insmod", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            self.assertNotEqual(done.returncode, 0, path)
            self.assertIn(message, done.stdout)
        # The first driver still works
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "sim")
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        self.assertEqual(self.device.request("online", id=number).status, 0)
        harness.check_violations(0)
        harness.unload_sim()
        # Now the second driver can be loaded
        subprocess.run(["insmod", second], check=True)
        subprocess.run(["rmmod", "ramslice_si2"], check=True)

    def test_a_driver_that_refuses_leaves_the_slice_online_and_usable(self):
        harness.load_sim(fail_off=1)
        number, = self.empty()
        before = harness.meminfo()
        done = self.device.request("offline", id=number)
        self.assertEqual(
            (done.status, done.why(), done.nr_done, done.nr_failed), (errno.EIO, "power", 0, 1)
        )
        self.assertEqual(self.device.info().offline_pages, 0)
        row = self.row(number)
        self.assertEqual((row.state, row.counter("free")), (dev.ONLINE, row.nr_pages))
        self.assertEqual(harness.meminfo()["MemTotal"], before["MemTotal"])
        self.assertEqual(dev.REASONS[row.reason], "power")
        # It can be tried again at once
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, done.nr_done), (0, 1))
        self.device.request("online", id=number)

    def test_a_slice_that_failed_is_refused_during_its_backoff(self):
        # After so many failures the backoff lasts for half a minute: no test is so slow
        harness.load_sim(fail_off=6)
        number, = self.empty()
        for _ in range(6):
            done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
            self.assertEqual(done.why(), "power")
        row = self.row(number)
        self.assertTrue(row.flags & dev.BACKOFF)
        self.assertGreater(row.retry_ms, 0)
        done = self.device.request("offline", id=number)
        self.assertEqual((done.status, done.why()), (errno.EAGAIN, "backoff"))
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, done.nr_done), (0, 1))
        self.device.request("online", id=number)

    def test_a_slice_that_failed_can_be_tried_again_later(self):
        harness.load_sim(fail_off=1)
        number, = self.empty()
        self.device.request("offline", id=number)
        self.assertTrue(harness.until(lambda: not self.row(number).flags & dev.BACKOFF))
        self.assertEqual(self.device.request("offline", id=number).status, 0)

    def test_a_slice_that_fails_repeatedly_is_left_alone_for_longer(self):
        harness.load_sim(fail_off=3)
        number, = self.empty()
        for wait_ms in (1000, 2000, 4000):
            begin = time.monotonic()
            self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
            left = self.row(number).retry_ms
            passed = (time.monotonic() - begin) * 1000
            # A tick takes 4 ms, and both ends are rounded
            self.assertGreaterEqual(left, max(0, wait_ms - passed - 20))
            self.assertLessEqual(left, wait_ms)

    def test_compaction_continues_after_a_refused_slice(self):
        harness.load_sim(fail_off=2)
        done = self.device.request("compact", max_slices=5)
        self.assertEqual((done.status, done.nr_done, done.nr_failed), (0, 5, 2))
        # Failed attempts are charged, too
        self.assertGreaterEqual(done.price_predicted, 7 * 695)

    def test_requests_end_when_the_driver_refuses_whatever_it_gets(self):
        harness.load_sim(fail_off=1000)
        for what in ("compact", "offline_free"):
            done = self.device.request(what, flags=dev.IGNORE_BACKOFF)
            self.assertEqual(
                (done.status, done.why(), done.nr_done, done.nr_failed), (0, "power", 0, 8), what
            )

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
        harness.check_violations(0)

    def test_a_driver_that_sleeps_wakes_on_demand(self):
        harness.load_sim(sleeping=1, wake_delay_us=10_000)
        self.compact()
        self.demand()

    def test_waiting_for_a_driver_is_a_stall_for_memory(self):
        harness.load_sim(sleeping=1, wake_delay_us=100_000)
        self.compact()

        def stalled_us():
            line = dev.read("/proc/pressure/memory").splitlines()[0]
            return int(line.split("total=")[1])

        before = stalled_us()
        self.serve(BURST)
        # At least one call of the driver had to be waited for
        self.assertGreater(stalled_us() - before, 50_000)

    def test_the_kernels_report_of_memory_says_how_much_is_off(self):
        self.compact()
        pages = self.device.info().offline_pages
        self.addCleanup(dev.write, "/proc/sys/kernel/sysrq", dev.read("/proc/sys/kernel/sysrq"))
        dev.write("/proc/sys/kernel/sysrq", 1)
        dev.write("/proc/sysrq-trigger", "m")
        self.assertTrue(
            any(f"{pages} pages offline, to be woken" in line for line in self.log.lines())
        )

    def test_several_wake_at_the_same_time(self):
        for sleeping in (0, 1):
            harness.load_sim(sleeping=sleeping, wake_delay_us=5_000)
            nr = self.compact()
            done = []
            workers = [
                threading.Thread(
                    target=lambda: done.append(self.device.request("online_all").nr_done)
                )
                for _ in range(3)
            ]
            for worker in workers:
                worker.start()
            with Memory(BURST) as memory:
                check_contents(memory.touch())
                for worker in workers:
                    worker.join()
            self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
            self.assertLessEqual(nr, sum(done) + harness.woken_by_demand(self.device))
            harness.check_violations(0)
            harness.unload_sim()

    def demand(self):
        """A burst is served by waking alone."""
        self.serve(BURST, still=("pswpout", "oom_kill", "pgsteal_direct", "pgsteal_kswapd"))
        harness.check_violations(0)


@GIBIBYTE
class GuestMemory(PowerTest):
    """Physical memory as a file, as the controller sees it, or a device that writes to a wrong
    address.
    """

    def setUp(self):
        super().setUp()
        self.memory = os.open(os.environ["RAMSLICE_GUEST_MEMORY"], os.O_RDWR)
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

    def test_an_offline_slice_has_lost_its_contents(self):
        last = self.row(self.number).nr_pages - 1
        pages = [self.page(nr) for nr in (0, 1, 2, last // 2, last)]
        self.assertEqual(len(set(pages)), len(pages))
        for data in pages:
            self.assertEqual(data, data[:8] * (PAGE // 8))
            self.assertNotEqual(data, bytes(PAGE))

    def test_a_write_to_an_offline_slice_is_detected(self):
        self.allowed_violations = 1
        written = self.start + 1234 * PAGE + 800
        os.pwrite(self.memory, b"\0" * 8, written)
        os.fsync(self.memory)
        self.assertEqual(self.device.request("online", id=self.number).status, 0)
        harness.check_violations(1)
        lines = [line for line in self.log.lines() if "violation" in line]
        self.assertEqual(len(lines), 1)
        self.assertIn(f"slice {self.number} ", lines[0])
        self.assertIn(f"pfn {written // PAGE} offset 800 ", lines[0])

    def test_a_write_beside_an_offline_slice_is_no_violation(self):
        size = self.device.info().slice_bytes
        neighbours = [
            n for n in (self.number - 1, self.number + 1) if n in harness.empty_ids(self.device)
        ]
        self.assertTrue(neighbours)
        for neighbour in neighbours:
            # Free pages: their contents do not matter
            os.pwrite(self.memory, b"\xff" * 8, neighbour * size + 100 * PAGE)
        os.fsync(self.memory)
        self.device.request("online", id=self.number)
        harness.check_violations(0)


@GIBIBYTE
class Quarantine(PowerTest):
    """A slice that does not wake is lost until the next boot, so these tests come last in their
    machine.
    """

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
            "node": int(
                dev.read("/sys/devices/system/node/node0/meminfo").splitlines()[0].split()[-2]
            ),
            "managed": 4 * sum(zone["managed"] for zone in zones.values()),
        }

    def check_lost(self, nr):
        """Exactly this many slices were lost since begin()."""
        kib = nr * self.size // 1024
        self.assertEqual(self.figures(), {name: value - kib for name, value in self.before.items()})
        gone = harness.ids(self.device, dev.QUARANTINED)
        self.assertEqual(len(gone), self.lost + nr)
        info = self.device.info()
        self.assertEqual(info.quarantined_pages * PAGE, (self.lost + nr) * self.size)
        self.assertEqual(sum(zone.nr_quarantined for zone in self.device.zones()), self.lost + nr)
        self.assertEqual(
            len([
                line
                for line in self.log.lines()
                if "quarantined" in line and "did not wake" in line
            ]),
            nr,
        )
        for row in self.device.snapshot():
            if row.id in gone:
                self.assertEqual(dev.REASONS[row.reason], "quarantined")
                self.assertTrue(row.flags & dev.UNRECLAIMABLE)

    def offline(self):
        number = harness.empty_ids(self.device)[10]
        self.assertEqual(self.device.request("offline", id=number).status, 0)
        return number

    def test_a_slice_that_does_not_wake_on_request_is_lost(self):
        for sleeping in (0, 1):
            self.begin()
            harness.load_sim(sleeping=sleeping)
            number = self.offline()
            dev.write(harness.SIM / "fail_wake", 1)
            done = self.device.request("online", id=number)
            self.assertEqual(
                (done.status, done.why(), done.nr_done, done.nr_failed),
                (errno.EIO, "quarantined", 0, 1),
            )
            self.check_lost(1)
            harness.unload_sim()

    def test_a_lost_slice_never_comes_back(self):
        harness.load_sim()
        lost = self.offline()
        dev.write(harness.SIM / "fail_wake", 1)
        self.assertEqual(self.device.request("online", id=lost).status, errno.EIO)
        self.check_lost(1)
        harness.unload_sim()
        self.begin()
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
        # The geometry cannot change while it has a lost slice
        with self.assertRaises(OSError) as caught:
            dev.write(dev.SYSFS / "slice_bytes", 64 * MIB)
        self.assertEqual(caught.exception.errno, errno.EBUSY)

    def test_online_all_reports_lost_slices_and_wakes_the_others(self):
        harness.load_sim()
        harness.compact(self.device)
        dev.write(harness.SIM / "fail_wake", 2)
        done = self.device.request("online_all")
        self.assertEqual((done.status, done.why()), (errno.EIO, "quarantined"))
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.check_lost(2)

    def test_demand_goes_on_with_the_next_slice(self):
        for sleeping in (0, 1):
            self.begin()
            harness.load_sim(sleeping=sleeping)
            harness.compact(self.device)
            dev.write(harness.SIM / "fail_wake", 2)
            self.serve(BURST)
            self.check_lost(2)
            self.device.request("online_all")
            harness.unload_sim()

    def test_a_failing_driver_can_be_unloaded(self):
        harness.load_sim()
        self.offline()
        dev.write(harness.SIM / "fail_wake", 1)
        harness.unload_sim()
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.check_lost(1)


@ON_ALLOC
class NotZeroed(PowerTest):
    """With init_on_alloc=1, as distributions have it."""

    def test_switching_an_empty_slice_off_writes_nothing_to_it(self):
        mark = os.urandom(PAGE)
        number, = self.empty()
        size = self.device.info().slice_bytes
        places = [number * size + at for at in range(0, size, 64 * PAGE)]
        with open(os.environ["RAMSLICE_GUEST_MEMORY"], "r+b", buffering=0) as memory:
            for place in places:
                os.pwrite(memory.fileno(), mark, place)
            self.assertEqual(self.device.request("offline", id=number).status, 0)
            self.assertEqual(self.device.request("online", id=number).status, 0)
            kept = sum(os.pread(memory.fileno(), PAGE, place) == mark for place in places)
        # Free when it was chosen; a few pages may have come into use before it was isolated
        self.assertGreater(kept, len(places) * 3 // 4)

    def test_pages_that_are_moved_keep_their_contents(self):
        with Memory(64) as memory:
            memory.touch()
            # Whether compact would move any of it depends on where it lies
            number = max(self.device.snapshot(), key=lambda row: row.counter("anon_mapped")).id
            moved = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
            self.assertGreater(moved.pages_migrated, 0)
            check_contents(memory)
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 60) as memory:
            self.assertIsNone(memory.touch().wrong_at())


@GIBIBYTE
class Unmapped(PowerTest):
    """A driver that does not say that slices may stay mapped: they leave the direct map."""

    def test_slices_leave_the_direct_map_before_they_are_off(self):
        harness.load_sim(unmapped=1)
        self.assertEqual(dev.read(dev.SYSFS / "strict"), "1")
        self.assertTrue(any("sleeping wake" in line for line in self.log.lines()))
        self.compact()
        with Memory(harness.meminfo()["MemAvailable"] // 2048) as memory:
            check_contents(memory.touch())
        self.device.request("online_all")
        harness.check_violations(0)

    def test_a_driver_that_refuses_leaves_its_slices_mapped(self):
        harness.load_sim(unmapped=1, fail_off=3)
        self.compact()
        self.device.request("online_all")
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 60) as memory:
            check_contents(memory.touch())

    def test_strict_mode_cannot_be_switched_off(self):
        harness.load_sim(unmapped=1)
        with self.assertRaises(OSError) as caught:
            dev.write(dev.SYSFS / "strict", 0)
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        harness.unload_sim()
        self.assertEqual(dev.read(dev.SYSFS / "strict"), "0")


class ContentsTest(PowerTest):
    """Woken memory is what the allocator expects of free pages, with init_on_free=1 or
    page_poison=on.

    With init_on_free, small anonymous pages are zero only if free ones were.
    """

    def fill(self):
        """Uses nearly all memory; the offset of the first wrong page, or None."""
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 60) as memory:
            return memory.touch().wrong_at()

    def complaints(self):
        return [
            line
            for line in self.log.lines()
            if "pagealloc" in line or "violation" in line or "corrupt" in line
        ]


@ZEROED
@POISONED
class ContentsOnDemand(ContentsTest):
    def test_memory_woken_on_demand_is_as_the_allocator_left_it(self):
        harness.load_sim()
        self.compact()
        self.assertIsNone(self.fill())
        harness.check_violations(0)
        # The same in huge pages
        self.compact()
        with Memory(harness.meminfo()["MemAvailable"] // 2048, huge=True) as memory:
            check_contents(memory.touch())
        self.assertEqual(self.complaints(), [])


@ZEROED
class ContentsOnRequest(ContentsTest):
    def test_memory_woken_on_request_is_as_the_allocator_left_it(self):
        # Slices that the driver refuses come back another way
        harness.load_sim(fail_off=4)
        self.compact()
        self.device.request("online_all")
        self.assertIsNone(self.fill())
        self.assertEqual(self.complaints(), [])


@ZEROED
@POISONED
class ContentsControl(ContentsTest):
    """Comes last in its machines: it leaves wrong bytes behind."""

    def test_wrong_bytes_in_free_pages_are_noticed(self):
        """Wrong bytes in a free page show that the other tests can fail."""
        with open(os.environ["RAMSLICE_GUEST_MEMORY"], "r+b", buffering=0) as memory:
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
