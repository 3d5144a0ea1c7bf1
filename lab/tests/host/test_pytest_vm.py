# SPDX-License-Identifier: GPL-2.0-or-later
"""The plug-in that runs tests in guests, with a shell in place of each guest."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ramlab.common import ROOT
from ramlab.testing import host
from ramlab.testing.machine import Machine

# Runs a guest's script here; its console is what it writes to descriptor 8.
GUEST = """#!/bin/bash
exec 8>&2
echo boot >>{folder}/boots
export RAMLAB_KMSG=/dev/fd/8
{extra}
exec bash "$1"
"""
HEAD = """
import os, signal, sys, time, unittest, pathlib
import pytest
from ramlab.pytest_vm import vm, never_rerun
def complain(text="WARNING: test of the detector"):
    os.write(8, (text + "\\n").encode())
def nth(name):
    "How often this was called, over all boots."
    path = pathlib.Path({folder!r}) / name
    with path.open("a") as sink:
        sink.write("x")
    return len(path.read_text())
"""


class Guests:
    """Runs tests in stand-ins for guests."""

    def __init__(self, pytester):
        self.pytester = pytester
        self.options = ["--guest-program", str(pytester.path / "guest"), "-p", "no:cacheprovider"]

    def prepare(self, text, extra=""):
        guest = self.pytester.path / "guest"
        guest.write_text(GUEST.format(folder=self.pytester.path, extra=extra))
        guest.chmod(guest.stat().st_mode | stat.S_IXUSR)
        self.pytester.makepyfile(HEAD.format(folder=str(self.pytester.path)) + text)

    def __call__(self, text, *options, extra=""):
        """The result of these tests, and the number of boots so far."""
        self.prepare(text, extra)
        result = self.pytester.runpytest_subprocess(*self.options, *options)
        boots = self.pytester.path / "boots"
        return result, len(boots.read_text().split()) if boots.exists() else 0


@pytest.fixture
def guests(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "lab"))
    for name in [name for name in os.environ if name.startswith(("RAMLAB_", "PYTEST_"))]:
        monkeypatch.delenv(name)
    pytester.makeini("[pytest]\naddopts = -p ramlab.pytest_vm\n")
    return Guests(pytester)


def until(condition, seconds=60):
    """Waits until the condition holds: what it is then, or its last value."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_tests_of_equal_machines_share_a_boot(guests):
    result, boots = guests("""
@vm(mem="1G")
def test_one(): assert os.environ["RAMSLICE_IN_VM"]
@vm(mem="2G")
def test_other(): pass
@vm(mem="1G")
class TestThird:
    def test_in_a_class(self): pass
""")
    result.assert_outcomes(passed=3)
    assert boots == 2


def test_fresh_tests_have_a_boot_of_their_own_and_a_fresh_class_one_for_all(guests):
    result, boots = guests("""
@vm(fresh=True)
def test_one(): pass
@vm(fresh=True)
def test_other(): pass
@vm(fresh=True)
class TestOrdered:
    def test_a(self): pass
    def test_b(self): pass
""")
    result.assert_outcomes(passed=4)
    assert boots == 3


def test_a_test_has_an_item_for_each_kernel_and_each_machine(guests):
    result, boots = guests("""
@vm(kernel=["plain", "debug"])
def test_both(): pass
@vm(append="a=1")
@vm(append="a=2")
class Twice(unittest.TestCase):
    def test_it(self): pass
""", "-v")
    result.assert_outcomes(passed=4)
    assert boots == 4
    result.stdout.fnmatch_lines_random([
        "*::test_both[[]plain[]] PASSED*", "*::test_both[[]debug[]] PASSED*",
        "*::Twice::test_it[[]a=1[]] PASSED*", "*::Twice::test_it[[]a=2[]] PASSED*"])


def test_tests_are_chosen_by_name_word_and_marker(guests):
    text = """
@vm(kernel=["plain", "debug"])
def test_both(): pass
@pytest.mark.slow
@vm()
def test_long(): pass
"""
    name = "test_tests_are_chosen_by_name_word_and_marker.py"
    for options, passed in (((f"{name}::test_both[debug]",), 1), ((f"{name}::test_both",), 2),
                            (("-k", "long",), 1), (("-m", "debug"), 1), (("-m", "not slow"), 2)):
        result, _ = guests(text, *options)
        assert result.parseoutcomes()["passed"] == passed, options


