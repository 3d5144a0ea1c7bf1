# SPDX-License-Identifier: GPL-2.0-or-later
"""The loads of the benchmark of give-back: what a guest does while memory goes back to its host.

Each takes the sampler, which notes its phases, and main's arguments; it returns what it found.
"""

import concurrent.futures
import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from ramlab.guest import demo
from ramlab.guest.harness import MIB
from ramlab.guest.workload import Failed, Load

DISK = Path("/mnt")
UNITS = ["btf_relocate", "elf", "features", "gen_loader", "nlattr", "ringbuf", "strset", "zip"]
FLAGS = "-O1 -fPIC -D_GNU_SOURCE -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64"
# Read again and again, so that it is worth keeping
HOT_MIB = 48
READ_SECONDS = 10
# The second burst
AGAIN_MIB = 500
# The way that makes room late has a program killed: it is started again, so often at most
STARTS = 10
# Redis: values of 900 bytes; of so many keys, a fifth stays
REDIS_KEYS, KEPT_OF = 400_000, 5
TENANTS, TENANT_FILE_MIB, TENANT_MIB = 5, 100, 250


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


def burst(sampler, mib):
    """A program that needs memory for a moment: the processor's seconds until it had it.

    The clock goes on while a busy host answers, which is none of the guest's work.
    """
    began = sampler.busy_s()
    for start in range(STARTS):
        load = Load("anon", mib)
        try:
            load.wait_ready()
            break
        except Failed:
            if load.process.returncode != -signal.SIGKILL or start == STARTS - 1:
                raise
            time.sleep(1)
    took = sampler.busy_s() - began
    # Checks every byte, and raises what is wrong
    load.end()
    return took


def morning(sampler, args):
    """Files, a build, bursts, and idle time in which one file is read again and again."""
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
    result["first_burst_s"] = burst(sampler, 700)
    sums |= {checksum(DISK / "a"), checksum(DISK / "b")}
    sampler.begin("clean")
    for name in ("src", "tools", "out"):
        shutil.rmtree(DISK / name)
    sampler.begin("idle")
    # The same file at intervals, as a service reads it that has little to do
    for _ in range(reads):
        time.sleep(READ_SECONDS)
        if checksum(DISK / "hot") != hot:
            raise AssertionError("the file that is read again has changed")
    sampler.begin("burst again")
    result["second_burst_s"] = burst(sampler, AGAIN_MIB)
    sampler.begin("idle again")
    time.sleep(READ_SECONDS * reads / 2)
    if len(sums) != 1:
        raise AssertionError("a file has changed")
    return result


def redis_that_shrinks(sampler, args):
    """A server that holds much, loses its oldest keys one by one, rests, and grows again.

    Were they spread over all its memory, none of it would become free: Debian's server cannot move
    what is left together.
    """
    keys = REDIS_KEYS // 8 if args.quick else REDIS_KEYS
    sampler.begin("fill")
    demo.start_redis(keys)
    sampler.begin("shrink")
    demo.redis("eval", f"for i = 0, {keys - keys // KEPT_OF - 1} do "
                       "redis.call('unlink', 'key:' .. i) end", 0)
    left = demo.redis("debug", "digest")
    sampler.begin("idle")
    time.sleep(READ_SECONDS * (1 if args.quick else 4))
    if demo.redis("debug", "digest") != left:
        raise AssertionError("what the server holds has changed")
    sampler.begin("grow again")
    # Those that are there stay as they are
    demo.redis("debug", "populate", keys // 2, "key", 900)
    sampler.begin("idle again")
    time.sleep(READ_SECONDS * (1 if args.quick else 2))
    return {}


def tenants(sampler, args):
    """Short tenants, one after another: each writes and reads a file, takes memory, and is gone."""
    for number in range(2 if args.quick else TENANTS):
        sampler.begin(f"tenant {number}")
        home = DISK / f"tenant-{number}"
        home.mkdir()
        with open(args.file, "rb") as file:
            data = file.read(TENANT_FILE_MIB * MIB)
        (home / "data").write_bytes(data)
        burst(sampler, TENANT_MIB)
        if checksum(home / "data") != hashlib.md5(data).hexdigest():
            raise AssertionError("a tenant's file has changed")
        shutil.rmtree(home)
        del data
        sampler.begin(f"after tenant {number}")
        time.sleep(READ_SECONDS)
    sampler.begin("idle")
    time.sleep(READ_SECONDS * (1 if args.quick else 2))
    return {}


LOADS = {"morning": morning, "redis": redis_that_shrinks, "tenants": tenants}
