# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `ramlab vm`: statuses, arguments, shared folders, time limits, complaints of the
kernel.
"""

import pytest

from ramlab.common import CACHE
from ramlab.testing.vm_command import run_vm
from ramlab.vm import boot

WARNING = 'echo "<4>WARNING: test of the detector" > /dev/kmsg'


@pytest.mark.parametrize("kernel", ["plain", pytest.param("debug", marks=pytest.mark.slow)])
def test_a_kernel_boots_our_release_with_our_arguments(kernel):
    ran = run_vm(
        "--kernel", kernel, "--append", f"marker={kernel}", "--", "uname -r; cat /proc/cmdline"
    )
    assert (ran.status, ran.output[:5]) == (0, "6.12."), ran.output
    assert f"marker={kernel}" in ran.output.split()


def test_arguments_arrive_unchanged():
    ran = run_vm("--", "printf", "<%s>", "a b", "c'd")
    assert (ran.status, ran.output.strip()) == (0, "<a b><c'd>")


def test_a_commands_status_and_its_files_reach_the_host(tmp_path):
    ran = run_vm("--rw", tmp_path, "--", f"echo here > {tmp_path}/file; exit 42")
    assert ran.status == 42, ran.output
    assert (tmp_path / "file").read_text() == "here\n"


def test_a_time_limit_ends_the_machine():
    ran = run_vm("--timeout", 5, "--", "sleep 6000")
    assert ran.status == 124
    assert "time limit" in ran.output


def test_a_warning_of_the_kernel_is_a_failure():
    ran = run_vm("--", WARNING)
    assert ran.status == 3
    assert "WARNING: test of the detector" in ran.output


def test_a_warning_that_is_allowed_is_shown():
    ran = run_vm("--allow-splats", "--", WARNING)
    assert ran.status == 0
    assert "WARNING: test of the detector" in ran.output


def test_a_crash_ends_the_machine_at_once_and_is_shown():
    ran = run_vm("--", "echo c > /proc/sysrq-trigger")
    assert ran.status == 3
    assert "sysrq triggered crash" in ran.output


def test_a_machine_that_ends_silently_is_noticed():
    ran = run_vm("--", "echo o > /proc/sysrq-trigger; sleep infinity")
    assert ran.status == 4
    assert "without a status" in ran.output


def test_an_interactive_shell_finds_modules_and_the_cache(monkeypatch, tmp_path):
    # The shell itself wants a terminal; what it inherits is on the kernel's command line.
    monkeypatch.setattr("sys.argv", ["ramlab vm", "--interactive"])
    kernel = tmp_path / "kernel"
    words = [str(word) for word in boot.virtme(boot.arguments(), tmp_path, kernel)]
    given = [words[at + 1] for at, word in enumerate(words) if word == "--kopt"]
    for setting in (f"MODPROBE_OPTIONS=-d{kernel}", f"RAMSLICE_CACHE={CACHE}"):
        assert setting in given


@pytest.fixture
def breaking(monkeypatch, tmp_path):
    """Runs the command in a machine that breaks so many times; returns the status."""
    def run(times):
        statuses = iter([boot.EmulatorBroke("no timer")] * times)

        def run_guest(*_):
            for broken in statuses:
                raise broken
            return 0

        monkeypatch.setattr(boot.sys, "argv", ["vm", "true"])
        monkeypatch.setattr(boot, "CACHE", tmp_path)
        monkeypatch.setattr(boot, "image", lambda *_: tmp_path)
        monkeypatch.setattr(boot, "run_guest", run_guest)
        with pytest.raises(SystemExit) as ended:
            boot.main()
        return ended.value.code
    return run


def test_a_machine_that_breaks_once_is_started_again(breaking, capsys):
    assert breaking(1) == 0
    assert "broke, starting it again: no timer" in capsys.readouterr().err


def test_a_machine_that_always_breaks_is_given_up(breaking, capsys):
    assert breaking(boot.ATTEMPTS) == 4
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith(f"broke, giving up after {boot.ATTEMPTS} attempts: no timer")
