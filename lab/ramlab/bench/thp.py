# SPDX-License-Identifier: GPL-2.0-or-later
"""A part of the slices suite: huge pages of a load that asks for none in particular, on a machine
most of whose memory is offline, against the unpatched kernel.
"""

import statistics

from ramlab.kernel.images import image

from . import machines, stats
from .machines import ICOUNT, Boot

SCRIPT = "bench_thp.py"
STOCK = "stock"
DRIVERS = ("atomic", "sleeping")
BOOTS = 3


def judged(found):
    """An entry for each driver from {arm: [{load: figures} of each boot]}.

    Its value is that of the load in which the driver does worst: the huge pages that it got, over
    those of the unpatched kernel.
    """
    def huge(arm, load):
        return [boot[load]["huge"] for boot in found[arm]]

    new = []
    for driver in DRIVERS:
        loads = {load: stats.ratio(huge(driver, load), huge(STOCK, load))
                 for load in found[driver][0]}
        worst = min(loads, key=lambda load: loads[load][0])
        value, ci95 = loads[worst]
        ours, theirs = huge(driver, worst), huge(STOCK, worst)
        new.append({
            "name": f"thp-{driver}", "value": value, "unit": "ratio of huge pages",
            "values": ours, "baseline": theirs, "n": min(len(ours), len(theirs)), "ci95": ci95,
            "beside": {
                "load": worst,
                "ratios": {load: of[0] for load, of in loads.items()},
                "huge pages, stock": {load: statistics.fmean(huge(STOCK, load)) for load in loads},
                "offline before": {
                    load: statistics.fmean(boot[load]["off"] for boot in found[driver])
                    for load in loads},
            },
        })
    return new


def thp(args):
    """Huge pages of a load under THP=always, with most memory offline, against stock."""
    images = {flavour: image(flavour) for flavour in ("plain", "stock")}
    words = ["--mem", "4G", "--cpus", "2", ICOUNT]
    arms = {STOCK: ("stock", [])} | {driver: ("plain", ["--append", "ramslice=32M"])
                                     for driver in DRIVERS}
    boots = [Boot(arm, flavour, [*words, *more], SCRIPT, [arm])
             for arm, (flavour, more) in arms.items() for _ in range(1 if args.quick else BOOTS)]
    return judged(machines.run(boots, images, "thp", args)), images


PARTS = {"thp": thp}
