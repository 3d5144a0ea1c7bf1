# SPDX-License-Identifier: GPL-2.0-or-later
"""Every refusal has a reason: each is brought about, and request, snapshot, tracepoint and pages
agree on it.

Other tests bring about quarantined and power (test_power), pressure (test_demand), deadline and
signal (test_interrupted_requests).
"""

import ctypes
import errno
import fcntl
import mmap
import os
import re
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Child, Memory, check_contents
from ramlab.guest.page_reasons import Pin, ReasonTest, lock
from ramlab.pytest_vm import vm

pytestmark = pytest.mark.slow
# Slices are single pageblocks, so that most hold one kind of page
SMALL = {"mem": "2G", "disk": "256M", "append": "ramslice=2M page_owner=on"}
# Memory ends within a slice
CUT = {"mem": "2064M", "append": "ramslice=32M"}

KPF_LOCKED, KPF_LRU, KPF_WRITEBACK = 0, 5, 8
SYNC_FILE_RANGE_WRITE = 2
@vm(**SMALL)
class Pages(ReasonTest):
    """RAMSLICE_IOC_PAGES itself."""

    def call(self, **fields):
        rows = (dev.Run * 64)()
        head = dev.Pages(
            size=48, entry_size=56, nr=64, id=self.online()[0], runs=ctypes.addressof(rows)
        )
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

    def test_one_call_and_many_calls_return_the_same(self):
        number = self.holding("slab")[0]
        for _ in range(5):
            whole, single = self.device.pages(number), self.device.pages(number, room=1)
            # Runs end where a call ends, so compare page by page
            spread = [[(run.pfn + i, *bytes(run)[12:]) for run in runs for i in range(run.nr_pages)]
                      for runs in (whole, single)]
            if spread[0] == spread[1]:
                return
        self.fail("they differed five times")

    def test_an_offline_slice_is_one_run(self):
        number, = self.empty()
        self.assertEqual(
            self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF).status, 0
        )
        run, = self.device.pages(number)
        self.assertEqual((run.what(), run.why(), run.nr_pages), ("off", "none", self.block))

    def test_bad_input_has_its_own_errno(self):
        for number, fields in (
            (errno.EINVAL, {"flags": 1}),
            (errno.EINVAL, {"reserved": 1}),
            (errno.EINVAL, {"nr": 0}),
            (errno.EINVAL, {"entry_size": 55}),
            (errno.EINVAL, {"entry_size": PAGE + 1}),
            (errno.EINVAL, {"size": 47}),
            (errno.ENOENT, {"id": 1 << 20}),
            (errno.ENOENT, {"id": 2**32 - 1}),
            (errno.EFAULT, {"runs": 1}),
        ):
            with self.refused(number, str(fields)):
                self.call(**fields)
        head, _ = self.call(first=2**32 - 1)
        self.assertEqual((head.nr, head.nr_pages), (0, self.block))

    def test_only_root_can_read_pages(self):
        def unprivileged(fd):
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            yield
            device = dev.Device.__new__(dev.Device)
            device.fd = fd
            # Read access to the file shows slices, but not pages
            device.info()
            try:
                device.pages(1)
            except OSError as error:
                yield error.errno

        with Child(unprivileged, self.device.fd) as child:
            child.step()
            self.assertEqual(child.step(), errno.EPERM)

    def test_pages_of_files_and_shared_memory_name_their_inode(self):
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
                # A few may be locked at the moment and have no name
                self.assertGreaterEqual(sum(run.nr_pages for run in mine), 2040)
                self.assertEqual({run.what() for run in mine}, {what})
                # A slice of two zones cannot be emptied, whatever it holds
                reasons = {row.id: dev.REASONS[row.reason] for row in self.device.snapshot()}
                for number, runs in slices.items():
                    allowed = {"none"} | ({"zone-end"} & {reasons[number]})
                    self.assertLessEqual({run.why() for run in runs}, allowed, number)
                self.assertTrue(all(run.flags & dev.MLOCKED and run.nr_maps for run in mine))
                self.assertFalse(any(run.flags & dev.DROP for run in mine))


