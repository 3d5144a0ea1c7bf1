#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Every refusal says why: each reason is brought about, and told alike by request, snapshot, tracepoint and pages.

Pages and Content want slices of 2 MiB (a pageblock), CMA, and a 1 GiB page reserved at boot; Geometry and Requests
slices of 32 MiB and memory that is no multiple of that; Foreign a virtio-mem device that is plugged in part; SlowDisk
a disk that takes seconds. Reasons that other tests bring about: quarantined and power (test_power), pressure
(test_demand), deadline and signal (test_device).
"""

import ctypes
import errno
import fcntl
import mmap
import os
import re
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

from ramlab.guest import hard
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Child, Memory

KPF_LOCKED, KPF_LRU, KPF_WRITEBACK = 0, 5, 8
SYNC_FILE_RANGE_WRITE = 2
GUP_TEST = Path("/sys/kernel/debug/gup_test")
# _IOW('g', 7, struct pin_longterm_test), _IO('g', 8)
PIN_START, PIN_STOP = 1 << 30 | 24 << 16 | ord("g") << 8 | 7, ord("g") << 8 | 8


class Pin:
    """Long-term pins of a Memory, as a device driver would have them."""

    def __init__(self, memory):
        self.fd = os.open(GUP_TEST, os.O_RDWR)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory.map))
        fcntl.ioctl(self.fd, PIN_START, struct.pack("QQI4x", address, memory.bytes, 1))

    def release(self):
        if self.fd is not None:
            fcntl.ioctl(self.fd, PIN_STOP)
            os.close(self.fd)
            self.fd = None


def lock(mapped):
    """mlock() of a whole mapping."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    if harness.libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped))):
        raise OSError(ctypes.get_errno(), "mlock")


class Test(harness.Test):
    def setUp(self):
        super().setUp()
        dev.debugfs()
        self.block = self.device.info().slice_bytes // PAGE

    def online(self):
        return [s.id for s in self.device.snapshot() if s.state == dev.ONLINE]

    def holding(self, wanted, numbers=None):
        """Slices whose first obstacle is `wanted`, as their pages tell."""
        found = []
        for number in self.online() if numbers is None else numbers:
            first = next((run for run in self.device.pages(number) if run.reason), None)
            if first and first.why() == wanted:
                found.append(number)
        return found

    def trace(self, number, request):
        """Carries out a request; its outcome, and the reasons that the tracepoints told of the slice."""
        (hard.TRACING / "trace").write_text("")
        for event in ("ramslice_refuse", "ramslice_offline"):
            dev.write(hard.TRACING / "events/ramslice" / event / "enable", 1)
        try:
            done = request()
            lines = dev.read(hard.TRACING / "trace").splitlines()
        finally:
            dev.write(hard.TRACING / "events/ramslice/enable", 0)
        told = re.compile(rf"ramslice_(?:refuse|offline): id={number} .*reason=([\w-]+)")
        return done, [match[1] for line in lines if (match := told.search(line))]

    def refuse(self, number, why, status=errno.EBUSY, **fields):
        """The request, the tracepoint and, where it is the slice's own reason, its row agree."""
        fields = {"flags": dev.IGNORE_BACKOFF} | fields
        done, traced = self.trace(number, lambda: self.device.request("offline", id=number, wait_busy=10, **fields))
        self.assertEqual((done.status, done.why(), done.nr_done), (status, why, 0), f"slice {number}: {done}")
        self.assertEqual(done.last_id, number)
        self.assertEqual(traced[-1:], [why], f"slice {number}")
        row = self.row(number)
        self.assertEqual(row.state, dev.ONLINE)
        return row

    def reasons(self, number):
        """All that stands in the way of a slice."""
        return {run.why() for run in self.device.pages(number) if run.reason}

    def blocked(self, number):
        return bool(self.reasons(number))

    def refused_for_content(self, number, why):
        """As above for what it holds: the row keeps the reason, and it is left alone for a while."""
        row = self.refuse(number, why)
        self.assertEqual(dev.REASONS[row.reason], why)
        self.assertTrue(row.flags & (dev.BACKOFF | dev.UNRECLAIMABLE))
        done = self.device.request("offline", id=number)
        if not row.flags & dev.UNRECLAIMABLE:
            self.assertEqual((done.status, done.why()), (errno.EAGAIN, "backoff"))

    def emptied(self, number):
        """It can be emptied now; nothing was left behind by the refusals."""
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, done.nr_done), (0, 1), done)
        self.device.request("online", id=number)


