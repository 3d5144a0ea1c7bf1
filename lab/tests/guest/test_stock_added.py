# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that a stock kernel got after its boot: partly plugged virtio-mem, and memory modules with
the descriptors of their own pages (memmap_on_memory).

QEMU adds both above 4 GiB, and the kernel's command line puts them into Movable.
"""

import subprocess
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest.hotplug_blocks import MEMORY, PAGE, PROGRAM, blocks, counter, off, ramslice
from ramlab.pytest_vm import vm

KERNELS = ["debian-6.1", "debian-6.12", "debian-7"]
PARAMETER = Path("/sys/module/memory_hotplug/parameters/memmap_on_memory")
# Each page has a descriptor of so many bytes.
DESCRIPTOR = 64
FOUR_GIB = 4 << 30


def block_bytes():
    return int((MEMORY / "block_size_bytes").read_text(), 16)


def added_blocks():
    """Blocks above all memory of the boot."""
    return [number for number in blocks() if number * block_bytes() >= FOUR_GIB]


def slice_numbered(number):
    found = [row for row in ramslice("status")["snapshot"]["slices"] if row["id"] == number]
    return found[0]


def classes(number):
    """{class of pages: pages} of a slice."""
    found = {}
    for group in ramslice("explain", number)["slices"][0]["groups"]:
        found[group["class"]] = found.get(group["class"], 0) + group["pages"]
    return found


class AddedMemory(unittest.TestCase):
    def setUp(self):
        self.assertEqual(off(), set(), "every block is online before a test")
        self.found, self.total = blocks(), counter("/proc/meminfo", "MemTotal")

    def tearDown(self):
        ramslice("online", "--all")
        self.assertEqual(blocks(), self.found, "each block is online, in its old zone")
        self.assertEqual(counter("/proc/meminfo", "MemTotal"), self.total)

    def switch(self, number):
        """Takes a slice offline and brings it back."""
        done = ramslice("offline", number)["results"][0]["outcome"]
        self.assertEqual((done["reason"], done["slices_done"], off()), ("none", 1, {number}))
        done = ramslice("online", number)["results"][0]["outcome"]
        self.assertEqual((done["reason"], done["slices_done"], off()), ("none", 1, set()))


@vm(kernel=KERNELS, mem="1G", append="memhp_default_state=online_movable",
    qemu=("-m maxmem=8G -object memory-backend-ram,id=more,size=512M",
          "-device virtio-mem-pci,id=vm0,memdev=more,requested-size=396M"))
class PartlyPlugged(AddedMemory):
    """A virtio-mem device gives 396 MiB: three blocks of 128 MiB, and 12 MiB of a fourth one."""

    PART_BYTES = 12 << 20

    @classmethod
    def setUpClass(cls):
        subprocess.run(["modprobe", "virtio_mem"], check=True)

    def setUp(self):
        self.assertTrue(harness.until(lambda: len(added_blocks()) == 4 and not off()),
                        "virtio-mem adds four blocks")
        self.assertRegex(Path("/proc/iomem").read_text(), r"System RAM \(virtio_mem\)")
        super().setUp()
        self.foreign = {number: classes(number).get("foreign", 0) for number in added_blocks()}
        self.part, = (number for number, pages in self.foreign.items() if pages)
        self.whole = [number for number in self.foreign if number != self.part]

    def test_the_block_that_is_a_part_stays_on_because_of_virtio_mem(self):
        self.assertEqual(self.foreign[self.part] * PAGE, block_bytes() - self.PART_BYTES)
        row = slice_numbered(self.part)
        self.assertEqual((row["reason"], row["unreclaimable"]), ("foreign-offline", True))
        refused = ramslice("offline", self.part, status=1)["results"][0]["outcome"]
        self.assertEqual((refused["reason"], refused["slices_done"]), ("foreign-offline", 0))
        text = subprocess.run([PROGRAM, "offline", str(self.part)], text=True,
                              capture_output=True, check=False).stdout
        self.assertIn("a balloon or virtio-mem owns pages in it", text)

    def test_compaction_takes_whole_blocks_and_passes_the_part(self):
        ramslice("compact", "--deadline", "300s")
        self.assertNotIn(self.part, off())
        # A zone keeps room for a block
        self.assertGreaterEqual(len(off() & set(self.whole)), 2)

    def test_a_whole_block_goes_and_comes_back(self):
        self.assertEqual(slice_numbered(self.whole[0])["reason"], "none")
        self.switch(self.whole[0])


@vm(kernel=KERNELS, mem="1G",
    append="memory_hotplug.memmap_on_memory=1 memhp_default_state=online_movable",
    qemu=("-m slots=3,maxmem=8G",
          *(f"-object memory-backend-ram,id=added{n},size=128M -device pc-dimm,memdev=added{n}"
            for n in range(3))))
class DescriptorsInBlocks(AddedMemory):
    """Modules of one block each hold the descriptors of their own pages."""

    def setUp(self):
        self.assertIn(PARAMETER.read_text().strip(), ("Y", "1", "force"))
        super().setUp()
        self.added = added_blocks()
        self.assertEqual(len(self.added), 3)

    def test_a_blocks_own_descriptors_are_named_and_no_obstacle(self):
        frames = block_bytes() // PAGE
        descriptors = frames * DESCRIPTOR // PAGE
        for number in self.added:
            self.assertEqual(classes(number).get("memmap"), descriptors)
            row = slice_numbered(number)
            self.assertEqual((row["reason"], row["unmovable"]), ("none", False))
            self.assertEqual(row["present_pages"], frames - descriptors)

    def test_such_a_block_goes_and_comes_back(self):
        self.switch(self.added[-1])
        self.switch(self.added[-1])
