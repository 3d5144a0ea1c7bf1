# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel changes export as a series that `git am` turns into the tree that the lab tests."""

import subprocess

import pytest

from ramlab.common import OUT, RAMLAB
from ramlab.kernel.export_series import groups
from ramlab.kernel.source import overlay, series

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
    assert listed == sorted(path.name for path in (OUT / "series").glob("*.patch"))
    assert len(listed) == sum(len(parts) for parts in groups().values()) + len(series())
