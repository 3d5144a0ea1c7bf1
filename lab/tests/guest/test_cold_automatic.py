# SPDX-License-Identifier: GPL-2.0-or-later
"""`[cold] automatic`: idle memory goes to the twin and comes back when it is used; DAMON of other
programs is left alone, and nothing of it stays behind.
"""

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import pytest

from ramlab.guest import cold_automatic, harness, pinned_memory
from ramlab.guest import cold_memory as cold
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_automatic import ColdDaemon, UsedMemory
from ramlab.guest.harness import MIB, PAGE
from ramlab.pytest_vm import vm

RAMSLICE = os.environ.get("RAMSLICE_PROGRAM", "ramslice")

pytestmark = vm(mem="2G", append="ramslice=16M ramslice_cold=512M")


class AutomaticTest(unittest.TestCase):
    """Begins without a daemon; ends without a kdamond of one."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.daemon = ColdDaemon(folder.name, mode="on", policy="never")
        self.daemon.configure_cold()
        self.addCleanup(self.check_end)

    def check_end(self):
        self.daemon.end()
        self.assertEqual(cold_automatic.kdamonds(), 0, self.daemon.log())

    def reload(self, **settings):
        self.daemon.configure_cold(**settings)
        self.daemon.process.send_signal(signal.SIGHUP)

    def until_idle_memory_is_cold(self, memory, mib):
        self.daemon.until(lambda: memory.mib_on(self.cold_node()) >= mib)

    def cold_node(self):
        return cold.twin()


class Moves(AutomaticTest, harness.RamsliceTest):
    def test_idle_memory_goes_to_the_twin_and_comes_back_when_used(self):
        self.daemon.start()
        with UsedMemory(128) as memory:
            self.assertEqual(memory.mib_on(0), 128)
            self.until_idle_memory_is_cold(memory, 115)
            self.daemon.until(lambda: self.daemon.moved()[0] > 110)

            def came_back():
                memory.use()
                return memory.mib_on(0) >= 100

            self.daemon.until(came_back)
            self.assertIsNone(memory.wrong_at())
        there, back = self.daemon.moved()
        print(f"({there} MiB there, {back} MiB back) ", end="", flush=True)
        found = self.daemon.metrics()
        labels = f'node="0",cold_node="{cold.twin()}",direction='
        for direction in "to-cold", "back":
            name = f'ramslice_cold_moved_bytes_total{{{labels}"{direction}"}}'
            self.assertGreater(found[name], 90 * MIB)
        self.assertEqual(found['ramslice_cold_state{state="running"}'], 1)
        self.assert_sane()

    @pytest.mark.slow
    def test_memory_in_use_stays(self):
        self.daemon.start()
        with UsedMemory(64) as idle, UsedMemory(64) as used:

            def idle_is_cold():
                used.use()
                return idle.mib_on(cold.twin()) >= 55

            self.daemon.until(idle_is_cold)
            self.assertGreaterEqual(used.mib_on(0), 50)

    @pytest.mark.slow
    def test_control_groups_that_are_excepted_stay(self):
        with pinned_memory.Group("kept") as group:
            self.daemon.configure_cold(groups=["/kept"])
            with idle_program(group) as pid:
                self.daemon.start()
                with UsedMemory(64) as memory:
                    self.until_idle_memory_is_cold(memory, 55)
                    self.daemon.steps(10)
                # Pages of libraries are those of the group that read them first
                self.assertLess(mib_of_process(pid, cold.twin()), 32)
            self.daemon.end()

    def test_control_groups_go_at_a_rate_of_their_own(self):
        with pinned_memory.Group("slow") as group:
            self.daemon.configure_cold(rates={"/slow": "512KiB"})
            with idle_program(group) as pid:
                self.daemon.start()
                with UsedMemory(64) as memory:
                    self.until_idle_memory_is_cold(memory, 55)
                slow = mib_of_process(pid, cold.twin())
                self.assertLess(slow, 16)
                self.reload(rates={"/slow": "192MiB"})
                self.daemon.until(lambda: mib_of_process(pid, cold.twin()) >= 50)
                print(f"({slow} MiB before) ", end="", flush=True)
            self.daemon.end()
        self.assert_sane()


class Accesses(AutomaticTest, harness.RamsliceTest):
    """For how much of the time nothing accessed what may rest."""

    def setUp(self):
        super().setUp()
        harness.load_sim(rests=1)
        self.addCleanup(harness.unload_sim)
        cold.resize(128)
        self.addCleanup(cold.resize, 512)
        # What is used is not to come back; between two samples all of it is read
        self.daemon.configure_cold(rate="4KiB", in_use=1.0, idle="32s")

    def unaccessed(self, wanted):
        self.daemon.until(lambda: wanted(self.daemon.cold().get("unaccessed_ratio")))
        return self.daemon.cold()["unaccessed_ratio"]

    def test_accesses_to_the_twin_are_the_upper_end_of_its_rest(self):
        memory = self.enterContext(UsedMemory(96, flags=mmap.MAP_PRIVATE | cold.MAP_COLD))
        self.assertGreater(memory.mib_on(cold.twin()), 90)
        self.daemon.start()
        self.unaccessed(lambda share: share is not None and share > 0.9)
        idle = self.energy()
        over = threading.Event()
        user = threading.Thread(target=lambda: [memory.use() for _ in iter(over.is_set, True)])
        user.start()
        try:
            self.unaccessed(lambda share: share is not None and share < 0.6)
            used = self.energy()
        finally:
            over.set()
            user.join()
        for found in idle, used:
            self.assertGreater(found["sampled_share"], 0.5)
        shares = [found["unaccessed_share"] for found in (idle, used)]
        print(f"(without access: {shares}) ", end="", flush=True)
        self.assertGreater(shares[0], 0.9)
        self.assertLess(shares[1], 0.9)
        self.assertGreater(idle["joules"]["high"], used["joules"]["high"])

    def energy(self):
        """What `ramslice energy` says of rest, from this daemon's status."""
        run = Path("/run/ramslice")
        run.symlink_to(self.daemon.folder)
        try:
            done = subprocess.run(
                [RAMSLICE, "energy", "--profile", "ddr5-modes", "--machine",
                 "thesis-parc", "--time-factor", "12..18", "--for", "10s", "--json"],
                stdout=subprocess.PIPE, check=True, text=True)
        finally:
            run.unlink()
        return json.loads(done.stdout.splitlines()[-1])["rest"]


