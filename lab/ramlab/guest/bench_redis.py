#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Redis under an open-loop load, while its pages migrate and while they do not, in random windows.

Usage: python3 -m ramlab.guest.bench_redis OUT.json [--quick] WINDOWS

In a window of migrating, the block of 128 MiB with most of the server's pages is emptied and comes
back, once: by a request for a slice of that size, or, on the stock kernel, by memory hotplug. The
request takes bites and sleeps between them as it does by default, in other windows as PACES say.
The latencies of each window go to a file beside OUT.json.

The guest's clock counts instructions on one CPU, so that what else the host does is no latency.
"""

import argparse
import contextlib
import json
import random
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from ramlab.guest import bench_slices as slices
from ramlab.guest import demo, harness
from ramlab.guest import ramslice_dev as dev

KEYS = 60_000  # of 900 bytes: the server takes about 80 MiB
RATE = 1000  # requests per second: a CPU of 10^9 instructions per second is a twelfth busy
SECONDS = 4
# So many pairs of windows, because a few per cent are looked for
PAIRS = 15
# Folios in a bite and the sleep after it in us, besides the defaults; and windows of each
PACES = ((128, 0), (128, 2000), (32, 0), (32, 500))
PER_PACE = 4
PRESENT, PFN = 1 << 63, (1 << 55) - 1


def pages_of(pid):
    """Page frames of a process' anonymous memory."""
    pfns = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        for line in maps:
            area, _, _, _, inode, *_ = line.split()
            start, end = (int(word, 16) >> 12 for word in area.split("-"))
            if inode != "0" or start >= 1 << 35:
                continue
            pagemap.seek(start * 8)
            data = pagemap.read((end - start) * 8)
            pfns += [entry & PFN for entry, in struct.iter_unpack("Q", data) if entry & PRESENT]
    return pfns


def fullest(pid, size):
    """First page frame of the block that holds most of the process, and how much that is."""
    blocks = {}
    for pfn in pages_of(pid):
        if pfn << 12 >= slices.HIGH:
            blocks[pfn // (size * slices.PAGES)] = blocks.get(pfn // (size * slices.PAGES), 0) + 1
    block = max(blocks, key=blocks.get)
    return block * size * slices.PAGES, blocks[block]


def away_and_back(bench, pfn, size, note):
    """Empties the block and brings it back, in the middle of a window.

    Where nothing is to migrate, it only counts.
    """
    time.sleep(SECONDS / 4)
    migrated = -dev.vmstat("pgmigrate_success")
    began = time.monotonic()
    if note["migrating"]:
        slices.empty_range(bench, size, {"pfn": pfn, "lru": 0})
    note["emptying_s"] = time.monotonic() - began
    note["migrated"] = migrated + dev.vmstat("pgmigrate_success")
    if note["migrating"]:
        slices.wake_range(bench, size, pfn)


@contextlib.contextmanager
def paced(pace):
    """Requests move so many folios in a bite and sleep so many microseconds after it; as they did
    before for None.
    """
    if pace is None:
        yield
        return
    files = [dev.debugfs() / name for name in ("migrate_batch", "pause_us")]
    before = [dev.read(file) for file in files]
    try:
        for file, number in zip(files, pace, strict=True):
            dev.write(file, number)
        yield
    finally:
        for file, number in zip(files, before, strict=True):
            dev.write(file, number)


def window(bench, pid, size, migrating, file, pace=None):
    note = {"migrating": migrating, "file": file.name, "pace": pace}
    pfn, note["pages"] = fullest(pid, size)
    thread = threading.Thread(target=away_and_back, args=(bench, pfn, size, note))
    line = [dev.program("openloop"), "/tmp/redis.sock", KEYS, RATE, SECONDS, random.getrandbits(31),
            file]
    load = subprocess.Popen([str(word) for word in line], stdout=subprocess.DEVNULL)
    with paced(pace):
        thread.start()
        thread.join()
    if load.wait():
        sys.exit("the load failed")
    return note


def windows(folder, quick):
    size = slices.block_mib()
    if slices.PATCHED:
        slices.set_slices(size)
    digest = demo.start_redis(KEYS)
    server = demo.redis("info", "server").splitlines()
    pid = int(next(line for line in server if line.startswith("process_id")).split(":")[1])
    order = [(False, None), (True, None)] * (2 if quick else PAIRS)
    if slices.PATCHED:
        order += [(True, pace) for pace in PACES] * (2 if quick else PER_PACE)
    random.shuffle(order)
    # Nothing is idle on purpose: what is measured passes in the guest's time
    with slices.Bench("idle") as bench:
        window(bench, pid, size, False, folder / "warm-up")
        found = [window(bench, pid, size, migrating, folder / f"window-{n}", pace)
                 for n, (migrating, pace) in enumerate(order)]
    if demo.redis("debug", "digest") != digest:
        sys.exit("Redis' data changed")
    return {"windows": found, "rate": RATE, "seconds": SECONDS,
            "used": harness.meminfo()["AnonPages"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="*")
    args = parser.parse_args()
    args.out.write_text(json.dumps(windows(args.out.parent, args.quick)) + "\n")


if __name__ == "__main__":
    main()
