# SPDX-License-Identifier: GPL-2.0-or-later
"""memload processes: started, held still, ended, and judged."""

import json
import os
import signal
import subprocess

from ramlab.guest.ramslice_dev import program

MODES = ["anon", "anon-thp", "file", "shmem", "mlock", "fork", "swap"]


class Failed(AssertionError):
    """A workload found wrong bytes, or did not run."""


class Load:
    """One memload, in a process group of its own, with the children it forks."""

    def __init__(self, mode, mb, *options, seconds=0, folder="/mnt", quiet=False):
        self.name = f"{mode} {mb} MiB"
        line = [program("memload"), "--mode", mode, "--mb", mb, "--seconds", seconds, "--dir", folder, *options]
        self.process = subprocess.Popen(
            [str(word) for word in [*line, "--announce"]], start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if quiet else None,
        )
        # The test itself comes first, however many loads there are for each CPU.
        os.setpriority(os.PRIO_PROCESS, self.process.pid, 10)

    def wait_ready(self):
        """Until everything has been written once."""
        return self.wait_line("ready")

    def wait_round(self):
        """Until it has done, after that, all that it does in a round."""
        return self.wait_line("round")

    def wait_line(self, line):
        if self.process.stdout.readline().strip() != line:
            raise Failed(f"memload {self.name} ended early, status {self.process.wait()}")
        return self

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def hold(self):
        """Nothing of it runs until resume()."""
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def end(self):
        """Has it check everything once more; its own summary, or Failed."""
        if self.process.poll() is None:
            # Children end by themselves, with a status that the parent looks at.
            self.process.terminate()
        last = self.process.stdout.read().strip().rpartition("\n")[2]
        status = self.process.wait()
        if status:
            raise Failed(f"memload {self.name}: status {status}: {last}")
        result = json.loads(last)
        if result["errors"]:
            raise Failed(f"memload {self.name}: {last}")
        return result

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
