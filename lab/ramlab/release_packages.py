# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds the packages of a commit for both architectures, twice, and compares what came of it.

Each of the two builds has a checkout, a target directory and so all of its paths for itself: what
is the same in both does not depend on where, when and beside what it was built. The tool chain,
Cargo's registry and this machine's packages are the same for both. What differs is named, with the
first files in it that do.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from ramlab.common import CACHE, ROOT, die, locked, need_space, run

ARCHITECTURES = ("amd64", "arm64")
BUILDS = ("first", "second")
# Of one checkout and what Cargo makes in it for both architectures.
GIB = 4
SUMS = "SHA256SUMS"
# Differing files that are named for one package.
NAMED = 5


def tagged_commit(version, root=ROOT):
    """The commit that the tag of a version names; empty without one."""
    asked = ["git", "rev-parse", "--quiet", "--verify", f"refs/tags/v{version}^{{commit}}"]
    return subprocess.run(asked, cwd=root, text=True, stdout=subprocess.PIPE).stdout.strip()


def commit_of(version, root=ROOT):
    """The commit of a version: its tag's, otherwise the one that added its daemon's states.

    Empty if there is neither.
    """
    added = run(["git", "log", "--diff-filter=A", "--format=%H", "--",
                 f"packaging/deb/upgrades/{version}"], cwd=root).split()
    return tagged_commit(version, root) or (added[-1] if added else "")


def environment(work):
    """What a build is run with: a target directory of its own, and no path of this machine.

    Panic messages and the like have the paths of sources. --remap-path-prefix has the last that
    fits, hence the checkout and the target directory come after what they may lie in.
    """
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    paths = {home: "/cargo", work / "tree": "/ramslice", work / "target": "/target"}
    flags = [f"--remap-path-prefix={path}={name}" for path, name in paths.items()]
    return {**os.environ, "CARGO_TARGET_DIR": str(work / "target"),
            "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}


def check_out(commit, tree, root=ROOT):
    """The tree of a commit, with the repository's objects and nothing that is not committed."""
    run(["git", "clone", "--quiet", "--no-checkout", "--shared", root, tree])
    run(["git", "-c", "advice.detachedHead=false", "checkout", "--quiet", commit], cwd=tree)


def build(commit, work, architectures=ARCHITECTURES):
    """Packages of a commit in a directory of the build `work`, checked by lintian."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tree = work / "tree"
    check_out(commit, tree)
    for arch in architectures:
        # Version 0.1.0 knew one architecture, and so no option for it.
        words = [] if arch == "amd64" else ["--arch", arch]
        subprocess.run([tree / "packaging/deb/build", *words, "--release", "out/packages"],
                       env=environment(work), check=True)
    return tree / "out/packages"


def released_package(version, name):
    """A package of a released version for amd64, built from its commit and kept in the cache."""
    commit = commit_of(version)
    if not commit:
        die(f"there is neither a tag v{version} nor packaging/deb/upgrades/{version} in a commit: "
            "is this a shallow clone?")
    kept = CACHE / "releases" / commit
    with locked("releases"):
        if not kept.exists():
            need_space(CACHE, GIB)
            work = CACHE / "release-before"
            packages = build(commit, work, ["amd64"])
            shutil.copytree(packages, partial := kept.with_suffix(".part"), dirs_exist_ok=True)
            partial.rename(kept)
            shutil.rmtree(work)
    [package] = kept.glob(f"{name}_*_amd64.deb")
    return package


def _members(package, folder):
    """{path: digest, or where a link leads} of what is in a package, control files included."""
    run(["dpkg-deb", "-R", package, folder])
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def differing_members(one, other, work):
    """Paths in two packages that differ; empty if only the archives around them do."""
    for name in BUILDS:
        shutil.rmtree(work / name, ignore_errors=True)
        (work / name).mkdir(parents=True)
    mine, its = _members(one, work / "first"), _members(other, work / "second")
    return [name for name in sorted(mine.keys() | its.keys()) if mine.get(name) != its.get(name)]


def differences(first, second, work):
    """What two directories of packages differ in, a sentence for each; empty if in nothing."""
    packages = [{path.name: path for path in folder.glob("*.deb")} for folder in (first, second)]
    found = []
    for name in sorted(packages[0].keys() | packages[1].keys()):
        pair = [made.get(name) for made in packages]
        if None in pair:
            found.append(f"{name}: only one of the two builds has it")
        elif pair[0].read_bytes() != pair[1].read_bytes():
            members = differing_members(*pair, work)
            more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
            what = ", ".join(members[:NAMED]) + more
            found.append(f"{name}: {what or 'times, owners, modes or order alone'}")
    return found


def write_packages(commit, to, architectures=ARCHITECTURES, work=CACHE / "release"):
    """Builds a commit's packages twice; the same in both, they go to `to` with their digests."""
    need_space(work, GIB)
    try:
        # One after the other: the second gets what the first leaves, and there is room for one.
        made = []
        for name in BUILDS:
            print(f"packages of {commit[:12]}, {name} of two builds", flush=True)
            packages = build(commit, work / name, architectures)
            made.append(work / f"packages-{name}")
            shutil.rmtree(made[-1], ignore_errors=True)
            shutil.copytree(packages, made[-1])
            shutil.rmtree(work / name)
        if found := differences(*made, work / "compare"):
            die("the two builds differ:\n" + "\n".join(found) +
                f"\nboth are in {work}; diffoscope shows more")
        if not any(made[0].glob("*.deb")):
            die("the build made no packages")
    except subprocess.CalledProcessError as error:
        die(f"the build failed: {error}")
    to.mkdir(parents=True, exist_ok=True)
    packages = sorted(made[0].glob("*.deb"))
    for path in packages:
        shutil.copy(path, to)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in packages]
    (to / SUMS).write_text("".join(sums))
    shutil.rmtree(work)
    return packages
