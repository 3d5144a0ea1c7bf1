# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/reference/papers has every figure of each paper, and quotes ours as they are kept."""

import re
import tomllib
from pathlib import Path

import pytest

from ramlab.bench.command import SUITES
from ramlab.cases.conditions import STUDIES as CASES
from ramlab.checks import kept_figures
from ramlab.common import ROOT
from ramlab.sizes import STUDIES

FOLDER = ROOT / "docs/reference/papers"
LISTED = tomllib.loads((Path(__file__).parent / "data/papers.toml").read_text())
KIND = "(Figure|Table|Algorithm|Listing|Graph|Bitmap)s? "
COLUMNS = ["figure", "what it shows", "ours", "command, or why there is none"]
pages = pytest.mark.parametrize("name", sorted(LISTED))


def text_of(name):
    return (FOLDER / f"{name}.md").read_text()


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of(text):
    """Rows of the page's table, [label, shows, ours, command]; a line without a label goes on."""
    lines = iter(text.splitlines())
    assert any(cells_of(line) == COLUMNS for line in lines), f"no table with columns {COLUMNS}"
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = cells_of(line)
        assert len(cells) == len(COLUMNS), line
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells)]
    return rows


def labels_of(cell, listed):
    """[(kind, number)] of a cell like "Figures 2.1 to 2.3, Table 4.1": a range is as listed."""
    found = []
    parts = re.split(KIND, cell)
    for kind, numbers in zip(parts[1::2], parts[2::2]):
        for each in numbers.rstrip(", ").split(", "):
            first, _, last = each.partition(" to ")
            known = listed.get(kind, [])
            if last and first in known and last in known:
                between = known[known.index(first):known.index(last) + 1]
                found += [(kind, number) for number in between]
            else:
                found.append((kind, each))
    return found


def complaints(text, listed):
    """Figures without a row, rows without a figure, and figures with two rows."""
    wanted = [(kind, number) for kind, numbers in listed.items() for number in numbers]
    found = [label for row in rows_of(text) for label in labels_of(row[0], listed)]
    return ([f"no row: {kind} {number}" for kind, number in wanted if (kind, number) not in found]
            + [f"not in the paper: {kind} {number}" for kind, number in found
               if (kind, number) not in wanted]
            + [f"two rows: {kind} {number}" for kind, number in wanted
               if found.count((kind, number)) > 1])


def test_every_page_is_of_a_listed_paper():
    assert {path.stem for path in FOLDER.glob("*.md")} == set(LISTED)


@pages
def test_every_figure_has_one_row(name):
    assert complaints(text_of(name), LISTED[name]) == []


@pages
def test_a_missing_row_and_a_wrong_one_are_found(name):
    text = text_of(name)
    label = rows_of(text)[-1][0]
    [first, *_] = labels_of(label, LISTED[name])
    assert f"no row: {first[0]} {first[1]}" in complaints(
        text.replace(f"| {label} |", "| Figure 99 |"), LISTED[name])
    assert "not in the paper: Figure 99" in complaints(
        text.replace(f"| {label} |", "| Figure 99 |"), LISTED[name])


@pages
def test_every_row_says_what_it_shows_what_ours_is_and_how_or_why(name):
    for row in rows_of(text_of(name)):
        assert all(row), row


@pages
def test_quoted_figures_are_the_kept_ones(name):
    assert kept_figures.differences(text_of(name)) == []


@pages
def test_each_number_of_a_quotation_is_compared(name):
    """Another last digit of any figure, end of an interval or n is found."""
    quotations = list(kept_figures.QUOTATION.finditer(text_of(name)))
    assert quotations
    for quotation in quotations:
        text, begin = quotation[0], quotation.start()
        assert kept_figures.differences(text) == []
        for group in ("value", "low", "high", "n"):
            if quotation[group]:
                at = quotation.end(group) - 1 - begin
                other = text[:at] + str((int(text[at]) + 5) % 10) + text[at + 1:]
                assert kept_figures.differences(other), other


@pages
def test_a_figure_of_ours_stands_in_no_row_without_its_name(name):
    """Numbers that no quotation holds would go stale."""
    for row in rows_of(text_of(name)):
        rest = kept_figures.QUOTATION.sub("", row[2])
        rest = re.sub(r"`[^`]*`|\]\([^)]*\)", "", rest)
        assert not re.search(r"\d", rest), row


@pages
def test_what_is_called_not_measured_is_not_kept(name):
    text = text_of(name) + "\nnot measured: `empty-64m`\n"
    assert any("empty-64m" in problem for problem in kept_figures.differences(text))


def test_a_figure_that_is_not_there_is_found():
    assert kept_figures.differences("`no-such-entry` 1.0 (n = 3)")
    assert kept_figures.differences("`size/quicksort/held/0.4/elapsed_s` 1.0 (n = 1)")


def test_an_entry_is_not_quoted_without_its_interval_and_n():
    value = kept_figures.figure("empty-64m").value
    assert kept_figures.differences(f"`empty-64m` {value:.3f}")


@pages
def test_commands_name_what_there_is(name):
    text = text_of(name)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for suite, part in re.findall(r"`ramlab bench (\w+)(?: --only (\w+))?", text):
        assert suite in SUITES and (not part or part in SUITES[suite].PARTS), (suite, part)
    for program in re.findall(r"`ramlab size ([\w-]+)", text):
        assert program in STUDIES, program
    for case in re.findall(r"`ramlab case (\w+)", text):
        assert case in CASES, case
    for target in re.findall(r"`make ([\w-]+)", text):
        assert target in targets, target
