# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs `ramlab vm` for tests of the host whose machines do not survive the test."""

import dataclasses
import json
import re
import subprocess

from ramlab.common import RAMLAB, ROOT


@dataclasses.dataclass
class Ran:
    """How `ramlab vm` ended: its status, what it printed, the kernel's console."""

    status: int
    output: str
    console: str = ""
    report: dict = None  # the hole puncher's, with --holes

    def found(self, pattern):
        """What the pattern's group is in the output, or None."""
        match = re.search(pattern, self.output, re.M)
        return match and match[1]


def run_vm(*words, folder=None, holes=False):
    """Runs `ramlab vm`; with a folder, the console and the hole puncher's report are kept there."""
    line = [RAMLAB, "vm", "--quiet"]
    if folder:
        line += ["--console", folder / "console"]
    if holes:
        line += ["--holes", folder / "report"]
    done = subprocess.run([*line, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    ran = Ran(done.returncode, done.stdout)
    if folder and (folder / "console").exists():
        ran.console = (folder / "console").read_text(errors="replace").replace("\r", "")
    if holes and (folder / "report").exists():
        ran.report = json.loads((folder / "report").read_text())
    return ran


def in_order(text, *patterns):
    """The first pattern that no line matches after the lines of those before it, or None."""
    lines = iter(text.splitlines())
    for pattern in patterns:
        if not any(re.search(pattern, line) for line in lines):
            return pattern
    return None
