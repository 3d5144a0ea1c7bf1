# SPDX-License-Identifier: GPL-2.0-or-later
"""Placement: what each policy leaves after the same work, and how much of it can be switched off.

Each policy boots again for each seed, in random order; those beside ours for the first of the same
seeds. The work is lab/ramlab/guest/placement_workload.py, compressed: processes, files and data in
pipes that come and go, real programs, moments in which all memory is in use; then light and medium
load; packed again and again meanwhile.
"""

import random
import statistics

from . import machines, stats
from .machines import ICOUNT, Boot
from .slices import compared, images_of

SCRIPT = "bench_placement.py"
OURS = "packed"
UNPATCHED = "unpatched"
POLICIES = ["stock", OURS, "low", "array", "list", "adaptive"]
# Boots of the mixture: of ours and of what people have today, and with the first of the same seeds
# of each policy beside them
SEEDS, SEEDS_BESIDE = 10, 4
# Boots of the other parts: of ours and of what it is compared with, and of each policy beside it
BOOTS, BOOTS_BESIDE = 10, 1
# Figure of merit: how it follows from a boot's figures
FIGURES = {
    "c-light": (
        "c over the best of that run, 10 to 50% in use",
        lambda left: left["light"]["c"] / left["light"]["c_bound"],
    ),
    "c-medium": (
        "c over the best of that run, 30 to 80% in use",
        lambda left: left["medium"]["c"] / left["medium"]["c_bound"],
    ),
    "spoilt": (
        "slices with kernel pages over the least possible",
        lambda left: left["slices_unmovable"] / left["slices_unmovable_least"],
    ),
    "migrated": (
        "pages migrated per slice freed, as a share of a slice",
        lambda left: left["migrated_per_slice"],
    ),
}


def mixture_boot(policy, words):
    return Boot(
        policy,
        "research",
        ["--mem", "2G", "--disk", "1G", "--append", f"ramslice=16M ramslice_placement={policy}"],
        SCRIPT,
        ["mixture", policy, *words],
    )


def low_slices(seed, images, args):
    """What the policy low is given: the fewest slices for the kernel's pages at their worst moment
    in a boot under stock.
    """
    [left] = machines.run([mixture_boot("stock", [seed])], images, "placement-first", args)["stock"]
    return left["slices_unmovable_least_ever"]


def mixture(args):
    """c, slices with kernel pages and pages migrated, for every policy; the entries are those of
    ours.
    """
    images = images_of("research")
    chance = random.Random(args.seed)
    seeds = sorted(chance.getrandbits(31) for _ in range(1 if args.quick else SEEDS))
    low = low_slices(seeds[0], images, args)
    boots = [
        mixture_boot(policy, [seed, *([low] if policy == "low" else [])])
        for policy in POLICIES
        for seed in (seeds if policy in (OURS, "stock") else seeds[:SEEDS_BESIDE])
    ]
    left = machines.run(boots, images, "placement", args)
    found = {policy: sorted(left[policy], key=lambda one: one["seed"]) for policy in POLICIES}
    return judged(found, {"seeds": seeds, "low_slices": low}), images


def judged(found, common):
    """Entries from what boots left, {policy: [...]}, in the same order of seeds."""
    new = []
    for name, (unit, figure) in FIGURES.items():
        values = {policy: [figure(left) for left in boots] for policy, boots in found.items()}
        value, ci95 = stats.mean(values[OURS])
        new.append(
            {
                "name": name,
                "value": value,
                "unit": unit,
                "values": values[OURS],
                "n": len(values[OURS]),
                "ci95": ci95,
                "beside": {
                    policy: statistics.fmean(values[policy]) for policy in found if policy != OURS
                },
                "beside_values": {policy: values[policy] for policy in found if policy != OURS},
            }
            | common
        )
        if name == "spoilt":
            # What no policy without knowledge of the future can beat: kernel pages stay where they
            # were at the worst moment
            new[-1]["over_least_ever"] = {
                policy: statistics.fmean(
                    left["slices_unmovable"] / left["slices_unmovable_least_ever"] for left in boots
                )
                for policy, boots in found.items()
            }
            new[-1]["removable"] = removable(found)
        if name == "migrated":
            # What the kernel reclaimed meanwhile, for any purpose
            new[-1]["pages_reclaimed"] = {
                policy: statistics.fmean(left["pgsteal_"] for left in boots)
                for policy, boots in found.items()
            }
        if name.startswith("c-"):
            load = name.removeprefix("c-")
            for key in ("in_use", "c", "c_bound"):
                new[-1][key] = {
                    policy: statistics.fmean(left[load][key] for left in boots)
                    for policy, boots in found.items()
                }
            new[-1]["offlined"] = {policy: offlined(boots, load) for policy, boots in found.items()}
    return new


