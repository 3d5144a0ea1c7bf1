# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs use memory step by step while a policy decides, and all of it is recorded.

Usage: python3 -m ramlab.guest.trust OUT NAME=POLICY-FILE WORKLOAD...

STEP_PROGRAM is the example `step` of crates/sim: it decides and records after each step of the
work, so that a busy machine changes nothing. TRUST_SEED, a number, changes what the work leaves
to chance. Leaves OUT/WORKLOAD-NAME, a recording with a sample before the first step and one after
each.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import demo, harness
from ramlab.guest import ramslice_dev as dev

FOLDER = Path("/mnt")
STEPS = 48
SECONDS = 120  # that a step stands for
SEED = int(os.environ.get("TRUST_SEED", "0"))  # of all that the work leaves to chance


def blob(path, mib):
    """A file that nothing makes smaller."""
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 16) * 16)


def redis():
    """A server whose data grow, are thrown away and come back, and jobs beside it."""
    for path in ("/tmp/redis-server", "/tmp/redis.sock"):
        Path(path).unlink(missing_ok=True)
    demo.start_redis(1)
    chance = random.Random(SEED * 10 + 1)
    jobs = []
    try:
        for step in range(STEPS):
            phase = step % 24
            if phase < 8:
                # Keys of 4000 bytes, 16 MiB at a time
                demo.redis("debug", "populate", 4000, f"k{step}", 4000)
            elif phase == 14:
                demo.redis("flushall", "sync")
                demo.redis("memory", "purge")
            if chance.random() < 0.3:
                memory = harness.Memory(chance.randrange(24, 160)).touch()
                jobs.append((step + chance.randrange(1, 6), memory))
            for due, memory in [job for job in jobs if job[0] <= step]:
                memory.map.close()
                jobs.remove((due, memory))
            yield
    finally:
        for _, memory in jobs:
            memory.map.close()
        subprocess.run([*demo.REDIS, "shutdown", "nosave"], check=False, capture_output=True)


def archives():
    """Folders are written, packed into archives, read and removed.

    An index is read all the time.
    """
    chance = random.Random(SEED * 10 + 2)
    top = FOLDER / "archives"
    top.mkdir()
    blob(top / "index", 48)
    folders = []
    for step in range(STEPS):
        (top / "index").read_bytes()
        if step % 24 < 14:
            folder = top / f"d{step}"
            folder.mkdir()
            for n in range(4):
                blob(folder / str(n), chance.randrange(2, 6))
            folders.append(folder)
        if step % 4 == 3 and folders:
            some = folders[-3:]
            subprocess.run(
                ["tar", "-C", top, "-cf", top / f"a{step}.tar", *(f.name for f in some)], check=True
            )
        if step % 6 == 5:
            for archive in sorted(top.glob("a*.tar"), key=os.path.getmtime)[-2:]:
                subprocess.run(["tar", "-tf", archive], check=True, stdout=subprocess.DEVNULL)
                archive.read_bytes()
        for archive in sorted(top.glob("a*.tar"), key=os.path.getmtime)[:-3]:
            archive.unlink()
        if step % 24 > 16 and folders:
            shutil.rmtree(folders.pop(0))
        yield
    shutil.rmtree(top)


def batch():
    """Jobs one after another: sorting, packing, a table in memory, tmpfs, thousands of small
    files.
    """
    chance = random.Random(SEED * 10 + 3)
    top = FOLDER / "batch"
    top.mkdir()
    table = text = small = None
    for step in range(STEPS):
        kind = step % 12
        if kind == 0:
            text = top / f"text{step}"
            with open(text, "w") as file:
                for _ in range(64):
                    file.write(
                        "".join(f"{chance.getrandbits(64):020d} line\n" for _ in range(64)) * 256
                    )
        elif kind == 2:
            with open(top / "sorted", "wb") as out:
                subprocess.run(
                    ["sort", "-S", "96M", "-T", top, text],
                    check=True,
                    stdout=out,
                    env={"LC_ALL": "C"},
                )
        elif kind == 3:
            table = harness.Memory(chance.randrange(120, 300)).touch()
        elif kind == 5:
            shutil.copy(top / "sorted", Path("/tmp") / "tmpfs")
        elif kind == 6:
            small = top / f"small{step}"
            small.mkdir()
            for n in range(1500):
                (small / str(n)).write_bytes(b"x" * chance.randrange(1, 8000))
        elif kind == 8:
            table.map.close()
            table = None
        elif kind == 9:
            Path("/tmp/tmpfs").unlink()
            (top / "sorted").unlink()
        elif kind == 10:
            shutil.rmtree(small)
            text.unlink()
        yield
    if table:
        table.map.close()
    shutil.rmtree(top)


