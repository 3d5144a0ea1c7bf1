# SPDX-License-Identifier: GPL-2.0-or-later
"""What asks for cold memory stays cold whatever becomes of the mapping: fork, mremap(), split, KSM,
userfaultfd, swap; what must leave a twin leaves it.
"""

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
from pathlib import Path

from ramlab.guest import cold_memory as cold
from ramlab.guest import cold_places, harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import MAP_COLD, ColdMemory, ColdTest, areas
from ramlab.guest.cold_programs import nodes_of
from ramlab.guest.cold_userfault import Userfault
from ramlab.guest.harness import MIB, PAGE, libc
from ramlab.guest.pinned_memory import HUGE
from ramlab.pytest_vm import vm

PRIVATE, SHARED = mmap.MAP_PRIVATE | MAP_COLD, mmap.MAP_SHARED | MAP_COLD
MREMAP_MAYMOVE, MREMAP_FIXED = 1, 2
MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_PAGEOUT, MADV_COLLAPSE = 12, 13, 21, 25
KSM = Path("/sys/kernel/mm/ksm")

pytestmark = vm(kernel=["plain", "debug"], slow="debug", mem="2G", disk="512M",
                append="ramslice=16M ramslice_cold=0")


class MappingTest(ColdTest):
    def setUp(self):
        super().setUp()
        cold.resize(512)

    def assert_area_cold(self, address, size):
        """Each page of it is there and in the twin, and each of its areas says that it is cold."""
        self.assertEqual(set(nodes_of(address, size)), {cold.twin()})
        flags = [words for start, end, words in areas() if start < address + size and address < end]
        self.assertTrue(flags)
        for words in flags:
            self.assertIn("co", words)

    def in_child(self, check):
        """Runs a check in a child; it must hold there."""
        pid = os.fork()
        if not pid:
            status = 1
            try:
                check()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)


