#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes samples as `ramslice-lab calibrate -o` saves them, of a machine that never existed.

With --latencies, it writes times of requests. Both are the same each time: tests of the report
read them.
"""

import json
import random
import sys

FRAMES = 8192


def sample(generator, origin, label, moved, mappings, dropped):
    true = 69500 + 30 * FRAMES + 10100 * moved + 2900 * mappings + 3900 * dropped
    price = 69500 + 30 * FRAMES + 9443 * moved + 2610 * mappings + 3900 * dropped
    measured = true * generator.gauss(1, 0.03)
    return {"origin": origin, "label": label, "slices": 1, "frames_pages": FRAMES,
            "free_pages": FRAMES - moved - dropped, "drop_pages": dropped,
            "move_pages": moved, "mappings": mappings,
            "keep_cache": False, "price_predicted_100cycles": round(price / 100),
            "price_measured_100cycles": round(measured / 100),
            "migrated_pages": moved, "dropped_pages": dropped,
            "failed_pages": 0}


def samples(generator):
    for _ in range(15):
        yield sample(generator, {"artificial": "empty"}, "empty", 0, 0, 0)
    for step in range(1, 26):
        yield sample(generator, {"artificial": "cache"}, "cache", 0, 0, 300 * step)
        for each in (1, 2, 4, 8):
            moved = 300 * step
            yield sample(generator, {"artificial": {"mapped": each}}, f"mapped {each}",
                         moved, each * moved, 0)
    for _ in range(150):
        moved, dropped = generator.randrange(4000), generator.randrange(4000)
        mappings = int(moved * generator.uniform(1, 3))
        yield sample(generator, {"artificial": "mixed"}, "mixed", moved, mappings, dropped)
    for _ in range(80):
        moved = int(generator.expovariate(1 / 900)) % 4000
        dropped = int(generator.expovariate(1 / 700)) % 4000
        yield sample(generator, "program", "make", moved, int(moved * 1.2), dropped)


def latencies(generator):
    """Ten a second, slower while slices are emptied: at 12 s and every 15 s from then on."""
    print("boottime_us,latency_us")
    for request in range(4000):
        second = 0.9 + request * 0.029
        during = (second - 12.45) % 15 < 0.5 and second > 12
        latency = generator.gauss(4500 if during else 3700, 400)
        print(f"{500_000_000 + int(second * 1e6)},{latency:.0f}")


def main():
    generator = random.Random(1)
    if "--latencies" in sys.argv[1:]:
        latencies(generator)
        return
    parameters = {"isolate_slice": 695, "isolate_page": 303, "drop_page": 39, "migrate_page": 94,
                  "migrate_mapping": 26, "alloc_buddy": 1, "alloc_cache": 25}
    json.dump({"schema_version": 1, "kernel_release": "6.12.0", "page_bytes": 4096,
               "slice_bytes": FRAMES * 4096, "price_parameters_100cycles": parameters,
               "noise": 0.03, "changed_samples": 0,
               "samples": list(samples(generator))}, sys.stdout)


if __name__ == "__main__":
    main()
