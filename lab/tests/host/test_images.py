# SPDX-License-Identifier: GPL-2.0-or-later
"""Which image of a kernel counts: the one that the environment names, or the one of the tree."""

import os
from pathlib import Path
from unittest import mock

import pytest

from ramlab.architectures import ARM64
from ramlab.common import FLAVOURS
from ramlab.kernel import build, images


@pytest.fixture
def built(monkeypatch):
    """No image is named; what would be built is recorded instead."""
    lines = []

    def run(line, **_):
        lines.append(line[1:])
        return mock.Mock(returncode=0, stdout="/cache/image\n")

    for name in [name for name in os.environ if name.startswith("RAMSLICE_IMAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(images.subprocess, "run", run)
    return lines


def test_an_image_of_ours_is_built_and_one_of_debians_is_fetched(built):
    assert images.image("research") == Path("/cache/image")
    assert images.image("debian-6.1") == Path("/cache/image")
    assert built == [["kernel", "--path", "research"], ["stock-kernel", "6.1"]]
    assert images.named_image("research") is None


def test_a_named_image_is_for_its_kernel_alone_and_comes_before_one_for_all(built, monkeypatch):
    monkeypatch.setenv("RAMSLICE_IMAGE_DEBUG_RESEARCH", "/one")
    assert images.image("debug-research") == Path("/one")
    assert images.image("debug") == Path("/cache/image")
    monkeypatch.setenv("RAMSLICE_IMAGE", "/all")
    assert images.image("debug-research") == Path("/one")
    assert images.image("debug") == Path("/all")
    assert len(built) == 1


def test_an_image_that_is_named_is_none_of_another_architecture(built, monkeypatch):
    monkeypatch.setenv("RAMSLICE_IMAGE", "/all")
    for kernel in ("plain", "debian-6.12"):
        assert images.image(kernel, ARM64) == Path("/cache/image")
    assert built == [["kernel", "--arch", "arm64", "--path", "plain"],
                     ["stock-kernel", "--arch", "arm64", "6.12"]]


def test_a_build_that_fails_ends_the_program_with_its_status(built, monkeypatch):
    monkeypatch.setattr(images.subprocess, "run", lambda *_, **__: mock.Mock(returncode=7))
    with pytest.raises(SystemExit) as ended:
        images.image("plain")
    assert ended.value.code == 7


def test_each_flavour_has_a_number_of_steps_until_its_own_are_counted():
    assert set(FLAVOURS) <= set(build.FIRST_STEPS)
