# SPDX-License-Identifier: GPL-2.0-or-later
"""What decides the figures of a case study's run: a run that is kept says so of itself, and counts while it is as things are now."""

import collections
import functools
import hashlib
import json
import os
import tomllib
from pathlib import Path

from ramlab.bench import machines, programs
from ramlab.common import ROOT

from . import compile, digest, osm, tpch

STUDIES = {"compile": compile, "tpch": tpch, "import": osm}
FLAVOUR, MEMORY, SLICE = "plain", "512M", "16M"
# One instruction is one nanosecond; while it waits, time passes as it does.
ICOUNT = "-icount shift=0,sleep=on -cpu max,-erms,-fsrm"
PROFILE = "thesis-parc"
# The thesis does not name its disk. A SATA SSD it refers to reads 560 MB/s and writes 530 MB/s, 98000 requests a second.
DISK = {"read_bytes_per_s": 560e6, "write_bytes_per_s": 530e6, "requests_per_s": 98000}
SHARE = 16
# Of real time: a slice is worth what comes back within payback_s; the thesis packs every 30 s, for 35 minutes and more.
PAYBACK_S = 20
PERIOD_S = {"tiny": 2, "small": 20, "full": 20}

# Part, as a run and the functions here have it, and what people call it.
PARTS = {"code": "kernel", "work": "work", "program": "program ramslice", "guest": "guest's script", "profile": "profile",
         "payback_s": "payback time", "period_s": "period", "time_factor": "time factor", "native_machine": "native machine",
         "disk": "disk limits", "memory": "size of memory", "slice": "size of slices", "icount": "clock and CPU"}

# Of the program, what the guest has of it: the ledger, what ages memory, what records beside the run
CRATES = ["ramslice-energy", "ramslice-fragment", "ramslice-backend", "ramslice-record"]
COMMANDS = [f"crates/cli/src/commands/{name}.rs" for name in ("energy*", "fragment", "record")]
# Of a profile, what no figure depends on
TEXTS = {"source", "title", "notes"}


def rounded(factor):
    """A time factor as the ledger is told it, and says it."""
    return {end: round(factor[end], 4) for end in ("low", "high")}


def throttle(factor):
    """What the guest's disk may do, to be as fast beside the guest's processor as the share of a disk beside the reference's."""
    scale = SHARE * (factor["low"] * factor["high"]) ** 0.5
    return {name: int(value / scale) for name, value in DISK.items()}


def _figures(value):
    """A profile without its texts."""
    if isinstance(value, dict):
        return {key: _figures(v) for key, v in value.items() if key not in TEXTS}
    return [_figures(v) for v in value] if isinstance(value, list) else value


def profile():
    return digest(_figures(tomllib.loads((ROOT / f"profiles/{PROFILE}.toml").read_text())))


def program():
    """Of a program that was named by hand, nobody knows from which code it is: then it is the file."""
    if named := os.environ.get("RAMSLICE_PROGRAM"):
        return hashlib.sha256(Path(named).read_bytes()).hexdigest()[:16]
    return programs.digest(CRATES, COMMANDS)


def guest():
    return machines.hashed([ROOT / "lab/ramlab/vm/boot.py", *machines.modules("case.py")])


def now(name, scale, factor):
    """What a run of a study at a scale is made with as things are; factor is what its summary has, or None."""
    factor = factor or {}
    timed = {"low", "high"} <= factor.keys()
    return {"code": machines.code(FLAVOUR), "work": STUDIES[name].home(scale).name, "program": program(), "guest": guest(),
            "profile": profile(), "payback_s": PAYBACK_S, "period_s": PERIOD_S[scale],
            "time_factor": rounded(factor) if timed else None, "native_machine": factor.get("native_machine"),
            "disk": throttle(factor) if timed else None, "memory": MEMORY, "slice": SLICE, "icount": ICOUNT}


def of(run):
    """What a run was made with. What it does not say, as those from before, nobody knows."""
    return {part: run.get(part) for part in PARTS} | {"time_factor": run["energy"].get("time_factor")}


def differing(one, other):
    """The parts in which two differ, as people call them."""
    return [called for part, called in PARTS.items() if one[part] != other[part]]


def sort_out(document):
    """The runs of a summary that are as things are now, and a line for each kind of the others that says why they are not."""
    name, factor = document["case"], document.get("time_factor")
    as_now = functools.cache(lambda scale: now(name, scale, factor))
    kept, others = [], collections.Counter()
    for run in document["runs"]:
        differ = differing(of(run), as_now(run["scale"]))
        if differ:
            others[run["scale"], run["start"], ", ".join(differ)] += 1
        else:
            kept.append(run)
    return kept, [f"{name}, {scale}, {start}: {nr} stale, of another {parts}"
                  for (scale, start, parts), nr in others.items()]


def identity(document):
    """Hash of what full runs are made with as things are: what was worked out from others is stale."""
    return digest(json.dumps(now(document["case"], "full", document.get("time_factor"))))


def mixed(document, scale, replaced):
    """Processors other than the time factor's, by which the runs at this scale that stay were timed; replaced tells which
    do not."""
    factor = document["time_factor"]["native_machine"]
    return sorted({run["native_machine"] for run in document["runs"]
                   if run["scale"] == scale and run.get("native_machine") and not replaced(run)} - {factor})
