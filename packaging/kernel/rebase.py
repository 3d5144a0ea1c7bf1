#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves the series to Debian's newest kernel source of this release, or names the conflicts.

Usage: ramlab rebase [--check] [--to VERSION | --tree DIRECTORY]
  --check           changes nothing: says what would happen
  --to VERSION      to this version of the package instead of the newest that apt knows
  --tree DIRECTORY  to this kernel tree instead; implies --check

The newest version is what apt's lists have, so run apt-get update before. Its package is
downloaded into the cache, not installed. The patches are applied by git am -3 on top of the new
source, in a scratch repository that knows the old one. If all apply, kernel/patches is written
again and kernel/base.lock names the new version; `make setup kernel series test` then shows
whether it works. If any does not, nothing is written.

Exit status: 0 if it moved, would move or is the newest already; 1 on conflicts, each named with its
files.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ramlab.common import CACHE, ROOT, die, locked, need_space, read_lock, run
from ramlab.kernel.bases import PATCHES
from ramlab.kernel.source import OVERLAY, Source, git, overlay, series

LOCK = ROOT / "kernel/base.lock"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--to", metavar="VERSION")
    target.add_argument("--tree", type=Path, metavar="DIRECTORY")
    return parser.parse_args()


def newest(package):
    """The highest version that apt's lists have."""
    listing = run(["apt-cache", "madison", package])
    versions = [line.split("|")[1].strip() for line in listing.splitlines()
                if line.count("|") == 2 and "Packages" in line]
    # Security updates are what counts, not backports of later releases
    versions = [version for version in versions if "~bpo" not in version]
    if not versions:
        die(f"apt knows no {package}: is bookworm-security among its sources, "
            "and did apt-get update run?")
    best = versions[0]
    for version in versions[1:]:
        if subprocess.run(["dpkg", "--compare-versions", version, "gt", best]).returncode == 0:
            best = version
    return best


def fetch(package, version, folder):
    """Downloads a version of the source package; returns (the tree, the tarball's hash)."""
    need_space(CACHE, 4)
    print(f"fetching {package} {version}", flush=True)
    run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", f"{package}={version}"],
        cwd=folder)
    run(["dpkg-deb", "-x", next(folder.glob("*.deb")), folder / "package"])
    tarball = next((folder / "package/usr/src").glob("linux-source-*.tar.xz"))
    with open(tarball, "rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    tree = folder / "tree"
    tree.mkdir()
    print("unpacking it", flush=True)
    run(["tar", "-xJf", tarball, "--strip-components=1", "-C", tree])
    return tree, sha256


def made_for(lock, folder):
    """The tree that the series was made for.

    It is the installed one, or after an update the kept one, or a downloaded one.
    """
    source = Source()
    if source.recorded:
        with locked("kernel"):
            source.extract()
        return source.pristine
    kept = CACHE / "trees" / lock["sha256"][:12] / "pristine"
    if kept.exists():
        return kept
    # Mirrors may have no older version than the newest any more.
    print(f"{source.tarball} is of {source.package} now, the series was made for "
          f"{lock['version']} (if apt no longer has that, install it from snapshot.debian.org)")
    old = folder / "old"
    old.mkdir()
    return fetch(lock["package"], lock["version"], old)[0]


def linux_version(tree):
    head = (tree / "Makefile").read_text()[:400]
    return ".".join(re.search(rf"^{key} = (\d+)", head, re.M)[1]
                    for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))


def touched():
    """The files that patches change."""
    changed = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.M)
    return sorted({name for patch in series()
                   for name in changed.findall(patch.read_text(errors="replace"))})


