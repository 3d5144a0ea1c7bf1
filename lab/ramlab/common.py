# SPDX-License-Identifier: GPL-2.0-or-later
"""What the lab's programs share: paths, flavours, errors, the host's abilities."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The one command, as a program: what runs another of its sub-commands calls it.
RAMLAB = ROOT / "lab/bin/ramlab"
CACHE = Path(
    os.environ.get("RAMSLICE_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ramslice"
)
OUT = ROOT / "out"

# Flavour -> (patched?, fragments beside the numbered ones).
FLAVOURS = {
    "plain": (True, ["ramslice.config"]),
    "debug": (True, ["ramslice.config", "debug.config"]),
    "research": (True, ["ramslice.config", "research.config"]),
    "kcsan": (True, ["ramslice.config", "kcsan.config"]),
    "coverage": (True, ["ramslice.config", "coverage.config"]),
    "irqsoff": (True, ["ramslice.config", "irqsoff.config"]),
    "debug-research": (True, ["ramslice.config", "debug.config", "research.config"]),
    "stock": (False, []),
    "stock-cma": (False, ["cma.config"]),
    "unset": (True, []),
    "without-cold": (True, ["ramslice.config", "without-cold.config"]),
}

# Debian's own kernels, as ramlab vm and ramlab stock-kernel name them.
STOCK_KERNELS = {"debian-6.1": "6.1", "debian-6.12": "6.12", "debian-7": "7"}


def die(message, status=1):
    """Ends the program with one clear line."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(status)


def read_lock(path=ROOT / "kernel/base.lock"):
    """A lock of a kernel source as a dictionary."""
    text = path.read_text()
    return dict(re.findall(r"^(\w+) *= *(.*)$", text, re.M))


def run(argv, **options):
    """Runs a quiet helper; its output is shown only when it fails."""
    done = subprocess.run(
        [str(a) for a in argv],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    if done.returncode:
        die(f"{' '.join(map(str, argv))} failed:\n{done.stdout}")
    return done.stdout


def built(program):
    """One of our programs as it is in the tree, built with the settings of all the lab."""
    line = 'source lab/env && build_programs && echo "$CARGO_TARGET_DIR"'
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        die("our programs do not build: see what Cargo says")
    return Path(done.stdout.splitlines()[-1]) / "release" / program


def need_space(path, gib):
    """Preflight: free disk space where the cache lives."""
    path.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path).free / 2**30
    if free < gib:
        die(f"{path} has {free:.1f} GiB free, {gib} GiB are needed "
            "(RAMSLICE_CACHE names another place)")


def kvm_usable():
    """KVM needs both the CPU's extension and the device; the device alone may be a leftover."""
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    if not flags or not {"svm", "vmx"} & set(flags[1].split()):
        return False
    return os.access("/dev/kvm", os.R_OK | os.W_OK)


@contextlib.contextmanager
def locked(name):
    """One builder at a time per cache; a second one says that it waits."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run that holds {CACHE / name}.lock", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# For a moment, a folder that is being made has a lock that no process holds
BEING_MADE_S = 60
LOCK = "in-use"


def own_folder(prefix, parent, owner):
    """A new folder for as long as the owner, an ExitStack, lasts: it removes it.

    One that was killed could not: what such have left with this prefix is removed first.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{prefix}*/{LOCK}"):
        with contextlib.suppress(OSError), open(left) as lock:
            if time.time() - os.fstat(lock.fileno()).st_mtime < BEING_MADE_S:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    owner.callback(shutil.rmtree, folder, ignore_errors=True)
    lock = owner.enter_context(open(folder / LOCK, "w"))
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder


def provenance(kernel, flavour):
    """What a kept summary says of the kernel that it is about."""
    info = json.loads((kernel / "info.json").read_text())
    return {
        "kernel": {"flavour": flavour, "release": info["release"], "source": info["source"],
                   "image": kernel.name},
        "config_sha256": hashlib.sha256((kernel / "config").read_bytes()).hexdigest(),
    }


def put_json(path, what):
    """Writes a file that is there at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(what, indent=2) + "\n")
    os.replace(fresh, path)


def stream_vm(command, on_json):
    """Runs a guest and returns its status.

    A line of its output that is a JSON object goes to on_json, every other one to our output.
    """
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True,
                               errors="replace")
    try:
        for line in process.stdout:
            try:
                found = json.loads(line) if line.startswith("{") else None
            except ValueError:
                found = None
            if found is None:
                print(line, end="", flush=True)
            else:
                on_json(found)
        return process.wait()
    finally:
        # The guest ends with this program.
        process.terminate()
        process.wait()