def test_tests_on_a_second_base_are_slow(guests):
    text = """
@vm(kernel=["debian-6.1", "debian-6.12"], mem="1G")
def test_both(): pass
"""
    result, _ = guests(text, "--collect-only", "-q", "-m", "not slow")
    result.stdout.fnmatch_lines(["*test_both?debian-6.12*"])
    result.stdout.no_fnmatch_line("*test_both?debian-6.1]*")
    result, _ = guests(text, "--collect-only", "-q", "-m", "slow and stock")
    result.stdout.fnmatch_lines(["*test_both?debian-6.1]*"])


def test_half_of_a_machine_can_be_its_twins():
    def with_twin(**words):
        machine = host._with_twin(Machine(**words))
        return machine.mem, machine.append, machine.qemu

    assert with_twin(mem="3G", append="ramslice=16M") == ("6G", "ramslice=16M ramslice_cold=3G", ())
    assert with_twin(mem="512M", kernel="debug") == ("1024M", "ramslice_cold=512M", ())
    assert with_twin(mem="1536M", append="movablecore=1G ramslice=8M", qemu=("-cpu max",)) == (
        "3072M", "movablecore=2560M ramslice=8M ramslice_cold=1536M",
        ("-cpu max", "-machine max-ram-below-4g=512M"))
    for has_say in ({"append": "ramslice_cold=0"}, {"append": "ramslice=off"},
                    {"kernel": "debian-6.12"}, {"arch": "arm64"}, {"numa": ("1G", "1G")}):
        machine = Machine(**has_say)
        assert with_twin(**has_say) == (machine.mem, machine.append, ()), has_say


def test_a_test_may_rest_on_there_being_no_twin(guests):
    text = """
@vm(mem="1G")
def test_any(): pass
@vm(mem="1G")
@pytest.mark.no_twin
def test_alone(): pass
"""
    # One boot for both, then one for each
    for options, boots_so_far in (((), 1), (("--twin",), 3)):
        result, boots = guests(text, *options)
        result.assert_outcomes(passed=2)
        assert boots == boots_so_far, options


def test_one_of_several_kernels_can_be_for_the_long_campaigns(guests):
    text = """
@vm(kernel=["plain", "debug"], slow="debug")
def test_both(): pass
@vm()
@vm(kernel="debug", slow=True)
class Twice(unittest.TestCase):
    def test_it(self): pass
"""
    result, boots = guests(text, "-m", "not slow")
    assert (result.parseoutcomes()["passed"], boots) == (2, 1)
    # The other two, on one machine as well: boots are counted on.
    result, boots = guests(text, "-m", "slow")
    assert (result.parseoutcomes()["passed"], boots) == (2, 2)


def test_a_bases_mark_gives_way_to_that_of_the_class(guests):
    result, boots = guests("""
@vm(append="base", env={"WHICH": "base"})
class Base(unittest.TestCase):
    def test_it(self): self.assertEqual(os.environ["WHICH"], self.which)
    which = "base"
@vm(append="derived", env={"WHICH": "derived"})
class Derived(Base):
    which = "derived"
class Heir(Base):
    pass
""")
    result.assert_outcomes(passed=3)
    assert boots == 2


def test_failures_skips_and_subtests_are_those_of_the_guest(guests):
    result, _ = guests("""
pytestmark = vm()
class Case(unittest.TestCase):
    def test_fails(self):
        print("said before")
        self.assertEqual(1, 2)
    def test_skips(self): self.skipTest("no such memory")
    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)
@pytest.fixture
def broken(): raise RuntimeError("no fixture")
def test_error(broken): pass
""", "-rs")
    outcomes = result.parseoutcomes()
    assert outcomes == {"failed": 3, "errors": 1, "skipped": 1}
    result.stdout.fnmatch_lines_random(["*said before*", "*1 != 2*", "*no such memory*", "*n=1*",
                                        "*no fixture*", "*machine*", "*plain kernel, 4G*"])


def test_a_complaint_fails_its_test_and_the_rest_runs_in_a_new_guest(guests):
    result, boots = guests("""
pytestmark = vm()
def test_before(): pass
def test_complains(): complain()
def test_after(): pass
""", "-v")
    result.assert_outcomes(passed=2, failed=1)
    assert boots == 2
    result.stdout.fnmatch_lines_random(["*test_complains FAILED*", "*test of the detector*"])


def test_a_complaint_is_that_of_the_test_that_ran_though_reports_overtake_it(guests):
    result, _ = guests("""
pytestmark = vm()
def test_quick(): pass
def test_complains_late():
    time.sleep(0.5)
    complain()
def test_last(): pass
""", "-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*test_complains_late FAILED*"])


def test_complaints_that_are_allowed_are_none(guests):
    result, _ = guests("""
@vm(allow_complaints=True)
def test_complains(): complain()
""")
    result.assert_outcomes(passed=1)


