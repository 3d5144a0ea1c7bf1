# SPDX-License-Identifier: GPL-2.0-or-later
"""A figure is stale exactly when something that it depends on has changed, committed or not."""

import subprocess

import pytest

from ramlab import provenance


def git(folder, *words):
    line = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", *words]
    return subprocess.run(line, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout


@pytest.fixture
def checkout(tmp_path):
    """A repository with a kernel part, documentation of it, and a suite's module."""
    for name in ("kernel/base.lock", "kernel/config/a.config", "kernel/patches/series",
                 "kernel/files/mm/x.c", "kernel/files/Documentation/x.rst", "suite.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def stored(checkout, patched=True):
    paths = ["suite.py", *provenance.kernel_paths(patched, checkout)]
    return provenance.path_ids(paths, checkout)


def test_an_unchanged_tree_leaves_a_figure_fresh(checkout):
    assert provenance.changed(stored(checkout), checkout) == []


def test_a_commit_elsewhere_leaves_a_figure_fresh(checkout):
    before = stored(checkout)
    (checkout / "README").write_text("new\n")
    (checkout / "kernel/files/Documentation/x.rst").write_text("better\n")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "docs")
    assert provenance.changed(before, checkout) == []


@pytest.mark.parametrize("name", ["kernel/files/mm/x.c", "kernel/patches/series", "suite.py"])
def test_an_uncommitted_change_makes_a_figure_stale_and_is_named(checkout, name):
    before = stored(checkout)
    (checkout / name).write_text("changed\n")
    (differing,) = provenance.changed(before, checkout)
    assert name.startswith(differing)


def test_a_new_file_makes_a_figure_stale(checkout):
    before = stored(checkout)
    (checkout / "kernel/files/mm/y.c").write_text("new\n")
    assert provenance.changed(before, checkout) == ["kernel/files/mm"]


def test_a_removed_dependency_makes_a_figure_stale(checkout):
    before = stored(checkout)
    (checkout / "suite.py").unlink()
    assert provenance.changed(before, checkout) == ["suite.py"]


def test_going_back_makes_a_figure_fresh_again(checkout):
    before = stored(checkout)
    path = checkout / "kernel/files/mm/x.c"
    text = path.read_text()
    path.write_text("changed\n")
    assert provenance.changed(before, checkout)
    path.write_text(text)
    assert provenance.changed(before, checkout) == []


def test_the_unpatched_kernel_depends_on_neither_patches_nor_overlay(checkout):
    before = stored(checkout, patched=False)
    (checkout / "kernel/files/mm/x.c").write_text("changed\n")
    (checkout / "kernel/patches/series").write_text("changed\n")
    assert provenance.changed(before, checkout) == []


def test_looking_leaves_the_index_alone(checkout):
    (checkout / "new").write_text("new\n")
    before = git(checkout, "status", "--porcelain")
    provenance.working_tree(checkout)
    assert git(checkout, "status", "--porcelain") == before == "?? new\n"


def test_a_figure_without_dependencies_is_stale():
    assert provenance.changed({}) and provenance.changed(None)


def metadata():
    """Cargo's description of a program with one crate of ours, two others, and one for tests."""
    def package(name, source="registry", version="1.0.0", kind="lib"):
        return {"id": f"{name} {version}", "name": name, "version": version,
                "source": None if source is None else source,
                "manifest_path": f"/tree/crates/{name}/Cargo.toml",
                "targets": [{"name": name, "kind": [kind]}]}

    def node(key, **dependencies):
        return {"id": key, "deps": [{"pkg": f"{name} 1.0.0", "dep_kinds": [{"kind": kind}]}
                                    for name, kind in dependencies.items()]}

    return {
        "workspace_root": "/tree",
        "packages": [package("tool", None, kind="bin"), package("ours", None), package("serde"),
                     package("proptest"), package("stranger")],
        "resolve": {"nodes": [node("tool 1.0.0", ours=None, proptest="dev"),
                              node("ours 1.0.0", serde=None), node("serde 1.0.0"),
                              node("proptest 1.0.0"), node("stranger 1.0.0")]},
    }


def test_a_program_depends_on_its_crates_but_not_on_those_of_its_tests():
    folders, others = provenance.crates_of_program("tool", metadata())
    assert folders == ["crates/ours", "crates/tool"]
    assert others == {"crate serde": "1.0.0"}


def test_a_program_that_nothing_builds_is_named():
    with pytest.raises(ValueError, match="no package of the workspace builds the program nothing"):
        provenance.crates_of_program("nothing", metadata())


def test_the_daemon_of_this_tree_depends_on_its_crate():
    folders, others = provenance.crates_of_program("ramsliced", provenance.cargo_metadata())
    assert "crates/daemon" in folders and "crates/types" in folders
    assert "crate serde" in others


def test_a_figure_on_another_kernel_source_depends_on_that_source():
    assert provenance.base_paths("stock", False) == []
    assert provenance.base_paths("stock-7.3", False) == [
        "kernel/bases/7.3/base.lock", "kernel/bases/7.3/base.config"]
    assert provenance.base_paths("plain-7.3") == ["kernel/bases/7.3"]
