# SPDX-License-Identifier: GPL-2.0-or-later
"""Cold memory: where accesses to DRAM go, and how long slices rest, by a plugin of the emulator.

STREAM's loops and the Energy-Aware Map of a master's thesis (Aalborg 2021, chapter 5), at 1:32 of
its sizes, in guests of 2 GiB with slices of 128 MiB. The guest's clock counts instructions; the
plugin models two levels of cache. Bandwidth and watts are in no figure: an emulator has neither.
"""

import hashlib
import json
import subprocess

from ramlab import dram_accesses, guest_programs
from ramlab.common import OUT, ROOT, put_json

from . import cold_costs, machines, stats
from .machines import ICOUNT, Boot
from .slices import compared, images_of

SCRIPT = "bench_cold.py"
MIB = 1 << 20
MEMORY = "2G"
SEPARATED, ONE_AREA, OVERFLOWING, STOCK = "separated", "one-area", "overflowing", "stock"
# Kernel and its command line. The thesis' cold area of 18 GiB is 576 MiB: five memory blocks. An
# area of all its 28 GiB overflows where hot memory is the thesis' 16 GiB and what 2021's kernel and
# ours differ by.
ARMS = {
    SEPARATED: ("plain", "ramslice=128M ramslice_cold=640M,strict"),
    ONE_AREA: ("plain", "ramslice=128M ramslice_cold=0"),
    OVERFLOWING: ("plain", "ramslice=128M ramslice_cold=1280M"),
    STOCK: ("stock", ""),
}
# Those of the patched kernel: the other has a part of its own
PATCHED = (SEPARATED, ONE_AREA, OVERFLOWING)
# A value is 1 KiB: 10 GiB hot and 18 GiB cold, over 32
HOT, COLD = 320 << 10, 576 << 10
KEYS = 640 << 10
SIZES = [nr << 10 for nr in range(256, 833, 64)]
RATES = list(range(30, 301, 30))
RATE = 90
ZIPF, SKEWED = "zipf", "80-20"
# Until the share of cold accesses has settled; the thesis' own warm-up, of 5 minutes at the highest
# rate, is much less
SETTLE, SETTLE_QUICK = 300_000_000, 3_000_000
THESIS_WARM_UP = 300_000 * 300 // 32
OPS, OPS_QUICK = 300_000, 20_000
WARM, WARM_QUICK = 100_000, 5_000
# 600 million elements over 32
ELEMENTS, ELEMENTS_QUICK = 18_750_000, 1_000_000
ROUNDS = 2
# Of arms, and of those that a target is about
BOOTS, TARGET_BOOTS = 3, 10
# At this share of rest of the one area, the cold slices' is looked at
REST_SHARE = 0.05
SOURCES = ("lab/plugin", "lab/ramlab/emulator_plugins.py", "lab/ramlab/dram_accesses.py",
           "lab/guest/access_marker.h", "lab/guest/draw_keys.h", "lab/guest/value_map.h",
           "lab/guest/energy_map.c", "lab/guest/stream.c")


def boot(arm, program, words, counts=True, name=None):
    """A boot of an arm that runs a program, with the plugin or without."""
    flavour, append = ARMS[arm]
    qemu = [f"--qemu-opt={dram_accesses.qemu_words('{folder}')}"] if counts else []
    return Boot(
        name or arm, flavour,
        ["--mem", MEMORY, "--cpus", "1", ICOUNT, "--append", append, *qemu],
        SCRIPT, [arm, "{folder}" if counts else "-", program, *words],
        [f"ACCESS_PLUGIN={dram_accesses.PLUGIN}"])


def again_of(arm):
    """The name of an arm's boots with other transactions."""
    return f"{arm}-again"


def note_sources(args):
    args.used.modules.update(SOURCES)


# --- STREAM ---------------------------------------------------------------------


def stream(args):
    """STREAM's loops over arrays that ask for cold memory, and over arrays that do not."""
    note_sources(args)
    images = images_of("plain")
    elements = ELEMENTS_QUICK if args.quick else ELEMENTS
    boots = [boot(SEPARATED, "stream", [kind, elements, ROUNDS, dram_accesses.SLICE_BYTES],
                  name=kind)
             for kind, nr in (("hot", BOOTS), ("cold", TARGET_BOOTS))
             for _ in range(1 if args.quick else nr)]
    return stream_entries(machines.run(boots, images, "cold-stream", args)), images


def pages_in(figures):
    """The share of the arrays' pages in cold slices."""
    pages, cold = figures["figures"]["pages"], set(figures["cold_slices"])
    inside = sum(nr for number, nr in pages.items() if int(number) in cold)
    return inside / sum(pages.values())


