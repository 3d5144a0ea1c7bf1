# SPDX-License-Identifier: GPL-2.0-or-later
"""results/sizes/NAME.json: the runs of a study, as docs/reference/sizes.md describes it.

Runs at the scale tiny are no evidence, and stay in out/sizes.
"""

import collections
import functools
import json
import os

from ramlab.common import OUT, ROOT

from . import STUDIES, conditions

SCHEMA_VERSION = 1
PAGE_KIB = 4
# What makes a run the same run as another one.
KEYS = ("scale", "memory", "seed", "share")


def path_of(name, scale="full"):
    return (OUT / "sizes" if scale == "tiny" else ROOT / "results/sizes") / f"{name}.json"


def load(name, scale="full", path=None):
    """A study's document; one without runs if there is none."""
    path = path or path_of(name, scale)
    if path.exists():
        return json.loads(path.read_text())
    return {"schema_version": SCHEMA_VERSION, "kind": "sizes", "program": name, "runs": []}


def save(document, path):
    """Writes a study, a line for each run, in the order of sizes."""
    order = {memory: at for at, memory in enumerate(("plenty", "held", "booted", "heap", "ramp"))}
    runs = sorted(document["runs"], key=lambda run: (
        run["scale"], order[run["memory"]], run["seed"], run["share"] or 0))
    head = {"schema_version": SCHEMA_VERSION, "kind": "sizes", "program": document["program"],
            "what": STUDIES[document["program"]].what, "runs": []}
    rows = ",\n".join(json.dumps(rounded(run)) for run in runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(head, indent=1).replace('"runs": []', f'"runs": [\n{rows}\n]')
                     + "\n")
    os.replace(fresh, path)


def rounded(value):
    """Seven significant digits: no figure here has more."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def same(one, other):
    return all(one[key] == other[key] for key in KEYS)


def add(name, run, path=None):
    """Adds a run to its study's document, in place of the same run of before."""
    path = path or path_of(name, run["scale"])
    document = load(name, path=path)
    document["runs"] = [one for one in document["runs"] if not same(one, run)] + [run]
    save(document, path)


def sort_out(document):
    """The runs that count now, and a line for each kind of the others that says why not."""
    name = document["program"]
    as_now = functools.cache(lambda scale, memory: conditions.now(name, scale, memory))
    kept, others = [], collections.Counter()
    for run in document["runs"]:
        differ = conditions.differing(run, as_now(run["scale"], run["memory"]))
        if differ:
            others[run["scale"], ", ".join(differ)] += 1
        else:
            kept.append(run)
    return kept, [f"{name}, {scale}: {nr} stale, of another {parts}"
                  for (scale, parts), nr in others.items()]


def footprint_of(runs, scale):
    """The footprint that a run with plenty of memory found, in KiB; None if there was none."""
    found = [run["footprint_kib"] for run in runs
             if run["memory"] == "plenty" and run["scale"] == scale]
    return found[-1] if found else None


def least_share(runs, scale):
    """The share of the footprint that a machine keeps free in any case: its awake reserves; 0 if no
    run with plenty of memory is there.
    """
    found = [run for run in runs if run["memory"] == "plenty" and run["scale"] == scale]
    if not found:
        return 0.0
    kept = sum(min(zone["awake_reserve_pages"], zone["managed_pages"])
               for zone in found[-1]["zones_before"].values())
    return kept * PAGE_KIB / found[-1]["footprint_kib"]


def rows(runs):
    """The head and the rows of a table of runs, as text."""
    yield ("memory", "seed", "share", "left MiB", "host s", "guest s", "performance", "major",
           "minor", "reclaimed", "MiB read", "swapped in", "swapped out")
    for run in runs:
        did = run.get("counters")
        head = (run["memory"], str(run["seed"]), f"{run['share'] or 0:g}",
                f"{run['size_kib'] / 1024:.1f}", f"{run['host_s']:.0f}", f"{run['elapsed_s']:.2f}")
        if not did:
            yield (*head, f"{run['ramp_steps']} steps", *[""] * 6)
            continue
        speed = run["performance"]
        yield (*head, f"{speed['value']:.3f} {speed['unit']}", str(did["pgmajfault"]),
               str(did["pgfault"] - did["pgmajfault"]), str(reclaimed(did)),
               f"{run['disk']['read_bytes'] / 2**20:.0f}", str(did["pswpin"]),
               str(did["pswpout"]))


def reclaimed(counters):
    """Pages reclaimed, by whichever task."""
    return sum(counters.get(name, 0)
               for name in ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged"))


def show(name, scale):
    """Prints the runs of a study."""
    document = load(name, scale)
    kept, others = sort_out(document)
    table = list(rows(kept))
    if len(table) > 1:
        print(f"{name}: {STUDIES[name].what}")
        widths = [max(len(row[n]) for row in table) for n in range(len(table[0]))]
        for row in table:
            print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)))
    elif not others:
        print(f"{name}: no runs yet")
    for line in others:
        print(f"  {line}")
    if others:
        print(f"  ramslice-lab report results/sizes/{name}.json draws these, too")