def commit(repo, tree, names, message):
    """The state of these files in a kernel tree, as a commit."""
    for name in names:
        (repo / name).unlink(missing_ok=True)
        # Research's patches change files of ours, too
        path = OVERLAY / name if (OVERLAY / name).exists() else tree / name
        if path.exists():
            (repo / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, repo / name)
    git(repo, "add", "-f", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", message)


def transplant(old, new, repo):
    """Applies the series to the new tree; returns [(patch, files that conflict)]."""
    names = touched()
    git(repo.parent, "init", "-q", repo)
    commit(repo, old, names, "the old source")
    base = git(repo, "rev-parse", "HEAD").strip()
    # So that git knows what each patch was made for: three ways need the middle.
    git(repo, "am", "-q", *series())
    git(repo, "checkout", "-q", "--detach", base)
    commit(repo, new, names, "the new source")
    git(repo, "tag", "new")
    conflicts = []
    for patch in series():
        done = subprocess.run(
            ["git", "-C", repo, "-c", "user.name=ramslice",
             "-c", "user.email=developers@ramslice.example",
             "-c", "core.abbrev=12", "am", "-q", "-3", "--committer-date-is-author-date", patch],
            text=True, capture_output=True,
        )
        if done.returncode:
            files = git(repo, "diff", "--name-only", "--diff-filter=U").split()
            errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
            conflicts.append((patch.name, files or errors))
            git(repo, "am", "--skip")
    return conflicts


def main():
    args = arguments()
    lock = read_lock()
    version = lock["version"] if args.tree else args.to or newest(lock["package"])
    if not args.tree and version == lock["version"]:
        print(f"{lock['package']} {version} is the newest already")
        return
    older = ["dpkg", "--compare-versions", version, "lt", lock["version"]]
    if not args.to and not args.tree and subprocess.run(older).returncode == 0:
        die(f"apt knows {lock['package']} {version} as the newest, the series is for "
            f"{lock['version']} already: did apt-get update run?")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ramslice-rebase-", dir=CACHE) as scratch:
        scratch = Path(scratch)
        old = made_for(lock, scratch)
        tree, sha256 = (args.tree, None) if args.tree else fetch(lock["package"], version, scratch)
        repo = scratch / "repo"
        conflicts = transplant(old, tree, repo)
        taken = [str(name) for name in overlay() if (tree / name).exists()]
        for name, files in conflicts:
            print(f"{name} conflicts: {', '.join(files)}")
        for name in taken:
            print(f"kernel/files/{name}: the new source has this file, too")
        if conflicts or taken:
            print("later patches may conflict only because an earlier one is missing; "
                  "nothing was written")
            sys.exit(1)
        linux = linux_version(tree) if (tree / "Makefile").exists() else "?"
        moved = git(repo, "diff", "--stat", "HEAD~%d" % len(series()), "new").strip()
        assert not moved, moved
        print(f"all {len(series())} patches apply to {args.tree or version} (Linux {linux})")
        if args.check or args.tree:
            return
        fresh = scratch / "patches"
        git(repo, "format-patch", "-q", "--zero-commit", "--no-signature", "-N", "-o", fresh, "new")
        write(lock, version, linux, sha256, fresh)


def write(lock, version, linux, sha256, fresh):
    """The refreshed patches and the new lock, all or nothing."""
    text = LOCK.read_text()
    for key, value in (("version", version), ("linux", linux), ("sha256", sha256)):
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.M)
    names = sorted(path.name for path in fresh.glob("*.patch"))
    gone = series()
    # Each goes to the part of the series that the one which it replaces is in
    parts = [path.relative_to(PATCHES).parent for path in gone]
    listing = [str(parts[min(number, len(parts) - 1)] / name) for number, name in enumerate(names)]
    # Beside what it replaces, because renames do not cross file systems.
    with tempfile.TemporaryDirectory(prefix=".rebase-", dir=LOCK.parent) as folder:
        new, old, new_lock = (Path(folder) / name for name in ("new", "old", "lock"))
        shutil.copytree(PATCHES, new, ignore=lambda inside, there: [
            name for name in there if Path(inside) / name in gone])
        for name, path in zip(names, listing, strict=True):
            shutil.copy2(fresh / name, new / path)
        (new / "series").write_text("".join(f"{path}\n" for path in listing))
        new_lock.write_text(text)
        PATCHES.rename(old)
        try:
            new.rename(PATCHES)
            new_lock.replace(LOCK)
        except BaseException:
            if PATCHES.exists():
                PATCHES.rename(new)
            old.rename(PATCHES)
            raise
    print(f"kernel/patches and kernel/base.lock are for {lock['package']} {version} now.\n"
          f"Next: apt-get install {lock['package']}={version}; make kernel series test")


if __name__ == "__main__":
    main()
