# SPDX-License-Identifier: GPL-2.0-or-later
"""Advice on memory, judged: what `ramslice-lab advise` expects of other sizes, by one recorded run
of each program at one size, against what the studies of `ramlab size` measured there.

Parts of the suite size. Runs that are judged have other seeds than the recorded one.
"""

import concurrent.futures
import csv
import io
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import built, die
from ramlab.kernel.images import image
from ramlab.sizes import STUDIES, command, conditions, disk_modules, results

from . import stats

# Not Java's garbage: its heap is limited, not memory
PROGRAMS = tuple(name for name, study in STUDIES.items() if not study.is_heap)
RECORDED = {"scale": "full", "memory": "held", "seed": 1, "share": 0.85}
JUDGED_SEED = 2
# The share with which nothing is slowed down
PLENTY = 1.6
# Of what a run takes: how often pages are looked at, within bounds in ms, and for how long before
# it begins. A quarter of a recording only watches: that much, as a recorded run takes a sixth
# longer. With more, idle time would count as the program's.
LOOKS, LEAST_LOOK_MS, MOST_LOOK_MS = 120, 20, 100
LEAD = 0.38
# Of the processor: one that makes 10^9 instructions a second is some ten times slower than others
LOOKS_CPU = "25%"
LIMIT = 0.05
# Points with a smaller slowdown are judged by nothing
LEAST_SLOWDOWN = 0.01
# How far above the least memory an advised size may be, as a share of what is left to the program
ABOVE = 0.1


def held(name):
    """{(seed, share): run} of a study's held runs that count now; nothing if the one that is
    recorded once more is not among them, or none with another seed and plenty to compare with.
    """
    runs, _ = results.sort_out(results.load(name))
    found = {(run["seed"], run["share"]): run for run in runs
             if run["scale"] == "full" and run["memory"] == "held"
             # Those that every program has
             and run["seed"] <= conditions.SEEDS}
    recorded = (RECORDED["seed"], RECORDED["share"]) in found
    return found if recorded and (JUDGED_SEED, PLENTY) in found else {}


def studied(names):
    """Those of the programs that have been studied; ends the program without any."""
    found = [name for name in names if held(name)]
    if left := [name for name in names if name not in found]:
        print(f"advice: {', '.join(left)} left out, for want of runs that count: 'ramlab bench "
              "size --only sizes' makes them", flush=True)
    return found or die("no program has been studied", 2)


def recorder(run):
    """The orders of a recorder, for a program whose run took as long as this one."""
    look_ms = round(1000 * run["elapsed_s"] / LOOKS)
    look = f"{min(max(look_ms, LEAST_LOOK_MS), MOST_LOOK_MS)}ms"
    return {"words": ["--statistics-only", "--every", look, "--reuse", look, "--reuse-cpu",
                      LOOKS_CPU],
            "lead_s": LEAD * run["elapsed_s"]}


class Advised:
    """A program's study, its recorded run, and the advice on that."""

    def __init__(self, name, folder):
        self.name, self.folder = name, Path(folder) / name
        self.study = command.Study(name, "full")
        self.runs = held(name)
        self.advice = self.account = self.uses = None

    def record(self):
        """Carries out the recorded run, and asks for advice."""
        run = self.runs[RECORDED["seed"], RECORDED["share"]]
        self.account = command.carry_out(
            self.name, "full", RECORDED, self.study.modules, self.study.found(),
            recorder(run) | {"to": self.folder})
        line = [built("ramslice-lab"), "advise", self.folder, "--json", "--slowdown",
                f"{LIMIT:.0%}"]
        done = subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True)
        self.advice = json.loads(done.stdout)
        self.uses = program_page_uses(self.folder)
        return self

    def points(self):
        """[(run, its slowdown, size, what is expected there)] of judged runs within the curve."""
        found = []
        for (seed, _), run in sorted(self.runs.items()):
            if seed == RECORDED["seed"] or (seed, PLENTY) not in self.runs:
                continue
            slowdown = run["elapsed_s"] / self.runs[seed, PLENTY]["elapsed_s"] - 1
            if outlook := at_size(self.advice, (run["size_kib"] + self.beside_kib()) << 10):
                found.append((run, slowdown, outlook))
        return found


    def beside_kib(self):
        """Memory of the recorded machine that is not left to the program: its floor, which has the
        recorder's file in the RAM disk, and what a disk took.
        """
        return self.account["floor_kib"] + self.account["filled_kib"]


