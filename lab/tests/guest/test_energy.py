# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice energy` counts what the kernel did, and does not take an emulated second for a real
one.

RAMSLICE_PROGRAM names the program.
"""

import json
import os
import signal
import subprocess
import unittest

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import Memory
from ramlab.pytest_vm import vm

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
# Longer than any test
EVER = "3600s"


def run(*words):
    return subprocess.run([PROGRAM, *words], text=True, capture_output=True)


pytestmark = vm(mem="1G", disk="1G", append="ramslice=16M")


class Ledger:
    """`ramslice energy` while something happens; the documents that it printed."""

    def __init__(self, *words):
        command = [
            PROGRAM,
            "energy",
            "--json",
            "--every",
            "500ms",
            "--for",
            EVER,
            "--granularity",
            "slice",
            *words,
        ]
        self.process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
        self.documents = []

    def __enter__(self):
        # Everything after its first document is counted
        self.documents.append(json.loads(self.process.stdout.readline()))
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate()
        assert self.process.returncode == 0, self.process.returncode
        self.documents += [json.loads(line) for line in rest.splitlines()]
        self.last = self.documents[-1]
        assert self.last["final"], "Ctrl-C ends it with a complete document"


class EnergyTest(unittest.TestCase):
    def setUp(self):
        subprocess.run(["modprobe", "ramslice_sim"], check=True)
        self.addCleanup(subprocess.run, ["modprobe", "-r", "ramslice_sim"])
        dev.debugfs()

    def line(self, document, term):
        return next(line for line in document["lines"] if line["term"] == term)


class Clock(EnergyTest):
    def test_an_emulated_clock_needs_a_time_factor(self):
        if "kvm-clock" in dev.read(CLOCKS):
            self.skipTest("hardware virtualisation: seconds are real")
        done = run("energy", "--profile", "thesis-parc", "--for", "1s")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("emulated (TCGTCGTCGTCG)", done.stderr)
        self.assertIn("--time-factor", done.stderr)

    def test_a_time_factor_divides_the_time_and_is_named(self):
        with Ledger("--profile", "thesis-parc", "--time-factor", "10..20") as ledger:
            pass
        seconds, shown = ledger.last["time_seconds"], ledger.last["elapsed_us"] / 1e6
        self.assertAlmostEqual(seconds["low"], shown / 20)
        self.assertAlmostEqual(seconds["high"], shown / 10)
        self.assertEqual((ledger.last["clock"], ledger.last["final"]), ("emulated", True))
        self.assertIn("divided by 10.0 to 20.0 (--time-factor)", ledger.last["basis"][0])


class Work(EnergyTest):
    def test_the_work_of_a_compaction_is_counted_and_priced(self):
        with Memory(160) as memory:
            # Ten slices and more hold some of it, whatever was awake
            memory.touch().punch()
            before = dev.vmstat("pgmigrate_success")
            kernels = dev.vmstat("compact_daemon_migrate_scanned")
            with Ledger("--profile", "thesis-parc", "--time-factor", "15") as ledger:
                done = json.loads(run("compact", "--json").stdout)["outcome"]
            moved = dev.vmstat("pgmigrate_success") - before
            # The kernel's own compaction may move some of what it looks at
            kernels = dev.vmstat("compact_daemon_migrate_scanned") - kernels
        self.assertGreater(done["slices_done"], 0)
        self.assertGreater(done["migrated_pages"], 0, done)
        self.assertLessEqual(done["migrated_pages"], moved)
        self.assertGreater(done["migrated_pages"], (moved - kernels) * 9 // 10)
        work, last = ledger.last["work"], ledger.last
        self.assertEqual(work["emptied_slices"], done["slices_done"])
        self.assertEqual(work["migrated_pages"], done["migrated_pages"])
        self.assertEqual(work["dropped_pages"], done["dropped_pages"])
        self.assertEqual(work["price_predicted_100cycles"], done["price_predicted_100cycles"])
        # At least the fixed part of each slice, at 10 W and 3.8 GHz
        self.assertGreater(
            self.line(last, "emptying")["joules"]["high"], work["tried_slices"] * 69500 * 10 / 3.8e9
        )
        self.assertGreater(last["saved_joules"]["high"], 0)
        saved, invested, net = last["saved_joules"], last["invested_joules"], last["net_joules"]
        self.assertEqual(net["low"], saved["low"] - invested["high"])
        self.assertEqual(net["high"], saved["high"] - invested["low"])
        self.assertGreater(work["page_faults"], 0)

    def test_reset_statistics_leave_the_cost_unknown(self):
        run("compact")
        with Ledger("--profile", "thesis-parc", "--time-factor", "15") as ledger:
            for folder in dev.zone_folders():
                dev.write(folder / "stats", "0")
        emptying = self.line(ledger.last, "emptying")
        self.assertIsNone(emptying["joules"])
        self.assertIn("set back", emptying["basis"])
        self.assertNotEqual(ledger.last["verdict"]["sign"], "gain")

    def test_prices_other_than_the_profiles_leave_the_cost_unknown(self):
        price = "/sys/kernel/mm/ramslice/price/drop_page"
        before = dev.read(price)
        self.addCleanup(dev.write, price, before)
        dev.write(price, "40")
        run("online", "--all")
        with Ledger("--profile", "thesis-parc", "--time-factor", "15") as ledger:
            run("offline", "--empty")
        emptying = self.line(ledger.last, "emptying")
        self.assertIsNone(emptying["joules"])
        self.assertIn("drop_page is 4000 cycles", emptying["basis"])

    def test_offline_slices_save_for_as_long_as_they_stay_offline(self):
        run("compact")
        info = json.loads(run("status", "--json").stdout)["info"]
        with Ledger("--profile", "thesis-parc", "--time-factor", "15") as ledger:
            pass
        most = (
            info["offline_pages"] * info["page_bytes"] / 2**30 * ledger.last["time_seconds"]["high"]
        )
        off = ledger.last["off_gib_seconds"]
        self.assertGreater(off["low"], 0)
        self.assertLessEqual(off["low"], most * 1.001)
