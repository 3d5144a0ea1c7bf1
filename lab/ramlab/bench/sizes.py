# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory sizes: how programs fare with less and less memory; studies of ramlab size, judged.

The studies run first, those of their runs that are missing or stale; a run that is there and counts
is not repeated. What they say of the targets is worked out from results/sizes/*.json. Advice is
judged by them (advice.py), and counts of the page cache by patterns whose hit ratio is known.
"""

import itertools
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import RAMLAB, ROOT, die
from ramlab.kernel.images import image
from ramlab.sizes import STUDIES, conditions, results

from . import machines, stats
from .advice import advice
from .machines import Boot
from .slices import images_of

JOBS = 2
HITS = "bench_hits.py"
HIT_BOOTS = 3
WATERMARKS = "bench_watermarks.py"
WATERMARK_SEEDS = 3
FOLLOWING = "following"
# The ratio that is asked for, and how far below it a setting still holds it
HELD_RATIO, RATIO_MARGIN = 0.97, 0.02
# A look every two seconds, so that a boot lasts minutes and not hours
MARKS = {"timeout_seconds": 2.0, "free_low_mib": 12, "free_high_mib": 28}
FIXED_LOWS, BETWEEN_MIB = (24, 48, 72, 96), 16
# One run of a program that swaps may fault a fifth more or less than the next: seeds of held and
# booted runs up to a share above which nothing faults.
MORE_SEEDS, MORE_UP_TO = {"quicksort": 9}, 1.0
# A ratio of fewer faults than this says nothing.
LEAST_FAULTS = 100
COMPARED = ("pgfault", "pgmajfault", "pgsteal_anon", "pgsteal_file", "pswpin", "pswpout")
# Less than this many of the machine's events are within what one timer tick does.
LEAST_COUNT = 1000
FIGURES = ("performance", "major-faults", "minor-faults", "reclaimed", "read", "swapped")
HEAP_FIGURES = ("performance", "collection")


def commands(quick):
    """The studies as commands of ramlab, in order."""
    scale = ["--scale", "tiny", "--seeds", "1"] if quick else []
    for name, study in STUDIES.items():
        memories = [*methods(name), *["ramp"] * study.can_ramp]
        words = [word for memory in memories for word in ("--memory", memory)]
        yield ["size", name, *words, "--resume", "--jobs", JOBS, *scale]
        if name in MORE_SEEDS and not quick:
            shares = [["--share", share] for share in conditions.SHARES if share <= MORE_UP_TO]
            yield ["size", name, *words, "--seeds", MORE_SEEDS[name], *itertools.chain(*shares),
                   "--resume", "--jobs", JOBS]


def methods(name):
    """How a program is left less, at all shares."""
    if STUDIES[name].is_heap:
        return ["heap"]
    return ["held"] + ["booted"] * (name in conditions.BOOTED)


def kept(scale):
    """{program: its runs at this scale that count now}."""
    found = {}
    for name in STUDIES:
        runs, others = results.sort_out(results.load(name, scale))
        for line in others:
            print(line)
        found[name] = [run for run in runs if run["scale"] == scale]
    return found


def pairs(runs):
    """[(held, booted)] of the same seed and share."""
    by_key = {(run["memory"], run["seed"], run["share"]): run for run in runs}
    return [(by_key["held", seed, share], run) for (memory, seed, share), run in by_key.items()
            if memory == "booted" and ("held", seed, share) in by_key]


def ratio_entry(name, unit, ratios, margin, **more):
    """An entry that is a mean of ratios, and whether they are 1 but for a margin."""
    entry = stats.mean_entry(name, unit, ratios, **more)
    p = stats.equivalent(ratios, [1.0] * len(ratios), margin)
    return entry | {"equivalence": {"margin": margin, "p": p}}


def differences(one, other):
    """{counter: by what share two runs differ}, of counters that counted enough."""
    found = {}
    for name in COMPARED:
        a, b = one["counters"][name], other["counters"][name]
        if max(a, b) >= LEAST_COUNT:
            found[name] = abs(a - b) / max(a, b)
    return found


def judged(found, again=()):
    """Entries from studies, {program: runs}; `again` has pairs of runs with the same orders."""
    new = []
    both = [pair for runs in found.values() for pair in pairs(runs)]
    if both:
        new.append(ratio_entry("held-time", "seconds held over booted",
                               [a["elapsed_s"] / b["elapsed_s"] for a, b in both], 0.03))
        faults = [(a["counters"]["pgmajfault"], b["counters"]["pgmajfault"]) for a, b in both]
        faults = [a / b for a, b in faults if b >= LEAST_FAULTS]
        if faults:
            new.append(ratio_entry("held-faults", "major faults held over booted", faults, 0.1))
    apart = [share for one, other in again for share in differences(one, other).values()]
    if apart:
        value, ci95 = stats.largest(apart)
        new.append({"name": "sizes-repeat", "unit": "share by which counts of one seed differ",
                    "value": value, "ci95": ci95, "n": len(apart), "values": apart})
    slices = {name: run["footprint_kib"] / STUDIES[name].slice_kib
              for name, runs in found.items() for run in runs
              if run["memory"] == "plenty" and not STUDIES[name].is_heap}
    if slices:
        new.append({"name": "sizes-footprint", "unit": "slices of the least footprint",
                    "value": min(slices.values()), "ci95": None, "n": len(slices),
                    "values": slices})
    every = [run["host_s"] for runs in found.values() for run in runs]
    if every:
        new.append({"name": "sizes-host-seconds", "value": max(every), "ci95": None,
                    "unit": "seconds of the host's for the longest run", "n": len(every)})
    if all(is_complete(name, runs) for name, runs in found.items()):
        new.append({"name": "sizes-hours", "unit": "hours for all runs, two at a time",
                    "value": sum(every) / JOBS / 3600, "ci95": None, "n": len(every)})
    return new


def is_complete(name, runs):
    """Whether a study has all its runs."""
    there = {(run["memory"], run["seed"], run["share"]) for run in runs}
    shares = conditions.HEAP_SHARES
    if not STUDIES[name].is_heap:
        least = results.least_share(runs, "full")
        shares = [share for share in conditions.SHARES if share >= least]
    wanted = set(itertools.product(methods(name), range(1, conditions.SEEDS + 1), shares))
    ramps = {run["memory"] for run in runs} >= {"ramp"} or not STUDIES[name].can_ramp
    return wanted <= there and ramps


def missing_figures(program, paths):
    """Ids of the figures that a report of these studies should have and has not."""
    with tempfile.TemporaryDirectory() as folder:
        line = [program, "report", *paths, "-o", f"{folder}/sizes.html", "--json"]
        done = subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True)
    drawn = {figure["id"] for figure in json.loads(done.stdout)["figures"] if figure["drawn"]}
    wanted = set()
    for number, path in enumerate(paths):
        memories = {run["memory"] for run in json.loads(path.read_text())["runs"]}
        names = HEAP_FIGURES if "heap" in memories else FIGURES
        names += ("ramp",) * ("ramp" in memories)
        end = f"-{number + 1}" if len(paths) > 1 else ""
        wanted |= {f"size-{name}{end}" for name in names}
    return sorted(wanted - drawn)


def repeated(name, scale):
    """Pairs of runs with the same orders: each first of its kind once more, its figures beside."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.json"
        line = [RAMLAB, "size", name, "--scale", scale, "--repeat", path]
        if status := subprocess.run([str(word) for word in line], cwd=ROOT).returncode:
            die(f"ramlab size {name} --repeat ended with status {status}", status)
        return [(pair["one"], pair["other"]) for pair in json.loads(path.read_text())]


def sizes(args):
    """Runs what is missing of all studies; held against booted, and what they take."""
    images = {conditions.FLAVOUR: image(conditions.FLAVOUR)}
    args.used.modules.update(conditions.MODULES)
    program = args.used.program("ramslice-lab")
    failed = []
    for words in commands(args.quick):
        print(f"ramlab {' '.join(map(str, words))}", flush=True)
        if status := subprocess.run([str(RAMLAB), *map(str, words)], cwd=ROOT).returncode:
            if status < 0 or status > 128:
                die(f"ramlab {words[0]} {words[1]} was ended", 1)
            failed.append(words[1])
    if failed:
        die(f"these studies failed, as they say above: {', '.join(failed)}. What the others found "
            "is kept: once more, only what is missing runs")
    scale = "tiny" if args.quick else "full"
    again = [pair for name in conditions.BOOTED for pair in repeated(name, scale)]
    new = judged(kept(scale), again)
    paths = [path for name in STUDIES if (path := results.path_of(name, scale)).exists()]
    missing = missing_figures(program, paths)
    new.append({"name": "sizes-figures", "unit": "figures that are missing", "value": len(missing),
                "ci95": None, "n": len(paths), "values": missing})
    return new, images


def hits(args):
    """Hit ratios of page cache that are known beforehand, as the kernel counts them."""
    images = images_of("plain")
    args.used.modules.add("lab/ramlab/guest/hit_ratio.py")
    machine = ["--mem", "1G", "--cpus", "2", "--disk", "512M", "--append", "ramslice=16M"]
    boots = [Boot("plain", "plain", machine, HITS, [])
             for _ in range(1 if args.quick else HIT_BOOTS)]
    found = machines.run(boots, images, "size-hits", args)["plain"]
    known = [one for figures in found for one in figures["known"]]
    if few := [one for one in known if one["lookups"] < one["made"]]:
        die(f"fewer look-ups were counted than were made: {few}")
    value, ci95 = stats.largest([abs(one["counted"] - one["expected"]) for one in known])
    return [{"name": "hits-known", "unit": "distance of a hit ratio from its known answer, most",
             "value": value, "ci95": ci95, "n": len(known), "values": known}], images


def watermarks(args):
    """Watermarks that follow the hit ratio: what they hold, and with how much memory, over fixed
    ones.
    """
    images = images_of("plain")
    args.used.modules.update(("lab/ramlab/guest/hit_ratio.py", "lab/ramlab/guest/daemon.py"))
    daemon = args.used.program("ramsliced")
    arms = {FOLLOWING: MARKS | {"hit_ratio": HELD_RATIO, "least_lookups": 1000,
                                "cache_free_low_mib": FIXED_LOWS[0],
                                "cache_free_high_mib": FIXED_LOWS[0] + BETWEEN_MIB}}
    arms |= {f"fixed-{low}": MARKS | {"cache_free_low_mib": low,
                                      "cache_free_high_mib": low + BETWEEN_MIB}
             for low in FIXED_LOWS}
    machine = ["--mem", "512M", "--cpus", "1", "--disk", "512M", "--append", "ramslice=8M",
               machines.ICOUNT]
    boots = [Boot(arm, "plain", machine, WATERMARKS, [seed, json.dumps(marks)],
                  [f"RAMSLICE_DAEMON={daemon}"])
             for arm, marks in arms.items()
             for seed in range(1, 1 + (1 if args.quick else WATERMARK_SEEDS))]
    found = machines.run(boots, images, "size-watermarks", args)
    return judged_watermarks(found), images


def whole(phases):
    """(hit ratio, mean memory on in MiB) of all phases of a boot."""
    lookups = sum(phase["lookups"] for phase in phases)
    seconds = sum(phase["seconds"] for phase in phases)
    return (sum(phase["hit_ratio"] * phase["lookups"] for phase in phases) / lookups,
            sum(phase["memory_mib"] * phase["seconds"] for phase in phases) / seconds)


def judged_watermarks(found):
    """Entries of boots, {arm: [figures]}."""
    figures = {arm: [whole(boot["phases"]) for boot in boots] for arm, boots in found.items()}
    means = {arm: tuple(map(statistics.fmean, zip(*both))) for arm, both in figures.items()}
    ratios = [ratio for ratio, _ in figures[FOLLOWING]]
    below = [max(0, HELD_RATIO - ratio) for ratio in ratios]
    new = [stats.mean_entry("watermarks-ratio", "hit ratio below the one asked for", below,
                            ratios=ratios, phases=[boot["phases"] for boot in found[FOLLOWING]],
                            arms=means)]
    # As good as what follows has to be
    holds = {arm: memory for arm, (ratio, memory) in means.items()
             if arm != FOLLOWING and ratio >= HELD_RATIO - RATIO_MARGIN}
    if holds:
        best = min(holds, key=holds.get)
        value, ci95 = stats.ratio(*([memory for _, memory in figures[arm]]
                                    for arm in (FOLLOWING, best)))
        new.append({"name": "watermarks-memory", "value": value, "ci95": ci95, "best": best,
                    "unit": "memory on, over the best fixed watermarks that hold the ratio",
                    "values": [memory for _, memory in figures[FOLLOWING]],
                    "baseline": [memory for _, memory in figures[best]], "n": len(ratios)})
    return new


PARTS = {"sizes": sizes, "hits": hits, "watermarks": watermarks, "advice": advice}
