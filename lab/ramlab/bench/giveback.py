# SPDX-License-Identifier: GPL-2.0-or-later
"""Give-back: what the host still holds of a guest's memory, by each way of giving it back.

The work is lab/ramlab/guest/giveback_work.py, the same for each way: files, a build, a burst, idle
time in which one file is read again and again, a second burst; then a Redis that shrinks, and short
tenants one after another. Times are the guest's, by a clock that counts instructions: one takes a
nanosecond. What the host does meanwhile takes next to none of it; its page faults are counted.
"""

import itertools
import statistics

from ramlab.guest.giveback_loads import AGAIN_MIB
from ramlab.guest.harness import MIB
from ramlab.kernel.source import Source

from . import machines, stats
from .machines import Boot
from .slices import compared, images_of

SCRIPT = "giveback_work.py"
OURS, GOVERNOR, USUAL, NOTHING = "ours", "governor", "reporting", "none"
# Ours on a kernel without ramslice: the daemon, and by memory blocks
STOCK, HOTPLUG = "ours-stock", "stock-hotplug"
PLUGGED = "virtio-mem"
# Boots of the arms that targets name, and of those beside them
BOOTS, BOOTS_BESIDE = 10, 3
# Not virtio-mem: its script plugs memory once little is left, and a program of 700 MiB is refused
# before that, as it is more than all there is
BESIDE = [GOVERNOR, "order-0", "timer"]
MEMORY = "2G"
# As docs/how-to/give-memory-back.md says; other kernels ignore it
KERNEL = "ramslice=4M ramslice_placement=packed"
# With virtio-mem, what is there at boot, and what the device has besides
BASE, MORE = "512M", "1536M"
BALLOON = "-device virtio-balloon-pci,free-page-reporting=on"
FILE = "/usr/src/linux-source-6.12.tar.xz"
GIB = 1 << 30
# A fault of the host for 4 KiB at 0.98 GiB/s, the dear end of host_faults in profiles/giveback.toml
HOST_FAULT_S = 4096 / (0.98 * GIB)
LOST = "pages swapped out, processes killed, allocations that failed"
SOURCES = ("packaging/examples/giveback.toml", "lab/ramlab/guest/giveback_loads.py",
           "lab/ramlab/guest/demo.py")


def words(arm, memory):
    """What `ramlab vm` is told: a guest whose memory is the file `memory`."""
    size = BASE if arm == PLUGGED else MEMORY
    qemu = [f"-object memory-backend-file,id=ram,size={size},mem-path={memory},share=on",
            "-machine memory-backend=ram"]
    if arm == PLUGGED:
        qemu += [
            f"-m maxmem=4G -object memory-backend-file,id=more,size={MORE},mem-path={memory}-more,"
            "share=on",
            f"-device virtio-mem-pci,id=more0,memdev=more,requested-size={MORE}",
            f"-chardev socket,id=monitor,path={memory}-qmp,server=on,wait=off",
            "-mon chardev=monitor,mode=control",
            f"-chardev socket,id=wire,path={memory}-qmp,server=off",
            "-device virtio-serial-pci,id=control",
            "-device virtserialport,bus=control.0,chardev=wire,name=qmp",
        ]
    elif arm != NOTHING:
        qemu.append(BALLOON)
    append = KERNEL + (" memhp_default_state=online_movable" if arm == PLUGGED else "")
    return ["--mem", size, "--cpus", "1", "--disk", "2G", "--append", append, machines.ICOUNT,
            f"--qemu-opt={' '.join(qemu)}"]


def flavour(arm):
    """The kernel of an arm: the patched one is for ours alone."""
    return "plain" if arm in (OURS, GOVERNOR) else "stock"


def boot(arm, daemon, program, load="morning"):
    """A boot of an arm; the paths of ramsliced and of ramslice, and which of the loads."""
    source = Source().pristine / "tools/lib/bpf"
    memory = "{folder}/" + machines.MEMORY
    return Boot(arm, flavour(arm), words(arm, memory), SCRIPT,
                ["--load", load, arm, memory, source, FILE],
                [f"RAMSLICE_DAEMON={daemon}", f"RAMSLICE_PROGRAM={program}"])


def gib_minutes(samples, name):
    """The integral of a value over time, by steps."""
    steps = itertools.pairwise(samples)
    return sum((b["s"] - a["s"]) * a[name] for a, b in steps) / GIB / 60


def phase(samples, name):
    return [row for row in samples if row["phase"] == name]


def work_s(figures):
    """The processor's seconds of the work's phases, without idle times; by a clock that counts
    instructions.
    """
    begun = figures["phases"]
    ends = [row["busy_s"] for row in begun[1:]] + [figures["samples"][-1]["busy_s"]]
    return sum(end - row["busy_s"] for row, end in zip(begun, ends, strict=True)
               if not row["phase"].startswith(("idle", "after")))


