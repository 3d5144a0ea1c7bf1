# SPDX-License-Identifier: GPL-2.0-or-later
"""Feeds generated inputs to every interface of ramslice, in portions, and checks what they leave
behind.

Runs in a guest beside a light load on memory. After each portion summaries are true, every
slice wakes, none is lost, nothing has written to an offline one, and MemTotal is what it was. At
the end it checks the loads' contents, leaks by kmemleak where the kernel has it, and slab and
memory without an owner. Prints a line of JSON for each portion and for the whole, and with --trace
another with the inputs and edges that are new; the status is 1 if anything was wrong.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as rs
from ramlab.guest.churn import watch
from ramlab.guest.workload import Failed, Load

KMEMLEAK = Path("/sys/kernel/debug/kmemleak")
# What a portion may leave in caches that grow to a size and no further.
SLACK_KB = 8 << 10
# What else may have another value afterwards; strict mode changes only while everything is awake
SETTINGS = [
    rs.SYSFS / name
    for name in (
        "strict",
        "driver_timeout_ms",
        "scan_ppm",
        "placement/policy",
        "placement/low_slices",
    )
]
SETTINGS.append(rs.DEBUGFS / "ramslice/migrate_batch")
SETTINGS.append(Path("/proc/sys/vm/nr_hugepages"))


class Problems(list):
    def add(self, text):
        print(f"FAILED: {text}", flush=True)
        self.append(text)


class Settings:
    """What the fuzzer changes, and what must come back as it was."""

    def __init__(self):
        self.prices = {path: rs.read(path) for path in (rs.SYSFS / "price").iterdir()}
        self.settings = {path: rs.read(path) for path in SETTINGS if path.exists()}
        self.slice_bytes = rs.read(rs.SYSFS / "slice_bytes")
        self.total = rs.meminfo("MemTotal")
        self.oom = rs.vmstat("oom_kill")

    def restore(self, device, problems):
        """Everything awake and set as at boot; says what is not."""
        if not harness.SIM.exists():
            harness.load_sim()
        for name in ("off_delay_us", "wake_delay_us", "fail_off", "fail_wake"):
            rs.write(harness.SIM / name, 0)
        if rs.is_research():
            rs.write(rs.debugfs() / "dummy_mode", "N")
        for path, value in self.prices.items():
            rs.write(path, value)
        done = device.request("online_all", flags=rs.HOLD)
        states = {row.state for row in device.snapshot()}
        if done.status or states != {rs.ONLINE}:
            problems.add(f"not everything wakes: {done}, states {states}")
        for path, value in self.settings.items():
            rs.write(path, value)
        try:
            rs.write(rs.SYSFS / "slice_bytes", self.slice_bytes)
        except OSError as error:
            problems.add(f"slice_bytes does not take its first value: {error}")
        info = device.info()
        if info.offline_pages or info.quarantined_pages:
            problems.add(
                f"{info.offline_pages} pages are offline, {info.quarantined_pages} quarantined"
            )
        try:
            rs.verify()
        except rs.AccountingError as error:
            problems.add(f"the counters are not true: {error}")
        if rs.meminfo("MemTotal") != self.total:
            problems.add(f"MemTotal was {self.total} kB and is {rs.meminfo('MemTotal')} kB")
        if rs.vmstat("oom_kill") != self.oom:
            problems.add("a process was killed for want of memory")
            self.oom = rs.vmstat("oom_kill")


def violations(log):
    return [line for line in log.lines() if "violation" in line]


def footprint(device, loads):
    """In kB: unreclaimable slab, and memory that is neither free nor in use."""
    for load in loads:
        load.hold()
    os.sync()
    rs.write("/proc/sys/vm/drop_caches", 3)
    # A request begins with emptying the CPUs' lists
    device.request("compact", flags=rs.DRY_RUN, max_slices=1)
    info = harness.meminfo()
    owned = sum(
        info[name]
        for name in (
            "MemFree",
            "Buffers",
            "Cached",
            "SwapCached",
            "AnonPages",
            "Slab",
            "KernelStack",
            "PageTables",
            "Percpu",
        )
    )
    for load in loads:
        load.resume()
    return {"slab": info["SUnreclaim"], "unowned": info["MemTotal"] - owned}


def kmemleak(command):
    rs.write(KMEMLEAK, command)


def leaks():
    """What kmemleak has to say. Only what two scans find is one."""
    # It does not look at objects younger than five seconds
    time.sleep(6)
    for _ in range(2):
        kmemleak("scan")
        time.sleep(1)
    return KMEMLEAK.read_text().strip()


def notices_leaks():
    """The control: objects that a module allocates and forgets are found, as of this process.

    Nothing that is found now counts later.
    """
    subprocess.run(["modprobe", "ramslice_touch"], check=True)
    rs.write(rs.debugfs().parent / "ramslice_touch/leak", 10)
    subprocess.run(["rmmod", "ramslice_touch"], check=True)
    found = f" pid {os.getpid()}, " in leaks()
    kmemleak("clear")
    return found


def fuzzer(args, module, first, count, *more):
    line = [
        rs.program("fuzz"),
        "--seed",
        args.seed,
        "--first",
        first,
        "--count",
        count,
        "--processes",
        args.processes,
        "--module",
        module,
        "--slow",
        10 if os.environ.get("RAMSLICE_FLAVOUR") in ("debug", "kcsan") else 1,
        "--file",
        args.file,
        *more,
    ]
    return [str(word) for word in line]


class Kept:
    """The inputs that reached code that none had before them, and the edges that all have reached.
    """

    def __init__(self, args):
        start = json.loads(args.start.read_text()) if args.start else {}
        self.args = args
        self.inputs = start.get("inputs", [])
        self.edges = start.get("edges", [])
        # Without edges, these inputs are the first to say what can be reached.
        self.rerun = bool(self.inputs) and not self.edges
        self.counts = collections.Counter()

    def words(self):
        """More arguments for the fuzzer."""
        words = ["--trace"] if self.args.trace else []
        for name, lines in (("kept", self.inputs), ("edges", self.edges)):
            if lines and (self.args.trace or name == "kept"):
                path = Path(f"/tmp/fuzz-{name}")
                path.write_text("".join(f"{line}\n" for line in lines))
                words += [f"--{name}", path]
        words += ["--guided"] if self.args.guided else []
        return words + (["--rerun"] if self.rerun else [])

    def take(self, report):
        """What a portion has found, out of its report."""
        if not self.args.trace:
            self.rerun = False
            return
        new = {name: report.pop(f"new_{name}") for name in ("kept", "edges")}
        # Of those that ran again, some have reached nothing new this time
        self.inputs = new["kept"] if self.rerun else self.inputs + new["kept"]
        self.edges += new["edges"]
        self.rerun = False
        self.counts["cut"] += report.pop("cut")
        self.counts["edges"] = report.pop("edges")
        self.counts["kept"] = len(self.inputs)
        del report["kept"]
        print(json.dumps({"inputs": self.inputs, "new_edges": new["edges"]}), flush=True)


def notices_bugs(args, module):
    """The control: if a bad address counts as no error, the fuzzer has to find bugs."""
    done = subprocess.run(
        fuzzer(args, module, 0, 200, "--control"),
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
    )
    return done.returncode == 1 and "BUG: " in done.stdout


def portion(args, module, first, count, kept):
    """Runs the fuzzer on some numbers; its status, and its report or None."""
    more = kept.words() + (["--replay", args.replay] if args.replay else [])
    done = subprocess.Popen(
        fuzzer(args, module, first, count, *more),
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    report = None
    for text in done.stdout:
        if text.startswith("{"):
            report = json.loads(text)
        else:
            print(text, end="", flush=True)
    return done.wait(), report


def module_file():
    return next(Path(os.environ["RAMSLICE_KERNEL"]).glob("lib/modules/*/kernel/**/ramslice_sim.ko"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=10000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--portion", type=int, default=5000, help="inputs between two looks at everything"
    )
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument(
        "--limit", type=float, default=3000, help="seconds after which it must have ended"
    )
    parser.add_argument(
        "--min-slices", type=int, default=20, help="that requests must have emptied, and woken"
    )
    parser.add_argument("--trace", action="store_true", help="note which edges inputs reach")
    parser.add_argument(
        "--guided", action="store_true", help="make half of the inputs from those kept"
    )
    parser.add_argument(
        "--start", type=Path, metavar="FILE", help="JSON with inputs kept and edges reached before"
    )
    parser.add_argument("--replay", metavar="INPUT", help="run this input and no other")
    args = parser.parse_args()
    if args.replay:
        args.inputs, args.portion, args.min_slices = 1, 1, 0

    watch(args.limit)
    problems = Problems()
    rs.debugfs()
    folder = rs.file_system()
    if not folder:
        sys.exit("fuzz.py: no disk: start the guest with --disk 256M")
    log = harness.KernelLog()
    harness.load_sim()
    module = module_file()
    args.file = Path(folder) / "fuzz-file"
    args.file.write_bytes(bytes(16 << 20))
    loads = [
        Load("anon", 40, "--pause-ms", 100),
        Load("file", 24, "--pause-ms", 100, folder=folder),
    ]
    for load in loads:
        load.wait_ready()
    leak_checker = os.environ.get("RAMSLICE_FLAVOUR") == "debug"
    if leak_checker:
        kmemleak("scan=off")
        if not notices_leaks():
            problems.add("kmemleak does not notice what leaks")

    total = collections.Counter()
    answers = collections.defaultdict(collections.Counter)
    reasons = collections.Counter()
    began = time.monotonic()
    first, end, before, after = args.first, args.first + args.inputs, None, {}

    def summary():
        """What is known so far."""
        return {
            "seed": args.seed,
            "first": args.first,
            "next": first,
            "inputs": first - args.first,
            "processes": args.processes,
            "seconds": round(time.monotonic() - began),
            "problems": list(problems),
            **total,
            **({"coverage": dict(kept.counts)} if args.trace else {}),
            "growth_kb": {name: after[name] - before[name] for name in after},
            "reasons": {reason: n for reason, n in reasons.most_common() if n},
            "answers": {target: dict(errors.most_common()) for target, errors in answers.items()},
        }

    kept = Kept(args)
    with rs.Device() as device:
        settings = Settings()
        if not notices_bugs(args, module):
            problems.add("the fuzzer does not notice what is not documented")
        while first < end and not problems:
            count = min(args.portion, end - first)
            status, report = portion(args, module, first, count, kept)
            if status or not report:
                problems.add(
                    f"inputs {first} to {first + count - 1} of seed {args.seed}: status {status}, "
                    f"{report['bugs'] if report else 'no report and an unknown number of'} bugs"
                )
            first += count
            if report:
                kept.take(report)
            for target, errors in (report or {}).pop("answers", {}).items():
                answers[target].update(errors)
            for number, times in (report or {}).pop("reasons", {}).items():
                reasons[rs.REASONS[int(number)]] += times
            total.update(report or {})
            settings.restore(device, problems)
            if found := violations(log):
                problems.add(f"a write to an offline slice: {found[0]}")
            after = footprint(device, loads)
            # The first portion fills caches
            before = before or after
            print(json.dumps(summary()), flush=True)
        for load in loads:
            try:
                load.end()
            except Failed as error:
                problems.add(str(error))
        if total["offlined"] < args.min_slices or total["woken"] < args.min_slices:
            problems.add(
                f"{total['offlined']} slices went offline, {total['woken']} were woken: this proves"
                " nothing"
            )
        if not total["geometries"] and not args.replay:
            problems.add("the geometry never changed: this proves nothing")
        harness.unload_sim()
    found = None
    if leak_checker:
        if found := leaks():
            problems.add(f"leaks:\n{found}")
    # KASAN keeps freed objects back, up to a 32nd of memory
    slack = {"slab": SLACK_KB + (settings.total // 32 if leak_checker else 0), "unowned": SLACK_KB}
    for name, limit in slack.items():
        if before and after[name] - before[name] > limit:
            problems.add(
                f"{name}: {before[name]} kB after the first portion, {after[name]} kB at the end"
            )
    print(
        json.dumps(
            summary() | {
                "done": True,
                "kmemleak": (
                    "not in this kernel" if not leak_checker else "leaks" if found else "nothing"
                ),
            }
        ),
        flush=True,
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
