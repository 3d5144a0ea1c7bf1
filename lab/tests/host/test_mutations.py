# SPDX-License-Identifier: GPL-2.0-or-later
"""The list of mutations fits the tree, and what no test catches is reported as survived."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ramlab import mutations
from ramlab.common import ROOT

LIST = mutations.read_list()
LAB = ROOT / "lab"
# The stages of the shell runner, by their files at mutations.OLDER.
STAGES = """
    00-setup 10-kernel 12-tools 15-check 16-kernel-deb 16-package-scripts 16-rebase 16-series
    16-sign 16-trial-boot 17-bench 18-rust 19-report 19-simulate 20-boot 30-kunit 40-books 50-churn
    55-stress 60-views 61-top 62-record 63-energy 64-calibrate 65-demand 66-cases 67-cache 68-stock
    70-interface 71-hold 73-daemon 75-off 77-placement 80-power 83-failures 85-proofs 88-fuzz
    long/72-reasons long/74-trust long/76-programs long/77-placement long/78-demos long/81-moves
    long/82-hard long/84-machine long/90-selftests long/95-package long/96-kernel-package
""".split()
CLAUSES = range(1, 9)
LEAST_OF_KIND = {"kernel": 25, "crates": 20, "lab": 8, "packaging": 7}


def by_id(values):
    return [pytest.param(one, id=one.id) for one in values]


# --- the list ---

@pytest.mark.parametrize("mutation", by_id(LIST.values()))
def test_the_text_occurs_once_in_its_file(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.text) == 1
    assert mutation.text != mutation.becomes


@pytest.fixture(scope="module")
def collected():
    """The node ids of the lab's tests that the list names, and of those beside them."""
    files = {one.test.split("::")[0] for one in LIST.values()
             if mutations.is_pytest(one.test) and not one.test.startswith("../")}
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("PYTEST_", "RAMLAB_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--collect-only",
         "-q", *sorted(files)],
        cwd=LAB, env=environment | {"PYTHONPATH": str(LAB)}, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.parametrize("mutation", by_id(
    one for one in LIST.values() if mutations.is_pytest(one.test)))
def test_the_named_test_of_pytest_exists(mutation, collected):
    name = mutation.test
    if name.startswith("../"):
        # Outside its folder, pytest's node ids lack the file.
        path, *_, function = name.split("::")
        assert re.search(rf"\bdef {function}\(", (LAB / path).read_text())
    else:
        assert name in collected or any(each.startswith(f"{name}[") for each in collected)


@pytest.mark.parametrize("mutation", by_id(
    one for one in LIST.values()
    if not mutations.is_pytest(one.test) and not mutations.is_command(one.test)))
def test_the_named_test_of_a_crate_exists(mutation):
    words, name = mutations.cargo_words(ROOT, mutation.test)
    assert words[0] == "-p" and name


@pytest.mark.parametrize("mutation", by_id(
    one for one in LIST.values() if mutations.is_command(one.test)))
def test_the_named_command_exists(mutation):
    program = mutation.test.split()[1]
    assert (ROOT / program).exists() or shutil.which(program) or program == "cargo"


def test_every_clause_of_the_design_is_broken_at_least_twice():
    counts = Counter(clause for one in LIST.values() for clause in one.clause)
    assert set(counts) == set(CLAUSES)
    assert [clause for clause in CLAUSES if counts[clause] < 2] == []


def test_every_stage_of_the_shell_runner_has_a_mutation():
    assert {one.stage for one in LIST.values()} - {""} == set(STAGES)


@pytest.mark.parametrize("kind", mutations.KINDS)
def test_there_are_enough_mutations_of_each_kind(kind):
    assert sum(one.kind == kind for one in LIST.values()) >= LEAST_OF_KIND[kind]


# --- the runner ---

RAMLAB = f"""#!/bin/sh
cd "$(dirname "$0")/.." && shift && exec {sys.executable} -m pytest "$@"
"""
# Builds unless a file says that it does not, and passes unless one says so.
CARGO = """#!/bin/sh
case "$*" in
*--no-run*) ! grep -q 'does not build' crates/some/src/lib.rs ;;
*) grep -q 'yes' crates/some/src/lib.rs && echo 'test result: ok. 1 passed; 0 failed' ;;
esac
"""
FILES = {
    "lab/bin/ramlab": RAMLAB,
    "lab/bin/cargo": CARGO,
    "lab/env": 'PATH=$PWD/lab/bin:$PATH\n',
    "lab/thing.py": "def double(x):\n    return 2 * x\n\n\ndef half(x):\n    return x / 2\n",
    "lab/tests/test_thing.py": """import pytest, thing
def test_double(): assert thing.double(2) == 4
def test_half(): assert thing.half(0) == 0
def test_wrong(): assert thing.double(2) == 5
def test_skipped(): pytest.skip("no such machine")
""",
    "crates/some/Cargo.toml": '[package]\nname = "ramslice-some"\n',
    "crates/some/src/lib.rs": "// yes\nfn it_holds() {}\n",
}


