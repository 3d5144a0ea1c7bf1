# SPDX-License-Identifier: GPL-2.0-or-later
"""Held slices while the machine changes: out of memory, hotplug, suspend, another driver, gigantic
pages. What needs only the interface is in the kernel's selftests: ramslice_hold.py.
"""

import signal
from pathlib import Path

from ramslice_hold import HoldTest, free_and_total

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.memory_eater import end_of_eater
from ramlab.pytest_vm import vm


@vm(kernel=["plain", "debug"], slow="debug", mem="1G", append="ramslice=16M movablecore=512M")
class HoldAndMachine(HoldTest):
    def test_an_allocation_beyond_the_rest_is_killed(self):
        held = self.hold(12)
        kills = harness.vmstat()["oom_kill"]
        # All that is awake or may wake
        mib = free_and_total()[0] // 1024 + self.device.info().offline_pages * PAGE // MIB
        self.assertEqual(end_of_eater(mib), -signal.SIGKILL)
        self.assertEqual(harness.vmstat()["oom_kill"], kills + 1)
        states = self.states()
        self.assertEqual({states[number] for number in held}, {(dev.OFFLINE, True)})

    def test_memory_hotplug_wakes_the_held_slices_of_its_block(self):
        # More than the highest block holds, of which the firmware keeps a part
        held = self.hold(12)
        total = free_and_total()[0]
        block_bytes = int(dev.read("/sys/devices/system/memory/block_size_bytes"), 16)
        block = held[-1] * self.device.info().slice_bytes // block_bytes
        state = f"/sys/devices/system/memory/memory{block}/state"
        in_block = [n for n in held if n * self.device.info().slice_bytes // block_bytes == block]
        dev.write(state, "offline")
        dev.write(state, "online_movable")
        self.assertEqual(free_and_total()[0], total + len(in_block) * self.slice_kib)

    def test_suspend_wakes_every_held_slice(self):
        total = free_and_total()[0]
        power = Path("/sys/power")
        self.addCleanup(dev.write, power / "pm_test", "none")
        delay = Path("/sys/module/suspend/parameters/pm_test_delay")
        self.addCleanup(dev.write, delay, dev.read(delay))
        dev.write(delay, 0)
        # Tasks are frozen and thawed; the root file system, which is the host's, allows no more
        dev.write(power / "pm_test", "freezer")
        held = self.hold(3)
        dev.write(power / "state", "freeze")
        states = self.states()
        self.assertEqual({states[number] for number in held}, {(dev.ONLINE, False)})
        self.assertEqual(free_and_total()[0], total)

    def test_a_change_of_power_driver_wakes_every_held_slice(self):
        """A driver need not know which slices another one has powered down."""
        total = free_and_total()[0]
        for change in (harness.load_sim, harness.unload_sim):
            held = self.hold(3)
            change()
            states = self.states()
            self.assertEqual({states[number] for number in held}, {(dev.ONLINE, False)})
            self.assertEqual(free_and_total()[0], total)


@vm(mem="6G", append="ramslice=64M", qemu=("-cpu max",))
class Contiguous(HoldTest):
    def test_a_gigantic_page_is_not_built_from_held_slices(self):
        """A page of 1 GiB is taken by address and not from the free lists.

        There is no movable zone, where such pages are not allowed.
        """
        gib = 1 << 30
        size = self.device.info().slice_bytes
        pool = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
        self.addCleanup(dev.write, pool, 0)
        ranges = {
            s.id * size // gib for s in self.device.snapshot() if not s.flags & dev.UNRECLAIMABLE
        }
        # One in each, so that none is whole
        held = [
            self.hold(1, lambda s, number=number: s.id * size // gib == number)[0]
            for number in sorted(ranges)
        ]
        harness.compact(self.device)
        total = free_and_total()[0]
        dev.write(pool, 1)
        self.assertEqual(int(dev.read(pool)), 0)
        states = self.states()
        self.assertEqual({states[number] for number in held}, {(dev.OFFLINE, True)})
        self.assertEqual(free_and_total()[0], total)
        # It can be built once they are online
        self.wake()
        dev.write(pool, 1)
        self.assertEqual(int(dev.read(pool)), 1)
