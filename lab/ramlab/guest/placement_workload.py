# SPDX-License-Identifier: GPL-2.0-or-later
"""A mixture of kernel and movable memory that comes and goes, to compare placement policies.

Usage: python3 -m ramlab.guest.placement_workload [--policy NAME] [--rounds N] [--programs] ...

Prints one line of JSON. In each round some processes start and end (anonymous memory, page
tables), files are written and deleted (page cache, inodes, dentries), and data waits in pipes
until it is read (other kernel pages). Every third round everything is in use for a moment, so
that kernel pages must take what is left. With --programs, real ones work in between
(placement_programs.py). Then memory in use varies within 10 to 50% (light) and 30 to 80%
(medium), --steps times each, while programs go on. Memory is packed after each piece of work, so
that slices are offline and wake all the time; c is measured before and after each packing of a
step.

The same seed asks for the same work under every policy. What ends or starts to reach a load depends
on how much is in use then. Needs a scratch disk.
"""

import argparse
import contextlib
import fcntl
import json
import mmap
import os
import random
import resource
import signal
import statistics
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.placement_programs import Programs

F_SETPIPE_SZ = 1031
# Kernel memory in pipes at most; a peak adds half of that for a moment.
PIPES_MIB = 160
# Requests to pack, as long as each empties something
REQUESTS = 3
# Pieces of work by real programs in a step
WORKS = 2
FILES = Path("/mnt/files")
# How many slices the policy "low" keeps to
LOW = dev.SYSFS / "placement/low_slices"
# Share of memory in use, from and to: what IISc, section V.B, calls light and medium
LOADS = {"light": (0.1, 0.5), "medium": (0.3, 0.8)}
# The kernel's unit of memory hotplug; the papers count those that could be removed
SECTION_BYTES = 128 * MIB


