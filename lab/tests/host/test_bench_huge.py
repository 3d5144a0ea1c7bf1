# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benchmark of huge pages works out from what guests left, and how many blocks could be
had.
"""

import types

import pytest

from ramlab.bench import entries, huge, machines
from ramlab.guest import aged_load

GIB = 1 << 30
ZONEINFO = """\
Node 0, zone      DMA
  pages free     3840
        high     10
        spanned  4095
        present  3998
        managed  3840
  start_pfn:           1
Node 0, zone    DMA32
  pages free     400000
        high     1000
        spanned  1044480
        present  524253
        managed  500000
  start_pfn:           4096
Node 0, zone   Normal
  pages free     2000000
        high     2000
        spanned  3670016
        present  3670016
        managed  3600000
  start_pfn:           1048576
Node 0, zone  Movable
  pages free     0
        high     32
        spanned  0
        present  0
        managed  0
  start_pfn:           0
"""


def left(granted, attainable=10, ticks=1000, fresh=500, command=0, objects=None):
    """Pages granted in all, and how many of them only by the command."""
    return {
        "attainable": attainable,
        "aged": {"granted": granted - command, "ticks": ticks, "tries": 1,
                 "failed_ticks": 900},
        "aged_command": {"granted": command, "ticks": 6000, "refused": [], "objects": objects},
        "fresh": {"granted": 1 if fresh else 0, "ticks": fresh, "tries": 1},
        "fresh_command": {"granted": 1, "ticks": 1500, "refused": [], "objects": None},
        "blocked": {"slab": 1},
    }


def judged(**arms):
    found = {arm: [left(10), left(9)] for arm in huge.WAYS}
    return {entry["name"]: entry for entry in huge.judged(found | arms)}


def zone_file(monkeypatch, folder, free_kib, cache_kib=0, fixed=None):
    """A machine whose pages are all there and none reserved, but those of {page frame: flag}."""
    flags = folder / "kpageflags"
    with open(flags, "wb") as file:
        file.truncate(8 * (1048576 + 3670016))
        for frame, bit in (fixed or {}).items():
            file.seek(8 * frame)
            file.write((1 << bit).to_bytes(8, "little"))
    monkeypatch.setattr(aged_load, "open", lambda _, *rest, **named: open(flags, *rest, **named),
                        raising=False)
    monkeypatch.setattr(aged_load, "Path", lambda _: types.SimpleNamespace(
        read_text=lambda: ZONEINFO))
    monkeypatch.setattr(aged_load.harness, "meminfo", lambda: {
        "MemFree": free_kib, "Active(file)": cache_kib, "Inactive(file)": cache_kib})


def test_pages_are_pooled_over_boots_not_averaged():
    entry = judged(ours=[left(10, 10), left(1, 2)])["granted"]
    assert entry["value"] == pytest.approx(11 / 12)
    assert entry["ci95"] == [pytest.approx(0.5), pytest.approx(1)]
    assert entry["beside"]["stock"] == pytest.approx(19 / 20)


def test_what_shrinking_caches_brought_is_told_apart():
    boots = [left(10, 10), left(9, 10, command=3, objects={"pages_made": 2})]
    entry = judged(ours=boots)["granted"]
    assert entry["value"] == pytest.approx(19 / 20)
    assert entry["beside"][huge.BEFORE_SHRINKING] == pytest.approx(17 / 20)
    assert entry["beside"][huge.BEFORE_COMMAND] == pytest.approx(16 / 20)


def test_reasons_of_ranges_that_stay_are_counted_for_a_boot():
    boots = [left(10) | {"blocked": {"slab": 1}}, left(9) | {"blocked": {"slab": 2, "boot": 1}}]
    assert judged(ours=boots)["granted"]["blocked"] == {"boot": 0.5, "slab": 1.5}


def test_a_page_costs_what_those_took_that_were_granted():
    entry = judged(ours=[left(4, ticks=400)] * 2, stock=[left(2, ticks=400)] * 2)["page-aged"]
    assert entry["value"] == pytest.approx(0.5)
    assert entry["not_to_be_had"]["stock"] == pytest.approx(900)


def test_what_the_command_takes_stands_beside_and_counts_in_no_target():
    ours = [left(6, ticks=400, command=2), left(4, ticks=400)]
    entries = judged(ours=ours, stock=[left(2, ticks=400)] * 2)
    assert entries["page-aged"]["value"] == pytest.approx(0.5)
    assert entries["page-aged"]["beside"]["ramslice huge"] == pytest.approx(3000 / 200)
    assert entries["page-fresh"]["value"] == pytest.approx(1)
    assert entries["page-fresh"]["beside"]["ramslice huge"] == pytest.approx(3)


def test_boots_in_which_stock_grants_none_have_no_cost():
    entries = judged(stock=[left(0), left(0)])
    assert "page-aged" not in entries
    assert judged(stock=[left(0), left(2)])["page-aged"]["n"] == 1


def test_every_arm_runs_the_same_load_with_the_same_first_seeds(monkeypatch):
    boots = []
    monkeypatch.setattr(huge, "images_of", lambda *_: {})
    monkeypatch.setattr(machines, "run", lambda of, *_, **__: boots.extend(of) or {
        arm: [left(10)] for arm in huge.WAYS})
    used = types.SimpleNamespace(program=lambda name: name, modules=set())
    huge.aged(types.SimpleNamespace(used=used, seed=7, quick=False))
    by_arm = {arm: [boot.parts[1] for boot in boots if boot.arm == arm] for arm in huge.WAYS}
    assert by_arm[huge.OURS] == by_arm[huge.ANYWHERE] == by_arm[huge.STOCK]
    assert len(by_arm[huge.OURS]) == huge.BOOTS
    beside = by_arm[huge.OURS][:huge.BOOTS_BESIDE]
    assert by_arm[huge.TRIES] == by_arm[huge.CMA] == by_arm[huge.DEFRAG] == beside
    assert {boot.flavour for boot in boots if "ours" in boot.arm} == {"plain"}
    assert {boot.flavour for boot in boots if boot.arm == huge.DEFRAG} == {huge.NEWEST}
    assert {boot.flavour for boot in boots if boot.arm in (huge.STOCK, huge.TRIES, huge.CMA)} == {
        "stock"}


def test_ranges_are_aligned_and_of_one_zone(monkeypatch, tmp_path):
    zone_file(monkeypatch, tmp_path, 0)
    # DMA32 ends at 4 GiB and begins in the first; Normal has 14
    assert aged_load.nr_ranges(aged_load.zones(), GIB) == 3 + 14


def test_ranges_that_boot_or_holes_keep_do_not_count(monkeypatch, tmp_path):
    last = 1048576 + 3670016 - 1
    zone_file(monkeypatch, tmp_path, 0,
              fixed={786432: aged_load.KPF_NOPAGE, last: aged_load.KPF_RESERVED, 1048576: 5})
    assert aged_load.nr_ranges(aged_load.zones(), GIB) == 2 + 13


def test_attainable_is_what_is_free_or_cache_above_the_watermarks(monkeypatch, tmp_path):
    gib = 1 << 20
    high = (10 + 1000 + 2000) * 4
    for free, cache, pages in ((3 * gib + high, 0, 3), (3 * gib + high - 4, 0, 2),
                               (3 * gib, gib, 4), (100 * gib, 0, 17)):
        zone_file(monkeypatch, tmp_path, free, cache)
        assert aged_load.attainable(GIB) == pages


def test_blocks_of_another_size_have_ranges_and_room_of_that_size(monkeypatch, tmp_path):
    size, high = 64 << 20, (10 + 1000 + 2000) * 4
    # A page of boot's keeps 64 MiB, not a GiB
    zone_file(monkeypatch, tmp_path, 3 * (size >> 10) + high,
              fixed={1048576: aged_load.KPF_RESERVED})
    # Of DMA32, all but the range that DMA begins in; of 14 GiB of Normal, all but one
    assert aged_load.nr_ranges(aged_load.zones(), size) == 63 + 14 * 16 - 1
    assert aged_load.attainable(size) == 3
    assert aged_load.attainable(GIB) == 0


def test_every_target_is_about_an_entry_of_a_part():
    parts = {"aged": ("granted", "page-"), "buffers": ("buffers-granted",),
             "burst": ("buffers-success", "buffers-idle"), "failing": ("failing-",),
             "interleaved": ("interleaved-",), "strided": ("strided-",)}
    assert set(huge.PARTS) == set(parts)
    for name in entries.targets()["huge"]:
        assert sum(name.startswith(begins) for begins in parts.values()) == 1, name