def test_a_test_that_takes_the_guest_along_fails_and_the_rest_runs_in_a_new_one(guests):
    result, boots = guests("""
pytestmark = vm()
def test_before(): pass
def test_dies():
    complain("last words")
    os.kill(os.getpid(), signal.SIGKILL)
def test_after(): pass
""", "-v")
    result.assert_outcomes(passed=2, failed=1)
    assert boots == 2
    result.stdout.fnmatch_lines_random(["*test_dies FAILED*", "*the guest died*", "*last words*"])


def test_a_machine_that_does_not_boot_is_tried_twice_and_then_its_tests_fail(guests):
    result, boots = guests("""
pytestmark = vm()
def test_one(): pass
def test_other(): pass
""", extra="echo 'no root' >&8; exit 1")
    result.assert_outcomes(failed=2)
    assert boots == 2
    result.stdout.fnmatch_lines_random(["*the guest died*", "*no root*"])


def test_a_test_that_lasts_too_long_fails_in_the_guest_and_the_others_go_on(guests):
    result, boots = guests("""
pytestmark = vm()
@pytest.mark.timeout(1)
def test_lasts(): time.sleep(60)
def test_after(): pass
""")
    result.assert_outcomes(passed=1, failed=1)
    assert boots == 1


def test_a_guest_that_hangs_is_ended_and_its_test_fails(guests):
    result, boots = guests("""
pytestmark = [vm(), pytest.mark.timeout(1)]
def test_hangs():
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(300)
""", "--grace-seconds", "3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(["*nothing came from the guest for 5 s*"])


def test_a_module_that_cannot_be_imported_in_the_guest_fails_its_tests(guests):
    result, boots = guests("""
if os.environ.get("RAMSLICE_IN_VM"):
    raise OSError("no such device")
pytestmark = vm()
def test_one(): pass
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(["*no such device*"])


FAILS_ONCE = """
pytestmark = vm()
def test_fails_once(): assert nth("first") > 1
def test_after(): pass
"""


def test_a_failed_test_is_run_again_only_on_request(guests):
    result, boots = guests(FAILS_ONCE)
    result.assert_outcomes(passed=1, failed=1)
    assert boots == 1


def test_a_failed_test_that_passes_two_new_boots_is_unsteady(guests):
    result, boots = guests(FAILS_ONCE, "--rerun-unsteady")
    result.assert_outcomes(passed=2)
    assert boots == 3 and result.ret == 0
    result.stdout.fnmatch_lines_random(["*1 unsteady*"])


def test_a_failed_test_that_does_not_pass_twice_has_failed(guests):
    result, boots = guests("""
@vm()
def test_now_and_then(): assert nth("x") == 2
""", "--rerun-unsteady")
    result.assert_outcomes(failed=1)
    assert boots == 3


def test_more_than_four_unsteady_tests_fail_the_run(guests):
    result, _ = guests("""
pytestmark = vm()
@pytest.mark.parametrize("name", "abcde")
def test_fails_once(name): assert nth(name) > 1
""", "--rerun-unsteady")
    result.assert_outcomes(passed=5)
    assert result.ret == 1
    result.stdout.fnmatch_lines_random(["*5 unsteady*"])


@pytest.mark.parametrize("body", [
    "complain()", "os.kill(os.getpid(), signal.SIGKILL)", "raise Contents('page 3')"])
def test_what_is_no_matter_of_timing_is_never_run_again(guests, body):
    result, boots = guests(f"""
class Contents(AssertionError):
    never_rerun = True
@vm()
def test_it():
    nth("runs")
    {body}
@vm(mem="1G")
@never_rerun
def test_marked(): assert nth("marked") > 1
""", "--rerun-unsteady")
    result.assert_outcomes(failed=2)
    # One of each machine: it would fail each time.
    assert boots == 2


def test_a_test_of_the_host_is_run_again_too(guests):
    result, _ = guests("""
def test_here(): assert nth("here") > 1
""", "--rerun-unsteady")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines_random(["*1 unsteady*"])


def test_a_test_of_the_host_whose_machine_died_is_not_run_again(guests):
    result, _ = guests("""
def test_here():
    pathlib.Path(os.environ["RAMSLICE_FATAL"]).write_text("a guest died")
    assert nth("here") > 1
""", "--rerun-unsteady")
    result.assert_outcomes(failed=1)


def test_no_machine_begins_when_the_minutes_are_over_and_that_is_a_failure(guests):
    result, boots = guests("""
@vm()
def test_one(): pass
def test_here(): pass
""", "--session-minutes", "0.00001")
    result.assert_outcomes(passed=1, failed=1)
    assert boots == 0
    result.stdout.fnmatch_lines_random(
        ["*not run: the session's minutes were over*", "*1 not run*"]
    )


def test_workers_take_a_machine_each(guests):
    result, boots = guests("""
@vm(mem="1G")
class TestOne:
    def test_a(self): pass
    def test_b(self): pass
    def test_c(self): pass
@vm(mem="2G")
class TestOther:
    def test_a(self): pass
    def test_b(self): complain()
    def test_c(self): pass
def test_here(): pass
""", "-n", "2", "--dist", "loadgroup", "--rerun-unsteady", "--junitxml", "junit.xml")
    result.assert_outcomes(passed=6, failed=1)
    assert boots == 3


def test_the_first_failure_may_end_the_session(guests):
    result, boots = guests("""
pytestmark = vm()
def test_one(): assert False
def test_other(): pass
""", "-x")
    result.assert_outcomes(failed=1)
    assert boots == 1


def test_a_machines_folder_and_files_are_there_for_each_boot(guests):
    result, _ = guests("""
def fill(path): path.write_text("filled")
@vm(files={"big": "1M", "small": fill}, env={"BIG": "{folder}/big"})
def test_it():
    folder = pathlib.Path(os.environ["RAMSLICE_FOLDER"])
    assert len(str(folder)) < 60
    assert os.environ["BIG"] == str(folder / "big")
    assert (folder / "big").stat().st_size == 1 << 20
    assert (folder / "small").read_text() == "filled"
""")
    result.assert_outcomes(passed=1)


def test_an_argument_that_is_unknown_is_refused(guests):
    result, _ = guests("""
@vm(memory="1G")
def test_it(): pass
""")
    result.stdout.fnmatch_lines_random(["*@vm has no memory*"])


def test_what_took_longest_begins_first(guests, monkeypatch):
    text = """
@vm(mem="1G")
def test_brief(): pass
def test_host(): pass
@vm(mem="2G")
class TestLong:
    def test_a(self): pass
    def test_b(self): pass
"""
    result, _ = guests(text, "-v")
    order = [line.split()[0].rpartition("::")[2] for line in result.outlines if "PASSED" in line]
    assert order == ["test_a", "test_b", "test_brief", "test_host"]
    name = "test_what_took_longest_begins_first.py::test_host"
    monkeypatch.setenv("RAMLAB_TEST_SECONDS", json.dumps(
        {name: 9, Machine(mem="1G").key(): 5, Machine(mem="2G").key(): 3}))
    result, _ = guests(text, "-v")
    order = [line.split()[0].rpartition("::")[2] for line in result.outlines if "PASSED" in line]
    assert order == ["test_host", "test_brief", "test_a", "test_b"]


def test_a_boot_is_a_part_of_the_setup_of_the_first_test(guests):
    result, _ = guests("""
pytestmark = vm()
def test_one(): pass
def test_other(): pass
""", "--durations=1", extra="sleep 2")
    result.stdout.re_match_lines([r"[2-9].*s setup +.*::test_one"])


def test_the_last_failures_are_run_alone(guests):
    text = """
@vm(mem="1G")
class TestOne:
    def test_passes(self): pass
    def test_fails(self): assert False
@vm(mem="2G")
def test_other(): pass
"""
    guests(text, "-p", "cacheprovider")
    result, boots = guests(text, "-p", "cacheprovider", "--lf")
    result.assert_outcomes(failed=1, deselected=2)
    # Two boots before, and one for the failure
    assert boots == 3


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_interruption_ends_the_guests_and_names_what_had_failed(guests, pytester, workers):
    text = """
@vm(mem="1G")
class TestOne:
    def test_fails(self): assert False
    def test_hangs(self):
        pathlib.Path("{folder}/hangs").write_text(str(os.getpid()))
        time.sleep(600)
""".replace("{folder}", str(pytester.path))
    guests.prepare(text)
    options = ["-n", workers, "--dist", "loadgroup"] if workers != "0" else []
    # Of a shell's background jobs, SIGINT is ignored, and so of their children.
    line = ["env", "--default-signal=INT", sys.executable, "-m", "pytest"]
    process = subprocess.Popen(
        [*line, *guests.options, *options], cwd=pytester.path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    hangs = pytester.path / "hangs"
    try:
        assert until(lambda: hangs.exists() and hangs.read_text())
        # As a terminal does: to all of them
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "test_fails" in output and "1 failed" in output
    guest = Path(f"/proc/{hangs.read_text()}")
    assert until(lambda: not guest.exists()), "the guest is still there"
