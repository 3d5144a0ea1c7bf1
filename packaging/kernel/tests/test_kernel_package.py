# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's Debian packages in a clean Debian with a DKMS module.

They are built, signed, installed, upgraded, booted from a disk under each lockdown, and purged. The
fixtures do this in order and keep what they saw; each test is about one thing that they saw.
RAMSLICE_PACKAGES names what is built: lean (the default); local, Debian's configuration with the
modules that the guest has; or debian, all of it, which takes hours.
"""

import hashlib
import os
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from ramlab.checks.debian_root import (
    boot_debian,
    need_root,
    passed,
    run_at_boot,
    sentences,
    unpack_debian,
    why_failed,
)
from ramlab.common import RAMLAB, ROOT, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(36000),
              pytest.mark.xdist_group("kernel-package")]

FLAVOUR = os.environ.get("RAMSLICE_PACKAGES", "lean")
SUFFIXES = {"lean": "-ramslice-lean", "local": "-ramslice-local", "debian": "-ramslice"}
# Of a disk and the file system on it; the guest has everything else built in.
MODULES = """Module                  Size  Used by
virtio_blk 28672 1
ext4 1036288 1
virtio_rng 12288 0
"""
# acpi-call-dkms is a module of Debian's that DKMS builds for each kernel.
SYSTEM = ("systemd-sysv", "dbus", "udev", "kmod", "linux-base", "initramfs-tools", "zstd",
          "acpi-call-dkms", "libelf1", "libssl3")
LATER = "99991231235959"
# Debian's kernel is an empty file: nothing boots it.
DEBIAN = "6.1.0-1-amd64"
CONFIRMED = "var/lib/ramslice/kernel-confirmed"
SCRIPT = "kernel_package.sh"
LOCKDOWNS = ("none", "integrity", "confidentiality")
UNLOCKED_ONLY = ("the module that DKMS built works", "debugfs can be written")
LOCKED_ONLY = ("a module whose key is not enrolled is refused", "debugfs cannot be written")
# DKMS needs /proc and a few devices; they go with the name space, so that the root fits a disk.
INSIDE = """cd "$0" && mount -t proc proc proc && mount -t tmpfs tmpfs dev &&
ln -s /proc/self/fd dev/fd && mknod -m 666 dev/null c 1 3 && mknod -m 666 dev/zero c 1 5 &&
mknod -m 666 dev/urandom c 1 9 && exec chroot . "$@"
"""


class DebianTree:
    """A Debian in a folder, in which commands run without a machine."""

    def __init__(self, path):
        self.path = path
        self.release = None

    def run(self, text):
        """Runs shell text inside; output and errors are one text."""
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", INSIDE, self.path, "env",
             "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "sh", "-c", text],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def dkms(self):
        """The state of Debian's module for our kernel."""
        return self.run(f"dkms status -k {self.release}").stdout

    def default(self):
        """The kernel that stays GRUB's default."""
        return self.run("ramslice-trial-boot guard").stdout.split()

    def initrd_bytes(self):
        path = self.path / f"boot/initrd.img-{self.release}"
        return path.stat().st_size if path.exists() else 0

    def kernels(self):
        return sorted(path.name for path in self.path.glob("boot/vmlinuz-*"))


def works(done):
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """A key and certificate, as operators make them."""
    need_root()
    folder = tmp_path_factory.mktemp("key")
    run(["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=ramslice test/", "-keyout", folder / "key", "-out", folder / "cert"])
    return folder


@pytest.fixture(scope="module")
def packages(key):
    """The packages of the tools and of the signed kernel."""
    assert FLAVOUR in SUFFIXES, f"RAMSLICE_PACKAGES is {FLAVOUR}: must be lean, local or debian"
    subprocess.run([ROOT / "packaging/deb/build", "--no-lintian"], check=True)
    words = ["lean"] if FLAVOUR == "lean" else ["debian"]
    if FLAVOUR == "local":
        (key / "modules").write_text(MODULES)
        words += ["--modules", key / "modules"]
    subprocess.run([RAMLAB, "kernel-deb", "--key", key / "key", "--cert", key / "cert", *words],
                   check=True)
    kernel = f"-*{SUFFIXES[FLAVOUR]}_*.deb"
    return [*(ROOT / "out/deb").glob("ramslice_*_amd64.deb"),
            *(ROOT / "out/kernel-deb").glob(f"linux-image{kernel}"),
            *(ROOT / "out/kernel-deb").glob(f"linux-headers{kernel}")]


