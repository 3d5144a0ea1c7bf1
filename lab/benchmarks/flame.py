# SPDX-License-Identifier: GPL-2.0-or-later
"""Flame graphs from perf's data, drawn by inferno."""

import os
import subprocess

from common import CACHE, die

INFERNO = CACHE / "inferno"
VERSION = "0.12.8"
GRAPHS = {
    # name: (title, frame that the graph begins with)
    "emptying": ("Emptying a half full slice of 1 GiB", "ramslice_offline_slice"),
    "targets": ("Search for destinations", "ramslice_target_fill"),
}


def install():
    """inferno, built into the cache once."""
    if (INFERNO / "bin/inferno-flamegraph").exists():
        return
    print(f"installing inferno {VERSION}")
    line = f"source lab/env && cargo install --quiet --locked --no-default-features --features cli --root {INFERNO} inferno --version {VERSION}"
    if subprocess.run(["bash", "-c", line]).returncode:
        die("cargo could not install inferno: is there a network?")


def fold(folder):
    """Stacks of the program that asked, one a line, with their number."""
    script = subprocess.run(["perf", "script", "--kallsyms", folder / "kallsyms", "-i", folder / "perf.data", "--comm", "bench"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return subprocess.run([INFERNO / "bin/inferno-collapse-perf"], input=script, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=True).stdout.decode()


def draw(folder, out):
    """Writes out/flame-NAME.svg for each graph."""
    install()
    out.mkdir(parents=True, exist_ok=True)
    folded = fold(folder)
    (out / "emptying.folded").write_text(folded)
    for name, (title, root) in GRAPHS.items():
        lines = []
        for line in folded.splitlines():
            stack, count = line.rsplit(" ", 1)
            frames = stack.split(";")
            if root in frames:
                lines.append(";".join(frames[frames.index(root):]) + f" {count}\n")
        if not lines:
            die(f"no sample has {root}")
        svg = subprocess.run([INFERNO / "bin/inferno-flamegraph", "--title", title, "--countname", "samples",
                              "--colors", "blue", "--hash"],
                             input="".join(lines), text=True, stdout=subprocess.PIPE, check=True, env=os.environ).stdout
        (out / f"flame-{name}.svg").write_text(svg)
        print(f"  {out / f'flame-{name}.svg'}: {sum(int(line.rsplit(' ', 1)[1]) for line in lines)} samples")
