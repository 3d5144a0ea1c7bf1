#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Stresses the debug kernel for a long time and keeps a summary in out/soak.json.

After half an hour or more, eight minutes for kind cold, it keeps one in results/, too.

Usage: ramlab soak [--minutes N] [--round N] [--only churn|stress|daemon|cold] [--mem SIZE]
                   [--seed N] [--kernel FLAVOUR]

It runs rounds of some minutes of load, each in a guest of its own and of the next kind:
- churn: loads that know what every byte must be (lab/ramlab/guest/churn.py, on both LRU
  implementations), while slices go offline and come back at random
- stress: the same with stress-ng's stressors (lab/ramlab/guest/stress.py)
- daemon: the loads of churn while the daemon decides, killed and restarted at random
  (lab/ramlab/guest/daemon_soak.py; RAMSLICE_DAEMON names another daemon than the tree's)
- cold, only if it is asked for: memory blocks go to the twin and back at random, under loads that
  ask for cold memory and loads that do not, until 1000 have (lab/ramlab/guest/cold_soak.py)
It ends at the first round that fails. A summary of all kinds is kept as results/soak.json, one of a
single kind as results/soak-KIND.json.
"""

import argparse
import datetime
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

from ramlab.common import FLAVOURS, OUT, RAMLAB, ROOT, built, die, provenance, put_json, stream_vm
from ramlab.kernel.images import image

RESULT, KEPT = OUT / "soak.json", ROOT / "results"
# Runs of less load show that it works, and replace none that was longer.
KEPT_MINUTES = {None: 30, "churn": 30, "stress": 30, "daemon": 30, "cold": 8}
# Emulated guests on a busy host take their time to set up and to check everything at the end.
SLACK_SECONDS = 1200
# Kernel arguments of a kind of rounds, if not the usual ones
APPEND = {"cold": "ramslice=16M ramslice_cold=0"}
# Below, a round would mostly set up.
MIN_ROUND = 0.5


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="of load, in all (default 30)")
    parser.add_argument("--round", type=float, default=5,
                        help="minutes of load in one round (default 5)")
    parser.add_argument("--only", choices=["churn", "stress", "daemon", "cold"],
                        help="one kind of rounds")
    parser.add_argument("--mem", default="3G", help="the guest's memory (default 3G)")
    parser.add_argument("--seed", type=int, help="of the random requests (default: the time)")
    parser.add_argument("--kernel", default="debug",
                        choices=[f for f in FLAVOURS if FLAVOURS[f][0]])
    return parser.parse_args()


def round_command(args, kind, number, seed, seconds):
    """What runs in the guest."""
    if kind == "stress":
        return f"python3 -m ramlab.guest.stress --seconds {seconds:g} --seed {seed}"
    if kind == "cold":
        return f"python3 -m ramlab.guest.cold_soak --seconds {seconds:g} --seed {seed}"
    if kind == "daemon":
        words = f"python3 -m ramlab.guest.daemon_soak --seconds {seconds:g} --seed {seed}"
        return f"RAMSLICE_DAEMON={shlex.quote(str(args.daemon))} {words}"
    lru = ["classic", "mglru"][number // 2 % 2]
    return (f"python3 -m ramlab.guest.churn --seconds {seconds:g} --seed {seed} --share 0.25 "
            f"--lru {lru}")


def kept_program():
    """The place in the tree of a copy of the daemon, which builds do not replace meanwhile."""
    OUT.mkdir(exist_ok=True)
    return shutil.copy2(built("ramsliced"), OUT / "soak-ramsliced").relative_to(ROOT)


def problems(rounds):
    """How many there were; a round that failed without naming one had one."""
    return sum(max(r["summary"]["problems"] if r["summary"] else 0, bool(r["status"]))
               for r in rounds)


def load_minutes(summaries, wanted):
    """Minutes of load by the guest's summary: rounds of cold end early once all moves are made."""
    return round(summaries[0]["seconds"] / 60, 1) if summaries else wanted


def keep(args, began, kernel, rounds):
    """Writes the summary.

    It goes to results/ if the run is long enough, or was to be and found a problem.
    """
    minutes = sum(r["minutes"] for r in rounds)
    enough = KEPT_MINUTES[args.only]
    kept = minutes >= enough or args.minutes >= enough and problems(rounds)
    summary = {
        "date": began.isoformat(timespec="seconds"),
        "command": shlex.join(["ramlab", "soak", *sys.argv[1:]]),
        **provenance(kernel, args.kernel),
        "minutes": round(minutes, 1),
        "rounds": len(rounds),
        "problems": problems(rounds),
        "each": rounds,
    }
    of_all = KEPT / (f"soak-{args.only}.json" if args.only else "soak.json")
    for path in (RESULT, of_all) if kept else (RESULT,):
        put_json(path, summary)


def main():
    args = arguments()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    began = datetime.datetime.now(datetime.timezone.utc)
    seed = args.seed if args.seed is not None else int(began.timestamp())
    kernel = image(args.kernel)
    subprocess.run([RAMLAB, "guest-programs"], check=True, stdout=subprocess.DEVNULL)

    each = max(MIN_ROUND, min(args.round, args.minutes))
    nr = max(1, math.ceil(args.minutes / each))
    kinds = [args.only] if args.only else ["churn", "stress", "daemon"]
    if "daemon" in kinds:
        args.daemon = os.environ.get("RAMSLICE_DAEMON") or kept_program()
    rounds = []
    for number in range(nr):
        kind = kinds[number % len(kinds)]
        command = [
            "lab/bin/ramlab", "vm", "--kernel", args.kernel, "--mem", args.mem, "--disk", "2G",
            "--append", APPEND.get(kind, "ramslice=32M"),
            "--timeout", f"{each * 180 + SLACK_SECONDS:g}", "--",
            round_command(args, kind, number, seed + number, each * 60),
        ]
        print(f"soak: round {number + 1} of {nr}: {kind}, seed {seed + number}", flush=True)
        start = time.monotonic()
        summaries = []
        status = stream_vm(command, summaries.append)
        rounds.append({"kind": kind, "command": shlex.join(command), "status": status,
                       "minutes": load_minutes(summaries[-1:], each),
                       "elapsed_minutes": round((time.monotonic() - start) / 60, 1),
                       "summary": summaries[-1] if summaries else None})
        # What has been done is kept, whatever happens next
        keep(args, began, kernel, rounds)
        if status:
            die(f"round {number + 1} failed with status {status}; "
                f"see {RESULT.relative_to(ROOT)}", status)
    print(f"soak: {nr} rounds passed; summary in {RESULT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
