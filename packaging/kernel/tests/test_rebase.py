# SPDX-License-Identifier: GPL-2.0-or-later
"""Moving the series: what is fetched is what apt has, and the new series and its lock are written as a whole or not at all."""

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ramlab.kernel import source as kernel_source

import rebase

LOCK = "# why\npackage = linux-source-6.12\nversion = 6.12.1-1\nlinux = 6.12.1\nsha256 = aa\n"


class Written(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.kernel, self.fresh = Path(folder.name) / "kernel", Path(folder.name) / "fresh"
        patches = self.kernel / "patches"
        (patches / "core/messages").mkdir(parents=True)
        (patches / "research").mkdir()
        self.fresh.mkdir()
        for name, text in (("core/0001-one.patch", "one"), ("core/0002-two.patch", "two"),
                           ("core/messages/10.txt", "a message"), ("research/0003-three.patch", "three"),
                           ("series", "# in order\ncore/0001-one.patch\ncore/0002-two.patch\nresearch/0003-three.patch\n"),
                           ("../base.lock", LOCK)):
            (patches / name).write_text(text)
        for name in ("0001-one.patch", "0002-another.patch", "0003-three.patch"):
            (self.fresh / name).write_text(f"new {name}")
        for module in (rebase, kernel_source):
            self.enterContext(mock.patch.object(module, "PATCHES", patches))
        self.enterContext(mock.patch.object(rebase, "LOCK", self.kernel / "base.lock"))

    def files(self):
        return {str(path.relative_to(self.kernel)): path.read_text() for path in self.kernel.rglob("*") if path.is_file()}

    def write(self):
        with contextlib.redirect_stdout(io.StringIO()):
            rebase.write({"package": "linux-source-6.12"}, "6.12.2-1", "6.12.2", "bb", self.fresh)

    def test_the_new_series_takes_the_place_of_the_old(self):
        self.write()
        names = ["core/0001-one.patch", "core/0002-another.patch", "research/0003-three.patch"]
        self.assertEqual(self.files(), {f"patches/{name}": f"new {Path(name).name}" for name in names} | {
            "patches/core/messages/10.txt": "a message", "patches/series": "".join(f"{name}\n" for name in names),
            "base.lock": LOCK.replace("6.12.1", "6.12.2").replace("aa", "bb")})

    def test_after_a_failure_all_is_as_it_was(self):
        before, copy = self.files(), shutil.copy2

        def full(source, target, **named):
            if Path(source).name == "0002-another.patch":
                raise OSError("no space left on device")
            return copy(source, target, **named)

        def refused(*_):
            raise KeyboardInterrupt

        for what in (mock.patch.object(shutil, "copy2", full), mock.patch.object(Path, "replace", refused)):
            with self.subTest(what.attribute), what, self.assertRaises((OSError, KeyboardInterrupt)):
                self.write()
            self.assertEqual(self.files(), before)
            self.assertEqual(sorted(path.name for path in self.kernel.iterdir()), ["base.lock", "patches"])


class Fetched(unittest.TestCase):
    """By an apt-get that hands out a package of ours."""

    def test_tree_and_hash_are_those_of_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            for path in ("linux-6.12.2", "made/DEBIAN", "made/usr/src", "bin", "scratch"):
                (folder / path).mkdir(parents=True)
            (folder / "linux-6.12.2/Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 2\n")
            tarball = folder / "made/usr/src/linux-source-6.12.tar.xz"
            subprocess.run(["tar", "-cJf", tarball, "-C", folder, "linux-6.12.2"], check=True)
            (folder / "made/DEBIAN/control").write_text("Package: linux-source-6.12\nVersion: 6.12.2-1\nArchitecture: all\n"
                                                        "Maintainer: Tester <tester@ramslice.example>\nDescription: a test\n")
            subprocess.run(["dpkg-deb", "-b", folder / "made", folder / "package.deb"], check=True, stdout=subprocess.DEVNULL)
            (folder / "bin/apt-get").write_text(f'#!/bin/sh\necho "$@" >{folder}/asked\ncp {folder}/package.deb .\n')
            (folder / "bin/apt-get").chmod(0o755)
            path = mock.patch.dict(os.environ, {"PATH": f"{folder}/bin:{os.environ['PATH']}"})
            with path, mock.patch.object(rebase, "CACHE", folder), mock.patch.object(rebase, "need_space", lambda *_: None), \
                    contextlib.redirect_stdout(io.StringIO()):
                tree, sha256 = rebase.fetch("linux-source-6.12", "6.12.2-1", folder / "scratch")
            self.assertIn("linux-source-6.12=6.12.2-1", (folder / "asked").read_text())
            self.assertEqual(rebase.linux_version(tree), "6.12.2")
            self.assertEqual(sha256, hashlib.sha256(tarball.read_bytes()).hexdigest())

    def test_the_old_tree_is_found_though_the_installed_source_is_newer(self):
        lock = {"package": "linux-source-6.12", "version": "6.12.1-1", "sha256": "abcdef0123456789"}
        newer = mock.Mock(recorded=False, package="6.12.2-1", tarball="linux-source-6.12.tar.xz")
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(rebase, "Source", lambda: newer), \
                mock.patch.object(rebase, "CACHE", Path(folder)), contextlib.redirect_stdout(io.StringIO()) as told, \
                mock.patch.object(rebase, "fetch", lambda _, version, into: (into / version, "its hash")):
            kept = Path(folder, "trees/abcdef012345/pristine")
            self.assertEqual(rebase.made_for(lock, Path(folder)), Path(folder, "old/6.12.1-1"))
            self.assertIn("of 6.12.2-1 now, the series was made for 6.12.1-1", told.getvalue())
            kept.mkdir(parents=True)
            self.assertEqual(rebase.made_for(lock, Path(folder)), kept)
        newer.extract.assert_not_called()


if __name__ == "__main__":
    unittest.main()
