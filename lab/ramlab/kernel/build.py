#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds a flavour of the kernel (plain, debug, kcsan) into the cache, unless it is there already.

Usage: ramlab kernel [--arch arm64] [--base 7.3] [--path | --source | --aside DIRECTORY]
                     [FLAVOUR...]
  --base    of another kernel source than the first: plain-7.3 is the same as --base 7.3 plain
  --arch    another architecture than this machine's, by cross compiler
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

from ramlab import progress
from ramlab.architectures import ARCHITECTURES, NATIVE
from ramlab.common import CACHE, FLAVOURS, ROOT, die, locked, need_space, put_json, run
from ramlab.kernel.bases import FIRST, flavour_and_base, named_base
from ramlab.kernel.source import Source, files_of, overlay
from ramlab.provenance import NOT_BUILT

FORMAT = 1  # raised when this program changes what it builds
COUNTS = CACHE / "steps.json"
KEEP = 8  # finished images per flavour
# Until a build has been counted
FIRST_STEPS = {"plain": 2150, "debug": 2200, "research": 2160, "debug-research": 2210,
               "kcsan": 2170, "coverage": 2160, "irqsoff": 2180, "stock": 2116,
               "stock-cma": 2119, "arm64-plain": 1064, "without-cold": 2140, "unset": 2116}
# What make is given beside the configuration. Coverage is traced in our files alone, and vmlinux
# has their lines, by which sites are named. The series has no word of it.
VARIABLES = {
    "coverage": ["KCOV_INSTRUMENT=$(if $(filter mm/ramslice,$(obj)),y)",
                 "CFLAGS_KCOV=-fsanitize-coverage=trace-pc -g1"],
}
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


def fragments(flavour, arch=NATIVE, base=FIRST):
    """The configuration's pieces, in the order they are merged."""
    folder = ROOT / "kernel/config"
    names = [*FLAVOURS[flavour][1], *arch.fragments]
    return [*sorted(folder.glob("[0-9]*.config")), *(folder / name for name in names),
            *base.fragments]


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


def key(source, flavour, arch=NATIVE):
    """What an image is made of, as a hash: source, compiler, configuration, overlay, patches.

    Documents and tests of user space are no part of it.
    """
    digest = hashlib.sha256()

    def add(label, data):
        digest.update(f"{label} {len(data)}\n".encode() + data)

    add("format", f"{FORMAT} {arch.prefixed(flavour)} {source.sha256}".encode())
    add("compiler", subprocess.check_output([compiler(arch), "--version"]))
    for path in fragments(flavour, arch, source.base):
        add(path.name, path.read_bytes())
    for variable in VARIABLES.get(flavour, ()):
        add("variable", variable.encode())
    if FLAVOURS[flavour][0]:
        for path in source.series():
            if not path.exists() or any(map(is_built, files_of(path))):
                add(path.name, path.read_bytes() if path.exists() else b"missing")
        for name in overlay():
            if is_built(name):
                add(str(name), (source.overlay_root / name).read_bytes())
    return digest.hexdigest()[:16]


def compiler(arch):
    """The C compiler, which setup has installed."""
    program = f"{arch.compiler}gcc"
    if not shutil.which(program):
        die(f"{program} is missing: run 'make setup'")
    return program


def make(tree, objects, *arguments, arch=NATIVE):
    """The command line of one kernel make."""
    jobs = os.environ.get("RAMSLICE_JOBS", os.cpu_count())
    compilers = [f"CC=ccache {compiler(arch)}", "HOSTCC=ccache gcc"]
    if not arch.is_native:
        compilers += [f"ARCH={arch.linux}", f"CROSS_COMPILE={arch.compiler}"]
    return ["make", "-C", tree, f"O={objects}", f"-j{jobs}", "--no-print-directory",
            *compilers, *arguments]


def configure(tree, objects, flavour, arch=NATIVE, base=FIRST):
    """Writes .config from the fragments and checks that every option came out as asked.

    Returns True if the configuration differs from the last build's.
    """
    objects.mkdir(parents=True, exist_ok=True)
    wanted = "".join(path.read_text() for path in fragments(flavour, arch, base))
    request = objects / "wanted.config"
    config = objects / ".config"
    before = config.read_text() if config.exists() else ""
    request.write_text(wanted)
    run(make(tree, objects, "-s", f"KCONFIG_ALLCONFIG={request}", "allnoconfig", arch=arch),
        env=os.environ | REPRODUCIBLE)
    after = config.read_text()
    if wrong := otherwise(options(wanted), options(after)):
        name = arch.prefixed(base.suffixed(flavour))
        die(f"the {name} configuration did not come out as asked:\n" + "\n".join(wrong))
    return before != after


def objects_of(source, flavour, arch=NATIVE):
    """The kept object tree of a flavour."""
    return source.home / f"obj-{arch.prefixed(flavour)}"


def name_of(source, flavour, arch):
    """What the cache calls a kernel: arm64-plain, debug-7.3."""
    return arch.prefixed(source.base.suffixed(flavour))


