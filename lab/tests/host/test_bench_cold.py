# SPDX-License-Identifier: GPL-2.0-or-later
"""Accesses to DRAM: the plugin's model of caches against a plain one, and what is worked out from
its records and from the programs that it counts.
"""

import json
import random
import subprocess
from collections import Counter

import pytest

from ramlab import dram_accesses, emulator_plugins, guest_programs
from ramlab.bench import cold
from ramlab.guest import bench_cold

LINE = 64
SLICE = 16384
NR_SLICES = 64


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    """Plays a trace with small caches: a record."""
    program = tmp_path_factory.mktemp("replay") / "replay_trace"
    source = emulator_plugins.SOURCE / "replay_trace.c"
    subprocess.run(["gcc", *emulator_plugins.FLAGS, "-o", program, source], check=True)

    def play(trace, end, caches=(1024, 2, 8192, 4), slices=NR_SLICES, check=True):
        words = [str(word) for word in (*caches, SLICE, slices)]
        text = "".join(" ".join(map(str, row)) + "\n" for row in [*trace, [end]])
        done = subprocess.run([program, *words], input=text, text=True, check=check,
                              capture_output=True)
        return json.loads(done.stdout) if check else done

    return play


@pytest.fixture(scope="module")
def energy_map():
    return guest_programs.build() / "energy_map"


