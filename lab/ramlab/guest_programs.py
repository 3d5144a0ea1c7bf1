# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles the C programs that guests run, of lab/guest, into the cache, and prints their folder.

Usage: ramlab guest-programs
"""

import argparse
import os

from ramlab.common import CACHE, ROOT, run

FOLDER = CACHE / "guest"
FLAGS = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
         "-I", ROOT / "kernel/files/include/uapi"]


def build():
    """All programs; returns the folder that holds them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for source in sorted((ROOT / "lab/guest").glob("*.c")):
        program = FOLDER / source.stem
        # Another checkout may be using it: it appears at once or not at all.
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        run(["gcc", *FLAGS, "-o", fresh, source, "-lm"])
        fresh.rename(program)
    return FOLDER


def main():
    argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(build())


if __name__ == "__main__":
    main()
