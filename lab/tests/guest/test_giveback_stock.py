# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice giveback` on Debian's own kernels: idle cache goes, what is in use stays.

The guest's memory is a file that the guest can open, too; what the host has dropped is a hole in
it. RAMSLICE_GUEST_MEMORY names it.
"""

import json
import mmap
import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from ramlab.guest import harness, hotplug_blocks
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import Daemon
from ramlab.guest.harness import MIB
from ramlab.guest.hotplug_blocks import PROGRAM
from ramlab.guest.workload import Load
from ramlab.pytest_vm import memory_file, vm

KERNELS = ["debian-6.1", "debian-6.12", "debian-7"]
BALLOON = "-device virtio-balloon-pci,free-page-reporting=on"
CACHE_MIB = 300


def giveback(*words):
    """The program's answer as JSON."""
    done = subprocess.run([PROGRAM, "giveback", "--json", *words], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def held_mib():
    return os.stat(os.environ["RAMSLICE_GUEST_MEMORY"]).st_blocks * 512 // MIB


class Disk:
    """A disk read through the page cache; closed, its cache would go."""

    def __init__(self, test):
        dev.write("/proc/sys/vm/drop_caches", 1)
        self.file = os.open("/dev/vda", os.O_RDONLY)
        test.addCleanup(os.close, self.file)

    def read(self, at, mib):
        """Reads so many MiB; returns how many the disk had to bring."""
        before = harness.vmstat()["pgpgin"]
        for part in range(at, at + mib):
            os.pread(self.file, MIB, part * MIB)
        return (harness.vmstat()["pgpgin"] - before) // 1024


def fill_cache(test):
    Disk(test).read(0, CACHE_MIB)


@vm(kernel=KERNELS, disk="1G", **memory_file("1G", BALLOON))
class StockGiveback(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run(["modprobe", "virtio_balloon"], check=True)

    def test_idle_cache_goes_to_the_host_and_memory_in_use_stays(self):
        load = Load("anon", 200).wait_ready()
        self.addCleanup(load.kill)
        fill_cache(self)
        before = giveback()
        self.assertGreater(before["idle_cache_bytes"], CACHE_MIB * MIB * 9 // 10)
        held = held_mib()
        done = giveback("--now")
        self.assertGreater(done["reclaimed_bytes"], CACHE_MIB * MIB * 8 // 10)
        self.assertGreater(done["whole_blocks_bytes"],
                           done["whole_blocks_before_bytes"] + CACHE_MIB * MIB * 7 // 10)
        # The kernel reports it within seconds
        self.assertTrue(harness.until(lambda: held_mib() < held - CACHE_MIB * 7 // 10))
        load.end()

    def test_a_dry_run_changes_nothing(self):
        fill_cache(self)
        before = giveback()["idle_cache_bytes"]
        giveback("--now", "--dry-run")
        self.assertGreater(giveback()["idle_cache_bytes"], before * 9 // 10)

    def test_cache_that_is_to_be_kept_is_kept(self):
        fill_cache(self)
        before = giveback()["idle_cache_bytes"]
        giveback("--now", "--cache", "keep")
        self.assertGreater(giveback()["idle_cache_bytes"], before * 9 // 10)

    def test_what_needs_slices_is_refused(self):
        for words in (["--until", "512M"], ["--now", "--budget", "1k"]):
            done = subprocess.run([PROGRAM, "giveback", *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("needs a kernel with ramslice", done.stderr)


HOT_MIB, HOT_AT = 16, 600
# Also a guest that gets little of the host reads what is in use several times within it
AFTER_SECONDS = 20


@vm(kernel=KERNELS, disk="1G", **memory_file("1G", BALLOON))
class StockDaemonGivesCache(unittest.TestCase):
    """ramsliced gives up page cache that is not read, without taking memory blocks."""

    def setUp(self):
        subprocess.run(["modprobe", "virtio_balloon"], check=True)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.daemon = Daemon(folder.name)
        self.addCleanup(self.daemon.end, signal.SIGKILL)

    def configure(self, mode):
        self.daemon.configure(mode=mode, policy="periodic",
                              more=f"[idle_cache]\nafter_seconds = {AFTER_SECONDS}\n")
        settings = self.daemon.folder / "c.toml"
        settings.write_text('backend = "kernel"\n' + settings.read_text())

    def idle_cache(self):
        return (self.daemon.status() or {}).get("idle_cache", {})

    def test_cache_that_is_not_read_goes_to_the_host_and_what_is_read_stays(self):
        disk = Disk(self)
        for _ in range(2):
            disk.read(HOT_AT, HOT_MIB)
        self.assertGreater(disk.read(0, CACHE_MIB), CACHE_MIB * 9 // 10)
        held = held_mib()
        self.configure("on")
        self.daemon.start()

        def gone():
            disk.read(HOT_AT, HOT_MIB)
            return (self.idle_cache().get("reclaimed_bytes", 0) > CACHE_MIB * MIB * 8 // 10
                    and held_mib() < held - CACHE_MIB * 7 // 10)

        self.daemon.until(gone)
        self.assertLess(disk.read(HOT_AT, HOT_MIB), HOT_MIB // 4)
        self.assertGreater(disk.read(0, CACHE_MIB), CACHE_MIB * 7 // 10)
        status = self.daemon.status()
        self.assertIn("a kernel without ramslice", status["why"])
        self.assertEqual((status["idle_cache"]["state"], status["machine"]["error"]),
                         ("works", None))
        metrics = self.daemon.metrics()
        self.assertGreater(metrics["ramslice_idle_cache_reclaimed_bytes_total"], 0)
        self.assertEqual((metrics["ramslice_up"], hotplug_blocks.off()), (1, set()))
        # What was read again makes it wait for longer
        self.daemon.until(lambda: self.idle_cache()["after_seconds"] > AFTER_SECONDS)

    def test_mode_observe_says_what_would_go_and_keeps_it(self):
        disk = Disk(self)
        disk.read(0, CACHE_MIB)
        self.configure("observe")
        self.daemon.start()
        self.daemon.until(lambda: "would reclaim" in self.idle_cache().get("why", ""))
        self.assertEqual(self.idle_cache()["reclaimed_bytes"], 0)
        self.assertLess(disk.read(0, CACHE_MIB), CACHE_MIB // 8)


def pages_among_holes(test, mib, every):
    """Every so many pages of `mib` MiB of memory in use, the rest free again: (map, pages)."""
    # Of shared memory, the others would stay
    memory = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    test.addCleanup(memory.close)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(0, len(memory), mmap.PAGESIZE):
        memory[page : page + 8] = page.to_bytes(8, "little")
    left = range(0, len(memory), every * mmap.PAGESIZE)
    for page in left:
        memory.madvise(mmap.MADV_DONTNEED, page + mmap.PAGESIZE, (every - 1) * mmap.PAGESIZE)
    return memory, left


def children(pid):
    return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


@vm(kernel=KERNELS, **memory_file("2G", BALLOON))
class StockHotplug(unittest.TestCase):
    """Memory blocks go offline and come back: what is free among pages in use is made whole."""

    def setUp(self):
        subprocess.run(["modprobe", "virtio_balloon"], check=True)
        # Else the kernel may do it by itself meanwhile
        dev.write("/proc/sys/vm/compaction_proactiveness", 0)
        self.addCleanup(hotplug_blocks.wake_blocks)

    def assert_pages_are_right(self, memory, left):
        for page in left:
            self.assertEqual(int.from_bytes(memory[page : page + 8], "little"), page)

    def test_blocks_are_emptied_and_all_are_back_where_they_were(self):
        memory, left = pages_among_holes(self, 800, 16)
        before = hotplug_blocks.blocks()
        done = giveback("--now", "--hotplug", "--cache", "keep")
        self.assertGreater(done["memory_blocks_emptied"], 0)
        self.assertEqual(hotplug_blocks.blocks(), before)
        self.assert_pages_are_right(memory, left)
        # Of 750 MiB that lie among pages in use
        self.assertGreater(done["whole_blocks_bytes"],
                           done["whole_blocks_before_bytes"] + 400 * MIB)

    def test_a_block_is_back_soon_after_the_program_was_killed(self):
        memory, left = pages_among_holes(self, 800, 16)
        killed = 0
        for at in range(6):
            running = subprocess.Popen(
                [PROGRAM, "giveback", "--now", "--hotplug", "--cache", "keep"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # As soon as one is offline, or on its way
            if harness.until(lambda: hotplug_blocks.off() or running.poll() is not None, 20) \
                    and running.poll() is None:
                killed += 1
                if at % 2:
                    # As when a supervisor ends the unit: all its processes
                    for child in children(running.pid):
                        os.kill(child, signal.SIGTERM)
            running.kill()
            running.wait()
            self.assertTrue(harness.until(lambda: not hotplug_blocks.off(), 10))
        self.assertGreater(killed, 0)
        self.assert_pages_are_right(memory, left)

    def test_under_pressure_no_block_goes(self):
        load = Load("anon", 1500).wait_ready()
        self.addCleanup(load.kill)
        done = giveback("--now", "--hotplug", "--cache", "keep")
        self.assertEqual(done["memory_blocks_emptied"], 0)
        self.assertEqual(hotplug_blocks.off(), set())
        load.end()


@vm(kernel="debian-6.12", disk="1G", **memory_file("1G"))
class StockWithoutDevice(unittest.TestCase):
    def test_what_would_not_reach_the_host_is_refused(self):
        fill_cache(self)
        before = giveback()["idle_cache_bytes"]
        done = subprocess.run([PROGRAM, "giveback", "--now"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no device", done.stderr)
        self.assertGreater(giveback()["idle_cache_bytes"], before * 9 // 10)
