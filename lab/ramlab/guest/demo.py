# SPDX-License-Identifier: GPL-2.0-or-later
"""The demonstration, inside the guest: programs fill memory, ramslice packs it, demand wakes it.

Usage: python3 -m ramlab.guest.demo OUT [--short]

Writes OUT/demo.json (OUT/short.json with --short) and pictures of physical memory, and prints what
each step means. RAMSLICE_PROGRAM draws them. Memory is filled by a parallel compile of libbpf,
a Redis server with data, files read through the page cache, and a burst that wants more memory than
all of them.
"""

import argparse
import filecmp
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
DISK = Path("/mnt")
BUDGET = 50_000_000  # units of 100 cycles: 5e9 cycles, a second or two of one CPU
REDIS = ["redis-cli", "-s", "/tmp/redis.sock"]


def say(text):
    print(f"{time.monotonic() - START:6.1f} s  {text}", flush=True)


def redis(*words):
    return subprocess.check_output([*REDIS, *map(str, words)], text=True).strip()


def start_redis(keys):
    # Debian's redis-tools hold the server under another name; it goes by the name it is called by.
    Path("/tmp/redis-server").symlink_to("/usr/bin/redis-check-rdb")
    subprocess.run(
        [
            "/tmp/redis-server",
            "--unixsocket",
            "/tmp/redis.sock",
            "--port",
            "0",
            "--save",
            "",
            "--daemonize",
            "yes",
            "--enable-debug-command",
            "local",
            "--dir",
            "/tmp",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    while subprocess.run([*REDIS, "ping"], capture_output=True).returncode:
        time.sleep(0.1)
    redis("debug", "populate", keys, "key", 900)
    return redis("debug", "digest")


def compile_libbpf(source):
    """Starts make -j2 on a real C project."""
    (DISK / "build").mkdir()
    return subprocess.Popen(
        [
            "make",
            "-s",
            "-C",
            source,
            f"O={DISK}/build",
            "CFLAGS=-O0",
            "-j2",
            f"{DISK}/build/libbpf.a",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def checksum(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


class Data:
    """What must still be there, bit for bit, after every step."""

    def __init__(self, original):
        self.original, self.copies, self.sums, self.digest = original, [], {}, None

    def errors(self):
        bad = [str(c) for c in self.copies if not filecmp.cmp(self.original, c, shallow=False)]
        bad += [str(p) for p, s in self.sums.items() if checksum(p) != s]
        if self.digest and redis("debug", "digest") != self.digest:
            bad.append("redis")
        if int(dev.read("/sys/module/ramslice_sim/parameters/violations")):
            bad.append("writes to switched-off memory")
        for what in bad:
            say(f"DATA ERROR: {what}")
        return len(bad)


def burst(megabytes):
    """A process that fills memory, checks every byte of it and ends; its number of wrong words."""
    done = subprocess.run(
        [
            dev.program("memload"),
            "--mode",
            "anon",
            "--mb",
            str(megabytes),
            "--seconds",
            "0.1",
            "--dir",
            "/tmp",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        say(f"the burst failed: {done.stderr.strip()}")
    return 0 if done.returncode == 0 else 1


def nonempty(device):
    """Online slices that hold anything; pages in per-CPU lists count as free."""
    device.request("compact", flags=dev.DRY_RUN)
    return sum(s.state == dev.ONLINE and s.counter("free") < s.nr_pages for s in device.snapshot())


def compact(device, budget):
    done = device.request("compact", budget=budget, deadline_ms=120_000)
    say(
        f"compacted: {done.nr_done} slices off in {done.elapsed_ns / 1e9:.1f} s,"
        f" {done.pages_migrated} pages moved, {done.pages_dropped} dropped; ended by: {done.why()}"
    )
    return done


def picture(out, name, title):
    subprocess.run(
        [PROGRAM, "map", "--png", out / f"{name}.png", "--title", title],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return subprocess.run([PROGRAM, "status"], capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--short", action="store_true", help="no compile, and less data in Redis"
    )
    parser.add_argument("--source", help="the kernel's tools/lib/bpf")
    parser.add_argument("--file", type=Path, required=True, help="a large file to read")
    args = parser.parse_args()

    subprocess.run(["modprobe", "ramslice_sim"], check=True)
    dev.swap_on_zram(256)
    dev.file_system(str(DISK))
    device = dev.Device()
    info = device.info()
    prefix = "short-" if args.short else ""
    result = {
        "kernel": platform.release(),
        "slice_bytes": info.slice_bytes,
        "slices_total": info.nr_slices,
        "power_driver": info.power_driver.decode(),
        "budget": BUDGET,
    }
    before = {name: dev.vmstat(name) for name in ("pswpout", "oom_kill")}
    errors = 0

    say(
        f"{info.nr_slices} slices of {info.slice_bytes >> 20} MiB, power driver"
        f" {result['power_driver']}"
    )
    data = Data(args.file)
    data.digest = start_redis(20_000 if args.short else 50_000)
    say("Redis runs and has data")

    make = None if args.short else compile_libbpf(args.source)
    if make:
        say(
            "a parallel compile of libbpf runs; meanwhile files are copied and memory is fought"
            " over"
        )
    for name in ("a", "b"):
        data.copies.append(Path(shutil.copy(args.file, DISK / name)))
    awake = device.info().free_pages * info.page_bytes >> 20
    errors += burst(awake * 8 // 10)
    errors += data.errors()
    if make:
        _, trouble = make.communicate()
        if make.returncode:
            sys.exit(f"the compile failed:\n{trouble}")
        library = DISK / "build/libbpf.a"
        data.sums[library] = checksum(library)
        say(f"compiled: libbpf.a, {library.stat().st_size >> 10} KiB")

    result["nonempty_before"] = nonempty(device)
    done = "files read" if args.short else "a compile, files read,"
    picture(args.out, f"{prefix}before", f"before: {done} and a burst that ended")
    say(
        f"after a burst that ended, {result['nonempty_before']} of {info.nr_slices} slices hold"
        " something"
    )

    first = compact(device, BUDGET)
    result["nonempty_after"] = nonempty(device)
    result["offline_after_first"] = sum(z.nr_offline for z in device.zones())
    picture(args.out, f"{prefix}after", "after: packed within a budget, the empty slices are off")
    errors += data.errors()

    woken = sum(z.woken_by_demand for z in device.zones())
    info = device.info()
    megabytes = (info.free_pages + info.offline_pages // 2) * info.page_bytes >> 20
    say(f"a burst of {megabytes} MiB, with {info.free_pages * info.page_bytes >> 20} MiB awake")
    errors += burst(megabytes)
    result["woken_by_pressure"] = sum(z.woken_by_demand for z in device.zones()) - woken
    say(f"{result['woken_by_pressure']} slices woke by themselves")
    errors += data.errors()

    second = compact(device, BUDGET)
    result["offline_after_second"] = sum(z.nr_offline for z in device.zones())
    result |= harness.packing(device)
    status = picture(args.out, f"{prefix}end", "end: packed again after a burst that woke slices")
    errors += data.errors()
    try:
        dev.verify()
    except dev.AccountingError as error:
        errors += 1
        say(f"the counters are not true: {error}")

    for name in ("pages_migrated", "pages_dropped", "price_predicted", "price_measured"):
        result[name] = getattr(first, name) + getattr(second, name)
    result["data_errors"] = errors
    result["oom_kills"] = dev.vmstat("oom_kill") - before["oom_kill"]
    result["pswpout_delta"] = dev.vmstat("pswpout") - before["pswpout"]
    (args.out / ("short.json" if args.short else "demo.json")).write_text(
        json.dumps(result, indent=2) + "\n"
    )
    if not args.short:
        print(status)
    return 1 if errors or result["oom_kills"] or result["pswpout_delta"] else 0


START = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
