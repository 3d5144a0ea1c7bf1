#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""ramsliced on a kernel that nobody patched: blocks go off, come back when memory runs short, and at the end.

RAMSLICE_DAEMON is the program. Wants 2 GiB of memory in blocks of 128 MiB.
"""

import signal
import tempfile
import unittest
from pathlib import Path

from ramlab.guest import harness
from test_daemon import Daemon

MEMORY = Path("/sys/devices/system/memory")


WOKEN = "memory is short: slices were woken"


def off():
    return sum((folder / "state").read_text() != "online\n" for folder in MEMORY.glob("memory[0-9]*"))


def wake():
    """What a test that failed has left off."""
    for folder in MEMORY.glob("memory[0-9]*"):
        if (folder / "state").read_text() != "online\n":
            (folder / "state").write_text("online")


class Test(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.daemon = Daemon(folder.name)
        self.addCleanup(wake)
        self.addCleanup(self.daemon.end, signal.SIGKILL)

    def test_observe_takes_no_block_away(self):
        self.daemon.configure(policy="periodic")
        self.daemon.start()
        self.daemon.until(lambda: self.daemon.would_be_off() > 0)
        self.assertEqual(self.daemon.status()["machine"]["backend"], "stock")
        self.assertEqual(off(), 0)

    def test_blocks_go_off_come_back_when_memory_runs_short_and_at_the_end(self):
        self.daemon.configure(mode="on", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until(lambda: "slices wake when less than this is available" in self.daemon.log())
        self.daemon.until_no_more_goes_off()
        self.assertGreater(off(), 0)
        with harness.Memory(1300) as memory:
            self.daemon.press(memory, 0, WOKEN)
            self.daemon.until(lambda: self.daemon.metrics().get(
                'ramslice_woken_slices_total{mode="on",cause="pressure"}', 0) > 0)
        self.assertEqual(self.daemon.end(), 0)
        self.assertEqual(off(), 0, "a stock kernel wakes nothing by itself")

    def test_what_a_killed_daemon_left_off_is_woken_by_one_that_only_observes(self):
        self.daemon.configure(mode="on", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until_no_more_goes_off()
        self.daemon.end(signal.SIGKILL)
        self.assertGreater(off(), 0)
        self.daemon.configure(mode="observe", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until(lambda: not off())

    def test_what_a_killed_daemon_left_off_is_woken_though_its_settings_no_longer_hold(self):
        self.daemon.configure(mode="on", policy="periodic", stop="auto")
        self.daemon.start()
        self.daemon.until_no_more_goes_off()
        self.daemon.end(signal.SIGKILL)
        self.assertGreater(off(), 0)
        (self.daemon.folder / "c.toml").write_text('schema_version = 1\nmode = "of"\n')
        self.assertEqual(self.daemon.start().process.wait(60), 2)
        self.assertIn("c.toml:2:8: ", self.daemon.log())
        self.assertEqual(off(), 0)

    def test_a_block_that_somebody_else_took_away_is_left_to_them(self):
        for folder in sorted(MEMORY.glob("memory[0-9]*"), key=lambda folder: -int(folder.name.removeprefix("memory"))):
            try:
                (folder / "state").write_text("offline")
                break
            except OSError:
                pass
        self.assertEqual(off(), 1)
        self.daemon.configure(mode="on", policy="periodic", stop="auto", stall=100)
        self.daemon.start()
        self.daemon.until_no_more_goes_off()
        self.assertGreater(off(), 1)
        with harness.Memory(1200) as memory:
            self.daemon.press(memory, 0, WOKEN)
        self.assertEqual(self.daemon.end(), 0)
        self.assertEqual(off(), 1)
        self.assertEqual((folder / "state").read_text(), "offline\n")


if __name__ == "__main__":
    harness.main()
