# SPDX-License-Identifier: GPL-2.0-or-later
"""Fitted on recordings of one policy, the simulator predicts the slices used under another.

Within 10% on average on at least three workloads of four, and better than predictions that need no
simulator. TRUST_OUT names a folder that keeps recordings and figures; TRUST_SEEDS are the seeds of
what the work leaves to chance.
"""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ramlab.common import RAMLAB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(14400), pytest.mark.xdist_group("trust")]

POLICIES = Path(__file__).parent / "data/trust"
WORKLOADS = ("redis", "archives", "batch", "builds")
# What one step of the work stands for, in the recordings.
STEP_SECONDS = "120"


def _record(folder, seed, policy, step):
    """Runs the workloads in a guest under a policy; each step waits for the one before."""
    for old in folder.glob(f"*-{policy}"):
        shutil.rmtree(old)
    command = (f"TRUST_SEED={seed} STEP_PROGRAM={step} python3 -m ramlab.guest.trust {folder}"
               f" {policy}={folder}/{policy}.toml {' '.join(WORKLOADS)}")
    return subprocess.run(
        [RAMLAB, "vm", "--quiet", "--timeout", "3600", "--mem", "1G", "--disk", "2G",
         "--append", "ramslice=8M", "--rw", folder, "--", command],
        text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory, examples):
    """The folders of the seeds, with recordings of all workloads under both policies."""
    kept = os.environ.get("TRUST_OUT")
    out = Path(kept).resolve() if kept else tmp_path_factory.mktemp("trust")
    folders = []
    for seed in os.environ.get("TRUST_SEEDS", "0 1").split():
        folder = out / seed
        folder.mkdir(parents=True, exist_ok=True)
        for policy in POLICIES.glob("*.toml"):
            shutil.copy(policy, folder)
        # Two machines at a time
        with ThreadPoolExecutor() as pool:
            for done in pool.map(lambda name, to=folder, of=seed: _record(
                    to, of, name, examples / "step"), ("periodic", "governor")):
                assert done.returncode == 0, done.stdout[-4000:]
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def agree(recordings, examples):
    """Predicts the use under a policy from the recordings under the periodic one."""
    def run(predicted, *words):
        return subprocess.run(
            [examples / "agree", STEP_SECONDS, "periodic.toml", predicted, ",".join(WORKLOADS),
             *recordings, *words], text=True, capture_output=True, check=False)
    return run


def test_the_prediction_agrees_with_the_machines(agree, recordings):
    done = agree("governor.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    if os.environ.get("TRUST_OUT"):
        figures = agree("governor.toml", "--json")
        assert figures.returncode == 0, figures.stderr
        (recordings[0].parent / "agreement.json").write_text(figures.stdout)


def test_a_prediction_no_better_than_the_recording_is_refused(agree):
    done = agree("periodic.toml")
    assert done.returncode != 0, done.stdout
    means = [line for line in done.stdout.splitlines() if " mean: " in line]
    assert len(means) == len(WORKLOADS), done.stdout + done.stderr
    assert all(line.endswith("mean: does not hold") for line in means), done.stdout
