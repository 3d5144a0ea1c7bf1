#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes the kernel changes as patches for 'git am' to out/series, and proves them.

Usage: ramlab series [--base 7.3]
  --base  for another kernel source than the first, to out/series-7.3; also counts how many hook
          lines differ from those of the first, and fails above 15%

The series has parts: core first, what needs nothing but core, and research last. Each begins with
patches that add files of the overlay: kernel/patches/PART/messages/*.txt hold a commit message each
and, after a line "---", patterns of the files that the patch adds. Then come the part's hooks,
kernel/patches/PART, the last of which builds it: a series that ends with any part builds. Of each
part its lines are counted. kernel/cover-letter.txt goes before them. The export checks that git am
of the series on Debian's source gives the patched tree, and that checkpatch.pl --strict has no
complaint that is not a known exception. The same input gives the same output.
"""

import argparse
import contextlib
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ramlab.common import OUT, RAMLAB, ROOT, die, locked
from ramlab.kernel.bases import (
    FIRST,
    MOST_DIFFERENT,
    PATCHES,
    changed_lines,
    difference,
    named_base,
)
from ramlab.kernel.source import OVERLAY, Source, git, overlay

PARTS = ("core", "placement", "buffers", "page-cache", "cold", "segments", "research")
COVER = ROOT / "kernel/cover-letter.txt"


def groups():
    """{part: [(commit message, files to add)]} from messages/*.txt.

    Every file of the overlay is in exactly one.
    """
    left = set(overlay())
    found = {part: [] for part in PARTS}
    # What is a later part's is not for a pattern of core
    for part in reversed(PARTS):
        for path in sorted((PATCHES / part / "messages").glob("*.txt")):
            message, _, patterns = path.read_text().partition("\n---\n")
            names = set()
            for pattern in patterns.split():
                matching = {name for name in left if fnmatch.fnmatch(name, pattern)}
                if not matching:
                    die(f"{part}/{path.name}: no file, or none that is left, matches {pattern}")
                names |= matching
            left -= names
            found[part].append((message + "\n", sorted(names)))
    if left:
        die("in no patch, name them in kernel/patches/PART/messages: "
            + ", ".join(map(str, sorted(left))))
    return found


def base(source, repo, touched):
    """A repository with what the series touches of Debian's source, as one commit."""
    git(repo.parent, "init", "-q", repo)
    for name in touched | {".gitattributes"}:
        if (source.pristine / name).exists():
            (repo / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source.pristine / name, repo / name)
    git(repo, "add", "-f", "-A")
    git(repo, "commit", "-q", "-m", source.describe())


def prove(repo, wanted):
    """Every file is what ramlab kernel puts into the patched tree, and there is no other."""
    kept = {name: content for name, content in wanted.items() if content}
    for name, (data, mode) in kept.items():
        path = repo / name
        executable = bool(mode & 0o100)
        if not path.exists() or path.read_bytes() != data or os.access(path, os.X_OK) != executable:
            die(f"git am: {name} is not what the patched tree has")
    extra = set(git(repo, "ls-files").split()) - set(kept) - {".gitattributes"}
    if extra:
        die(f"git am: unexpected files: {' '.join(sorted(extra))}")


def put_cover_letter(path, date):
    """Fills in the letter that git has begun: the first line is its subject."""
    subject, _, text = COVER.read_text().partition("\n\n")
    letter = path.read_text()
    for blank, filled in (("*** SUBJECT HERE ***", subject), ("*** BLURB HERE ***", text.strip())):
        if letter.count(blank) != 1:
            die(f"git's cover letter has no {blank}")
        letter = letter.replace(blank, filled)
    # The rest of what git writes follows from the patches, but for the date
    path.write_text(re.sub(r"^Date: .*$", f"Date: {date}", letter, flags=re.M))


def is_code(name):
    """Code that is built into kernels: no test, tool or document."""
    return str(name).endswith((".c", ".h")) and not re.search(r"(^|/)(tests|tools|lib)/", str(name))


def nr_lines(path):
    """Lines of a C file that are neither blank nor comment alone."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return sum(bool(line.strip()) and not line.lstrip().startswith("//")
               for line in text.splitlines())


def sizes(parts, hooks):
    """{part: (new files of code, their lines, files of code that hooks change, lines they add)}."""
    ours, found = set(map(str, overlay())), {}
    for part in PARTS:
        new = [name for _, names in parts[part] for name in names if is_code(name)]
        changed, added = set(), 0
        for patch in (path for path in hooks if path.parent.name == part):
            for name, lines in changed_lines(patch).items():
                if is_code(name) and name not in ours:
                    changed.add(name)
                    added += sum(line.startswith("+") for line in lines)
        found[part] = (len(new), sum(nr_lines(OVERLAY / name) for name in new), len(changed),
                       added)
    return found


def print_sizes(found):
    """A line for each part: tests and documents do not count, nor do comments."""
    for part, (files, lines, hooked, added) in found.items():
        print(f"part {part}: {lines} lines of code in {files} files, "
              f"{added} hook lines in {hooked} files of the kernel")


def print_difference(base):
    """Says how much of the hooks is another base's own; fails if that is too much."""
    found = difference(base)
    own = [path.name.split("-")[0] for path in base.series() if path not in FIRST.series()]
    print(f"base {base.name}: {len(own)} of {len(base.series())} patches are its own "
          f"({', '.join(own)}); of {found.lines} hook lines in it and in {FIRST.name}, "
          f"{found.different} ({found.share:.1%}) are in one of them alone "
          f"(at most {MOST_DIFFERENT:.0%})")
    overlay_lines = sum(len(lines) for patch in base.overlay_patches()
                        for lines in changed_lines(patch).values())
    print(f"base {base.name}: {overlay_lines} lines change in files of ours")
    for feature in base.left_out:
        print(f"base {base.name} goes without: {feature}")
    if found.share > MOST_DIFFERENT:
        die(f"base {base.name}: more than {MOST_DIFFERENT:.0%} of the hook lines differ")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=FIRST.name, metavar="RELEASE")
    target = named_base(parser.parse_args().base)
    source = Source(target)
    hooks = source.series()
    if not source.pristine.exists():
        with contextlib.redirect_stdout(sys.stderr), locked("kernel"):
            source.extract()
    wanted = source.changed_files()  # what ramlab kernel puts into the patched tree
    touched = set(wanted)
    parts = groups()
    date = re.search(r"^Date: (.*)$", hooks[0].read_text(), re.M)[1]
    out = OUT / target.suffixed("series")
    with tempfile.TemporaryDirectory(prefix="ramslice-series-") as scratch:
        made, fresh, patches = (Path(scratch) / name for name in ("made", "fresh", "patches"))
        base(source, made, touched)
        for part in PARTS:
            for message, names in parts[part]:
                for name in names:
                    (made / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source.overlay_root / name, made / name)
                git(made, "add", "-f", *names)
                git(made, "commit", "-q", "-m", message, date=date)
            git(made, "am", "-q", "--committer-date-is-author-date",
                *(path for path in hooks if path.parent.name == part))
        adding = sum(map(len, parts.values()))
        git(made, "format-patch", "-q", "--zero-commit", "--no-signature", "--numbered",
            "--cover-letter", "-o", patches, f"HEAD~{adding + len(hooks)}")
        cover, *names = sorted(patches.glob("*.patch"))
        put_cover_letter(cover, date)
        base(source, fresh, touched)
        git(fresh, "am", "-q", *names)
        prove(fresh, wanted)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(patches, out)
    listing = [out / path.name for path in names]
    (out / "series").write_text("".join(f"{path.name}\n" for path in listing))
    for path in listing:
        print(f"  {path.name}")
    print(f"{adding} patches with {len(overlay())} new files, {len(hooks)} patches to "
          f"{len(touched) - len(overlay())} files of {source.describe()}; research comes last")
    print_sizes(sizes(parts, hooks))
    print("git am on the pristine files gives the patched tree, byte for byte")
    if subprocess.run([RAMLAB, "checkpatch", "--base", target.name, *listing],
                      check=False).returncode:
        die("checkpatch complains about the series")
    print(f"checkpatch --strict: nothing but known exceptions\nwritten: {out}")
    if target is not FIRST:
        print_difference(target)


if __name__ == "__main__":
    main()
