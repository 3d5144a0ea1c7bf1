# SPDX-License-Identifier: GPL-2.0-or-later
"""The check of Rust type names finds definitions, and fails on a third one of a name."""

import subprocess

import check_type_names


def test_types_are_found_and_associated_types_are_not():
    text = """
pub struct SliceId(u32);
pub(crate) enum Kind {
}
impl Iterator for Rows {
    type Item = Kind;

    fn next(&mut self) {
        struct Inner;
    }
}
type Rows = Vec<Kind>;
"""
    names = [name for _, name in check_type_names.definitions(text)]
    assert names == ["SliceId", "Kind", "Inner", "Rows"]


def run(monkeypatch, folder, definitions):
    (folder / "crates").mkdir()
    for number in range(definitions):
        (folder / "crates" / f"file{number}.rs").write_text("struct SliceRow;\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    monkeypatch.setattr(check_type_names, "ROOT", folder)
    monkeypatch.setattr("sys.argv", ["check_type_names.py"])
    return check_type_names.main()


def test_a_name_may_be_defined_twice(monkeypatch, tmp_path):
    assert run(monkeypatch, tmp_path, 2) == 0


def test_a_third_definition_fails(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, tmp_path, 3) == 1
    assert "SliceRow is defined 3 times" in capsys.readouterr().out
