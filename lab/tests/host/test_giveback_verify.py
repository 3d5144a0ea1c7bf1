# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice giveback verify`: the host holds what a guest left on, or the program says that not.

The guest uses memory, gives it back, says how things are, and stays while the host looks.
"""

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from ramlab.common import RAMLAB, ROOT
from ramlab.vm.small_guest import MIB, SmallGuest

pytestmark = pytest.mark.timeout(900)
MEMORY = 1024 * MIB
USED_MIB = 600
REPORTING = "-device virtio-balloon-pci,free-page-reporting=on"
SILENT = "-device virtio-balloon-pci"
SHARED = ("-object memory-backend-memfd,id=shared,size=1G,share=on "
          "-machine memory-backend=shared")
# The host has all that was used when it is given back at once
USE = f"python3 -c 'b\"x\" * ({USED_MIB} << 20)'"
GIVE_BACK = f"modprobe ramslice_report && {USE} && $RAMSLICE giveback --now"
# Slices go off, and no power driver tells the host
SWITCH_OFF = f"{USE} && $RAMSLICE compact"
END = "}\n"
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class Guest:
    """A guest that gave back: the program's words in it, in a file, and its monitor."""

    def __init__(self, program, folder, machine, steps):
        self.program, self.folder, self.qmp = program, folder, folder / "qmp"
        self.status = folder / "status.json"
        text = f"RAMSLICE={program}\n{steps} >&2; $RAMSLICE giveback --json; sleep 600"
        self.process = subprocess.Popen(
            [RAMLAB, "vm", "--quiet", "--mem", "1G", "--append", "ramslice=16M", "--qemu-opt",
             f"{machine} -qmp unix:{self.qmp},server=on,wait=off", "--", text],
            cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)

    def wait(self):
        """Reads what the guest says until its status is complete."""
        said, status = [], ""
        for line in self.process.stdout:
            said.append(line)
            if status or line == "{\n":
                status += line
            if status and line == END:
                self.status.write_text(status)
                return json.loads(status)
        raise AssertionError(f"the guest ended without a status:\n{''.join(said)}")

    def verify(self, *words):
        """The program's status, text and errors."""
        done = subprocess.run([self.program, "giveback", "verify", *words], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def compare(self):
        """Host and guest, compared: the program's status and its document."""
        words = ["--qmp", self.qmp, "--guest-status", self.status]
        status, text, errors = self.verify(*words, "--json")
        assert not errors, errors
        return status, json.loads(text)

    def say(self):
        return self.verify("--qmp", self.qmp, "--guest-status", self.status)


@pytest.fixture
def start(ramslice_program, tmp_path_factory):
    """Starts guests, which end with the test."""
    with contextlib.ExitStack() as stack:
        def begin(machine, steps):
            # Short: the name of a socket has 107 bytes
            guest = Guest(ramslice_program, tmp_path_factory.mktemp("v"), machine, steps)
            stack.callback(guest.process.wait)
            stack.callback(guest.process.terminate)
            return guest
        yield begin


@pytest.mark.parametrize("memory", ["", SHARED], ids=["anonymous", "file"])
def test_the_host_holds_no_more_than_a_guest_left_on(start, memory):
    guest = start(f"{REPORTING} {memory}", GIVE_BACK)
    said = guest.wait()
    assert said["reported_bytes"] > MEMORY // 2
    status, found = guest.compare()
    assert (status, found["guest"]["agrees"], found["guest"]["excess_bytes"]) == (0, True, 0)
    assert found["memory_bytes"] == MEMORY
    assert found["guest"]["reported_bytes"] == said["reported_bytes"]
    # It really holds some, and not what was used
    assert 50 * MIB < found["held_bytes"] < MEMORY - said["reported_bytes"] + 64 * MIB
    block, = found["blocks"]
    assert block["name"] == ("shared" if memory else "pc.ram")
    assert (block["file_bytes"] is not None) == bool(memory)
    status, text, _ = guest.say()
    assert (status, text.splitlines()[-1]) == (
        0, "the host holds no more than the guest left on")
    # Without the monitor it finds the same memory
    status, text, _ = guest.verify("--pid", str(found["pid"]), "--json")
    assert (status, json.loads(text)["memory_bytes"]) == (0, MEMORY)


def test_a_host_that_cannot_take_memory_back_holds_too_much(start):
    guest = start(f"{REPORTING} -overcommit mem-lock=on", GIVE_BACK)
    said = guest.wait()
    assert said["reported_bytes"] > MEMORY // 2
    status, found = guest.compare()
    assert status == 1
    assert found["guest"]["agrees"] is False
    assert found["held_bytes"] == MEMORY
    assert found["guest"]["excess_bytes"] == said["reported_bytes"] - 64 * MIB
    status, text, _ = guest.say()
    assert status == 1
    assert text.splitlines()[-1].startswith("QEMU's memory is locked")


def test_a_host_that_was_told_nothing_holds_too_much(start):
    guest = start(SILENT, SWITCH_OFF)
    said = guest.wait()
    assert (said["reported_bytes"], said["devices"]) == (0, [])
    assert said["off_unreported_bytes"] > MEMORY // 2
    status, found = guest.compare()
    assert status == 1
    assert found["held_bytes"] > USED_MIB * MIB
    status, text, _ = guest.say()
    assert status == 1
    assert text.splitlines()[-1].startswith("the guest reported 0 B of what is off")


def host_pages(program, guest):
    """What is resident of a guest's memory: in all, and outside huge pages."""
    done = subprocess.run(
        [program, "giveback", "verify", "--pid", str(guest.process.pid), "--json"], text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    block, = json.loads(done.stdout)["blocks"]
    assert block["bytes"] == guest.mem_bytes
    return block["resident_bytes"], block["resident_bytes"] - block["huge_page_bytes"]


def test_huge_pages_of_the_host_stay_whole(ramslice_program, small_kernel, small_root, tmp_path):
    """What is given back takes none apart that the host goes on holding."""
    with SmallGuest(tmp_path / "guest", small_kernel, small_root, slices="2M") as guest:
        # Free memory in runs of half a huge page, among runs in use
        guest.run("for i in $(seq 200); do dd if=/dev/zero of=/tmp/$i bs=1M count=1; done")
        guest.run("for i in $(seq 1 2 200); do rm /tmp/$i; done")
        held, small = host_pages(ramslice_program, guest)
        if small > held // 2:
            pytest.skip(f"the host gives QEMU too few huge pages: {THP} is {THP.read_text()}")
        guest.run("ramslice giveback --now")
        held_now, small_now = host_pages(ramslice_program, guest)
        assert held_now < held - 50 * MIB
        # Memory that is used again may come in small pages
        assert small_now < small + 10 * MIB
        guest.check_console()
