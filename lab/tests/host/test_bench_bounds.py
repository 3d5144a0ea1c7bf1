# SPDX-License-Identifier: GPL-2.0-or-later
"""What the suite of slices works out about bounds and huge pages from what guests left."""

import pytest

from ramlab.bench import bounds, slices, thp
from ramlab.guest import bench_bounds

TRACE = """\
# tracer: irqsoff
#
# irqsoff latency trace v1.1.5 on 6.12.117
# latency: 12 us, #4/4, CPU#0 | (M:server VP:0, KP:0, SP:0 HP:0 #P:1)
#    | task: python3-143 (uid:0 nice:0 policy:0 rt_prio:0)
#  => started at: _raw_spin_lock_irq
#  => ended at:   _raw_spin_unlock_irq
 python3-143       0dn..    0us : _raw_spin_lock_irq
 python3-143       0dn..   12us+: _raw_spin_unlock_irq
 python3-143       0dn..   13us : trace_hardirqs_on <-_raw_spin_unlock_irq
 python3-143       0dn..   14us : <stack trace>
 => _raw_spin_unlock_irq
 => ramslice_fill_states
 => ramslice_fill_rows
 => ramslice_ioctl.isra.0
 => entry_SYSCALL_64_after_hwframe
"""


def section(us, function="ramslice_a", of_any=99):
    return {"us": us, "function": function, "sections": 4, "lost": 0,
            "any": {"us": of_any, "started": "free_pcppages_bulk", "stack": []}}


def test_the_tracers_words_are_read():
    assert bench_bounds.longest_of(TRACE) == {
        "started": "_raw_spin_lock_irq",
        "stack": ["_raw_spin_unlock_irq", "ramslice_fill_states", "ramslice_fill_rows",
                  "ramslice_ioctl.isra.0", "entry_SYSCALL_64_after_hwframe"]}
    assert bench_bounds.longest_of("# tracer: irqsoff\n") == {"started": None, "stack": []}


def test_our_functions_are_ranges_of_the_kernels_text():
    symbols = ["ffffffff81000000 T _stext", "ffffffff81000100 t rmqueue",
               "ffffffff81000200 t ramslice_a", "ffffffff81000300 T between",
               "ffffffff81000400 T __ramslice_b", "ffffffff81000480 T after",
               "ffffffff81100000 t ramslice_far", "ffffffff81100040 T last",
               "ffffffff82000000 d ramslice_data",
               "ffffffffc0000000 t ramslice_sim\t[ramslice_sim]"]
    assert bench_bounds.text_ranges(symbols) == [(0x200, 0x480), (0x100000, 0x100040)]


def test_a_section_is_ours_if_it_begins_in_a_function_of_ours():
    longest, nr, lost = bench_bounds.sections(
        event("irq_disable", 1.000100, "ramslice_a") + event("irq_enable", 1.000113, "ramslice_a")
        + event("irq_disable", 1.000200, "ramslice_a") + event("irq_enable", 1.000205, "ksys_ioctl")
        + event("irq_disable", 1.000300, "rmqueue") + event("irq_enable", 1.000900, "ramslice_b"))
    assert (longest, nr, lost) == ({"ramslice_a": 13}, 2, 0)


def test_a_section_whose_end_was_not_seen_is_counted():
    text = event("irq_disable", 1.0001, "ramslice_a") + event("irq_disable", 1.0002, "ramslice_b")
    assert bench_bounds.sections(text) == ({}, 0, 2)


def event(name, time_s, function):
    return (f"         python3-143     [000] d..1. {time_s:.6f}: {name}: "
            f"caller=_raw_spin_lock_irq+0x11/0x20 parent={function}+0x5/0x90\n")


def test_the_longest_of_a_boot_counts_and_each_request_stands_beside():
    tables = [section(10), section(20)]
    requests = [{"2": {"slices": 3072, "demand": section(40), "zones": section(5, "ramslice_b")}},
                {"2": {"slices": 3072, "demand": section(8), "zones": section(30, "ramslice_b")}}]
    entry = bounds.longest_sections(tables, requests)
    assert entry["values"] == [40, 30] and entry["value"] == 35
    assert entry["beside"]["by request"]["3072 slices of 2 MiB, zones"] == {
        "us": 30, "function": "ramslice_b"}
    assert entry["beside"]["any part of the kernel"] == {"us": 99, "function": "free_pcppages_bulk"}
    assert entry["beside"]["sections"] == 24


def test_a_boot_without_its_table_is_an_error():
    with pytest.raises(ValueError):
        bounds.longest_sections([section(10)], [])


def test_the_first_request_of_a_tebibyte_is_summed_from_blocks_and_table():
    def left(blocks, ns):
        return {"blocks": blocks, "first": {"ns": ns}}

    # 100 ns a block, 1 ms that does not grow, and 16384 of 98304 slices at 1 us each
    ms, = bounds.first_request_ms([left(1000, 1_100_000)], [left(3000, 1_300_000)],
                                  {8192: 1, 98304: 98_304_000})
    assert ms == pytest.approx(1 + 524288 * 100 / 1e6 + 16384 * 1000 / 1e6)


def test_the_longest_request_counts_and_what_cpus_held_is_told_apart():
    def row(ms, held=0, reason="deadline"):
        return {"ns": ms * 1e6, "in_cpu_lists": held, "reason": reason}

    entry = bounds.longest_overrun([[row(1), row(16, 60_000), row(2)], [row(3), row(1)]])
    assert entry["values"] == [16, 3]
    assert entry["beside"]["longest with few pages in lists of CPUs"] == 3
    assert entry["beside"]["pages in lists of CPUs before the longest"] == [60_000, 0]
    assert entry["beside"]["first after boot"] == 2 and entry["beside"]["that met it"] == 5


def load(huge, off=None):
    return {"huge": huge} | ({} if off is None else {"off": off})


def test_a_driver_is_judged_by_its_worst_load():
    found = {
        "stock": [{"1": load(500), "3": load(1500)}] * 2,
        "atomic": [{"1": load(500, 0.9), "3": load(1350, 0.8)}] * 2,
        "sleeping": [{"1": load(400, 0.9), "3": load(1500, 0.8)}] * 2,
    }
    atomic, sleeping = thp.judged(found)
    assert (atomic["name"], atomic["beside"]["load"]) == ("thp-atomic", "3")
    assert atomic["value"] == pytest.approx(0.9) and atomic["ci95"] == [pytest.approx(0.9)] * 2
    assert (sleeping["name"], sleeping["beside"]["load"]) == ("thp-sleeping", "1")
    assert sleeping["value"] == pytest.approx(0.8)
    assert sleeping["beside"]["offline before"] == {"1": pytest.approx(0.9),
                                                    "3": pytest.approx(0.8)}


def test_the_suite_has_the_parts_of_bounds_and_huge_pages():
    assert {"irqsoff", "first", "deadline", "thp"} <= set(slices.PARTS)
