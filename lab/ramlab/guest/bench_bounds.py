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
# Touched while most is offline; and while it is all online, to be half freed in pieces
DEMAND_MIB, PIECES_MIB = 256, 256
OURS = re.compile(r"^_*ramslice_")
# Functions of ours that lie further apart than this are filtered separately
GAP_BYTES = 64 << 10
EVENTS = ("irq_disable", "irq_enable")


# --- interrupts off ---


def longest_of(text):
    """Of what the irqsoff tracer wrote: where the longest section started, and what it ended in."""
    started = re.search(r"=> started at: +(\S+)", text)
    stack = re.findall(r"^ => (\w[\w.]*)", text.rpartition("<stack trace>")[2], re.M)
    return {"started": started[1] if started else None, "stack": stack[:8]}


def text_ranges(symbols):
    """Offsets of our functions from the start of the kernel's text, as [(first, end)].

    symbols: lines of /proc/kallsyms
    """
    text = sorted((int(line[0], 16), line[2]) for line in map(str.split, symbols)
                  if line[1] in "tT" and len(line) == 3)
    base = next(address for address, name in text if name == "_stext")
    found = []
    for (address, name), (end, _) in zip(text, text[1:], strict=False):
        if not OURS.match(name):
            continue
        if found and address - base - found[-1][1] < GAP_BYTES:
            found[-1] = (found[-1][0], end - base)
        else:
            found.append((address - base, end - base))
    return found


def sections(text):
    """Sections that begin in a function of ours: ({function: us of its longest}, how many, how many
    have no end) of the events' text. Their ends are looked for in functions of ours, too.
    """
    longest, nr, lost, open_ = {}, 0, 0, {}
    for cpu, time_s, event, caller, parent in re.findall(
            r"^.*?\[(\d+)\] .*? (\d+\.\d+): (irq_\w+): caller=(\S+) parent=(\S+)", text, re.M):
        if event == "irq_disable":
            name = next((at.partition("+")[0] for at in (caller, parent) if OURS.match(at)), None)
            lost += cpu in open_
            open_[cpu] = (float(time_s), name)
        elif cpu in open_:
            began, name = open_.pop(cpu)
            if name:
                nr += 1
                longest[name] = max(longest.get(name, 0), round((float(time_s) - began) * 1e6))
    return longest, nr, lost + len(open_)


class Tracer:
    """The longest section with interrupts off while something is done: of all of the kernel, by the
    irqsoff tracer, and of those that begin in functions of ours, by events.
    """

    def __init__(self):
        if not (TRACING / "current_tracer").exists():
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
        # A message on the serial line is sent with interrupts off, and is none of what is measured
        dev.write("/proc/sys/kernel/printk", "1 4 1 7")
        self.ours = TRACING / "instances/ours"
        self.ours.mkdir(exist_ok=True)
        dev.write(self.ours / "buffer_size_kb", 64 << 10)
        with open("/proc/kallsyms") as file:
            ranges = text_ranges(file)
        which = " || ".join(f"({field} >= {first} && {field} < {end})"
                            for first, end in ranges for field in ("caller_offs", "parent_offs"))
        for event in EVENTS:
            folder = self.ours / "events/preemptirq" / event
            dev.write(folder / "filter", which)
            dev.write(folder / "enable", 1)
        dev.write(TRACING / "current_tracer", "irqsoff")

    def longest(self, work):
        """{"us", "function", "sections", "lost": of ours; "any": {"us", "started", "stack"}}."""
        (self.ours / "trace").write_text("")
        for folder in (TRACING, self.ours):
            dev.write(folder / "tracing_on", 1)
        dev.write(TRACING / "tracing_max_latency", 0)
        work()
        for folder in (TRACING, self.ours):
            dev.write(folder / "tracing_on", 0)
        of_any = {"us": int(dev.read(TRACING / "tracing_max_latency"))}
        of_any |= longest_of(dev.read(TRACING / "trace"))
        if not of_any["stack"]:
            sys.exit(f"the tracer saw no section: {of_any}")
        stats = dev.read(self.ours / "per_cpu/cpu0/stats")
        if not re.search(r"^overrun: 0$", stats, re.M):
            sys.exit(f"events were lost: {stats}")
        longest, nr, lost = sections(dev.read(self.ours / "trace"))
        function = max(longest, key=longest.get, default=None)
        return {"us": longest.get(function, 0), "function": function, "sections": nr,
                "lost": lost, "any": of_any}


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
        for mib in (2,) if quick else (2, 16):
            found[mib] = requests_of(tracer, device, mib)
    return found


def requests_of(tracer, device, mib):
    def ask(op, **fields):
        done = device.request(op, wait_busy=10, flags=dev.IGNORE_BACKOFF, **fields)
        if not done.nr_done:
            sys.exit(f"slices of {mib} MiB: nothing done by {op}: {done}")

    def demand():
        before = harness.woken_by_demand(device)
        with Memory(DEMAND_MIB) as memory:
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
    with Memory(PIECES_MIB) as memory:
        # Half of it is free again, in pieces
        memory.touch().punch()
        rows["compact"] = tracer.longest(lambda: ask("compact"))
    device.request("online_all")
    return {"slices": device.info().nr_slices} | rows


# --- requests that are bounded ---


def request(device, **fields):
    held = harness.per_cpu_pages()
    done = device.request("compact", wait_busy=10, **fields)
    return {"ns": done.elapsed_ns, "done": done.nr_done, "reason": done.why(),
            "in_cpu_lists": held}


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
