#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The huge suite inside the guest: pages of 1 GiB after hours of use; writes what it found.

Usage: python3 -m ramlab.guest.bench_huge OUT.json [--quick] ARM SEED

First one page is asked for right after boot, and given back. Then memory ages (aged_load.py). Then
as many pages are asked for as memory that is free or holds cache would make, but for ranges that
boot's own pages or holes keep. ARM says how:

  ours      nr_hugepages on a kernel with ramslice, then ramslice huge --objects shrink for the rest
  stock     nr_hugepages, on a kernel without
  tries     the same after drop_caches and compact_memory, ten times
  defrag    the same with vm.defrag_mode from boot, on a kernel that has it
  cma       nr_hugepages of a reserve that was set apart at boot

What the command takes for a page right after boot is measured, too. Times are ticks of the
monotonic clock in ns: instructions, if QEMU counts them.
"""

import argparse
import collections
import json
import os
import subprocess
import time
from pathlib import Path

from ramlab.guest import aged_load, harness, hugetlb_pool, placement_workload
from ramlab.guest import ramslice_dev as dev

GIB = 1 << 30
PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
ARMS = ["ours", "stock", "tries", "defrag", "cma"]
TRIES = 10
DEFRAG = Path("/proc/sys/vm/defrag_mode")


def by_pool(arm, nr):
    """Pages that nr_hugepages granted, asked for one after another up to so many; the ticks that
    these took, tries, and the ticks of the one that was not to be had, if there was one.
    """
    granted, ticks, tries, failed = 0, 0, 0, None
    while granted < nr and failed is None:
        began = time.monotonic_ns()
        for _ in range(TRIES if arm == "tries" else 1):
            tries += 1
            if arm == "tries":
                os.sync()
                dev.write("/proc/sys/vm/drop_caches", 3)
                dev.write("/proc/sys/vm/compact_memory", 1)
            if hugetlb_pool.resize(granted + 1, hugetlb_pool.GIGANTIC) > granted:
                granted += 1
                ticks += time.monotonic_ns() - began
                break
        else:
            failed = time.monotonic_ns() - began
    return {"granted": granted, "ticks": ticks, "tries": tries, "failed_ticks": failed}


def by_command(nr):
    """What ramslice huge granted of so many pages more, the ticks it took, why ranges were refused,
    and what shrinking the kernel's caches brought, if it came to that.
    """
    began = time.monotonic_ns()
    done = subprocess.run([PROGRAM, "huge", "--json", "--size", "1G", "--count", str(nr),
                           "--objects", "shrink"], capture_output=True, text=True)
    ticks = time.monotonic_ns() - began
    # 1: fewer than asked for
    if done.returncode not in (0, 1):
        raise RuntimeError(f"ramslice huge: status {done.returncode}: {done.stderr}")
    found = json.loads(done.stdout)
    return {"granted": found["got"], "ticks": ticks, "objects": found.get("objects"),
            "refused": [one["refused"] for one in found["ranges"] if "refused" in one]}


def blocked():
    """Reasons why ranges cannot become a page now: {reason: ranges}."""
    done = subprocess.run([PROGRAM, "huge", "--json", "--size", "1G"], stdout=subprocess.PIPE,
                          text=True, check=True)
    row, = json.loads(done.stdout)["pools"]
    return collections.Counter(one["reason"] for one in row["blocked"])


def give_back():
    hugetlb_pool.resize(0, hugetlb_pool.GIGANTIC)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("seed", type=int)
    args = parser.parse_args()
    if not dev.file_system():
        raise FileNotFoundError("no disk")
    if args.arm == "defrag":
        dev.write(DEFRAG, 1)
    # The program's own pages are read from the disk before they are measured
    if args.arm == "ours":
        subprocess.run([PROGRAM, "huge", "--json"], stdout=subprocess.DEVNULL, check=True)
    found = {"fresh": by_pool(args.arm, 1), "mem_kib": dev.meminfo("MemTotal")}
    give_back()
    if args.arm == "ours":
        found["fresh_command"] = by_command(1)
        give_back()
    load = aged_load.age(args.seed, rounds=3 if args.quick else 6)
    found |= {"attainable": aged_load.attainable(GIB), "info": harness.meminfo()}
    found["aged"] = by_pool(args.arm, found["attainable"])
    if args.arm == "ours":
        left = found["attainable"] - found["aged"]["granted"]
        found["aged_command"] = by_command(left) if left else None
        found["blocked"] = blocked()
    found["load_processes"] = len(load.holders)
    for pid in load.holders:
        placement_workload.end(pid)
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
