# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel packages: their configuration, keys, versions and scripts, and the estimate of a build."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest

import kernel_deb
from ramlab import progress
from ramlab.kernel import build as lab
from ramlab.kernel.source import git

# --- the configuration ---

DEBIAN = """\
CONFIG_NUMA=y
CONFIG_KSM=y
CONFIG_EXT4_FS=m
CONFIG_CMDLINE="a"
# CONFIG_SLUB_TINY is not set
CONFIG_DEBUG_INFO=y
CONFIG_PAHOLE_VERSION=124
CONFIG_CC_VERSION_TEXT="12"
"""
ASKED = """\
# CONFIG_DEBUG_INFO is not set
CONFIG_RAMSLICE=y
"""
GOT = """\
CONFIG_NUMA=y
CONFIG_EXT4_FS=y
CONFIG_CMDLINE="b"
CONFIG_RAMSLICE=y
CONFIG_PAHOLE_VERSION=0
"""


def test_lost_options_are_named_unless_we_asked_for_it_or_they_describe_the_compiler():
    debian, asked, got = (lab.options(text) for text in (DEBIAN, ASKED, GOT))
    assert [line.strip() for line in kernel_deb.lost(lab, debian, asked, got)] == [
        "CONFIG_KSM: Debian has y, got n",
        "CONFIG_EXT4_FS: Debian has m, got y",
        'CONFIG_CMDLINE: Debian has "a", got "b"',
    ]
    assert lab.otherwise(asked, got) == []


# --- lists of modules, as lsmod prints them ---

HEAD = "Module                  Size  Used by\n"


