# SPDX-License-Identifier: GPL-2.0-or-later
"""Under each placement policy reserves stay reserved, and what searches for free pageblocks finds
them.
"""

import mmap
import re
import subprocess
from pathlib import Path

from ramlab.guest import harness, pinned_memory, placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Memory, check_contents
from ramlab.guest.hugetlb_pool import GIGANTIC, pool, resize
from ramlab.guest.pinned_memory import PatternedMemory
from ramlab.guest.placement import POLICY, PlacementTest, policies
from ramlab.pytest_vm import vm

KHUGEPAGED = Path("/sys/kernel/mm/transparent_hugepage/khugepaged")
GIB_PAGE = pinned_memory.MAP_HUGETLB | 30 << 26


def free_blocks():
    """Free pageblocks, by the free lists."""
    with dev.Device() as device:
        order = device.info().pageblock_bytes.bit_length() - PAGE.bit_length()
    found = 0
    for line in dev.read("/proc/buddyinfo").splitlines():
        lists = re.split(r"zone +\w+ +", line)[1].split()
        found += sum(int(nr) << n for n, nr in enumerate(lists[order:]))
    return found


class PolicyTest(PlacementTest):
    @staticmethod
    def in_turn():
        """Each policy of this kernel, selected."""
        for policy in policies():
            dev.write(POLICY, policy)
            yield policy

    def holding(self, why):
        """Online slices with pages that stay for this reason."""
        return {s.id for s in self.device.snapshot() if s.state == dev.ONLINE and
                any(run.reason and run.why() == why for run in self.device.pages(s.id))}

    def come_and_go(self):
        """Takes kernel pages and user pages in turns; a part stays until the test ends."""
        for _ in range(4):
            pipes = [placement_workload.full_pipe() for _ in range(8)]
            with Memory(16) as memory:
                memory.touch()
            for pipe in pipes[1:]:
                placement_workload.close(pipe)
            self.addCleanup(placement_workload.close, pipes[0])

    def assert_kept(self, memory, given_up):
        """Every second part of the memory, of this many bytes, was freed.

        The others have their marks.
        """
        pages = given_up // PAGE
        self.assertEqual(
            memory.map[::PAGE], (bytes(pages) + b"\1" * pages) * (memory.bytes // given_up // 2)
        )


@vm(kernel=["plain", "research"], slow="research", mem="1G", append="ramslice=2M")
class Atomic(PolicyTest):
    """The first of its machine, before anything has used memory up to the last pageblock."""

    def free_in(self, numbers):
        return sum(s.counter("free") for s in self.device.snapshot() if s.id in numbers)

    def test_no_policy_uses_the_reserve_of_atomic_allocations(self):
        subprocess.run(["modprobe", "ramslice_touch"], check=True)
        self.addCleanup(subprocess.run, ["rmmod", "ramslice_touch"], check=True)
        dev.write(POLICY, "packed")
        # The low watermark is a quarter above it: the allocator begins the reserve when so little
        # is free
        with pinned_memory.setting(
            "/proc/sys/vm/min_free_kbytes", dev.meminfo("MemFree") * 9 // 10
        ):
            dev.write(dev.debugfs().parent / "ramslice_touch/atomic", 64)
        kept = self.holding("highatomic")
        self.assertTrue(kept)
        # The allocations are freed: now there are free pageblocks that a policy could take by
        # mistake
        dev.write(dev.debugfs().parent / "ramslice_touch/atomic", 0)
        harness.drain(self.device)
        free = self.free_in(kept)
        self.assertTrue(kept & set(harness.empty_ids(self.device)), (kept, free))
        for policy in self.in_turn():
            pipes = [placement_workload.full_pipe() for _ in range(48)]
            with PatternedMemory(64) as memory:
                check_contents(memory)
                # Pages that were in use when the reserve began may be used again, so this counts
                # free ones
                self.assertGreaterEqual(self.free_in(kept), free - free // 16, policy)
            for pipe in pipes:
                placement_workload.close(pipe)
            self.assertEqual(self.holding("highatomic"), kept, policy)


@vm(kernel=["plain", "research"], slow="research", mem="1G", append="ramslice=2M")
class Kinds(PolicyTest):
    def test_khugepaged_finds_free_pageblocks(self):
        for policy in self.in_turn():
            self.come_and_go()
            with (
                PatternedMemory(24) as memory,
                pinned_memory.setting(KHUGEPAGED / "scan_sleep_millisecs", 1),
                pinned_memory.setting(KHUGEPAGED / "alloc_sleep_millisecs", 1),
                pinned_memory.setting(KHUGEPAGED / "pages_to_scan", 65536),
            ):
                self.assertEqual(memory.smaps("AnonHugePages"), 0)
                memory.map.madvise(mmap.MADV_HUGEPAGE)
                # Except for what is not aligned and what is counted later
                huge = harness.until(lambda: memory.smaps("AnonHugePages") >= 20 << 10)
                self.assertTrue(huge, (policy, memory.smaps("AnonHugePages")))
                check_contents(memory)

    def test_the_kernels_compaction_frees_pageblocks(self):
        run = 512 << 10
        for policy in self.in_turn():
            with Memory((harness.meminfo()["MemFree"] // 1024 - 100) & ~1) as memory:
                memory.touch()
                before = free_blocks()
                # Half of it becomes free, in runs with room for the page cache's large folios: one
                # that fits nowhere would end compaction. kcompactd may begin by itself.
                memory.punch(run)
                dev.write("/proc/sys/vm/compact_memory", 1)
                self.assertGreater(free_blocks() - before, memory.bytes // (2 * MIB) // 4, policy)
                self.assert_kept(memory, run)


class GiganticPages(PolicyTest):
    """A page of many slices, from wherever there is room in one piece."""

    def taken_and_returned(self):
        # Another task may hold a page for a moment
        self.assertTrue(harness.until(lambda: resize(1, GIGANTIC)))
        with mmap.mmap(
            -1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | GIB_PAGE
        ) as memory:
            memory[0], memory[-1] = 1, 2
            self.assertEqual(pool(GIGANTIC)["free"], 0)
        self.assertEqual(resize(0, GIGANTIC), 0)

    def build_while_slices_are_offline(self):
        for policy in self.in_turn():
            self.come_and_go()
            self.assertGreater(harness.compact(self.device), 16, policy)
            self.taken_and_returned()
            harness.wake(self.device)


@vm(kernel=["plain", "research"], slow="research", mem="6G", append="ramslice=64M",
    qemu=("-cpu max",))
class Gigantic(GiganticPages):
    def test_a_gigantic_page_is_built_while_slices_are_offline(self):
        self.build_while_slices_are_offline()


@vm(kernel=["plain", "research"], slow="research", mem="2560M",
    append="ramslice=16M hugetlb_cma=1G",
    qemu=("-cpu max",))
class Reserved(GiganticPages):
    """The same from a contiguous reserve (CMA), which programs may use and the kernel may not."""

    def test_a_gigantic_page_is_built_from_the_reserve_while_slices_are_offline(self):
        self.build_while_slices_are_offline()

    def test_free_blocks_of_the_reserve_hinder_no_policy(self):
        reserve = self.holding("cma")
        zone = next(z for z in self.device.zones() if z.index in self.zones_of(reserve))
        folder = next(folder for folder in dev.zone_folders() if folder.name == zone.name.decode())
        for policy in policies()[1:]:
            dev.write(POLICY, policy)
            before = dev.table(folder / "placement")
            # They stay online, so that kernel pages beside them cost nothing
            self.assertGreaterEqual(before["kernel_slices"], len(reserve), policy)
            # Half of what is free in this zone besides the reserve
            size_mib = (zone.free_pages * PAGE // MIB - 1024) // 2
            with Memory(size_mib) as memory:
                memory.touch()
                found = dev.table(folder / "placement")
            placed, passed = (found[name] - before[name] for name in ("user_placed", "user_passed"))
            print(f"({policy}: {placed} placed, {passed} passed) ", end="", flush=True)
            # The largest blocks are 4 MiB; what lies in blocks that were split before is not placed
            # again. A reserve that hinders a policy leaves none.
            self.assertGreater(placed, size_mib // 4 // 4, policy)
            self.assertLess(passed, placed / 4, policy)

    def zones_of(self, numbers):
        """Indices of the zones that these slices belong to."""
        where = {(s.node, s.zone) for s in self.device.snapshot() if s.id in numbers}
        return {z.index for z in self.device.zones() if (z.node, z.zone) in where}

    def test_kernel_pages_stay_out_of_the_reserve_and_programs_leave_it(self):
        reserve = self.holding("cma")
        self.assertEqual(len(reserve) * self.device.info().slice_bytes, 1 << 30)
        for policy in [name for name in ("stock", "packed", "array") if name in policies()]:
            dev.write(POLICY, policy)
            # More than is free elsewhere, so that some lies in the reserve
            with Memory((harness.meminfo()["MemFree"] // 1024 - 512) & ~7, huge=True) as memory:
                memory.touch()
                held = {s.id: s.counter("anon_mapped") for s in self.device.snapshot()}
                self.assertGreater(sum(held[number] for number in reserve), 1024, policy)
                # Little is free outside the reserve
                before = self.kernels()
                pipes = [placement_workload.full_pipe() for _ in range(64)]
                after = self.kernels()
                self.assertGreater(
                    sum(after.values()) - sum(before.values()), 64 * MIB // PAGE * 9 // 10, policy
                )
                self.assertFalse(set(after) & reserve, policy)
                for pipe in pipes:
                    placement_workload.close(pipe)
                for start in range(0, memory.bytes, 8 * MIB):
                    memory.map.madvise(mmap.MADV_DONTNEED, start, 4 * MIB)
                self.taken_and_returned()
                self.assert_kept(memory, 4 * MIB)

    def kernels(self):
        """{slice: pages} that are certainly the kernel's."""
        found = {
            s.id: sum(
                run.nr_pages
                for run in self.device.pages(s.id)
                if run.what() in ("kernel", "slab", "pagetable")
            )
            for s in self.device.snapshot()
            if s.state == dev.ONLINE
        }
        return {number: pages for number, pages in found.items() if pages}
