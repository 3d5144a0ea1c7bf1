#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The CPU time and memory of ramsliced at its usual period, while programs come and go.

Usage: python3 -m ramlab.guest.bench_daemon OUT.json [--quick] MODE

The CPU time is that of all threads. Where instructions are counted, it is instructions, in the
kernel and outside. RAMSLICE_DAEMON is the program.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import Daemon

PERIOD = 30
WARM_UP, STEPS = 5, 20


def cpu_ns(pid):
    """CPU time of a process, all threads, as the scheduler counts it (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def work(device):
    """What requests have done so far: slices that they tried to switch off, or woke."""
    tables = [dev.table(folder / "stats") for folder in dev.zone_folders()]
    return sum(table[name] for table in tables for name in ("offline_tried", "online_request"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("mode", choices=["observe", "on"])
    args = parser.parse_args()
    dev.debugfs()
    with tempfile.TemporaryDirectory() as folder, dev.Device() as device:
        daemon = Daemon(folder, mode=args.mode, period=PERIOD).start()
        pid = daemon.process.pid
        periods = []
        for number in range(WARM_UP + (2 if args.quick else STEPS)):
            # Some come, some go.
            with harness.Memory(16 << number % 5) as memory:
                memory.touch()
                began, before, done = time.monotonic_ns(), cpu_ns(pid), work(device)
                time.sleep(PERIOD)
            periods.append({"cpu_ns": cpu_ns(pid) - before, "ns": time.monotonic_ns() - began,
                            "requests": work(device) - done})
        steps = daemon.metrics()["ramslice_steps_total"]
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        rss = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        off = sum(zone.nr_offline for zone in device.zones())
        daemon.end()
        args.out.write_text(json.dumps({"periods": periods[WARM_UP:], "steps": steps,
                                        "peak_kib": rss, "offline": off,
                                        "slices": device.info().nr_slices}) + "\n")


if __name__ == "__main__":
    main()
