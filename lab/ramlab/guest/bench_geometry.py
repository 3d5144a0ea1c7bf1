#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The huge suite inside the guest: what a wake takes, whatever slices consist of; writes what it
found.

Usage: python3 -m ramlab.guest.bench_geometry OUT.json [--quick]

Slices that are empty go off and wake, one by one, by their numbers. Then all go off that can, and
memory is touched page by page, so that allocations wake them. Figures are ticks, which are
instructions if QEMU counts them.
"""

import argparse
import json
import subprocess
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.bench_slices import Bench, good, no_compaction

# Fewer are too few to say anything
LEAST_SLICES = 8
TOUCHED_MIB, QUICK_MIB = 1024, 256


def wakes(device, bench):
    """Ticks of each wake of a slice that was empty."""
    found = []
    for row in device.snapshot():
        if row.state == dev.ONLINE and row.counter("free") == row.nr_pages:
            good(bench("offline", row.id), f"slice {row.id}")
            woken = good(bench("online", row.id), f"slice {row.id}, waking")
            if woken["done"] != 1:
                raise RuntimeError(f"slice {row.id} did not wake: {woken}")
            found.append(woken["ticks"])
    if len(found) < LEAST_SLICES:
        raise RuntimeError(f"only {len(found)} slices were empty")
    return found


def touch(device, mib):
    """What it takes to touch memory page by page with all slices off that can be."""
    off = harness.compact(device)
    done = subprocess.run([dev.program("cost"), "touch", str(mib)], stdout=subprocess.PIPE,
                          check=True, text=True)
    return json.loads(done.stdout) | {"slices_off": off}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    no_compaction()
    with dev.Device() as device, Bench() as bench:
        # The first request of a geometry looks for memory reserved at boot: not a slice's cost
        good(bench("compact_dry", 1), "dry run")
        found = {"ways": device.info().interleave_ways, "calibrate": bench("calibrate", 10_000_000),
                 "wakes": wakes(device, bench),
                 "touch": touch(device, QUICK_MIB if args.quick else TOUCHED_MIB)}
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
