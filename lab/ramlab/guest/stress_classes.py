# SPDX-License-Identifier: GPL-2.0-or-later
"""stress-ng's classes of memory, file systems and the scheduler, one stressor after the other, on
any of our kernels: how each ended.

Runs in a guest with an empty disk. With --slices-off, the simulated controller is loaded and all
possible slices go offline before each stressor. Prints one line of JSON, as selftests.py does.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.selftests import SlicesOff, without_chance
from ramlab.guest.stress import EXCLUDED, Stressors

CLASSES = ["vm", "filesystem", "scheduler"]
# The disk is theirs alone here, and what they write is limited
ALLOWED = {"hdd", "fallocate", "iomix"}
LEFT_OUT = {name: why for name, why in EXCLUDED.items() if name not in ALLOWED} | {
    "softlockup": "takes all CPUs at a real-time priority, for as long as it lasts",
    "physpage": "reads addresses of pages, which differ from boot to boot",
}
LIMITS = ["--vm-bytes", "64M", "--mmap-bytes", "64M", "--malloc-bytes", "48M", "--shm-bytes", "32M",
          "--hdd-bytes", "32M", "--fallocate-bytes", "32M", "--iomix-bytes", "32M"]
# stress-ng's: no resources for it, not on this machine
STATUSES = {0: "pass", 3: "skip (no resources)", 4: "skip (not here)"}
# How long a stressor may take beyond its time
PATIENCE = 240


def stressors(most=None):
    """Names to run: of each class all, or so many spread over it."""
    names = []
    for kind in CLASSES:
        known = sorted(set(Stressors.members(kind)) - set(LEFT_OUT) - set(names))
        step = max(1, -(-len(known) // most)) if most else 1
        names += known[::step]
    return names


def complaints(output):
    """What stress-ng says went wrong, without what differs from run to run."""
    found = {without_chance(re.sub(r"\[\d+\]", "", match[1])).strip()
             for match in re.finditer(r"^stress-ng: (?:fail|error): +(.*)$", output, re.M)}
    return sorted(found)


def run(name, seconds, folder):
    """Runs one stressor; its status and report."""
    killed, began = dev.vmstat("oom_kill"), time.monotonic()
    line = ["stress-ng", "--verify", "--timeout", f"{seconds:g}s", "--temp-path", folder,
            "--seed", "1", "--no-oom-adjust", "--oomable", *LIMITS, f"--{name}", "1"]
    try:
        done = subprocess.run(line, text=True, errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds + PATIENCE)
        status = STATUSES.get(done.returncode, f"fail ({done.returncode})")
        output = done.stdout
    except subprocess.TimeoutExpired:
        status, output = "time-out", ""
    report = complaints(output) if status.startswith("fail") else []
    if dev.vmstat("oom_kill") > killed:
        report.append("processes were killed for lack of memory")
    return {"status": status, "report": report, "seconds": round(time.monotonic() - began, 1)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices-off", action="store_true")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--most", type=int, help="stressors of each class")
    parser.add_argument("names", nargs="*", help="these alone")
    args = parser.parse_args()

    dev.debugfs()
    disk = dev.file_system()
    if not disk:
        sys.exit("stress_classes.py: no disk: start the guest with --disk 2G")
    dev.swap_on_zram(512)
    off = SlicesOff() if args.slices_off else None
    results, problems = {}, []
    for name in args.names or stressors(args.most):
        dev.write("/proc/sys/vm/drop_caches", 3)
        if off:
            off.before(name)
        results[name] = run(name, args.seconds, disk)
        print(f"{name}: {results[name]['status']}, {results[name]['seconds']} s", flush=True)
    more = off.end() if off else {}
    problems += off.problems if off else []
    if Path("/dev/ramslice").exists():
        try:
            dev.verify()
        except dev.AccountingError as error:
            problems.append(f"the counters are not true: {error}")
    bad = re.findall(r".*(?:BUG:|WARNING:|Oops|Call Trace).*", harness.kernel_log())
    problems += [f"kernel log: {line}" for line in bad[:5]]
    print(json.dumps({"results": results, "problems": problems, **more}), flush=True)


if __name__ == "__main__":
    main()