class Campaign:
    """A small repository with mutations of its own, and the command run on it."""

    def __init__(self, folder, monkeypatch):
        self.root, self.cache = folder / "root", folder / "cache"
        for name, text in FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        self.git("init", "--quiet")
        self.commit()
        for name in [name for name in os.environ if name.startswith(("RAMLAB_", "PYTEST_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        monkeypatch.setattr(mutations, "ROOT", self.root)
        monkeypatch.setattr(mutations, "PLACE", self.cache / "mutations")
        monkeypatch.setattr(mutations, "RAW", self.cache / "raw")
        monkeypatch.setattr(mutations, "KEPT", self.root / "results/mutations.json")
        # The session's own ending is not for the command.
        monkeypatch.setattr(mutations.signal, "signal", lambda *_: None)
        self.monkeypatch, self.list = monkeypatch, {}
        monkeypatch.setattr(mutations, "read_list", lambda: self.list)

    def git(self, *words):
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *identity, *words], cwd=self.root, check=True, capture_output=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a state")

    def add(self, name, file, text, becomes, test, kind="lab"):
        self.list[name] = mutations.Mutation(
            kind=kind, id=name, breaks="Something no longer holds.", file=file, text=text,
            becomes=becomes, test=test)

    def run(self, *words):
        """The exit status."""
        self.monkeypatch.setattr("sys.argv", ["ramlab mutations", *words])
        return mutations.main()

    def outcomes(self):
        kept = json.loads(mutations.KEPT.read_text())["mutations"]
        return {name: row["now"]["outcome"] for name, row in kept.items()}


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    return Campaign(tmp_path, monkeypatch)


def test_a_mutation_that_its_test_notices_is_caught_and_the_status_is_0(campaign):
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", "tests/test_thing.py::test_double")
    assert campaign.run() == 0
    assert campaign.outcomes() == {"twice": "caught"}


def test_a_mutation_that_nothing_notices_has_survived_and_the_status_is_1(campaign, capsys):
    campaign.add("halved", "lab/thing.py", "x / 2", "x / 3", "tests/test_thing.py::test_half")
    assert campaign.run() == 1
    assert campaign.outcomes() == {"halved": "survived"}
    assert re.search(r"^survived .* halved: ", capsys.readouterr().out, re.M)


@pytest.mark.parametrize("test", ["test_wrong", "test_skipped"])
def test_a_test_that_does_not_pass_without_the_mutation_catches_nothing(campaign, test):
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", f"tests/test_thing.py::{test}")
    assert campaign.run() == 1
    assert campaign.outcomes() == {"twice": "unsound"}


def test_a_text_that_is_not_there_is_a_broken_mutation(campaign):
    campaign.add("gone", "lab/thing.py", "4 * x", "x", "tests/test_thing.py::test_double")
    assert campaign.run() == 1
    assert campaign.outcomes() == {"gone": "broken"}


def test_a_test_that_does_not_exist_is_a_broken_mutation(campaign):
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", "tests/test_thing.py::test_none")
    assert campaign.run() == 1
    assert campaign.outcomes() == {"twice": "broken"}


@pytest.mark.parametrize("becomes, outcome", [
    ("no", "caught"), ("yes", "survived"), ("does not build, yes", "broken")])
def test_a_crate_that_does_not_build_says_nothing_about_its_test(campaign, becomes, outcome):
    campaign.add("said", "crates/some/src/lib.rs", "yes\nfn", f"{becomes} \nfn", "some::it_holds",
                 kind="crates")
    campaign.run()
    assert campaign.outcomes() == {"said": outcome}


def test_a_step_that_fails_has_noticed(campaign):
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", "$ grep -q '2 [*] x' lab/thing.py")
    assert campaign.run() == 0
    assert campaign.outcomes() == {"twice": "caught"}


def test_the_checkout_is_left_alone_and_the_worktree_is_as_committed_afterwards(campaign):
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", "tests/test_thing.py::test_double")
    campaign.run()
    for tree in (campaign.root, mutations.PLACE / "tree"):
        assert (tree / "lab/thing.py").read_text() == FILES["lab/thing.py"]


def test_what_has_a_result_runs_again_only_after_a_change(campaign, monkeypatch):
    judged = []
    judge = mutations.judge
    monkeypatch.setattr(mutations, "judge", lambda one, *rest: (
        judged.append(one.id), judge(one, *rest))[1])
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", "tests/test_thing.py::test_double")
    campaign.run()
    campaign.run()
    assert judged == ["twice"]
    path = campaign.root / "lab/thing.py"
    path.write_text(path.read_text() + "# Another line\n")
    campaign.commit()
    campaign.run()
    assert judged == ["twice", "twice"]
    campaign.run("--again")
    assert len(judged) == 3


def test_one_can_be_chosen_and_the_others_stay_as_not_run(campaign):
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", "tests/test_thing.py::test_double")
    campaign.add("halved", "lab/thing.py", "x / 2", "x / 3", "tests/test_thing.py::test_half")
    assert campaign.run("twice") == 0
    assert campaign.outcomes() == {"twice": "caught", "halved": "not run"}


def test_an_unknown_name_is_wrong_usage(campaign):
    with pytest.raises(SystemExit) as end:
        campaign.run("nothing")
    assert end.value.code == 2


def test_the_list_shows_each_mutation_with_its_test_and_runs_nothing(campaign, capsys):
    campaign.add("twice", "lab/thing.py", "2 * x", "3 * x", "tests/test_thing.py::test_double")
    assert campaign.run("--list") == 0
    out = capsys.readouterr().out
    assert "twice" in out and "test_double" in out and "not run" in out
    assert not Path(mutations.RAW).exists()


def test_an_older_revision_has_its_own_file_and_text(campaign, monkeypatch):
    campaign.git("tag", "older")
    (campaign.root / "crates/some/src/lib.rs").write_text("// yes, renamed\nfn it_holds() {}\n")
    campaign.commit()
    campaign.add("said", "crates/some/src/lib.rs", "yes, renamed", "no", "some::it_holds",
                 kind="crates")
    campaign.list["said"] = mutations.dataclasses.replace(
        campaign.list["said"], old_text="yes\n", old_becomes="no\n")
    monkeypatch.setattr(mutations, "OLDER", "older")
    assert campaign.run("--against", "older") == 0
    assert campaign.run() == 0
    row = json.loads(mutations.KEPT.read_text())["mutations"]["said"]
    assert (row["before"]["outcome"], row["now"]["outcome"]) == ("caught", "caught")
