# SPDX-License-Identifier: GPL-2.0-or-later
"""The demonstrations (`make demo` and others) end well and leave their pictures and results."""

import json
import subprocess

import pytest

from ramlab.bench import giveback
from ramlab.common import OUT, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.xdist_group("demos")]

PICTURES = ("before", "after", "end")


@pytest.fixture(scope="module", params=["demo", "demo-stock"])
def demo(request):
    """(what make did, the folder of its results)."""
    done = subprocess.run(["make", "--no-print-directory", request.param], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done, OUT / request.param


def test_the_demonstration_succeeds(demo):
    done, _ = demo
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_demonstration_leaves_its_results(demo):
    assert json.loads((demo[1] / "result.json").read_text())


@pytest.mark.parametrize("picture", PICTURES)
def test_the_demonstration_leaves_pictures_of_memory(demo, picture):
    assert (demo[1] / f"{picture}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_demonstration_switches_slices_off_and_shows_that(demo):
    found = json.loads((demo[1] / "result.json").read_text())
    assert found.get("offline_after_first", found.get("blocks_offline")) > 0
    before, after = ((demo[1] / f"{name}.png").read_bytes() for name in PICTURES[:2])
    assert before != after


def test_the_demonstration_of_give_back_has_the_host_hold_less_of_the_guest_with_ramslice():
    done = subprocess.run(["make", "--no-print-directory", "demo-giveback"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    folder = OUT / "demo-giveback"
    assert (folder / "held.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    found = json.loads((folder / "result.json").read_text())
    used = giveback.used_when_settled(found[giveback.USUAL])
    held = {arm: giveback.held_over_used(figures, used) for arm, figures in found.items()}
    assert held[giveback.OURS] < held[giveback.USUAL] / 2
