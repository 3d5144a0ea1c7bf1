# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benchmark of give-back works out from what guests left."""

import pytest

from ramlab import demo_giveback
from ramlab.bench import giveback
from ramlab.guest import giveback_work

GIB = giveback.GIB


# Of 10 s of the processor, 4 for work
PHASES = [{"phase": name, "busy_s": busy_s} for name, busy_s in
          (("files", 10.0), ("idle", 13.0), ("burst again", 18.0), ("idle again", 19.0))]


def figures(held, used=GIB, **more):
    """A guest of which the host holds `held` GiB at these seconds: {s: (phase, GiB)}."""
    return {
        "samples": [{"s": s, "phase": phase, "held_bytes": gib * GIB, "used_bytes": used,
                     "busy_s": 20.0}
                    for s, (phase, gib) in held.items()],
        "phases": PHASES, "read_bytes": 0, "second_burst_s": 2.0, "killed": 0,
        "swapped_pages": 0, "failed_allocations": 0, "stalled_ms": 0, "busy_s": 2.0,
        "reserve_bytes": 0,
        "host": {"faults": 500, "system_s": 1.0},
    } | more


BURST = {60: ("burst again", 3), 62: ("idle again", 3), 64: ("idle again", 2.5)}
OURS = figures({0: ("files", 2), 30: ("idle", 2), 45: ("idle", 1.5), 58: ("idle", 1.5)} | BURST
               | {66: ("idle again", 1.6)})


def judged(**arms):
    found = {giveback.OURS: [OURS, OURS], giveback.USUAL: [OURS], giveback.NOTHING: [OURS]}
    return {entry["name"]: entry for entry in giveback.judged(found | arms)}


def test_time_counts_until_the_next_look():
    samples = [{"s": s, "held_bytes": gib * GIB} for s, gib in ((0, 2), (30, 4), (60, 100))]
    assert giveback.gib_minutes(samples, "held_bytes") == pytest.approx(3)


