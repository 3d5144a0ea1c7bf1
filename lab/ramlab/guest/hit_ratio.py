# SPDX-License-Identifier: GPL-2.0-or-later
"""Look-ups of the page cache whose hit ratio is known beforehand, and the kernel's counters of
them.

Everything here is done by the calling process, to one file, a page at a time and without
readahead: a page is missing at its first look-up, and there at each later one.
"""

import ctypes
import itertools
import mmap
import os
import random
from dataclasses import dataclass

from ramlab.guest.harness import PAGE, libc, vmstat

COUNTERS = (
    "ramslice_lookup_read", "ramslice_lookup_fault", "ramslice_absent_read",
    "ramslice_absent_fault", "ramslice_readahead", "ramslice_readahead_unused",
)
MADV_COLLAPSE = 25
MAP_FIXED = 0x10


def counted():
    """The kernel's counters, in pages, or None on a kernel that does not count look-ups."""
    found = vmstat()
    return {name: found[name] for name in COUNTERS} if COUNTERS[0] in found else None


@dataclass(frozen=True)
class Interval:
    """What was counted while something ran, in pages."""

    lookup_read: int
    lookup_fault: int
    absent_read: int
    absent_fault: int
    readahead: int
    readahead_unused: int

    @property
    def lookups(self):
        return self.lookup_read + self.lookup_fault

    @property
    def hit_ratio(self):
        """1 - absent / looked up."""
        return 1 - (self.absent_read + self.absent_fault) / self.lookups

    @property
    def disk_free_ratio(self):
        """The share of look-ups that no disk had to bring."""
        return max(0, 1 - (self.readahead - self.readahead_unused) / self.lookups)


def during(work):
    """Runs `work`; returns the Interval of it."""
    before = counted()
    work()
    after = counted()
    return Interval(*(after[name] - before[name] for name in COUNTERS))


class CountedFile:
    """A file on a disk, of which no page is in the cache."""

    def __init__(self, path, pages):
        self.path, self.pages = path, pages
        part = os.urandom(1 << 20)
        with open(path, "wb") as file:
            for _ in range(pages * PAGE >> 20):
                file.write(part)
            file.write(part[:pages * PAGE % (1 << 20)])
            os.fsync(file.fileno())
        self.fd = os.open(path, os.O_RDONLY)
        # Otherwise more comes than is asked for
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)
        self.drop()

    def drop(self):
        """Takes it out of the cache."""
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, pages):
        """Reads these pages, one after another."""
        buffer = [bytearray(PAGE)]
        for page in pages:
            if os.preadv(self.fd, buffer, page * PAGE) != PAGE:
                raise OSError(f"{self.path}: page {page} is not whole")

    def touch(self, pages):
        """Has a fault for each of these pages, one after another: the mapping goes after each."""
        with mmap.mmap(self.fd, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) as view:
            view.madvise(mmap.MADV_RANDOM)
            for page in pages:
                _ = view[page * PAGE]
                view.madvise(mmap.MADV_DONTNEED)

    def collapse(self):
        """Has the kernel put its first 2 MiB into one folio; False if it cannot."""
        size, protection = 2 << 20, mmap.PROT_READ | mmap.PROT_EXEC
        system_mmap = ctypes.CDLL(None, use_errno=True).mmap
        system_mmap.restype = ctypes.c_void_p
        system_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                ctypes.c_int, ctypes.c_long)
        # Room for an address that is a multiple of 2 MiB
        start = system_mmap(None, 2 * size, mmap.PROT_READ,
                            mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        place = (start + size - 1) & ~(size - 1)
        mapped = system_mmap(place, size, protection, mmap.MAP_PRIVATE | MAP_FIXED, self.fd, 0)
        if mapped != place:
            raise OSError(ctypes.get_errno(), "mmap")
        failed = libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(size), MADV_COLLAPSE)
        libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(2 * size))
        return failed == 0

    def close(self):
        os.close(self.fd)
        os.unlink(self.path)


def loops(pages, times):
    """All pages in order, again and again; and the hit ratio of that."""
    return list(range(pages)) * times, 1 - 1 / times


def zipf(pages, lookups, seed, skew=0.9):
    """Pages by Zipf's law, in an order by chance; and the hit ratio of that: each page is missing
    once.
    """
    chance = random.Random(seed)
    order = list(range(pages))
    chance.shuffle(order)
    weights = itertools.accumulate(1 / rank**skew for rank in range(1, pages + 1))
    chosen = chance.choices(order, cum_weights=list(weights), k=lookups)
    return chosen, 1 - len(set(chosen)) / lookups
