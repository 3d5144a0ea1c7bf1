# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots of virtual machines in random order, each of which leaves a file of figures."""

import concurrent.futures
import dataclasses
import hashlib
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

from ramlab import provenance
from ramlab.common import OUT, RAMLAB, ROOT, die, put_json

# QEMU emulates and counts every iteration of a string instruction: without the fast byte-wise
# ones, the kernel copies and clears a page in 512 of them, not 4096.
CPU = "-cpu max,-erms,-fsrm"
# One instruction is one nanosecond of the guest's clock; idle time passes at once.
ICOUNT = f"--qemu-opt=-icount shift=0,sleep=off {CPU}"

# What a boot leaves: its figures, and that it ended well
RESULT, DONE = "result.json", "done.json"
# The name of a file that is a guest's memory
MEMORY = "memory"


@dataclasses.dataclass
class Boot:
    """One boot: which kernel, which machine, what runs there."""

    arm: str
    flavour: str
    words: list  # ramlab vm's; {folder} is its folder, here and in parts
    script: str  # in lab/ramlab/guest
    parts: list
    environment: list = ()  # NAME=VALUE
    number: int = 0
    folder: Path = None  # where it leaves what it finds


def describe(images):
    """What an entry says of its kernels, for people: what makes it stale is its provenance."""
    return {flavour: {"image": path.name,
                      "release": json.loads((path / "info.json").read_text())["release"]}
            for flavour, path in images.items()}


# What decides a boot besides the kernel and its own words: machines, and what guests run.
LAB_FOLDERS = ("lab/ramlab/vm", "lab/ramlab/guest", "lab/guest", "kernel/files/tools")


def identity(boot, images, args):
    """Hash of all that decides what a boot finds out; --resume does not repeat an equal one."""
    words = [[str(word) for word in part] for part in (boot.words, boot.parts, boot.environment)]
    # Programs by their contents: they are named by a path, alone or as NAME=PATH.
    programs = [hashlib.sha256(Path(path).read_bytes()).hexdigest()
                for word in sum(words, []) if Path(path := word.rpartition("=")[2]).is_file()]
    # Settings that a guest reads from the tree are among what the part uses
    about = [images[boot.flavour].name, boot.script, args.quick, words, programs,
             provenance.path_ids([*LAB_FOLDERS, *sorted(args.used.modules)])]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


