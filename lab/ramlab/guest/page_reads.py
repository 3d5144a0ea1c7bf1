# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads single pages of a file by a pattern whose miss ratio is known, and counts those that came
from the disk.

    python3 -m ramlab.guest.page_reads FILE --pattern zipf --seconds 30

Prints a line of JSON. A read of a page that is not in the page cache reads that page alone:
readahead is off for the file.
"""

import argparse
import itertools
import json
import os
import random
import time

PAGE = 4096
# Draws are made before the clock starts, and used again and again
DRAWS = 1 << 17


def accesses(pattern, nr_pages, seed):
    """Page numbers without end: a loop, or independent draws by Zipf's law with exponent 1.

    Ranks are scattered over the file.
    """
    numbers = list(range(nr_pages))
    if pattern == "loop":
        return itertools.cycle(numbers)
    chance = random.Random(seed)
    chance.shuffle(numbers)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, nr_pages + 1)))
    return itertools.cycle(chance.choices(numbers, cum_weights=weights, k=DRAWS))


def from_disk():
    """Bytes that this process had read from a disk so far."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(dict(line.split(": ") for line in file)["read_bytes"])


def run(path, pattern, seconds, seed, per_second):
    """Reads for so long; returns how many pages were read, and how many of them from the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        nr_pages = os.fstat(fd).st_size // PAGE
        pages = accesses(pattern, nr_pages, seed)
        count, before = 0, from_disk()
        begun = time.monotonic()
        while (elapsed := time.monotonic() - begun) < seconds:
            ahead = count - elapsed * per_second if per_second else 0
            if ahead > 0:
                time.sleep(ahead / per_second)
            for page in itertools.islice(pages, 64):
                os.pread(fd, PAGE, page * PAGE)
            count += 64
        return {"reads": count, "from_disk": (from_disk() - before) // PAGE, "pages": nr_pages,
                "seconds": elapsed}
    finally:
        os.close(fd)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("file")
    parser.add_argument("--pattern", choices=("zipf", "loop"), default="zipf")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=float, default=0, help="reads a second; 0: all it can")
    args = parser.parse_args()
    print(json.dumps(run(args.file, args.pattern, args.seconds, args.seed, args.per_second)))


if __name__ == "__main__":
    main()
