#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds a flavour of the kernel (plain, debug, stock) into the cache, unless it is there already.

Usage: ramlab kernel [--path | --source | --aside DIRECTORY] [FLAVOUR...]
  --path    builds if needed, then prints nothing but the directory of the finished image
  --source  prepares the patched source tree only and prints its directory
  --aside   like --path, but an image that the cache lacks goes to the directory, and the cache
            keeps what it has
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ramlab.common import CACHE, FLAVOURS, ROOT, die, locked, need_space, put_json, run
from ramlab.kernel import progress
from ramlab.kernel.source import OVERLAY, Source, files_of, overlay, series
from ramlab.provenance import NOT_BUILT

FORMAT = 1  # raised when this program changes what it builds
COUNTS = CACHE / "steps.json"
KEEP = 8  # finished images per flavour
# Until a build has been counted
FIRST_STEPS = {"plain": 2150, "debug": 2200, "research": 2160, "debug-research": 2210,
               "stock": 2116}
REPRODUCIBLE = {
    "SOURCE_DATE_EPOCH": "1735689600",
    "KBUILD_BUILD_TIMESTAMP": "2025-01-01",
    "KBUILD_BUILD_USER": "ramslice",
    "KBUILD_BUILD_HOST": "lab",
    "KBUILD_BUILD_VERSION": "1",
    "CCACHE_DIR": str(CACHE / "ccache"),
    "CCACHE_MAXSIZE": "4G",
    "CCACHE_SLOPPINESS": "time_macros",
    "LC_ALL": "C",
}


def fragments(flavour):
    """The configuration's pieces, in the order they are merged."""
    folder = ROOT / "kernel/config"
    return sorted(folder.glob("[0-9]*.config")) + [folder / name for name in FLAVOURS[flavour][1]]


def options(text):
    """A configuration as {symbol: value}, 'n' where it is not set."""
    found = re.findall(r"^(?:# (CONFIG_\w+) is not set|(CONFIG_\w+)=(.*))$", text, re.M)
    return {off or name: value or "n" for off, name, value in found}


def read_counts():
    """Steps of builds that were done here, by kind."""
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


def otherwise(wanted, got, who="asked for"):
    """Options that did not come out as wanted, a line each."""
    return [f"  {name}: {who} {value}, got {got.get(name, 'n')}"
            for name, value in wanted.items() if got.get(name, "n") != value]


def is_built(name):
    """Whether an image may have a file of the kernel tree inside."""
    return Path(name).parts[0] not in NOT_BUILT


def key(source, flavour):
    """What an image is made of, as a hash: source, compiler, configuration, overlay, patches.

    Documents and tests of user space are no part of it.
    """
    digest = hashlib.sha256()

    def add(label, data):
        digest.update(f"{label} {len(data)}\n".encode() + data)

    add("format", f"{FORMAT} {flavour} {source.sha256}".encode())
    add("compiler", subprocess.check_output(["gcc", "--version"]))
    for path in fragments(flavour):
        add(path.name, path.read_bytes())
    if FLAVOURS[flavour][0]:
        for path in series():
            if not path.exists() or any(map(is_built, files_of(path))):
                add(path.name, path.read_bytes() if path.exists() else b"missing")
        for name in overlay():
            if is_built(name):
                add(str(name), (OVERLAY / name).read_bytes())
    return digest.hexdigest()[:16]


def make(tree, objects, *arguments):
    """The command line of one kernel make."""
    jobs = os.environ.get("RAMSLICE_JOBS", os.cpu_count())
    compilers = ["CC=ccache gcc", "HOSTCC=ccache gcc"]
    return ["make", "-C", tree, f"O={objects}", f"-j{jobs}", "--no-print-directory",
            *compilers, *arguments]


def configure(tree, objects, flavour):
    """Writes .config from the fragments and checks that every option came out as asked.

    Returns True if the configuration differs from the last build's.
    """
    objects.mkdir(parents=True, exist_ok=True)
    wanted = "".join(path.read_text() for path in fragments(flavour))
    request = objects / "wanted.config"
    config = objects / ".config"
    before = config.read_text() if config.exists() else ""
    request.write_text(wanted)
    run(make(tree, objects, "-s", f"KCONFIG_ALLCONFIG={request}", "allnoconfig"),
        env=os.environ | REPRODUCIBLE)
    after = config.read_text()
    if wrong := otherwise(options(wanted), options(after)):
        die(f"the {flavour} configuration did not come out as asked:\n" + "\n".join(wrong))
    return before != after


