#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Offline memory does not look like lost memory: what people and programs read while most of it
is offline.

There is one test for each row of the design's table.
"""

import ctypes
import os
import unittest

import _ramslice as dev
import _ramslice_harness as harness
from _ramslice_harness import PAGE, Child, Memory

MEMINFO_NODE = "/sys/devices/system/node/node{}/meminfo"


class SysInfo(ctypes.Structure):
    _fields_ = [
        ("uptime", ctypes.c_long), ("loads", ctypes.c_ulong * 3), ("totalram", ctypes.c_ulong),
        ("freeram", ctypes.c_ulong), ("sharedram", ctypes.c_ulong), ("bufferram", ctypes.c_ulong),
        ("totalswap", ctypes.c_ulong), ("freeswap", ctypes.c_ulong), ("procs", ctypes.c_ushort),
        ("totalhigh", ctypes.c_ulong), ("freehigh", ctypes.c_ulong), ("mem_unit", ctypes.c_uint),
    ]


def sysinfo():
    info = SysInfo()
    harness.libc.sysinfo(ctypes.byref(info))
    return info


def node_meminfo(node):
    rows = (line.split() for line in dev.read(MEMINFO_NODE.format(node)).splitlines())
    return {row[2].rstrip(":"): int(row[3]) for row in rows}


def nodes():
    return [int(name[4:]) for name in os.listdir("/sys/devices/system/node") if name[4:].isdigit()]


def hold(mib):
    """A process of constant size that reports its OOM score."""
    with Memory(mib) as memory:
        memory.touch()
        while True:
            yield int(dev.read("/proc/self/oom_score"))


def look(holder):
    """Everything that is compared, read again if memory changed between the first file and the
    last.
    """
    for _ in range(50):
        # Folds per-CPU differences into the counters
        dev.write("/proc/sys/vm/stat_refresh", "1")
        found = {
            "meminfo": harness.meminfo(),
            "vmstat": harness.vmstat(),
            "zoneinfo": harness.zoneinfo(),
            "buddyinfo": harness.buddyinfo(),
            "sysinfo": sysinfo(),
            "nodes": {n: node_meminfo(n) for n in nodes()},
            "score": holder.step(),
        }
        if abs(harness.meminfo()["MemFree"] - found["meminfo"]["MemFree"]) <= 512:
            return found
    raise AssertionError("free memory keeps changing without any load")


class Views(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = dev.Device()
        cls.holder = Child(hold, 100)
        cls.holder.step()
        harness.wake(cls.device)
        # The first time empties caches that the second time finds empty
        harness.compact(cls.device)
        harness.wake(cls.device)
        cls.before = look(cls.holder)
        nr = harness.compact(cls.device)
        cls.look_while_nothing_wakes()
        if nr < len(cls.slices) * 3 // 4:
            raise AssertionError(
                f"{nr} of {len(cls.slices)} slices went offline: too few to test anything"
            )

    @classmethod
    def look_while_nothing_wakes(cls):
        """Reads all figures of one state.

        They come from many calls, between which slices may wake.
        """
        before = None
        for _ in range(50):
            cls.during = look(cls.holder)
            cls.zones, cls.info, cls.slices = (
                cls.device.zones(),
                cls.device.info(),
                cls.device.snapshot(),
            )
            states = [s.state for s in cls.slices]
            after = [cls.info.offline_pages, [zone.offline_pages for zone in cls.zones], states]
            # Of two equal readings, the second has all its figures in between
            if after == before and set(states) <= {dev.ONLINE, dev.OFFLINE}:
                return
            before = after
        raise AssertionError("slices keep changing without any load")

    @classmethod
    def tearDownClass(cls):
        cls.holder.end()
        cls.device.request("online_all")
        cls.device.close()

    def assert_close(self, value, expected, total, percent, what=""):
        """Within a part of all memory, both in the same unit."""
        self.assertLessEqual(
            abs(value - expected), total * percent / 100, f"{what}: {value}, expected {expected}"
        )

    def offline_kib(self):
        return 4 * self.info.offline_pages

    # --- unchanged

    def test_most_of_memory_is_offline_during_the_test(self):
        self.assertGreater(self.offline_kib(), self.before["meminfo"]["MemTotal"] * 3 // 4)

    def test_memtotal_is_unchanged(self):
        self.assertEqual(self.during["meminfo"]["MemTotal"], self.before["meminfo"]["MemTotal"])
        self.assertEqual(self.during["sysinfo"].totalram, self.before["sysinfo"].totalram)

    def test_managed_pages_and_watermarks_are_unchanged(self):
        for name, zone in self.before["zoneinfo"].items():
            for item in ("managed", "present", "spanned", "min", "low", "high", "protection"):
                self.assertEqual(self.during["zoneinfo"][name][item], zone[item], f"{name} {item}")

    def test_commitlimit_is_unchanged(self):
        self.assertEqual(
            self.during["meminfo"]["CommitLimit"], self.before["meminfo"]["CommitLimit"]
        )

    def test_oom_scores_are_unchanged(self):
        self.assertGreater(self.before["score"], 600)
        self.assertAlmostEqual(self.during["score"], self.before["score"], delta=1)

    def test_reserves_for_users_and_admin_are_unchanged(self):
        # Set at boot and by memory hotplug, from what is free
        self.assertGreaterEqual(int(dev.read("/proc/sys/vm/user_reserve_kbytes")),
                                min(self.before["meminfo"]["MemFree"] // 32, 128 << 10) * 9 // 10)

    # --- with what can be woken

    def test_memfree_includes_what_can_be_woken(self):
        # Compaction drops the little page cache there is; the rest of 1% is tables and batches
        total = self.before["meminfo"]["MemTotal"]
        self.assert_close(
            self.during["meminfo"]["MemFree"], self.before["meminfo"]["MemFree"], total, 1
        )

    def test_memavailable_includes_what_can_be_woken(self):
        total = self.before["meminfo"]["MemTotal"]
        self.assert_close(
            self.during["meminfo"]["MemAvailable"], self.before["meminfo"]["MemAvailable"], total, 1
        )

    def test_dirty_thresholds_include_what_can_be_woken(self):
        # They are a share of free memory and page cache, so the tolerance is that of MemFree
        for name in ("nr_dirty_threshold", "nr_dirty_background_threshold"):
            before = self.before["vmstat"][name]
            self.assert_close(self.during["vmstat"][name], before, before, 1, name)

    def test_sysinfo_includes_what_can_be_woken(self):
        info = self.during["sysinfo"]
        self.assert_close(info.freeram * info.mem_unit // 1024, self.before["meminfo"]["MemFree"],
                          self.before["meminfo"]["MemTotal"], 1)

    def test_node_meminfo_includes_what_can_be_woken(self):
        for node, before in self.before["nodes"].items():
            during = self.during["nodes"][node]
            self.assertEqual(during["MemTotal"], before["MemTotal"])
            self.assert_close(during["MemFree"], before["MemFree"], before["MemTotal"], 1)
            self.assert_close(during["MemUsed"], before["MemUsed"], before["MemTotal"], 1)

    def test_separate_lines_report_offline_memory(self):
        self.assertEqual(self.before["meminfo"]["RamsliceOffline"], 0)
        offline = sum(s.nr_pages for s in self.slices if s.state == dev.OFFLINE)
        self.assertEqual(self.info.offline_pages, offline)
        self.assertEqual(self.during["meminfo"]["RamsliceOffline"], 4 * offline)
        self.assertEqual(self.during["vmstat"]["nr_ramslice_offline"], offline)
        for node in nodes():
            on_node = sum(
                s.nr_pages for s in self.slices if s.state == dev.OFFLINE and s.node == node
            )
            self.assertEqual(self.during["nodes"][node]["RamsliceOffline"], 4 * on_node)
        for zone in self.zones:
            self.assertEqual(
                self.during["zoneinfo"][zone.node, zone.name.decode()]["nr_ramslice_offline"],
                zone.offline_pages,
            )

    # --- what can be allocated this moment

    def test_nr_free_pages_counts_awake_memory(self):
        for when in ("before", "during"):
            figures = getattr(self, when)
            offline = figures["meminfo"]["RamsliceOffline"]
            self.assert_close(
                4 * figures["vmstat"]["nr_free_pages"] + offline,
                figures["meminfo"]["MemFree"],
                figures["meminfo"]["MemTotal"],
                0.2,
                when,
            )

    def test_zoneinfo_counts_awake_memory(self):
        free = sum(zone["free"] for zone in self.during["zoneinfo"].values())
        self.assert_close(
            free, self.during["vmstat"]["nr_free_pages"], self.info.managed_pages, 0.1
        )
        for name, zone in self.during["zoneinfo"].items():
            self.assert_close(zone["nr_free_pages"], zone["free"], zone["managed"], 0.1, name)
        for zone in self.zones:
            self.assert_close(
                self.during["zoneinfo"][zone.node, zone.name.decode()]["free"],
                zone.free_pages,
                zone.managed_pages,
                0.2,
            )

    def test_buddyinfo_counts_awake_memory(self):
        for name, pages in self.during["buddyinfo"].items():
            # Read one after the other while nothing changed
            self.assert_close(pages, self.during["zoneinfo"][name]["free"],
                              self.during["zoneinfo"][name]["managed"], 0.1, name)
        self.assertLess(4 * sum(self.during["buddyinfo"].values()),
                        self.during["meminfo"]["MemFree"] - self.offline_kib() * 9 // 10)

    def test_the_fragmentation_index_describes_awake_memory(self):
        """The share of free memory in blocks smaller than an order, by the free lists and as the
        kernel says.
        """
        harness.compact(self.device)
        # Two files cannot be read at once: the first has to be the same before and after the second
        for _ in range(20):
            before = dev.read("/proc/buddyinfo")
            index = dev.read(dev.DEBUGFS / "extfrag/unusable_index")
            if dev.read("/proc/buddyinfo") == before:
                break
        lists = {}
        for line in before.splitlines():
            words = line.replace(",", "").split()
            lists[words[1], words[3]] = [int(n) << order for order, n in enumerate(words[4:])]
        for line in index.splitlines():
            words = line.replace(",", "").split()
            pages = lists[words[1], words[3]]
            for order, share in enumerate(words[4:]):
                expected = sum(pages[:order]) / sum(pages)
                self.assertAlmostEqual(
                    float(share), expected, delta=0.02, msg=f"{line} order {order}"
                )

    def test_free_lists_hold_no_offline_page(self):
        """The page flags of every page frame are a second source."""
        harness.compact(self.device)
        before = {s.id: s for s in self.device.snapshot() if s.state == dev.OFFLINE}
        wrong = {}
        with open("/proc/kpageflags", "rb") as flags:
            for s in before.values():
                flags.seek(8 * s.id * s.nr_pages)
                words = set(memoryview(flags.read(8 * s.nr_pages)).cast("Q"))
                # KPF_BUDDY is 10, KPF_OFFLINE 23
                if not all(word >> 23 & 1 and not word >> 10 & 1 for word in words):
                    wrong[s.id] = [hex(word) for word in words]
        # Demand may wake slices meanwhile: only those that stayed offline count
        still = {s.id for s in self.device.snapshot() if s.state == dev.OFFLINE} & before.keys()
        self.assertGreater(2 * len(still), len(before))
        self.assertFalse({slice: words for slice, words in wrong.items() if slice in still})

    # --- the awake reserve

    def test_the_awake_reserve_covers_high_watermark_lowmem_reserve_and_a_chunk(self):
        for zone in self.zones:
            figures = self.during["zoneinfo"][zone.node, zone.name.decode()]
            self.assertGreaterEqual(
                zone.awake_reserve_pages,
                figures["high"] + max(figures["protection"]) + self.info.chunk_bytes // PAGE,
                zone,
            )
            self.assertEqual(zone.low_wmark_pages, figures["low"])

    def test_the_awake_reserve_is_free(self):
        """Slices wake in advance once less than the high watermark is free."""
        tried = 0
        for zone in self.zones:
            if zone.nr_offline:
                tried += 1
                self.assertGreater(zone.free_pages, zone.low_wmark_pages, zone)
                high = self.during["zoneinfo"][zone.node, zone.name.decode()]["high"]
                # A thread wakes them, which may not have run yet
                self.assertTrue(
                    harness.until(lambda: self.device.zones()[zone.index].free_pages >= high),
                    f"{zone} below {high}",
                )
        self.assertGreater(tried, 0)

    # --- and back

    def test_every_figure_is_as_before_once_memory_is_back(self):
        self.device.request("online_all")
        after = look(self.holder)
        self.assertEqual(after["meminfo"]["RamsliceOffline"], 0)
        self.assert_close(4 * after["vmstat"]["nr_free_pages"], self.before["meminfo"]["MemFree"],
                          self.before["meminfo"]["MemTotal"], 1)
        for name, zone in self.before["zoneinfo"].items():
            self.assertEqual(after["zoneinfo"][name]["managed"], zone["managed"])


if __name__ == "__main__":
    harness.main()
