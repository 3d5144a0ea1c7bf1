#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The suite of cold memory inside the guest: one program, and where its memory and its accesses
were.

Usage: python3 -m ramlab.guest.bench_cold OUT.json [--quick] ARM FOLDER PROGRAM WORD...

FOLDER is where the plugin leaves its records, or "-" for a machine without it; PROGRAM is stream or
energy_map, and WORD what it takes. Figures are raw: the program's own, the plugin's records, and
the slices of twins.
"""

import argparse
import json
import subprocess
from pathlib import Path

from ramlab import dram_accesses
from ramlab.guest import ramslice_dev as dev

NODE = Path("/sys/devices/system/node")
MEMORY = Path("/sys/devices/system/memory")
COUNTERS = ("pswpout", "oom_kill", "pgmigrate_success", "pgdemote_kswapd", "pgdemote_direct")
# The clock counts instructions, and no other time passed than those of the program's
CLOCK_ERROR = 0.001


def cold_slices(slice_bytes):
    """Numbers of slices whose memory is a twin's: nodes without processors."""
    block_bytes = int(dev.read(MEMORY / "block_size_bytes"), 16)
    found = set()
    for node in NODE.glob("node[0-9]*"):
        if dev.read(node / "cpulist").strip():
            continue
        for path in node.glob("memory[0-9]*"):
            first = int(path.name.removeprefix("memory")) * block_bytes
            found.update(range(first // slice_bytes, (first + block_bytes - 1) // slice_bytes + 1))
    return sorted(found)


def counters():
    found = dev.table("/proc/vmstat")
    return {name: found.get(name, 0) for name in COUNTERS}


def run_program(name, words):
    """What a program says of its run; CalledProcessError if values or elements were wrong."""
    line = [dev.program(name), *map(str, words)]
    return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True).stdout)


def clock_problem(figures, records):
    """What is wrong with the clock, or None: it must count instructions, and the plugin must have
    seen the same time as the program.
    """
    if abs(figures["clock_of_million"] / 1e6 - 1) > 0.01:
        return f"a million instructions take {figures['clock_of_million']} ns of the clock"
    if "phases" in figures:
        own = {phase["label"]: phase["ns"] for phase in figures["phases"]}
    else:
        own = dict(enumerate(figures["ns"].values()))
    for label, record in records.items():
        if abs(record["ns"] / own[label] - 1) > CLOCK_ERROR:
            return f"phase {label}: {own[label]} ns by the clock, {record['ns']} executed"
    return None


def measure(folder, name, words):
    """Runs a program, with records from the plugin in `folder`, unless that is None."""
    path = folder and folder / dram_accesses.FILE
    # The plugin adds to its file as long as the machine runs
    seen = path.stat().st_size if path else 0
    before = counters()
    figures = run_program(name, words)
    records = dram_accesses.records(path, seen) if path else {}
    if path and not records:
        raise ValueError("the plugin has counted nothing: is it loaded?")
    if problem := clock_problem(figures, records):
        raise ValueError(problem)
    if any(record["beyond"] for record in records.values()):
        raise ValueError("accesses beyond the last slice that the plugin knows")
    after = counters()
    return {
        "figures": figures,
        "records": list(records.values()),
        "counters": {key: after[key] - before[key] for key in COUNTERS},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true", help="changes nothing here")
    parser.add_argument("arm")
    parser.add_argument("folder")
    parser.add_argument("program", choices=["stream", "energy_map"])
    parser.add_argument("words", nargs="+")
    args = parser.parse_args()
    folder = None if args.folder == "-" else Path(args.folder)
    found = measure(folder, args.program, args.words)
    args.out.write_text(json.dumps(found | {
        "arm": args.arm,
        "cold_slices": cold_slices(dram_accesses.SLICE_BYTES),
    }) + "\n")


if __name__ == "__main__":
    main()