@pytest.fixture(scope="module")
def clean(packages, tmp_path_factory):
    """A clean Debian with DKMS, the packages in its /root."""
    tree = DebianTree(tmp_path_factory.mktemp("kernel-package") / "root")
    digest = hashlib.sha256(",".join(SYSTEM).encode()).hexdigest()[:8]
    unpack_debian(tree.path, f"debian-dkms-root-{digest}.tar", SYSTEM)
    for package in packages:
        shutil.copy(package, tree.path / "root")
    # Scripts of packages start nothing.
    policy = tree.path / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    yield tree
    shutil.rmtree(tree.path)


@pytest.fixture(scope="module")
def refused(clean):
    """The kernel without the package ramslice."""
    done = clean.run("dpkg -i /root/linux-image-*.deb")
    return SimpleNamespace(install=done, kernels=clean.kernels())


@pytest.fixture(scope="module")
def installed(clean, refused, key):
    """The tools and the kernel, then its headers."""
    seen = SimpleNamespace()
    seen.install = clean.run("dpkg -i /root/ramslice_*.deb && dpkg -i /root/linux-image-*.deb")
    clean.release = next(name for name in clean.kernels()
                         if name.endswith(SUFFIXES[FLAVOUR])).removeprefix("vmlinuz-")
    seen.dkms_without_headers = clean.dkms()
    seen.headers = clean.run("dpkg -i /root/linux-headers-*.deb")
    depends = "dpkg-query -W -f '${Depends}' "
    seen.headers_depend = clean.run(f"{depends} 'linux-headers-*'").stdout
    seen.image_depends = clean.run(f"{depends} 'linux-image-*'").stdout
    seen.warning = clean.run("/var/lib/dpkg/info/linux-image-*.postinst configure 2>&1").stdout
    seen.initrd_bytes, seen.dkms = clean.initrd_bytes(), clean.dkms()
    kernel = clean.path / f"boot/vmlinuz-{clean.release}"
    seen.signature = subprocess.run(["sbverify", "--cert", key / "cert", kernel], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return seen


@pytest.fixture(scope="module")
def upgraded(clean, installed):
    """A later build of the same source replaces a confirmed kernel, beside one of Debian's."""
    seen = SimpleNamespace()
    debian = clean.path / f"boot/vmlinuz-{DEBIAN}"
    debian.touch()
    seen.default_before = clean.default()
    later = []
    for package in list((clean.path / "root").glob("linux-*.deb")):
        tree = clean.path / "root/later"
        run(["dpkg-deb", "-R", package, tree])
        control = tree / "DEBIAN/control"
        control.write_text(re.sub(r"^(Version: .*\+rs)\d*-1$", rf"\g<1>{LATER}-1",
                                  control.read_text(), flags=re.M))
        later.append(package.with_name(f"later-{package.name}"))
        run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, later[-1]])
        shutil.rmtree(tree)
    image = (clean.path / f"boot/vmlinuz-{clean.release}").read_bytes()
    confirmed = clean.path / CONFIRMED
    confirmed.parent.mkdir(parents=True, exist_ok=True)
    confirmed.write_text(f"{clean.release}\n{hashlib.sha256(image).hexdigest()}\n")
    seen.upgrade = clean.run("apt-get install -qq -y /root/later-*.deb")
    seen.confirmed = confirmed.exists()
    seen.versions = clean.run("dpkg-query -W -f '${Version}\\n' 'linux-*-ramslice*'").stdout
    seen.dkms, seen.initrd_bytes = clean.dkms(), clean.initrd_bytes()
    seen.default = clean.default()
    for path in (debian, *later, clean.path / "usr/sbin/policy-rc.d"):
        path.unlink()
    return seen


@pytest.fixture(scope="module")
def bootable(clean, upgraded):
    run_at_boot(clean.path, SCRIPT)
    return clean


