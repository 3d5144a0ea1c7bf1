# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian package in a clean Debian that systemd boots, on both promised kernels of Debian's.

It is installed, started, edited, upgraded, removed and purged there by lab/guest/package.sh.
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.xdist_group("package")]

SCRIPT = "package.sh"
KERNELS = ("6.12", "6.1")
SYSTEM = ("systemd-sysv", "dbus", "man-db")


@pytest.fixture(scope="module")
def package():
    """The package of the tree."""
    need_root()
    subprocess.run([ROOT / "packaging/deb/build"], check=True)
    return next((ROOT / "out/deb").glob("ramslice_*_amd64.deb"))


@pytest.fixture(scope="module")
def newer(package, tmp_path_factory):
    """A newer version with other settings, which must not replace edited ones."""
    tree = tmp_path_factory.mktemp("newer") / "tree"
    run(["dpkg-deb", "-R", package, tree])
    run(["sed", "-i", "s/^Version: .*/&+newer/", tree / "DEBIAN/control"])
    settings = tree / "etc/ramslice/ramsliced.toml"
    settings.write_text("# Settings of the new version.\n" + settings.read_text())
    run(["sh", "-c", "find . -path ./DEBIAN -prune -o -type f -printf '%P\\0' | sort -z"
         " | xargs -0 md5sum >DEBIAN/md5sums"], cwd=tree)
    run(["dpkg-deb", "-Zgzip", "-z1", "-b", tree, tree.with_suffix(".deb")])
    return tree.with_suffix(".deb")


@pytest.fixture(scope="module", params=KERNELS)
def life(request, package, newer, tmp_path_factory):
    """The console of a Debian that ran the script, and the script's status."""
    tree = tmp_path_factory.mktemp("debian") / "root"
    unpack_debian(tree, "debian-root.tar", SYSTEM)
    run(["cp", package, tree / "root/old.deb"])
    run(["cp", newer, tree / "root/new.deb"])
    run_at_boot(tree, SCRIPT)
    done = boot_debian(tree, "--kernel", f"debian-{request.param}", "--mem", "2G")
    status = tree / "root/status"
    yield done, status.read_text().strip() if status.exists() else "none"
    run(["rm", "-rf", tree])


@pytest.mark.parametrize("sentence", sentences(SCRIPT))
def test_package_in_a_clean_debian(life, sentence):
    output = life[0].stdout
    assert sentence in passed(output), why_failed(output)


def test_debian_powers_off_without_a_complaint_of_its_kernel(life):
    assert life[0].returncode == 0, why_failed(life[0].stdout)


def test_the_script_reports_that_all_checks_passed(life):
    assert life[1] == "0", why_failed(life[0].stdout)
