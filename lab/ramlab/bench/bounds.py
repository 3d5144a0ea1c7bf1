# SPDX-License-Identifier: GPL-2.0-or-later
"""Parts of the slices suite about what ramslice takes at most: with interrupts off, for the first
request after boot, and beyond a deadline.
"""

import statistics

from ramlab.kernel.images import image

from . import machines, stats
from .machines import ICOUNT, Boot

SCRIPT = "bench_bounds.py"
BOOTS = 3
# The guest's memory, and that of a smaller one to tell what grows with memory
MEMORY, LESS_MEMORY = "6G", "2G"
KUNIT = ["--append", "kunit.enable=1 kunit.filter_glob=ramslice_snapshot"]
TIB = 1 << 40
# Few pages in the lists of CPUs, which are soon back in the allocator
FEW_PAGES = 4096
BLOCK_BYTES, SLICE_BYTES = 2 << 20, 64 << 20


def samples(args):
    return 1 if args.quick else BOOTS


def longest_sections(tables, requests):
    """The longest section of ours in each boot; tables and requests as guests leave them.

    Ours is what begins in one of our functions. The longest of the whole kernel meanwhile, and each
    kind of request at its worst in any boot, stand beside.
    """
    boots = []
    for table, by_size in zip(tables, requests, strict=True):
        rows = {"98304 slices, snapshot and order": table}
        for mib, of_size in by_size.items():
            rows |= {f"{of_size['slices']} slices of {mib} MiB, {name}": row
                     for name, row in of_size.items() if name != "slices"}
        boots.append(rows)
    value = stats.mean_entry("irqsoff", "us at 1 GIPS",
                             [max(row["us"] for row in rows.values()) for rows in boots])
    worst = {name: max((rows[name] for rows in boots), key=lambda row: row["us"])
             for name in boots[0]}
    longest = max((row["any"] for rows in boots for row in rows.values()),
                  key=lambda row: row["us"])
    value["beside"] = {
        "by request": {name: {key: row[key] for key in ("us", "function")}
                       for name, row in worst.items()},
        "any part of the kernel": {"us": longest["us"], "function": longest["started"]},
        "sections": sum(row["sections"] for rows in boots for row in rows.values()),
        "without an end": sum(row["lost"] for rows in boots for row in rows.values()),
    }
    return value


def irqsoff(args):
    """The longest section of ours with interrupts off, by the kernel's events."""
    images = {"irqsoff": image("irqsoff")}
    words = ["--cpus", "1", ICOUNT]
    boots = [Boot(arm, "irqsoff", [*words, *more], SCRIPT, [arm])
             for arm, more in (("table", ["--mem", "1G", *KUNIT]),
                               ("requests", ["--mem", MEMORY, "--append", "ramslice=128M"]))
             for _ in range(samples(args))]
    found = machines.run(boots, images, "irqsoff", args, jobs=1)
    return [longest_sections(*([figures[arm] for figures in found[arm]]
                               for arm in ("table", "requests")))], images


def first_request_ms(small, large, order_ns):
    """What the first request after boot takes in 1 TiB, in ms at 1 GIPS: a value for each boot.

    Computed. What it takes for a pageblock, by the difference between a smaller machine (the mean
    of its boots) and a larger one, holds for all blocks of 1 TiB; what does not grow with memory is
    taken as it is; the order of slices is that of a synthetic table, {slices: ns}, drawn from the
    larger table by its slices.
    """
    blocks, slices = TIB // BLOCK_BYTES, TIB // SLICE_BYTES
    few = statistics.fmean(row["blocks"] for row in small)
    base = statistics.fmean(row["first"]["ns"] for row in small)
    table = max(order_ns)
    values = []
    for row in large:
        per_block = (row["first"]["ns"] - base) / (row["blocks"] - few)
        values.append((base + per_block * (blocks - few) + order_ns[table] * slices / table) / 1e6)
    return values


def first(args):
    """The first request after boot, computed for 1 TiB from pageblocks that were measured."""
    images = {"plain": image("plain")}
    arms = {
        "small": ["--mem", LESS_MEMORY, "--append", "ramslice=64M"],
        "large": ["--mem", MEMORY, "--append", "ramslice=64M"],
    }
    boots = [Boot(arm, "plain", [*words, "--cpus", "1", ICOUNT], SCRIPT, ["first"])
             for arm, words in arms.items() for _ in range(samples(args))]
    boots.append(Boot("table", "plain", ["--mem", "1G", "--cpus", "1", ICOUNT, *KUNIT],
                      "bench_slices.py", ["snapshot"]))
    found = machines.run(boots, images, "first", args)
    small, large = ([figures["first"] for figures in found[arm]] for arm in ("small", "large"))
    rounds = found["table"][0]["snapshot"]
    order_ns = {slices: statistics.median(row["order_ns"] for row in rounds
                                          if row["slices"] == slices)
                for slices in {row["slices"] for row in rounds}}
    value = stats.mean_entry("first-request", "ms at 1 GIPS, computed for 1 TiB",
                             first_request_ms(small, large, order_ns))
    value["beside"] = {
        "ms measured": {words[1]: statistics.fmean(row["first"]["ns"] for row in rows) / 1e6
                        for words, rows in zip(arms.values(), (small, large), strict=True)},
        "ms of the next request": {
            words[1]: statistics.fmean(row["next"]["ns"] for row in rows) / 1e6
            for words, rows in zip(arms.values(), (small, large), strict=True)},
        "ms of the order": order_ns[max(order_ns)] * (TIB // SLICE_BYTES) / max(order_ns) / 1e6,
    }
    return [value], images


def longest_overrun(boots):
    """The longest request of each boot, from what requests of boots with a deadline of 1 ms took.

    Beside it, what it found in the lists of CPUs, and the longest that found few pages there: a
    request returns them first, by a function of the kernel that knows no deadline.
    """
    longest = [max(rows, key=lambda row: row["ns"]) for rows in boots]
    every = [row for rows in boots for row in rows]
    value = stats.mean_entry("deadline", "ms at 1 GIPS", [row["ns"] / 1e6 for row in longest])
    value["beside"] = {
        "first after boot": statistics.fmean(rows[0]["ns"] for rows in boots) / 1e6,
        "median": statistics.median(row["ns"] for row in every) / 1e6,
        "longest with few pages in lists of CPUs": max(
            (row["ns"] / 1e6 for row in every if row["in_cpu_lists"] < FEW_PAGES), default=None),
        "pages in lists of CPUs before the longest": [row["in_cpu_lists"] for row in longest],
        "requests": len(every),
        "that met it": sum(row["reason"] == "deadline" for row in every),
    }
    return value


def deadline(args):
    """Requests with a deadline of 1 ms: the longest of a boot."""
    images = {"plain": image("plain")}
    words = ["--mem", MEMORY, "--cpus", "1", ICOUNT, "--append", "ramslice=64M"]
    boots = [Boot("ours", "plain", words, SCRIPT, ["deadline"]) for _ in range(samples(args))]
    rows = [figures["deadline"]
            for figures in machines.run(boots, images, "deadline", args)["ours"]]
    return [longest_overrun(rows)], images


PARTS = {"irqsoff": irqsoff, "first": first, "deadline": deadline}
