# SPDX-License-Identifier: GPL-2.0-or-later
"""Who gets emptied memory: ramsliced makes huge pages of slices that sleep, and gives them back."""

import mmap
import signal
import subprocess
from pathlib import Path

import pytest

from ramlab.guest import dma_heap, harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import DaemonTest
from ramlab.guest.harness import PAGE
from ramlab.guest.hotplug_blocks import PROGRAM
from ramlab.pytest_vm import vm

GIB = 1 << 30
POOL = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB")
# Where `ramslice status` looks for the daemon's file
STATUS = Path("/run/ramslice/status.json")
BALLOON = "-device virtio-balloon-pci,free-page-reporting=on"
MAP_HUGETLB, MAP_HUGE_1GB = 0x40000, 30 << 26


def takers(**values):
    """The table of settings."""
    values = {"settle_seconds": 0.0, **values}
    return "[takers]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


def pool(name="nr_hugepages"):
    return int(dev.read(POOL / name))


def use_page(value):
    """Maps a page of the pool and writes to its first and last byte."""
    page = mmap.mmap(-1, GIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB
                     | MAP_HUGE_1GB)
    page[0] = page[GIB - 1] = value
    return page


# Kernel pages together, so that several ranges of 1 GiB have none
@vm(mem="6G", append="ramslice=64M ramslice_placement=packed", qemu=("-cpu max", BALLOON))
class Takers(DaemonTest):
    def setUp(self):
        super().setUp()
        self.leave_nothing()

    def leave_nothing(self):
        """At the end of the test, before what was set up so far ends."""
        self.addCleanup(harness.wake, self.device)
        self.addCleanup(dev.write, POOL / "nr_hugepages", 0)
        # First of all: it would make pages again
        self.addCleanup(self.daemon.end, signal.SIGKILL)

    def configure(self, mode="on", reload=False, **values):
        change = self.daemon.reload if reload else self.daemon.configure
        # Only what is empty goes off
        change(mode=mode, policy="periodic", budget=0, more=takers(**values))

    def said(self):
        return (self.daemon.status() or {}).get("takers") or {}

    def huge(self, name):
        """A figure of the pool that the daemon reports; None while it reports none."""
        return (self.said().get("huge") or {}).get(name)

    def test_pages_are_made_of_what_sleeps_and_given_back_unless_in_use_or_the_administrators(self):
        # Without a driver, what is off is worth nothing
        self.enterContext(harness.simulator())
        self.leave_nothing()
        dev.write(POOL / "nr_hugepages", 1)
        self.assertEqual(pool(), 1)
        self.configure()
        self.daemon.start()
        # Nothing is wanted, so memory sleeps and the pool stays
        self.daemon.until(lambda: self.off() > 24 and self.said())
        self.assertEqual((pool(), self.said()["huge"]), (1, None))
        self.configure(reload=True, huge_count=2)
        self.daemon.until(lambda: pool() == 2)
        self.daemon.until(lambda: self.huge("made_pages") == 1)
        self.assertEqual(self.huge("administrators_pages"), 1)
        # A slice that sleeps is worth less, so it does not take the page back
        self.daemon.steps(4)
        self.assertEqual((pool(), pool("free_hugepages")), (2, 2))
        asleep = self.off()
        with use_page(0xa5) as kept:
            with use_page(0x5a) as page:
                self.configure(reload=True, huge_count=2, sleep=20)
                self.daemon.steps(4)
                self.assertEqual((pool(), pool("free_hugepages")), (2, 0))
                self.assertEqual((page[0], page[GIB - 1]), (0x5a, 0x5a))
            # The program ends: what the daemon made goes, and sleeps
            self.daemon.until(lambda: pool() == 1)
            self.daemon.until(lambda: self.off() >= asleep + 8)
            self.daemon.steps(3)
            self.assertEqual((pool(), pool("free_hugepages")), (1, 0))
            self.assertEqual((kept[0], kept[GIB - 1]), (0xa5, 0xa5))
        self.daemon.steps(2)
        self.assertEqual((pool(), pool("free_hugepages")), (1, 1))
        metrics = self.daemon.metrics()
        self.assertEqual(metrics['ramslice_huge_made_pages_total{mode="on"}'], 1)
        name = 'ramslice_huge_given_back_pages_total{mode="on",cause="dearer-use"}'
        self.assertEqual(metrics[name], 1)
        harness.check_violations()

    def test_what_the_host_has_is_dearer_unless_the_settings_say_otherwise(self):
        subprocess.run(["modprobe", "ramslice_report"], check=True)
        self.addCleanup(subprocess.run, ["modprobe", "-r", "ramslice_report"], check=True)
        self.leave_nothing()
        self.configure(huge_count=1)
        self.daemon.start()
        self.daemon.until(lambda: "the host has is worth more" in self.said().get("why", ""))
        self.daemon.until(lambda: self.off() > 24)
        self.daemon.until(lambda: self.said()["by_value"][1]["bytes"] > 0)
        self.assertEqual((pool(), self.said()["by_value"][1]["taker"]), (0, "host"))
        self.configure(reload=True, huge_count=1, huge=200)
        self.daemon.until(lambda: pool() == 1)
        self.configure(reload=True, huge_count=1)
        self.daemon.until(lambda: pool() == 0)

    def test_observe_changes_nothing_and_says_what_it_would_make(self):
        before = self.tried()
        self.configure("observe", huge_count=2)
        self.daemon.start()
        self.daemon.until(lambda: self.huge("made_pages") == 2)
        self.daemon.steps(2)
        self.assertEqual((pool(), self.off(), self.tried()), (0, 0, before))
        self.assertIn("would have made", self.said()["last_change"])
        STATUS.parent.mkdir(parents=True, exist_ok=True)
        STATUS.symlink_to(self.daemon.folder / "status.json")
        self.addCleanup(STATUS.unlink)
        text = subprocess.run([PROGRAM, "status"], capture_output=True, text=True,
                              check=True).stdout
        self.assertIn("huge 10 (2 GiB)", " ".join(text.split()))

    @pytest.mark.slow
    def test_a_buffer_that_was_refused_can_be_had_after_pages_were_given_back(self):
        self.configure(huge_count=2, settle_seconds=600)
        self.daemon.start()
        self.daemon.until(lambda: self.huge("made_pages") == 2)
        self.assertEqual(pool(), 2)
        size = 768 * harness.MIB
        # Less is left than the buffer needs, in all zones together
        left = sum(zone.free_pages + zone.offline_pages for zone in self.device.zones())
        with harness.Memory(left * PAGE // harness.MIB - 512, huge=True) as memory:
            memory.touch()
            with self.assertRaises(OSError):
                dma_heap.Buffer(size)
            self.assertEqual(dma_heap.books()["last_refusal"], "awake-reserve")
            self.daemon.until(lambda: pool() == 1)
            self.daemon.until(lambda: "a buffer was refused" in self.said()["last_change"])
            with dma_heap.Buffer(size):
                self.daemon.steps(3)
                rows = {row["taker"]: row for row in self.said()["by_value"]}
                self.assertEqual(rows["buffers"]["bytes"], size)
            # It would be made again at once if nothing settled
            self.daemon.steps(3)
            self.assertEqual(pool(), 1)