def build(source, flavour, store):
    """Compiles one flavour in its kept object tree and stores the result."""
    need_space(CACHE, 12 if not source.pristine.exists() else 6)
    source.extract()
    patched = FLAVOURS[flavour][0]
    changed = source.sync() if patched else []
    tree = source.patched if patched else source.pristine
    objects = source.home / f"obj-{flavour}"
    cold = not (objects / "vmlinux").exists()
    reconfigured = configure(tree, objects, flavour)
    cold = cold or reconfigured
    wide = any(name.endswith(".h") for name in changed)
    kind = f"{flavour}-{'cold' if cold else 'wide' if wide else 'narrow'}"

    expected = read_counts().get(kind) or (FIRST_STEPS[flavour] if cold or wide else 60)
    log = CACHE / "logs" / f"kernel-{flavour}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = make(tree, objects, "bzImage", "modules")
    steps, seconds = progress.build(command, f"kernel {flavour}", log, expected, REPRODUCIBLE)
    put_json(COUNTS, read_counts() | {kind: steps})

    fresh = store.with_name(store.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    quiet = os.environ | REPRODUCIBLE
    run(make(tree, objects, "-s", f"INSTALL_MOD_PATH={fresh}", "modules_install"), env=quiet)
    for link in fresh.glob("lib/modules/*/build"):
        link.unlink()
    shutil.copy2(objects / "arch/x86/boot/bzImage", fresh / "bzImage")
    shutil.copy2(objects / "System.map", fresh / "System.map")
    shutil.copy2(objects / "vmlinux", fresh / "vmlinux")
    shutil.copy2(objects / ".config", fresh / "config")
    release = (objects / "include/config/kernel.release").read_text().strip()
    info = {
        "flavour": flavour, "release": release, "source": source.describe(),
        "patches": [p.name for p in series()] if patched else [],
        "build_seconds": round(seconds), "steps": steps,
    }
    (fresh / "info.json").write_text(json.dumps(info, indent=2) + "\n")
    shutil.rmtree(store, ignore_errors=True)
    fresh.rename(store)
    prune(flavour)


def prune(flavour):
    """Keeps the images of this flavour that were used last."""
    stores = sorted((CACHE / "kernels").glob(f"{flavour}-*"),
                    key=lambda p: p.stat().st_mtime, reverse=True)
    for old in stores[KEEP:]:
        shutil.rmtree(old)


def build_aside(source, flavour, folder):
    """The directory of an image that is not for the cache, unless the cache has it: built there."""
    store = CACHE / "kernels" / f"{flavour}-{key(source, flavour)}"
    if (store / "info.json").exists():
        return store
    with locked("kernel"):
        build(source, flavour, folder / flavour)
    return folder / flavour


def ensure(source, flavour, quiet):
    """The directory of a finished image, built if need be."""
    store = CACHE / "kernels" / f"{flavour}-{key(source, flavour)}"
    if not (store / "info.json").exists():
        with locked("kernel"):
            store = CACHE / "kernels" / f"{flavour}-{key(source, flavour)}"
            if not (store / "info.json").exists():
                build(source, flavour, store)
                print(f"kernel {flavour}: {source.describe()} -> {store}")
                return store
    os.utime(store, (time.time(), time.time()))
    if not quiet:
        print(f"kernel {flavour}: {source.describe()}, in the cache: {store}")
    return store


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", action="store_true")
    parser.add_argument("--source", action="store_true")
    parser.add_argument("--aside", type=Path, metavar="DIRECTORY")
    parser.add_argument("flavours", nargs="*", metavar="FLAVOUR", default=["plain"])
    args = parser.parse_args()
    if unknown := set(args.flavours) - set(FLAVOURS):
        die(f"no such flavour: {', '.join(unknown)} (there are {', '.join(FLAVOURS)})", 2)
    source = Source()
    quiet = args.path or args.source or args.aside
    with contextlib.redirect_stdout(sys.stderr if quiet else sys.stdout):
        if args.source:
            with locked("kernel"):
                source.extract()
                source.sync()
            stores = [source.patched]
        elif args.aside:
            stores = [build_aside(source, flavour, args.aside) for flavour in args.flavours]
        else:
            stores = [ensure(source, flavour, args.path) for flavour in args.flavours]
    if quiet:
        print(*stores, sep="\n")


if __name__ == "__main__":
    main()
