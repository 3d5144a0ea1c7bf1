#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads of a file whose used part grows and shrinks, under ramsliced's watermarks: how many pages
were there, and how much memory was on meanwhile.

Usage: python3 -m ramlab.guest.bench_watermarks OUT.json [--quick] SEED MARKS
  MARKS  the settings of [watermarks], as JSON

RAMSLICE_DAEMON is the program. The file has been read once before anything counts, so that every
page that is missing had been dropped.
"""

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import Daemon
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.hit_ratio import CountedFile, during, zipf

FILE_MIB = 96
# The part of the file that is used, and for how long
PHASES = ((24, 250), (64, 250), (24, 250))
QUICK_S = 20
READS_PER_SECOND = 1000
SKEW = 0.9
# A slice goes off at each look
SETTLE_S = 150
# Reads between two looks at the clock
BATCH = 50


class MemoryOn:
    """The mean of the memory that is on while this is entered, in MiB."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        self.over, self.seen = threading.Event(), []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        while not self.over.wait(1):
            info = self.device.info()
            self.seen.append((info.managed_pages - info.offline_pages) * PAGE / MIB)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def mean(self):
        return sum(self.seen) / len(self.seen)


def read_steadily(file, pages):
    """Reads these pages, so many a second."""
    begun = time.monotonic()
    for at in range(0, len(pages), BATCH):
        file.read(pages[at:at + BATCH])
        time.sleep(max(0, begun + (at + BATCH) / READS_PER_SECOND - time.monotonic()))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("seed", type=int)
    parser.add_argument("marks", type=json.loads)
    args = parser.parse_args()
    file = CountedFile(Path(dev.file_system(), "data"), FILE_MIB * MIB // PAGE)
    file.read(range(file.pages))
    more = "[watermarks]\n" + "".join(f"{key} = {value}\n" for key, value in args.marks.items())
    phases = []
    with tempfile.TemporaryDirectory() as folder, dev.Device() as device:
        daemon = Daemon(folder, mode="on", policy="watermarks", more=more).start()
        read_steadily(file, zipf(PHASES[0][0] * MIB // PAGE,
                                 READS_PER_SECOND * SETTLE_S, args.seed, SKEW)[0])
        for number, (mib, seconds) in enumerate(PHASES):
            seconds = QUICK_S if args.quick else seconds
            pages, _ = zipf(mib * MIB // PAGE, READS_PER_SECOND * seconds,
                            10 * args.seed + number, SKEW)
            with MemoryOn(device) as memory:
                seen = during(lambda pages=pages: read_steadily(file, pages))
            phases.append({"mib": mib, "seconds": seconds, "hit_ratio": seen.hit_ratio,
                           "lookups": seen.lookups, "memory_mib": memory.mean()})
        log = daemon.log()
        zones = [zone["watermarks"] for zone in daemon.status()["zones"] if zone["watermarks"]]
        daemon.end()
    file.close()
    args.out.write_text(json.dumps({"phases": phases, "marks": zones, "log": log[-2000:]}) + "\n")


if __name__ == "__main__":
    main()
