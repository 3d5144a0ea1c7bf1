# SPDX-License-Identifier: GPL-2.0-or-later
"""Each released version upgrades to the tree's with memory off: in a clean Debian, by dpkg.

The released package is built from the commit of its version (ramlab release), once for all runs.
The steps are those of lab/guest/upgrade.sh.
"""

import subprocess

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
from ramlab.common import ROOT, run
from ramlab.release import UPGRADES
from ramlab.release_packages import released_package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.xdist_group("package")]

SCRIPT = "upgrade.sh"
SYSTEM = ("systemd-sysv", "dbus", "man-db")
VERSIONS = sorted(path.name for path in (ROOT / UPGRADES).iterdir())


@pytest.fixture(scope="module")
def package():
    """The package of the tree."""
    need_root()
    subprocess.run([ROOT / "packaging/deb/build"], check=True)
    return next((ROOT / "out/deb").glob("ramslice_*_amd64.deb"))


@pytest.fixture(scope="module", params=VERSIONS)
def upgraded(request, package, tmp_path_factory):
    """The console of a Debian that ran the script, and the script's status."""
    tree = tmp_path_factory.mktemp("debian") / "root"
    unpack_debian(tree, "debian-root.tar", SYSTEM)
    run(["cp", released_package(request.param, "ramslice"), tree / "root/old.deb"])
    run(["cp", package, tree / "root/new.deb"])
    run_at_boot(tree, SCRIPT)
    done = boot_debian(tree, "--kernel", "debian-6.12", "--mem", "2G")
    status = tree / "root/status"
    yield done, status.read_text().strip() if status.exists() else "none"
    run(["rm", "-rf", tree])


@pytest.mark.parametrize("sentence", sentences(SCRIPT))
def test_a_released_version_upgrades(upgraded, sentence):
    output = upgraded[0].stdout
    assert sentence in passed(output), why_failed(output)


def test_all_checks_passed_and_debian_powers_off_without_a_complaint(upgraded):
    assert (upgraded[1], upgraded[0].returncode) == ("0", 0), why_failed(upgraded[0].stdout)
