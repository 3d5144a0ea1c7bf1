#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs benchmark suites in virtual machines and compares with the targets.

Usage: ramlab bench [SUITE...] [--only PART...] [--quick] [--jobs N] [--seed N] [--resume]
       ramlab bench --list | --check [SUITE...]
       ramlab bench --entry NAME

Without a suite, all of them run. Each writes out/bench/SUITE.json; runs that are not --quick keep
their figures in results/bench-SUITE.json, too. With --resume, boots that ended well before an
interruption are not repeated, unless the kernel, our programs or scripts have changed since.

--check prints every kept figure that misses its target or is stale. Its status is 0 if there is
none; 1 if one is stale, unmeasured, or missed without a cause that a kept measurement backs; 3 if
only explained misses remain.

--entry prints one figure with the command that repeats it, and what it depends on: which of that
has changed since.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import textwrap

from ramlab import provenance
from ramlab.bench import (
    cold,
    energy,
    entries,
    giveback,
    governor,
    huge,
    machines,
    placement,
    provenance_page,
    sizes,
    slices,
)
from ramlab.common import OUT, RAMLAB, die, locked

SUITES = {"slices": slices, "energy": energy, "governor": governor, "placement": placement,
          "giveback": giveback, "cold": cold, "size": sizes, "huge": huge}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--list", action="store_true", help="list suites and their parts")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare what was measured with the targets; run nothing",
    )
    parser.add_argument(
        "--entry", metavar="NAME", help="show one figure: its command, and what it depends on"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="a part of a suite; repeat"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few samples, to see that it works: proves nothing"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="machines at a time (those that count instructions)",
    )
    parser.add_argument("--seed", type=int, help="of the random order, and of what is drawn")
    parser.add_argument(
        "--resume", action="store_true", help="go on where the last run of these parts stopped"
    )
    args = parser.parse_args()
    for name in args.suites:
        if name not in SUITES:
            parser.error(f"no suite {name}: there is {', '.join(SUITES)}")
    return args


def _first_sentence(label, text):
    """The text up to its first full stop or blank line, wrapped behind a label."""
    sentence = re.split(r"(?<=\.)\s|\n\s*\n", text.strip(), maxsplit=1)[0]
    return textwrap.fill(label + " ".join(sentence.split()), 100,
                         subsequent_indent=" " * len(label))


def with_parts(suites, args):
    """The suites that have the parts that --only names; each of those that were named has all."""
    for name in args.suites:
        if unknown := set(args.only) - set(SUITES[name].PARTS):
            die(f"suite {name} has no part {', '.join(sorted(unknown))}", 2)
    if unknown := set(args.only) - {part for name in suites for part in SUITES[name].PARTS}:
        die(f"no suite has a part {', '.join(sorted(unknown))}", 2)
    return [name for name in suites if not args.only or set(args.only) & set(SUITES[name].PARTS)]


def main():
    # A reader that takes only the beginning (head) causes no traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # The guests end with this program.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    args = arguments()
    # One image cannot be two kernels.
    os.environ.pop("RAMSLICE_IMAGE", None)
    chosen = with_parts(args.suites or list(SUITES), args)
    if args.list:
        for name in chosen:
            print(_first_sentence(f"{name}: ", SUITES[name].__doc__))
            for part, function in SUITES[name].PARTS.items():
                print(_first_sentence(f"  {part:<10} ", function.__doc__))
        return 0
    if args.entry:
        print(provenance_page.describe(args.entry))
        return 0
    if not args.check:
        for name in chosen:
            subprocess.run([RAMLAB, "guest-programs"], check=True, stdout=subprocess.DEVNULL)
            for part in [one for one in args.only or SUITES[name].PARTS
                         if one in SUITES[name].PARTS]:
                command = f"ramlab bench {name} --only {part}" + (" --quick" if args.quick else "")
                # A part begins by removing what its last run left behind
                with locked(f"bench-{name}-{part}"):
                    used = provenance.Used(sys.modules[SUITES[name].PARTS[part].__module__])
                    settings = argparse.Namespace(
                        **vars(args) | {"seed": machines.seed_of(name, part, args), "used": used})
                    new, images = SUITES[name].PARTS[part](settings)
                with locked("bench"):
                    entries.store(name, new, images, used, command, settings.seed,
                                  keep=not args.quick)
            print(f"figures: {entries.path(name).relative_to(OUT.parent)}\n")
    status = entries.check(chosen)
    return status if args.check else 0


if __name__ == "__main__":
    sys.exit(main())
