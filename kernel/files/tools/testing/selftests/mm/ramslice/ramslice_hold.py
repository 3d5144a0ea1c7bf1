#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Held slices stay offline whatever is wanted, leave every total, and come back by hand."""

import errno
import os
import unittest

import _ramslice as dev
import _ramslice_harness as harness
from _ramslice_harness import MIB, PAGE, Memory


def free_and_total():
    info = harness.meminfo()
    return info["MemTotal"], info["MemFree"], info["RamsliceOffline"]


def watermarks_are_shares():
    """Whether each minimum is the zone's share of min_free_kbytes, by what zones manage now.

    Of the kernel's __setup_per_zone_wmarks(), which leaves ZONE_MOVABLE out.
    """
    zones = {key: zone for key, zone in harness.zoneinfo().items() if key[1] != "Movable"}
    total = sum(zone["managed"] for zone in zones.values())
    pages = int(dev.read("/proc/sys/vm/min_free_kbytes")) * 1024 // PAGE
    return all(zone["min"] == pages * zone["managed"] // total for zone in zones.values())


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
        self.assertTrue(harness.until(watermarks_are_shares), harness.zoneinfo())
        self.assertEqual({n for n, (state, is_held) in self.states().items() if is_held}, set(held))
        for number in held:
            self.assertEqual(self.device.request("online", id=number).nr_done, 1)
        self.assertEqual(free_and_total()[0], total)
        self.assertEqual(harness.zoneinfo().keys(), zones.keys())
        self.assertEqual(
            {name: zone["managed"] for name, zone in harness.zoneinfo().items()},
            {name: zone["managed"] for name, zone in zones.items()},
        )
        self.assertTrue(harness.until(watermarks_are_shares), harness.zoneinfo())

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

    def test_the_counters_agree_while_slices_are_held(self):
        self.hold(5)
        dev.verify()


if __name__ == "__main__":
    harness.main()
