# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices by a device tree, on arm64: the node ddr-regions, as Qualcomm's bootloaders leave it, says
what they are, and what cannot be leaves ramslice off.
"""

import struct
import subprocess
import unittest
from pathlib import Path

from ramlab.architectures import ARM64
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.pinned_memory import PatternedMemory, page_flags
from ramlab.guest.proofs import KPF_OFFLINE
from ramlab.pytest_vm import vm

BLOCK = 2 * MIB
# QEMU's virtual board has its memory from here on, in MiB
BASE, SIZE = 1024, 1024
# Start, length and offset of the first whole segment, its index, and the size of segments, in MiB
REGIONS = [(BASE, 512, 32, 1, 64), (BASE + 512, 256, 0, 0, 0), (BASE + 768, 256, 0, 9, 128),
           (8192, 1024, 0, 11, 512)]
SEGMENTS = [*((start, 64) for start in range(BASE + 32, BASE + 480, 64)),
            (BASE + 768, 128), (BASE + 896, 128), (8192, 512), (8704, 512)]
OVERLAP = [*REGIONS, (8192 + 512, 16, 0, 0, 0)]
# The header of a flattened tree, and the words of its nodes (Devicetree Specification 0.4, 5)
HEADER = struct.Struct(">10I")
BEGIN_NODE, END_NODE, PROPERTY, END = 1, 2, 3, 9


def padded(data):
    return data + bytes(-len(data) % 4)


def with_node(tree, name, properties):
    """A flattened tree with a node more below its root."""
    (magic, _, nodes_at, names_at, reserved_at, version, compatible, cpu, names_size,
     nodes_size) = HEADER.unpack_from(tree)
    names = tree[names_at:names_at + names_size]
    node = struct.pack(">I", BEGIN_NODE) + padded(name.encode() + b"\0")
    for key, value in properties.items():
        node += struct.pack(">3I", PROPERTY, len(value), len(names)) + padded(value)
        names += key.encode() + b"\0"
    node += struct.pack(">I", END_NODE)
    # The root's own end, and the tree's, come after it
    end = nodes_at + nodes_size - 8
    assert tree[end:end + 8] == struct.pack(">2I", END_NODE, END)
    nodes = tree[nodes_at:end] + node + tree[end:end + 8]
    # No memory is reserved: two zeros end the list
    assert tree[reserved_at:reserved_at + 16] == bytes(16)
    offset = HEADER.size + 16
    return HEADER.pack(magic, offset + len(nodes) + len(names), offset, offset + len(nodes),
                       HEADER.size, version, compatible, cpu, len(names), len(nodes)
                       ) + bytes(16) + nodes + names


def write_tree(path, regions):
    """The tree that QEMU makes for the board, and the node."""
    board, *words = ARM64.qemu[1:]
    subprocess.run([f"qemu-system-{ARM64.machine}", "-machine", f"{board},dumpdtb={path}", *words,
                    "-smp", "2", "-m", "1G", "-display", "none"], check=True,
                   capture_output=True)
    properties = {f"region{number}": struct.pack(">5Q", start * MIB, size * MIB, offset * MIB,
                                                 index, granule)
                  for number, (start, size, offset, index, granule) in enumerate(regions)}
    path = Path(path)
    path.write_bytes(with_node(path.read_bytes(), "ddr-regions", properties))


def write_sound_tree(path):
    write_tree(path, REGIONS)


def write_tree_with_overlap(path):
    write_tree(path, OVERLAP)


def frames(number):
    """First page frame of each pageblock of a slice."""
    start, size = SEGMENTS[number]
    return set(range(start * MIB // PAGE, (start + size) * MIB // PAGE, BLOCK // PAGE))


def off_blocks():
    """First page frames of pageblocks that are off, by their flags."""
    first, last = BASE * MIB // PAGE, (BASE + SIZE) * MIB // PAGE
    return {pfn for pfn in range(first, last, BLOCK // PAGE)
            if (flags := page_flags(pfn)) and flags[0] >> KPF_OFFLINE & 1}


@vm(arch="arm64", mem="1G", append="ramslice=firmware", files={"tree": write_sound_tree},
    qemu="-dtb {folder}/tree", slow=True)
class DeviceTree(harness.RamsliceTest):
    def test_whole_segments_of_regions_that_power_down_are_slices(self):
        self.assertEqual(
            [(s.start_bytes, s.bytes) for s in self.device.segments()],
            [(start * MIB, size * MIB) for start, size in SEGMENTS],
        )
        self.assertIn(f"{len(SEGMENTS)} slices by a table of firmware, the largest of 512 MiB",
                      harness.kernel_log())
        # There is no memory in the last two
        rows = {row.id: row.nr_pages * PAGE for row in self.device.snapshot()}
        self.assertEqual(rows, {number: size * MIB
                                for number, (_, size) in enumerate(SEGMENTS[:-2])})

    def test_exactly_the_segments_go_off_and_contents_stay(self):
        with PatternedMemory(48) as memory:
            self.assertGreater(harness.compact(self.device), 2)
            off = harness.ids(self.device, dev.OFFLINE)
            self.assertEqual(off_blocks(), set().union(*map(frames, off)))
            harness.wake(self.device)
            self.assertEqual(off_blocks(), set())
            self.assertIsNone(memory.wrong_at())
        self.assert_sane()


class Refused(unittest.TestCase):
    """Ramslice is off, and the log says why."""

    def assert_off(self, why):
        self.assertEqual(dev.read(dev.SYSFS / "enabled"), "0")
        self.assertFalse(Path("/dev/ramslice").exists())
        self.assertIn(f"ramslice: off: {why}", harness.kernel_log())


@vm(arch="arm64", mem="1G", append="ramslice=firmware", files={"tree": write_tree_with_overlap},
    qemu="-dtb {folder}/tree", slow=True)
class Overlap(Refused):
    def test_regions_that_overlap_are_refused_and_the_property_named(self):
        self.assert_off("device tree node /ddr-regions, property region4: it overlaps a region "
                        "before it")


@vm(arch="arm64", mem="1G", append="ramslice=firmware", slow=True)
class Silent(Refused):
    def test_where_the_tree_has_no_regions_the_segments_are_not_known(self):
        self.assert_off("which segments of memory power down as one is not known: the device tree "
                        "has no node ddr-regions")