@vm(**SMALL)
class Content(ReasonTest):
    """Pages that a slice holds."""

    def test_the_first_obstacle_is_the_reason(self):
        """The reasons that there are anyway; request and pages use the same function."""
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
            # Slices that already hold slabs may have room for many
            for n in range(60000):
                os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY))
                if n % 6000 == 5999 and (
                    new := [number for number in self.holding("slab") if number not in before]
                ):
                    break
            self.assertTrue(new)
            self.refused_for_content(new[0], "slab")

    def test_pagetable(self):
        # A page table for each 2 MiB, all of it the zero page
        memory = mmap.mmap(
            -1, 6 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | harness.MAP_NORESERVE
        )
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
            # Pages in a CPU's batch have no flags yet
            dev.write("/proc/sys/vm/compact_memory", 1)
            pin = Pin(memory)
            self.addCleanup(pin.release)
            runs = {number: [run for run in self.device.pages(number) if run.flags & dev.PINNED]
                    for number in self.online()}
            runs = {number: found for number, found in runs.items() if found}
            self.assertEqual(sum(run.nr_pages for found in runs.values() for run in found), 1024)
            # In a slice that can never be emptied, all pages have that reason
            runs = {
                number: found
                for number, found in runs.items()
                if not self.row(number).flags & dev.UNRECLAIMABLE
            }
            self.assertEqual(
                {(run.what(), run.why()) for found in runs.values() for run in found},
                {("anon", "pinned")},
            )
            self.assertTrue(all(run.extra_refs for found in runs.values() for run in found))
            number, = self.holding("pinned", runs)[:1]
            self.refused_for_content(number, "pinned")
            pin.release()
            self.emptied(number)
            check_contents(memory)

    def test_an_unannounced_reference(self):
        """Pages lent to a pipe are seen before any page is moved."""
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
                done = self.device.request(
                    "offline", id=found[0], wait_busy=10, flags=dev.IGNORE_BACKOFF | flags
                )
                self.assertEqual(
                    (done.status, done.why(), done.pages_migrated), (errno.EBUSY, "pinned", 0)
                )
            self.refused_for_content(found[0], "pinned")
            for end in ends:
                os.close(end)
            self.emptied(found[0])
            check_contents(memory)

    def test_hwpoison(self):
        subprocess.run(["modprobe", "hwpoison-inject"], check=False)
        folder = Path("/sys/kernel/debug/hwpoison")
        if not folder.exists():
            self.skipTest("the kernel has no hwpoison-inject")
        number, = self.empty()
        pfn = number * self.block + 77
        dev.write(folder / "corrupt-pfn", pfn)
        run, = [run for run in self.device.pages(number) if run.reason]
        self.assertEqual(
            (run.what(), run.why(), run.pfn, run.nr_pages), ("hwpoison", "hwpoison", pfn, 1)
        )
        self.refused_for_content(number, "hwpoison")
        dev.write(folder / "unpoison-pfn", pfn)
        self.assertFalse(self.blocked(number))

    def test_highatomic(self):
        """While little is free, high-order atomic allocations make the allocator reserve
        pageblocks.
        """
        subprocess.run(["modprobe", "ramslice_touch"], check=True)
        self.addCleanup(subprocess.run, ["rmmod", "ramslice_touch"], check=True)
        self.assertEqual(self.holding("highatomic"), [])
        # The low watermark is a quarter above it
        with pinned_memory.setting(
            "/proc/sys/vm/min_free_kbytes", dev.meminfo("MemFree") * 9 // 10
        ):
            dev.write(dev.debugfs().parent / "ramslice_touch/atomic", 4)
        found = self.holding("highatomic")
        self.assertTrue(found)
        self.refused_for_content(found[0], "highatomic")

    def test_isolated(self):
        """Memory hotplug has isolated a memory block and waits for its pinned page."""
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
                hotplug = subprocess.Popen(
                    ["sh", "-c", f"echo offline > /sys/devices/system/memory/memory{block}/state"],
                    stderr=subprocess.DEVNULL,
                )
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


