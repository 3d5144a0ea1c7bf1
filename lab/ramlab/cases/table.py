# SPDX-License-Identifier: GPL-2.0-or-later
"""What the summaries of case studies say, as a table."""

import itertools

from ramlab.bench import cases

from . import made

HEAD = ("start", "setting", "seed", "guest s", "real s", "off", "attainable", "saved mJ", "invested mJ", "net mJ", "net mW")


def millis(interval):
    return f"{1e3 * interval['low']:.1f}..{1e3 * interval['high']:.1f}"


def rows(runs, scale):
    for r in sorted((r for r in runs if r["scale"] == scale), key=lambda r: (r["start"] == "aged", r["seed"], r["date"])):
        energy, area = r["energy"], r["slice_seconds"]
        watts = cases.milliwatts(r)
        yield (r["start"], r["setting"], str(r["seed"]), f"{r['elapsed_s']:.0f}",
               f"{energy['time_seconds']['low']:.0f}..{energy['time_seconds']['high']:.0f}",
               f"{area['off']:.0f}", f"{area['attainable']:.0f}", millis(energy["saved_joules"]),
               millis(energy["invested_joules"]), millis(energy["net_joules"]), f"{watts[0]:.2f}..{watts[1]:.2f}")


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
        for scale, start, setting in itertools.product(dict.fromkeys(r["scale"] for r in runs), ("fresh", "aged"),
                                                       ("ours", "unlimited")):
            compared = cases.pairs(runs, start, (setting, "nothing"), scale, lambda line: print(f"  {line}"))
            if compared:
                ends = [cases.gain(*p) for p in compared]
                low, high = min(e[0] for e in ends), max(e[1] for e in ends)
                print(f"  {scale}, {start}: {setting} beyond nothing: {low:.2f} to {high:.2f} mW, n = {len(ends)}")
        if name == "import":
            for seed, share, lost in cases.counts(runs):
                print(f"  seed {seed}: unlimited read {100 * share:.0f}% of what it dropped again, "
                      f"{'and lost energy' if lost else 'and did not surely lose energy'}")
        for line in made.sort_out(study)[1]:
            print(f"  {line}")
        if not runs:
            print(f"{name}: no runs yet")
