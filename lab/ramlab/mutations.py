# SPDX-License-Identifier: GPL-2.0-or-later
"""Breaks the project in one place at a time, and checks that the named test notices it.

A test that cannot fail proves nothing. Each mutation in lab/tests/mutations/KIND.toml names a file,
a piece of its text, what the text becomes, and the test that must fail because of it: pytest's, a
crate's, or a step of make test. This command makes a git worktree of HEAD, runs the test there
without the mutation and then with it:

  caught     the test passes without the mutation, and fails with it
  survived   the test passes although the project is broken: it checks too little
  unsound    the test fails without the mutation, too, or was skipped: nothing is known
  broken     what was mutated does not build, or the text is not there: mend the list

  ramlab mutations --list                 what there is, and whether it was caught
  ramlab mutations --kind crates          all of a kind: kernel, crates, lab, packaging
  ramlab mutations legal-changes drop-one these alone
  ramlab mutations --kind crates --against 9eb9c9d
                                          the same mutations of an older revision, by its tests

A crate's mutation costs an incremental build, a kernel's one compiled file, a linked kernel and a
virtual machine (some minutes each). Mutated kernels are built in the kept build tree; no finished
kernel in the cache is replaced. What was caught is not run again until the mutation, its file or
the file of its test changes (--again runs it nevertheless), so an interrupted run continues where
it stopped. Results are raw/mutations.json in the cache; the summary of those that are still valid
is kept in results/mutations.json.

Exit status: 0 if each mutation that was asked for was caught, 1 if not, 2 for wrong usage.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from ramlab.common import CACHE, ROOT, die, put_json

LIST = ROOT / "lab/tests/mutations"
KINDS = ("kernel", "crates", "lab", "packaging")
PLACE = CACHE / "mutations"
RAW, KEPT = CACHE / "raw", ROOT / "results/mutations.json"
# The last revision with the shell runner, whose cases lab/tests/CASES.md lists.
OLDER = "9eb9c9d"
# Seconds that a test may take with the mutation; one that hangs because of it has noticed it.
TEST_SECONDS = 1800

# What the summary says of a mutation.
OUTCOMES = {
    "caught": "its test passes without it, and fails with it",
    "survived": "its test passes with it",
    "unsound": "its test fails or is skipped without it",
    "broken": "what was mutated does not build, or the list is wrong",
    "not run": "not run since it, its file or its test's file changed last",
    "listed": "not run: the case was a part of a stage, and is named by reading",
}


class Broken(Exception):
    """A mutation that cannot be judged, and why."""


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One change that a test must notice."""

    kind: str
    id: str
    breaks: str                 # one sentence: what no longer holds
    file: str
    text: str                   # occurs once in the file
    becomes: str
    test: str                   # pytest's node id, from the folder lab; crate::test; "$ command"
    clause: tuple = ()          # of the design's "What must hold"
    stage: str = ""             # of the shell runner at 9eb9c9d
    before: str = ""            # the case of that stage that caught it
    flavour: str = "plain"      # of the kernel
    old_file: str = ""          # at 9eb9c9d, where these differ
    old_text: str = ""
    old_becomes: str = ""
    old_test: str = ""

    def runs_in_old(self):
        """Whether the tree at 9eb9c9d has the test by itself: other tests were parts of stages."""
        return self.kind == "crates" and not is_pytest(self.old_test or self.test)

    def of_old(self):
        """The same mutation of the tree at 9eb9c9d."""
        return dataclasses.replace(
            self, file=self.old_file or self.file, text=self.old_text or self.text,
            becomes=self.old_becomes or self.becomes, test=self.old_test or self.test)

    def apply(self, tree):
        """Changes the file; returns what undoes that."""
        path = tree / self.file
        if not path.exists():
            raise Broken(f"there is no {self.file}")
        before = path.read_text()
        if (count := before.count(self.text)) != 1:
            raise Broken(f"{self.file} has the text {count} times")
        path.write_text(before.replace(self.text, self.becomes))
        return lambda: path.write_text(before)


def read_list(folder=LIST):
    """All mutations, by id."""
    found = {}
    for kind in KINDS:
        path = folder / f"{kind}.toml"
        for entry in tomllib.loads(path.read_text())["mutation"] if path.exists() else ():
            entry["clause"] = tuple(entry.get("clause", ()))
            one = Mutation(kind=kind, **entry)
            if one.id in found:
                die(f"{path}: {one.id} is there twice", 2)
            found[one.id] = one
    return found


