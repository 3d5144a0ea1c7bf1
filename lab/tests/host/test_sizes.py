# SPDX-License-Identifier: GPL-2.0-or-later
"""Studies of memory sizes on the host: which runs are to do, which count, what is refused, and what
the benchmark makes of kept runs.
"""

import argparse
import json
import subprocess

import pytest

from ramlab.bench import sizes
from ramlab.common import RAMLAB, ROOT
from ramlab.guest import size
from ramlab.guest.size_work import reader_words, rules
from ramlab.sizes import STUDIES, command, conditions, results

NOW = {"work": "w", "depends": {"kernel/patches": "now"}}


def run(memory="held", seed=1, share=0.5, scale="full", elapsed=10.0, major=1000, **more):
    counters = dict.fromkeys(size.COUNTERS, 0) | {
        "pgfault": 50_000, "pgmajfault": major, "pswpin": 4000, "pswpout": 5000}
    return NOW | {
        "memory": memory, "seed": seed, "share": share, "scale": scale, "elapsed_s": elapsed,
        "size_kib": 81920, "total_kib": 300_000, "host_s": 30.0, "counters": counters,
        "performance": {"value": elapsed, "unit": "s", "more_is_better": False},
        "disk": {"read_bytes": 1 << 20},
    } | more


@pytest.fixture(autouse=True)
def as_now(monkeypatch):
    monkeypatch.setattr(conditions, "now", lambda name, scale, memory: NOW)


def arguments(**fields):
    return argparse.Namespace(**{"name": "quicksort", "scale": "full", "seeds": 2, "share": None,
                                 "memory": ["held"], "resume": False, "again": False} | fields)


# --- which runs ---


def test_every_seed_has_every_share_and_seeds_are_outermost():
    runs = command.wanted(arguments(memory=["held", "booted"]))
    assert len(runs) == 2 * 2 * len(conditions.SHARES)
    assert [one["seed"] for one in runs] == sorted(one["seed"] for one in runs)
    assert len(command.wanted(arguments(memory=["ramp"]))) == 1


def test_resumed_a_study_does_what_is_missing_and_otherwise_refuses_to_mix(capsys):
    runs = command.wanted(arguments(share=[0.5, 1.0]))
    kept = [run(seed=1, share=0.5)]
    assert len(command.to_do(kept, runs, arguments(resume=True))) == 3
    assert len(command.to_do(kept, runs, arguments(again=True))) == 4
    with pytest.raises(SystemExit) as ended:
        command.to_do(kept, runs, arguments())
    assert ended.value.code == 2
    assert "1 of these runs are there already: --resume does the others" in capsys.readouterr().err


def test_a_run_replaces_itself_and_no_other(tmp_path):
    path = tmp_path / "quicksort.json"
    for one in (run(seed=2), run(seed=1), run(seed=1, elapsed=12.0), run("booted")):
        results.add("quicksort", one, path)
    document = json.loads(path.read_text())
    assert (document["schema_version"], document["kind"]) == (1, "sizes")
    assert [(one["memory"], one["seed"], one["elapsed_s"]) for one in document["runs"]] == [
        ("held", 1, 12.0), ("held", 2, 10.0), ("booted", 1, 10.0)]


def test_a_run_of_other_code_does_not_count_and_says_why():
    other = run(seed=2) | {"depends": {"kernel/patches": "before"}}
    unknown = run(seed=3) | {"depends": None}
    kept, lines = results.sort_out({"program": "quicksort", "runs": [run(), other, unknown]})
    assert kept == [run()]
    assert "1 stale, of another kernel/patches" in lines[0]
    assert "1 stale, of another unknown code" in lines[1]


def test_the_footprint_is_that_of_the_run_with_plenty_at_this_scale():
    plenty = run("plenty", share=None, footprint_kib=170_000)
    tiny = run("plenty", share=None, footprint_kib=9000, scale="tiny")
    assert results.footprint_of([run(), plenty, tiny], "full") == 170_000
    assert results.footprint_of([run()], "full") is None


def test_a_full_footprint_below_forty_slices_is_refused(capsys):
    entry = {"program": "quicksort", "scale": "full", "footprint_kib": 40 * 2048 - 1}
    with pytest.raises(SystemExit):
        command.check_footprint(entry)
    assert "40 slices of 2 MiB are the least" in capsys.readouterr().err
    command.check_footprint(entry | {"footprint_kib": 40 * 2048})
    command.check_footprint(entry | {"scale": "tiny"})


def test_shares_that_no_machine_leaves_are_left_out_and_named(capsys):
    # No zone keeps more than it has
    zones = {"DMA": {"awake_reserve_pages": 1100, "managed_pages": 500},
             "DMA32": {"awake_reserve_pages": 2500, "managed_pages": 60_000}}
    plenty = run("plenty", share=None, footprint_kib=20_000, zones_before=zones)
    assert results.least_share([plenty], "full") == pytest.approx(0.6)
    assert results.least_share([run()], "full") == 0
    own = argparse.Namespace(name="hpl", scale="full", kept=lambda: [plenty])
    runs = [run(share=share) for share in (0.5, 0.7)]
    assert command.possible(own, runs, None) == runs[1:]
    assert "hpl: shares 0.5 are left out" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        command.possible(own, runs, [0.5, 0.7])
    assert ended.value.code == 2
    assert "shares 0.5 cannot be had: a machine keeps 0.60" in capsys.readouterr().err
    # A heap is in plenty of memory
    own.name = "garbage"
    assert command.possible(own, runs, [0.5]) == runs