class Pages(Test):
    """RAMSLICE_IOC_PAGES itself."""

    def call(self, **fields):
        rows = (dev.Run * 64)()
        head = dev.Pages(size=48, entry_size=56, nr=64, id=self.online()[0], runs=ctypes.addressof(rows))
        for name, value in fields.items():
            setattr(head, name, value)
        fcntl.ioctl(self.device.fd, dev.IOC_PAGES, head)
        return head, rows

    def test_runs_leave_no_page_out_and_agree_with_the_counters(self):
        compared = 0
        for number in self.online()[::16]:
            before = self.row(number)
            runs = self.device.pages(number)
            self.assertEqual(sum(run.nr_pages for run in runs), self.block)
            self.assertEqual(runs[0].pfn, number * self.block)
            for a, b in zip(runs, runs[1:]):
                self.assertEqual(a.pfn + a.nr_pages, b.pfn)
                self.assertNotEqual(bytes(a)[12:], bytes(b)[12:], "two runs that are alike")
            if list(before.counters) != list(self.row(number).counters):
                continue
            compared += 1
            of = lambda *names: sum(run.nr_pages for run in runs if run.what() in names)
            lru = sum(run.nr_pages for run in runs if run.flags & dev.LRU)
            self.assertEqual(of("free"), before.counter("free"), number)
            self.assertEqual(lru, before.counter("lru_anon") + before.counter("lru_file"), number)
        self.assertGreater(compared, 10)

    def test_any_number_of_calls_tells_the_same(self):
        number = self.holding("slab")[0]
        for _ in range(5):
            whole, single = self.device.pages(number), self.device.pages(number, room=1)
            # Runs end where a call ends, so compare page by page
            spread = [[(run.pfn + i, *bytes(run)[12:]) for run in runs for i in range(run.nr_pages)]
                      for runs in (whole, single)]
            if spread[0] == spread[1]:
                return
        self.fail("they differed five times")

    def test_a_slice_that_is_off_is_one_run(self):
        number, = self.empty()
        self.assertEqual(self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF).status, 0)
        run, = self.device.pages(number)
        self.assertEqual((run.what(), run.why(), run.nr_pages), ("off", "none", self.block))

    def test_bad_input_has_its_own_errno(self):
        for number, fields in (
            (errno.EINVAL, {"flags": 1}), (errno.EINVAL, {"reserved": 1}), (errno.EINVAL, {"nr": 0}),
            (errno.EINVAL, {"entry_size": 55}), (errno.EINVAL, {"entry_size": PAGE + 1}), (errno.EINVAL, {"size": 47}),
            (errno.ENOENT, {"id": 1 << 20}), (errno.ENOENT, {"id": 2**32 - 1}), (errno.EFAULT, {"runs": 1}),
        ):
            with self.refused(number, str(fields)):
                self.call(**fields)
        head, _ = self.call(first=2**32 - 1)
        self.assertEqual((head.nr, head.nr_pages), (0, self.block))

    def test_only_root_may_see(self):
        def nobody(fd):
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            yield
            device = dev.Device.__new__(dev.Device)
            device.fd = fd
            # Looking at slices is a matter of the file, looking at pages is not
            device.info()
            try:
                device.pages(1)
            except OSError as error:
                yield error.errno

        with Child(nobody, self.device.fd) as child:
            child.step()
            self.assertEqual(child.step(), errno.EPERM)

    def test_files_and_memory_are_what_they_are(self):
        folder = dev.file_system()
        if not folder:
            self.skipTest("the guest has no disk")
        self.addCleanup(subprocess.run, ["umount", folder])
        for folder, what in ((folder, "file"), ("/dev/shm", "shmem")):
            with self.subTest(what), tempfile.NamedTemporaryFile(dir=folder) as file:
                file.write(os.urandom(8 * MIB))
                file.flush()
                os.fsync(file.fileno())
                stat = os.fstat(file.fileno())
                mapped = mmap.mmap(file.fileno(), 8 * MIB)
                lock(mapped)
                slices = {number: [run for run in self.device.pages(number)
                                   if (run.inode, run.dev_major, run.dev_minor) ==
                                   (stat.st_ino, os.major(stat.st_dev), os.minor(stat.st_dev))]
                          for number in self.online()}
                mine = [run for runs in slices.values() for run in runs]
                # A few may be locked, and so nameless, at the moment
                self.assertGreaterEqual(sum(run.nr_pages for run in mine), 2040)
                self.assertEqual({run.what() for run in mine}, {what})
                # Where two zones meet, a slice cannot be emptied, whatever it holds
                reasons = {row.id: dev.REASONS[row.reason] for row in self.device.snapshot()}
                for number, runs in slices.items():
                    allowed = {"none"} | ({"zone-end"} & {reasons[number]})
                    self.assertLessEqual({run.why() for run in runs}, allowed, number)
                self.assertTrue(all(run.flags & dev.MLOCKED and run.nr_maps for run in mine))
                self.assertFalse(any(run.flags & dev.DROP for run in mine))


