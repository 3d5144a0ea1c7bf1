# SPDX-License-Identifier: GPL-2.0-or-later
"""Where each page of the machine is, by who maps it: memory that asks for cold memory, or other.

By /proc: areas and page tables of all processes, and flags of page frames. Programs are to be held
still meanwhile.
"""

import array
import contextlib
import os
from pathlib import Path

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import NODE, areas
from ramlab.guest.harness import PAGE

COLD, HOT = 1, 2
# Bits of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst)
LRU, BUDDY, ANON, SWAP_CACHE, SWAP_BACKED, OFFLINE, ZERO_PAGE = 5, 10, 12, 13, 14, 23, 24
PRESENT, FRAME = 1 << 63, (1 << 55) - 1
MEMORY = Path("/sys/devices/system/memory")


def entries(path, first, nr):
    """Words of a file that has 8 bytes for each page; fewer where it ends."""
    with open(path, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), 8 * nr, 8 * first)
    found = array.array("Q")
    found.frombytes(data[:len(data) // 8 * 8])
    return found


def mapped_frames():
    """{page frame: COLD, HOT or both}, by the areas of all processes that map it."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        # One that has ended, and kernel threads, which have no areas
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for start, end, words in list(areas(path.name)):
                if "io" in words or "pf" in words:
                    continue
                kind = COLD if "co" in words else HOT
                for entry in entries(path / "pagemap", start // PAGE, (end - start) // PAGE):
                    if entry & PRESENT and entry & FRAME:
                        frame = entry & FRAME
                        found[frame] = found.get(frame, 0) | kind
    return found


def frames_of(node):
    """Ranges of page frames of a node's memory blocks."""
    nr = int(dev.read(MEMORY / "block_size_bytes"), 16) // PAGE
    return [range(int(path.name[6:]) * nr, (int(path.name[6:]) + 1) * nr)
            for path in (NODE / f"node{node}").glob("memory[0-9]*")]


def is_zero_page(frame):
    """The page of zeros is the kernel's own, whatever maps it."""
    flags, = entries("/proc/kpageflags", frame, 1)
    return bool(flags >> ZERO_PAGE & 1)


def kind_unmapped(flags):
    """What a page frame that no process maps is."""
    if flags >> BUDDY & 1 or flags >> OFFLINE & 1:
        return "free"
    if flags >> SWAP_CACHE & 1:
        return "swap cache"
    if flags >> LRU & 1:
        return "tmpfs" if flags >> SWAP_BACKED & 1 else "page cache"
    return "in flight" if flags >> ANON & 1 else "free"


def count(twin):
    """Pages by where they are and by who maps them.

    `cold_there` and `cold_elsewhere`: pages whose every mapping is cold, in the twin and not;
    `hot_there`: pages in the twin that any other area maps, with those that swap read-ahead of a
    cold area brought there; `unmapped`: pages in the twin that nothing maps, by what they are.
    """
    mapped, blocks = mapped_frames(), frames_of(twin)
    inside = set().union(*blocks)
    result = {"cold_there": 0, "cold_elsewhere": 0, "hot_there": 0, "mixed_there": 0}
    for frame, kinds in mapped.items():
        if kinds == COLD and frame in inside:
            result["cold_there"] += 1
        elif kinds == COLD:
            result["cold_elsewhere"] += not is_zero_page(frame)
        elif frame in inside:
            result["mixed_there" if kinds & COLD else "hot_there"] += 1
    unmapped = {}
    for block in blocks:
        for frame, flags in zip(block, entries("/proc/kpageflags", block.start, len(block)),
                                strict=True):
            if frame not in mapped:
                kind = kind_unmapped(flags)
                unmapped[kind] = unmapped.get(kind, 0) + 1
    return result | {"unmapped": unmapped}
