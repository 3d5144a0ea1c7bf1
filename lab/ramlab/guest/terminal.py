# SPDX-License-Identifier: GPL-2.0-or-later
"""A terminal for tests of `ramslice top`: tmux, and the program found among the processes."""

import contextlib
import os
import re
import shlex
import subprocess
import time
import unittest
from pathlib import Path

from ramlab.guest import harness

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
# How long to wait for a screen, in seconds; an emulated machine is slow
PATIENCE = 300


class Terminal:
    """A terminal with a tmux server of its own, in which a shell runs one command."""

    def __init__(self, command, width=80, height=24, **environment):
        self.socket = f"/tmp/tmux-{os.getpid()}-{time.monotonic_ns()}"
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        # stty prints the terminal's settings before and after
        script = (
            f"stty -g >{self.socket}.before; env LANG=C.UTF-8 {exports} {command}; status=$?; stty"
            f" -g >{self.socket}.after; echo $status >{self.socket}.status; echo THE END; exec"
            " sleep 1000"
        )
        self.tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), script
        )

    def tmux(self, *words):
        done = subprocess.run(["tmux", "-S", self.socket, *words], text=True, capture_output=True)
        if done.returncode:
            raise AssertionError(f"tmux {words}: {done.stderr}")
        return done.stdout

    def screen(self, colours=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def wait_for(self, pattern):
        """The screen, as soon as it matches the pattern."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            screen = self.screen()
            if re.search(pattern, screen):
                return screen
            time.sleep(0.2)
        raise AssertionError(f"nothing like {pattern!r} in\n{screen}")

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def end(self):
        """The command's exit status, and whether the terminal is as it was before."""
        self.wait_for("THE END")
        before, after = (Path(f"{self.socket}.{when}").read_text() for when in ("before", "after"))
        alternate = self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip()
        return (
            int(Path(f"{self.socket}.status").read_text()),
            before == after and alternate == "0 1",
        )

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)


class TopTest(unittest.TestCase):
    """Runs `ramslice top` on terminals that are closed at the end of the test."""

    def terminal(self, words="", **settings):
        terminal = Terminal(f"{PROGRAM} top --interval 500ms {words}", **settings)
        self.addCleanup(terminal.close)
        return terminal


def program_pid():
    for pid, name in harness.processes().items():
        # A process that is ending has no command line
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if name == "ramslice" and b"top" in Path(f"/proc/{pid}/cmdline").read_bytes().split(
                b"\0"
            ):
                return pid
    raise AssertionError("ramslice top does not run")
