# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots of virtual machines in random order, each of which leaves a file of figures."""

import concurrent.futures
import dataclasses
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from common import FLAVOURS, OUT, ROOT, die

# QEMU emulates and counts every iteration of a string instruction: without the fast byte-wise ones, the kernel copies
# and clears a page in 512 of them, not 4096.
CPU = "-cpu max,-erms,-fsrm"
# One instruction is one nanosecond of the guest's clock; idle time passes at once.
ICOUNT = f"--qemu-opt=-icount shift=0,sleep=off {CPU}"


@dataclasses.dataclass
class Boot:
    """One boot: which kernel, which machine, what runs there."""

    arm: str
    flavour: str
    words: list  # lab/vm's
    script: str  # in lab/guest
    parts: list
    environment: list = ()  # NAME=VALUE
    number: int = 0
    folder: Path = None  # what it left, once it ran


def lab_kernel():
    """lab/kernel as a module."""
    loader = importlib.machinery.SourceFileLoader("lab_kernel", str(ROOT / "lab/kernel"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lab_kernel", loader))
    loader.exec_module(module)
    return module


# Texts, tests, and the recount that somebody asks debugfs for: no figure depends on them.
LEFT_OUT = {"Documentation", "tests", "selftests", "verify.c"}


def code(flavour):
    """Hash of all that decides how this flavour behaves: its base, configuration, hooks and code."""
    lab = lab_kernel()
    digest = hashlib.sha256((ROOT / "kernel/base.lock").read_bytes())
    paths = lab.fragments(flavour)
    if FLAVOURS[flavour][0]:
        names = [name for name in lab.overlay() if not LEFT_OUT & set(name.parts)]
        paths = [*paths, *lab.series(), *(lab.OVERLAY / name for name in names)]
    for path in paths:
        data = path.read_bytes()
        if path.suffix == ".patch" and "document-it" in path.name:
            continue
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


def image(flavour):
    """The flavour's image, built if need be. RAMSLICE_IMAGE_PLAIN and the like name others, as kept in the cache."""
    if other := os.environ.get(f"RAMSLICE_IMAGE_{flavour.upper()}"):
        return Path(other)
    built = subprocess.run([ROOT / "lab/kernel", "--path", flavour], stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.returncode)
    return Path(built.stdout.strip())


def describe(images):
    """What an entry says of its kernels. Of an image that was named by hand, nobody knows from which code it is."""
    return {
        flavour: {"image": path.name, "code": None if f"RAMSLICE_IMAGE_{flavour.upper()}" in os.environ else code(flavour),
                  "release": json.loads((path / "info.json").read_text())["release"],
                  "config_sha256": hashlib.sha256((path / "config").read_bytes()).hexdigest()[:16]}
        for flavour, path in images.items()
    }


def _run(boot, images, folder, quick):
    boot.folder = folder = folder / f"{boot.number:03d}-{boot.arm}"
    folder.mkdir(parents=True)
    result = folder / "result.json"
    line = [ROOT / "lab/vm", "--quiet", "--timeout", 3600, "--kernel", boot.flavour, *boot.words, "--rw", folder,
            "--console", folder / "console", "--", *boot.environment, "python3", f"lab/guest/{boot.script}", result, *(["--quick"] if quick else []), *boot.parts]
    began = time.monotonic()
    done = subprocess.run([str(word) for word in line], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | {"RAMSLICE_IMAGE": str(images[boot.flavour])})
    (folder / "output").write_text(done.stdout)
    if done.returncode or not result.exists():
        return boot, None, f"status {done.returncode}:\n{done.stdout}"
    return boot, json.loads(result.read_text()), f"{time.monotonic() - began:.0f} s"


def run(boots, images, name, quick=False, jobs=1, seed=None):
    """Carries out boots in random order; {arm: [figures of each boot]}. One that fails ends the program."""
    seed = seed if seed is not None else random.getrandbits(32)
    folder = OUT / "bench" / "boots" / name
    shutil.rmtree(folder, ignore_errors=True)
    random.Random(seed).shuffle(boots)
    for number, boot in enumerate(boots):
        boot.number = number
    found = {}
    print(f"{name}: {len(boots)} boots, order by seed {seed}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(_run, boot, images, folder, quick) for boot in boots]
        for n, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            boot, figures, text = future.result()
            if figures is None:
                for other in waiting:
                    other.cancel()
                die(f"{name}, boot {boot.number} ({boot.arm}) failed with {text}")
            print(f"  {n}/{len(boots)} {boot.arm}: {text}", flush=True)
            found.setdefault(boot.arm, []).append(figures)
    return found
