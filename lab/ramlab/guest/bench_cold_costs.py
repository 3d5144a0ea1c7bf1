#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What cold memory costs and keeps, inside the guest: carries out one part and writes raw figures.

Usage: python3 -m ramlab.guest.bench_cold_costs OUT.json [--quick] PART WORD...

  faults KIND        page faults in memory that is hot, cold or both
  places SECONDS     churn by loads of all kinds; then where each page of the machine is
  need SECONDS SWAP  loads that take 1.5 times the hot memory, with swap (1) or without (0)
  resize             1 GiB to the twin and back, its slices emptied alone, or blocks by hotplug
  automatic WARM_S WINDOW_S SEED
                     keys drawn by Zipf's law, while the daemon moves what is idle
"""

import argparse
import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from ramlab.guest import cold_memory, cold_places, harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.bench_slices import MEMORY, PATCHED, Bench, good
from ramlab.guest.cold_automatic import ColdDaemon
from ramlab.guest.workload import Load

MIB = 1 << 20
COUNTERS = ("pswpout", "pswpin", "swap_ra", "oom_kill", "pgdemote_kswapd", "pgdemote_direct",
            "pgmigrate_success")
# MiB of each kind of load; fork needs three times that
COLD_LOADS = {"anon": 60, "anon-thp": 60, "shmem": 60, "mlock": 40, "fork": 30, "swap": 50}
HOT_LOADS = {"anon": 80, "anon-thp": 80, "shmem": 60, "file": 100, "mlock": 40, "fork": 30,
             "swap": 50}
PAUSE_MS = 1000
# Page cache of `need`, and seconds between two looks at the twin
CACHE_MIB, WATCH_S = 64, 0.1
# What is moved by `resize`
RESIZE_MIB = 1024
# The size is that of the Energy-Aware Map, a 32nd of the thesis', and so is the rate: 90 thousand
# over 32. So a page is accessed as often as in the thesis' memory, the rarest once in ten minutes.
KEYS, KTPS = 640 << 10, 3
# Settings of the daemon's own
IDLE, IN_USE, RATE, CPU_SHARE = "2min", 0.25, "16MiB", 0.01
PERIOD_S = 30
# Pages that may move of a block that goes offline and counts as empty, and how often to try
STRAY_PAGES, TRIES = 1, 8


def counters():
    found = dev.table("/proc/vmstat")
    return {name: found.get(name, 0) for name in COUNTERS}


def counted(before):
    return {name: now - before[name] for name, now in counters().items()}


def faults(quick, kind):
    """Ticks per page of each round."""
    done = subprocess.run([dev.program("cold_faults"), "16", "3" if quick else "7", kind],
                          stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def start_loads(wanted, folder, *words):
    return [Load(mode, mb, f"--seed={number + 1}", "--pause-ms", PAUSE_MS, *words, folder=folder)
            for number, (mode, mb) in enumerate(wanted.items())]


def places(quick, seconds):
    """Loads of all kinds for a time; then they are held, and every page of the twin is looked at.

    Meanwhile other memory is short again and again: a load takes four fifths of what is available,
    which in strict mode is without the twin.
    """
    dev.swap_on_zram(256)
    folder = dev.file_system() or tempfile.gettempdir()
    if not cold_memory.size_mib():
        raise ValueError("the command line has sized no twin")
    before, surges = counters(), 0
    loads = start_loads(COLD_LOADS, folder, "--cold") + start_loads(HOT_LOADS, folder)
    least_free_mib = 1 << 30
    try:
        for load in loads:
            load.wait_ready()
        ends = time.monotonic() + float(seconds)
        while time.monotonic() < ends:
            available = dev.meminfo("MemAvailable") // 1024
            surge = Load("anon", max(8, available * 4 // 5), "--seed=99", seconds=1)
            try:
                surge.wait_ready().end()
            finally:
                surge.kill()
            surges += 1
            least_free_mib = min(least_free_mib, free_mib(cold_memory.twin()))
            time.sleep(5)
        for load in loads:
            load.hold()
        found = cold_places.count(cold_memory.twin())
        for load in loads:
            load.resume()
        rounds = {load.name: load.end()["rounds"] for load in loads}
    finally:
        for load in loads:
            load.kill()
    return found | {"rounds": rounds, "surges": surges, "least_free_mib": least_free_mib,
                    "seconds": float(seconds), "counters": counted(before)}


def free_mib(node):
    """What is free or can be woken on a node."""
    text = dev.read(cold_memory.NODE / f"node{node}/meminfo")
    return next(int(line.split()[-2]) for line in text.splitlines() if "MemFree:" in line) // 1024


class RoomWatch(threading.Thread):
    """Counts pages that are swapped out while a twin has more free than its high watermark.

    Those of an interval in which it had at both ends; `least_free_pages` is the least seen.
    """

    def __init__(self, node):
        super().__init__(daemon=True)
        self.zone = node, "Movable"
        self.ended = threading.Event()
        self.swapped_with_room = self.samples = 0
        self.least_free_pages = 1 << 40

    def look(self):
        zone = harness.zoneinfo()[self.zone]
        self.least_free_pages = min(self.least_free_pages, zone["free"])
        return zone["free"] > zone["high"], dev.vmstat("pswpout")

    def run(self):
        had_room, swapped = self.look()
        while not self.ended.wait(WATCH_S):
            has_room, now = self.look()
            if had_room and has_room:
                self.swapped_with_room += now - swapped
            had_room, swapped, self.samples = has_room, now, self.samples + 1

    def end(self):
        self.ended.set()
        self.join()
        return {"swapped_with_room": self.swapped_with_room, "samples": self.samples,
                "least_free_mib": self.least_free_pages * harness.PAGE // MIB}


def need(quick, seconds, swap):
    """Loads that together take 1.5 times the hot memory, for a time."""
    if swap == "1":
        dev.swap_on_zram(512)
    folder = dev.file_system() or tempfile.gettempdir()
    twin_mib = cold_memory.size_mib()
    hot_mib = dev.meminfo("MemTotal") // 1024 - twin_mib
    # Two loads, of small pages and of huge ones, and clean page cache
    wanted = {"anon": hot_mib * 8 // 10, "anon-thp": hot_mib * 7 // 10}
    before = counters()
    file = Path(folder) / "cache"
    file.write_bytes(bytes(CACHE_MIB * MIB))
    watch = RoomWatch(cold_memory.twin())
    watch.start()
    loads = start_loads(wanted, folder)
    try:
        # Filling is when memory is short
        for load in loads:
            load.wait_ready()
        ends = time.monotonic() + float(seconds)
        while time.monotonic() < ends:
            file.read_bytes()
            time.sleep(1)
        rounds = {load.name: load.end()["rounds"] for load in loads}
    finally:
        for load in loads:
            load.kill()
    return {"hot_mib": hot_mib, "twin_mib": twin_mib, "need_mib": sum(wanted.values()),
            "rounds": rounds, "counters": counted(before)} | watch.end()


class Costs:
    """What the program for measurements does, in ns of a clock that counts instructions."""

    def __init__(self, bench):
        self.bench = bench
        # The clock of another process, as clock_getcpuclockid(3) makes it
        self.clock = ~bench.process.pid << 3 | 2

    def of(self, what, *words):
        """[executed by the program, passed]: waits, as for all CPUs to have been idle or elsewhere,
        end with a tick of the clock, so that what passes differs by up to 4 ms.
        """
        before = time.clock_gettime_ns(self.clock)
        passed = good(self.bench(*words), what)["ticks"]
        return [time.clock_gettime_ns(self.clock) - before, passed]

    def of_all(self, rows):
        """The sums, of [what, word...] each."""
        return [sum(values) for values in zip(*(self.of(*row) for row in rows), strict=True)]


def highest_blocks(mib):
    """Files of the highest memory blocks, highest first, without the one that firmware has a part
    of.
    """
    block_mib = int(dev.read(MEMORY / "block_size_bytes"), 16) // MIB
    found = sorted(MEMORY.glob("memory[0-9]*"), key=lambda path: int(path.name[6:]), reverse=True)
    return found[1:1 + mib // block_mib]


def resize(quick, what):
    """Costs of one of: `move`, the twin gets 1 GiB and gives it back; `empty`, slices of that
    memory are switched off and woken; `hotplug`, its blocks go offline and come back as movable.
    """
    dev.write("/proc/sys/vm/drop_caches", 3)
    with Bench() as bench:
        costs = Costs(bench)
        if what == "move":
            path = cold_memory.COLD / "node0/bytes"
            there = costs.of(path, "write", path, RESIZE_MIB * MIB)
            if cold_memory.size_mib() != RESIZE_MIB:
                raise ValueError(f"the twin has {cold_memory.size_mib()} MiB")
            numbers = sorted(int(path.name[6:])
                             for path in (cold_memory.NODE / "node1").glob("memory[0-9]*"))
            return {"there": there, "back": costs.of(path, "write", path, 0), "blocks": numbers}
        blocks = highest_blocks(RESIZE_MIB)
        numbers = sorted(int(path.name[6:]) for path in blocks)
        if what == "empty":
            if not PATCHED:
                raise ValueError("this kernel has no slices")
            # A slice is a block, and in a machine without holes they have the same numbers
            there, back = (costs.of_all([f"slice {row}", way, row] for row in numbers)
                           for way in ("offline", "online"))
            return {"there": there, "back": back, "blocks": numbers}
        # The first time, pages of the system are in them, and the second time those for which a
        # zone of movable pages, which there was not before, is the first choice.
        for _ in range(TRIES):
            before = counters()
            there = costs.of_all([path, "write", path / "state", "offline"] for path in blocks)
            migrated = counted(before)["pgmigrate_success"]
            back = costs.of_all([path, "write", path / "state", "online_movable"]
                                for path in blocks[::-1])
            if migrated <= STRAY_PAGES * len(blocks):
                return {"there": there, "back": back, "blocks": numbers, "migrated": migrated}
        raise ValueError(f"{TRIES} times, blocks were not empty: {migrated} pages have moved")


def cpu_seconds(names):
    """Seconds that processes of these names have had of a CPU."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.partition(".")[0] in names:
            found += sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return found


