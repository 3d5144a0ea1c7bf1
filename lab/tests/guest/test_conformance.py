# SPDX-License-Identifier: GPL-2.0-or-later
"""The backends find in each kernel what the tools expect of every backend (crates/conformance)."""

import os
import subprocess
from pathlib import Path

from ramlab.guest import harness
from ramlab.pytest_vm import vm


def conform(backend):
    program = Path(os.environ["RAMSLICE_EXAMPLES"], "conformance")
    subprocess.run([program, backend], check=True)


@vm(mem="1G", disk="1G", append="ramslice=16M")
def test_the_patched_kernel_conforms():
    with harness.simulator():
        conform("kernel")


@vm(kernel=["debian-6.1", "debian-6.12", "debian-7"], mem="2G")
def test_a_stock_kernel_conforms():
    conform("stock")