def settled(samples):
    """The rows of the idle time's last third."""
    idle = phase(samples, "idle")
    return idle[len(idle) * 2 // 3:]


def used_when_settled(figures):
    """What the guest uses once it has been idle for a while, in bytes."""
    return statistics.fmean(row["used_bytes"] for row in settled(figures["samples"]))


def held_over_used(figures, used_bytes):
    """What the host holds over what the guest uses, once the guest has been idle for a while;
    without what the guest keeps awake for a sudden need.
    """
    held = statistics.fmean(row["held_bytes"] for row in settled(figures["samples"]))
    return (held - figures["reserve_bytes"]) / used_bytes


def give_back_seconds(figures):
    """Seconds from the end of the second burst until nine tenths of what it had are back.

    The host held least of the idle time before it, and most at its end. None if they are not, or
    if the host had to give the burst less than half: it still held the rest, which was not back.
    """
    samples = figures["samples"]
    before = min(row["held_bytes"] for row in settled(samples))
    after = phase(samples, "idle again")
    most = max(row["held_bytes"] for row in phase(samples, "burst again") + after[:2])
    if most - before < AGAIN_MIB * MIB // 2:
        return None
    enough = before + (most - before) // 10
    found = next((row["s"] for row in after if row["held_bytes"] <= enough), None)
    return None if found is None else found - after[0]["s"]


def give_back_within(figures):
    """The same; all of the time that was watched if they are not back in it."""
    after = phase(figures["samples"], "idle again")
    seconds = give_back_seconds(figures)
    return after[-1]["s"] - after[0]["s"] if seconds is None else seconds


def share_while_giving_back(figures):
    """The processor's share until what the second burst had is back, whatever it does."""
    after = phase(figures["samples"], "idle again")
    end = after[0]["s"] + give_back_within(figures)
    last = next(row for row in after if row["s"] >= end)
    return (last["busy_s"] - after[0]["busy_s"]) / (last["s"] - after[0]["s"])


def lost_by(figures):
    """What must not happen."""
    return figures["killed"] + figures["swapped_pages"] + figures["failed_allocations"]


def work(args):
    """What the host holds at the end and over time; what is read again; what a burst takes."""
    arms = {arm: 1 if args.quick else BOOTS for arm in (OURS, USUAL, NOTHING)}
    arms |= {arm: 1 if args.quick else BOOTS_BESIDE for arm in BESIDE}
    found, images = run(arms, "giveback", args)
    return judged(found), images


def run(arms, name, args, load="morning"):
    """Boots of each arm, {arm: how many}: what they left, {arm: [figures]}, and the images."""
    args.used.modules.update(SOURCES)
    images = images_of("plain", "stock")
    programs = [args.used.program(one) for one in ("ramsliced", "ramslice")]
    boots = [boot(arm, *programs, load) for arm, number in arms.items() for _ in range(number)]
    return machines.run(boots, images, name, args), images


def over(values, arm, arms=None):
    """{arm: the mean of its values over that of one arm}, of these arms or all but ours."""
    wanted = [one for one in values if one != OURS] if arms is None else arms
    return {one: statistics.fmean(values[one]) / statistics.fmean(values[arm]) for one in wanted}


def stock(args):
    """The same work on a kernel without ramslice, with and without ours."""
    arms = {arm: 1 if args.quick else BOOTS for arm in (STOCK, USUAL)}
    arms |= {HOTPLUG: 1 if args.quick else BOOTS_BESIDE}
    found, images = run(arms, "giveback-stock", args)
    return judged_stock(found), images


def judged_stock(found):
    """Entries from what boots on the stock kernel left, {arm: [figures]}."""
    minutes = {arm: [gib_minutes(one["samples"], "held_bytes") for one in boots]
               for arm, boots in found.items()}
    reread = {arm: statistics.fmean(one["read_bytes"] / GIB for one in boots)
              for arm, boots in found.items()}
    work = {arm: statistics.fmean(map(work_s, boots)) for arm, boots in found.items()}
    return [
        compared(
            "stock-gib-minutes", "GiB x minutes over those of free page reporting",
            minutes[STOCK], minutes[USUAL],
            beside={f"{what}-{arm}": value for what, values in
                    (("reread-gib", reread), ("work-s", work)) for arm, value in values.items()}
            | over(minutes, USUAL, [HOTPLUG])),
        stats.mean_entry("stock-lost", LOST, [sum(map(lost_by, found[STOCK]))],
                         beside={HOTPLUG: sum(map(lost_by, found[HOTPLUG]))}),
    ]


def judged(found):
    """Entries from what boots left, {arm: [figures]}."""
    def by_arm(value):
        return {arm: [value(one) for one in boots] for arm, boots in found.items()}

    # What the work uses is that of the arm in which nothing goes back: the same for all
    used_bytes = statistics.fmean(map(used_when_settled, found[NOTHING]))
    held = by_arm(lambda one: held_over_used(one, used_bytes))
    minutes = by_arm(lambda one: gib_minutes(one["samples"], "held_bytes"))
    used = [gib_minutes(one["samples"], "used_bytes") for one in found[NOTHING]]
    reread = by_arm(lambda one: one["read_bytes"] / GIB)
    bursts = by_arm(lambda one: one["second_burst_s"])
    back = by_arm(give_back_seconds)
    stalls = by_arm(lambda one: one["stalled_ms"])
    lost = sum(map(lost_by, found[OURS]))

    def entry(name, unit, values):
        """The mean of ours, with those of the other arms beside it."""
        beside = {arm: [value for value in values[arm] if value is not None]
                  for arm in values if arm != OURS}
        return stats.mean_entry(
            name, unit, values[OURS],
            beside={arm: statistics.fmean(some) for arm, some in beside.items() if some})

    new = [
        entry("held-over-used", "held by the host over used by the guest, idle", held),
        compared("gib-minutes", "GiB x minutes over those of free page reporting",
                 minutes[OURS], minutes[USUAL], beside=over(minutes, USUAL)),
        compared("gib-minutes-over-used", "GiB x minutes over those that are used",
                 minutes[OURS], used,
                 beside=over(minutes | {"used": used}, "used", sorted(minutes.keys() - {OURS}))),
        instructions(found),
        entry("reread", "GiB read from the disk: what was written before", reread),
        compared("burst", "seconds until a burst has its memory, over without give-back",
                 bursts[OURS], bursts[NOTHING], beside=over(bursts, NOTHING)),
        entry("stalls", "ms in which some task waited for memory", stalls),
        stats.mean_entry("lost", LOST, [lost]),
    ]
    if any(seconds is not None for seconds in back[OURS]):
        new.append(seconds_entry(found, back))
        shares = [share_while_giving_back(one) for one in found[OURS]]
        new.append(stats.mean_entry("giving-back-cpu", "share of a CPU meanwhile", shares))
    return new


def seconds_entry(found, back):
    """The time to give back, by its median: it may be longer than was watched. Beside it that of
    arms that ever do, and boots of ours that did not in that time.
    """
    times = {arm: [give_back_within(one) for one in boots] for arm, boots in found.items()
             if any(seconds is not None for seconds in back[arm])}
    value, ci95 = stats.median(times[OURS])
    return {"name": "seconds-to-give-back", "unit": "seconds until nine tenths are back, median",
            "value": value, "values": times[OURS], "n": len(times[OURS]), "ci95": ci95,
            "beside": {arm: statistics.median(some) for arm, some in times.items() if arm != OURS}
            | {"not-back": back[OURS].count(None)}}


def other(load, args):
    """Another load: what the host holds over time, and what that costs the guest."""
    arms = {arm: 1 if args.quick else BOOTS for arm in (OURS, USUAL, NOTHING)}
    found, images = run(arms | {PLUGGED: 1 if args.quick else BOOTS_BESIDE}, f"giveback-{load}",
                        args, load)
    return judged_other(load, found), images


def instructions(found, prefix=""):
    """What the guest's work does more for it; beside it the same with idle times, and the host's
    part, as page faults of QEMU: over those without, and in seconds of a CPU at a published price.
    """
    def over_nothing(value):
        return over({arm: list(map(value, boots)) for arm, boots in found.items()}, NOTHING, found)

    work = over_nothing(work_s)
    all_of_it = over_nothing(lambda one: one["busy_s"])
    faults = over_nothing(lambda one: one["host"]["faults"])
    fault_s = {arm: statistics.fmean(one["host"]["faults"] * HOST_FAULT_S for one in boots)
               for arm, boots in found.items()}
    system = over_nothing(lambda one: one["host"]["system_s"])
    return compared(
        f"{prefix}instructions", "the work's instructions over those without give-back",
        *([work_s(one) for one in found[arm]] for arm in (OURS, NOTHING)),
        beside={arm: share for arm, share in work.items() if arm != OURS}
        | {f"with-idle-{arm}": share for arm, share in all_of_it.items()}
        | {f"host-faults-{arm}": share for arm, share in faults.items()}
        | {f"host-fault-s-{arm}": seconds for arm, seconds in fault_s.items()}
        | {f"host-system-{arm}": share for arm, share in system.items()})


def judged_other(load, found):
    """Entries of another load from what boots left, {arm: [figures]}."""
    minutes = {arm: [gib_minutes(one["samples"], "held_bytes") for one in boots]
               for arm, boots in found.items()}
    lost = {arm: sum(map(lost_by, boots)) for arm, boots in found.items()}
    return [
        compared(f"{load}-gib-minutes", "GiB x minutes over those of free page reporting",
                 minutes[OURS], minutes[USUAL], beside=over(minutes, USUAL)),
        instructions(found, f"{load}-"),
        stats.mean_entry(f"{load}-lost", LOST, [lost[OURS]],
                         beside={arm: number for arm, number in lost.items() if arm != OURS}),
    ]


def redis(args):
    """A Redis that shrinks and grows again."""
    return other("redis", args)


def tenants(args):
    """Five short tenants, one after another."""
    return other("tenants", args)


PARTS = {"work": work, "stock": stock, "redis": redis, "tenants": tenants}
