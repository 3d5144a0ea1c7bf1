#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Feeds generated inputs to all of ramslice's interfaces in a guest, and keeps a summary.

Usage: ramlab fuzz [--inputs N] [--seed N] [--first N | --resume] [--kernel FLAVOUR]
                   [--arch arm64] [--corpus FILE] [--unguided] [--summary FILE]
       ramlab fuzz --replay INPUT [--kernel FLAVOUR]
       ramlab fuzz --boots N [--seed N]

An input is a function of the seed and its number, so that any range of numbers can be had again.
The summary is kept after each portion, in out/ if that in results/ is of more inputs, and --resume
goes on where it ends (--summary out/fuzz-FLAVOUR.json).

With --kernel coverage, inputs that pass two instrumented places of mm/ramslice one after the other
as no input before go to a corpus, and half of the inputs are made from those: some of the numbers
that they drew are changed. The summary then says what has been reached of each file, and which
functions never were and why. The corpus is kept for the next run; given to another kernel
(--kernel debug --corpus FILE), its inputs run there first. What goes wrong is printed with its
input, such as 1:4711+3=9 for number 4711 of seed 1 with a 9 as its fourth draw: --replay takes it.

With --boots, generated values of ramslice= and ramslice_placement= go to the command line of so
many real boots instead, several at a time. They boot the plain kernel, or with --kernel research
the one that has all placement policies.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from ramlab import fuzz_coverage
from ramlab.architectures import ARCHITECTURES, NATIVE
from ramlab.common import (
    CACHE,
    FLAVOURS,
    OUT,
    RAMLAB,
    ROOT,
    die,
    provenance,
    put_json,
    stream_vm,
)
from ramlab.kernel.images import image

MIB = 1 << 20
CORPUS = CACHE / "fuzz/corpus.json"
PAGEBLOCK = 2 * MIB
MAX_STEPS = 12    # as in lab/guest/fuzz_input.h
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
    parser.add_argument("--corpus", type=Path, metavar="FILE",
                        help="inputs that reached new code: with --kernel coverage read, extended "
                             f"and written (default {CORPUS}), with others run before the rest")
    parser.add_argument("--unguided", action="store_true",
                        help="with --kernel coverage: see what is reached, but make no inputs from "
                             "those kept, for comparison")
    parser.add_argument("--replay", metavar="INPUT",
                        help="run this one input again, as it was printed: SEED:NUMBER, then "
                             "+POSITION=VALUE for a number drawn and +POSITION~NUMBER for all from "
                             "there on being those of another input")
    parser.add_argument("--boots", type=int, metavar="N", help="boots with generated command lines")
    args = parser.parse_args()
    if args.resume and args.first:
        parser.error("--resume knows the first input itself")
    if args.boots and args.arch != NATIVE.name:
        parser.error(f"--boots boots {NATIVE.name} only")
    args.traced = args.kernel == "coverage"
    if args.traced and args.arch != NATIVE.name:
        parser.error(f"--kernel coverage names what it reached on {NATIVE.name} only")
    if args.unguided and not args.traced:
        parser.error("--unguided is for --kernel coverage: other kernels guide nothing")
    if args.replay and (args.resume or args.first or args.corpus):
        parser.error("--replay runs one input: without --resume, --first and --corpus")
    if args.replay and not is_input(args.replay):
        parser.error(f"--replay {args.replay} is no input: SEED:NUMBER, then at most {MAX_STEPS} "
                     "times +POSITION=VALUE or +POSITION~NUMBER")
    if args.replay:
        args.inputs = 1
    elif args.traced:
        args.corpus = args.corpus or CORPUS
    elif args.corpus and not args.corpus.exists():
        parser.error(f"--corpus {args.corpus}: no such file (--kernel coverage writes one)")
    args.summary = args.summary or ROOT / f"results/fuzz-{kernel_name(args)}.json"
    return args


def is_input(text):
    """Whether the guest's program takes a text as an input (lab/guest/fuzz_input.h)."""
    match = re.fullmatch(r"\d+:\d+((?:\+\d+[=~]\d+)*)", text)
    numbers = map(int, re.findall(r"\d+", text))
    return (bool(match) and match[1].count("+") <= MAX_STEPS
            and all(number < 1 << 64 for number in numbers))


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
    # Summaries of earlier versions have neither
    if "reasons" in old:
        both["reasons"] = dict(collections.Counter(old["reasons"]) +
                               collections.Counter(new["reasons"]))
    if "rerun" in old:
        both["rerun"] = old["rerun"] + new["rerun"]
    for name in ("inputs", "seconds", "bugs", "offlined", "woken", "geometries", "problems"):
        both[name] = old[name] + new[name]
    both["parts"] = old.get("parts", 1) + 1
    return both


