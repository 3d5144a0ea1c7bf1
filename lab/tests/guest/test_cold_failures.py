# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory blocks that cannot go to a twin, or not come back: for a while, or for good."""

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

from ramlab.guest import cold_memory as cold
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import ColdMemory, ColdTest, present
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.pinned_memory import setting
from ramlab.pytest_vm import vm

MADV_SOFT_OFFLINE = 101
# Python has no name for it
EHWPOISON = 133


@vm(mem="2G", append="ramslice=16M ramslice_cold=0")
class Poisoned(ColdTest):
    """A page has a memory error. Linux takes its block offline, but never online."""

    def test_a_block_with_a_memory_error_stays_where_it_is(self):
        cold.resize(512)
        with ColdMemory(400) as memory:
            self.assert_cold(memory)
            # Of the block that is tried first, the others can go: this is the error to name
            pfns = memory.pfns()
            page = pfns.index(min(pfns))
            memory.map.madvise(MADV_SOFT_OFFLINE, page * PAGE, PAGE)
            self.addCleanup(dev.write, "/sys/kernel/debug/hwpoison/unpoison-pfn", pfns[page])
            self.assertIsNone(memory.wrong_at())
        with self.assertRaises(OSError) as caught:
            cold.resize(0)
        self.assertEqual(caught.exception.errno, EHWPOISON)
        self.assertEqual(cold.size_mib(), 512)
        self.assertEqual(harness.meminfo()["MemTotal"], self.total)
        # The others can go
        cold.resize(128)
        self.assertEqual(cold.size_mib(), 128)
        self.assertEqual(harness.meminfo()["MemTotal"], self.total)

    def test_with_larger_slices_than_when_it_grew_a_twin_takes_no_other_block(self):
        """A slice has two blocks now, of which one never went to the twin, and stays where it is
        when the other cannot come back.
        """
        cold.resize(256)
        before = present()
        # The last block of all has a hole, and goes nowhere: this is about one below it
        lowest = min(int(path.name[6:]) for path in (cold.NODE / "node1").glob("memory[0-9]*"))
        self.assertEqual(lowest % 2, 1)
        self.assertTrue((cold.NODE / f"node0/memory{lowest - 1}").exists())
        with ColdMemory(200) as memory:
            self.assert_cold(memory)
            page, pfn = next((page, pfn) for page, pfn in enumerate(memory.pfns())
                             if pfn * PAGE // (128 * MIB) == lowest)
            memory.map.madvise(MADV_SOFT_OFFLINE, page * PAGE, PAGE)
            self.addCleanup(dev.write, "/sys/kernel/debug/hwpoison/unpoison-pfn", pfn)
        self.enterContext(setting(dev.SYSFS / "slice_bytes", 256 * MIB))
        self.assertEqual(int(dev.read(cold.COLD / "unit_bytes")), 256 * MIB)
        with self.assertRaises(OSError) as caught:
            cold.resize(0)
        # That of the last slice that was tried, or EBUSY
        self.assertIn(caught.exception.errno, (errno.EBUSY, EHWPOISON))
        self.assertEqual(cold.size_mib(), 256)
        self.assertEqual(present(), before)


INJECT = Path("/sys/kernel/debug/notifier-error-inject/memory/actions")


@vm(kernel=["plain", "debug"], mem="2G", append="ramslice=16M ramslice_cold=0")
class Vetoed(ColdTest):
    """Something that listens to memory hotplug says no, after slices have been emptied."""

    def setUp(self):
        super().setUp()
        # Before ramslice's, which would wake them
        line = ["modprobe", "memory-notifier-error-inject", "priority=1"]
        subprocess.run(line, check=True)
        self.addCleanup(subprocess.run, ["rmmod", line[1]], check=True)

    def veto(self, number):
        """Has memory go offline no more, with this errno; 0: again."""
        dev.write(INJECT / "MEM_GOING_OFFLINE/error", -number)

    def test_a_block_that_can_be_online_nowhere_for_a_while_is_not_lost(self):
        """As when a request holds up memory hotplug for longer than that waits."""
        before = sum(present().values())
        file = INJECT / "MEM_GOING_ONLINE/error"
        self.addCleanup(dev.write, file, 0)
        dev.write(file, -errno.EBUSY)
        with cold.child(lambda: cold.resize(128)) as pid:
            self.assertTrue(harness.until(lambda: sum(present().values()) < before))
            # Long enough for it to be tried in both nodes, and then once more
            time.sleep(2)
            dev.write(file, 0)
            self.assertTrue(harness.until(lambda: sum(present().values()) == before))
            # By now another may be on its way
            os.kill(pid, signal.SIGTERM)
            self.assertTrue(harness.until(lambda: sum(present().values()) == before))
        self.assertEqual(harness.meminfo()["MemTotal"], self.total)

    def test_a_veto_leaves_nothing_off_and_no_node(self):
        for number in errno.EPERM, errno.EBUSY:
            with self.subTest(number):
                before = harness.states(self.device)
                self.veto(number)
                with self.assertRaises(OSError) as caught:
                    cold.resize(256)
                self.veto(0)
                self.assertEqual(caught.exception.errno, number)
                self.assertEqual(harness.states(self.device), before)
                self.assertFalse((cold.NODE / "node1").exists())
                self.assert_sane()

    def test_what_has_moved_comes_back_once_a_veto_ends(self):
        """As when another request has isolated a part of a block."""
        before = present()
        with cold.child(lambda: cold.resize(1024)) as pid:
            self.assertTrue(harness.until(lambda: cold.size_mib() >= 256))
            self.veto(errno.EBUSY)
            os.kill(pid, signal.SIGTERM)
            # Long enough for each block to be tried
            time.sleep(3)
            self.assertGreaterEqual(cold.size_mib(), 256)
            self.veto(0)
            self.assertTrue(harness.until(lambda: cold.size_mib() == 0, 90))
        self.assertEqual(present(), before)
