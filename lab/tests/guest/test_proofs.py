#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Nobody touches a slice that is off, whoever looks at memory; and each detector of that fires when somebody does.

Wants ramlab vm --holes and --disk, and slices of 16 MiB. The detectors: holes in the guest's memory (the driver
ramslice_holes and lab/ramlab/vm/hole_punch_host.py), the simulated controller's scrambling, and strict mode.
"""

import contextlib
import errno
import mmap
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

from ramlab.guest import hard
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Memory

HOLES = Path("/sys/module/ramslice_holes/parameters")
STRICT = dev.SYSFS / "strict"
KPF_HWPOISON, KPF_OFFLINE = 19, 23

# Ways that ramslice_touch knows, by what they do to the page.
READS = {"read", "read-nofault", "read-mapping", "read-device"}
WRITES = {"write", "write-nofault", "write-mapping", "write-device"}
LEAVES_NO_TRACE = {"rewrite"}
BY_DIRECT_MAP = {"read-nofault", "write-nofault"}
HELPERS = {"map", "unmap"}


def figures(name):
    """What the host says: two numbers."""
    return tuple(map(int, dev.read(HOLES / name).split()))


def churn():
    """Uses memory and files until killed."""
    files = [path for path in sorted(Path("/usr/bin").iterdir()) if path.is_file() and path.stat().st_size > 65536]
    while True:
        for path in files:
            with open(path, "rb") as file:
                file.read(2 * MIB)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with Memory(8) as memory:
                memory.touch()


@contextlib.contextmanager
def churning():
    pid = os.fork()
    if not pid:
        try:
            churn()
        finally:
            os._exit(1)
    try:
        yield
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            raise AssertionError("the churn ended early")
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class Test(harness.Test):
    """With a power driver; ends with every slice awake and the books true."""

    driver, parameters = "ramslice_holes", HOLES

    def setUp(self):
        super().setUp()
        subprocess.run(["modprobe", self.driver], check=True)
        self.log = harness.KernelLog()
        self.addCleanup(self.log.close)
        self.addCleanup(self.check_end)
        self.pages = self.device.info().slice_bytes // PAGE
        self.expected = 0

    def check_end(self):
        self.device.request("online_all")
        self.assert_sane()
        self.assertEqual(self.violations(), self.expected)
        subprocess.run(["rmmod", self.driver], check=True)

    def violations(self):
        return int(dev.read(self.parameters / "violations"))

    def offline(self, number):
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual(done.status, 0, done.why())

    def online(self, number):
        done = self.device.request("online", id=number)
        self.assertEqual(done.status, 0, done.why())


class InStrictMode:
    """Mixed into a test: slices that are off are not in the direct map meanwhile."""

    def setUp(self):
        self.assertTrue(STRICT.exists(), f"{STRICT} is missing")
        super().setUp()
        dev.write(STRICT, 1)
        self.addCleanup(dev.write, STRICT, 0)
        self.addCleanup(self.device.request, "online_all")


class Undisturbed(Test):
    """Everybody who goes through memory by address or by page frame keeps away from what is off."""

    @contextlib.contextmanager
    def nobody_touches(self, most=dev.ALL_SLICES):
        """The block runs beside a load, with that much of memory off. self.slice is off throughout."""
        harness.compact(self.device, most)
        off = harness.ids(self.device, dev.OFFLINE)
        self.assertGreater(len(off), self.device.info().nr_slices // 3)
        # Demand wakes from the bottom
        self.slice = off[-1]
        self.pfn = self.slice * self.pages
        events = self.device.info().event_seq
        with churning():
            yield
            self.assertEqual(figures("touched"), (0, 0))
        self.assertEqual(self.row(self.slice).state, dev.OFFLINE)
        still = harness.ids(self.device, dev.OFFLINE)
        self.assertGreater(len(still), len(off) // 2, f"{self.device.info().event_seq - events} changes of state")
        # Every slice is asked about once more when it wakes
        done = self.device.request("online_all")
        self.assertEqual((done.status, done.nr_failed), (0, 0))
        self.assertEqual(self.violations(), 0)
        self.assertEqual([line for line in self.log.lines() if "violation" in line], [])

    def page_words(self, name):
        """Reads a file of words for each page frame whole; returns those of the slice."""
        fd = os.open(f"/proc/{name}", os.O_RDONLY)
        try:
            while os.read(fd, 1 << 20):
                pass
            return struct.unpack(f"{self.pages}Q", os.pread(fd, 8 * self.pages, 8 * self.pfn))
        finally:
            os.close(fd)

    def test_load_alone(self):
        with self.nobody_touches():
            time.sleep(3)

    def test_kcore_read_whole(self):
        """All but vmalloc's terabytes: RAM by the direct map, the kernel's image, struct pages."""
        with self.nobody_touches(), open("/proc/kcore", "rb", buffering=0) as kcore:
            ram, zeroes, start, end = 0, 0, self.pfn * PAGE, (self.pfn + self.pages) * PAGE
            for segment in kcore_segments(kcore):
                if segment.bytes > 1 << 40:
                    continue
                for at in range(0, segment.bytes, 2 * MIB):
                    data = os.pread(kcore.fileno(), min(2 * MIB, segment.bytes - at), segment.offset + at)
                    self.assertTrue(data, f"kcore ends at {segment.offset + at:#x}")
                    if segment.is_ram:
                        ram += len(data)
                        # Segments begin anywhere: what of this lies in the slice
                        first = segment.physical + at
                        data = data[max(start - first, 0):max(end - first, 0)]
                        self.assertEqual(data.count(0), len(data))
                        zeroes += len(data)
            self.assertGreaterEqual(ram // 1024, harness.meminfo()["MemTotal"])
            self.assertEqual(zeroes, end - start)

    def test_dev_mem(self):
        with self.nobody_touches():
            fd = os.open("/dev/mem", os.O_RDWR)
            self.addCleanup(os.close, fd)
            for pfn in (self.pfn, self.pfn + self.pages // 2, self.pfn + self.pages - 1):
                for what in (
                    lambda: os.pread(fd, PAGE, pfn * PAGE),
                    lambda: os.pwrite(fd, b"x" * PAGE, pfn * PAGE),
                    lambda: mmap.mmap(fd, PAGE, offset=pfn * PAGE)[0],
                ):
                    with self.assertRaises(PermissionError):
                        what()

    def test_merging_and_huge_pages(self):
        """KSM and khugepaged, at full speed, with something to find."""
        ksm, thp = Path("/sys/kernel/mm/ksm"), Path("/sys/kernel/mm/transparent_hugepage/khugepaged")
        for path, value in ((ksm / "sleep_millisecs", 1), (ksm / "pages_to_scan", 10000), (ksm / "run", 1),
                            (thp / "scan_sleep_millisecs", 1), (thp / "alloc_sleep_millisecs", 1),
                            (thp / "pages_to_scan", 100000)):
            self.addCleanup(dev.write, path, dev.read(path))
            dev.write(path, value)
        same, small = Memory(16).touch(7), Memory(16).touch(9)
        self.addCleanup(same.map.close)
        self.addCleanup(small.map.close)
        # A huge page alone wakes nothing
        with self.nobody_touches(most=self.device.info().nr_slices // 2):
            same.map.madvise(mmap.MADV_MERGEABLE)
            small.map.madvise(mmap.MADV_HUGEPAGE)
            before = int(dev.read(ksm / "full_scans")), int(dev.read(thp / "full_scans"))
            self.assertTrue(harness.until(lambda: int(dev.read(ksm / "pages_sharing")), 60), "KSM merged nothing")
            # It wants pages that were used since it last looked
            self.assertTrue(harness.until(lambda: small.touch(9) and int(dev.read(thp / "pages_collapsed")), 60),
                            "khugepaged did nothing")
            for folder, scans in zip((ksm, thp), before):
                self.assertTrue(harness.until(lambda: int(dev.read(folder / "full_scans")) > scans + 1, 60), folder)
        self.assertIsNone(same.wrong_at(7))
        self.assertIsNone(small.wrong_at(9))

    def test_damon(self):
        """Monitoring of physical memory, the slice included."""
        kdamonds = Path("/sys/kernel/mm/damon/admin/kdamonds")
        dev.write(kdamonds / "nr_kdamonds", 1)
        self.addCleanup(dev.write, kdamonds / "nr_kdamonds", 0)
        kdamond = kdamonds / "0"
        dev.write(kdamond / "contexts/nr_contexts", 1)
        context = kdamond / "contexts/0"
        dev.write(context / "operations", "paddr")
        for name, value in (("sample_us", 1000), ("aggr_us", 20000), ("update_us", 100000)):
            dev.write(context / "monitoring_attrs/intervals" / name, value)
        dev.write(context / "targets/nr_targets", 1)
        with self.nobody_touches():
            dev.write(context / "targets/0/regions/nr_regions", 1)
            region = context / "targets/0/regions/0"
            # From the slice's neighbour on, so that half of it is in use, maybe
            dev.write(region / "start", (self.pfn - self.pages) * PAGE)
            dev.write(region / "end", (self.pfn + self.pages) * PAGE)
            dev.write(kdamond / "state", "on")
            try:
                pid = int(dev.read(kdamond / "pid"))
                time.sleep(4)
                self.assertTrue(Path(f"/proc/{pid}").exists(), "DAMON ended early")
                slept = dev.table(f"/proc/{pid}/status")["voluntary_ctxt_switches"]
                self.assertGreater(slept, 100, "DAMON took few samples")
            finally:
                dev.write(kdamond / "state", "off")

    def test_compaction(self):
        """By request and by kcompactd."""
        path = "/proc/sys/vm/compaction_proactiveness"
        self.addCleanup(dev.write, path, dev.read(path))
        # Enough in pieces, of what is awake, for kcompactd to find work
        with self.nobody_touches(), Memory(144) as memory:
            memory.touch().punch()
            kcompactd, = (pid for pid, name in harness.processes().items() if name == "kcompactd0")
            for who, how in ((kcompactd, lambda: dev.write(path, 100)),
                             (os.getpid(), lambda: dev.write("/proc/sys/vm/compact_memory", 1))):
                with hard.traced("compaction/mm_compaction_begin") as lines:
                    before = harness.vmstat()["compact_migrate_scanned"]
                    how()
                    self.assertTrue(harness.until(lambda: any(f"-{who} " in line for line in lines()), 30), f"{who} did not compact")
                    self.assertTrue(harness.until(lambda: harness.vmstat()["compact_migrate_scanned"] > before, 30))
            self.assertIsNone(memory.wrong_at())

    def test_page_frame_scanners(self):
        """page_idle, kpageflags and their kin, and the kernel's own lists of memory."""
        with self.nobody_touches():
            for name in ("kpageflags", "kpagecount", "kpagecgroup"):
                of_slice = self.page_words(name)
                if name == "kpageflags":
                    self.assertTrue(all(flags >> KPF_OFFLINE & 1 for flags in of_slice))
                else:
                    self.assertEqual(set(of_slice), {0})
            with open("/sys/kernel/mm/page_idle/bitmap", "r+b", buffering=0) as bitmap:
                end = (self.pfn + self.pages) // 8
                for at in range(0, end, 4096):
                    with contextlib.suppress(OSError):
                        os.pwrite(bitmap.fileno(), b"\xff" * min(4096, end - at), at)
                of_slice = os.pread(bitmap.fileno(), self.pages // 8, self.pfn // 8)
                self.assertEqual(of_slice, bytes(self.pages // 8))
            for path in ("/proc/pagetypeinfo", "/proc/zoneinfo", "/proc/buddyinfo"):
                self.assertTrue(dev.read(path))
            dev.write("/proc/sysrq-trigger", "m")

    def test_memory_failure(self):
        """Soft and hard, by three interfaces, of pages that are off and beside them."""
        folder, inject = Path("/sys/devices/system/memory"), dev.debugfs().parent / "hwpoison"
        poisoned = []
        with self.nobody_touches():
            for nr, (path, factor) in enumerate((
                (folder / "soft_offline_page", PAGE), (folder / "hard_offline_page", PAGE), (inject / "corrupt-pfn", 1),
            )):
                for pfn in (self.pfn + nr, self.pfn + self.pages - 1 - nr):
                    with self.assertRaises(OSError, msg=f"{path} {pfn}"):
                        dev.write(path, f"{pfn * factor:#x}")
                    if path.name != "soft_offline_page":
                        poisoned.append(pfn)
            flags = self.page_words("kpageflags")
            marked = [self.pfn + n for n, flag in enumerate(flags) if flag >> KPF_HWPOISON & 1]
            self.assertEqual(marked, sorted(poisoned))
        # Awake again, the poisoned pages stay away from the allocator, and the others are there
        self.assertEqual(self.row(self.slice).counter("free"), self.pages - len(poisoned))
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 100) as memory:
            self.assertIsNone(memory.touch().wrong_at())


class UndisturbedStrictly(InStrictMode, Undisturbed):
    """Nor does anybody meet what is not there."""


class Segment:
    """A PT_LOAD of /proc/kcore."""

    def __init__(self, kind, flags, offset, virtual, physical, file_bytes, mem_bytes, align):
        self.kind, self.offset, self.virtual, self.physical, self.bytes = kind, offset, virtual, physical, file_bytes
        self.is_ram = physical != 2**64 - 1 and virtual < 0xFFFFFFFF80000000


def kcore_segments(kcore):
    header = os.pread(kcore.fileno(), 64, 0)
    offset, = struct.unpack_from("<Q", header, 32)
    size, number = struct.unpack_from("<HH", header, 54)
    rows = [Segment(*struct.unpack("<IIQQQQQQ", os.pread(kcore.fileno(), size, offset + n * size))) for n in range(number)]
    return [row for row in rows if row.kind == 1]


class Touching(Test):
    """Touches a page of a slice that is off, in each way that ramslice_touch has."""

    def setUp(self):
        super().setUp()
        subprocess.run(["modprobe", "ramslice_touch"], check=True)
        self.addCleanup(subprocess.run, ["rmmod", "ramslice_touch"], check=True)
        self.file = dev.debugfs().parent / "ramslice_touch/touch"
        self.ways = set(dev.read(self.file).split())
        self.assertEqual(self.ways, READS | WRITES | LEAVES_NO_TRACE | HELPERS)

    def touch(self, way, pfn):
        dev.write(self.file, f"{way} {pfn}")

    def slice_off(self):
        """A page of a slice that goes off meanwhile; ramslice_touch keeps a mapping of it."""
        number, = self.empty()
        pfn = number * self.pages + 1234
        self.touch("map", pfn)
        self.offline(number)
        return number, pfn

    def violation(self, number, pfn):
        """The one line about it."""
        lines = [line for line in self.log.lines() if "violation" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(f"slice {number} ", lines[0])
        self.assertIn(f"pfn {pfn}", lines[0])


class HolesFire(Touching):
    def test_every_way_of_touching_is_seen(self):
        for way in sorted(self.ways - HELPERS):
            with self.subTest(way):
                number, pfn = self.slice_off()
                self.assertEqual(figures("touched"), (0, 0))
                self.touch(way, pfn)
                self.assertEqual(figures("touched"), (1, pfn))
                self.online(number)
                self.expected += 1
                self.assertEqual(self.violations(), self.expected)
                self.violation(number, pfn)

    def test_every_page_counts(self):
        number, pfn = self.slice_off()
        others = [number * self.pages, pfn, pfn + 100, (number + 1) * self.pages - 1]
        for other in others:
            self.touch("read", other)
        self.assertEqual(figures("touched"), (4, others[0]))
        self.online(number)
        self.expected += 4

    def test_touching_what_is_on_is_no_violation(self):
        number, pfn = self.slice_off()
        neighbours = [n for n in (number - 1, number + 1) if n in harness.empty_ids(self.device)]
        self.assertTrue(neighbours)
        for neighbour in neighbours:
            for way in sorted(self.ways - HELPERS - {"read-mapping", "write-mapping"}):
                self.touch(way, neighbour * self.pages + 5)
        self.online(number)
        # And the slice itself, once it is awake
        for way in sorted(self.ways - HELPERS):
            self.touch(way, pfn)
        self.assertEqual(self.violations(), 0)

    def test_the_host_gets_the_memory(self):
        with Memory(harness.meminfo()["MemAvailable"] * 3 // 4 // 1024) as memory:
            memory.touch()
        full, whole = figures("present")
        harness.compact(self.device)
        off = self.device.info().offline_pages * 4
        packed, _ = figures("present")
        self.assertGreater(off, whole // 3)
        self.assertLessEqual(packed, whole - off)
        self.assertLess(packed, full - off // 2)
        print(f"{full >> 10} MiB of {whole >> 10} at the host, with {off >> 10} off {packed >> 10}", end=" ")

    def test_z_a_host_that_does_not_answer_is_an_error(self):
        """It costs a slice if that is to wake; the guest goes on."""
        number, = self.empty()
        patience = dev.read(HOLES / "timeout_ms")
        dev.write(HOLES / "timeout_ms", 0)
        done = self.device.request("offline", id=number)
        dev.write(HOLES / "timeout_ms", patience)
        self.assertEqual((done.status, done.why()), (errno.EIO, "power"))
        self.assertEqual(self.row(number).state, dev.ONLINE)
        # Its late answer is not mistaken for the next one
        self.offline(number)
        self.assertEqual(figures("touched"), (0, 0))
        dev.write(HOLES / "timeout_ms", 0)
        done = self.device.request("online", id=number)
        dev.write(HOLES / "timeout_ms", patience)
        self.assertEqual((done.status, done.why()), (errno.EIO, "quarantined"))
        self.assertEqual(figures("touched"), (0, 0))


class ScramblingFires(Touching):
    """The simulated controller finds what was left behind, and nothing else: that is what holes are for."""

    driver, parameters = "ramslice_sim", harness.SIM

    def test_writing_is_seen(self):
        for way in sorted(WRITES):
            with self.subTest(way):
                number, pfn = self.slice_off()
                before = self.violations()
                self.touch(way, pfn)
                self.online(number)
                self.assertGreater(self.violations(), before)
                # It reports its first only
                if not before:
                    self.violation(number, pfn)
        self.expected = self.violations()

    def test_what_leaves_no_trace_is_not(self):
        for way in sorted(READS | LEAVES_NO_TRACE):
            number, pfn = self.slice_off()
            self.touch(way, pfn)
            self.online(number)
            self.assertEqual(self.violations(), 0, way)


class StrictMode(InStrictMode, Touching):
    """Who touches a slice that is off by its kernel address is stopped."""

    def test_the_direct_map_faults(self):
        number, pfn = self.slice_off()
        for page in (number * self.pages, pfn, (number + 1) * self.pages - 1):
            for way in sorted(BY_DIRECT_MAP):
                with self.assertRaises(OSError) as caught:
                    self.touch(way, page)
                self.assertEqual(caught.exception.errno, errno.EFAULT, way)
        # Nothing got through
        self.assertEqual(figures("touched"), (0, 0))
        self.online(number)
        for way in sorted(BY_DIRECT_MAP):
            self.touch(way, pfn)

    def test_beside_it_the_direct_map_is_whole(self):
        number, _ = self.slice_off()
        for page in (number * self.pages - 1, (number + 1) * self.pages):
            self.touch("read-nofault", page)

    def test_what_goes_another_way_is_seen_by_holes(self):
        for way in ("read-mapping", "write-mapping", "read-device", "write-device"):
            with self.subTest(way):
                number, pfn = self.slice_off()
                self.touch(way, pfn)
                self.assertEqual(figures("touched"), (1, pfn))
                self.online(number)
                self.expected += 1

    def test_kcore_looks_away(self):
        number, _ = self.slice_off()
        with open("/proc/kcore", "rb", buffering=0) as kcore:
            start = number * self.pages * PAGE
            segment = next(s for s in kcore_segments(kcore) if s.is_ram and s.physical <= start < s.physical + s.bytes)
            data = os.pread(kcore.fileno(), 2 * MIB, segment.offset + start - segment.physical)
        self.assertEqual(data, bytes(2 * MIB))
        self.assertEqual(figures("touched"), (0, 0))


class StrictOops(Touching):
    """The guest does not survive this: for a machine of its own. Says which address will fault."""

    def setUp(self):
        self.assertTrue(STRICT.exists(), f"{STRICT} is missing")
        super().setUp()
        dev.write(STRICT, 1)

    def test_reading_oopses(self):
        number, pfn = self.slice_off()
        with open("/proc/kcore", "rb", buffering=0) as kcore:
            segment = next(s for s in kcore_segments(kcore) if s.is_ram)
        print(f"expect a fault at {segment.virtual - segment.physical + pfn * PAGE:x}", flush=True)
        self.touch("read", pfn)
        self.fail("it was read")


if __name__ == "__main__":
    harness.main()