def test_a_list_of_lsmod_is_accepted(tmp_path, capsys):
    (tmp_path / "modules").write_text(
        f"{HEAD}ext4 1036288 2\nvirtio_net             86016  0\nmbcache 16384 1 ext4\n"
        "raid6_pq 12 -2\n")
    kernel_deb.check_modules(tmp_path / "modules")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text, message", [
    ("", "names no module"),
    (HEAD, "names no module"),
    ("ext4 1 0\n", "line 1: 'ext4 1 0'"),
    (f"{HEAD}ext4 1 0\next4\n", "line 3: 'ext4'"),
    (f"{HEAD}ext4 1 0\n\n", "line 3: ''"),
    (f"{HEAD}ext4.ko 1 0\n", "line 2: 'ext4.ko 1 0'"),
], ids=["empty", "head-alone", "no-head", "no-numbers", "empty-line", "file-name"])
def test_another_list_is_refused_by_its_line(text, message, tmp_path, capsys):
    (tmp_path / "modules").write_text(text)
    with pytest.raises(SystemExit) as end:
        kernel_deb.check_modules(tmp_path / "modules")
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words, message", [
    (["lean", "--modules", "list"], "--modules"),
    (["debian", "--modules", "/nowhere/list"], "/nowhere/list"),
], ids=["lean", "no-file"])
def test_only_a_flavour_with_modules_takes_a_list(words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kernel-deb", *words])
    with pytest.raises(SystemExit) as end:
        kernel_deb.arguments()
    assert end.value.code == 2
    assert message in capsys.readouterr().err


# --- keys: refused before hours of compiling ---

@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder with two keys and their certificates."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("one", "two"):
        subprocess.run(["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes",
                        "-days", "2", "-subj", "/CN=a test/", "-keyout", folder / f"{name}.key",
                        "-out", folder / f"{name}.pem"], check=True, capture_output=True)
    return folder


@pytest.fixture
def sbsign(monkeypatch):
    """The programs that sign are installed."""
    monkeypatch.setattr(shutil, "which", lambda name: name)


def test_a_key_and_its_certificate_are_accepted(keys, sbsign):
    kernel_deb.check_key(keys / "one.key", keys / "one.pem")


@pytest.mark.parametrize("key, cert, message", [
    ("one.key", "two.pem", "different public keys"),
    ("no.key", "one.pem", "no.key is no private key"),
    ("one.pem", "one.pem", "one.pem is no private key"),
    ("one.key", "one.key", "is no certificate"),
])
def test_key_and_certificate_must_exist_and_belong_together(key, cert, message, keys, sbsign,
                                                            capsys):
    with pytest.raises(SystemExit) as end:
        kernel_deb.check_key(keys / key, keys / cert)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


# --- versions: a later change to the series, or a later source of Debian's, is an upgrade ---

class Checkout:
    """A Git repository in the place of ours."""

    def __init__(self, root):
        self.root = root

    def git(self, *words, date=0):
        git(self.root, *words, date=f"{date} +0000")

    def commit(self, name, date):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(f"{date}")
        self.git("add", ".")
        self.git("commit", "-q", "-m", name, date=date)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder in the place of ours, of which Git knows nothing so far."""
    monkeypatch.setattr(kernel_deb, "ROOT", tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return Checkout(tmp_path)


def test_each_version_is_above_the_one_before():
    first = 1700000000
    versions = [kernel_deb.package_version(debian, first + seconds) for debian, seconds in (
        ("6.12.117-1~deb12u1", 0), ("6.12.117-1~deb12u1", 1), ("6.12.117-1~deb12u1", 10**9),
        ("6.12.117-1~deb12u2", 0), ("6.12.117-1", 0), ("6.12.117-2", 0),
        ("6.12.118-1~deb12u1", 0), ("6.13.1-1", 0))]
    # Earlier packages had no date in their version.
    versions.insert(0, "6.12.117+1~deb12u1-1")
    for older, newer in zip(versions, versions[1:]):
        compared = subprocess.run(["dpkg", "--compare-versions", older, "lt", newer])
        assert compared.returncode == 0, f"{older} < {newer}"
    assert versions[1] == "6.12.117+1~deb12u1+rs20231114221320-1"


def test_the_date_is_that_of_the_last_commit_to_the_series(checkout):
    checkout.git("init", "-q")
    checkout.commit("kernel/patches/series", 1700000000)
    checkout.commit("docs/install.md", 1700000100)
    assert kernel_deb.changed_at() == 1700000000
    checkout.commit("packaging/kernel/lean.config", 1700000200)
    assert kernel_deb.changed_at() == 1700000200


def test_a_change_that_is_not_committed_is_dated_now(checkout):
    checkout.git("init", "-q")
    checkout.commit("kernel/patches/series", 1700000000)
    (checkout.root / "kernel/new.c").touch()
    assert kernel_deb.changed_at() == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize("known", [False, True], ids=["no-git", "no-commit"])
def test_without_git_the_user_must_set_the_date(known, checkout, monkeypatch, capsys):
    if known:
        checkout.git("init", "-q")
        checkout.commit("README.md", 1700000000)
    with pytest.raises(SystemExit) as end:
        kernel_deb.changed_at()
    assert end.value.code
    assert "set SOURCE_DATE_EPOCH" in capsys.readouterr().err
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000300")
    assert kernel_deb.changed_at() == 1700000300


def test_a_date_that_is_no_number_is_refused(checkout, monkeypatch, capsys):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(SystemExit) as end:
        kernel_deb.changed_at()
    assert end.value.code
    assert "'yesterday'" in capsys.readouterr().err


# --- repacking: what becomes of a package that the kernel's own packaging made ---

IMAGE = "linux-image-6.12.0-ramslice"
HEADERS = "linux-headers-6.12.0-ramslice"


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def repacked(folder, name, extra=""):
    """The control file and the scripts of such a package, after repack()."""
    tree = folder / "made"
    (tree / "usr/src/scripts").mkdir(parents=True)
    shutil.copy("/bin/true", tree / "usr/src/scripts/objtool")
    for script in ("preinst", "postinst", "prerm") if name == IMAGE else ():
        executable(tree / "DEBIAN" / script,
                   f'\nset -e\n\necho "{script} $1" >>{folder}/called\nexit 0\n')
    (tree / "DEBIAN").mkdir(exist_ok=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: amd64\n{extra}"
        "Maintainer: Tester <tester@ramslice.example>\nDescription: a test\n")
    package = folder / f"{name}_1_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package],
                   check=True, stdout=subprocess.DEVNULL)
    # The second time changes nothing: signing and repacking may come in any order.
    for _ in range(2):
        kernel_deb.repack(package)
    control = folder / "control"
    subprocess.run(["dpkg-deb", "-e", package, control], check=True)
    fields = (line.split(": ", 1) for line in (control / "control").read_text().splitlines())
    return dict(fields), control


def dpkg_calls(folder, calls, failing=""):
    """What an image's scripts call, and how they end, when dpkg calls them; one tool may fail."""
    _, scripts = repacked(folder, IMAGE)
    tools, log = folder / "tools", folder / "called"
    for name in ("ramslice-trial-boot", "linux-check-removal"):
        executable(tools / name, f'echo "{name} $*" >>{log}\n[ {name} != \'{failing}\' ]\n')
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    ended = [subprocess.run([scripts / script, *words], env=env, text=True, capture_output=True)
             for script, *words in calls]
    return log.read_text().splitlines(), ended


def test_an_image_depends_on_what_debians_does_and_on_the_guard_of_the_default(tmp_path):
    control, scripts = repacked(tmp_path, IMAGE)
    assert control["Depends"] == (
        "kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool")
    assert control["Pre-Depends"] == "ramslice (>= 0.1.0)"
    assert control["Breaks"] == f"{HEADERS} (<< 1)"
    assert os.access(scripts / "preinst", os.X_OK)


def test_an_image_is_no_longer_confirmed_before_it_is_replaced(tmp_path):
    calls, _ = dpkg_calls(tmp_path, [("preinst", "install"), ("preinst", "upgrade", "1")])
    assert calls == ["preinst install", "ramslice-trial-boot replaced 6.12.0-ramslice",
                     "preinst upgrade"]


def test_an_image_that_stays_confirmed_is_not_replaced(tmp_path):
    calls, ended = dpkg_calls(tmp_path, [("preinst", "upgrade", "1")],
                              failing="ramslice-trial-boot")
    assert (len(calls), ended[0].returncode) == (1, 1)


def test_the_installation_warns_of_an_unguarded_default(tmp_path):
    calls, ended = dpkg_calls(tmp_path, [("postinst", "configure"), ("postinst", "abort-remove")],
                              failing="ramslice-trial-boot")
    assert calls == ["postinst configure", "ramslice-trial-boot status", "postinst abort-remove"]
    assert [each.returncode for each in ended] == [0, 0]
    assert f"{IMAGE}: this kernel may boot although it is untried" in ended[0].stderr


def test_hooks_that_undo_an_image_run_on_removal_and_not_on_an_upgrade(tmp_path):
    calls, _ = dpkg_calls(tmp_path, [("prerm", "upgrade"), ("prerm", "remove"),
                                     ("prerm", "deconfigure")])
    assert calls == ["linux-check-removal 6.12.0-ramslice", "prerm remove"]


def test_the_running_kernel_stays_if_its_removal_is_declined(tmp_path):
    calls, ended = dpkg_calls(tmp_path, [("prerm", "remove")], failing="linux-check-removal")
    assert (len(calls), ended[0].returncode) == (1, 1)


def test_a_dependency_that_is_there_stays(tmp_path):
    control, _ = repacked(tmp_path, IMAGE, "Depends: other\n")
    assert control["Depends"] == (
        "other, kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool")


def test_headers_depend_on_the_libraries_of_their_programs_and_on_the_image(tmp_path):
    control, scripts = repacked(tmp_path, HEADERS)
    assert "libc6" in control["Depends"]
    assert control["Breaks"] == f"{IMAGE} (<< 1)"
    assert os.access(scripts / "postinst", os.X_OK)


@pytest.fixture
def headers_postinst(tmp_path):
    """The headers' script as text; it takes its hooks from a folder of the test."""
    _, scripts = repacked(tmp_path, HEADERS)
    (tmp_path / "hooks").mkdir()
    script = (scripts / "postinst").read_text()
    return script.replace("/etc/kernel/header_postinst.d", str(tmp_path / "hooks"))


def test_headers_call_dkms_for_their_release_when_they_are_configured(headers_postinst, tmp_path):
    executable(tmp_path / "hooks/dkms", f'echo "$1" >>{tmp_path}/called\n')
    for action in ("abort-upgrade", "configure"):
        subprocess.run(["sh", "-c", headers_postinst, "postinst", action], check=True)
    assert (tmp_path / "called").read_text() == "6.12.0-ramslice\n"


def test_headers_of_another_build_replace_dkms_modules(headers_postinst, tmp_path):
    executable(tmp_path / "bin/dkms", f"""\
if [ "$1" = status ]; then
	echo "one/1.2, 6.12.0-ramslice, x86_64: installed"
	echo "two/3, 6.12.0-ramslice, x86_64: added"
	echo "three/4, 6.12.0-ramslice, x86_64: installed" \\
		"(WARNING! Diff between built and installed module!)"
	exit
fi
echo "$@" >>{tmp_path}/asked
[ "$1 $3" != "build one" ]
""")
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", headers_postinst, "postinst", "configure", "1"],
                   check=True, env=env)
    # A module that cannot be built is removed, and delays no other.
    calls = (tmp_path / "asked").read_text().replace("--force ", "").splitlines()
    assert [call.split()[:5] for call in calls] == [
        ["unbuild", "-m", "one", "-v", "1.2"],
        ["build", "-m", "one", "-v", "1.2"],
        ["unbuild", "-m", "three", "-v", "4"],
        ["build", "-m", "three", "-v", "4"],
        ["install", "-m", "three", "-v", "4"],
    ]