class Lives(MappingTest):
    def test_a_child_has_the_mapping_and_its_new_pages_are_cold(self):
        with ColdMemory(32, fill=False) as memory:
            memory.fill(0, memory.nr // 2)

            def check():
                # Copies of the first half, new pages in the second
                memory.seed = 2
                memory.fill()
                self.assert_area_cold(memory.address, memory.bytes)
                self.assertIsNone(memory.wrong_at())

            self.in_child(check)
            self.assertIsNone(memory.wrong_at(range(memory.nr // 2)))

    def test_shared_memory_that_a_child_fills_is_cold(self):
        with ColdMemory(16, flags=SHARED, fill=False) as memory:
            self.in_child(memory.fill)
            self.assertIsNone(memory.wrong_at())
            self.assert_cold(memory)

    def test_what_is_copied_from_a_file(self):
        """Page cache stays where it is; pages that are written are private, and cold."""
        with open(Path(dev.file_system()) / "file", "w+b") as file:
            file.write(bytes(8 * MIB))
            file.flush()
            with ColdMemory(8, flags=PRIVATE, file=file.fileno(), fill=False) as memory:
                self.assertEqual(len(memory.map[::PAGE]), memory.nr)
                self.assertEqual(set(memory.places()), {0})
                memory.fill(0, memory.nr // 2)
                self.assert_area_cold(memory.address, memory.bytes // 2)
                later = nodes_of(memory.address + memory.bytes // 2, memory.bytes // 2)
                self.assertEqual(set(later), {0})

    def test_the_pool_of_huge_pages_ignores_the_flag(self):
        pool = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
        with pinned_memory.setting(pool, 16):
            self.assertEqual(int(dev.read(pool)), 16)
            with ColdMemory(32, flags=PRIVATE, hugetlb=True) as memory:
                self.assertEqual(set(memory.places()), {0})
                self.assertIsNone(memory.wrong_at())

    def test_huge_pages_that_were_put_into_a_twin_leave_the_pool_with_the_others(self):
        pool = Path("hugepages/hugepages-2048kB/nr_hugepages")
        whole = Path("/sys/kernel/mm") / pool
        with pinned_memory.setting(whole, 16):
            dev.write(cold.NODE / f"node{cold.twin()}" / pool, 4)
            self.assertEqual(int(dev.read(whole)), 20)
            dev.write(whole, 0)
            self.assertEqual(int(dev.read(whole)), 0)


class Shapes(MappingTest):
    """The area is moved, cut and joined."""

    def test_a_mapping_that_moves(self):
        with ColdMemory(8, fill=False) as memory, ColdMemory(16, fill=False) as room:
            memory.fill(0, memory.nr // 2)
            target = room.address
            libc.mremap.restype = ctypes.c_void_p
            moved = libc.mremap(
                ctypes.c_void_p(memory.address), ctypes.c_size_t(memory.bytes),
                ctypes.c_size_t(room.bytes), MREMAP_MAYMOVE | MREMAP_FIXED,
                ctypes.c_void_p(target))
            self.assertEqual(moved, target)
            room.seed = memory.seed
            self.assertIsNone(room.wrong_at(range(memory.nr // 2)))
            room.fill()
            self.assert_area_cold(target, room.bytes)
            # The object unmaps what is no longer there: that does nothing

    def test_a_mapping_that_is_split(self):
        """By protection, and by a hole; what is touched later is cold in each part."""
        with ColdMemory(12, fill=False) as memory:
            third = memory.bytes // 3
            libc.mprotect(ctypes.c_void_p(memory.address + third), ctypes.c_size_t(third),
                          mmap.PROT_READ)
            inside = [words for start, end, words in areas()
                      if memory.address <= start and end <= memory.address + memory.bytes]
            self.assertEqual(len(inside), 3)
            nr = memory.nr // 3
            memory.fill(0, nr).fill(2 * nr)
            for first in 0, 2:
                self.assert_area_cold(memory.address + first * third, third)
            libc.mprotect(ctypes.c_void_p(memory.address + third), ctypes.c_size_t(third),
                          mmap.PROT_READ | mmap.PROT_WRITE)
            memory.fill(nr, 2 * nr)
            self.assert_area_cold(memory.address, memory.bytes)
            libc.munmap(ctypes.c_void_p(memory.address + third), ctypes.c_size_t(third))
            memory.map.madvise(mmap.MADV_DONTNEED, 2 * third, third)
            memory.fill(2 * nr)
            for first in 0, 2:
                self.assert_area_cold(memory.address + first * third, third)

    def test_cold_and_other_memory_side_by_side_are_two_areas(self):
        with ColdMemory(8, fill=False, flags=mmap.MAP_PRIVATE) as room:
            half = room.bytes // 2
            libc.mmap.restype = ctypes.c_void_p
            done = libc.mmap(
                ctypes.c_void_p(room.address), ctypes.c_size_t(half),
                mmap.PROT_READ | mmap.PROT_WRITE,
                PRIVATE | mmap.MAP_ANONYMOUS | 0x10, -1, ctypes.c_long(0))
            self.assertEqual(done, room.address)
            room.fill()
            self.assert_area_cold(room.address, half)
            self.assertEqual(set(nodes_of(room.address + half, half)), {0})

    def test_pages_that_were_given_back_come_anew(self):
        with ColdMemory(8) as memory:
            memory.map.madvise(mmap.MADV_DONTNEED)
            self.assertFalse(memory.places())
            self.assert_cold(memory.fill())

    def test_small_pages_that_are_collapsed(self):
        with ColdMemory(8) as memory:
            begin = -memory.address % HUGE
            memory.map.madvise(mmap.MADV_HUGEPAGE)
            memory.map.madvise(MADV_COLLAPSE, begin, 4 * MIB)
            self.assertGreaterEqual(memory.smaps("AnonHugePages"), 4 << 10)
            self.assert_cold(memory)
            self.assertIsNone(memory.wrong_at())


class Merged(MappingTest):
    """KSM."""

    def setUp(self):
        super().setUp()
        for name, value in (("pages_to_scan", 20_000), ("sleep_millisecs", 1), ("run", 1)):
            self.enterContext(pinned_memory.setting(KSM / name, value))
        # Pages are as they were again
        self.addCleanup(dev.write, KSM / "run", 2)

    @contextlib.contextmanager
    def merged(self, *flags):
        """8 MiB for each of these flags, whose pages have been merged by twos or more."""
        with contextlib.ExitStack() as stack:
            memories = [stack.enter_context(ColdMemory(8, flags=some)) for some in flags]
            for memory in memories:
                memory.map.madvise(MADV_MERGEABLE)
            wanted = (len(memories) - 1) * memories[0].nr
            self.assertTrue(harness.until(lambda: int(dev.read(KSM / "pages_sharing")) >= wanted,
                                          60), dev.read(KSM / "pages_sharing"))
            yield memories

    def test_merged_pages_stay_cold_and_so_do_copies(self):
        with self.merged(PRIVATE, PRIVATE) as (one, other):
            self.assertEqual(one.pfns(), other.pfns())
            self.assert_cold(one)
            dev.write(KSM / "run", 0)
            one.seed = 2
            one.fill()
            self.assertFalse(set(one.pfns()) & set(other.pfns()))
            for memory in one, other:
                self.assert_cold(memory)
                self.assertIsNone(memory.wrong_at())

    def test_each_gets_a_page_of_its_kind_when_merged_ones_are_copied(self):
        """A page that hot and cold memory share may be in either: a copy is the writer's."""
        with self.merged(PRIVATE, mmap.MAP_PRIVATE) as (asks, other):
            dev.write(KSM / "run", 0)
            asks.seed = other.seed = 2
            asks.fill()
            other.fill()
            self.assert_cold(asks)
            self.assertEqual(set(other.places()), {0})

    def test_pages_that_are_merged_no_longer_are_where_they_belong(self):
        with self.merged(PRIVATE, mmap.MAP_PRIVATE) as (asks, other):
            for memory in asks, other:
                memory.map.madvise(MADV_UNMERGEABLE)
                self.assertIsNone(memory.wrong_at())
            self.assert_cold(asks)
            self.assertEqual(set(other.places()), {0})

    def test_a_twin_with_merged_pages_is_given_back(self):
        with self.merged(PRIVATE, PRIVATE) as (one, other):
            dev.write(KSM / "run", 0)
            cold.resize(0)
            self.assertEqual(one.pfns(), other.pfns())
            self.assertEqual(set(one.places()), {0})
            self.assertIsNone(one.wrong_at())


class Userfaults(MappingTest):
    """Pages that another program puts there, by UFFDIO_COPY and UFFDIO_ZEROPAGE."""

    def test_pages_that_are_copied_in_are_cold(self):
        for flags in PRIVATE, SHARED:
            with self.subTest(flags), ColdMemory(8, flags=flags, fill=False) as memory, \
                    ColdMemory(8, flags=mmap.MAP_PRIVATE) as source:
                with Userfault(memory.address, memory.bytes) as user:
                    user.copy(memory.address, source.address, memory.bytes)
                self.assert_cold(memory)
                self.assertIsNone(memory.wrong_at())

    def test_others_that_are_copied_in_are_not(self):
        with ColdMemory(8, flags=mmap.MAP_PRIVATE, fill=False) as memory, \
                ColdMemory(8, flags=PRIVATE) as source:
            with Userfault(memory.address, memory.bytes) as user:
                user.copy(memory.address, source.address, memory.bytes)
            self.assertEqual(set(memory.places()), {0})
            self.assertIsNone(memory.wrong_at())

    def test_a_zero_page_that_is_written_becomes_a_cold_one(self):
        with ColdMemory(8, fill=False) as memory:
            with Userfault(memory.address, memory.bytes) as user:
                user.zero(memory.address, memory.bytes)
            self.assertEqual(memory.map[:memory.bytes], bytes(memory.bytes))
            self.assert_cold(memory.fill())


class Swapped(MappingTest):
    """A swap file on a disk: pages come back in groups, read ahead."""

    def setUp(self):
        super().setUp()
        path = Path(dev.file_system()) / "swap"
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 192 * MIB)
        path.chmod(0o600)
        subprocess.run(["mkswap", path], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", path], check=True)
        self.addCleanup(subprocess.run, ["swapoff", path], check=True)

    def out(self, memory):
        """Has pages of a mapping swapped out, most of them at least."""
        memory.map.madvise(MADV_PAGEOUT)
        self.assertTrue(harness.until(lambda: sum(memory.places().values()) < memory.nr // 4))

    def test_private_memory_comes_back_cold(self):
        with ColdMemory(32) as memory:
            self.out(memory)
            self.assertIsNone(memory.wrong_at())
            self.assert_cold(memory)

    def test_shared_memory_comes_back_cold(self):
        with ColdMemory(32, flags=SHARED) as memory:
            self.out(memory)
            self.assertIsNone(memory.wrong_at())
            self.assert_cold(memory)

    def test_other_memory_does_not_come_back_cold(self):
        for flags in mmap.MAP_PRIVATE, mmap.MAP_SHARED:
            with self.subTest(flags), ColdMemory(32, flags=flags) as memory:
                self.out(memory)
                self.assertIsNone(memory.wrong_at())
                self.assertEqual(set(memory.places()), {0})

    def test_copies_of_a_page_that_comes_back_are_cold(self):
        """Parent and child have it swapped out; each writes to it."""
        with ColdMemory(16) as memory:
            self.out(memory)

            def check():
                memory.seed = 2
                memory.fill()
                self.assert_area_cold(memory.address, memory.bytes)

            self.in_child(check)
            self.assertIsNone(memory.wrong_at())
            self.assert_cold(memory)


class Held(MappingTest):
    """Pages that something holds on to."""

    def test_locked_pages_stay_cold_and_go_along(self):
        with ColdMemory(32) as memory:
            pinned_memory.lock_present(memory)
            self.assert_cold(memory)
            cold.resize(0)
            self.assertEqual(set(memory.places()), {0})
            self.assertIsNone(memory.wrong_at())

    def test_pages_that_are_pinned_for_long_leave_by_themselves(self):
        with ColdMemory(8) as memory:
            ring = pinned_memory.Ring(memory, 0, 64)
            try:
                nodes = memory.nodes()
                self.assertEqual(set(nodes[:64]), {0})
                self.assertEqual(set(nodes[64:]), {cold.twin()})
                # So they keep nothing from being given back
                cold.resize(0)
                self.assertIsNone(memory.wrong_at())
            finally:
                ring.release()


class Counted(MappingTest):
    """The count of all pages by who maps them, which the benchmark relies on."""

    def test_pages_are_counted_where_they_are(self):
        with ColdMemory(16) as asks, ColdMemory(16, flags=mmap.MAP_PRIVATE) as other:
            found = cold_places.count(cold.twin())
            self.assertGreaterEqual(found["cold_there"], asks.nr)
            self.assertEqual([found[name] for name in ("cold_elsewhere", "hot_there")], [0, 0])
            # What is where it should not be is found
            other.move(cold.twin())
            asks.move(0)
            found = cold_places.count(cold.twin())
            self.assertGreaterEqual(found["cold_elsewhere"], asks.nr)
            self.assertGreaterEqual(found["hot_there"], other.nr)

    def test_a_child_that_shares_pages_makes_no_difference(self):
        with ColdMemory(8) as memory, cold.child(signal.pause):
            found = cold_places.count(cold.twin())
            self.assertGreaterEqual(found["cold_there"], memory.nr)
            self.assertEqual(found["mixed_there"], 0)
