# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests of demand share: a machine of which most is offline, and what served an allocation."""

import resource
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE

THP = Path("/sys/kernel/mm/transparent_hugepage")
# Figures that must not change while a slice can be woken
STILL = [
    "pswpout",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pgscan_kswapd",
    "pgscan_direct",
    "allocstall_normal",
    "allocstall_dma32",
    "allocstall_movable",
    "compact_stall",
    "oom_kill",
]


def prepare():
    """Offers swap and favours it, so that each test would swap if it could."""
    dev.swap_on_zram(512)
    dev.write("/proc/sys/vm/swappiness", 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))


class DemandTest(harness.RamsliceTest):
    """Begins with most of memory offline, and ends with true summaries."""

    compact_first = True

    def setUp(self):
        super().setUp()
        self.addCleanup(self.check_end)
        if self.compact_first:
            self.compact()

    def check_end(self):
        self.device.request("online_all")
        self.assert_sane()

    def compact(self):
        """Takes most of memory offline; sets burst, in MiB, to more than stays awake."""
        self.nr_offline = harness.compact(self.device)
        info = self.device.info()
        self.awake = info.free_pages * PAGE // MIB
        self.burst = self.awake + 150
        self.assertGreater(info.offline_pages * PAGE // MIB, 2 * self.burst)
        self.begin()

    def begin(self):
        self.before = harness.vmstat()
        self.woken_before = harness.woken_by_demand(self.device)

    def high_atomic(self, name):
        """Pages of a zone's pageblocks that are kept for atomic allocations of high orders."""
        head, rows = (
            dev.read("/proc/pagetypeinfo").split("Number of blocks type", 1)[1].split("\n", 1)
        )
        row = next(row.split() for row in rows.splitlines() if f" {name} " in f"{row} ")
        blocks = int(row[4 + head.split().index("HighAtomic")])
        return blocks * self.device.info().pageblock_bytes // PAGE

    def use_defrag(self, word):
        old = dev.read(THP / "defrag").split("[")[1].split("]")[0]
        self.addCleanup(dev.write, THP / "defrag", old)
        dev.write(THP / "defrag", word)

    def moved(self, names=STILL):
        after = harness.vmstat()
        return {
            name: after[name] - self.before[name]
            for name in names
            if after[name] != self.before[name]
        }

    def woken(self):
        return harness.woken_by_demand(self.device) - self.woken_before

    def assert_served_by_waking(self, mib=None):
        """An allocation of this size woke no more slices than needed, and nothing else served it.
        """
        self.assertEqual(self.moved(), {})
        mib = mib or self.burst
        size = self.device.info().slice_bytes // MIB
        self.assertGreaterEqual(self.woken(), (mib - self.awake) // size)
        self.assertLessEqual(self.woken(), mib // size + 4)

    def assert_few_woken(self, what, still=("pswpout", "oom_kill")):
        """A few slices may wake for tables, buffers and inodes, and for a stream with little to
        recycle.

        A whole file would wake ten.
        """
        print(f"({what}: {self.woken()} woken) ", end="", flush=True)
        self.assertLessEqual(self.woken(), 4)
        self.assertEqual(self.moved(still), {})
