#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the kernel's checkpatch.pl --strict on the overlay and the patches, or on the patches named.

Usage: ramlab checkpatch [--base 7.3] [PATCH...]
  --base  what is of another kernel source than the first, by its checkpatch.pl

Fails on every complaint that kernel/checkpatch-exceptions does not name, and, without arguments, on
exceptions that nothing needs any more and on what scripts/kernel-doc has to say of comments.
"""

import argparse
import contextlib
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ramlab.common import ROOT, die, locked
from ramlab.kernel.bases import FIRST, named_base
from ramlab.kernel.source import Source, overlay

EXCEPTIONS = ROOT / "kernel/checkpatch-exceptions"
SERIES_ONLY = {"FILE_PATH_CHANGES"}  # only patches that add files bring these


def exceptions():
    """The list as [(type, file pattern, line pattern)]."""
    found = []
    for line in EXCEPTIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            # A regular expression may hold a bar, but not one between spaces.
            fields = [field.strip() for field in line.split(" | ")]
            if len(fields) != 4 or not all(fields):
                die(f"{EXCEPTIONS.name}: not TYPE | FILE | LINE | REASON: {line}")
            found.append((fields[0], fields[1], re.compile(fields[2])))
    return found


def complaints(source, options, names):
    """What checkpatch says, as [(file given, line number, level, type, message)]."""
    tree = source.pristine
    with tempfile.TemporaryDirectory(prefix="ramslice-checkpatch-") as scratch:
        # Names relative to the overlay are names in the kernel tree, which some checks go by.
        # Not run in the overlay itself, because checkpatch leaves a file behind where it runs.
        for entry in source.overlay_root.iterdir():
            os.symlink(entry, Path(scratch) / entry.name)
        done = subprocess.run(
            [tree / "scripts/checkpatch.pl", f"--root={tree}", "--strict", "--terse",
             "--show-types", "--no-summary", "--quiet", "--color=never", *options, "--", *names],
            cwd=scratch, env=os.environ | {"GIT_DIR": "/nonexistent", "LC_ALL": "C.UTF-8"},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
    lines = done.stdout.splitlines()
    parsed = [re.fullmatch(r"(.+?):(\d+): (ERROR|WARNING|CHECK):(\w+): (.*)", line)
              for line in lines]
    if None in parsed or bool(done.returncode) != bool(lines):
        die(f"checkpatch.pl failed with status {done.returncode}:\n{done.stdout.rstrip()}")
    return [(m[1], int(m[2]), m[3], m[4], m[5]) for m in parsed]


def wrong_comments(source):
    """Lines about comments that are for kernel-doc: a parameter that is not described, say."""
    names = [name for name in overlay() if str(name).endswith((".c", ".h"))]
    done = subprocess.run([source.pristine / "scripts/kernel-doc", "-none", *names],
                          cwd=source.overlay_root, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    failed = [f"kernel-doc failed with status {done.returncode}"] if done.returncode else []
    return done.stdout.splitlines() or failed


def place(source, name, number, is_patch):
    """The file of the kernel tree and the text of a line that checkpatch complains about."""
    lines = (source.overlay_root / name).read_text().splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    if not is_patch:
        return name, text
    for line in reversed(lines[:number]):
        if match := re.match(r"diff --git a/(\S+)", line):
            return match[1], text.removeprefix("+")
    return "(commit message)", text


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=FIRST.name, metavar="RELEASE")
    parser.add_argument("patches", nargs="*", metavar="PATCH", type=Path)
    args = parser.parse_args()
    source = Source(named_base(args.base))
    if not source.pristine.exists():
        with contextlib.redirect_stdout(sys.stderr), locked("kernel"):
            source.extract()

    jobs = [([], [p.resolve() for p in args.patches or source.series()])]
    if not args.patches:
        jobs.append((["--file"], overlay()))
    known = exceptions()
    used, new = set(), 0
    for options, names in jobs:
        found = complaints(source, options, names) if names else []
        for name, number, level, kind, message in found:
            file, text = place(source, name, number, not options)
            matching = {exception for exception in known
                        if exception[0] == kind and fnmatch.fnmatch(file, exception[1]) and
                        exception[2].search(text)}
            used |= matching
            if not matching:
                new += 1
                print(f"{name}:{number}: {level}:{kind}: {message}\n    {file}: {text.strip()}")
    if not args.patches:
        for kind, file, pattern in sorted(set(known) - used, key=lambda e: e[:2]):
            if kind not in SERIES_ONLY:
                new += 1
                print(f"{EXCEPTIONS.name}: nothing needs this any more: "
                      f"{kind} | {file} | {pattern.pattern}")
    if not args.patches and (lines := wrong_comments(source)):
        print("\n".join(lines))
        die(f"{len(lines)} complaints of kernel-doc")
    if new:
        die(f"{new} complaints that kernel/{EXCEPTIONS.name} does not name")


if __name__ == "__main__":
    main()
