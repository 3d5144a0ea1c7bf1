# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests for large ranges, and compaction, do not disturb slices that are off for nothing."""

import contextlib
from pathlib import Path

import pytest

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE, vmstat
from ramlab.guest.pinned_memory import pin_each
from ramlab.pytest_vm import vm

GIB = 1 << 30
GIGANTIC = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")


@vm(mem="4G", append="ramslice=64M", qemu=("-cpu max",))
class Contiguous(harness.RamsliceTest):
    def tearDown(self):
        harness.wake(self.device)
        self.assert_sane()

    def offline(self):
        return set(harness.ids(self.device, dev.OFFLINE))

    @pytest.mark.timeout(600)
    def test_a_gigantic_page_that_cannot_be_had_wakes_next_to_nothing(self):
        """Each range that was tried was woken first, and left awake."""
        with contextlib.ExitStack() as stack:
            self.assertGreaterEqual(pin_each(stack, 3000, GIB), 3)
            self.device.request("compact", flags=dev.IGNORE_BACKOFF)
            before = self.offline()
            self.assertGreater(len(before), 30)
            dev.write(GIGANTIC, 1)
            self.assertEqual(dev.read(GIGANTIC), "0")
            # Pages that leave a range need room elsewhere
            woken = len(before - self.offline())
            print(f"({woken} slices woken) ", end="", flush=True)
            self.assertLessEqual(woken, 4)

    def test_compaction_passes_over_slices_that_are_off(self):
        """Both of its scanners read them page by page."""
        self.device.request("compact")
        off = len(self.offline()) * self.device.info().slice_bytes // PAGE
        self.assertGreater(off, 300_000)
        before = vmstat()
        dev.write("/proc/sys/vm/compact_memory", 1)
        after = vmstat()
        scanned = {name: after[name] - before[name]
                   for name in ("compact_free_scanned", "compact_migrate_scanned")}
        awake = sum(zone.managed_pages for zone in self.device.zones()) - off
        for name, pages in scanned.items():
            self.assertLess(pages, awake, name)
        # It did look at the rest
        self.assertGreater(scanned["compact_migrate_scanned"], 0)
