# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages of a hugetlb pool move and leave the pool as it was.

Gigantic pages stay, and so does what has no room.
"""

import contextlib
import mmap

import pytest

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, check_contents
from ramlab.guest.hugetlb_pool import GIGANTIC, POOLS, SMALL, pool, resize
from ramlab.guest.pinned_memory import (
    HUGE,
    KPF_HUGE,
    Group,
    PageMovementTest,
    PatternedMemory,
    by_slice,
)
from ramlab.pytest_vm import no_twin, vm

pytestmark = pytest.mark.slow

REFUSED = ("hugetlb", "no-room")


class PoolTest(PageMovementTest):
    """What the tests of the pool share."""

    def setUp(self):
        super().setUp()
        # Cleanups run in reverse order: the pool goes when no test memory uses it any more
        self.addCleanup(resize, 0)

    def spread(self, nr, gap=22):
        """Makes a pool over many slices; returns the movable memory between its pages."""
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        between = []
        for have in range(2, nr + 1, 2):
            self.assertEqual(resize(have), have)
            between.append(stack.enter_context(PatternedMemory(gap, seed=have)))
        return between

    def blocks(self):
        """First page frames of the pool's pages, by slice."""
        size = self.device.info().slice_bytes // PAGE
        found = {}
        for pfn in pinned_memory.blocks_with(self.device, KPF_HUGE):
            found.setdefault(pfn // size, []).append(pfn)
        return found

    def used_and_free(self, memory):
        """{slice: (used, free)} pages of the pool."""
        used = {pfn for pfn in memory.pfns() if pfn is not None}
        return {number: (sum(pfn in used for pfn in pfns), sum(pfn not in used for pfn in pfns))
                for number, pfns in self.blocks().items()}

    def empty_some(self, memory, most=4, check=lambda: None):
        """Empties slices with used and free pages; figures and contents must stay the same."""
        kinds, total = [0, 0], sum(map(len, self.blocks().values()))
        before = pool()
        for number in self.used_and_free(memory):
            used, free = self.used_and_free(memory).get(number, (0, 0))
            if not (kinds[0] < most and used or kinds[1] < most and free):
                continue
            done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
            if done.why() in ("slab", "pagetable", "unmovable", "boot"):
                continue
            self.assertEqual((done.status, done.why()), (0, "none"), done)
            self.assertNotIn(number, self.blocks())
            self.assertEqual(pool(), before)
            self.assertEqual(sum(map(len, self.blocks().values())), total)
            check()
            kinds[0] += used
            kinds[1] += free
        print(f"({kinds[0]} in use and {kinds[1]} free pages moved) ", end="", flush=True)
        self.assertGreaterEqual(kinds[0], 2)
        self.assertGreaterEqual(kinds[1], 2)
        check_contents(memory)


@vm(mem="1G", append="ramslice=16M")
class FullMemory(PoolTest):
    """Switching memory off is not worth swapping: a page of the pool without room stays."""

    def test_emptying_reclaims_nothing_to_make_room_for_the_pool(self):
        dev.swap_on_zram(256)
        self.assertEqual(resize(12), 12)
        with PatternedMemory(24, hugetlb=True) as memory, pinned_memory.no_free_block():
            before = harness.vmstat()
            for number in by_slice(self.device, memory.pfns()):
                done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                self.assertNotEqual(done.status, 0)
            after = harness.vmstat()
            for name in ("pswpout", "pgsteal_direct", "allocstall_normal", "allocstall_dma32",
                         "compact_stall"):
                with self.subTest(name):
                    self.assertEqual(after[name], before[name])
            check_contents(memory)


class PoolCases:
    """What holds for a pool in any layout of struct pages."""

    def test_slices_with_pool_pages_are_emptied_one_by_one(self):
        between = self.spread(16)
        # Every second page of what is mapped is touched, in the order of the pool
        with PatternedMemory(16, hugetlb=True) as memory:
            self.assertEqual(pool()["free"], 8)
            self.empty_some(memory)
            for other in between:
                check_contents(other)

    def test_compaction_moves_pool_pages(self):
        between = self.spread(16)
        with PatternedMemory(16, hugetlb=True) as memory:
            before, slices = pool(), set(self.blocks())
            for other in between:
                other.close()
            done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
            off = set(harness.ids(self.device, dev.OFFLINE))
            self.assertEqual(done.status, 0)
            self.assertGreaterEqual(len(off & slices), 2, (done, slices))
            self.assertGreaterEqual(done.huge_moved, 4)
            self.assertFalse(set(self.blocks()) & off)
            self.assertEqual(pool(), before)
            self.assertEqual(sum(map(len, self.blocks().values())), 16)
            check_contents(memory)
            # The pool can be used in full while slices are off
            with PatternedMemory(16, hugetlb=True, seed=7) as rest:
                check_contents(rest)
            check_contents(memory)

    def test_reserved_and_surplus_pages_keep_their_counts(self):
        self.spread(8)
        self.addCleanup(dev.write, POOLS / SMALL / "nr_overcommit_hugepages", 0)
        dev.write(POOLS / SMALL / "nr_overcommit_hugepages", 4)
        with (
            PatternedMemory(20, hugetlb=True) as memory,
            PatternedMemory(4, hugetlb=True, seed=2, fill=False),
        ):
            found = pool()
            self.assertEqual(found["surplus"], 4)
            self.assertEqual(found["resv"], 2)
            self.empty_some(memory, most=2)
        self.assertEqual(pool()["surplus"], 0)
        self.assertEqual(pool()["nr"], 8)

    def test_the_charges_of_a_control_group_stay_the_same(self):
        self.spread(12)
        names = ("hugetlb.2MB.current", "hugetlb.2MB.rsvd.current")
        with Group("huge", "+hugetlb") as group:
            def child():
                group.enter()
                with (
                    PatternedMemory(12, hugetlb=True) as memory,
                    PatternedMemory(4, hugetlb=True, fill=False),
                ):
                    yield memory.pfns()
                    yield memory.wrong_at(), memory.pfns()

            with harness.Child(child) as inside:
                pfns = inside.step()
                charged, before = {name: group.number(name) for name in names}, pool()
                self.assertEqual(charged, {names[0]: 12 * MIB, names[1]: 16 * MIB})
                # At the limit, too
                dev.write(group.path / "hugetlb.2MB.max", 12 * MIB)
                for number in by_slice(self.device, pfns):
                    self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                self.device.request("compact", flags=dev.IGNORE_BACKOFF)
                wrong, now = inside.step()
                self.assertIsNone(wrong)
                self.assertGreaterEqual(len(set(pfns) - set(now)), 512)
                self.assertEqual({name: group.number(name) for name in names}, charged)
                self.assertEqual(group.table("hugetlb.2MB.events"), {"max": 0})
                self.assertEqual(pool(), before)
            self.assertEqual(group.number(names[0]), 0)

    @no_twin
    def test_a_slice_stays_when_its_pages_have_no_room(self):
        """Once the last free pageblock is taken, the request is refused and changes nothing."""
        self.spread(16)
        with PatternedMemory(32, hugetlb=True) as memory:
            with pinned_memory.no_free_block() as scattered:
                # Clean cache is dropped for the first slices, which frees some pageblocks
                for number in self.holding(memory):
                    before, places, blocks = pool(), memory.pfns(), self.blocks()
                    states = harness.states(self.device)
                    done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                    self.assertEqual(pool(), before)
                    check_contents(memory)
                    if done.status:
                        break
                else:
                    self.fail("there was room for all of them")
                self.assertIn(done.why(), (*REFUSED, "pressure"), done)
                self.assertEqual((done.nr_done, done.huge_split), (0, 0))
                self.assertEqual(harness.states(self.device), states)
                if not done.huge_moved:
                    self.assertEqual((memory.pfns(), self.blocks()), (places, blocks))
                check_contents(scattered)
            self.assert_goes(number)
            check_contents(memory)


@vm(mem="1G", append="ramslice=16M")
class Pool(PoolCases, PoolTest):
    """The pool with the usual struct pages; what takes references runs with checkers, too."""

    @vm(kernel=["plain", "debug"], mem="1G", append="ramslice=16M")
    def test_reserved_and_surplus_pages_keep_their_counts(self):
        super().test_reserved_and_surplus_pages_keep_their_counts()


@vm(mem="1G", append="ramslice=16M hugetlb_free_vmemmap=on")
class PoolLean(PoolCases, PoolTest):
    """The same while the pool's pages have given back most of their struct pages."""

    @staticmethod
    def map_pages():
        """Pages that hold struct pages."""
        return sum(
            number for name, number in harness.vmstat().items() if name.startswith("nr_memmap")
        )

    def test_the_pool_has_given_back_its_struct_pages(self):
        before = self.map_pages()
        resize(8)
        # Of 8 each, all but the first
        self.assertEqual(before - self.map_pages(), 8 * 7)

    def test_pages_that_left_the_pool_are_no_huge_pages_any_more(self):
        """They come back from copies of the head, which must not stay as they are."""
        self.assertEqual(resize(8), 8)
        frames = [frame for pfns in self.blocks().values() for pfn in pfns
                  for frame in range(pfn, pfn + HUGE // PAGE)]
        self.assertEqual(len(frames), 8 * HUGE // PAGE)
        resize(0)
        flags = pinned_memory.page_flags(0, max(frames) + 1)
        self.assertEqual([frame for frame in frames if flags[frame] >> KPF_HUGE & 1], [])


@vm(mem="1G", append="ramslice=16M", fresh=True)
class PoolPoisoned(PoolTest):
    """A poisoned page stays so until the next boot."""

    def test_a_poisoned_page_keeps_its_slice(self):
        self.spread(8)
        with PatternedMemory(8, hugetlb=True) as memory:
            number = self.holding(memory)[0]
            size = self.row(number).nr_pages
            page = next(page for page, pfn in enumerate(memory.pfns()) if pfn // size == number)
            memory.poison(page)
            first = page // 512 * 512
            self.assert_cheap(self.assert_stays(number, "hwpoison"))
            check_contents(
                memory, (n for n in range(memory.nr) if not first <= n < first + 512))


@vm(mem="6G", append="ramslice=64M hugepagesz=1G hugepages=1", qemu=("-cpu max",))
class Gigantic(PageMovementTest):
    """A page of 1 GiB is larger than a slice and cannot move."""

    def setUp(self):
        super().setUp()
        # One is there from boot on, or is built again
        self.assertEqual(resize(1, GIGANTIC), 1)

    def inside(self):
        """Slices that lie within gigantic pages."""
        found = []
        for row in self.device.snapshot():
            start = row.id * row.nr_pages
            if row.nr_pages and all(pinned_memory.page_flags(pfn)[0] >> KPF_HUGE & 1 for pfn in
                                    range(start, start + row.nr_pages, 512)):
                found.append(row.id)
        return found

    def assert_refused(self):
        numbers, before = self.inside(), pool(GIGANTIC)
        self.assertEqual(len(numbers), 1024 * MIB // self.device.info().slice_bytes)
        for number in (numbers[0], numbers[len(numbers) // 2], numbers[-1]):
            self.assert_cheap(self.assert_stays(number, "gigantic"))
        done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
        self.assertGreater(done.nr_done, 4)
        self.assertFalse(set(numbers) & set(harness.ids(self.device, dev.OFFLINE)))
        self.assertEqual(pool(GIGANTIC), before)

    def test_a_free_gigantic_page_keeps_its_slices(self):
        self.assertEqual(pool(GIGANTIC)["nr"], 1)
        self.assert_refused()

    def test_a_used_gigantic_page_keeps_its_slices(self):
        memory = mmap.mmap(
            -1,
            1 << 30,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | pinned_memory.MAP_HUGETLB | 30 << 26,
        )
        for start in range(0, 1 << 30, 64 * MIB):
            memory[start:start + 8] = start.to_bytes(8, "little")
        self.assertEqual(pool(GIGANTIC)["free"], 0)
        self.assert_refused()
        self.device.request("online_all")
        for start in range(0, 1 << 30, 64 * MIB):
            self.assertEqual(memory[start:start + 8], start.to_bytes(8, "little"))
        memory.close()

    def test_the_slices_of_a_freed_gigantic_page_go_offline(self):
        numbers = self.inside()
        self.assertEqual(resize(0, GIGANTIC), 0)
        self.assertEqual(self.inside(), [])
        for number in numbers[:3]:
            self.assert_goes(number)

    def test_a_gigantic_page_is_built_from_offline_slices(self):
        """It needs a GiB in one piece, for which offline slices wake."""
        self.assertEqual(resize(0, GIGANTIC), 0)
        harness.compact(self.device)
        nr = len(harness.ids(self.device, dev.OFFLINE))
        self.assertGreater(nr, 24)
        self.assertEqual(resize(1, GIGANTIC), 1)
        self.assertLess(len(harness.ids(self.device, dev.OFFLINE)), nr)
        self.assertTrue(self.inside())
        self.assertFalse(set(self.inside()) & set(harness.ids(self.device, dev.OFFLINE)))
        self.assertEqual(resize(0, GIGANTIC), 0)
