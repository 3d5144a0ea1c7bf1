# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel changes export as a series that `git am` turns into the tree that the lab tests."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from ramlab.common import CACHE, OUT, RAMLAB, ROOT
from ramlab.kernel.build import fragments, make
from ramlab.kernel.export_series import PARTS, groups
from ramlab.kernel.source import Source, overlay, series

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


def test_each_part_is_counted(export):
    """A reviewer sees how much there is to read, a part at a time."""
    for part in PARTS:
        wanted = rf"^part {part}: [1-9]\d* lines of code in \d+ files, \d+ hook lines in \d+ files"
        assert re.search(wanted, export.stdout, re.M), part


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_series_builds_up_to_the_end_of_each_part(export):
    """Who takes the first parts alone gets a tree that compiles, and links, without a warning."""
    source = Source()
    source.extract()
    patches, added = sorted((OUT / "series").glob("*.patch"))[1:], groups()
    # In the cache, because hard links do not leave a file system
    with tempfile.TemporaryDirectory(prefix="parts-", dir=CACHE / "runs") as folder:
        tree, objects = Path(folder) / "tree", Path(folder) / "objects"
        subprocess.run(["cp", "-al", source.pristine, tree], check=True)
        for part in PARTS:
            number = len(added[part]) + sum(path.parent.name == part for path in series())
            for patch in patches[:number]:
                subprocess.run(["patch", "-p1", "-N", "-F0", "-s", "-d", tree, "-i", patch],
                               check=True)
            patches = patches[number:]
            assert bool(list(tree.glob("mm/ramslice/research*"))) == (part == "research")
            configure_part(tree, objects)
            done = subprocess.run(make(tree, objects, f"-j{os.cpu_count()}", "vmlinux", "modules"),
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False)
            assert done.returncode == 0, (part, done.stdout[-4000:])
            assert (objects / "mm/ramslice/core.o").exists()
            assert "warning:" not in done.stdout, (part, done.stdout)


def configure_part(tree, objects):
    """The plain configuration, as far as this tree has its options."""
    known = "".join(path.read_text() for path in tree.glob("mm/ramslice/**/Kconfig"))
    known += "".join(path.read_text() for path in tree.glob("lib/Kconfig.ramslice"))
    known += (tree / "drivers/misc/ramslice/Kconfig").read_text()
    asked = "".join(path.read_text() for path in fragments("plain"))
    wanted = [line for line in asked.splitlines()
              if not (option := re.match(r"CONFIG_(RAMSLICE\w*)=", line))
              or re.search(rf"^config {option[1]}$", known, re.M)]
    objects.mkdir(exist_ok=True)
    request = objects / "wanted.config"
    request.write_text("\n".join(wanted) + "\n")
    subprocess.run(make(tree, objects, "-s", f"KCONFIG_ALLCONFIG={request}", "allnoconfig"),
                   check=True)
