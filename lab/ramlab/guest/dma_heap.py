# SPDX-License-Identifier: GPL-2.0-or-later
"""Buffers of /dev/dma_heap/ramslice, and the physical memory that they are."""

import fcntl
import mmap
import os
import struct

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE
from ramlab.guest.proofs import kcore_segments

HEAP = "/dev/dma_heap/ramslice"
# _IOWR('H', 0, struct dma_heap_allocation_data): length, descriptor, its flags, the heap's flags
FORMAT = "QIIQ"
ALLOC = 3 << 30 | struct.calcsize(FORMAT) << 16 | ord("H") << 8
BOOKS = dev.SYSFS / "buffers"


def books():
    """{name: value} of the files about buffers: number, bytes, refusals and the last reason."""
    values = {name: int(dev.read(BOOKS / name)) for name in ("nr", "bytes", "nr_refused")}
    return values | {"last_refusal": dev.read(BOOKS / "last_refusal")}


def listed():
    """[(address, bytes, owner)] of all buffers, by debugfs."""
    lines = dev.read(dev.debugfs() / "buffers").splitlines()
    return [(int(address, 16), int(size), owner)
            for address, size, owner in (line.split(None, 2) for line in lines)]


class Buffer:
    """One buffer, mapped; closed, it is given back. Raises OSError if it is refused."""

    def __init__(self, size, heap=HEAP):
        heap = os.open(heap, os.O_RDWR | os.O_CLOEXEC)
        try:
            data = struct.pack(FORMAT, size, 0, os.O_RDWR | os.O_CLOEXEC, 0)
            self.fd = struct.unpack(FORMAT, fcntl.ioctl(heap, ALLOC, data))[1]
        finally:
            os.close(heap)
        self.map = mmap.mmap(self.fd, size)
        self.bytes = size

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.map.close()
        os.close(self.fd)

    def number_pages(self):
        """Writes into each page its number."""
        for page in range(self.bytes // PAGE):
            struct.pack_into("Q", self.map, page * PAGE, page)
        return self

    def pages_are_numbered(self):
        return all(struct.unpack_from("Q", self.map, page * PAGE)[0] == page
                   for page in range(self.bytes // PAGE))


def physical(address, size):
    """What physical memory holds there, by /proc/kcore's table of the direct map."""
    with open("/proc/kcore", "rb", buffering=0) as kcore:
        for segment in kcore_segments(kcore):
            begin = segment.physical
            if not segment.is_ram or not begin <= address < begin + segment.bytes:
                continue
            data = b""
            while len(data) < size:
                at = segment.offset + address - begin + len(data)
                part = os.pread(kcore.fileno(), size - len(data), at)
                if not part:
                    raise OSError(f"/proc/kcore ends at {address + len(data):#x}")
                data += part
            return data
    raise LookupError(f"/proc/kcore has no memory at {address:#x}")
