# SPDX-License-Identifier: GPL-2.0-or-later
"""Case studies: what their kept runs say of the targets. Nothing is run here: that is ramlab case.

Runs of one seed are compared with each other: they did the same work, and were judged by the same
profile. An interval spans what the ledger leaves open of their difference, and how the seeds
differ. What the ledger of one run cannot know, how much longer the work took than without, follows
from the two, at the profile's power of the whole machine.
"""

import json
import math
import statistics
import tomllib

from ramlab import provenance
from ramlab.cases import conditions
from ramlab.common import CACHE, ROOT
from ramlab.kernel.images import image

from . import stats

BEST, BASELINE = "ours", "nothing"


def summary_path(name):
    """Where the runs of a study are: raw results stay outside of git."""
    return CACHE / f"raw/cases/{name}.json"


def summary(name):
    """What is kept of a study."""
    path = summary_path(name)
    return json.loads(path.read_text()) if path.exists() else {"case": name, "runs": []}


def load(name):
    """The kept runs that are made as things are now: others are left out, and reported.
    """
    runs, left_out = conditions.sort_out(summary(name))
    for line in left_out:
        print(line)
    return runs


def depends(found):
    """What an entry worked out from these pairs of runs depends on: their conditions, and this
    module.
    """
    module = provenance.path_ids(["lab/ramlab/bench/cases.py"])
    return conditions.of(found[0][0])["depends"] | module


def pairs(runs, start="fresh", settings=(BEST, BASELINE), scale="full", tell=lambda line: None):
    """Runs of the same seed with each of the settings: [(ours, baseline)]. Smaller scales are no
    evidence. Two that were not made with the same of everything are not compared, but reported."""
    rows = {
        (r["seed"], r["setting"]): r for r in runs if r["scale"] == scale and r["start"] == start
    }
    found = []
    for seed in sorted({seed for seed, _ in rows}):
        if not all((seed, s) in rows for s in settings):
            continue
        ours, baseline = (rows[seed, s] for s in settings)
        which = f"{scale}, {start}, seed {seed}: {' and '.join(settings)} are not compared"
        if differ := conditions.differing(conditions.of(ours), conditions.of(baseline)):
            tell(f"{which}: they differ in {', '.join(differ)}")
        elif "disk_used" not in ours or "disk_used" not in baseline:
            tell(f"{which}: they are so old that they do not say what their disk did")
        else:
            found.append((ours, baseline))
    return found


def milliwatts(run):
    """Mean net power of a run in real time: its ends, at the factor that the ledger used for each.
    """
    net, time = run["energy"]["net_joules"], run["energy"]["time_seconds"]
    middle = math.sqrt(time["low"] * time["high"])
    return 1e3 * net["low"] / middle, 1e3 * net["high"] / middle


def terms(run):
    """What was saved and what each line of the ledger invested, as mean power at both ends, in mW.
    Unknown lines are left out.
    """
    time = run["energy"]["time_seconds"]
    middle = math.sqrt(time["low"] * time["high"])
    found = {"saved": run["energy"]["saved_joules"]}
    found |= {line["term"]: line["joules"] for line in run["energy"]["lines"] if line["joules"]}
    return {
        term: (1e3 * joules["low"] / middle, 1e3 * joules["high"] / middle)
        for term, joules in found.items()
    }


def platform_watts():
    """Power of the whole machine while it works, at least and at most."""
    power = tomllib.loads((ROOT / f"profiles/{conditions.PROFILE}.toml").read_text())["machine"][
        "platform_power"
    ]
    return power["low"], power["high"]


def longer(ours, baseline):
    """What it takes, as mean power in mW at both ends, that one run's work took longer than the
    other's.

    Time is counted, not taken from a clock, in which what else the host did is a hundred times
    what is looked for: the work's processor time, by instructions, and what the disk needs for the
    bytes that one moved and the other did not, of which the work waits for nothing at least and
    for all at most.
    """
    computing = ours["cpu_s"] - baseline["cpu_s"]
    waiting = (ours["disk_used"]["bytes"] - baseline["disk_used"]["bytes"]) / ours["disk"][
        "read_bytes_per_s"
    ]
    shares = [(computing + wait) / ours["elapsed_s"] for wait in (0.0, waiting)]
    ends = [1e3 * share * watts for share in shares for watts in platform_watts()]
    return min(ends), max(ends)


