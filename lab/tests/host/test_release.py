# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramlab release` refuses a tree that does not fit the version, and keeps states of the daemon."""

import json
import os
import re
import subprocess
import zlib

import pytest

import kernel_deb
from ramlab import release
from ramlab.common import ROOT

FILES = {
    "Cargo.toml": '[workspace.package]\nversion = "1.2.3"\n',
    "Cargo.lock": '[[package]]\nname = "ramslice-types"\nversion = "1.2.3"\n\n'
                  '[[package]]\nname = "serde"\nversion = "9.9.9"\nsource = "registry"\n',
    "lab/pyproject.toml": '[project]\nname = "ramlab"\nversion = "1.2.3"\n',
    "packaging/deb/debian/changelog": "ramslice (1.2.3) bookworm; urgency=medium\n",
    "CHANGELOG.md": "## [Unreleased]\n\n## [1.2.3] - 2026-11-25\n\n## [1.2.2] - 2026-11-01\n",
    ".gitignore": "/out/\n",
}


def git(tree, *words):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example", *words], cwd=tree,
                   check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def tree(tmp_path):
    """A checkout from which 1.2.3 can be released."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def commit(tree):
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "x")


def test_a_clean_tree_in_which_all_files_name_the_version_can_be_released(tree):
    assert release.problems("1.2.3", tree) == []


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3-rc1", "", "../1.2.3"])
def test_what_is_no_version_is_refused(tree, version):
    [problem] = release.problems(version, tree)
    assert "is no version" in problem


def test_a_tree_with_changes_is_refused_and_they_are_named(tree):
    (tree / "new").write_text("")
    (tree / "Cargo.toml").write_text(FILES["Cargo.toml"] + "# changed\n")
    [problem] = release.problems("1.2.3", tree)
    assert problem.splitlines() == ["the tree has changes, commit them first:", " M Cargo.toml",
                                    "?? new"]


@pytest.mark.parametrize("section", ["", "## [1.2.3]\n", "## [1x2.3] - 2026-11-25\n",
                                     "see ## [1.2.3] - 2026-11-25\n"])
def test_a_version_without_a_dated_section_in_the_changelog_is_refused(tree, section):
    (tree / "CHANGELOG.md").write_text(section)
    commit(tree)
    assert release.problems("1.2.3", tree) == [
        'CHANGELOG.md has no section "## [1.2.3] - DATE"']


@pytest.mark.parametrize("name", [name for name, text in FILES.items() if "version = " in text
                                  or "debian" in name])
def test_a_file_that_names_another_version_is_refused_and_says_which(tree, name):
    path = tree / name
    path.write_text(path.read_text().replace("1.2.3", "1.2.2"))
    commit(tree)
    assert release.problems("1.2.3", tree) == [f"{name} has version 1.2.2, not 1.2.3"]


def test_a_version_that_was_released_is_not_prepared_again(tree):
    git(tree, "tag", "v1.2.3")
    [tagged] = release.problems("1.2.3", tree)
    assert "is released: there is a tag v1.2.3" in tagged


def test_packages_are_built_from_a_commit_that_names_the_version(tree):
    assert release.package_problems("1.2.3", "HEAD", tree) == []
    # What the checkout has meanwhile does not matter.
    (tree / "Cargo.toml").write_text(FILES["Cargo.toml"].replace("1.2.3", "1.2.4"))
    assert release.package_problems("1.2.3", "HEAD", tree) == []
    commit(tree)
    assert release.package_problems("1.2.3", "HEAD", tree) == [
        "Cargo.toml has version 1.2.4, not 1.2.3"]
    assert release.package_problems("1.2.3", "HEAD~1", tree) == []


def test_packages_that_are_there_are_not_built_over_and_no_commit_is_named(tree):
    assert release.package_problems("1.2.3", "v1.2.3", tree) == ["there is no commit v1.2.3"]
    (tree / "out/release/1.2.3").mkdir(parents=True)
    [built] = release.package_problems("1.2.3", "HEAD", tree)
    assert "out/release/1.2.3 is there" in built


def test_the_command_says_why_and_fails(tree, monkeypatch, capsys):
    monkeypatch.setattr(release, "problems", lambda version: [f"{version} is not ready"])
    monkeypatch.setattr("sys.argv", ["ramlab release", "1.2.3"])
    with pytest.raises(SystemExit) as ended:
        release.main()
    assert ended.value.code == 1
    assert "1.2.3 is not ready" in capsys.readouterr().err


def test_all_files_of_this_tree_name_one_version():
    assert len(set(release.versions(ROOT).values())) == 1, release.versions(ROOT)


def test_kernel_packages_can_be_installed_with_the_released_package():
    version = release.versions(ROOT)["Cargo.toml"]
    wanted = re.fullmatch(r"ramslice \(>= (\S+)\)", kernel_deb.GUARD)[1]
    assert subprocess.run(["dpkg", "--compare-versions", version, "ge", wanted]).returncode == 0


def test_states_of_every_version_in_the_changelog_are_kept():
    versions = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    kept = sorted(path.name for path in (ROOT / release.UPGRADES).iterdir())
    assert kept == sorted(versions)


def test_kept_states_are_small_and_those_of_a_daemon_that_worked():
    states = sorted((ROOT / release.UPGRADES).glob("*/*.json"))
    assert len(states) >= len(release.POLICIES)
    for path in states:
        text = path.read_text()
        assert len(text) <= release.MOST_BYTES, path
        assert path.with_suffix(".toml").exists(), path
        state = json.loads(text.splitlines()[1])
        assert state["zones"], path
        assert release._saved_steps(path) >= release.STEPS, path


DAEMON = """#!/bin/sh
while [ $# -gt 1 ]; do
	[ "$1" = --dir ] && folder=$2
	shift
done
printf '%s\\n' '{{"version":1}}' '{state}' >"$folder/new"
mv "$folder/new" "$folder/state.json"
exec sleep 1000
"""


@pytest.fixture
def daemon(tmp_path):
    """Makes a program that saves a state as the daemon does."""
    def make(steps=release.STEPS, size=1):
        path = tmp_path / "daemon"
        state = {"earned": {"steps": steps}, "would_earn": {"steps": 0}, "zones": ["x" * size]}
        path.write_text(DAEMON.format(state=json.dumps(state)))
        path.chmod(0o755)
        return path
    return make


def test_a_state_and_its_settings_are_written_for_each_policy_and_for_observe(daemon, tmp_path):
    release.write_states(daemon(), tmp_path / "kept")
    names = {f"on-{policy}" for policy in release.POLICIES} | {"observe-governor"}
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        f"{name}.{end}" for name in names for end in ("toml", "json")}
    assert 'policy = "repair"' in (tmp_path / "kept/on-repair.toml").read_text()
    assert release._saved_steps(tmp_path / "kept/on-repair.json") >= release.STEPS


def test_the_kernel_of_the_machine_that_built_a_version_is_not_kept():
    contents = json.dumps({"prices": {"kernel_release": os.uname().release}})
    head, kept = release.without_host('{"version":1}\n' + contents + "\n").splitlines()
    assert json.loads(kept) == {"prices": {"kernel_release": "unknown"}}
    assert json.loads(head) == {"version": 1, "bytes": len(kept),
                                "crc32": f"{zlib.crc32(kept.encode()):08x}"}
    assert not any(os.uname().release in path.read_text()
                   for path in (ROOT / release.UPGRADES).glob("*/*"))


def test_a_state_that_is_too_large_is_not_kept(daemon, tmp_path, capsys):
    with pytest.raises(SystemExit):
        release.write_states(daemon(size=release.MOST_BYTES), tmp_path / "kept")
    assert "at most" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_a_daemon_that_does_not_step_fails_the_release(daemon, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(release, "PATIENCE", 0.3)
    with pytest.raises(SystemExit):
        release.write_states(daemon(steps=release.STEPS - 1), tmp_path / "kept")
    assert "saved no state" in capsys.readouterr().err
