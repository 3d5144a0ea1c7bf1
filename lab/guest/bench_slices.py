#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The slices suite inside the guest: carries out the parts that are named and writes what it measured.

Usage: bench_slices.py OUT.json [--quick] PART...

Figures are raw: ticks (instructions, if QEMU counts them), pages, interrupts. What they mean is worked out outside.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import harness
import ramslice_dev as dev

MIB = 1 << 20
PAGES = MIB // 4096
# Memory below 4 GiB is the kernel's; above lies ZONE_MOVABLE, by movablecore=.
HIGH = 4 << 30
MEMORY = Path("/sys/devices/system/memory")
PATCHED = Path("/dev/ramslice").exists()


class Bench:
    """A running bench program; calling it gives a command and returns the answer."""

    def __init__(self, *words):
        # The lowest of priorities competes with no one: bench itself runs at the normal one.
        self.process = subprocess.Popen([dev.program("bench"), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def __call__(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"bench ended at {words}, status {self.process.wait()}")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


# --- loops ---------------------------------------------------------------------------------------------------------


def loops(quick):
    """Page faults by as many threads as there are CPUs, and, on one CPU, fork."""
    cpus = os.cpu_count()
    with Bench("idle") as bench:
        found = {"calibrate": bench("calibrate", 10_000_000)}
        bench("fault", cpus, 16, 2)
        found["fault"] = bench("fault", cpus, 16, 5 if quick else 15)["per_page"]
        if cpus == 1:
            bench("fork", 32, 2)
            found["fork"] = bench("fork", 32, 3 if quick else 10)["per_fork"]
    return found


# --- memory to be moved --------------------------------------------------------------------------------------------


def movable_mib():
    zone = harness.zoneinfo().get((0, "Movable"))
    if not zone:
        sys.exit("no ZONE_MOVABLE: movablecore= is missing")
    return zone["free"] // PAGES


def half_full(bench, seed):
    """All of ZONE_MOVABLE in one program's hands, then every second page free."""
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)
    bench("free")
    bench("fill", movable_mib() * 97 // 100)
    bench("punch", seed)


def ranges(bench, mib, start=HIGH, nr=1):
    """What nr ranges of this size hold."""
    return bench("census", start >> 12, mib * PAGES, nr)


def usable(row):
    """Nearly everything in it is the program's."""
    return row["own"] > 0.97 * row["lru"] and row["rest"] < 0.02 * (row["lru"] + row["free"])


@contextlib.contextmanager
def verified(bench):
    """No page may lose its contents."""
    bench("snap")
    report = {}
    yield report
    report |= bench("moved")
    if report["wrong"]:
        sys.exit(f"{report['wrong']} pages have wrong contents")


def good(answer, what):
    if answer["error"]:
        reason = answer.get("reason")
        sys.exit(f"{what}: {os.strerror(answer['error'])}" + (f" ({dev.REASONS[reason]})" if reason else ""))
    return answer


def set_slices(mib):
    dev.write("/sys/kernel/mm/ramslice/slice_bytes", mib * MIB)


def no_compaction():
    """A huge page comes from what is free as a whole, or not at all."""
    thp = Path("/sys/kernel/mm/transparent_hugepage")
    dev.write(thp / "enabled", "madvise")
    dev.write(thp / "defrag", "never")


def block_file(address, name="state"):
    size = int(dev.read(MEMORY / "block_size_bytes"), 16)
    return MEMORY / f"memory{address // size}" / name


def block_mib():
    return int(dev.read(MEMORY / "block_size_bytes"), 16) // MIB


def empty_ours(bench, mib, row):
    """Empties a slice; how much work that was for how many pages."""
    with verified(bench) as report:
        migrated = -dev.vmstat("pgmigrate_success")
        answer = good(bench("offline", row["pfn"] // (mib * PAGES)), f"slice at {row['pfn']:#x}")
        migrated += dev.vmstat("pgmigrate_success")
    return answer | report | {"had_to_move": row["lru"], "migrated": migrated}


def empty_stock(bench, row, mib):
    """Takes blocks away by memory hotplug, one after the other."""
    ticks = 0
    with verified(bench) as report:
        migrated = -dev.vmstat("pgmigrate_success")
        for address in range(row["pfn"] << 12, (row["pfn"] << 12) + mib * MIB, block_mib() * MIB):
            ticks += good(bench("write", block_file(address), "offline"), f"block at {address:#x}")["ticks"]
        migrated += dev.vmstat("pgmigrate_success")
    return report | {"ticks": ticks, "had_to_move": row["lru"], "migrated": migrated}


def wake(bench, row, mib, command):
    """Brings back what is off, with its first page."""
    answer = good(command(), "waking")
    first = bench("huge", row["pfn"], mib * PAGES)
    if not first["inside"]:
        sys.exit(f"the first page came from elsewhere: {first}")
    return {"ticks": answer["ticks"], "first_page_ticks": first["ticks"]}


def empty(quick):
    """Small slices, a slice of 1 GiB, and waking 128 MiB; on the stock kernel, blocks instead."""
    no_compaction()
    found = {"small": [], "large": [], "wake": []}
    with Bench() as bench:
        half_full(bench, random.getrandbits(32))
        size = 64 if PATCHED else block_mib()
        small = [row for row in ranges(bench, size, HIGH + 1024 * MIB, 512 // size) if usable(row)]
        if not small:
            sys.exit("no range is the program's alone")
        for row in random.sample(small, min(len(small), 2 if quick else 512 // size // 2)):
            row, = ranges(bench, size, row["pfn"] << 12)
            found["small"].append(empty_ours(bench, size, row) if PATCHED else empty_stock(bench, row, size))
        # Waking, with the same amount of memory on both sides
        size = block_mib()
        if PATCHED:
            good_ids = [s.id for s in dev.Device().snapshot() if s.state == dev.OFFLINE]
            for number in good_ids:
                good(bench("online", number), "waking")
            set_slices(size)
        else:
            for row in small:
                if dev.read(block_file(row["pfn"] << 12)) == "offline":
                    good(bench("write", block_file(row["pfn"] << 12), "online_movable"), "onlining")
        for row in ranges(bench, size, HIGH + 1024 * MIB, 512 // size)[:1 if quick else 3]:
            if PATCHED:
                number = row["pfn"] // (size * PAGES)
                good(bench("offline", number), "slice")
                found["wake"].append(wake(bench, row, size, lambda: bench("online", number)))
            else:
                state = block_file(row["pfn"] << 12)
                good(bench("write", state, "offline"), "block")
                found["wake"].append(wake(bench, row, size, lambda: bench("write", state, "online_movable")))
        if PATCHED:
            set_slices(1024)
        row, = ranges(bench, 1024)
        if not usable(row):
            sys.exit(f"the gigabyte holds something else: {row}")
        found["large"].append(empty_ours(bench, 1024, row) if PATCHED else empty_stock(bench, row, 1024))
    return found


PARTS = {"loops": loops, "empty": empty}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    args = parser.parse_args()
    found = {part: PARTS[part](args.quick) for part in args.parts}
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
