#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory sizes: how one program fares with less and less memory, in a virtual machine that counts
instructions as time.

Usage: ramlab size NAME [--scale S] [--seeds N] [--share X]... [--memory M]... [--resume | --again]
       ramlab size NAME --repeat FILE
       ramlab size [NAME] --table
       ramlab size --list

A first run with plenty of memory finds the footprint of the program: the most that it uses, page
cache included. Then as many slices are held that each share of the footprint is left to it, with
each seed; swap and files are on disks whose delay is made inside the guest. --memory booted boots
with as much instead, and --memory ramp takes memory and gives it back while file readers run. A
program in Java has plenty of memory, and shares of its live data as its heap (--memory heap).

Each run adds its figures to results/sizes/NAME.json as soon as it is over; --resume does what is
missing there, and again what was made with other code. Those at the scale tiny, which are no
evidence, go to out/sizes. `ramslice-lab report results/sizes/*.json` draws them. --repeat does the
first seed's least size once more and writes both runs to a file: their counts are the same, because
the machine has all files in memory, and nothing of the host's reaches it.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ramlab.bench import entries
from ramlab.common import CACHE, RAMLAB, ROOT, built, die, own_folder, provenance, put_json
from ramlab.kernel.images import image
from ramlab.vm import sealed_guest

from . import (
    SCALES,
    STUDIES,
    conditions,
    disk_modules,
    expected,
    java_classes,
    prepared,
    ram_disk,
    results,
)

MEMORIES = ("held", "booted", "heap", "ramp")
# Boots with less: that MemTotal is as wanted takes a second try, because the kernel's own part of
# memory is known only then.
BOOTED_TRIES = 3
# Set when this program ends its machines: how their consoles end then says nothing.
STOPPED = threading.Event()


