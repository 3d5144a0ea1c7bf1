#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The huge suite inside the guest: pages of 1 GiB after hours of use; writes what it found.

Usage: python3 -m ramlab.guest.bench_huge OUT.json [--quick] ARM SEED

First one page is asked for right after boot, and given back. Then memory ages: the mixture of
placement_workload.py, as large as the machine, whose peaks leave the kernel's pages wherever there
was room. A quarter of it stays. Then as many pages are asked for as memory that is free or holds
cache would make, but for ranges that boot's own pages or holes keep. ARM says how:

  ours      ramslice huge --objects shrink, on a kernel with ramslice
  stock     nr_hugepages, on a kernel without
  tries     the same after drop_caches and compact_memory, ten times
  defrag    the same with vm.defrag_mode from boot, on a kernel that has it
  cma       nr_hugepages of a reserve that was set apart at boot

Times are ticks of the monotonic clock in ns: instructions, if QEMU counts them.
"""

import argparse
import array
import json
import os
import re
import subprocess
import time
from pathlib import Path

from ramlab.guest import harness, hugetlb_pool, placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE

GIB = 1 << 30
GIB_PAGES = GIB // PAGE
PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
ARMS = ["ours", "stock", "tries", "defrag", "cma"]
TRIES = 10
# The mixture is made for this much memory
MIXTURE_BYTES = 2 << 30
# Bits of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst)
KPF_NOPAGE, KPF_RESERVED = 20, 32
DEFRAG = Path("/proc/sys/vm/defrag_mode")


class AgedLoad(placement_workload.Load):
    """The mixture in a machine of any size, on kernels with and without ramslice."""

    def __init__(self, seed):
        super().__init__(seed, device=None,
                         scale=max(round(memory_bytes() / MIXTURE_BYTES), 1))

    def note_least(self):
        """Only kernels with ramslice can say what they need at least."""


def memory_bytes():
    return dev.meminfo("MemTotal") * 1024


def zones():
    """[(first page frame, page frames spanned, high watermark in pages)] of every zone in use."""
    found = []
    for text in Path("/proc/zoneinfo").read_text().split("Node ")[1:]:
        values = {name: int(value)
                  for name, value in re.findall(r"^ +(high|spanned|managed|start_pfn:?) +(\d+)$",
                                                text, re.MULTILINE)}
        if values.get("managed"):
            found.append((values["start_pfn:"], values["spanned"], values["high"]))
    return found


def may_become_free(flags):
    """Whether no page of a range is missing or was reserved at boot: those never move."""
    never = 1 << KPF_NOPAGE | 1 << KPF_RESERVED
    return not any(word & never for word in flags)


def nr_ranges(spans):
    """Aligned ranges of 1 GiB that lie in one zone each and could be free as a whole."""
    found = 0
    with open("/proc/kpageflags", "rb", buffering=0) as file:
        for first, nr, _ in spans:
            for start in range(-(-first // GIB_PAGES) * GIB_PAGES,
                               first + nr - GIB_PAGES + 1, GIB_PAGES):
                file.seek(8 * start)
                flags = array.array("Q", file.read(8 * GIB_PAGES))
                found += len(flags) == GIB_PAGES and may_become_free(flags)
    return found


def attainable():
    """Pages of 1 GiB that could be had if what is in use lay elsewhere: of memory that is free or
    holds cache, above the high watermarks; at most one for each range that could be free.
    """
    spans = zones()
    info = harness.meminfo()
    kib = info["MemFree"] + info["Active(file)"] + info["Inactive(file)"]
    pages = kib * 1024 // PAGE - sum(high for _, _, high in spans)
    return min(nr_ranges(spans), max(pages, 0) // GIB_PAGES)


def ask(arm, nr):
    """Pages that were granted of so many, the ticks it took, tries, why ranges were refused, and
    what shrinking the kernel's caches brought, if ours came to that.
    """
    size = hugetlb_pool.GIGANTIC
    began = time.monotonic_ns()
    granted = tries = 0
    refused, objects = [], None
    if arm == "ours":
        done = subprocess.run([PROGRAM, "huge", "--json", "--size", "1G", "--count", str(nr),
                               "--objects", "shrink"], capture_output=True, text=True)
        # 1: fewer than asked for
        if done.returncode not in (0, 1):
            raise RuntimeError(f"ramslice huge: status {done.returncode}: {done.stderr}")
        found = json.loads(done.stdout)
        granted = found["got"]
        refused = [one["refused"] for one in found["ranges"] if "refused" in one]
        objects = found.get("objects")
    while granted < nr and tries < (TRIES if arm == "tries" else arm != "ours"):
        tries += 1
        if arm == "tries":
            os.sync()
            dev.write("/proc/sys/vm/drop_caches", 3)
            dev.write("/proc/sys/vm/compact_memory", 1)
        granted = hugetlb_pool.resize(nr, size)
    return {"granted": granted, "ticks": time.monotonic_ns() - began, "tries": tries,
            "refused": refused, "objects": objects}


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
    found = {"fresh": ask(args.arm, 1), "mem_kib": dev.meminfo("MemTotal")}
    give_back()
    before = harness.vmstat()
    load = AgedLoad(args.seed)
    for number in range(3 if args.quick else 6):
        load.round(number)
    load.finish()
    found |= {"attainable": attainable(), "info": harness.meminfo()}
    after = harness.vmstat()
    if after["oom_kill"] > before["oom_kill"]:
        raise RuntimeError("a process was killed for lack of memory: that is less work")
    found["aged"] = ask(args.arm, found["attainable"])
    found["load_processes"] = len(load.holders)
    for pid in load.holders:
        placement_workload.end(pid)
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