# Without page_owner: in this kernel its records of so large a page overrun their section
@vm(mem="4608M", append="ramslice=2M hugepagesz=1G hugepages=1")
class GiganticPage(ReasonTest):
    def test_gigantic(self):
        pool = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
        found = self.holding("gigantic")
        self.assertEqual(len(found) * self.block * PAGE, 1 << 30)
        # Its first pageblock, and one that has only tail pages
        for number in (found[0], found[300]):
            run, = self.device.pages(number)
            self.assertEqual((run.what(), run.order, run.nr_pages), ("hugetlb", 18, self.block))
            self.refused_for_content(number, "gigantic")
        dev.write(pool, 0)
        self.emptied(found[300])


@vm(mem="5G", append="ramslice=2M hugetlb_cma=1G", qemu=("-cpu max",))
class ContiguousReserve(ReasonTest):
    def test_cma(self):
        found = self.holding("cma")
        self.assertTrue(found)
        # A free page of the area stays, too
        self.assertTrue(any(run.what() == "free" for run in self.device.pages(found[0])))
        self.refused_for_content(found[0], "cma")


def slow_disk(path):
    """An ext4 of 64 MiB with a file of 8 MiB, made on the host."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "read").write_bytes(os.urandom(8 * MIB))
        with open(path, "wb") as file:
            file.truncate(64 * MIB)
        subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-d", folder, path], check=True)


@vm(mem="1G", append="ramslice=2M", files={"slow": slow_disk},
    qemu=("-drive file={folder}/slow,format=raw,if=none,id=slow,"
          "throttling.bps-write=524288,throttling.bps-read=262144",
          "-device virtio-blk-pci,drive=slow,serial=slow"))
class SlowDisk(ReasonTest):
    """Pages of files on a disk that takes seconds for a megabyte."""

    def setUp(self):
        super().setUp()
        serials = {
            path.parent.name: dev.read(path) for path in Path("/sys/block").glob("vd*/serial")
        }
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
        """Slices that could be emptied but for an LRU page with this flag of /proc/kpageflags."""
        wanted = 1 << bit | 1 << KPF_LRU
        found = []
        for number in self.online():
            flags = pinned_memory.page_flags(number * self.block, self.block)
            if any(flag & wanted == wanted for flag in flags) and not self.blocked(number):
                found.append(number)
        return found

    def refused_for_now(self, why, bit, begin):
        """The slice is refused with and without a deadline while the disk is busy, and goes
        afterwards.

        begin() has the disk begin and returns a function that waits for its end. The disk keeps
        to the host's time: if it is done before the test has looked, it has to begin again.
        """
        for _ in range(5):
            wait = begin()
            number = self.refused_while_busy(why, bit)
            wait()
            if number is not None:
                break
        else:
            self.fail("the disk was done each time before the request")
        # Metadata of the file may still be written
        self.assertTrue(harness.until(lambda: not self.device.request(
            "offline", id=number, flags=dev.IGNORE_BACKOFF).status))
        self.device.request("online", id=number)

    def refused_while_busy(self, why, bit):
        """A slice that was refused while the disk was busy with it, or None."""
        for number in self.busy(bit):
            early = self.device.request(
                "offline", id=number, flags=dev.IGNORE_BACKOFF, deadline_ms=60
            )
            # The disk may be done with some of them
            if not early.status:
                continue
            done, traced = self.trace(
                number, lambda: self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF))
            if not done.status or number not in self.busy(bit):
                continue
            self.assertIn(early.why(), ("deadline", why), early)
            self.assertEqual((done.status, done.why(), done.nr_done), (errno.EBUSY, why, 0), done)
            self.assertEqual(traced[-1:], [why])
            self.assertEqual(self.row(number).state, dev.ONLINE)
            return number
        return None

    def test_writeback(self):
        fd = self.open("written", os.O_CREAT | os.O_RDWR)

        def write():
            os.pwrite(fd, os.urandom(16 * MIB), 0)
            begin = harness.libc.sync_file_range
            self.assertEqual(
                begin(fd, ctypes.c_int64(0), ctypes.c_int64(16 * MIB), SYNC_FILE_RANGE_WRITE), 0
            )
            return lambda: os.fsync(fd)

        self.refused_for_now("writeback", KPF_WRITEBACK, write)

    def test_migration(self):
        """A page that is being read is locked until it is there."""
        fd = self.open("read", os.O_RDONLY)

        def read():
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            reader = threading.Thread(target=os.pread, args=(fd, 8 * MIB, 0))
            reader.start()
            harness.until(lambda: self.busy(KPF_LOCKED) or not reader.is_alive())
            return reader.join

        self.refused_for_now("migration", KPF_LOCKED, read)


@vm(**CUT)
class Geometry(ReasonTest):
    def test_hole(self):
        number = self.online()[-1]
        runs = self.device.pages(number)
        self.assertEqual(
            (runs[-1].what(), runs[-1].why(), runs[-1].nr_pages), ("hole", "hole", self.block // 2)
        )
        self.refused_for_content(number, "hole")

    def test_zone_end(self):
        # Pages before the end are of the first zone and have reasons of their own
        beyond = [run for run in self.device.pages(0) if run.why() == "zone-end"]
        self.assertIn(sum(run.nr_pages for run in beyond) * PAGE, range(16 * MIB, 20 * MIB))
        self.refused_for_content(0, "zone-end")


@vm(**CUT)
class Requests(ReasonTest):
    """Reasons that lie in the request and not in the slice."""

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
            self.refuse(
                self.movable()[0],
                "no-room",
                errno.ENOSPC,
                flags=dev.KEEP_CACHE | dev.IGNORE_BACKOFF,
            )
            check_contents(memory)

    def test_awake_reserve(self):
        done = self.device.request("offline_free")
        self.assertEqual((done.status, done.why()), (0, "awake-reserve"))
        left = harness.empty_ids(self.device)
        zone = max(self.device.zones(), key=lambda zone: zone.managed_pages)
        left = [s.id for s in self.device.snapshot() if s.id in left and s.zone == zone.zone]
        if not left:
            self.skipTest("the reserve is in slices that hold something")
        self.refuse(left[0], "awake-reserve", errno.ENOMEM)

    def test_one_empty_slice_that_the_reserve_needs_speaks_for_all(self):
        limit = "/proc/sys/vm/min_free_kbytes"
        self.addCleanup(self.device.request, "online_all")
        self.addCleanup(dev.write, limit, dev.read(limit))
        dev.write(limit, 512 << 10)
        with pinned_memory.traced("ramslice/ramslice_refuse") as lines:
            done = self.device.request("compact", flags=dev.IGNORE_BACKOFF)
            tried = [int(match[1]) for line in lines()
                     if (match := re.search(r"id=(\d+) .*reason=awake-reserve", line))]
        self.assertEqual(done.status, 0, done)
        left = harness.empty_ids(self.device)
        self.assertGreater(len(left), 16)
        tried = [number for number in tried if number in left]
        self.assertIn(len(tried), range(1, len(self.device.zones()) + 1), (tried, left))

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
        shown = dev.read(pinned_memory.TRACING / "events/ramslice/ramslice_refuse/format")
        for name in dev.REASONS:
            self.assertIn(f'"{name}"', shown)


@vm(mem="1G", append="ramslice=2M memhp_default_state=online_movable",
    qemu=("-m maxmem=4G -object memory-backend-ram,id=more,size=512M",
          "-device virtio-mem-pci,id=vm0,memdev=more,requested-size=140M"))
class Foreign(ReasonTest):
    def test_foreign_offline(self):
        found = self.holding("foreign-offline")
        self.assertTrue(found, "no virtio-mem device that is plugged in part")
        self.assertEqual(
            {run.what() for run in self.device.pages(found[0]) if run.reason}, {"foreign"}
        )
        self.refused_for_content(found[0], "foreign-offline")
