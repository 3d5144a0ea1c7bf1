# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages that move in a way of their own: compressed memory, the balloon's, huge pages.

QEMU's monitor is wired to a port of the guest (ramlab/guest/qemu_monitor.py).
"""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, check_contents
from ramlab.guest.pinned_memory import PageMovementTest, PatternedMemory, by_slice
from ramlab.guest.qemu_monitor import monitor
from ramlab.pytest_vm import vm

pytestmark = [
    pytest.mark.slow,
    vm(
        mem="1536M",
        append="ramslice=16M movablecore=1G",
        qemu=(
            "-chardev socket,id=monitor,path={folder}/qmp,server=on,wait=off",
            "-mon chardev=monitor,mode=control",
            (
                "-chardev socket,id=wire,path={folder}/qmp,server=off -device"
                " virtio-serial-pci,id=control"
            ),
            "-device virtserialport,bus=control.0,chardev=wire,name=qmp -device virtio-balloon-pci",
        ),
    ),
]

ZRAM = "/dev/zram0"


def others(row):
    """Pages of a slice that are neither free nor on an LRU list."""
    return row.nr_pages - row.counter("free") - row.counter("lru_anon") - row.counter("lru_file")


class Compressed(PageMovementTest):
    """A compressed disk: zsmalloc's pages are on no list, and its objects cross their boundaries.
    """

    MIB = 128

    def setUp(self):
        super().setUp()
        subprocess.run(["modprobe", "-q", "zram"], check=False)
        dev.write("/sys/block/zram0/disksize", f"{self.MIB}M")
        self.addCleanup(dev.write, "/sys/block/zram0/reset", 1)
        # Pages compress to different sizes, down to not at all
        noise = os.urandom(8 * PAGE)
        with open(ZRAM, "wb", buffering=0) as disk:
            for number in range(self.MIB):
                disk.write(self.megabyte(noise, number))
        self.noise, self.blank = noise, set()
        os.sync()
        self.assert_right()
        self.slices = [
            row.id for row in self.device.snapshot() if row.zone == 3 and others(row) > 1024
        ]
        self.assertGreaterEqual(len(self.slices), 2)

    def megabyte(self, noise, number):
        pages = []
        for page in range(256):
            random = (page * 37 + number * 11) % PAGE
            start = (page * 101 + number * 7) % (7 * PAGE)
            pages.append(noise[start:start + random] + bytes([number]) * (PAGE - random))
        return b"".join(pages)

    def assert_right(self):
        dev.write("/proc/sys/vm/drop_caches", 1)
        with open(ZRAM, "rb", buffering=0) as disk:
            for number in range(self.MIB):
                expected = bytes(MIB) if number in self.blank else self.megabyte(self.noise, number)
                self.assertEqual(disk.read(MIB), expected, f"megabyte {number}")

    def test_slices_full_of_compressed_pages_are_emptied_one_by_one(self):
        before = dev.vmstat("nr_zspages")
        for number in self.slices[:3]:
            done = self.assert_goes(number)
            self.assertGreater(done.pages_migrated, 1024)
        self.assert_right()
        self.assertLessEqual(abs(dev.vmstat("nr_zspages") - before), 64)

    def test_compaction_packs_compressed_pages(self):
        """These pages are on no LRU list, as those that cannot move."""
        with open(ZRAM, "r+b", buffering=0) as disk:
            for number in set(range(self.MIB)) - set(range(0, self.MIB, 8)):
                disk.seek(number * MIB)
                disk.write(bytes(MIB))
                self.blank.add(number)
        os.sync()
        # The rest moves together: slices are nearly empty, and fewer can hold it and the reserve
        dev.write("/sys/block/zram0/compact", 1)
        used = {
            row.id: others(row)
            for row in self.device.snapshot()
            if row.zone == 3 and others(row) > 64
        }
        done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
        off = set(harness.ids(self.device, dev.OFFLINE))
        print(f"({len(off & set(used))} of {len(used)} went) ", end="", flush=True)
        self.assertTrue(off & set(used), (done, used))
        self.assert_right()


class Balloon(PageMovementTest):
    """Pages that the hypervisor has taken."""

    MIB = 160

    @classmethod
    def setUpClass(cls):
        cls.monitor = monitor()
        cls.all = cls.monitor.cmd("query-memory-size-summary")["base-memory"]

    def setUp(self):
        super().setUp()
        self.addCleanup(self.inflate, 0)
        self.inflate(self.MIB)
        self.inflated = self.in_balloon()
        self.assertGreater(len(self.inflated), self.MIB * 200)

    def inflate(self, mib):
        """Sets the size of the balloon, and waits until it has that size."""
        self.monitor.cmd("balloon", value=self.all - mib * MIB)
        want = self.all - mib * MIB
        self.assertTrue(harness.until(
            lambda: abs(self.monitor.cmd("query-balloon")["actual"] - want) < MIB))

    def in_balloon(self):
        """PageOffline page frames of online slices, which are the balloon's."""
        found = []
        for row in self.device.snapshot():
            if row.state == dev.ONLINE:
                flags = pinned_memory.page_flags(row.id * row.nr_pages, row.nr_pages)
                found += [
                    row.id * row.nr_pages + n
                    for n, word in enumerate(flags)
                    if word >> pinned_memory.KPF_OFFLINE & 1
                ]
        return found

    def test_slices_with_balloon_pages_are_emptied_one_by_one(self):
        with PatternedMemory(32) as memory:
            moved = dev.vmstat("balloon_migrate")
            full = [number for number, nr in by_slice(self.device, self.inflated).items()
                    if nr > 1024 and self.row(number).zone == 3][:3]
            self.assertTrue(full)
            for number in full:
                self.assertGreater(self.assert_goes(number).pages_migrated, 1024)
            self.assertGreater(dev.vmstat("balloon_migrate"), moved + 1024)
            self.assertEqual(len(self.in_balloon()), len(self.inflated))
            check_contents(memory)

    def test_compaction_packs_balloon_pages_and_the_balloon_still_deflates(self):
        with PatternedMemory(32) as memory:
            # Half of the balloon goes back, so that there is something to pack
            before = by_slice(self.device, self.inflated)
            self.inflate(self.MIB // 2)
            held = len(self.in_balloon())
            done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
            off = set(harness.ids(self.device, dev.OFFLINE))
            self.assertTrue(off & set(before), done)
            self.assertEqual(len(self.in_balloon()), held)
            self.assertGreater(sum(zone.nr_offline for zone in self.device.zones()), 20)
            self.inflate(0)
            self.assertEqual(self.in_balloon(), [])
            check_contents(memory)


class HugePages(PageMovementTest):
    def test_anonymous_huge_pages_move_whole(self):
        with PatternedMemory(64, huge=True) as memory:
            huge = memory.smaps("AnonHugePages")
            self.assertGreater(huge, 32 * 1024)
            for number in self.holding(memory)[:3]:
                done = self.assert_goes(number)
                self.assertGreater(done.huge_moved, 0)
                self.assertEqual(done.huge_split, 0)
                self.assertEqual(memory.smaps("AnonHugePages"), huge)
            check_contents(memory)
            # The same for many slices at once, as long as whole pageblocks are free elsewhere
            done = self.device.request("compact", flags=dev.IGNORE_BACKOFF, max_slices=16)
            self.assertEqual(done.huge_split, 0, done)
            self.assertEqual(memory.smaps("AnonHugePages"), huge)
            check_contents(memory)

    @contextlib.contextmanager
    def tmpfs(self):
        folder = Path("/tmp/huge")
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "huge=always", "tmpfs", folder], check=True)
        try:
            with open(folder / "file", "w+b") as file:
                file.truncate(48 * MIB)
                with PatternedMemory(48, file=file.fileno()) as memory:
                    yield memory
        finally:
            subprocess.run(["umount", folder], check=True)
            folder.rmdir()

    def test_huge_pages_of_tmpfs_move_whole(self):
        with self.tmpfs() as memory:
            huge, mapped = dev.meminfo("ShmemHugePages"), memory.smaps("ShmemPmdMapped")
            self.assertGreater(huge, 32 * 1024)
            self.assertGreater(mapped, 0)
            for number in self.holding(memory)[:2]:
                done = self.assert_goes(number)
                self.assertGreater(done.huge_moved, 0)
                self.assertEqual(done.huge_split, 0)
                self.assertEqual(dev.meminfo("ShmemHugePages"), huge)
                self.assertEqual(memory.smaps("ShmemPmdMapped"), mapped)
            check_contents(memory)

    def test_huge_pages_of_256_kib_move_whole(self):
        """The dearest slices have only free runs of 64 KiB, and others have free pageblocks."""
        sizes = Path("/sys/kernel/mm/transparent_hugepage")
        stats = sizes / "hugepages-256kB/stats"
        with harness.Memory(dev.meminfo("MemFree") // 2048) as scattered:
            scattered.touch().punch()
            with pinned_memory.setting(sizes / "hugepages-2048kB/enabled", "never"), \
                    pinned_memory.setting(sizes / "hugepages-256kB/enabled", "madvise"), \
                    PatternedMemory(32, huge=True) as memory:
                self.assertGreater(int(dev.read(stats / "anon_fault_alloc")), 100)
                # One slice only: migrate_pages() takes a folio it has unmapped for partly unmapped,
                # and splits it the next time
                split = dev.read(stats / "split")
                done = self.assert_goes(self.holding(memory)[0])
                self.assertGreater(done.pages_migrated, 1024)
                self.assertEqual(dev.read(stats / "split"), split)
                check_contents(memory)
            check_contents(scattered)

    def test_huge_pages_are_split_where_no_pageblock_is_free(self):
        with PatternedMemory(64, huge=True) as memory:
            with pinned_memory.no_free_block() as scattered:
                # Clean cache is dropped for the first slices, which frees some pageblocks
                for number in self.holding(memory):
                    huge = memory.smaps("AnonHugePages")
                    done = self.assert_goes(number)
                    if done.huge_split:
                        break
                else:
                    self.fail("each huge page had a free pageblock")
                self.assertLess(memory.smaps("AnonHugePages"), huge)
                check_contents(memory)
                check_contents(scattered)
