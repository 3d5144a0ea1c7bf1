#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Hit ratios of page cache that are known beforehand, as the kernel counts them.

Usage: python3 -m ramlab.guest.bench_hits OUT.json [--quick]
"""

import argparse
import json
from pathlib import Path

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.hit_ratio import CountedFile, during, loops, zipf

PAGES = 4096
SEEDS = range(1, 4)


def patterns(larger):
    """(name, pages in order, their hit ratio); of so many times the smallest number of look-ups."""
    for times in (2, 5):
        yield f"loop-{times}", *loops(PAGES, times * larger)
    for seed in SEEDS:
        for skew in (0.5, 1.2):
            yield f"zipf-{skew}-{seed}", *zipf(PAGES, 5 * PAGES * larger, seed, skew)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    file = CountedFile(Path(dev.file_system(), "counted"), PAGES)
    found = []
    for name, pages, expected in patterns(1 if args.quick else 2):
        for how, access in (("read", file.read), ("mapped", file.touch)):
            file.drop()
            seen = during(lambda access=access, pages=pages: access(pages))
            found.append({"pattern": name, "how": how, "expected": expected,
                          "counted": seen.hit_ratio, "lookups": seen.lookups,
                          "made": len(pages)})
    file.close()
    args.out.write_text(json.dumps({"known": found}) + "\n")


if __name__ == "__main__":
    main()
