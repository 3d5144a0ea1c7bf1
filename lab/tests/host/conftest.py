# SPDX-License-Identifier: GPL-2.0-or-later
"""Our programs, for tests that run them on the host."""

from pathlib import Path

import pytest

from ramlab.kernel.images import image
from ramlab.testing.boot import programs
from ramlab.vm.small_guest import make_root


@pytest.fixture(scope="session")
def ramslice_program(pytestconfig):
    """`ramslice`, as below."""
    return Path(programs(pytestconfig)["RAMSLICE_PROGRAM"])


@pytest.fixture(scope="session")
def lab_program(pytestconfig):
    """`ramslice-lab`, built from the tree or taken from the folder of --programs."""
    return Path(programs(pytestconfig)["RAMSLICE_LAB_PROGRAM"])


@pytest.fixture(scope="session")
def daemon_program(pytestconfig):
    return Path(programs(pytestconfig)["RAMSLICE_DAEMON"])


@pytest.fixture(scope="session")
def examples(pytestconfig):
    """The folder of the crates' example programs."""
    return Path(programs(pytestconfig)["RAMSLICE_EXAMPLES"])


@pytest.fixture(scope="session")
def small_kernel():
    """What a SmallGuest boots: an image, and its RAM disk below."""
    return image("plain")


@pytest.fixture(scope="session")
def small_root(small_kernel, ramslice_program, tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("root"), small_kernel, [ramslice_program])
