# SPDX-License-Identifier: GPL-2.0-or-later
"""Demand of the kernel's own pages, and of allocations that cannot wait.

In a machine of its own: kernel pages that stay behind would keep slices online for other tests.
"""

import ctypes
import os
import socket
import struct

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.demand import DemandTest, prepare
from ramlab.guest.harness import MIB, PAGE
from ramlab.pytest_vm import vm

SO_SNDBUFFORCE = 32
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

pytestmark = vm(mem="2G", disk="1G", append="ramslice=32M", fresh=True)


def setUpModule():
    prepare()


class TrieTest(DemandTest):
    """BPF tries, whose nodes are allocated without sleeping (GFP_NOWAIT)."""

    def key(self, number):
        self.held_key = ctypes.create_string_buffer(
            struct.pack("=I", 32) + struct.pack(">I", number), 8
        )
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
            self.bpf(
                2, struct.pack("IxxxxQQQ", fd, *map(ctypes.addressof, (self.key(number), value)), 0)
            )


class KernelDemand(TrieTest):
    """Leaves scattered kernel pages behind, which keep slices online."""

    def test_atomic_kernel_allocations(self):
        """Single pages and 64 KiB."""
        sizes = {3 << 10: 20 * 256, 60 << 10: (self.burst - 20) * 16}
        tries = [(self.trie(size), size, nr) for size, nr in sizes.items()]
        for fd, size, nr in tries:
            self.fill(fd, size, range(nr))
        self.assert_served_by_waking()
        for fd, *_ in tries:
            os.close(fd)

    def test_kernel_pages(self):
        self.enterContext(pinned_memory.full_pipes(self.burst))
        self.assert_served_by_waking()

    def test_slab_objects(self):
        """Unread messages are objects of a page or less."""
        slab = harness.meminfo()["Slab"]
        pairs = [
            socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(self.burst // 2)
        ]
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


@vm(mem="2560M", disk="1G", append="ramslice=32M hugetlb_cma=1G", qemu=("-cpu max",), fresh=True)
class BesideCma(DemandTest):
    """Much is free, but only where the kernel may not put pages of its own (CMA)."""

    compact_first = False

    def wake_for(self, beyond, sleeping):
        harness.load_sim(sleeping=sleeping)
        self.addCleanup(harness.unload_sim)
        self.addCleanup(self.device.request, "online_all")
        harness.compact(self.device)
        info = self.device.info()
        self.assertGreater(info.offline_pages * PAGE // MIB, 2 * beyond)
        cma = harness.meminfo()["CmaFree"] // 1024
        self.assertGreater(cma, 2 * beyond)
        # All that kernel pages find awake, were nothing kept in reserve
        room = max(0, info.free_pages * PAGE // MIB - cma)
        self.begin()
        self.enterContext(pinned_memory.full_pipes(room + beyond))
        print(f"({room} MiB besides {cma}, {self.woken()} woken) ", end="", flush=True)
        self.assertGreaterEqual(self.woken(), beyond // 32)
        self.assertEqual(self.moved(), {})
        harness.check_violations(0)

    def test_kernel_pages_wake_slices(self):
        self.wake_for(150, sleeping=0)

    def test_kernel_pages_wake_slices_of_a_driver_that_sleeps(self):
        self.wake_for(150, sleeping=1)


class SleepingDriver(TrieTest):
    """Allocations that cannot wait use the awake reserve while the driver does not answer."""

    compact_first = False
    # A node of this size is a page, and each key but the first takes two
    SIZE = 3 << 10

    def setUp(self):
        super().setUp()
        self.keep_room()
        limit = dev.SYSFS / "driver_timeout_ms"
        self.addCleanup(dev.write, limit, dev.read(limit))
        # It hangs as long as the test wants, and no slice is lost
        dev.write(limit, 600_000)
        harness.load_sim(sleeping=1)
        self.addCleanup(self.answer)
        self.trie_fd = self.trie(self.SIZE)
        self.addCleanup(os.close, self.trie_fd)
        self.compact()

    def keep_room(self):
        """Gives the interpreter room of its own: once memory is short, its requests would wait
        for a slice.
        """
        harness.libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        harness.libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)
        b"\1" * (16 * MIB)
        # Some objects of each size stay, so that their arenas are not given back
        objects = [bytes(size) for _ in range(2000) for size in range(16, 480, 16)]
        self.room = objects[::97]

    def answer(self):
        """Lets every call of the driver return."""
        dev.write(harness.SIM / "hang_wake", 0)
        dev.write(harness.SIM / "hanging", 0)
        self.device.request("online_all")
        harness.check_violations(0)
        harness.unload_sim()

    def test_atomic_allocations_within_the_reserve_do_not_wait(self):
        dev.write(harness.SIM / "hang_wake", len(self.device.snapshot()))
        off = set(harness.ids(self.device, dev.OFFLINE))
        zones = [zone for zone in self.device.zones() if zone.node == 0]
        zone = max(zones, key=lambda zone: zone.offline_pages)
        least = harness.zoneinfo()[0, zone.name.decode()]["min"]
        # Ordinary allocations leave the min watermark and the reserve of high orders; 1024 pages
        # are for other tasks
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
        # kswapd waits no longer than the driver says that waking takes
        self.assertLessEqual(set(self.moved()), {"pgscan_kswapd", "pgsteal_kswapd"})
        print(
            f"({2 * number} pages, reserve {zone.awake_reserve_pages}, {len(waking)} waking) ",
            end="",
            flush=True,
        )

    def free_pages(self, index):
        return next(zone.free_pages for zone in self.device.zones() if zone.index == index)
