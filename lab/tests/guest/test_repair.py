# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon empties scattered slices in the background.

An operator takes slices offline in any order.

RAMSLICE_DAEMON, RAMSLICE_PROGRAM and RAMSLICE_LAB_PROGRAM name the programs.
"""

import json
import os
import signal
import subprocess
import time

import pytest

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import DaemonTest
from ramlab.guest.harness import check_contents
from ramlab.pytest_vm import vm

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
LAB_PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", f"{PROGRAM}-lab")
MOST_SLICES = 2
# How many slices repair has to empty, and for how long it may try, in seconds. Pages come and go,
# so that a pass may find nothing to do: how many passes it takes is no property of the daemon.
ENOUGH, LIMIT_S = 5, 900


pytestmark = [vm(mem="1G", disk="1G", append="ramslice=16M"), pytest.mark.timeout(2400)]


class Repair(DaemonTest):
    def start(self, candidates):
        self.daemon.configure(mode="on", policy="repair", period=0.2)
        with open(self.daemon.folder / "c.toml", "a", encoding="utf-8") as file:
            file.write(
                f'[repair]\ncandidates = "{candidates}"\nperiod_seconds = 0.2\nbudget_100cycles ='
                f' "inf"\nmax_slices = {MOST_SLICES}\nmax_share = 0.7\n'
            )
        self.daemon.start()

    def emptied(self, metrics):
        return metrics.get('ramslice_requests_total{mode="on",op="offline",result="done"}', 0)

    def holding(self):
        """The number of online slices that hold something."""
        return sum(
            s.state == dev.ONLINE and s.counter("free") < s.nr_pages for s in self.device.snapshot()
        )

    def repair(self, candidates):
        """Scatters memory and lets the daemon repair it meanwhile.

        Yields the metrics after each step.
        """
        with harness.Memory(400) as memory:
            memory.touch().punch()
            holding = self.holding()
            self.start(candidates)
            self.daemon.until(self.daemon.status)
            end = time.monotonic() + LIMIT_S
            while self.emptied(metrics := self.daemon.until(self.daemon.metrics)) < ENOUGH:
                yield metrics
                if time.monotonic() > end:
                    self.fail(f"{self.emptied(metrics)} slices were emptied; "
                              f"the daemon's log:\n{self.daemon.log()}")
                self.daemon.steps(1)
            yield metrics
            self.assertEqual(self.daemon.end(), 0)
            self.assertLessEqual(self.holding(), holding - 3)
            check_contents(memory)
        # About half of each slice was used, so these have at least 2500 pages
        self.assertGreater(metrics['ramslice_migrated_pages_total{mode="on"}'], 2500)

    def test_repair_by_price_moves_at_most_a_share_of_each_slice(self):
        for metrics in self.repair("price"):
            for zone in self.daemon.status()["zones"]:
                ops = [request["op"] for request in zone["requests"]]
                self.assertLessEqual(ops.count("offline"), MOST_SLICES)
            # Pages come and go between the snapshot and the request: a tenth more is allowed
            labels = 'mode="on"'
            within = metrics.get(f'ramslice_emptied_migrated_ratio_bucket{{le="0.8",{labels}}}', 0)
            self.assertEqual(
                within, metrics.get(f"ramslice_emptied_migrated_ratio_count{{{labels}}}", 0)
            )

    def test_repair_by_the_paper_drops_no_page_cache(self):
        for metrics in self.repair("paper"):
            self.assertEqual(metrics.get('ramslice_dropped_pages_total{mode="on"}', 0), 0)


class ByHand(harness.RamsliceTest):
    def ramslice(self, *words, status=0):
        done = subprocess.run(
            [LAB_PROGRAM if "ramp" in words else PROGRAM, *map(str, words)], text=True,
            stdout=subprocess.PIPE, check=False
        )
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def off(self):
        return harness.ids(self.device, dev.OFFLINE)

    def done(self, *words):
        document = json.loads(self.ramslice("--json", *words))
        return [
            answer["slice"] for answer in document["results"] if answer["outcome"]["slices_done"]
        ]

    def test_slices_go_offline_in_any_order_and_from_either_end(self):
        one, other = self.empty(2)
        self.assertEqual(self.done("offline", f"{other},{one}"), [other, one])
        self.assertEqual(self.off(), [one, other])
        self.assertEqual(self.done("online", "--count", 1, "--end", "high"), [other])
        self.assertEqual(self.done("online", "--count", 1), [one])
        high = self.done("offline", "--count", 3)
        self.assertEqual(high, sorted(high, reverse=True))
        low = self.done("offline", "--count", 3, "--end", "low")
        self.assertEqual(low, sorted(low))
        self.assertLess(max(low), min(high))
        self.assertEqual(self.off(), sorted(low + high))

    def test_a_ramp_shrinks_memory_to_its_floor_and_grows_it_again(self):
        floor = len(harness.ids(self.device, dev.ONLINE)) - 7
        free = harness.meminfo()["RamsliceOffline"]
        text = self.ramslice("ramp", "--step", 3, "--every", "100ms", "--floor", floor, "--json")
        *steps, end = map(json.loads, text.splitlines())
        down = [step for step in steps if step["direction"] == "down"]
        self.assertEqual([step["offline_slices"] for step in down], [3, 6, 7])
        gone = [number for step in down for number in step["slices"]]
        self.assertEqual(gone, sorted(gone, reverse=True))
        back = [number for step in steps[len(down):] for number in step["slices"]]
        self.assertEqual(back, gone[::-1])
        self.assertEqual((end["ended"], end["floor_reached"], end["left_off"]), ("done", True, []))
        self.assertEqual((self.off(), harness.meminfo()["RamsliceOffline"]), ([], free))

    def test_a_ramp_that_holds_reduces_total_memory_at_each_step(self):
        total, size = harness.meminfo()["MemTotal"], self.device.info().slice_bytes // 1024
        with subprocess.Popen(
            [LAB_PROGRAM, "ramp", "--hold", "--every", "1h"], text=True, stdout=subprocess.PIPE
        ) as ramp:
            self.assertIn(": offline: ", ramp.stdout.readline())
            off = self.off()
            self.assertEqual(len(off), 2)
            # The kernel still returns pages of boot memory now and then
            self.assertAlmostEqual(harness.meminfo()["MemTotal"], total - 2 * size, delta=64)
            ramp.send_signal(signal.SIGINT)
            ramp.stdout.read()
        self.assertEqual((ramp.returncode, self.off()), (1, []))
        self.assertAlmostEqual(harness.meminfo()["MemTotal"], total, delta=64)

    def test_an_interrupted_ramp_wakes_its_slices_or_leaves_them_offline(self):
        for more, left in (([], 0), (["--leave"], 2)):
            with self.subTest(more):
                words = [LAB_PROGRAM, "ramp", "--every", "1h", *more]
                with subprocess.Popen(words, text=True, stdout=subprocess.PIPE) as ramp:
                    self.assertIn(": offline: ", ramp.stdout.readline())
                    self.assertEqual(len(self.off()), 2)
                    ramp.send_signal(signal.SIGINT)
                    self.assertIn("interrupted: ", ramp.stdout.read())
                self.assertEqual((ramp.returncode, len(self.off())), (1, left))