def test_no_run_begins_once_one_has_failed_and_the_one_that_did_is_named(monkeypatch, capsys):
    begun = []

    def carry_out(_name, _scale, run, _modules, _found):
        begun.append(run["share"])
        raise command.RunFailed("the guest ended with status 124 and 0 results")

    monkeypatch.setattr(command, "carry_out", carry_out)
    monkeypatch.setattr(command, "image", lambda _flavour: None)
    monkeypatch.setattr(command.disk_modules, "build", lambda _kernel: None)
    monkeypatch.setattr(command.ram_disk, "lasting_part", lambda _name, _scale: None)
    own = command.Study("quicksort", "full")
    runs = command.wanted(arguments(share=[0.5, 0.7, 1.0]))
    with pytest.raises(SystemExit):
        command.carry_out_all(own, runs, {}, len(runs), jobs=1)
    assert begun == [0.5]
    assert "quicksort, held, seed 1, share 0.5: the guest ended with status 124" in (
        capsys.readouterr().err)


# --- what is refused ---


@pytest.mark.parametrize("words, message", [
    ([], "which program? There is quicksort"),
    (["quicksort", "--share", "0"], "--share 0: a share of the footprint is above 0"),
    (["quicksort", "--seeds", "0"], "--seeds 0: at least 1"),
    (["quicksort", "--memory", "ramp"], "ramp is not for quicksort: allowed is held, booted"),
    (["garbage", "--memory", "held"], "--memory held is not for garbage: allowed is heap"),
    (["sort"], "invalid choice: 'sort'"),
])
def test_wrong_words_are_refused_by_name(words, message):
    done = subprocess.run([RAMLAB, "size", *words], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("fields, message", [
    ({"memory": "held", "share": 9.0}, "at most 2.00 is allowed"),
    ({"memory": "held", "share": 0.01}, "a size below what boots: at least 8 MiB must be left"),
    ({"memory": "held", "share": 0.5, "footprint_kib": None}, "footprint unknown"),
    ({"memory": "ramp", "share_high": 1.0, "share_low": 1.0}, "must be below share_high"),
    ({"memory": "heap", "share": 1.0}, "too small a heap: more than 1 is allowed"),
    ({"memory": "less"}, "allowed are plenty, held, booted, heap and ramp"),
])
def test_a_size_that_cannot_be_had_says_what_is_allowed(fields, message):
    job = {"program": "quicksort", "footprint_kib": 160 << 10} | fields
    with pytest.raises(size.BadJob, match=message):
        size.check_job(job, 400 << 10, 80 << 10, 8 << 10)


def test_what_is_left_is_above_the_floor():
    job = {"program": "quicksort", "footprint_kib": 160 << 10, "memory": "held", "share": 0.5}
    assert size.check_job(job, 400 << 10, 80 << 10, 8 << 10) == (80 + 80) << 10
    plenty = job | {"memory": "plenty"}
    assert size.check_job(plenty, 400 << 10, 80 << 10, 8 << 10) == 400 << 10


# --- what programs are told ---


def test_the_order_of_units_is_the_seeds_and_the_units_are_the_same():
    work = STUDIES["compile"].scales["full"]["work"]
    one, again, other = rules(work, 1), rules(work, 1), rules(work, 2)
    assert one == again != other
    assert sorted(one.splitlines()[1:]) == sorted(other.splitlines()[1:])


def test_biased_readers_differ_from_others_in_their_choice_and_have_more_files():
    plain, biased = (reader_words(STUDIES[name].scales["full"]["work"], 1)
                     for name in ("readers", "biased"))
    differ = [(a, b) for a, b in zip(plain, biased) if a != b]
    assert differ == [(1400, 1500), (0, 80), (70, 75)]


# --- what the benchmark makes of it ---


def judged(*runs, again=()):
    found = {name: list(runs) if name == "quicksort" else [] for name in STUDIES}
    return {entry["name"]: entry for entry in sizes.judged(found, again)}


def test_held_is_compared_with_booted_of_the_same_seed_and_share():
    entries = judged(run(), run(share=1.0, elapsed=5.0), run(seed=2),
                     run("booted", elapsed=8.0, major=800),
                     run("booted", share=1.0, elapsed=5.0, major=10))
    assert sorted(entries["held-time"]["values"]) == [1.0, 1.25]
    # Ten faults say nothing
    assert entries["held-faults"]["values"] == [1.25]


def test_the_worst_difference_of_two_runs_of_one_seed_counts():
    other = run()
    other["counters"] = other["counters"] | {"pswpin": 4004, "pgmajfault": 1000}
    entry = judged(run(), again=[(run(), other)])["sizes-repeat"]
    assert entry["value"] == pytest.approx(4 / 4004)


def test_hours_are_known_once_every_run_is_there():
    assert "sizes-hours" not in judged(run())
    every = {name: [run(memory, seed, share) for memory in ("held", "booted", "heap")
                    for seed in range(1, conditions.SEEDS + 1)
                    for share in conditions.SHARES + conditions.HEAP_SHARES]
             + [run("ramp", share=1.2)] for name in STUDIES}
    entries = {entry["name"]: entry for entry in sizes.judged(every)}
    nr = sum(map(len, every.values()))
    assert entries["sizes-hours"]["value"] == pytest.approx(30 * nr / 2 / 3600)
    assert entries["sizes-host-seconds"]["value"] == 30


def test_every_program_is_studied_and_its_commands_name_it():
    names = [words[1] for words in sizes.commands(quick=False)]
    assert list(dict.fromkeys(names)) == list(STUDIES)
    assert {name for name in names if names.count(name) > 1} == set(sizes.MORE_SEEDS)
    booted = {words[1] for words in sizes.commands(quick=True) if "booted" in words}
    assert booted == set(conditions.BOOTED)
