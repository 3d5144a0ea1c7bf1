# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests that gave slices back to the host are saved, restored and moved, and lose nothing.

So they do on a host that drops what they report.
"""

import contextlib
import json
import mmap
import re

import pytest

from ramlab.vm.small_guest import MIB, SmallGuest

pytestmark = [pytest.mark.timeout(3600), pytest.mark.xdist_group("giveback-moves"),
              pytest.mark.never_rerun]
PAGE = mmap.PAGESIZE
SLICE_MIB = 4
KNOWN_MIB = 16
# What a program needs that finds most slices off
DEMAND_MIB = 120
CYCLES, MANY_CYCLES = 2, 300
CHECKER = "/tmp/checker.json"


class Machine:
    """A guest with contents that the host knows, in use all the time, and most slices off."""

    def __init__(self, guest):
        self.guest = guest
        guest.run(f"dd if=/dev/urandom of=/tmp/known bs=1M count={KNOWN_MIB}")
        self.known = self.checksum()
        # It checks and rewrites its memory until it is told to end
        guest.run(f"memload --mode anon --mb 24 --seconds 0 --pause-ms 200 >{CHECKER} 2>&1 & "
                  "echo $! >/tmp/checker")
        self.compact()

    def checksum(self):
        return self.guest.run("md5sum /tmp/known").split()[0]

    def off(self):
        """The slices that are off."""
        rows = json.loads(self.guest.run("ramslice slices --json"))["slices"]
        return {row["id"] for row in rows if row["state"] == "offline"}

    def note(self):
        """What check() compares with: slices that demand woke since boot, and those off."""
        return self.woken(), self.off()

    def compact(self):
        self.guest.run("ramslice compact --ignore-backoff")

    def check_books(self):
        text = self.guest.run("cat /sys/kernel/debug/ramslice/verify")
        assert text.splitlines()[-1].startswith("true:"), text

    def woken(self):
        """Slices that demand woke since boot."""
        text = self.guest.run("cat /sys/kernel/debug/ramslice/node0/*/stats")
        return sum(map(int, re.findall(r"^online_demand\D+(\d+)", text, re.M)))

    def demand(self):
        """A program gets memory from slices that are off; what it wrote, it reads."""
        before = self.woken()
        self.guest.run(f"memload --mode anon --mb {DEMAND_MIB} --seconds 0.01 >/tmp/demand")
        assert self.woken() > before

    def diverge(self):
        """Changes what a snapshot has kept: contents, which slices are off, and what is in them."""
        self.guest.run(f"dd if=/dev/zero of=/tmp/known bs=1M count={KNOWN_MIB} conv=notrunc")
        assert self.checksum() != self.known
        self.demand()
        self.guest.run("ramslice online --count 10 --end high")

    def check(self, noted):
        """All is as it was noted, and slices wake.

        The guest runs on until it is saved or has moved, and may want memory meanwhile.
        """
        woken, before = noted
        off = self.off()
        assert off and off <= before
        assert len(before - off) <= self.woken() - woken
        self.check_books()
        self.demand()
        assert int(self.guest.run("ramslice online --all").split()[0]) > 0
        assert self.checksum() == self.known
        self.check_books()
        self.compact()

    def end(self):
        """The program that checks its memory found nothing, and nor did the kernel."""
        done = json.loads(self.guest.run(
            f"kill $(cat /tmp/checker); while ! grep -q errors {CHECKER}; do sleep 0.1; done; "
            f"cat {CHECKER}"))
        assert done["errors"] == 0 and done["rounds"], done
        self.guest.check_console()


@pytest.fixture
def start(tmp_path, small_kernel, small_root):
    """Starts a guest with a name; all end with the test."""
    with contextlib.ExitStack() as guests:
        yield lambda name, **options: guests.enter_context(SmallGuest(
            tmp_path / name, small_kernel, small_root, slices=f"{SLICE_MIB}M", **options))


def doses(short, full):
    """A test of every run with the short dose, and one of the long campaigns with the full one."""
    return [pytest.param(short, id="short"),
            pytest.param(full, id="full", marks=pytest.mark.slow)]


@pytest.mark.parametrize("cycles", doses(CYCLES, MANY_CYCLES))
def test_a_guest_that_is_restored_has_what_it_had_and_slices_that_were_off_wake(start, cycles):
    guest = start("saved")
    machine = Machine(guest)
    guest.make_snapshots()
    for _ in range(cycles):
        noted = machine.note()
        guest.snapshot("save")
        machine.diverge()
        guest.snapshot("load")
        machine.check(noted)
        guest.snapshot("delete")
    machine.end()
    print(f"{cycles} times saved and restored")


# The socket is in the folder of the next QEMU, the file beside them
SOCKET = "unix:incoming"
FILE = "file:state"


@pytest.mark.parametrize("way, cycles", [
    pytest.param(SOCKET, CYCLES, id="socket-short"), pytest.param(FILE, 1, id="file-short"),
    pytest.param(SOCKET, MANY_CYCLES, id="socket-full", marks=pytest.mark.slow),
])
def test_a_guest_that_moves_has_what_it_had_and_slices_that_were_off_wake(start, way, cycles):
    guest = start("0")
    machine = Machine(guest)
    kind, name = way.split(":")
    for number in range(1, cycles + 1):
        noted = machine.note()
        if kind == "file":
            guest.migrate(f"file:../{name}")
            moved = start(f"{number}", incoming=f"file:../{name}")
        else:
            moved = start(f"{number}", incoming=way)
            guest.migrate(f"{kind}:../{number}/{name}")
        guest.close()
        guest.check_console()
        machine.guest = guest = moved
        guest.wait_for("running", lambda: guest.cmd("query-status")["status"] == "running")
        # What was off was not sent as memory; a slice may wake between the two
        nr_on = guest.mem_bytes // (SLICE_MIB * MIB) - len(machine.off())
        assert guest.resident_bytes() <= (nr_on + 1) * SLICE_MIB * MIB
        machine.check(noted)
    machine.end()
    print(f"{cycles} times moved by {kind}")


# --- a host that takes reports and drops nothing ---


def test_the_host_holds_less_of_a_guest_that_gave_back(start):
    """What the test below compares with."""
    guest = start("usual")
    machine = Machine(guest)
    machine.demand()
    held = guest.resident_bytes()
    machine.compact()
    assert guest.resident_bytes() < held - DEMAND_MIB // 2 * MIB


def test_a_host_that_drops_reports_holds_all_and_slices_go_off_and_wake(start):
    """Locked memory cannot be discarded: QEMU tries, and takes the report all the same."""
    guest = start("locked", qemu=["-overcommit", "mem-lock=on"])
    machine = Machine(guest)
    said = (guest.folder / "errors").read_text()
    assert "Failed to discard range" in said, said
    pages = int(guest.run("cat /sys/module/ramslice_report/parameters/reported_pages"))
    assert pages * PAGE >= len(machine.off()) * SLICE_MIB * MIB
    for _ in range(CYCLES):
        machine.check(machine.note())
        assert guest.resident_bytes() == guest.mem_bytes
    machine.end()
