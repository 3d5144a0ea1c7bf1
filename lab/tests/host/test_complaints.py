# SPDX-License-Identifier: GPL-2.0-or-later
"""The list of what kernels complain of means the same in Python and in a shell script."""

import subprocess

import pytest

from ramlab.vm.complaints import COMPLAINT, NOT_KERNEL, Reader, excerpt, is_complaint

COMPLAINTS = (
    "[    3.1] WARNING: CPU: 0 PID: 1 at mm/page_alloc.c:1 f+0x1/0x2",
    "[    3.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "[    3.1] kernel BUG at mm/ramslice/core.c:1!",
    "[    3.1] BUG: KASAN: use-after-free in f+0x1/0x2",
    "[    3.1] BUG: KCSAN: data-race in f / g",
    "[    3.1] UBSAN: shift-out-of-bounds in mm/ramslice/core.c:1:2",
    "[    3.1] WARNING: possible circular locking dependency detected",
    "[    3.1] INFO: task kswapd0:41 blocked for more than 120 seconds.",
    "[    3.1] Oops: 0000 [#1] PREEMPT SMP",
    "[    3.1] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
    "[    3.1] list_add corruption. next->prev should be prev",
)
OTHERS = (
    "[    3.1] ramslice: 64 slices of 32 MiB",
    "[    3.1] DEBUG: nothing",
    "[    3.1] systemd[1]: WARNING: a unit says so",
    "[    3.1] systemd-journald[99]: BUG: not the kernel's",
    "[    3.1] (udev-worker) has begun",
)


def grep(lines, *words):
    """The lines that grep -E lets through."""
    return subprocess.run(["grep", "-E", *words], input="\n".join(lines) + "\n", text=True,
                          stdout=subprocess.PIPE, check=False).stdout.splitlines()


@pytest.mark.parametrize("line", COMPLAINTS)
def test_a_complaint_of_the_kernel_is_seen(line):
    assert is_complaint(line)


@pytest.mark.parametrize("line", OTHERS)
def test_a_plain_line_and_a_complaint_of_user_space_are_none(line):
    assert not is_complaint(line)


def test_grep_finds_the_same_lines(tmp_path):
    files = []
    for name, pattern in (("not-kernel", NOT_KERNEL), ("complaint", COMPLAINT)):
        files.append(tmp_path / name)
        files[-1].write_text(pattern.pattern + "\n")
    kernel = grep(COMPLAINTS + OTHERS, "-v", "-f", files[0])
    assert grep(kernel, "-f", files[1]) == list(COMPLAINTS)


def test_the_excerpt_has_the_lines_around_a_complaint_and_is_empty_without_one():
    quiet = ["[    1.0] fine"] * 100
    assert excerpt(quiet) == []
    shown = excerpt(quiet + [COMPLAINTS[0]] + quiet)
    assert shown.count(COMPLAINTS[0]) == 1 and len(shown) == 3 + 35


BALLOON = ("[    9.1] WARNING: CPU: 1 PID: 75 at drivers/virtio/virtio_balloon.c:218 "
           "virtballoon_free_page_report+0x1a5/0x1d0")


@pytest.mark.parametrize("down", [
    "[    9.0] ACPI: PM: Preparing to enter system sleep state S5",
    "[    9.0] ramlab: all tests ended",
])
def test_a_report_to_a_balloon_that_is_gone_is_a_complaint_unless_the_machine_goes_down(down):
    assert excerpt([BALLOON]) and excerpt([BALLOON, down])
    assert not excerpt([down, BALLOON])
    assert excerpt([down, BALLOON, COMPLAINTS[0]])


def race(*frames):
    """A report of KCSAN whose second access came by these functions."""
    return [
        "[    3.1] " + "=" * 66,
        "[    3.1] BUG: KCSAN: data-race in folio_one / folio_two",
        "[    3.1]",
        "[    3.1] write to 0xffff888004a1c0c0 of 8 bytes by task 97 on cpu 0:",
        "[    3.1]  folio_one+0x1/0x2",
        "[    3.1]",
        "[    3.1] read to 0xffff888004a1c0c0 of 8 bytes by task 98 on cpu 1:",
        *(f"[    3.1]  {frame}" for frame in frames),
        "[    3.1] Reported by Kernel Concurrency Sanitizer on:",
        "[    3.1] CPU: 1 UID: 0 PID: 98 Comm: ramsliced Not tainted 6.12.117 #1",
        "[    3.1] " + "=" * 66,
    ]


FOREIGN = ("folio_two+0x1/0x2", "shrink_one+0x3/0x4")
OURS = ("ramslice_scan+0x1/0x2", "__ramslice_demand+0x1/0x2", "sim_off+0x1/0x2 [ramslice_sim]")


def test_a_race_wholly_of_upstream_is_no_complaint_whoever_ran_it():
    assert excerpt(race(*FOREIGN)) == []


@pytest.mark.parametrize("frame", OURS)
@pytest.mark.parametrize("library", [(), ("memcpy+0x1/0x2",), ("_find_next_bit+0x1/0x2",),
                                     ("__list_add_valid+0x1/0x2", "list_sort+0x1/0x2")], ids=str)
def test_a_race_with_an_access_of_ours_is_a_complaint(library, frame):
    report = race(*library, frame, *FOREIGN)
    assert excerpt(["fine"] * 9 + report)[-len(report):] == report


@pytest.mark.parametrize("frame", OURS)
def test_a_race_within_what_functions_of_ours_call_is_none(frame):
    assert excerpt(race("rcu_all_qs+0x1/0x2", "__cond_resched+0x1/0x2", frame)) == []


def test_a_line_after_the_stacks_of_a_race_belongs_to_no_race():
    assert excerpt(race(*FOREIGN) + ["[    3.2] ramslice: 64 slices of 32 MiB"]) == []


def test_another_complaint_within_the_report_of_a_race_is_one():
    reader = Reader()
    report = race(*FOREIGN)[:5] + [COMPLAINTS[0]]
    assert [reader.complaint(line) for line in report] == [None] * 5 + [5]
