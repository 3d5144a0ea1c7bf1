# SPDX-License-Identifier: GPL-2.0-or-later
"""Placement: what each policy leaves after the same work, and how much of it can be switched off.

Each policy boots anew for each seed, in random order. The work is lab/guest/place_load.py, compressed: processes, files
and data in pipes that come and go, with moments in which all memory is in use.
"""

import random
import statistics

from . import machines, stats
from .machines import Boot

OURS = "packed"
POLICIES = ["stock", OURS, "low", "array", "list", "adaptive"]
# Figure of merit: how it follows from a boot's figures
FIGURES = {
    "c-light": ("c over the best of that run, light load at the end", lambda left: left["c"] / left["c_bound"]),
    "spoilt": ("slices with kernel pages over the least possible",
               lambda left: left["slices_unmovable"] / left["slices_unmovable_least"]),
    "migrated": ("pages migrated per slice freed, as a share of a slice", lambda left: left["migrated_per_slice"]),
}


def mixture(args):
    """c, slices with kernel pages and pages migrated, for every policy; the entries are those of ours."""
    images = {"plain": machines.image("plain")}
    chance = random.Random(args.seed)
    seeds = [chance.getrandbits(31) for _ in range(1 if args.quick else 10)]
    boots = [Boot(policy, "plain",
                  ["--mem", "2G", "--disk", "1G", "--append", f"ramslice=16M ramslice_placement={policy}"],
                  "bench_placement.py", [policy, seed]) for policy in POLICIES for seed in seeds]
    found = machines.run(boots, images, "placement", args.quick, args.jobs, args.seed)
    new = []
    for name, (unit, figure) in FIGURES.items():
        values = {policy: [figure(left) for left in found[policy]] for policy in POLICIES}
        value, ci95 = stats.mean(values[OURS])
        new.append({"name": name, "value": value, "unit": unit, "values": values[OURS], "n": len(values[OURS]), "ci95": ci95,
                    "beside": {policy: statistics.fmean(values[policy]) for policy in POLICIES if policy != OURS}})
    return new, images


PARTS = {"mixture": mixture}
