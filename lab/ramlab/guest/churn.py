#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices go offline and come back at random under loads that know every byte they own.

Runs in a guest. The simulated controller scrambles every slice that goes offline and tells if anybody wrote to
it. Half of memory belongs to loads of all kinds; now and then a surge wants more than is awake. Two threads
send requests at the same time, one that mostly empties and one that mostly wakes; with --policies, another changes
how pages are placed. Prints a summary as a line of JSON; the status is 1 if anything was wrong, or if too little
happened to prove anything.
"""

import argparse
import collections
import errno
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from ramlab.guest import place_load
from ramlab.guest import ramslice_dev as rs
from ramlab.guest.workload import Failed, Load

# Shares of the memory that the loads get. A fork load needs up to three times what it asks for.
SHARES = {"anon": 20, "anon-thp": 18, "file": 14, "shmem": 12, "mlock": 8, "fork": 6, "swap": 16}
SIM = "/sys/module/ramslice_sim/parameters/"


class Chaos:
    """Threads of random requests, surges and changes of LRU and placement, with a count of what came of them."""

    def __init__(self, seed, seconds, at_least, policies=()):
        self.until = time.monotonic() + seconds
        self.latest = self.until + 2 * seconds
        self.at_least = at_least
        self.seed = seed
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.reasons = collections.Counter()
        self.broken = []
        self.policies = policies
        self.threads = [threading.Thread(target=self.run, args=(number, *what)) for number, what in enumerate([
            (20, {"offline": 30, "compact": 30, "offline_free": 8, "compact_memory": 1, "drop_caches": 1}),
            (20, {"online": 30, "online_all": 2, "offline": 5, "snapshot": 10, "census": 3}),
            (0.5, {"surge": 3, "switch_lru": 1}),
            *([(0.5, {"switch_policy": 1})] if policies else []),
        ])]

    def run(self, number, per_second, weights):
        rng = random.Random(self.seed * 3 + number)
        with rs.Device() as device:
            while not self.finished(device):
                name = rng.choices(list(weights), list(weights.values()))[0]
                try:
                    getattr(self, name)(device, rng)
                except OSError as error:
                    # Another request runs; everything else is a fault.
                    if error.errno != errno.EBUSY:
                        self.broken.append(f"{name}: {error!r}")
                        return
                    self.count(f"{name} busy")
                except Exception as error:
                    self.broken.append(f"{name}: {error!r}")
                    return
                time.sleep(rng.expovariate(per_second))

    def finished(self, device):
        """Time is up; on a slow machine, longer, until enough has happened."""
        now = time.monotonic()
        if now < self.until:
            return False
        if now > self.latest or self.broken:
            return True
        return min(self.counts["slices offlined"], self.woken(device)) >= self.at_least and not self.never_chosen()

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
        """A surge while nobody else wakes anything: after join()."""
        self.send(device, "compact", flags=rs.IGNORE_BACKOFF, deadline_ms=60000)
        self.surge(device, random.Random(self.seed), share=0.7)

    def count(self, what, nr=1):
        with self.lock:
            self.counts[what] += nr

    def send(self, device, op, **fields):
        req = device.request(op, **fields)
        self.count(op)
        if req.nr_done and not req.flags & rs.DRY_RUN:
            self.count("slices offlined" if op in ("offline", "compact", "offline_free") else "slices onlined",
                       req.nr_done)
        for what in ("pages_migrated", "pages_dropped", "pages_failed", "huge_moved", "huge_split", "nr_failed"):
            self.count(what, getattr(req, what))
        if req.reason:
            with self.lock:
                self.reasons[f"{op}: {req.why()}"] += 1
        return req

    def pick(self, device, rng, state):
        ids = [row.id for row in device.snapshot() if row.state == state and not row.flags & rs.UNRECLAIMABLE]
        return rng.choice(ids) if ids else None

    def offline(self, device, rng):
        id = self.pick(device, rng, rs.ONLINE)
        if id is not None:
            self.send(device, "offline", id=id, flags=rng.choice([0, rs.IGNORE_BACKOFF, rs.KEEP_CACHE, rs.AUTO_CACHE]),
                      deadline_ms=rng.choice([0, 0, 50, 1000]))

    def online(self, device, rng):
        id = self.pick(device, rng, rs.OFFLINE)
        if id is not None:
            self.send(device, "online", id=id)

    def compact(self, device, rng):
        self.send(device, "compact", budget=rng.choice([rs.UNLIMITED, int(10 ** rng.uniform(3, 7))]),
                  max_slices=rng.choice([rs.ALL_SLICES, 1, 3]), flags=rng.randrange(16),
                  deadline_ms=rng.choice([0, 0, 100, 2000]))

    def offline_free(self, device, _):
        self.send(device, "offline_free", flags=rs.IGNORE_BACKOFF)

    def online_all(self, device, _):
        self.send(device, "online_all")

    def snapshot(self, device, _):
        device.snapshot()
        self.count("snapshots")

    def census(self, *_):
        for folder in rs.zone_folders():
            (folder / "all").read_text()
        self.count("debugfs reads")

    def switch_lru(self, _, rng):
        rs.set_mglru(rng.random() < 0.5)
        self.count("changes of LRU")

    def switch_policy(self, *_):
        """Each in its turn, so that all of them come."""
        policy = self.policies[sum(self.counts[f"policy {policy}"] for policy in self.policies) % len(self.policies)]
        place_load.choose(policy)
        self.count(f"policy {policy}")

    def surge(self, device, rng, share=0.25):
        """More memory, at once, than is awake, if that is not more than a share of all."""
        info = device.info()
        awake, off = (pages * info.page_bytes >> 20 for pages in (info.free_pages, info.offline_pages))
        limit = min(rs.meminfo("MemTotal") / 1024 * share, (awake + off) * 0.7)
        load = Load("anon", max(8, int(min(awake + 48, limit))), seed_option(rng))
        try:
            load.wait_ready().end()
        finally:
            load.kill()
        self.count("surges")

    def compact_memory(self, *_):
        rs.write("/proc/sys/vm/compact_memory", 1)

    def drop_caches(self, *_):
        rs.write("/proc/sys/vm/drop_caches", 1)


def watch(limit):
    """Ends a test that hangs, having said where every task is."""
    def expire():
        print(f"FAILED: no end after {limit:g} s", flush=True)
        for task in sorted(Path("/proc").glob("[0-9]*/task/[0-9]*"), key=lambda t: int(t.name)):
            try:
                stat = (task / "stat").read_text()
                name, state = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2]
                frames = [line.split("] ")[-1] for line in (task / "stack").read_text().splitlines()]
            except OSError:
                continue
            if state != "I":
                print(f"  {task.name} {name} {state}: {' < '.join(frames)}", flush=True)
        os._exit(1)

    timer = threading.Timer(limit, expire)
    timer.daemon = True
    timer.start()


def standing():
    """What loads and requests must leave as it is."""
    return {"MemTotal": rs.meminfo("MemTotal"), "oom_kill": rs.vmstat("oom_kill")}


def judge(chaos, device, before, problems):
    """What must hold at the end, when the loads have gone: appends what does not. Unloads the power driver."""
    problems += chaos.broken
    if not problems:
        chaos.demand(device)
    demand, woken = by_demand(device), chaos.woken(device)
    settle(device, problems)

    if violations := int(rs.read(SIM + "violations")):
        problems.append(f"{violations} words were written to in slices that were off")
    problems += [f"{name} was {before[name]} and is {now}" for name, now in standing().items() if now != before[name]]
    for what, nr in {"went offline": chaos.counts["slices offlined"], "were woken": woken}.items():
        if nr < chaos.at_least:
            problems.append(f"{nr} slices {what}, fewer than {chaos.at_least}: this proves nothing")
    if not demand:
        problems.append("no slice was woken by demand: this proves nothing about it")
    problems += [f"policy {policy} was never chosen: this proves nothing about it" for policy in chaos.never_chosen()]
    if subprocess.run(["modprobe", "-r", "ramslice_sim"]).returncode:
        problems.append("the power driver does not unload")
    return {"violations": violations, "woken_by_demand": demand, "counts": dict(sorted(chaos.counts.items())),
            "reasons": dict(chaos.reasons.most_common())}


def seed_option(rng):
    return f"--seed={rng.randrange(1, 2**32)}"


def start_loads(rng, share, folder, pause_ms, without=()):
    megabytes = rs.meminfo("MemTotal") / 1024 * share
    loads = []
    for mode, weight in SHARES.items():
        if mode in without:
            continue
        mb = max(8, int(megabytes * weight / 106))
        loads.append(Load(mode, mb, seed_option(rng), "--pause-ms", pause_ms, folder=folder))
    return loads


def end_loads(loads, problems):
    """Ends them all and returns what each did; who found a wrong byte goes to the problems."""
    for load in loads:
        load.process.terminate()
    results = []
    for load in loads:
        try:
            results.append(load.end())
        except Failed as error:
            problems.append(str(error))
    return results


def by_demand(device):
    return sum(zone.woken_by_demand for zone in device.zones())


def settle(device, problems):
    """What must hold when nothing is under way any more."""
    stuck = [row for row in device.snapshot() if row.state not in (rs.ONLINE, rs.OFFLINE)]
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
        rs.verify()
    except rs.NotTrue as error:
        return [f"the books are not true {when}: {error}"]
    return []


def nr_placed():
    found = place_load.figures()
    return found["kernel_placed"] + found["user_placed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60,
                        help="of churn (default 60); up to three times as long until enough has happened")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random but the timing (default 1)")
    parser.add_argument("--share", type=float, default=0.5, help="of memory that the loads get (default 0.5)")
    parser.add_argument("--lru", choices=["classic", "mglru"], default="classic")
    parser.add_argument("--policies", nargs="*", default=[], metavar="NAME",
                        help="of placement, by turns; without, the one that was chosen at boot")
    parser.add_argument("--min-slices", type=int, help="slices that must go offline, and be woken (default by time)")
    args = parser.parse_args()
    at_least = args.min_slices if args.min_slices is not None else max(5, int(args.seconds / 6))

    rng = random.Random(args.seed)
    rs.debugfs()
    rs.set_mglru(args.lru == "mglru")
    rs.swap_on_zram(512)
    folder = rs.file_system()
    if not folder:
        sys.exit("churn.py: no disk: start the guest with --disk 1G")
    subprocess.run(["modprobe", "ramslice_sim"], check=True)
    before = standing()

    problems = []
    with rs.Device() as device:
        driver = device.info().power_driver.decode()
        if driver != "sim":
            sys.exit(f"churn.py: the power driver is {driver}, not sim")
        loads = start_loads(rng, args.share, folder, pause_ms=50)
        began = time.monotonic()
        try:
            for load in loads:
                load.wait_ready()
            filled = time.monotonic()
            # Filling takes as long as it takes: on a busy host, emulated, half an hour
            watch(3 * args.seconds + 300)
            placed = nr_placed()
            chaos = Chaos(args.seed, args.seconds, at_least, args.policies)
            chaos.start()
            chaos.join()
            churned = time.monotonic()
            results = end_loads(loads, problems)
        finally:
            for load in loads:
                load.kill()
        ended = time.monotonic()
        if not nr_placed() - placed and {*args.policies, place_load.policy()} != {"stock"}:
            problems.append("no page was placed: this proves nothing about placement")
        verdict = judge(chaos, device, before, problems)

    for problem in problems:
        print(f"FAILED: {problem}")
    print(json.dumps({
        "problems": len(problems), "seconds": args.seconds, "seed": args.seed, "share": args.share, "lru": args.lru,
        "policies": args.policies or [place_load.policy()], "placed": nr_placed() - placed,
        "fill_s": round(filled - began), "churn_s": round(churned - filled), "end_s": round(ended - churned),
        "settle_s": round(time.monotonic() - ended),
        "rounds": {result["mode"]: result["rounds"] for result in results}, **verdict,
    }))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
