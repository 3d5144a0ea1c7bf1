# SPDX-License-Identifier: GPL-2.0-or-later
"""Held slices stay offline whatever is wanted, leave every total, and come back by hand and for
hotplug.
"""

import errno
import os
import subprocess
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Memory
from ramlab.pytest_vm import vm


def free_and_total():
    info = harness.meminfo()
    return info["MemTotal"], info["MemFree"], info["RamsliceOffline"]


class HoldTest(unittest.TestCase):
    def setUp(self):
        self.device = dev.Device()
        self.addCleanup(self.device.close)
        self.addCleanup(self.wake)
        self.wake()
        self.slice_kib = self.device.info().slice_bytes // 1024

    def wake(self):
        self.device.request("online_all", flags=dev.HOLD)
        os.sync()
        dev.write("/proc/sys/vm/drop_caches", 3)

    def hold(self, nr, wanted=lambda _: True):
        """Holds this many of the slices that are wanted; returns their numbers."""
        held = []
        for s in sorted(self.device.snapshot(), key=lambda s: -s.id):
            if len(held) == nr:
                break
            if s.state == dev.ONLINE and not s.flags & dev.UNRECLAIMABLE and wanted(s):
                done = self.device.request(
                    "offline", id=s.id, wait_busy=10, flags=dev.HOLD | dev.IGNORE_BACKOFF
                )
                held += [s.id] * done.nr_done
        self.assertEqual(len(held), nr)
        return held

    def states(self):
        return {s.id: (s.state, bool(s.flags & dev.HELD)) for s in self.device.snapshot()}


@vm(kernel=["plain", "debug"], mem="1G", append="ramslice=16M movablecore=512M")
class Hold(HoldTest):
    def test_held_slices_leave_every_total(self):
        total, _, _ = free_and_total()
        zones = harness.zoneinfo()
        held = self.hold(8)
        now, _, offline = free_and_total()
        self.assertEqual(total - now, 8 * self.slice_kib)
        self.assertEqual(offline, 0)
        info = self.device.info()
        self.assertEqual(info.held_pages * PAGE, 8 * info.slice_bytes)
        self.assertEqual(sum(zone.nr_held for zone in self.device.zones()), 8)
        after = harness.zoneinfo()
        self.assertEqual(
            sum(zone["managed"] for zone in zones.values())
            - sum(zone["managed"] for zone in after.values()),
            info.held_pages,
        )
        # Watermarks are a share of what a zone manages, and change a moment later
        high = sum(zone["high"] for zone in zones.values())
        self.assertTrue(
            harness.until(lambda: sum(zone["high"] for zone in harness.zoneinfo().values()) < high)
        )
        self.assertEqual({n for n, (state, is_held) in self.states().items() if is_held}, set(held))
        for number in held:
            self.assertEqual(self.device.request("online", id=number).nr_done, 1)
        self.assertEqual(free_and_total()[0], total)
        self.assertEqual(harness.zoneinfo().keys(), zones.keys())
        kept = ("managed", "min", "low", "high")
        wanted = {name: [zone[item] for item in kept] for name, zone in zones.items()}
        found = {}

        def back():
            found.update(
                {name: [zone[item] for item in kept] for name, zone in harness.zoneinfo().items()}
            )
            return found == wanted

        harness.until(back)
        self.assertEqual(found, wanted)

    def test_demand_wakes_no_held_slice(self):
        held = self.hold(6)
        harness.compact(self.device)
        offline = set(harness.ids(self.device, dev.OFFLINE))
        self.assertGreater(len(offline), 6)
        info = self.device.info()
        woken = harness.woken_by_demand(self.device)
        with Memory((info.free_pages + info.offline_pages // 2) * PAGE // MIB) as memory:
            memory.touch()
            self.assertGreater(harness.woken_by_demand(self.device), woken)
            states = self.states()
            self.assertEqual({states[number] for number in held}, {(dev.OFFLINE, True)})

    def test_an_allocation_beyond_the_rest_is_killed(self):
        held = self.hold(12)
        kills = harness.vmstat()["oom_kill"]
        info = self.device.info()
        mib = (info.free_pages + info.offline_pages) * PAGE // MIB + 4 * self.slice_kib // 1024
        eater = subprocess.run(
            [
                "python3",
                "-c",
                (
                    "import mmap\nopen('/proc/self/oom_score_adj', 'w').write('1000')\nm ="
                    f" mmap.mmap(-1, {mib} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS |"
                    " mmap.MAP_POPULATE | 0x4000)  # MAP_NORESERVE"
                ),
            ],
            check=False,
        )
        self.assertEqual(eater.returncode, -9)
        self.assertEqual(harness.vmstat()["oom_kill"], kills + 1)
        states = self.states()
        self.assertEqual({states[number] for number in held}, {(dev.OFFLINE, True)})

    def test_online_all_wakes_held_slices_only_with_the_flag(self):
        held = self.hold(2)
        harness.compact(self.device)
        self.device.request("online_all")
        self.assertEqual(set(harness.ids(self.device, dev.OFFLINE)), set(held))
        self.device.request("online_all", flags=dev.HOLD)
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.assertEqual(self.device.info().held_pages, 0)

    def test_an_offline_slice_can_be_held(self):
        harness.compact(self.device)
        number = harness.ids(self.device, dev.OFFLINE)[0]
        total, _, _ = free_and_total()
        self.assertEqual(self.device.request("offline", id=number, flags=dev.HOLD).nr_done, 1)
        self.assertEqual(total - free_and_total()[0], self.slice_kib)
        # A second time changes nothing
        self.assertEqual(self.device.request("offline", id=number, flags=dev.HOLD).nr_done, 1)
        self.assertEqual(total - free_and_total()[0], self.slice_kib)

    def test_a_dry_run_holds_nothing(self):
        before = free_and_total()[0]
        self.assertGreater(self.device.request("compact", flags=dev.HOLD | dev.DRY_RUN).nr_done, 0)
        self.assertEqual(free_and_total()[0], before)
        self.assertEqual(self.device.info().held_pages, 0)

    def test_compaction_can_hold(self):
        total = free_and_total()[0]
        done = self.device.request("compact", flags=dev.HOLD, max_slices=5)
        self.assertEqual(done.nr_done, 5)
        self.assertEqual(total - free_and_total()[0], 5 * self.slice_kib)

    def test_waking_one_slice_refuses_the_flag(self):
        with self.assertRaises(OSError) as caught:
            self.device.request("online", id=self.hold(1)[0], flags=dev.HOLD)
        self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_the_slice_size_cannot_change_while_a_slice_is_held(self):
        self.hold(1)
        with self.assertRaises(OSError) as caught:
            dev.write(dev.SYSFS / "slice_bytes", 2 * self.slice_kib * 1024)
        self.assertEqual(caught.exception.errno, errno.EBUSY)

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

    def test_the_counters_agree_while_slices_are_held(self):
        self.hold(5)
        dev.verify()


@vm(mem="6G", append="ramslice=64M")
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