@pytest.fixture(scope="module", params=LOCKDOWNS)
def booted(request, bootable, tmp_path_factory):
    """A boot from a disk, by the initial RAM disk that Debian made."""
    disk = tmp_path_factory.mktemp("boot") / "disk"
    done = boot_debian(bootable.path, "--own-kernel", bootable.release, "--append",
                       f"lockdown={request.param}", "--disk", disk, "--mem", "2G")
    status = subprocess.run(["debugfs", "-R", "cat /root/status", disk], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    disk.unlink(missing_ok=True)
    return SimpleNamespace(lockdown=request.param, boot=done, status=status.stdout.strip())


@pytest.fixture(scope="module")
def purged(clean, upgraded):
    seen = SimpleNamespace()
    seen.purge = clean.run("dpkg -P $(dpkg-query -W -f '${Package}\\n' 'linux-*-ramslice*')"
                           " ramslice")
    seen.left = run(["find", clean.path / "boot", clean.path / "usr", "-maxdepth", "3",
                     "-name", f"*{clean.release}*"])
    return seen


# --- installation ---

def test_the_kernel_is_not_installed_without_the_package_ramslice(refused):
    assert refused.install.returncode != 0


def test_a_refused_installation_leaves_no_kernel(refused):
    assert refused.kernels == []


def test_tools_and_kernel_are_installed(installed):
    works(installed.install)


def test_dkms_builds_nothing_without_headers(installed):
    assert not re.search("acpi-call.*installed", installed.dkms_without_headers)


def test_the_headers_can_be_installed_later(installed):
    works(installed.headers)


def test_the_headers_depend_on_the_libraries_of_their_programs(installed):
    assert "libelf1" in installed.headers_depend


def test_the_image_depends_on_what_makes_its_initial_ram_disk(installed):
    assert "initramfs-tools" in installed.image_depends


def test_the_installation_warns_where_grub_does_not_boot(installed):
    assert "Nothing here keeps" in installed.warning


def test_the_kernel_has_an_initial_ram_disk(installed):
    assert installed.initrd_bytes > 0


def test_the_kernel_bears_the_operators_signature(installed):
    works(installed.signature)


def test_dkms_has_built_debians_module_for_the_kernel(installed):
    assert re.search("acpi-call.*installed", installed.dkms)


# --- upgrade ---

def test_debians_kernel_stays_the_default(upgraded):
    assert upgraded.default_before == [DEBIAN]


def test_a_later_build_is_an_upgrade_for_apt(upgraded):
    works(upgraded.upgrade)


def test_a_later_build_is_not_confirmed(upgraded):
    assert not upgraded.confirmed


def test_both_packages_are_of_the_later_build(upgraded):
    assert len(re.findall(rf"\+rs{LATER}-1$", upgraded.versions, re.M)) == 2


def test_dkms_builds_its_module_again_after_an_upgrade(upgraded):
    assert re.search("acpi-call.*installed", upgraded.dkms)


def test_there_is_an_initial_ram_disk_after_an_upgrade(upgraded):
    assert upgraded.initrd_bytes > 0


def test_debians_kernel_stays_the_default_after_an_upgrade(upgraded):
    assert upgraded.default == [DEBIAN]


# --- boots ---

@pytest.mark.parametrize("sentence", sentences(SCRIPT))
def test_kernel_in_a_debian_under_lockdown(booted, sentence):
    output, unlocked = booted.boot.stdout, booted.lockdown == "none"
    sentence = sentence.replace("$lockdown", booted.lockdown)
    if sentence in (LOCKED_ONLY if unlocked else UNLOCKED_ONLY):
        assert sentence not in passed(output)
    else:
        assert sentence in passed(output), why_failed(output)


def test_debian_powers_off_without_a_complaint_of_the_kernel(booted):
    assert booted.boot.returncode == 0, why_failed(booted.boot.stdout)


def test_the_script_reports_that_all_checks_passed(booted):
    assert booted.status == "0", why_failed(booted.boot.stdout)


# --- the end ---

def test_the_packages_are_purged(purged):
    works(purged.purge)


def test_a_purge_leaves_nothing_of_the_kernel(purged):
    assert purged.left == ""
