# SPDX-License-Identifier: GPL-2.0-or-later
"""results/README.md says what the kept figures and targets say."""

import json
import re
import tomllib

from ramlab.checks.kept_figures import same
from ramlab.common import ROOT

PAGE = (ROOT / "results/README.md").read_text()
TARGETS = tomllib.loads((ROOT / "lab/ramlab/bench/targets.toml").read_text())
ROWS = {}
for line in PAGE.split("<!-- targets -->")[1].split("<!-- /targets -->")[0].splitlines():
    if match := re.match(r"\| `([\w-]+)`", line):
        ROWS[match[1]] = [cell.strip() for cell in line.strip("|").split("|")]


def test_every_target_has_a_row_and_no_row_is_without_a_target():
    assert set(ROWS) == {name for suite in TARGETS.values() for name in suite}


def test_targets_are_those_of_the_benchmarks():
    for suite in TARGETS.values():
        for name, target in suite.items():
            sign, number = ROWS[name][1].split()
            key = {"≤": "most", ">": "above"}[sign]
            assert float(number) == target[key], name


def test_figures_and_intervals_are_the_kept_ones():
    for suite, targets in TARGETS.items():
        path = ROOT / f"results/bench-{suite}.json"
        kept = json.loads(path.read_text())["entries"] if path.exists() else []
        for name in targets.keys() - {entry["name"] for entry in kept}:
            assert ROWS[name][2:5] == ["-", "-", "unmeasured"], name
        for entry in kept:
            if entry["name"] not in targets:
                continue
            _, _, figure, interval, *_ = ROWS[entry["name"]]
            assert same(figure, entry["value"]), entry["name"]
            if entry.get("ci95"):
                for shown, end in zip(interval.split(" to "), entry["ci95"], strict=True):
                    assert same(shown, end), f"{entry['name']}: {shown} is not {end}"


def test_the_page_counts_the_causes_that_a_kept_measurement_backs():
    missed = [TARGETS[suite][name] for suite in TARGETS for name in TARGETS[suite]
              if ROWS[name][4] == "missed"]
    backed = sum("evidence" in target for target in missed)
    assert f"backs {backed} of {len(missed)}\n" in PAGE


def test_a_missed_target_has_a_cause_and_a_met_one_has_none():
    for name, (*_, state, cause) in ROWS.items():
        assert (state == "missed") == bool(cause), name
