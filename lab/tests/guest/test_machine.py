# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine changes while slices are offline.

Memory and CPUs come and go, the machine suspends, the power driver is unloaded.
"""

import errno
import os
import re
import threading
import time
from pathlib import Path

import pytest

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, check_contents
from ramlab.guest.pinned_memory import PageMovementTest, PatternedMemory, setting
from ramlab.guest.workload import Load
from ramlab.pytest_vm import vm

pytestmark = pytest.mark.slow
MACHINE = vm(mem="1536M", append="ramslice=32M movablecore=1G")

MEMORY = Path("/sys/devices/system/memory")
CPU1 = Path("/sys/devices/system/cpu/cpu1/online")
PM = Path("/sys/power")


class HotplugTest(PageMovementTest):
    """Memory blocks (128 MiB), as hotplug sees them."""

    def setUp(self):
        super().setUp()
        self.block = int(dev.read(MEMORY / "block_size_bytes"), 16)

    def movable_blocks(self):
        return [
            path
            for path in sorted(MEMORY.glob("memory[0-9]*"), key=lambda path: int(path.name[6:]))
            if "Movable" in dev.read(path / "valid_zones")
        ]

    def under(self, path):
        """Slices that the block has a part in."""
        start, size = (
            int(dev.read(path / "phys_index"), 16) * self.block,
            self.device.info().slice_bytes,
        )
        return set(range(start // size, (start + self.block - 1) // size + 1))


@MACHINE
class Blocks(HotplugTest):
    """A memory block with offline slices is unplugged and plugged in again."""

    def setUp(self):
        super().setUp()
        old = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", old)
        self.addCleanup(self.device.request, "online_all")

    def unplug_under_slices(self, slice_mib):
        dev.write(dev.SYSFS / "slice_bytes", slice_mib * MIB)
        with PatternedMemory(48) as memory:
            harness.compact(self.device)
            nr_slices, total = self.device.info().nr_slices, dev.meminfo("MemTotal")
            off = set(harness.ids(self.device, dev.OFFLINE))
            block = next(path for path in self.movable_blocks() if self.under(path) <= off)
            touched = self.under(block)
            woken = harness.woken_by_demand(self.device)
            dev.write(block / "state", "offline")
            self.assertEqual(dev.read(block / "state"), "offline")
            # Its slices woke before, and no others did
            self.assertEqual(harness.woken_by_demand(self.device) - woken, len(touched))
            self.assertEqual(off - set(harness.ids(self.device, dev.OFFLINE)), touched)
            self.assertEqual(dev.meminfo("MemTotal"), total - self.block // 1024)
            rows = {row.id: row for row in self.device.snapshot()}
            for number in touched:
                if slice_mib * MIB <= self.block:
                    self.assertNotIn(number, rows)
                else:
                    self.assertEqual(dev.REASONS[rows[number].reason], "hole")
                    done = self.device.request("offline", id=number)
                    self.assertEqual((done.status, done.why()), (errno.EBUSY, "hole"))
            self.assert_sane()
            # ramslice goes on without that memory
            harness.compact(self.device)
            self.assertFalse(touched & set(harness.ids(self.device, dev.OFFLINE)))
            check_contents(memory)

            dev.write(block / "state", "online_movable")
            self.assertEqual(self.device.info().nr_slices, nr_slices)
            self.assertEqual(dev.meminfo("MemTotal"), total)
            self.assertEqual({self.row(number).state for number in touched}, {dev.ONLINE})
            for number in touched:
                self.assert_goes(number)
            self.device.request("online_all")
            check_contents(memory)

    def test_unplugging_a_block_larger_than_its_slices(self):
        self.unplug_under_slices(32)

    def test_unplugging_a_block_of_one_slice(self):
        self.unplug_under_slices(128)

    def test_unplugging_a_block_smaller_than_its_slice(self):
        self.unplug_under_slices(256)

    def test_unplugging_a_block_in_use_keeps_its_contents(self):
        """Its pages move to other slices, which wake for them."""
        with PatternedMemory(64) as memory:
            harness.compact(self.device)
            size = self.device.info().slice_bytes
            used = {pfn * PAGE // size for pfn in memory.pfns()}
            block = next(path for path in self.movable_blocks() if self.under(path) & used)
            dev.write(block / "state", "offline")
            check_contents(memory)
            dev.write(block / "state", "online_movable")
            check_contents(memory)


@vm(mem="1G", append="ramslice=32M movablecore=512M", fresh=True)
class Lost(HotplugTest):
    def test_a_block_with_a_lost_slice_cannot_be_unplugged(self):
        with PatternedMemory(48) as memory:
            empty = set(harness.empty_ids(self.device))
            block, other = [path for path in self.movable_blocks() if self.under(path) <= empty][:2]
            lost, *beside = sorted(self.under(block))
            self.assert_goes(lost)
            dev.write(harness.SIM / "fail_wake", 1)
            self.assertEqual(self.device.request("online", id=lost).why(), "quarantined")
            for number in beside:
                self.assert_goes(number)
            total = dev.meminfo("MemTotal")
            with self.assertRaises(OSError) as caught:
                dev.write(block / "state", "offline")
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            self.assertEqual(
                (dev.read(block / "state"), dev.meminfo("MemTotal")), ("online", total)
            )
            # Slices that woke for nothing are free and can be taken offline again
            self.assertEqual({self.row(number).state for number in beside}, {dev.ONLINE})
            self.assert_sane()
            for number in beside:
                self.assert_goes(number)

            dev.write(other / "state", "offline")
            self.assertEqual(dev.meminfo("MemTotal"), total - self.block // 1024)
            dev.write(other / "state", "online_movable")
            self.assertEqual(dev.meminfo("MemTotal"), total)
            # The lost slice is still known
            self.assertEqual(harness.ids(self.device, dev.QUARANTINED), [lost])
            check_contents(memory)


@vm(mem="768M",
    append="ramslice=32M memory_hotplug.memmap_on_memory=on memhp_default_state=online_movable",
    qemu=("-m 768M,slots=1,maxmem=4G",
          "-object memory-backend-ram,id=added,size=512M -device pc-dimm,memdev=added"))
class OwnMap(HotplugTest):
    """Blocks that were added and begin with their own struct pages (64 bytes each)."""

    def test_the_slice_with_the_blocks_struct_pages_stays_online(self):
        block = self.movable_blocks()[-1]
        first, *others = sorted(self.under(block))
        map_bytes = self.block // PAGE * 64
        run = self.device.pages(first)[0]
        self.assertEqual((run.nr_pages * PAGE, run.why()), (map_bytes, "unmovable"))
        total = dev.meminfo("MemTotal")
        for _ in range(2):
            self.assert_cheap(self.assert_stays(first, "unmovable"))
            for number in others:
                self.assert_goes(number)
            dev.write(block / "state", "offline")
            self.assertEqual(dev.meminfo("MemTotal"), total - (self.block - map_bytes) // 1024)
            self.assertFalse(self.under(block) & set(harness.states(self.device)))
            self.assert_sane()
            dev.write(block / "state", "online_movable")
            self.assertEqual(dev.meminfo("MemTotal"), total)
            self.assertEqual({self.row(number).state for number in self.under(block)}, {dev.ONLINE})


@MACHINE
class Cpus(PageMovementTest):
    def test_a_cpu_goes_offline_and_online_together_with_slices(self):
        loads = [Load("anon", 64), Load("shmem", 32), Load("fork", 24)]
        for load in loads:
            self.addCleanup(load.kill)
        for load in loads:
            load.wait_ready()
        self.addCleanup(dev.write, CPU1, 1)
        stop, toggled, failed = threading.Event(), [], []

        def toggle():
            try:
                while not stop.is_set():
                    for value in (0, 1):
                        dev.write(CPU1, value)
                        toggled.append(value)
                        time.sleep(0.2)
            except OSError as error:
                failed.append(error)

        worker = threading.Thread(target=toggle)
        worker.start()
        try:
            off = on = 0
            begin = time.monotonic()
            # For 20 s, and longer until enough has happened
            while (passed := time.monotonic() - begin) < 20 or (
                    passed < harness.PATIENCE and min(len(toggled), off, on) <= 5):
                off += self.device.request(
                    "compact", flags=dev.IGNORE_BACKOFF, deadline_ms=5000
                ).nr_done
                on += self.device.request("online_all").nr_done
        finally:
            stop.set()
            worker.join()
        dev.write(CPU1, 1)
        print(
            f"({len(toggled)} changes of the CPU, {off} slices off, {on} on) ", end="", flush=True
        )
        self.assertEqual(failed, [])
        self.assertGreater(min(len(toggled), off, on), 5)
        for load in loads:
            load.end()


@MACHINE
class Suspend(PageMovementTest):
    """Tasks are frozen and thawed; the root file system, which is the host's, allows no more."""

    def test_slices_wake_before_suspend_and_go_offline_again_afterwards(self):
        delay = Path("/sys/module/suspend/parameters/pm_test_delay")
        log = harness.KernelLog()
        self.addCleanup(log.close)
        with PatternedMemory(48) as memory, setting(PM / "pm_test", "freezer"), setting(delay, 1):
            for state in ("freeze", "mem"):
                if state not in dev.read(PM / "state").split():
                    self.fail(f"no {state} in {PM / 'state'}")
                nr = harness.compact(self.device)
                self.assertGreater(nr, 8)
                dev.write(PM / "state", state)
                self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
                woken = re.search(
                    r"ramslice: (\d+) slices woken before sleep", "\n".join(log.lines())
                )
                self.assertGreaterEqual(int(woken[1]), nr - 2)
                check_contents(memory)
                self.assert_sane()

    def test_slices_stay_off_during_suspend_if_the_driver_says_that_they_may(self):
        delay = Path("/sys/module/suspend/parameters/pm_test_delay")
        self.device.request("online_all")
        harness.unload_sim()
        harness.load_sim(survives_sleep=1)
        with PatternedMemory(48) as memory, setting(PM / "pm_test", "freezer"), setting(delay, 1):
            for state in ("freeze", "mem"):
                self.assertGreater(harness.compact(self.device), 8)
                off = harness.ids(self.device, dev.OFFLINE)
                dev.write(PM / "state", state)
                # What threads of the kernel wanted meanwhile has woken
                self.assertGreaterEqual(len(harness.ids(self.device, dev.OFFLINE)), len(off) - 2)
                check_contents(memory)
                self.assert_sane()
                self.assertEqual(self.device.request("compact", flags=dev.IGNORE_BACKOFF).status, 0)
            if "disk" in dev.read(PM / "state").split():
                dev.write(PM / "state", "disk")
                self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])

    def test_a_running_request_gives_up_for_suspend(self):
        """Suspend waits for the request."""
        dev.write(harness.SIM / "off_delay_us", 200_000)
        delay = Path("/sys/module/suspend/parameters/pm_test_delay")
        outcome = []
        with (
            setting(PM / "pm_test", "freezer"),
            setting(delay, 1),
            dev.Device(os.O_RDONLY) as reader,
        ):
            worker = threading.Thread(target=lambda: outcome.append(
                self.device.request("compact", flags=dev.IGNORE_BACKOFF)))
            worker.start()
            self.assertTrue(harness.until(lambda: len(harness.ids(reader, dev.OFFLINE)) >= 2))
            dev.write(PM / "state", "freeze")
            worker.join()
            self.assertEqual(harness.ids(reader, dev.OFFLINE), [])
        self.assertIn(outcome[0].why(), ("pressure", "signal"))
        self.assertGreater(harness.compact(self.device, most=2), 0)


