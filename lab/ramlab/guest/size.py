#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of `ramlab size`: a program works in as much memory as is left to it. Prints a line of
JSON.

Usage: python3 -m ramlab.guest.size JOB

A job is a file of JSON: program, seed, work (what the program wants to know), expected (what must
come out), root_files ({path in its root: where to copy it from}), modules (folder of the slow
disk's), disk (swap_mib, files_mib, delay_us), record (see recorder.py; may be missing), sealed
(whether all files are in a RAM disk, and may be removed from it; may be missing) and memory:

  plenty   all of the machine is left to it, and its footprint is measured
  held     slices are held until `share` of `footprint_kib` is left above the kernel's own floor;
           if that many cannot be held, a disk that is never read takes the rest
  booted   the machine was booted with less: it must have `total_kib`, or nothing is run
  heap     the program's heap has `share` of its live data, which are footprint_kib
  ramp     slices are held and given back while it runs, from share_high to share_low of the
           footprint and up again (step slices every step_ms, a sample every every_ms), once
           warm_files have been read

The floor is what is used before the program begins, disks included. Status 1: the result is wrong,
so there are no figures. Status 2: the job cannot be done, and says what is allowed; nothing was
held. However it ends, what it held is given back.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ramlab.guest import harness, size_work, slow_disk
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.case_work import Wrong, spoiled
from ramlab.guest.never_idle import NeverIdle
from ramlab.guest.recorder import NoRecording, recording

LAB_PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", "ramslice-lab")
SAMPLE_S = 0.02
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
# Of the thread that samples: all of a stack is locked in memory
STACK_BYTES = 256 << 10
COUNTERS = (
    "pgfault", "pgmajfault", "pgpgin", "pgpgout", "pswpin", "pswpout", "pgsteal_kswapd",
    "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_anon", "pgsteal_file", "pgscan_kswapd",
    "pgscan_direct", "workingset_refault_anon", "workingset_refault_file", "pgalloc_dma",
    "pgalloc_dma32", "pgalloc_normal", "allocstall_dma", "allocstall_dma32", "allocstall_normal",
    "allocstall_movable", "oom_kill", "ramslice_lookup_read", "ramslice_lookup_fault",
    "ramslice_absent_read", "ramslice_absent_fault", "ramslice_readahead",
    "ramslice_readahead_unused",
)
RAMP_COUNTERS = ("pgpgin", "workingset_refault_file", "ramslice_lookup_read",
                 "ramslice_absent_read")


class BadJob(Exception):
    """What was asked for cannot be had here."""


def check_job(job, total_kib, floor_kib, least_kib):
    """The memory that is to be left, in KiB of MemTotal; BadJob says what is allowed.

    least_kib is what a machine keeps free, whatever else there is.
    """
    memory = job["memory"]
    if memory not in ("plenty", "held", "booted", "heap", "ramp"):
        raise BadJob(f"memory is {memory}: allowed are plenty, held, booted, heap and ramp")
    if memory == "plenty":
        return total_kib
    if memory == "booted":
        return job["total_kib"]
    footprint = job.get("footprint_kib")
    if not footprint:
        raise BadJob(f"footprint unknown: a run of {job['program']} with plenty of memory finds "
                     "it, and shares are of it")
    shares = [job["share_high"], job["share_low"]] if memory == "ramp" else [job["share"]]
    most = (total_kib - floor_kib) / footprint
    least = least_kib / footprint
    if memory == "heap":
        if job["share"] <= 1:
            raise BadJob(f"share {job['share']:g} of the live data of {footprint >> 10} MiB is too "
                         "small a heap: more than 1 is allowed")
        least = 0
    for share in shares:
        if share > most:
            raise BadJob(f"share {share:g} of the footprint of {footprint >> 10} MiB is above the "
                         f"machine: {(total_kib - floor_kib) >> 10} MiB can be left to a program, "
                         f"so at most {most:.2f} is allowed")
        if share < least:
            raise BadJob(f"share {share:g} of the footprint of {footprint >> 10} MiB is a size "
                         f"below what boots: at least {least_kib >> 10} MiB must be left, so "
                         f"at least {least:.2f} is allowed")
    if memory == "heap":
        return total_kib
    if memory == "ramp" and job["share_low"] >= job["share_high"]:
        raise BadJob(f"share_low is {job['share_low']:g}: it must be below share_high, which is "
                     f"{job['share_high']:g}")
    return floor_kib + round(shares[0] * footprint)


def least_left_kib(device):
    """What is kept free of the machine as it is: the zones' awake reserves."""
    page_kib = device.info().page_bytes >> 10
    return page_kib * sum(min(zone.awake_reserve_pages, zone.managed_pages)
                          for zone in device.zones())


class HeldMemory:
    """Slices that are held, from the highest address down; given back at the end."""

    def __init__(self, device):
        self.device = device
        self.slices, self.refused = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.give_back()

    def leave(self, total_kib):
        """Holds slices as long as not less than this stays of MemTotal."""
        slice_kib = self.device.info().slice_bytes >> 10
        rows = [s.id for s in self.device.snapshot() if not s.flags & dev.UNRECLAIMABLE]
        for number in sorted(rows, reverse=True):
            if dev.meminfo("MemTotal") - slice_kib < total_kib:
                return
            done = self.device.request("offline", id=number, flags=dev.HOLD, wait_busy=10)
            if done.nr_done:
                self.slices.append(number)
            else:
                self.refused[number] = done.why()

    def give_back(self):
        """Wakes what is held, also if that is interrupted once more."""
        while self.slices:
            self.device.request("online", id=self.slices[-1], wait_busy=60)
            self.slices.pop()


class FootprintSampler(threading.Thread):
    """The most that was used above a floor, looked at all the time."""

    def __init__(self, used_kib):
        super().__init__(daemon=True)
        self.floor_kib, self.peak_kib, self.ended = used_kib, 0, threading.Event()

    def run(self):
        while not self.ended.wait(SAMPLE_S):
            self.peak_kib = max(self.peak_kib, used_kib() - self.floor_kib)

    def end(self):
        self.ended.set()
        self.join()


def used_kib():
    info = harness.meminfo()
    return info["MemTotal"] - info["MemFree"]


def settle(device):
    """Nothing in the cache that need not be, and nothing under way.

    A slice is held and given back: thereby pages in the lists of processors are free again, and
    watermarks are those of the memory that there is. At boot a RAM disk took some of it.
    """
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)
    with HeldMemory(device) as held:
        held.leave(dev.meminfo("MemTotal") - (device.info().slice_bytes >> 10))
    # Pages that delayed frees hold, and watermarks, which follow a moment later
    time.sleep(0.2)


