# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices as a table of segments of unequal sizes: each is emptied, switched off, woken, counted and
shown as what the table says, and what cannot be a table leaves ramslice off.

RAMSLICE_PROGRAM names the program.
"""

import ctypes
import errno
import json
import struct
import subprocess
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.dma_heap import Buffer, listed
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.pinned_memory import PageMovementTest, PatternedMemory, page_flags
from ramlab.guest.proofs import KPF_OFFLINE
from ramlab.pytest_vm import vm

BLOCK = 2 * MIB
# In MiB, by address: where the zones meet, no two alike side by side, two gaps, an odd number of
# pageblocks, and one past the end of memory
SEGMENTS = [(8, 16), (64, 64), (128, 192), (320, 32), (352, 48), (448, 256), (706, 6), (712, 56),
            (768, 64), (832, 160), (2048, 512)]
TABLE = ",".join(f"{size}M@{start}M" for start, size in reversed(SEGMENTS))
GAPS = ((24, 64), (400, 448), (704, 706))
# What firmware says of the same segments but the first and the last, and of three that do not count
MPST_SEGMENTS = SEGMENTS[1:-1]
ENABLED, POWER_MANAGED, HOT_PLUG = 1, 2, 4
MACHINE = vm(kernel=["plain", "debug"], slow="debug", mem="1G", append=f"ramslice=table:{TABLE}")


def mpst_node(number, flags, start_mib, size_mib, states=(0, 1)):
    """A memory power node (ACPI 6.5, 5.2.22.2), with states and a component."""
    entries = b"".join(struct.pack("<BB", value, 0) for value in states) + struct.pack("<H", 1)
    return struct.pack("<BBHIQQII", flags, 0, number, 32 + len(entries), start_mib * MIB,
                       size_mib * MIB, len(states), 1) + entries


def write_mpst(path):
    """A table as QEMU wants it, without the header of all tables."""
    managed = ENABLED | POWER_MANAGED
    nodes = [mpst_node(number, managed, *segment)
             for number, segment in enumerate(MPST_SEGMENTS)]
    nodes.append(mpst_node(20, managed | HOT_PLUG, 4096, 1024))
    # One that has others inside, one that only firmware switches, one that is always on
    nodes.append(mpst_node(21, managed, 448, 512))
    nodes.append(mpst_node(22, ENABLED, 400, 16))
    nodes.append(mpst_node(23, managed, 416, 16, states=(0,)))
    # No characteristics of states follow
    Path(path).write_bytes(struct.pack("<B3xHxx", 0, len(nodes)) + b"".join(nodes) + bytes(4))


def write_truncated_mpst(path):
    write_mpst(path)
    Path(path).write_bytes(Path(path).read_bytes()[:-20])


def frames(number):
    """First page frame of each pageblock of a slice."""
    start, size = SEGMENTS[number]
    return set(range(start * MIB // PAGE, (start + size) * MIB // PAGE, BLOCK // PAGE))


def off_blocks():
    """First page frames of pageblocks that are off, by their flags."""
    return {pfn for pfn in range(0, 1024 * MIB // PAGE, BLOCK // PAGE)
            if (flags := page_flags(pfn)) and flags[0] >> KPF_OFFLINE & 1}


def slice_at(pfn):
    return next((number for number, (start, size) in enumerate(SEGMENTS)
                 if start * MIB <= pfn * PAGE < (start + size) * MIB), None)


@MACHINE
class Segments(PageMovementTest):
    def test_the_kernel_says_what_it_made_of_the_table(self):
        info = self.device.info()
        self.assertEqual(
            [(s.start_bytes, s.bytes) for s in self.device.segments()],
            [(start * MIB, size * MIB) for start, size in SEGMENTS],
        )
        self.assertEqual(info.nr_segments, len(SEGMENTS))
        # The last has no memory
        self.assertEqual(info.nr_slices, len(SEGMENTS) - 1)
        self.assertEqual(info.slice_bytes, 512 * MIB)
        self.assertEqual(info.interleave_ways, 1)
        self.assertIn(f"{len(SEGMENTS)} slices by a table, the largest of 512 MiB",
                      harness.kernel_log())
        rows = {row.id: row for row in self.device.snapshot()}
        self.assertEqual(set(rows), set(range(len(SEGMENTS) - 1)))
        for number, row in rows.items():
            self.assertEqual(row.nr_pages * PAGE, SEGMENTS[number][1] * MIB)
        # DMA ends at 16 MiB
        self.assertEqual(dev.REASONS[rows[0].reason], "zone-end")

    def test_rows_that_do_not_fit_are_refused_with_their_number(self):
        rows = (dev.Segment * 3)()
        head = dev.SegmentList(nr=3, segments=ctypes.addressof(rows))
        with self.refused(errno.ENOSPC):
            self.device._call(dev.IOC_SEGMENTS, head)
        self.assertEqual(head.nr, len(SEGMENTS))
        self.assertFalse(any(bytes(row) != bytes(16) for row in rows))

    def test_exactly_the_segment_goes_off_and_contents_stay(self):
        with PatternedMemory(160) as memory:
            gone = 0
            for number in range(1, len(SEGMENTS) - 1):
                done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                if not done.nr_done:
                    # The kernel's own memory is somewhere
                    self.assertNotEqual(done.why(), "none")
                    continue
                gone += 1
                self.assertEqual(off_blocks(), frames(number))
                self.assertIsNone(memory.wrong_at(range(0, memory.nr, 7)))
                runs = self.device.pages(number)
                start, size = SEGMENTS[number]
                self.assertEqual([(run.pfn, run.nr_pages, run.what()) for run in runs],
                                 [(start * MIB // PAGE, size * MIB // PAGE, "off")])
                self.assertEqual(dev.meminfo("RamsliceOffline"), size * 1024)
                self.assertEqual(self.device.request("online", id=number).nr_done, 1)
                self.assertEqual(off_blocks(), set())
            self.assertGreater(gone, len(SEGMENTS) // 2)
            self.assertIsNone(memory.wrong_at())
        self.assert_sane()

    def test_memory_wakes_on_demand_and_loses_nothing(self):
        with PatternedMemory(160) as memory:
            nr = harness.compact(self.device)
            self.assertGreater(nr, 2)
            off = harness.ids(self.device, dev.OFFLINE)
            self.assertEqual(off_blocks(), set().union(*map(frames, off)))
            self.assertIsNone(memory.wrong_at())
            self.assert_sane()
            before = harness.woken_by_demand(self.device)
            info = self.device.info()
            self.serve((info.free_pages + info.offline_pages // 2) * PAGE // MIB)
            self.assertGreater(harness.woken_by_demand(self.device), before)
            self.assertIsNone(memory.wrong_at())

    def test_memory_outside_of_the_table_is_used_and_stays_on(self):
        """What all but the last free pages are of: some lie in the gaps."""
        used = set()
        with PatternedMemory(self.device.info().free_pages * PAGE // MIB - 96) as memory:
            used = {slice_at(pfn) for pfn in memory.pfns() if pfn is not None}
        self.assertIn(None, used)
        self.assertGreater(harness.compact(self.device), 2)
        gaps = {pfn for start, end in GAPS
                for pfn in range(start * MIB // PAGE, end * MIB // PAGE, BLOCK // PAGE)}
        self.assertFalse(off_blocks() & gaps)

    def test_a_buffer_wakes_the_segments_that_it_lies_in(self):
        harness.compact(self.device)
        before = set(harness.ids(self.device, dev.OFFLINE))
        with Buffer(8 * BLOCK) as buffer:
            (address, size, _), = listed()
            within = {slice_at(pfn)
                      for pfn in range(address // PAGE, (address + size) // PAGE, BLOCK // PAGE)}
            buffer.number_pages()
            self.assertTrue(buffer.pages_are_numbered())
            self.assertFalse(within & set(harness.ids(self.device, dev.OFFLINE)))
        again = harness.until(
            lambda: within & before <= set(harness.ids(self.device, dev.OFFLINE)), 60
        )
        self.assertTrue(again)

    def test_their_size_does_not_change(self):
        with self.refused(errno.EOPNOTSUPP):
            dev.write(dev.SYSFS / "slice_bytes", 64 * MIB)
        done = subprocess.run([harness.PROGRAM, "slices", "--resize", "64M"], text=True,
                              stderr=subprocess.PIPE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a table says what slices are", done.stderr)

    def test_the_commands_say_where_each_lies(self):
        self.assertIn("slices of 6 MiB to 512 MiB by a table", harness.printed("status"))
        start, size = SEGMENTS[2]
        where = f"{start * MIB:010x}-{(start + size) * MIB - 1:010x}"
        self.assertIn(where, harness.printed("slices"))
        self.assertIn(f"Slice 2: {where}", harness.printed("explain", 2))
        document = json.loads(harness.printed("slices", "--json"))
        self.assertEqual(
            [(s["start_bytes"], s["bytes"]) for s in document["segments"]],
            [(start * MIB, size * MIB) for start, size in SEGMENTS],
        )
        for row in document["slices"]:
            start, size = SEGMENTS[row["id"]]
            self.assertEqual(row["start_bytes"], start * MIB)
            self.assertEqual(row["composition"]["hole_pages"], 0)
            self.assertEqual(row["present_pages"] * PAGE, size * MIB)
        tiles = json.loads(harness.printed("map", "--json"))["tiles"]
        self.assertEqual({tile["slice"]: tile["start_bytes"] for tile in tiles},
                         {number: start * MIB for number, (start, _) in enumerate(SEGMENTS[:-1])})
        for words in (["map"], ["map", 2], ["top", "--once"], ["doctor"]):
            self.assertTrue(harness.printed(*words))



@vm(mem="1G", append="ramslice=firmware", files={"mpst": write_mpst},
    qemu="-acpitable sig=MPST,data={folder}/mpst")
class Firmware(harness.RamsliceTest):
    def test_nodes_of_the_memory_power_state_table_are_slices(self):
        expected = [*MPST_SEGMENTS, (4096, 1024)]
        self.assertEqual(
            [(s.start_bytes, s.bytes) for s in self.device.segments()],
            [(start * MIB, size * MIB) for start, size in expected],
        )
        self.assertIn(f"{len(expected)} slices by a table of firmware, the largest of 1024 MiB",
                      harness.kernel_log())
        with PatternedMemory(48) as memory:
            self.assertGreater(harness.compact(self.device), 2)
            off = harness.ids(self.device, dev.OFFLINE)
            self.assertEqual(off_blocks(), set().union(*(frames(number + 1) for number in off)))
            harness.wake(self.device)
            self.assertIsNone(memory.wrong_at())
        self.assert_sane()

    def test_the_doctor_says_what_slices_are(self):
        text = " ".join(harness.printed("doctor").split())
        self.assertIn("slices by a table, the largest of 1 GiB", text)


class Refused(unittest.TestCase):
    """Ramslice is off, and the log says why."""

    def assert_off(self, *why):
        self.assertEqual(dev.read(dev.SYSFS / "enabled"), "0")
        self.assertFalse(Path("/dev/ramslice").exists())
        log = harness.kernel_log()
        for text in why:
            self.assertIn(f"ramslice: off: {text}", log)

    def assert_command_says_it(self):
        done = subprocess.run([harness.PROGRAM, "status", "--backend", "kernel"], text=True,
                              stderr=subprocess.PIPE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the kernel log says what is wrong", " ".join(done.stderr.split()))


@vm(mem="512M", append="ramslice=table:64M@128M,64M@64M,32M@176M", slow=True)
class Overlap(Refused):
    def test_a_table_with_an_overlap_is_refused_and_the_entry_named(self):
        self.assert_off("the table of slices has 33554432 bytes at 0xb000000: it overlaps the one "
                        "before (a pageblock has 2097152 bytes)")
        self.assert_command_says_it()


@vm(mem="512M", append="ramslice=table:64M@128M,64MB@256M", slow=True)
class Malformed(Refused):
    def test_an_entry_that_is_none_is_named(self):
        self.assert_off('"64MB@256M" in the table of slices is not SIZE@START')


@vm(mem="512M", append="ramslice=table:64M@128M,3M@256M", slow=True)
class Unaligned(Refused):
    def test_a_part_of_a_pageblock_is_refused(self):
        self.assert_off("the table of slices has 3145728 bytes at 0x10000000: it must consist of "
                        "whole pageblocks")


@vm(mem="512M", append="ramslice=firmware", slow=True)
class Silent(Refused):
    def test_where_firmware_says_nothing_the_segments_are_not_known(self):
        self.assert_off("which segments of memory power down as one is not known: firmware has no "
                        "ACPI table MPST")
        self.assert_command_says_it()
        text = " ".join(harness.printed("doctor").split())
        self.assertRegex(text, "MPST +absent")


@vm(mem="512M", append="ramslice=firmware", files={"mpst": write_truncated_mpst},
    qemu="-acpitable sig=MPST,data={folder}/mpst", slow=True)
class Truncated(Refused):
    def test_a_table_that_ends_within_a_node_is_refused(self):
        self.assert_off(f"ACPI table MPST, node {len(MPST_SEGMENTS) + 3}: the table ends inside it")
