# SPDX-License-Identifier: GPL-2.0-or-later
"""Cold memory: what faults, changes of size and the automatic way cost, and whether pages are where
the modes promise.

Parts of the suite cold. Instructions are counted by guests with one processor; what is about places
and counters of the kernel has two, and time as it passes.
"""

import statistics

from . import machines, stats
from .machines import ICOUNT, Boot
from .slices import check_clock, compared, images_of

SCRIPT = "bench_cold_costs.py"
MEMORY = "2G"
# Seconds of churn before pages are looked at, and of loads
CHURN_S, CHURN_QUICK_S = 600, 20
NEED_S, NEED_QUICK_S = 20, 5
BOOTS = 10
# Guest seconds: until what is idle has moved there and what is in use is back, and then
WARM_S, WARM_QUICK_S = 900, 20
WINDOW_S, WINDOW_QUICK_S = 150, 10
# With a smaller share of the values' pages moved, what is there says nothing
LEAST_MOVED = 0.05
SOURCES = ("lab/guest/cold_faults.c", "lab/guest/page_accesses.c", "lab/guest/memload.c",
           "lab/guest/bench.c", "lab/ramlab/guest/cold_places.py",
           "lab/ramlab/guest/cold_automatic.py")


def boot(arm, flavour, append, words, counts=True, environment=(), mem=MEMORY):
    """A boot of an arm whose guest carries out one part."""
    machine = ["--cpus", "1", ICOUNT] if counts else ["--cpus", "2", "--disk", "1G"]
    return Boot(arm, flavour, ["--mem", mem, *machine, "--append", append], SCRIPT, words,
                list(environment))


def note_sources(args):
    args.used.modules.update(SOURCES)


def faults(args):
    """Page faults: cold memory built in and unused, over a kernel without; cold ones over others.
    """
    note_sources(args)
    images = images_of("plain", "without-cold")
    arms = {
        "without": ("without-cold", "ramslice=on", "hot"),
        "unused": ("plain", "ramslice=on", "hot"),
        "used": ("plain", "ramslice=128M ramslice_cold=256M", "both"),
    }
    boots = [boot(arm, flavour, append, ["faults", kind], mem="1G")
             for arm, (flavour, append, kind) in arms.items()
             for _ in range(1 if args.quick else BOOTS)]
    found = machines.run(boots, images, "cold-faults", args)
    # In some boots, another process has had the processor for a tick of that loop: 4 ms
    check_clock([{"loops": min((figures for some in found.values() for figures in some),
                               key=lambda figures: figures["calibrate"]["ticks"])}])
    values = {
        (arm, kind): [statistics.median(figures[kind]) for figures in some]
        for arm, some in found.items() for kind in ("hot", "cold") if kind in some[0]
    }
    unit = "ratio of instructions per page"
    return [
        compared("cold-unused-fault", unit, values["unused", "hot"], values["without", "hot"]),
        compared("cold-fault", unit, values["used", "cold"], values["used", "hot"]),
    ], images


def places(args):
    """Strict mode: where each page is after ten minutes of churn by loads of all kinds."""
    note_sources(args)
    images = images_of("plain")
    seconds = CHURN_QUICK_S if args.quick else CHURN_S
    boots = [boot("strict", "plain", "ramslice=128M ramslice_cold=640M,strict",
                  ["places", seconds], counts=False)]
    figures, = machines.run(boots, images, "cold-places", args)["strict"]
    if not figures["cold_there"]:
        raise SystemExit(f"no page is in the twin: this proves nothing: {figures}")
    asked = figures["cold_there"] + figures["cold_elsewhere"]
    apart = sum(nr for kind, nr in figures["unmapped"].items()
                if kind in ("swap cache", "in flight"))
    return [
        {"name": "strict-pages-elsewhere", "value": figures["cold_elsewhere"] / asked, "n": 1,
         "unit": "share of pages whose every mapping is cold that are not in cold slices",
         "pages": asked, "figures": figures},
        {"name": "strict-hot-pages", "value": figures["hot_there"] + figures["mixed_there"], "n": 1,
         "unit": "pages in cold slices that other memory maps", "pages": figures["cold_there"]},
        {"name": "strict-pages-apart", "value": apart / figures["cold_there"], "n": 1,
         "unit": "pages in cold slices in flight or in the swap cache, over those of cold memory",
         "unmapped": figures["unmapped"]},
    ], images


