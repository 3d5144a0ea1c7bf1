#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Huge pages that a load gets which asks for none in particular, inside the guest.

Usage: python3 -m ramlab.guest.bench_thp OUT.json [--quick] ARM

With transparent huge pages "always" and without direct compaction, as distributions have it, a load
touches 1 and 3 GiB page by page, without a pause. ARM is the kernel without ramslice, or the
simulated driver:

  stock     all memory is online
  atomic    what can be offline is; waking takes 100 us and does not sleep
  sleeping  the same, and waking sleeps

Memory is fresh, or fragmented: 1 GiB (512 MiB for the large load) is then in use in runs of 64 KiB,
with as much free between them, and only slices that are wholly free are offline.
"""

import argparse
import contextlib
import json
import mmap
import os
import sys
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Memory

HUGE = 2 * MIB
THP = Path("/sys/kernel/mm/transparent_hugepage")
ARMS = {"stock": None, "atomic": 0, "sleeping": 1}
WAKE_DELAY_US = 100
# MiB touched, and MiB that are in use in pieces, with as many free among them
LOADS = {1024: 1024, 3072: 512}


def touch(mib):
    """Touches memory as a program does that knows nothing of huge pages; what it got."""
    before, began = harness.vmstat(), time.monotonic_ns()
    # Mapped beyond what is used, so that the first page can be that of a huge one
    memory = mmap.mmap(-1, mib * MIB + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, mib * MIB, HUGE):
        memory[start:start + HUGE:PAGE] = b"\1" * (HUGE // PAGE)
    ticks, after = time.monotonic_ns() - began, harness.vmstat()
    memory.close()
    if after["oom_kill"] > before["oom_kill"]:
        sys.exit("a process was killed for lack of memory")
    return {"huge": after["thp_fault_alloc"] - before["thp_fault_alloc"],
            "fallback": after["thp_fault_fallback"] - before["thp_fault_fallback"],
            "swapped": after["pswpout"] - before["pswpout"], "ticks": ticks}


def settle():
    """All memory is online and holds no cache."""
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)


def measure(device, mib, pieces_mib):
    """One load. Without a device, all memory stays online."""
    settle()
    with contextlib.ExitStack() as stack:
        if pieces_mib:
            memory = stack.enter_context(Memory(2 * pieces_mib))
            memory.touch().punch()
        found = {}
        if device:
            device.request("offline_free" if pieces_mib else "compact", wait_busy=10,
                           flags=dev.IGNORE_BACKOFF)
            info = device.info()
            found["off"] = info.offline_pages / (info.offline_pages + info.free_pages)
            woken = harness.woken_by_demand(device)
        found |= touch(mib)
        if device:
            found["woken"] = harness.woken_by_demand(device) - woken
            if not found["woken"]:
                sys.exit(f"no slice was woken: this proves nothing: {found}")
            device.request("online_all")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("arm", choices=ARMS)
    args = parser.parse_args()
    dev.write(THP / "enabled", "always")
    dev.write(THP / "defrag", "madvise")
    # A daemon that makes huge pages of small ones afterwards is not what is measured
    dev.write(THP / "khugepaged/scan_sleep_millisecs", 10_000_000)
    device = None
    if ARMS[args.arm] is not None:
        harness.load_sim(sleeping=ARMS[args.arm], wake_delay_us=WAKE_DELAY_US)
        device = dev.Device()
    found = {f"{mib} MiB, {'fragmented' if pieces else 'fresh'}": measure(device, mib, pieces)
             for mib in LOADS for pieces in (0, LOADS[mib])}
    if device:
        harness.check_violations()
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
