# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs of case studies say, as a table; and their rows as the summary that git keeps."""

import itertools
import json
import os

from ramlab.bench import cases
from ramlab.common import ROOT

from . import conditions

KEPT = ROOT / "results/cases/runs.json"

HEAD = (
    "start",
    "setting",
    "seed",
    "guest s",
    "real s",
    "off",
    "attainable",
    "saved mJ",
    "invested mJ",
    "net mJ",
    "net mW",
)


def millis(interval):
    return f"{1e3 * interval['low']:.1f}..{1e3 * interval['high']:.1f}"


def rows(runs, scale):
    for r in sorted(
        (r for r in runs if r["scale"] == scale),
        key=lambda r: (r["start"] == "aged", r["seed"], r["date"]),
    ):
        energy, area = r["energy"], r["slice_seconds"]
        watts = cases.milliwatts(r)
        yield (
            r["start"],
            r["setting"],
            str(r["seed"]),
            f"{r['elapsed_s']:.0f}",
            f"{energy['time_seconds']['low']:.0f}..{energy['time_seconds']['high']:.0f}",
            f"{area['off']:.0f}",
            f"{area['attainable']:.0f}",
            millis(energy["saved_joules"]),
            millis(energy["invested_joules"]),
            millis(energy["net_joules"]),
            f"{watts[0]:.2f}..{watts[1]:.2f}",
        )


def summarised(name, run):
    """A run as a row that git keeps: what it was, when, and its figures; raw results stay outside.
    """
    energy, area = run["energy"], run["slice_seconds"]
    low, high = cases.milliwatts(run)
    return {
        "case": name,
        **{key: run[key] for key in ("scale", "start", "setting", "seed", "date")},
        "guest_seconds": round(run["elapsed_s"], 1),
        "slice_seconds_off": round(area["off"], 1),
        "slice_seconds_attainable": round(area["attainable"], 1),
        **{
            f"{key}_joules": [round(energy[f"{key}_joules"][end], 6) for end in ("low", "high")]
            for key in ("saved", "invested", "net")
        },
        "net_milliwatts": [round(low, 4), round(high, 4)],
    }


def keep(found, path=KEPT):
    """Replaces the rows of these studies in the summary that git keeps, a line for each run."""
    others = json.loads(path.read_text())["runs"] if path.exists() else []
    kept = [row for row in others if row["case"] not in found]
    kept += [summarised(name, run) for name, study in found.items() for run in study["runs"]]
    kept.sort(key=lambda r: (r["case"], r["scale"], r["start"] == "aged", r["seed"], r["setting"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(row) for row in kept)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(f'{{"schema_version": 1, "runs": [\n{rows}\n]}}\n')
    os.replace(fresh, path)


def show(found):
    """Prints the runs of each study, and what the baseline's are compared with."""
    for name, study in found.items():
        runs = study["runs"]
        for scale in dict.fromkeys(r["scale"] for r in runs):
            table = [HEAD, *rows(runs, scale)]
            widths = [max(len(row[n]) for row in table) for n in range(len(HEAD))]
            print(f"{name}, {scale}; off and attainable in slice-seconds of the guest")
            for row in table:
                print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)))
        for scale, start, setting in itertools.product(
            dict.fromkeys(r["scale"] for r in runs), ("fresh", "aged"), ("ours", "unlimited")
        ):
            compared = cases.pairs(
                runs, start, (setting, "nothing"), scale, lambda line: print(f"  {line}")
            )
            if compared:
                ends = [cases.gain(*p) for p in compared]
                low, high = min(e[0] for e in ends), max(e[1] for e in ends)
                print(
                    f"  {scale}, {start}: {setting} beyond nothing: {low:.2f} to {high:.2f} mW, "
                    f"n = {len(ends)}"
                )
        if name == "import":
            for seed, share, lost in cases.counts(runs):
                print(f"  seed {seed}: unlimited read {100 * share:.0f}% of what it dropped again, "
                      f"{'and lost energy' if lost else 'and did not surely lose energy'}")
        for line in conditions.sort_out(study)[1]:
            print(f"  {line}")
        if not runs:
            rows_kept = json.loads(KEPT.read_text())["runs"] if KEPT.exists() else []
            nr = sum(row["case"] == name for row in rows_kept)
            print(f"{name}: no runs in this machine's cache; {KEPT.relative_to(ROOT)} has {nr}")
