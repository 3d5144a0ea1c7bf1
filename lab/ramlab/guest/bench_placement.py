#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The placement suite inside the guest: one part under one policy; writes what it measured.

Usage: python3 -m ramlab.guest.bench_placement OUT.json [--quick] PART POLICY SEED [LOW]

POLICY is "unpatched" on a kernel that has none. LOW: so many slices are the kernel's under the
policy low; without it, twice those that its pages need when the part begins. Figures are raw: ticks
(instructions, if QEMU counts them), slices, pages.
"""

import argparse
import json
import random
import statistics
import subprocess
from pathlib import Path

from ramlab.guest import harness, placement_workload
from ramlab.guest import ramslice_dev as dev

TOUCHED_MIB = 4096
FOLDER = Path("/mnt")
# By stress-ng: what the kernel does for processes, files and pipes. So many operations take about a
# second, emulated.
MICRO = {
    "fork": ("fork", 300), "exec": ("exec", 200), "brk": ("brk", 60000), "dentry": ("dentry", 4000),
    "hdd": ("hdd", 150), "pipe": ("pipe", 40000),
}
FRAMES, WIDTH, HEIGHT = 12, 640, 360


def cost(*words):
    line = [dev.program("cost"), *map(str, words)]
    return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True).stdout)


def mixture(quick, policy, seed, low):
    """The load of placement_workload.py, and what it left."""
    rounds, steps = (1, 1) if quick else (5, 2)
    _, left = placement_workload.run(policy, rounds, seed, programs=True, steps=steps, low=low)
    return left


def alloc(quick, policy, *_):
    """Memory touched page by page: with all slices on, then with all off that can be, if any."""
    mib = 256 if quick else TOUCHED_MIB
    found = {"on": cost("touch", mib)}
    if policy != "unpatched":
        with dev.Device() as device:
            off = harness.compact(device)
        found["off"] = cost("touch", mib) | {"slices_off": off}
    return found


def ticks(quick, *program):
    """Median ticks of the rounds but the first, which finds its files and pages for the others."""
    return statistics.median(cost("run", 2 if quick else 4, *program)["ticks"][1:])


def micro(quick):
    return {name: ticks(quick, "stress-ng", "--temp-path", FOLDER,
                        f"--{stressor}", 1, f"--{stressor}-ops", ops, "--seed", 1,
                        *(["--hdd-bytes", "4m"] if stressor == "hdd" else []))
            for name, (stressor, ops) in MICRO.items()}


def film(path, chance):
    """A few frames in which something moves over noise, uncompressed."""
    noise = bytes(chance.getrandbits(4) for _ in range(WIDTH * HEIGHT))
    with open(path, "wb") as file:
        file.write(f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip A1:1 C420jpeg\n".encode())
        for n in range(FRAMES):
            grey = bytes([128]) * (WIDTH * HEIGHT // 2)
            file.write(b"FRAME\n" + noise[7 * n:] + noise[:7 * n] + grey)


def programs(quick):
    """Programs of the kinds that PARSEC has: a video encoder, an image pipeline, deduplication."""
    chance = random.Random(1)
    film(FOLDER / "film.y4m", chance)
    (FOLDER / "blob").write_bytes(b"".join(chance.randbytes(1 << 20) * 2 for _ in range(6)))
    picture = FOLDER / "picture.v"
    subprocess.run(["vips", "gaussnoise", picture, "1200", "1200"], check=True)
    found = {
        "x264": ("x264", "--quiet", "--threads", 1, "--preset", "ultrafast",
                 "--output", "/dev/null", FOLDER / "film.y4m"),
        "vips": ("vips", "--vips-concurrency=1", "gaussblur", picture, FOLDER / "soft.v", 3),
        "casync": ("casync", "--store", FOLDER / "store", "make",
                   FOLDER / "blob.caibx", FOLDER / "blob"),
    }
    return {name: ticks(quick, *line) for name, line in found.items()}


def costs(quick, *_):
    return {"micro": micro(quick), "programs": programs(quick)}


PARTS = {"mixture": mixture, "alloc": alloc, "costs": costs}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("policy")
    parser.add_argument("seed", type=int)
    parser.add_argument("low", type=int, nargs="?")
    args = parser.parse_args()
    low = args.low
    if args.policy == "low" and low is None:
        with dev.Device() as device:
            low = 2 * placement_workload.least_slices(device)[1]
    if args.part != "mixture":
        if args.policy != "unpatched":
            placement_workload.choose(args.policy, low)
        if args.part == "costs" and not dev.file_system():
            raise FileNotFoundError("no disk")
    found = PARTS[args.part](args.quick, args.policy, args.seed, low)
    args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
