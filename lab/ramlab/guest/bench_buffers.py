#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The huge suite inside the guest: contiguous buffers of 64 MiB after hours of use; writes what it
found.

Usage: python3 -m ramlab.guest.bench_buffers OUT.json [--quick] PART HEAP SEED

Memory ages first (aged_load.py). HEAP is the dma-heap that is asked: ramslice, or CMA's, reserved.
PART says for what:

  many    as many buffers as free memory and cache would make, one after another, all held
  burst   buffers come and go, a few of them held at once, while a little of the load goes on

Of each request there are the ticks that passed, and those that the process had of the processor. If
QEMU counts instructions, a tick is one, and waiting passes at once: but its ticks are in the first.
Both include zeroing the buffer.
"""

import argparse
import collections
import errno
import json
import random
import time
from pathlib import Path

from ramlab.guest import aged_load, dma_heap, harness, placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE

SIZE = 64 * MIB
HEAPS = Path(dma_heap.HEAP).parent
OURS = Path(dma_heap.HEAP).name
# Refusals in a row after which no further buffer is asked for
REFUSALS = 3
# Buffers of a burst that are held at once, which is as much as CMA has set apart, and requests
HELD = 4
REQUESTS, QUICK_REQUESTS = 64, 16


def requests(heap, most):
    """Steps of a child: each gives the oldest buffer back if so many are held, asks for one, and
    yields what became of that. The load is not its child: processes inherit buffers, and keep them.
    """
    held = []
    while True:
        if len(held) == most:
            held.pop(0).close()
        began, ran, refused = time.monotonic_ns(), time.process_time_ns(), None
        try:
            held.append(dma_heap.Buffer(SIZE, HEAPS / heap))
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            refused = "refused"
        one = {"passed": time.monotonic_ns() - began, "ran": time.process_time_ns() - ran}
        if refused and heap == OURS:
            refused = dma_heap.books()["last_refusal"]
        yield one | {"refused": refused}


def many(child, _load, _args):
    """As many buffers as are attainable, or until too many requests in a row are refused."""
    attainable = aged_load.attainable(SIZE)
    asked, in_a_row = [], 0
    while len(asked) - refusals(asked) < attainable and in_a_row < REFUSALS:
        asked.append(child.step())
        in_a_row = in_a_row + 1 if asked[-1]["refused"] else 0
    # The kernel keeps some of what is left for itself
    return asked, {"attainable": attainable, "room_bytes": aged_load.room_pages() * PAGE}


def refusals(asked):
    return sum(one["refused"] is not None for one in asked)


def set_apart_bytes():
    """Memory that lies idle because buffers may be asked for: CMA's; of slices, those held."""
    nr_bytes = harness.meminfo()["CmaFree"] * 1024
    if Path("/dev/ramslice").exists():
        with dev.Device() as device:
            nr_bytes += device.info().held_pages * PAGE
    return nr_bytes


def burst(child, load, args):
    """Requests with a little of the load before each."""
    chance = random.Random(f"{args.seed} burst")
    asked, idle, room = [], [], []
    before = harness.vmstat()["oom_kill"]
    for _ in range(QUICK_REQUESTS if args.quick else REQUESTS):
        load.go_on(chance)
        idle.append(set_apart_bytes())
        room.append(aged_load.room_pages() * PAGE)
        asked.append(child.step())
    aged_load.check_none_killed(before)
    if min(room) < SIZE:
        raise RuntimeError(f"{min(room) >> 20} MiB are free above the high watermarks: a refusal "
                           "says nothing about the heap")
    return asked, {"idle_bytes": sum(idle) / len(idle), "least_room_bytes": min(room)}


# What each is about, and buffers that are held at once; -1: all
PARTS = {"many": (many, -1), "burst": (burst, HELD)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("heap")
    parser.add_argument("seed", type=int)
    args = parser.parse_args()
    if not dev.file_system():
        raise FileNotFoundError("no disk")
    if not (HEAPS / args.heap).exists():
        raise FileNotFoundError(f"this kernel has no dma-heap {args.heap}")
    part, most = PARTS[args.part]
    # It has none of the load's pipes if it begins before
    with harness.Child(requests, args.heap, most) as child:
        load = aged_load.age(args.seed, rounds=3 if args.quick else 6)
        asked, found = part(child, load, args)
        info = harness.meminfo()
    found |= {
        "seed": args.seed, "asked": len(asked), "granted": len(asked) - refusals(asked),
        "refused": collections.Counter(one["refused"] for one in asked if one["refused"]),
        "passed": [one["passed"] for one in asked], "ran": [one["ran"] for one in asked],
        "mem_kib": dev.meminfo("MemTotal"), "info": info, "load_processes": len(load.holders),
    }
    for pid in load.holders:
        placement_workload.end(pid)
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