@pytest.mark.slow
class Limits(AutomaticTest):
    def test_a_full_twin_takes_nothing_and_wakes_no_slice(self):
        """Slices that went off lately are no room."""
        device = dev.Device()
        self.addCleanup(device.close)
        with harness.simulator():
            done = device.request("offline_free", node=cold.twin())
            self.assertGreater(done.nr_done, 20)
            # Slices that earlier tests left half used stay on, and are room
            zone, = (zone for zone in device.zones() if zone.node == cold.twin())
            room_mib = (zone.free_pages - zone.awake_reserve_pages) * 4096 // MIB
            if room_mib > 0:
                self.enterContext(cold.ColdMemory(room_mib))
            woken = harness.woken_by_demand(device)
            self.daemon.start()
            found = self.daemon.until_state("paused-full")
            self.assertIsNone(found["nodes"][0]["to_cold_bytes_per_second"])
            with UsedMemory(64) as memory:
                self.daemon.steps(20)
                self.assertLess(memory.mib_on(cold.twin()), 8)
            self.assertEqual(harness.woken_by_demand(device), woken)
            # With room, it goes on
            device.request("online_all")
            self.daemon.until_state("running")
            self.daemon.end()
            harness.check_violations(0)

    def test_a_monitor_that_takes_too_much_cpu_time_pauses(self):
        self.daemon.configure_cold(cpu_share=0.001, idle="400ms")
        self.daemon.start()
        found = self.daemon.until_state("paused-cpu")
        self.assertGreaterEqual(found["kdamond_cpu_ratio"], 0.001)
        finest = found["sample_seconds"]
        # At the coarsest sampling it is off, unless that is cheap enough
        self.daemon.until(lambda: cold_automatic.kdamonds() == 0
                          or self.daemon.cold()["sample_seconds"] > finest)


@pytest.mark.slow
class Others(AutomaticTest):
    def test_damon_of_another_program_is_left_alone(self):
        cold_automatic.kdamond_of_others()
        self.addCleanup(dev.write, cold_automatic.KDAMONDS / "nr_kdamonds", 0)
        self.daemon.start()
        found = self.daemon.until_state("refused")
        self.assertIn("another program has set up 1 kdamonds", found["why"])
        self.assertEqual(self.daemon.end(), 0)
        self.assertEqual(cold_automatic.kdamonds(), 1)
        dev.write(cold_automatic.KDAMONDS / "nr_kdamonds", 0)

    def test_a_kdamond_that_another_program_ends_is_not_fought_for(self):
        self.daemon.start()
        self.daemon.until_state("running")
        dev.write(cold_automatic.KDAMONDS / "0/state", "off")
        self.assertIn("has stopped", self.daemon.until_state("refused")["why"])
        self.assertEqual(cold_automatic.kdamonds(), 0)


