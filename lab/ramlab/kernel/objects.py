# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares the code of two builds of the kernel object by object: is the patched source without
CONFIG_RAMSLICE the unpatched kernel?

Two objects have the same code if their disassemblies with relocations are equal, line numbers
aside: a patch that adds a line moves all that follow. They are operands of calls that warn, and
parts of the names of initcalls.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ramlab.common import locked
from ramlab.kernel import build
from ramlab.kernel.source import Source

# What links others together, and programs that run while the kernel is built
NOT_CODE = re.compile(r"(^|/)(vmlinux\.o|\.tmp_\S*|\S*\.mod\.o|built-in\.a)$|^(scripts|tools|usr)/")
# A file's name, and where a section begins
HEADER = re.compile(r"^\S+:\s+file format.*$", re.M)
# Immediate operands, and counter and line in the name of an initcall
NUMBER = re.compile(r"\$0x([0-9a-f]+)")
INITCALL = re.compile(r"(?<=__)\d+_\d+_(?=\w)")
# The first line that moves, of any file, is not above this one, and none by more than so much
FIRST_LINE, LAST_LINE, MOST_ADDED = 10, 20000, 300


def tree_of(flavour):
    """The directory of a flavour's objects, up to date: those of an image that the cache has may
    have been built over since.
    """
    source = Source()
    with locked("kernel"):
        build.compile_objects(source, flavour)
    return build.objects_of(source, flavour)


def objects_of(tree):
    """Paths of its objects, relative."""
    return {str(path.relative_to(tree)) for path in tree.rglob("*.o")
            if not NOT_CODE.search(str(path.relative_to(tree)))}


def code_of(path):
    """An object's code as text: every section with instructions, and what they refer to."""
    text = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return HEADER.sub("", text)


def same_line(first, second):
    """Whether two lines of disassemblies are equal but for a line number, which has grown."""
    if NUMBER.sub("$N", first) != NUMBER.sub("$N", second):
        return INITCALL.sub("N_", first) == INITCALL.sub("N_", second)
    pairs = zip(*([int(found, 16) for found in NUMBER.findall(line)] for line in (first, second)))
    return all(one == other or FIRST_LINE < one < LAST_LINE and 0 < other - one <= MOST_ADDED
               for one, other in pairs)


def same_code(one, other):
    """Whether two objects are equal, line numbers aside; the second one's may be larger."""
    if one.read_bytes() == other.read_bytes():
        return True
    first, second = (code_of(path).splitlines() for path in (one, other))
    return len(first) == len(second) and all(map(same_line, first, second))


def differing(one: Path, other: Path):
    """Names of objects that only one of the trees has, and of those whose code differs."""
    first, second = objects_of(one), objects_of(other)
    both = sorted(first & second)
    with ThreadPoolExecutor(2) as pool:
        same = list(pool.map(lambda name: same_code(one / name, other / name), both))
    return sorted(first ^ second), [name for name, equal in zip(both, same) if not equal], len(both)
