# SPDX-License-Identifier: GPL-2.0-or-later
"""Energy: how well prices predict what emptying slices costs, fitted to artificial mixtures,
judged on real programs.

Each part boots the patched kernel, takes samples there, keeps them in the cache
(raw/prices-PART.json), and has `ramslice-lab calibrate` evaluate them on the
host; `ramslice-lab calibrate --from FILE` does the same at any time.
"""

import collections
import itertools
import json
import random
import subprocess

from ramlab.common import CACHE, OUT
from ramlab.kernel.images import image

from . import cases, machines
from .machines import ICOUNT, Boot

SCRIPT = "bench_energy.py"
MACHINE = ["--mem", "1500M", "--disk", "400M", "--append", "ramslice=16M"]


# So many slices of programs are judged and kept: ten times as many need a file of a megabyte, and
# say hardly more.
MOST_HELD_OUT = 400


def drawn(boots):
    """The samples of each boot: all that models are fitted to, and of those of programs so many
    that all together are at most MOST_HELD_OUT. From each program of each boot the same number, as
    far as it has them; which, a fixed seed decides."""
    groups = collections.defaultdict(list)
    for number, rows in enumerate(boots):
        for place, row in enumerate(rows):
            if row["origin"] == "program":
                groups[number, row["label"]].append((number, place))
    chance = random.Random(1)
    for group in groups.values():
        chance.shuffle(group)
    # One of each in turn
    in_turn = (one for turn in itertools.zip_longest(*groups.values()) for one in turn if one)
    kept = set(itertools.islice(in_turn, MOST_HELD_OUT))
    return [
        [
            row
            for place, row in enumerate(rows)
            if row["origin"] != "program" or (number, place) in kept
        ]
        for number, rows in enumerate(boots)
    ]


def together(boots, file):
    """The samples of several boots as one file, which is small enough to keep: one line for each.
    What is not kept is not judged, either."""
    documents = [json.loads((boot.folder / "result.json").read_text()) for boot in boots]
    rows = [row for rows in drawn([document["samples"] for document in documents]) for row in rows]
    head = documents[0] | {
        "samples": [],
        "changed_samples": sum(d["changed_samples"] for d in documents),
        "noise": max(d["noise"] for d in documents),
    }
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(head, separators=(",", ":"))[:-2] + f"\n{lines}\n]}}\n")


def evaluated(part, tool, file):
    """Entries from what the tool says of the samples. Of the rank correlation, what it lacks to 1.
    """
    done = subprocess.run(
        [tool, "calibrate", "--json", "--from", file], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(done.stdout)
    judged = {model["model"]: model["held_out"] for model in found["models"]}
    ours = judged["ours"]

    def interval(key):
        return [ours[f"{key}_ci95"][end] for end in ("low", "high")]

    def beside(key):
        return {f"model {name}": row[key] for name, row in judged.items() if name != "ours"}

    rank = interval("rank_correlation")
    common = {"n": ours["n"], "noise": found["noise"], "parameters": found["parameters_100cycles"]}
    return [
        {
            "name": f"price-error-p99-{part}",
            "unit": "share of the largest cost",
            "value": ours["p99_of_largest"],
            "ci95": interval("p99_of_largest"),
            "beside": beside("p99_of_largest"),
        }
        | common,
        {
            "name": f"price-rank-{part}",
            "unit": "1 - rank correlation",
            "value": 1 - ours["rank_correlation"],
            "ci95": [1 - rank[1], 1 - rank[0]],
            "beside": {k: 1 - v for k, v in beside("rank_correlation").items()},
        }
        | common,
        {
            "name": f"price-regret-{part}",
            "unit": "extra cycles",
            "value": ours["regret"],
            "ci95": interval("regret"),
            "beside": beside("regret") | {"at the worst budget": ours["regret_worst"]},
        }
        | common,
    ]


def prices(part, words, args):
    """One way to count cycles."""
    tool = args.used.program("ramslice-lab")
    images = {"plain": image("plain")}
    boots = [Boot("ours", "plain", [*MACHINE, *words], SCRIPT, [tool, str(seed)])
             for seed in range(1, 2 if args.quick else 4)]
    machines.run(boots, images, f"prices-{part}", args)
    file = (OUT / "bench" if args.quick else CACHE / "raw") / f"prices-{part}.json"
    together(boots, file)
    return evaluated(part, tool, file), images


def counted(args):
    """Prices under instruction counting: a cycle is an instruction."""
    return prices("counted", [ICOUNT, "--cpus", "1"], args)


def emulated(args):
    """Prices under plain emulation: a cycle is what the host took for it, with whatever else it
    did.
    """
    return prices("emulated", ["--cpus", "2"], args)


PARTS = {"counted": counted, "emulated": emulated} | cases.PARTS
