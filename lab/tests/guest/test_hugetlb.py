#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Hugetlb: pages in use and free ones move with the pool as it was; what has no room, and gigantic pages, stay.

Pool wants 1 GiB and slices of 16 MiB, PoolLean hugetlb_free_vmemmap=on, too. Gigantic wants 6 GiB (its page has to
find room beside holes and boot memory), slices of 64 MiB, hugepagesz=1G and a CPU that has them.
"""

import contextlib
import mmap
from pathlib import Path

from ramlab.guest import hard
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.hard import KPF_HUGE, Group, Known, Test, by_slice
from ramlab.guest.harness import MIB, PAGE

POOLS = Path("/sys/kernel/mm/hugepages")
SMALL, GIGANTIC = "hugepages-2048kB", "hugepages-1048576kB"
REFUSED = ("hugetlb", "no-room")


def pool(size=SMALL):
    """Every figure there is of a pool, of the node's, too."""
    found = {name: int(dev.read(POOLS / size / f"{name}_hugepages")) for name in
             ("nr", "free", "resv", "surplus", "nr_overcommit")}
    node = Path("/sys/devices/system/node/node0/hugepages") / size
    found |= {f"node {name}": int(dev.read(node / f"{name}_hugepages")) for name in ("nr", "free", "surplus")}
    found |= {name: dev.meminfo(name) for name in
              ("HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp", "Hugetlb")}
    return found


def resize(nr, size=SMALL):
    dev.write(POOLS / size / "nr_hugepages", nr)
    return int(dev.read(POOLS / size / "nr_hugepages"))


