# SPDX-License-Identifier: GPL-2.0-or-later
"""Moving the series: the source is what apt has; a new series is written whole or not at all."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest

import rebase
from ramlab.kernel import bases

LOCK = "# why\npackage = linux-source-6.12\nversion = 6.12.1-1\nlinux = 6.12.1\nsha256 = aa\n"
SERIES = {
    "core/0001-one.patch": "one",
    "core/0002-two.patch": "two",
    "core/messages/10.txt": "a message",
    "research/0003-three.patch": "three",
    "series": "# in order\ncore/0001-one.patch\ncore/0002-two.patch\nresearch/0003-three.patch\n",
}


# --- writing the new series ---

class Kernel:
    """A folder kernel/ with a series and its lock, and new patches that are to replace them."""

    def __init__(self, folder):
        self.folder, self.fresh = folder / "kernel", folder / "fresh"
        self.patches, self.lock = self.folder / "patches", self.folder / "base.lock"
        for name, text in SERIES.items():
            (self.patches / name).parent.mkdir(parents=True, exist_ok=True)
            (self.patches / name).write_text(text)
        self.lock.write_text(LOCK)
        self.fresh.mkdir()
        for name in ("0001-one.patch", "0002-another.patch", "0003-three.patch"):
            (self.fresh / name).write_text(f"new {name}")

    def files(self):
        return {str(path.relative_to(self.folder)): path.read_text()
                for path in self.folder.rglob("*") if path.is_file()}

    def write(self):
        rebase.write({"package": "linux-source-6.12"}, "6.12.2-1", "6.12.2", "bb", self.fresh)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    kernel = Kernel(tmp_path)
    for module in (rebase, bases):
        monkeypatch.setattr(module, "PATCHES", kernel.patches)
    monkeypatch.setattr(rebase, "LOCK", kernel.lock)
    return kernel


def test_the_new_series_takes_the_place_of_the_old(kernel):
    kernel.write()
    names = ["core/0001-one.patch", "core/0002-another.patch", "research/0003-three.patch"]
    assert kernel.files() == {f"patches/{name}": f"new {Path(name).name}" for name in names} | {
        "patches/core/messages/10.txt": "a message",
        "patches/series": "".join(f"{name}\n" for name in names),
        "base.lock": LOCK.replace("6.12.1", "6.12.2").replace("aa", "bb"),
    }


def test_a_full_disk_leaves_all_as_it_was(kernel, monkeypatch):
    before, copy = kernel.files(), shutil.copy2

    def full(source, target, **named):
        if Path(source).name == "0002-another.patch":
            raise OSError("no space left on device")
        return copy(source, target, **named)

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(OSError):
        kernel.write()
    assert kernel.files() == before
    assert sorted(path.name for path in kernel.folder.iterdir()) == ["base.lock", "patches"]


def test_an_interruption_leaves_all_as_it_was(kernel, monkeypatch):
    before = kernel.files()
    monkeypatch.setattr(Path, "replace", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        kernel.write()
    assert kernel.files() == before
    assert sorted(path.name for path in kernel.folder.iterdir()) == ["base.lock", "patches"]


# --- finding the sources ---

@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(rebase, "CACHE", tmp_path)
    return tmp_path


def test_tree_and_hash_are_those_of_the_package(cache, monkeypatch):
    """An apt-get of the test hands out a package."""
    for path in ("linux-6.12.2", "made/DEBIAN", "made/usr/src", "bin", "scratch"):
        (cache / path).mkdir(parents=True)
    (cache / "linux-6.12.2/Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 2\n")
    tarball = cache / "made/usr/src/linux-source-6.12.tar.xz"
    subprocess.run(["tar", "-cJf", tarball, "-C", cache, "linux-6.12.2"], check=True)
    (cache / "made/DEBIAN/control").write_text(
        "Package: linux-source-6.12\nVersion: 6.12.2-1\nArchitecture: all\n"
        "Maintainer: Tester <tester@ramslice.example>\nDescription: a test\n")
    subprocess.run(["dpkg-deb", "-b", cache / "made", cache / "package.deb"],
                   check=True, stdout=subprocess.DEVNULL)
    (cache / "bin/apt-get").write_text(
        f'#!/bin/sh\necho "$@" >{cache}/asked\ncp {cache}/package.deb .\n')
    (cache / "bin/apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{cache}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(rebase, "need_space", lambda *_: None)
    tree, sha256 = rebase.fetch("linux-source-6.12", "6.12.2-1", cache / "scratch")
    assert "linux-source-6.12=6.12.2-1" in (cache / "asked").read_text()
    assert rebase.linux_version(tree) == "6.12.2"
    assert sha256 == hashlib.sha256(tarball.read_bytes()).hexdigest()


def test_the_old_tree_is_found_though_the_installed_source_is_newer(cache, monkeypatch, capsys):
    lock = {"package": "linux-source-6.12", "version": "6.12.1-1", "sha256": "abcdef0123456789"}
    newer = mock.Mock(recorded=False, package="6.12.2-1", tarball="linux-source-6.12.tar.xz")
    monkeypatch.setattr(rebase, "Source", lambda: newer)
    monkeypatch.setattr(rebase, "fetch", lambda _, version, into: (into / version, "its hash"))
    assert rebase.made_for(lock, cache) == cache / "old/6.12.1-1"
    assert "of 6.12.2-1 now, the series was made for 6.12.1-1" in capsys.readouterr().out
    kept = cache / "trees/abcdef012345/pristine"
    kept.mkdir(parents=True)
    assert rebase.made_for(lock, cache) == kept
    newer.extract.assert_not_called()
