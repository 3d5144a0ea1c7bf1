#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Feeds generated inputs to all of ramslice's interfaces in a guest, and keeps a summary.

Usage: ramlab fuzz [--inputs N] [--seed N] [--first N | --resume] [--kernel FLAVOUR]
                   [--arch arm64] [--summary FILE]
       ramlab fuzz --boots N [--seed N]

An input is a function of the seed and its number, so that any range of numbers can be had again.
The summary is kept after each portion, and --resume goes on where it ends. With --boots, generated
values of ramslice= and ramslice_placement= go to the command line of so many real boots instead,
several at a time. They boot the plain kernel, or with --kernel research the one that has all
placement policies.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import random
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from ramlab.architectures import ARCHITECTURES, NATIVE
from ramlab.common import FLAVOURS, RAMLAB, ROOT, die, provenance, put_json, stream_vm
from ramlab.kernel.images import image

MIB = 1 << 20
PAGEBLOCK = 2 * MIB
DEFAULT_BYTES = 64 * MIB
BOOT_MEM = 400 * MIB
SUFFIXES = "KMGTPE"
POLICIES = ["stock", "packed"]
# Those that only a research kernel has.
RESEARCH_POLICIES = ["low", "array", "list", "adaptive"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20000)
    parser.add_argument("--seed", type=int, help="(default: the time)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--resume", action="store_true", help="go on where the last run stopped")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--portion", type=int, default=5000)
    parser.add_argument("--kernel", default="debug",
                        choices=[f for f in FLAVOURS if FLAVOURS[f][0]])
    parser.add_argument("--arch", choices=ARCHITECTURES, default=NATIVE.name)
    parser.add_argument("--mem", default="1G", help="the guest's memory (default 1G)")
    parser.add_argument("--timeout", type=float, help="seconds (default: by the number of inputs)")
    parser.add_argument("--summary", type=Path, metavar="FILE",
                        help="(default results/fuzz-FLAVOUR.json)")
    parser.add_argument("--boots", type=int, metavar="N", help="boots with generated command lines")
    args = parser.parse_args()
    if args.resume and args.first:
        parser.error("--resume knows the first input itself")
    if args.boots and args.arch != NATIVE.name:
        parser.error(f"--boots boots {NATIVE.name} only")
    args.summary = args.summary or ROOT / f"results/fuzz-{kernel_name(args)}.json"
    return args


def kernel_name(args):
    """The kernel with its architecture, as the cache names it."""
    return ARCHITECTURES[args.arch].prefixed(args.kernel)


# --- the interfaces of a running kernel ---


def merge(old, new):
    """The summary of two runs, one after the other, of the same inputs."""
    if not old:
        return new
    answers = collections.defaultdict(collections.Counter)
    for part in (old["answers"], new["answers"]):
        for target, errors in part.items():
            answers[target].update(errors)
    both = old | new | {"first": old["first"],
                        "answers": {t: dict(e.most_common()) for t, e in answers.items()}}
    for name in ("inputs", "seconds", "bugs", "offlined", "woken", "geometries", "problems"):
        both[name] = old[name] + new[name]
    both["parts"] = old.get("parts", 1) + 1
    return both


def fuzz(args):
    now = datetime.datetime.now(datetime.timezone.utc)
    kernel = image(args.kernel, ARCHITECTURES[args.arch])
    seed = args.seed if args.seed is not None else int(now.timestamp())
    first, before = args.first, None
    if args.resume:
        if not args.summary.exists():
            die(f"nothing to resume: {args.summary} is missing")
        kept = json.loads(args.summary.read_text())
        before = kept["summary"]
        seed, first = before["seed"], before["next"]
        if kept["kernel"]["image"] != kernel.name:
            print(f"fuzz: resuming with another kernel: {kernel.name}, "
                  f"before {kept['kernel']['image']}")
    left = args.inputs - (first - before["first"] if before else 0)
    if left <= 0:
        die(f"all {args.inputs} inputs have been had")
    limit = args.timeout or 900 + left / 8
    subprocess.run([RAMLAB, "guest-programs", "--arch", args.arch], check=True,
                   stdout=subprocess.DEVNULL)
    boot = "ramslice=8M" + (" kmemleak=on" if args.kernel == "debug" else "")
    command = [
        "lab/bin/ramlab", "vm", "--arch", args.arch, "--kernel", args.kernel, "--mem", args.mem,
        "--disk", "256M",
        "--append", boot, "--timeout", f"{limit:g}", "--",
        f"python3 -m ramlab.guest.fuzz --inputs {left} --first {first} --seed {seed} "
        f"--processes {args.processes} --portion {args.portion} --limit {limit - 60:g}",
    ]
    summary, status = None, None

    def keep():
        put_json(args.summary, {
            "date": now.isoformat(timespec="seconds"),
            "command": shlex.join(command),
            **provenance(kernel, kernel_name(args)),
            "status": "unfinished" if status is None else status,
            "summary": merge(before, summary) if summary else before,
        })

    def on_json(line):
        nonlocal summary
        summary = line
        print(f"fuzz: {line['inputs']} of {left} inputs in {line['seconds']} s, "
              f"{line['offlined']} slices went offline, {line['bugs']} bugs", flush=True)
        keep()

    print(f"fuzz: {left} inputs from number {first} of seed {seed}, {kernel_name(args)} kernel",
          flush=True)
    status = stream_vm(command, on_json)
    if not status and not (summary and summary.get("done")):
        status = 1
    keep()
    if status:
        die(f"failed with status {status}; see {args.summary}", status)
    print(f"fuzz: passed, {summary['inputs']} inputs; summary in {args.summary}")


