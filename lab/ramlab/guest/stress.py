# SPDX-License-Identifier: GPL-2.0-or-later
"""stress-ng's stressors of memory, mappings, processes and file systems while slices go offline
and wake.

Runs in a guest. Each turn takes one stressor of each group, at random by the seed, and runs them
side by side for some seconds with --verify; threads of random requests go on all the time, as in
churn.py. Prints a summary as a line of JSON; the status is 1 if anything was wrong, or if too
little happened.
"""

import argparse
import collections
import random
import re
import subprocess
import sys
import time

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.churn import PATIENCE, Chaos, judge, standing, watch
from ramlab.guest.errors import report

# stress-ng has classes "vm" and "filesystem"; those of mappings and of processes are parts of
# others.
MAPPINGS = [
    "mmap",
    "mmapaddr",
    "mmapfixed",
    "mmapfork",
    "mmaphuge",
    "mmapmany",
    "mremap",
    "mprotect",
    "munmap",
    "msync",
    "msyncmany",
    "mlock",
    "mlockmany",
    "stackmmap",
    "remap",
    "pagemove",
    "vma",
    "mmapcow",
]
PROCESSES = [
    "fork",
    "vfork",
    "clone",
    "forkheavy",
    "daemon",
    "zombie",
    "session",
    "exec",
    "spawn",
    "pthread",
    "vforkmany",
]

EXCLUDED = {
    "bigheap": "grows until the kernel kills it, however much memory there is",
    "brk": "the same",
    "stack": "the same",
    "mlockmany": "the same, with memory that cannot be swapped",
    "env": "the same, with its environment",
    "mmapmany": "holds as many page tables as memory takes, which no slice can be emptied of",
    "vforkmany": "starts processes until there is no memory for another one",
    "forkheavy": "holds as many resources of the kernel as it gets; nothing is left to empty",
    "madvise": "poisons pages for good, as if memory were broken; power tests have that",
    "swap": "swaps the machine's swap off while others need it",
    "watchdog": "there is no /dev/watchdog",
    "binderfs": "needs CONFIG_ANDROID_BINDERFS",
    "verity": "needs CONFIG_FS_VERITY",
    "userfaultfd": "verifies times that an emulated machine does not keep",
    "bind-mount": "needs a file system that it may bind over itself without end",
    "chattr": (
        "needs attributes that ext4 refuses to some of its files, and counts that as a failure"
    ),
    "procfs": "reads /proc/kcore for as long as it lasts; proofs have that",
    "dev-shm": (
        "a grandchild of its that the kernel keeps busy counts on after it has summed up, and the"
        " sum is called corrupt"
    ),
    "hdd": "fills the scratch disk",
    "fallocate": "the same",
    "iomix": "the same",
}


class Stressors:
    """The stressors of each group that are not excluded."""

    def __init__(self):
        vm, files = self.members("vm"), self.members("filesystem")
        known = set(self.members("os")) | set(self.members("scheduler")) | set(vm) | set(files)
        self.groups = {
            "vm": [name for name in vm if name not in MAPPINGS],
            "mmap": [name for name in MAPPINGS if name in known],
            "fork": [name for name in PROCESSES if name in known],
            "filesystem": files,
        }
        for group, names in self.groups.items():
            self.groups[group] = [name for name in names if name not in EXCLUDED]
            if not self.groups[group]:
                sys.exit(f"stress.py: stress-ng has no stressor of the group {group}")

    @staticmethod
    def members(name):
        done = subprocess.run(
            ["stress-ng", "--class", f"{name}?"],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.stdout.partition("stressors:")[2].split()

    def pick(self, rng):
        return [rng.choice(names) for names in self.groups.values()]


def turn(names, seconds, folder, rng):
    """Runs some stressors side by side; returns what went wrong, or None."""
    line = [
        "stress-ng",
        "--verify",
        "--timeout",
        f"{seconds:g}s",
        "--temp-path",
        folder,
        "--seed",
        rng.getrandbits(32),
        "--no-oom-adjust",
        "--oomable",
        "--vm-bytes",
        "64M",
        "--mmap-bytes",
        "64M",
        "--malloc-bytes",
        "48M",
        "--shm-bytes",
        "32M",
    ]
    for name in names:
        line += [f"--{name}", 1]
    try:
        done = subprocess.run(
            [str(word) for word in line],
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + 300,
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(names)}: no end {seconds + 300:g} s after the start"
    # 0 well, 3 no resources for it, 4 not on this machine
    failed = [text for text in done.stdout.splitlines() if re.search(r"fail|error: ", text)]
    if done.returncode not in (0, 3, 4):
        return f"{' '.join(names)}: status {done.returncode}\n  " + "\n  ".join(
            failed or done.stdout.splitlines()[-8:]
        )
    return None


def stress(seconds=60, turn_s=15, seed=1, only=()):
    """Runs stressors and random requests; returns the problems and a summary."""
    stressors = Stressors()
    rng = random.Random(seed)
    dev.debugfs()
    dev.swap_on_zram(512)
    folder = dev.file_system()
    if not folder:
        raise FileNotFoundError("no disk: start the guest with --disk 2G")
    subprocess.run(["modprobe", "ramslice_sim"], check=True)
    before = standing()

    problems, ran = [], collections.Counter()
    at_least = max(3, int(seconds / 20))
    with dev.Device() as device:
        timer = watch(seconds + 2 * PATIENCE)
        chaos = Chaos(seed, seconds, at_least)
        began = time.monotonic()
        chaos.start()
        while not chaos.finished(device) and not problems:
            names = only or stressors.pick(rng)
            killed = dev.vmstat("oom_kill")
            if failed := turn(names, turn_s, folder, rng):
                problems.append(failed)
            if nr := dev.vmstat("oom_kill") - killed:
                problems.append(f"{' '.join(names)}: {nr} processes were killed for lack of memory")
            ran.update(names)
        # Requests go on for as long as the stressors do
        chaos.until = chaos.latest = 0
        chaos.join()
        ended = time.monotonic()
        verdict = judge(chaos, device, before, problems)
        timer.cancel()
    return problems, {
        "problems": len(problems), "seconds": round(ended - began), "seed": seed,
        "stressors": dict(sorted(ran.items())), **verdict,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="(default 60)")
    parser.add_argument("--turn", type=float, default=15,
                        help="seconds that a choice of stressors gets (default 15)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=(), help="these stressors, all the time")
    parser.add_argument("--list", action="store_true",
                        help="print what runs, and what is left out for which reason")
    args = parser.parse_args()

    if args.list:
        for group, names in Stressors().groups.items():
            print(f"{group}: {' '.join(names)}")
        for name, reason in EXCLUDED.items():
            print(f"left out: {name}: {reason}")
        return 0
    problems, summary = stress(args.seconds, args.turn, args.seed, args.only)
    return report(problems, summary)


if __name__ == "__main__":
    sys.exit(main())
