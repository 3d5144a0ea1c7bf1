# SPDX-License-Identifier: GPL-2.0-or-later
"""The crates pass their tests as programs for aarch64, by QEMU's user mode (ramlab arm64)."""

import os
import re
import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.xdist_group("crates-arm64")]

TARGET = "aarch64-unknown-linux-gnu"
SMAPS = "QEMU makes up /proc/self/smaps, in which all sizes are 0"
# Tests that QEMU's user mode cannot run, as nextest names them, and why.
UNABLE = {
    "ramslice-daemon::process it_holds_less_than_8_mib_of_its_own_with_6144_slices":
        "what it measures would be QEMU's memory, too",
    "ramslice-cli::doctor the_running_machine_gets_an_answer_whatever_it_is":
        "QEMU takes / for the folder of the C library, which has no /proc",
    "ramslice-cli-lab::fragment "
    "the_account_comes_before_the_command_and_the_status_is_the_commands": SMAPS,
    "ramslice-fragment::fragmented anonymous_pages_are_mapped_as_often_as_wanted": SMAPS,
    "ramslice-fragment::fragmented huge_pages_come_whole_or_are_refused": SMAPS,
    "ramslice-cli-lab::record a_command_that_cannot_run_is_named":
        "QEMU makes vfork() a fork: posix_spawn() of what is no program succeeds",
}
RUN = ('source lab/env && need_rust_target "$1" && run_nextest --locked --workspace'
       ' --cargo-profile emulated --target "$1" -E "$2"')
UNAVAILABLE = 77


def left_out(name):
    """nextest's words for one test: `BINARY TEST`."""
    binary, test = name.split()
    return f"(binary_id(={binary}) & test(={test}))"


@pytest.fixture(scope="module")
def summary():
    """nextest's last words, after all its tests passed."""
    able = "all()" + "".join(f" - {left_out(name)}" for name in UNABLE)
    seed = os.environ.get("PROPTEST_RNG_SEED", "1")
    done = subprocess.run(
        [RAMLAB, "arm64", "bash", "-c", RUN, "bash", TARGET, able], cwd=ROOT, text=True,
        env=os.environ | {"PROPTEST_RNG_SEED": seed}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout[-20000:]
    return re.search(r"Summary .*?(\d+) tests? run: (\d+) passed.*?(\d+) skipped", done.stdout)


def test_all_tests_of_the_crates_pass_on_aarch64(summary):
    ran, passed, _ = (int(number) for number in summary.groups())
    assert ran == passed
    # So many that a filter which lets none through is noticed.
    assert ran > 500


def test_only_the_named_tests_were_left_out(summary):
    assert int(summary[3]) == len(UNABLE)


@pytest.mark.parametrize("name", UNABLE)
def test_not_by_qemu(name):
    pytest.skip(UNABLE[name])
