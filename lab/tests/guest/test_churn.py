# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices go offline and wake under checked loads: no byte changes, and nothing writes to an
offline slice.
"""

import dataclasses

import pytest

from ramlab.guest.churn import check, churn
from ramlab.guest.placement import policies
from ramlab.guest.stress import stress
from ramlab.pytest_vm import vm

# Filling memory takes long on a busy emulated machine
pytestmark = pytest.mark.timeout(3600)
MACHINE = vm(mem="2G", disk="2G", append="ramslice=32M")
# Reserved memory stands for holes, across the end of a slice and within a slice; 48 MiB do not
# divide the zone
HOLES = "ramslice=48M memmap=40M$640M memmap=4M$1200M"
ALL = ["stock", "packed", "low", "array", "list", "adaptive"]


@dataclasses.dataclass(frozen=True)
class Dose:
    """How long requests go on at least, and the part of memory that the loads get."""

    seconds: float
    share: float = 0.5


def run(dose, **options):
    problems, summary = churn(seconds=dose.seconds, share=dose.share, **options)
    print(summary)
    check(problems)


@pytest.mark.slow
@MACHINE
def test_loads_keep_their_contents_on_the_classic_lru():
    run(Dose(seconds=25), lru="classic")


@pytest.mark.slow
@MACHINE
def test_loads_keep_their_contents_on_mglru():
    run(Dose(seconds=25), lru="mglru", seed=2)


# A free block of the allocator may have a part of two slices
@pytest.mark.slow
@vm(mem="2G", disk="2G", append="ramslice=16M,ways=4,granularity=2M ramslice_placement=packed")
@vm(kernel="debug", mem="2G", disk="2G", append="ramslice=32M,ways=2,granularity=4M")
def test_loads_keep_their_contents_in_slices_that_take_turns():
    run(Dose(seconds=6, share=0.1), lru="mglru", seed=3)


# A page fault costs ten times as much with checkers, so the loads are smaller
@vm(kernel="debug", mem="2G", disk="2G", append="ramslice=32M")
@pytest.mark.parametrize("dose", [
    pytest.param(Dose(seconds=4, share=0.04), id="short"),
    pytest.param(Dose(seconds=20, share=0.1), id="full", marks=pytest.mark.slow),
])
def test_loads_keep_their_contents_with_checkers(dose):
    run(dose)


@pytest.mark.slow
@vm(kernel="kcsan", mem="2G", disk="2G", append="ramslice=32M")
@pytest.mark.parametrize("lru", ["classic", "mglru"])
def test_loads_keep_their_contents_without_data_races(lru):
    run(Dose(seconds=40, share=0.2), lru=lru)


@pytest.mark.parametrize("seconds, turn_s", [
    pytest.param(15, 6, id="short"),
    pytest.param(40, 12, id="full", marks=pytest.mark.slow),
])
@MACHINE
def test_stressors_succeed_while_slices_come_and_go(seconds, turn_s):
    problems, summary = stress(seconds=seconds, turn_s=turn_s)
    print(summary)
    check(problems)


def known(*names):
    """Those of the policies that this kernel has."""
    return [name for name in names if name in policies()]


@pytest.mark.slow
@vm(kernel=["plain", "research"], mem="2G", disk="1G",
    append="ramslice=16M ramslice_placement=packed", fresh=True)
def test_loads_keep_their_contents_while_policies_change():
    run(Dose(seconds=20), policies=known("packed", "low", "array", "stock"))


@pytest.mark.slow
@vm(kernel=["plain", "research"], mem="2G", disk="1G", append=HOLES)
def test_loads_keep_their_contents_in_memory_with_holes():
    run(Dose(seconds=20), seed=2, policies=known("list", "adaptive", "stock", "packed"))


@pytest.mark.slow
@vm(kernel="debug-research", mem="2G", disk="1G",
    append="ramslice=16M ramslice_placement=stock")
@vm(kernel="debug-research", mem="2G", disk="1G",
    append="ramslice=16M ramslice_placement=packed")
@vm(kernel="debug-research", mem="2G", disk="1G",
    append="ramslice=16M ramslice_placement=low")
@vm(kernel="debug-research", mem="2G", disk="1G",
    append="ramslice=16M ramslice_placement=array")
@vm(kernel="debug-research", mem="2G", disk="1G",
    append="ramslice=16M ramslice_placement=list")
@vm(kernel="debug-research", mem="2G", disk="1G",
    append="ramslice=16M ramslice_placement=adaptive")
def test_loads_keep_their_contents_under_one_policy():
    run(Dose(seconds=45, share=0.1))


@pytest.mark.slow
@vm(kernel="debug-research", mem="2G", disk="1G", append="ramslice=16M")
def test_loads_keep_their_contents_while_policies_change_on_mglru():
    run(Dose(seconds=90, share=0.1), lru="mglru", policies=ALL)


@pytest.mark.slow
@vm(kernel="debug-research", mem="2G", disk="1G", append=HOLES)
def test_policies_change_in_memory_with_holes():
    run(Dose(seconds=90, share=0.1), seed=2, policies=ALL)


@pytest.mark.slow
@vm(kernel="debug-research", mem="2G", disk="1G", append="ramslice=48M",
    numa=("1G,cpus=0", "1G,cpus=1"))
def test_policies_change_on_two_nodes():
    run(Dose(seconds=90, share=0.1), seed=3, policies=ALL)