class PlainCache:
    """A cache as a list of [number, class, dirty] for each set, last used first."""

    def __init__(self, size, ways):
        self.ways, self.sets = ways, [[] for _ in range(size // LINE // ways)]

    def use(self, number, kind, dirty):
        """Whether it was there, and the line that had to go."""
        lines = self.sets[number % len(self.sets)]
        found = next((line for line in lines if line[0] == number), None)
        if found:
            lines.remove(found)
            found = [number, kind or found[1], found[2] or dirty]
        lines.insert(0, found or [number, kind, dirty])
        return bool(found), lines.pop() if len(lines) > self.ways else None


class PlainModel:
    """The rules of cache_model.h, one after the other; every access to DRAM is kept."""

    def __init__(self, l1_size, l1_ways, l2_size, l2_ways):
        self.l1, self.l2 = PlainCache(l1_size, l1_ways), PlainCache(l2_size, l2_ways)
        self.dram = []

    def second(self, now, number, kind, dirty, fill):
        there, victim = self.l2.use(number, kind, dirty)
        if not there and fill:
            self.dram.append((now, number, kind, "reads"))
        if victim and victim[2]:
            self.dram.append((now, victim[0], victim[1], "writes"))

    def access(self, now, address, size, store, kind):
        for number in range(address // LINE, (address + size - 1) // LINE + 1):
            there, victim = self.l1.use(number, kind, bool(store))
            if there:
                continue
            self.second(now, number, kind, False, True)
            if victim and victim[2]:
                self.second(now, victim[0], victim[1], True, False)


def counts_of(record):
    """{(slice, class, reads or writes): lines}"""
    return {(row["slice"], kind, what): nr for row in record["slices"]
            for what in ("reads", "writes") for kind, nr in enumerate(row[what]) if nr}


def gaps_of(dram, number, end):
    times = [0, *(now for now, line, *_ in dram if line * LINE // SLICE == number), end]
    return [after - before for before, after in zip(times, times[1:])]


def generated(seed, nr=3000):
    """A trace in which lines come again soon, late, and never, and some accesses are of two."""
    rng = random.Random(seed)
    near = [rng.randrange(NR_SLICES * SLICE - LINE) for _ in range(rng.choice((4, 40, 400)))]
    now, trace = 0, []
    for _ in range(nr):
        now += int(rng.expovariate(1) ** 6)
        address = rng.choice(near) if rng.random() < 0.8 else rng.randrange(NR_SLICES * SLICE - 64)
        trace.append((now, address, rng.choice((1, 4, 8, 16, 32)), rng.randrange(2),
                      rng.randrange(4)))
    return trace, now + rng.randrange(10**6)


@pytest.mark.parametrize("caches", [(1024, 2, 8192, 4), (512, 8, 1024, 16), (64, 1, 64, 1)])
def test_the_model_counts_what_a_plain_one_does(replay, caches):
    for seed in range(8):
        trace, end = generated(seed)
        record = replay(trace, end, caches)
        plain = PlainModel(*caches)
        for row in trace:
            plain.access(*row)
        wanted = Counter((line * LINE // SLICE, kind, what) for _, line, kind, what in plain.dram)
        assert counts_of(record) == wanted, seed
        assert wanted.total() > 100
        for row in record["slices"]:
            gaps = gaps_of(plain.dram, row["slice"], end)
            assert sum(nr for _, nr, _ in row["gaps"]) == len(gaps)
            for shortest, nr, together in row["gaps"]:
                inside = [gap for gap in gaps if bucket_of(gap) == shortest]
                assert (nr, together) == (len(inside), sum(inside))


def bucket_of(gap):
    """The shortest gap of a gap's bucket: quarters of octaves from 4 ns on."""
    if gap < 4:
        return gap
    quarter = 1 << (gap.bit_length() - 3)
    return gap // quarter * quarter


def test_gaps_of_a_slice_are_as_long_as_the_time(replay):
    trace, end = generated(1)
    for row in replay(trace, end)["slices"]:
        assert sum(together for *_, together in row["gaps"]) == end


def test_a_line_that_is_used_again_reaches_dram_once(replay):
    record = replay([(n, 128, 8, 0, 1) for n in range(100)], 1000)
    assert counts_of(record) == {(0, 1, "reads"): 1}
    assert (record["loads"], record["l1_misses"]) == (100, 1)


def test_what_was_written_goes_to_dram_as_its_own_class(replay):
    # Loads of another class drive the line out of both caches
    trace = [(0, 0, 8, 1, 2)] + [(n, n * LINE, 8, 0, 1) for n in range(1, 400)]
    assert counts_of(replay(trace, 1000))[0, 2, "writes"] == 1


def test_accesses_beyond_the_last_slice_are_counted_apart(replay):
    record = replay([(0, 2 * SLICE, 8, 0, 1)], 10, slices=2)
    assert (record["beyond"], record["slices"]) == (1, [])


def test_caches_that_cannot_be_are_refused_in_words(replay):
    for caches, word in (((1000, 3, 8192, 4), "l1"), ((1024, 2, 8192, 0), "l2"),
                         ((1024, 128, 8192, 4), "l1")):
        done = replay([], 0, caches, check=False)
        assert done.returncode == 2 and word in done.stderr


# --- reading of records -----------------------------------------------------------


def record_of(gaps, ns=1000, number=3, label=0):
    """A record of one slice with these gaps."""
    rows = {}
    for gap in gaps:
        row = rows.setdefault(bucket_of(gap), [bucket_of(gap), 0, 0])
        row[1] += 1
        row[2] += gap
    lines = [0, len(gaps) - 1] + [0] * 6
    return {"label": label, "ns": ns, "beyond": 0, "slices": [
        {"slice": number, "reads": lines, "writes": [0] * 8, "gaps": list(rows.values())}]}


def test_rest_begins_when_the_threshold_has_passed():
    record = record_of([100, 400, 500])
    for threshold, share in ((4, 0.988), (256, (144 + 244) / 1000), (448, 52 / 1000), (512, 0)):
        assert dram_accesses.rest_share(record, 3, threshold) == pytest.approx(share)


def test_rest_by_records_is_that_of_the_gaps_themselves(replay):
    trace, end = generated(5)
    record = replay(trace, end)
    plain = PlainModel(1024, 2, 8192, 4)
    for row in trace:
        plain.access(*row)
    for number in range(NR_SLICES):
        gaps = gaps_of(plain.dram, number, end)
        for threshold in dram_accesses.thresholds(100, 10**6):
            wanted = sum(max(gap - threshold, 0) for gap in gaps) / end
            assert dram_accesses.rest_share(record, number, threshold) == pytest.approx(wanted)


def test_a_slice_without_accesses_rests_but_for_the_threshold():
    assert dram_accesses.rest_share(record_of([1000]), 7, 100) == pytest.approx(0.9)


def test_thresholds_reach_from_one_to_ten_thousand_microseconds():
    edges = dram_accesses.thresholds()
    assert 800 < edges[0] <= 1_000 and 10_000_000 <= edges[-1] < 12_500_000
    assert all(bucket_of(edge) == edge for edge in edges)


def test_rest_is_weighted_by_pages():
    # Slice 3 does not rest at all, slice 4 does but for the threshold
    record = record_of([1] * 1000)
    assert dram_accesses.weighted_rest(record, {3: 30, 4: 10}, 100) == pytest.approx(0.9 / 4)


def test_records_of_several_lines_are_read(tmp_path):
    path = tmp_path / "accesses"
    path.write_text("".join(json.dumps(record_of([1000], label=n), indent=1) + "\n"
                            for n in (0, 1)))
    assert list(dram_accesses.records(path)) == [0, 1]
    assert list(dram_accesses.records(path, path.stat().st_size)) == []


def test_a_clock_that_saw_other_time_is_found_out():
    figures = {"clock_of_million": 1_000_002, "ns": {"copy": 1000, "scale": 2000}}
    good = {0: {"ns": 1000}, 1: {"ns": 2001}}
    assert bench_cold.clock_problem(figures, good) is None
    assert "phase 1" in bench_cold.clock_problem(figures, good | {1: {"ns": 1990}})
    figures["clock_of_million"] = 300_000
    assert "million" in bench_cold.clock_problem(figures, good)


# --- what the suite works out -----------------------------------------------------


def streamed(cold_lines, cold_pages):
    record = record_of([500, 500])
    row = record["slices"][0]
    row["reads"][1] = 1000 - cold_lines
    record["slices"].append(row | {"slice": 15, "reads": [7, cold_lines] + [0] * 6})
    return {"cold_slices": [14, 15], "records": [record, record],
            "figures": {"bytes": 0, "ns": {"copy": 1, "scale": 1},
                        "pages": {"3": 10 - cold_pages, "15": cold_pages}}}


def test_arrays_elsewhere_count_against_stream():
    found = cold.stream_entries({"hot": [streamed(0, 0)], "cold": [streamed(990, 9)]})
    by_name = {entry["name"]: entry for entry in found}
    assert by_name["stream-pages"]["value"] == pytest.approx(0.1)
    assert by_name["stream-accesses"]["value"] == pytest.approx(0.01)
    assert by_name["stream-accesses"]["beside"]["hot"] == [1]


def phase_of(ktps=90, cold_nr=90, clairvoyant=60, pages=None):
    return {"label": 0, "ktps": ktps, "ops": 1000, "ns": 5000, "cold": cold_nr, "late_ns": 0,
            "clairvoyant_cold": clairvoyant, "hot_pages": {"3": 1}, "cold_pages": pages or {}}


def test_cold_slices_are_looked_at_where_one_area_rests_5_percent():
    ns = 10**9
    # One area: a gap of 3 ms in 20; the cold slice: one of 100 ms in 125
    one = record_of([3_000_000] * 50 + [17_000_000 // 20] * 1000, ns=ns)
    apart = record_of([100_000_000] * 8 + [200_000] * 1000, ns=ns, number=15)
    by_arm = {cold.SEPARATED: [(phase_of(pages={"15": 4}), apart)],
              cold.ONE_AREA: [(phase_of(), one)]}
    entry, = cold.rest_entries("eam-rest", by_arm, 90)
    edges = dram_accesses.thresholds()
    at = edges.index(entry["threshold_ns"])
    curve = entry["curves"][cold.ONE_AREA]["90"]
    assert curve[at] >= 0.05 > curve[at + 1]
    wanted = 8 * (100_000_000 - entry["threshold_ns"]) / ns
    assert entry["value"] == pytest.approx(wanted)
    assert entry["n"] == 1
    # Another pair of boots is judged at a threshold of its own
    busier = record_of([1_000_000] * 100 + [900_000] * 1000, ns=ns)
    more = {cold.SEPARATED: by_arm[cold.SEPARATED], cold.ONE_AREA: [(phase_of(), busier)]}
    entry, = cold.rest_entries("eam-rest", by_arm, 90, more)
    shorter = entry["threshold_ns_of_each"][1]
    assert entry["n"] == 2 and shorter < entry["threshold_ns"]
    assert entry["values"] == pytest.approx([wanted, 8 * (100_000_000 - shorter) / ns])


def test_cold_accesses_are_over_the_clairvoyants():
    assert cold.cold_over_clairvoyant(phase_of()) == pytest.approx(1.5)
    assert cold.cold_over_clairvoyant(phase_of(clairvoyant=0)) is None


def test_cold_accesses_are_judged_at_one_rate_of_some_boots(monkeypatch):
    monkeypatch.setattr(cold, "share_of_lines", lambda *_: 0)
    monkeypatch.setattr(dram_accesses, "share_in", lambda *_: 1)
    some = [(phase_of(ktps=30, cold_nr=300), None), (phase_of(), None)]
    more = [(phase_of(cold_nr=120), None)]
    entry = cold.cold_entry("eam-cold-accesses", some, {"cold_slices": []}, 90, more)
    assert entry["values"] == pytest.approx([1.5, 2])
    assert entry["by_ktps"] == {"30": 5, "90": 1.5} and entry["ktps"] == [30, 90]


def test_sizes_that_fit_the_hot_area_are_no_evidence():
    def boot(gap):
        record = record_of([gap] * 10, ns=10 * gap)
        return [{"figures": {"phases": [phase_of()]}, "records": [record]}]

    found = {f"{arm}-{mib}" if mib != 640 else arm: boot(10**7 if arm == cold.SEPARATED else 10**5)
             for arm in cold.PATCHED for mib in (256, 640, 832)}
    entry, = cold.size_entries(found)
    assert entry["n"] == 2 and set(entry["by_mib"]) == {"256", "640", "832"}


def test_every_arm_has_a_kernel_and_only_separated_is_strict():
    assert {arm: flavour for arm, (flavour, _) in cold.ARMS.items() if flavour != "plain"} == {
        cold.STOCK: "stock"}
    assert [arm for arm, (_, words) in cold.ARMS.items() if "strict" in words] == [cold.SEPARATED]


# --- the map ----------------------------------------------------------------------


def settle(program, path, **words):
    line = [program, "settle", f"state={path}", *(f"{name}={value}" for name, value
                                                  in words.items())]
    done = subprocess.run(line, text=True, capture_output=True, check=True)
    return json.loads(done.stdout)


SMALL = {"keys": 4096, "hot": 2048, "cold": 2176, "seed": 3}


def test_draws_are_as_popular_as_zipf_says(energy_map, tmp_path):
    found = settle(energy_map, tmp_path / "state", ops=4_000_000, draw="zipf", **SMALL)
    chances = [rank**-0.95 for rank in range(1, 4097)]
    wanted = sum(chances[2048:]) / sum(chances)
    assert found["clairvoyant_cold"] / found["accesses"] == pytest.approx(wanted, rel=0.02)


def test_four_fifths_of_draws_are_of_one_fifth_of_the_keys(energy_map, tmp_path):
    found = settle(energy_map, tmp_path / "state", ops=4_000_000, draw="80-20", **SMALL)
    wanted = 0.2 * 2048 / (4096 - 819)
    assert found["clairvoyant_cold"] / found["accesses"] == pytest.approx(wanted, rel=0.02)


def test_cold_values_come_back_one_time_in_64(energy_map, tmp_path):
    found = settle(energy_map, tmp_path / "state", ops=4_000_000, draw="zipf", **SMALL)
    assert found["returned"] / found["cold"] == pytest.approx(1 / 64, rel=0.2)
    assert 1 < found["cold"] / found["clairvoyant_cold"] < 1.5


def run_map(program, path, hot, **words):
    line = [program, "run", f"state={path}", *(f"{name}={value}" for name, value in (
        SMALL | {"hot": hot, "ops": 20000, "count": 0} | words).items())]
    return subprocess.run(line, text=True, capture_output=True)


def test_values_are_right_after_they_moved(energy_map, tmp_path):
    path = tmp_path / "state"
    settle(energy_map, path, ops=100_000, **SMALL)
    done = run_map(energy_map, path, 2048, warm=1000, rates="0,1000")
    found = json.loads(done.stdout)
    assert (done.returncode, found["wrong"]) == (0, 0)
    for phase in found["phases"]:
        assert phase["returned"] > 0 and phase["evicted"] > 0
    # A rate of a million a second: 20 ms
    assert found["phases"][1]["ops"] == 20000


def test_with_one_area_nothing_moves(energy_map, tmp_path):
    path = tmp_path / "state"
    settle(energy_map, path, ops=1000, **SMALL)
    phase, = json.loads(run_map(energy_map, path, 0, cold=0).stdout)["phases"]
    assert (phase["cold"], phase["evicted"], phase["cold_pages"]) == (0, 0, {})


def test_words_of_the_map_are_checked(energy_map, tmp_path):
    for words, text in (({"keys": 0}, "keys"), ({"cold": 100}, "cold"), ({"slice": 5}, "slice"),
                        ({"rates": "3,x"}, "rates"), ({"hot": "many"}, "hot")):
        done = run_map(energy_map, tmp_path / "state", **{"hot": 2048} | words)
        assert done.returncode == 2 and text in done.stderr, words
