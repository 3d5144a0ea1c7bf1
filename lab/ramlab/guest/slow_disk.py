# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks whose delay is made inside the guest: null_blk, with its data in the guest's memory.

Where instructions are time, an answer of the host's comes at no certain moment of the guest's. A
request to such a disk is over a fixed time after it was made, by a timer of the guest's kernel. All
of a disk is filled at first, so that writing to it takes no more memory, and its pages do not move.
"""

import os
import subprocess
from pathlib import Path

from ramlab.guest import ramslice_dev as dev

CONFIGFS = Path("/sys/kernel/config")
SECTOR_BYTES = 512
FOLDER = Path("/mnt")
# As /sys/block/NAME/stat orders them: reads and writes in requests and in sectors
STAT = {"reads": 0, "read_sectors": 2, "writes": 4, "written_sectors": 6, "busy_ms": 9}


class NoDisk(Exception):
    """A disk that is needed is not there."""


def load(modules):
    """Loads the driver; `modules` is the folder that ramlab.sizes.disk_modules fills."""
    if Path("/sys/module/null_blk").exists():
        return
    for name, *words in (("configfs",), ("null_blk", "nr_devices=0")):
        subprocess.run(["insmod", f"{modules}/{name}.ko", *words], check=True)
        if name == "configfs":
            subprocess.run(["mount", "-t", "configfs", "configfs", CONFIGFS], check=True)


def make(name, mib, delay_us, filled_kib=None):
    """A disk of so many MiB, all of it or so many KiB filled with zeroes; its device."""
    home = CONFIGFS / "nullb" / name
    home.mkdir()
    # The timer ends a request; 2 is its number in each of both
    for key, value in (("size", mib), ("blocksize", 4096), ("queue_mode", 2), ("irqmode", 2),
                       ("completion_nsec", delay_us * 1000), ("submit_queues", 1),
                       ("memory_backed", 1), ("discard", 0), ("power", 1)):
        dev.write(home / key, value)
    device = f"/dev/{name}"
    filled_bytes = (filled_kib or mib << 10) << 10
    subprocess.run(["dd", "if=/dev/zero", f"of={device}", "bs=1M", f"count={filled_bytes}B",
                    "oflag=direct", "status=none"], check=True)
    return device


def make_all(modules, swap_mib, files_mib, delay_us):
    """Swap on one disk, and a file system on another one at FOLDER."""
    if swap_mib <= 0:
        raise NoDisk(f"swap missing: swap_mib is {swap_mib}, and with less memory than it needs a "
                     "program would be killed; allowed is 1 and more")
    load(modules)
    swap = make("slowswap", swap_mib, delay_us)
    for line in (["mkswap", swap], ["swapon", swap]):
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    files = make("slowfiles", files_mib, delay_us)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal",
                    "-E", "nodiscard,lazy_itable_init=0", files], check=True)
    subprocess.run(["mount", "-o", "noatime", files, FOLDER], check=True)


def fill(kib):
    """A disk that is never read takes so much memory, be it in slices or not; KiB that it took."""
    free_kib = dev.meminfo("MemFree")
    make("filling", -(-kib // 1024), 0, kib)
    return free_kib - dev.meminfo("MemFree")


def end():
    """What make_all() and fill() made is gone, and its memory free again."""
    subprocess.run(["swapoff", "/dev/slowswap"], check=True)
    subprocess.run(["umount", FOLDER], check=True)
    for home in (CONFIGFS / "nullb").iterdir():
        if home.is_dir():
            dev.write(home / "power", 0)
            os.rmdir(home)


def use():
    """What the disks did since they were made, summed up: requests, bytes, and busy milliseconds.
    """
    rows = [[int(word) for word in Path(f"/sys/block/{name}/stat").read_text().split()]
            for name in ("slowswap", "slowfiles")]
    sums = {key: sum(row[at] for row in rows) for key, at in STAT.items()}
    return {"read_requests": sums["reads"], "read_bytes": sums["read_sectors"] * SECTOR_BYTES,
            "write_requests": sums["writes"],
            "written_bytes": sums["written_sectors"] * SECTOR_BYTES, "busy_ms": sums["busy_ms"]}
