# SPDX-License-Identifier: GPL-2.0-or-later
"""The conditions of a case study's run: what decides its figures.

A run stores its conditions, and counts as long as they are those of today.
"""

import collections
import functools
import os
from pathlib import Path

from ramlab import provenance
from ramlab.kernel.images import named_image

from . import compile, osm, tpch

STUDIES = {"compile": compile, "tpch": tpch, "import": osm}
FLAVOUR, MEMORY, SLICE = "plain", "512M", "16M"
# One instruction is one nanosecond; while it waits, time passes as it does.
ICOUNT = "-icount shift=0,sleep=on -cpu max,-erms,-fsrm"
PROFILE = "thesis-parc"
# The thesis does not name its disk. A SATA SSD it refers to reads 560 MB/s and writes 530 MB/s,
# 98000 requests a second.
DISK = {"read_bytes_per_s": 560e6, "write_bytes_per_s": 530e6, "requests_per_s": 98000}
SHARE = 16
# Of real time: a slice is worth what comes back within payback_s; the thesis packs every 30 s, for
# 35 minutes and more.
PAYBACK_S = 20
PERIOD_S = {"tiny": 2, "small": 20, "full": 20}

# Conditions that are parameters, by the names that people call them; the other one is "depends".
PARAMETERS = {"work": "work", "time_factor": "time factor", "native_machine": "native machine",
              "disk": "disk limits"}
# The program that a guest runs beside the work: the ledger, what ages memory, what records.
PROGRAMS = ("ramslice", "ramslice-lab")
NAMED_BY_HAND = {"RAMSLICE_PROGRAM", "RAMSLICE_LAB_PROGRAM"}
# What a run depends on besides the kernel and the program.
MODULES = ("lab/ramlab/cases/conditions.py", "lab/ramlab/guest/case.py",
           "lab/ramlab/guest/case_work.py", f"profiles/{PROFILE}.toml")


def rounded(factor):
    """A time factor as the ledger is given it, and reports it."""
    return {end: round(factor[end], 4) for end in ("low", "high")}


def throttle(factor):
    """Limits of the guest's disk, per second of the guest.

    Beside the guest's processor the disk is then as fast as the share of a disk beside the
    reference's.
    """
    scale = SHARE * (factor["low"] * factor["high"]) ** 0.5
    return {name: int(value / scale) for name, value in DISK.items()}


@functools.cache
def depends():
    """{dependency: git's id} of a run as things are now; None where a program or image was named by
    hand, because which code it is from is unknown."""
    if NAMED_BY_HAND & os.environ.keys() or named_image(FLAVOUR):
        return None
    modules = [*MODULES, *(f"lab/ramlab/cases/{Path(study.__file__).name}"
                           for study in STUDIES.values())]
    return provenance.dependencies(modules, {FLAVOUR: True}, PROGRAMS)


def now(name, scale, factor):
    """The conditions of a run of a study at a scale as things are now.

    factor is what the study's summary has as its time factor, or None.
    """
    factor = factor or {}
    timed = {"low", "high"} <= factor.keys()
    return {"work": STUDIES[name].home(scale).name,
            "time_factor": rounded(factor) if timed else None,
            "native_machine": factor.get("native_machine"),
            "disk": throttle(factor) if timed else None, "depends": depends()}


def of(run):
    """The conditions that a run stores; one from before it stored any has none."""
    return ({part: run.get(part) for part in (*PARAMETERS, "depends")}
            | {"time_factor": run["energy"].get("time_factor")})


def differing(one, other):
    """The conditions in which two differ, as people call them; of dependencies their names."""
    found = [called for part, called in PARAMETERS.items() if one[part] != other[part]]
    ours, theirs = one["depends"], other["depends"]
    if not ours or not theirs:
        return [*found, "unknown code"]
    return found + sorted(name for name in ours.keys() | theirs.keys()
                          if ours.get(name) != theirs.get(name))


def sort_out(document):
    """The runs of a summary that count now, and a line for each kind of the others that says why
    not.
    """
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


def mixed(document, scale, replaced):
    """Processors other than the time factor's by which the runs at this scale that stay were timed.

    replaced tells which runs do not stay.
    """
    factor = document["time_factor"]["native_machine"]
    return sorted({run["native_machine"] for run in document["runs"]
                   if run["scale"] == scale and run.get("native_machine")
                   and not replaced(run)} - {factor})
