# SPDX-License-Identifier: GPL-2.0-or-later
"""The demonstration's programs, again and again, while ramsliced runs in mode on and is killed at
times.

Runs in a guest; RAMSLICE_DAEMON names the program. Redis holds data throughout; in each round
libbpf is compiled, a large file is copied and read, and two bursts want memory, the second one
more than is awake. Prints a summary as a line of JSON; the status is 1 if a byte was wrong, a
process was killed for lack of memory, anything was swapped out, the daemon ended or lost its
state, or no slice went offline or woke.
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ramlab.guest import demo
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import Daemon
from ramlab.guest.errors import report

STILL = ("pswpout", "oom_kill")
# Between two kills, by chance
KILL_S = (20, 90)


class Killer(threading.Thread):
    """Kills the daemon now and then, and starts it again."""

    def __init__(self, daemon, seed):
        super().__init__()
        self.daemon, self.random, self.done = daemon, random.Random(seed), threading.Event()
        # How often; before anything was saved; and whether the daemon had ended by itself
        self.kills = self.unsaved = self.ended = 0

    def run(self):
        while not self.done.wait(self.random.uniform(*KILL_S)):
            if self.daemon.process.poll() is not None:
                self.ended += 1
            self.daemon.end(9)
            self.kills += 1
            self.unsaved += not (self.daemon.folder / "state.json").exists()
            self.daemon.start()

    def stop(self):
        self.done.set()
        self.join()


def awake_mib(device):
    info = device.info()
    return info.free_pages * info.page_bytes >> 20, info.offline_pages * info.page_bytes >> 20


def one_round(device, data, source):
    """All programs once; wrong bytes, and the most slices that were off."""
    make = demo.compile_libbpf(source)
    data.copies = [Path(shutil.copy(data.original, demo.DISK / "copy"))]
    free, _ = awake_mib(device)
    errors = demo.burst(free * 8 // 10)
    _, trouble = make.communicate()
    if make.returncode:
        sys.exit(f"the compile failed:\n{trouble}")
    library = demo.DISK / "build/libbpf.a"
    # The same source makes the same bytes
    data.sums.setdefault(library, demo.checksum(library))
    errors += data.errors()
    off = sum(zone.nr_offline for zone in device.zones())
    free, offline = awake_mib(device)
    errors += demo.burst(free + offline // 2) + data.errors()
    shutil.rmtree(demo.DISK / "build")
    data.copies.pop().unlink()
    del data.sums[library]
    return errors, off


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=20, help="how long rounds are begun (default 20)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the kills (default 1)")
    parser.add_argument("--source", required=True, help="the kernel's tools/lib/bpf")
    parser.add_argument("--file", type=Path, required=True, help="a large file to read")
    args = parser.parse_args()

    subprocess.run(["modprobe", "ramslice_sim"], check=True)
    dev.swap_on_zram(256)
    dev.file_system(str(demo.DISK))
    before = {name: dev.vmstat(name) for name in STILL}
    rounds, errors, most_off = 0, 0, 0
    with tempfile.TemporaryDirectory() as state, dev.Device() as device:
        data = demo.Data(args.file)
        data.digest = demo.start_redis(50_000)
        woken = sum(zone.woken_by_demand for zone in device.zones())
        daemon = Daemon(state, mode="on", stop="wake", stall=100, period=5)
        daemon.start()
        killer = Killer(daemon, args.seed)
        killer.start()
        end = time.monotonic() + 60 * args.minutes
        try:
            while not rounds or time.monotonic() < end:
                bad, off = one_round(device, data, args.source)
                rounds, errors, most_off = rounds + 1, errors + bad, max(most_off, off)
                demo.say(
                    f"round {rounds}: {off} slices were off, {errors} errors, {killer.kills} kills"
                )
        finally:
            killer.stop()
        daemon.steps(1)
        woken = sum(zone.woken_by_demand for zone in device.zones()) - woken
        steps, status = daemon.metrics()["ramslice_steps_total"], daemon.end()
        log = daemon.log()
        left = sum(zone.nr_offline for zone in device.zones())
        errors += data.errors()

    problems = [
        f"{name}: {dev.vmstat(name) - count}"
        for name, count in before.items()
        if dev.vmstat(name) != count
    ]
    problems += [what for what, wrong in {
        f"{errors} data errors": errors,
        f"the daemon ended with status {status}": status,
        f"{left} slices stayed offline at the end": left,
        "no slice went offline": not most_off,
        "no slice woke on demand": not woken,
        f"the daemon ended by itself {killer.ended} times": killer.ended,
        "the daemon was never killed: this proves nothing": not killer.kills,
        f"the state was lost:\n{log[-3000:]}":
            log.count("nothing was learned before") > 1 + killer.unsaved
            or re.search(r"\blearning a\w+", log),
    }.items() if wrong]
    return report(problems, {
        "problems": len(problems),
        "minutes": args.minutes,
        "rounds": rounds,
        "kills": killer.kills,
        "steps": steps,
        "most_off": most_off,
        "woken_by_demand": woken,
        "data_errors": errors,
    })


if __name__ == "__main__":
    sys.exit(main())
