# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's interfaces, for tests that run inside a guest.

/dev/ramslice, sysfs and debugfs are those of the kernel's selftests, _ramslice.py: every name of
that module is one of this. Added are the commands of research kernels, swap, files, and compiled
programs.
"""

import os
import shutil
import subprocess
from pathlib import Path

import _ramslice
from _ramslice import debugfs, read, table, write

GUEST_PROGRAMS = Path(os.environ.get("RAMSLICE_GUEST_PROGRAMS", "/nonexistent"))


def __getattr__(name):
    return getattr(_ramslice, name)


def is_research():
    """Whether the kernel has the commands of the thesis and the policies to compare with."""
    return (debugfs() / "dummy_mode").exists()


def command(folder, line):
    """Writes a debugfs command; a failure raises the OSError that the kernel answered with."""
    fd = os.open(folder / "cmd", os.O_WRONLY)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def meminfo(name):
    return table("/proc/meminfo")[name]


def vmstat(name):
    return table("/proc/vmstat")[name]


def set_mglru(on):
    """Switches between the two LRU implementations."""
    write("/sys/kernel/mm/lru_gen/enabled", "y" if on else "n")


def swap_on_zram(megabytes):
    """Swap in compressed memory, which allocates pages itself while it frees others.

    Once for each boot: a second call changes nothing.
    """
    if "/dev/zram0" in read("/proc/swaps"):
        return
    if not Path("/dev/zram0").exists():
        subprocess.run(["modprobe", "zram"], check=False)
    write("/sys/block/zram0/disksize", f"{megabytes}M")
    for line in (["mkswap", "/dev/zram0"], ["swapon", "/dev/zram0"]):
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


def file_system(folder="/mnt", disk="/dev/vda"):
    """An empty ext4 on the scratch disk; returns its folder, or None without a disk.

    One that is mounted already is emptied.
    """
    if os.path.ismount(folder):
        for path in Path(folder).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return folder
    if not Path(disk).exists():
        return None
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    # What mkfs left in page cache would be the file system's from its mount on, and never move:
    # on a machine that makes its file system at another time, it is the kernel's memory
    subprocess.run(["blockdev", "--flushbufs", disk], check=True)
    subprocess.run(["mount", disk, folder], check=True)
    return folder


def program(name):
    """A compiled guest program."""
    path = GUEST_PROGRAMS / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run ramlab guest-programs on the host")
    return str(path)