def test_held_over_used_is_that_of_the_end_of_the_idle_time():
    assert judged()["held-over-used"]["value"] == pytest.approx(1.5)
    reserve = OURS | {"reserve_bytes": GIB // 4}
    assert judged(ours=[reserve, reserve])["held-over-used"]["value"] == pytest.approx(1.25)


def test_what_is_used_is_that_of_the_guest_that_gives_nothing_back():
    half = OURS | {"samples": [row | {"used_bytes": GIB // 2} for row in OURS["samples"]]}
    assert judged(ours=[half, half])["held-over-used"]["value"] == pytest.approx(1.5)
    assert judged(none=[half])["held-over-used"]["value"] == pytest.approx(3)


@pytest.mark.parametrize("arm", demo_giveback.NAMES)
def test_the_demonstration_does_the_work_of_the_benchmark(arm, tmp_path):
    line = demo_giveback.command(arm, tmp_path, ["/d/ramsliced", "/d/ramslice"])
    assert f"mem-path={tmp_path}/memory" in " ".join(line)
    assert "RAMSLICE_DAEMON=/d/ramsliced" in line and str(tmp_path / "result.json") in line


def test_it_takes_until_nine_tenths_are_back():
    assert giveback.give_back_seconds(OURS) == 4
    never = figures({58: ("idle", 1.5)} | BURST)
    assert giveback.give_back_seconds(never) is None
    assert "seconds-to-give-back" not in judged(ours=[never, never])
    # As long as it was watched, if that is not over
    found = judged(ours=[OURS, OURS, never])["seconds-to-give-back"]
    assert (found["value"], found["values"], found["beside"]["not-back"]) == (4, [4, 4, 2], 1)


def test_an_arm_that_gave_nothing_back_has_no_time_for_it():
    kept = figures({58: ("idle", 3), 60: ("burst again", 3.1), 62: ("idle again", 3.1),
                    64: ("idle again", 3)})
    assert giveback.give_back_seconds(kept) is None
    beside = judged(none=[kept])["seconds-to-give-back"]["beside"]
    assert beside == {"reporting": 4, "not-back": 0}


def test_arms_that_hold_twice_as_much_have_twice_the_gib_minutes():
    twice = figures({row["s"]: (row["phase"], 2 * row["held_bytes"] / GIB)
                     for row in OURS["samples"]})
    entry = judged(reporting=[twice])["gib-minutes"]
    assert entry["value"] == pytest.approx(0.5)
    assert entry["beside"]["reporting"] == pytest.approx(1)


def test_what_was_killed_or_swapped_is_counted():
    assert judged()["lost"]["value"] == 0
    assert judged(ours=[OURS, OURS | {"killed": 1, "swapped_pages": 3}])["lost"]["value"] == 4


def slower(phase, by_s):
    """The phases, of which one takes the processor longer."""
    later = [row["phase"] for row in PHASES].index(phase)
    return [row | {"busy_s": row["busy_s"] + by_s * (number > later)}
            for number, row in enumerate(PHASES)]


def test_what_give_back_costs_is_over_the_work_without():
    more = OURS | {"phases": slower("files", 1), "busy_s": 3.0,
                   "host": {"faults": 800, "system_s": 1.0}}
    entries = judged(ours=[more, more], none=[OURS])
    assert entries["instructions"]["value"] == pytest.approx(1.25)
    assert entries["instructions"]["beside"]["with-idle-ours"] == pytest.approx(1.5)
    assert entries["instructions"]["beside"]["host-faults-ours"] == pytest.approx(1.6)


def test_only_an_arm_that_gives_back_has_a_balloon():
    has = {arm: giveback.BALLOON in giveback.words(arm, "/m")[-1]
           for arm in (giveback.OURS, giveback.USUAL, giveback.NOTHING)}
    assert has == {"ours": True, "reporting": True, "none": False}
    assert giveback.flavour(giveback.OURS) != giveback.flavour(giveback.USUAL)


def test_memory_that_is_plugged_is_as_much_in_all():
    words = giveback.words(giveback.PLUGGED, "/m")
    assert words[words.index("--mem") + 1] == giveback.BASE
    assert f"size={giveback.MORE},mem-path=/m-more" in words[-1]
    assert giveback_work.PLUGGABLE == int(giveback.MORE[:-1]) << 20
    assert int(giveback.BASE[:-1]) + int(giveback.MORE[:-1]) == int(giveback.MEMORY[:-1]) << 10


@pytest.mark.parametrize(("available_mib", "looks", "size_mib"), [
    # Less than the headroom: at once as much more as lacks, at most all
    (156, 1, 1100), (0, 1, 1256), (-2000, 1, 1536),
    # More: not before ten seconds are over
    (656, 1, 1000), (656, 10, 600), (3000, 10, 0), (257, 10, 1000),
])
def test_the_script_plugs_at_once_and_unplugs_later(monkeypatch, available_mib, looks, size_mib):
    asked = []
    monkeypatch.setattr(giveback_work, "meminfo", lambda: {"MemAvailable": available_mib << 10})
    script = object.__new__(giveback_work.PluggingScript)
    script.wanted, script.look = 1000 << 20, looks - 1
    monkeypatch.setattr(script, "ask", asked.append)
    script()
    assert (asked[-1] if asked else script.wanted) == size_mib << 20


def test_another_load_is_judged_against_reporting_and_nothing():
    half = figures({row["s"]: (row["phase"], row["held_bytes"] / GIB / 2)
                    for row in OURS["samples"]}, phases=slower("burst again", 2))
    found = {giveback.OURS: [half, half],
             giveback.USUAL: [OURS | {"phases": slower("files", 1)}],
             giveback.NOTHING: [OURS | {"phases": slower("idle", 100)}],
             giveback.PLUGGED: [OURS | {"killed": 2}]}
    entries = {entry["name"]: entry for entry in giveback.judged_other("redis", found)}
    assert entries["redis-gib-minutes"]["value"] == pytest.approx(0.5)
    assert entries["redis-instructions"]["value"] == pytest.approx(1.5)
    assert entries["redis-instructions"]["beside"]["reporting"] == pytest.approx(1.25)
    assert entries["redis-lost"]["value"] == 0
    assert entries["redis-lost"]["beside"]["virtio-mem"] == 2


def test_on_stock_ours_is_compared_with_reporting_alone():
    half = figures({row["s"]: (row["phase"], row["held_bytes"] / GIB / 2)
                    for row in OURS["samples"]}, phases=slower("files", 2))
    found = {giveback.STOCK: [half, half], giveback.HOTPLUG: [OURS], giveback.USUAL: [OURS]}
    entries = {entry["name"]: entry for entry in giveback.judged_stock(found)}
    assert entries["stock-gib-minutes"]["value"] == pytest.approx(0.5)
    assert entries["stock-gib-minutes"]["beside"]["work-s-ours-stock"] == pytest.approx(6)
    assert entries["stock-gib-minutes"]["beside"]["stock-hotplug"] == pytest.approx(1)
    assert entries["stock-lost"]["value"] == 0
