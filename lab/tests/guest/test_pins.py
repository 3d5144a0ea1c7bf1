# SPDX-License-Identifier: GPL-2.0-or-later
"""A slice with a pinned page is refused before anything moves, all others can go, and it goes
after the unpin.

There is no ZONE_MOVABLE, from which long-term pins move pages away.
"""

import ctypes
import fcntl
import mmap
import os
import struct
import time

import pytest

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE, check_contents
from ramlab.guest.pinned_memory import (
    PageMovementTest,
    PatternedMemory,
    Ring,
    Vector,
    by_slice,
    system_call,
)
from ramlab.pytest_vm import vm

pytestmark = pytest.mark.slow

SIZE = 64
SYS_VMSPLICE = 278
SPLICE_F_GIFT = 8
PIN_START = 1 << 30 | 24 << 16 | ord("g") << 8 | 7
PIN_STOP = ord("g") << 8 | 8
PIN_READ = 1 << 30 | 8 << 16 | ord("g") << 8 | 9
PIN_WRITE, PIN_FAST = 1, 2


class GupTest:
    """Pins memory for long, as RDMA does (mm/gup_test.c)."""

    def __init__(self, memory, page, nr=1, flags=PIN_WRITE):
        self.nr = nr
        self.fd = os.open(dev.debugfs().parent / "gup_test", os.O_RDWR)
        fcntl.ioctl(
            self.fd,
            PIN_START,
            struct.pack("QQIxxxx", memory.address + page * PAGE, nr * PAGE, flags),
        )

    def read(self):
        """The bytes of the pages, read through the pin."""
        with mmap.mmap(-1, self.nr * PAGE) as copy:
            address = ctypes.addressof(ctypes.c_char.from_buffer(copy))
            fcntl.ioctl(self.fd, PIN_READ, struct.pack("Q", address))
            return copy[:]

    def release(self):
        fcntl.ioctl(self.fd, PIN_STOP)
        os.close(self.fd)


class Pipe:
    """A pipe that holds pages of the process."""

    def __init__(self, memory, page, nr=1, flags=0):
        self.out, into = os.pipe()
        vector = Vector(memory.address + page * PAGE, nr * PAGE)
        self.nr = nr
        assert system_call(SYS_VMSPLICE, into, ctypes.byref(vector), 1, flags) == nr * PAGE
        os.close(into)

    def read(self):
        return b"".join(os.read(self.out, PAGE) for _ in range(self.nr))

    def release(self):
        os.close(self.out)