# --- delivering: new packages take the place of old ones ---

def test_older_packages_of_the_flavour_go_and_those_of_others_stay(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    others = {f"linux-image-6.12.1-ramslice{flavour}_1_amd64.deb"
              for flavour in ("-lean", "-local")}
    old = {f"linux-{kind}-6.12.1-ramslice_1_amd64.deb" for kind in ("headers", "image")}
    for name in old | others:
        (out / name).touch()
    new = {f"linux-{kind}-6.12.1-ramslice_2_amd64.deb" for kind in ("headers", "image")}
    for name in new:
        (tmp_path / name).touch()
    kernel_deb.deliver([tmp_path / name for name in sorted(new)], out,
                       kernel_deb.SUFFIXES["debian"])
    assert {path.name for path in out.iterdir()} == new | others


def test_without_room_for_the_new_packages_the_old_ones_stay(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "linux-image-6.12.1-ramslice_1_amd64.deb").touch()
    full = mock.Mock(side_effect=OSError("no space left on device"))
    monkeypatch.setattr(shutil, "move", full)
    with pytest.raises(OSError):
        kernel_deb.deliver([tmp_path / "linux-image-6.12.1-ramslice_2_amd64.deb"], out,
                           kernel_deb.SUFFIXES["debian"])
    assert [path.name for path in out.iterdir()] == ["linux-image-6.12.1-ramslice_1_amd64.deb"]


# --- the estimate of a build ---

@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_deb, "CACHE", tmp_path)
    return tmp_path


