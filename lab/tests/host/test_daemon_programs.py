# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs get right results for twenty minutes beside ramsliced in mode on, which is killed.

The guest runs the demonstration's programs (ramlab.guest.daemon_programs).
"""

import json
import subprocess

import pytest

from ramlab import guest_programs
from ramlab.common import RAMLAB, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200),
              pytest.mark.xdist_group("daemon-programs"), pytest.mark.never_rerun]

LARGE_FILE = "/usr/src/linux-source-6.12.tar.xz"
GUEST = ("--mem", "4G", "--cpus", "2", "--disk", "6G", "--timeout", "4800",
         "--append", "ramslice=32M")


@pytest.fixture(scope="module")
def guest(daemon_program):
    guest_programs.build()
    source = run([RAMLAB, "kernel", "--source"]).splitlines()[-1]
    command = (f"export RAMSLICE_DAEMON={daemon_program}\n"
               "python3 -m ramlab.guest.daemon_programs"
               f" --source {source}/tools/lib/bpf --file {LARGE_FILE}")
    done = subprocess.run([RAMLAB, "vm", *GUEST, "--", command], text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(done.stdout[-4000:])
    return done


@pytest.fixture(scope="module")
def summary(guest):
    lines = [line for line in guest.stdout.splitlines() if line.startswith('{"problems"')]
    assert lines, guest.stdout[-4000:]
    return json.loads(lines[-1])


def test_the_guest_ends_well(guest):
    assert guest.returncode == 0, guest.stdout[-4000:]


def test_no_problem_is_found(guest):
    problems = [line for line in guest.stdout.splitlines() if line.startswith("FAILED: ")]
    assert problems == []


def test_no_data_is_wrong(summary):
    assert summary["data_errors"] == 0


@pytest.mark.parametrize("figure", ["rounds", "kills", "most_off", "woken_by_demand"])
def test_something_happened(summary, figure):
    assert summary[figure] > 0
