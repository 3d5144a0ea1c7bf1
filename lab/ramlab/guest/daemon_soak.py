# SPDX-License-Identifier: GPL-2.0-or-later
"""ramsliced in mode on, killed and restarted at random, under loads that know every byte.

Runs in a guest; RAMSLICE_DAEMON names the program. The loads are those of churn.py; surges want
more memory than is awake. Prints a summary as a line of JSON; the status is 1 if a byte was
wrong, a process was killed for lack of memory, anything was swapped out, the state was lost or
damaged, or too little happened to prove anything.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
import threading

from ramlab.guest import ramslice_dev as rs
from ramlab.guest.churn import Chaos, end_loads, judge, standing, start_loads, watch
from ramlab.guest.daemon import Daemon
from ramlab.guest.errors import report

UNSAVED = "kills before anything was saved"


class Trial(Chaos):
    """Surges, and a daemon that is killed again and again."""

    def __init__(self, daemon, seed, seconds, at_least):
        super().__init__(seed, seconds, at_least)
        self.daemon = daemon
        self.threads = [
            threading.Thread(target=self.run, args=(number, *what))
            for number, what in enumerate(
                [(0.2, {"surge": 3, "switch_lru": 1}), (0.1, {"kill": 1})]
            )
        ]

    def finished(self, device):
        self.look(device)
        return super().finished(device)

    def look(self, device):
        """Slices that went off are those that are, and those that woke."""
        off = sum(zone.nr_offline for zone in device.zones())
        with self.lock:
            self.counts["slices offlined"] = max(
                self.counts["slices offlined"], off + self.woken(device)
            )

    def kill(self, *_):
        if self.daemon.process.poll() is not None:
            self.broken.append(
                f"the daemon ended by itself, status {self.daemon.process.returncode}"
            )
            return
        self.daemon.end(9)
        if not (self.daemon.folder / "state.json").exists():
            self.count(UNSAVED)
        self.daemon.start()
        self.count("kills")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="of load (default 60); up to three times as long"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of all that is random but the timing (default 1)"
    )
    parser.add_argument(
        "--share", type=float, default=0.25, help="of memory that the loads get (default 0.25)"
    )
    args = parser.parse_args()
    at_least = max(5, int(args.seconds / 20))
    rng = random.Random(args.seed)
    rs.debugfs()
    # So that something could be swapped out; nothing is by itself while slices can wake
    rs.swap_on_zram(512)
    folder = rs.file_system()
    if not folder:
        sys.exit("daemon_soak.py: no disk: start the guest with --disk 1G")
    subprocess.run(["modprobe", "ramslice_sim"], check=True)
    before, swapped = standing(), rs.vmstat("pswpout")
    problems = []
    with tempfile.TemporaryDirectory() as state, rs.Device() as device:
        daemon = Daemon(state, mode="on", stop="leave", stall=100)
        loads = start_loads(rng, args.share, folder, pause_ms=200, without=["swap"])
        try:
            for load in loads:
                load.wait_ready()
            watch(3 * args.seconds + 600)
            daemon.start()
            trial = Trial(daemon, args.seed, args.seconds, at_least)
            trial.start()
            trial.join()
            trial.look(device)
            if status := daemon.end():
                problems.append(f"the daemon ended with status {status}")
            results = end_loads(loads, problems)
        finally:
            daemon.end(9)
            for load in loads:
                load.kill()
        log = daemon.log()
        verdict = judge(trial, device, before, problems)
    if (now := rs.vmstat("pswpout")) != swapped:
        problems.append(f"{now - swapped} pages were swapped out")
    # One that was killed before it saved anything may have been killed before it said so, too
    times = log.count("nothing was learned before")
    if not 1 <= times <= 1 + trial.counts[UNSAVED] or re.search(r"\blearning a\w+", log):
        problems.append(
            f"the state was lost: nothing was known at {times} starts, {trial.counts[UNSAVED]}"
            f" kills came before anything was saved:\n{log[-3000:]}"
        )
    if not trial.counts["kills"]:
        problems.append("the daemon was never killed: this proves nothing")
    return report(problems, {
        "problems": len(problems),
        "seconds": args.seconds,
        "seed": args.seed,
        "share": args.share,
        "rounds": {result["mode"]: result["rounds"] for result in results},
        **verdict,
    })


if __name__ == "__main__":
    sys.exit(main())
