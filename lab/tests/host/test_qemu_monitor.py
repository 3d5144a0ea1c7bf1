# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's monitor: over a character device, as guests have it, and the program that wakes guests."""

import json
import os
import socket
import subprocess

import pytest

from ramlab.common import RAMLAB
from ramlab.guest import qemu_monitor

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 0, "major": 0}, "package": ""},
                    "capabilities": []}}
TIME = {"seconds": 1, "microseconds": 0}


@pytest.fixture
def device():
    """A terminal that the monitor of a QEMU without a machine is wired to.

    It is the test's: over a terminal of its own, QEMU may greet a second time.
    """
    ours, theirs = os.openpty()
    qemu = subprocess.Popen(
        ["qemu-system-x86_64", "-machine", "none", "-display", "none", "-nodefaults",
         "-chardev", f"serial,id=monitor,path={os.ttyname(theirs)}",
         "-mon", "chardev=monitor,mode=control"])
    try:
        yield ours
    finally:
        qemu.terminate()
        qemu.wait()
        os.close(theirs)


def test_a_monitor_over_a_character_device_carries_out_commands(device):
    monitor = qemu_monitor.connect(device)
    try:
        assert monitor.cmd("query-status")["running"] in (True, False)
        monitor.cmd("stop")
        assert monitor.cmd("query-status")["running"] is False
    finally:
        monitor.close()


def test_a_device_whose_monitor_does_not_greet_is_named(monkeypatch):
    monkeypatch.setattr(qemu_monitor, "SECONDS", 0.1)
    ours, theirs = os.openpty()
    try:
        with pytest.raises(TimeoutError, match=os.ttyname(theirs)):
            qemu_monitor.connect(theirs)
    finally:
        os.close(ours)


class FakeQemu:
    """A monitor's side of a connection."""

    def __init__(self, server):
        self.connection, _ = server.accept()
        self.connection.settimeout(60)
        self.unread = ""
        self.say(GREETING)

    def say(self, what):
        self.connection.sendall(json.dumps(what).encode() + b"\n")

    def answer(self):
        """Answers the next command and returns its name. Commands need no end of line."""
        while True:
            try:
                asked, end = json.JSONDecoder().raw_decode(self.unread)
            except ValueError:
                data = self.connection.recv(4096)
                assert data, "the connection ended"
                self.unread += data.decode()
                continue
            self.unread = self.unread[end:].lstrip()
            self.say({"return": {}} | {key: asked[key] for key in asked if key == "id"})
            return asked["execute"]


def test_a_guest_that_sleeps_is_woken_each_time_and_the_program_ends_with_it(tmp_path):
    path = tmp_path / "qmp"
    waker = subprocess.Popen([RAMLAB, "wake-guest", path])
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            server.settimeout(60)
            qemu = FakeQemu(server)
        assert qemu.answer() == "qmp_capabilities"
        for _ in range(2):
            qemu.say({"event": "STOP", "timestamp": TIME})
            qemu.say({"event": "SUSPEND", "timestamp": TIME})
            assert qemu.answer() == "system_wakeup"
        qemu.connection.close()
        assert waker.wait(60) == 0
    finally:
        waker.kill()
        waker.wait()
