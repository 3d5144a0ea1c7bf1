# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages of a release are those of a commit, and the same in two builds; what differs is named.

The commit's own build script makes small packages here, in place of Cargo and debhelper.
"""

import hashlib
import subprocess

import pytest

from ramlab import release_packages
from ramlab.common import run

BUILD = """#!/bin/sh
# [--arch ARCH] --release DIR
cd "$(dirname "$0")/../.."
arch=amd64
if [ "$1" = --arch ]; then
	arch=$2
	shift 2
fi
mkdir -p "$2" scratch/DEBIAN scratch/usr/share/x
printf '%s\\n' 'Package: x' 'Version: 1.2.3' "Architecture: $arch" 'Maintainer: x <x@example>' \
	'Description: x' >scratch/DEBIAN/control
cp text scratch/usr/share/x
{extra}
SOURCE_DATE_EPOCH=1 dpkg-deb --root-owner-group -b scratch "$2/x_1.2.3_$arch.deb" >/dev/null
"""


def git(tree, *words):
    return run(["git", "-c", "user.name=x", "-c", "user.email=x@example", *words], cwd=tree)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Builds the packages of a repository whose build script does something more."""
    tree, out = tmp_path / "tree", tmp_path / "out"
    monkeypatch.setattr(release_packages, "GIB", 0)
    real = release_packages.check_out
    monkeypatch.setattr(release_packages, "check_out",
                        lambda commit, to: real(commit, to, root=tree))

    def make(extra="", architectures=("amd64", "arm64")):
        script = tree / "packaging/deb/build"
        script.parent.mkdir(parents=True)
        script.write_text(BUILD.format(extra=extra))
        script.chmod(0o755)
        (tree / "text").write_text("as it was committed\n")
        git(tree, "init", "-q")
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", "x")
        (tree / "text").write_text("as it is meanwhile\n")
        release_packages.write_packages("HEAD", out, architectures, work=tmp_path / "work")
        return out
    return make


def test_both_architectures_are_there_with_their_digests_and_nothing_of_the_work(made, tmp_path):
    out = made()
    names = ["x_1.2.3_amd64.deb", "x_1.2.3_arm64.deb"]
    assert sorted(path.name for path in out.iterdir()) == [release_packages.SUMS, *names]
    digests = [hashlib.sha256((out / name).read_bytes()).hexdigest() for name in names]
    assert (out / release_packages.SUMS).read_text() == "".join(
        f"{digest}  {name}\n" for digest, name in zip(digests, names, strict=True))
    assert not (tmp_path / "work").exists()


def test_packages_are_those_of_the_commit_and_not_of_the_checkout(made):
    package = made() / "x_1.2.3_arm64.deb"
    text = subprocess.run(["sh", "-c", f"dpkg-deb --fsys-tarfile {package} | tar -xO "
                           "./usr/share/x/text"], text=True, stdout=subprocess.PIPE, check=True)
    assert text.stdout == "as it was committed\n"


def test_one_architecture_can_be_built_alone(made):
    assert [path.name for path in made(architectures=["arm64"]).glob("*.deb")] == [
        "x_1.2.3_arm64.deb"]


@pytest.mark.parametrize(("extra", "named"), [
    ("pwd >scratch/usr/share/x/place", "x_1.2.3_amd64.deb: usr/share/x/place"),
    ("date +%N >scratch/usr/share/x/time", "x_1.2.3_amd64.deb: usr/share/x/time"),
    ("ln -sf $PWD scratch/usr/share/x/link", "x_1.2.3_amd64.deb: usr/share/x/link"),
    ("case $PWD in */first/*) touch scratch/only ;; esac", "x_1.2.3_amd64.deb: only"),
    ("case $PWD in */first/*) chmod 600 scratch/usr/share/x/text ;; esac",
     "x_1.2.3_amd64.deb: times, owners, modes or order alone"),
    ("case $PWD in */first/*) exit 0 ;; esac", "x_1.2.3_amd64.deb: only one of the two builds"),
])
def test_builds_that_differ_fail_and_what_differs_is_named(made, tmp_path, capsys, extra, named):
    with pytest.raises(SystemExit):
        made(extra)
    said = capsys.readouterr().err
    assert "the two builds differ" in said
    assert named in said
    assert not (tmp_path / "out").exists()


def test_a_build_that_fails_makes_no_release(made, tmp_path):
    with pytest.raises(SystemExit):
        made("exit 1")
    assert not (tmp_path / "out").exists()


def test_a_build_that_makes_nothing_makes_no_release(made, tmp_path, capsys):
    with pytest.raises(SystemExit):
        made("exit 0")
    assert "made no packages" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_path_of_the_build_or_of_this_machine_is_left_to_rustc(tmp_path, monkeypatch):
    monkeypatch.setenv("CARGO_HOME", "/somewhere/cargo")
    flags = release_packages.environment(tmp_path)["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
    assert flags == ["--remap-path-prefix=/somewhere/cargo=/cargo",
                     f"--remap-path-prefix={tmp_path}/tree=/ramslice",
                     f"--remap-path-prefix={tmp_path}/target=/target"]


def test_a_version_is_its_tag_or_the_commit_that_added_its_states(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "packaging/deb/upgrades/1.0.0").mkdir(parents=True)
    (tmp_path / "packaging/deb/upgrades/1.0.0/a.json").write_text("1")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "states")
    states = git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "later").write_text("")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "later")
    assert release_packages.commit_of("1.0.0", tmp_path) == states
    assert release_packages.commit_of("1.0.1", tmp_path) == ""
    git(tmp_path, "tag", "v1.0.0")
    assert release_packages.commit_of("1.0.0", tmp_path) != states