def accesses_in(figures):
    """{loop: share of the arrays' lines from and to DRAM that were in cold slices}"""
    cold = set(figures["cold_slices"])
    return {name: dram_accesses.share_in(record, cold, dram_accesses.HOT)
            for name, record in zip(figures["figures"]["ns"], figures["records"], strict=True)}


def stream_entries(found):
    """Entries from what boots left, {"hot" or "cold": [figures]}."""
    loops = found["cold"][0]["figures"]["ns"]
    lines = {
        kind: {name: {what: sum(row[what][dram_accesses.HOT] for row in record["slices"])
                      for what in ("reads", "writes")}
               for name, record in zip(loops, boots[0]["records"], strict=True)}
        for kind, boots in found.items()
    }
    return [
        stats.mean_entry(
            "stream-pages", "share of the arrays' pages that are not in cold slices",
            [1 - pages_in(one) for one in found["cold"]],
            beside={"hot": [1 - pages_in(one) for one in found["hot"]]}),
        stats.mean_entry(
            "stream-accesses", "share of the arrays' DRAM accesses not in cold slices, worst loop",
            [1 - min(accesses_in(one).values()) for one in found["cold"]],
            beside={"hot": [1 - max(accesses_in(one).values()) for one in found["hot"]]},
            by_loop={kind: accesses_in(boots[0]) for kind, boots in found.items()}, lines=lines,
            bytes=found["cold"][0]["figures"]["bytes"]),
    ]


# --- the Energy-Aware Map -------------------------------------------------------


def settled(args, keys, draw, ops=None):
    """The file of a state that has settled, and what the lists did on the way there.

    The same program plays the transactions on this machine, without values: in a guest they would
    take hours. Where all fits the hot area, there is nothing to settle.
    """
    ops = ops or (SETTLE_QUICK if args.quick else SETTLE)
    if keys <= HOT:
        ops = 1
    program = guest_programs.folder() / "energy_map"
    text = b"".join((ROOT / name).read_bytes() for name in SOURCES if name.endswith((".c", ".h")))
    digest = hashlib.sha256(text).hexdigest()[:8]
    path = OUT / "bench/cold-states" / f"{keys}-{draw}-{args.seed}-{ops}-{digest}"
    about = path.with_suffix(".json")
    if not about.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [program, "settle", f"state={path}", f"keys={keys}", f"hot={HOT}", f"cold={COLD}",
             f"ops={ops}", f"draw={draw}", f"seed={args.seed}"],
            check=True, text=True, stdout=subprocess.PIPE)
        put_json(about, json.loads(done.stdout))
    return path, json.loads(about.read_text())


def map_boot(arm, args, rates, keys=KEYS, draw=ZIPF, counts=True, again=0):
    """A boot of an arm that runs the map, a phase for each rate; again, with other transactions
    after the same have settled it.
    """
    hot = HOT if arm == SEPARATED else 0
    state, _ = settled(args, keys, draw)
    words = [f"state={state}", f"keys={keys}", f"hot={hot}", f"cold={COLD if hot else 0}",
             f"ops={OPS_QUICK if args.quick else OPS}", f"draw={draw}",
             f"warm={WARM_QUICK if args.quick else WARM}", f"seed={args.seed + again}",
             "rates=" + ",".join(map(str, rates)), f"count={int(counts)}"]
    name = again_of(arm) if again else arm
    if keys != KEYS:
        name += f"-{keys >> 10}"
    return boot(arm, "energy_map", ["run", *words], counts, name)


def phases(figures):
    """Of each phase: what the program said, and the plugin's record."""
    records = {record["label"]: record for record in figures["records"]}
    return [(phase, records.get(phase["label"])) for phase in figures["figures"]["phases"]]


def value_pages(phase):
    """{slice: pages} of values that are in the cold area, or of the one area's, if it has no other.
    """
    pages = phase["cold_pages"] or phase["hot_pages"]
    return {int(number): nr for number, nr in pages.items()}


def rest_curve(phase, record):
    """Shares of rest at each threshold, of slices with cold values or the one area's, by pages."""
    pages = value_pages(phase)
    return [dram_accesses.weighted_rest(record, pages, ns) for ns in dram_accesses.thresholds()]


def memory_curve(record, nr_slices=16):
    """The same of all slices of the guest, each the same."""
    return [dram_accesses.weighted_rest(record, dict.fromkeys(range(nr_slices), 1), ns)
            for ns in dram_accesses.thresholds()]


def threshold_at(curve, share=REST_SHARE):
    """The place of the longest threshold at which slices of this curve rest so much; the first, if
    they never do.
    """
    return max((i for i, value in enumerate(curve) if value >= share), default=0)


def cold_over_clairvoyant(phase):
    """Accesses to values in the cold area over those of the split that knows how popular keys are;
    None without such a split.
    """
    beyond = phase["clairvoyant_cold"]
    return phase["cold"] / beyond if beyond else None


