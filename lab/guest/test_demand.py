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
import random
import resource
import struct
import subprocess
import threading
import time
import unittest
from pathlib import Path

import harness
import ramslice_dev as dev
from harness import MIB, PAGE, Child, Memory

# More than compaction leaves awake, in MiB.
BURST = 300
THP = Path("/sys/kernel/mm/transparent_hugepage")
MADV_PAGEOUT = 21
F_SETPIPE_SZ = 1031
# What must not move while something can be woken.
STILL = [
    "pswpout", "pgsteal_kswapd", "pgsteal_direct", "pgscan_kswapd", "pgscan_direct", "allocstall_normal",
    "allocstall_dma32", "allocstall_movable", "compact_stall", "oom_kill",
]


def setUpModule():
    dev.swap_on_zram(512)
    dev.write("/proc/sys/vm/swappiness", 200)
    dev.file_system("/mnt")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))


class Test(unittest.TestCase):
    """Begins with most of memory offline, and ends with the books true."""

    compact_first = True

    def setUp(self):
        self.device = dev.Device()
        self.addCleanup(self.device.close)
        harness.wake(self.device)
        self.addCleanup(self.check_end)
        if self.compact_first:
            self.compact()

    def check_end(self):
        self.device.request("online_all")
        dev.verify()

    def compact(self):
        nr = harness.compact(self.device)
        info = self.device.info()
        self.assertLess(info.free_pages * PAGE, BURST * MIB * 2 // 3, "too much stayed awake for this test to tell")
        self.assertGreater(info.offline_pages * PAGE, 2 * BURST * MIB)
        self.before = harness.vmstat()
        self.nr_offline = nr
        self.woken_before = harness.woken_by_demand(self.device)

    def moved(self, names=STILL):
        after = harness.vmstat()
        return {name: after[name] - self.before[name] for name in names if after[name] != self.before[name]}

    def woken(self):
        return harness.woken_by_demand(self.device) - self.woken_before

    def assert_served_by_waking(self, mib=BURST):
        self.assertEqual(self.moved(), {})
        # Two thirds of it could not have been there; and no more is woken than needed
        needed = mib * MIB / self.device.info().slice_bytes
        self.assertGreaterEqual(self.woken(), needed / 3)
        self.assertLessEqual(self.woken(), needed + 4)


class Demand(Test):
    def test_anonymous_memory(self):
        with Memory(BURST) as memory:
            self.assertIsNone(memory.touch().wrong_at())
            self.assert_served_by_waking()

    def test_anonymous_memory_in_huge_pages_that_may_wait(self):
        old = dev.read(THP / "defrag").split("[")[1].split("]")[0]
        self.addCleanup(dev.write, THP / "defrag", old)
        dev.write(THP / "defrag", "always")
        with Memory(BURST, huge=True) as memory:
            self.assertIsNone(memory.touch().wrong_at())
            self.assert_served_by_waking()
            self.assertGreater(self.moved(["thp_fault_alloc"])["thp_fault_alloc"], BURST // 2 * 9 // 10)

    def test_locked_memory(self):
        with Memory(BURST) as memory:
            memory.lock()
            self.assert_served_by_waking()

    def test_tmpfs(self):
        self.addCleanup(os.unlink, "/dev/shm/burst")
        self.write("/dev/shm/burst", BURST)
        self.assert_served_by_waking()

    def test_shared_memory_through_a_mapping(self):
        with mmap.mmap(-1, BURST * MIB) as shared:
            shared[::PAGE] = b"\1" * (BURST * MIB // PAGE)
            self.assert_served_by_waking()

    def test_writing_a_file(self):
        self.addCleanup(os.unlink, "/mnt/burst")
        self.write("/mnt/burst", BURST)
        self.assert_served_by_waking()

    @staticmethod
    def write(path, mib):
        block = os.urandom(4096) * 256
        with open(path, "wb", buffering=0) as file:
            for _ in range(mib):
                file.write(block)

    def test_what_the_kernel_must_have_at_once(self):
        """A BPF trie allocates its nodes without sleeping (GFP_NOWAIT), from a single page to 64 KiB."""
        sizes = {3 << 10: 8 << 10, 60 << 10: 3 << 10}
        tries = [(self.trie(size), size, nr) for size, nr in sizes.items()]
        for fd, size, nr in tries:
            value = ctypes.create_string_buffer(size)
            for number in range(nr):
                self.bpf(2, struct.pack("IxxxxQQQ", fd, *map(ctypes.addressof, (self.key(number), value)), 0))
            os.close(fd)
        self.assert_served_by_waking(sum(size * nr for size, nr in sizes.items()) // MIB)

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

    def test_the_kernels_own_pages(self):
        """Pipes keep what is in them in pages that nobody can reclaim or move."""
        pipes = []
        block = bytes(MIB)
        for _ in range(BURST):
            out, into = os.pipe2(os.O_NONBLOCK)
            pipes += [out, into]
            fcntl.fcntl(into, F_SETPIPE_SZ, MIB)
            self.assertEqual(os.write(into, block), MIB)
        self.assert_served_by_waking()
        for fd in pipes:
            os.close(fd)

    def test_slabs(self):
        """Message queues: each message is objects of a page or less."""
        slab = harness.meminfo()["Slab"]
        nr = (BURST << 10) // 64
        sockets = []
        for _ in range(nr // 16):
            import socket
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            sockets.append(pair)
            if len(sockets) > 200:
                break
        block = bytes(3000)
        for one, _ in sockets:
            one.setblocking(False)
            one.setsockopt(1, 32, 4 << 20)  # SO_SNDBUFFORCE
            with_room = True
            for _ in range(480):
                try:
                    one.send(block)
                except BlockingIOError:
                    break
        grown = (harness.meminfo()["Slab"] - slab) // 1024
        self.assertGreater(grown, BURST // 2)
        self.assert_served_by_waking(grown)
        for pair in sockets:
            for one in pair:
                one.close()


class Fork(Test):
    compact_first = False

    def test_a_big_process_forks_and_both_go_on_writing(self):
        with Memory(BURST) as memory:
            memory.touch()
            self.compact()

            def child():
                memory.touch(2)
                yield memory.wrong_at(2)

            with Child(child) as forked:
                self.assertIsNone(forked.step())
                self.assertIsNone(memory.wrong_at())
                self.assert_served_by_waking()


class Refault(Test):
    """Files that were in the cache, were evicted by reclaim, and are wanted again."""

    compact_first = False

    def setUp(self):
        super().setUp()
        self.file = open("/mnt/refault", "w+b", buffering=0)
        self.addCleanup(os.unlink, "/mnt/refault")
        self.addCleanup(self.file.close)
        block = os.urandom(MIB)
        for _ in range(BURST):
            self.file.write(block)
        os.fsync(self.file.fileno())
        with self.mapping() as view:
            self.assertEqual(sum(view[::PAGE]), block[::PAGE].__iter__ and BURST * sum(block[::PAGE]))
            # Reclaim leaves shadows behind, by which pages that come back are known
            view.madvise(MADV_PAGEOUT)
        self.assertLess(harness.meminfo()["Cached"], BURST * 1024 // 2, "it is still in the cache")
        self.compact()

    def mapping(self):
        return mmap.mmap(self.file.fileno(), 0, prot=mmap.PROT_READ)

    def assert_refaulted(self):
        self.assertGreater(self.moved(["workingset_refault_file"])["workingset_refault_file"], BURST * 256 // 2)
        self.assert_served_by_waking()

    def test_reading_it_again(self):
        self.file.seek(0)
        while self.file.read(MIB):
            pass
        self.assert_refaulted()

    def test_faulting_it_in_again(self):
        with self.mapping() as view:
            sum(view[::PAGE])
        self.assert_refaulted()

    def test_faulting_it_in_again_at_random(self):
        with self.mapping() as view:
            view.madvise(mmap.MADV_RANDOM)
            pages = list(range(0, len(view), 4 * PAGE))
            random.Random(1).shuffle(pages)
            for offset in pages:
                view[offset]
        self.assertEqual(self.moved(), {})
        self.assertGreaterEqual(self.moved(["workingset_refault_file"])["workingset_refault_file"], len(pages) * 9 // 10)


class NoDemand(Test):
    compact_first = False
    # Slices that may wake in passing: for tables, buffers and inodes.
    FEW = 2

    def tell(self, what):
        print(f"({what}: {self.woken()} slices woken) ", end="", flush=True)

    def file(self, mib):
        """A file that no page of was ever read."""
        self.addCleanup(os.unlink, "/mnt/stream")
        Demand.write("/mnt/stream", mib)
        self.addCleanup(subprocess.run, ["sync"], check=True)
        subprocess.run(["umount", "/mnt"], check=True)
        subprocess.run(["mount", "/dev/vda", "/mnt"], check=True)

    def test_streaming_a_file_recycles_cache(self):
        self.file(2 * BURST)
        self.compact()
        with open("/mnt/stream", "rb", buffering=0) as file:
            while file.read(MIB):
                pass
        self.tell("read")
        self.assertLessEqual(self.woken(), self.FEW)
        self.assertEqual(self.moved(["pswpout", "oom_kill"]), {})

    def test_streaming_through_a_mapping_recycles_cache(self):
        self.file(2 * BURST)
        self.compact()
        with open("/mnt/stream", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            view.madvise(mmap.MADV_SEQUENTIAL)
            for start in range(0, len(view), 8 * MIB):
                sum(view[start:start + 8 * MIB:PAGE])
                view.madvise(mmap.MADV_DONTNEED, start, 8 * MIB)
        self.tell("mapped")
        self.assertLessEqual(self.woken(), self.FEW)
        self.assertEqual(self.moved(["pswpout", "oom_kill"]), {})

    def test_streaming_leaves_memory_in_use_alone(self):
        self.file(2 * BURST)
        with Memory(100) as memory:
            memory.touch()
            self.compact()
            with open("/mnt/stream", "rb", buffering=0) as file:
                while file.read(MIB):
                    pass
            self.assertEqual(self.moved(["pswpout", "pswpin", "oom_kill"]), {})
            self.assertIsNone(memory.wrong_at())

    def test_a_control_group_at_its_limit_is_not_the_machine(self):
        group = Path("/sys/fs/cgroup/limited")
        dev.write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
        group.mkdir()
        self.addCleanup(group.rmdir)
        dev.write(group / "memory.high", 40 * MIB)

        def child():
            dev.write(group / "cgroup.procs", os.getpid())
            with Memory(BURST) as memory:
                yield memory.touch().wrong_at()
                yield int(dev.read(group / "memory.current"))

        self.compact()
        with Child(child) as limited:
            self.assertIsNone(limited.step())
            self.assertLess(limited.step(), 2 * 40 * MIB)
            self.tell("cgroup")
            self.assertLessEqual(self.woken(), self.FEW)
            # It swapped, which is what was asked for
            self.assertIn("pswpout", self.moved())
            self.assertEqual(self.moved(["oom_kill", "pgsteal_kswapd"]), {})

    def test_a_huge_page_alone_is_not_worth_a_slice(self):
        old = dev.read(THP / "defrag").split("[")[1].split("]")[0]
        self.addCleanup(dev.write, THP / "defrag", old)
        for defrag in ("never", "defer"):
            with self.subTest(defrag=defrag):
                dev.write(THP / "defrag", defrag)
                self.huge_faults_fall_back()

    def huge_faults_fall_back(self):
        """Faults until huge pages fall back, with plenty free in scattered pages and some slices off."""
        harness.wake(self.device)
        off = self.device.request("offline_free", max_slices=8)
        self.assertEqual(off.nr_done, 8)
        scattered = Memory(512)
        scattered.touch().punch(PAGE * 4)
        free = harness.meminfo()["MemFree"] // 1024 - harness.meminfo()["RamsliceOffline"] // 1024
        # All but what is scattered and the reserve
        bulk = Memory((free - 256 - 150) // 2 * 2, huge=True)
        try:
            bulk.touch()
            self.before = harness.vmstat()
            self.woken_before = harness.woken_by_demand(self.device)
            with Memory(2 * 150, huge=True) as memory:
                for start in range(0, memory.bytes, 2 * MIB):
                    memory.touch(1, start, start + 2 * MIB)
                    if self.moved(["thp_fault_fallback"]).get("thp_fault_fallback", 0) >= 10:
                        break
                else:
                    self.fail(f"no huge page fell back: {self.moved(['thp_fault_alloc', 'thp_fault_fallback'])}")
                self.assertEqual(self.woken(), 0)
                self.assertEqual(len(harness.ids(self.device, dev.OFFLINE)), 8)
        finally:
            scattered.map.close()
            bulk.map.close()


class Afterwards(Test):
    def test_slices_go_offline_again_when_the_burst_is_over(self):
        for _ in range(2):
            with Memory(BURST) as memory:
                memory.touch()
                self.assertLess(len(harness.ids(self.device, dev.OFFLINE)), self.nr_offline - 3)
            self.assertGreaterEqual(harness.compact(self.device), self.nr_offline - 2)

    def test_the_reserve_is_filled_again_ahead_of_need(self):
        zones = {zone.index: zone for zone in self.device.zones() if zone.nr_offline}
        with Memory(BURST) as memory:
            memory.touch()

            def filled():
                return all(zone.free_pages >= zones[zone.index].awake_reserve_pages - 1024
                           for zone in self.device.zones() if zone.index in zones)

            self.assertTrue(harness.until(filled))


class Races(Test):
    compact_first = False

    def test_a_burst_in_the_midst_of_compaction(self):
        outcomes = []
        with Memory(800) as memory:
            memory.touch()
            for round in range(3):
                harness.wake(self.device)
                memory.touch()
                memory.punch(16 << 10)
                before = harness.vmstat()
                done = []
                worker = threading.Thread(target=lambda: done.append(self.device.request(
                    "compact", flags=dev.IGNORE_BACKOFF)))
                with dev.Device(os.O_RDONLY) as reader, Memory(900) as burst:
                    worker.start()
                    harness.until(lambda: len(harness.ids(reader, dev.OFFLINE)) > 20 + 6 * round)
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
        """All that is left awake is in the slice that is being emptied, slowly."""
        with harness.simulator(off_delay_us=300_000) as parameters:
            done = []
            worker = threading.Thread(target=lambda: done.append(self.device.request("compact")))
            begin = harness.vmstat()
            with dev.Device(os.O_RDONLY) as reader, Memory(1500) as memory:
                worker.start()
                self.assertTrue(harness.until(lambda: harness.ids(reader, dev.OFFLINE)))
                memory.touch()
                dev.write(parameters / "off_delay_us", 0)
                worker.join()
                self.assertIsNone(memory.wrong_at())
            end = harness.vmstat()
            self.assertEqual({n: end[n] - begin[n] for n in ("oom_kill", "pswpout") if end[n] != begin[n]}, {})
            print(f"({done[0].nr_done} done, {done[0].why()}) ", end="", flush=True)
            self.device.request("online_all")
            self.assertEqual(harness.violations(), 0)


if __name__ == "__main__":
    harness.main()