def program_page_uses(folder):
    """How often pages of programs were seen to be used while a recording was made, each once per
    look, in pages of the whole memory.
    """
    line = [built("ramslice-lab"), "dump", folder, "--table", "vmstat"]
    done = subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True)
    last = {row["name"]: int(row["value"]) for row in csv.DictReader(io.StringIO(done.stdout))}
    rate = last["ramslice_reuse_sampled_frames"] / last["ramslice_reuse_all_frames"]
    uses = sum(value for name, value in last.items()
               if name.startswith("ramslice_reuse_anon_") and ("_scans_" in name
                                                               or name.endswith("_arrived")))
    return uses / rate


def at_size(advice, memory):
    """What is expected of so many bytes, between the two sizes around it; None outside the curve.
    """
    sizes = advice["sizes"]
    for less, more in zip(sizes, sizes[1:], strict=False):
        low, high = less["memory_bytes"], more["memory_bytes"]
        if low <= memory <= high:
            part = (memory - low) / (high - low)
            return between(less, more, part)
    if sizes and memory > sizes[-1]["memory_bytes"]:
        # More than would be used: as at the end
        return sizes[-1]
    return None


def between(less, more, part):
    """Two outlooks, number by number."""
    if isinstance(less, dict):
        return {key: between(less[key], more[key], part) for key in less}
    if less is None or more is None:
        return None
    return less * (1 - part) + more * part


