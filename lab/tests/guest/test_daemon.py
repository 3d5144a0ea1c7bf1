#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""ramsliced on this kernel: observe acts on nothing, on earns slices, a kill loses nothing, a stop does as told.

RAMSLICE_DAEMON is the program. Wants 1 GiB of memory in slices of 16 MiB.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

from ramlab.guest import hard
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev

PROGRAM = os.environ.get("RAMSLICE_DAEMON", "ramsliced")
PORT = 19750
PATIENCE = 180
SETTINGS = """schema_version = 1
mode = "{mode}"
period_seconds = {period}
policy = "{policy}"
[governor]
costs = "predicted"
[periodic]
period_seconds = 1.0
[energy]
granularity = "slice"
time_factor = "12..18"
[state]
save_seconds = 0
[stock]
look_share = 0.1
[stop]
slices = "{stop}"
[pressure]
stall_ms = {stall}
pause_seconds = 1
[metrics]
listen = "127.0.0.1:%d"
""" % PORT


class Daemon:
    """The daemon in a directory of its own."""

    def __init__(self, folder, **settings):
        self.folder = Path(folder)
        self.configure(**settings)
        self.process = None

    def configure(self, mode="observe", policy="governor", stop="leave", stall=0, period=0.5):
        text = SETTINGS.format(mode=mode, policy=policy, stop=stop, stall=stall, period=period)
        (self.folder / "c.toml").write_text(text)

    def start(self):
        words = [PROGRAM, "--config", self.folder / "c.toml", "--state-dir", self.folder, "--runtime-dir", self.folder]
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(words, stderr=log, env={**os.environ, "NO_COLOR": "1"})
        return self

    def end(self, number=signal.SIGTERM):
        if self.process is not None:
            self.process.send_signal(number)
            status = self.process.wait(PATIENCE)
            self.process = None
            return status
        return None

    def log(self):
        return (self.folder / "log").read_text()

    def status(self):
        """Its status, or nothing while there is none of this process."""
        try:
            status = json.loads((self.folder / "status.json").read_text())
        except FileNotFoundError:
            return None
        return status if status["pid"] == self.process.pid else None

    def would_be_off(self):
        """Slices that are off in thought."""
        status = self.status()
        return status["would_earn"]["nr_offline"] if status and status["would_earn"] else 0

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
            text = answer.read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}

    def steps(self, more):
        """Waits until it has made so many steps more."""
        try:
            before = self.metrics()["ramslice_steps_total"]
        except OSError:
            before = 0
        return self.until(lambda: self.metrics()["ramslice_steps_total"] >= before + more)

    def press(self, memory, start, words):
        """Has it run short of memory until its log has these words; returns how much of the memory is touched then.

        On a stock kernel nobody is waited for: so the memory is taken until its guard has to act, and no faster.
        """
        def said():
            nonlocal start
            if words in self.log():
                return True
            if harness.meminfo()["MemAvailable"] << 10 > harness.GUARD_FLOOR - 32 * harness.MIB and start < memory.bytes:
                end = min(start + 16 * harness.MIB, memory.bytes)
                memory.touch(start=start, end=end)
                start = end
            return False

        self.until(said)
        return start

    def until_no_more_goes_off(self):
        """Some slices are off, and its last request switched off none: no more can be, or too little would stay available."""
        def rests():
            ends = re.findall(r"has carried out a request .*done=(\d+) failed=(\d+)", self.log())
            return ("1", "0") in ends and ends[-1] == ("0", "0")

        self.until(rests)

    def until(self, condition):
        def tried():
            try:
                return condition()
            except OSError:
                return None
        found = harness.until(tried, PATIENCE)
        if not found:
            raise AssertionError(f"in vain; its log:\n{self.log()}")
        return found


class Test(unittest.TestCase):
    def setUp(self):
        self.device = dev.Device()
        self.addCleanup(self.device.close)
        dev.debugfs()
        harness.wake(self.device)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.daemon = Daemon(folder.name)
        self.addCleanup(self.daemon.end, signal.SIGKILL)

    def off(self):
        return len(harness.ids(self.device, dev.OFFLINE))

    def tried(self):
        """What requests have done, by the kernel's own count."""
        names = ("offline_tried", "online_request")
        tables = [dev.table(folder / "stats") for folder in dev.zone_folders()]
        return [sum(table[name] for table in tables) for name in names]


class Observe(Test):
    def test_no_slice_changes_and_no_request_is_made_but_it_says_what_would_have_been(self):
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
        # It has nothing open by which it could act.
        opened = harness.opened(self.daemon.process.pid)
        self.assertIn("/dev/ramslice", opened.values())
        for number, name in opened.items():
            if name == "/dev/ramslice":
                info = Path(f"/proc/{self.daemon.process.pid}/fdinfo/{number}").read_text()
                flags = int(next(line.split()[1] for line in info.splitlines() if line[:5] == "flags"), 8)
                self.assertEqual(flags & os.O_ACCMODE, os.O_RDONLY)
        self.assertEqual(self.daemon.end(), 0)
        self.assertEqual((self.off(), self.tried()), (0, before))


