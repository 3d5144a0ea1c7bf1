# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices are off when the machine ends: an oops, hibernation, a crash dump. The guest dies of each.

What counts is its console, and the report of the host's hole puncher: whether anything touched
memory that is off.
"""

import re

import pytest

from ramlab.testing.vm_command import run_vm

pytestmark = [pytest.mark.timeout(3600), pytest.mark.never_rerun]
# In one dump of all memory, a few pages in a hundred thousand are left alone now and then, others
# each time, and why is not known: one of so many dumps must touch every page, or the detector is
# blind.
WHOLE_DUMPS = 3


def guest(folder, mem, append, *words):
    """A machine with slices of 16 MiB, a disk, and holes where slices are off."""
    return run_vm("--mem", mem, "--disk", "1G", "--append", f"ramslice=16M {append}", *words,
                  folder=folder, holes=True)


# --- a stray access in strict mode ---


@pytest.fixture(scope="module")
def strict_oops(tmp_path_factory):
    return guest(tmp_path_factory.mktemp("oops"), "512M", "", "--allow-splats", "--",
                 "python3 -m ramlab.guest.strict_oops")


@pytest.mark.xdist_group("strict-oops")
def test_a_stray_access_in_strict_mode_is_an_oops_at_its_address(strict_oops):
    address = strict_oops.found(r"expect a fault at (.*)")
    assert address, strict_oops.output
    assert f"BUG: unable to handle page fault for address: {address}" in strict_oops.console


@pytest.mark.xdist_group("strict-oops")
def test_a_stray_access_in_strict_mode_does_not_reach_the_memory(strict_oops):
    assert strict_oops.report["off_touched"] == 0, strict_oops.report


# --- hibernation; the host refuses the first wake, so one slice is lost ---


@pytest.fixture(scope="module")
def hibernation(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAMSLICE_REFUSED_WAKES", "1")
        return guest(tmp_path_factory.mktemp("hibernate"), "512M", "", "--",
                     "python3 -m ramlab.guest.hibernate")


@pytest.mark.xdist_group("hibernation")
def test_a_hibernation_image_is_written_and_restored(hibernation):
    assert "hibernate: true" in hibernation.output.splitlines(), hibernation.output
    assert "Image loading done" in hibernation.console


@pytest.mark.xdist_group("hibernation")
def test_a_hibernation_image_leaves_out_the_slice_that_is_lost(hibernation):
    lost = hibernation.found(r"^hibernate: slice (\d+) is lost$")
    assert lost, hibernation.output
    report = hibernation.report
    assert (report["violations"], report["off"], report["off_touched"]) == (0, [int(lost)], 0), (
        report
    )


# --- crash dumps ---


def crash(folder, way):
    """A machine that crashes with slices off, and the number of pages that were off."""
    ran = guest(folder, "768M", "crashkernel=192M", "--allow-splats", "--",
                f"python3 -m ramlab.guest.crash {way}")
    off = ran.found(r"^crash: (\d+) pages off")
    assert off and f"crash-init: {way} dump: status 0" in ran.console, ran.output
    return ran, int(off)


@pytest.fixture(scope="module")
def filtered_dump(tmp_path_factory):
    return crash(tmp_path_factory.mktemp("filtered"), "filtered")


@pytest.mark.xdist_group("filtered-dump")
def test_a_filtered_dump_leaves_out_every_page_that_was_off(filtered_dump):
    ran, off = filtered_dump
    left_out = int(re.findall(r"Offline pages *: *(0x[0-9a-f]*)", ran.console)[-1], 16)
    assert left_out >= off


@pytest.mark.xdist_group("filtered-dump")
def test_a_filtered_dump_touches_nothing_that_was_off(filtered_dump):
    ran, _ = filtered_dump
    assert ran.report["off_touched"] == 0, ran.report


@pytest.mark.slow
def test_a_dump_of_all_memory_touches_every_page_that_was_off_and_that_is_seen(tmp_path):
    for number in range(WHOLE_DUMPS):
        folder = tmp_path / str(number)
        folder.mkdir()
        ran, off = crash(folder, "whole")
        print(f"{off} pages off, {ran.report['off_touched']} touched; "
              f"left alone (pfn, pages): {ran.report['off_untouched']}")
        if ran.report["off_touched"] == off:
            return
    pytest.fail("no dump of all memory touched every page that was off")