def record_all(names, jobs, folder):
    """The advised programs, some recorded at a time."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(Advised(name, folder).record) for name in names]
        found = []
        for name, future in zip(names, waiting):
            found.append(future.result())
            least = found[-1].advice["least_bytes"]
            print(f"advice: {name} recorded, {found[-1].account['host_s']:.0f} host s; "
                  f"{f'{least / 2**20:.1f} MiB' if least else 'nothing'} advised", flush=True)
    return found


def slowdown_entries(advised):
    """Whether slowdowns are where they are expected, and how exact that is."""
    points = [point_of(one, *point) for one in advised for point in one.points()]
    judged = [point for point in points if point["measured"] > LEAST_SLOWDOWN]
    programs = sorted({point["program"] for point in judged})
    inside = [point["low"] <= point["measured"] <= point["high"] for point in judged]
    widths = [100 * (point["high"] - point["low"]) for point in judged]
    width, ci95 = stats.median(widths)
    return [
        {"name": "predicted-inside", "n": len(inside), "programs": programs, "points": points,
         "value": statistics.fmean(inside), "ci95": None,
         "unit": "share of points whose slowdown is within the expected 95% interval"},
        {"name": "predicted-width", "n": len(widths), "values": widths, "value": width,
         "ci95": ci95, "unit": "median width of that interval in points of a percent"},
    ]


def point_of(one, run, slowdown, outlook):
    expected = outlook["slowdown"]
    return {"program": one.name, "seed": run["seed"], "share": run["share"],
            "measured": slowdown} | expected


def ratio_entries(advised):
    """How far miss ratios are from what was expected: of files by look-ups, of programs' memory by
    pages used per look.
    """
    files, anon = [], []
    for one in advised:
        for run, _, outlook in one.points():
            did = run["counters"]
            lookups = did["ramslice_lookup_read"] + did["ramslice_lookup_fault"]
            at = {"program": one.name, "seed": run["seed"], "share": run["share"]}
            if outlook["hit_ratio"] and lookups >= 10_000:
                wanted = did["ramslice_readahead"] - did["ramslice_readahead_unused"]
                # As hit ratios end at 0: of a mapped file, one look-up may bring many pages
                files.append(at | {"measured": min(max(0, wanted) / lookups, 1),
                                   "expected": 1 - outlook["hit_ratio"]["value"]})
            if one.uses >= 10_000:
                anon.append(at | {"measured": did["pswpin"] / one.uses,
                                  "expected": anon_misses(one.advice, outlook) / one.uses})
    found = []
    for name, points, of in (("miss-ratio-files", files, "files, of look-ups"),
                             ("miss-ratio-programs", anon, "programs, of pages used per look")):
        if points:
            apart = [abs(point["measured"] - point["expected"]) for point in points]
            found.append(stats.mean_entry(name, f"distance of miss ratios of {of}", apart,
                                          points=points))
    return found


def anon_misses(advice, outlook):
    """Pages of programs that are expected to be swapped in during all of the recorded work."""
    present = at_size(advice, advice["memory_bytes"])
    slower = (1 + outlook["slowdown"]["value"]) / (1 + present["slowdown"]["value"])
    return outlook["anon_faults_per_second"] * advice["seconds"] * slower


def tried(one):
    """What the advised size costs, and one that is ABOVE, or a slice, below it."""
    seed = JUDGED_SEED
    found, least = one.study.found(), one.advice["least_bytes"]
    best = one.runs[seed, PLENTY]
    floor_kib = one.beside_kib()
    left_kib = (least >> 10) - floor_kib
    less_kib = left_kib - max(ABOVE * left_kib, STUDIES[one.name].slice_kib)
    figures = {"program": one.name, "advised_mib": least / 2**20, "floor_mib": floor_kib / 1024}
    for key, kib in (("advised", left_kib), ("less", less_kib)):
        share = kib / found["footprint_kib"]
        run = {"scale": "full", "memory": "held", "seed": seed, "share": share}
        did = command.carry_out(one.name, "full", run, one.study.modules, found)
        figures[key] = {"size_kib": did["size_kib"], "host_s": did["host_s"],
                        "slowdown": did["elapsed_s"] / best["elapsed_s"] - 1}
    print(f"advice: {one.name}: {figures['advised']['slowdown']:.1%} slower with the advised "
          f"{figures['advised_mib']:.1f} MiB, {figures['less']['slowdown']:.1%} with less",
          flush=True)
    return figures


def tried_entries(advised, jobs):
    """Whether what is advised keeps the limit, and whether less does."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(tried, [one for one in advised if one.advice["least_bytes"]]))
    below = [one["program"] for one in found if one["advised"]["slowdown"] > LIMIT]
    above = [one["program"] for one in found if one["less"]["slowdown"] <= LIMIT]
    return [
        {"name": "advised-below", "n": len(found), "value": len(below), "ci95": None,
         "unit": "programs that the advised size slows down by more than 5%", "programs": below,
         "figures": found},
        {"name": "advised-above", "n": len(found), "value": len(above), "ci95": None,
         "unit": "programs that a slice or 10% less slows down by at most 5%, too",
         "programs": above},
    ]


def advice(args):
    """What one recorded run of each program says of other sizes, against runs at these; what it
    advises is tried.
    """
    images = {conditions.FLAVOUR: image(conditions.FLAVOUR)}
    args.used.modules.update(conditions.MODULES)
    args.used.guest_script("recorder.py")
    args.used.program("ramslice-lab")
    names = studied(("readers",) if args.quick else PROGRAMS)
    disk_modules.build(images[conditions.FLAVOUR])
    with tempfile.TemporaryDirectory(prefix="advice-", dir="/var/tmp") as folder:
        advised = record_all(names, args.jobs, folder)
        new = slowdown_entries(advised) + ratio_entries(advised)
        return new + tried_entries(advised, args.jobs), images
