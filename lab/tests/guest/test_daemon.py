# SPDX-License-Identifier: GPL-2.0-or-later
"""ramsliced on this kernel.

Mode observe changes nothing, mode on takes slices offline, a kill loses nothing, and a stop obeys
its settings.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import DaemonTest, earned
from ramlab.guest.harness import check_contents
from ramlab.guest.hotplug_blocks import off as off_blocks
from ramlab.guest.hotplug_blocks import wake_blocks
from ramlab.pytest_vm import vm

pytestmark = vm(mem="1G", disk="1G", append="ramslice=16M")


class Observe(DaemonTest):
    def test_observe_sends_no_request_and_reports_what_it_would_do(self):
        before = self.tried()
        self.daemon.configure(policy="periodic")
        self.daemon.start()
        self.daemon.until(lambda: self.daemon.would_be_off() > 5)
        with harness.Memory(200) as memory:
            memory.touch()
            self.daemon.steps(3)
        self.assertEqual((self.off(), self.tried()), (0, before))
        would = self.daemon.status()["would_earn"]
        self.assertLessEqual(would["net_joules"]["low"], would["net_joules"]["high"])
        # It has no file open by which it could send a request
        opened = harness.opened(self.daemon.process.pid)
        self.assertIn("/dev/ramslice", opened.values())
        for number, name in opened.items():
            if name == "/dev/ramslice":
                info = Path(f"/proc/{self.daemon.process.pid}/fdinfo/{number}").read_text()
                flags = int(
                    next(line.split()[1] for line in info.splitlines() if line[:5] == "flags"), 8
                )
                self.assertEqual(flags & os.O_ACCMODE, os.O_RDONLY)
        self.assertEqual(self.daemon.end(), 0)
        self.assertEqual((self.off(), self.tried()), (0, before))


class Stalls(DaemonTest):
    """Tasks wait for memory that waking a slice would not give them."""

    def test_a_control_group_at_its_limit_wakes_nothing(self):
        self.daemon.configure(mode="on", stall=50)
        self.daemon.start()
        self.daemon.until(lambda: self.off() > 10)
        off = self.off()
        with pinned_memory.Group("limited") as group:
            dev.write(group.path / "memory.high", 16 * harness.MIB)
            # Each further page makes the task sleep
            taker = subprocess.Popen(
                [sys.executable, "-c", "kept = bytearray(96 << 20); import time; time.sleep(3600)"],
                preexec_fn=group.enter,
            )
            try:
                self.daemon.until(
                    lambda: self.daemon.metrics()["ramslice_pressure_stalls_total"] >= 3
                )
            finally:
                taker.kill()
                taker.wait()
        found = self.daemon.metrics()
        self.assertEqual(found['ramslice_woken_slices_total{mode="on",cause="pressure"}'], 0)
        self.assertEqual(found["ramslice_paused"], 0)
        self.assertEqual(found["ramslice_pressure_watched{}"], 1)
        self.assertGreaterEqual(self.off(), off)


class On(DaemonTest):
    def test_empty_slices_go_offline_and_wake_on_demand(self):
        woken = harness.woken_by_demand(self.device)
        self.daemon.configure(mode="on")
        self.daemon.start()
        self.daemon.until(lambda: self.off() > 10)
        before = harness.vmstat()
        # More than is awake.
        wanted = sum(zone.free_pages for zone in self.device.zones()) // 256 + 96
        with harness.Memory(wanted) as memory:
            check_contents(memory.touch())
            self.daemon.steps(2)
            check_contents(memory)
        after = harness.vmstat()
        for name in ("pswpout", "oom_kill"):
            self.assertEqual(after[name], before[name], name)
        # As many as the kernel counts: no slice was offline before the first snapshot
        name = 'ramslice_woken_slices_total{mode="on",cause="memory"}'
        self.daemon.until(
            lambda: self.daemon.metrics().get(name) == harness.woken_by_demand(self.device) - woken
        )
        self.assertEqual(self.daemon.end(), 0)

    def test_a_kill_loses_no_state_and_wakes_no_slice(self):
        # Without a driver no energy is saved
        self.enterContext(harness.simulator())
        self.addCleanup(self.daemon.end, signal.SIGKILL)
        self.daemon.configure(mode="on")
        self.daemon.start()
        self.daemon.until(self.off)
        saved = 0.0
        for _ in range(4):
            self.daemon.until(lambda known=saved: earned(self.daemon) > known)
            saved = earned(self.daemon)
            self.daemon.end(signal.SIGKILL)
            self.assertGreater(self.off(), 0)
            self.daemon.start()
        self.daemon.until(lambda: earned(self.daemon) > saved)
        log = self.daemon.log()
        self.assertEqual(log.count("nothing was learned before"), 1, log)
        self.assertNotRegex(log, r"\blearning a\w+", "the daemon began to learn from the start")

    def test_a_stop_leaves_slices_offline_or_wakes_them_as_set(self):
        for stop in ("leave", "wake"):
            with self.subTest(stop):
                self.daemon.configure(mode="on", stop=stop)
                self.daemon.start()
                self.daemon.until(lambda: self.daemon.status() and self.off())
                self.assertEqual(self.daemon.end(), 0)
                self.assertEqual(self.off() == 0, stop == "wake")

    def test_a_reload_changes_the_mode_and_a_wrong_file_changes_nothing(self):
        self.daemon.start()
        self.daemon.until(lambda: self.daemon.status() and self.daemon.status()["machine"]["ok"])
        (self.daemon.folder / "c.toml").write_text("schema_version = 1\nmode = \"onn\"\n")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.until(lambda: "c.toml:2:8" in self.daemon.log())
        self.daemon.steps(2)
        self.assertEqual((self.daemon.status()["mode"], self.off()), ("observe", 0))
        self.daemon.configure(mode="on")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.until(self.off)
        self.daemon.configure(mode="off", stop="wake")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.until(lambda: self.daemon.status()["mode"] == "off")
        self.assertGreater(self.off(), 0, "the settings in force leave slices offline")


class Units(DaemonTest):
    """The hardware switches more than a slice as one."""

    def setUp(self):
        super().setUp()
        size = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        self.addCleanup(harness.wake, self.device)
        # Without a driver nothing is switched
        self.enterContext(harness.simulator())

    def size(self):
        return int(dev.read(dev.SYSFS / "slice_bytes")) // harness.MIB

    def test_slices_become_as_large_once_all_are_online_and_are_switched_then(self):
        number = harness.empty_ids(self.device)[-1]
        self.assertEqual(self.device.request("offline", id=number).nr_done, 1)
        before = self.size()
        self.daemon.configure(mode="on", policy="never", unit="64MiB")
        self.daemon.start()
        self.daemon.until(lambda: f"slice {number} is offline, and the size" in self.daemon.log())
        self.assertEqual(self.size(), before)
        self.device.request("online_all")
        self.daemon.until(lambda: self.size() == 64)
        self.daemon.configure(mode="on", unit="64MiB")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.until(self.off)
        self.daemon.steps(2)
        self.assertEqual(harness.violations(), 0)
        self.assertEqual(self.daemon.end(), 0)

    def test_mode_observe_works_with_larger_slices_and_leaves_the_kernels(self):
        before = self.size()
        self.daemon.configure(policy="periodic", unit="64MiB")
        self.daemon.start()
        self.daemon.until(lambda: self.daemon.would_be_off() > 1)
        # All of them would be slices of 64 MiB
        self.assertLess(self.daemon.would_be_off(), 1024 // 64)
        self.assertEqual((self.size(), self.off()), (before, 0))


class Prices(DaemonTest):
    """The daemon learns from the outcome of requests and installs no prices."""

    def parameters(self):
        return {
            path.name: path.read_text() for path in Path("/sys/kernel/mm/ramslice/price").iterdir()
        }

    def learned(self, operations):
        """The prices in its status once they are of at least this many operations."""
        prices = (self.daemon.status() or {}).get("prices")
        return prices if prices and prices["operations"] >= operations else None

    def test_the_daemon_learns_prices_and_leaves_the_parameters_alone(self):
        before = self.parameters()
        self.daemon.configure(mode="on", policy="periodic")
        self.daemon.start()

        def priced(result):
            return self.daemon.metrics().get(
                f'ramslice_priced_requests_total{{result="{result}"}}', 0
            )

        # The daemon learns nothing from a request that failed in part, which may happen at any time
        for mib in (100, 200, 300) * 4:
            count = self.daemon.until(lambda: priced("taken") + priced("left-out") + 1)
            # Slices wake for it, and hold a part of it when most of it is gone
            with harness.Memory(mib) as memory:
                memory.touch()
            self.daemon.until(lambda known=count: priced("taken") + priced("left-out") >= known)
            if priced("taken") >= 3:
                break
        # Metrics change at once, the status at the end of a step
        prices = self.daemon.until(lambda: self.learned(3))
        print(
            f"{prices['operations']} taken, {prices['left_out_operations']} left out:"
            f" {prices['text']} ",
            end="",
        )
        self.assertGreater(prices["measured_over_predicted"], 0)
        self.assertEqual(
            prices["price_parameters_100cycles"]["drop_page"], int(before["drop_page"])
        )
        self.assertEqual(self.parameters(), before)
        # The learned prices survive a kill
        self.daemon.end(signal.SIGKILL)
        self.daemon.configure(mode="off")
        self.daemon.start()
        self.daemon.until(lambda: self.learned(3))


class Vanishing(DaemonTest):
    def test_the_daemon_waits_for_a_missing_device(self):
        self.daemon.configure(mode="on")
        os.rename("/dev/ramslice", "/dev/ramslice.away")
        try:
            self.daemon.start()
            status = self.daemon.until(lambda: self.daemon.status())
            self.assertFalse(status["machine"]["ok"])
            self.assertIn("/dev/ramslice", status["why"])
            self.assertEqual(self.daemon.metrics()["ramslice_up"], 0)
        finally:
            os.rename("/dev/ramslice.away", "/dev/ramslice")
        self.daemon.until(self.off)
        # It reads by the file it has open; only a request opens the device again
        os.rename("/dev/ramslice", "/dev/ramslice.away")
        try:
            # A daemon that has the device open goes on
            self.daemon.steps(2)
            self.device.request("online_all", wait_busy=10)
            self.daemon.steps(3)
            self.assertEqual(self.off(), 0)
        finally:
            os.rename("/dev/ramslice.away", "/dev/ramslice")
        self.assertIsNone(self.daemon.process.poll())


class Cost(DaemonTest):
    def test_the_daemon_takes_less_than_20_mib(self):
        self.daemon.start()
        self.daemon.steps(5)
        mib = self.daemon.metrics()["ramslice_process_resident_bytes"] / harness.MIB
        print(f"{mib:.1f} MiB ", end="")
        self.assertLess(mib, 20)


class OtherBackend(DaemonTest):
    """After a kill, the settings ask for the other backend, which does not know what is offline."""

    def configure(self, backend):
        self.daemon.configure(mode="on", policy="periodic", stop="auto")
        file = self.daemon.folder / "c.toml"
        file.write_text(f'backend = "{backend}"\n' + file.read_text())

    def restart(self, backend):
        """Kills the daemon and starts it with this backend; the log of the new one."""
        self.daemon.end(signal.SIGKILL)
        before = len(self.daemon.log())
        self.configure(backend)
        self.daemon.start()
        self.daemon.until(lambda: self.daemon.status() and self.daemon.status()["machine"]["ok"])
        self.assertEqual(self.daemon.status()["machine"]["backend"], backend)
        return self.daemon.log()[before:]

    def test_blocks_that_memory_hotplug_took_offline_are_woken_by_the_kernels(self):
        self.addCleanup(wake_blocks)
        self.configure("stock")
        self.daemon.start()
        self.daemon.until_no_more_goes_off()
        self.assertTrue(off_blocks())
        log = self.restart("kernel")
        self.assertRegex(log, "left slices offline by another backend: they are woken")
        self.assertEqual(off_blocks(), set())
        # It goes on with slices of its own
        self.daemon.until(self.off)
