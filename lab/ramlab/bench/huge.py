# SPDX-License-Identifier: GPL-2.0-or-later
"""Huge pages: pages of 1 GiB and buffers of 64 MiB after hours of use, of those that could be had,
by each way; and slices as the hardware may have them.

The work is that of lab/ramlab/guest/aged_load.py, the same for each way. Instructions are counted,
so that ratios of them do not depend on the host.
"""

import collections
import statistics

from . import buffers, geometry, machines, stats
from .machines import ICOUNT, Boot
from .slices import images_of

SCRIPT = "bench_huge.py"
OURS, ANYWHERE, STOCK, TRIES = "ours", "ours-anywhere", "stock", "tries"
CMA, DEFRAG = "cma", "defrag"
# The unpatched kernel that has vm.defrag_mode, which the first base lacks
NEWEST = "stock-7.3"
# Boots of the arms that targets name, and of those beside them
BOOTS, BOOTS_BESIDE = 10, 3
MEMORY, QUICK_MEMORY = "16G", "6G"
# Set apart at boot for CMA: half of memory, as much as is attainable after most seeds
RESERVE, QUICK_RESERVE = "8G", "3G"
SLICE = "64M"
BEFORE_COMMAND = "by nr_hugepages alone"
BEFORE_SHRINKING = "before the kernel's caches were shrunk"
# Of each arm: its kernel, words of its command line, and what bench_huge.py calls it
WAYS = {
    OURS: ("plain", f"ramslice={SLICE} ramslice_placement=packed", "ours"),
    ANYWHERE: ("plain", f"ramslice={SLICE} ramslice_placement=stock", "ours"),
    STOCK: ("stock", "", "stock"),
    TRIES: ("stock", "", "tries"),
    DEFRAG: (NEWEST, "", "defrag"),
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
    def by_command(left):
        """What our command made after nr_hugepages, if that was too little."""
        return left.get("aged_command") or {"granted": 0}

    def parts(arm):
        return [left["aged"]["granted"] + by_command(left)["granted"] for left in found[arm]]

    def wholes(arm):
        return [left["attainable"] for left in found[arm]]

    def pooled(arm, but=lambda _: 0):
        return (sum(parts(arm)) - sum(map(but, found[arm]))) / sum(wholes(arm))

    def by_shrinking(left):
        """How many of them came of the last resort."""
        return (by_command(left).get("objects") or {}).get("pages_made", 0)

    def blocked(arm):
        """Ranges that could not become a page afterwards, by reason, of a boot on average."""
        total = sum((collections.Counter(left["blocked"]) for left in found[arm]),
                    collections.Counter())
        return {reason: nr / len(found[arm]) for reason, nr in sorted(total.items())}

    new = [
        stats.pooled_entry(name, "pages of 1 GiB granted over attainable", parts(arm), wholes(arm),
                           blocked=blocked(arm),
                           beside={other: pooled(other) for other in found if other != arm}
                           | {BEFORE_COMMAND:
                              pooled(arm, lambda left: by_command(left)["granted"]),
                              BEFORE_SHRINKING: pooled(arm, by_shrinking)})
        for name, arm in (("granted", OURS), ("granted-anywhere", ANYWHERE))
    ]
    for name, moment in (("page-aged", "aged"), ("page-fresh", "fresh")):
        costs = {arm: [left[moment]["ticks"] / left[moment]["granted"] for left in boots
                       if left[moment]["granted"]]
                 for arm, boots in found.items()}
        # By nr_hugepages on each kernel, where it grants any: what these took
        if not costs[OURS] or not costs[STOCK]:
            continue
        value, ci95 = stats.ratio(costs[OURS], costs[STOCK])
        command = [left[f"{moment}_command"]["ticks"] / left[f"{moment}_command"]["granted"]
                   for left in found[OURS]
                   if (left.get(f"{moment}_command") or {}).get("granted")]
        new.append({
            "name": name, "value": value, "unit": "ratio of instructions for a page of 1 GiB",
            "values": costs[OURS], "baseline": costs[STOCK],
            "n": min(len(costs[OURS]), len(costs[STOCK])), "ci95": ci95,
            "beside": {arm: statistics.fmean(of) / statistics.fmean(costs[STOCK])
                       for arm, of in costs.items() if of and arm not in (OURS, STOCK)}
            | ({"ramslice huge": statistics.fmean(command) / statistics.fmean(costs[STOCK])}
               if command else {}),
            "not_to_be_had": {arm: statistics.fmean(ticks) for arm, boots in found.items()
                              if (ticks := [left[moment]["failed_ticks"] for left in boots
                                            if left[moment].get("failed_ticks")])},
        })
    return new


def aged(args):
    """Pages of 1 GiB granted over attainable after an aged load, and what a page costs."""
    program = args.used.program("ramslice")
    args.used.modules.update(buffers.LOAD_SOURCES)
    images = images_of("plain", "stock", NEWEST)
    seeds = range(1 if args.quick else BOOTS)
    first = args.seed % 10**6
    boots = [boot(arm, first + number, program, args.quick)
             for arm in WAYS
             for number in (seeds if arm in (OURS, ANYWHERE, STOCK) else seeds[:BOOTS_BESIDE])]
    # Two machines of that size do not fit into memory beside each other
    return judged(machines.run(boots, images, "aged", args, jobs=1)), images


PARTS = {"aged": aged, **buffers.PARTS, **geometry.PARTS}
