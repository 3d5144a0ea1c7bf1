# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory blocks go to the twin and back at random, under loads that know every byte.

Runs in a guest with ramslice_cold=0 on its command line. Most of the loads ask for cold memory;
slices are emptied and woken, modes switched and memory compacted meanwhile. A change of size that
is refused must have changed nothing. Prints a summary as a line of JSON; the status is 1 if
anything was wrong, or if most changes of size were refused.
"""

import argparse
import collections
import errno
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time

from ramlab.guest import cold_memory as cold
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.churn import Chaos, end_loads, not_true, seed_option, settle, standing, watch
from ramlab.guest.errors import report
from ramlab.guest.workload import MODES, Load

# Kinds that ask for cold memory, and that do not; mode file is page cache
COLD_MODES = [mode for mode in MODES if mode != "file"]
HOT_MODES = "anon", "file", "fork", "swap"
LOAD_MIB, PAUSE_MS = 12, 1000
BLOCK_MIB = 128
SIZES_MIB = range(0, 1024 + 1, BLOCK_MIB)
# Refusals that say: not now
REFUSED = (errno.EBUSY, errno.ENOSPC, errno.ETIMEDOUT)
# The first is too short for most changes, so that what has moved goes back
DEADLINES_MS = 1500, 60_000, 60_000, 60_000


class ColdChaos(Chaos):
    """Requests and changes of mode, until stop()."""

    def __init__(self, seed):
        super().__init__(seed, seconds=float("inf"), at_least=0)
        self.threads = [
            threading.Thread(target=self.run, args=(number, *what))
            for number, what in enumerate([
                (2, {"offline": 8, "online": 6, "offline_free": 2, "snapshot": 4}),
                (0.5, {"switch_mode": 4, "compact_memory": 1, "drop_caches": 1, "switch_lru": 1}),
            ])
        ]

    def stop(self):
        self.until = self.latest = 0
        self.join()

    def send(self, device, op, **fields):
        try:
            super().send(device, op, **fields)
        except FileNotFoundError:
            # Its block is on the way to another node
            self.count(f"{op} on the way")

    def switch_mode(self, _, rng):
        dev.write(cold.COLD / "mode", rng.choice(("strict", "overflow")))
        self.count("changes of mode")


class FaultWatch:
    """A process that touches new pages, one after the other, and times each."""

    PAGES, PAUSE_S = 1024, 0.001

    def __init__(self):
        self.read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.read)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            self._touch(write)
            os._exit(0)
        os.close(write)

    def _touch(self, write):
        memory = mmap.mmap(-1, self.PAGES * harness.PAGE)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        faults = longest = 0
        while not signal.sigtimedwait([signal.SIGTERM], self.PAUSE_S):
            number = faults % self.PAGES
            if not number:
                memory.madvise(mmap.MADV_DONTNEED)
            began = time.monotonic_ns()
            memory[number * harness.PAGE] = 1
            longest, faults = max(longest, time.monotonic_ns() - began), faults + 1
        os.write(write, json.dumps({"faults": faults, "longest_fault_ms": longest / 1e6}).encode())

    def end(self):
        """How many there were, and how long the longest took, which includes what others had of the
        processor.
        """
        os.kill(self.pid, signal.SIGTERM)
        with os.fdopen(self.read, "rb") as found:
            text = found.read()
        os.waitpid(self.pid, 0)
        return json.loads(text)


def move_blocks(moves, rng, problems, limit):
    """Changes the size until so many blocks have moved, or the time is over; (moved, changes of
    size, {errno: refusals}, the longest change in seconds).
    """
    moved = changes = 0
    longest = 0.0
    refused = collections.Counter()
    while moved < moves and not problems and time.monotonic() < limit:
        mib, before = rng.choice(SIZES_MIB), cold.size_mib()
        dev.write(cold.COLD / "deadline_ms", rng.choice(DEADLINES_MS))
        began = time.monotonic()
        try:
            cold.resize(mib)
        except OSError as error:
            if error.errno not in REFUSED:
                problems.append(f"{before} to {mib} MiB: {error!r}")
            elif (now := cold.size_mib()) != before:
                said = [line for line in harness.kernel_log().splitlines() if " stays " in line]
                problems.append(f"{before} to {mib} MiB was refused ({error!r}), and is {now}: "
                                + "; ".join(said))
            refused[errno.errorcode[error.errno]] += 1
            continue
        longest = max(longest, time.monotonic() - began)
        if (now := cold.size_mib()) != mib:
            problems.append(f"{before} to {mib} MiB succeeded, and is {now}")
        moved += abs(mib - before) // BLOCK_MIB
        changes += 1
    return moved, changes, refused, longest


def soak(moves, seed, seconds):
    """Moves so many blocks under loads; returns the problems and a summary."""
    rng = random.Random(seed)
    dev.swap_on_zram(256)
    folder = dev.file_system()
    if not folder:
        raise FileNotFoundError("no disk: start the guest with --disk 512M")
    before, present = standing(), cold.present()
    subprocess.run(["modprobe", "ramslice_sim"], check=True)
    problems = []
    loads = {
        f"{mode} {kind}": Load(mode, LOAD_MIB, seed_option(rng), "--pause-ms", PAUSE_MS, *words,
                               folder=folder)
        for kind, modes, words in (("cold", COLD_MODES, ["--cold"]), ("hot", HOT_MODES, []))
        for mode in modes
    }
    chaos = ColdChaos(seed)
    timer = watch(seconds + 1800)
    began = time.monotonic()
    try:
        for load in loads.values():
            load.wait_ready()
        watched = FaultWatch()
        chaos.start()
        moved, changes, refused, longest = move_blocks(
            moves, rng, problems, time.monotonic() + seconds)
        chaos.stop()
        faults = watched.end()
        problems += chaos.broken
        results = end_loads(loads.values(), problems)
    finally:
        for load in loads.values():
            load.kill()
    with dev.Device() as device:
        settle(device, problems)
        dev.write(cold.COLD / "mode", "overflow")
        dev.write(cold.COLD / "deadline_ms", max(DEADLINES_MS))
        cold.resize(0)
        problems += not_true("without cold memory")
    problems += [f"{name} was {before[name]} and is {now}"
                 for name, now in standing().items() if now != before[name]]
    if (now := cold.present()) != present:
        problems.append(f"zones had {present} and have {now}")
    if violations := int(dev.read("/sys/module/ramslice_sim/parameters/violations")):
        problems.append(f"{violations} words were written to in slices that were off")
    if changes < sum(refused.values()):
        problems.append(f"of {changes + sum(refused.values())} changes of size only {changes} were "
                        "made: this proves nothing")
    subprocess.run(["modprobe", "-r", "ramslice_sim"], check=True)
    timer.cancel()
    return problems, faults | {
        "problems": len(problems), "seed": seed, "moves": moved, "moved_mib": moved * BLOCK_MIB,
        "changes": changes, "refused": dict(refused), "longest_change_s": round(longest, 2),
        "seconds": round(time.monotonic() - began),
        "rounds": dict(zip(loads, (result["rounds"] for result in results), strict=False)),
        "counts": dict(sorted(chaos.counts.items())), "reasons": dict(chaos.reasons.most_common()),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=1000, help="of memory blocks (default 1000)")
    parser.add_argument("--seed", type=int, default=1,
                        help="of all that is random but the timing (default 1)")
    parser.add_argument("--seconds", type=float, default=3600,
                        help="at most, with fewer moves then (default 3600)")
    return report(*soak(**vars(parser.parse_args())))


if __name__ == "__main__":
    sys.exit(main())