class Content(Test):
    """What a slice holds. Slices are single pageblocks, so that most have one thing to hold."""

    def test_the_first_obstacle_is_the_reason(self):
        """Of all there are, without provoking any: request and pages ask the same function."""
        tried = {}
        for row in self.device.snapshot():
            if row.state != dev.ONLINE or row.flags & dev.UNRECLAIMABLE:
                continue
            first = next((run for run in self.device.pages(row.id) if run.reason), None)
            if not first or tried.setdefault(first.why(), 0) >= 3:
                continue
            tried[first.why()] += 1
            done = self.device.request("offline", id=row.id, flags=dev.IGNORE_BACKOFF)
            self.assertEqual(done.why(), first.why(), f"slice {row.id}: {first}")
        print(f"({tried}) ", end="", flush=True)
        self.assertTrue({"slab", "unmovable"} <= set(tried), tried)

    def test_boot(self):
        self.refused_for_content(self.holding("boot")[0], "boot")

    def test_slab(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            before, new = set(self.holding("slab")), []
            # Slices that hold slabs already may have room for many
            for n in range(60000):
                os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY))
                if n % 6000 == 5999 and (new := [number for number in self.holding("slab") if number not in before]):
                    break
            self.assertTrue(new)
            self.refused_for_content(new[0], "slab")

    def test_pagetable(self):
        # A page table for each 2 MiB, all of it the zero page
        memory = mmap.mmap(-1, 6 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | harness.MAP_NORESERVE)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, len(memory), 2 * MIB):
            memory[at]
        found = self.holding("pagetable")
        self.assertTrue(found)
        self.refused_for_content(found[0], "pagetable")
        memory.close()

    def test_unmovable(self):
        pipes = [os.pipe() for _ in range(128)]
        for _, end in pipes:
            os.write(end, bytes(64 << 10))
        found = self.holding("unmovable")
        self.assertTrue(found)
        self.refused_for_content(found[0], "unmovable")
        for end in (end for ends in pipes for end in ends):
            os.close(end)

    def test_pinned(self):
        with Memory(4) as memory:
            memory.touch()
            # Pages that are in a CPU's batch still tell nothing of themselves
            dev.write("/proc/sys/vm/compact_memory", 1)
            pin = Pin(memory)
            self.addCleanup(pin.release)
            runs = {number: [run for run in self.device.pages(number) if run.flags & dev.PINNED]
                    for number in self.online()}
            runs = {number: found for number, found in runs.items() if found}
            self.assertEqual(sum(run.nr_pages for found in runs.values() for run in found), 1024)
            # Where no slice can be emptied anyway, all pages have that reason
            runs = {number: found for number, found in runs.items() if not self.row(number).flags & dev.UNRECLAIMABLE}
            self.assertEqual({(run.what(), run.why()) for found in runs.values() for run in found}, {("anon", "pinned")})
            self.assertTrue(all(run.extra_refs for found in runs.values() for run in found))
            number, = self.holding("pinned", runs)[:1]
            self.refused_for_content(number, "pinned")
            pin.release()
            self.emptied(number)
            self.assertIsNone(memory.wrong_at())

    def test_a_reference_that_nobody_announced(self):
        """Data lent to a pipe: seen before anything else is moved."""
        with Memory(2) as memory:
            memory.touch()
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory.map))
            ends = os.pipe()
            fcntl.fcntl(ends[0], 1031, MIB)
            vector = (ctypes.c_void_p * 2)(address, 64 * PAGE)
            lent = harness.libc.vmsplice(ends[1], vector, ctypes.c_size_t(1), 0)
            self.assertEqual(lent, 64 * PAGE)
            found = [number for number in self.online()
                     if any(run.what() == "anon" and run.extra_refs and run.flags & dev.LRU
                            for run in self.device.pages(number)) and not self.blocked(number)]
            self.assertTrue(found)
            for flags in (dev.DRY_RUN, 0):
                done = self.device.request("offline", id=found[0], wait_busy=10, flags=dev.IGNORE_BACKOFF | flags)
                self.assertEqual((done.status, done.why(), done.pages_migrated), (errno.EBUSY, "pinned", 0))
            self.refused_for_content(found[0], "pinned")
            for end in ends:
                os.close(end)
            self.emptied(found[0])
            self.assertIsNone(memory.wrong_at())

    def test_hwpoison(self):
        subprocess.run(["modprobe", "hwpoison-inject"], check=False)
        folder = Path("/sys/kernel/debug/hwpoison")
        if not folder.exists():
            self.skipTest("the kernel has no hwpoison-inject")
        number, = self.empty()
        pfn = number * self.block + 77
        dev.write(folder / "corrupt-pfn", pfn)
        run, = [run for run in self.device.pages(number) if run.reason]
        self.assertEqual((run.what(), run.why(), run.pfn, run.nr_pages), ("hwpoison", "hwpoison", pfn, 1))
        self.refused_for_content(number, "hwpoison")
        dev.write(folder / "unpoison-pfn", pfn)
        self.assertFalse(self.blocked(number))

    def test_gigantic(self):
        pool = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
        if not pool.exists() or dev.read(pool) == "0":
            self.skipTest("no 1 GiB page: hugepagesz=1G hugepages=1")
        found = self.holding("gigantic")
        self.assertEqual(len(found) * self.block * PAGE, 1 << 30)
        # Its first block, and one that has nothing but tails
        for number in (found[0], found[300]):
            run, = self.device.pages(number)
            self.assertEqual((run.what(), run.order, run.nr_pages), ("hugetlb", 18, self.block))
            self.refused_for_content(number, "gigantic")
        dev.write(pool, 0)
        self.emptied(found[300])

    def test_cma(self):
        found = self.holding("cma")
        if not found:
            self.skipTest("no CMA area: hugetlb_cma=")
        # Free as it may be
        self.assertTrue(any(run.what() == "free" for run in self.device.pages(found[0])))
        self.refused_for_content(found[0], "cma")

    def test_highatomic(self):
        """Atomic allocations of a high order, while little is free, have the allocator reserve blocks for them."""
        subprocess.run(["modprobe", "ramslice_touch"], check=True)
        self.addCleanup(subprocess.run, ["rmmod", "ramslice_touch"], check=True)
        self.assertEqual(self.holding("highatomic"), [])
        # The low watermark is a quarter above it
        with hard.setting("/proc/sys/vm/min_free_kbytes", dev.meminfo("MemFree") * 9 // 10):
            dev.write(dev.debugfs().parent / "ramslice_touch/atomic", 4)
        found = self.holding("highatomic")
        self.assertTrue(found)
        self.refused_for_content(found[0], "highatomic")

    def test_isolated(self):
        """Memory hotplug waits for a pinned page of a memory block, of which it has isolated the rest."""
        size = int(dev.read("/sys/devices/system/memory/block_size_bytes"), 16)
        with Memory(4) as memory:
            memory.touch()
            pin = Pin(memory)
            self.addCleanup(pin.release)
            pinned = {number * self.block * PAGE // size for number in self.holding("pinned")}
            per_block = size // (self.block * PAGE)
            for block in sorted(pinned):
                own = range(block * per_block, (block + 1) * per_block)
                free = [number for number in own if number in harness.empty_ids(self.device)]
                if not free or any(run.reason and run.why() not in ("pinned",)
                                   for number in own for run in self.device.pages(number)):
                    continue
                hotplug = subprocess.Popen(["sh", "-c", f"echo offline > /sys/devices/system/memory/memory{block}/state"],
                                           stderr=subprocess.DEVNULL)
                try:
                    self.assertTrue(harness.until(lambda: self.holding("isolated", free[:1])))
                    self.refuse(free[0], "isolated")
                finally:
                    hotplug.kill()
                    hotplug.wait()
                self.assertFalse(self.holding("isolated", free))
                self.emptied(free[0])
                return
            self.skipTest("no memory block with pinned, free and no unmovable pages")


class SlowDisk(Test):
    """Pages of files that a disk is busy with: ext4, "slow" as its serial number, some seconds for a megabyte."""

    def setUp(self):
        super().setUp()
        serials = {path.parent.name: dev.read(path) for path in Path("/sys/block").glob("vd*/serial")}
        name = next((name for name, serial in serials.items() if serial == "slow"), None)
        if not name:
            self.skipTest("no disk with the serial number slow")
        self.folder = tempfile.mkdtemp(dir="/tmp")
        subprocess.run(["mount", f"/dev/{name}", self.folder], check=True)
        self.addCleanup(subprocess.run, ["umount", self.folder], check=True)

    def open(self, name, flags):
        fd = os.open(f"{self.folder}/{name}", flags)
        self.addCleanup(os.close, fd)
        return fd

    def busy(self, bit):
        """Slices with a page of this flag of /proc/kpageflags on the lists of reclaim, and nothing in the way."""
        wanted = 1 << bit | 1 << KPF_LRU
        found = []
        for number in self.online():
            flags = hard.page_flags(number * self.block, self.block)
            if any(flag & wanted == wanted for flag in flags) and not self.blocked(number):
                found.append(number)
        return found

    def refused_for_now(self, why, bit, wait):
        """With and without a deadline, long before the disk is done; afterwards it goes."""
        found = self.busy(bit)
        self.assertTrue(found)
        for number in found:
            done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF, deadline_ms=60)
            # The disk may be done with the first ones
            if done.status:
                break
        self.assertIn(done.why(), ("deadline", why), done)
        self.refuse(number, why)
        self.assertIn(number, self.busy(bit), "the disk was done before the request")
        wait()
        # Metadata that go with it may be on their way still
        self.assertTrue(harness.until(lambda: not self.device.request(
            "offline", id=number, flags=dev.IGNORE_BACKOFF).status, seconds=60))
        self.device.request("online", id=number)

    def test_writeback(self):
        fd = self.open("written", os.O_CREAT | os.O_RDWR)
        os.write(fd, bytes(16 * MIB))
        begin = harness.libc.sync_file_range
        self.assertEqual(begin(fd, ctypes.c_int64(0), ctypes.c_int64(16 * MIB), SYNC_FILE_RANGE_WRITE), 0)
        self.refused_for_now("writeback", KPF_WRITEBACK, lambda: os.fsync(fd))

    def test_migration(self):
        """A page that is being read is locked until it is there."""
        fd = self.open("read", os.O_RDONLY)
        reader = threading.Thread(target=os.pread, args=(fd, 8 * MIB, 0))
        reader.start()
        self.addCleanup(reader.join)
        self.assertTrue(harness.until(lambda: self.busy(KPF_LOCKED)))
        self.refused_for_now("migration", KPF_LOCKED, reader.join)


class Geometry(Test):
    def test_hole(self):
        number = self.online()[-1]
        runs = self.device.pages(number)
        self.assertEqual((runs[-1].what(), runs[-1].why(), runs[-1].nr_pages), ("hole", "hole", self.block // 2))
        self.refused_for_content(number, "hole")

    def test_zone_end(self):
        # What lies before the end is of the first zone, and has reasons of its own
        beyond = [run for run in self.device.pages(0) if run.why() == "zone-end"]
        self.assertIn(sum(run.nr_pages for run in beyond) * PAGE, range(16 * MIB, 20 * MIB))
        self.refused_for_content(0, "zone-end")


class Requests(Test):
    """What has to do with the request rather than with the slice."""

    def movable(self):
        found = [s.id for s in self.device.snapshot() if s.counter("anon_mapped") > s.nr_pages // 2
                 and not any(run.reason for run in self.device.pages(s.id))]
        self.assertTrue(found)
        return found

    def test_over_budget(self):
        with Memory(100) as memory:
            memory.touch()
            self.refuse(self.movable()[0], "over-budget", errno.EDQUOT, budget=1)

    def test_no_room(self):
        size = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        dev.write(dev.SYSFS / "slice_bytes", 256 * MIB)
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 130) as memory:
            memory.touch()
            self.refuse(self.movable()[0], "no-room", errno.ENOSPC, flags=dev.KEEP_CACHE | dev.IGNORE_BACKOFF)
            self.assertIsNone(memory.wrong_at())

    def test_awake_reserve(self):
        done = self.device.request("offline_free")
        self.assertEqual((done.status, done.why()), (0, "awake-reserve"))
        left = harness.empty_ids(self.device)
        zone = max(self.device.zones(), key=lambda zone: zone.managed_pages)
        left = [s.id for s in self.device.snapshot() if s.id in left and s.zone == zone.zone]
        if not left:
            self.skipTest("the reserve is in slices that hold something")
        self.refuse(left[0], "awake-reserve", errno.ENOMEM)

    def test_state(self):
        number, = self.empty()
        self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        done, traced = self.trace(number, lambda: self.device.request("offline", id=number))
        self.assertEqual((done.status, done.why(), traced), (errno.EBUSY, "state", ["state"]))

    def test_power(self):
        with harness.simulator(fail_off=1):
            number, = self.empty()
            self.refuse(number, "power", errno.EIO)
            self.assertEqual(dev.REASONS[self.row(number).reason], "power")

    def test_every_reason_has_a_name_in_the_tracepoint(self):
        shown = dev.read(hard.TRACING / "events/ramslice/ramslice_refuse/format")
        for name in dev.REASONS:
            self.assertIn(f'"{name}"', shown)


class Foreign(Test):
    def test_foreign_offline(self):
        found = self.holding("foreign-offline")
        self.assertTrue(found, "no virtio-mem device that is plugged in part")
        self.assertEqual({run.what() for run in self.device.pages(found[0]) if run.reason}, {"foreign"})
        self.refused_for_content(found[0], "foreign-offline")


if __name__ == "__main__":
    harness.main()
