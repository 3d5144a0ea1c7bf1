#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts the names of Rust types and finds names that are defined more than twice.

Usage: lab/check_type_names.py [--list] [PATH...]

A type is a struct, enum, union, trait or type alias in a .rs file that git tracks. Associated types
(`type Item = ...` inside an impl or a trait) repeat the name that their trait gives, and do not
count. The exit status is 1 if a name is defined a third time.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_DEFINITIONS = 2

DEFINITION = re.compile(
    r"^(?P<indent>\s*)(?:pub(?:\([^)]*\))? +)?(?:unsafe +)?"
    r"(?P<kind>struct|enum|union|trait|type) +(?P<name>[A-Z]\w*)")
# The words of a name in camel case: `CxlMemory` has two, `UAPI` and `Pages3` one.
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")
# An associated type: the line that opens its block is an impl or a trait.
BLOCK = re.compile(r"^\s*(?:pub(?:\([^)]*\))? +)?(?:unsafe +)?(?:impl|trait)\b")


def definitions(text):
    """Line number and name of each type that a file defines."""
    openings = []
    for number, line in enumerate(text.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        while openings and line.strip() and indent <= openings[-1]:
            openings.pop()
        found = DEFINITION.match(line)
        if found and not (found["kind"] == "type" and openings):
            yield number, found["name"]
        if BLOCK.match(line) and line.strip() != "}":
            openings.append(indent)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every one-word name, too")
    parser.add_argument("paths", nargs="*", default=["crates"], help="folders, default: crates")
    args = parser.parse_args()

    files = subprocess.run(["git", "ls-files", "-z", "--", *args.paths], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\0")
    places = defaultdict(list)
    shares = defaultdict(lambda: [0, 0])
    for file in files:
        if not file.endswith(".rs") or not (ROOT / file).is_file():
            continue
        for number, name in definitions((ROOT / file).read_text()):
            places[name].append(f"{file}:{number}")
            share = shares["/".join(file.split("/")[:2])]
            share[0] += len(WORD.findall(name)) == 1
            share[1] += 1

    for folder, (short, total) in sorted(shares.items()):
        print(f"{folder:24} {short:4} of {total:4} type names are one word ({short / total:.0%})")
    short, total = (sum(share[i] for share in shares.values()) for i in (0, 1))
    if total:
        print(f"{'all':24} {short:4} of {total:4} type names are one word ({short / total:.0%})")
    print(f"{sum(len(where) == 2 for where in places.values())} names are defined twice")
    if args.list:
        for name, where in sorted(places.items()):
            if len(WORD.findall(name)) == 1:
                print(f"{name}: {', '.join(where)}")

    repeated = {name: where for name, where in places.items() if len(where) > MAX_DEFINITIONS}
    for name, where in sorted(repeated.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{name} is defined {len(where)} times; give each a name of two or three words that "
              f"says what it holds:", *where, sep="\n  ")
    return 1 if repeated else 0


if __name__ == "__main__":
    sys.exit(main())
