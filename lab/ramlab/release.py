# SPDX-License-Identifier: GPL-2.0-or-later
"""Prepares a version, and once it is tagged builds its packages.

Usage: ramlab release VERSION [--check | --from COMMIT]

Without a tag, it checks the tree and writes the states that the version's daemon saves. With the
tag vVERSION, it builds packages from the tag's tree for amd64 and arm64, twice in different places,
checks them with lintian, and fails unless both builds are the same to the byte. --from COMMIT
builds those of another commit, to try before the tag or for a version that has none.

The version is set by hand, in one commit: in Cargo.toml (`cargo check` takes it over into
Cargo.lock), lab/pyproject.toml and packaging/deb/debian/changelog (dch -v VERSION), with a section
"## [VERSION] - DATE" in CHANGELOG.md. This command changes none of them; it says where they
disagree, and --check does no more than that.

Packages go to out/release/VERSION, with SHA256SUMS. The states go to
packaging/deb/upgrades/VERSION, some kilobytes with the settings that they belong to: commit them.
The tests of the daemon load those of every version. States that are there already stay as they are.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zlib
from pathlib import Path

from ramlab.common import ROOT, built, die
from ramlab.release_packages import ARCHITECTURES, tagged_commit, write_packages

UPGRADES = "packaging/deb/upgrades"
POLICIES = ("never", "periodic", "watermarks", "threshold", "repair", "governor")
# A daemon that steps 20 times a second on a simulated machine whose time runs 600 times faster.
SPEED, SLICES, STEPS = 600, 16, 20
SETTINGS = """\
schema_version = 1
mode = "{mode}"
policy = "{policy}"
period_seconds = 0.05
[energy]
granularity = "slice"
time_factor = "1"
[state]
save_seconds = 0
[metrics]
listen = "127.0.0.1:0"
"""
PATIENCE = 120
MOST_BYTES = 12 << 10


def _git(root, *words):
    return subprocess.run(["git", *words], cwd=root, text=True, stdout=subprocess.PIPE,
                          check=True).stdout.rstrip()


def versions(root, commit=None):
    """{file: the version that it names}, in the checkout or in a commit."""
    def text(name):
        return _git(root, "show", f"{commit}:{name}") if commit else (root / name).read_text()

    cargo = tomllib.loads(text("Cargo.toml"))
    locked = tomllib.loads(text("Cargo.lock"))["package"]
    ours = {package["version"] for package in locked
            if package["name"].startswith("ramslice") and "source" not in package}
    lab = tomllib.loads(text("lab/pyproject.toml"))
    debian = text("packaging/deb/debian/changelog")
    return {
        "Cargo.toml": cargo["workspace"]["package"]["version"],
        "Cargo.lock": " and ".join(sorted(ours)),
        "lab/pyproject.toml": lab["project"]["version"],
        "packaging/deb/debian/changelog": re.match(r"ramslice \((\S+)\)", debian)[1],
    }


def _named_otherwise(version, root, commit=None):
    return [f"{file} has version {named}, not {version}"
            for file, named in versions(root, commit).items() if named != version]


def _already_built(version, root):
    if (root / "out/release" / version).exists():
        return [f"out/release/{version} is there: remove it to build the version again"]
    return []


def _no_version(version):
    if re.fullmatch(r"\d+\.\d+\.\d+", version):
        return []
    return [f"{version} is no version: write it as 1.2.3"]


def package_problems(version, commit, root=ROOT):
    """Why a version's packages cannot be built from a commit; empty if they can."""
    if found := _no_version(version) + _already_built(version, root):
        return found
    known = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=root,
                           stderr=subprocess.DEVNULL).returncode == 0
    return _named_otherwise(version, root, commit) if known else [f"there is no commit {commit}"]


