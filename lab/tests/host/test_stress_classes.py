# SPDX-License-Identifier: GPL-2.0-or-later
"""stress-ng's classes are compared stressor by stressor, and what the unpatched kernel does not
repeat counts for nothing.
"""

import subprocess
import types

import pytest

from ramlab.common import RAMLAB
from ramlab.guest import stress_classes as guest
from ramlab.kernel.stress_classes import AGAIN, judge

PASS, FAIL = {"status": "pass", "report": []}, {"status": "fail (2)", "report": ["mmap: wrong"]}


def runs(**changed):
    """What guests report; a run by its name, with _ for a blank."""
    names = ("stock", "patched", "slices off", AGAIN)
    found = {name: {"results": {"mmap": PASS, "fork": PASS}, "problems": []} for name in names}
    for name, results in changed.items():
        found[name.replace("_", " ")]["results"] = {"mmap": PASS, "fork": PASS} | results
    return found


def test_runs_that_end_alike_have_no_failure():
    assert judge(runs()) == ({}, [])


@pytest.mark.parametrize("name", ["patched", "slices_off"])
def test_a_stressor_that_ends_otherwise_fails(name):
    flaky, (failure,) = judge(runs(**{name: {"mmap": FAIL}}))
    assert not flaky and failure.startswith("mmap differs") and "fail (2)" in failure


def test_what_differs_on_the_unpatched_kernel_alone_is_flaky_and_not_compared():
    flaky, failures = judge(runs(stock_again={"mmap": FAIL}, patched={"mmap": FAIL}))
    assert list(flaky) == ["mmap"] and not failures


def test_a_problem_of_any_guest_fails():
    found = runs()
    found["slices off"]["problems"] = ["not everything wakes"]
    assert judge(found)[1] == ["slices off: not everything wakes"]


def test_stressors_that_the_unpatched_kernel_fails_prove_little():
    failing = {"mmap": FAIL, "fork": FAIL}
    found = runs(stock=failing, patched=failing, slices_off=failing, stock_again=failing)
    assert "proves little" in judge(found)[1][0]


def test_complaints_are_without_process_and_numbers_of_chance():
    text = ("stress-ng: info:  [12] dispatching hogs\n"
            "stress-ng: fail:  [14] mmap: wrong byte at 0x7f12 after 3.20 s\n"
            "stress-ng: fail:  [15] mmap: wrong byte at 0x7a00 after 4.10 s\n")
    assert guest.complaints(text) == ["mmap: wrong byte at ADDRESS after TIME"]


def test_so_many_stressors_of_each_class_are_spread_over_it(monkeypatch):
    members = {"vm": ["a", "b", "c", "d", "physpage"], "filesystem": ["d", "e"], "scheduler": ["f"]}
    monkeypatch.setattr(guest, "Stressors", types.SimpleNamespace(members=members.get))
    assert guest.stressors() == ["a", "b", "c", "d", "e", "f"]
    assert guest.stressors(2) == ["a", "c", "d", "e", "f"]


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.xdist_group("stress-classes")
def test_stressors_end_alike_on_both_kernels_and_with_slices_off():
    subprocess.run([RAMLAB, "stress-classes"], check=True)
