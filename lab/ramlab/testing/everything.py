# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs all tests: builds kernels and programs, checks style, tests the crates, then runs pytest.

Usage: ramlab test-all [--minutes N] [--rerun-unsteady] [PYTEST-OPTION...]

Without a kernel or programs the run ends; every other step runs whatever became of those before it.
The run ends with a table and fails if a step failed. --minutes is for the whole run: after that
time no virtual machine starts, and what did not run has failed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from ramlab.common import CACHE, RAMLAB, ROOT

# The flavours that tests boot; those of slow tests are built when they are asked for.
KERNELS = ("plain", "research", "debug")
# Where the step "programs" builds: not again in each worker.
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", CACHE / "target")) / "release"

# The same generated inputs each time, so that what fails, fails again. By hand, each run draws its
# own.
CRATES = "export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}; run_nextest --locked --workspace"


def shell(text):
    """A command of the shell with the lab's environment: tool chain and cache."""
    return ["bash", "-c", f"source lab/env && {text}"]


def steps(options, left_minutes):
    """(name, command, whether all else needs it) of each step; left_minutes() when it is asked."""
    yield "kernels", [RAMLAB, "kernel", *KERNELS], True
    yield "programs", shell("build_programs"), True
    yield "style", [RAMLAB, "check"], False
    yield "crates", shell(CRATES), False
    words = ["-m", "not slow", "--programs", PROGRAMS, "--junitxml", ROOT / "out/tests.xml",
             *options.pytest]
    if options.rerun_unsteady:
        words.append("--rerun-unsteady")
    if options.minutes:
        words += ["--session-minutes", f"{left_minutes():.1f}"]
    yield "lab", [RAMLAB, "test", *words], False


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, metavar="N", help="no machine starts after that")
    parser.add_argument("--rerun-unsteady", action="store_true",
                        help="a failed guest test boots again and must pass twice")
    options, options.pytest = parser.parse_known_args()
    began, table, failed = time.monotonic(), [], False
    (ROOT / "out").mkdir(exist_ok=True)

    def left_minutes():
        return max(options.minutes - (time.monotonic() - began) / 60, 0.1)

    for name, command, needed in steps(options, left_minutes):
        print(f"\n=== {name}", flush=True)
        at = time.monotonic()
        status = subprocess.run([str(word) for word in command], cwd=ROOT).returncode
        if status in (-2, 130):
            return 130
        table.append((name, "FAILED" if status else "passed", time.monotonic() - at))
        failed |= bool(status)
        if status and needed:
            print(f"the steps after {name} were not run: they need what it builds")
            break
    table.append(("all", "FAILED" if failed else "passed", time.monotonic() - began))
    print()
    for name, result, seconds in table:
        print(f"{name:<10} {result}  {int(seconds // 60):3d}:{int(seconds % 60):02d}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
