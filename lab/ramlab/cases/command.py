#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Case studies: what packing earns while a program works, in a virtual machine that counts
instructions as time.

Usage: ramlab case NAME [--scale S] [--seeds N] [--setting S]... [--start S]... [--resume | --again]
       ramlab case [NAME] --measure-factor
       ramlab case NAME --sweep [--scale S]
       ramlab case [NAME] --tiny
       ramlab case --table

NAME is compile, tpch or import. Each run adds its figures to raw/cases/NAME.json in the cache as
soon as it is over, and results/cases/runs.json keeps a row of each; --resume does what is missing
there, and again what was made with other code, another profile or another time factor than now.

The guest is a part of the thesis' machine: one of its 16 hardware threads, a sixteenth of a disk,
512 MiB in 32 slices. Its time is that of a processor of 10^9 instructions a second;
--measure-factor finds out how many times slower that is than one of this host's, by the time that
the same work takes in both.

The baseline's runs leave recordings in the cache. --sweep plays budgets over them in the
simulator, and writes results/cases/sweep/NAME.json: figures that are simulated, not measured.
"""

import argparse
import datetime
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from ramlab.bench import entries
from ramlab.bench.cases import summary, summary_path
from ramlab.cases import SETTINGS, STARTS, conditions, processor, sweep, table
from ramlab.cases.conditions import (
    FLAVOUR,
    ICOUNT,
    MEMORY,
    PAYBACK_S,
    PERIOD_S,
    PROFILE,
    SLICE,
    STUDIES,
)
from ramlab.common import CACHE, OUT, RAMLAB, ROOT, built, die, provenance, put_json, stream_vm
from ramlab.kernel.images import image

SCALES = ("tiny", "small", "full")
RECORD_S = 5
# Of the guest: no run takes longer
LIMIT_S = 15 * 60


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=STUDIES)
    parser.add_argument(
        "--scale",
        default="full",
        choices=SCALES,
        help="of the work; only full runs are evidence (default full)",
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="(default 3)")
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="(default all)")
    parser.add_argument("--start", action="append", choices=STARTS, help="(default all)")
    parser.add_argument(
        "--resume", action="store_true", help="only what is missing in the summary, or stale there"
    )
    parser.add_argument("--again", action="store_true", help="replace what is there")
    parser.add_argument("--no-record", action="store_true", help="no recording beside the run")
    parser.add_argument(
        "--measure-factor", action="store_true", help="measure how much slower the guest is"
    )
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="budgets in the simulator, over the recordings of the baseline",
    )
    parser.add_argument("--tiny", action="store_true", help="once, tiny, in one guest: a test")
    parser.add_argument("--table", action="store_true", help="print what the summaries say")
    args = parser.parse_args()
    if not (args.name or args.measure_factor or args.tiny or args.table):
        parser.error("which case study?")
    if args.sweep and not args.name:
        parser.error("--sweep is for one case study: name it")
    return args


def program():
    """As named by hand; else as it is in the tree."""
    return os.environ.get("RAMSLICE_PROGRAM") or str(built("ramslice"))


def lab_program():
    """The research program, beside it unless it is named by hand."""
    return os.environ.get("RAMSLICE_LAB_PROGRAM") or f"{program()}-lab"


def prices():
    """What the profile says of memory and machine: W/GiB of a slice that is off, J per cycle."""
    profile = tomllib.loads((ROOT / f"profiles/{PROFILE}.toml").read_text())
    state = next(s for s in profile["state"] if s["name"] == profile["default_state"])
    machine = profile["machine"]
    return {
        "watts_per_gib": state["saving"]["value"] / 1e3,
        "joules_per_cycle": machine["compacting_power"]["value"]
        / (machine["frequency"]["value"] * 1e9),
    }


def achieved(used):
    """What the disk did in a second of the guest in which it did anything, to stand beside what it
    was allowed.
    """
    busy = used["busy_s"]
    return {name: used[key] / busy if busy else None
            for name, key in (("bytes_per_s", "bytes"), ("requests_per_s", "requests"))}


def drive(number, home, limits):
    words = f"-drive file={home}/disk.img,format=raw,if=none,id=case{number},snapshot=on"
    if limits:
        words += (
            f",throttling.bps-read={limits['read_bytes_per_s']},"
            f"throttling.bps-write={limits['write_bytes_per_s']}"
            f",throttling.iops-total={limits['requests_per_s']}"
        )
    return ["--qemu-opt", f"{words} -device virtio-blk-pci,drive=case{number}"]


def job(name, home, scale, folder, number=0, **fields):
    """The guest's orders for a run, in a file in the folder."""
    known = json.loads((home / "expected.json").read_text())
    what = {
        "case": name,
        "setting": "nothing",
        "start": "fresh",
        "seed": 1,
        "disk": f"/dev/vd{'abc'[number]}",
        "out": str(folder),
        "period_s": PERIOD_S[scale],
        "time_factor": "1",
        "time_factor_source": "none: a try",
        "payback_s": PAYBACK_S,
        "record": None,
        "profile": PROFILE,
        "work": known["work"],
        "expected": known["expected"],
        **prices(),
    } | fields
    path = folder / f"job-{name}-{what['setting']}.json"
    put_json(path, what)
    return path