def need(args):
    """Loads that take 1.5 times the hot memory: pages swapped out, OOM kills."""
    note_sources(args)
    images = images_of("plain")
    seconds = NEED_QUICK_S if args.quick else NEED_S
    arms = {
        "overflow": ("ramslice=128M ramslice_cold=896M", "1", BOOTS),
        "overflow-no-swap": ("ramslice=128M ramslice_cold=896M", "0", 1),
        "strict-no-swap": ("ramslice=128M ramslice_cold=896M,strict", "0", 1),
    }
    boots = [boot(arm, "plain", append, ["need", seconds, swap], counts=False)
             for arm, (append, swap, nr) in arms.items() for _ in range(1 if args.quick else nr)]
    found = machines.run(boots, images, "cold-need", args)
    swapped = [figures["swapped_with_room"] for figures in found["overflow"]]
    killed = {arm: [figures["counters"]["oom_kill"] for figures in some]
              for arm, some in found.items()}
    about = {arm: some[0] for arm, some in found.items()}
    return [
        {"name": "overflow-swapped", "value": max(swapped), "n": len(swapped), "values": swapped,
         "unit": "pages swapped out while the twin has room, most of some boots",
         "swapped_in_all": [one["counters"]["pswpout"] for one in found["overflow"]],
         "least_free_mib": [one["least_free_mib"] for one in found["overflow"]]},
        {"name": "need-killed", "value": sum(map(sum, killed.values())),
         "n": sum(map(len, killed.values())), "values": killed,
         "unit": "processes killed while memory was free, all boots", "figures": about},
    ], images


def resize(args):
    """1 GiB to the twin and back: instructions beyond emptying, over hotplug of empty blocks."""
    note_sources(args)
    images = images_of("plain", "stock")
    arms = {
        "move": ("plain", "ramslice=128M ramslice_cold=0"),
        "empty": ("plain", "ramslice=128M ramslice_cold=0"),
        "hotplug": ("stock", ""),
    }
    boots = [boot(arm, flavour, append, ["resize", arm])
             for arm, (flavour, append) in arms.items()
             for _ in range(1 if args.quick else BOOTS)]
    found = machines.run(boots, images, "cold-resize", args)
    blocks = {arm: some[0]["blocks"] for arm, some in found.items()}
    if len({tuple(numbers) for numbers in blocks.values()}) > 1:
        raise SystemExit(f"not the same memory has moved: {blocks}")

    def costs(arm, *ways, clock=0):
        """Of each boot: what was executed, or by clock 1 what passed."""
        return [sum(one[way][clock] for way in ways) for one in found[arm]]

    emptying = stats.mean(costs("empty", "there"))[0]
    beyond = [cost - emptying for cost in costs("move", "there", "back")]
    # There and back, a block goes offline and online twice
    hotplug = [2 * cost for cost in costs("hotplug", "there", "back")]
    return [compared("resize-instructions", "ratio of instructions", beyond, hotplug,
                     beside={arm: list(zip(costs(arm, "there"), costs(arm, "back")))
                             for arm in found},
                     passed={arm: list(zip(costs(arm, "there", clock=1),
                                           costs(arm, "back", clock=1))) for arm in found},
                     migrated=[one["migrated"] for one in found["hotplug"]],
                     blocks=blocks["move"])], images


def automatic(args):
    """The daemon moves what is idle: accesses that reach cold slices, and a CPU's share."""
    note_sources(args)
    images = images_of("plain")
    daemon = args.used.program("ramsliced")
    seconds = (WARM_QUICK_S, WINDOW_QUICK_S) if args.quick else (WARM_S, WINDOW_S)
    boots = [boot("automatic", "plain", "ramslice=128M ramslice_cold=640M",
                  ["automatic", *seconds, args.seed + number],
                  environment=[f"RAMSLICE_DAEMON={daemon}"])
             for number in range(1 if args.quick else BOOTS)]
    found = machines.run(boots, images, "cold-automatic", args)["automatic"]
    for figures in found:
        if abs(figures["clock_of_million"] / 1e6 - 1) > 0.01:
            raise SystemExit(f"the guest's clock does not count instructions: {figures}")
        if figures["pages_away"] < LEAST_MOVED * figures["pages"]:
            raise SystemExit(f"{figures['pages_away']:g} of {figures['pages']} pages have moved, "
                             "too few to say anything about which they are")
    shares = [figures["cold"] / figures["accesses"] for figures in found]
    beyond = [figures["clairvoyant_share"] for figures in found]
    return [
        stats.mean_entry(
            "automatic-cold-accesses",
            "accesses to pages in cold slices, over those of as many of the rarest pages",
            [one / other for one, other in zip(shares, beyond, strict=True)],
            of_accesses=shares, clairvoyant=beyond, figures=found[0]),
        stats.mean_entry("automatic-cpu", "share of a CPU that daemon and kdamonds take",
                         [figures["cpu_share"] for figures in found]),
    ], images


PARTS = {"faults": faults, "places": places, "need": need, "resize": resize,
         "automatic": automatic}
