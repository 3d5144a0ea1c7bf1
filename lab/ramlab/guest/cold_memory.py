# SPDX-License-Identifier: GPL-2.0-or-later
"""Cold memory in a guest: the files of its sizes, mappings that ask for it, where pages are, and
the base of its tests."""

import contextlib
import ctypes
import mmap
import os
import signal
from collections import Counter
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.pinned_memory import PatternedMemory

MAP_COLD = 0x200000
MAP_SHARED_VALIDATE = 3
COLD = dev.SYSFS / "cold"
NODE = Path("/sys/devices/system/node")


def resize(mib, node=0):
    """Gives a node's twin this much memory: takes some, or gives some back."""
    dev.write(COLD / f"node{node}/bytes", mib * MIB)


def size_mib(node=0):
    return int(dev.read(COLD / f"node{node}/bytes")) // MIB


def twin(node=0):
    return int(dev.read(COLD / f"node{node}/twin"))


def present():
    """{(node, zone): pages that are there}"""
    zones = harness.zoneinfo()
    return {zone: rows["present"] for zone, rows in zones.items() if rows["present"]}


def areas(pid="self"):
    """(start, end, words of VmFlags) of each area of a process."""
    start = end = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            start, end = (int(word, 16) for word in first.split("-"))
        elif first == "VmFlags:":
            yield start, end, line.split()[1:]


class ColdMemory(PatternedMemory):
    """Memory that asks for cold memory, unless flags say otherwise."""

    def __init__(self, mib, flags=mmap.MAP_PRIVATE | MAP_COLD, **more):
        super().__init__(mib, flags=flags, **more)

    def places(self):
        """{node: pages that are there}; pages that are absent are left out."""
        return Counter(node for node in self.nodes() if node >= 0)

    def smaps_flags(self):
        """Words of VmFlags."""
        return next(words for start, end, words in areas() if start <= self.address < end)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


@contextlib.contextmanager
def spliced(memory, pages=4):
    """A pipe holds the first pages of a mapping, so that they stay where they are."""
    out, into = os.pipe()
    vector = Iovec(memory.address, pages * PAGE)
    # vmsplice on x86-64
    done = harness.libc.syscall(278, into, ctypes.byref(vector), ctypes.c_ulong(1), 0)
    try:
        if done != pages * PAGE:
            raise OSError(ctypes.get_errno(), f"vmsplice: {done}")
        yield
    finally:
        os.close(out)
        os.close(into)


@contextlib.contextmanager
def child(work):
    """A process that does some work, and is ended; yields its pid."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class ColdTest(harness.RamsliceTest):
    """Begins and ends without cold memory."""

    def setUp(self):
        super().setUp()
        self.total = harness.meminfo()["MemTotal"]
        self.addCleanup(self.check_end)
        self.addCleanup(resize, 0)
        self.addCleanup(dev.write, COLD / "mode", "overflow")

    def check_end(self):
        self.assertEqual(size_mib(), 0)
        self.assertEqual(harness.meminfo()["MemTotal"], self.total)
        self.assert_sane()

    def assert_cold(self, memory, pages=None):
        pages = pages or memory.bytes // PAGE
        self.assertEqual(memory.places(), {twin(): pages})
