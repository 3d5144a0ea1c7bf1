#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices that are scattered are emptied in the background, and slices by hand: from either end, and step by step.

RAMSLICE_DAEMON and RAMSLICE_PROGRAM are the programs. Wants 1 GiB of memory in slices of 16 MiB.
"""

import json
import os
import signal
import subprocess

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
import test_daemon

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
MOST_SLICES = 2
# Looks at the daemon until slices must have been emptied: some tens of passes
ROUNDS = 60


class Repair(test_daemon.Test):
    def start(self, candidates):
        self.daemon.configure(mode="on", policy="repair", period=0.2)
        with open(self.daemon.folder / "c.toml", "a", encoding="utf-8") as file:
            file.write(f'[repair]\ncandidates = "{candidates}"\nperiod_seconds = 0.2\nbudget_100cycles = "inf"\n'
                       f"max_slices = {MOST_SLICES}\nmax_share = 0.7\n")
        self.daemon.start()

    def emptied(self, metrics):
        return metrics.get('ramslice_requests_total{mode="on",op="offline",result="done"}', 0)

    def holding(self):
        """Slices that are on and hold something."""
        return sum(s.state == dev.ONLINE and s.counter("free") < s.nr_pages for s in self.device.snapshot())

    def repair(self, candidates):
        """Scatters memory, and has it repaired while its owner keeps it; yields the metrics again and again."""
        with harness.Memory(400) as memory:
            memory.touch().punch()
            holding = self.holding()
            self.start(candidates)
            self.daemon.until(self.daemon.status)
            for _ in range(ROUNDS):
                metrics = self.daemon.until(self.daemon.metrics)
                yield metrics
                if self.emptied(metrics) >= 5:
                    break
                self.daemon.steps(1)
            else:
                self.fail(f"{self.emptied(metrics)} slices were emptied; its log:\n{self.daemon.log()}")
            self.assertEqual(self.daemon.end(), 0)
            self.assertLessEqual(self.holding(), holding - 3)
            self.assertIsNone(memory.wrong_at())
        # About half of each slice was used, so these have no less than 2500 pages.
        self.assertGreater(metrics['ramslice_migrated_pages_total{mode="on"}'], 2500)

    def test_by_price_scattered_slices_are_emptied_and_no_more_than_a_share_of_each_is_moved(self):
        for metrics in self.repair("price"):
            for zone in self.daemon.status()["zones"]:
                ops = [request["op"] for request in zone["requests"]]
                self.assertLessEqual(ops.count("offline"), MOST_SLICES)
            # Pages come and go between the look and the emptying: a tenth more is within the rule.
            labels = 'mode="on"'
            within = metrics.get(f'ramslice_emptied_migrated_ratio_bucket{{le="0.8",{labels}}}', 0)
            self.assertEqual(within, metrics.get(f"ramslice_emptied_migrated_ratio_count{{{labels}}}", 0))

    def test_by_the_paper_cache_is_moved_and_none_is_dropped(self):
        for metrics in self.repair("paper"):
            self.assertEqual(metrics.get('ramslice_dropped_pages_total{mode="on"}', 0), 0)


class ByHand(harness.Test):
    def ramslice(self, *words, status=0):
        done = subprocess.run([PROGRAM, *map(str, words)], text=True, stdout=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def off(self):
        return harness.ids(self.device, dev.OFFLINE)

    def done(self, *words):
        document = json.loads(self.ramslice("--json", *words))
        return [answer["slice"] for answer in document["results"] if answer["outcome"]["slices_done"]]

    def test_slices_go_off_in_any_order_and_from_either_end(self):
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

    def test_a_ramp_that_holds_takes_memory_from_the_machine_at_each_step(self):
        total, size = harness.meminfo()["MemTotal"], self.device.info().slice_bytes // 1024
        with subprocess.Popen([PROGRAM, "ramp", "--hold", "--every", "1h"], text=True, stdout=subprocess.PIPE) as ramp:
            self.assertIn(": offline: ", ramp.stdout.readline())
            off = self.off()
            self.assertEqual(len(off), 2)
            # Boot still gives a page back now and then
            self.assertAlmostEqual(harness.meminfo()["MemTotal"], total - 2 * size, delta=64)
            ramp.send_signal(signal.SIGINT)
            ramp.stdout.read()
        self.assertEqual((ramp.returncode, self.off()), (1, []))
        self.assertAlmostEqual(harness.meminfo()["MemTotal"], total, delta=64)

    def test_a_ramp_that_is_interrupted_wakes_what_it_switched_off_or_leaves_it(self):
        for more, left in (([], 0), (["--leave"], 2)):
            with self.subTest(more):
                words = [PROGRAM, "ramp", "--every", "1h", *more]
                with subprocess.Popen(words, text=True, stdout=subprocess.PIPE) as ramp:
                    self.assertIn(": offline: ", ramp.stdout.readline())
                    self.assertEqual(len(self.off()), 2)
                    ramp.send_signal(signal.SIGINT)
                    self.assertIn("interrupted: ", ramp.stdout.read())
                self.assertEqual((ramp.returncode, len(self.off())), (1, left))


if __name__ == "__main__":
    harness.main()
