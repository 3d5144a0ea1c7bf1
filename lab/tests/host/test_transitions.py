# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices are off when the machine restarts or sleeps: the driver wakes them in time.

The guest does not come back from the first: its console is what is left of it.
"""

import re
import subprocess

import pytest

from ramlab.common import RAMLAB
from ramlab.testing.vm_command import in_order, run_vm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MACHINE = ("--mem", "1G", "--append", "ramslice=16M")
TRANSITION = "python3 -m ramlab.guest.transition"
NO_STATUS = 4


def seconds_between(console, *texts):
    """From one line of the console to another, by the kernel's own clock."""
    began, ended = (float(re.search(rf"\[ *([0-9.]+)\].*{text}", console)[1]) for text in texts)
    return ended - began


def test_a_reboot_wakes_every_slice_first(tmp_path):
    ran = run_vm(*MACHINE, "--", f"{TRANSITION} reboot", folder=tmp_path)
    assert ran.status in (0, NO_STATUS), ran.output
    missing = in_order(
        ran.console, r"hard: ok: [0-9]+ slices are off",
        r"ramslice: [0-9]+ slices woken before restart",
        r"ramslice_sim: 0 slices off at restart", r"reboot: Restarting system")
    assert missing is None, ran.console[-2000:]


def test_a_reboot_does_not_wait_for_a_request_that_hangs(tmp_path):
    ran = run_vm(*MACHINE, "--", f"{TRANSITION} reboot-hung", folder=tmp_path)
    assert ran.status in (0, NO_STATUS), ran.output
    missing = in_order(
        ran.console, r"hard: restarts", r"ramslice: a request hangs before restart",
        r"ramslice: [0-9]+ slices woken before restart", r"reboot: Restarting system")
    assert missing is None, ran.console[-2000:]
    assert "slices stay off before restart" not in ran.console, ran.console[-2000:]
    # The driver would be waited for ten minutes
    took = seconds_between(ran.console, "hard: restarts", "a request hangs before restart")
    assert 0.9 < took < 60, ran.console[-2000:]


def test_a_reboot_waits_once_for_a_driver_that_hangs(tmp_path):
    ran = run_vm(*MACHINE, "--", f"{TRANSITION} reboot-silent", folder=tmp_path)
    assert ran.status in (0, NO_STATUS), ran.output
    end = "slices stay off before restart: the power driver hangs"
    missing = in_order(
        ran.console, r"hard: ok: [0-9]+ slices are off", r"hard: restarts",
        rf"ramslice: {end}", r"reboot: Restarting system")
    assert missing is None, ran.console[-2000:]
    # One call, of five seconds; another would be waited for as long
    took = seconds_between(ran.console, "hard: restarts", end)
    assert 4.9 < took < 9.9, ran.console[-2000:]
    assert ran.console.count("does not answer") == 1, ran.console[-2000:]


def test_kexec_wakes_every_slice_first_and_the_next_kernel_goes_on(tmp_path):
    shared = tmp_path / "kexec"
    shared.mkdir()
    ran = run_vm(*MACHINE, "--rw", shared, "--", f"{TRANSITION} kexec {shared}", folder=tmp_path)
    assert ran.status == 0, ran.output
    missing = in_order(
        ran.console,
        r"hard: ok: a kernel is loaded",
        r"ramslice: [0-9]+ slices woken before restart",
        r"ramslice_sim: 0 slices off at restart",
        r"Linux version",
    )
    assert missing is None, ran.console[-2000:]


def test_suspend_leaves_slices_off_and_the_machine_works_afterwards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")
    waker = subprocess.Popen([RAMLAB, "wake-guest", folder / "qmp"])
    try:
        ran = run_vm(*MACHINE, "--timeout", 900, "--qemu-opt",
                     f"-qmp unix:{folder}/qmp,server=on,wait=off", "--", f"{TRANSITION} suspend",
                     folder=folder)
    finally:
        waker.kill()
        waker.wait()
    assert ran.status in (0, NO_STATUS), ran.output
    assert in_order(ran.console, r"hard: suspend: done") is None, ran.console[-2000:]
