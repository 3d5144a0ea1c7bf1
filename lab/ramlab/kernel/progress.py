# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a build with one line of progress: share done, time gone, time left."""

import os
import re
import subprocess
import sys
import time

STEP = re.compile(r"^\s+(CC|AS|LD|AR|CC \[M\]|LD \[M\]|HOSTCC|HOSTLD|LDS|GEN|OBJCOPY|DESCEND|"
                  r"INSTALL)\b")
ERROR = re.compile(r"error|undefined reference|No rule to make|\*\*\*|Error \d", re.I)


def minutes(seconds):
    """Seconds as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def build(argv, label, log, expected, env):
    """Runs argv with its output in the file log; returns (steps done, seconds).

    expected is the number of steps to do, by the last such build; beyond it, nothing is said of
    what is left. Exits with the errors when the build fails.
    """
    start = last = time.monotonic()
    steps, tty = 0, sys.stdout.isatty()
    process = subprocess.Popen(
        [str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", env=os.environ | env,
    )
    with open(log, "w") as out, process:
        try:
            for line in process.stdout:
                out.write(line)
                steps += bool(STEP.match(line))
                now = time.monotonic()
                if now - last < (0.5 if tty else 15):
                    continue
                last, gone = now, now - start
                text = f"{label}: {steps} steps, {minutes(gone)} gone"
                share = steps / max(expected, 1)
                if 0.02 < share < 1:
                    text += f", {share:.0%}, about {minutes(gone / share - gone)} left"
                print(f"\r\033[K{text}" if tty else text, end="" if tty else "\n", flush=True)
        except BaseException:
            # The build ends with this program.
            process.terminate()
            process.wait()
            raise
        status = process.wait()
    gone = time.monotonic() - start
    if tty:
        print("\r\033[K", end="")
    if status:
        _fail(label, log)
    print(f"{label}: done, {steps} steps in {minutes(gone)}", flush=True)
    return steps, gone


def _fail(label, log):
    """Shows what went wrong, then where to read the rest."""
    with open(log) as stream:
        lines = stream.read().splitlines()
    shown = [line for line in lines if ERROR.search(line)][-30:] or lines[-30:]
    print("\n".join(shown), file=sys.stderr)
    print(f"{label} failed; the whole log is {log}", file=sys.stderr)
    sys.exit(1)
