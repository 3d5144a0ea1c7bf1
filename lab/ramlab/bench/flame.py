# SPDX-License-Identifier: GPL-2.0-or-later
"""Flame graphs from perf's data, drawn by inferno."""

import datetime
import os
import subprocess

from ramlab.common import CACHE, ROOT, die

INFERNO = CACHE / "inferno"
VERSION = "0.12.8"
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
    line = f"source lab/env && cargo install --quiet --locked --no-default-features --features cli --root {INFERNO} inferno --version {VERSION}"
    if subprocess.run(["bash", "-c", line]).returncode:
        die("cargo could not install inferno: is there a network?")


def fold(folder, name):
    """Stacks of the program that asked, one a line, with their number."""
    script = subprocess.run(["perf", "script", "--kallsyms", folder / "kallsyms", "-i", folder / f"{name}.data", "--comm", "bench"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return subprocess.run([INFERNO / "bin/inferno-collapse-perf"], input=script, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=True).stdout.decode()


def draw(folder, out, image, code):
    """Writes OUT/flame-NAME.svg for each graph, whose title says what was profiled when, a comment of which code; their paths."""
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
        svg = subprocess.run([INFERNO / "bin/inferno-flamegraph", "--title", f"{title}, {image}, {datetime.date.today()}", "--countname", "samples",
                              "--colors", "blue", "--hash"],
                             input="".join(lines), text=True, stdout=subprocess.PIPE, check=True, env=os.environ).stdout
        drawn.append(out / f"flame-{name}.svg")
        drawn[-1].write_text(svg + f"<!-- code {code} -->\n")
        print(f"  {drawn[-1]}: {sum(int(line.rsplit(' ', 1)[1]) for line in lines)} samples")
    return drawn


def stale(code, folder=ROOT / "results"):
    """Names of the graphs that are kept and are of other code, or do not say of which."""
    names = [f"flame-{name}.svg" for name in GRAPHS]
    return [name for name in names if (folder / name).exists()
            and f"<!-- code {code} -->" not in (folder / name).read_text()]
