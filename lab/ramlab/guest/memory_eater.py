# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that takes more memory than there is. Runs in a guest: the kernel kills it.

Most of it are huge pages, because an emulated machine takes a page fault slowly.
"""

import mmap
import subprocess
import sys
from pathlib import Path

MAP_NORESERVE = 0x4000


def end_of_eater(mib):
    """The status of a program that took so much memory, and that is the first to be killed."""
    return subprocess.run([sys.executable, __file__, str(mib)], timeout=1200).returncode


def eat(mib):
    Path("/proc/self/oom_score_adj").write_text("1000")
    memory = mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    # No zeroes: when memory is short, pages of them are taken back out of huge pages
    memory[::mmap.PAGESIZE] = b"\1" * (len(memory) // mmap.PAGESIZE)


if __name__ == "__main__":
    eat(int(sys.argv[1]))
