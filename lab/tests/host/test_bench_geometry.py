# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benchmarks of slices in turns work out from what guests left."""

import types

import pytest

from ramlab.bench import entries, geometry, machines

TARGETS = entries.targets()["huge"]


def by_name(new):
    return {entry["name"]: entry for entry in new}


def met(entry):
    """Whether the target is met, with as many boots as it asks for."""
    goal = TARGETS[entry["name"]]
    return entries.judge(entry | {"depends": {"package none": None}, "n": goal["need_n"]},
                         goal) == "true"


def mixed(seed, light, medium):
    load = {"in_use": 0.3, "c": 0.9, "c_bound": 0.95}
    return {"seed": seed, "light": load | {"off": light}, "medium": load | {"off": medium}}


def test_interleaved_memory_is_compared_seed_by_seed():
    found = by_name(geometry.judged_interleaved({
        geometry.ROW: [mixed(1, 0.5, 0.4), mixed(2, 0.8, 0.2)],
        geometry.TURNS: [mixed(2, 0.8, 0.1), mixed(1, 0.4, 0.4)]}))
    assert found["interleaved-light"]["values"] == pytest.approx([0.8, 1])
    assert found["interleaved-medium"]["values"] == pytest.approx([1, 0.5])
    assert found["interleaved-light"]["offline"] == pytest.approx(
        {geometry.ROW: 0.65, geometry.TURNS: 0.6})


def test_both_geometries_run_the_same_seeds_on_one_kernel(monkeypatch):
    boots = []
    monkeypatch.setattr(geometry, "images_of", lambda *_: {})
    monkeypatch.setattr(machines, "run", lambda new, *_: boots.extend(new) or {
        arm: [mixed(1, 0.5, 0.4)] for arm in geometry.GEOMETRY})
    used = types.SimpleNamespace(modules=set())
    geometry.interleaved(types.SimpleNamespace(used=used, seed=7, quick=False))
    seeds = {arm: [boot.parts[2] for boot in boots if boot.arm == arm]
             for arm in geometry.GEOMETRY}
    assert seeds[geometry.ROW] == seeds[geometry.TURNS]
    assert len(set(seeds[geometry.ROW])) == geometry.BOOTS
    assert {boot.flavour for boot in boots} == {"plain"}


def strided(fault, wake):
    faults = {geometry.ROW: [{"loops": {"fault": [1000, 1000 + n, 5000]}} for n in range(10)],
              geometry.TURNS: [{"loops": {"fault": [fault, fault + n]}} for n in range(10)]}
    wakes = {arm: [{"wakes": [ticks + n], "touch": {"mean": page * (1 + n / 100)}}
                   for n in range(10)]
             for arm, ticks, page in ((geometry.ROW, 100000, 100), (geometry.TURNS, wake, 120))}
    return by_name(geometry.judged_strided(faults, wakes))


def test_strided_slices_may_cost_half_a_percent_more_and_no_less():
    found = strided(1000, 100000)
    assert met(found["strided-fault"])
    assert met(found["strided-wake"])
    assert found["strided-wake"]["beside"] == {
        "touching memory that wakes, per page": pytest.approx(1.2)}
    assert not met(strided(1010, 100000)["strided-fault"])
    assert not met(strided(1000, 101000)["strided-wake"])
