# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel packages: what is lost of Debian's configuration is named, and what a build takes is told before it begins."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import progress

PROGRAM = str(Path(__file__).with_name("kernel-deb"))
kernel_deb = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("kernel_deb", importlib.machinery.SourceFileLoader("kernel_deb", PROGRAM)))
kernel_deb.__loader__.exec_module(kernel_deb)
lab = kernel_deb.lab_kernel()


class Configuration(unittest.TestCase):
    def test_what_is_lost_is_named_unless_it_was_asked_for_or_is_of_the_compiler(self):
        debian = lab.options('CONFIG_NUMA=y\nCONFIG_KSM=y\nCONFIG_EXT4_FS=m\nCONFIG_CMDLINE="a"\n# CONFIG_SLUB_TINY is not set\n'
                             'CONFIG_DEBUG_INFO=y\nCONFIG_PAHOLE_VERSION=124\nCONFIG_CC_VERSION_TEXT="12"\n')
        asked = lab.options("# CONFIG_DEBUG_INFO is not set\nCONFIG_RAMSLICE=y\n")
        got = lab.options('CONFIG_NUMA=y\nCONFIG_EXT4_FS=y\nCONFIG_CMDLINE="b"\nCONFIG_RAMSLICE=y\nCONFIG_PAHOLE_VERSION=0\n')
        told = [line.strip() for line in kernel_deb.lost(lab, debian, asked, got)]
        self.assertEqual(told, ["CONFIG_KSM: Debian has y, got n", "CONFIG_EXT4_FS: Debian has m, got y",
                                'CONFIG_CMDLINE: Debian has "a", got "b"'])
        self.assertEqual(lab.otherwise(asked, got), [])


class Modules(unittest.TestCase):
    """Lists of modules, as lsmod prints them; anything else is refused by its place."""

    def check(self, text):
        with tempfile.NamedTemporaryFile("w") as file, contextlib.redirect_stderr(io.StringIO()) as said:
            file.write(text)
            file.flush()
            try:
                kernel_deb.check_modules(Path(file.name))
            except SystemExit as end:
                return end.code, said.getvalue()
        return 0, said.getvalue()

    def test_what_lsmod_prints_is_taken(self):
        head = "Module                  Size  Used by\n"
        self.assertEqual(self.check(f"{head}ext4 1036288 2\nvirtio_net             86016  0\nmbcache 16384 1 ext4\nraid6_pq 12 -2\n"), (0, ""))

    def test_anything_else_is_refused_by_its_line(self):
        head = "Module                  Size  Used by\n"
        for text, told in (("", "names no module"), (head, "names no module"), ("ext4 1 0\n", "line 1: 'ext4 1 0'"),
                           (f"{head}ext4 1 0\next4\n", "line 3: 'ext4'"), (f"{head}ext4 1 0\n\n", "line 3: ''"),
                           (f"{head}ext4.ko 1 0\n", "line 2: 'ext4.ko 1 0'")):
            with self.subTest(text):
                status, said = self.check(text)
                self.assertEqual(status, 2)
                self.assertIn(told, said)

    def test_only_a_flavour_with_modules_takes_a_list(self):
        for words in (["lean", "--modules", "list"], ["debian", "--modules", "/nowhere/list"]):
            with mock.patch.object(sys, "argv", ["kernel-deb", *words]), contextlib.redirect_stderr(io.StringIO()) as said, \
                    self.assertRaises(SystemExit) as end:
                kernel_deb.arguments()
            self.assertEqual(end.exception.code, 2)
            self.assertIn("--modules" if words[0] == "lean" else "/nowhere/list", said.getvalue())


class Foretold(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = Path(folder.name)
        self.objects = self.cache / "kernel-deb/debian/objects"
        (self.objects / "mm").mkdir(parents=True)
        self.enterContext(mock.patch.object(kernel_deb, "CACHE", self.cache))

    def foretell(self, free_gib, counts):
        disk = mock.patch.object(shutil, "disk_usage", lambda _: mock.Mock(free=free_gib * 2**30))
        with disk, contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            try:
                return kernel_deb.foretell("debian", self.objects, counts), out.getvalue()
            except SystemExit as end:
                return end.code, out.getvalue()

    def test_without_the_disk_for_it_nothing_is_begun(self):
        status, said = self.foretell(kernel_deb.GIB["debian"] - 1, {})
        self.assertEqual(status, 1)
        self.assertIn(f"{kernel_deb.GIB['debian']} GiB are needed", said)

    def test_what_was_made_before_counts(self):
        for name in (".a.o.cmd", "mm/.b.o.cmd", "mm/.built-in.a.cmd", "mm/b.o"):
            (self.objects / name).touch()
        left, said = self.foretell(100, {"deb-debian": 10})
        self.assertEqual(left, 7)
        self.assertIn("3 of about 10 files", said)
        self.assertNotIn("hours", said)
        with open(self.objects / "vmlinux.o", "wb") as file:
            file.write(b"x" * 2**20)
        self.assertAlmostEqual(kernel_deb.made(self.objects)[1], 1 / 1024, places=4)

    def test_the_time_is_told_by_kernels_that_were_built_here(self):
        for name, flavour, steps, seconds in (("a", "debug", 3000, 9999), ("b", "stock", 2000, 1440), ("c", "plain", 64, 64)):
            info = self.cache / "kernels" / name / "info.json"
            info.parent.mkdir(parents=True)
            info.write_text(json.dumps({"flavour": flavour, "steps": steps, "build_seconds": seconds}))
        self.assertIn("about 2.0 hours", self.foretell(100, {"deb-debian": 10000})[1])


class Interrupted(unittest.TestCase):
    def test_whoever_ends_the_lab_ends_the_build(self):
        begun = []
        started = mock.patch.object(subprocess, "Popen", lambda *args, **named: begun.append(popen(*args, **named)) or begun[-1])
        popen = subprocess.Popen
        line = "import signal; print('  CC      a.o', flush=True); signal.pause()"
        with tempfile.TemporaryDirectory() as folder, started, mock.patch.object(progress, "STEP") as step:
            step.match.side_effect = KeyboardInterrupt
            with self.assertRaises(KeyboardInterrupt):
                progress.build([sys.executable, "-c", line], "a build", Path(folder) / "log", 1, {})
        self.assertEqual(begun[0].returncode, -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
