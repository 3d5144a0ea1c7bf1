# SPDX-License-Identifier: GPL-2.0-or-later
"""Geometry: slices that take turns at addresses, against slices in a row on the same kernel.

Parts of the suite huge. What can be off is measured under the load of the placement suite, what
faults and wakes cost by the loops of the suite of slices.
"""

import random
import statistics

from . import machines, stats
from .machines import ICOUNT, Boot
from .slices import LOOPS, check_clock, compared, images_of
from .slices import SCRIPT as LOOPS_SCRIPT

MIXTURE_SCRIPT, WAKE_SCRIPT = "bench_placement.py", "bench_geometry.py"
ROW, TURNS = "contiguous", "interleaved"
# Words of each arm
GEOMETRY = {ROW: "ramslice=64M", TURNS: "ramslice=64M,ways=2,granularity=4M"}
POLICY = "packed"
BOOTS = 10
LOADS = ("light", "medium")
MIXTURE_SOURCES = ("lab/ramlab/guest/placement_workload.py",
                   "lab/ramlab/guest/placement_programs.py")
WAKE_MEMORY = "2G"


def judged_interleaved(found):
    """Entries from what boots left, {arm: [figures]}: memory offline, seed by seed."""
    found = {arm: sorted(boots, key=lambda left: left["seed"]) for arm, boots in found.items()}
    new = []
    for load in LOADS:
        offline = {arm: [left[load]["off"] for left in boots] for arm, boots in found.items()}
        new.append(stats.mean_entry(
            f"interleaved-{load}", "offline memory over that of slices in a row",
            [turns / row for turns, row in zip(offline[TURNS], offline[ROW], strict=True)],
            offline={arm: statistics.fmean(offline[arm]) for arm in found},
            in_use={arm: statistics.fmean(left[load]["in_use"] for left in boots)
                    for arm, boots in found.items()},
            c={arm: statistics.fmean(left[load]["c"] for left in boots)
               for arm, boots in found.items()},
            c_bound={arm: statistics.fmean(left[load]["c_bound"] for left in boots)
                     for arm, boots in found.items()}))
    return new


def interleaved(args):
    """Table IV of the IISc paper: memory offline if two slices each take turns, over slices in a
    row, under light and medium load.
    """
    args.used.modules.update(MIXTURE_SOURCES)
    images = images_of("plain")
    chance = random.Random(args.seed)
    seeds = sorted(chance.getrandbits(31) for _ in range(1 if args.quick else BOOTS))
    boots = [Boot(arm, "plain", ["--mem", "2G", "--disk", "1G", "--append",
                                 f"{words} ramslice_placement={POLICY}"],
                  MIXTURE_SCRIPT, ["mixture", POLICY, seed])
             for arm, words in GEOMETRY.items() for seed in seeds]
    return judged_interleaved(machines.run(boots, images, "interleaved", args)), images


def judged_strided(faults, wakes):
    """Entries from what boots left, {arm: [figures]} of the loops and of the wakes."""
    def medians(found, figure):
        return {arm: [statistics.median(figure(left)) for left in boots]
                for arm, boots in found.items()}

    fault = medians(faults, lambda left: left["loops"]["fault"])
    wake = medians(wakes, lambda left: left["wakes"])
    touch = {arm: [left["touch"]["mean"] for left in boots] for arm, boots in wakes.items()}
    return [
        compared("strided-fault", "ratio of instructions per page", fault[TURNS], fault[ROW]),
        compared("strided-wake", "ratio of instructions", wake[TURNS], wake[ROW],
                 beside={"touching memory that wakes, per page":
                         stats.ratio(touch[TURNS], touch[ROW])[0]}),
    ]


def strided(args):
    """Faults and wakes of slices that take turns, over slices in a row: instructions."""
    images = images_of("plain")
    nr = range(1 if args.quick else BOOTS)
    faults = machines.run(
        [Boot(arm, "plain", [*LOOPS, "--cpus", "1", "--append", words], LOOPS_SCRIPT, ["loops"])
         for arm, words in GEOMETRY.items() for _ in nr], images, "strided-fault", args)
    for boots in faults.values():
        check_clock(boots)
    wakes = machines.run(
        [Boot(arm, "plain", ["--mem", WAKE_MEMORY, "--cpus", "1", ICOUNT, "--append", words],
              WAKE_SCRIPT, [])
         for arm, words in GEOMETRY.items() for _ in nr], images, "strided-wake", args)
    return judged_strided(faults, wakes), images


PARTS = {"interleaved": interleaved, "strided": strided}