def holder(mib, tables=0):
    """A child that holds anonymous memory, and page tables for as many single pages 2 MiB apart."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid:
        os.close(done)
        os.read(ready, 1)
        os.close(ready)
        return pid
    with contextlib.suppress(BaseException):
        memory = mmap.mmap(-1, mib * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        sparse = mmap.mmap(
            -1,
            max(tables, 1) * 2 * MIB,
            mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | harness.MAP_NORESERVE,
        )
        sparse.madvise(mmap.MADV_NOHUGEPAGE)
        for n in range(tables):
            sparse[n * 2 * MIB] = 1
        os.write(done, b"1")
        while memory and sparse:
            signal.pause()
    os._exit(1)


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def full_pipe():
    """1 MiB of unread data: kernel pages."""
    out, into = os.pipe2(os.O_NONBLOCK)
    fcntl.fcntl(into, F_SETPIPE_SZ, MIB)
    os.write(into, bytes(MIB))
    return out, into


def close(pipe):
    for fd in pipe:
        os.close(fd)


class Load:
    """The mixture; deterministic but for what the kernel does by itself."""

    def __init__(self, seed, device, scale=1):
        self.random = random.Random(seed)
        self.device = device
        # In machines of more than 2 GiB: so many times as much comes and goes
        self.scale, self.pipes_mib = scale, scale * PIPES_MIB
        # The fewest slices that could hold all of the kernel's pages, at the worst moment so far,
        # and the most that had any
        self.least_ever = self.most_ever = 0
        self.holders, self.pipes, self.folders = [], [], []
        self.failed = 0
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
        FILES.mkdir(exist_ok=True)

    def drop_some(self, what, share, how):
        for _ in range(int(len(what) * share)):
            how(what.pop(self.random.randrange(len(what))))

    def make_files(self, nr):
        folder = FILES / str(self.random.random())
        folder.mkdir()
        for n in range(nr):
            (folder / f"file{n}").write_bytes(bytes(self.random.choice((100, PAGE, 5 * PAGE))))
        self.folders.append(folder)

    @staticmethod
    def delete(folder):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    def grow_pipes(self, nr):
        for _ in range(nr):
            self.pipes.append(full_pipe())

    def peak(self):
        """Nearly all memory in use for a moment, and the kernel wants more."""
        available = harness.meminfo()["MemAvailable"] // 1024
        room = max(available - self.pipes_mib // 2 - 60, 80)
        parts = [holder(room // 4, 8) for _ in range(4)]
        before = len(self.pipes)
        self.grow_pipes(self.pipes_mib // 4)
        end(parts.pop(0))
        self.grow_pipes(self.pipes_mib // 4)
        self.note_least()
        for pid in parts:
            end(pid)
        late = self.pipes[before:]
        self.pipes = self.pipes[:before]
        self.random.shuffle(late)
        # A few stay for long
        stay = 6 * self.scale
        self.pipes += late[:stay]
        for pipe in late[stay:]:
            close(pipe)

    def round(self, number):
        choose = self.random
        self.drop_some(self.holders, 0.5, end)
        self.drop_some(self.pipes, 0.4, close)
        self.drop_some(self.folders, 0.4, self.delete)
        for _ in range(4 * self.scale):
            self.holders.append(holder(choose.randrange(10, 70), choose.randrange(40)))
            self.grow_pipes(min(choose.randrange(12), self.pipes_mib - len(self.pipes)))
            self.make_files(choose.randrange(30, 120))
        if number % 3 == 2:
            self.peak()
        else:
            self.note_least()

    def note_least(self):
        """At a moment when the kernel has much: what it needs at least, and what it has."""
        (held, fixed), least = least_slices(self.device)
        self.least_ever, self.most_ever = max(self.least_ever, least), max(
            self.most_ever, len(set(held) | fixed)
        )

    def finish(self):
        """Light load: a quarter of what was there stays."""
        self.drop_some(self.holders, 0.5, end)
        self.drop_some(self.pipes, 0.6, close)
        self.drop_some(self.folders, 0.6, self.delete)

    def drop_one(self, chance):
        """Ends a process, reads a pipe or deletes a folder; False if there is none left."""
        kinds = [
            (what, how)
            for what, how in ((self.holders, end), (self.pipes, close), (self.folders, self.delete))
            if what
        ]
        if not kinds:
            return False
        what, how = chance.choice(kinds)
        how(what.pop(chance.randrange(len(what))))
        return True

    def approach(self, share, chance):
        """Has this share of memory be in use, about: not more, if there is anything to end."""
        step = 70 * MIB / (self.device.info().managed_pages * PAGE)
        while in_use(self.device) > share and self.drop_one(chance):
            pass
        while share - in_use(self.device) > step:
            self.holders.append(holder(chance.randrange(10, 70), chance.randrange(40)))
            self.grow_pipes(min(chance.randrange(4), self.pipes_mib - len(self.pipes)))
            self.make_files(chance.randrange(10, 40))


def in_use(device):
    """Share of memory that is in use; clean unmapped page cache does not count."""
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 1)
    info = device.info()
    return 1 - (info.free_pages + info.offline_pages) / info.managed_pages


def unmovable(device):
    """{slice: pages that can be neither moved nor dropped}, and slices that always stay online."""
    found, fixed, _ = unmovable_by_zone(device)
    return found, fixed


def unmovable_by_zone(device):
    """The same, and {slice: its node and zone}."""
    found, fixed, zones = {}, set(), {}
    for s in device.snapshot():
        zones[s.id] = s.node, s.zone
        if s.flags & dev.UNRECLAIMABLE:
            fixed.add(s.id)
        if s.state != dev.ONLINE:
            continue
        pages = sum(run.nr_pages for run in device.pages(s.id) if run.reason)
        if pages:
            found[s.id] = pages
    return found, fixed, zones


def least_slices(device):
    """What unmovable() finds, and the fewest slices that could hold it.

    Each zone's pages are packed into slices of that zone: its room is of no use to others.
    """
    slice_pages = device.info().slice_bytes // PAGE
    held, fixed, zones = unmovable_by_zone(device)
    least = 0
    for zone in set(zones.values()):
        mine = {number for number in zones if zones[number] == zone}
        # Kernel pages fit into slices that stay on anyway; the rest needs so many more
        rest = sum(held.get(number, 0) for number in mine - fixed)
        room = sum(slice_pages - held.get(number, 0) for number in mine & fixed)
        least += len(mine & fixed) + -(-max(rest - room, 0) // slice_pages)
    return (held, fixed), least


def sections(device):
    """The number of memory sections, and of those that hotplug could remove."""
    in_section, slice_pages = SECTION_BYTES // PAGE, device.info().slice_bytes // PAGE

    def those(first, nr):
        return range(first // in_section, (first + nr - 1) // in_section + 1)

    there, kept = set(), set()
    for s in device.snapshot():
        if s.state == dev.OFFLINE:
            there.update(those(s.id * slice_pages, slice_pages))
            continue
        for run in device.pages(s.id):
            if run.what() != "hole":
                (kept if run.reason else there).update(those(run.pfn, run.nr_pages))
    return len(there | kept), len(there - kept)


def spoilt(device):
    """Slices with kernel pages, and the fewest that could hold them all; sections without any."""
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 1)
    (held, fixed), least = least_slices(device)
    nr, removable = sections(device)
    return {
        "slices": device.info().nr_slices,
        "slices_unmovable": len(set(held) | fixed),
        "slices_fixed": len(fixed),
        "slices_unmovable_least": least,
        "pages_unmovable": sum(held.values()),
        "sections": nr,
        "sections_removable": removable,
    }


class Packing:
    """Packs memory again and again, as a daemon would, and counts what that takes."""

    def __init__(self, device):
        self.device = device
        self.freed = self.migrated_pages = 0

    def pack(self):
        """Packs once, where a daemon would pack several times in the same work at real speed.

        Therefore it ignores backoffs, and sends another request after one that did something.
        """
        off = set(harness.ids(self.device, dev.OFFLINE))
        before = harness.vmstat()["pgmigrate_success"]
        for _ in range(REQUESTS):
            if not self.device.request("compact", wait_busy=10, flags=dev.IGNORE_BACKOFF).nr_done:
                break
        self.migrated_pages += harness.vmstat()["pgmigrate_success"] - before
        self.freed += len(set(harness.ids(self.device, dev.OFFLINE)) - off)

    def per_slice(self):
        """Pages migrated for each slice freed, as a share of its pages."""
        return self.migrated_pages / max(self.freed, 1) / (self.device.info().slice_bytes // PAGE)


def sample(device):
    """c as it is, and what could be off at best."""
    info, packing = device.info(), harness.packing(device)
    now = set(harness.ids(device, dev.OFFLINE))
    slice_pages = info.slice_bytes // PAGE
    # Two banks that are interleaved share all addresses of both: they can be off only together
    pairs = sum(number % 2 == 0 and number + 1 in now for number in now)
    # Between two packings memory that is on may be less than the reserve, so that more is off than
    # packing would have left
    return {
        "c": packing["c"],
        "c_bound": max(packing["c"], packing["c_bound"]),
        "off": len(now) * slice_pages / info.managed_pages,
        "off_interleaved": 2 * pairs * slice_pages / info.managed_pages,
    }


def under(load, share, seed, packing, real):
    """A step at this share of memory in use: programs work; c before and after each packing."""
    chance = random.Random(seed)
    load.approach(share, chance)
    used = in_use(load.device)
    packing.pack()
    samples = [sample(load.device)]
    for work in chance.sample(real.works, WORKS) if real else []:
        work()
        samples.append(sample(load.device))
        packing.pack()
        samples.append(sample(load.device))
    return {"in_use": used, "off_most": max(one["off"] for one in samples)} | {
        key: statistics.fmean(one[key] for one in samples) for key in samples[0]}


def summary(steps):
    """Means over the steps of a load: what Table IV of the IISc paper has, and c."""
    mean = {key: round(statistics.fmean(step[key] for step in steps), 4)
            for key in ("in_use", "c", "c_bound", "off", "off_interleaved")}
    return mean | {"off_most": round(max(step["off_most"] for step in steps), 4)}


def policy():
    return dev.read(dev.SYSFS / "placement/policy")


def choose(name, low=None):
    """From now on this policy; the kernel keeps to so many low slices, if it is "low"."""
    if low is not None:
        dev.write(LOW, low)
    dev.write(dev.SYSFS / "placement/policy", name)


def low_slices():
    """How many slices "low" keeps to; None on a kernel without the policies for comparison."""
    return int(dev.read(LOW)) if LOW.exists() else None


def figures():
    """What placement says of itself, all zones together."""
    tables = [dev.table(folder / "placement") for folder in dev.zone_folders()]
    return {name: sum(table[name] for table in tables) for name in tables[0]}


def run(name, rounds, seed, programs=False, steps=1, low=None):
    """The load under a policy, and what it left; also the load, which still holds memory."""
    choose(name, low)
    if not dev.file_system():
        raise FileNotFoundError("no disk")
    began, before = time.monotonic(), harness.vmstat()
    # Before anything that memory has a say in
    chance = random.Random(seed + 2)
    shares = [
        (kind, chance.uniform(least, most))
        for kind, (least, most) in LOADS.items()
        for _ in range(steps)
    ]
    with dev.Device() as device:
        load, packing = Load(seed, device), Packing(device)
        real = Programs(random.Random(seed + 1), FILES / "programs") if programs else None
        for number in range(rounds):
            load.round(number)
            packing.pack()
            if real:
                real.round(packing.pack)
        load.finish()
        found = {kind: [] for kind in LOADS}
        for number, (kind, share) in enumerate(shares):
            found[kind].append(under(load, share, f"{seed} {number}", packing, real))
        left = {
            "policy": policy(),
            "low_slices": low_slices(),
            "rounds": rounds,
            "programs": programs,
            "seed": seed,
            **spoilt(device),
            "slices_unmovable_least_ever": load.least_ever,
            "slices_unmovable_most_ever": load.most_ever,
            **{kind: summary(steps) for kind, steps in found.items()},
            "migrated_per_slice": round(packing.per_slice(), 4),
            "freed": packing.freed,
        }
    if real:
        real.end()
    after = harness.vmstat()
    if after["oom_kill"] > before["oom_kill"]:
        raise RuntimeError(
            f"policy {left['policy']}: a process was killed for lack of memory: that is less work"
            " than asked for"
        )
    left |= {
        name: sum(after[key] - before[key] for key in after if key.startswith(name))
        for name in ("pgsteal_", "allocstall_")
    }
    left["seconds"] = round(time.monotonic() - began)
    return load, left | figures()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="stock")
    parser.add_argument(
        "--low-slices",
        type=int,
        metavar="N",
        help="for the policy low: those that the kernel keeps to",
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--programs", action="store_true", help="real programs, too")
    parser.add_argument(
        "--steps", type=int, default=1, help="times that memory is packed under each load"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--verify", action="store_true", help="recount at the end: are the counters true?"
    )
    args = parser.parse_args()
    load, left = run(
        args.policy, args.rounds, args.seed, args.programs, args.steps, args.low_slices
    )
    print(json.dumps(left))
    for pid in load.holders:
        end(pid)
    if args.verify:
        print(dev.verify())


if __name__ == "__main__":
    main()
