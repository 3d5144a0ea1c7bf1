# SPDX-License-Identifier: GPL-2.0-or-later
"""Summaries are true: a reading agrees with the page flags and with the free lists after every
workload, on both LRU implementations.

The kernel counts the free pages of each pageblock that was not touched since it was read (debugfs:
verify). kpage has every slice read, and derives seven of the ten counters again from
/proc/kpageflags and /proc/kpagecount. file, shmem and dirty have no counterpart in the page flags:
files of a known size show in them.
"""

import json
import mmap
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.errors import AccountingError
from ramlab.guest.hugetlb_pool import resize
from ramlab.guest.workload import Failed, Load
from ramlab.pytest_vm import vm

# ZONE_MOVABLE has memory blocks that can be unplugged, and is a second zone with slices
MOVABLE = vm(mem="2G", disk="1G", append="ramslice=32M movablecore=768M")
NUMA = vm(mem="2G", disk="1G", append="ramslice=32M", numa=("1G,cpus=0", "1G,cpus=1"))
MEMORY = Path("/sys/devices/system/memory")
THP = Path("/sys/kernel/mm/transparent_hugepage")
MAP_HUGETLB = 0x40000
HUGE = 2 << 20
# What a slice that cannot be emptied costs besides, by default
UNRECLAIMABLE_PRICE = 10**9


class RecountError(AccountingError):
    """The page flags and what the kernel read do not agree."""


