# SPDX-License-Identifier: GPL-2.0-or-later
"""memload processes: started, held still, ended, and judged."""

import json
import os
import signal
import subprocess

from ramlab.guest.errors import ContentsError
from ramlab.guest.ramslice_dev import program

MODES = ["anon", "anon-thp", "file", "shmem", "mlock", "fork", "swap"]


# The status of a memload that found a wrong byte
WRONG_BYTES = 1


class Failed(AssertionError):
    """A workload did not run, or not to its end."""


class Load:
    """One memload, in a process group of its own, with the children it forks."""

    def __init__(self, mode, mb, *options, seconds=0, folder="/mnt", quiet=False):
        self.name = f"{mode} {mb} MiB"
        line = [
            program("memload"),
            "--mode",
            mode,
            "--mb",
            mb,
            "--seconds",
            seconds,
            "--dir",
            folder,
            *options,
        ]
        self.process = subprocess.Popen(
            [str(word) for word in [*line, "--announce"]], start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if quiet else None,
        )
        # The test itself has precedence, however many loads there are for each CPU
        os.setpriority(os.PRIO_PROCESS, self.process.pid, 10)

    def wait_ready(self):
        """Waits until everything has been written once."""
        return self.wait_line("ready")

    def wait_round(self):
        """Waits until it has finished a round after that."""
        return self.wait_line("round")

    def wait_line(self, line):
        if self.process.stdout.readline().strip() != line:
            raise Failed(f"memload {self.name} ended early, status {self.process.wait()}")
        return self

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def hold(self):
        """Stops it until resume()."""
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def end(self):
        """Has memload check everything and end; returns its summary, or raises what was wrong."""
        if self.process.poll() is None:
            # Children end by themselves, with a status that the parent checks
            self.process.terminate()
        last = self.process.stdout.read().strip().rpartition("\n")[2]
        status = self.process.wait()
        if status:
            kind = ContentsError if status == WRONG_BYTES else Failed
            raise kind(f"memload {self.name}: status {status}: {last}")
        result = json.loads(last)
        if result["errors"]:
            raise ContentsError(f"memload {self.name}: {last}")
        return result

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
