# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices: what being on, emptying, waking and ordering cost, against the same kernel without the
patches.

Each part boots both kernels in random order and returns entries and the images that they are about.
"""

import json
import shutil
import statistics
import subprocess

from ramlab import kernel_instructions
from ramlab.common import CACHE, OUT, ROOT
from ramlab.kernel.images import image

from . import bounds, entries, flame, machines, stats, thp
from .machines import ICOUNT, Boot

# All of the kernel's own memory lies below 4 GiB, the movable zone above.
MOVABLE = ["--mem", "4608M", "--append", "movablecore=2560M"]
LOOPS = ["--mem", "1G", ICOUNT]
# Kernel and words of each arm; pages that a round of a loop touches or reads
LOOP_ARMS = {
    "stock": ("stock", []),
    "off": ("plain", ["--append", "ramslice=off"]),
    "on": ("plain", ["--append", "ramslice=on"]),
}
LOOP_PAGES = 4096
# Instructions by which a function differs between arms, to be told
LEAST_DIFFERENCE = 0.5
SCRIPT = "bench_slices.py"
# struct ramslice_block, one for each pageblock of 2 MiB
SUMMARY_BYTES = 25


# Boots of one kernel differ by more than what is measured within one. Where a boot is cheap, it is
# one sample, and so many are what targets ask for (need_n).
BOOTS = 10


def samples(args, usual=BOOTS):
    return 1 if args.quick else usual


def images_of(*flavours):
    return {flavour: image(flavour) for flavour in flavours}


def by_boot(found, part, value):
    """One value of each boot: the median of its rounds. An interrupt more or less is not what is
    measured.
    """
    return [statistics.median(map(value, figures[part])) for figures in found]


def compared(name, unit, ours, theirs, **more):
    """An entry that is a ratio, with the test of equivalence that its target asks for."""
    value, ci95 = stats.ratio(ours, theirs)
    entry = {"name": name, "value": value, "unit": unit, "values": ours, "baseline": theirs,
             "n": min(len(ours), len(theirs)), "ci95": ci95} | more
    if margin := entries.margin_of(name):
        entry["equivalence"] = {"margin": margin, "p": stats.equivalent(ours, theirs, margin)}
    return entry


def check_clock(found):
    """The time stamp counter must count instructions, or nothing here means anything."""
    for figures in found:
        seen = figures["loops"]["calibrate"]
        if not 0.999 < seen["ticks"] / seen["instructions"] < 1.01:
            raise SystemExit(f"the guest's clock does not count instructions: {seen}")


def compared_loops(args, cpus, names):
    """Loops on so many CPUs, ramslice off and on, against stock; {loop: name of its entries}."""
    images = images_of("plain", "stock")
    boots = [Boot(arm, flavour, [*LOOPS, "--cpus", str(cpus), *words], SCRIPT, ["loops"])
             for arm, (flavour, words) in LOOP_ARMS.items() for _ in range(samples(args))]
    found = machines.run(boots, images, f"loops-{cpus}", args)
    if cpus == 1:
        for arm in LOOP_ARMS:
            check_clock(found[arm])
    new = []
    for loop, name in names.items():
        values = {
            arm: [statistics.median(figures["loops"][loop]) for figures in found[arm]]
            for arm in LOOP_ARMS
        }
        unit = "ratio of instructions" + (" per page" if loop in ("fault", "read") else "")
        for arm in ("off", "on"):
            new.append(compared(f"{name}-{arm}", unit, values[arm], values["stock"]))
    return new, images


def loops(args):
    """Page faults, fork and cached reads on one CPU: ramslice off and on, against stock."""
    return compared_loops(args, 1, {"fault": "fault-1", "fork": "fork", "read": "read"})


def functions(args):
    """In which functions of the kernel faults and cached reads execute more instructions than stock
    does, by a plugin of the emulator; no targets, but what causes are read from.
    """
    args.used.modules.update(("lab/plugin", "lab/ramlab/emulator_plugins.py",
                              "lab/ramlab/kernel_instructions.py"))
    images = images_of("plain", "stock")
    plugin = f"--qemu-opt={kernel_instructions.qemu_words('{folder}')}"
    boots = [Boot(arm, flavour, [*LOOPS, "--cpus", "1", *words, plugin], SCRIPT, ["loops"],
                  [f"INSTRUCTIONS_PLUGIN={kernel_instructions.PLUGIN}"])
             for arm, (flavour, words) in LOOP_ARMS.items()]
    found = machines.run(boots, images, "functions", args)
    counts = {boot.arm: kernel_instructions.by_function(
        boot.folder / kernel_instructions.FILE, images[boot.flavour] / "System.map")
        for boot in boots}
    new = []
    for loop, label in (("fault", kernel_instructions.FAULT), ("read", kernel_instructions.READ)):
        nr = LOOP_PAGES * len(found["stock"][0]["loops"][loop])
        new.append(functions_entry(f"{loop}-functions",
                                   {arm: counts[arm][label] for arm in counts}, nr))
    return new, images


def functions_entry(name, counts, nr):
    """By how much arms differ in functions: counts is {arm: {function: instructions}} of a loop
    that did `nr` times what the entry is about.
    """
    per = {arm: {function: times / nr for function, times in own.items()}
           for arm, own in counts.items()}
    beside = {}
    for function in sorted({function for own in per.values() for function in own}):
        row = {arm: own.get(function, 0) for arm, own in per.items()}
        # Ticks come at another moment in each boot
        if max(row.values()) - min(row.values()) >= LEAST_DIFFERENCE:
            beside[function] = row
    sums = {arm: sum(own.values()) for arm, own in per.items()}
    return {"name": name, "n": 1, "value": sums["off"] - sums["stock"], "ci95": None,
            "unit": "instructions of the kernel per page more than stock, ramslice=off",
            "beside": beside | {"all functions": sums}}


def threads(args):
    """Page faults by two threads on two CPUs: ramslice off and on, against stock."""
    return compared_loops(args, 2, {"fault": "fault-2"})


def per_page(rows):
    """Ticks per page that had to move."""
    return sum(r["ticks"] for r in rows) / sum(r["had_to_move"] for r in rows)


def empty(args):
    """Emptying half full slices and waking them, against memory hotplug."""
    images = images_of("plain", "stock")
    boots = [
        Boot(arm, flavour, [*MOVABLE, ICOUNT, "--cpus", "1", *words], SCRIPT, ["empty"])
        for arm, flavour, words in (
            ("ours", "plain", ["--append", "ramslice=64M"]),
            ("hotplug", "stock", []),
        )
        for _ in range(samples(args, 3))
    ]
    found = machines.run(boots, images, "empty", args)
    unit = "ratio of instructions per page that had to move"
    rounds = {arm: [r for figures in found[arm] for r in figures["empty"]] for arm in found}

    def to_first_page(arm):
        return [w["ticks"] + w["first_page_ticks"] for r in rounds[arm] for w in r["wake"]]

    def migrations(arm):
        return statistics.fmean(
            r["large"]["migrated"] / r["large"]["had_to_move"] for r in rounds[arm]
        )

    def lone(arm):
        return [per_page(r["small"]) for r in rounds[arm]]

    def large(arm):
        return [per_page([r["large"]]) for r in rounds[arm]]

    entry = compared("empty-1g", unit, large("ours"), large("hotplug"))
    entry["beside"] = {f"migrations per page, {arm}": migrations(arm) for arm in rounds}
    return [
        compared("empty-64m", unit, lone("ours"), lone("hotplug")),
        entry,
        compared("wake", "ratio of instructions", to_first_page("ours"), to_first_page("hotplug")),
    ], images


def free(args):
    """Empty slices switched off, with memory zeroed when it is allocated, as distributions have it.
    """
    images = images_of("plain")
    arms = {"zeroed": ["--append", "init_on_alloc=1"], "not zeroed": []}
    boots = [Boot(arm, "plain", [*MOVABLE, ICOUNT, "--cpus", "1", *words], SCRIPT, ["free"])
             for arm, words in arms.items() for _ in range(samples(args))]
    found = machines.run(boots, images, "free", args)

    def per_page(arm):
        return [statistics.median(figures["free"]) for figures in found[arm]]

    value = stats.mean_entry("free-64m", "instructions per page", per_page("zeroed"))
    value["beside"] = {"without init_on_alloc": stats.mean(per_page("not zeroed"))[0]}
    return [value], images


def together(args):
    """Several slices emptied in one request, against blocks one after the other: migrations per
    page.
    """
    images = images_of("plain", "stock")
    boots = [
        Boot(arm, flavour, [*MOVABLE, "--cpus", "2"], SCRIPT, ["together"])
        for arm, flavour, usual in (("ours", "plain", BOOTS), ("hotplug", "stock", 2))
        for _ in range(samples(args, usual))
    ]
    found = machines.run(boots, images, "together", args, jobs=1)

    def per_page(arm):
        return by_boot(found[arm], "together", lambda r: r["migrated"] / r["had_to_move"])

    value = stats.mean_entry("migrations", "migrations per page that had to move", per_page("ours"))
    value["beside"] = {"stock hotplug": stats.mean(per_page("hotplug"))[0]}
    return [value], images


def tlb(args):
    """TLB shoot-down interrupts per migrated page, in lists as long as usual and one by one."""
    images = images_of("plain")
    boots = [
        Boot(
            "ours", "plain", [*MOVABLE, "--append", "ramslice=64M", "--cpus", "2"], SCRIPT, ["tlb"]
        )
        for _ in range(samples(args))
    ]
    found = machines.run(boots, images, "tlb", args, jobs=1)["ours"]

    def per_page(length):
        rows = [figures["tlb"] for figures in found]
        return by_boot(rows, length, lambda r: r["interrupts"] / r["migrated"])

    value = stats.mean_entry("shootdowns", "interrupts per migrated page", per_page("usual"))
    value["beside"] = {
        "folios in a list": found[0]["tlb"]["folios"],
        "lists of one, as in the thesis": stats.mean(per_page("one"))[0],
    }
    return [value], images


def snapshot(args):
    """A snapshot and the order of slices of 64 MiB, 8192 and 98304 of them, under KUnit."""
    images = images_of("plain")
    words = [
        "--mem",
        "1G",
        "--cpus",
        "1",
        ICOUNT,
        "--append",
        "kunit.enable=1 kunit.filter_glob=ramslice_snapshot",
    ]
    found = machines.run(
        [Boot("ours", "plain", words, SCRIPT, ["snapshot"]) for _ in range(samples(args))],
        images,
        "snapshot",
        args,
    )["ours"]
    values = []
    for name, slices in (("snapshot", 8192), ("snapshot-98304", 98304)):
        rows = [{"rounds": [row for row in figures["snapshot"] if row["slices"] == slices]}
                for figures in found]
        value = stats.mean_entry(name, "ms at 1 GIPS",
                                 by_boot(rows, "rounds", lambda r: r["snapshot_ns"] / 1e6))
        value["beside"] = {
            "order": statistics.fmean(by_boot(rows, "rounds", lambda r: r["order_ns"] / 1e6))}
        values.append(value)
    return values, images


def regret(args):
    """The order of slices by summaries, while programs use memory, against exact prices."""
    images = images_of("plain")
    words = ["--mem", "2G", "--cpus", "2", "--disk", "1G", "--append", "ramslice=4M"]
    boots = [Boot("ours", "plain", words, SCRIPT, ["regret"]) for _ in range(samples(args))]
    found = machines.run(boots, images, "regret", args)["ours"]

    def means(name):
        return [statistics.fmean(moment[name] for moment in figures["regret"])
                for figures in found]

    value = stats.mean_entry("regret", "% dearer than the cheapest", means("percent"))
    value["beside"] = {"stale share": statistics.fmean(means("stale"))}
    return [value], images


def memory(args):
    """Memory for bookkeeping, as a share of RAM: what the patched kernel lacks right after boot."""
    images = images_of("plain", "stock")
    words = ["--mem", "2G", "--cpus", "1", ICOUNT]
    boots = [Boot(flavour, flavour, words, SCRIPT, ["memory"]) for flavour in ("plain", "stock")
             for _ in range(1 if args.quick else 3)]
    found = machines.run(boots, images, "memory", args)

    def managed(arm):
        return [figures["memory"]["managed"] for figures in found[arm]]

    present = found["plain"][0]["memory"]["present"]
    theirs = statistics.fmean(managed("stock"))
    value = stats.mean_entry(
        "memory", "per cent of RAM", [100 * (theirs - ours) / present for ours in managed("plain")]
    )
    # Code and data of the kernel image are in this; the counters alone:
    value["beside"] = {"summaries, by their size": 100 * SUMMARY_BYTES / (2 << 20)}
    return [value], images


def daemon(args):
    """Instructions and memory of ramsliced, at 6144 slices and its usual period, in modes observe
    and on.
    """
    images = images_of("plain")
    # Slices of 2 MiB: as many as 6 TiB have in slices of 1 GiB. Memory that is not touched costs
    # the host nothing.
    words = ["--mem", "12416M", "--cpus", "1", ICOUNT, "--append", "ramslice=2M"]
    program = f"RAMSLICE_DAEMON={args.used.program('ramsliced')}"
    boots = [
        Boot(mode, "plain", words, "bench_daemon.py", [mode], environment=[program])
        for mode in ("observe", "on")
    ]
    found = machines.run(boots, images, "daemon", args)
    new = []
    for mode, (figures,) in found.items():
        if figures["slices"] < 6144 or figures["steps"] < len(figures["periods"]):
            raise SystemExit(f"the daemon did not do what is measured: {figures}")
        shares = [100 * period["cpu_ns"] / period["ns"] for period in figures["periods"]]
        value = stats.mean_entry(
            f"daemon-{mode}", "per cent of one CPU's instructions at 1 GIPS", shares)
        value["beside"] = {
            "slices": figures["slices"],
            "offline at the end": figures["offline"],
            "periods with requests": sum(period["requests"] > 0 for period in figures["periods"]),
        }
        new.append(value)
    peaks = [figures["peak_kib"] / 1024 for (figures,) in found.values()]
    new.append(stats.mean_entry("daemon-memory", "MiB resident at most", [max(peaks)]))
    return new, images


def latencies(folder, names):
    """Rows of histogram.py for the windows' files."""
    line = [
        CACHE / "python/bin/python",
        ROOT / "lab/ramlab/bench/histogram.py",
        *(folder / name for name in names),
    ]
    return json.loads(
        subprocess.run([str(w) for w in line], check=True, stdout=subprocess.PIPE).stdout
    )


