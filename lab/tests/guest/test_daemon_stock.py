# SPDX-License-Identifier: GPL-2.0-or-later
"""ramsliced on a stock kernel: blocks go offline, and wake under memory pressure and at the end."""

import signal
import tempfile
import unittest

from ramlab.guest import harness
from ramlab.guest.daemon import PATIENCE, Daemon
from ramlab.guest.hotplug_blocks import MEMORY, off, wake_blocks
from ramlab.pytest_vm import vm

ALL = vm(kernel=["debian-6.1", "debian-6.12", "debian-7"], mem="2G")
NEWER = vm(kernel="debian-6.12", mem="2G")
WOKEN = "memory is short: slices were woken"


def nr_off():
    """How many blocks are not online."""
    return len(off())


class StockDaemon(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.daemon = Daemon(folder.name)
        # Blocks that a failed test has left offline
        self.addCleanup(wake_blocks)
        self.addCleanup(self.daemon.end, signal.SIGKILL)

    @ALL
    def test_observe_takes_no_block_offline(self):
        self.daemon.configure(policy="periodic")
        self.daemon.start()
        self.daemon.until(lambda: self.daemon.would_be_off() > 0)
        self.assertEqual(self.daemon.status()["machine"]["backend"], "stock")
        self.assertEqual(nr_off(), 0)

    @ALL
    def test_blocks_go_offline_and_wake_under_pressure_and_at_the_end(self):
        self.daemon.configure(mode="on", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until(
            lambda: "slices wake when less than this is available" in self.daemon.log()
        )
        self.daemon.until_no_more_goes_off()
        self.assertGreater(nr_off(), 0)
        with harness.Memory(1300) as memory:
            self.daemon.press(memory, 0, WOKEN)
            self.daemon.until(lambda: self.daemon.metrics().get(
                'ramslice_woken_slices_total{mode="on",cause="pressure"}', 0) > 0)
        self.assertEqual(self.daemon.end(), 0)
        self.assertEqual(nr_off(), 0, "a stock kernel wakes no block by itself")

    @NEWER
    def test_observe_wakes_the_blocks_of_a_killed_daemon(self):
        self.daemon.configure(mode="on", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until_no_more_goes_off()
        self.daemon.end(signal.SIGKILL)
        self.assertGreater(nr_off(), 0)
        self.daemon.configure(mode="observe", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until(lambda: not nr_off())

    @NEWER
    def test_invalid_settings_still_wake_the_blocks_of_a_killed_daemon(self):
        self.daemon.configure(mode="on", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until_no_more_goes_off()
        self.daemon.end(signal.SIGKILL)
        self.assertGreater(nr_off(), 0)
        (self.daemon.folder / "c.toml").write_text('schema_version = 1\nmode = "of"\n')
        self.assertEqual(self.daemon.start().process.wait(PATIENCE), 2)
        self.assertIn("c.toml:2:8: ", self.daemon.log())
        self.assertEqual(nr_off(), 0)

    @NEWER
    def test_a_block_taken_offline_by_another_program_stays_offline(self):
        for folder in sorted(
            MEMORY.glob("memory[0-9]*"), key=lambda folder: -int(folder.name.removeprefix("memory"))
        ):
            try:
                (folder / "state").write_text("offline")
                break
            except OSError:
                pass
        self.assertEqual(nr_off(), 1)
        self.daemon.configure(mode="on", policy="periodic", stop="auto", stall=100)
        self.daemon.start()
        self.daemon.until_no_more_goes_off()
        self.assertGreater(nr_off(), 1)
        with harness.Memory(1200) as memory:
            self.daemon.press(memory, 0, WOKEN)
        self.assertEqual(self.daemon.end(), 0)
        self.assertEqual(nr_off(), 1)
        self.assertEqual((folder / "state").read_text(), "offline\n")
