# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests that want memory back at once, on a host that has less than all of them may use.

The host is a control group with a limit and no swap. Nothing refuses memory to a guest: a host that
has none left kills one of them.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from ramlab.vm.small_guest import MIB, GuestEnded, SmallGuest

pytestmark = [pytest.mark.timeout(3600), pytest.mark.xdist_group("giveback-overcommit"),
              pytest.mark.never_rerun]
CONTROL_GROUPS = Path("/sys/fs/cgroup")
GUESTS, GUEST_MIB = 3, 512
# A program of a guest's
WANTED_MIB = 320
# Two guests with the program and one that is idle have room, with what QEMU needs itself; three
# with it have not
HOST_MIB = 1280
LEAVE_SECONDS = 30


class HostWithLimit:
    """A control group with a limit of memory, of either version."""

    def __init__(self, limit_bytes):
        name = f"ramslice-test-{os.getpid()}"
        first = CONTROL_GROUPS / "memory"
        second = CONTROL_GROUPS / "cgroup.subtree_control"
        if (first / "memory.limit_in_bytes").exists():
            self.path, limit, swap = first / name, "memory.limit_in_bytes", None
        elif second.exists() and "memory" in second.read_text().split():
            self.path, limit, swap = CONTROL_GROUPS / name, "memory.max", "memory.swap.max"
        else:
            pytest.skip("no control group of memory: mount cgroup of version 1 or 2 with memory")
        try:
            self.path.mkdir()
        except PermissionError:
            pytest.skip(f"only root can make {self.path}")
        (self.path / limit).write_text(str(limit_bytes))
        if swap and (self.path / swap).exists():
            (self.path / swap).write_text("0")

    def words(self):
        """What a command line begins with for its program to be in the group."""
        return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', self.path / "cgroup.procs"]

    def close(self):
        end = time.monotonic() + LEAVE_SECONDS
        while True:
            try:
                return self.path.rmdir()
            except OSError:
                # A program that was killed leaves a moment later
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


@pytest.fixture
def start(tmp_path, small_kernel, small_root):
    """Starts all guests on the host that has not enough for all."""
    with contextlib.ExitStack() as stack:
        host = HostWithLimit(HOST_MIB * MIB)
        stack.callback(host.close)
        yield lambda **options: [
            stack.enter_context(SmallGuest(tmp_path / str(number), small_kernel, small_root,
                                           mem_mib=GUEST_MIB, before=host.words(), **options))
            for number in range(GUESTS)]


def want(*guests, seconds=0.01):
    """The guests' programs use their memory at once; each checks what it wrote."""
    for guest in guests:
        guest.start(f"memload --mode anon --mb {WANTED_MIB} --seconds {seconds} >/tmp/wanted")
    for guest in guests:
        guest.finish()


def give_back(guest):
    guest.run("ramslice compact --ignore-backoff")


def killed(guests):
    """Guests whose QEMU the host has killed."""
    return [guest for guest in guests if guest.process.poll() == -signal.SIGKILL]


def test_guests_that_give_back_use_memory_in_turns_and_two_at_once(start):
    guests = start()
    for guest in guests:
        want(guest)
        give_back(guest)
    want(*guests[:2])
    for guest in guests[:2]:
        give_back(guest)
    want(*guests[1:])
    assert killed(guests) == []
    for guest in guests:
        assert guest.run("cat /sys/kernel/debug/ramslice/verify").splitlines()[-1].startswith(
            "true:")
        guest.check_console()


@pytest.mark.parametrize("balloon, turns", [
    pytest.param(False, True, id="kept-in-turns"),
    pytest.param(True, False, id="given-back-and-all-at-once"),
])
def test_a_host_that_has_no_more_kills_a_guest(start, balloon, turns):
    """The first is the control of the test above: the same in turns, by guests that give nothing.

    The second is what giving back does not help against.
    """
    guests = start(balloon=balloon)
    with contextlib.suppress(GuestEnded, BrokenPipeError):
        for guest in guests:
            want(guest)
            if balloon:
                give_back(guest)
        if not turns:
            want(*guests, seconds=10)
    assert killed(guests)