def per_operation(figures, clock="cpu_ns"):
    """Instructions of a transaction, moves included, in the first phase: those of the program, or
    by the clock `ns` whatever was executed meanwhile.
    """
    phase = figures["figures"]["phases"][0]
    return phase[clock] / phase["ops"]


def flat(args):
    """The map as fast as it goes: instructions of a transaction, separated over one area."""
    note_sources(args)
    images = images_of("plain")
    number = {SEPARATED: TARGET_BOOTS, ONE_AREA: TARGET_BOOTS, OVERFLOWING: BOOTS}
    boots = [map_boot(arm, args, [0], counts=False)
             for arm in PATCHED for _ in range(1 if args.quick else number[arm])]
    found = machines.run(boots, images, "cold-flat", args)
    values = {arm: [per_operation(one) for one in some] for arm, some in found.items()}
    first = found[SEPARATED][0]["figures"]["phases"][0]
    return [compared(
        "eam-instructions", "ratio of instructions of a transaction", values[SEPARATED],
        values[ONE_AREA],
        beside={OVERFLOWING: values[OVERFLOWING]},
        by_clock={arm: [per_operation(one, "ns") for one in some] for arm, some in found.items()},
        moves={name: first[name] / first["ops"] for name in ("evicted", "returned")},
        counters={arm: some[0]["counters"] for arm, some in found.items()})], images


def rates(args):
    """The map at 30 to 300 thousand transactions a second: rest by threshold, cold accesses."""
    note_sources(args)
    images = images_of("plain")
    chosen = [RATE, 300] if args.quick else RATES
    pair = (SEPARATED, ONE_AREA)
    again = range(1, 2 if args.quick else TARGET_BOOTS)
    boots = [map_boot(arm, args, chosen) for arm in PATCHED]
    boots += [map_boot(arm, args, [RATE], again=number) for arm in pair for number in again]
    found = machines.run(boots, images, "cold-rates", args)
    more = {arm: [phases(one)[0] for one in found[again_of(arm)]] for arm in pair}
    new = rest_entries("eam-rest", {arm: phases(found[arm][0]) for arm in PATCHED}, RATE, more)
    _, end = settled(args, KEYS, ZIPF)
    _, early = settled(args, KEYS, ZIPF, ops=THESIS_WARM_UP)
    new.append(cold_entry("eam-cold-accesses", phases(found[SEPARATED][0]), found[SEPARATED][0],
                          RATE, more[SEPARATED])
               | {"settled": end, "after_the_thesis_warm_up": early})
    return new, images


def draws(args):
    """The map at 90 thousand transactions a second, four fifths of them to one fifth of the keys.
    """
    note_sources(args)
    images = images_of("plain")
    boots = [map_boot(arm, args, [RATE], draw=SKEWED) for arm in (SEPARATED, ONE_AREA)]
    found = machines.run(boots, images, "cold-draws", args)
    new = rest_entries("eam-rest-80-20", {arm: phases(some[0]) for arm, some in found.items()},
                       RATE)
    new.append(cold_entry("eam-cold-accesses-80-20", phases(found[SEPARATED][0]),
                          found[SEPARATED][0], RATE))
    return new, images


def cold_entry(name, some, figures, rate, more=()):
    """Accesses to cold values over the clairvoyant's, at a rate, of boots.

    some: phases of a boot, one of each rate, and its figures; more: phases at this rate of others
    """
    over = {phase["ktps"]: cold_over_clairvoyant(phase) for phase, _ in some}
    cold = set(figures["cold_slices"])
    return stats.mean_entry(
        name, "accesses to values in the cold area, over the clairvoyant's",
        [over[rate], *(cold_over_clairvoyant(phase) for phase, _ in more)],
        by_ktps={str(ktps): value for ktps, value in over.items()}, ktps=list(over),
        of_accesses=[phase["cold"] / phase["ops"] for phase, _ in some],
        clairvoyant=[phase["clairvoyant_cold"] / phase["ops"] for phase, _ in some],
        # Lines of values from and to DRAM, moves included
        of_lines=[share_of_lines(record, cold) for _, record in some],
        cold_area_in_cold_slices=[dram_accesses.share_in(record, cold, dram_accesses.COLD)
                                  for _, record in some])


def share_of_lines(record, cold):
    """The share of all lines of values that were in cold slices."""
    kinds = (dram_accesses.HOT, dram_accesses.COLD)
    all_lines = inside = 0
    for row in record["slices"]:
        here = sum(dram_accesses.lines(row, kind) for kind in kinds)
        all_lines += here
        inside += here if row["slice"] in cold else 0
    return inside / all_lines


