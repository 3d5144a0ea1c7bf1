# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel command line: ramslice=off leaves nothing behind, and an invalid value is named and
replaced.
"""

import os
import subprocess
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import check_contents
from ramlab.pytest_vm import vm

DEFAULT_BYTES = 64 << 20


def kernel_log():
    text = subprocess.run(["dmesg"], check=True, text=True, stdout=subprocess.PIPE).stdout
    return [line for line in text.splitlines() if "ommand line" not in line or "ramslice: " in line]


@vm(mem="512M", append="ramslice=off")
class Off(unittest.TestCase):
    def test_sysfs_has_only_enabled_which_is_0(self):
        self.assertEqual(os.listdir(dev.SYSFS), ["enabled"])
        self.assertEqual(dev.read(dev.SYSFS / "enabled"), "0")

    def test_there_is_no_device_and_no_debugfs_tree(self):
        self.assertFalse(Path("/dev/ramslice").exists())
        self.assertNotIn("ramslice", Path("/proc/misc").read_text())
        self.assertFalse(dev.debugfs().exists())

    def test_meminfo_has_no_line_about_it(self):
        self.assertNotIn("RamsliceOffline", harness.meminfo())
        for path in Path("/sys/devices/system/node").glob("node*/meminfo"):
            self.assertNotIn("amslice", path.read_text())
        self.assertEqual(harness.vmstat()["nr_ramslice_offline"], 0)

    def test_no_thread_runs(self):
        self.assertNotIn("kslicewaked", harness.processes().values())

    def test_a_power_driver_finds_no_device(self):
        done = subprocess.run(
            ["modprobe", "ramslice_sim"],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("No such device", done.stdout)

    def test_memory_works_as_usual(self):
        with harness.Memory(100) as memory:
            check_contents(memory.touch())

    def test_the_tool_prints_one_line_and_exits_with_2(self):
        tool = Path(os.environ["RAMSLICE_PROGRAM"])
        if not tool.exists():
            self.skipTest(f"{tool} is not built")
        for arguments in (["status"], ["compact"], ["online", "--all"]):
            done = subprocess.run(
                [tool, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            with self.subTest(arguments, stdout=done.stdout, stderr=done.stderr):
                self.assertEqual(done.returncode, 2)
                self.assertEqual(len((done.stdout + done.stderr).splitlines()), 1)
                self.assertEqual(done.stdout, "")


@vm(mem="512M", append="ramslice=banana", env={"RAMSLICE_BAD": "banana"})
@vm(mem="512M", append="ramslice=3M", env={"RAMSLICE_BAD": "3M"}, slow=True)
@vm(mem="512M", append="ramslice=0", env={"RAMSLICE_BAD": "0"}, slow=True)
class BadValue(unittest.TestCase):
    def setUp(self):
        self.bad = os.environ["RAMSLICE_BAD"]
        self.assertIn(f"ramslice={self.bad}", dev.read("/proc/cmdline").split())

    def test_the_log_names_the_bad_value(self):
        names = {self.bad, str(parse_size(self.bad))}
        lines = [
            line for line in kernel_log() if "ramslice: " in line and "on the command line" in line
        ]
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(
            any(name and name in lines[0].replace('"', " ").split() for name in names), lines[0]
        )

    def test_the_default_is_used_and_works(self):
        self.assertEqual(dev.read(dev.SYSFS / "enabled"), "1")
        self.assertEqual(int(dev.read(dev.SYSFS / "slice_bytes")), DEFAULT_BYTES)
        with dev.Device() as device:
            self.assertEqual(device.info().slice_bytes, DEFAULT_BYTES)
            done = device.request("compact", max_slices=2)
            self.assertEqual((done.status, done.nr_done), (0, 2))
            self.assertEqual(device.request("online_all").nr_done, 2)
        dev.verify()


def parse_size(word):
    """The number that the kernel reads from the word, or an empty string."""
    digits = word.rstrip("KMGTPE")
    if not digits.isdigit() or len(word) - len(digits) > 1:
        return ""
    return int(digits) << 10 * ("KMGTPE".index(word[-1]) + 1 if digits != word else 0)