def print_reached(reached):
    """What the summary says of coverage, for a terminal."""
    for file, counts in [*reached["files"].items(), ("all", reached)]:
        print(f"fuzz: {file:<16}" + "".join(
            f" {counts[what][0]:5} of {counts[what][1]:5} {what}" for what in
            ("sites", "lines", "functions")))
    for file, functions in reached["never"].items():
        for name, reason in functions.items():
            print(f"fuzz: never reached: {file} {name}(): {reason}")


def place_of_summary(path, inputs):
    """Where a run's summary goes: what fewer inputs find does not replace what is kept of more."""
    try:
        kept = json.loads(path.read_text())["summary"]["inputs"]
    except (FileNotFoundError, TypeError):
        return path
    return path if inputs >= kept else OUT / path.name


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
        if not before:
            die(f"nothing to resume: the run of {args.summary} ended before its first portion")
        seed, first = before["seed"], before["next"]
        if kept["kernel"]["image"] != kernel.name:
            print(f"fuzz: resuming with another kernel: {kernel.name}, "
                  f"before {kept['kernel']['image']}")
    left = args.inputs - (first - before["first"] if before else 0)
    if left <= 0:
        die(f"all {args.inputs} inputs have been had")
    if not args.resume and not args.replay:
        args.summary = place_of_summary(args.summary, args.inputs)
    limit = args.timeout or 900 + left / 8
    subprocess.run([RAMLAB, "guest-programs", "--arch", args.arch], check=True,
                   stdout=subprocess.DEVNULL)
    corpus = fuzz_coverage.Corpus(args.corpus, kernel.name) if args.corpus else None
    boot = "ramslice=8M" + (" kmemleak=on" if args.kernel == "debug" else "")
    command = [
        "lab/bin/ramlab", "vm", "--arch", args.arch, "--kernel", args.kernel, "--mem", args.mem,
        "--disk", "256M",
        "--append", boot, "--timeout", f"{limit:g}", "--",
        f"python3 -m ramlab.guest.fuzz --inputs {left} --first {first} --seed {seed} "
        f"--processes {args.processes} --portion {args.portion} --limit {limit - 60:g}",
    ]
    summary, status, reached = None, None, {}
    # Guests see the cache, not where the corpus may be
    start = CACHE / f"fuzz/start-{os.getpid()}.json"
    if corpus:
        put_json(start, corpus.content())
        command[-1] += f" --start {start}"
    if args.traced:
        command[-1] += " --trace" + ("" if args.unguided or args.replay else " --guided")
    if args.replay:
        command[-1] += f" --replay {shlex.quote(args.replay)}"

    def keep():
        if args.replay or not (summary or before):
            return
        put_json(args.summary, {
            "date": now.isoformat(timespec="seconds"),
            "command": shlex.join(command).replace(str(CACHE), "$RAMSLICE_CACHE"),
            **provenance(kernel, kernel_name(args)),
            "status": "unfinished" if status is None else status,
            "summary": merge(before, summary) if summary else before,
            **reached,
        })

    def on_json(line):
        nonlocal summary
        if "new_edges" in line:
            if corpus:
                corpus.take(line)
            return
        summary = line
        seen = line.get("coverage")
        print(f"fuzz: {line['inputs']} of {left} inputs in {line['seconds']} s, "
              f"{line['offlined']} slices went offline, {line['bugs']} bugs"
              + (f", {seen['edges']} edges by {seen['kept']} inputs" if seen else ""), flush=True)
        keep()

    what = f"input {args.replay}" if args.replay else (
        f"{left} inputs from number {first} of seed {seed}")
    print(f"fuzz: {what}, {kernel_name(args)} kernel", flush=True)
    try:
        status = stream_vm(command, on_json)
    finally:
        start.unlink(missing_ok=True)
    if args.traced and corpus:
        reached = {"reached": fuzz_coverage.report(
            fuzz_coverage.sites(kernel), corpus.places(), fuzz_coverage.unreached_reasons())}
        print_reached(reached["reached"])
    if not status and not (summary and summary.get("done")):
        status = 1
    keep()
    where = f"; summary in {args.summary}" if summary and not args.replay else ""
    if status:
        die(f"failed with status {status}{where}", status)
    print(f"fuzz: passed, {summary['inputs']} inputs{where}")


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
