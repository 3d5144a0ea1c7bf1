# SPDX-License-Identifier: GPL-2.0-or-later
"""Every promise of DESIGN.md names its test, and each named test exists."""

import re

import pytest

from ramlab.common import ROOT

DESIGN = (ROOT / "DESIGN.md").read_text()
PAGE = (ROOT / "docs/reference/tests.md").read_text()
TABLE = PAGE.split("<!-- clause-tests -->")[1].split("<!-- /clause-tests -->")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines()
        if re.match(r"\| \d", line)]
FOLDERS = [ROOT / "lab/tests/guest", ROOT / "lab/tests/host"]


def find(module):
    """The path of a test module, wherever it runs; None if there is none."""
    return next((folder / module for folder in FOLDERS if (folder / module).is_file()), None)


def modules_of(text):
    return re.findall(r"`(test_\w+\.py)`", text)


def test_every_clause_has_a_row():
    clauses = set(re.findall(r"^### Clause (\d)", DESIGN, re.MULTILINE))
    assert clauses == {row[0] for row in ROWS} == set("12345678")


@pytest.mark.parametrize("module", sorted(set(modules_of(DESIGN + PAGE))))
def test_every_named_module_exists(module):
    assert find(module)


@pytest.mark.parametrize("row", ROWS, ids=[f"{number}-{row[1]}" for number, row in enumerate(ROWS)])
def test_every_named_test_is_in_its_module(row):
    module = None
    for name in re.findall(r"`([^`]+)`", row[2]):
        if name in modules_of(row[2] + "`" + name + "`") and name.endswith(".py"):
            module = find(name).read_text()
        elif module and re.fullmatch(r"(test_)?\w+\*?", name) and name != "violations":
            kind = r"def " if name.startswith("test_") else r"class "
            end = r"\w*\b" if name.endswith("*") else r"\b"
            assert re.search(kind + name.rstrip("*") + end, module), f"no {name}"
