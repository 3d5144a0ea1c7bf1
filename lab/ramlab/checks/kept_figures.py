# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of results/ that documents quote, and whether they still are the kept ones.

A quotation is the figure's name in backticks and a number:

    `empty-64m` 0.927 (0.923 to 0.932, n = 12)    an entry of results/bench-*.json
    `c-light/c/packed` 0.920                      a field of that entry
    `size/quicksort/held/0.5/elapsed_s` 6.19 (n = 1)      mean of results/sizes/quicksort.json
    `case/compile/fresh/ours/off` 69% (n = 3)             mean of results/cases/runs.json
    `sweep/compile/fresh/62500/net_joules/low` -0.005     results/cases/sweep/compile.json
    `flame/emptying/migrate_pages` 90.6%                  results/flame-emptying.svg

A number with a percent sign is a share. An entry is quoted with its 95% interval, if it has one,
and its n; a mean over runs with its n.
"""

import functools
import json
import re
import statistics
from dataclasses import dataclass

from ramlab.bench import entries
from ramlab.common import ROOT

RESULTS = ROOT / "results"
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
QUOTATION = re.compile(
    rf"`(?P<name>[^`]+)` (?P<value>{NUMBER})(?P<share>%?)"
    rf"(?: \((?:(?P<low>{NUMBER})%? to (?P<high>{NUMBER})%?, )?n = (?P<n>\d+)\))?")
NOT_MEASURED = re.compile(r"not measured: (`[^`]+`(?:, `[^`]+`)*)")


@dataclass
class Figure:
    """A kept figure, in its entry's unit.

    n: how many samples or runs it is of; None if that is not to be quoted.
    ci95: [low, high], or None if there is no interval.
    """

    value: float
    n: int | None = None
    ci95: list | None = None


def same(shown, value):
    """Whether a number on a page is the value, rounded to as many places as it shows."""
    if "e" in shown:
        return float(shown) == float(f"{value:.2e}")
    places = len(shown.partition(".")[2])
    return abs(float(shown) - value) <= 0.5 * 10**-places + 1e-9


def figure(name):
    """The kept Figure of that name. Raises KeyError with the name if there is none."""
    kind, *path = name.split("/")
    readers = {"size": _size, "case": _case, "sweep": _sweep, "flame": _flame}
    try:
        found = readers[kind](*path) if kind in readers else _entry(kind, path)
    except (FileNotFoundError, IndexError, KeyError, TypeError, ValueError):
        raise KeyError(name) from None
    if isinstance(found.value, bool) or not isinstance(found.value, (int, float)):
        raise KeyError(name)
    return found


def differences(text):
    """What a document quotes otherwise than it is kept, in words; empty if nothing."""
    found = []
    for quotation in QUOTATION.finditer(text):
        try:
            kept = figure(quotation["name"])
        except KeyError:
            found.append(f"`{quotation['name']}`: results/ has no such figure")
        else:
            found += [f"`{quotation['name']}`: {problem}" for problem in _compare(quotation, kept)]
    for names in NOT_MEASURED.findall(text):
        for name in re.findall("`([^`]+)`", names):
            if _is_kept(name):
                found.append(f"`{name}`: is called not measured, and results/ has it")
    return found


def _compare(quotation, kept):
    scale = 100 if quotation["share"] else 1
    if not same(quotation["value"], scale * kept.value):
        yield f"{quotation['value']} is not {scale * kept.value:.7g}"
    if (kept.n is not None or quotation["n"]) and quotation["n"] != str(kept.n):
        yield f"n = {quotation['n']} is not {kept.n}"
    if bool(kept.ci95) != bool(quotation["low"]):
        yield f"the interval is {kept.ci95}"
    elif kept.ci95:
        for shown, end in zip((quotation["low"], quotation["high"]), kept.ci95):
            if not same(shown, scale * end):
                yield f"{shown} is not {scale * end:.7g}"


def _is_kept(name):
    try:
        figure(name)
    except KeyError:
        return False
    return True


def _within(value, path):
    for key in path:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@functools.cache
def _entries():
    """All kept entries of benchmarks, by name."""
    return {name: entry for suite in entries.targets()
            for name, entry in entries.load(suite, kept=True).items()}


@functools.cache
def _read(path):
    return json.loads((RESULTS / path).read_text())


def _entry(name, path):
    kept = _entries()[name]
    if path:
        return Figure(_within(kept, path))
    return Figure(kept["value"], kept["n"], kept.get("ci95"))


def _mean(values):
    """The mean of figures of runs. Raises StatisticsError, a ValueError, if there are none."""
    return Figure(statistics.fmean(values), len(values))


def _size(program, memory, *path):
    """Mean over the seeds of one program at one size; with plenty of memory it has no share."""
    share = None if memory == "plenty" else float(path[0])
    field = path if memory == "plenty" else path[1:]
    runs = _read(f"sizes/{program}.json")["runs"]
    return _mean([_within(run, field) for run in runs
                  if (run["scale"], run["memory"], run["share"]) == ("full", memory, share)])


def _case(case, start, setting, field):
    """Mean over the seeds of a case study; off: slice-seconds offline of those attainable."""
    runs = [run for run in _read("cases/runs.json")["runs"]
            if (run["scale"], run["case"], run["start"], run["setting"])
            == ("full", case, start, setting)]
    if field == "off":
        return _mean([run["slice_seconds_off"] / run["slice_seconds_attainable"] for run in runs])
    return _mean([run[field] for run in runs])


def _sweep(case, start, budget, *path):
    """A budget of the simulated sweep, per request, in units of 100 cycles, or unlimited."""
    wanted = None if budget == "unlimited" else int(budget)
    rows = _read(f"cases/sweep/{case}.json")["budgets"]
    [row] = [row for row in rows
             if (row["start"], row["policy"], row["budget_100cycles"])
             == (start, "periodic", wanted) and not row["per_slice"]]
    return Figure(_within(row, path))


def _flame(graph, function):
    """The share of samples in a function, by its widest frame."""
    text = (RESULTS / f"flame-{graph}.svg").read_text()
    frames = re.findall(r"<title>([^<]+) \([\d,]+ samples, ([\d.]+)%\)</title>", text)
    return Figure(max(float(share) for name, share in frames if name == function) / 100)