def removable(found):
    """Memory sections that hotplug could remove after the work: of how many, and how many more
    than under stock.
    """
    mean = {
        policy: statistics.fmean(left["sections_removable"] for left in boots)
        for policy, boots in found.items()
    }
    more = (
        {policy: nr / mean["stock"] - 1 for policy, nr in mean.items()} if mean["stock"] else None
    )
    return {"sections": found["stock"][0]["sections"], "mean": mean, "more_than_stock": more}


def offlined(boots, load):
    """Table IV of the IISc paper: share of memory off, the most and the mean, and the mean if two
    banks each were interleaved.
    """
    rows = [left[load] for left in boots]
    return {
        "most": max(row["off_most"] for row in rows),
        "mean": statistics.fmean(row["off"] for row in rows),
        "mean_interleaved": statistics.fmean(row["off_interleaved"] for row in rows),
    }


def booted(part, words, args):
    """What a part measured under each policy, and on the kernel without the patches: {arm:
    [figures of a boot]}; images.
    """
    images = images_of("research", "stock")
    nr = {
        arm: BOOTS if arm in (OURS, UNPATCHED) else BOOTS_BESIDE for arm in [UNPATCHED, *POLICIES]
    }
    boots = [
        Boot(
            arm,
            "stock" if arm == UNPATCHED else "research",
            [
                *words,
                ICOUNT,
                "--cpus",
                "1",
                *(
                    []
                    if arm == UNPATCHED
                    else ["--append", f"ramslice=16M ramslice_placement={arm}"]
                ),
            ],
            SCRIPT,
            [part, arm, number],
        )
        for arm in nr
        for number in range(1 if args.quick else nr[arm])
    ]
    return machines.run(boots, images, part, args), images


def against_unpatched(name, unit, values):
    """An entry for ours; the other policies' ratios are beside it. values: {arm: [a figure of each
    boot]}
    """
    beside = {
        policy: stats.ratio(values[policy], values[UNPATCHED])[0]
        for policy in POLICIES
        if policy != OURS
    }
    return compared(name, unit, values[OURS], values[UNPATCHED], beside=beside)


def alloc(args):
    """Table III of the IISc paper: 4 GiB touched page by page, instructions per page, mean and the
    dearest; slices off when it begins.
    """
    found, images = booted("alloc", ["--mem", "5G"], args)
    new = []
    for key, unit in (("mean", "ratio of instructions per page"),
                      ("worst", "ratio of instructions of the dearest page")):
        def values(state, key=key):
            return {
                arm: [boot[state if arm != UNPATCHED else "on"][key] for boot in boots]
                for arm, boots in found.items()
            }

        on = stats.ratio(values("on")[OURS], values("on")[UNPATCHED])[0]
        new.append(against_unpatched(f"alloc-{key}", unit, values("off")) | {"all_slices_on": on})
    return new, images


def costs(args):
    """Processes, files and pipes by stress-ng, and programs of the kinds that PARSEC has:
    instructions.
    """
    found, images = booted("costs", ["--mem", "1G", "--disk", "1G"], args)
    new = []
    for kind, names in ((kind, found[OURS][0][kind]) for kind in ("micro", "programs")):
        for name in names:
            values = {arm: [boot[kind][name] for boot in boots] for arm, boots in found.items()}
            new.append(against_unpatched(f"{kind}-{name}", "ratio of instructions", values))
    return new, images


PARTS = {"mixture": mixture, "alloc": alloc, "costs": costs}