class RunFailed(Exception):
    """A run left no figures."""


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=STUDIES)
    parser.add_argument("--scale", default="full", choices=SCALES,
                        help="of the work; only full runs are evidence (default full)")
    parser.add_argument("--seeds", type=int, default=conditions.SEEDS, metavar="N",
                        help=f"(default {conditions.SEEDS})")
    parser.add_argument("--share", action="append", type=float, metavar="X",
                        help="of the footprint that is left; repeat (default "
                             f"{', '.join(map(str, conditions.SHARES))})")
    parser.add_argument("--memory", action="append", choices=MEMORIES,
                        help="how there is less of it; repeat (default held, or heap)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="machines at a time")
    parser.add_argument("--resume", action="store_true",
                        help="only what is missing in the results, or stale there")
    parser.add_argument("--again", action="store_true", help="replace what is there")
    parser.add_argument("--repeat", type=Path, metavar="FILE",
                        help="do a run that is there once more, and write both to a file")
    parser.add_argument("--table", action="store_true", help="print what the results say")
    parser.add_argument("--list", action="store_true", help="print which programs there are")
    args = parser.parse_args()
    if not (args.name or args.table or args.list):
        parser.error(f"which program? There is {', '.join(STUDIES)}")
    for share in args.share or ():
        if not 0 < share < 100:
            parser.error(f"--share {share:g}: a share of the footprint is above 0, as 0.5 or 1.6")
    if args.seeds < 1:
        parser.error(f"--seeds {args.seeds}: at least 1")
    if args.name:
        check_memory(parser, args)
    return args


def check_memory(parser, args):
    """What is asked for is one of the ways of this program; sets what was not asked for."""
    study = STUDIES[args.name]
    allowed = ["heap"] if study.is_heap else ["held", "booted"] + ["ramp"] * study.can_ramp
    args.memory = args.memory or allowed[:1]
    for memory in args.memory:
        if memory not in allowed:
            parser.error(f"--memory {memory} is not for {args.name}: allowed is "
                         f"{', '.join(allowed)}")


def lab_program():
    return os.environ.get("RAMSLICE_LAB_PROGRAM") or str(built("ramslice-lab"))


def job(name, scale, run, modules, **fields):
    """The guest's orders for a run."""
    study = STUDIES[name]
    settings = study.scales[scale]
    files, _ = prepared(name, scale)
    return {
        "program": name, "seed": run["seed"], "memory": run["memory"], "share": run["share"],
        "work": settings["work"], "disk": settings["disk"], "root_files": files,
        "modules": str(modules), "classes": str(java_classes()) if study.is_heap else None,
        "expected": None if run["memory"] == "ramp" else expected(name, scale, run["seed"]),
    } | fields


def boot(orders, scale, words="", recording=None):
    """Boots a machine for a job; its figures, with the seconds that the host took.

    recording: what the recorder is to do, if there is to be one (see guest/recorder.py); "to" is a
    folder here.
    """
    study = STUDIES[orders["program"]]
    memory_mib, slice_kib = study.scales[scale]["memory_mib"], study.slice_kib
    words = " ".join([f"ramslice={slice_kib << 10}", conditions.KERNEL_WORDS, study.kernel_words,
                      words])
    lab = lab_program() if orders["memory"] == "ramp" or recording else None
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = own_folder("size-", CACHE / "runs", stack)
        share = None
        if recording:
            share = folder / "share"
            share.mkdir()
            orders = orders | {"record": recording | {"to": "/run/results/recording",
                                                      "share": sealed_guest.SHARE}}
        disk = folder / "disk"
        ram_disk.make(disk, orders, scale, lab)
        status, lines = sealed_guest.boot(image(conditions.FLAVOUR), disk, folder, memory_mib,
                                          words, share, 10 * conditions.LIMIT_S)
        if recording and not status:
            shutil.copytree(share / "recording", recording["to"])
    if STOPPED.is_set():
        raise RunFailed("it was ended")
    figures = [json.loads(line) for line in lines if line.startswith("{")]
    for line in lines:
        if not line.startswith("{"):
            print(line, flush=True)
    if status or len(figures) != 1:
        raise RunFailed(f"the guest ended with status {status} and {len(figures)} results")
    return figures[0] | {"host_s": time.monotonic() - began}


def carry_out(name, scale, run, modules, found, recording=None):
    """Figures of one run. `found` has the footprint, and for runs that are booted the MemTotal of
    the held run of the same share. With `recording`, it is recorded.
    """
    fields = {"footprint_kib": found.get("footprint_kib")}
    if run["memory"] == "ramp":
        work = STUDIES[name].scales[scale]["work"]
        fields |= conditions.RAMP | {"warm_files": 3 * work["files"]}
    if run["memory"] != "booted":
        return boot(job(name, scale, run, modules, **fields), scale, recording=recording)
    wanted = found["held_kib"][run["seed"], run["share"]]
    # What the kernel keeps for itself is about as much as of the whole machine
    kib = wanted + found["overhead_kib"]
    for _ in range(BOOTED_TRIES):
        orders = job(name, scale, run, modules, total_kib=wanted,
                     tolerance_kib=conditions.BOOTED_TOLERANCE_KIB, **fields)
        figures = boot(orders, scale, f"mem={kib}K")
        if not figures.get("other_size"):
            return figures
        kib += wanted - figures["total_kib"]
    raise RunFailed(f"MemTotal is {figures['total_kib']} kB with mem={kib}K, and {wanted} kB "
                    "are wanted")


def wanted(args):
    """The runs to do: seeds outermost, so that an end after any number of them leaves whole
    curves.
    """
    memories = args.memory
    shares = args.share or (conditions.HEAP_SHARES if "heap" in memories else conditions.SHARES)
    runs = [{"memory": memory, "seed": seed, "share": share}
            for seed in range(1, args.seeds + 1)
            for memory in memories if memory != "ramp" for share in shares]
    if "ramp" in memories:
        runs.append({"memory": "ramp", "seed": 1, "share": conditions.RAMP["share_high"]})
    return [{"scale": args.scale} | run for run in runs]


def to_do(kept, runs, args):
    """The runs to do beside those that are there and count."""
    there = [run for run in runs if any(results.same(run, one) for one in kept)]
    if args.again:
        return runs
    if there and not args.resume:
        die(f"{len(there)} of these runs are there already: --resume does the others, --again "
            "replaces them", 2)
    return [run for run in runs if run not in there]


class Study:
    """A study under way: what it has found, and what it adds to the results."""

    def __init__(self, name, scale):
        self.name, self.scale = name, scale
        self.kernel = image(conditions.FLAVOUR)
        self.modules = disk_modules.build(self.kernel)
        self.lock = threading.Lock()
        self.done, self.has_failed = 0, False

    def kept(self):
        """The runs at this scale that count now."""
        kept, others = results.sort_out(results.load(self.name, self.scale))
        for line in others:
            print(f"size: {line}", flush=True)
        return [run for run in kept if run["scale"] == self.scale]

    def found(self):
        """What runs need to know of the ones before."""
        kept = self.kept()
        plenty = next((run for run in kept if run["memory"] == "plenty"), None)
        memory_kib = STUDIES[self.name].scales[self.scale]["memory_mib"] << 10
        return {
            "footprint_kib": results.footprint_of(kept, self.scale),
            "overhead_kib": plenty and memory_kib - plenty["machine_kib"],
            "held_kib": {(run["seed"], run["share"]): run["total_kib"]
                         for run in kept if run["memory"] == "held"},
        }

    def run(self, run, found, of):
        """Carries out a run and keeps it; none begins once one has failed."""
        if self.has_failed:
            return None
        as_now = conditions.now(self.name, self.scale, run["memory"])
        try:
            figures = carry_out(self.name, self.scale, run, self.modules, found)
        except RunFailed:
            self.has_failed = True
            raise
        entry = {key: run[key] for key in results.KEYS} | figures | as_now | {
            "code": entries.commit(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            **provenance(self.kernel, conditions.FLAVOUR),
        }
        with self.lock:
            results.add(self.name, entry)
            self.done += 1
            late = "" if figures["host_s"] <= conditions.LIMIT_S else (
                f"; {conditions.LIMIT_S} s is the most: there is too much to do")
            print(f"size: {self.done}/{of} {self.name} {run['memory']}, seed {run['seed']}, share "
                  f"{run['share'] or 'all'}: {figures['size_kib'] / 1024:.1f} MiB left, "
                  f"{figures['elapsed_s']:.2f} guest s, {figures['host_s']:.0f} host s{late}",
                  flush=True)
        return entry


def repeat(args):
    """A held run that is there, and its figures when it is done once more."""
    own = Study(args.name, args.scale)
    held = [run for run in own.kept() if run["memory"] == "held"]
    if not held:
        die(f"{results.path_of(args.name, args.scale)} has no held run at scale {args.scale} that "
            f"counts: 'ramlab size {args.name} --scale {args.scale}' makes them", 2)
    one = min(held, key=lambda run: (run["seed"], run["share"]))
    run = {key: one[key] for key in results.KEYS}
    try:
        other = carry_out(args.name, args.scale, run, own.modules, own.found())
    except RunFailed as failed:
        die(f"{args.name}, once more: {failed}")
    put_json(args.repeat, [{"one": one, "other": other}])


def check_footprint(entry):
    """A full run's footprint is large enough for slices to be small beside it."""
    study = STUDIES[entry["program"]]
    least = study.least_slices * study.slice_kib
    if entry["scale"] == "full" and entry["footprint_kib"] < least:
        die(f"{entry['program']}: the footprint is {entry['footprint_kib'] / 1024:.1f} MiB, and "
            f"{study.least_slices} slices of {study.slice_kib >> 10} MiB are the least: larger "
            "data are needed")


def study(args):
    own = Study(args.name, args.scale)
    kept = own.kept()
    runs = to_do(kept, wanted(args), args)
    plenty = {"scale": args.scale, "memory": "plenty", "seed": 1, "share": None}
    known = results.footprint_of(kept, args.scale)
    nr = len(runs) + (not known)
    print(f"size: {args.name}, {nr} runs at scale {args.scale}", flush=True)
    if not known:
        try:
            check_footprint(own.run(plenty, {}, nr))
        except RunFailed as failed:
            die(f"{args.name}, with plenty of memory: {failed}")
    runs = possible(own, runs, args.share)
    # Those that are booted need to know what was left to those that were held
    for booted in (False, True):
        part = [run for run in runs if (run["memory"] == "booted") == booted]
        found = own.found()
        missing = {(run["seed"], run["share"]) for run in part if booted} - found["held_kib"].keys()
        if missing:
            die(f"held runs of {args.name} are missing, which say how much to boot with: seed and "
                f"share {', '.join(f'{seed} {share:g}' for seed, share in sorted(missing))}")
        carry_out_all(own, part, found, nr, args.jobs)


def possible(own, runs, asked):
    """The runs without those whose share is less than what a machine keeps free; says which, and
    refuses them if these shares were asked for.
    """
    least = results.least_share(own.kept(), own.scale)
    small = sorted({run["share"] for run in runs if run["share"] < least})
    if not small or STUDIES[own.name].is_heap:
        return runs
    which = f"{own.name}: shares {', '.join(f'{share:g}' for share in small)}"
    why = f"a machine keeps {least:.2f} of the footprint free"
    if asked:
        die(f"{which} cannot be had: {why}", 2)
    print(f"size: {which} are left out: {why}", flush=True)
    return [run for run in runs if run["share"] >= least]


def carry_out_all(own, runs, found, nr, jobs):
    """Carries out runs, some at a time; the first one that fails ends the program."""
    # Before threads do the same side by side
    ram_disk.lasting_part(own.name, own.scale)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(own.run, run, found, nr): run for run in runs}
        try:
            for future in concurrent.futures.as_completed(waiting):
                run = waiting[future]
                future.result()
        except RunFailed as failed:
            # Those at work end well
            pool.shutdown(wait=True, cancel_futures=True)
            die(f"{own.name}, {run['memory']}, seed {run['seed']}, share {run['share']}: "
                f"{failed}\n--resume goes on from here")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_machines()
            raise


def end_machines():
    """Ends the machines that this program's threads have started."""
    STOPPED.set()
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)


def main():
    args = arguments()
    # The guest ends with us
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    if args.list:
        for name, one in STUDIES.items():
            print(f"{name:<12} {one.what}")
    elif args.table:
        for name in [args.name] if args.name else STUDIES:
            results.show(name, args.scale)
    else:
        (CACHE / "runs").mkdir(parents=True, exist_ok=True)
        subprocess.run([RAMLAB, "guest-programs"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        (repeat if args.repeat else study)(args)


if __name__ == "__main__":
    sys.exit(main())
