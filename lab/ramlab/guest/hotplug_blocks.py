# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory blocks of a stock kernel, and what `ramslice` does to them by memory hotplug.

RAMSLICE_PROGRAM and RAMSLICE_LAB_PROGRAM name the programs.
"""

import ctypes
import json
import mmap
import os
import struct
import subprocess
from pathlib import Path

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
LAB_PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", f"{PROGRAM}-lab")
MEMORY = Path("/sys/devices/system/memory")
PAGE = mmap.PAGESIZE
MIB = 1 << 20


def ramslice(*words, status=0):
    """The document that a command prints; its exit status must be this one."""
    done = subprocess.run([PROGRAM, "--json", *map(str, words)], text=True, capture_output=True)
    if done.returncode != status:
        raise AssertionError(
            f"ramslice {words}: status {done.returncode}, {done.stdout}{done.stderr}"
        )
    return json.loads(done.stdout) if done.stdout else {}


def blocks():
    """{block: (state, valid zones)}, as the kernel reports them."""
    found = {}
    for folder in MEMORY.glob("memory[0-9]*"):
        words = [(folder / name).read_text().strip() for name in ("state", "valid_zones")]
        found[int(folder.name[6:])] = tuple(words)
    return dict(sorted(found.items()))


def off():
    """Blocks that are not online."""
    return {number for number, (state, _) in blocks().items() if state != "online"}


def wake_blocks():
    """Brings every block online."""
    for folder in MEMORY.glob("memory[0-9]*"):
        if (folder / "state").read_text() != "online\n":
            (folder / "state").write_text("online")


def counter(path, name):
    """One line of a kernel file of names and numbers."""
    for line in Path(path).read_text().splitlines():
        words = line.replace(":", "").split()
        if words and words[0] == name:
            return int(words[1])
    raise KeyError(name)


class Pinned:
    """A page in one of the wanted blocks that io_uring holds for DMA, so that it cannot move."""

    def __init__(self, wanted, block_bytes):
        libc = ctypes.CDLL(None, use_errno=True)
        # The memory that the kernel gives first may lie in other blocks
        elsewhere, page = [], None
        while page is None:
            self.all = mmap.mmap(-1, 400 * MIB)
            self.all.madvise(mmap.MADV_NOHUGEPAGE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self.all))
            ctypes.memset(address, ord("p"), len(self.all))
            count = len(self.all) // PAGE
            with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
                pagemap.seek(address // PAGE * 8)
                entries = struct.unpack(f"<{count}Q", pagemap.read(count * 8))
            where = [(entry & ((1 << 55) - 1)) * PAGE // block_bytes for entry in entries]
            page = next((n for n, block in enumerate(where) if block in wanted), None)
            elsewhere.append(self.all)
            if page is None and len(elsewhere) == 3:
                raise AssertionError(f"no page in the blocks {wanted}")
        self.block, self.at = where[page], page * PAGE
        self.ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
        vector = struct.pack("QQ", address + self.at, PAGE)
        if self.ring < 0 or libc.syscall(427, self.ring, 0, vector, 1):
            raise OSError(ctypes.get_errno(), "io_uring")
        if page:
            self.all.madvise(mmap.MADV_DONTNEED, 0, self.at)
        self.all.madvise(mmap.MADV_DONTNEED, self.at + PAGE, len(self.all) - self.at - PAGE)

    def intact(self):
        return self.all[self.at:self.at + PAGE] == b"p" * PAGE

    def close(self):
        os.close(self.ring)
