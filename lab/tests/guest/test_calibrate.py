# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice-lab calibrate` fits prices to this machine, installs them only on request, and
changes nothing else.

RAMSLICE_LAB_PROGRAM names the program.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm

PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", "ramslice-lab")
FOLDER = Path("/mnt")
# No emulated machine is steady enough without --anyway.
TINY = ["--anyway", "--memory", "15%", "--samples", "5", "--held-out", "10", "--dir", FOLDER]


def calibrate(*words):
    return subprocess.run([PROGRAM, "calibrate", *map(str, words)], text=True, capture_output=True)


pytestmark = [vm(mem="1G", disk="1G", append="ramslice=16M"), pytest.mark.timeout(2400)]


class Calibrate(harness.RamsliceTest):
    @classmethod
    def setUpClass(cls):
        dev.file_system()

    def prices(self):
        return {path.name: int(dev.read(path)) for path in (dev.SYSFS / "price").iterdir()}

    def test_a_calibration_fits_prices_and_changes_nothing_else(self):
        before = self.settings()
        saved = FOLDER / "samples.json"
        done = calibrate("--json", "-o", saved, *TINY)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(self.settings(), before)
        self.assertFalse(found["installed"])
        self.assertGreaterEqual(found["artificial_samples"], 40)
        prices = found["parameters_100cycles"]
        self.assertEqual(set(prices), set(self.prices()) - {"unreclaimable"})
        # Moving a page and dropping one take some time; how much depends on the machine.
        self.assertGreater(prices["migrate_page"] + prices["migrate_mapping"], 0)
        self.assertGreater(prices["drop_page"], 0)
        self.assertGreater(prices["isolate_page"] + prices["isolate_slice"], 0)
        models = {model["model"]: model for model in found["models"]}
        self.assertLessEqual({"ours", "b", "c"}, set(models))
        # Costs of emulated operations are far from those of the thesis' machine.
        self.assertLess(models["ours"]["artificial"]["mse"], models["b"]["artificial"]["mse"])

        # The same samples give the same fit on any machine.
        again = json.loads(calibrate("--json", "--from", saved).stdout)
        self.assertEqual(again["parameters_100cycles"], prices)
        self.assertEqual(again["models"], found["models"])

        # The prices are installed unless the old ones are better.
        done = calibrate("--json", "--from", saved, "--install")
        again = json.loads(done.stdout)
        before = self.prices()
        if again["installed"]:
            self.assertEqual(before | prices, before)
        else:
            self.assertEqual(done.returncode, 1)
            self.assertTrue(again["not_installed_because"])
        for name, value in zip(dev.PRICES, (695, 303, 39, 100, 29, 1, 25), strict=True):
            (dev.SYSFS / "price" / name).write_text(str(value))

    def test_an_interrupted_calibration_restores_everything(self):
        before = self.settings()
        # The command outlasts the test, so that no machine ends before it is interrupted
        command = [PROGRAM, "calibrate", *map(str, TINY), "--", "sleep", "1000"]
        moments = {
            "a slice is off": lambda: dev.OFFLINE in harness.states(self.device).values(),
            "slices have another size": (
                lambda: self.settings()["slice_bytes"] != before["slice_bytes"]
            ),
        }
        for name, reached in moments.items():
            with (
                self.subTest(name),
                subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
            ):
                # The slice size changes after everything else has been measured
                came = harness.until(lambda: reached() or process.poll() is not None, 1200)
                process.send_signal(signal.SIGINT)
                message = process.stderr.read()
                self.assertTrue(came, message)
                self.assertEqual(process.wait(), 1)
                self.assertIn("interrupted", message)
                self.assertEqual(self.settings(), before)

    def test_calibration_is_refused_while_slices_are_offline(self):
        number = self.empty()[0]
        self.device.request("offline", id=number)
        done = calibrate(*TINY)
        self.assertEqual(done.returncode, 1)
        self.assertIn("online --all", done.stderr)

    def test_too_few_samples_are_refused_but_saved(self):
        saved = FOLDER / "few.json"
        done = calibrate(
            "-o",
            saved,
            "--anyway",
            "--memory",
            "2M",
            "--samples",
            "1",
            "--held-out",
            "0",
            "--dir",
            FOLDER,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("too few samples", done.stderr)
        self.assertGreater(len(json.loads(saved.read_text())["samples"]), 0)
