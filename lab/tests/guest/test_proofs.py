# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing touches an offline slice, whatever looks at memory.

And each detector fires when something does.

The detectors are holes in the guest's memory (the driver ramslice_holes and
ramlab/vm/hole_punch_host.py), the simulated controller's scrambling, and strict mode.
"""

import contextlib
import errno
import mmap
import os
import signal
import struct
import time
from pathlib import Path

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Memory, check_contents
from ramlab.guest.proofs import (
    BY_DIRECT_MAP,
    HELPERS,
    HOLES,
    KPF_HWPOISON,
    KPF_OFFLINE,
    LEAVES_NO_TRACE,
    READS,
    STRICT,
    WRITES,
    ProofTest,
    TouchTest,
    figures,
    kcore_segments,
)
from ramlab.pytest_vm import vm

pytestmark = vm(mem="1G", disk="1G", append="ramslice=16M", holes=True)


def churn():
    """Uses memory and files until killed."""
    files = [
        path
        for path in sorted(Path("/usr/bin").iterdir())
        if path.is_file() and path.stat().st_size > 65536
    ]
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


class InStrictMode:
    """Mixed into a test class: offline slices are not in the direct map."""

    def setUp(self):
        self.assertTrue(STRICT.exists(), f"{STRICT} is missing")
        super().setUp()
        dev.write(STRICT, 1)
        self.addCleanup(dev.write, STRICT, 0)
        self.addCleanup(self.device.request, "online_all")


class Undisturbed(ProofTest):
    """Everything that walks memory by address or page frame leaves offline slices alone."""

    @contextlib.contextmanager
    def untouched(self, most=dev.ALL_SLICES):
        """The block runs beside a load.

        Self.slice stays offline and nothing touches an offline slice.
        """
        harness.compact(self.device, most)
        off = harness.ids(self.device, dev.OFFLINE)
        self.assertGreater(len(off), self.device.info().nr_slices // 3)
        # Demand wakes the lowest slices first
        self.slice = off[-1]
        self.pfn = self.slice * self.pages
        events = self.device.info().event_seq
        with churning():
            yield
            self.assertEqual(figures("touched"), (0, 0))
        self.assertEqual(self.row(self.slice).state, dev.OFFLINE)
        still = harness.ids(self.device, dev.OFFLINE)
        self.assertGreater(
            len(still), len(off) // 2, f"{self.device.info().event_seq - events} changes of state"
        )
        # The host is asked about each slice again when it wakes
        done = self.device.request("online_all")
        self.assertEqual((done.status, done.nr_failed), (0, 0))
        self.assertEqual(self.violations(), 0)
        self.assertEqual([line for line in self.log.lines() if "violation" in line], [])

    def page_words(self, name):
        """Reads a whole file with a word for each page frame; returns the words of the slice."""
        fd = os.open(f"/proc/{name}", os.O_RDONLY)
        try:
            while os.read(fd, 1 << 20):
                pass
            return struct.unpack(f"{self.pages}Q", os.pread(fd, 8 * self.pages, 8 * self.pfn))
        finally:
            os.close(fd)

    def test_load_alone_touches_nothing(self):
        with self.untouched():
            time.sleep(3)

    def test_reading_all_of_kcore_touches_nothing(self):
        """All but the vmalloc area: RAM by the direct map, the kernel's image, struct pages."""
        with self.untouched(), open("/proc/kcore", "rb", buffering=0) as kcore:
            ram, zeroes, start, end = 0, 0, self.pfn * PAGE, (self.pfn + self.pages) * PAGE
            for segment in kcore_segments(kcore):
                if segment.bytes > 1 << 40:
                    continue
                for at in range(0, segment.bytes, 2 * MIB):
                    data = os.pread(
                        kcore.fileno(), min(2 * MIB, segment.bytes - at), segment.offset + at
                    )
                    self.assertTrue(data, f"kcore ends at {segment.offset + at:#x}")
                    if segment.is_ram:
                        ram += len(data)
                        # The part that lies in the slice
                        first = segment.physical + at
                        data = data[max(start - first, 0):max(end - first, 0)]
                        self.assertEqual(data.count(0), len(data))
                        zeroes += len(data)
            self.assertGreaterEqual(ram // 1024, harness.meminfo()["MemTotal"])
            self.assertEqual(zeroes, end - start)

    def test_dev_mem_refuses_offline_pages(self):
        with self.untouched():
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

    def test_ksm_and_khugepaged_touch_nothing(self):
        """KSM and khugepaged, at full speed, with something to find."""
        ksm, thp = Path("/sys/kernel/mm/ksm"), Path(
            "/sys/kernel/mm/transparent_hugepage/khugepaged"
        )
        for path, value in (
            (ksm / "sleep_millisecs", 1),
            (ksm / "pages_to_scan", 10000),
            (ksm / "run", 1),
            (thp / "scan_sleep_millisecs", 1),
            (thp / "alloc_sleep_millisecs", 1),
            (thp / "pages_to_scan", 100000),
        ):
            self.addCleanup(dev.write, path, dev.read(path))
            dev.write(path, value)
        same, small = Memory(16).touch(7), Memory(16).touch(9)
        self.addCleanup(same.map.close)
        self.addCleanup(small.map.close)
        # A huge page fault wakes nothing
        with self.untouched(most=self.device.info().nr_slices // 2):
            same.map.madvise(mmap.MADV_MERGEABLE)
            small.map.madvise(mmap.MADV_HUGEPAGE)
            before = int(dev.read(ksm / "full_scans")), int(dev.read(thp / "full_scans"))
            self.assertTrue(
                harness.until(lambda: int(dev.read(ksm / "pages_sharing"))), "KSM merged nothing"
            )
            # khugepaged takes only pages that were used since its last scan
            self.assertTrue(
                harness.until(lambda: small.touch(9) and int(dev.read(thp / "pages_collapsed"))),
                "khugepaged did nothing",
            )
            for folder, scans in zip((ksm, thp), before):
                self.assertTrue(
                    harness.until(lambda: int(dev.read(folder / "full_scans")) > scans + 1), folder
                )
        check_contents(same, 7)
        check_contents(small, 9)

    def test_damon_touches_nothing(self):
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
        with self.untouched():
            dev.write(context / "targets/0/regions/nr_regions", 1)
            region = context / "targets/0/regions/0"
            # The slice and its neighbour, which may be in use
            dev.write(region / "start", (self.pfn - self.pages) * PAGE)
            dev.write(region / "end", (self.pfn + self.pages) * PAGE)
            dev.write(kdamond / "state", "on")
            try:
                pid = int(dev.read(kdamond / "pid"))

                def sampled():
                    """Whether it has slept between a few hundred samples."""
                    self.assertTrue(Path(f"/proc/{pid}").exists(), "DAMON ended early")
                    return dev.table(f"/proc/{pid}/status")["voluntary_ctxt_switches"] > 400

                self.assertTrue(harness.until(sampled), "DAMON took few samples")
            finally:
                dev.write(kdamond / "state", "off")

    def test_kernel_compaction_touches_nothing(self):
        """By request and by kcompactd."""
        path = "/proc/sys/vm/compaction_proactiveness"
        self.addCleanup(dev.write, path, dev.read(path))
        # Enough scattered pages for kcompactd to find work
        with self.untouched(), Memory(144) as memory:
            memory.touch().punch()
            kcompactd, = (pid for pid, name in harness.processes().items() if name == "kcompactd0")
            for who, how in ((kcompactd, lambda: dev.write(path, 100)),
                             (os.getpid(), lambda: dev.write("/proc/sys/vm/compact_memory", 1))):
                with pinned_memory.traced("compaction/mm_compaction_begin") as lines:
                    before = harness.vmstat()["compact_migrate_scanned"]
                    how()
                    self.assertTrue(
                        harness.until(lambda: any(f"-{who} " in line for line in lines())),
                        f"{who} did not compact",
                    )
                    self.assertTrue(
                        harness.until(lambda: harness.vmstat()["compact_migrate_scanned"] > before)
                    )
            check_contents(memory)

    def test_page_frame_scanners_touch_nothing(self):
        """page_idle, kpageflags and their kin, and the kernel's own lists of memory."""
        with self.untouched():
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

    def test_memory_failure_touches_nothing(self):
        """Soft and hard memory errors, by three interfaces, of pages of an offline slice."""
        folder, inject = Path("/sys/devices/system/memory"), dev.debugfs().parent / "hwpoison"
        poisoned = []
        with self.untouched():
            for nr, (path, factor) in enumerate((
                (folder / "soft_offline_page", PAGE),
                (folder / "hard_offline_page", PAGE),
                (inject / "corrupt-pfn", 1),
            )):
                for pfn in (self.pfn + nr, self.pfn + self.pages - 1 - nr):
                    with self.assertRaises(OSError, msg=f"{path} {pfn}"):
                        dev.write(path, f"{pfn * factor:#x}")
                    if path.name != "soft_offline_page":
                        poisoned.append(pfn)
            flags = self.page_words("kpageflags")
            marked = [self.pfn + n for n, flag in enumerate(flags) if flag >> KPF_HWPOISON & 1]
            self.assertEqual(marked, sorted(poisoned))
        # After waking, the allocator has all pages but the poisoned ones
        self.assertEqual(self.row(self.slice).counter("free"), self.pages - len(poisoned))
        with Memory(harness.meminfo()["MemAvailable"] // 1024 - 100) as memory:
            check_contents(memory.touch())


class UndisturbedStrictly(InStrictMode, Undisturbed):
    """The same in strict mode, in which an access by the direct map would fault."""


class HolesFire(TouchTest):
    def test_every_kind_of_access_is_detected(self):
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

    def test_each_touched_page_counts(self):
        number, pfn = self.slice_off()
        others = [number * self.pages, pfn, pfn + 100, (number + 1) * self.pages - 1]
        for other in others:
            self.touch("read", other)
        self.assertEqual(figures("touched"), (4, others[0]))
        self.online(number)
        self.expected += 4

    def test_access_to_online_slices_is_no_violation(self):
        number, pfn = self.slice_off()
        neighbours = [n for n in (number - 1, number + 1) if n in harness.empty_ids(self.device)]
        self.assertTrue(neighbours)
        for neighbour in neighbours:
            for way in sorted(self.ways - HELPERS - {"read-mapping", "write-mapping"}):
                self.touch(way, neighbour * self.pages + 5)
        self.online(number)
        # The same for the slice itself once it is online
        for way in sorted(self.ways - HELPERS):
            self.touch(way, pfn)
        self.assertEqual(self.violations(), 0)

    def test_the_host_gets_the_memory_of_offline_slices(self):
        with Memory(harness.meminfo()["MemAvailable"] * 3 // 4 // 1024) as memory:
            memory.touch()
        full, whole = figures("present")
        harness.compact(self.device)
        off = self.device.info().offline_pages * 4
        packed, _ = figures("present")
        self.assertGreater(off, whole // 3)
        self.assertLessEqual(packed, whole - off)
        self.assertLess(packed, full - off // 2)
        print(
            f"{full >> 10} MiB of {whole >> 10} at the host, with {off >> 10} off {packed >> 10}",
            end=" ",
        )

class ScramblingFires(TouchTest):
    """The simulated controller detects only accesses that leave a trace; holes detect all."""

    driver, parameters = "ramslice_sim", harness.SIM

    def test_each_kind_of_write_is_detected(self):
        for way in sorted(WRITES):
            with self.subTest(way):
                number, pfn = self.slice_off()
                before = self.violations()
                self.touch(way, pfn)
                self.online(number)
                self.assertGreater(self.violations(), before)
                # Only the first violation is logged
                if not before:
                    self.violation(number, pfn)
        self.expected = self.violations()

    def test_reads_and_restored_writes_are_not_detected(self):
        for way in sorted(READS | LEAVES_NO_TRACE):
            number, pfn = self.slice_off()
            self.touch(way, pfn)
            self.online(number)
            self.assertEqual(self.violations(), 0, way)


class StrictMode(InStrictMode, TouchTest):
    """An access to an offline slice by its kernel address faults."""

    def test_access_by_the_direct_map_faults(self):
        number, pfn = self.slice_off()
        for page in (number * self.pages, pfn, (number + 1) * self.pages - 1):
            for way in sorted(BY_DIRECT_MAP):
                with self.assertRaises(OSError) as caught:
                    self.touch(way, page)
                self.assertEqual(caught.exception.errno, errno.EFAULT, way)
        # No access reached the memory
        self.assertEqual(figures("touched"), (0, 0))
        self.online(number)
        for way in sorted(BY_DIRECT_MAP):
            self.touch(way, pfn)

    def test_the_direct_map_beside_the_slice_is_complete(self):
        number, _ = self.slice_off()
        for page in (number * self.pages - 1, (number + 1) * self.pages):
            self.touch("read-nofault", page)

    def test_holes_detect_access_by_other_mappings(self):
        for way in ("read-mapping", "write-mapping", "read-device", "write-device"):
            with self.subTest(way):
                number, pfn = self.slice_off()
                self.touch(way, pfn)
                self.assertEqual(figures("touched"), (1, pfn))
                self.online(number)
                self.expected += 1

    def test_kcore_reads_zeroes_for_an_offline_slice(self):
        number, _ = self.slice_off()
        with open("/proc/kcore", "rb", buffering=0) as kcore:
            start = number * self.pages * PAGE
            segment = next(
                s
                for s in kcore_segments(kcore)
                if s.is_ram and s.physical <= start < s.physical + s.bytes
            )
            data = os.pread(kcore.fileno(), 2 * MIB, segment.offset + start - segment.physical)
        self.assertEqual(data, bytes(2 * MIB))
        self.assertEqual(figures("touched"), (0, 0))


class HostDoesNotAnswer(ProofTest):
    """Comes last: it loses a slice."""

    def test_a_host_that_does_not_answer_is_an_error(self):
        """A slice that was to wake is lost, and the guest goes on."""
        number, = self.empty()
        patience = dev.read(HOLES / "timeout_ms")
        dev.write(HOLES / "timeout_ms", 0)
        done = self.device.request("offline", id=number)
        dev.write(HOLES / "timeout_ms", patience)
        self.assertEqual((done.status, done.why()), (errno.EIO, "power"))
        self.assertEqual(self.row(number).state, dev.ONLINE)
        # The late answer is not taken for the next one
        self.offline(number)
        self.assertEqual(figures("touched"), (0, 0))
        dev.write(HOLES / "timeout_ms", 0)
        done = self.device.request("online", id=number)
        dev.write(HOLES / "timeout_ms", patience)
        self.assertEqual((done.status, done.why()), (errno.EIO, "quarantined"))
        self.assertEqual(figures("touched"), (0, 0))
