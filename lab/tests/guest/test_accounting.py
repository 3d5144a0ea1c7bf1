#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Are the books true? Two recounts of ramslice's counters, after many workloads, on both LRU implementations.

Runs in a guest. The kernel recounts all pageblocks from page flags and mappings (debugfs: verify); kpage derives
seven of the ten counters again from /proc/kpageflags and /proc/kpagecount, for every slice, and both must agree
with what was counted. file, shmem and dirty have no counterpart in the page flags: for those the kernel's recount,
which sees the page cache trees, is the only witness.
"""

import argparse
import json
import mmap
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as rs
from ramlab.guest.workload import Failed, Load

MEMORY = Path("/sys/devices/system/memory")
THP = Path("/sys/kernel/mm/transparent_hugepage")
MAP_HUGETLB = 0x40000
HUGE = 2 << 20
PATIENCE = 600


class Differ(AssertionError):
    """The page flags and the counters tell different stories."""


def kpage(*options):
    done = subprocess.run([rs.program("kpage"), *options], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise Differ(f"kpage ended with status {done.returncode}")
    return done.returncode, json.loads(done.stdout)


def check(what):
    """Both recounts, now. Whatever could change memory has to be held still."""
    rs.verify()
    for _ in range(20):
        status, result = kpage()
        # khugepaged and its like cannot be held: what changes while it is counted is counted again
        if not status or any(one["before"] == one["after"] for one in result["differences"]):
            break
        time.sleep(0.5)
    if status:
        raise Differ(f"{what}: {json.dumps(result['differences'], indent=1)}")
    return result["sums"]


def expect(sums, **at_least):
    """The workload must have left a trace in the counters, or nothing was tested."""
    for name, pages in at_least.items():
        if sums[name] < pages:
            raise Differ(f"expected at least {pages} pages of {name}, found {sums[name]}")


def loaded(mode, mb, *options, seconds, happened=lambda: True, **at_least):
    """Runs a workload for this long and until that has happened, checks while it is held, and again after it has gone."""
    load = Load(mode, mb, *options)
    try:
        # However slow the machine is: what the mode is about has been done once
        load.wait_ready().wait_round()
        time.sleep(seconds)
        harness.until(happened, PATIENCE)
        load.hold()
        expect(check(mode), **at_least)
        load.resume()
        result = load.end()
    finally:
        load.kill()
    if not result["rounds"]:
        raise Failed(f"memload {mode} finished no round")
    if "--collapse" in options and not result["collapsed"]:
        raise Failed(f"memload {mode}: nothing was collapsed")
    check(f"after {mode}")


# --- the cases: each is named by what has just happened to memory ----------


def boot(_):
    expect(check("boot"), free=1, lru_file=1, anon_mapped=1, file_mapped=1)


def anon(seconds):
    loaded("anon", 192, seconds=seconds, lru_anon=30000, anon_mapped=30000)


def anon_thp(seconds):
    loaded("anon-thp", 192, seconds=seconds, lru_anon=20000, huge=512)


def collapse_anon(seconds):
    loaded("anon-thp", 128, "--collapse", seconds=seconds, huge=512)


def collapse_shmem(seconds):
    loaded("shmem", 128, "--collapse", seconds=seconds, huge=512)


def khugepaged(seconds):
    """Huge pages that the thread puts together out of small ones."""
    scan = {"scan_sleep_millisecs": 10, "pages_to_scan": 65536, "alloc_sleep_millisecs": 10}
    before = {name: rs.read(THP / "khugepaged" / name) for name in scan}
    for name, value in scan.items():
        rs.write(THP / "khugepaged" / name, value)
    try:
        collapses = rs.vmstat("thp_collapse_alloc")
        loaded("anon-thp", 128, seconds=2 * seconds, happened=lambda: rs.vmstat("thp_collapse_alloc") > collapses, huge=512)
        if rs.vmstat("thp_collapse_alloc") == collapses:
            raise Failed("khugepaged collapsed nothing")
    finally:
        for name, value in before.items():
            rs.write(THP / "khugepaged" / name, value)


def file_dirty(seconds):
    """Dirty pages, holes and cut ends; writeback under way when it is stopped."""
    loaded("file", 128, seconds=seconds, lru_file=20000, file_mapped=1000)


def file_clean(_):
    """Page cache that was read, then synced, then dropped."""
    path = Path("/mnt/read")
    path.write_bytes(bytes(64 << 20))
    check("written")
    subprocess.run(["sync"], check=True)
    expect(check("synced"), lru_file=16384)
    rs.write("/proc/sys/vm/drop_caches", 3)
    check("dropped")
    path.read_bytes()
    expect(check("read again"), lru_file=16384)
    path.unlink()
    check("deleted")


def shmem(seconds):
    loaded("shmem", 160, seconds=seconds, lru_anon=20000, file_mapped=1000)


def tmpfs(seconds):
    loaded("file", 96, "--dir", "/dev/shm", seconds=seconds, lru_anon=10000)


def mlock(seconds):
    loaded("mlock", 96, seconds=seconds, lru_anon=12000, anon_mapped=12000)


def fork(seconds):
    loaded("fork", 96, seconds=seconds, lru_anon=20000, anon_mapped=20000)


def swap(seconds):
    before = rs.vmstat("pswpout")
    loaded("swap", 192, seconds=seconds, lru_anon=5000)
    if rs.vmstat("pswpout") == before:
        raise Failed("nothing was swapped out")


def hugetlb(_):
    """Counted nowhere: neither mapped nor on a list."""
    pool = Path("/proc/sys/vm/nr_hugepages")
    rs.write(pool, 16)
    try:
        with mmap.mmap(-1, 8 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB) as area:
            for start in range(0, 8 * HUGE, HUGE):
                area[start] = 1
            check("hugetlb pages mapped")
    finally:
        rs.write(pool, 0)
    check("hugetlb pages freed")


def compaction(seconds):
    """The kernel's own migration, over memory with gaps."""
    load = Load("anon", 256)
    try:
        load.wait_ready()
        time.sleep(seconds)
        before = rs.vmstat("compact_migrate_scanned")
        rs.write("/proc/sys/vm/compact_memory", 1)
        load.hold()
        check("compaction")
        if rs.vmstat("compact_migrate_scanned") == before:
            raise Failed("compaction did nothing")
        load.resume()
        load.end()
    finally:
        load.kill()


