# SPDX-License-Identifier: GPL-2.0-or-later
"""`make deb ARCH=arm64` makes the packages of amd64 for arm64: contents, dependencies, programs."""

import re
import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.xdist_group("package")]

PROGRAMS = {"usr/bin/ramslice": "ramslice", "usr/sbin/ramsliced": "ramslice",
            "usr/bin/ramslice-lab": "ramslice-lab"}
PACKAGES = ("ramslice", "ramslice-lab")
UNAVAILABLE = 77


@pytest.fixture(scope="module")
def packages():
    """{(package, architecture): path}, checked by lintian."""
    found = {}
    for arch in ("amd64", "arm64"):
        subprocess.run([ROOT / "packaging/deb/build", "--arch", arch], check=True)
        for package in PACKAGES:
            [found[package, arch]] = (ROOT / "out/deb").glob(f"{package}_*_{arch}.deb")
    return found


@pytest.fixture(scope="module")
def unpacked(packages, tmp_path_factory):
    """A folder with the contents of the packages for arm64."""
    tree = tmp_path_factory.mktemp("arm64")
    for package in PACKAGES:
        run(["dpkg-deb", "-x", packages[package, "arm64"], tree])
    return tree


def field(path, name):
    return run(["dpkg-deb", "--field", path, name]).strip()


def contents(path):
    """Path, mode and size of what is in a package; the size not of programs and what is packed."""
    found = {}
    for line in run(["dpkg-deb", "--contents", path]).splitlines():
        mode, owner, size, _, _, name = line.split(maxsplit=5)
        fixed = not (name.removeprefix("./") in PROGRAMS or name.endswith(".gz"))
        found[name] = mode, owner, size if fixed else None
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_says_that_it_is_for_arm64(packages, package):
    assert field(packages[package, "arm64"], "Architecture") == "arm64"


@pytest.mark.parametrize("package", PACKAGES)
def test_both_architectures_have_the_same_files(packages, package):
    assert contents(packages[package, "arm64"]) == contents(packages[package, "amd64"])


@pytest.mark.parametrize("package", PACKAGES)
def test_it_depends_on_the_packages_that_the_other_depends_on(packages, package):
    names = [re.sub(r" \(.*?\)", "", field(packages[package, arch], "Depends")).split(", ")
             for arch in ("arm64", "amd64")]
    assert "libc6" in names[0]
    assert sorted(names[0]) == sorted(names[1])


@pytest.mark.parametrize("path", PROGRAMS)
def test_its_programs_are_for_aarch64_and_run(unpacked, path):
    program = unpacked / path
    assert "AArch64" in run(["readelf", "--file-header", program])
    done = subprocess.run([RAMLAB, "arm64", program, "--version"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr)
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    assert (done.returncode, done.stdout) == (0, f"{program.name} {version}\n")


def test_its_program_sums_up_a_saved_machine(unpacked):
    saved = ROOT / "crates/cli/tests/data/guest-8g.json"
    done = subprocess.run([RAMLAB, "arm64", unpacked / "usr/bin/ramslice", "status", "--from",
                           saved], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr)
    expected = (ROOT / "crates/cli/tests/expects/status.txt").read_text()
    assert f"$ ramslice status\n{done.stdout}[exit {done.returncode}]\n" == expected
