# SPDX-License-Identifier: GPL-2.0-or-later
"""What proofs share: a power driver that sees each access to an offline slice, and access on
purpose.
"""

import os
import struct
import subprocess
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.errors import ContentsError
from ramlab.guest.harness import PAGE

HOLES = Path("/sys/module/ramslice_holes/parameters")
STRICT = dev.SYSFS / "strict"
KPF_HWPOISON, KPF_OFFLINE = 19, 23

# Kinds of access that ramslice_touch has, by their effect on the page
READS = {"read", "read-nofault", "read-mapping", "read-device"}
WRITES = {"write", "write-nofault", "write-mapping", "write-device"}
LEAVES_NO_TRACE = {"rewrite"}
BY_DIRECT_MAP = {"read-nofault", "write-nofault"}
HELPERS = {"map", "unmap"}


def figures(name):
    """Two numbers that the host reports."""
    return tuple(map(int, dev.read(HOLES / name).split()))


class ProofTest(harness.RamsliceTest):
    """With a power driver; ends with every slice online and true summaries."""

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
        if (found := self.violations()) != self.expected:
            raise ContentsError(f"{found} violations, expected {self.expected}")
        subprocess.run(["rmmod", self.driver], check=True)

    def violations(self):
        return int(dev.read(self.parameters / "violations"))

    def offline(self, number):
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual(done.status, 0, done.why())

    def online(self, number):
        done = self.device.request("online", id=number)
        self.assertEqual(done.status, 0, done.why())


class Segment:
    """A PT_LOAD of /proc/kcore."""

    def __init__(self, kind, flags, offset, virtual, physical, file_bytes, mem_bytes, align):
        self.kind, self.offset, self.virtual, self.physical, self.bytes = (
            kind,
            offset,
            virtual,
            physical,
            file_bytes,
        )
        self.is_ram = physical != 2**64 - 1 and virtual < 0xFFFFFFFF80000000


def kcore_segments(kcore):
    """The PT_LOAD segments of /proc/kcore."""
    header = os.pread(kcore.fileno(), 64, 0)
    offset, = struct.unpack_from("<Q", header, 32)
    size, number = struct.unpack_from("<HH", header, 54)
    rows = [
        Segment(*struct.unpack("<IIQQQQQQ", os.pread(kcore.fileno(), size, offset + n * size)))
        for n in range(number)
    ]
    return [row for row in rows if row.kind == 1]


class TouchTest(ProofTest):
    """Touches a page of an offline slice by each kind of access that ramslice_touch has."""

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
        """A slice, which goes offline, and one of its page frames, which ramslice_touch keeps
        mapped.
        """
        number, = self.empty()
        pfn = number * self.pages + 1234
        self.touch("map", pfn)
        self.offline(number)
        return number, pfn

    def violation(self, number, pfn):
        """The log has one line about the violation, with the slice and the page frame."""
        lines = [line for line in self.log.lines() if "violation" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(f"slice {number} ", lines[0])
        self.assertIn(f"pfn {pfn}", lines[0])
