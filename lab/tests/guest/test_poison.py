# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory errors, secret memory, locked memory and memory reserved at boot: moved or refused, as
documented.
"""

import ctypes
import errno
import os
from pathlib import Path

import pytest

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, check_contents, libc
from ramlab.guest.pinned_memory import (
    PageMovementTest,
    PatternedMemory,
    by_slice,
    page_flags,
    system_call,
)
from ramlab.pytest_vm import vm

pytestmark = pytest.mark.slow
MACHINE = vm(mem="640M", append="ramslice=16M")
CHECKED = vm(kernel="debug", mem="1G", append="ramslice=16M")

MEMORY = Path("/sys/devices/system/memory")
MADV_SOFT_OFFLINE = 101
SYS_MEMFD_SECRET = 447
KPF_LRU, KPF_RESERVED = 5, 32


def poisoned(pfn):
    return bool(page_flags(pfn)[0] >> pinned_memory.HWPOISON & 1)


@MACHINE
class Poison(PageMovementTest):
    def lose(self, memory, page, soft=False):
        """The page's memory fails, or is about to; returns its page frame."""
        pfn = memory.pfns()[page]
        if soft:
            memory.map.madvise(MADV_SOFT_OFFLINE, page * PAGE, PAGE)
        else:
            memory.poison(page)
        self.assertTrue(poisoned(pfn))
        return pfn

    def slice_of(self, pfn):
        return pfn * PAGE // self.device.info().slice_bytes

    def empty_page(self):
        """An empty slice and one of its page frames."""
        number, = self.empty()
        return number, number * self.row(number).nr_pages + 1234

    def hit(self, pfn, kind="hard"):
        """An error that the firmware reports; the kernel's answer as an errno or 0."""
        try:
            dev.write(MEMORY / f"{kind}_offline_page", hex(pfn * PAGE))
        except OSError as error:
            return error.errno
        return 0

    def assert_never_used(self, pfn):
        """With nearly all memory in use, the page is not in use."""
        with harness.Memory(dev.meminfo("MemAvailable") // 1024 - 60) as memory:
            check_contents(memory.touch())
            words = page_flags(pfn)[0]
            self.assertTrue(words >> pinned_memory.HWPOISON & 1)
            self.assertFalse(words >> KPF_LRU & 1 or words >> pinned_memory.BUDDY & 1)

    def test_a_poisoned_page_in_use_keeps_its_slice(self):
        with PatternedMemory(48) as memory:
            number = self.holding(memory)[0]
            size = self.row(number).nr_pages
            page = [page for page, pfn in enumerate(memory.pfns()) if pfn // size == number][-100]
            pfn = self.lose(memory, page)
            self.assertEqual(self.slice_of(pfn), number)
            self.assert_cheap(self.assert_stays(number, "hwpoison"))
            done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
            self.assertGreater(done.nr_done, 0)
            self.assertEqual(self.row(number).state, dev.ONLINE)
            check_contents(memory, (n for n in range(memory.nr) if n != page))
        self.assert_never_used(pfn)

    def test_a_soft_offlined_page_keeps_its_slice(self):
        """Soft offline moves the contents away, and the page stays out of use."""
        with PatternedMemory(48) as memory:
            number = self.holding(memory)[0]
            size = self.row(number).nr_pages
            page = [page for page, pfn in enumerate(memory.pfns()) if pfn // size == number][-100]
            self.lose(memory, page, soft=True)
            check_contents(memory)
            self.assert_cheap(self.assert_stays(number, "hwpoison"))
            check_contents(memory)

    def test_a_poisoned_free_page_keeps_its_slice(self):
        number, pfn = self.empty_page()
        self.assertEqual(self.hit(pfn), 0)
        self.assertTrue(poisoned(pfn))
        self.assert_cheap(self.assert_stays(number, "hwpoison"))
        self.assert_never_used(pfn)

    def test_a_poisoned_page_of_an_offline_slice_stays_out_of_use_after_a_request(self):
        number, pfn = self.empty_page()
        self.assert_goes(number)
        self.assertEqual(self.hit(pfn), errno.EBUSY)
        self.assertTrue(poisoned(pfn))
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        free = harness.meminfo()["MemFree"]
        self.assertEqual(self.device.request("online", id=number).status, 0)
        row = self.row(number)
        self.assertEqual((row.state, row.counter("free")), (dev.ONLINE, row.nr_pages - 1))
        self.assertLess(abs(harness.meminfo()["MemFree"] - free), 4096)
        self.assertTrue(poisoned(pfn))
        # It cannot be emptied again
        self.assert_cheap(self.assert_stays(number, "hwpoison"))
        self.assert_never_used(pfn)

    def test_a_poisoned_page_of_an_offline_slice_stays_out_of_use_after_demand(self):
        number, pfn = self.empty_page()
        harness.compact(self.device)
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        self.assertEqual(self.hit(pfn), errno.EBUSY)
        self.assert_never_used(pfn)
        self.assertEqual(self.row(number).state, dev.ONLINE)

    @MACHINE
    @CHECKED
    def test_a_page_of_an_offline_slice_cannot_be_soft_offlined(self):
        """Soft offline needs a working page, which an offline slice does not have."""
        number, pfn = self.empty_page()
        self.assert_goes(number)
        self.assertEqual(self.hit(pfn, "soft"), errno.EIO)
        self.assertFalse(poisoned(pfn))
        self.assertEqual(self.device.request("online", id=number).status, 0)
        self.assertEqual(self.row(number).counter("free"), self.row(number).nr_pages)
        self.assert_goes(number)


@MACHINE
class Special(PageMovementTest):
    @MACHINE
    @CHECKED
    def test_secret_memory_keeps_its_slice(self):
        """By design it cannot be migrated, because the kernel must not touch it."""
        file = system_call(SYS_MEMFD_SECRET, 0)
        self.addCleanup(os.close, file)
        os.ftruncate(file, 4 * MIB)
        with PatternedMemory(4, file=file) as memory:
            before = memory.pfns()
            for number, nr in by_slice(self.device, before).items():
                if nr < 64:
                    continue
                # It may share the slice with a page that another test left poisoned
                reasons = {run.why() for run in self.device.pages(number)} & {"hwpoison"}
                done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                self.assertIn(
                    done.why(), {"unmovable", "slab", "pagetable", "boot"} | reasons, done
                )
                self.assertEqual(self.row(number).state, dev.ONLINE)
                self.assert_cheap(done)
            self.assertGreater(self.device.request("compact", flags=dev.IGNORE_BACKOFF).nr_done, 0)
            self.assertEqual(memory.pfns(), before)
            check_contents(memory)

    def test_secret_memory_alone_is_named_unmovable(self):
        """In a slice where everything else could move."""
        with PatternedMemory(96, seed=2) as filler:
            for _ in range(20):
                file = system_call(SYS_MEMFD_SECRET, 0)
                self.addCleanup(os.close, file)
                os.ftruncate(file, 4 * MIB)
                secret = PatternedMemory(4, file=file)
                self.addCleanup(secret.close)
                for number in by_slice(self.device, secret.pfns()):
                    done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                    self.assertNotEqual(done.status, 0)
                    self.assertNotEqual(done.why(), "migration")
                    self.assert_cheap(done)
                    runs = [
                        run for run in self.device.pages(number)
                        if any(pfn in range(run.pfn, run.pfn + run.nr_pages)
                               for pfn in secret.pfns())
                    ]
                    self.assertEqual({run.why() for run in runs}, {"unmovable"})
                    if done.why() == "unmovable":
                        check_contents(filler)
                        return
        self.fail("no slice was refused for its secret memory")

    def test_locked_memory_moves_and_stays_locked(self):
        with PatternedMemory(48) as memory:
            self.assertEqual(
                libc.mlock(ctypes.c_void_p(memory.address), ctypes.c_size_t(memory.bytes)), 0
            )
            # Pages become mlocked when the LRU batches are emptied
            self.assertTrue(harness.until(lambda: self.locked() >= 47 * 1024))
            before = self.locked()
            for number in self.holding(memory)[:3]:
                pfns = memory.pfns()
                own = by_slice(self.device, pfns)[number]
                self.assertGreaterEqual(self.assert_goes(number).pages_migrated, own)
                self.assertNotEqual(memory.pfns(), pfns)
                self.assertNotIn(None, memory.pfns())
                self.assertEqual(memory.smaps("Locked"), memory.bytes // 1024)
            self.assertLessEqual(abs(self.locked() - before), 256)
            check_contents(memory)
            libc.munlock(ctypes.c_void_p(memory.address), ctypes.c_size_t(memory.bytes))
            self.assertTrue(harness.until(lambda: self.locked() < before - 47 * 1024))

    def locked(self):
        """In kB; the LRU batches are emptied first."""
        self.device.request("compact", flags=dev.DRY_RUN, max_slices=1)
        return dev.meminfo("Mlocked")

    def test_exactly_the_memory_reserved_at_boot_has_the_reason_boot(self):
        """The kernel, its memory map and the like, compared with the page flags slice by slice."""
        self.device.request("compact", flags=dev.DRY_RUN, max_slices=1)
        refused = 0
        size = self.device.info().slice_bytes // PAGE
        for row in self.device.snapshot():
            words = page_flags(row.id * size, size)
            reserved = any(word >> KPF_RESERVED & 1 for word in words)
            with self.subTest(slice=row.id):
                if dev.REASONS[row.reason] in ("hole", "zone-end"):
                    self.assertTrue(row.flags & dev.UNRECLAIMABLE)
                    continue
                self.assertEqual(dev.REASONS[row.reason] == "boot", reserved)
                self.assertEqual(bool(row.flags & dev.UNRECLAIMABLE), reserved)
                if reserved:
                    self.assert_cheap(self.assert_stays(row.id, "boot"))
                    refused += 1
        self.assertGreater(refused, 0)