@pytest.fixture
def objects(cache):
    """The folder of compiled files of the flavour debian."""
    folder = cache / "kernel-deb/debian/objects"
    (folder / "mm").mkdir(parents=True)
    return folder


@pytest.fixture
def free_gib(monkeypatch):
    """Sets how much of the disk is free."""
    def set_free(gib):
        monkeypatch.setattr(shutil, "disk_usage", lambda _: mock.Mock(free=gib * 2**30))
    set_free(100)
    return set_free


def test_without_the_disk_for_it_no_build_begins(objects, free_gib, capsys):
    free_gib(kernel_deb.GIB["debian"] - 1)
    with pytest.raises(SystemExit) as end:
        kernel_deb.estimate("debian", objects, {})
    assert end.value.code == 1
    assert f"{kernel_deb.GIB['debian']} GiB are needed" in capsys.readouterr().err


def test_files_that_exist_are_not_counted_again(objects, free_gib, capsys):
    for name in (".a.o.cmd", "mm/.b.o.cmd", "mm/.built-in.a.cmd", "mm/b.o"):
        (objects / name).touch()
    assert kernel_deb.estimate("debian", objects, {"deb-debian": 10}) == 7
    printed = capsys.readouterr().out
    assert "3 of about 10 files" in printed
    assert "hours" not in printed


def test_the_disk_that_compiled_files_take_is_counted(objects):
    (objects / "vmlinux.o").write_bytes(b"x" * 2**20)
    assert kernel_deb.made(objects)[1] == pytest.approx(1 / 1024, abs=5e-5)


def test_the_time_is_estimated_by_the_largest_kernel_built_here(cache, objects, free_gib, capsys):
    for name, flavour, steps, seconds in (("a", "debug", 3000, 9999), ("b", "stock", 2000, 1440),
                                          ("c", "plain", 64, 64)):
        folder = cache / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "info.json").write_text(json.dumps(
            {"flavour": flavour, "steps": steps, "build_seconds": seconds}))
    kernel_deb.estimate("debian", objects, {"deb-debian": 10000})
    assert "about 2.0 hours" in capsys.readouterr().out


# --- interrupting it ---

def test_an_interrupted_lab_ends_the_build(tmp_path, monkeypatch):
    builds = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **named):
            super().__init__(*args, **named)
            builds.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(progress, "STEP", mock.Mock(**{"match.side_effect": KeyboardInterrupt}))
    line = "import signal; print('  CC      a.o', flush=True); signal.pause()"
    with pytest.raises(KeyboardInterrupt):
        progress.build([sys.executable, "-c", line], "a build", tmp_path / "log", 1, {})
    assert builds[0].returncode == -signal.SIGTERM