def offline_online(seconds):
    """Slices emptied under a load, with the rest of memory away; then all of them back."""
    loads = [Load("anon", 128), Load("file", 64), Load("anon-thp", 64), Load("shmem", 64)]
    try:
        for load in loads:
            load.wait_ready()
        time.sleep(seconds)
        with rs.Device() as device:
            done = device.request("compact", flags=rs.IGNORE_BACKOFF, wait_busy=5)
            for load in loads:
                load.hold()
            check(f"compact: {done}")
            offline = sum(row.state == rs.OFFLINE for row in device.snapshot())
            if not offline:
                raise Failed(f"nothing went offline: {done}, {done.why()}")
            back = device.request("online_all")
            check(f"online_all: {back}")
            if any(row.state != rs.ONLINE for row in device.snapshot()):
                raise Failed(f"online_all left slices behind: {back}")
        for load in loads:
            load.resume()
        for load in loads:
            load.end()
    finally:
        for load in loads:
            load.kill()


def beside_requests(seconds):
    """Recounting and requests at the same time: neither holds up the other for long, both work."""
    with rs.Device() as device:
        def send():
            device.request("compact", max_slices=1, flags=rs.IGNORE_BACKOFF, wait_busy=5)
            device.request("online_all")

        def took(what):
            began = time.monotonic()
            what()
            return time.monotonic() - began

        # As long as they take by themselves on this machine
        alone = took(send) + took(rs.verify)
        until = time.monotonic() + seconds + 2 * alone
        slowest = 0

        def again(what):
            nonlocal slowest
            while time.monotonic() < until:
                slowest = max(slowest, took(what))

        sender = threading.Thread(target=again, args=(send,))
        sender.start()
        try:
            again(rs.verify)
        finally:
            sender.join()
    if slowest > max(10, 10 * alone):
        raise Failed(f"it took {slowest:.1f} s once, and {alone:.1f} s undisturbed")