# --- the command line ---


def number_text(rng, value, suffix):
    return rng.choice(["{}", "{}", "0x{:x}", "0{:o}"]).format(value) + suffix


def boot_value(rng):
    """A word for ramslice=, and its meaning: "off", "on", a size, ("useless", size), or None."""
    kind = rng.randrange(8)
    if kind < 2:
        return ("off", "off") if kind else ("on", "on")
    if kind in (2, 3):
        blocks = rng.choice([1, 2, 3, 4, 5, 7, 16, 33])
        suffix = rng.choice(["", "K", "M", "m"])
        shift = 10 * (SUFFIXES.index(suffix.upper()) + 1) if suffix else 0
        return number_text(rng, blocks * PAGEBLOCK >> shift, suffix), blocks * PAGEBLOCK
    if kind == 4:
        # Fits into 64 bits only for those who do not look
        suffix, shift = rng.choice([("", 0), ("M", 20), ("G", 30)])
        return f"{(1 << 64 - shift) + (DEFAULT_BYTES >> shift or 1)}{suffix}", None
    if kind == 5:
        # A number, but no size that slices can have
        size = rng.choice([0, 1, 4096, 3 * MIB, PAGEBLOCK + 1, BOOT_MEM * 4, 1 << 40,
                           (1 << 64) - 1, rng.getrandbits(50) | 1])
        return number_text(rng, size, ""), ("useless", size) if size else None
    text = number_text(rng, rng.randrange(1, 64) * 2, "M")
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice("-+.,:;_/%=gz?") + text[place:], None


def boot_words(rng, research):
    """Words for a command line, and what must come of them.

    That is: enabled, slice_bytes, policy, low_slices, lines of complaint in the log.
    """
    words, off, size, complaints = [], False, DEFAULT_BYTES, 0
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        word, means = boot_value(rng)
        words.append(f"ramslice={word}")
        if means is None:
            complaints += 1
            size = DEFAULT_BYTES
        else:
            off = means == "off"
            if means not in ("off", "on"):
                size = means
    if not off and isinstance(size, tuple):
        complaints += 1
        size = DEFAULT_BYTES
    policy, low = "stock", 8
    known = POLICIES + RESEARCH_POLICIES if research else POLICIES
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        word = rng.choice(known)
        if rng.randrange(3):
            policy, low = word, 8
            if word == "low" and rng.randrange(2):
                low = rng.choice([0, 1, 24, (1 << 32) - 1])
                word = f"low,{low}"
        else:
            wrong = [word.upper(), word + "x", word[:-1], "1", "-", "", "low,", "low,1x", "low,-1",
                     f"low,{1 << 32}", "packed,3"]
            if not research:
                wrong += [*RESEARCH_POLICIES, "low,24"]
            word = rng.choice(wrong)
            complaints += 1
        words.append(f"ramslice_placement={word}")
    if off:
        return words, ["0", "none", "none", "none", str(complaints)]
    return words, ["1", str(size), policy, str(low) if research else "none", str(complaints)]


def boot(words, wanted, number, flavour):
    """Boots once; whether that was right, and a line that says how it went."""
    look = "; ".join((
        "cat /sys/kernel/mm/ramslice/enabled",
        "cat /sys/kernel/mm/ramslice/slice_bytes 2>/dev/null || echo none",
        "cat /sys/kernel/mm/ramslice/placement/policy 2>/dev/null || echo none",
        "cat /sys/kernel/mm/ramslice/placement/low_slices 2>/dev/null || echo none",
        "dmesg | grep -c 'ramslice: .*on the command line' || true"))
    command = [RAMLAB, "vm", "--quiet", "--kernel", flavour, "--mem", f"{BOOT_MEM // MIB}M",
               "--cpus", "1", "--append", " ".join(words), "--", look]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")
    good = done.returncode == 0 and done.stdout.split() == wanted
    if good:
        result = f"ok: {' '.join(wanted)}"
    else:
        result = f"FAILED: wanted {wanted}, status {done.returncode}: {done.stdout}"
    return good, f"boot {number}: {' '.join(words)}: {result}"


def boots(args):
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    rng = random.Random(seed)
    flavour = "research" if "research" in args.kernel else "plain"
    image(flavour)
    cases = [boot_words(rng, flavour == "research") for _ in range(args.boots)]
    failed = 0
    print(f"fuzz: {args.boots} boots, seed {seed}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for good, line in pool.map(lambda n: boot(*cases[n], n, flavour), range(len(cases))):
            print(line, flush=True)
            failed += not good
    if failed:
        die(f"{failed} of {args.boots} boots went wrong")


def main():
    args = arguments()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    if args.boots:
        boots(args)
    else:
        fuzz(args)


if __name__ == "__main__":
    main()
