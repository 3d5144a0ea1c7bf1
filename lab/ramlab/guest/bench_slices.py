#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The slices suite inside the guest: carries out the parts that are named, and writes figures.

Usage: python3 -m ramlab.guest.bench_slices OUT.json [--quick] PART...

Figures are raw: ticks (instructions, if QEMU counts them), pages, interrupts. The host works out
what they mean.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.workload import Load

MIB = 1 << 20
PAGES = MIB // 4096
# Memory below 4 GiB is the kernel's; above lies ZONE_MOVABLE, by movablecore=.
HIGH = 4 << 30
MEMORY = Path("/sys/devices/system/memory")
PATCHED = Path("/dev/ramslice").exists()
# Half of as many slices as an order says anything about
FEW = 5


class Bench:
    """A running bench program; calling it gives a command and returns the answer."""

    def __init__(self, *words):
        # At the lowest priority it would compete with nothing: bench itself runs at the normal one.
        self.process = subprocess.Popen([dev.program("bench"), *words], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

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


# --- loops ---


def loops(quick):
    """Page faults by as many threads as there are CPUs, and, on one CPU, fork and reads of what is
    in the page cache.
    """
    cpus = os.cpu_count()
    with Bench("idle") as bench:
        found = {"calibrate": bench("calibrate", 10_000_000)}
        bench("fault", cpus, 16, 2)
        found["fault"] = bench("fault", cpus, 16, 3 if quick else 7)["per_page"]
        if cpus == 1:
            bench("fork", 32, 2)
            found["fork"] = bench("fork", 32, 3 if quick else 7)["per_fork"]
            # A file system of nothing but page cache
            subprocess.run(["mount", "-t", "ramfs", "ramfs", "/mnt"], check=True)
            bench("read", "/mnt/file", 16, 2)
            found["read"] = bench("read", "/mnt/file", 16, 3 if quick else 7)["per_page"]
    return found


# --- memory to be moved ---


def movable_mib():
    zone = harness.zoneinfo().get((0, "Movable"))
    if not zone:
        sys.exit("no ZONE_MOVABLE: movablecore= is missing")
    return zone["free"] // PAGES


def half_full(bench, seed):
    """All of ZONE_MOVABLE in one program's hands, then half of it free."""
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)
    bench("free")
    bench("fill", movable_mib() * 97 // 100)
    # The lists of CPUs take up to an eighth of what is freed, which is then neither free nor the
    # program's.
    fraction = "/proc/sys/vm/percpu_pagelist_high_fraction"
    dev.write(fraction, 1000)
    bench("punch", seed)
    dev.write(fraction, 0)


def ranges(bench, mib, start, nr=1):
    """What nr ranges of this size hold."""
    return bench("census", start >> 12, mib * PAGES, nr)


def foreign(row):
    """Pages that are not the program's."""
    return row["lru"] - row["own"] + row["rest"]


def usable(row):
    """Nearly everything in it is the program's, and in small pages."""
    return foreign(row) < 0.02 * (row["lru"] + row["free"]) and not row["huge"]


@contextlib.contextmanager
def verified(bench):
    """No page may lose its contents. Yields what says, at the end, how many pages were moved."""
    bench("snap")
    report = {}
    yield report
    report |= bench("moved")
    if report["wrong"]:
        sys.exit(f"{report['wrong']} pages have wrong contents")


def good(answer, what):
    if answer["error"]:
        reason = answer.get("reason")
        because = f" ({dev.REASONS[reason]})" if reason else ""
        sys.exit(f"{what}: {os.strerror(answer['error'])}{because}")
    return answer


def set_slices(mib):
    dev.write("/sys/kernel/mm/ramslice/slice_bytes", mib * MIB)


def no_compaction():
    """A huge page comes from what is free as a whole, or not at all, and none is made ahead: half
    full memory is what kcompactd compacts by itself, amid what is measured.
    """
    thp = Path("/sys/kernel/mm/transparent_hugepage")
    dev.write(thp / "enabled", "madvise")
    dev.write(thp / "defrag", "never")
    dev.write("/proc/sys/vm/compaction_proactiveness", 0)


def block_mib():
    return int(dev.read(MEMORY / "block_size_bytes"), 16) // MIB


def block_file(pfn):
    return MEMORY / f"memory{pfn // PAGES // block_mib()}" / "state"


def empty_range(bench, mib, row):
    """Empties a slice, or on the stock kernel its blocks; returns the work and the pages moved."""
    migrated = -dev.vmstat("pgmigrate_success")
    if PATCHED:
        answer = good(bench("offline", row["pfn"] // (mib * PAGES)), f"slice at {row['pfn']:#x}")
        ticks = answer["ticks"]
    else:
        blocks = range(row["pfn"], row["pfn"] + mib * PAGES, block_mib() * PAGES)
        ticks = sum(good(bench("write", block_file(pfn), "offline"), f"block at {pfn:#x}")["ticks"]
                    for pfn in blocks)
    migrated += dev.vmstat("pgmigrate_success")
    return {"ticks": ticks, "had_to_move": row["lru"], "migrated": migrated} | row


def wake_range(bench, mib, pfn):
    """Brings back what is off; one block or slice."""
    if PATCHED:
        return good(bench("online", pfn // (mib * PAGES)), "waking")
    return good(bench("write", block_file(pfn), "online_movable"), "onlining")


def first_page(bench, pfn, nr):
    """Allocates a page that only these page frames have.

    It is one of 2 MiB for a pool, because the kernel does not clear those.
    """
    pool = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    # Another may just have been freed elsewhere
    for number in range(1, 17):
        answer = good(bench("write", pool, number), "a page for the pool")
        if any(flags >> pinned_memory.KPF_HUGE & 1 for flags in pinned_memory.page_flags(pfn, nr)):
            dev.write(pool, 0)
            return answer
    sys.exit("the first pages came from elsewhere")


def empty(quick):
    """Rounds of: a slice of 1 GiB, small slices, waking 128 MiB; on the stock kernel, blocks."""
    no_compaction()
    dev.debugfs()
    with Bench() as bench:
        return [empty_round(bench, quick) for _ in range(1 if quick else 4)]


def empty_round(bench, quick):
    found = {"small": [], "wake": []}
    size = 64 if PATCHED else block_mib()
    if PATCHED:
        set_slices(size)
        # The first request of a geometry looks for memory reserved at boot: not a slice's cost
        good(bench("compact_dry", 1), "dry run")
    half_full(bench, random.getrandbits(32))
    with verified(bench) as found["check"]:
        two = sorted(ranges(bench, 1024, HIGH, 2), key=foreign)
        small = [row for row in ranges(bench, size, two[1]["pfn"] << 12, 1024 // size)
                 if usable(row)]
        if not small:
            sys.exit(f"no range is the program's alone: {two}")
        for row in random.sample(small, min(len(small), 256 // size)):
            found["small"].append(empty_range(bench, size, row))
        for row in found["small"]:
            wake_range(bench, size, row["pfn"])
        # Waking, with the same amount of memory on both sides
        size = block_mib()
        if PATCHED:
            set_slices(size)
        emptied = {row["pfn"] // (size * PAGES) for row in found["small"]}
        blocks = [row for row in ranges(bench, size, two[1]["pfn"] << 12, 1024 // size)
                  if usable(row) and row["pfn"] // (size * PAGES) not in emptied]
        if not blocks:
            sys.exit(f"no block to be woken is the program's alone: {two[1]}")
        for row in random.sample(blocks, min(len(blocks), 1 if quick else 2)):
            # While everything is on: a huge page wakes a slice that is off. The half full block
            # has none.
            bench("soak", HIGH >> 12)
            empty_range(bench, size, row)
            answer = wake_range(bench, size, row["pfn"])
            first = first_page(bench, row["pfn"], size * PAGES)
            bench("unsoak")
            found["wake"].append({"ticks": answer["ticks"], "first_page_ticks": first["ticks"]})
        if PATCHED:
            set_slices(1024)
            good(bench("compact_dry", 1), "dry run")
        row, = ranges(bench, 1024, two[0]["pfn"] << 12)
        found["large"] = empty_range(bench, 1024, row)
        if not PATCHED:
            for pfn in range(row["pfn"], row["pfn"] + 1024 * PAGES, size * PAGES):
                wake_range(bench, size, pfn)
        else:
            wake_range(bench, 1024, row["pfn"])
    return found


def free(quick):
    """Slices of 64 MiB that are empty already: instructions per page to switch one off."""
    no_compaction()
    with Bench() as bench:
        set_slices(64)
        good(bench("compact_dry", 1), "dry run")
        found = []
        for row in dev.Device().snapshot():
            if row.state == dev.ONLINE and row.counter("free") == row.nr_pages:
                found.append(good(bench("offline", row.id), f"slice {row.id}")["ticks"] /
                             row.nr_pages)
        if len(found) < 8:
            sys.exit(f"only {len(found)} slices were empty")
        return found


def shootdowns():
    """TLB shoot-down interrupts so far, on all CPUs."""
    line, = (line for line in dev.read("/proc/interrupts").splitlines()
             if line.strip().startswith("TLB:"))
    return sum(int(word) for word in line.split()[1:] if word.isdigit())


def together(quick):
    """Several slices emptied in one request, or blocks one by one: what moves more than once."""
    dev.debugfs()
    rows = []
    size, nr = block_mib(), 6
    with Bench("idle") as bench:
        for _ in range(1 if quick else 2):
            if PATCHED:
                dev.Device().request("online_all")
                set_slices(size)
            half_full(bench, random.getrandbits(32))
            before = ranges(bench, size, HIGH, 2560 // size)
            if PATCHED:
                # Those that cost nothing, elsewhere
                dev.Device().request("offline_free", flags=dev.IGNORE_BACKOFF)
                empty = set(harness.ids(dev.Device(), dev.OFFLINE))
            bench("snap")
            migrated = -dev.vmstat("pgmigrate_success")
            if PATCHED:
                answer = good(bench("compact", nr), "compaction")
                off = set(harness.ids(dev.Device(), dev.OFFLINE)) - empty
                done = [row for row in before if row["pfn"] // PAGES // size in off]
            else:
                # Those with the least to move, in order of address: the most favourable choice
                cheapest = sorted((r for r in before if usable(r)), key=lambda r: r["lru"])[:nr]
                done = sorted(cheapest, key=lambda r: r["pfn"])
                for row in done:
                    answer = good(bench("write", block_file(row["pfn"]), "offline"),
                                  f"block at {row['pfn']:#x}")
            migrated += dev.vmstat("pgmigrate_success")
            report = bench("moved")
            if report["wrong"] or not done:
                sys.exit(f"emptied {len(done)} ({answer}), "
                         f"{report['wrong']} pages have wrong contents")
            rows.append({"emptied": len(done), "had_to_move": sum(row["lru"] for row in done),
                         "migrated": migrated} | report)
            for row in [] if PATCHED else done:
                wake_range(bench, size, row["pfn"])
    return rows


def tlb(quick):
    """Interrupts that flush another CPU's TLB, with the usual folios at a time, and with one."""
    folios = int(dev.read(dev.debugfs() / "migrate_batch"))
    found = {"folios": folios, "usual": [], "one": []}
    with Bench("idle") as bench:
        half_full(bench, random.getrandbits(32))
        for length, batch in (("usual", folios), ("one", 1)) * (1 if quick else 2):
            dev.write(dev.debugfs() / "migrate_batch", batch)
            row = max((r for r in ranges(bench, 64, HIGH + 512 * MIB, 16) if usable(r)),
                      key=lambda r: r["lru"])
            bench("walk", 1)
            interrupts = -shootdowns()
            answer = good(bench("offline", row["pfn"] // (64 * PAGES)), "slice")
            interrupts += shootdowns()
            walks = bench("walk", 0)["walks"]
            found[length].append({"interrupts": interrupts, "migrated": answer["migrated"],
                                  "walks": walks})
            good(bench("online", row["pfn"] // (64 * PAGES)), "waking")
    return found


def memory(_):
    """What the kernel says that it has and uses right after boot."""
    info, zones = harness.meminfo(), harness.zoneinfo()
    found = {name: info[name] for name in ("MemTotal", "MemFree", "Slab", "Percpu", "VmallocUsed",
                                           "KernelStack")}
    return found | {"managed": sum(zone["managed"] for zone in zones.values()),
                    "present": sum(zone["present"] for zone in zones.values())}


def snapshot(_):
    """What the KUnit test that takes snapshots and orders slices took for that."""
    dev.debugfs()
    text = dev.read("/sys/kernel/debug/kunit/ramslice_snapshot/results")
    if "not ok" in text:
        sys.exit(text)
    names = ("slices", "snapshot_ns", "order_ns")
    return [dict(zip(names, map(int, found), strict=True))
            for found in re.findall(r"slices (\d+) snapshot_ns (\d+) order_ns (\d+)", text)]


def dearer_percent(by_summaries, exact):
    """By how much the cheaper half of slices by summaries is dearer than that by exact prices.

    Slices that cannot be emptied are left out, because each is looked at before it is emptied; and
    empty ones, which summaries know exactly. None if hardly any are left.
    """
    stays = dev.UNRECLAIMABLE | dev.UNMOVABLE
    price = {row.id: row.price for row in exact
             if row.state == dev.ONLINE and not row.flags & stays
             and row.counter("free") < row.nr_pages}
    order = [row.id for row in sorted(by_summaries, key=lambda row: (row.price, row.id))
             if row.id in price]
    half = len(order) // 2
    if half < FEW:
        return None
    return 100 * (sum(price[number] for number in order[:half]) /
                  sum(sorted(price.values())[:half]) - 1)


def regret(quick):
    """The order of slices by summaries against that by prices read at the same moment, and how
    many summaries were estimates by then.
    """
    dev.file_system()
    loads = [Load("anon", 256), Load("anon-thp", 128), Load("file", 128), Load("shmem", 96)]
    found = []
    try:
        for load in loads:
            load.wait_ready()
        with dev.Device() as device:
            for _ in range(2 if quick else 10):
                time.sleep(3)
                for load in loads:
                    load.hold()
                by_summaries, exact = device.snapshot(flags=0), device.snapshot()
                for load in loads:
                    load.resume()
                stale = sum(bool(row.flags & dev.STALE) for row in by_summaries)
                used = sum(row.counter("free") < row.nr_pages for row in exact)
                percent = dearer_percent(by_summaries, exact)
                if percent is not None:
                    found.append({"percent": percent, "stale": stale / used})
        for load in loads:
            load.end()
    finally:
        for load in loads:
            load.kill()
    if not found:
        sys.exit("at no moment were there slices to compare")
    return found


def profiled(bench, mib, rows, path):
    """Empties slices one by one; perf's data go to the path."""
    data = Path("/tmp/perf.data")
    data.unlink(missing_ok=True)
    perf = subprocess.Popen(["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock:k", "-F", "8000",
                             "-m", "4096", "-o", data], stderr=subprocess.DEVNULL)
    harness.until(data.exists, 20)
    found = [empty_range(bench, mib, row) for row in rows]
    perf.send_signal(signal.SIGINT)
    perf.wait()
    path.write_bytes(data.read_bytes())
    return found


def profile(folder):
    """Where instructions go while a slice of 1 GiB is emptied, and small ones into cache."""
    dev.debugfs()
    dev.write("/proc/sys/kernel/kptr_restrict", 0)
    set_slices(1024)
    found = {}
    with Bench() as bench:
        half_full(bench, random.getrandbits(32))
        row = min(ranges(bench, 1024, HIGH, 2), key=foreign)
        found["emptying"] = profiled(bench, 1024, [row], folder / "emptying.data")
        wake_range(bench, 1024, row["pfn"])
        set_slices(64)
        # A hole of that size is read without a disk, and is cache all the same
        hole = Path(dev.file_system()) / "hole"
        hole.touch()
        os.truncate(hole, movable_mib() * 6 // 10 * MIB)
        with hole.open("rb", buffering=0) as file:
            while file.read(MIB):
                pass
        rows = sorted(ranges(bench, 64, HIGH, movable_mib() // 64),
                      key=lambda row: row["own"])
        found["targets"] = profiled(bench, 64, rows[:4], folder / "targets.data")
    (folder / "kallsyms").write_text(Path("/proc/kallsyms").read_text())
    return found


PARTS = {"loops": loops, "empty": empty, "free": free, "profile": profile, "together": together,
         "tlb": tlb, "memory": memory, "snapshot": snapshot, "regret": regret}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    args = parser.parse_args()
    found = {part: PARTS[part](args.out.parent if part == "profile" else args.quick)
             for part in args.parts}
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