class Lifetime(AutomaticTest):
    def test_a_daemon_that_was_killed_leaves_nothing_to_the_next_one(self):
        self.daemon.start()
        self.daemon.until_state("running")
        before = dev.read(cold_automatic.KDAMONDS / "0/pid")
        self.daemon.end(signal.SIGKILL)
        self.assertEqual(cold_automatic.kdamonds(), 2)
        self.daemon.start()
        self.daemon.until_state("running")
        self.assertEqual(cold_automatic.kdamonds(), 2)
        self.assertNotEqual(dev.read(cold_automatic.KDAMONDS / "0/pid"), before)
        # One that is to move nothing removes them, too
        self.daemon.end(signal.SIGKILL)
        self.daemon.configure_cold(automatic="false")
        self.daemon.start()
        self.daemon.until(lambda: cold_automatic.kdamonds() == 0)
        self.assertEqual(self.daemon.cold()["state"], "off")

    def test_it_begins_and_ends_by_a_reload(self):
        self.daemon.configure_cold(automatic="false")
        self.daemon.start()
        self.daemon.until_state("off")
        self.assertEqual(cold_automatic.kdamonds(), 0)
        self.reload()
        self.daemon.until_state("running")
        self.reload(automatic="false")
        self.daemon.until(lambda: cold_automatic.kdamonds() == 0)

    def test_only_mode_on_moves_memory(self):
        self.daemon.configure(mode="observe", policy="never")
        self.daemon.start()
        self.daemon.until(lambda: "only mode on" in self.daemon.cold()["why"])
        self.assertEqual(cold_automatic.kdamonds(), 0)

    @pytest.mark.slow
    def test_a_twin_that_is_sized_later_is_used(self):
        self.addCleanup(cold.resize, 512)
        cold.resize(0)
        self.daemon.start()
        self.assertIn("ramslice cold --size", self.daemon.until_state("not-available")["why"])
        cold.resize(256)
        self.daemon.until_state("running")
        cold.resize(512)
        with UsedMemory(64) as memory:
            self.until_idle_memory_is_cold(memory, 55)
            self.assertIsNone(memory.wrong_at())


@pytest.mark.slow
@vm(mem="2G", append="ramslice=off", numa=("1536M,cpus=0-1", "512M"))
class NodeWithoutCpus(AutomaticTest):
    """A kernel whose memory is switched by hotplug, with a node that firmware reports."""

    def cold_node(self):
        return 1

    def test_idle_memory_goes_to_the_node_and_comes_back_when_used(self):
        self.daemon.configure_cold(backend="stock")
        self.daemon.start()
        pinned_memory.set_mempolicy(pinned_memory.MPOL_BIND, [0])
        with UsedMemory(64) as memory:
            pinned_memory.set_mempolicy(0, [])
            self.until_idle_memory_is_cold(memory, 55)

            def came_back():
                memory.use()
                return memory.mib_on(0) >= 50

            self.daemon.until(came_back)
            self.assertIsNone(memory.wrong_at())


@vm(kernel=["debian-6.1"], mem="2G", numa=("1536M,cpus=0-1", "512M"))
class OldKernel(unittest.TestCase):
    def test_a_kernel_that_cannot_do_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            daemon = ColdDaemon(folder, mode="on", policy="never")
            daemon.configure_cold()
            daemon.start()
            self.addCleanup(daemon.end, signal.SIGKILL)
            why = daemon.until_state("not-available")["why"]
            self.assertRegex(why, "needs (Linux 6.11|CONFIG_DAMON)")
            self.assertEqual(daemon.end(), 0)


def mib_of_process(pid, node):
    """MiB that a process has on a node."""
    with open(f"/proc/{pid}/numa_maps", encoding="ascii") as maps:
        pages = sum(int(word.split("=")[1]) for line in maps for word in line.split()
                    if word.startswith(f"N{node}="))
    return pages * PAGE // MIB


@contextlib.contextmanager
def idle_program(group, mib=64):
    """A program in a control group has so much memory and does nothing; yields its pid."""
    program = (
        "import time\n"
        f"kept = bytearray({mib} << 20)\n"
        "kept[::4096] = bytes(len(kept) // 4096)\n"
        "print(flush=True)\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], preexec_fn=group.enter,
                          stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()
