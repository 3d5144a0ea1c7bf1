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


def section(us, ours=None, stack=("tick",)):
    return {"us": us, "ours": ours, "stack": [ours] if ours else list(stack)}


def test_the_tracers_words_are_read():
    assert bench_bounds.longest_of(TRACE) == {
        "started": "_raw_spin_lock_irq", "ended": "_raw_spin_unlock_irq",
        "stack": ["_raw_spin_unlock_irq", "ramslice_fill_states", "ramslice_fill_rows",
                  "ramslice_ioctl.isra.0", "entry_SYSCALL_64_after_hwframe"]}
    assert bench_bounds.longest_of("# tracer: irqsoff\n") == {"stack": []}


@pytest.mark.parametrize("stack, ours", [
    (["_raw_spin_unlock_irq", "ramslice_fill_states", "ksys_ioctl"], "ramslice_fill_states"),
    (["__ramslice_wake", "rmqueue"], "__ramslice_wake"),
    # A tick that arrives in our function with interrupts on is not ours
    (["tick_handle", "asm_sysvec_apic_timer_interrupt", "ramslice_scan_slice"], None),
    (["rmqueue", "handle_mm_fault"], None),
])
def test_a_section_is_ours_if_our_function_runs_with_interrupts_off(stack, ours):
    assert bench_bounds.our_function(stack) == ours


def test_the_longest_section_of_all_counts_and_ours_stands_beside():
    tables = [section(10, "ramslice_a"), section(20, "ramslice_a")]
    requests = [{"2": {"slices": 3072, "demand": section(40), "zones": section(5, "ramslice_b")}},
                {"2": {"slices": 3072, "demand": section(8), "zones": section(30, "ramslice_b")}}]
    entry = bounds.longest_sections(tables, requests)
    assert entry["values"] == [40, 30] and entry["value"] == 35
    assert entry["beside"]["longest"] == "3072 slices of 2 MiB, demand"
    assert entry["beside"]["ours"] == 30
    assert entry["beside"]["by request"]["3072 slices of 2 MiB, demand"] == {
        "us": 40, "function": "tick", "ours": False}


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
