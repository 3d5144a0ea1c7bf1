#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Demand wakes: whatever would have to swap, reclaim or fail is served by slices that are off, and nothing else is.

Swap is there and favoured, so that each test would swap if it could. Wants 2 GiB, slices of 32 MiB and a disk.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import socket
import struct
import subprocess
import threading
from pathlib import Path

from ramlab.guest import hard
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Child, Memory

# Size of files in MiB: far more than compaction leaves awake.
FILE = 400
THP = Path("/sys/kernel/mm/transparent_hugepage")
MADV_PAGEOUT = 21
MLOCK_ONFAULT = 1
F_SETPIPE_SZ = 1031
SO_SNDBUFFORCE = 32
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# What must not move while something can be woken.
STILL = [
    "pswpout", "pgsteal_kswapd", "pgsteal_direct", "pgscan_kswapd", "pgscan_direct", "allocstall_normal",
    "allocstall_dma32", "allocstall_movable", "compact_stall", "oom_kill",
]


def write_file(path, mib):
    block = os.urandom(PAGE) * (MIB // PAGE)
    with open(path, "wb", buffering=0) as file:
        for _ in range(mib):
            file.write(block)


def read_file(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass


def setUpModule():
    dev.swap_on_zram(512)
    dev.write("/proc/sys/vm/swappiness", 200)
    subprocess.run(["mkfs.ext4", "-q", "-F", "/dev/vda"], check=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))


class Test(harness.Test):
    """Begins with most of memory offline, and ends with the books true."""

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
        """Most of memory goes offline; sets a size in MiB that is more than what stays awake."""
        self.nr_offline = harness.compact(self.device)
        info = self.device.info()
        self.awake = info.free_pages * PAGE // MIB
        self.burst = self.awake + 150
        self.assertGreater(info.offline_pages * PAGE // MIB, 2 * self.burst)
        self.begin()

    def begin(self):
        self.before = harness.vmstat()
        self.woken_before = harness.woken_by_demand(self.device)

    def use_defrag(self, word):
        old = dev.read(THP / "defrag").split("[")[1].split("]")[0]
        self.addCleanup(dev.write, THP / "defrag", old)
        dev.write(THP / "defrag", word)

    def moved(self, names=STILL):
        after = harness.vmstat()
        return {name: after[name] - self.before[name] for name in names if after[name] != self.before[name]}

    def woken(self):
        return harness.woken_by_demand(self.device) - self.woken_before

    def assert_served_by_waking(self, mib=None):
        """So much was wanted: it woke slices, no more than needed, and nothing else helped."""
        self.assertEqual(self.moved(), {})
        mib = mib or self.burst
        size = self.device.info().slice_bytes // MIB
        self.assertGreaterEqual(self.woken(), (mib - self.awake) // size)
        self.assertLessEqual(self.woken(), mib // size + 4)

    def assert_few_woken(self, what, still=("pswpout", "oom_kill")):
        """A few slices may wake in passing: for tables, buffers and inodes, and when a stream had little to recycle for a
        moment. A whole file would wake ten."""
        print(f"({what}: {self.woken()} woken) ", end="", flush=True)
        self.assertLessEqual(self.woken(), 4)
        self.assertEqual(self.moved(still), {})


class Demand(Test):
    def test_anonymous_memory(self):
        with Memory(self.burst) as memory:
            self.assertIsNone(memory.touch().wrong_at())
            self.assert_served_by_waking()

    def test_anonymous_memory_in_huge_pages_that_may_wait(self):
        self.use_defrag("always")
        with Memory(self.burst, huge=True) as memory:
            self.assertIsNone(memory.touch().wrong_at())
            self.assert_served_by_waking()
            self.assertGreater(self.moved(["thp_fault_alloc"])["thp_fault_alloc"], self.burst // 2 * 9 // 10)

    def test_locked_memory(self):
        with Memory(self.burst) as memory:
            memory.lock()
            self.assert_served_by_waking()

    def test_tmpfs(self):
        self.addCleanup(os.unlink, "/dev/shm/burst")
        write_file("/dev/shm/burst", self.burst)
        self.assert_served_by_waking()

    def test_shared_memory_through_a_mapping(self):
        with mmap.mmap(-1, self.burst * MIB) as shared:
            shared[::PAGE] = b"\1" * (self.burst * MIB // PAGE)
            self.assert_served_by_waking()


class Tries(Test):
    """BPF tries, whose nodes are allocated without sleeping (GFP_NOWAIT)."""

    def key(self, number):
        self.held_key = ctypes.create_string_buffer(struct.pack("=I", 32) + struct.pack(">I", number), 8)
        return self.held_key

    def trie(self, size):
        # BPF_MAP_CREATE: LPM_TRIE, keys of 8 bytes, BPF_F_NO_PREALLOC
        return self.bpf(0, struct.pack("5I", 11, 8, size, 1 << 20, 1))

    @staticmethod
    def bpf(command, attributes):
        buffer = ctypes.create_string_buffer(attributes, 128)
        done = harness.libc.syscall(321, command, buffer, 128)
        if done < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), f"bpf({command})")
        return done

    def fill(self, fd, size, numbers):
        value = ctypes.create_string_buffer(size)
        for number in numbers:
            self.bpf(2, struct.pack("IxxxxQQQ", fd, *map(ctypes.addressof, (self.key(number), value)), 0))


class KernelDemand(Tries):
    """Leaves kernel pages behind here and there, which keep slices awake for the tests that follow."""

    def test_what_the_kernel_must_have_at_once(self):
        """Single pages and 64 KiB."""
        sizes = {3 << 10: 20 * 256, 60 << 10: (self.burst - 20) * 16}
        tries = [(self.trie(size), size, nr) for size, nr in sizes.items()]
        for fd, size, nr in tries:
            self.fill(fd, size, range(nr))
        self.assert_served_by_waking()
        for fd, *_ in tries:
            os.close(fd)

    def test_the_kernels_own_pages(self):
        """Pipes keep what is in them in pages that nobody can reclaim or move."""
        pipes = []
        block = bytes(MIB)
        for _ in range(self.burst):
            out, into = os.pipe2(os.O_NONBLOCK)
            pipes += [out, into]
            fcntl.fcntl(into, F_SETPIPE_SZ, MIB)
            self.assertEqual(os.write(into, block), MIB)
        self.assert_served_by_waking()
        for fd in pipes:
            os.close(fd)

    def test_slabs(self):
        """Unread messages are objects of a page or less."""
        slab = harness.meminfo()["Slab"]
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(self.burst // 2)]
        for sender, _ in pairs:
            sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4 * MIB)
            for _ in range(500):
                sender.send(bytes(3000))
        grown = (harness.meminfo()["Slab"] - slab) // 1024
        self.assertGreater(grown, self.burst * 2 // 3)
        self.assert_served_by_waking(grown)
        for pair in pairs:
            for end in pair:
                end.close()


class SleepingDriver(Tries):
    """What cannot wait for a driver that sleeps has the awake reserve: here the driver never answers meanwhile."""

    compact_first = False
    # A node of this size is a page, and each key but the first takes two
    SIZE = 3 << 10

    def setUp(self):
        super().setUp()
        self.keep_room()
        limit = dev.SYSFS / "driver_timeout_ms"
        self.addCleanup(dev.write, limit, dev.read(limit))
        # It hangs as long as the test wants, which costs no slice
        dev.write(limit, 600_000)
        harness.load_sim(sleeping=1)
        self.addCleanup(self.answer)
        self.trie_fd = self.trie(self.SIZE)
        self.addCleanup(os.close, self.trie_fd)
        self.compact()

    def keep_room(self):
        """Of its own, for all that follows: once memory is short, whatever the interpreter asks for waits for a slice."""
        harness.libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        harness.libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)
        b"\1" * (16 * MIB)
        # Of each size it has arenas with room, which what stays in them keeps from being given back
        objects = [bytes(size) for _ in range(2000) for size in range(16, 480, 16)]
        self.room = objects[::97]

    def answer(self):
        """The driver does, to everybody."""
        dev.write(harness.SIM / "hang_wake", 0)
        dev.write(harness.SIM / "hanging", 0)
        self.device.request("online_all")
        self.assertEqual(harness.violations(), 0)
        harness.unload_sim()

    def test_atomic_allocations_within_the_reserve_succeed_and_wait_for_nobody(self):
        dev.write(harness.SIM / "hang_wake", len(self.device.snapshot()))
        off = set(harness.ids(self.device, dev.OFFLINE))
        zone = max(self.device.zones(), key=lambda zone: zone.offline_pages)
        least = harness.zoneinfo()[0, zone.name.decode()]["min"]
        # Who is not urgent may have all but the min watermark and the reserve of high orders; here with a little for others
        least += 1024 + self.high_atomic(zone.name.decode())
        self.assertGreater(zone.awake_reserve_pages - least, 1024)
        number = 0
        while (free := self.free_pages(zone.index)) > least:
            numbers = range(number, number + max(1, min(64, (free - least) // 2)))
            self.fill(self.trie_fd, self.SIZE, numbers)
            number = numbers.stop
        self.assertGreater(2 * number, zone.awake_reserve_pages - least)
        # The driver was asked, and has not answered
        states = {slice.id: slice.state for slice in self.device.snapshot()}
        waking = [number for number, state in states.items() if state == dev.WAKING]
        self.assertTrue(waking)
        self.assertLessEqual({states[number] for number in off}, {dev.WAKING, dev.OFFLINE})
        self.assertEqual(self.moved(), {})
        print(f"({2 * number} pages, reserve {zone.awake_reserve_pages}, {len(waking)} waking) ", end="", flush=True)

    def free_pages(self, index):
        return next(zone.free_pages for zone in self.device.zones() if zone.index == index)

    def high_atomic(self, name):
        """Pages of a zone's pageblocks that are kept for atomic allocations of high orders."""
        head, rows = dev.read("/proc/pagetypeinfo").split("Number of blocks type", 1)[1].split("\n", 1)
        row = next(row.split() for row in rows.splitlines() if f" {name} " in f"{row} ")
        blocks = int(row[4 + head.split().index("HighAtomic")])
        return blocks * self.device.info().pageblock_bytes // PAGE


class Fork(Test):
    compact_first = False

    def test_a_big_process_forks_and_both_go_on_writing(self):
        with Memory(250) as memory:
            memory.touch()
            self.compact()

            def child():
                memory.touch(2)
                yield memory.wrong_at(2)

            with Child(child) as forked:
                self.assertIsNone(forked.step())
                self.assertIsNone(memory.wrong_at())
                self.assert_served_by_waking(250)


class OnDisk(Test):
    """A file on disk, several times what stays awake."""

    compact_first = False
    NAME = "/mnt/file"

    @classmethod
    def setUpClass(cls):
        subprocess.run(["mount", "/dev/vda", "/mnt"], check=True)
        if not os.path.exists(cls.NAME):
            write_file(cls.NAME, FILE)
        subprocess.run(["umount", "/mnt"], check=True)

    def setUp(self):
        super().setUp()
        # For one test only: its buffers cannot move, and would keep slices awake
        subprocess.run(["mount", "/dev/vda", "/mnt"], check=True)
        self.addCleanup(subprocess.run, ["umount", "/mnt"], check=True)

    def mapping(self):
        with open(self.NAME, "rb") as file:
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


class Files(OnDisk):
    def resident(self, view):
        """Its pages that are in the cache."""
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        found = ctypes.create_string_buffer(len(view) // PAGE)
        if harness.libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(view)), found):
            raise OSError(ctypes.get_errno(), "mincore")
        return [number for number, byte in enumerate(found.raw) if byte & 1]

    def evict(self):
        """Reads it and evicts it as reclaim does: shadows are left, by which pages that come back are known."""
        with open(self.NAME, "rb") as file, \
                mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as view:
            sum(view[::PAGE])
            for _ in range(20):
                # Pages in some CPU's batch are not on the lists that they are reclaimed from. This empties the batches
                self.device.request("compact", flags=dev.DRY_RUN, max_slices=1)
                view.madvise(MADV_PAGEOUT)
                left = self.resident(view)
                if not left:
                    return
                # Only what is mapped is paged out
                sum(view[number * PAGE] for number in left)
        self.fail(f"{len(left)} pages stay in the cache")

    def assert_refaulted(self):
        count = self.moved(["workingset_refault_file"]).get("workingset_refault_file", 0)
        self.assertGreater(count, FILE * 256 * 3 // 4)
        self.assert_served_by_waking(FILE)

    def test_reading_what_was_evicted_wakes(self):
        self.evict()
        self.compact()
        read_file(self.NAME)
        self.assert_refaulted()

    def test_faulting_in_what_was_evicted_wakes(self):
        self.evict()
        self.compact()
        with self.mapping() as view:
            sum(view[::PAGE])
        self.assert_refaulted()

    def test_writing_a_file_wakes(self):
        self.compact()
        write_file("/mnt/other", FILE)
        self.assert_served_by_waking(FILE)
        os.unlink("/mnt/other")


class Streams(OnDisk):
    def test_streaming_a_file_recycles_cache_and_nothing_else(self):
        with Memory(100) as memory:
            memory.touch()
            self.compact()
            read_file(self.NAME)
            self.assert_few_woken("read")
            self.assertEqual(self.moved(["pswpin"]), {})
            # A page read ahead, or one of the disk's own tables, may be recycled just before it is used; no more come back.
            count = self.moved(["workingset_refault_file"]).get("workingset_refault_file", 0)
            self.assertLess(count, FILE * 256 // 100)
            self.assertIsNone(memory.wrong_at())

    def test_streaming_through_a_mapping_recycles_cache(self):
        self.compact()
        with self.mapping() as view:
            view.madvise(mmap.MADV_SEQUENTIAL)
            for start in range(0, len(view), 8 * MIB):
                sum(view[start:start + 8 * MIB:PAGE])
                view.madvise(mmap.MADV_DONTNEED, start, 8 * MIB)
        self.assert_few_woken("mapped")


class StreamsByGeneration(Streams):
    """The same with the multi-generational LRU, whose lists are others."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        was = dev.read("/sys/kernel/mm/lru_gen/enabled")
        dev.set_mglru(True)
        cls.addClassCleanup(dev.set_mglru, int(was, 16) & 1)


def lock_present(memory):
    """Locks what is there of it, and nothing else."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory.map))
    if harness.libc.mlock2(ctypes.c_void_p(address), ctypes.c_size_t(memory.bytes), MLOCK_ONFAULT):
        raise OSError(ctypes.get_errno(), "mlock2")


class NoDemand(Test):
    compact_first = False

    def test_a_control_group_at_its_limit_is_not_the_machine(self):
        group = Path("/sys/fs/cgroup/limited")
        dev.write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
        group.mkdir()
        self.addCleanup(group.rmdir)
        dev.write(group / "memory.high", 40 * MIB)

        def child():
            dev.write(group / "cgroup.procs", os.getpid())
            with Memory(160) as memory:
                yield memory.touch().wrong_at()
                yield int(dev.read(group / "memory.current"))

        self.compact()
        with Child(child) as limited:
            self.assertIsNone(limited.step())
            self.assertLess(limited.step(), 2 * 40 * MIB)
            # It swapped, which is what was asked for
            self.assertIn("pswpout", self.moved())
            self.assertEqual(self.moved(["pgsteal_kswapd"]), {})
            self.assert_few_woken("by the group", ["oom_kill"])

    def test_a_huge_page_alone_is_not_worth_a_slice(self):
        """Huge faults, with plenty free in scattered pages and some slices off, until they fall back."""
        self.assertEqual(self.device.request("offline_free", max_slices=8).nr_done, 8)
        # The kernel's compaction would join the small pages, given the time: what is locked stays where it is
        with (hard.setting("/proc/sys/vm/compact_unevictable_allowed", 0), Memory(512) as scattered,
              Memory(1504, huge=True) as memory):
            lock_present(scattered.touch().punch())
            zone = max(self.device.zones(), key=lambda zone: zone.free_pages)
            starts = iter(range(0, memory.bytes, 8 * MIB))
            for defrag in ("never", "defer"):
                self.use_defrag(defrag)
                self.begin()
                fallbacks = 0
                while fallbacks < 10 and (start := next(starts, None)) is not None:
                    memory.touch(1, start, start + 8 * MIB)
                    fallbacks = self.moved(["thp_fault_fallback"]).get("thp_fault_fallback", 0)
                free = next(z.free_pages for z in self.device.zones() if z.index == zone.index)
                self.assertGreater(free, zone.awake_reserve_pages, "the test used up the small pages, too")
                self.assertGreaterEqual(fallbacks, 10)
                self.assertEqual(self.woken(), 0)
                self.assertEqual(len(harness.ids(self.device, dev.OFFLINE)), 8)


class Afterwards(Test):
    def test_slices_go_offline_again_when_the_burst_is_over(self):
        for _ in range(2):
            with Memory(self.burst) as memory:
                memory.touch()
                self.assertLess(len(harness.ids(self.device, dev.OFFLINE)), self.nr_offline - 3)
            self.assertGreaterEqual(harness.compact(self.device), self.nr_offline - 2)

    def test_the_reserve_is_filled_again_ahead_of_need(self):
        zones = {zone.index: zone for zone in self.device.zones() if zone.nr_offline}
        with Memory(self.burst) as memory:
            memory.touch()

            def filled():
                return all(zone.free_pages >= zones[zone.index].awake_reserve_pages - 1024
                           for zone in self.device.zones() if zone.index in zones)

            self.assertTrue(harness.until(filled))


class Races(Test):
    compact_first = False

    def test_a_burst_in_the_midst_of_compaction(self):
        outcomes = []
        with Memory(400) as memory:
            for attempt in range(2):
                harness.wake(self.device)
                memory.touch().punch()
                before = harness.vmstat()
                done = []
                worker = threading.Thread(target=lambda: done.append(self.device.request(
                    "compact", flags=dev.IGNORE_BACKOFF)))
                with dev.Device(os.O_RDONLY) as reader, Memory(500) as burst:
                    worker.start()
                    harness.until(lambda: done or len(harness.ids(reader, dev.OFFLINE)) > 20 + 6 * attempt)
                    burst.touch()
                    worker.join()
                    self.assertIsNone(burst.wrong_at())
                self.assertIsNone(memory.wrong_at())
                after = harness.vmstat()
                self.assertEqual({n: after[n] - before[n] for n in ("oom_kill", "pswpout") if after[n] != before[n]}, {})
                outcomes.append((done[0].status, done[0].why()))
                self.assertLessEqual(set(harness.states(self.device).values()), {dev.ONLINE, dev.OFFLINE})
        print(f"({outcomes}) ", end="", flush=True)
        for status, why in outcomes:
            self.assertIn(status, (0, errno.EAGAIN))
            self.assertEqual(status == errno.EAGAIN, why == "pressure")

    def test_a_slice_in_flight_comes_back_when_memory_is_wanted(self):
        """Nothing else is off: all that could help is in the slice that is being emptied."""
        size = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        self.addCleanup(self.device.request, "online_all")
        # So that moving one takes a while, on any machine: many pages, one at a time
        dev.write(dev.SYSFS / "slice_bytes", 128 * MIB)
        batch = dev.debugfs() / "migrate_batch"
        self.addCleanup(dev.write, batch, dev.read(batch))
        dev.write(batch, 1)
        before = harness.vmstat()["oom_kill"]
        zone = max(self.device.zones(), key=lambda zone: zone.free_pages)
        # The request needs room for the slice, the reserve and two chunks, and there is little more
        room = 128 + zone.awake_reserve_pages * PAGE // MIB + 8 + 16
        bulk = (zone.free_pages * PAGE // MIB - room - 600) // 2 * 2
        with Memory(bulk, huge=True) as huge, Memory(600) as memory:
            huge.touch()
            memory.touch()
            full = [s.id for s in self.device.snapshot()
                    if s.counter("anon_mapped") > s.nr_pages * 9 // 10 and s.counter("huge") < s.nr_pages // 10]
            self.assertTrue(full)
            for number in full:
                status, why = self.offline_and_want(number)
                self.assertEqual(status == errno.EAGAIN, why == "pressure")
                if status == errno.EAGAIN:
                    break
                self.device.request("online_all")
            self.assertEqual((status, why), (errno.EAGAIN, "pressure"))
            self.assertEqual(harness.states(self.device)[number], dev.ONLINE)
            self.assertIsNone(memory.wrong_at())
        self.assertEqual(harness.vmstat()["oom_kill"], before)

    def offline_and_want(self, number):
        """Wants all that is free as soon as the slice is being emptied; the outcome of the latter."""
        done = []
        worker = threading.Thread(target=lambda: done.append(
            self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)))
        with dev.Device(os.O_RDONLY) as watcher, Memory(150) as memory:
            worker.start()
            self.assertIsNotNone(watcher.wait_event(60))
            memory.touch()
            worker.join()
            self.assertIsNone(memory.wrong_at())
        return done[0].status, done[0].why()


if __name__ == "__main__":
    harness.main()