def rest_of_pair(separated, one_area):
    """Rest of cold slices at the threshold at which the one area's rest 5%, and that threshold's
    place; both are (phase, record).
    """
    at = threshold_at(rest_curve(*one_area))
    return rest_curve(*separated)[at], at


def rest_entries(name, by_arm, rate, more=None):
    """The entry of rest at a rate, of boots, with curves of all arms and rates of one.

    by_arm: {arm: [(phase, record)]}; more: {arm: [(phase, record)]} of other boots, at this rate
    """
    curves = {arm: {phase["ktps"]: rest_curve(phase, record) for phase, record in some}
              for arm, some in by_arm.items()}
    at_rate = {arm: next(row for row in some if row[0]["ktps"] == rate)
               for arm, some in by_arm.items()}
    pairs = [(at_rate[SEPARATED], at_rate[ONE_AREA])]
    if more:
        pairs += zip(more[SEPARATED], more[ONE_AREA], strict=True)
    judged = [rest_of_pair(*pair) for pair in pairs]
    at, edges = judged[0][1], dram_accesses.thresholds()
    return [stats.mean_entry(
        name, "share of the time that slices of cold values rest", [value for value, _ in judged],
        threshold_ns=edges[at], threshold_ns_of_each=[edges[place] for _, place in judged],
        beside={arm: curves[arm][rate][at] for arm in curves if arm != SEPARATED},
        thresholds_ns=edges,
        curves={arm: {str(ktps): curve for ktps, curve in some.items()}
                for arm, some in curves.items()},
        all_memory={arm: memory_curve(record) for arm, (_, record) in at_rate.items()},
        late_ns={arm: max(phase["late_ns"] for phase, _ in some)
                 for arm, some in by_arm.items()})]


def sizes(args):
    """The map with 256 to 832 MiB of values at 90 thousand transactions a second."""
    note_sources(args)
    images = images_of("plain")
    chosen = [SIZES[0], KEYS] if args.quick else SIZES
    boots = [map_boot(arm, args, [RATE], keys=keys) for arm in PATCHED for keys in chosen]
    return size_entries(machines.run(boots, images, "cold-sizes", args)), images


def size_entries(found):
    """The entry of rest by size, from what boots left: each arm of {arm-MiB: [figures]}."""
    rows = {}
    for name, some in found.items():
        arm = next(arm for arm in ARMS if name == arm or name.startswith(f"{arm}-"))
        mib = int(name.removeprefix(arm).lstrip("-") or KEYS >> 10)
        phase, record = phases(some[0])[0]
        rows.setdefault(mib, {})[arm] = rest_curve(phase, record)
    edges = dram_accesses.thresholds()
    table = {}
    for mib, curves in sorted(rows.items()):
        at = threshold_at(curves[ONE_AREA])
        table[str(mib)] = {"threshold_ns": edges[at]} | {
            arm: curve[at] for arm, curve in curves.items()}
    # With all values in the hot area, there are no cold slices that could rest
    values = [row[SEPARATED] for mib, row in table.items() if int(mib) << 10 > HOT]
    return [stats.mean_entry(
        "eam-rest-sizes", "share of the time that slices of cold values rest, by size", values,
        by_mib=table, thresholds_ns=edges,
        curves={str(mib): curves for mib, curves in sorted(rows.items())})]


def stock(args):
    """The unpatched kernel beside ours with one area: instructions of a transaction, and rest."""
    note_sources(args)
    images = images_of("plain", "stock")
    chosen = [RATE] if args.quick else RATES
    arms = (ONE_AREA, STOCK)
    boots = [map_boot(arm, args, [0], counts=False)
             for arm in arms for _ in range(1 if args.quick else BOOTS)]
    found = machines.run(boots, images, "cold-stock-flat", args)
    values = {arm: [per_operation(one) for one in some] for arm, some in found.items()}
    new = [compared("eam-one-area-instructions", "ratio of instructions of a transaction",
                    values[ONE_AREA], values[STOCK])]
    curves = machines.run([map_boot(STOCK, args, chosen)], images, "cold-stock-rates", args)
    some = phases(curves[STOCK][0])
    edges = dram_accesses.thresholds()
    by_rate = {phase["ktps"]: rest_curve(phase, record) for phase, record in some}
    at = threshold_at(by_rate[RATE])
    new.append({"name": "eam-stock-rest", "value": edges[at], "n": 1,
                "unit": "idle threshold in ns at which the unpatched kernel's slices rest 5%",
                "thresholds_ns": edges,
                "curves": {str(ktps): curve for ktps, curve in by_rate.items()}})
    return new, images


PARTS = {"stream": stream, "flat": flat, "rates": rates, "draws": draws, "sizes": sizes,
         "stock": stock, **cold_costs.PARTS}