def problems(version, root=ROOT):
    """Why this tree is not ready to be tagged as the version; empty if it is."""
    if found := _no_version(version):
        return found
    found = []
    if changes := _git(root, "status", "--porcelain"):
        found.append(f"the tree has changes, commit them first:\n{changes}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$",
                     (root / "CHANGELOG.md").read_text(), re.M):
        found.append(f'CHANGELOG.md has no section "## [{version}] - DATE"')
    found += _named_otherwise(version, root)
    if tagged_commit(version, root):
        found.append(f"{version} is released: there is a tag v{version}")
    return found


def _saved_steps(path):
    """The steps that a saved state has counted, in whichever mode; 0 if none is saved."""
    if not path.exists():
        return 0
    state = json.loads(path.read_text().splitlines()[1])
    return state["earned"]["steps"] + state["would_earn"]["steps"]


def without_host(state):
    """The state without the release of the kernel that this machine runs; the head fits again."""
    head, contents = state.splitlines()
    head = json.loads(head)
    contents = contents.replace(json.dumps(os.uname().release), json.dumps("unknown"))
    data = contents.encode()
    head |= {"bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}
    return json.dumps(head, separators=(",", ":")) + "\n" + contents + "\n"


def saved_state(program, settings):
    """What the daemon has saved after some steps with these settings, on a simulated machine."""
    with tempfile.TemporaryDirectory(prefix="ramslice-release-") as name:
        folder = Path(name)
        (folder / "settings.toml").write_text(settings)
        with open(folder / "log", "w+", encoding="utf-8") as log:
            daemon = subprocess.Popen(
                [program, "--speed", str(SPEED), "--slices", str(SLICES), "--config",
                 folder / "settings.toml", "--dir", folder], stderr=log)
            try:
                end = time.monotonic() + PATIENCE
                while _saved_steps(folder / "state.json") < STEPS:
                    if daemon.poll() is not None or time.monotonic() > end:
                        log.seek(0)
                        die(f"the daemon saved no state of {STEPS} steps:\n{log.read()}")
                    time.sleep(0.05)
                # It replaces the file as a whole: what is read is one state.
                return without_host((folder / "state.json").read_text())
            finally:
                daemon.send_signal(signal.SIGTERM)
                daemon.wait()


def write_states(program, folder):
    """Settings and saved state, NAME.toml and NAME.json, for each policy and for mode observe."""
    choices = [("on", policy) for policy in POLICIES] + [("observe", "governor")]
    states = {}
    for mode, policy in choices:
        settings = SETTINGS.format(mode=mode, policy=policy)
        states[f"{mode}-{policy}"] = settings, saved_state(program, settings)
    for name, (_, state) in states.items():
        if len(state) > MOST_BYTES:
            die(f"the state {name} has {len(state)} bytes, at most {MOST_BYTES} are kept")
    folder.mkdir(parents=True)
    for name, (settings, state) in states.items():
        (folder / f"{name}.toml").write_text(settings)
        (folder / f"{name}.json").write_text(state)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", metavar="VERSION", help="as in 1.2.3")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="check the tree, build nothing")
    only.add_argument("--from", dest="commit", metavar="COMMIT",
                      help="build packages from this commit instead of the version's tag")
    parser.add_argument("--arch", choices=ARCHITECTURES, action="append",
                        help="packages for this architecture alone (default: for both)")
    args = parser.parse_args()
    commit = args.commit or (not args.check and tagged_commit(args.version))
    if commit:
        if found := package_problems(args.version, commit):
            die("\n".join(found))
        packages = ROOT / "out/release" / args.version
        for path in write_packages(commit, packages, args.arch or ARCHITECTURES):
            print(f"{packages.relative_to(ROOT)}/{path.name}")
        print("both builds are the same to the byte")
        return 0
    if found := problems(args.version):
        die("\n".join(found))
    if args.check:
        print(f"{args.version} can be tagged from this tree")
        return 0
    states = ROOT / UPGRADES / args.version
    if states.exists():
        print(f"{states.relative_to(ROOT)}: kept as it is")
    else:
        write_states(built("examples/simulated"), states)
        print(f"{states.relative_to(ROOT)}: commit it")
    print(f"then run make check and make test, tag the commit v{args.version}, and call this again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