def gain(ours, baseline, run_time=True):
    """By how much more power one saves than the other, at least and at most; with what a longer
    run takes, or without.

    What is uncertain is what a slice that is off saves, what an operation costs and how slow the
    guest is: of each term, the same in both runs. So a term's difference lies between those of its
    ends; terms are taken as independent of each other.
    """
    cost = longer(ours, baseline) if run_time else (0.0, 0.0)
    ours, baseline = terms(ours), terms(baseline)
    low, high = -cost[1], -cost[0]
    for term in ours.keys() | baseline.keys():
        differences = [
            a - b for a, b in zip(ours.get(term, (0.0, 0.0)), baseline.get(term, (0.0, 0.0)))
        ]
        if term != "saved":
            differences = [-d for d in differences]
        low, high = low + min(differences), high + max(differences)
    return low, high


def _spread(values):
    return (
        stats.t_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
        if len(values) > 1
        else 0.0
    )


def entry(name, unit, ends, found, **more):
    """An entry of values that have a low and a high end each."""
    low, high = [e[0] for e in ends], [e[1] for e in ends]
    middles = [(a + b) / 2 for a, b in ends]
    return {
        "name": name,
        "value": statistics.fmean(middles),
        "unit": unit,
        "values": middles,
        "n": len(ends),
        "ci95": [statistics.fmean(low) - _spread(low), statistics.fmean(high) + _spread(high)],
        "scale": found[0][0]["scale"],
        "start": found[0][0]["start"],
        "seeds": [p[0]["seed"] for p in found],
    } | more


def net_entry(name):
    """Net power of the best fixed setting beyond the baseline's; without what a longer run takes
    beside it.
    """
    found = pairs(load(name))
    if not found:
        return []
    ledger = entry("ledger", "", [gain(*p, run_time=False) for p in found], found)
    return [
        entry(
            f"{name}-net",
            "mW beyond the baseline",
            [gain(*p) for p in found],
            found,
            depends=depends(found),
            beside={"value without run time": ledger["value"], "its ci95": ledger["ci95"]},
        )
    ]


def counts(runs):
    """The share of dropped pages that the unlimited setting read again from the disk, and whether
    it lost energy: the study of the import counts only if that is at least 0.3, and it lost, in
    all seeds. [(seed, share, lost)]"""
    rows = []
    for unlimited, baseline in pairs(runs, settings=("unlimited", BASELINE)):
        dropped = unlimited["energy"]["work"]["dropped_pages"] * 4096
        again = unlimited["disk_read_bytes"] - baseline["disk_read_bytes"]
        rows.append(
            (
                unlimited["seed"],
                again / dropped if dropped else 0.0,
                milliwatts(unlimited)[1] < milliwatts(baseline)[0],
            )
        )
    return rows


def import_entry():
    """Slice-seconds off of those attainable, where the net is not below the baseline's.

    By the ledger, that is so or not in each seed. How long the work takes varies more between runs
    than that: only if it surely took longer, over all seeds, nothing counts.
    """
    runs = load("import")
    found, valid = pairs(runs), counts(runs)
    if not found or not valid or not all(share >= 0.3 and lost for _, share, lost in valid):
        return []
    slower = entry("run-time", "", [longer(*p) for p in found], found)
    shares = []
    for ours, baseline in found:
        area = ours["slice_seconds"]
        held = gain(ours, baseline, run_time=False)[0] >= 0 and slower["ci95"][0] <= 0
        shares.append(area["off"] / area["attainable"] if held else 0.0)
    return [
        entry(
            "import-off",
            "share of the attainable slice-seconds",
            [(s, s) for s in shares],
            found,
            depends=depends(found),
            reread=[share for _, share, _ in valid],
            beside={"mW that a longer run takes": slower["value"], "its ci95": slower["ci95"]},
        )
    ]


def cases(_args=None):
    """Net energy and slices off in the kept runs of the case studies."""
    images = {"plain": image("plain")}
    new = net_entry("compile") + net_entry("tpch") + import_entry()
    return new, images


PARTS = {"cases": cases}
