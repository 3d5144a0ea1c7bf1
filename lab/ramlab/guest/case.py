#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of a case study: a program works while a policy packs memory. Prints a line of JSON.

Usage: python3 -m ramlab.guest.case JOB...

A job is a file of JSON: case, setting, start, seed, disk, out (a directory), period_s, time_factor
and where it is from (time_factor_source), record (a sample every so many seconds, or null), work
(what the case wants to know) and expected (what must come out). Seconds are the guest's. The status
is 1 if a result is wrong: such a run has no figures.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ramlab.guest import case_work, harness
from ramlab.guest import ramslice_dev as dev

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
LAB_PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", f"{PROGRAM}-lab")
FOLDER = Path("/mnt")
SAMPLE_S = 2
KEPT_VMSTAT = ("pgpgin", "pgpgout", "pgfault", "workingset_refault_file", "workingset_refault_anon",
               "pgsteal_kswapd", "pgsteal_direct", "oom_kill", "pgmigrate_success")


def budget_for(payback_s, job, slice_bytes):
    """The price, in 100 cycles, that a slice of the profile's memory pays back in real seconds."""
    watts = job["watts_per_gib"] * slice_bytes / 2**30
    return int(payback_s * watts / job["joules_per_cycle"] / 100)


def freeable(s):
    """Pages of clean cache that no process maps, about."""
    return max(0, s.counter("file") - s.counter("shmem") - s.counter("file_mapped") -
               s.counter("dirty") - s.counter("writeback"))


# A policy has a request to make each period: fields of struct ramslice_request. A governor, which
# decides by more than that, would be one more row.
def nothing(_job, _info):
    """The baseline: what is empty by itself is switched off, nothing is moved or dropped."""
    return {"op": "offline_free"}


def unlimited(_job, _info):
    """The thesis' unlimited setting: empties what it can at any price, and drops cache for it."""
    return {"op": "compact"}


def ours(job, info):
    """Slices whose price comes back within payback_s; no cache is dropped, it moves."""
    return {"op": "compact", "budget": budget_for(job["payback_s"], job, info.slice_bytes),
            "flags": dev.PER_SLICE | dev.KEEP_CACHE}


POLICIES = {"nothing": nothing, "unlimited": unlimited, "ours": ours}


