# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benchmarks of contiguous buffers and of requests that fail work out from what guests
left.
"""

import types

import pytest

from ramlab.bench import buffers, entries, machines
from ramlab.guest import bench_buffers, bench_failing

TARGETS = entries.targets()["huge"]


def many(granted, attainable=100, seed=1, refused=None):
    return {"granted": granted, "attainable": attainable, "seed": seed, "refused": refused or {},
            "passed": [10, 30], "ran": [10, 20], "room_bytes": 64 << 20}


def burst(granted, idle_mib=0, seed=1, refused=None, passed=(10, 30)):
    return {"granted": granted, "asked": 64, "idle_bytes": idle_mib << 20, "seed": seed,
            "refused": refused or {}, "passed": list(passed), "ran": [5]}


def by_name(new):
    return {entry["name"]: entry for entry in new}


def met(entry):
    """Whether the target is met, with as many boots as it asks for."""
    goal = TARGETS[entry["name"]]
    return entries.judge(entry | {"depends": {"package none": None}, "n": goal["need_n"]},
                         goal) == "true"


def args(quick=False):
    used = types.SimpleNamespace(program=lambda name: name, modules=set())
    return types.SimpleNamespace(used=used, seed=7, quick=quick)


def boots_of(monkeypatch, module, part, left):
    """The boots that a part wants, if each leaves this."""
    boots = []

    def run(new, *_, **__):
        boots.extend(new)
        return {arm: [left for boot in new if boot.arm == arm] for arm in
                {boot.arm for boot in new}}

    monkeypatch.setattr(module, "images_of", lambda *_: {})
    monkeypatch.setattr(machines, "run", run)
    part(args())
    return boots


def test_buffers_are_pooled_over_boots_and_reasons_counted():
    entry = by_name(buffers.judged_many({
        "ours": [many(99, 100, 1, {"pinned": 1}), many(9, 20, 2, {"pinned": 2, "slab": 1})],
        "ours-anywhere": [many(50), many(60, seed=2)]}))
    ours, anywhere = entry["buffers-granted"], entry["buffers-granted-anywhere"]
    assert ours["value"] == pytest.approx(108 / 120)
    assert ours["refused"] == {"pinned": 3, "slab": 1}
    assert ours["per_request"] == {"passed": {"mean": 20, "worst": 30},
                                   "ran": {"mean": 15, "worst": 20}}
    assert anywhere["value"] == pytest.approx(0.55)


def test_as_many_as_cma_grants_meets_the_target_and_one_less_does_not():
    equal = [burst(64, seed=seed) for seed in range(3)]
    less = [burst(63, seed=seed, refused={"pinned": 1}) for seed in range(3)]

    def success(ours, theirs):
        return by_name(buffers.judged_burst({"ours": ours, "cma": theirs}))["buffers-success"]

    assert met(success(equal, equal))
    assert met(success(equal, less))
    entry = success(less, equal)
    assert not met(entry)
    assert entry["value"] == pytest.approx(1 / 64)
    assert entry["refused"] == {"ours": {"pinned": 3}, "cma": {}}


def test_boots_are_compared_with_those_of_the_same_seed():
    ours = [burst(60, seed=2), burst(64, seed=1)]
    theirs = [burst(64, seed=1), burst(60, seed=2)]
    entry = by_name(buffers.judged_burst({"ours": ours, "cma": theirs}))["buffers-success"]
    assert entry["values"] == [0, 0]


def test_memory_that_idles_is_ours_and_latency_of_both_is_beside():
    found = by_name(buffers.judged_burst({
        "ours": [burst(64), burst(64, seed=2)],
        "cma": [burst(64, 100, passed=(5, 7)), burst(64, 200, seed=2, passed=(5, 7))]}))
    idle = found["buffers-idle"]
    assert (idle["value"], idle["beside"]) == (0, {"cma": 150})
    assert met(idle)
    assert found["buffers-success"]["per_request"]["cma"]["passed"] == {
        "mean": 6, "worst": 7}


def failed(*woken):
    kinds = ("command", "pool", "heap")
    return {"seed": 1, "pinned": 20, "slices": 96,
            "requests": [{"request": kind, "off": 60, "woken": nr}
                         for kind, nr in zip(kinds, woken, strict=True)]}


def test_one_request_that_wakes_one_slice_misses_the_target():
    entry, = buffers.judged_failing([failed(0, 0, 0), failed(0, 1, 0)])
    assert (entry["value"], entry["n"], entry["requests"]) == (1, 2, 6)
    assert entry["beside"] == {"command": 0, "pool": 1, "heap": 0}
    assert not met(entry)
    assert met(buffers.judged_failing([failed(0, 0, 0)] * 2)[0])


def test_a_slice_that_was_off_and_goes_off_again_has_been_woken():
    lines = ["cat-1 [000] 1.0: ramslice_state: id=7 offline -> waking",
             "cat-1 [000] 1.1: ramslice_state: id=7 waking -> online",
             "cat-1 [000] 1.2: ramslice_state: id=7 emptying -> offline",
             # One that was on is emptied and comes back
             "cat-1 [000] 1.3: ramslice_state: id=9 online -> emptying",
             "cat-1 [000] 1.4: ramslice_state: id=9 offline -> waking"]
    assert bench_failing.woken(lines, {3, 7}) == {7}
    assert bench_failing.woken([], {3, 7}) == set()


def test_cma_has_as_much_set_apart_as_is_held_at_once():
    held = bench_buffers.HELD * bench_buffers.SIZE
    assert f"cma={held >> 20}M" == buffers.BURST[buffers.CMA][1]


@pytest.mark.parametrize("part, left, arms", [
    (buffers.many, many(9), buffers.MANY), (buffers.burst, burst(9), buffers.BURST)])
def test_arms_run_the_same_load(monkeypatch, part, left, arms):
    boots = boots_of(monkeypatch, buffers, part, left)
    seeds = {arm: [boot.parts[2] for boot in boots if boot.arm == arm] for arm in arms}
    assert len(set(map(tuple, seeds.values()))) == 1
    assert len(set(seeds[buffers.OURS])) == buffers.BOOTS