def boot(folder, jobs, drives, timeout, each=lambda figures: None):
    """Runs jobs in a guest, one after the other; their figures. Each is reported as soon as it is
    over.
    """
    figures = []
    guest = (f"export RAMSLICE_PROGRAM={shlex.quote(program())}; "
             f"export RAMSLICE_LAB_PROGRAM={shlex.quote(lab_program())}; "
             f"exec python3 -m ramlab.guest.case {shlex.join(map(str, jobs))}")
    command = [
        RAMLAB,
        "vm",
        "--quiet",
        "--kernel",
        FLAVOUR,
        "--mem",
        MEMORY,
        "--cpus",
        "1",
        "--append",
        f"ramslice={SLICE}",
        "--qemu-opt",
        ICOUNT,
        *drives,
        "--rw",
        str(folder),
        "--timeout",
        str(timeout),
        "--",
        guest,
    ]

    def on_json(line):
        figures.append(line)
        each(line)

    status = stream_vm(command, on_json)
    if status or len(figures) != len(jobs):
        die(
            f"the guest ended with status {status} and {len(figures)} of {len(jobs)} results",
            status or 1,
        )
    return figures


def measure_factors(names):
    """How many times slower the guest does the work than this host: processor time by processor
    time.
    """
    with tempfile.TemporaryDirectory(prefix="case-", dir=CACHE / "runs") as folder:
        jobs, drives, known = [], [], {}
        for number, name in enumerate(names):
            home = STUDIES[name].prepare("small")
            known[name] = json.loads((home / "expected.json").read_text())
            work = known[name]["work"] | {"pause_s": 0, "rounds": 0, "count": 0}
            jobs.append(job(name, home, "small", Path(folder), number, work=work))
            drives += drive(number, home, None)

        def keep(figures):
            name = figures["case"]
            emulated, native = figures["cpu_s"], known[name]["native_cpu_s"]
            found = summary(name)
            found["time_factor"] = {
                "low": emulated / max(native),
                "high": emulated / min(native),
                "emulated_cpu_s": emulated,
                "native_cpu_s": native,
                "native_machine": known[name].get("native_machine", processor()),
                "date": now(),
                "command": f"ramlab case {name} --measure-factor",
            }
            put_json(
                summary_path(name), {key: found[key] for key in ("case", "time_factor", "runs")}
            )
            print(
                f"case: {name}: the guest is {emulated / max(native):.2f} to "
                f"{emulated / min(native):.2f} times slower",
                flush=True,
            )

        boot(Path(folder), jobs, drives, 7200, keep)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def wanted(args):
    """The runs to do: seeds outermost, so that an end after any number of them leaves whole
    comparisons.
    """
    starts, settings = args.start or STARTS, args.setting or SETTINGS
    return [{"seed": seed, "start": start, "setting": setting}
            for seed in range(1, args.seeds + 1) for start in starts for setting in settings]


def same(entry, run, scale):
    return entry["scale"] == scale and all(entry[key] == value for key, value in run.items())


def to_do(found, args, as_now):
    """The runs to do of a study, beside what its summary has. What is done with other things than
    as they are now is told, and never stands beside what is timed by another processor."""
    scale, runs, path = args.scale, wanted(args), summary_path(args.name)
    if args.resume:
        left = []
        for run in runs:
            there = [
                conditions.differing(conditions.of(entry), as_now)
                for entry in found["runs"]
                if same(entry, run, scale)
            ]
            if [] not in there:
                left.append(run)
            for differ in there:
                if differ:
                    print(
                        f"case: {' '.join(map(str, run.values()))} is done again: it was made "
                        f"with another {', '.join(differ)}"
                    )
        runs = left
    elif not args.again and any(same(entry, run, scale) for entry in found["runs"] for run in runs):
        die(
            "some of these runs are there already: --resume does the others, --again replaces them",
            2,
        )
    others = conditions.mixed(
        found, scale, lambda entry: any(same(entry, run, scale) for run in runs)
    )
    if runs and others:
        die(
            f"{path} has runs whose time factor is that of another processor: "
            f"{', '.join(others)}; now it is that of "
            f"{found['time_factor']['native_machine']}. They are not to be mixed: do all runs "
            "again (--again, with the same "
            "--seeds, all starts and settings), measure the factor on that machine, or move the "
            "file away",
            2,
        )
    return runs


