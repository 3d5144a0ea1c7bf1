# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep over budgets in the simulator: what `periodic` and the governor would have earned on
recordings of a baseline.

The thesis sweeps budgets by running each (Figures 4.7, 4.8, 4.10). Here, the runs that empty
nothing are recorded, and the simulator plays what their programs wanted of memory under each
budget. So all of these figures are simulated, not measured.
"""

import json
import shutil
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ramlab.cases.conditions import PERIOD_S
from ramlab.common import CACHE, die, put_json

BASELINE = "nothing"
# Of the thesis, for slices of 1 GiB, in units of 100 cycles; a smaller slice costs less, and has
# less to spend.
THESIS_BUDGETS = [1_000_000 << n for n in range(7)]
THESIS_SLICE = 1 << 30
SEEDS = range(1, 6)
COSTS = ("emptying", "waking", "refaults", "transitions")


def folder(case, scale, start, seed):
    return CACHE / "case-recordings" / case / f"{scale}-{start}-{seed}"


def keep(recording, case, entry):
    """Keeps the recording of a baseline's run, and what is to be known of that run, outside of
    git.
    """
    home = folder(case, *(entry[key] for key in ("scale", "start", "seed")))
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    shutil.copytree(recording, home / "recording")
    kept = {key: entry[key] for key in ("scale", "start", "seed", "date")}
    put_json(home / "run.json", kept | {"period_s": PERIOD_S[entry["scale"]]})


def kept(case, scale):
    """The recordings of a case at a scale: [(run, directory)], by start and seed."""
    found = [(json.loads(path.read_text()), path.parent / "recording")
             for path in sorted((CACHE / "case-recordings" / case).glob(f"{scale}-*/run.json"))]
    return sorted(found, key=lambda one: (one[0]["start"] == "aged", one[0]["seed"]))


def settings(slice_bytes):
    """What is tried: policy, budget (0: only what is empty, None: no limit), and whether it is for
    each slice.
    """
    budgets = [budget * slice_bytes // THESIS_SLICE for budget in THESIS_BUDGETS]
    return [
        ("periodic", 0, None),
        *(("periodic", budget, each) for each in (False, True) for budget in budgets),
        ("periodic", None, None),
        ("governor", None, None),
    ]


def policy_file(setting, period_s, path):
    policy, budget, per_slice = setting
    lines = ["schema_version = 1", f'policy = "{policy}"']
    if policy == "periodic":
        lines += [
            "[periodic]",
            f"period_seconds = {period_s}",
            f"per_slice = {'true' if per_slice else 'false'}",
            'budget_100cycles = "inf"' if budget is None else f"budget_100cycles = {budget}",
        ]
    path.write_text("\n".join(lines) + "\n")


def play(program, recording, policy, profile, factor, seed):
    """One run of the simulator, as its document."""
    done = subprocess.run(
        [
            program,
            "sim",
            "run",
            recording,
            "--json",
            "--policy",
            policy,
            "--profile",
            profile,
            "--granularity",
            "slice",
            "--time-factor",
            f"{factor['low']}..{factor['high']}",
            "--seed",
            str(seed),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        die(f"{recording}: {done.stderr}", done.returncode)
    return json.loads(done.stdout)


def ends(documents, *terms):
    """The mean of the sums of these terms, at both ends."""
    return {
        end: rounded(
            statistics.fmean(sum(d[f"{term}_joules"][end] for term in terms) for d in documents)
        )
        for end in ("low", "high")
    }


def rounded(value):
    return float(f"{value:.6g}")


def row(start, setting, documents):
    """What came of a setting over recordings and seeds."""
    policy, budget, per_slice = setting

    def mean(value):
        return rounded(statistics.fmean(value(d) for d in documents))

    return {
        "start": start,
        "policy": policy,
        "budget_100cycles": budget,
        "per_slice": per_slice,
        "n": len(documents),
        "saved_joules": ends(documents, "saved"),
        "invested_joules": ends(documents, *COSTS),
        "refaults_joules": ends(documents, "refaults"),
        "net_joules": ends(documents, "net"),
        "net_range_joules": {
            "low": rounded(min(d["net_joules"]["low"] for d in documents)),
            "high": rounded(max(d["net_joules"]["high"] for d in documents)),
        },
        "slices_off": mean(lambda d: d["mean_offline"]),
        "migrated_pages": mean(lambda d: d["work"]["migrated_pages"]),
        "dropped_pages": mean(lambda d: d["work"]["dropped_pages"]),
        "read_again_pages": mean(lambda d: d["stats"]["packing_refault_pages"]),
        "woken_on_demand": mean(lambda d: d["stats"]["demand_wakes"]),
    }


def measured(runs, scale, start, seeds):
    """What real runs of these seeds say beside it: slices off on average with nothing emptied and
    with no limit, and as many as could have been off at best. Nothing for what was not run."""
    found = {}
    for name, setting, area in (
        ("nothing", BASELINE, "off"),
        ("unlimited", "unlimited", "off"),
        ("attainable", BASELINE, "attainable"),
    ):
        rows = [
            r
            for r in runs
            if (r["scale"], r["start"], r["setting"]) == (scale, start, setting)
            and r["seed"] in seeds
        ]
        if rows:
            found[name] = rounded(
                statistics.fmean(r["slice_seconds"][area] / r["elapsed_s"] for r in rows)
            )
    return found


def swept(program, recordings, slice_bytes, profile, factor, seeds=SEEDS, runs=(), jobs=1):
    """The rows of a sweep over these recordings, and what the simulator assumed."""
    rows, assumed = [], []
    with tempfile.TemporaryDirectory(prefix="sweep-") as home, ThreadPoolExecutor(jobs) as pool:
        for start in dict.fromkeys(run["start"] for run, _ in recordings):
            own = [one for one in recordings if one[0]["start"] == start]
            beside = measured(runs, own[0][0]["scale"], start, {run["seed"] for run, _ in own})
            for setting in settings(slice_bytes):
                path = Path(home) / "policy.toml"
                policy_file(setting, own[0][0]["period_s"], path)
                plays = [(recording, seed) for _, recording in own for seed in seeds]
                documents = list(
                    pool.map(
                        lambda one, path=path: play(program, one[0], path, profile, factor, one[1]),
                        plays,
                    )
                )
                assumed = documents[0]["assumptions"]
                one = row(start, setting, documents)
                if "attainable" in beside:
                    one["attainable_slices_off"] = beside["attainable"]
                name = {("periodic", 0): "nothing", ("periodic", None): "unlimited"}.get(
                    setting[:2]
                )
                if name in beside:
                    one["measured_slices_off"] = beside[name]
                rows.append(one)
    return rows, assumed


def put(document, path):
    """Writes a sweep, a line for each budget."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps(document | {"budgets": []}, indent=1)
    rows = ",\n".join(json.dumps(one) for one in document["budgets"])
    path.write_text(head.replace('"budgets": []', f'"budgets": [\n{rows}\n]') + "\n")


def show(document):
    """Prints a sweep."""
    print(
        f"{document['case']}, {document['scale']}: simulated; joules from the least to the most "
        "of all plays"
    )
    for one in document["budgets"]:
        budget = {0: "nothing", None: "no limit"}.get(
            one["budget_100cycles"], one["budget_100cycles"]
        )
        what = (
            one["policy"]
            if one["policy"] != "periodic"
            else f"{budget}{' a slice' if one['per_slice'] else ''}"
        )
        net, real = one["net_range_joules"], one.get("measured_slices_off")
        print(
            f"  {one['start']:5}  {what:>16}  off "
            f"{one['slices_off']:5.1f}{f' (measured {real:.1f})' if real is not None else '':18}"
            f"  moved {one['migrated_pages']:8.0f}  dropped {one['dropped_pages']:8.0f}"
            f"  net {1e3 * net['low']:8.1f} to {1e3 * net['high']:8.1f} mJ"
        )
