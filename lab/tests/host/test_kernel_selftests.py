# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own tests of mm and hotplug end as on the unpatched kernel, also with slices off."""

import subprocess

import pytest

from ramlab.common import RAMLAB
from ramlab.kernel.selftests import differences

PASSED = {"status": "passed", "report": ["ok 1 one"]}
FAILED = {"status": "failed", "report": ["not ok 1 one"]}
LATE = {"status": "time-out", "report": []}


def test_what_ends_alike_differs_in_nothing():
    assert differences({"mm/a": PASSED, "mm/b": FAILED}, {"mm/a": PASSED, "mm/b": FAILED}) == {}


@pytest.mark.parametrize("one, two, words", [
    ({"mm/a": PASSED}, {}, "ran on one of them only: stock"),
    ({}, {"mm/a": PASSED}, "ran on one of them only: patched"),
    ({"mm/a": PASSED}, {"mm/a": FAILED}, "stock: passed"),
    ({"mm/a": PASSED}, {"mm/a": PASSED | {"report": ["ok 1 two"]}}, "+ok 1 two"),
    # How far it got is chance, but that it did not end is none
    ({"mm/a": PASSED}, {"mm/a": LATE}, "patched: time-out"),
])
def test_each_kind_of_difference_is_named(one, two, words):
    found = differences(one, two)
    assert list(found) == ["mm/a"] and words in found["mm/a"]


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.xdist_group("selftests")
def test_the_kernels_selftests_end_alike_on_both_kernels_and_with_slices_off():
    subprocess.run([RAMLAB, "selftests"], check=True)
