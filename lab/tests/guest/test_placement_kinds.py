#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Under each placement policy, memory that is kept for some stays theirs, and who looks for a place by himself finds one.

Kinds and Atomic want 1 GiB and slices of 2 MiB, which are a pageblock each; Gigantic 6 GiB, slices of 64 MiB and a CPU with
pages of 1 GiB; Reserved such a CPU, 4 GiB, slices of 16 MiB and hugetlb_cma=1G.
"""

import mmap
import re
import subprocess
from pathlib import Path

from ramlab.guest import hard
from ramlab.guest import harness
from ramlab.guest import place_load
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.hard import Known
from ramlab.guest.harness import MIB, PAGE, Memory
from test_hugetlb import GIGANTIC, pool, resize
from test_placement import POLICIES, POLICY, Test

KHUGEPAGED = Path("/sys/kernel/mm/transparent_hugepage/khugepaged")
GIB_PAGE = hard.MAP_HUGETLB | 30 << 26


def free_blocks():
    """Free pageblocks, by the free lists."""
    with dev.Device() as device:
        order = device.info().pageblock_bytes.bit_length() - PAGE.bit_length()
    found = 0
    for line in dev.read("/proc/buddyinfo").splitlines():
        lists = re.split(r"zone +\w+ +", line)[1].split()
        found += sum(int(nr) << n for n, nr in enumerate(lists[order:]))
    return found


class Each(Test):
    @staticmethod
    def policies():
        """Each in turn."""
        for policy in POLICIES:
            dev.write(POLICY, policy)
            yield policy

    def holding(self, why):
        """Slices that are on, with pages that stay because of this."""
        return {s.id for s in self.device.snapshot() if s.state == dev.ONLINE and
                any(run.reason and run.why() == why for run in self.device.pages(s.id))}

    def come_and_go(self):
        """Kernel pages and a program's in turns, of which a part stays until the test ends."""
        for _ in range(4):
            pipes = [place_load.full_pipe() for _ in range(8)]
            with Memory(16) as memory:
                memory.touch()
            for pipe in pipes[1:]:
                place_load.close(pipe)
            self.addCleanup(place_load.close, pipes[0])

    def assert_kept(self, memory, given_up):
        """Every second part of the memory, of so many bytes each, was given up; the others still have their marks."""
        pages = given_up // PAGE
        self.assertEqual(memory.map[::PAGE], (bytes(pages) + b"\1" * pages) * (memory.bytes // given_up // 2))


class Kinds(Each):
    def test_khugepaged_finds_blocks(self):
        for policy in self.policies():
            self.come_and_go()
            with Known(24) as memory, hard.setting(KHUGEPAGED / "scan_sleep_millisecs", 1), \
                    hard.setting(KHUGEPAGED / "alloc_sleep_millisecs", 1), hard.setting(KHUGEPAGED / "pages_to_scan", 65536):
                self.assertEqual(memory.smaps("AnonHugePages"), 0)
                memory.map.madvise(mmap.MADV_HUGEPAGE)
                # All but what is not aligned, and what is counted a little later
                huge = harness.until(lambda: memory.smaps("AnonHugePages") >= 20 << 10)
                self.assertTrue(huge, (policy, memory.smaps("AnonHugePages")))
                self.assertIsNone(memory.wrong_at())

    def test_the_kernels_compaction_makes_blocks(self):
        run = 512 << 10
        for policy in self.policies():
            with Memory((harness.meminfo()["MemFree"] // 1024 - 100) & ~1) as memory:
                memory.touch()
                before = free_blocks()
                # Half of what was taken becomes free, in runs with room for the page cache's large folios: one that fits
                # nowhere would end it. kcompactd may begin by itself.
                memory.punch(run)
                dev.write("/proc/sys/vm/compact_memory", 1)
                self.assertGreater(free_blocks() - before, memory.bytes // (2 * MIB) // 4, policy)
                self.assert_kept(memory, run)


class Atomic(Each):
    """Wants a boot of its own, before anything else has used memory up to the last block."""

    def free_in(self, numbers):
        return sum(s.counter("free") for s in self.device.snapshot() if s.id in numbers)

    def test_the_reserve_of_atomic_allocations_is_nobody_elses(self):
        subprocess.run(["modprobe", "ramslice_touch"], check=True)
        self.addCleanup(subprocess.run, ["rmmod", "ramslice_touch"], check=True)
        dev.write(POLICY, "packed")
        # The low watermark is a quarter above it: the allocator begins the reserve when so little is free
        with hard.setting("/proc/sys/vm/min_free_kbytes", dev.meminfo("MemFree") * 9 // 10):
            dev.write(dev.debugfs().parent / "ramslice_touch/atomic", 64)
        kept = self.holding("highatomic")
        self.assertTrue(kept)
        # What began it is given back: there are whole pageblocks that a policy could take by mistake
        dev.write(dev.debugfs().parent / "ramslice_touch/atomic", 0)
        harness.drain(self.device)
        free = self.free_in(kept)
        self.assertTrue(kept & set(harness.empty_ids(self.device)), (kept, free))
        for policy in self.policies():
            pipes = [place_load.full_pipe() for _ in range(48)]
            with Known(64) as memory:
                self.assertIsNone(memory.wrong_at())
                # A page that was in use when the reserve began, and is given back, is anybody's: what was free stays so
                self.assertGreaterEqual(self.free_in(kept), free - free // 16, policy)
            for pipe in pipes:
                place_load.close(pipe)
            self.assertEqual(self.holding("highatomic"), kept, policy)


class Gigantic(Each):
    """A page that is many slices, from wherever there is room in one piece."""

    def taken_and_returned(self):
        # Somebody may hold a page for a moment
        self.assertTrue(harness.until(lambda: resize(1, GIGANTIC), 20))
        with mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | GIB_PAGE) as memory:
            memory[0], memory[-1] = 1, 2
            self.assertEqual(pool(GIGANTIC)["free"], 0)
        self.assertEqual(resize(0, GIGANTIC), 0)

    def test_one_is_built_while_slices_are_off(self):
        for policy in self.policies():
            self.come_and_go()
            self.assertGreater(harness.compact(self.device), 16, policy)
            self.taken_and_returned()
            harness.wake(self.device)


class Reserved(Gigantic):
    """The same from a contiguous reserve (CMA), which programs may use meanwhile and the kernel may not."""

    def test_its_free_blocks_are_in_no_policys_way(self):
        reserve = self.holding("cma")
        zone = next(z for z in self.device.zones() if z.index in self.zones_of(reserve))
        folder = next(folder for folder in dev.zone_folders() if folder.name == zone.name.decode())
        for policy in POLICIES[1:]:
            dev.write(POLICY, policy)
            before = dev.table(folder / "placement")
            # They stay on, so that kernel pages beside them cost nothing
            self.assertGreaterEqual(before["kernel_slices"], len(reserve), policy)
            # The most that is free in this zone besides
            with Memory((zone.free_pages * PAGE // MIB - 1024) // 2) as memory:
                memory.touch()
                found = dev.table(folder / "placement")
            placed, passed = (found[name] - before[name] for name in ("user_placed", "user_passed"))
            print(f"({policy}: {placed} placed, {passed} passed) ", end="", flush=True)
            self.assertGreater(placed, 50, policy)
            self.assertLess(passed, placed / 4, policy)

    def zones_of(self, numbers):
        """Indexes of the zones that these slices are of."""
        where = {(s.node, s.zone) for s in self.device.snapshot() if s.id in numbers}
        return {z.index for z in self.device.zones() if (z.node, z.zone) in where}

    def test_kernel_pages_keep_out_and_programs_leave(self):
        reserve = self.holding("cma")
        self.assertEqual(len(reserve) * self.device.info().slice_bytes, 1 << 30)
        for policy in ("stock", "packed", "array"):
            dev.write(POLICY, policy)
            # More than there is besides, so that some lies in the reserve
            with Memory((harness.meminfo()["MemFree"] // 1024 - 512) & ~7, huge=True) as memory:
                memory.touch()
                held = {s.id: s.counter("anon_mapped") for s in self.device.snapshot()}
                self.assertGreater(sum(held[number] for number in reserve), 1024, policy)
                # Little is free but in the reserve
                before = self.kernels()
                pipes = [place_load.full_pipe() for _ in range(64)]
                after = self.kernels()
                self.assertGreater(sum(after.values()) - sum(before.values()), 64 * MIB // PAGE * 9 // 10, policy)
                self.assertFalse(set(after) & reserve, policy)
                for pipe in pipes:
                    place_load.close(pipe)
                for start in range(0, memory.bytes, 8 * MIB):
                    memory.map.madvise(mmap.MADV_DONTNEED, start, 4 * MIB)
                self.taken_and_returned()
                self.assert_kept(memory, 4 * MIB)

    def kernels(self):
        """Pages that are the kernel's for certain: {slice: pages}."""
        found = {s.id: sum(run.nr_pages for run in self.device.pages(s.id) if run.what() in ("kernel", "slab", "pagetable"))
                 for s in self.device.snapshot() if s.state == dev.ONLINE}
        return {number: pages for number, pages in found.items() if pages}


if __name__ == "__main__":
    harness.main()
