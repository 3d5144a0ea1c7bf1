# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel changes export as a series that `git am` turns into the tree that the lab tests."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from ramlab.common import CACHE, OUT, RAMLAB, ROOT
from ramlab.kernel.build import configure, make
from ramlab.kernel.export_series import groups
from ramlab.kernel.source import Source, is_research, overlay, series

pytestmark = pytest.mark.xdist_group("series")


@pytest.fixture(scope="module")
def export():
    """`ramlab series`; its output and errors are one text."""
    return subprocess.run([RAMLAB, "series"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def test_every_new_file_is_in_exactly_one_patch():
    named = [name for parts in groups().values() for _, names in parts for name in names]
    assert sorted(named) == overlay()


def test_git_am_of_the_series_gives_the_patched_tree(export):
    assert "gives the patched tree, byte for byte" in export.stdout, export.stdout


def test_checkpatch_finds_nothing_but_known_exceptions(export):
    assert "checkpatch --strict: nothing but known exceptions" in export.stdout, export.stdout


def test_the_export_succeeds(export):
    assert export.returncode == 0, export.stdout


def test_the_exported_folder_lists_its_patches_in_order(export):
    listed = (OUT / "series/series").read_text().split()
    cover, *patches = sorted(path.name for path in (OUT / "series").glob("*.patch"))
    assert (cover, listed) == ("0000-cover-letter.patch", patches)
    assert len(listed) == sum(len(parts) for parts in groups().values()) + len(series())


def test_the_cover_letter_is_filled_in(export):
    letter = (OUT / "series/0000-cover-letter.patch").read_text()
    subject, _, text = (ROOT / "kernel/cover-letter.txt").read_text().partition("\n\n")
    assert f"] {subject}\n" in letter and text.strip() in letter
    assert "***" not in letter
    assert letter.count("mm/ramslice/offline.c") >= 1, "the files that the series changes"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_core_builds_without_the_research_part(export):
    """Who takes only the core gets a tree that compiles without a warning."""
    source = Source()
    source.extract()
    hooks = [patch for patch in series() if not is_research(patch)]
    _, *patches = sorted((OUT / "series").glob("*.patch"))
    patches = patches[:len(groups()["core"]) + len(hooks)]
    # In the cache, because hard links do not leave a file system
    with tempfile.TemporaryDirectory(prefix="core-", dir=CACHE / "runs") as folder:
        tree, objects = Path(folder) / "tree", Path(folder) / "objects"
        subprocess.run(["cp", "-al", source.pristine, tree], check=True)
        for patch in patches:
            subprocess.run(["patch", "-p1", "-N", "-F0", "-s", "-d", tree, "-i", patch], check=True)
        assert not list(tree.glob("mm/ramslice/research*")), "this is not the core alone"
        configure(tree, objects, "plain")
        done = subprocess.run(
            make(tree, objects, "mm/", "lib/", "drivers/misc/ramslice/", "fs/proc/"),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
        assert (objects / "mm/ramslice/core.o").exists()
        assert "warning:" not in done.stdout
