# SPDX-License-Identifier: GPL-2.0-or-later
"""The RAM disks of `ramlab size`: Python, what runs a study in the guest, and the files of a
program, all of it in memory before the guest begins.
"""

import encodings
import functools
import json
import os
import shutil
import tempfile
from importlib.util import cache_from_source
from modulefinder import ModuleFinder
from pathlib import Path

from ramlab.common import ROOT, locked
from ramlab.vm import sealed_guest

from . import JAVA, STUDIES, digest, libraries, prepared

PYTHON = "/usr/bin/python3"
# What the guest's programs call, and where they look for it
TOOLS = ("busybox", "mount", "umount", "dd", "mkswap", "swapon", "swapoff", "mkfs.ext4", "insmod",
         "cp", "rm", "sync", "dash")
SETTINGS = ("/etc/mke2fs.conf", "/etc/passwd", "/etc/group")
# Where things are in the guest
LAB, MODULES, FILES, CLASSES = "/lab", "/modules", "/files", "/classes"
JOB, LAB_PROGRAM = "/job.json", "/ramslice-lab"
SELFTESTS = ROOT / "kernel/files/tools/testing/selftests/mm/ramslice"
COMMAND = (f"PATH=$PATH:{JAVA}/bin PYTHONPATH={LAB} PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 "
           f"RAMSLICE_IN_VM=1 RAMSLICE_LAB_PROGRAM={LAB_PROGRAM} "
           f"{PYTHON} -m ramlab.guest.size {JOB}")


def program(where, path):
    """{path in the guest: path here} of a program, with its libraries and what loads them."""
    return {where: os.path.realpath(path)} | {
        library: os.path.realpath(library) for library in libraries(path)
        if library != str(path)}


@functools.cache
def modules():
    """(ours, Python's): the modules that the guest's side of a study imports, as
    {path in the guest: path here}.
    """
    standard = Path(os.__file__).parent
    finder = ModuleFinder([str(ROOT / "lab"), str(SELFTESTS), str(standard),
                           str(standard / "lib-dynload")])
    finder.run_script(str(ROOT / "lab/ramlab/guest/size.py"))
    paths = {Path(module.__file__) for module in finder.modules.values() if module.__file__}
    # Imported by Python itself, and by -m
    paths |= set(Path(encodings.__file__).parent.glob("*.py"))
    paths |= {standard / f"{name}.py" for name in ("site", "_sitebuiltins", "runpy", "pkgutil")}
    ours, others = {}, {}
    for path in sorted(paths):
        if path.is_relative_to(ROOT / "lab"):
            ours[f"{LAB}/{path.relative_to(ROOT / 'lab')}"] = path
        elif path.is_relative_to(SELFTESTS):
            ours[f"{LAB}/{path.name}"] = path
        elif path.suffix == ".so":
            others |= program(str(path), path)
        else:
            compiled = Path(cache_from_source(path))
            others |= {str(one): one for one in (path, compiled) if one.exists()}
    return ours, others


def java():
    """Java, which finds its parts by its own place."""
    found = program(str(JAVA / "bin/java"), JAVA / "bin/java")
    found |= {str(JAVA / name): JAVA / name for name in ("lib", "conf")}
    for library in ("server/libjvm.so", "libjava.so", "libnet.so", "libnio.so"):
        found |= {path: os.path.realpath(path) for path in libraries(JAVA / "lib" / library)
                  if not Path(path).is_relative_to(JAVA)}
    return found


def lasting_files(name, scale):
    """{path in the guest: path here} of what is the same for all runs of a study, and large."""
    _, pythons = modules()
    found = pythons | program(PYTHON, PYTHON)
    for tool in TOOLS:
        found |= program(f"/usr/bin/{tool}", shutil.which(tool))
    found["/usr/bin/sh"] = found["/usr/bin/dash"]
    found |= {path: path for path in SETTINGS}
    if STUDIES[name].is_heap:
        found |= java()
    own, _ = prepared(name, scale)
    return found | {f"{FILES}{where}": path for where, path in own.items()}


def own_files(orders, lab_program):
    """{path in the guest: path here} of what is ours."""
    ours, _ = modules()
    found = ours | {f"{MODULES}/{path.name}": path
                    for path in Path(orders["modules"]).glob("*.ko")}
    if orders["classes"]:
        found[CLASSES] = orders["classes"]
    if lab_program:
        found |= program(LAB_PROGRAM, lab_program)
    return found


def inside(orders):
    """Orders as they are in the guest, where what they name is in the RAM disk."""
    return orders | {"modules": MODULES, "classes": orders["classes"] and CLASSES, "sealed": True,
                     "root_files": {where: f"{FILES}{where}" for where in orders["root_files"]}}


def lasting_part(name, scale):
    """The packed part of a study's RAM disks that is the same for all of them."""
    files = lasting_files(name, scale)
    key = digest([(where, str(path), stamp(path)) for where, path in sorted(files.items())])
    _, folder = prepared(name, scale)
    packed = folder / f"disk-{key}.cpio"
    if not packed.exists():
        with locked("sizes-disk"):
            if not packed.exists():
                for old in folder.glob("disk-*.cpio"):
                    old.unlink()
                fresh = packed.with_suffix(f".{os.getpid()}")
                sealed_guest.pack(fresh, files)
                fresh.rename(packed)
    return packed


def make(to, orders, scale, lab_program=None):
    """Writes the RAM disk of a run, with ramslice-lab if its path is given."""
    with tempfile.TemporaryDirectory(prefix="disk-") as folder:
        job, own = Path(folder) / "job", Path(folder) / "own"
        job.write_text(json.dumps(inside(orders)))
        sealed_guest.pack(own, own_files(orders, lab_program) | {
            JOB: job, "/init": sealed_guest.init(folder, COMMAND)})
        sealed_guest.join(to, [lasting_part(orders["program"], scale), own])


def stamp(path):
    """What differs if a file, or one in a folder, is not what it was."""
    path = Path(path)
    paths = [path] if path.is_file() else sorted(path.rglob("*"))
    return [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in paths
            if one.is_file()]
