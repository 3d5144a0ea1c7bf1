# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles the C programs that guests run, of lab/guest, into the cache, and prints their folder.

The plugins of QEMU that count what native guests do go there, too, and what libcold makes for them
into its folder libcold.

Usage: ramlab guest-programs [--arch arm64]
"""

import argparse
import os

from ramlab import emulator_plugins
from ramlab.architectures import ARCHITECTURES, NATIVE
from ramlab.common import CACHE, ROOT, run

FLAGS = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
         "-I", ROOT / "kernel/files/include/uapi"]
# What counts instructions by x86-64's time stamp counter; no benchmark runs anywhere else.
NATIVE_ONLY = ('#include "ticks.h"', '#include "access_marker.h"', '#include "value_map.h"')


def folder(arch=NATIVE):
    """Where the programs are, on the host and in guests."""
    return CACHE / arch.prefixed("guest")


def build(arch=NATIVE):
    """All programs; returns the folder that holds them."""
    folder(arch).mkdir(parents=True, exist_ok=True)
    for source in sorted((ROOT / "lab/guest").glob("*.c")):
        text = source.read_text()
        if not arch.is_native and any(header in text for header in NATIVE_ONLY):
            continue
        program = folder(arch) / source.stem
        # Another checkout may be using it: it appears at once or not at all.
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        run([f"{arch.compiler}gcc", *FLAGS, "-o", fresh, source, "-lm"])
        fresh.rename(program)
    if arch.is_native:
        for name in emulator_plugins.NAMES:
            emulator_plugins.build(name)
        build_cold_library()
    return folder(arch)


def build_cold_library():
    """libramslice-cold, with its test and example, each of which appears at once as well."""
    made = folder() / "libcold"
    fresh = made.with_name(f"{made.name}.{os.getpid()}")
    run(["make", "--silent", "-C", ROOT / "libcold", f"BUILD={fresh}"])
    made.mkdir(exist_ok=True)
    for path in fresh.iterdir():
        path.replace(made / path.name)
    fresh.rmdir()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHITECTURES, default=NATIVE.name)
    print(build(ARCHITECTURES[parser.parse_args().arch]))


if __name__ == "__main__":
    main()