class Stalls(Test):
    """Tasks wait for memory, and slices are not what they wait for."""

    def test_a_group_at_its_limit_wakes_nothing(self):
        self.daemon.configure(mode="on", stall=50)
        self.daemon.start()
        self.daemon.until(lambda: self.off() > 10)
        off = self.off()
        with hard.Group("limited") as group:
            dev.write(group.path / "memory.high", 16 * harness.MIB)
            # Each further page makes it sleep
            taker = subprocess.Popen([sys.executable, "-c", "kept = bytearray(96 << 20); import time; time.sleep(600)"],
                                     preexec_fn=group.enter)
            try:
                self.daemon.until(lambda: self.daemon.metrics()["ramslice_pressure_stalls_total"] >= 3)
            finally:
                taker.kill()
                taker.wait()
        found = self.daemon.metrics()
        self.assertEqual(found['ramslice_woken_slices_total{mode="on",cause="pressure"}'], 0)
        self.assertEqual(found["ramslice_paused"], 0)
        self.assertEqual(found["ramslice_pressure_watched{}"], 1)
        self.assertGreaterEqual(self.off(), off)


class On(Test):
    def test_empty_slices_go_off_and_memory_that_is_wanted_comes_back(self):
        woken = harness.woken_by_demand(self.device)
        self.daemon.configure(mode="on")
        self.daemon.start()
        self.daemon.until(lambda: self.off() > 10)
        before = harness.vmstat()
        # More than is awake.
        wanted = sum(zone.free_pages for zone in self.device.zones()) // 256 + 96
        with harness.Memory(wanted) as memory:
            self.assertIsNone(memory.touch().wrong_at())
            self.daemon.steps(2)
            self.assertIsNone(memory.wrong_at())
        after = harness.vmstat()
        for name in ("pswpout", "oom_kill"):
            self.assertEqual(after[name], before[name], name)
        # As many as the kernel counts: no slice was off before its first look.
        name = 'ramslice_woken_slices_total{mode="on",cause="memory"}'
        self.daemon.until(lambda: self.daemon.metrics().get(name) == harness.woken_by_demand(self.device) - woken)
        self.assertEqual(self.daemon.end(), 0)

    def test_a_kill_loses_nothing_and_what_is_off_stays_off(self):
        # Without a driver nothing is saved
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
        self.assertNotIn("learning anew", log)

    def test_stopping_leaves_slices_off_or_wakes_them(self):
        for stop in ("leave", "wake"):
            with self.subTest(stop):
                self.daemon.configure(mode="on", stop=stop)
                self.daemon.start()
                self.daemon.until(lambda: self.daemon.status() and self.off())
                self.assertEqual(self.daemon.end(), 0)
                self.assertEqual(self.off() == 0, stop == "wake")

    def test_a_reload_takes_the_mode_over_and_a_wrong_file_changes_nothing(self):
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
        self.assertGreater(self.off(), 0, "the settings that held said leave")


class Prices(Test):
    """What the kernel answers to requests adds up to operations, and nothing is installed."""

    def parameters(self):
        return {path.name: path.read_text() for path in Path("/sys/kernel/mm/ramslice/price").iterdir()}

    def learned(self, operations):
        """What its status says of prices, once that is of so many operations."""
        prices = (self.daemon.status() or {}).get("prices")
        return prices if prices and prices["operations"] >= operations else None

    def test_requests_tell_what_operations_cost_and_the_parameters_stay(self):
        before = self.parameters()
        self.daemon.configure(mode="on", policy="periodic")
        self.daemon.start()

        def priced(result):
            return self.daemon.metrics().get(f'ramslice_priced_requests_total{{result="{result}"}}', 0)

        # Of a request that failed in part, as may happen at any time, nothing is learned
        for mib in (100, 200, 300) * 4:
            count = self.daemon.until(lambda: priced("taken") + priced("left-out") + 1)
            # Slices wake for it, and hold a part of it when most is gone.
            with harness.Memory(mib) as memory:
                memory.touch()
            self.daemon.until(lambda known=count: priced("taken") + priced("left-out") >= known)
            if priced("taken") >= 3:
                break
        # Its metrics tell at once, its status at the end of a step
        prices = self.daemon.until(lambda: self.learned(3))
        print(f"{prices['operations']} taken, {prices['left_out_operations']} left out: {prices['text']} ", end="")
        self.assertGreater(prices["measured_over_predicted"], 0)
        self.assertEqual(prices["price_parameters_100cycles"]["drop_page"], int(before["drop_page"]))
        self.assertEqual(self.parameters(), before)
        # What was learned is there after a kill.
        self.daemon.end(signal.SIGKILL)
        self.daemon.configure(mode="off")
        self.daemon.start()
        self.daemon.until(lambda: self.learned(3))


def earned(daemon):
    """Joules saved so far, at most."""
    status = daemon.status()
    return status["earned"]["saved_joules"]["high"] if status and status["earned"] else 0.0


class Vanishing(Test):
    def test_it_waits_for_a_device_that_is_gone_and_goes_on_when_it_is_back(self):
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
        # It looks through what it has open; a request has to open the device.
        os.rename("/dev/ramslice", "/dev/ramslice.away")
        try:
            # One that runs already goes on.
            self.daemon.steps(2)
            self.device.request("online_all", wait_busy=10)
            self.daemon.steps(3)
            self.assertEqual(self.off(), 0)
        finally:
            os.rename("/dev/ramslice.away", "/dev/ramslice")
        self.assertIsNone(self.daemon.process.poll())


class Cost(Test):
    def test_it_takes_little_memory(self):
        self.daemon.start()
        self.daemon.steps(5)
        mib = self.daemon.metrics()["ramslice_process_resident_bytes"] / harness.MIB
        print(f"{mib:.1f} MiB ", end="")
        self.assertLess(mib, 20)


if __name__ == "__main__":
    harness.main()
