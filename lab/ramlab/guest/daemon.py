# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs ramsliced in a folder of its own and reads what it reports, for tests and soaks.

RAMSLICE_DAEMON names the program.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import unittest
import urllib.request
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev

PROGRAM = os.environ.get("RAMSLICE_DAEMON", "ramsliced")
PORT = 19750
# How long to wait for what the daemon has to do, in seconds
PATIENCE = 600
SETTINGS = """schema_version = 1
mode = "{mode}"
period_seconds = {period}
policy = "{policy}"
[governor]
costs = "predicted"
[periodic]
period_seconds = 1.0
budget_100cycles = {budget}
[energy]
granularity = "{unit}"
time_factor = "12..18"
[state]
save_seconds = 0
[stock]
look_share = 0.1
[stop]
slices = "{stop}"
[pressure]
stall_ms = {stall}
pause_seconds = 1
[metrics]
listen = "127.0.0.1:%d"
""" % PORT


class Daemon:
    """ramsliced with a directory of its own for settings, state and log."""

    def __init__(self, folder, **settings):
        self.folder = Path(folder)
        self.configure(**settings)
        self.process = None

    def configure(self, mode="observe", policy="governor", stop="leave", stall=0, period=0.5,
                  unit="slice", budget=8_000_000, more=""):
        """Writes its settings; `budget` is of policy periodic, `more` are further tables."""
        text = SETTINGS.format(mode=mode, policy=policy, stop=stop, stall=stall, period=period,
                               unit=unit, budget=budget)
        (self.folder / "c.toml").write_text(text + more)

    def reload(self, **settings):
        """Has it take up other settings."""
        self.configure(**settings)
        before = self.log().count("the settings were read again")
        self.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.log().count("the settings were read again") > before)

    def start(self):
        words = [
            PROGRAM,
            "--config",
            self.folder / "c.toml",
            "--state-dir",
            self.folder,
            "--runtime-dir",
            self.folder,
        ]
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(words, stderr=log, env={**os.environ, "NO_COLOR": "1"})
        return self

    def end(self, number=signal.SIGTERM):
        if self.process is not None:
            self.process.send_signal(number)
            status = self.process.wait(PATIENCE)
            self.process = None
            return status
        return None

    def log(self):
        return (self.folder / "log").read_text()

    def status(self):
        """Its status, or None until this process has written one."""
        try:
            status = json.loads((self.folder / "status.json").read_text())
        except FileNotFoundError:
            return None
        return status if status["pid"] == self.process.pid else None

    def would_be_off(self):
        """How many slices would be offline in mode on."""
        status = self.status()
        return status["would_earn"]["nr_offline"] if status and status["would_earn"] else 0

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
            text = answer.read().decode()
        return {
            line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line[0] != "#"
        }

    def steps(self, more):
        """Waits until it has made this many more steps."""
        try:
            before = self.metrics()["ramslice_steps_total"]
        except OSError:
            before = 0
        return self.until(lambda: self.metrics()["ramslice_steps_total"] >= before + more)

    def press(self, memory, start, words):
        """Touches memory until the daemon's log has these words.

        Returns the end of the touched part.

        A stock kernel does not wait for the daemon's guard, so this goes on only while there is
        more available than the guard keeps.
        """
        def logged():
            nonlocal start
            if words in self.log():
                return True
            available = harness.meminfo()["MemAvailable"] << 10
            if available > harness.GUARD_FLOOR - 32 * harness.MIB and start < memory.bytes:
                end = min(start + 16 * harness.MIB, memory.bytes)
                memory.touch(start=start, end=end)
                start = end
            return False

        self.until(logged)
        return start

    def until_no_more_goes_off(self):
        """Waits until some slices are offline and its last request could take no further one
        offline.
        """
        def rests():
            ends = re.findall(r"has carried out a request .*done=(\d+) failed=(\d+)", self.log())
            return ("1", "0") in ends and ends[-1] == ("0", "0")

        self.until(rests)

    def until(self, condition):
        def tried():
            try:
                return condition()
            except OSError:
                return None
        found = harness.until(tried, PATIENCE)
        if not found:
            raise AssertionError(f"the condition never held; the daemon's log:\n{self.log()}")
        return found


class DaemonTest(unittest.TestCase):
    """Begins with every slice awake and a daemon that is not started."""

    def setUp(self):
        self.device = dev.Device()
        self.addCleanup(self.device.close)
        dev.debugfs()
        harness.wake(self.device)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.daemon = Daemon(folder.name)
        self.addCleanup(self.daemon.end, signal.SIGKILL)

    def off(self):
        return len(harness.ids(self.device, dev.OFFLINE))

    def tried(self):
        """Slices that requests have tried to empty and woken, by the kernel's own count."""
        names = ("offline_tried", "online_request")
        tables = [dev.table(folder / "stats") for folder in dev.zone_folders()]
        return [sum(table[name] for table in tables) for name in names]


def earned(daemon):
    """The upper bound of the joules saved so far."""
    status = daemon.status()
    return status["earned"]["saved_joules"]["high"] if status and status["earned"] else 0.0
