# SPDX-License-Identifier: GPL-2.0-or-later
"""The conditions of a run of `ramlab size`: the machine that it is in, and what decides its
figures.

A run stores its conditions, and counts as long as they are those of today.
"""

import functools
import os

from ramlab import provenance
from ramlab.kernel.images import named_image

from . import STUDIES, work_of

FLAVOUR = "plain"
# A machine of 512 MiB and more would keep memory free for huge pages, the others none.
KERNEL_WORDS = "transparent_hugepage=never"
SHARES = (0.5, 0.7, 0.85, 1.0, 1.2, 1.6)
# Of the live data, for a heap.
HEAP_SHARES = (1.1, 1.5, 2.0, 3.0, 4.0, 6.0)
SEEDS = 3
# Programs whose sizes are also had by booting with less.
BOOTED = ("quicksort", "readers")
BOOTED_TOLERANCE_KIB = 256
RAMP = {"share_high": 1.2, "share_low": 0.5, "step": 2, "step_ms": 200, "every_ms": 50}
# Of the host, for one run, its boot included.
LIMIT_S = 60
PROGRAMS = ("ramslice-lab",)
# What runs a study in the guest
PYTHON = "python3.11"
COMMON = (*(f"lab/ramlab/sizes/{name}.py" for name in ("__init__", "conditions", "disk_modules",
                                                       "ram_disk")),
          *(f"lab/ramlab/vm/{name}.py" for name in ("kernel_words", "sealed_guest")),
          *(f"lab/ramlab/guest/{name}.py" for name in ("size", "size_work", "slow_disk")))
READERS = ("lab/guest/readers.c",)
# What only some studies are made of
OWN = {"quicksort": ("lab/guest/quicksort.c",), "readers": READERS, "readers-10": READERS,
       "biased": READERS, "biased-10": READERS, "garbage": ("lab/guest/Garbage.java",),
       "tpcc": ("lab/ramlab/sizes/tpcc.py",)}
MODULES = tuple(sorted({*COMMON, *(path for paths in OWN.values() for path in paths)}))


@functools.cache
def depends(name, is_ramp):
    """{dependency: git's id} of a study's runs as things are now; None where an image or program
    was named by hand, because which code it is from is unknown.
    """
    # Only a ramp calls a program of ours
    if named_image(FLAVOUR) or (is_ramp and "RAMSLICE_LAB_PROGRAM" in os.environ):
        return None
    modules = COMMON + OWN.get(name, ())
    found = provenance.dependencies(modules, {FLAVOUR: True}, PROGRAMS if is_ramp else ())
    return found | {f"package {package}": provenance.package_version(package)
                    for package in (*STUDIES[name].packages, PYTHON)}


def now(name, scale, memory):
    """The conditions of a run of a study at a scale, with memory of that kind, as things are now.
    """
    return {"work": work_of(name, scale), "depends": depends(name, memory == "ramp")}


def differing(run, as_now):
    """The conditions in which a run differs from now; of dependencies their names."""
    found = ["work"] if run["work"] != as_now["work"] else []
    ours, theirs = run.get("depends"), as_now["depends"]
    if not ours or not theirs:
        return [*found, "unknown code"]
    return found + sorted(name for name in ours.keys() | theirs.keys()
                          if ours.get(name) != theirs.get(name))
