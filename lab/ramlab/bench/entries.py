# SPDX-License-Identifier: GPL-2.0-or-later
"""Entries: what was measured, how, and whether it meets its target."""

import datetime
import json
import os
import subprocess
import textwrap
import tomllib

from ramlab import provenance
from ramlab.common import FLAVOURS, OUT, ROOT
from ramlab.kernel.bases import flavour_and_base
from ramlab.kernel.images import named_image

from . import flame, machines

TARGETS = ROOT / "lab/ramlab/bench/targets.toml"
STATUS = {
    0: "every target is met",
    3: "only misses whose cause a kept measurement backs remain",
    1: "figures are stale, unmeasured, or missed without a cause that a kept measurement backs",
}
MARKS = {"true": "met", "false": "MISSED", "unmeasured": "unmeasured", "stale": "stale"}


def commit():
    """The checkout's commit, with a plus if it has changes; kept figures are none."""
    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + (
        "+" if git("status", "--porcelain", "-uno", "--", ":!results") else ""
    )


def targets():
    """{suite: {entry: target}} from the table in the tree."""
    return tomllib.loads(TARGETS.read_text())


def margin_of(name):
    """The margin of equivalence that an entry's target asks for; None if it asks for none."""
    return next((goals[name].get("margin") for goals in targets().values() if name in goals), None)


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


def store(suite, new, images, used, command, seed, keep=True):
    """Adds entries to out/bench/SUITE.json and, with keep, to results/bench-SUITE.json.

    Each says what it depends on, by git's ids as they were when the part began. The seed is that of
    the order of boots and of what the part drew. Without keep it proves nothing, and says so.
    """
    flavours = {kernel: FLAVOURS[flavour_and_base(kernel)[0]][0] for kernel in images}
    by_hand = any(named_image(flavour) for flavour in images)
    common = {"commit": commit(), "kernel": machines.describe(images), "command": command,
              "seed": seed, "depends": None if by_hand else used.dependencies(flavours),
              "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    wanted = targets().get(suite, {})
    for kept in (False, True) if keep else (False,):
        by_name = load(suite, kept)
        for entry in new:
            goal = wanted.get(entry["name"], {})
            by_name[entry["name"]] = _rounded(
                common | {"target": goal.get("most", goal.get("above")),
                          "source": "kept" if kept else "run", "proves": keep} | entry)
        _write(suite, by_name, kept)


def _rounded(value):
    """Seven significant digits: no figure here has more."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


def judge(entry, goal, tree=None):
    """true, false, unmeasured or stale.

    Met means that the whole 95% interval is on the right side, and where a margin of equivalence is
    named, that both one-sided tests reject at 5%. A target with need_n asks for that many samples.
    """
    if entry is None or not entry.get("proves", True):
        return "unmeasured"
    if provenance.changed(entry.get("depends"), tree=tree):
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


def chosen(suite, name, goal, tree):
    """The entry that counts, the last run's or the kept one, and its state."""
    run, kept = load(suite).get(name), load(suite, kept=True).get(name)
    states = [(entry, judge(entry, goal, tree)) for entry in (run, kept) if entry]
    for entry, state in states:
        if state in ("true", "false"):
            return entry, state
    return states[-1] if states else (None, "unmeasured")


def missing_evidence(name):
    """What a piece of evidence lacks, or None if all that it names is kept.

    It is a kept entry, "SUITE.NAME", a value in it, "SUITE.NAME/KEY/KEY", a graph in results/, or a
    function in it, "flame-NAME.svg/FUNCTION".
    """
    source, *keys = name.split("/")
    if source.endswith(".svg"):
        functions = flame.functions(source)
        if functions is None:
            return f"results/{source} is missing"
        return next((f"results/{source} has no function {key}" for key in keys
                     if key not in functions), None)
    suite, _, entry = source.partition(".")
    found = load(suite, kept=True).get(entry)
    if found is None:
        return f"the kept entry {source} is missing"
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return f"the kept entry {source} has no {'/'.join(keys)}"
        found = found[key]
    return None


def _stale_evidence(name, tree):
    """Whether something has changed under a piece of evidence that is not missing."""
    source = name.partition("/")[0]
    if source.endswith(".svg"):
        return bool(flame.stale(tree, names=[source]))
    suite, _, entry = source.partition(".")
    return bool(provenance.changed(load(suite, kept=True)[entry].get("depends"), tree=tree))


def evidence_problem(goal, tree):
    """Why a missed target's cause counts for nothing, or None if kept measurements back it.
    """
    if not goal.get("cause"):
        return "no cause is given"
    if not goal.get("evidence"):
        return "no kept measurement backs the cause"
    for name in goal["evidence"]:
        if problem := missing_evidence(name):
            return f"of the evidence, {problem}"
        if _stale_evidence(name, tree):
            return f"the evidence {name} is stale"
    return None


def _line(name, goal, entry, state):
    """A row of the table."""
    value = f"{entry['value']:.4g}" if entry else "-"
    interval = "[{:.4g}, {:.4g}]".format(*entry["ci95"]) if entry and entry.get("ci95") else "-"
    kept = " (kept)" if entry and entry["source"] == "kept" else ""
    return (f"{name:<34} {value:>11} {interval:>23} {limit(goal):>9}  "
            f"{entry['n'] if entry else '-':>3}  {MARKS[state]}{kept}")


def check(suites):
    """Prints a table of all targets, then why figures are stale or missed; returns the exit status.

    0: every target is met. 1: a figure is stale, unmeasured, or missed without a cause that a kept
    measurement backs. 3: only explained misses remain.
    """
    tree = provenance.working_tree()
    notes, worst = [], set()
    print(f"{'entry':<34} {'value':>11} {'95% interval':>23} {'target':>9}  {'n':>3}  state")
    for suite, wanted in targets().items():
        if suites and suite not in suites:
            continue
        for name, goal in wanted.items():
            entry, state = chosen(suite, name, goal, tree)
            print(_line(name, goal, entry, state))
            if state == "stale":
                worst.add(1)
                changed = provenance.changed(entry.get("depends"), tree=tree)
                notes.append(f"{name}: stale, changed: {', '.join(changed)}")
            elif state == "unmeasured":
                worst.add(1)
                notes.append(f"{name}: unmeasured; measure it: ramlab bench {suite}")
            elif state == "false":
                problem = evidence_problem(goal, tree)
                worst.add(1 if problem else 3)
                notes.append(f"{name}: missed: {goal['what']}\n"
                             + _filled(f"cause: {goal.get('cause', 'unknown')}")
                             + (f"\n  NOT EXPLAINED: {problem}" if problem else ""))
    if not suites or "slices" in suites:
        for name in flame.stale(tree):
            worst.add(1)
            notes.append(f"results/{name}: stale; draw it again: ramlab bench slices --only flames")
    for note in notes:
        print(f"\n{note}")
    status = min(worst, default=0)
    print(f"\nstatus {status}: {STATUS[status]}")
    return status


def _filled(text):
    return textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  ")
