# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel counts look-ups of the page cache as they are known to be; trace events agree; and
watermarks that follow the hit ratio do not follow a stream.
"""

import contextlib
import json
import mmap
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

import pytest

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import DaemonTest
from ramlab.guest.harness import MIB, PAGE, until
from ramlab.guest.hit_ratio import CountedFile, counted, during, loops, zipf
from ramlab.pytest_vm import vm

LAB_PROGRAM = os.environ.get(
    "RAMSLICE_LAB_PROGRAM", f"{os.environ.get('RAMSLICE_PROGRAM', 'ramslice')}-lab"
)
TRACING = Path("/sys/kernel/tracing")
# How far a ratio may be from its known answer
CLOSE = 0.005
PAGES = 4096


class LookupTest(unittest.TestCase):
    def setUp(self):
        if "\text4\n" not in Path("/proc/filesystems").read_text():
            # A module of Debian's kernels
            subprocess.run(["modprobe", "ext4"], check=True)
        self.file = CountedFile(Path(dev.file_system(), "counted"), PAGES)
        self.addCleanup(self.file.close)

    def read_across_pages(self):
        """Reads of three pages, each of which crosses four."""
        buffer = bytearray(3 * PAGE)
        for page in range(508):
            self.assertEqual(os.preadv(self.file.fd, [buffer], page * PAGE + 100), len(buffer))

    def check(self, seen, expected, lookups):
        self.assertAlmostEqual(seen.hit_ratio, expected, delta=CLOSE)
        # What else looks something up meanwhile is little beside it
        self.assertGreaterEqual(seen.lookups, lookups)
        self.assertLess(seen.lookups, 1.02 * lookups)


@vm(mem="1G", disk="512M", append="ramslice=16M")
class Counters(LookupTest):
    def setUp(self):
        super().setUp()
        if counted() is None:
            self.skipTest("this kernel does not count look-ups")

    def test_loops_over_a_file_that_is_read(self):
        pages, expected = loops(PAGES, 10)
        self.check(during(lambda: self.file.read(pages)), expected, len(pages))

    def test_loops_over_a_file_that_is_mapped(self):
        pages, expected = loops(PAGES, 5)
        seen = during(lambda: self.file.touch(pages))
        self.check(seen, expected, len(pages))
        self.assertGreaterEqual(seen.lookup_fault, len(pages))

    def test_zipf_over_a_file_that_is_read(self):
        pages, expected = zipf(PAGES, 40_000, seed=1)
        seen = during(lambda: self.file.read(pages))
        self.check(seen, expected, len(pages))
        # Without readahead both ratios are one
        self.assertAlmostEqual(seen.disk_free_ratio, expected, delta=CLOSE)

    def test_zipf_over_a_file_that_is_mapped(self):
        pages, expected = zipf(PAGES, 20_000, seed=2)
        self.check(during(lambda: self.file.touch(pages)), expected, len(pages))

    def test_readahead_hides_misses_from_one_ratio_and_not_from_the_other(self):
        os.posix_fadvise(self.file.fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        seen = during(lambda: self.file.read(range(PAGES)))
        self.assertGreater(seen.hit_ratio, 0.9)
        self.assertLess(seen.disk_free_ratio, 0.1)

    def test_a_read_counts_each_page_that_it_crosses(self):
        self.file.read(range(PAGES))
        self.check(during(self.read_across_pages), 1.0, 508 * 4)

    def test_what_is_read_where_the_read_before_ended_was_used(self):
        def again():
            for _ in range(200):
                self.file.read([0])
                self.file.drop()

        seen = during(again)
        self.assertGreaterEqual(seen.readahead, 200)
        self.assertLess(seen.readahead_unused, 20)

    def test_what_is_sent_to_another_file_counts(self):
        null = os.open("/dev/null", os.O_WRONLY)
        self.addCleanup(os.close, null)

        def send():
            for page in list(range(PAGES)) * 2:
                self.assertEqual(os.sendfile(null, self.file.fd, page * PAGE, PAGE), PAGE)

        self.check(during(send), 0.5, 2 * PAGES)

    def test_io_uring_counts_what_it_finds_and_what_it_does_not(self):
        line = ["fio", "--name=reads", f"--filename={self.file.path}", "--rw=randread", "--bs=4k",
                f"--size={PAGES * PAGE}", "--loops=10", "--ioengine=io_uring", "--iodepth=8",
                "--invalidate=0", "--fadvise_hint=random", "--output=/dev/null"]
        seen = during(lambda: subprocess.run(line, check=True))
        self.assertAlmostEqual(seen.hit_ratio, 0.9, delta=CLOSE)
        # The program itself is looked up, too
        self.assertGreaterEqual(seen.lookup_read, 10 * PAGES)
        self.assertLess(seen.lookups, 1.05 * 10 * PAGES)
        self.assertGreaterEqual(seen.absent_read, PAGES)

    def test_direct_io_and_reads_that_may_not_wait_are_no_lookups(self):
        self.file.read(range(PAGES))
        buffer = mmap.mmap(-1, PAGE)
        direct = os.open(self.file.path, os.O_RDONLY | os.O_DIRECT)
        self.addCleanup(os.close, direct)

        def bypass():
            for page in range(PAGES):
                os.preadv(direct, [buffer], page * PAGE)
                os.preadv(self.file.fd, [buffer], page * PAGE, os.RWF_NOWAIT)

        self.assertLess(during(bypass).lookups, PAGES // 20)

    def test_shared_memory_is_no_cache_of_a_file(self):
        with open("/dev/shm/shared", "w+b") as file:
            self.addCleanup(os.unlink, file.name)
            file.write(bytes(PAGES * PAGE // 4))
            file.flush()

            def use():
                with mmap.mmap(file.fileno(), 0) as view:
                    for page in range(PAGES // 4):
                        _ = view[page * PAGE]
                        os.pread(file.fileno(), PAGE, page * PAGE)

            self.assertLess(during(use).lookups, PAGES // 20)


# No file system of ours has large folios, unless they are collapsed into them
@vm(kernel=["debug"], slow="debug", mem="1G", disk="512M", append="ramslice=16M")
class LargeFolio(LookupTest):
    def test_it_counts_by_the_pages_that_are_looked_up(self):
        self.file.read(range(PAGES))
        self.assertTrue(self.file.collapse())
        pages = list(range(512)) * 20
        self.check(during(lambda: self.file.read(pages)), 1.0, len(pages))
        self.check(during(self.read_across_pages), 1.0, 508 * 4)


class TraceTest(LookupTest):
    def setUp(self):
        super().setUp()
        if not os.path.ismount(TRACING):
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)

    def instances(self):
        return list(TRACING.glob("instances/ramslice-*"))

    def start(self, *words):
        """Begins to count; returns when all events are traced."""
        process = subprocess.Popen([LAB_PROGRAM, "hit-ratio", *words], text=True,
                                   stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        last = f"ramslice-hit-ratio-{process.pid}/events/filemap/mm_filemap_add_to_page_cache"
        for _ in range(600):
            # An instance that was just made has no files so far
            with contextlib.suppress(FileNotFoundError):
                if dev.read(TRACING / "instances" / last / "enable")[0] == "1":
                    return process
            time.sleep(0.1)
        raise TimeoutError("nothing is traced after a minute")


# Debian's kernel takes 64 MiB for persistent memory, of which files are read without a cache
STOCK = {"kernel": ["debian-6.12"], "mem": "1G", "disk": "512M", "append": "memmap=64M!768M"}


@vm(mem="1G", disk="512M", append="ramslice=16M")
@vm(**STOCK)
class Trace(TraceTest):
    def test_trace_events_give_the_known_ratio_and_that_of_the_counters(self):
        reads, touches = zipf(PAGES, 20_000, seed=3), loops(PAGES // 2, 5)
        absent = sum((1 - ratio) * len(pages) for pages, ratio in (reads, touches))
        expected = 1 - absent / sum(len(pages) for pages, _ in (reads, touches))
        process = self.start("--json")
        self.file.read(reads[0])
        self.file.drop()
        self.file.touch(touches[0])
        process.send_signal(signal.SIGINT)
        found = json.loads(process.communicate(timeout=120)[0])
        self.assertEqual((process.returncode, self.instances()), (0, []))
        traced = found["traced"]
        self.assertAlmostEqual(traced["lookup_hit_ratio"], expected, delta=CLOSE)
        for kind, pages in (("read", reads[0]), ("fault", touches[0])):
            self.assertGreaterEqual(traced[f"lookup_{kind}_pages"], len(pages))
            self.assertLess(traced[f"lookup_{kind}_pages"], 1.02 * len(pages))
        if counted() is not None:
            self.assertAlmostEqual(traced["lookup_hit_ratio"],
                                   found["counted"]["lookup_hit_ratio"], delta=CLOSE)

    def test_an_interrupt_leaves_no_instance_and_what_a_kill_left_goes_at_the_next_start(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual((process.returncode, self.instances()), (0, []))
        process = self.start()
        process.kill()
        process.communicate()
        self.assertEqual(len(self.instances()), 1)
        subprocess.run([LAB_PROGRAM, "hit-ratio", "--for", "1s"], check=True,
                       stdout=subprocess.DEVNULL)
        self.assertEqual(self.instances(), [])


# Ours has no DAX
@vm(**STOCK)
class Dax(TraceTest):
    def test_dax_is_no_lookup(self):
        subprocess.run(["modprobe", "-a", "nd_e820", "nd_pmem"], check=True)
        disk = Path("/dev/pmem0")
        self.assertTrue(until(disk.exists, 60))
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", disk], check=True)
        folder = Path("/run/dax")
        folder.mkdir()
        subprocess.run(["mount", "-o", "dax", disk, folder], check=True)
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        file = CountedFile(folder / "counted", 1024)
        self.addCleanup(file.close)
        process = self.start("--json")
        file.read(range(1024))
        file.touch(range(1024))
        process.send_signal(signal.SIGINT)
        traced = json.loads(process.communicate(timeout=120)[0])["traced"]
        for kind in ("read", "fault"):
            self.assertLess(traced[f"lookup_{kind}_pages"], 1024 // 20)


@vm(kernel=["debian-6.1"], mem="1G")
class OldKernel(unittest.TestCase):
    def test_a_kernel_without_the_events_is_named(self):
        if not os.path.ismount(TRACING):
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
        done = subprocess.run([LAB_PROGRAM, "hit-ratio", "--for", "1s"], text=True,
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 2)
        for words in ("mm_filemap_get_pages", "6.12", os.uname().release):
            self.assertIn(words, done.stderr)


@vm(mem="1G", disk="1G", append="ramslice=16M")
class Watermarks(DaemonTest):
    MARKS = """
