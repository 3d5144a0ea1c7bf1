# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of our programs entries are about, and a hash of the code that decides how each behaves.

Prices, policies and the daemon change without the kernel. Their figures are worth nothing for other code, either.
"""

import fnmatch
import functools
import hashlib
import re
import tomllib

from ramlab.common import ROOT

# Program: the crates that do its work; files of the command line's own; entries that are about it.
PROGRAMS = {
    "ramslice sim": (["ramslice-sim"], "crates/cli/src/commands/sim/*.rs", ["governor-*", "sim-*"]),
    "ramsliced": (["ramslice-daemon"], None, ["daemon-*"]),
    "ramslice calibrate": (["ramslice-calibrate", "ramslice-fragment", "ramslice-backend"],
                           "crates/cli/src/commands/calibrate*.rs", ["price-*"]),
}

# No figure depends on them: kernels without the patches, none of which anything was measured on; what a census counts.
LEFT_OUT = ("crates/backend/src/hotplug/", "crates/types/src/page_census.rs")


def of(entry):
    """Programs that the entry of this name is about; none where it is the kernel alone."""
    return [program for program, (_, _, patterns) in PROGRAMS.items()
            if any(fnmatch.fnmatchcase(entry, pattern) for pattern in patterns)]


def without_tests(text):
    """A file's text as far as the program goes: a module of tests that ends the file is left out."""
    head, mark, tests = text.partition("\n#[cfg(test)]\nmod tests {")
    # Something after it belongs to the program again.
    return head if mark and tests.find("\n}\n") == len(tests) - 3 else text


def _is_test(path):
    return path.name == "tests.rs" or path.name.endswith("_tests.rs")


def _members(root):
    """{name: folder} of the workspace's crates."""
    return {tomllib.loads(path.read_text())["package"]["name"]: path.parent for path in sorted(root.glob("crates/*/Cargo.toml"))}


def closure(crates, root=ROOT):
    """The crates of ours that these are made of, and of others' those that Cargo.lock has for them: (names, packages)."""
    members = _members(root)
    locked = {}
    for package in tomllib.loads((root / "Cargo.lock").read_text())["package"]:
        # Others name a package by its version, too, where there are several.
        locked[f"{package['name']} {package['version']}"] = package
        locked.setdefault(package["name"], package)
    ours, others, waiting = set(), {}, list(crates)
    while waiting:
        name = waiting.pop()
        package = locked[name]
        key = f"{package['name']} {package['version']}"
        if package["name"] in members:
            if package["name"] in ours:
                continue
            ours.add(package["name"])
            # The lock has what its tests need, too.
            needed = tomllib.loads((members[package["name"]] / "Cargo.toml").read_text()).get("dependencies", {})
            waiting += [n for n in package.get("dependencies", []) if n.split()[0] in needed]
        elif key not in others:
            others[key] = package.get("checksum", "")
            waiting += package.get("dependencies", [])
    return sorted(ours), dict(sorted(others.items()))


def digest(crates, patterns=(), root=ROOT):
    """Hash of crates, what they are built with, and files beside them; no tests."""
    ours, others = closure(crates, root)
    members = _members(root)
    paths = [path for name in ours for path in [members[name] / "Cargo.toml", *members[name].glob("src/**/*.rs")]]
    paths += [path for pattern in patterns for path in root.glob(pattern)]
    found = hashlib.sha256()
    for path in sorted(set(paths)):
        if _is_test(path) or str(path.relative_to(root)).startswith(LEFT_OUT):
            continue
        text = path.read_text()
        if path.suffix == ".rs":
            # What is left out is named somewhere, too.
            text = re.sub(r"(?m)^pub use (hotplug|page_census)::.*\n", "", without_tests(text))
        elif path.name == "Cargo.toml":
            text = re.sub(r"(?ms)^\[dev-dependencies\]\n.*?(?=^\[|\Z)", "", text)
        found.update(f"{path.relative_to(root)} {len(text)}\n{text}".encode())
    found.update("\n".join(f"{name} {checksum}" for name, checksum in others.items()).encode())
    return found.hexdigest()[:16]


def code(program, root=ROOT):
    """Hash of all that decides how a program behaves: its crates, files of the command line's, profiles."""
    crates, own, _ = PROGRAMS[program]
    patterns = [own] if own else []
    if "ramslice-energy" in closure(crates, root)[0]:
        patterns.append("profiles/*.toml")
    return digest(crates, patterns, root)


@functools.cache
def codes():
    """{program: hash} of the tree as it was at the first call."""
    return {program: code(program) for program in PROGRAMS}
