# SPDX-License-Identifier: GPL-2.0-or-later
"""A morning's work in a guest, and what the host holds of the guest's memory meanwhile.

Usage: python3 -m ramlab.guest.giveback_work OUT [--quick] ARM MEMORY SOURCE FILE

MEMORY is the file that is the guest's memory: the room that it takes is what the host holds, and is
looked at once a second, together with what the guest uses. SOURCE is libbpf's, in the kernel's
tools/lib; FILE is something large to read. The work is the same for each ARM, which says how memory
goes back:

  none       it does not
  reporting  free page reporting, as Linux has it (order 9)
  order-0    free page reporting down to single pages
  timer      free page reporting, and every ten seconds caches are dropped and memory is compacted
  ours       ramsliced switches slices off, which the power driver reports, by the policy periodic
  governor   the same by the governor, which weighs it
  ours-stock a kernel without ramslice: free page reporting, and `ramslice giveback --now --hotplug`
             every ten seconds
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import Daemon
from ramlab.guest.harness import MIB, meminfo
from ramlab.guest.workload import Load

DISK = Path("/mnt")
PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
ARMS = ["none", "reporting", "order-0", "timer", "ours", "governor", "ours-stock"]
UNITS = ["btf_relocate", "elf", "features", "gen_loader", "nlattr", "ringbuf", "strset", "zip"]
FLAGS = "-O1 -fPIC -D_GNU_SOURCE -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64"
# Read again and again, so that it is worth keeping
HOT_MIB = 48
READ_SECONDS = 10
TIMER_SECONDS = 10
COMMON = """schema_version = 1
mode = "on"
period_seconds = 5
[metrics]
listen = "off"
"""
# Cache that was not used between two passes goes. What is free needs no pass: free page reporting
# finds it.
PERIODIC = f"""policy = "periodic"
{COMMON}
[periodic]
period_seconds = 15
budget_100cycles = "inf"
"""
GOVERNOR = f"""policy = "governor"
{COMMON}
[energy]
profile = "giveback"
"""


class Sampler(threading.Thread):
    """What the host holds and what the guest uses, once a second, with the phase of the work.

    Used is what the kernel and programs have, and of page cache what is read again.
    """

    def __init__(self, memory):
        super().__init__(daemon=True)
        self.memory, self.phase, self.rows, self.phases = memory, "boot", [], []
        self.again = threading.Event()
        self.hot_bytes = 0

    def run(self):
        while not self.again.wait(1):
            self.sample()

    def sample(self):
        info = meminfo()
        # The kernel itself, and what describes pages, are not in MemTotal
        all_kib = os.stat(self.memory).st_size >> 10
        used = all_kib - info["MemFree"] - info["Buffers"] - info["Cached"] + info["Shmem"]
        self.rows.append({
            "s": round(time.monotonic() - START, 2),
            "phase": self.phase,
            "held_bytes": os.stat(self.memory).st_blocks * 512,
            "used_bytes": (used << 10) + self.hot_bytes,
            "free_bytes": info["MemFree"] << 10,
        })

    def begin(self, phase):
        now = time.monotonic() - START
        self.phase = phase
        self.phases.append({"s": round(now, 2), "phase": phase})
        print(f"{now:6.1f} s  {phase}", flush=True)


def cpu_seconds():
    """User and system time of all CPUs since boot."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def read_bytes():
    """Bytes that came from disks since boot."""
    return dev.vmstat("pgpgin") << 10


def compile_units(source, few):
    """Compiles units of libbpf, two at a time, from a copy on the disk."""
    tools = Path(source).parent.parent
    shutil.copytree(source, DISK / "src")
    for part in ("include", "arch/x86/include"):
        shutil.copytree(tools / part, DISK / "tools" / part)
    (DISK / "out").mkdir()
    includes = [f"-I{DISK}/{part}" for part in
                ("src", "tools/include", "tools/include/uapi", "tools/arch/x86/include")]

    def one(unit):
        subprocess.run(["cc", *FLAGS.split(), *includes, "-c", DISK / f"src/{unit}.c",
                        "-o", DISK / f"out/{unit}.o"], check=True, stderr=subprocess.DEVNULL)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, UNITS[:2] if few else UNITS))


def checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def burst(mib):
    """A program that needs memory for a moment: seconds until it had it."""
    began = time.monotonic()
    load = Load("anon", mib).wait_ready()
    took = time.monotonic() - began
    # Checks every byte, and raises what is wrong
    load.end()
    return took


@contextlib.contextmanager
def every_ten_seconds(what):
    """Calls `what` again and again; an error ends the work."""
    over = threading.Event()

    def loop():
        while not over.wait(TIMER_SECONDS):
            what()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        looping = pool.submit(loop)
        try:
            yield
        finally:
            over.set()
            looping.result()


def drop_and_compact():
    """What people write today."""
    dev.write("/proc/sys/vm/drop_caches", 3)
    dev.write("/proc/sys/vm/compact_memory", 1)


def give_back_on_stock():
    """What ours does where the kernel has no ramslice. Status 1: short of memory, interrupted."""
    words = ["giveback", "--now", "--hotplug"]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise AssertionError(f"status {done.returncode}: {done.stderr}")


@contextlib.contextmanager
def daemon(settings):
    """ramsliced, with the driver that reports to the host."""
    subprocess.run(["modprobe", "ramslice_report"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        running = Daemon(folder)
        Path(folder, "c.toml").write_text(settings)
        running.start()
        try:
            yield
        finally:
            running.end()


@contextlib.contextmanager
def nothing():
    yield


def work(sampler, args):
    """All that is done, and how it went."""
    reads = 1 if args.quick else 4
    result = {}
    sampler.begin("files")
    for name in ("a", "b"):
        shutil.copy(args.file, DISK / name)
    with open(args.file, "rb") as file:
        (DISK / "hot").write_bytes(file.read(HOT_MIB * MIB))
    os.sync()
    sums = {checksum(DISK / name) for name in ("a", "b")}
    hot = checksum(DISK / "hot")
    sampler.hot_bytes = HOT_MIB * MIB

    sampler.begin("build")
    compile_units(args.source, args.quick)
    sampler.begin("burst")
    result["first_burst_s"] = burst(700)
    sums |= {checksum(DISK / "a"), checksum(DISK / "b")}
    sampler.begin("clean")
    for name in ("src", "tools", "out"):
        shutil.rmtree(DISK / name)
    before = read_bytes()
    sampler.begin("idle")
    # The same file at intervals, as a service reads it that has little to do
    for _ in range(reads):
        time.sleep(READ_SECONDS)
        if checksum(DISK / "hot") != hot:
            raise AssertionError("the file that is read again has changed")
    result["reread_bytes"] = read_bytes() - before
    sampler.begin("burst again")
    result["second_burst_s"] = burst(500)
    sampler.begin("idle again")
    time.sleep(READ_SECONDS * reads / 2)
    if len(sums) != 1:
        raise AssertionError("a file has changed")
    return result


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true", help="less work: proves nothing")
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("memory", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()

    if args.arm == "order-0":
        dev.write("/sys/module/page_reporting/parameters/page_reporting_order", 0)
    dev.file_system(str(DISK))
    sampler = Sampler(args.memory)
    before = {name: dev.vmstat(name) for name in ("oom_kill", "pswpout")}
    cpu = cpu_seconds()
    sampler.start()
    ways = {
        "timer": lambda: every_ten_seconds(drop_and_compact),
        "ours-stock": lambda: every_ten_seconds(give_back_on_stock),
        "ours": lambda: daemon(PERIODIC),
        "governor": lambda: daemon(GOVERNOR),
    }
    with ways.get(args.arm, nothing)():
        result = work(sampler, args)
    sampler.again.set()
    sampler.join()
    sampler.sample()
    args.out.write_text(json.dumps(result | {
        "arm": args.arm,
        "cpu_s": cpu_seconds() - cpu,
        "killed": dev.vmstat("oom_kill") - before["oom_kill"],
        "swapped_pages": dev.vmstat("pswpout") - before["pswpout"],
        "phases": sampler.phases,
        "samples": sampler.rows,
    }) + "\n")


START = time.monotonic()
if __name__ == "__main__":
    main()
