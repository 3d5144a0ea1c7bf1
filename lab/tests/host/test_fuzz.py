# SPDX-License-Identifier: GPL-2.0-or-later
"""Generated inputs to all interfaces, and to the kernel's command line, do no harm.

The inputs are the same each time, so that what fails, fails again; RAMSLICE_FUZZ_SEED and
RAMSLICE_FUZZ_INPUTS choose others. `ramlab fuzz` by hand takes new ones each time. What a run of
all tests feeds is the beginning of what the long campaigns feed.
"""

import os
import random
import subprocess

import pytest

from ramlab import fuzz as generator
from ramlab.common import RAMLAB, ROOT

SEED = os.environ.get("RAMSLICE_FUZZ_SEED", "1")
SHORT_INPUTS, FULL_INPUTS, ARM64_INPUTS = (
    int(os.environ.get("RAMSLICE_FUZZ_INPUTS", inputs)) for inputs in (6000, 12000, 10000))


def expected_policies(research):
    """{policy that a generated command line should give}, and whether one names a research policy.
    """
    found, foreign = set(), False
    for seed in range(500):
        words, (_, _, policy, low, complaints) = generator.boot_words(random.Random(seed), research)
        found.add(policy)
        assert (low == "none") == (policy == "none" or not research), words
        if f"ramslice_placement={generator.RESEARCH_POLICIES[0]}" in words and not research:
            foreign = True
            assert int(complaints) > 0, words
    return found - {"none"}, foreign


def test_the_research_kernel_is_to_follow_every_policy():
    known = generator.POLICIES + generator.RESEARCH_POLICIES
    assert expected_policies(research=True)[0] == set(known)


def test_other_kernels_are_to_refuse_the_policies_of_the_research_kernel():
    assert expected_policies(research=False) == (set(generator.POLICIES), True)


def fuzz(*words):
    done = subprocess.run([RAMLAB, "fuzz", "--seed", SEED, *map(str, words)], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    return done.returncode


@pytest.mark.never_rerun
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("inputs", [
    pytest.param(SHORT_INPUTS, id="short"),
    pytest.param(FULL_INPUTS, id="full", marks=pytest.mark.slow),
])
def test_generated_inputs_find_no_bug_on_the_debug_kernel(tmp_path, inputs):
    # Two portions: what the second one leaves behind is compared with the first
    assert fuzz("--inputs", inputs, "--portion", (inputs + 1) // 2,
                "--summary", tmp_path / "fuzz.json") == 0


@pytest.mark.slow
@pytest.mark.never_rerun
@pytest.mark.timeout(7200)
def test_generated_inputs_find_no_bug_on_arm64(tmp_path):
    assert fuzz("--arch", "arm64", "--kernel", "plain", "--inputs", ARM64_INPUTS,
                "--summary", tmp_path / "fuzz.json") == 0


@pytest.mark.timeout(3600)
def test_generated_command_lines_boot_with_the_settings_that_they_should_give():
    assert fuzz("--boots", 4) == 0
