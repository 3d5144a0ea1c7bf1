# SPDX-License-Identifier: GPL-2.0-or-later
"""Entries: what was measured, how, and whether it meets its target."""

import datetime
import json
import os
import subprocess
import textwrap
import tomllib

from ramlab.common import OUT, ROOT
from . import cases, flame, machines, programs

TARGETS = ROOT / "lab/ramlab/bench/targets.toml"
MARKS = {"true": "met", "false": "MISSED", "unmeasured": "unmeasured", "stale": "stale"}


def commit():
    """The checkout's commit, with a plus if it has changes."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


def targets():
    """{suite: {entry: target}} from the table in the tree."""
    return tomllib.loads(TARGETS.read_text())


def path(suite, kept=False):
    return ROOT / f"results/bench-{suite}.json" if kept else OUT / f"bench/{suite}.json"


def load(suite, kept=False):
    """Entries by name."""
    file = path(suite, kept)
    return {e["name"]: e for e in json.loads(file.read_text())["entries"]} if file.exists() else {}


def _write(suite, by_name, kept=False):
    file = path(suite, kept)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    rows = ",\n".join(json.dumps(by_name[name]) for name in sorted(by_name))
    fresh.write_text(f'{{"suite": "{suite}", "entries": [\n{rows}\n]}}\n')
    os.replace(fresh, file)


def store(suite, new, images, command, seed, keep=True):
    """Adds entries to out/bench/SUITE.json and, with keep, to results/bench-SUITE.json.

    What they are about is said by hashes: the kernels', and those of our programs as they were when the run began. The seed is that of
    the order of boots and of what the part drew.
    """
    common = {"commit": commit(), "kernel": machines.describe(images), "command": command,
              "seed": seed, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    wanted = targets().get(suite, {})
    for kept in (False, True) if keep else (False,):
        by_name = load(suite, kept)
        for entry in new:
            goal = wanted.get(entry["name"], {})
            by_name[entry["name"]] = _rounded(
                entry | {"target": goal.get("most", goal.get("above")), "source": "kept" if kept else "run",
                         "programs": {program: programs.codes()[program] for program in programs.of(entry["name"])}} | common)
        _write(suite, by_name, kept)


def _rounded(value):
    """Seven significant digits: no figure here has more."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


def judge(entry, goal, suite=None):
    """true, false, unmeasured or stale. How policies place pages matters for their own suite alone.

    Met means that the whole 95% interval is on the right side, and where a margin of equivalence is named, that both
    one-sided tests reject at 5%. A target with need_n asks for that many samples.
    """
    if entry is None:
        return "unmeasured"
    for flavour, kernel in entry["kernel"].items():
        if kernel["code"] != machines.code(flavour):
            return "stale"
        if suite == "placement" and kernel.get("placement") != machines.placement(flavour):
            return "stale"
    for program in programs.of(entry["name"]):
        # An entry from before programs were told is of unknown code.
        if entry.get("programs", {}).get(program) != programs.codes()[program]:
            return "stale"
    study = cases.STUDY_OF.get(entry["name"])
    if study and entry.get("made") != cases.identity(study):
        return "stale"
    if entry["n"] < goal.get("need_n", 1):
        return "unmeasured"
    low, high = entry["ci95"] if entry.get("ci95") else [entry["value"]] * 2
    met = low > goal["above"] if "above" in goal else high <= goal["most"]
    if "margin" in goal:
        met = met and entry.get("equivalence", {}).get("p", 1) < 0.05
    return "true" if met else "false"


def limit(goal):
    """The target as the table shows it."""
    return f"> {goal['above']:g}" if "above" in goal else f"<= {goal['most']:g}"


def check(suites):
    """Prints a table of all targets, and what is stale beside them; returns the number that are not met."""
    bad, missed = 0, []
    print(f"{'entry':<34} {'value':>11} {'95% interval':>23} {'target':>9}  {'n':>3}  state")
    for suite, wanted in targets().items():
        if suites and suite not in suites:
            continue
        run, kept = load(suite), load(suite, kept=True)
        for name, goal in wanted.items():
            entry = run.get(name)
            state = judge(entry, goal, suite)
            if state in ("unmeasured", "stale") and name in kept and judge(kept[name], goal, suite) in ("true", "false"):
                entry, state = kept[name], judge(kept[name], goal, suite)
            entry = entry or kept.get(name)
            if entry and state == "unmeasured" and name in kept:
                state = judge(entry, goal, suite)
            value = f"{entry['value']:.4g}" if entry else "-"
            interval = "[{:.4g}, {:.4g}]".format(*entry["ci95"]) if entry and entry.get("ci95") else "-"
            print(f"{name:<34} {value:>11} {interval:>23} {limit(goal):>9}  "
                  f"{entry['n'] if entry else '-':>3}  {MARKS[state]}{' (kept)' if entry and entry['source'] == 'kept' else ''}")
            if state != "true":
                bad += 1
            if state == "false":
                missed.append((name, goal))
    for name in flame.stale(machines.code("plain")) if not suites or "slices" in suites else []:
        print(f"{name:<85}{MARKS['stale']} (kept): ramlab bench slices --only flames")
        bad += 1
    for name, goal in missed:
        print(f"\n{name}: {goal['what']}")
        print(textwrap.fill(goal.get("cause", "no cause is known yet"), 110, initial_indent="  missed because: ",
                            subsequent_indent="  "))
    return bad
