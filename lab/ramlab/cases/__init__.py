# SPDX-License-Identifier: GPL-2.0-or-later
"""Case studies on the host: what each needs to be there (a disk, an expected result), and which
runs there are.
"""

import hashlib
import inspect
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import CACHE, put_json

SETTINGS = ("nothing", "unlimited", "ours")
STARTS = ("fresh", "aged")


def digest(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _source(part):
    """Text of a program or of a class: what was made by another one is made again."""
    return Path(part).read_text() if isinstance(part, (str, Path)) else inspect.getsource(part)


def folder_of(name, scale, work, parts):
    """Where a case at a scale is prepared: its name says of which work."""
    return CACHE / "cases" / f"{name}-{scale}-{digest(work, [_source(p) for p in parts])}"


def prepared(home, make):
    """The disk image and the expected result of a case at a scale, made once in its folder;
    make(disk, folder) fills the folder that becomes the disk and returns the expected result and
    its size in MiB."""
    if (home / "expected.json").exists():
        return home
    print(f"case: preparing {home.name}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="case-", dir="/var/tmp") as folder:
        folder = Path(folder)
        folder.chmod(0o755)
        (folder / "disk").mkdir()
        expected, mib = make(folder / "disk", folder)
        disk = home / "disk.img"
        subprocess.run(["truncate", "-s", f"{mib}M", disk], check=True)
        subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", folder / "disk", disk], check=True
        )
    put_json(home / "expected.json", expected | {"native_machine": processor()})
    return home


def native(work_class, job, folder):
    """Carries out the work here, without emulation: its expected result, and its processor time in
    seconds.
    """
    work = work_class(job, folder)
    work.prepare()
    work.run()
    return work.result(), work.cpu_s


def processor():
    """What this host calls its processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))


def environment():
    return os.environ | {"RAMSLICE_CACHE": str(CACHE)}