# --- the worktree ---

def git(root, *words):
    done = subprocess.run(["git", *map(str, words)], cwd=root, text=True, capture_output=True)
    if done.returncode:
        die(f"git {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout.strip()


def worktree(root, place, revision):
    """A worktree of the revision, without any change of an earlier run."""
    tree = place / ("tree" if revision == "HEAD" else f"tree-{revision}")
    commit = git(root, "rev-parse", "--verify", f"{revision}^{{commit}}")
    git(root, "worktree", "prune")
    if tree.exists():
        git(tree, "checkout", "--quiet", "--force", "--detach", commit)
    else:
        place.mkdir(parents=True, exist_ok=True)
        git(root, "worktree", "add", "--quiet", "--detach", tree, commit)
    return tree


@contextlib.contextmanager
def alone(place):
    """Keeps other runs from the worktree, in which at most one thing is broken at a time."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run that holds {handle.name}", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def environment(place, jobs):
    """Cargo builds in a folder of its own: what is built there is broken."""
    changed = {"CARGO_TARGET_DIR": str(place / "target"), "PROPTEST_RNG_SEED": "1"}
    if jobs:
        changed |= {"CARGO_BUILD_JOBS": str(jobs), "RAMSLICE_JOBS": str(jobs)}
    return os.environ | changed


# --- tests ---

def is_command(test):
    """A step of make test: "$ command"."""
    return test.startswith("$ ")


def is_pytest(test):
    return ".py" in test.split("::")[0] and not is_command(test)


def definition(folder, name):
    """The file of a crate that defines a test."""
    pattern = re.compile(rf"\bfn {re.escape(name)}\(")
    found = [path for path in sorted(folder.rglob("*.rs")) if pattern.search(path.read_text())]
    if len(found) != 1:
        raise Broken(f"{folder.name}: the test {name} is defined {len(found)} times")
    return found[0]


def cargo_words(tree, test):
    """(words for Cargo, name) of a test `crate::name`: the package, and the target that has it."""
    crate, name = test.split("::")
    folder = tree / "crates" / crate
    inside = definition(folder, name).relative_to(folder).parts
    package = tomllib.loads((folder / "Cargo.toml").read_text())["package"]["name"]
    target = ["--lib"] if (folder / "src/lib.rs").exists() else ["--bins"]
    if inside[0] == "tests":
        target = ["--test", inside[1].removesuffix(".rs")]
    return ["-p", package, *target], name


def test_file(tree, mutation):
    """The file that defines a mutation's test, from the root of the tree."""
    if is_command(mutation.test):
        return mutation.file
    if is_pytest(mutation.test):
        return os.path.normpath(Path("lab", mutation.test.split("::")[0]))
    crate, name = mutation.test.split("::")
    return str(definition(tree / "crates" / crate, name).relative_to(tree))


class Testing:
    """Runs tests of a tree: passes() is True, False, or None if the test did not run."""

    def __init__(self, tree, place, jobs=None, programs=None):
        self.tree, self.place, self.programs = tree, place, programs
        self.environment = environment(place, jobs)
        self.output = ""

    def run(self, words, seconds=None, **changed):
        """The status of a command in the tree, or None if it took too long."""
        process = subprocess.Popen(
            [str(word) for word in words], cwd=self.tree, env=self.environment | changed, text=True,
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        try:
            self.output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.output = f"took longer than {seconds} s"
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return process.returncode

    def end_of_output(self):
        return "\n".join(self.output.strip().splitlines()[-15:])

    def passes(self, mutation):
        """Whether the test passes as the tree is. A test that hangs has failed."""
        if is_command(mutation.test):
            return self.run(["bash", "-c", f"source lab/env && {mutation.test[2:]}"]) == 0
        if not is_pytest(mutation.test):
            return self.cargo(mutation.test)
        changed = {}
        if mutation.kind == "kernel":
            changed["RAMSLICE_IMAGE"] = str(self.kernel(mutation.flavour))
        words = [self.tree / "lab/bin/ramlab", "test", mutation.test, "-n", "0",
                 "-p", "no:cacheprovider", "-rA"]
        # A mutated crate is in none of the programs that were built before.
        if self.programs and mutation.kind != "crates":
            words += ["--programs", self.programs]
        status = self.run(words, TEST_SECONDS, **changed)
        counts = dict(reversed(pair) for pair in re.findall(r"(\d+) (passed|failed|skipped|error)",
                                                            self.output.rpartition("\n=")[2]))
        if status == 0:
            return True if counts.get("passed") and "skipped" not in counts else None
        if status in (1, None):
            return False
        raise Broken(f"pytest ends with {status}: {self.end_of_output()}")

    def cargo(self, test):
        """Builds first: what does not build tells nothing of a test."""
        words, name = cargo_words(self.tree, test)
        line = ["bash", "-c", 'source lab/env && exec cargo test --locked --quiet "$@"', "cargo"]
        if self.run([*line, *words, "--no-run"]):
            raise Broken(f"it does not build: {self.end_of_output()}")
        status = self.run([*line, *words, "--", name], TEST_SECONDS)
        if status == 0:
            return True if re.search(r"[1-9]\d* passed", self.output) else None
        return False

    def kernel(self, flavour):
        """The image of the tree's kernel: from the cache if it is there, otherwise built aside."""
        words = [self.tree / "lab/bin/ramlab", "kernel", "--aside", self.place / "kernel", flavour]
        if self.run(words):
            raise Broken(f"the kernel does not build: {self.end_of_output()}")
        return self.output.splitlines()[-1]

    def restore_kernel(self):
        """Brings the kept source tree back to what is not mutated; the next build does the rest."""
        self.run([self.tree / "lab/bin/ramlab", "kernel", "--source"])


# --- results ---

class Results:
    """What is known of each mutation, in the cache; a result counts while nothing has changed."""

    def __init__(self, path):
        self.path = path
        self.found = json.loads(path.read_text()) if path.exists() else {}

    def put(self, key, **result):
        self.found[key] = result
        put_json(self.path, self.found)

    def valid(self, key, depends):
        result = self.found.get(key)
        return result if result and result["depends"] == depends else None


def dependencies(tree, mutation):
    """{what: id} of what a result is about: the mutation, its file, and its test's file."""
    about = [mutation.file, mutation.text, mutation.becomes, mutation.test]
    found = {"mutation": hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}
    for path in (mutation.file, test_file(tree, mutation)):
        if not (tree / path).exists():
            raise Broken(f"there is no {path}")
        found[path] = git(tree, "rev-parse", f"HEAD:{path}")
    return found


def judge(mutation, testing, unmutated):
    """(outcome, what is known about it, seconds) of one mutation."""
    begun = time.monotonic()
    try:
        if mutation.test not in unmutated:
            unmutated[mutation.test] = testing.passes(mutation)
        if not unmutated[mutation.test]:
            words = "was not run" if unmutated[mutation.test] is None else "fails"
            return "unsound", f"without the mutation, the test {words}", time.monotonic() - begun
        begun = time.monotonic()
        undo = mutation.apply(testing.tree)
        try:
            passed = testing.passes(mutation)
        finally:
            undo()
    except Broken as why:
        return "broken", str(why), time.monotonic() - begun
    seconds = time.monotonic() - begun
    if passed is None:
        return "survived", f"the test was skipped: {testing.end_of_output()}", seconds
    return "survived" if passed else "caught", "", seconds


def campaign(chosen, testing, results, again=False):
    """Runs what has no valid result; returns {id: result} of all that were chosen."""
    unmutated, found = {}, {}
    # Tests one after the other, so that each runs without a mutation once.
    order = {one.test: n for n, one in reversed(list(enumerate(chosen)))}
    touched_kernel = False
    try:
        for one in sorted(chosen, key=lambda one: order[one.test]):
            try:
                depends = dependencies(testing.tree, one)
            except Broken as why:
                depends = {"broken": str(why)}
            kept = results.valid(one.id, depends)
            if not kept or again or kept["outcome"] != "caught":
                touched_kernel |= one.kind == "kernel"
                outcome, why, seconds = judge(one, testing, unmutated)
                results.put(one.id, outcome=outcome, by=one.test, seconds=round(seconds, 1),
                            why=why, depends=depends)
            found[one.id] = results.found[one.id]
            show(one, found[one.id])
    finally:
        if touched_kernel:
            testing.restore_kernel()
    return found


def show(mutation, result):
    print(f"{result['outcome']:<9} {result['seconds']:7.1f} s  {mutation.id}: {mutation.breaks}",
          flush=True)
    if result["why"]:
        print("    " + result["why"].replace("\n", "\n    "), flush=True)


def summary(mutations, now, before):
    """What is kept: each mutation with its outcome now and at the older revision, if it was run."""
    def told(result, otherwise="not run"):
        if not result:
            return {"outcome": otherwise}
        return {name: result[name] for name in ("outcome", "by", "seconds")}

    rows = {}
    for one in mutations.values():
        # What was a part of a stage then has its case named, from reading.
        then = told(before.get(one.id), "not run" if one.runs_in_old() else "listed")
        rows[one.id] = {
            "kind": one.kind, "clause": list(one.clause), "stage": one.stage, "test": one.test,
            "now": told(now.get(one.id)), "before": then | {"case": one.before}}
    counts = {when: {} for when in ("now", "before")}
    for row in rows.values():
        for when, count in counts.items():
            outcome = row[when]["outcome"]
            count[outcome] = count.get(outcome, 0) + 1
    return {"outcomes": OUTCOMES, "counts": counts, "mutations": rows}


def known(mutations, tree, results):
    """{id: result} of those whose results are still valid."""
    found = {}
    for one in mutations.values():
        with contextlib.suppress(Broken):
            found[one.id] = results.valid(one.id, dependencies(tree, one))
    return found


def keep(mutations, root, place, raw, kept, older):
    """Writes the summary of all that is known."""
    now = known(mutations, worktree(root, place, "HEAD"), Results(raw / "mutations.json"))
    before = {}
    path = raw / f"mutations-{older}.json"
    if path.exists():
        old = {key: one.of_old() for key, one in mutations.items() if one.runs_in_old()}
        before = known(old, worktree(root, place, older), Results(path))
    put_json(kept, {"older": older} | summary(mutations, now, before))


def choose(mutations, args):
    if unknown := [word for word in args.ids if word not in mutations]:
        die(f"no mutation {', '.join(unknown)}: see ramlab mutations --list", 2)
    kinds = args.kind or KINDS
    chosen = [one for one in mutations.values() if one.kind in kinds
              and (not args.ids or one.id in args.ids)]
    if args.against:
        if refused := [one.id for one in chosen if not one.runs_in_old()]:
            if args.ids:
                die(f"{', '.join(refused)}: the older revision has no such test by itself", 2)
        chosen = [one.of_old() for one in chosen if one.runs_in_old()]
    return chosen


def print_list(chosen, results):
    for one in chosen:
        outcome = results.found.get(one.id, {}).get("outcome", "not run")
        clauses = ",".join(map(str, one.clause)) or "-"
        print(f"{outcome:<9} {one.kind:<9} {clauses:<4} {one.stage:<18} {one.id}\n"
              f"{'':10}{one.breaks}\n{'':10}{one.file}: {one.test}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="MUTATION", help="these alone (default: all)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="of this kind alone")
    parser.add_argument("--list", action="store_true", help="print them, and run nothing")
    parser.add_argument("--against", metavar="REVISION", help="mutate this revision instead")
    parser.add_argument("--again", action="store_true", help="run also what has a result")
    parser.add_argument("--jobs", type=int, metavar="N", help="jobs of a build (default: all CPUs)")
    parser.add_argument("--programs", metavar="DIR",
                        help="our programs for guests (default: build them from the worktree)")
    return parser.parse_args()


def main():
    args = arguments()
    mutations = read_list()
    chosen = choose(mutations, args)
    raw = RAW / (f"mutations-{args.against}.json" if args.against else "mutations.json")
    if args.list:
        print_list(chosen, Results(raw))
        return 0
    # What it began ends with it, and the worktree is left whole.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    with alone(PLACE):
        tree = worktree(ROOT, PLACE, args.against or "HEAD")
        testing = Testing(tree, PLACE, args.jobs, args.programs)
        found = campaign(chosen, testing, Results(raw), args.again)
        keep(mutations, ROOT, PLACE, RAW, KEPT, args.against or OLDER)
    not_caught = [key for key, result in found.items() if result["outcome"] != "caught"]
    print(f"{len(found) - len(not_caught)} of {len(found)} caught")
    if not_caught:
        print(f"not caught: {', '.join(not_caught)}")
    return int(bool(not_caught))


if __name__ == "__main__":
    sys.exit(main())