def command(name, scale, run):
    """What does this run again, among others."""
    return (
        f"ramlab case {name} --scale {scale} --seeds {run['seed']} --start {run['start']} "
        f"--setting {run['setting']} "
        "--again"
    )


def study(args):
    name, scale = args.name, args.scale
    found = summary(name)
    home = STUDIES[name].prepare(scale)
    factor = found.get("time_factor")
    if not factor:
        die(
            f"{summary_path(name)} has no time factor: run 'ramlab case {name} --measure-factor' "
            "first"
        )
    runs = to_do(found, args, conditions.now(name, scale, factor))
    print(
        f"case: {name}, {len(runs)} runs at scale {scale}, time factor {factor['low']:.2f} to "
        f"{factor['high']:.2f}",
        flush=True,
    )
    done = 0

    def keep(figures):
        nonlocal done
        if figures["elapsed_s"] > LIMIT_S:
            die(
                f"{name}, {figures['setting']}: the run took {figures['elapsed_s']:.0f} s of the "
                f"guest, and {LIMIT_S} s is the most: "
                f"there is too much to do at scale {scale}"
            )
        done += 1
        run = {key: figures[key] for key in ("seed", "start", "setting")}
        put_json(folder / run["setting"] / "figures.json", figures)
        figures["peak_slices_used"] = max(used for _, used, _, _ in figures.pop("samples"))
        figures["disk_achieved"] = achieved(figures["disk_used"])
        # The ledger in the figures says by which time factor
        parts = {part: value for part, value in as_now.items() if part != "time_factor"}
        entry = {
            "date": now(),
            "scale": scale,
            "command": command(name, scale, run),
            **parts,
            **provenance(kernel, FLAVOUR),
            **figures,
        }
        found = summary(name)
        found["runs"] = [e for e in found["runs"] if not same(e, run, scale)] + [entry]
        put_json(summary_path(name), found)
        table.keep({name: found})
        if run["setting"] == sweep.BASELINE and figures["recording"] == "whole":
            sweep.keep(folder / run["setting"] / "recording", name, entry)
        net = figures["energy"]["net_joules"]
        print(
            f"case: {done}/{len(runs)} {' '.join(map(str, run.values()))}: "
            f"{figures['elapsed_s']:.0f} guest s, net "
            f"{1e3 * net['low']:.1f} to {1e3 * net['high']:.1f} mJ",
            flush=True,
        )

    # A boot for each seed and start. As in the thesis, memory is packed before each run, or aged
    # again.
    for seed, start in dict.fromkeys((run["seed"], run["start"]) for run in runs):
        settings = [run["setting"] for run in runs if (run["seed"], run["start"]) == (seed, start)]
        random.Random(seed).shuffle(settings)
        folder = OUT / "cases" / name / f"{scale}-{start}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        jobs = []
        for setting in settings:
            shutil.rmtree(folder / setting, ignore_errors=True)
            (folder / setting).mkdir()
            jobs.append(
                job(
                    name,
                    home,
                    scale,
                    folder / setting,
                    seed=seed,
                    start=start,
                    setting=setting,
                    record=None if args.no_record else RECORD_S,
                    time_factor=f"{factor['low']:.4f}..{factor['high']:.4f}",
                    time_factor_source=f"{factor['command']}: "
                    f"this work in the guest and on {factor['native_machine']}",
                )
            )
        # As things are now: they may have changed since the boots before
        kernel, as_now = image(FLAVOUR), conditions.now(name, scale, factor) | {"work": home.name}
        boot(folder, jobs, drive(0, home, as_now["disk"]), 1800 + 3600 * len(jobs), keep)


def sweep_case(args):
    """Budgets in the simulator over the kept recordings of a case's baseline."""
    name, scale = args.name, args.scale
    recordings = sweep.kept(name, scale)
    if not recordings:
        die(
            f"there is no recording of {name} at scale {scale}: 'ramlab case {name} --scale "
            f"{scale} --setting {sweep.BASELINE}' leaves one"
        )
    found = summary(name)
    began, depends = now(), conditions.depends()
    document = swept(name, scale, recordings, found["time_factor"], found["runs"])
    document |= {
        "date": began,
        "command": f"ramlab case {name} --sweep --scale {scale}",
        "commit": entries.commit(),
        "depends": depends,
    }
    sweep.put(document, ROOT / f"results/cases/sweep/{name}.json")
    sweep.show(document)


