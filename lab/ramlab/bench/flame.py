# SPDX-License-Identifier: GPL-2.0-or-later
"""Flame graphs from perf's data, drawn by inferno."""

import datetime
import json
import os
import re
import subprocess

from ramlab import provenance
from ramlab.common import CACHE, ROOT, die

INFERNO = CACHE / "inferno"
VERSION = "0.12.8"
MARK = re.compile(r"<!-- depends (.*) -->")
FUNCTION = re.compile(r"<title>([^<]*) \([0-9,]+ samples, ")
GRAPHS = {
    # name, which is that of perf's data, too: (title, frame that the graph begins with)
    "emptying": ("Emptying a half full slice of 1 GiB", "ramslice_offline_slice"),
    "targets": ("Search for destinations that hold cache", "ramslice_target_fill"),
}


def install():
    """inferno, built into the cache once."""
    if (INFERNO / "bin/inferno-flamegraph").exists():
        return
    print(f"installing inferno {VERSION}")
    line = (
        "source lab/env && with_progress inferno cargo install --locked --no-default-features "
        f"--features cli --root {INFERNO} inferno --version {VERSION}"
    )
    if subprocess.run(["bash", "-c", line]).returncode:
        die("cargo could not install inferno: is there a network?")


def fold(folder, name):
    """Stacks of the program that asked, one a line, with their number."""
    script = subprocess.run(
        [
            "perf",
            "script",
            "--kallsyms",
            folder / "kallsyms",
            "-i",
            folder / f"{name}.data",
            "--comm",
            "bench",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    ).stdout
    return subprocess.run(
        [INFERNO / "bin/inferno-collapse-perf"],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    ).stdout.decode()


def draw(folder, out, image, depends):
    """Writes OUT/flame-NAME.svg for each graph and returns their paths.

    The title says what was profiled when; a comment holds what the graph depends on.
    """
    install()
    drawn = []
    out.mkdir(parents=True, exist_ok=True)
    for name, (title, root) in GRAPHS.items():
        folded = fold(folder, name)
        (out / f"{name}.folded").write_text(folded)
        lines = []
        for line in folded.splitlines():
            stack, count = line.rsplit(" ", 1)
            frames = stack.split(";")
            if root in frames:
                lines.append(";".join(frames[frames.index(root):]) + f" {count}\n")
        if not lines:
            die(f"no sample has {root}")
        svg = subprocess.run(
            [
                INFERNO / "bin/inferno-flamegraph",
                "--title",
                f"{title}, {image}, {datetime.date.today()}",
                "--countname",
                "samples",
                "--colors",
                "blue",
                "--hash",
            ],
            input="".join(lines),
            text=True,
            stdout=subprocess.PIPE,
            check=True,
            env=os.environ,
        ).stdout
        drawn.append(out / f"flame-{name}.svg")
        drawn[-1].write_text(svg + f"<!-- depends {json.dumps(depends)} -->\n")
        print(f"  {drawn[-1]}: {sum(int(line.rsplit(' ', 1)[1]) for line in lines)} samples")
    return drawn


def depends_of(path):
    """What a kept graph says that it depends on, or None."""
    found = MARK.search(path.read_text())
    return json.loads(found[1]) if found else None


def functions(name, folder=ROOT / "results"):
    """The functions in a kept graph, or None if there is no such graph."""
    path = folder / name
    return set(FUNCTION.findall(path.read_text())) if path.exists() else None


def stale(tree=None, folder=ROOT / "results", names=None):
    """Names of the kept graphs that something has changed under, and of named ones that are
    missing.
    """
    found = []
    for name in names or [f"flame-{name}.svg" for name in GRAPHS]:
        path = folder / name
        if path.exists():
            if provenance.changed(depends_of(path), tree=tree):
                found.append(name)
        elif names:
            found.append(name)
    return found
