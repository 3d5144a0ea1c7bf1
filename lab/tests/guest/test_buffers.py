# SPDX-License-Identifier: GPL-2.0-or-later
"""Contiguous buffers of the dma-heap: made of slices, zeroed, charged, and given back."""

import contextlib
import errno
import os
import signal
import struct

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.dma_heap import Buffer, books, listed, physical
from ramlab.guest.harness import MIB, PAGE, Child, Memory, check_contents
from ramlab.guest.pinned_memory import Group, pin_each
from ramlab.guest.workload import Load
from ramlab.pytest_vm import vm

SIZE = 64 * MIB


def hold(size, group=None):
    """Steps of a child: a buffer is made, and given back. Yields errno if it is refused."""
    if group:
        group.enter()
    try:
        buffer = Buffer(size)
    except OSError as error:
        yield error.errno
        return
    yield 0
    buffer.close()
    yield 0


@vm(kernel=["plain", "debug"], slow="debug", mem="3G", append="ramslice=64M")
class Buffers(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(harness.wake, self.device)

    def tearDown(self):
        self.assertEqual((books()["nr"], books()["bytes"], listed()), (0, 0, []))
        self.assert_sane()

    def offline(self):
        return set(harness.ids(self.device, dev.OFFLINE))

    def refused(self, size):
        """Asks for a buffer that is not to be had; returns the kernel's reason."""
        before = books()["nr_refused"]
        with self.assertRaises(OSError) as caught:
            Buffer(size)
        self.assertEqual(caught.exception.errno, errno.ENOMEM)
        self.assertEqual(books()["nr_refused"], before + 1)
        return books()["last_refusal"]

    def slice_of(self, address):
        return address // self.device.info().slice_bytes

    def test_a_buffer_is_one_range_of_memory_and_zeroed(self):
        with Memory(1500) as dirty:
            dirty.touch(0xa5)
        with Buffer(SIZE) as buffer:
            self.assertEqual(bytes(buffer.map[:]).count(0), SIZE)
            (address, size, owner), = listed()
            self.assertEqual((size, owner), (SIZE, "dma-heap"))
            self.assertEqual((books()["nr"], books()["bytes"]), (1, SIZE))
            buffer.number_pages()
            # Page after page of it is at the next physical address
            memory = physical(address, SIZE)
            found = [struct.unpack_from("Q", memory, offset)[0]
                     for offset in range(0, SIZE, PAGE)]
            self.assertEqual(found, list(range(SIZE // PAGE)))

    def test_its_slice_stays_on_and_says_why(self):
        with Buffer(SIZE) as buffer:
            buffer.number_pages()
            (address, _, _), = listed()
            number = self.slice_of(address)
            runs = [run for run in self.device.pages(number) if run.why() == "buffer"]
            self.assertGreater(sum(run.nr_pages for run in runs), 0)
            for _ in range(3):
                self.device.request("compact", flags=dev.IGNORE_BACKOFF)
                done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                self.assertEqual(done.nr_done, 0)
            dev.write("/proc/sys/vm/compact_memory", 1)
            self.assertTrue(buffer.pages_are_numbered())

    def test_it_is_made_of_slices_that_are_off_and_these_go_off_again(self):
        harness.compact(self.device)
        # Nothing but these is large enough
        size = 8 * SIZE
        before = self.offline()
        with Buffer(size):
            (address, _, _), = listed()
            within = set(range(self.slice_of(address), self.slice_of(address + size)))
            self.assertTrue(within & before)
            # It does not begin in the midst of one, and keep on one more
            self.assertLessEqual(len(within & before), size // SIZE)
            # No other slice woke, but for those that the reserve of free memory needs
            self.assertLessEqual(len(before - self.offline() - within), 2)
        off = harness.until(lambda: within & before <= self.offline(), 60)
        self.assertTrue(off, (within & before) - self.offline())

    def test_memory_in_use_makes_room_and_keeps_what_it_holds(self):
        with Memory(1800) as memory:
            memory.touch(7)
            with Buffer(4 * SIZE) as buffer:
                buffer.map[:] = b"\xff" * buffer.bytes
                check_contents(memory, 7)
            check_contents(memory, 7)

    def test_a_control_group_pays_for_it_and_is_refused_beyond_its_limit(self):
        with Group("buffers") as group:
            dev.write(group.path / "memory.max", 3 * SIZE // 2)
            with Child(hold, SIZE, group) as first:
                self.assertEqual(first.step(), 0)
                used = group.number("memory.current")
                self.assertGreaterEqual(used, SIZE)
                self.assertGreaterEqual(group.table("memory.stat")["kernel"], SIZE)
                events = self.device.info().event_seq
                with Child(hold, SIZE, group) as second:
                    self.assertEqual(second.step(), errno.ENOMEM)
                self.assertEqual(books()["last_refusal"], "over-limit")
                self.assertEqual(group.table("memory.events")["oom_kill"], 0)
                # Nothing was moved or woken for it
                self.assertEqual(self.device.info().event_seq, events)
                self.assertEqual(books()["bytes"], SIZE)
                self.assertEqual(first.step(), 0)
            self.assertTrue(harness.until(lambda: group.number("memory.current") < 8 * MIB, 20))

    def test_what_cannot_be_had_is_refused_and_wakes_nothing(self):
        """A page that is pinned in every 256 MiB, and slices that are off between."""
        with contextlib.ExitStack() as stack:
            self.assertGreaterEqual(pin_each(stack, 2200, 4 * SIZE), 8)
            harness.compact(self.device)
            before = self.offline()
            self.assertGreater(len(before), 10)
            events = self.device.info().event_seq
            self.assertNotIn(self.refused(16 * SIZE), ("none", "over-limit"))
            self.assertEqual(self.offline(), before)
            self.assertEqual(self.device.info().event_seq, events)

    def test_with_memory_in_use_it_is_refused_and_no_process_is_killed(self):
        free = dev.meminfo("MemAvailable") // 1024
        before = harness.vmstat()["oom_kill"]
        with Memory(free - 150) as memory:
            memory.touch(3)
            self.refused(8 * SIZE)
            check_contents(memory, 3)
        self.assertEqual(harness.vmstat()["oom_kill"], before)

    def test_a_process_that_is_killed_gives_its_buffer_back(self):
        child = Child(hold, SIZE)
        self.assertEqual(child.step(), 0)
        self.assertEqual(books()["nr"], 1)
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        self.assertTrue(harness.until(lambda: books()["nr"] == 0, 20))

    def test_buffers_come_and_go_under_load(self):
        load = Load("anon", 900).wait_ready()
        self.addCleanup(load.kill)
        got = 0
        for turn in range(24):
            size = (8, 64, 2, 128)[turn % 4] * MIB
            try:
                with Buffer(size) as buffer:
                    buffer.number_pages()
                    self.device.request("compact", wait_busy=10, max_slices=4)
                    self.assertTrue(buffer.pages_are_numbered())
                got += 1
            except OSError as error:
                self.assertEqual(error.errno, errno.ENOMEM)
        print(f"({got} of 24 buffers) ", end="", flush=True)
        self.assertGreaterEqual(got, 22)
        load.end()

    def test_lengths_that_are_no_pageblock_are_rounded_up(self):
        with Buffer(PAGE) as buffer:
            self.assertEqual(books()["bytes"], self.device.info().pageblock_bytes)
            self.assertEqual(buffer.map[:8], bytes(8))
