#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice calibrate` fits prices to this machine, installs them on request only, and leaves all else as it was.

RAMSLICE_PROGRAM is the program. Wants slices of 16 MiB and an empty disk.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
FOLDER = Path("/mnt")
# An emulated machine on a busy host is as steady as that.
TINY = ["--anyway", "--memory", "15%", "--samples", "5", "--held-out", "10", "--dir", FOLDER]


def calibrate(*words):
    return subprocess.run([PROGRAM, "calibrate", *map(str, words)], text=True, capture_output=True)


class Calibrate(harness.Test):
    @classmethod
    def setUpClass(cls):
        if not os.path.ismount(FOLDER):
            dev.file_system()

    def prices(self):
        return {path.name: int(dev.read(path)) for path in (dev.SYSFS / "price").iterdir()}

    def test_a_calibration_and_what_it_leaves_alone(self):
        before = self.settings()
        saved = FOLDER / "samples.json"
        done = calibrate("--json", "-o", saved, *TINY)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(self.settings() | {"result": before["result"]}, before)
        self.assertFalse(found["installed"])
        self.assertGreaterEqual(found["artificial_samples"], 40)
        prices = found["parameters_100cycles"]
        self.assertEqual(set(prices), set(self.prices()) - {"unreclaimable"})
        # Moving a page and dropping one take their time; how much is the machine's affair.
        self.assertGreater(prices["migrate_page"] + prices["migrate_mapping"], 0)
        self.assertGreater(prices["drop_page"], 0)
        self.assertGreater(prices["isolate_page"] + prices["isolate_slice"], 0)
        models = {model["model"]: model for model in found["models"]}
        self.assertLessEqual({"ours", "b", "c"}, set(models))
        # Costs of emulated operations are nowhere near the thesis' machine's.
        self.assertLess(models["ours"]["artificial"]["mse"], models["b"]["artificial"]["mse"])

        # The same samples, the same fit, on any machine.
        again = json.loads(calibrate("--json", "--from", saved).stdout)
        self.assertEqual(again["parameters_100cycles"], prices)
        self.assertEqual(again["models"], found["models"])

        # Put in force, unless what was there is better.
        done = calibrate("--json", "--from", saved, "--install")
        again = json.loads(done.stdout)
        before = self.prices()
        if again["installed"]:
            self.assertEqual(before | prices, before)
        else:
            self.assertEqual(done.returncode, 1)
            self.assertTrue(again["not_installed_because"])
        for name, value in zip(("isolate_slice", "isolate_page", "drop_page", "migrate_page", "migrate_mapping", "alloc_buddy",
                                "alloc_cache"), (695, 303, 39, 100, 29, 1, 25), strict=True):
            (dev.SYSFS / "price" / name).write_text(str(value))

    def test_an_interrupted_calibration_leaves_everything_as_found(self):
        before = self.settings()
        # With a command that outlasts the test, no machine is fast enough to come to the end before the interruption.
        command = [PROGRAM, "calibrate", *map(str, TINY), "--", "sleep", "1000"]
        moments = {
            "a slice is off": lambda: dev.OFFLINE in harness.states(self.device).values(),
            "slices have another size": lambda: self.settings()["slice_bytes"] != before["slice_bytes"],
        }
        for name, reached in moments.items():
            with self.subTest(name), subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
                # Slices get another size after all else has been measured: that takes as long as it takes
                came = harness.until(lambda: reached() or process.poll() is not None, 600)
                process.send_signal(signal.SIGINT)
                message = process.stderr.read()
                self.assertTrue(came, message)
                self.assertEqual(process.wait(), 1)
                self.assertIn("interrupted", message)
                self.assertEqual(self.settings() | {"result": before["result"]}, before)

    def test_it_is_refused_while_slices_are_off(self):
        number = self.empty()[0]
        self.device.request("offline", id=number)
        done = calibrate(*TINY)
        self.assertEqual(done.returncode, 1)
        self.assertIn("online --all", done.stderr)

    def test_too_few_samples_are_refused_and_saved_nevertheless(self):
        saved = FOLDER / "few.json"
        done = calibrate("-o", saved, "--anyway", "--memory", "2M", "--samples", "1", "--held-out", "0", "--dir", FOLDER)
        self.assertEqual(done.returncode, 1)
        self.assertIn("too few samples", done.stderr)
        self.assertGreater(len(json.loads(saved.read_text())["samples"]), 0)


if __name__ == "__main__":
    harness.main()