class Policy(threading.Thread):
    """Makes the setting's request each period, and looks at memory in between."""

    def __init__(self, job, device):
        super().__init__(daemon=True)
        self.job, self.device = job, device
        self.ended = threading.Event()
        self.requests, self.samples, self.error = [], [], None

    def sample(self):
        """Notes the time, slices in use, slices off, and how many could be off at best.

        At best, all that is used is packed and no cache is kept.
        """
        info, rows = self.device.info(), self.device.snapshot()
        pages = info.slice_bytes // info.page_bytes
        off = sum(s.state == dev.OFFLINE for s in rows)
        spare = info.free_pages + info.offline_pages + sum(
            freeable(s) for s in rows if s.state == dev.ONLINE)
        used = sum(s.state == dev.ONLINE and s.counter("free") < s.nr_pages for s in rows)
        self.samples.append((time.monotonic(), used, off, spare // pages))

    def request(self):
        fields = POLICIES[self.job["setting"]](self.job, self.device.info())
        op = fields.pop("op")
        done = self.device.request(op, wait_busy=10, **fields)
        self.requests.append({"after_s": time.monotonic() - self.began, "done": done.nr_done,
                              "why": done.why(), "migrated_pages": done.pages_migrated,
                              "dropped_pages": done.pages_dropped,
                              "price_predicted_100cycles": done.price_predicted,
                              "elapsed_s": done.elapsed_ns / 1e9})

    def run(self):
        self.began = time.monotonic()
        following = 0.0
        try:
            while True:
                if time.monotonic() - self.began >= following:
                    self.request()
                    following += self.job["period_s"]
                self.sample()
                if self.ended.wait(SAMPLE_S):
                    self.sample()
                    return
        except Exception as error:  # it must not end in silence
            self.error = error

    def end(self):
        self.ended.set()
        self.join()
        if self.error:
            raise self.error

    def areas(self):
        """Slice-seconds in use, off and attainable."""
        sums = [0.0, 0.0, 0.0]
        for a, b in zip(self.samples, self.samples[1:]):
            for n in range(3):
                sums[n] += (b[0] - a[0]) * (a[n + 1] + b[n + 1]) / 2
        return dict(zip(("used", "off", "attainable"), sums))


class Ledger:
    """`ramslice energy` beside the work; its last document."""

    def __init__(self, job):
        self.path = Path("/tmp/energy.json")
        with open(self.path, "w") as file:
            self.process = subprocess.Popen(
                [PROGRAM, "energy", "--json", "--profile", job["profile"],
                 "--granularity", "slice", "--every", "2s", "--for", "36000s",
                 "--time-factor", job["time_factor"],
                 "--time-factor-source", job["time_factor_source"]], stdout=file)
        # What happens after its first document is counted
        begun = harness.until(
            lambda: self.path.stat().st_size or self.process.poll() is not None, 120)
        if not begun:
            raise RuntimeError("ramslice energy does not begin")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait()
        last = json.loads(self.path.read_text().splitlines()[-1])
        if status or not last["final"]:
            raise RuntimeError(f"ramslice energy ended with {status}")
        return last


@contextlib.contextmanager
def aged():
    """A machine after long use, held while the work runs; yields the account."""
    process = subprocess.Popen(
        [LAB_PROGRAM, "fragment", "--json", "--recipe", "aged", "--dir", str(FOLDER)],
        stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            break
    try:
        yield json.loads("".join(lines))["made"]
    finally:
        process.terminate()
        process.wait()


class Recording:
    """A recording beside the work, if it is wanted. Without it, the figures are still true."""

    def __init__(self, job):
        self.process = self.log = None
        if job["record"]:
            self.log = Path("/tmp/record.log")
            with open(self.log, "w") as log:
                self.process = subprocess.Popen(
                    [LAB_PROGRAM, "record", "-o", f"{job['out']}/recording",
                     "--every", f"{job['record']}s"],
                    stdout=log, stderr=subprocess.STDOUT)

    def end(self):
        """How it ended: None if there is none."""
        if not self.process:
            return None
        self.process.send_signal(signal.SIGINT)
        return "whole" if self.process.wait() == 0 else f"failed: {self.log.read_text()[-500:]}"


def disk_use(disk):
    """Of all time: bytes read, bytes read and written, requests, and seconds the disk was busy."""
    name = Path(disk).name
    rows = (line.split() for line in Path("/proc/diskstats").read_text().splitlines())
    row = next(row for row in rows if row[2] == name)
    reads, read, writes, written, busy_ms = (int(row[n]) for n in (3, 5, 7, 9, 12))
    return {"read_bytes": read * 512, "bytes": (read + written) * 512,
            "requests": reads + writes, "busy_s": busy_ms / 1e3}


def fresh(device):
    """As the thesis begins: nothing in the cache that needs not be, all of memory packed."""
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)
    harness.compact(device)


def run(job, device):
    """The figures of one run."""
    work = case_work.CASES[job["case"]](job, FOLDER)
    work.prepare()
    with contextlib.ExitStack() as stack:
        made = None
        if job["start"] == "aged":
            made = stack.enter_context(aged())
        elif job["start"] == "fresh":
            fresh(device)
        recording = Recording(job)
        before, disk = harness.vmstat(), disk_use(job["disk"])
        woken = harness.woken_by_demand(device)
        ledger, policy = Ledger(job), Policy(job, device)
        began = time.monotonic()
        policy.start()
        try:
            work.run()
        finally:
            policy.end()
            energy = ledger.end()
            kept = recording.end()
        took = time.monotonic() - began
        after = harness.vmstat()
        used = {name: value - disk[name] for name, value in disk_use(job["disk"]).items()}
        figures = {
            "case": job["case"], "setting": job["setting"], "start": job["start"],
            "seed": job["seed"], "elapsed_s": took, "busy_s": work.busy_s, "cpu_s": work.cpu_s,
            "phases": work.phases, "energy": energy,
            "slice_seconds": policy.areas(), "requests": policy.requests,
            "woken_by_demand": harness.woken_by_demand(device) - woken,
            "disk_read_bytes": used.pop("read_bytes"), "disk_used": used,
            "vmstat": {name: after[name] - before[name] for name in KEPT_VMSTAT if name in after},
            "aged": made, "recording": kept,
            "samples": [[round(t - began, 1), used, off, best]
                        for t, used, off, best in policy.samples],
        }
    figures["result"] = work.check(job["expected"])
    # A check that takes everything is none
    if not work.refuses(case_work.spoiled(job["expected"])):
        raise case_work.Wrong("the check takes a result that is wrong")
    if figures["vmstat"].get("oom_kill"):
        killed = figures["vmstat"]["oom_kill"]
        raise case_work.Wrong(f"{killed} processes were killed for want of memory")
    return figures


def main():
    if not os.environ.get("RAMSLICE_IN_VM"):
        sys.exit(f"{sys.argv[0]}: runs inside a guest only: ramlab case")
    if not os.path.ismount("/sys/kernel/tracing"):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
    harness.load_sim()
    dev.debugfs()
    for path in sys.argv[1:]:
        job = json.loads(Path(path).read_text())
        subprocess.run(["mount", "-o", "noatime", job["disk"], FOLDER], check=True)
        try:
            with dev.Device() as device:
                harness.wake(device)
                figures = run(job, device)
                if harness.violations():
                    raise case_work.Wrong("memory that is off was touched")
            print(json.dumps(figures), flush=True)
        except case_work.Wrong as wrong:
            print(f"case: {job['case']}, {job['setting']}: the result is wrong: {wrong}",
                  flush=True)
            sys.exit(1)
        finally:
            subprocess.run(["umount", "-l", FOLDER], check=False)


if __name__ == "__main__":
    main()