def take_block(blocks):
    """Offlines one of these memory blocks; those with holes or reserved pages refuse."""
    for block in blocks:
        try:
            rs.write(block / "state", "offline")
        except OSError:
            continue
        return block
    raise Failed(f"none of {len(blocks)} memory blocks goes offline")


def hotplug(_):
    """A memory block goes and comes back, the second time while slices are off."""
    blocks = [b for b in sorted(MEMORY.glob("memory[0-9]*")) if "Movable" in rs.read(b / "valid_zones")]
    if not blocks:
        raise Failed("no memory block of ZONE_MOVABLE: boot with movablecore=")
    with rs.Device() as device:
        nr_slices = device.info().nr_slices
        for slices_off in (False, True):
            if slices_off:
                device.request("compact", flags=rs.IGNORE_BACKOFF, wait_busy=5)
            block = take_block(blocks)
            check(f"{block.name} offline, slices off before: {slices_off}")
            if device.info().nr_slices >= nr_slices:
                raise Failed(f"{block.name} went offline and took no slice along")
            rs.write(block / "state", "online_movable")
            check(f"{block.name} online again")
            device.request("online_all")
            check("all online")
            if device.info().nr_slices != nr_slices:
                raise Failed(f"{nr_slices} slices became {device.info().nr_slices}")


CASES = [
    boot, anon, anon_thp, file_dirty, file_clean, shmem, tmpfs, mlock, fork, swap, collapse_anon, collapse_shmem,
    khugepaged, hugetlb, compaction, offline_online, beside_requests,
    hotplug,
]


def controls():
    """What must fail, fails: memory that changes between the two counts, and a byte that is wrong."""
    status, result = kpage("--control", "--tries", "2")
    if status != 1 or not result["differences"]:
        raise Failed("kpage saw no difference where there must be one")
    load = Load("anon", 16, "--damage", quiet=True)
    try:
        load.wait_ready().process.terminate()
        if load.process.wait() != 1:
            raise Failed(f"memload and a page that was changed: status {load.process.returncode}, not 1")
    finally:
        load.kill()


def run(name, case, seconds):
    began = time.monotonic()
    try:
        case(seconds)
    except Exception as error:
        text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        print(f"FAILED: {name}\n  " + text.replace("\n", "\n  "), flush=True)
        return False
    print(f"ok: {name} ({time.monotonic() - began:.1f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="for which each workload runs (default 3)")
    parser.add_argument("--lru", choices=["classic", "mglru", "both"], default="both")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(case.__name__ for case in CASES))
    args = parser.parse_args()

    rs.debugfs()
    rs.swap_on_zram(512)
    if not rs.file_system():
        sys.exit("books.py: no disk: start the guest with --disk 1G")
    rs.write(THP / "shmem_enabled", "advise")
    bad = [] if run("what must fail, fails", lambda _: controls(), 0) else ["controls"]
    for lru in ["classic", "mglru"] if args.lru == "both" else [args.lru]:
        rs.set_mglru(lru == "mglru")
        for case in CASES:
            if args.cases and case.__name__ not in args.cases:
                continue
            name = f"{lru}: {case.__name__}"
            if not run(name, case, args.seconds):
                bad.append(name)
    if bad:
        sys.exit(f"books.py: {len(bad)} failed: {', '.join(bad)}")


if __name__ == "__main__":
    main()
