# SPDX-License-Identifier: GPL-2.0-or-later
"""The configurations of kernel packages come out as asked, and Debian's loses no unnamed option."""

import subprocess
from pathlib import Path

import pytest

from ramlab.common import RAMLAB, ROOT

pytestmark = pytest.mark.xdist_group("kernel-configs")

HARDENING = ROOT / "packaging/kernel/hardening.config"
# `ramlab kernel-deb` ends so where Debian no longer has this version's configuration.
NOT_THERE = 4
MODULES = """Module                  Size  Used by
ext4 1036288 1
virtio_blk 28672 2
"""


def configure(*words):
    """A flavour's configuration as a list of lines; skips where Debian has none."""
    done = subprocess.run([RAMLAB, "kernel-deb", "--config-only", *words], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode == NOT_THERE:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout
    return Path(done.stdout.splitlines()[-1]).read_text().splitlines()


@pytest.fixture(scope="module")
def debian():
    return configure("debian")


@pytest.fixture(scope="module")
def with_modules(tmp_path_factory):
    """Debian's configuration with the modules of one machine."""
    listing = tmp_path_factory.mktemp("modules") / "lsmod"
    listing.write_text(MODULES)
    return configure("debian", "--modules", listing)


def test_the_lean_configuration_comes_out_as_asked():
    assert "CONFIG_RAMSLICE=y" in configure("lean")


def test_debians_configuration_comes_out_as_asked(debian):
    assert "CONFIG_RAMSLICE=y" in debian


@pytest.mark.parametrize("flavour", ["debian", "lean"])
def test_what_guides_speak_of_is_in_every_package(flavour):
    """Give-back, cold memory, buffers; and a driver to try it."""
    found = configure(flavour)
    for option in ("RAMSLICE_REPORT=m", "RAMSLICE_COLD=y", "RAMSLICE_HEAP=y", "RAMSLICE_SIM=m"):
        assert f"CONFIG_{option}" in found


def test_every_hardening_option_is_debians_own(debian):
    asked = [line for line in HARDENING.read_text().splitlines() if line.startswith("CONFIG_")]
    assert asked
    assert [line for line in asked if line not in debian] == []


@pytest.mark.parametrize("option", ["EXT4_FS", "JBD2", "VIRTIO_BLK", "RAMSLICE_SIM"])
def test_a_machines_modules_and_what_they_need_are_built(with_modules, option):
    assert f"CONFIG_{option}=m" in with_modules


def test_ramslice_is_built_in_with_a_machines_modules(with_modules):
    assert "CONFIG_RAMSLICE=y" in with_modules


@pytest.mark.parametrize("option", ["VIRTIO_NET", "XFS_FS"])
def test_modules_that_a_machine_does_not_use_are_not_built(with_modules, option):
    assert f"# CONFIG_{option} is not set" in with_modules
