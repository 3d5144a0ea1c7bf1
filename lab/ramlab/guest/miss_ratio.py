# SPDX-License-Identifier: GPL-2.0-or-later
"""Predicts the miss ratio of a file's reads from one recording with plenty of memory, then holds
most of memory and measures it.

    python3 -m ramlab.guest.miss_ratio --pattern zipf

Runs in a guest with a disk. Prints what it found as a line of JSON. A recorder runs in both cases,
because its memory is part of what is needed.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
LAB_PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", f"{PROGRAM}-lab")
FOLDER = Path("/mnt")
FILE_MIB = 64
# Few enough that an emulated machine has time left
READS_PER_SECOND = 3000
# An emulated CPU is some twenty times slower than a real one, which keeps within 0.5%
SAMPLED = ("--every", "1s", "--reuse", "250ms", "--reuse-cpu", "15%")
RECORD_SECONDS = 120
# Until the cache of a smaller machine has settled, and how long it is then measured
SETTLE_SECONDS, MEASURE_SECONDS = 45, 25
# Of the file's pages, those that are left to the page cache
SHARES = (0.4, 0.7)


def lab(*words):
    """The research program's output; an error of it is an AssertionError."""
    done = subprocess.run([LAB_PROGRAM, *map(str, words)], text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def reading(file, pattern, seconds, per_second=READS_PER_SECOND):
    """Reads of a file meanwhile; the value is the process, whose output is its account."""
    words = [sys.executable, "-m", "ramlab.guest.page_reads", file, "--pattern", pattern,
             "--seconds", seconds, "--per-second", per_second]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(list(map(str, words)), text=True, stdout=subprocess.PIPE,
                               env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cached_file(mib=FILE_MIB):
    """A file that is in the page cache as a whole, and little else that could be dropped."""
    dev.file_system()
    path = FOLDER / "data"
    path.write_bytes(os.urandom(MIB) * mib)
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)
    read_through(path)
    return path


def read_through(path):
    """Reads a file once, without holding it: memory of programs cannot be evicted here."""
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass


def recorded(folder, file, pattern):
    """The advice on a recording with plenty of memory, and the memory that was used."""
    with reading(file, pattern, RECORD_SECONDS + 600):
        time.sleep(5)
        lab("record", *SAMPLED, "--for", f"{RECORD_SECONDS}s", "-o", folder)
        used = (dev.meminfo("MemTotal") - dev.meminfo("MemFree")) * 1024
    return json.loads(lab("advise", folder, "--json", "--miss-cost", "100us")), used


def measured(advice, file, pattern, wanted):
    """The miss ratio with about so many bytes of memory, and the predicted one."""
    with dev.Device() as device:
        harness.wake(device)
        count = int(dev.meminfo("MemTotal") * 1024 - wanted) // device.info().slice_bytes
        subprocess.run([PROGRAM, "offline", "--count", str(count), "--hold"], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        info = device.info()
        memory = (info.managed_pages - info.offline_pages) * PAGE
        recorder = subprocess.Popen([LAB_PROGRAM, "record", *SAMPLED, "-o", FOLDER / f"at-{count}"],
                                    stdout=subprocess.DEVNULL)
        try:
            read_through(file)
            with reading(file, pattern, SETTLE_SECONDS) as process:
                process.communicate()
            with reading(file, pattern, MEASURE_SECONDS) as process:
                account = json.loads(process.communicate()[0])
        finally:
            recorder.terminate()
            recorder.wait()
            device.request("online_all", flags=dev.HOLD)
    return {"memory": memory, "slices_held": count, "reads": account["reads"],
            "measured": account["from_disk"] / account["reads"],
            "predicted": predicted(advice, memory)}


def predicted(advice, memory):
    """The miss ratio with its interval, between the two sizes around this one; None outside the
    curve.
    """
    sizes = advice["sizes"]
    for less, more in zip(sizes, sizes[1:], strict=False):
        if less["memory_bytes"] <= memory <= more["memory_bytes"]:
            part = (memory - less["memory_bytes"]) / (more["memory_bytes"] - less["memory_bytes"])
            ratio = {name: less["hit_ratio"][name] * (1 - part) + more["hit_ratio"][name] * part
                     for name in ("value", "low", "high")}
            return {"value": 1 - ratio["value"], "low": 1 - ratio["high"], "high": 1 - ratio["low"]}
    return None


def experiment(pattern):
    """Predicts and measures; the points where the curve says something have both."""
    file = cached_file()
    advice, used = recorded(FOLDER / pattern, file, pattern)
    print(json.dumps({"used": used, "least_bytes": advice["least_bytes"], "notes": advice["notes"],
                      "curve": [(size["memory_bytes"] // MIB, round(size["hit_ratio"]["value"], 3))
                                for size in advice["sizes"]][::4]}), file=sys.stderr, flush=True)
    points = []
    for share in SHARES:
        points.append(measured(advice, file, pattern, used - (1 - share) * FILE_MIB * MIB))
        print(json.dumps(points[-1]), file=sys.stderr, flush=True)
    return {"pattern": pattern, "used": used, "least_bytes": advice["least_bytes"],
            "points": points}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--pattern", choices=("zipf", "loop"), default="zipf")
    print(json.dumps(experiment(parser.parse_args().pattern)))


if __name__ == "__main__":
    main()