[watermarks]
hit_ratio = 0.9
timeout_seconds = 0.5
free_low_mib = 16
free_high_mib = 64
cache_free_low_mib = 32
cache_free_high_mib = 96
least_lookups = 2000
# No lower again while a busy machine takes its time
lower_after_timeouts = 1000
"""

    def setUp(self):
        super().setUp()
        if counted() is None:
            self.skipTest("this kernel does not count look-ups")
        self.daemon.configure(mode="on", policy="watermarks")
        settings = self.daemon.folder / "c.toml"
        settings.write_text(settings.read_text() + self.MARKS)
        self.hot = CountedFile(Path(dev.file_system(), "hot"), 8 * MIB // PAGE)
        self.addCleanup(self.hot.close)

    def moves(self):
        """How often watermarks were raised, over all zones."""
        moved = "ramslice_cache_watermark_moves_total"
        return sum(value for name, value in self.daemon.metrics().items()
                   if name.startswith(moved) and "raised" in name)

    def marks(self):
        """The watermarks of the largest zone."""
        zones = [zone for zone in self.daemon.status()["zones"] if zone["watermarks"]]
        return max(zones, key=lambda zone: zone["nr_slices"])["watermarks"]

    def record(self, folder):
        """Records into a folder until it gets SIGINT, also what this daemon reports."""
        runtime = Path("/run/ramslice")
        if runtime.is_symlink():
            # A test that ran out of time has left its link
            runtime.unlink()
        elif runtime.exists():
            # Programs that others ran in this machine
            self.addCleanup(runtime.rename("/run/ramslice-before").rename, runtime)
        runtime.symlink_to(self.daemon.folder)
        self.addCleanup(runtime.unlink)
        process = subprocess.Popen([LAB_PROGRAM, "record", "--every", "500ms", "-o", folder],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def check_report(self, recorder, folder):
        """Ratios, watermarks and the reasons of their moves are drawn."""
        recorder.send_signal(signal.SIGINT)
        self.assertEqual(recorder.wait(300), 0)
        data = Path("/mnt/figures")
        subprocess.run([LAB_PROGRAM, "report", folder, "-o", "/mnt/page.html", "--csv", data],
                       check=True, stdout=subprocess.DEVNULL)
        marks = (data / "watermarks.csv").read_text()
        self.assertIn("raises CACHE_FREE_LOW", marks)
        for name in ("hit-ratio.csv", "hit-ratio-watermarks.csv"):
            self.assertGreater(len((data / name).read_text().splitlines()), 5, name)
        dumped = subprocess.run([LAB_PROGRAM, "dump", folder, "-O", "openmetrics", "--table",
                                 "vmstat"], check=True, text=True, stdout=subprocess.PIPE).stdout
        self.assertIn("\nramslice_cache_lookup_hit_ratio ", dumped)

    def until_little_is_on(self):
        def settled():
            off = self.off()
            self.daemon.steps(4)
            return off == self.off() > 10

        self.daemon.until(settled)

    @pytest.mark.slow
    def test_streaming_past_a_small_hot_set_raises_nothing(self):
        stream = CountedFile(Path("/mnt/stream"), 200 * MIB // PAGE)
        self.addCleanup(stream.close)
        self.daemon.start()
        self.until_little_is_on()
        hot = list(range(self.hot.pages))
        part = stream.pages // 25
        # Packing has dropped what was not read; that it is read again is no fault of the stream
        for _ in range(2):
            self.hot.read(hot)
            self.daemon.steps(3)
        before = self.moves()
        for at in range(25):
            self.hot.read(hot)
            stream.read(range(at * part, (at + 1) * part))
        self.daemon.steps(3)
        self.assertEqual(self.moves(), before, self.marks())

    def test_a_set_that_memory_could_keep_raises_them_until_it_is_kept(self):
        work = CountedFile(Path("/mnt/work"), 160 * MIB // PAGE)
        self.addCleanup(work.close)
        self.daemon.start()
        self.until_little_is_on()
        before, off = self.marks(), self.off()
        recorder = self.record("/mnt/recording")
        work.read(zipf(work.pages, 240_000, seed=4, skew=0.2)[0])
        self.daemon.steps(2)
        after = self.marks()
        self.assertGreater(self.moves(), 3)
        self.assertGreater(after["cache_free_low_bytes"], before["cache_free_low_bytes"])
        self.assertLess(self.off(), off)
        self.assertIn("raises", after["last_move"])
        self.check_report(recorder, "/mnt/recording")
        pages = zipf(work.pages, 20_000, seed=5, skew=0.2)[0]
        seen = during(lambda: work.read(pages))
        self.assertGreater(seen.hit_ratio, 0.8)
