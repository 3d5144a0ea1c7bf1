# SPDX-License-Identifier: GPL-2.0-or-later
"""Case studies run: once, tiny, in a guest. One of them each time, all in the long campaigns."""

import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", [
    pytest.param(["import"], id="short"),
    pytest.param([], id="full", marks=pytest.mark.slow),
])
def test_every_case_study_runs_once_and_has_the_right_result(names):
    done = subprocess.run([RAMLAB, "case", *names, "--tiny"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    assert done.returncode == 0