@MACHINE
class Unload(PageMovementTest):
    def setUp(self):
        super().setUp()
        # check_end() unloads it
        self.addCleanup(self.reload)

    def reload(self):
        if not harness.SIM.exists():
            harness.load_sim()

    def test_the_driver_unloads_with_slices_offline_and_memory_in_use(self):
        with PatternedMemory(64) as memory:
            for _ in range(3):
                self.assertGreater(harness.compact(self.device), 8)
                log = harness.KernelLog()
                harness.unload_sim()
                self.assertFalse([line for line in log.lines() if "violation" in line])
                log.close()
                self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
                self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
                check_contents(memory)
                # Slices go offline without a driver; loading one wakes them
                self.assertGreater(harness.compact(self.device, most=4), 0)
                harness.load_sim()
                self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
            check_contents(memory)

    def test_the_driver_unloads_during_requests_and_demand(self):
        dev.write(harness.SIM / "off_delay_us", 20_000)
        outcome = []
        with PatternedMemory(48) as memory:
            worker = threading.Thread(target=lambda: outcome.append(
                self.device.request("compact", flags=dev.IGNORE_BACKOFF)))
            with dev.Device(os.O_RDONLY) as reader:
                worker.start()
                self.assertTrue(harness.until(lambda: len(harness.ids(reader, dev.OFFLINE)) >= 2))
                log = harness.KernelLog()
                remover = threading.Thread(target=harness.unload_sim)
                remover.start()
                with harness.Memory(600) as burst:
                    check_contents(burst.touch())
                    worker.join()
                    remover.join()
                    check_contents(burst)
                self.assertFalse([line for line in log.lines() if "violation" in line])
                log.close()
            self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
            check_contents(memory)
        self.assertEqual(len(outcome), 1)