def automatic(quick, warm_s, window_s, seed):
    """The daemon moves what is idle while keys are read; where accesses of the window went."""
    names = {"ramsliced", "kdamond"}
    with tempfile.TemporaryDirectory() as folder:
        daemon = ColdDaemon(folder, mode="on", policy="never", period=PERIOD_S)
        daemon.configure_cold(idle=IDLE, in_use=IN_USE, rate=RATE, cpu_share=CPU_SHARE)
        daemon.start()
        try:
            daemon.until_state("running")
            began, used = time.monotonic(), cpu_seconds(names)
            done = subprocess.run(
                [dev.program("page_accesses"), *map(str, (KEYS, KTPS, warm_s, window_s, seed))],
                stdout=subprocess.PIPE, check=True, text=True)
            share = (cpu_seconds(names) - used) / (time.monotonic() - began)
            status, moved = daemon.cold(), daemon.moved()
        finally:
            daemon.end()
    return json.loads(done.stdout) | {
        "cpu_share": share, "status": status, "moved_mib": moved, "idle": IDLE, "rate": RATE}


PARTS = {"faults": faults, "places": places, "need": need, "resize": resize,
         "automatic": automatic}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    args.out.write_text(json.dumps(PARTS[args.part](args.quick, *args.words)) + "\n")


if __name__ == "__main__":
    main()
