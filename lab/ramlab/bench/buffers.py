# SPDX-License-Identifier: GPL-2.0-or-later
"""Contiguous buffers of 64 MiB: how many are granted after hours of use, against CMA's reserve, and
what requests that fail disturb.

Parts of the suite huge.
"""

import collections
import statistics

from . import machines, stats
from .machines import ICOUNT, Boot
from .slices import images_of

SCRIPT, FAILING_SCRIPT = "bench_buffers.py", "bench_failing.py"
# What decides the load of parts that age memory
LOAD_SOURCES = ("lab/ramlab/guest/aged_load.py", "lab/ramlab/guest/placement_workload.py")
OURS, ANYWHERE, CMA = "ours", "ours-anywhere", "cma"
BOOTS = 10
SLICE = "64M"
MEMORY, QUICK_MEMORY = "16G", "4G"
# Of the burst, in which few are held at once, and of requests that fail
SMALL_MEMORY = "4G"
# As much as bench_buffers.py holds at once
RESERVE = "256M"
PLACED = f"ramslice={SLICE} ramslice_placement=packed"
# Of each arm: its kernel, words of its command line, and the dma-heap
MANY = {
    OURS: ("plain", PLACED, "ramslice"),
    ANYWHERE: ("plain", f"ramslice={SLICE} ramslice_placement=stock", "ramslice"),
}
BURST = {
    OURS: ("plain", PLACED, "ramslice"),
    CMA: ("stock-cma", f"cma={RESERVE}", "reserved"),
}
MIB = 1 << 20


def boots_of(arms, part, memory, args):
    """Boots of a part of bench_buffers.py, of each arm with the same seeds."""
    first = args.seed % 10**6
    return [Boot(arm, flavour, ["--mem", memory, "--cpus", "1", "--disk", "8G", ICOUNT,
                                "--append", append], SCRIPT, [part, heap, first + number])
            for arm, (flavour, append, heap) in arms.items()
            for number in range(1 if args.quick else BOOTS)]


def by_seed(found):
    """{arm: [figures]}, those of each arm in the order of their seeds."""
    return {arm: sorted(boots, key=lambda left: left["seed"]) for arm, boots in found.items()}


def reasons(boots):
    """{reason: requests that were refused for it} of all boots together."""
    return dict(sum((collections.Counter(left["refused"]) for left in boots),
                    collections.Counter()))


def per_request(boots):
    """Ticks that passed during a request, waiting included, and that its process ran: the means
    and the most.
    """
    found = {}
    for kind in ("passed", "ran"):
        ticks = [one for left in boots for one in left[kind]]
        found[kind] = {"mean": statistics.fmean(ticks), "worst": max(ticks)}
    return found


def judged_many(found):
    """Entries from what boots left, {arm: [figures]}: granted over attainable."""
    found = by_seed(found)
    granted = {arm: [left["granted"] for left in boots] for arm, boots in found.items()}
    attainable = {arm: [left["attainable"] for left in boots] for arm, boots in found.items()}
    room = {arm: statistics.fmean(left["room_bytes"] / MIB for left in boots)
            for arm, boots in found.items()}
    return [
        stats.pooled_entry(name, "buffers of 64 MiB granted over attainable", granted[arm],
                           attainable[arm], refused=reasons(found[arm]),
                           per_request=per_request(found[arm]), room_mib=room[arm])
        for name, arm in (("buffers-granted", OURS), ("buffers-granted-anywhere", ANYWHERE))
    ]


def judged_burst(found):
    """Entries from what boots left, {arm: [figures]}: what CMA grants more, and what lies idle."""
    found = by_seed(found)

    def shares(arm):
        return [left["granted"] / left["asked"] for left in found[arm]]

    def idle_mib(arm):
        return [left["idle_bytes"] / MIB for left in found[arm]]

    more = [theirs - ours for theirs, ours in zip(shares(CMA), shares(OURS), strict=True)]
    return [
        stats.mean_entry("buffers-success", "share of requests granted, CMA's less ours", more,
                         beside={arm: statistics.fmean(shares(arm)) for arm in found},
                         refused={arm: reasons(boots) for arm, boots in found.items()},
                         per_request={arm: per_request(boots) for arm, boots in found.items()}),
        stats.mean_entry("buffers-idle", "MiB set apart and in no buffer, mean over requests",
                         idle_mib(OURS), beside={CMA: statistics.fmean(idle_mib(CMA))}),
    ]


def many(args):
    """Buffers of 64 MiB granted over attainable after an aged load, with kernel pages placed in
    slices and as stock places them.
    """
    args.used.modules.update(LOAD_SOURCES)
    images = images_of("plain")
    boots = boots_of(MANY, "many", QUICK_MEMORY if args.quick else MEMORY, args)
    # Two machines of that size do not fit into memory beside each other
    return judged_many(machines.run(boots, images, "buffers", args, jobs=1)), images


def burst(args):
    """Buffers of 64 MiB that come and go under a light load, against CMA: success, latency, memory
    that lies idle for them.
    """
    args.used.modules.update(LOAD_SOURCES)
    images = images_of("plain", "stock-cma")
    boots = boots_of(BURST, "burst", SMALL_MEMORY, args)
    return judged_burst(machines.run(boots, images, "burst", args)), images


def judged_failing(boots):
    """An entry from what boots left: slices that failing requests woke, the most of a request."""
    requests = [one for left in boots for one in left["requests"]]
    kinds = sorted({one["request"] for one in requests})

    def most(kind):
        return max(one["woken"] for one in requests if one["request"] == kind)

    return [{
        "name": "failing-woken", "value": max(most(kind) for kind in kinds), "n": len(boots),
        "unit": "slices that a request which fails wakes, the most of all requests",
        "values": [sum(one["woken"] for one in left["requests"]) for left in boots],
        "beside": {kind: most(kind) for kind in kinds}, "requests": len(requests),
        "off": statistics.fmean(one["off"] for one in requests),
        "slices": boots[0]["slices"],
    }]


def failing(args):
    """Slices woken by requests for 1 GiB that fail because a page is pinned in each range."""
    images = images_of("plain")
    program = args.used.program("ramslice")
    first = args.seed % 10**6
    boots = [Boot(OURS, "plain", ["--mem", SMALL_MEMORY, "--cpus", "1", ICOUNT, "--append", PLACED],
                  FAILING_SCRIPT, [first + number], [f"RAMSLICE_PROGRAM={program}"])
             for number in range(1 if args.quick else BOOTS)]
    return judged_failing(machines.run(boots, images, "failing", args)[OURS]), images


PARTS = {"buffers": many, "burst": burst, "failing": failing}