def lock_ourselves():
    """Keeps this program in memory: its pages would come back from the host, in no certain time."""
    for flags in (MCL_CURRENT, MCL_FUTURE | MCL_ONFAULT):
        if harness.libc.mlockall(flags):
            raise OSError(ctypes.get_errno(), "mlockall")
    threading.stack_size(STACK_BYTES)


def announce(job):
    """Says, if that is wanted, that what is held is held and the program begins."""
    if job.get("announce"):
        print("size: the program begins", flush=True)


def counters():
    now = harness.vmstat()
    return {name: now[name] for name in COUNTERS if name in now}


def zones(device):
    """The zones' pages as they are."""
    return {zone.name.decode(): {
        "managed_pages": zone.managed_pages, "held_pages": zone.held_pages,
        "free_pages": zone.free_pages, "low_wmark_pages": zone.low_wmark_pages,
        "awake_reserve_pages": zone.awake_reserve_pages,
    } for zone in device.zones()}


def difference(after, before):
    return {name: value - before[name] for name, value in after.items()}


def measured(job, device, program):
    """The figures of a run that is not a ramp."""
    info = harness.meminfo()
    floor, total = info["MemTotal"] - info["MemFree"], info["MemTotal"]
    wanted = check_job(job, total, floor, least_left_kib(device))
    tolerance = job.get("tolerance_kib", 0)
    figures = {"floor_kib": floor, "machine_kib": total, "asked_total_kib": wanted}
    if job["memory"] == "booted" and abs(total - wanted) > tolerance:
        return figures | {"total_kib": total, "other_size": True}
    if job["memory"] == "heap":
        program.heap_kib = round(job["share"] * job["footprint_kib"])
    with HeldMemory(device) as held:
        filled_kib = 0
        if job["memory"] == "held":
            held.leave(wanted)
            # Watermarks follow a moment after the last request
            time.sleep(0.2)
            above_kib = dev.meminfo("MemTotal") - wanted
            if above_kib > device.info().slice_bytes >> 10:
                filled_kib = slow_disk.fill(above_kib)
        left = dev.meminfo("MemTotal") - filled_kib
        announce(job)
        sampler = FootprintSampler(used_kib()) if job["memory"] == "plenty" else None
        if sampler:
            sampler.start()
        before, disk, zones_before = counters(), slow_disk.use(), zones(device)
        with recording(job.get("record")):
            began = time.monotonic()
            program.run()
            elapsed = time.monotonic() - began
        after, disk_after = counters(), slow_disk.use()
        if sampler:
            sampler.end()
            figures["footprint_kib"] = sampler.peak_kib
        if "live_bytes" in program.found:
            figures |= {"live_kib": program.found["live_bytes"] >> 10,
                        "gc_s": program.found["gc_s"],
                        "collections": program.found["collections"]}
            if sampler:
                figures["footprint_kib"] = figures["live_kib"]
        figures |= {"zones_before": zones_before, "zones_after": zones(device),
                    "filled_kib": filled_kib,
                    "held_slices": len(held.slices),
                    "refused": {str(number): why for number, why in held.refused.items()}}
    return figures | {
        "total_kib": left, "size_kib": getattr(program, "heap_kib", left - floor),
        "elapsed_s": elapsed,
        "work_s": program.work_seconds(),
        "performance": {"value": program.performance(elapsed), "unit": program.UNIT,
                        "more_is_better": program.MORE_IS_BETTER},
        "counters": difference(after, before), "disk": difference(disk_after, disk),
    }


