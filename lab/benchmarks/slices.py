# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices: what accounting, emptying, waking and ordering cost, against the same kernel without the patches.

Each part boots both kernels in random order and returns entries and the images that they are about. One boot is one
sample: what happens twice in a boot is averaged first.
"""

import statistics

from . import machines, stats
from .machines import ICOUNT, Boot

# All of the kernel's own memory lies below 4 GiB, the movable zone above.
MOVABLE = ["--mem", "4608M", "--append", "movablecore=2560M"]
LOOPS = ["--mem", "1G", ICOUNT]
SCRIPT = "bench_slices.py"


def samples(args, usual=10):
    return 2 if args.quick else usual


def images_of(*flavours):
    return {flavour: machines.image(flavour) for flavour in flavours}


def pick(found, *keys):
    """For each boot, the mean of the figures under these keys."""
    values = []
    for figures in found:
        for key in keys:
            figures = figures[key]
        values.append(statistics.fmean(figures) if isinstance(figures, list) else figures)
    return values


def medians(found, *keys):
    values = []
    for figures in found:
        for key in keys:
            figures = figures[key]
        values.append(statistics.median(figures))
    return values


def compared(name, unit, ours, theirs, margin=None, **more):
    """An entry that is a ratio."""
    value, ci95 = stats.ratio(ours, theirs)
    entry = {"name": name, "value": value, "unit": unit, "values": ours, "baseline": theirs,
             "n": min(len(ours), len(theirs)), "ci95": ci95} | more
    if margin:
        entry["equivalence"] = {"margin": margin, "p": stats.equivalent(ours, theirs, margin)}
    return entry


def plain(name, unit, values, **more):
    """An entry that is a mean."""
    value, ci95 = stats.mean(values)
    return {"name": name, "value": value, "unit": unit, "values": values, "n": len(values), "ci95": ci95} | more


def check_clock(found):
    """The time stamp counter must count instructions, or nothing here means anything."""
    for figures in found:
        seen = figures["loops"]["calibrate"]
        if not 0.999 < seen["ticks"] / seen["instructions"] < 1.01:
            raise SystemExit(f"the guest's clock does not count instructions: {seen}")


def loops(args):
    """Page faults and fork: ramslice off and on, against stock."""
    arms = {"stock": ("stock", []), "off": ("plain", ["--append", "ramslice=off"]), "on": ("plain", ["--append", "ramslice=on"])}
    images = images_of("plain", "stock")
    new = []
    for cpus in (1, 2):
        boots = [Boot(arm, flavour, [*LOOPS, "--cpus", str(cpus), *words], SCRIPT, ["loops"])
                 for arm, (flavour, words) in arms.items() for _ in range(samples(args))]
        found = machines.run(boots, images, f"loops-{cpus}", args.quick, args.jobs, args.seed)
        for arm in arms:
            if cpus == 1:
                check_clock(found[arm])
        for arm, margin in (("off", 0.002), ("on", 0.01)):
            new.append(compared(f"fault-{cpus}-{arm}", "ratio of instructions per page", medians(found[arm], "loops", "fault"),
                                medians(found["stock"], "loops", "fault"), margin))
            if cpus == 1:
                new.append(compared(f"fork-{arm}", "ratio of instructions", medians(found[arm], "loops", "fork"),
                                    medians(found["stock"], "loops", "fork"), margin))
    return new, images


def per_page(found, *keys):
    """Ticks per page that had to move, for each boot."""
    values = []
    for figures in found:
        rows = figures[keys[0]][keys[1]]
        values.append(sum(r["ticks"] for r in rows) / sum(r["had_to_move"] for r in rows))
    return values


def empty(args):
    """Emptying half full slices and waking them, against memory hotplug."""
    images = images_of("plain", "stock")
    boots = [Boot(arm, flavour, [*MOVABLE, ICOUNT, "--cpus", "1", *words], SCRIPT, ["empty"])
             for arm, flavour, words in (("ours", "plain", ["--append", "ramslice=64M"]), ("hotplug", "stock", []))
             for _ in range(samples(args))]
    found = machines.run(boots, images, "empty", args.quick, args.jobs, args.seed)
    unit = "ratio of instructions per page that had to move"
    new = [compared(name, unit, per_page(found["ours"], "empty", size), per_page(found["hotplug"], "empty", size))
           for name, size in (("empty-64m", "small"), ("empty-1g", "large"))]

    def to_first_page(figures):
        return statistics.fmean(r["ticks"] + r["first_page_ticks"] for r in figures["empty"]["wake"])

    new.append(compared("wake", "ratio of instructions", [to_first_page(f) for f in found["ours"]],
                        [to_first_page(f) for f in found["hotplug"]]))
    return new, images


PARTS = {"loops": loops, "empty": empty}
