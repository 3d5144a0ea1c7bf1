# SPDX-License-Identifier: GPL-2.0-or-later
"""Generated inputs to all interfaces, and to the kernel's command line, do no harm.

The inputs are the same each time, so that what fails, fails again; RAMSLICE_FUZZ_SEED and
RAMSLICE_FUZZ_INPUTS choose others. `ramlab fuzz` by hand takes new ones each time.
"""

import os
import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT

SEED = os.environ.get("RAMSLICE_FUZZ_SEED", "1")
INPUTS = os.environ.get("RAMSLICE_FUZZ_INPUTS", "12000")


def fuzz(*words):
    done = subprocess.run([RAMLAB, "fuzz", "--seed", SEED, *map(str, words)], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    return done.returncode


@pytest.mark.never_rerun
@pytest.mark.timeout(3600)
def test_generated_inputs_find_no_bug_on_the_debug_kernel(tmp_path):
    assert fuzz("--inputs", INPUTS, "--portion", 6000, "--summary", tmp_path / "fuzz.json") == 0


@pytest.mark.timeout(3600)
def test_generated_command_lines_boot_with_the_settings_that_they_should_give():
    assert fuzz("--boots", 4) == 0