def kpage(*options):
    done = subprocess.run([dev.program("kpage"), *options], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RecountError(f"kpage ended with status {done.returncode}")
    return done.returncode, json.loads(done.stdout)


def check(what):
    """Counts twice. Everything that could change memory has to be stopped."""
    dev.verify()
    for _ in range(20):
        status, result = kpage()
        # Kernel threads cannot be stopped: a slice that changes meanwhile is counted again
        if not status or any(one["before"] == one["after"] for one in result["differences"]):
            break
        time.sleep(0.5)
    if status:
        raise RecountError(f"{what}: {json.dumps(result['differences'], indent=1)}")
    return result["sums"]


def expect(sums, **at_least):
    """The workload must show in the counters, or nothing was tested."""
    for name, pages in at_least.items():
        if sums[name] < pages:
            raise Failed(f"expected at least {pages} pages of {name}, found {sums[name]}")


def loaded(mode, mb, *options, seconds, happened=lambda: True, **at_least):
    """Runs a workload for a while and until something has happened; recounts while and after it."""
    load = Load(mode, mb, *options)
    try:
        # Whatever the machine's speed, everything has been done once
        load.wait_ready().wait_round()
        time.sleep(seconds)
        harness.until(happened)
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


# --- the workloads: each is named after what has just happened to memory -----


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
    """Huge pages that khugepaged collapses from small ones."""
    scan = {"scan_sleep_millisecs": 10, "pages_to_scan": 65536, "alloc_sleep_millisecs": 10}
    before = {name: dev.read(THP / "khugepaged" / name) for name in scan}
    for name, value in scan.items():
        dev.write(THP / "khugepaged" / name, value)
    try:
        collapses = dev.vmstat("thp_collapse_alloc")
        loaded(
            "anon-thp",
            128,
            seconds=2 * seconds,
            happened=lambda: dev.vmstat("thp_collapse_alloc") > collapses,
            huge=512,
        )
        if dev.vmstat("thp_collapse_alloc") == collapses:
            raise Failed("khugepaged collapsed nothing")
    finally:
        for name, value in before.items():
            dev.write(THP / "khugepaged" / name, value)


def file_dirty(seconds):
    """Dirty pages, holes and truncated ends, with writeback under way when it is stopped."""
    loaded("file", 128, seconds=seconds, lru_file=20000, file_mapped=1000)


def file_clean(_):
    """Page cache that was written, synced, dropped and read again."""
    path = Path("/mnt/read")
    path.write_bytes(bytes(64 << 20))
    check("written")
    subprocess.run(["sync"], check=True)
    expect(check("synced"), lru_file=16384)
    dev.write("/proc/sys/vm/drop_caches", 3)
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
    before = dev.vmstat("pswpout")
    loaded("swap", 192, seconds=seconds, lru_anon=5000)
    if dev.vmstat("pswpout") == before:
        raise Failed("nothing was swapped out")


def hugetlb(_):
    """Huge pages of a pool are counted nowhere: neither as mapped nor on a list."""
    pool = Path("/proc/sys/vm/nr_hugepages")
    dev.write(pool, 16)
    try:
        with mmap.mmap(
            -1, 8 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB
        ) as area:
            for start in range(0, 8 * HUGE, HUGE):
                area[start] = 1
            check("hugetlb pages mapped")
    finally:
        dev.write(pool, 0)
    check("hugetlb pages freed")


def compaction(seconds):
    """The kernel's own migration in memory with gaps."""
    load = Load("anon", 256)
    try:
        load.wait_ready()
        time.sleep(seconds)
        before = dev.vmstat("compact_migrate_scanned")
        dev.write("/proc/sys/vm/compact_memory", 1)
        load.hold()
        check("compaction")
        if dev.vmstat("compact_migrate_scanned") == before:
            raise Failed("compaction did nothing")
        load.resume()
        load.end()
    finally:
        load.kill()


def offline_online(seconds):
    """Slices emptied under a load, and woken again."""
    loads = [Load("anon", 128), Load("file", 64), Load("anon-thp", 64), Load("shmem", 64)]
    try:
        for load in loads:
            load.wait_ready()
        time.sleep(seconds)
        with dev.Device() as device:
            done = device.request("compact", flags=dev.IGNORE_BACKOFF, wait_busy=5)
            for load in loads:
                load.hold()
            check(f"compact: {done}")
            offline = sum(row.state == dev.OFFLINE for row in device.snapshot())
            if not offline:
                raise Failed(f"nothing went offline: {done}, {done.why()}")
            back = device.request("online_all")
            check(f"online_all: {back}")
            if any(row.state != dev.ONLINE for row in device.snapshot()):
                raise Failed(f"online_all left slices behind: {back}")
        for load in loads:
            load.resume()
        for load in loads:
            load.end()
    finally:
        for load in loads:
            load.kill()


def beside_requests(_):
    """Recounts and requests at the same time: neither stops the other, and both work."""
    rounds = {"requests": 0, "recounts": 0}
    end = time.monotonic() + harness.PATIENCE

    def enough():
        return min(rounds.values()) >= 3 or time.monotonic() > end

    def send():
        with dev.Device() as device:
            while not enough():
                device.request("compact", max_slices=1, flags=dev.IGNORE_BACKOFF,
                               wait_busy=harness.PATIENCE)
                device.request("online_all")
                rounds["requests"] += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        while not enough():
            dev.verify()
            rounds["recounts"] += 1
    finally:
        sender.join()
    if min(rounds.values()) < 3:
        raise Failed(f"one stopped the other: {rounds}")


def movable_blocks():
    blocks = [
        b for b in sorted(MEMORY.glob("memory[0-9]*")) if "Movable" in dev.read(b / "valid_zones")
    ]
    if not blocks:
        raise Failed("no memory block is in ZONE_MOVABLE")
    return blocks


def take_block(blocks):
    """Takes one of these memory blocks offline; those with holes or reserved pages refuse."""
    for block in blocks:
        try:
            dev.write(block / "state", "offline")
        except OSError:
            continue
        return block
    raise Failed(f"none of {len(blocks)} memory blocks goes offline")


def hotplug(_):
    """A memory block is unplugged and plugged in again, the second time while slices are offline.
    """
    blocks = movable_blocks()
    with dev.Device() as device:
        nr_slices = device.info().nr_slices
        for slices_off in (False, True):
            if slices_off:
                device.request("compact", flags=dev.IGNORE_BACKOFF, wait_busy=5)
            block = take_block(blocks)
            check(f"{block.name} offline, slices off before: {slices_off}")
            if device.info().nr_slices >= nr_slices:
                raise Failed(f"{block.name} went offline and no slice did")
            dev.write(block / "state", "online_movable")
            check(f"{block.name} online again")
            device.request("online_all")
            check("all online")
            if device.info().nr_slices != nr_slices:
                raise Failed(f"{nr_slices} slices became {device.info().nr_slices}")


WORKLOADS = [
    boot, anon, anon_thp, file_dirty, file_clean, shmem, tmpfs, mlock, fork, swap, collapse_anon,
    collapse_shmem, khugepaged, hugetlb, compaction, offline_online, beside_requests, hotplug,
]
NUMA_WORKLOADS = [boot, anon_thp, fork, compaction, offline_online]
# What puts pages on lists, ages them and takes them off again runs on both LRU implementations each
# time, the rest on the second one in the long campaigns.
LRU_WORKLOADS = [anon_thp, file_dirty, swap, offline_online]
SECONDS = 1


def setUpModule():
    dev.debugfs()
    dev.swap_on_zram(512)
    dev.file_system()
    dev.write(THP / "shmem_enabled", "advise")


def on_both_lrus():
    for lru in ("classic", "mglru"):
        for workload in WORKLOADS:
            is_slow = lru == "mglru" and workload not in LRU_WORKLOADS
            yield pytest.param(lru, workload, id=f"{lru}-{workload.__name__}",
                               marks=[pytest.mark.slow] * is_slow)


@MOVABLE
@pytest.mark.parametrize("lru, workload", on_both_lrus())
def test_both_recounts_agree_after(lru, workload):
    dev.set_mglru(lru == "mglru")
    workload(SECONDS)


@NUMA
@pytest.mark.parametrize("workload", NUMA_WORKLOADS, ids=lambda workload: workload.__name__)
def test_both_recounts_agree_on_two_nodes_after(workload):
    dev.set_mglru(False)
    workload(SECONDS)


@MOVABLE
def test_verify_is_true_while_a_memory_block_goes_offline():
    """Its pages are no longer online some time before its slices leave the table."""
    # verify comes to the last block last
    block = take_block(sorted(movable_blocks(), key=lambda path: -int(path.name[6:])))
    stop, verdicts, false = threading.Event(), [], []

    def read():
        while not stop.is_set():
            try:
                verdicts.append(dev.verify())
            except AccountingError as error:
                false.append(str(error))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for state in ("online_movable", "offline") * 5:
            dev.write(block / "state", state)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        dev.write(block / "state", "online_movable")
    if false:
        raise AccountingError(f"{len(false)} verdicts beside {len(verdicts)} good ones: {false[0]}")
    if len(verdicts) < 10:
        raise Failed(f"only {len(verdicts)} verdicts while a block went offline five times")


def sums(device):
    """Pages of each counter over all slices, read just now."""
    rows = device.snapshot()
    return {
        name: sum(row.counter(name) for row in rows) for name in ("file", "shmem", "dirty")
    }


@MOVABLE
def test_files_of_a_known_size_are_counted_as_what_they_are():
    """Dirty until they are written to the disk; shared memory never is."""
    pages, other = 16384, 200
    for name, value in (("dirty_background_bytes", 1 << 30), ("dirty_bytes", 1 << 30),
                        ("dirty_writeback_centisecs", 0)):
        dev.write(f"/proc/sys/vm/{name}", value)
    on_disk, in_memory = Path("/mnt/known"), Path("/dev/shm/known")
    steps = (
        ("written", lambda: on_disk.write_bytes(bytes(pages * 4096)), (pages, 0, pages)),
        ("synced", lambda: subprocess.run(["sync"], check=True), (0, 0, -pages)),
        ("in memory", lambda: in_memory.write_bytes(bytes(pages * 4096)), (pages, pages, 0)),
        ("removed", lambda: (on_disk.unlink(), in_memory.unlink()), (-2 * pages, -pages, 0)),
    )
    subprocess.run(["sync"], check=True)
    with dev.Device() as device:
        before = sums(device)
        for what, step, expected in steps:
            step()
            after = sums(device)
            for name, pages_more in zip(before, expected):
                # Programs and the file system's own blocks come and go meanwhile
                if abs(after[name] - before[name] - pages_more) > other:
                    raise AccountingError(
                        f"{what}: {name} went from {before[name]} to {after[name]} pages, "
                        f"and should have changed by {pages_more}"
                    )
            before = after


@MOVABLE
def test_pages_that_are_only_on_no_lru_list_do_not_keep_a_slice_on():
    """Free pages of the pool of huge pages: their slices have a price, and no flag."""
    seen = {True: 0, False: 0}
    resize(64)
    try:
        with dev.Device() as device:
            for row in device.snapshot():
                runs = device.pages(row.id)
                stays = any(run.reason for run in runs)
                if row.flags & dev.UNRECLAIMABLE or not (
                        stays or any(run.what() == "hugetlb" for run in runs)):
                    continue
                seen[stays] += 1
                flagged = bool(row.flags & dev.UNMOVABLE), row.price >= UNRECLAIMABLE_PRICE
                if flagged != (stays, stays):
                    raise AccountingError(f"slice {row.id}: {flagged}, {runs}")
    finally:
        resize(0)
    # Both kinds, or nothing was looked at
    if not all(seen.values()):
        raise Failed(f"slices with pages that stay, and without: {seen}")


@MOVABLE
def test_a_change_between_two_counts_is_noticed():
    status, result = kpage("--control", "--tries", "2")
    if status != 1 or not result["differences"]:
        raise Failed("kpage found no difference where there must be one")


@MOVABLE
def test_a_wrong_byte_is_noticed():
    load = Load("anon", 16, "--damage", quiet=True)
    try:
        load.wait_ready().process.terminate()
        if load.process.wait() != 1:
            raise Failed(
                f"memload did not notice a changed page: status {load.process.returncode}, not 1"
            )
    finally:
        load.kill()