class Pooled(Test):
    """What the tests of the pool share."""

    def setUp(self):
        super().setUp()
        # First in, last out: the pool goes when nobody uses it any more
        self.addCleanup(resize, 0)

    def spread(self, nr, gap=22):
        """A pool over many slices, with movable memory in between that is returned."""
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        between = []
        for have in range(2, nr + 1, 2):
            self.assertEqual(resize(have), have)
            between.append(stack.enter_context(Known(gap, seed=have)))
        return between

    def blocks(self):
        """First page frames of the pool's pages, by slice."""
        size = self.device.info().slice_bytes // PAGE
        found = {}
        for pfn in hard.blocks_with(self.device, KPF_HUGE):
            found.setdefault(pfn // size, []).append(pfn)
        return found

    def used_and_free(self, memory):
        """Slices with pages of the pool: {slice: (in use, free)}."""
        used = {pfn for pfn in memory.pfns() if pfn is not None}
        return {number: (sum(pfn in used for pfn in pfns), sum(pfn not in used for pfn in pfns))
                for number, pfns in self.blocks().items()}

    def empty_some(self, memory, most=4, check=lambda: None):
        """Empties slices with pages in use and free ones; figures and contents are the same after each."""
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
        self.assertIsNone(memory.wrong_at())


class Pool(Pooled):
    def test_slices_emptied_by_name(self):
        between = self.spread(16)
        # Every second page of what is mapped is touched, in the order of the pool
        with Known(16, hugetlb=True) as memory:
            self.assertEqual(pool()["free"], 8)
            self.empty_some(memory)
            for other in between:
                self.assertIsNone(other.wrong_at())

    def test_compaction(self):
        between = self.spread(16)
        with Known(16, hugetlb=True) as memory:
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
            self.assertIsNone(memory.wrong_at())
            # The pool can be used in full while slices are off
            with Known(16, hugetlb=True, seed=7) as rest:
                self.assertIsNone(rest.wrong_at())
            self.assertIsNone(memory.wrong_at())

    def test_reserved_and_surplus_pages(self):
        self.spread(8)
        self.addCleanup(dev.write, POOLS / SMALL / "nr_overcommit_hugepages", 0)
        dev.write(POOLS / SMALL / "nr_overcommit_hugepages", 4)
        with Known(20, hugetlb=True) as memory, Known(4, hugetlb=True, seed=2, fill=False):
            found = pool()
            self.assertEqual(found["surplus"], 4)
            self.assertEqual(found["resv"], 2)
            self.empty_some(memory, most=2)
        self.assertEqual(pool()["surplus"], 0)
        self.assertEqual(pool()["nr"], 8)

    def test_charges_of_a_group(self):
        self.spread(12)
        names = ("hugetlb.2MB.current", "hugetlb.2MB.rsvd.current")
        with Group("huge", "+hugetlb") as group:
            def child():
                group.enter()
                with Known(12, hugetlb=True) as memory, Known(4, hugetlb=True, fill=False):
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

    def test_what_has_no_room_stays(self):
        """Once the last free block is taken: refused for that, and nothing is different afterwards."""
        self.spread(16)
        with Known(32, hugetlb=True) as memory:
            with hard.no_free_block() as scattered:
                # Some blocks come free while the first ones are emptied: clean cache is dropped for them
                for number in self.holding(memory):
                    before, places, blocks = pool(), memory.pfns(), self.blocks()
                    states = harness.states(self.device)
                    done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                    self.assertEqual(pool(), before)
                    self.assertIsNone(memory.wrong_at())
                    if done.status:
                        break
                else:
                    self.fail("there was room for all of them")
                self.assertIn(done.why(), (*REFUSED, "pressure"), done)
                self.assertEqual((done.nr_done, done.huge_split), (0, 0))
                self.assertEqual(harness.states(self.device), states)
                if not done.huge_moved:
                    self.assertEqual((memory.pfns(), self.blocks()), (places, blocks))
                self.assertIsNone(scattered.wrong_at())
            self.assert_goes(number)
            self.assertIsNone(memory.wrong_at())


class PoolLean(Pool):
    """The same while the pool's pages have given back most of their struct pages (hugetlb_free_vmemmap=on)."""

    @staticmethod
    def map_pages():
        """Pages that hold struct pages."""
        return sum(number for name, number in harness.vmstat().items() if name.startswith("nr_memmap"))

    def test_0_they_have(self):
        before = self.map_pages()
        resize(8)
        # Of 8 each, all but the first
        self.assertEqual(before - self.map_pages(), 8 * 7)


class PoolPoisoned(Pooled):
    """Comes after the others: what is poisoned is so until reboot."""

    def test_a_poisoned_page_keeps_its_slice(self):
        self.spread(8)
        with Known(8, hugetlb=True) as memory:
            number = self.holding(memory)[0]
            size = self.row(number).nr_pages
            page = next(page for page, pfn in enumerate(memory.pfns()) if pfn // size == number)
            memory.poison(page)
            first = page // 512 * 512
            self.assert_cheap(self.assert_stays(number, "hwpoison"))
            self.assertIsNone(memory.wrong_at(n for n in range(memory.nr) if not first <= n < first + 512))


class Gigantic(Test):
    """A page of 1 GiB: larger than a slice, and nowhere to go."""

    def inside(self):
        """Slices wholly within gigantic pages."""
        found = []
        for row in self.device.snapshot():
            start = row.id * row.nr_pages
            if row.nr_pages and all(hard.page_flags(pfn)[0] >> KPF_HUGE & 1 for pfn in
                                    range(start, start + row.nr_pages, 512)):
                found.append(row.id)
        return found

    def refused(self):
        numbers, before = self.inside(), pool(GIGANTIC)
        self.assertEqual(len(numbers), 1024 * MIB // self.device.info().slice_bytes)
        for number in (numbers[0], numbers[len(numbers) // 2], numbers[-1]):
            self.assert_cheap(self.assert_stays(number, "gigantic"))
        done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
        self.assertGreater(done.nr_done, 4)
        self.assertFalse(set(numbers) & set(harness.ids(self.device, dev.OFFLINE)))
        self.assertEqual(pool(GIGANTIC), before)

    def test_1_a_free_one_keeps_its_slices(self):
        self.assertEqual(pool(GIGANTIC)["nr"], 1)
        self.refused()

    def test_2_one_in_use_keeps_its_slices(self):
        memory = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | hard.MAP_HUGETLB | 30 << 26)
        for start in range(0, 1 << 30, 64 * MIB):
            memory[start:start + 8] = start.to_bytes(8, "little")
        self.assertEqual(pool(GIGANTIC)["free"], 0)
        self.refused()
        self.device.request("online_all")
        for start in range(0, 1 << 30, 64 * MIB):
            self.assertEqual(memory[start:start + 8], start.to_bytes(8, "little"))
        memory.close()

    def test_3_when_it_is_given_up_they_go(self):
        numbers = self.inside()
        self.assertEqual(resize(0, GIGANTIC), 0)
        self.assertEqual(self.inside(), [])
        for number in numbers[:3]:
            self.assert_goes(number)

    def test_4_one_is_built_from_slices_that_are_off(self):
        """It needs a whole GiB in one piece: what is off there wakes."""
        harness.compact(self.device)
        nr = len(harness.ids(self.device, dev.OFFLINE))
        self.assertGreater(nr, 24)
        self.assertEqual(resize(1, GIGANTIC), 1)
        self.assertLess(len(harness.ids(self.device, dev.OFFLINE)), nr)
        self.assertTrue(self.inside())
        self.assertFalse(set(self.inside()) & set(harness.ids(self.device, dev.OFFLINE)))
        self.assertEqual(resize(0, GIGANTIC), 0)


if __name__ == "__main__":
    harness.main()
