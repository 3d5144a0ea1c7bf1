# SPDX-License-Identifier: GPL-2.0-or-later
"""Rest: the power driver is told which slices in use are a twin's, and of no other.

The simulated controller counts as a violation what no controller expects: a slice that is to rest
and does, or would lose what it holds.
"""

import errno

from ramlab.guest import cold_memory as cold
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import ColdMemory, ColdTest
from ramlab.guest.harness import MIB
from ramlab.pytest_vm import vm

SLICE_MIB = 16
# Of the worker, which looks once a second and whose timer lets a CPU sleep on.
SECONDS = 30

pytestmark = vm(mem="2G", append=f"ramslice={SLICE_MIB}M ramslice_cold=0")


def resting():
    """Slices that may rest, as the driver was told."""
    return int(dev.read(harness.SIM / "nr_resting"))


def resting_mib(node=0):
    """The same in MiB, as the kernel has it."""
    return int(dev.read(cold.COLD / f"node{node}/resting_bytes")) // MIB


class Rest(ColdTest):
    def setUp(self):
        super().setUp()
        self.log = harness.KernelLog()
        self.addCleanup(self.log.close)

    def load(self, **parameters):
        harness.load_sim(rests=1, **parameters)
        self.addCleanup(self.unload)

    def unload(self):
        """The driver goes, and nothing rests any more."""
        if not harness.SIM.exists():
            return
        harness.check_violations(0)
        harness.unload_sim()
        self.assertEqual(resting_mib(), 0)
        self.assertFalse([line for line in self.log.lines() if "violation" in line])

    def assert_resting(self, slices):
        self.assertTrue(harness.until(lambda: resting() == slices, SECONDS),
                        f"{resting()} slices may rest, not {slices}")
        self.assertEqual(resting_mib(), slices * SLICE_MIB)

    def test_slices_of_a_twin_rest_and_no_others(self):
        self.load()
        self.assert_resting(0)
        cold.resize(256)
        self.assert_resting(16)
        cold.resize(128)
        self.assert_resting(8)
        cold.resize(0)
        self.assert_resting(0)

    def test_a_driver_that_comes_later_is_told(self):
        cold.resize(128)
        self.load()
        self.assert_resting(8)

    def test_what_is_off_does_not_rest(self):
        self.load()
        cold.resize(256)
        self.assert_resting(16)
        done = self.device.request("offline_free", node=cold.twin()).nr_done
        self.assertGreater(done, 8)
        self.assert_resting(16 - done)
        with ColdMemory(200) as memory:
            self.assert_cold(memory)
            on = [row for row in self.device.snapshot()
                  if (row.node, row.state) == (cold.twin(), dev.ONLINE)]
            self.assertGreater(len(on), 16 - done)
            self.assert_resting(len(on))
            self.assertIsNone(memory.wrong_at())
        self.device.request("online_all")
        self.assert_resting(16)

    def test_what_does_not_go_off_rests_again(self):
        self.load()
        cold.resize(128)
        self.assert_resting(8)
        dev.write(harness.SIM / "fail_off", 1)
        done = self.device.request("offline_free", node=cold.twin())
        self.assertEqual((done.nr_failed, dev.read(harness.SIM / "fail_off").strip()), (1, "0"))
        self.device.request("online_all")
        self.assert_resting(8)

    def test_slices_of_another_size(self):
        self.load()
        cold.resize(256)
        self.assert_resting(16)
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", SLICE_MIB * MIB)
        dev.write(dev.SYSFS / "slice_bytes", 32 * MIB)
        self.assertTrue(harness.until(lambda: resting() == 8, SECONDS), resting())
        self.assertEqual(resting_mib(), 256)

    def test_a_state_that_loses_contents_is_never_asked_for(self):
        self.load(retains=0)
        cold.resize(128)
        self.assertFalse(harness.until(resting, 5))
        self.assertEqual(resting_mib(), 0)

    def test_a_driver_that_fails_is_not_asked_again(self):
        self.load(fail_rest=1)
        cold.resize(128)
        said = "fails to let it rest (-5)"
        self.assertTrue(
            harness.until(lambda: any(said in line for line in self.log.lines()), SECONDS)
        )
        self.assertFalse(harness.until(resting, 5))
        self.assertEqual(resting_mib(), 0)
        # Slices go off and wake as ever
        self.assertGreater(self.device.request("offline_free", node=cold.twin()).nr_done, 2)
        self.device.request("online_all")

    def test_a_driver_that_hangs_holds_up_no_other(self):
        limit = dev.SYSFS / "driver_timeout_ms"
        self.addCleanup(dev.write, limit, dev.read(limit))
        self.load()
        cold.resize(128)
        self.assert_resting(8)
        dev.write(limit, 500)
        dev.write(harness.SIM / "hang_rest", 1)
        cold.resize(256)
        said = "does not answer (rest)"
        self.assertTrue(
            harness.until(lambda: any(said in line for line in self.log.lines()), SECONDS)
        )
        dev.write(limit, 600_000)
        done = self.device.request("offline_free", node=cold.twin())
        self.assertEqual((done.status, done.nr_failed), (0, 0))
        self.device.request("online_all")
        dev.write(harness.SIM / "hanging", 0)
        harness.unload_sim()
        self.assertEqual(resting_mib(), 0)

    def test_nothing_rests_without_such_a_driver(self):
        cold.resize(128)
        with harness.simulator():
            self.assertFalse(harness.until(resting, 5))
            self.assertEqual(resting_mib(), 0)

    def test_the_file_is_read_only(self):
        with self.assertRaises(OSError) as caught:
            dev.write(cold.COLD / "node0/resting_bytes", 0)
        self.assertIn(caught.exception.errno, (errno.EACCES, errno.EIO))
