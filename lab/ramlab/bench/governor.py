# SPDX-License-Identifier: GPL-2.0-or-later
"""Governor: what policies earn on the simulated machine, and how fast it is. No virtual machines.

Seeds follow from the commit, so they are drawn after the defaults are frozen: no person can choose
defaults for them.
"""

import hashlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from . import entries, stats


def simulate(tool, *words):
    """The document of `ramslice-lab sim`, seconds, CPU seconds, and the peak of its memory in GiB.
    """
    line = [str(word) for word in (tool, "sim", *words, "--json")]
    with tempfile.TemporaryFile("w+") as out:
        start = time.monotonic()
        with subprocess.Popen(line, stdout=out) as process:
            # Not wait(): this returns what the program used.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, line)
        out.seek(0)
        return json.load(out), seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / (1 << 20)


def drawn(number):
    """So many seeds, from the commit."""
    digest = hashlib.shake_256(entries.commit().encode()).digest(3 * number)
    return [int.from_bytes(digest[at:at + 3]) for at in range(0, 3 * number, 3)]


def better_than_fixed(tried, policy, middle):
    """A policy at the setting that earned most over all inputs: which, and where it did as well as
    ours or better.
    """
    nets = {}
    for score in tried:
        if score["policy"] == policy:
            key = score["input"], score["seed"]
            nets.setdefault(score["settings"], {})[key] = statistics.fmean(
                score["net_joules"].values()
            )
    setting, net = max(nets.items(), key=lambda item: sum(item[1].values()))
    return {
        "settings": setting,
        "share": statistics.fmean(net[key] >= middle[*key, "governor"] for key in net),
    }


def tournament(args):
    """What the governor at its defaults earns beside others at their best settings, on seeds from
    the commit.
    """
    seeds = drawn(1 if args.quick else 30)
    words = ["tournament", "--sweep", "--coarse", "--seeds", ",".join(map(str, seeds))]
    report, *_ = simulate(
        args.used.program("ramslice-lab"), *words, *(["--for", "4h"] if args.quick else [])
    )
    return judged(report, seeds), {}


def judged(report, seeds):
    """Entries from the tournament's document: each has its figure for every input, and what it is
    uncertain by.
    """
    ours = [score for score in report["scores"] if score["policy"] == "governor"]
    share = [
        score["share_of_clairvoyant"] for score in ours if score["share_of_clairvoyant"] is not None
    ]
    middle = {
        (score["input"], score["seed"], score["policy"]): statistics.fmean(
            score["net_joules"].values()
        )
        for score in report["scores"]
    }
    inputs = [(score["input"], score["seed"]) for score in ours]
    earned = [middle[*key, "governor"] for key in inputs]
    loss = [-net / score["loss_cap_joules"] for net, score in zip(earned, ours)]
    rivals = [row["policy"] for row in report["standings"]
              if row["governor_better"] is not None and row["policy"] != "clairvoyant"]
    # 1 where it did as well as ours or better
    better = {
        name: [int(middle[*key, name] >= net) for key, net in zip(inputs, earned)]
        for name in rivals
    }
    best = max(rivals, key=lambda name: sum(better[name]))
    fixed = {
        name: better_than_fixed(report["tried"], name, middle) for name in rivals if name != "never"
    }
    note = {"seeds": seeds, "inputs": len(ours)}
    median, ci95 = stats.median([1 - s for s in share])
    by_load = {
        name: statistics.median(s["share_of_clairvoyant"] or 0 for s in ours if s["input"] == name)
        for name in sorted({s["input"] for s in ours})
    }
    total = next(row["net_joules"] for row in report["standings"] if row["policy"] == "governor")
    most, most_ci95 = stats.largest(loss)
    share_better, better_ci95 = stats.share(better[best])
    return [
        {
            "name": "governor-share",
            "unit": "1 - median share of the clairvoyant's net",
            "value": median,
            "values": [1 - s for s in share],
            "n": len(share),
            "ci95": ci95,
            "median_share_by_load": by_load,
        }
        | note,
        {
            "name": "governor-total",
            "unit": "J, negative net over all inputs",
            "value": -total["low"],
            "values": [-net for net in earned],
            "ci95": [-total["high"], -total["low"]],
            "n": len(ours),
        }
        | note,
        {
            "name": "governor-cap",
            "unit": "largest loss over the cap",
            "value": most,
            "values": loss,
            "n": len(loss),
            "ci95": most_ci95,
        }
        | note,
        {
            "name": "governor-better",
            "unit": "inputs on which the best other policy was as good or better",
            "value": share_better,
            "values": better[best],
            "n": len(ours),
            "ci95": better_ci95,
            "policy": best,
            "by_policy": {name: statistics.fmean(values) for name, values in better.items()},
            "by_policy_at_one_setting": fixed,
        }
        | note,
    ]


def scale(args):
    """Speed and memory: 6 TiB for a day on one core, 4000 machines for 8 days on two."""
    tool = args.used.program("ramslice-lab")
    new = []
    rounds = 1 if args.quick else 3
    day = [
        "run",
        "diurnal",
        "--memory",
        "6T",
        "--slice",
        "1G",
        "--step",
        "30s",
        "--for",
        "24h",
        "--coarse",
    ]
    runs = [simulate(tool, *day) for _ in range(rounds)]
    new.append(
        stats.mean_entry(
            "sim-6t",
            "CPU seconds",
            [cpu for _, _, cpu, _ in runs],
            seconds=[seconds for _, seconds, *_ in runs],
            peak_gib=max(peak for *_, peak in runs),
        )
    )
    few, many = (100, 400) if args.quick else (1000, 4000)
    each = {}
    for number in (few, many):
        with tempfile.TemporaryDirectory() as folder:
            words = ["fleet", "--generate", number, "--jobs", "2", "--output", f"{folder}/fleet"]
            report, seconds, cpu, peak = simulate(tool, *words)
            size = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
        each[number] = cpu / number
    if not args.quick:
        new.append(
            stats.mean_entry(
                "sim-fleet",
                "seconds",
                [seconds],
                cpu_seconds=cpu,
                machine_steps=report["machine_steps"],
                parquet_bytes=size,
            )
        )
        new.append(stats.mean_entry("sim-fleet-memory", "GiB", [peak]))
    new.append(
        stats.mean_entry(
            "sim-fleet-linear",
            "CPU time per machine, many over few",
            [each[many] / each[few]],
            machines=[few, many],
        )
    )
    return new, {}


PARTS = {"tournament": tournament, "scale": scale}
