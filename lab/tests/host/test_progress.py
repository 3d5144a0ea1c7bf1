# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds without a terminal: they say how far they are, also while nothing is printed."""

import os
import re
import subprocess

import pytest

from ramlab import progress
from ramlab.common import ROOT

CARGO = """#!/bin/sh
echo "   Compiling a v1.0.0
   Compiling b v1.0.0
warning: unused
        PASS [   0.004s] (1/1) a tests::b" >&2
sleep "${SILENT:-0}"
echo out
exit 3
"""


@pytest.fixture(name="cargo")
def fake_cargo(tmp_path):
    path = tmp_path / "bin/cargo"
    path.parent.mkdir()
    path.write_text(CARGO)
    path.chmod(0o755)
    return path


def test_a_command_of_cargo_says_how_far_it_is_while_it_is_silent(cargo, monkeypatch, capfd):
    monkeypatch.setattr(progress, "EVERY_S", 0.2)
    monkeypatch.setenv("SILENT", "1")
    assert progress.watch("programs", [cargo]) == 3
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "out\n" and lines.count("warning: unused") == 1
    said = [line for line in lines if line.startswith("programs: ")]
    assert len(said) >= 2 and len(said) == len(lines) - 1
    assert re.fullmatch(r"programs: 2 crates, 1 tests, 0:0\d gone", said[-1])


def test_a_kernel_says_how_far_it_is_while_it_is_silent(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(progress, "EVERY_S", 0.2)
    build = ["sh", "-c", "echo '  CC a.o'; sleep 1"]
    assert progress.build(build, "kernel x", tmp_path / "log", 4, {})[0] == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("kernel x: 1 steps, 0:00 gone, 25%, about 0:0")
    assert lines[-1].startswith("kernel x: done, 1 steps in 0:0")


def test_the_lab_builds_its_programs_with_progress(cargo, tmp_path):
    (tmp_path / "checkout").write_text(f"{ROOT}\n")
    where = {"CARGO_HOME": str(tmp_path), "CARGO_TARGET_DIR": str(tmp_path)}
    done = subprocess.run(["bash", "-c", "source lab/env && build_programs"],
                          cwd=ROOT, env=os.environ | where, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.stderr.splitlines()[1:] == ["warning: unused"]
