# SPDX-License-Identifier: GPL-2.0-or-later
"""What interrupts a change of the size of cold memory, and what must not."""

import ctypes
import os
import time

from ramlab.guest import cold_memory as cold
from ramlab.guest.cold_memory import ColdTest
from ramlab.guest.harness import MIB, libc
from ramlab.pytest_vm import vm

# Seconds of CPU time after which the kernel gives a task work to look at its memory
SCANNED_S = 1.5


def resize_once(mib):
    """As cold.resize(), but a write that a signal interrupts is not repeated; what write(2) says.
    """
    file = os.open(cold.COLD / "node0/bytes", os.O_WRONLY)
    try:
        text = str(mib * MIB).encode()
        done = libc.write(file, text, len(text))
        return done if done >= 0 else -ctypes.get_errno()
    finally:
        os.close(file)


@vm(mem="2G", append="ramslice=16M ramslice_cold=0 numa_balancing=enable")
class OwnWork(ColdTest):
    def test_work_that_the_kernel_has_for_the_task_interrupts_nothing(self):
        """The balancing of NUMA queues some in ticks, to be done on the way to user space."""
        for mib in 1024, 0, 1024, 0:
            end = time.process_time() + SCANNED_S
            while time.process_time() < end:
                pass
            self.assertGreater(resize_once(mib), 0)
            self.assertEqual(cold.size_mib(), mib)