def redis(args):
    """Latency of Redis while its pages migrate, against not migrating and against hotplug of the
    same pages.
    """
    images = images_of("plain", "stock")
    words = ["--mem", "5632M", "--append", "movablecore=3584M", "--cpus", "1", ICOUNT]
    boots = [Boot(arm, flavour, words, "bench_redis.py", [])
             for arm, flavour in (("ours", "plain"), ("hotplug", "stock"))]
    found = machines.run(boots, images, "redis", args)
    windows, rates = {}, {}
    for boot in boots:
        notes = found[boot.arm][0]["windows"]
        rows = latencies(boot.folder, [note["file"] for note in notes])
        for note, row in zip(notes, rows, strict=True):
            kind = (boot.arm, note["migrating"], note["pace"] and tuple(note["pace"]))
            windows.setdefault(kind, []).append(row)
            if note["migrating"]:
                rates.setdefault(kind, []).append(note["migrated"] / note["emptying_s"])

    def values(key, *kind):
        return [row[key] for row in windows[kind]]

    paces = sorted(pace for arm, _, pace in windows if pace)
    new = []
    for name, key in (("redis-mean", "mean_us"), ("redis-p99", "p99_us")):
        moving, still = (values(key, "ours", migrating, None) for migrating in (True, False))
        entry = compared(name, "ratio of latencies", moving, still)
        entry["n"] = len(moving) + len(still)
        entry["beside"] = {
            "stock hotplug, migrating over not": stats.ratio(
                values(key, "hotplug", True, None), values(key, "hotplug", False, None))[0],
            "pages per second": statistics.median(rates["ours", True, None]),
            "pages per second, stock hotplug": statistics.median(rates["hotplug", True, None]),
        }
        # The curve over rates
        for folios, pause in paces:
            kind = ("ours", True, (folios, pause))
            entry["beside"][f"{folios} folios, pause of {pause} us"] = {
                "value": stats.ratio(values(key, *kind), still)[0],
                "ci95": stats.ratio(values(key, *kind), still)[1],
                "n": len(windows[kind]),
                "pages per second": statistics.median(rates[kind]),
            }
        new.append(entry)

    def longest(*kind):
        return [us / 1000 for us in values("p100_us", *kind)]

    entry = stats.mean_entry("redis-longest", "ms", longest("ours", True, None))
    entry["beside"] = {
        "not migrating": statistics.fmean(longest("ours", False, None)),
        "stock hotplug": statistics.fmean(longest("hotplug", True, None)),
    }
    new.append(entry)
    return new, images


def flames(args):
    """Flame graphs of emptying a slice of 1 GiB and of the search for destinations; no figures."""
    images = images_of("plain")
    boot = Boot(
        "ours",
        "plain",
        [*MOVABLE, ICOUNT, "--cpus", "1", "--disk", "4G", "--append", "ramslice=64M"],
        SCRIPT,
        ["profile"],
    )
    machines.run([boot], images, "flames", args, jobs=1)
    drawn = flame.draw(boot.folder, OUT / "bench", images["plain"].name,
                       args.used.dependencies({"plain": True}))
    if not args.quick:
        for path in drawn:
            shutil.copy(path, ROOT / "results" / path.name)
    return [], images


PARTS = {
    "loops": loops,
    "functions": functions,
    "threads": threads,
    "empty": empty,
    "free": free,
    "snapshot": snapshot,
    "regret": regret,
    "together": together,
    "tlb": tlb,
    "memory": memory,
    "daemon": daemon,
    "redis": redis,
    "flames": flames,
    **bounds.PARTS,
    **thp.PARTS,
}
