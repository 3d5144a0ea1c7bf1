# SPDX-License-Identifier: GPL-2.0-or-later
"""Huge pages: pages of 1 GiB after hours of use, of those that could be had, by each way.

The work is that of lab/ramlab/guest/bench_huge.py, the same for each way. Instructions are counted,
so that ratios of them do not depend on the host.
"""

import statistics

from . import machines, stats
from .machines import ICOUNT, Boot
from .slices import images_of

SCRIPT = "bench_huge.py"
OURS, ANYWHERE, STOCK, TRIES = "ours", "ours-anywhere", "stock", "tries"
CMA = "cma"
# Boots of the arms that targets name, and of those beside them
BOOTS, BOOTS_BESIDE = 10, 3
MEMORY, QUICK_MEMORY = "16G", "6G"
# Set apart at boot for CMA: half of memory, as much as is attainable after most seeds
RESERVE, QUICK_RESERVE = "8G", "3G"
SLICE = "64M"
BEFORE_SHRINKING = "before the kernel's caches were shrunk"
# Of each arm: its kernel, words of its command line, and what bench_huge.py calls it
WAYS = {
    OURS: ("plain", f"ramslice={SLICE} ramslice_placement=packed", "ours"),
    ANYWHERE: ("plain", f"ramslice={SLICE} ramslice_placement=stock", "ours"),
    STOCK: ("stock", "", "stock"),
    TRIES: ("stock", "", "tries"),
    CMA: ("stock", "hugetlb_cma={reserve}", "cma"),
}


def boot(arm, seed, program, quick):
    flavour, append, way = WAYS[arm]
    append = append.format(reserve=QUICK_RESERVE if quick else RESERVE)
    words = ["--mem", QUICK_MEMORY if quick else MEMORY, "--cpus", "1", "--disk", "8G", ICOUNT,
             *(["--append", append] if append else [])]
    return Boot(arm, flavour, words, SCRIPT, [way, seed], [f"RAMSLICE_PROGRAM={program}"])


def judged(found):
    """Entries from what boots left, {arm: [figures]}; those of an arm in the order of its boots."""
    def parts(arm):
        return [left["aged"]["granted"] for left in found[arm]]

    def wholes(arm):
        return [left["attainable"] for left in found[arm]]

    def by_shrinking(arm):
        """How many of them came of the last resort."""
        return [(left["aged"].get("objects") or {}).get("pages_made", 0) for left in found[arm]]

    pooled = {arm: sum(parts(arm)) / sum(wholes(arm)) for arm in found}
    new = [
        stats.pooled_entry(name, "pages of 1 GiB granted over attainable", parts(arm), wholes(arm),
                           beside={other: share for other, share in pooled.items() if other != arm}
                           | {BEFORE_SHRINKING:
                              (sum(parts(arm)) - sum(by_shrinking(arm))) / sum(wholes(arm))})
        for name, arm in (("granted", OURS), ("granted-anywhere", ANYWHERE))
    ]
    for name, moment in (("page-aged", "aged"), ("page-fresh", "fresh")):
        costs = {arm: [left[moment]["ticks"] / left[moment]["granted"] for left in boots
                       if left[moment]["granted"]]
                 for arm, boots in found.items()}
        # Where stock grants any; there, all that was done for what it granted
        if not costs[OURS] or not costs[STOCK]:
            continue
        value, ci95 = stats.ratio(costs[OURS], costs[STOCK])
        new.append({
            "name": name, "value": value, "unit": "ratio of instructions for a page of 1 GiB",
            "values": costs[OURS], "baseline": costs[STOCK],
            "n": min(len(costs[OURS]), len(costs[STOCK])), "ci95": ci95,
            "beside": {arm: statistics.fmean(of) / statistics.fmean(costs[STOCK])
                       for arm, of in costs.items() if of and arm not in (OURS, STOCK)},
        })
    return new


def aged(args):
    """Pages of 1 GiB granted over attainable after an aged load, and what a page costs."""
    program = args.used.program("ramslice")
    images = images_of("plain", "stock")
    seeds = range(1 if args.quick else BOOTS)
    first = args.seed % 10**6
    boots = [boot(arm, first + number, program, args.quick)
             for arm in WAYS
             for number in (seeds if arm in (OURS, ANYWHERE, STOCK) else seeds[:BOOTS_BESIDE])]
    # Two machines of that size do not fit into memory beside each other
    return judged(machines.run(boots, images, "aged", args, jobs=1)), images


PARTS = {"aged": aged}
