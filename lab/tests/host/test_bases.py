# SPDX-License-Identifier: GPL-2.0-or-later
"""The series for kernel sources beside the first: what differs there, and that it works."""

import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT
from ramlab.kernel import bases, build
from ramlab.kernel import source as kernel_source
from ramlab.kernel.source import OVERLAY, Source, files_of

OTHERS = [base for base in bases.BASES.values() if base is not bases.FIRST]
# What must hold on every kernel: power, waking on demand, counters. Checkers, which the interface's
# tests want, and research code would need kernels of their own.
KINDS = "not slow and not debug and not research"
BASIC = ("test_power.py", "test_demand.py", "test_accounting.py")

PATCH = """A subject

---
 mm/one.c | 3 ++-
@@ mentioned in the message
--- a/mm/one.c
+++ b/mm/one.c
@@ -1,3 +1,4 @@ function()
 before
-{old}
+{new}
+same
 after
"""


def made_up(folder, number, **words):
    path = folder / "core" / f"{number}-a-change.patch"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PATCH.format(**words))
    return path


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """A first base of two patches, and another base that can replace them."""
    shared = tmp_path / "shared"
    names = [made_up(shared, number, old="a", new="b").name for number in ("0001", "0002")]
    (shared / "series").write_text("".join(f"core/{name}\n" for name in names))
    monkeypatch.setattr(bases, "PATCHES", shared)
    return bases.Base("other", tmp_path / "other"), tmp_path / "other/patches"


# --- what is shared, and what is replaced ---------------------------------------


def test_a_patch_replaces_the_one_of_its_number(pair):
    base, folder = pair
    own = made_up(folder, "0002", old="a", new="c")
    first = bases.FIRST.series()
    assert base.series() == [first[0], own]


def test_a_patch_that_replaces_none_is_named(pair, capsys, monkeypatch):
    base, folder = pair
    made_up(folder, "0003", old="a", new="c")
    monkeypatch.setattr(bases, "ROOT", folder)
    with pytest.raises(SystemExit):
        base.series()
    assert "0003" in capsys.readouterr().err


def test_a_patch_that_is_needless_is_left_out_and_its_lines_differ(pair):
    base, folder = pair
    folder.parent.mkdir(exist_ok=True)
    (folder.parent / "needless").write_text("core/0001 mended there\n")
    assert base.series() == bases.FIRST.series()[1:]
    assert bases.difference(base) == bases.Difference(lines=9, different=3)


def test_a_needless_patch_that_the_series_lacks_is_named(pair, capsys, monkeypatch):
    base, folder = pair
    folder.parent.mkdir(exist_ok=True)
    (folder.parent / "needless").write_text("core/0007 mended there\n")
    monkeypatch.setattr(bases, "ROOT", folder.parent)
    with pytest.raises(SystemExit):
        base.series()
    assert "core/0007" in capsys.readouterr().err


def test_only_lines_that_a_patch_changes_are_counted(pair):
    base, _ = pair
    assert bases.changed_lines(base.series()[0]) == {"mm/one.c": ["-a", "+b", "+same"]}


def test_shared_hooks_do_not_differ(pair):
    base, _ = pair
    assert bases.difference(base) == bases.Difference(lines=12, different=0)


def test_a_changed_line_is_gone_in_one_base_and_new_in_the_other(pair):
    base, folder = pair
    made_up(folder, "0002", old="a", new="c")
    assert bases.difference(base) == bases.Difference(lines=12, different=2)


def test_what_a_patch_changes_in_files_of_ours_is_no_hook(pair):
    base, folder = pair
    own = made_up(folder, "0002", old="a", new="b")
    own.write_text(own.read_text().replace("mm/one.c", "mm/ramslice/Kconfig"))
    assert bases.difference(base) == bases.Difference(lines=9, different=3)


# --- names ----------------------------------------------------------------------


@pytest.mark.parametrize("base", OTHERS, ids=lambda base: base.name)
def test_a_kernel_is_named_by_its_flavour_and_its_base(base):
    assert bases.full_name(base.name) == f"plain-{base.name}"
    assert bases.flavour_and_base(f"debug-{base.name}") == ("debug", base)
    assert bases.flavour_and_base(base.name) == ("plain", base)


def test_kernels_of_the_first_base_and_of_debian_keep_their_names():
    assert bases.flavour_and_base("debug-research") == ("debug-research", bases.FIRST)
    assert bases.full_name("debian-6.12") == "debian-6.12"
    assert bases.FIRST.suffixed("plain") == "plain"


def test_an_unknown_base_is_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        bases.named_base("5.4")
    said = capsys.readouterr().err
    assert all(name in said for name in ("5.4", *bases.BASES))


def test_images_of_another_base_do_not_crowd_out_those_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(build, "KEEP", 1)
    for name in ("plain-1111", "plain-2222", "plain-7.3-3333", "plain-7.3-4444"):
        (tmp_path / "kernels" / name).mkdir(parents=True)
    build.prune("plain")
    left = {path.name for path in (tmp_path / "kernels").iterdir()}
    assert len(left) == 3 and {"plain-7.3-3333", "plain-7.3-4444"} < left


# --- each base as it is ---------------------------------------------------------


@pytest.mark.parametrize("base", OTHERS, ids=lambda base: base.name)
def test_few_hook_lines_differ_from_the_first_base(base):
    found = bases.difference(base)
    assert found.lines > 1000
    assert found.share <= bases.MOST_DIFFERENT


@pytest.mark.parametrize("base", OTHERS, ids=lambda base: base.name)
def test_the_patches_on_top_of_the_overlay_apply(base):
    source = Source(base)
    changed = {name for patch in base.overlay_patches() for name in files_of(patch)}
    assert changed
    for name in changed:
        ours, first = source.overlay_root / name, OVERLAY / name
        assert ours.read_text() != first.read_text(), name


def test_bytecode_is_no_file_of_the_kernel(tmp_path, monkeypatch):
    for name in ("tools/a.py", "tools/__pycache__/a.cpython.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(kernel_source, "OVERLAY", tmp_path)
    assert [str(name) for name in kernel_source.overlay()] == ["tools/a.py"]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("base", OTHERS, ids=lambda base: base.name)
def test_the_series_for_a_base_is_exported(base):
    """git am gives the patched tree, checkpatch has no complaint, few hook lines differ."""
    done = subprocess.run([RAMLAB, "series", "--base", base.name], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert (ROOT / f"out/series-{base.name}/series").exists()


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("base", OTHERS, ids=lambda base: base.name)
def test_the_basic_tests_pass_on_a_base(base):
    tests = [f"tests/guest/{name}" for name in BASIC]
    done = subprocess.run([RAMLAB, "test", "--base", base.name, "-m", KINDS, *tests],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