def compile_objects(source, flavour, arch=NATIVE):
    """Brings the kept object tree of a flavour up to date; returns (steps done, seconds)."""
    need_space(CACHE, 12 if not source.pristine.exists() else 6)
    source.extract()
    patched = FLAVOURS[flavour][0]
    changed = source.sync() if patched else []
    tree = source.patched if patched else source.pristine
    name = name_of(source, flavour, arch)
    objects = objects_of(source, flavour, arch)
    cold = not (objects / "vmlinux").exists()
    reconfigured = configure(tree, objects, flavour, arch, source.base)
    cold = cold or reconfigured
    wide = any(file.endswith(".h") for file in changed)
    kind = f"{name}-{'cold' if cold else 'wide' if wide else 'narrow'}"

    first = FIRST_STEPS.get(arch.prefixed(flavour), FIRST_STEPS[flavour])
    expected = read_counts().get(kind) or (first if cold or wide else 60)
    log = CACHE / "logs" / f"kernel-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = make(tree, objects, *VARIABLES.get(flavour, ()), arch.boots, "modules", arch=arch)
    steps, seconds = progress.build(command, f"kernel {name}", log, expected, REPRODUCIBLE)
    put_json(COUNTS, read_counts() | {kind: steps})
    return steps, seconds


def build(source, flavour, arch, store):
    """Compiles one flavour and stores the result."""
    steps, seconds = compile_objects(source, flavour, arch)
    patched = FLAVOURS[flavour][0]
    tree = source.patched if patched else source.pristine
    objects = objects_of(source, flavour, arch)
    fresh = store.with_name(store.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    quiet = os.environ | REPRODUCIBLE
    run(make(tree, objects, "-s", f"INSTALL_MOD_PATH={fresh}", "modules_install", arch=arch),
        env=quiet)
    for link in fresh.glob("lib/modules/*/build"):
        link.unlink()
    shutil.copy2(objects / arch.image, fresh / arch.boots)
    shutil.copy2(objects / "System.map", fresh / "System.map")
    shutil.copy2(objects / "vmlinux", fresh / "vmlinux")
    shutil.copy2(objects / ".config", fresh / "config")
    release = (objects / "include/config/kernel.release").read_text().strip()
    info = {
        "flavour": flavour, "architecture": arch.name, "release": release,
        "source": source.describe(),
        "patches": [p.name for p in source.series()] if patched else [],
        "build_seconds": round(seconds), "steps": steps,
    }
    (fresh / "info.json").write_text(json.dumps(info, indent=2) + "\n")
    shutil.rmtree(store, ignore_errors=True)
    fresh.rename(store)
    prune(name_of(source, flavour, arch))


def prune(name):
    """Keeps the images of this name that were used last."""
    # Not plain-7.3, where plain is meant
    stores = sorted((path for path in (CACHE / "kernels").glob(f"{name}-*")
                     if "-" not in path.name.removeprefix(f"{name}-")),
                    key=lambda p: p.stat().st_mtime, reverse=True)
    for old in stores[KEEP:]:
        shutil.rmtree(old)


def stored(source, flavour, arch):
    """Where the cache has a finished image, or will have it."""
    return CACHE / "kernels" / f"{name_of(source, flavour, arch)}-{key(source, flavour, arch)}"


def build_aside(source, flavour, arch, folder):
    """The directory of an image that is not for the cache, unless the cache has it: built there."""
    store = stored(source, flavour, arch)
    if (store / "info.json").exists():
        return store
    store = folder / name_of(source, flavour, arch)
    with locked("kernel"):
        build(source, flavour, arch, store)
    return store


def ensure(source, flavour, arch, quiet):
    """The directory of a finished image, built if need be."""
    name = name_of(source, flavour, arch)
    store = stored(source, flavour, arch)
    if not (store / "info.json").exists():
        with locked("kernel"):
            store = stored(source, flavour, arch)
            if not (store / "info.json").exists():
                build(source, flavour, arch, store)
                print(f"kernel {name}: {source.describe()} -> {store}")
                return store
    os.utime(store, (time.time(), time.time()))
    if not quiet:
        print(f"kernel {name}: {source.describe()}, in the cache: {store}")
    return store


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHITECTURES, default=NATIVE.name)
    parser.add_argument("--base", default=FIRST.name)
    parser.add_argument("--path", action="store_true")
    parser.add_argument("--source", action="store_true")
    parser.add_argument("--aside", type=Path, metavar="DIRECTORY")
    parser.add_argument("flavours", nargs="*", metavar="FLAVOUR", default=["plain"])
    args = parser.parse_args()
    named = named_base(args.base)
    kernels = [flavour_and_base(named.suffixed(name) if name in FLAVOURS else name)
               for name in args.flavours]
    if unknown := {flavour for flavour, _ in kernels} - set(FLAVOURS):
        die(f"no such flavour: {', '.join(unknown)} (there are {', '.join(FLAVOURS)})", 2)
    arch = ARCHITECTURES[args.arch]
    sources = {base: Source(base) for _, base in kernels}
    for base in sources:
        for feature in base.left_out:
            print(f"base {base.name} goes without: {feature}", file=sys.stderr)
    quiet = args.path or args.source or args.aside
    with contextlib.redirect_stdout(sys.stderr if quiet else sys.stdout):
        if args.source:
            with locked("kernel"):
                for source in sources.values():
                    source.extract()
                    source.sync()
            stores = [source.patched for source in sources.values()]
        elif args.aside:
            stores = [build_aside(sources[base], flavour, arch, args.aside)
                      for flavour, base in kernels]
        else:
            stores = [ensure(sources[base], flavour, arch, args.path)
                      for flavour, base in kernels]
    if quiet:
        print(*stores, sep="\n")


if __name__ == "__main__":
    main()