class AtWork:
    """The machines at work. Ending the program ends them; none begins afterwards, nor unseen
    while they are ended.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._machines = set()
        self._ended = False

    def begin(self, line, **options):
        """A machine as subprocess.Popen gives it; CancelledError once they were ended."""
        with self._lock:
            if self._ended:
                raise concurrent.futures.CancelledError
            machine = subprocess.Popen(line, **options)
            self._machines.add(machine)
            return machine

    def left(self, machine):
        with self._lock:
            self._machines.discard(machine)

    def end(self):
        with self._lock:
            self._ended = True
            for machine in self._machines:
                machine.terminate()


def _carry_out(boot, images, quick, at_work):
    """Runs a boot to its end: status, output, and what its processes took of the host."""
    line = [
        RAMLAB,
        "vm",
        "--quiet",
        "--timeout",
        3600,
        "--kernel",
        boot.flavour,
        *(str(word).replace("{folder}", str(boot.folder)) for word in boot.words),
        "--rw",
        boot.folder,
        "--console",
        boot.folder / "console",
        "--",
        *boot.environment,
        "python3",
        "-m",
        f"ramlab.guest.{Path(boot.script).stem}",
        boot.folder / RESULT,
        *(["--quick"] if quick else []),
        *(str(part).replace("{folder}", str(boot.folder)) for part in boot.parts),
    ]
    with at_work.begin(
        [str(word) for word in line],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"RAMSLICE_IMAGE": str(images[boot.flavour])},
    ) as machine:
        output = machine.stdout.read()
        _, status, use = os.wait4(machine.pid, 0)
        machine.returncode = os.waitstatus_to_exitcode(status)
    at_work.left(machine)
    return machine.returncode, output, {"faults": use.ru_minflt, "system_s": use.ru_stime}


def _run(boot, images, args, at_work):
    """The boot, its figures or None, and its seconds or what went wrong."""
    shutil.rmtree(boot.folder, ignore_errors=True)
    boot.folder.mkdir(parents=True)
    # As things are now: they may have changed since the boots before
    about = identity(boot, images, args)
    began = time.monotonic()
    status, output, host = _carry_out(boot, images, args.quick, at_work)
    seconds = time.monotonic() - began
    # The guest's memory, where it is a file, is large and no result
    for file in boot.folder.glob(f"{MEMORY}*"):
        file.unlink()
    (boot.folder / "output").write_text(output)
    if status or not (boot.folder / RESULT).exists():
        return boot, None, f"status {status}:\n{output}"
    figures = json.loads((boot.folder / RESULT).read_text()) | {"host": host}
    put_json(boot.folder / RESULT, figures)
    # Last: who finds it finds figures of a boot that ended well
    put_json(boot.folder / DONE, {"identity": about, "seconds": round(seconds)})
    return boot, figures, seconds


def _done(boot, images, args):
    """Figures and seconds of a boot that was carried out before, with the same of everything, or
    None.
    """
    try:
        found = json.loads((boot.folder / DONE).read_text())
        figures = json.loads((boot.folder / RESULT).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return (
        (figures, found["seconds"]) if found["identity"] == identity(boot, images, args) else None
    )


def home(name, quick):
    """Where boots leave what they found. A look whether it works does not cost what took hours."""
    return OUT / "bench" / "boots" / (f"{name}-quick" if quick else name)


def seed_of(suite, part, args):
    """The seed of a part's order and of what it draws: as named; resumed, as it began with; else
    by chance.
    """
    path = home(f"{suite}-{part}", args.quick).with_suffix(".seed")
    seed = args.seed
    if seed is None and args.resume and path.exists():
        seed = int(path.read_text())
    if seed is None:
        seed = random.getrandbits(32)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{seed}\n")
    return seed


def run(boots, images, name, args, jobs=None):
    """Carries out boots in random order; {arm: [figures of each boot, in that order]}. One that
    fails ends the program.

    With args.resume, a boot that ended well with the same of everything is not carried out again.
    """
    jobs = jobs or args.jobs
    folder = home(name, args.quick)
    for boot in boots:
        args.used.guest_script(boot.script)
    if not args.resume:
        shutil.rmtree(folder, ignore_errors=True)
    random.Random(args.seed).shuffle(boots)
    found, took = {}, []
    for number, boot in enumerate(boots):
        boot.number, boot.folder = number, folder / f"{number:03d}-{boot.arm}"
        if args.resume and (done := _done(boot, images, args)):
            found[number], seconds = done
            took.append(seconds)
    left = [boot for boot in boots if boot.number not in found]
    before = f", {len(found)} of them done before" if args.resume else ""
    print(
        f"{name}: {len(boots)} boots, order by seed "
        f"{args.seed}{before}{ahead(took, len(left), jobs)}",
        flush=True,
    )
    at_work = AtWork()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(_run, boot, images, args, at_work) for boot in left]
        try:
            for future in concurrent.futures.as_completed(waiting):
                boot, figures, outcome = future.result()
                if figures is None:
                    # No other boot begins; those at work end well
                    pool.shutdown(cancel_futures=True)
                    die(
                        f"{name}, boot {boot.number} ({boot.arm}) failed with "
                        f"{outcome}\n--resume goes on from here"
                    )
                found[boot.number] = figures
                took.append(outcome)
                rest = ahead(took, len(boots) - len(found), jobs)
                print(f"  {len(found)}/{len(boots)} {boot.arm}: {outcome:.0f} s{rest}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            at_work.end()
            raise
    by_arm = {}
    for boot in boots:
        by_arm.setdefault(boot.arm, []).append(found[boot.number])
    return by_arm


def ahead(took, nr, jobs):
    """What is still to come, by the seconds that boots took; nothing if that is unknown."""
    if not took or not nr:
        return ""
    return f"; {nr} left, about {math.ceil(statistics.fmean(took) * nr / min(jobs, nr) / 60)} min"
