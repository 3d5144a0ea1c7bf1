#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The huge suite inside the guest: slices that are woken by requests which fail; writes what it
found.

Usage: python3 -m ramlab.guest.bench_failing OUT.json [--quick] SEED

A page is pinned in every 256 MiB, so that nothing of 1 GiB is to be had, and what can be off is
off. Then such requests come: a page by ramslice huge, one by nr_hugepages, a buffer by the
dma-heap. Counted is which of the slices that were off left that state, by a tracepoint: one that
goes off again before the request ends has been woken, too.
"""

import argparse
import contextlib
import errno
import json
import os
import random
import re
import subprocess
from pathlib import Path

from ramlab.guest import dma_heap, harness, hugetlb_pool, placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB
from ramlab.guest.pinned_memory import TRACING, pin_each, traced

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
GIB = 1 << 30
PINNED_EACH = 256 * MIB
# Left alone while pages are pinned: more, and the kernel would be short of memory
SPARE_MIB = 700
# Requests of each kind
TURNS, QUICK_TURNS = 3, 1
# Of all slices, those that have to be off: fewer, and there is little to be woken
LEAST_OFF = 0.5


def by_command():
    """Whether ramslice huge makes a page."""
    done = subprocess.run([PROGRAM, "huge", "--json", "--size", "1G", "--count", "1", "--objects",
                           "shrink"], capture_output=True, text=True)
    # 1: fewer than asked for
    if done.returncode not in (0, 1):
        raise RuntimeError(f"ramslice huge: status {done.returncode}: {done.stderr}")
    return bool(json.loads(done.stdout)["got"])


def by_pool():
    """Whether nr_hugepages makes a page."""
    return bool(hugetlb_pool.resize(1, hugetlb_pool.GIGANTIC))


def by_heap():
    """Whether the dma-heap makes a buffer of that size."""
    try:
        dma_heap.Buffer(GIB).close()
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return False
    return True


REQUESTS = {"command": by_command, "pool": by_pool, "heap": by_heap}


def woken(lines, off):
    """Those of the slices that left the state offline, by lines of the tracepoint."""
    seen = (re.search(r"id=(\d+) offline -> ", line) for line in lines)
    return {int(found[1]) for found in seen if found} & off


def check_counting(device):
    """A slice that is woken by its number has to be seen: otherwise 0 would mean nothing."""
    harness.compact(device)
    off = set(harness.ids(device, dev.OFFLINE))
    number = min(off)
    with traced("ramslice/ramslice_state") as lines:
        device.request("online", id=number)
        if (seen := woken(lines(), off)) != {number}:
            raise RuntimeError(f"slice {number} woke, and {seen} were counted")


def ask(device, request):
    """A request that has to fail: slices that were off before, and those that it woke."""
    harness.compact(device)
    off = set(harness.ids(device, dev.OFFLINE))
    if len(off) < LEAST_OFF * device.info().nr_slices:
        raise RuntimeError(f"{len(off)} of {device.info().nr_slices} slices are off: few to wake")
    with traced("ramslice/ramslice_state") as lines:
        if REQUESTS[request]():
            raise RuntimeError(f"{request}: granted, in spite of a pinned page in each range")
        return {"request": request, "off": len(off), "woken": len(woken(lines(), off))}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("seed", type=int)
    args = parser.parse_args()
    if not os.path.ismount(TRACING):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    chance = random.Random(args.seed)
    # The program's own pages are read before slices go off
    subprocess.run([PROGRAM, "huge", "--json"], stdout=subprocess.DEVNULL, check=True)
    with contextlib.ExitStack() as stack, dev.Device() as device:
        holders = [placement_workload.holder(chance.randrange(10, 70), chance.randrange(40))
                   for _ in range(10)]
        mib = harness.meminfo()["MemFree"] // 1024 - SPARE_MIB
        pinned = pin_each(stack, mib, PINNED_EACH)
        for pid in chance.sample(holders, 5):
            placement_workload.end(pid)
        check_counting(device)
        found = [ask(device, request)
                 for _ in range(QUICK_TURNS if args.quick else TURNS)
                 for request in chance.sample(list(REQUESTS), len(REQUESTS))]
        slices = device.info().nr_slices
    args.out.write_text(json.dumps({"seed": args.seed, "pinned": pinned, "slices": slices,
                                    "requests": found}) + "\n")


if __name__ == "__main__":
    main()
