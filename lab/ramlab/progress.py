# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a build with progress: on a terminal a line that changes, elsewhere a line now and then.

Usage: python3 -m ramlab.progress LABEL COMMAND...

For a command of Cargo: lines of crates and of tests that passed are counted, all others shown.
"""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time

STEP = re.compile(r"^\s+(CC|AS|LD|AR|CC \[M\]|LD \[M\]|HOSTCC|HOSTLD|LDS|GEN|OBJCOPY|DESCEND|"
                  r"INSTALL)\b")
ERROR = re.compile(r"error|undefined reference|No rule to make|\*\*\*|Error \d", re.I)
COUNTED = {"crates": re.compile(r"\s+(Compiling|Checking)\b"), "tests": re.compile(r"\s+PASS \[")}
# Between two lines, where there is no terminal
EVERY_S = 15


def minutes(seconds):
    """Seconds as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class ProgressLine:
    """Shows what text(seconds) says, from a thread: also while the build prints nothing."""

    def __init__(self, text, stream):
        self.text, self.stream, self.tty = text, stream, stream.isatty()
        self.start, self.over = time.monotonic(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def gone(self):
        return time.monotonic() - self.start

    def _run(self):
        while not self.over.wait(0.5 if self.tty else EVERY_S):
            text = self.text(self.gone())
            print(f"\r\033[K{text}" if self.tty else text, end="" if self.tty else "\n",
                  file=self.stream, flush=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.tty:
            print("\r\033[K", end="", file=self.stream, flush=True)


@contextlib.contextmanager
def _started(argv, **options):
    """A process that ends with this program."""
    words = [str(word) for word in argv]
    with subprocess.Popen(words, text=True, errors="replace", **options) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            process.wait()
            raise


def build(argv, label, log, expected, env):
    """Runs argv with its output in the file log; returns (steps done, seconds).

    expected is the number of steps to do, by the last such build; beyond it, nothing is said of
    what is left. Exits with the errors when the build fails.
    """
    steps = 0

    def text(gone):
        said = f"{label}: {steps} steps, {minutes(gone)} gone"
        share = steps / max(expected, 1)
        if 0.02 < share < 1:
            said += f", {share:.0%}, about {minutes(gone / share - gone)} left"
        return said

    started = _started(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | env)
    with open(log, "w") as out, started as process, ProgressLine(text, sys.stdout) as progress:
        for line in process.stdout:
            out.write(line)
            steps += bool(STEP.match(line))
        status = process.wait()
    gone = progress.gone()
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


def watch(label, argv):
    """Runs a command of Cargo; returns its status, as a shell has it."""
    counts = dict.fromkeys(COUNTED, 0)

    def text(gone):
        done = [f"{number} {what}" for what, number in counts.items() if number]
        return f"{label}: {', '.join([*done, f'{minutes(gone)} gone'])}"

    with _started(argv, stderr=subprocess.PIPE) as process, ProgressLine(text, sys.stderr):
        for line in process.stderr:
            what = next((what for what, form in COUNTED.items() if form.match(line)), None)
            if what:
                counts[what] += 1
            else:
                print(line, end="", file=sys.stderr, flush=True)
        status = process.wait()
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    try:
        sys.exit(watch(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
