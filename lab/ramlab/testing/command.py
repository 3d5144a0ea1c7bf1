# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs pytest on the lab's tests: ramlab test [PYTEST-OPTION...] [TEST...]

Tests are named from here or from the folder lab: ramlab test -k power -m "not slow". Guest tests
boot what they need, two machines at a time; -n 1 is one at a time. ramlab test --help shows
pytest's options.
"""

import compileall
import os
import sys
from pathlib import Path

from ramlab.common import ROOT

LAB = ROOT / "lab"


def _from_lab(word):
    """A test that is named from where the caller is, as the tests' folder names it."""
    path, colons, rest = word.partition("::")
    if word.startswith("-") or not path or (LAB / path).exists() or not Path(path).exists():
        return word
    return os.path.relpath(path, LAB) + colons + rest


def _write_bytecode():
    """Has guests find the lab as bytecode; emulated, compiling it takes seconds at each boot.

    pytest writes that of the tests themselves, when it collects them on the host.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A checkout that cannot be written to is slower, and no error
    compileall.compile_dir(LAB / "ramlab", quiet=2)


def main():
    words = [_from_lab(word) for word in sys.argv[1:]]
    _write_bytecode()
    os.environ["PYTHONPATH"] = str(LAB)
    # Cargo and what it builds, as for all of the lab.
    text = 'source lab/env && cd lab && exec "$@"'
    # Named, because pytest takes the value of an option that it does not know yet for a test
    settings = ["-c", LAB / "pyproject.toml", "--rootdir", LAB]
    line = ["bash", "-c", text, "ramlab", sys.executable, "-m", "pytest", *settings, *words]
    os.chdir(ROOT)
    os.execvp(line[0], [str(word) for word in line])


if __name__ == "__main__":
    main()
