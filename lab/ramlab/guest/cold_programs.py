# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that use cold memory: libramslice-cold by its functions, and a program that says where
its own memory is.

As a program it knows nothing of cold memory. It allocates small and large pieces, and prints a JSON
document {kind: {node: pages}}.

Usage: python3 -m ramlab.guest.cold_programs
"""

import contextlib
import ctypes
import functools
import json
import mmap
import os
import sys
from collections import Counter
from pathlib import Path

from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.pinned_memory import SYS_MOVE_PAGES, system_call

FOLDER = Path(os.environ.get("RAMSLICE_GUEST_PROGRAMS", "")) / "libcold"
PRELOAD = FOLDER / "libramslice-cold-preload.so"
HOT, COLD = 0, 1


def nodes_of(address, size):
    """{node: pages} of all pages that a range of bytes touches; absent ones have a negative errno
    instead of a node."""
    first, last = address // PAGE, (address + size - 1) // PAGE
    pages = (ctypes.c_void_p * (last - first + 1))(*range(first * PAGE, (last + 1) * PAGE, PAGE))
    status = (ctypes.c_int * len(pages))()
    system_call(SYS_MOVE_PAGES, 0, ctypes.c_ulong(len(pages)), pages, None, status, 0)
    return Counter(status)


@functools.cache
def _block(remainder):
    return bytes((remainder + at * 31) % 251 for at in range(4093))


def pattern(seed, size):
    """Bytes that depend on a seed and on their place; no two pages are alike."""
    block = _block(seed % 251)
    return (block * (size // len(block) + 1))[:size]


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("mapped_bytes", "cold_bytes", "hot_bytes")]


class ColdLibrary:
    """The library in this process. Addresses are numbers; what fails raises OSError."""

    def __init__(self):
        size, address = ctypes.c_size_t, ctypes.c_void_p
        self.library = ctypes.CDLL(str(FOLDER / "libramslice-cold.so.0"), use_errno=True)
        for name, result, *arguments in (
            ("way_name", ctypes.c_char_p),
            ("alloc", address, size),
            ("alloc_hot", address, size),
            ("calloc", address, size, size),
            ("realloc", address, address, size),
            ("free", None, address),
            ("usable_size", size, address),
            ("place_of", ctypes.c_int, address),
            ("move", address, address, ctypes.c_int),
            ("move_range", ctypes.c_ssize_t, address, size, ctypes.c_int),
            ("stats", ctypes.c_int, ctypes.POINTER(Stats)),
        ):
            function = getattr(self.library, f"ramslice_cold_{name}")
            function.restype, function.argtypes = result, arguments

    def way(self):
        return self.library.ramslice_cold_way_name().decode()

    def alloc(self, size, place=COLD):
        name = "alloc" if place == COLD else "alloc_hot"
        return self._object(getattr(self.library, f"ramslice_cold_{name}")(size))

    def realloc(self, address, size):
        return self._object(self.library.ramslice_cold_realloc(address, size))

    def move(self, address, place):
        return self._object(self.library.ramslice_cold_move(address, place))

    def free(self, address):
        self.library.ramslice_cold_free(address)

    def place_of(self, address):
        return self.library.ramslice_cold_place_of(address)

    def usable_size(self, address):
        return self.library.ramslice_cold_usable_size(address)

    def move_range(self, address, size, place):
        done = self.library.ramslice_cold_move_range(address, size, place)
        if done < 0:
            self._fail("move_range")
        return done

    def stats(self):
        found = Stats()
        if self.library.ramslice_cold_stats(ctypes.byref(found)):
            self._fail("stats")
        return found

    @contextlib.contextmanager
    def object(self, size, place=COLD, seed=1):
        """An object that holds a pattern."""
        address = self.alloc(size, place)
        ctypes.memmove(address, pattern(seed, size), size)
        try:
            yield address
        finally:
            self.free(address)

    def _object(self, address):
        if not address:
            self._fail("no object")
        return address

    @staticmethod
    def _fail(what):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


def own_places():
    """{kind: {node: pages}} of what this process allocates now."""
    def buffers(count, size):
        found = Counter()
        kept = [bytearray(b"\1") * size for _ in range(count)]
        for each in kept:
            address = ctypes.addressof((ctypes.c_char * size).from_buffer(each))
            # The first page may have been touched by what was there before
            found += nodes_of(address, size)
        return found

    small = [bytes([1, at % 251]) * 100 for at in range(100_000)]
    area = mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area[:] = b"\1" * len(area)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return {
        "small": sum((nodes_of(id(each), 1) for each in small[::20]), Counter()),
        "medium": buffers(100, MIB // 2),
        "large": buffers(8, 4 * MIB),
        "mapped": nodes_of(address, len(area)),
    }


if __name__ == "__main__":
    json.dump(own_places(), sys.stdout)
