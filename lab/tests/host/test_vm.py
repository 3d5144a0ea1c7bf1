# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `ramlab vm`: statuses, arguments, shared folders, time limits, complaints of the
kernel.
"""

import contextlib
import os
import signal
import types

import pytest

from ramlab.common import CACHE, LOCK, own_folder, stream_vm
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


class Gone:
    """An output whose reader has left."""

    def write(self, _):
        raise BrokenPipeError

    def flush(self):
        raise AssertionError("nothing was written")


def test_a_machine_ends_when_no_process_reads_what_it_says(monkeypatch, tmp_path):
    monkeypatch.setattr(boot.sys, "stdout", types.SimpleNamespace(buffer=Gone()))
    line = ["sh", "-c", f"echo $$ >{tmp_path}/pid; echo said; exec sleep 600"]
    with pytest.raises(BrokenPipeError), open(tmp_path / "console", "wb") as console:
        boot.stream(line, console, None)
    pid = int((tmp_path / "pid").read_text())
    # It is a child of ours that was not waited for
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)


def test_an_error_in_storing_a_result_is_no_line_of_output(capsys):
    def store(found):
        raise ValueError(f"no room for {found}")

    with pytest.raises(ValueError, match="no room"):
        stream_vm(["echo", '{"figure": 1}'], store)
    found = []
    assert stream_vm(["printf", r'{"figure": 1}\n{cut off\nsaid\n'], found.append) == 0
    assert found == [{"figure": 1}]
    assert capsys.readouterr().out == "{cut off\nsaid\n"


def test_what_a_killed_run_left_is_removed_and_what_is_in_use_stays(tmp_path):
    left, new = tmp_path / "vm-left", tmp_path / "vm-new"
    for folder in (left, new, tmp_path / "other"):
        folder.mkdir()
        (folder / LOCK).write_text("")
    os.utime(left / LOCK, (0, 0))
    os.utime(tmp_path / "other" / LOCK, (0, 0))
    with contextlib.ExitStack() as one, contextlib.ExitStack() as two:
        first = own_folder("vm-", tmp_path, one)
        os.utime(first / LOCK, (0, 0))
        second = own_folder("vm-", tmp_path, two)
        assert {first, second, new, tmp_path / "other"} == set(tmp_path.iterdir())
    assert {new, tmp_path / "other"} == set(tmp_path.iterdir())