def swept(name, scale, recordings, factor, runs=(), seeds=sweep.SEEDS):
    """A sweep as a document, but for when and by what it was made."""
    factor = conditions.rounded(factor)
    rows, assumed = sweep.swept(
        lab_program(), recordings, int(SLICE[:-1]) << 20, PROFILE, factor, seeds, runs
    )
    return {
        "schema_version": 1,
        "case": name,
        "scale": scale,
        "simulated": True,
        "profile": PROFILE,
        "granularity": "slice",
        "slice": SLICE,
        "memory": MEMORY,
        "time_factor": factor,
        "simulator_seeds": list(seeds),
        "recordings": [run for run, _ in recordings],
        "assumptions": assumed,
        "budgets": rows,
    }


def tiny(names):
    """Each once, all slices awake at first, with the setting that does most; their results are
    checked. Recordings of them go through the simulator."""
    with tempfile.TemporaryDirectory(prefix="case-", dir=CACHE / "runs") as folder:
        folder = Path(folder)
        jobs, drives = [], []
        for number, (name, module) in enumerate((name, STUDIES[name]) for name in names):
            home = module.prepare("tiny")
            (folder / name).mkdir()
            jobs.append(
                job(
                    name,
                    home,
                    "tiny",
                    folder / name,
                    number,
                    setting="unlimited",
                    start="awake",
                    record=1,
                )
            )
            drives += drive(number, home, None)
        figures = boot(folder, jobs, drives, 1800)
        for name in names:
            tiny_sweep(name, folder / name)
    for one in figures:
        did = one["energy"]["work"]
        print(
            f"{one['case']}: {one['result']['checked']} results are right, a wrong one is refused; "
            f"{one['elapsed_s']:.0f} guest s, {did['emptied_slices']} slices emptied, "
            f"{did['migrated_pages']} pages moved, "
            f"{did['dropped_pages']} dropped"
        )
        if not one["requests"] or not did["emptied_slices"]:
            die(f"{one['case']}: the policy did nothing")
        if one["recording"] != "whole" or not one["disk_used"]["requests"]:
            die(
                f"{one['case']}: the recording is {one['recording']}, and the disk did "
                f"{one['disk_used']}"
            )


def tiny_sweep(name, folder):
    """What must hold of any sweep: nothing is moved without a budget, more budget moves no less,
    and a report says that it is simulated."""
    run = {"start": "awake", "seed": 1, "scale": "tiny", "period_s": PERIOD_S["tiny"]}
    document = swept(name, "tiny", [(run, folder / "recording")], {"low": 1, "high": 2}, seeds=[1])
    sweep.put(document, folder / "sweep.json")
    line = [lab_program(), "report", folder / "sweep.json", "-o", folder / "sweep.html",
            "--csv", folder / "csv"]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    rows = {(r["policy"], r["budget_100cycles"], r["per_slice"]): r for r in document["budgets"]}
    nothing, unlimited = rows["periodic", 0, None], rows["periodic", None, None]
    wrong = []
    if nothing["migrated_pages"] or nothing["dropped_pages"] or not nothing["slices_off"]:
        wrong.append(f"without a budget, {nothing}")
    if (
        unlimited["slices_off"] <= nothing["slices_off"]
        or not unlimited["migrated_pages"] + unlimited["dropped_pages"]
    ):
        wrong.append(f"without a limit, {unlimited}")
    between = [r["slices_off"] for (_, _, each), r in rows.items() if each]
    if not all(nothing["slices_off"] <= off <= unlimited["slices_off"] for off in between):
        wrong.append(f"within a budget, {between} slices are off")
    page = (folder / "sweep.html").read_text()
    # Heads of two figures of energy and two of net
    if (
        page.count(", simulated</h2>") != 4
        or "Simulated, not measured" not in page
        or len(list((folder / "csv").iterdir())) != 4
    ):
        wrong.append("the report does not say that it is simulated")
    if wrong:
        die(f"{name}, sweep: {'; '.join(wrong)}")
    print(
        f"{name}: a sweep over {len(rows)} budgets, simulated: {nothing['slices_off']:.1f} to "
        f"{unlimited['slices_off']:.1f} slices off"
    )


def main():
    args = arguments()
    # The guest ends with us
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    (CACHE / "runs").mkdir(parents=True, exist_ok=True)
    if args.sweep:
        sweep_case(args)
    elif args.tiny:
        tiny([args.name] if args.name else list(STUDIES))
    elif args.table:
        table.show({name: summary(name) for name in STUDIES})
    elif args.measure_factor:
        measure_factors([args.name] if args.name else list(STUDIES))
    else:
        study(args)


if __name__ == "__main__":
    sys.exit(main())
