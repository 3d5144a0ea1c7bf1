# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramlab rebase --tree` says whether the series applies to a kernel source, and names conflicts.

The sources are copies of the files of Debian's that the series changes, each with one difference.
"""

import re
import shutil
import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT, run
from ramlab.kernel.bases import PATCHES
from ramlab.kernel.source import Source, overlay, series

pytestmark = pytest.mark.xdist_group("rebase-tree")


def series_files():
    """What a check must not change."""
    return {path: path.read_bytes()
            for path in [*PATCHES.rglob("*"), ROOT / "kernel/base.lock"] if path.is_file()}


def patch_text():
    return "".join(path.read_text() for path in series())


def replaced_line(name):
    """The first line of a file that a hook replaces."""
    inside = False
    for line in patch_text().splitlines():
        if line.startswith("--- "):
            inside = line == f"--- a/{name}"
        elif inside and line.startswith("-") and line != "---":
            return line[1:]
    raise AssertionError(f"no hook replaces a line of {name}")


@pytest.fixture(scope="module")
def pristine():
    """Debian's source."""
    source = Source()
    if not source.pristine.exists():
        run([RAMLAB, "kernel", "--source"])
    return source.pristine


@pytest.fixture
def tree(tmp_path, pristine):
    """A kernel source that has the files which the series changes."""
    names = set(re.findall(r"^--- a/(.*)$", patch_text(), re.M))
    # Patches of the research part change files that the core adds.
    for name in {"Makefile", *names} - {str(path) for path in overlay()}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(pristine / name, tmp_path / name)
    return tmp_path


def rebase(tree):
    return subprocess.run([RAMLAB, "rebase", "--tree", tree], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def applies(tree):
    done = rebase(tree)
    assert done.returncode == 0, done.stdout
    assert re.search(r"all \d+ patches apply", done.stdout)


def conflicts(tree, words):
    """Asserts that a rebase ends with conflicts and says so; the words are a pattern."""
    done = rebase(tree)
    assert done.returncode == 1, done.stdout
    assert re.search(words, done.stdout), done.stdout


def test_the_series_applies_to_the_source_as_it_is(tree):
    applies(tree)


def test_the_series_applies_to_a_source_in_which_lines_have_moved(tree):
    for name in ("mm/page_alloc.c", "mm/vmscan.c"):
        path = tree / name
        path.write_text("/* A line that an update brought, far from every hook. */\n"
                        + path.read_text())
    applies(tree)


def test_a_changed_line_at_a_hook_names_patch_and_file(tree):
    path, line = tree / "mm/page_alloc.c", replaced_line("mm/page_alloc.c")
    lines = path.read_text().split("\n")
    assert line in lines
    path.write_text("\n".join(f"{each} /* changed by an update */" if each == line else each
                              for each in lines))
    conflicts(tree, r"\d+-\S+\.patch conflicts: .*mm/page_alloc\.c")


def test_a_missing_file_names_patch_and_file(tree):
    (tree / "mm/vmscan.c").unlink()
    conflicts(tree, r"\d+-\S+\.patch conflicts: .*mm/vmscan\.c")


def test_a_new_file_of_ours_that_is_there_already_is_named(tree):
    (tree / "include/linux").mkdir(parents=True, exist_ok=True)
    (tree / "include/linux/ramslice.h").touch()
    conflicts(tree, r"kernel/files/include/linux/ramslice\.h")


@pytest.mark.parametrize("name", ["mm/page_alloc.c", "mm/vmscan.c"])
def test_a_check_writes_nothing_to_the_series(tree, name):
    before = series_files()
    rebase(tree)
    (tree / name).unlink()
    rebase(tree)
    assert series_files() == before
