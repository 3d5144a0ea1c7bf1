# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own tests of mm and hotplug end as on the unpatched kernel, also with slices off."""

import subprocess

import pytest

from ramlab.common import RAMLAB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(14400), pytest.mark.xdist_group("selftests")]


def test_the_kernels_selftests_end_alike_on_both_kernels_and_with_slices_off():
    subprocess.run([RAMLAB, "selftests"], check=True)
