# SPDX-License-Identifier: GPL-2.0-or-later
"""The arm64 kernel: its configuration comes out as asked, and its image is none of x86-64's."""

import pytest

from ramlab.architectures import ARM64
from ramlab.common import RAMLAB, run
from ramlab.kernel import build
from ramlab.kernel.source import Source

pytestmark = pytest.mark.xdist_group("kernel-arm64")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The options of the plain flavour; configure() ends the program if one is not as asked."""
    tree = run([RAMLAB, "kernel", "--source"]).splitlines()[-1]
    objects = tmp_path_factory.mktemp("arm64")
    build.configure(tree, objects, "plain", ARM64)
    return build.options((objects / ".config").read_text())


@pytest.mark.parametrize("option", [
    "ARM64", "RAMSLICE", "RAMSLICE_DEFAULT_ON", "RAMSLICE_KUNIT_TEST", "TRANSPARENT_HUGEPAGE",
    "HUGETLBFS", "MEMORY_HOTREMOVE", "ZONE_DMA"])
def test_the_kernel_has_what_its_tests_are_about(config, option):
    assert config[f"CONFIG_{option}"] == "y"


def test_the_simulated_controller_is_a_module(config):
    assert config["CONFIG_RAMSLICE_SIM"] == "m"


def test_an_image_has_a_key_of_its_own():
    source = Source()
    assert build.key(source, "plain", ARM64) != build.key(source, "plain")
    assert build.stored(source, "plain", ARM64).name.startswith("arm64-plain-")