def ramp(job, device, program):
    """Readers without an end while a ramp takes memory and gives it back; samples over time."""
    info = harness.meminfo()
    floor, total = info["MemTotal"] - info["MemFree"], info["MemTotal"]
    high = check_job(job, total, floor, least_left_kib(device))
    low = floor + round(job["share_low"] * job["footprint_kib"])
    slice_kib = device.info().slice_bytes >> 10
    samples = []
    with HeldMemory(device) as held:
        held.leave(high)
        on = sum(s.state == dev.ONLINE for s in device.snapshot())
        lowest = on - (dev.meminfo("MemTotal") - low) // slice_kib
        announce(job)
        readers = program.begin_endless(job["every_ms"])
        ramp_process = None
        try:
            for line in readers.stdout:
                words = line.split()
                if line.startswith("{"):
                    program.found = json.loads(line)
                    break
                seconds, files, nr_bytes = float(words[0]), int(words[1]), int(words[2])
                now = harness.vmstat()
                samples.append([seconds, dev.meminfo("MemTotal") - floor, files, nr_bytes,
                                *(now.get(name) for name in RAMP_COUNTERS)])
                if not ramp_process and files >= job["warm_files"]:
                    ramp_process = subprocess.Popen(
                        [LAB_PROGRAM, "ramp", "--hold", "--step", str(job["step"]), "--every",
                         f"{job['step_ms']}ms", "--floor", str(lowest), "--json"],
                        stdout=subprocess.PIPE, text=True)
                if ramp_process and ramp_process.poll() is not None:
                    readers.send_signal(signal.SIGTERM)
        finally:
            # Ended by SIGINT it wakes what it switched off
            if ramp_process and ramp_process.poll() is None:
                ramp_process.send_signal(signal.SIGINT)
                ramp_process.wait()
            readers.kill()
    steps = [json.loads(line) for line in ramp_process.stdout]
    # Less far down than was asked for is no fault: the sizes that were reached are kept
    if steps[-1].get("ended") != "done" or steps[-1].get("left_off"):
        raise Wrong(f"the ramp ended with status {ramp_process.returncode}: {steps[-1]}")
    return {"floor_kib": floor, "machine_kib": total, "asked_total_kib": high,
            "total_kib": high, "size_kib": high - floor, "elapsed_s": samples[-1][0],
            "columns": ["seconds", "size_kib", "files", "bytes", *RAMP_COUNTERS],
            "samples": samples, "ramp_steps": len(steps) - 1}


def give_back_all(device):
    """What other programs of the study held, too."""
    if any(s.state != dev.ONLINE for s in device.snapshot()):
        device.request("online_all", wait_busy=60)


def run(job, device):
    """The figures of one run."""
    # A sealed guest waits for no answer of the host's
    busy = contextlib.nullcontext if job.get("sealed") else NeverIdle
    with busy():
        slow_disk.make_all(job["modules"], **job["disk"])
    program = size_work.PROGRAMS[job["program"]](job, slow_disk.FOLDER)
    try:
        with busy():
            program.prepare()
            lock_ourselves()
        settle(device)
        before = dev.meminfo("MemTotal")
        try:
            figures = (ramp if job["memory"] == "ramp" else measured)(job, device, program)
        finally:
            give_back_all(device)
        if dev.meminfo("MemTotal") != before:
            raise Wrong(f"MemTotal is {dev.meminfo('MemTotal')} kB after everything was given "
                        f"back, and was {before} kB")
        if figures.get("other_size"):
            return figures
        if job["memory"] == "ramp":
            if program.found["wrong"]:
                raise Wrong(f"{program.found['wrong']} files were not what was written")
            figures["result"] = {"checked": program.found["files"]}
        else:
            figures["result"] = {"checked": program.check(job["expected"])}
            # A check that takes everything is none
            if not program.refuses(spoiled(job["expected"])):
                raise Wrong("the check takes a result that is wrong")
            if killed := figures["counters"].get("oom_kill"):
                raise Wrong(f"{killed} processes were killed for want of memory")
        return figures
    finally:
        program.end()
        slow_disk.end()


def interrupted(number, _frame):
    """Ends the run; what follows gives back what it held, and is not interrupted again."""
    for ending in size_work.ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main():
    if not os.environ.get("RAMSLICE_IN_VM"):
        sys.exit(f"{sys.argv[0]}: runs inside a guest only: ramlab size")
    for number in size_work.ENDINGS:
        signal.signal(number, interrupted)
    job = json.loads(Path(sys.argv[1]).read_text())
    # The same seed finds the same addresses
    dev.write("/proc/sys/kernel/randomize_va_space", 0)
    try:
        with dev.Device() as device:
            figures = run(job, device)
        head = {key: job[key] for key in ("program", "seed", "memory")}
        print(json.dumps(head | {"share": job.get("share")} | figures), flush=True)
    except Wrong as wrong:
        print(f"size: {job['program']}: the result is wrong: {wrong}", flush=True)
        sys.exit(1)
    except (BadJob, NoRecording, slow_disk.NoDisk) as error:
        print(f"size: {job['program']}: {error}", flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
