# SPDX-License-Identifier: GPL-2.0-or-later
"""One figure for a reader who wants to repeat it: its command, and what it depends on."""

import difflib
import re

from ramlab import provenance
from ramlab.common import die

from . import entries

# Figures that documents name and no entry has, by the first part of their names.
ELSEWHERE = {
    "size": "results/sizes; ramlab size NAME repeats it",
    "case": "results/cases/runs.json; ramlab case NAME repeats it",
    "sweep": "results/cases/sweep; ramlab case NAME --sweep repeats it",
    "flame": "results/flame-*.svg; ramlab bench slices --only flames repeats it",
}


def find(name):
    """The entry that counts, the last run's or the kept one, its suite and its target."""
    every = {}
    for suite, wanted in entries.targets().items():
        names = [*wanted, *entries.load(suite, kept=True), *entries.load(suite)]
        every |= dict.fromkeys(names, suite)
    if name not in every:
        first, *field = name.split("/")
        if field and first in every:
            die(f"{name} is a field of an entry: ramlab bench --entry {first}", 2)
        if field and first in ELSEWHERE:
            die(f"{name} is of {ELSEWHERE[first]}", 2)
        near = difflib.get_close_matches(name, every, n=5, cutoff=0.5)
        die(f"no figure {name}" + (f": close are {', '.join(near)}" if near else "")
            + "; results/README.md and ramlab bench --check list all", 2)
    suite = every[name]
    entry = entries.load(suite).get(name) or entries.load(suite, kept=True).get(name)
    return suite, entry, entries.targets().get(suite, {}).get(name)


def command_of(suite, entry):
    """What measures the entry again. Earlier versions kept the command's former name."""
    words = entry.get("command", f"ramlab bench {suite}")
    return re.sub(r"^lab/bench\b", "ramlab bench", words)


def describe(name):
    """The figure, how to repeat it, and each dependency with its state."""
    suite, entry, goal = find(name)
    lines = [f"{name}: {goal['what']}" if goal and "what" in goal else name]
    if goal:
        lines.append(f"  target      {entries.limit(goal)}")
    if entry is None:
        return "\n".join([*lines, "  figure      never measured",
                          f"  measure it  ramlab bench {suite}"])
    interval = entry.get("ci95")
    lines += [
        f"  figure      {entry['value']:g} {entry.get('unit', '')}".rstrip(),
        "  interval    " + ("{:g} to {:g} (95%)".format(*interval) if interval else "one run"),
        f"  samples     {entry['n']}",
        f"  taken       {entry.get('date', 'unknown')[:10]}, commit {entry.get('commit')}",
        f"  repeat it   {command_of(suite, entry)}"
        + (f" --seed {entry['seed']}" if entry.get("seed") is not None else ""),
        "  depends on",
    ]
    depends = entry.get("depends")
    if not depends:
        return "\n".join([*lines, "    unknown: kept by an earlier version, so it counts as stale"])
    changed = set(provenance.changed(depends))
    width = max(map(len, depends))
    for what, known in sorted(depends.items()):
        # Of git's ids, as many digits as git itself prints; versions are words.
        known = str(known) if " " in what else str(known)[:12]
        state = "changed" if what in changed else ""
        lines.append(f"    {what:<{width}}  {state:<7}  {known}")
    return "\n".join(lines)
