# SPDX-License-Identifier: GPL-2.0-or-later
"""Case studies run: each once, tiny, in a guest."""

import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_case_study_runs_once_and_has_the_right_result():
    done = subprocess.run([RAMLAB, "case", "--tiny"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    assert done.returncode == 0
