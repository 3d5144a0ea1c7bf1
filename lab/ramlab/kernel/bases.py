# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel sources that the series is for: the first, and others with what differs there.

kernel/base.lock names the first. Each other has a folder in kernel/bases, called as its release:

    base.lock    the package, as in kernel/base.lock, and the suite and the file of its archive
    base.config  options that it names or offers otherwise, merged last
    patches/     PART/NNNN-*.patch replaces that number in the same part of kernel/patches
    overlay/     patches on top of kernel/files
    needless     shared patches that it does without: PART/NNNN and why, a line each
    left-out     features that it goes without, a line each (no file: none)

What is not replaced there is shared. docs/reference/kernel-bases.md explains how one is added.
"""

import dataclasses
import difflib
import re
from pathlib import Path

from ramlab.common import FLAVOURS, ROOT, die, read_lock

PATCHES = ROOT / "kernel/patches"
FOLDER = ROOT / "kernel/bases"
# Of all hook lines, those that may differ from the first base's.
MOST_DIFFERENT = 0.15


@dataclasses.dataclass(frozen=True)
class Base:
    """One release of Debian's kernel source that the series applies to."""

    name: str
    folder: Path = None     # what differs there; None: the first base, of which nothing does

    @property
    def lock(self):
        """Its package, version, Linux version and hash: {key: value}."""
        return read_lock(self.folder / "base.lock") if self.folder else read_lock()

    @property
    def fragments(self):
        """Pieces of the configuration that come after all others."""
        return [self.folder / "base.config"] if self.folder else []

    @property
    def left_out(self):
        """Features that this base goes without, a line each."""
        path = self.folder / "left-out" if self.folder else None
        return path.read_text().splitlines() if path and path.exists() else []

    def suffixed(self, name):
        """Another name for each base: the first one's stays as it is."""
        return f"{name}-{self.name}" if self.folder else name

    def overlay_patches(self):
        """Patches on top of kernel/files, in order."""
        return sorted((self.folder / "overlay").glob("*.patch")) if self.folder else []

    def series(self):
        """The patches to files of the source, in order."""
        listing = PATCHES / "series"
        if not listing.exists():
            return []
        lines = (line.split("#")[0].strip() for line in listing.read_text().splitlines())
        shared = [PATCHES / line for line in lines if line]
        own, needless = self._replacements(shared), self._needless(shared)
        return [own.get(_place(path), path) for path in shared if _place(path) not in needless]

    def _replacements(self, shared):
        """{(part, number): patch} of the patches that replace shared ones."""
        if not self.folder:
            return {}
        own = {_place(path): path for path in self.folder.glob("patches/*/*.patch")}
        if unknown := set(own) - {_place(path) for path in shared}:
            part, number = min(unknown)
            die(f"{own[part, number].relative_to(ROOT)}: kernel/patches/series has no patch "
                f"{part}/{number} that it could replace")
        return own

    def _needless(self, shared):
        """(part, number) of the shared patches that this source does without: what they mend is not
        in it, as the file needless has it, a line each: core/0000, and why.
        """
        path = self.folder / "needless" if self.folder else None
        lines = path.read_text().splitlines() if path and path.exists() else []
        named = {tuple(line.split()[0].split("/", 1)) for line in lines if line}
        if unknown := named - {_place(path) for path in shared}:
            die(f"{path.relative_to(ROOT)}: kernel/patches/series has no patch "
                f"{'/'.join(min(unknown))}")
        return named


def _place(patch):
    """The part of the series that a patch is in, and its number there: ("core", "0001")."""
    return patch.parent.name, patch.name.split("-")[0]


FIRST = Base(".".join(read_lock()["linux"].split(".")[:2]))
BASES = {FIRST.name: FIRST} | {
    path.parent.name: Base(path.parent.name, path.parent)
    for path in sorted(FOLDER.glob("*/base.lock"))}


def named_base(name):
    """The base of this name; an unknown one ends the program."""
    if name not in BASES:
        die(f"no such base: {name} (there are {', '.join(BASES)})", 2)
    return BASES[name]


def full_name(kernel):
    """A kernel's whole name: a base alone stands for its plain kernel, so 7.3 is plain-7.3."""
    return BASES[kernel].suffixed("plain") if kernel in BASES else kernel


def flavour_and_base(kernel):
    """What one of our kernels is by its name: ("debug", base 7.3) for debug-7.3."""
    kernel = full_name(kernel)
    for base in BASES.values():
        flavour = kernel.removesuffix(f"-{base.name}")
        if base.folder and flavour != kernel and flavour in FLAVOURS:
            return flavour, base
    return kernel, FIRST


def our_kernels():
    """The names of all kernels of ours."""
    return [base.suffixed(flavour) for base in BASES.values() for flavour in FLAVOURS]


def changed_lines(patch):
    """Lines that a patch adds and removes, with their sign and in order: {file: [line]}."""
    found, file, left = {}, None, [0, 0]
    for line in patch.read_text(errors="replace").splitlines():
        if any(left):
            if line[:1] in "+-":
                found.setdefault(file, []).append(line)
            # A line of context counts on both sides
            left[0] -= line[:1] in ("-", " ", "")
            left[1] -= line[:1] in ("+", " ", "")
        elif match := re.match(r"\+\+\+ b/(\S+)", line):
            file = match[1]
        elif match := re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", line):
            left = [int(count or 1) for count in match.groups()]
    return found


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far the hooks of a base are from those of the first."""

    lines: int      # that a patch of either adds or removes, those of both counted twice
    different: int  # of these, what only one of the two has

    @property
    def share(self):
        return self.different / self.lines if self.lines else 0.0


def difference(base):
    """Compares the hooks of a base with those of the first, patch by patch and file by file.

    A changed line counts twice in both figures: once where it is gone, once where it is new. What
    patches change in files of ours, as Kconfig, is no hook.
    """
    lines = different = 0
    ours = {_place(path): path for path in base.series()}
    for first in FIRST.series():
        # A patch that the base goes without has no lines there
        own = ours.get(_place(first))
        new, old = changed_lines(own) if own else {}, changed_lines(first)
        for file in set(new) | set(old):
            if (ROOT / "kernel/files" / file).exists():
                continue
            one, other = old.get(file, []), new.get(file, [])
            same = sum(block.size for block in difflib.SequenceMatcher(
                None, one, other, autojunk=False).get_matching_blocks())
            lines += len(one) + len(other)
            different += len(one) + len(other) - 2 * same
    return Difference(lines, different)
