# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benchmark makes of advice, of the sizes that were tried, and of watermarks."""

import csv
import io
import subprocess

import pytest

from ramlab.bench import advice, sizes

MIB = 1 << 20
COUNTERS = {"ramslice_lookup_read": 50_000, "ramslice_lookup_fault": 0,
            "ramslice_readahead": 6000, "ramslice_readahead_unused": 1000, "pswpin": 4000}


def outlook(mib, slowdown, hit_ratio=0.9, anon=0.0):
    spread = {"value": slowdown, "low": slowdown - 0.05, "high": slowdown + 0.05}
    hits = {"value": hit_ratio, "low": hit_ratio, "high": hit_ratio}
    return {"memory_bytes": mib * MIB, "slowdown": spread, "hit_ratio": hits,
            "anon_faults_per_second": anon}


ADVICE = {"memory_bytes": 200 * MIB, "seconds": 10.0, "least_bytes": 220 * MIB,
          "sizes": [outlook(100, 1.0, 0.5, 2000.0), outlook(200, 0.5, 0.9, 1000.0),
                    outlook(300, 0.0, 1.0)]}


def run(seed, share, mib, elapsed, **more):
    return {"seed": seed, "share": share, "size_kib": mib << 10, "elapsed_s": elapsed,
            "counters": COUNTERS | more}


class Made(advice.Advised):
    """One that was recorded, without a machine."""

    def __init__(self, runs, uses=100_000, floor_kib=0, filled_kib=0):
        self.name, self.advice, self.uses = "quicksort", ADVICE, uses
        self.account = {"floor_kib": floor_kib, "filled_kib": filled_kib}
        self.runs = {(one["seed"], one["share"]): one for one in runs}


RUNS = [run(1, 0.5, 120, 99.0), run(1, 1.6, 400, 10.0), run(2, 0.5, 150, 17.7),
        run(2, 0.7, 250, 13.5), run(2, 1.0, 290, 10.05), run(2, 1.6, 400, 10.0),
        run(3, 0.5, 50, 20.0), run(3, 1.6, 400, 10.0)]


def test_sizes_are_between_their_neighbours_and_nothing_is_said_below_the_curve():
    assert advice.at_size(ADVICE, 150 * MIB)["slowdown"] == pytest.approx(
        {"value": 0.75, "low": 0.7, "high": 0.8})
    assert advice.at_size(ADVICE, 99 * MIB) is None
    assert advice.at_size(ADVICE, 500 * MIB)["slowdown"]["value"] == 0
    unknown = ADVICE | {"sizes": [one | {"slowdown": None} for one in ADVICE["sizes"]]}
    assert advice.at_size(unknown, 150 * MIB)["slowdown"] is None


def test_points_are_of_other_seeds_than_the_recorded_one_and_within_the_curve():
    points = Made(RUNS).points()
    assert [(one["seed"], one["share"]) for one, *_ in points] == [
        (2, 0.5), (2, 0.7), (2, 1.0), (2, 1.6), (3, 1.6)]
    assert points[0][1] == pytest.approx(0.77)


def test_sizes_are_what_is_left_and_the_recorded_machines_own_floor():
    # 50 MiB left are 110 of a machine that has a floor of 40, and of which a disk took 20
    points = Made(RUNS, floor_kib=40 << 10, filled_kib=20 << 10).points()
    assert [(one["seed"], one["share"]) for one, *_ in points][-2:] == [(3, 0.5), (3, 1.6)]
    assert points[-2][2]["slowdown"]["value"] == pytest.approx(0.95)


def test_only_points_that_are_slowed_down_are_judged():
    inside, width = advice.slowdown_entries([Made(RUNS)])
    # Expected are 75% and 25%, each give or take 5; 35% were measured at the second
    assert (inside["name"], inside["value"], inside["n"]) == ("predicted-inside", 0.5, 2)
    assert inside["programs"] == ["quicksort"] and len(inside["points"]) == 5
    assert (width["name"], width["value"]) == ("predicted-width", pytest.approx(10))


def test_miss_ratios_are_of_look_ups_and_of_pages_used():
    files, programs = advice.ratio_entries([Made(RUNS[2:6])])
    first = files["points"][0]
    assert (first["measured"], first["expected"]) == (0.1, pytest.approx(0.3))
    first = programs["points"][0]
    # 1500 a second for 10 s, which take 1.75 / 1.5 as long with less memory
    assert (first["measured"], first["expected"]) == (0.04, pytest.approx(0.175))
    assert files["n"] == programs["n"] == 4
    # Of too few uses, nothing is said
    assert len(advice.ratio_entries([Made(RUNS[2:6], uses=100)])) == 1


def test_uses_are_scaled_from_the_sample(monkeypatch):
    rows = [("ramslice_reuse_sampled_frames", 10), ("ramslice_reuse_all_frames", 1000),
            ("ramslice_reuse_anon_active_scans_1", 30), ("ramslice_reuse_anon_arrived", 5),
            ("ramslice_reuse_anon_inactive_scans_16", 7), ("ramslice_reuse_anon_resident", 99),
            ("ramslice_reuse_file_active_scans_1", 50)]
    text = io.StringIO()
    csv.writer(text).writerows([("name", "value"), *rows])
    monkeypatch.setattr(advice, "built", lambda name: name)
    monkeypatch.setattr(subprocess, "run", lambda line, **_: subprocess.CompletedProcess(
        line, 0, text.getvalue()))
    assert advice.program_page_uses("recording") == pytest.approx(4200)


def test_recorders_look_more_often_at_short_runs():
    assert advice.recorder({"elapsed_s": 1.2})["words"][2] == "20ms"
    assert advice.recorder({"elapsed_s": 6.0})["words"][4] == "50ms"
    assert advice.recorder({"elapsed_s": 60.0})["words"][2] == "100ms"


def test_an_advised_size_fails_by_what_it_costs_and_by_what_less_costs(monkeypatch):
    def figures(program, slowdown, less):
        return {"program": program, "advised": {"slowdown": slowdown}, "less": {"slowdown": less}}

    tries = iter([figures("a", 0.04, 0.07), figures("b", 0.06, 0.08), figures("c", 0.0, 0.05)])
    monkeypatch.setattr(advice, "tried", lambda one: next(tries))
    below, above = advice.tried_entries([Made(RUNS)] * 3, 1)
    assert (below["value"], below["programs"], above["value"], above["programs"]) == (
        1, ["b"], 1, ["c"])


def boot(ratio, memory):
    return {"phases": [{"hit_ratio": ratio, "lookups": 100, "seconds": 10, "memory_mib": memory},
                       {"hit_ratio": ratio, "lookups": 100, "seconds": 30, "memory_mib": memory}]}


def test_watermarks_are_compared_with_the_least_memory_that_holds_the_ratio():
    found = {sizes.FOLLOWING: [boot(0.96, 220), boot(0.98, 220)], "fixed-24": [boot(0.90, 150)],
             "fixed-88": [boot(0.955, 200)], "fixed-184": [boot(0.99, 400)]}
    ratio, memory = sizes.judged_watermarks(found)
    assert ratio["value"] == pytest.approx(0.005)
    assert (memory["best"], memory["value"]) == ("fixed-88", pytest.approx(1.1))
    # Without a fixed setting that holds it there is nothing to compare with
    del found["fixed-88"], found["fixed-184"]
    assert len(sizes.judged_watermarks(found)) == 1
