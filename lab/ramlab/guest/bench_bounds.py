#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How long ramslice takes at most, inside the guest: writes what it found.

Usage: python3 -m ramlab.guest.bench_bounds OUT.json [--quick] PART...

  table     the KUnit test of 98304 slices under the tracer of interrupts that are off
  requests  each kind of request, by the size of slices, under the same tracer
  first     the first request after boot, and one like it afterwards
  deadline  requests with a deadline of 1 ms, the first one after boot, too

Times are us of the tracer and ns of requests: instructions, if QEMU counts them.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import Memory

MIB = 1 << 20
TRACING = Path("/sys/kernel/tracing")
# What an interrupt that arrives meanwhile runs on top of our functions is not ours
ENTRIES = re.compile(r"^(asm_|common_interrupt|sysvec_|exc_|irqentry_|ret_from_)")
OURS = re.compile(r"^_*ramslice_")


# --- interrupts off ---


def longest_of(text):
    """Of what the tracer wrote: {"started", "ended", "stack": the innermost function first}."""
    found = {}
    for key in ("started", "ended"):
        if match := re.search(rf"=> {key} at: +(\S+)", text):
            found[key] = match[1]
    stack = text.rpartition("<stack trace>")[2]
    found["stack"] = re.findall(r"^ => (\w[\w.]*)", stack, re.M)
    return found


def our_function(stack):
    """The innermost function of ours that runs with interrupts off; None if there is none."""
    for name in stack:
        if ENTRIES.match(name):
            return None
        if OURS.match(name):
            return name
    return None


class Tracer:
    """The longest section with interrupts off, on any CPU, while something is done."""

    def __init__(self):
        if not (TRACING / "current_tracer").exists():
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
        # A message on the serial line is sent with interrupts off, and is none of what is measured
        dev.write("/proc/sys/kernel/printk", "1 4 1 7")
        dev.write(TRACING / "current_tracer", "irqsoff")

    def longest(self, work):
        """{"us", "started", "ended", "stack", "ours"} of the longest section of work()."""
        dev.write(TRACING / "tracing_on", 1)
        dev.write(TRACING / "tracing_max_latency", 0)
        work()
        dev.write(TRACING / "tracing_on", 0)
        found = {"us": int(dev.read(TRACING / "tracing_max_latency"))}
        found |= longest_of(dev.read(TRACING / "trace"))
        if not found["stack"]:
            sys.exit(f"the tracer saw no section: {found}")
        return found | {"ours": our_function(found["stack"])}


def table(_):
    """A snapshot and the order of 98304 slices that are not there."""
    folder = dev.debugfs().parent / "kunit/ramslice_snapshot"
    found = Tracer().longest(lambda: dev.write(folder / "run", 1))
    results = dev.read(folder / "results")
    if "not ok" in results or "slices 98304 " not in results:
        sys.exit(results)
    return found


def requests(quick):
    """{size of slices in MiB: {"slices": number, kind of request: longest section}}."""
    harness.load_sim()
    tracer, found = Tracer(), {}
    with dev.Device() as device:
        for mib in (2, 16) if quick else (2, 4, 16, 64):
            found[mib] = requests_of(tracer, device, mib)
    return found


def requests_of(tracer, device, mib):
    def ask(op, **fields):
        done = device.request(op, wait_busy=10, flags=dev.IGNORE_BACKOFF, **fields)
        if not done.nr_done:
            sys.exit(f"slices of {mib} MiB: nothing done by {op}: {done}")

    def demand():
        before = harness.woken_by_demand(device)
        with Memory(512) as memory:
            memory.touch()
        if harness.woken_by_demand(device) == before:
            sys.exit(f"slices of {mib} MiB: no slice was woken by demand")

    # A table of another size in between, so that the one that is measured is built
    dev.write(dev.SYSFS / "slice_bytes", 128 * MIB)
    works = {
        "geometry": lambda: dev.write(dev.SYSFS / "slice_bytes", mib * MIB),
        "snapshot": device.snapshot,
        "snapshot, not fresh": lambda: device.snapshot(flags=0),
        "zones": device.zones,
        "offline_free": lambda: ask("offline_free"),
        "snapshot, most offline": device.snapshot,
        "demand": demand,
        "online_all": lambda: device.request("online_all"),
    }
    rows = {name: tracer.longest(work) for name, work in works.items()}
    with Memory(1024) as memory:
        # Half of it is free again, in pieces
        memory.touch().punch()
        rows["compact"] = tracer.longest(lambda: ask("compact"))
    device.request("online_all")
    return {"slices": device.info().nr_slices} | rows


# --- requests that are bounded ---


def request(device, **fields):
    done = device.request("compact", wait_busy=10, **fields)
    return {"ns": done.elapsed_ns, "done": done.nr_done, "reason": done.why()}


def first(_):
    """One slice goes offline, by the first request after boot and by the next one."""
    with dev.Device() as device:
        info = device.info()
        found = {"blocks": info.managed_pages * info.page_bytes // info.pageblock_bytes,
                 "slices": info.nr_slices,
                 "first": request(device, max_slices=1), "next": request(device, max_slices=1)}
    if found["first"]["done"] != 1 or found["next"]["done"] != 1:
        sys.exit(f"no slice went offline: {found}")
    return found


def deadline(quick):
    """Requests that want everything offline within 1 ms: the first after boot, and others while
    memory is half in use, in pieces.
    """
    with dev.Device() as device:
        rows = [request(device, deadline_ms=1)]
        device.request("online_all")
        kib = dev.meminfo("MemFree")
        with Memory(kib // 1024 * 3 // 4) as memory:
            memory.touch().punch()
            for _ in range(3 if quick else 20):
                rows.append(request(device, deadline_ms=1, flags=dev.IGNORE_BACKOFF))
    if not any(row["reason"] == "deadline" for row in rows):
        sys.exit(f"no request met its deadline: this proves nothing: {rows}")
    return rows


PARTS = {"table": table, "requests": requests, "first": first, "deadline": deadline}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    args = parser.parse_args()
    found = {part: PARTS[part](args.quick) for part in args.parts}
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
