# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices go offline and wake at random under loads that know every byte of their memory.

Runs in a guest. The simulated controller scrambles every slice that goes offline and reports writes
to it. Half of memory belongs to loads of all kinds; now and then a surge wants more than is awake.
Two threads send requests at the same time, one that mostly empties and one that mostly wakes; with
--policies, another changes how pages are placed. Prints a summary as a line of JSON; the status is
1 if anything was wrong, or if too little happened to prove anything.
"""

import argparse
import collections
import errno
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from ramlab.guest import placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.errors import NeverRerunError, report
from ramlab.guest.workload import Load

# Shares of the memory that the loads get. A fork load needs up to three times what it asks for.
SHARES = {"anon": 20, "anon-thp": 18, "file": 14, "shmem": 12, "mlock": 8, "fork": 6, "swap": 16}
# How much longer than asked for it may take until enough has happened, in seconds
PATIENCE = 900
# What a problem ends with that shows only that too little happened
PROVES_NOTHING = "this proves nothing"
SIM = "/sys/module/ramslice_sim/parameters/"


class Chaos:
    """Threads of random requests, surges and changes of LRU and placement, and counts of the
    outcomes.
    """

    def __init__(self, seed, seconds, at_least, policies=()):
        self.until = time.monotonic() + seconds
        self.latest = self.until + PATIENCE
        self.at_least = at_least
        self.seed = seed
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.reasons = collections.Counter()
        self.broken = []
        self.policies = policies
        self.threads = [
            threading.Thread(target=self.run, args=(number, *what))
            for number, what in enumerate([
                (
                    20,
                    {
                        "offline": 30,
                        "compact": 30,
                        "offline_free": 8,
                        "compact_memory": 1,
                        "drop_caches": 1,
                    },
                ),
                (20, {"online": 30, "online_all": 2, "offline": 5, "snapshot": 10, "census": 3}),
                (0.5, {"surge": 3, "switch_lru": 1}),
                *([(0.5, {"switch_policy": 1})] if policies else []),
            ])
        ]

    def run(self, number, per_second, weights):
        rng = random.Random(self.seed * 3 + number)
        with dev.Device() as device:
            while not self.finished(device):
                name = rng.choices(list(weights), list(weights.values()))[0]
                try:
                    getattr(self, name)(device, rng)
                except OSError as error:
                    # Another request may run; every other error is a fault
                    if error.errno != errno.EBUSY:
                        self.broken.append(f"{name}: {error!r}")
                        return
                    self.count(f"{name} busy")
                except Exception as error:
                    self.broken.append(f"{name}: {error!r}")
                    return
                time.sleep(rng.expovariate(per_second))

    def finished(self, device):
        """Whether time is up and enough has happened, however slow the machine is."""
        now = time.monotonic()
        if now < self.until:
            return False
        if now > self.latest or self.broken:
            return True
        return (
            min(self.counts["slices offlined"], self.woken(device)) >= self.at_least
            and not self.never_chosen()
        )

    def never_chosen(self):
        return [policy for policy in self.policies if not self.counts[f"policy {policy}"]]

    def start(self):
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join()

    def woken(self, device):
        return self.counts["slices onlined"] + by_demand(device)

    def demand(self, device):
        """A surge while nothing else wakes slices: after join()."""
        self.send(device, "compact", flags=dev.IGNORE_BACKOFF, deadline_ms=60000)
        self.surge(device, random.Random(self.seed), share=0.7)

    def count(self, what, nr=1):
        with self.lock:
            self.counts[what] += nr

    def send(self, device, op, **fields):
        req = device.request(op, **fields)
        self.count(op)
        if req.nr_done and not req.flags & dev.DRY_RUN:
            self.count(
                (
                    "slices offlined"
                    if op in ("offline", "compact", "offline_free")
                    else "slices onlined"
                ),
                req.nr_done,
            )
        for what in (
            "pages_migrated",
            "pages_dropped",
            "pages_failed",
            "huge_moved",
            "huge_split",
            "nr_failed",
        ):
            self.count(what, getattr(req, what))
        if req.reason:
            with self.lock:
                self.reasons[f"{op}: {req.why()}"] += 1
        return req

    def pick(self, device, rng, state):
        ids = [
            row.id
            for row in device.snapshot()
            if row.state == state and not row.flags & dev.UNRECLAIMABLE
        ]
        return rng.choice(ids) if ids else None

    def offline(self, device, rng):
        id = self.pick(device, rng, dev.ONLINE)
        if id is not None:
            self.send(
                device,
                "offline",
                id=id,
                flags=rng.choice([0, dev.IGNORE_BACKOFF, dev.KEEP_CACHE, dev.AUTO_CACHE]),
                deadline_ms=rng.choice([0, 0, 50, 1000]),
            )

    def online(self, device, rng):
        id = self.pick(device, rng, dev.OFFLINE)
        if id is not None:
            self.send(device, "online", id=id)

    def compact(self, device, rng):
        self.send(
            device,
            "compact",
            budget=rng.choice([dev.UNLIMITED, int(10 ** rng.uniform(3, 7))]),
            max_slices=rng.choice([dev.ALL_SLICES, 1, 3]),
            flags=rng.randrange(16),
            deadline_ms=rng.choice([0, 0, 100, 2000]),
        )

    def offline_free(self, device, _):
        self.send(device, "offline_free", flags=dev.IGNORE_BACKOFF)

    def online_all(self, device, _):
        self.send(device, "online_all")

    def snapshot(self, device, _):
        device.snapshot()
        self.count("snapshots")

    def census(self, *_):
        name = "all" if dev.is_research() else "stats"
        for folder in dev.zone_folders():
            (folder / name).read_text()
        self.count("debugfs reads")

    def switch_lru(self, _, rng):
        dev.set_mglru(rng.random() < 0.5)
        self.count("changes of LRU")

    def switch_policy(self, *_):
        """The next policy in turn."""
        policy = self.policies[
            sum(self.counts[f"policy {policy}"] for policy in self.policies) % len(self.policies)
        ]
        placement_workload.choose(policy)
        self.count(f"policy {policy}")

    def surge(self, device, rng, share=0.25):
        """Takes more memory at once than is awake, but at most a share of all memory."""
        info = device.info()
        awake, off = (
            pages * info.page_bytes >> 20 for pages in (info.free_pages, info.offline_pages)
        )
        limit = min(dev.meminfo("MemTotal") / 1024 * share, (awake + off) * 0.7)
        load = Load("anon", max(8, int(min(awake + 48, limit))), seed_option(rng))
        try:
            load.wait_ready().end()
        finally:
            load.kill()
        self.count("surges")

    def compact_memory(self, *_):
        dev.write("/proc/sys/vm/compact_memory", 1)

    def drop_caches(self, *_):
        dev.write("/proc/sys/vm/drop_caches", 1)


def watch(limit):
    """Ends a program that hangs, after it has printed where every task is; returns the timer."""
    def expire():
        print(f"FAILED: no end after {limit:g} s", flush=True)
        for task in sorted(Path("/proc").glob("[0-9]*/task/[0-9]*"), key=lambda t: int(t.name)):
            try:
                stat = (task / "stat").read_text()
                name, state = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2]
                frames = [
                    line.split("] ")[-1] for line in (task / "stack").read_text().splitlines()
                ]
            except OSError:
                continue
            if state != "I":
                print(f"  {task.name} {name} {state}: {' < '.join(frames)}", flush=True)
        os._exit(1)

    timer = threading.Timer(limit, expire)
    timer.daemon = True
    timer.start()
    return timer


def standing():
    """What loads and requests must not change."""
    return {"MemTotal": dev.meminfo("MemTotal"), "oom_kill": dev.vmstat("oom_kill")}


def judge(chaos, device, before, problems):
    """Appends to the problems what does not hold after the loads. Unloads the power driver."""
    problems += chaos.broken
    if not problems:
        chaos.demand(device)
    demand, woken = by_demand(device), chaos.woken(device)
    settle(device, problems)

    if violations := int(dev.read(SIM + "violations")):
        problems.append(f"{violations} words were written to in slices that were off")
    problems += [
        f"{name} was {before[name]} and is {now}"
        for name, now in standing().items()
        if now != before[name]
    ]
    for what, nr in {"went offline": chaos.counts["slices offlined"], "were woken": woken}.items():
        if nr < chaos.at_least:
            problems.append(f"{nr} slices {what}, fewer than {chaos.at_least}: {PROVES_NOTHING}")
    if not demand:
        problems.append(f"no slice was woken by demand: {PROVES_NOTHING} about it")
    problems += [
        f"policy {policy} was never chosen: {PROVES_NOTHING} about it"
        for policy in chaos.never_chosen()
    ]
    if subprocess.run(["modprobe", "-r", "ramslice_sim"]).returncode:
        problems.append("the power driver does not unload")
    return {
        "violations": violations,
        "woken_by_demand": demand,
        "counts": dict(sorted(chaos.counts.items())),
        "reasons": dict(chaos.reasons.most_common()),
    }


def seed_option(rng):
    return f"--seed={rng.randrange(1, 2**32)}"


def start_loads(rng, share, folder, pause_ms, without=()):
    megabytes = dev.meminfo("MemTotal") / 1024 * share
    loads = []
    for mode, weight in SHARES.items():
        if mode in without:
            continue
        mb = max(8, int(megabytes * weight / 106))
        loads.append(Load(mode, mb, seed_option(rng), "--pause-ms", pause_ms, folder=folder))
    return loads


def end_loads(loads, problems):
    """Ends all loads and returns their summaries; what they found wrong goes to the problems."""
    for load in loads:
        load.process.terminate()
    results = []
    for load in loads:
        try:
            results.append(load.end())
        except AssertionError as error:
            problems.append(str(error))
    return results


def by_demand(device):
    return sum(zone.woken_by_demand for zone in device.zones())


def settle(device, problems):
    """Appends to the problems what does not hold once nothing is under way."""
    stuck = [row for row in device.snapshot() if row.state not in (dev.ONLINE, dev.OFFLINE)]
    if stuck:
        problems.append(f"slices stuck: {stuck}")
    problems += not_true("with slices offline")
    req = device.request("online_all")
    left = sum(zone.nr_offline for zone in device.zones())
    if req.status or left or device.info().offline_pages:
        problems.append(f"online_all: {req}, {left} slices left, {device.info()}")
    problems += not_true("with all slices online")


def not_true(when):
    try:
        dev.verify()
    except dev.AccountingError as error:
        return [f"the counters are not true {when}: {error}"]
    return []


def nr_placed():
    found = placement_workload.figures()
    return found["kernel_placed"] + found["user_placed"]


def churn(seconds=60, seed=1, share=0.5, lru="classic", policies=(), min_slices=None):
    """Runs the loads and requests; returns the problems and a summary.

    share is the part of memory that the loads get, policies are used in turns, and min_slices have
    to go offline and wake. seconds is the least time: it goes on until enough has happened.
    """
    at_least = min_slices if min_slices is not None else max(5, int(seconds / 6))
    rng = random.Random(seed)
    dev.debugfs()
    dev.set_mglru(lru == "mglru")
    dev.swap_on_zram(512)
    folder = dev.file_system()
    if not folder:
        raise FileNotFoundError("no disk: start the guest with --disk 1G")
    subprocess.run(["modprobe", "ramslice_sim"], check=True)
    before = standing()

    problems = []
    with dev.Device() as device:
        driver = device.info().power_driver.decode()
        if driver != "sim":
            raise RuntimeError(f"the power driver is {driver}, not sim")
        loads = start_loads(rng, share, folder, pause_ms=50)
        began = time.monotonic()
        try:
            for load in loads:
                load.wait_ready()
            filled = time.monotonic()
            # Filling memory may take half an hour on a busy emulated machine, so the limit begins
            # here
            timer = watch(seconds + 2 * PATIENCE)
            placed = nr_placed()
            chaos = Chaos(seed, seconds, at_least, policies)
            chaos.start()
            chaos.join()
            churned = time.monotonic()
            results = end_loads(loads, problems)
        finally:
            for load in loads:
                load.kill()
        ended = time.monotonic()
        if not nr_placed() - placed and {*policies, placement_workload.policy()} != {"stock"}:
            problems.append(f"no page was placed: {PROVES_NOTHING} about placement")
        verdict = judge(chaos, device, before, problems)
        timer.cancel()
    return problems, {
        "problems": len(problems), "seconds": seconds, "seed": seed, "share": share, "lru": lru,
        "policies": list(policies) or [placement_workload.policy()], "placed": nr_placed() - placed,
        "fill_s": round(filled - began), "churn_s": round(churned - filled),
        "end_s": round(ended - churned), "settle_s": round(time.monotonic() - ended),
        "rounds": {result["mode"]: result["rounds"] for result in results}, **verdict,
    }


def check(problems):
    """Raises the problems, if there are any: a second run may help only if too little happened."""
    if problems:
        harmless = all(PROVES_NOTHING in problem for problem in problems)
        raise (AssertionError if harmless else NeverRerunError)("\n".join(problems))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60,
                        help="of churn (default 60); longer until enough has happened")
    parser.add_argument("--seed", type=int, default=1,
                        help="of all that is random but the timing (default 1)")
    parser.add_argument("--share", type=float, default=0.5,
                        help="of memory that the loads get (default 0.5)")
    parser.add_argument("--lru", choices=["classic", "mglru"], default="classic")
    parser.add_argument("--policies", nargs="*", default=[], metavar="NAME",
                        help="of placement, in turns (default: the one of the command line)")
    parser.add_argument("--min-slices", type=int,
                        help="slices that must go offline and wake (default by time)")
    problems, summary = churn(**vars(parser.parse_args()))
    return report(problems, summary)


if __name__ == "__main__":
    sys.exit(main())
