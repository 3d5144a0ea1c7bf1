# SPDX-License-Identifier: GPL-2.0-or-later
"""A processor that is never idle, for guests whose clock counts instructions (never_idle.c)."""

import subprocess
import time

from ramlab.guest import ramslice_dev as dev

# Of the clocks of a process, that of the time that it ran (CPUCLOCK_SCHED)
RAN = 2


class NeverIdle:
    """Within its block the only processor always has something to do."""

    def __enter__(self):
        self.process = subprocess.Popen([dev.program("never_idle")])
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def seconds(self):
        """Of the processor's time, what no other process had.

        Raises ChildProcessError if the program has ended.
        """
        if self.process.poll() is not None:
            raise ChildProcessError(f"never_idle ended with status {self.process.returncode}")
        return time.clock_gettime(~self.process.pid << 3 | RAN)