@vm(mem="1G", append="ramslice=16M")
class Pins(PageMovementTest):
    def refused_while_held(self, memory, take):
        """take(memory, page) holds a page of a slice that could be emptied otherwise."""
        number, pages = self.pages_to_hold(memory)
        # Not the first page that a walk meets
        page = pages[len(pages) * 2 // 3]
        before = memory.pfns()
        held = take(memory, page)
        self.assertEqual(memory.pfns()[page], before[page])
        done = self.assert_stays(number, "pinned")
        self.assert_cheap(done)
        self.assertEqual(memory.pfns(), before)
        check_contents(memory)
        self.others_go(number, memory)
        self.assertEqual(memory.pfns()[page], before[page])
        if hasattr(held, "read"):
            # The holder of the page and its mapping see the same
            memory.map[page * PAGE] = 77
            self.assertEqual(held.read(), memory.map[page * PAGE:(page + 1) * PAGE])
            memory.fill(page, page + 1)
        held.release()
        self.device.request("online_all")
        self.assert_goes(number)
        self.assertNotEqual(memory.pfns()[page], before[page])
        check_contents(memory)

    def pages_to_hold(self, memory):
        """A slice that could be emptied, and the pages of memory in it."""
        number = self.holding(memory)[0]
        size = self.row(number).nr_pages
        pages = [page for page, pfn in enumerate(memory.pfns()) if pfn // size == number]
        self.assertGreater(len(pages), 64)
        return number, pages

    def others_go(self, number, memory):
        """Compaction passes the slice and reports what holds it."""
        done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
        self.assertEqual(done.status, 0)
        self.assertGreater(done.nr_done, self.device.info().nr_slices // 4)
        row = self.row(number)
        self.assertEqual((row.state, dev.REASONS[row.reason]), (dev.ONLINE, "pinned"))
        check_contents(memory)

    def test_a_long_term_pin_keeps_its_slice(self):
        for flags in (PIN_WRITE, PIN_WRITE | PIN_FAST, 0):
            with self.subTest(flags=flags), PatternedMemory(SIZE) as memory:
                self.refused_while_held(
                    memory, lambda memory, page: GupTest(memory, page, flags=flags)
                )
            harness.wake(self.device)

    def test_a_long_term_pin_within_a_huge_page_keeps_its_slice(self):
        with PatternedMemory(SIZE, huge=True) as memory:
            self.assertGreater(memory.smaps("AnonHugePages"), SIZE * 1024 // 2)
            self.refused_while_held(memory, GupTest)

    def test_a_long_term_pin_of_shared_memory_keeps_its_slice(self):
        file = os.memfd_create("shared")
        self.addCleanup(os.close, file)
        os.ftruncate(file, SIZE << 20)
        with PatternedMemory(SIZE, file=file) as memory:
            self.refused_while_held(memory, GupTest)

    @vm(kernel=["plain", "debug"], mem="1G", append="ramslice=16M")
    def test_a_buffer_registered_with_io_uring_keeps_its_slice(self):
        with PatternedMemory(SIZE) as memory:
            self.refused_while_held(memory, Ring)

    def test_pages_in_a_pipe_keep_their_slice(self):
        """A plain reference to anonymous memory that no mapping accounts for."""
        for flags in (0, SPLICE_F_GIFT):
            with self.subTest(flags=flags), PatternedMemory(SIZE) as memory:
                self.refused_while_held(
                    memory, lambda memory, page: Pipe(memory, page, flags=flags)
                )
            harness.wake(self.device)

    def test_pins_in_many_slices_keep_exactly_those_slices(self):
        """Each of these slices stays, each other one may go, and the requests moved no page in
        them.
        """
        with PatternedMemory(SIZE) as memory, PatternedMemory(16, seed=2) as other:
            slices = by_slice(self.device, memory.pfns())
            held = [Ring(memory, page) for page in range(0, memory.nr, 256)]
            before = memory.pfns()
            for number in slices:
                done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                self.assertNotEqual(done.status, 0)
                self.assert_cheap(done)
            self.assertEqual(memory.pfns(), before)
            done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
            self.assertGreater(done.nr_done, 0)
            for number in slices:
                self.assertEqual(self.row(number).state, dev.ONLINE)
            self.assertEqual(memory.pfns(), before)
            for ring in held:
                ring.release()
            self.device.request("online_all")
            check_contents(memory)
            check_contents(other)
            self.assert_goes(self.holding(memory)[0])
            check_contents(memory)

    def test_a_process_that_pins_while_its_slice_is_emptied(self):
        """Either the slice goes and the pin is elsewhere, or the pin was first and the slice
        stays.
        """
        file = os.memfd_create("shared")
        self.addCleanup(os.close, file)
        os.ftruncate(file, SIZE << 20)
        size = self.device.info().slice_bytes // PAGE
        outcomes = []
        wanted = mmap.mmap(-1, PAGE)
        with PatternedMemory(SIZE, file=file) as memory:
            def child():
                # The child has its own pages before a slice is chosen
                sum(memory.map[::PAGE])
                yield
                while True:
                    number, = struct.unpack_from("Q", wanted)
                    pages = [
                        page
                        for page, pfn in enumerate(memory.pfns())
                        if pfn and pfn // size == number
                    ][::8]
                    rings = [Ring(memory, page) for page in pages]
                    pfns = memory.pfns()
                    yield [pfns[page] for page in pages]
                    for ring in rings:
                        ring.release()
                    yield

            with harness.Child(child) as pinner:
                pinner.step()
                for attempt in range(8):
                    number, _ = self.pages_to_hold(memory)
                    struct.pack_into("Q", wanted, 0, number)
                    pinner.start()
                    # Sometimes the pin comes first
                    time.sleep(0.1 * attempt)
                    done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                    pinned = [pfn for pfn in pinner.result() if pfn // size == number]
                    state = self.row(number).state
                    self.assertEqual(state == dev.OFFLINE, done.status == 0)
                    self.assertFalse(state == dev.OFFLINE and pinned, pinned)
                    outcomes.append(done.why())
                    pinner.step()
                    self.device.request("online_all")
                    check_contents(memory)
        print(f"({outcomes}) ", end="", flush=True)
