# SPDX-License-Identifier: GPL-2.0-or-later
"""Provenance: which state of the tree a figure depends on, by git's own object ids.

A kept figure stores a mapping {dependency: id}. A dependency is a path of the repository (its id is
git's: a tree's for a folder, a blob's for a file), "crate NAME" (its id is the locked version) or
"package NAME" (its id is the installed version of a Debian package). The ids describe the working
tree, including changes that are not committed. A figure is stale when an id differs now.
"""

import contextlib
import functools
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import ROOT, built
from ramlab.kernel.bases import flavour_and_base

# Parts of kernel/ that no image is built from.
NOT_BUILT = {"Documentation", "tools"}
# What counts as changed under a figure that stores no dependencies.
UNKNOWN = "unknown dependencies"
# Debian packages that decide what an emulated machine does, and its kernel.
LAB_PACKAGES = ("gcc-12", "linux-source-6.12", "qemu-system-x86")
# What decides what a machine is, beside the words of the suite.
LAB_MACHINES = ("lab/ramlab/bench/machines.py", "lab/ramlab/vm/boot.py",
                "lab/ramlab/vm/kernel_words.py")


def _git(*words, root=ROOT, **options):
    done = subprocess.run(["git", *map(str, words)], cwd=root, check=True, text=True,
                          stdout=subprocess.PIPE, **options)
    return done.stdout.strip()


def working_tree(root=ROOT):
    """The id of the tree object that a commit of everything in this checkout would have."""
    with tempfile.TemporaryDirectory(prefix="ramlab-index-") as folder:
        index = Path(folder, "index")
        kept = Path(root, _git("rev-parse", "--git-path", "index", root=root))
        if kept.exists():
            # The copy keeps the times of files, so that only changed ones are read again.
            index.write_bytes(kept.read_bytes())
        environment = os.environ | {"GIT_INDEX_FILE": str(index)}
        _git("add", "--all", ".", root=root, env=environment)
        return _git("write-tree", root=root, env=environment)


def path_ids(paths, root=ROOT, tree=None):
    """{path: git's id} of files and folders in the working tree; None for what is not there."""
    tree = tree or working_tree(root)
    found = {}
    for path in paths:
        found[str(path)] = None
        with contextlib.suppress(subprocess.CalledProcessError):
            found[str(path)] = _git("rev-parse", "--verify", "--quiet", f"{tree}:{path}", root=root)
    return found


def kernel_paths(patched=True, root=ROOT):
    """The parts of kernel/ that decide what an image is: all that it is built from."""
    paths = ["kernel/base.lock", "kernel/config"]
    if patched:
        overlay = Path(root, "kernel/files")
        paths.append("kernel/patches")
        paths += [f"kernel/files/{entry.name}" for entry in sorted(overlay.iterdir())
                  if entry.name not in NOT_BUILT]
    return paths


def base_paths(kernel, patched=True):
    """What decides an image beside kernel_paths(), if it is of another source than the first."""
    folder = flavour_and_base(kernel)[1].folder
    if not folder:
        return []
    return [str(path.relative_to(ROOT)) for path in
            ([folder] if patched else [folder / "base.lock", folder / "base.config"])]


def guest_sources(modules, root=ROOT):
    """The programs in C that these modules name, and the headers there that those include."""
    folder = Path(root, "lab/guest")
    texts = [Path(root, module).read_text() for module in modules if str(module).endswith(".py")]
    waiting = [path.name for path in folder.glob("*.c")
               if any(f'"{path.stem}"' in text for text in texts)]
    found = set()
    while waiting:
        name = waiting.pop()
        if name not in found and (folder / name).exists():
            found.add(name)
            waiting += re.findall(r'^#include "(.*)"', (folder / name).read_text(), re.M)
    return {os.path.normpath(f"lab/guest/{name}") for name in found}


@functools.cache
def cargo_metadata(root=ROOT):
    """Cargo's own description of the workspace and its locked dependencies."""
    line = ["cargo", "metadata", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(line, cwd=root, check=True, stdout=subprocess.PIPE).stdout)