def builds():
    """A tree is unpacked, compiled file by file, linked with much memory, tried and cleaned."""
    chance = random.Random(SEED * 10 + 4)
    top, sources = FOLDER / "builds", Path(__file__).resolve().parents[2] / "guest"
    top.mkdir()
    link = None
    for step in range(STEPS):
        phase = step % 16
        if phase == 0:
            packed = top / "source.tar"
            subprocess.run(
                ["tar", "-cf", packed, "-C", "/usr/include", "linux", "asm-generic"], check=True
            )
            (top / "tree").mkdir()
            subprocess.run(["tar", "-xf", packed, "-C", top / "tree"], check=True)
        elif phase < 10:
            source = sources / chance.choice(("cost.c", "memload.c", "openloop.c"))
            subprocess.run(["gcc", "-O1", "-g", "-c", source, "-o", top / f"{phase}.o"], check=True)
            # What a compiler leaves beside its object: lists, debugging information
            blob(top / f"{phase}.d", chance.randrange(1, 8))
        elif phase == 10:
            for path in top.glob("*.[do]"):
                path.read_bytes()
            link = harness.Memory(chance.randrange(80, 240)).touch()
        elif phase == 11:
            blob(top / "program", chance.randrange(24, 64))
            link.map.close()
            link = None
        elif phase < 15:
            (top / "program").read_bytes()
            with harness.Memory(chance.randrange(16, 96)) as tried:
                tried.touch()
                yield
            continue
        else:
            for path in top.glob("*.[do]"):
                path.unlink()
            shutil.rmtree(top / "tree")
        yield
    if link:
        link.map.close()
    shutil.rmtree(top)


WORKLOADS = {"redis": redis, "archives": archives, "batch": batch, "builds": builds}


class Steps:
    """The program that decides and records."""

    def __init__(self, policy, output):
        line = [
            os.environ["STEP_PROGRAM"],
            "--policy",
            policy,
            "--seconds",
            str(SECONDS),
            "--output",
            str(output),
        ]
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def step(self, last):
        self.process.stdin.write("last\n" if last else "\n")
        self.process.stdin.flush()
        return json.loads(
            self.process.stdout.readline() or sys.exit(f"step ended with {self.process.wait()}")
        )

    def end(self):
        self.process.stdin.close()
        if self.process.wait():
            sys.exit(f"step ended with {self.process.returncode}")


def fresh(device):
    """Nothing in the cache that needs not be there, and all slices awake."""
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)
    harness.wake(device)


def main():
    out, (name, _, policy), names = Path(sys.argv[1]), sys.argv[2].partition("="), sys.argv[3:]
    if not os.path.ismount("/sys/kernel/tracing"):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
    harness.load_sim()
    dev.file_system(str(FOLDER))
    with dev.Device() as device:
        for workload in names:
            fresh(device)
            began = time.monotonic()
            steps, counts = Steps(policy, out / f"{workload}-{name}"), []
            with contextlib.closing(WORKLOADS[workload]()) as work:
                for _ in work:
                    # What is dirty would be written at the kernel's leisure
                    os.sync()
                    counts.append(steps.step(len(counts) == STEPS - 1))
                steps.end()
            print(
                f"{workload}, {name}: {time.monotonic() - began:.0f} s,",
                *(c["nonempty"] for c in counts),
                flush=True,
            )
            if os.environ.get("TRUST_WHY"):
                print(*(f"  {c['step']}: {c['why']}" for c in counts), sep="\n", flush=True)
        if harness.violations():
            sys.exit("memory that is off was touched")


if __name__ == "__main__":
    main()
