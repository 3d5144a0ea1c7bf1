# SPDX-License-Identifier: GPL-2.0-or-later
"""An image package is signed with an operator's key, and only its certificate verifies it."""

import shutil
import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT, run

pytestmark = pytest.mark.xdist_group("sign")

RELEASE = "6.12.0-ramslice"
CONTROL = f"""Package: linux-image-{RELEASE}
Version: 1
Architecture: amd64
Maintainer: The ramslice developers <developers@ramslice.example>
Description: a test
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Throw-away keys and certificates, as operators make them: ours and another."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "other"):
        run(["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", f"/CN=ramslice test, {name}/",
             "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"])
    return folder


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory):
    """A package like those of the kernel's own packaging; its kernel bears Debian's signature."""
    tree = tmp_path_factory.mktemp("unsigned")
    kernel = run([RAMLAB, "stock-kernel", "6.12"]).splitlines()[-1]
    for name in ("DEBIAN", "boot", f"lib/modules/{RELEASE}"):
        (tree / name).mkdir(parents=True)
    run(["sh", "-c", 'cp "$0"/boot/vmlinuz-* "$1"', kernel, tree / f"boot/vmlinuz-{RELEASE}"])
    (tree / f"lib/modules/{RELEASE}/one.ko").write_text("a module\n")
    (tree / "DEBIAN/control").write_text(CONTROL)
    package = tree.with_suffix(".deb")
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, package])
    return package


class ImagePackage:
    """A package, the keys that sign it, and what is in it."""

    def __init__(self, path, keys):
        self.path, self.keys = path, keys

    def sign(self, key, certificate):
        return subprocess.run(
            [ROOT / "packaging/kernel/sign-kernel-deb", "--key", self.keys / f"{key}.key",
             "--cert", self.keys / f"{certificate}.pem", self.path],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def unpack(self):
        folder = self.path.with_name("unpacked")
        shutil.rmtree(folder, ignore_errors=True)
        run(["dpkg-deb", "-R", self.path, folder])
        return folder

    def verifies(self, certificate, folder=None):
        kernel = (folder or self.unpack()) / f"boot/vmlinuz-{RELEASE}"
        done = subprocess.run(["sbverify", "--cert", self.keys / f"{certificate}.pem", kernel],
                              capture_output=True, check=False)
        return done.returncode == 0


@pytest.fixture
def package(tmp_path, keys, unsigned):
    return ImagePackage(shutil.copy(unsigned, tmp_path / "image.deb"), keys)


@pytest.fixture(scope="module")
def signed_once(tmp_path_factory, keys, unsigned):
    package = ImagePackage(
        shutil.copy(unsigned, tmp_path_factory.mktemp("signed") / "image.deb"), keys)
    return package, package.sign("ours", "ours")


@pytest.fixture
def signed(tmp_path, signed_once):
    """A package that our key has signed."""
    return ImagePackage(shutil.copy(signed_once[0].path, tmp_path / "image.deb"),
                        signed_once[0].keys)


def test_a_kernel_that_we_did_not_sign_is_not_verified(package):
    assert not package.verifies("ours")


def test_a_key_of_another_certificate_is_refused(package):
    assert package.sign("other", "ours").returncode != 0


def test_a_refused_key_leaves_the_package_as_it_is(package):
    before = package.path.read_bytes()
    package.sign("other", "ours")
    assert package.path.read_bytes() == before


def test_a_package_is_signed(signed_once):
    done = signed_once[1]
    assert done.returncode == 0, done.stdout


def test_the_signature_is_verified_by_its_certificate(signed):
    assert signed.verifies("ours")


def test_the_signature_is_verified_by_no_other_certificate(signed):
    assert not signed.verifies("other")


def test_signing_keeps_the_rest_of_the_package(signed):
    assert (signed.unpack() / f"lib/modules/{RELEASE}/one.ko").read_text() == "a module\n"


def test_a_signed_package_has_the_right_checksums(signed):
    run(["md5sum", "--quiet", "-c", "DEBIAN/md5sums"], cwd=signed.unpack())


def test_signing_again_changes_nothing(signed):
    before = signed.path.read_bytes()
    done = signed.sign("ours", "ours")
    assert done.returncode == 0, done.stdout
    assert signed.path.read_bytes() == before


def test_another_operators_signature_replaces_the_first(signed):
    done = signed.sign("other", "other")
    assert done.returncode == 0, done.stdout
    folder = signed.unpack()
    assert signed.verifies("other", folder)
    assert not signed.verifies("ours", folder)


def test_a_changed_byte_in_the_kernel_is_found(signed):
    folder = signed.unpack()
    kernel = folder / f"boot/vmlinuz-{RELEASE}"
    content = bytearray(kernel.read_bytes())
    content[100000] ^= 0xFF
    kernel.write_bytes(content)
    assert not signed.verifies("ours", folder)