def package_of_program(program, metadata):
    """The id of the workspace's package that builds this program."""
    for package in metadata["packages"]:
        for target in package["targets"]:
            if package["source"] is None and target["name"] == program and "bin" in target["kind"]:
                return package["id"]
    raise ValueError(f"no package of the workspace builds the program {program}")


def crates_of_program(program, metadata):
    """What a program is built from: (folders of the workspace's crates, {other crate: version}).

    It follows Cargo's resolved graph without dependencies that only tests have.
    """
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting, seen = [package_of_program(program, metadata)], set()
    while waiting:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        waiting += [dependency["pkg"] for dependency in nodes[key]["deps"]
                    if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])]
    root = Path(metadata["workspace_root"])
    folders, others = [], {}
    for key in sorted(seen):
        package = packages[key]
        if package["source"] is None:
            folders.append(str(Path(package["manifest_path"]).parent.relative_to(root)))
        else:
            # Two versions of one crate may be linked into a program.
            name = f"crate {package['name']}"
            others[name] = " ".join(sorted({*others.get(name, "").split(), package["version"]}))
    return folders, others


@functools.cache
def package_version(name):
    """The installed version of a Debian package, or None."""
    line = ["dpkg-query", "--show", "--showformat", "${Version}", name]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout or None


def dependencies(modules=(), flavours=None, programs=(), root=ROOT, tree=None):
    """{dependency: id} of a figure as things are now.

    modules: paths of the suite's module and of what takes its figures inside the guest.
    flavours: {kernel: whether it is patched} of the images that were booted.
    programs: names of our programs that were called.
    tree: the tree to take ids from, if not the working tree.
    """
    paths = {str(path) for path in modules}
    found = {}
    for kernel, patched in (flavours or {}).items():
        paths.update([*kernel_paths(patched, root), *base_paths(kernel, patched)])
    if flavours:
        found |= {f"package {name}": package_version(name) for name in LAB_PACKAGES}
    for program in programs:
        folders, others = crates_of_program(program, cargo_metadata(root))
        paths.update(folders)
        found |= others
        # Programs have the built-in profiles inside.
        paths.add("profiles")
    return dict(sorted((path_ids(sorted(paths), root, tree) | found).items()))


def _locked_versions(root):
    versions = {}
    for package in cargo_metadata(root)["packages"]:
        if package["source"] is not None:
            versions.setdefault(f"crate {package['name']}", set()).add(package["version"])
    return versions


def changed(stored, root=ROOT, tree=None):
    """Names of the stored dependencies whose ids differ now; UNKNOWN if nothing was stored."""
    if not stored:
        return [UNKNOWN]
    paths = [name for name in stored if " " not in name]
    now = path_ids(paths, root, tree)
    differing = [name for name in paths if now[name] != stored[name]]
    crates = [name for name in stored if name.startswith("crate ")]
    if crates:
        versions = _locked_versions(root)
        differing += [name for name in crates
                      if not set(stored[name].split()) <= versions.get(name, set())]
    differing += [name for name in stored if name.startswith("package ")
                  and package_version(name.removeprefix("package ")) != stored[name]]
    return differing


class Used:
    """What one part of a suite uses, noted where it is used: the source of its dependencies."""

    def __init__(self, module):
        self.modules = {_relative(module)}
        self.programs = set()
        # A file that changes while the part runs is not what was measured.
        self.tree = working_tree()

    def guest_script(self, name):
        """Notes a program of ramlab.guest that takes figures inside a guest."""
        self.modules.add(f"lab/ramlab/guest/{name}")

    def program(self, name):
        """Notes one of our programs, builds it, and returns its path."""
        self.programs.add(name)
        return built(name)

    def dependencies(self, flavours, root=ROOT):
        """{dependency: id} as things are now; flavours as for dependencies()."""
        modules = set(self.modules)
        if flavours:
            modules |= {*LAB_MACHINES, *guest_sources(self.modules, root)}
        return dependencies(modules, flavours, self.programs, root, self.tree)


def _relative(module):
    """The path of an imported module from the root of the tree."""
    return str(Path(module.__file__).resolve().relative_to(ROOT))
