# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares the code of two builds of the kernel object by object: is the patched source without
CONFIG_RAMSLICE the unpatched kernel?

Two objects have the same code if their disassemblies with relocations are equal, line numbers
aside: these are immediate operands, and a patch that adds a line moves all that follow.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ramlab.kernel.images import image
from ramlab.kernel.source import Source

# What links others together, and programs that run while the kernel is built
NOT_CODE = re.compile(r"(^|/)(vmlinux\.o|\.tmp_\S*|\S*\.mod\.o|built-in\.a)$|^(scripts|tools|usr)/")
# A file's name, and where a section begins
HEADER = re.compile(r"^\S+:\s+file format.*$", re.M)
NUMBER = re.compile(r"\$0x[0-9a-f]+")


def tree_of(flavour):
    """The directory of a flavour's objects, built if need be."""
    image(flavour)
    return Source().home / f"obj-{flavour}"


def objects_of(tree):
    """Paths of its objects, relative."""
    return {str(path.relative_to(tree)) for path in tree.rglob("*.o")
            if not NOT_CODE.search(str(path.relative_to(tree)))}


def code_of(path):
    """An object's code as text: every section with instructions, and what they refer to."""
    text = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return HEADER.sub("", text)


def same_code(one, other):
    """Whether two objects are equal, line numbers aside."""
    if one.read_bytes() == other.read_bytes():
        return True
    first, second = code_of(one), code_of(other)
    return first == second or NUMBER.sub("$N", first) == NUMBER.sub("$N", second)


def differing(one: Path, other: Path):
    """Names of objects that only one of the trees has, and of those whose code differs."""
    first, second = objects_of(one), objects_of(other)
    both = sorted(first & second)
    with ThreadPoolExecutor(2) as pool:
        same = list(pool.map(lambda name: same_code(one / name, other / name), both))
    return sorted(first ^ second), [name for name, equal in zip(both, same) if not equal], len(both)
