#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs stress-ng's classes of memory, file systems and the scheduler on unpatched and patched
kernels.

Usage: ramlab stress-classes [--seconds S] [--most N] [--keep] [NAME...]

Each kernel of the same source and configuration runs each stressor for S seconds with --verify, the
patched one a second time with most of its free memory offline, the unpatched one twice: what
differs there is flaky, and named. Any other difference in how a stressor ends fails. --most N takes
N stressors of each class, spread over it. With --keep, results/stress-classes.json says how each
ended. RAMSLICE_IMAGE_STOCK and RAMSLICE_IMAGE_PLAIN name other images than those that the checkout
makes.
"""

import argparse
import datetime
import os
import shlex
import sys

from ramlab.common import OUT, RAMLAB, ROOT, die, provenance, put_json, stream_vm
from ramlab.kernel.images import image
from ramlab.kernel.selftests import AGAIN, RUNS, differences

RESULT = ROOT / "results/stress-classes.json"
# A stressor, its start and the packing before it
SECONDS_EACH = 60


def run_classes(name, kernels, args):
    """Boots a kernel and runs the stressors on it; what the guest reports."""
    flavour, off = RUNS[name.removesuffix(" again")]
    console = OUT / "stress-classes" / f"{name.replace(' ', '-')}.console"
    console.parent.mkdir(parents=True, exist_ok=True)
    words = [f"--seconds={args.seconds:g}"]
    words += [f"--most={args.most}"] if args.most else []
    command = [
        RAMLAB, "vm", "--quiet", "--kernel", flavour, "--mem", "2G", "--cpus", "2", "--disk", "2G",
        *(["--append", "ramslice=16M"] if flavour == "plain" else []),
        "--timeout", int(300 + 150 * (args.seconds + SECONDS_EACH)), "--console", console, "--",
        "python3", "-m", "ramlab.guest.stress_classes", *words,
        *(["--slices-off"] if off else []), *args.names,
    ]
    found = []
    os.environ["RAMSLICE_IMAGE"] = str(kernels[flavour])
    status = stream_vm([str(word) for word in command], found.append)
    if status or not found:
        die(f"{name}: the guest ended with status {status}; its console: {console}")
    return found[-1]


def judge(found):
    """(flaky, failures) of what guests reported, by run: {stressor: text}, [text]."""
    results = {name: run["results"] for name, run in found.items()}
    flaky = differences(results["stock"], results[AGAIN], ("stock", AGAIN))
    failures = []
    for name, run in found.items():
        failures += [f"{name}: {problem}" for problem in run["problems"]]
        if name in ("stock", AGAIN):
            continue
        for stressor, text in differences(results["stock"], results[name],
                                          ("stock", name)).items():
            if stressor not in flaky:
                failures.append(f"{stressor} differs:\n    {text}")
    passed = sum(row["status"] == "pass" for row in results["stock"].values())
    if passed < len(results["stock"]) / 2:
        failures.append(f"{passed} of {len(results['stock'])} stressors pass on the unpatched "
                        "kernel: this proves little")
    return flaky, failures


def keep(began, kernels, found, flaky, failures):
    """How each stressor ended in each run."""
    now = datetime.datetime.now(datetime.timezone.utc)
    put_json(RESULT, {
        "date": began.isoformat(timespec="seconds"),
        "command": shlex.join(["ramlab", "stress-classes", *sys.argv[1:]]),
        "kernels": [provenance(kernel, flavour) for flavour, kernel in kernels.items()],
        "elapsed_minutes": round((now - began).total_seconds() / 60, 1),
        "differences": failures,
        "flaky": flaky,
        "least_share_of_free_memory_off": min(found["slices off"]["share_off"]),
        "woken_by_demand": found["slices off"]["woken_by_demand"],
        "stressors": {stressor: {name: run["results"].get(stressor, {}).get("status", "did not run")
                                 for name, run in found.items()}
                      for stressor in found["stock"]["results"]},
    })


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5,
                        help="for each stressor (default 5)")
    parser.add_argument("--most", type=int, metavar="N", help="stressors of each class")
    parser.add_argument("--keep", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these stressors alone")
    args = parser.parse_args()
    if args.seconds <= 0 or args.most is not None and args.most < 1:
        parser.error("--seconds must be above 0, --most at least 1")

    # One image cannot be two kernels.
    os.environ.pop("RAMSLICE_IMAGE", None)
    kernels = {flavour: image(flavour) for flavour in ("stock", "plain")}
    began = datetime.datetime.now(datetime.timezone.utc)
    found = {}
    for name in (*RUNS, AGAIN):
        print(f"{name}:", flush=True)
        found[name] = run_classes(name, kernels, args)
    flaky, failures = judge(found)
    for stressor, text in flaky.items():
        print(f"flaky, on the unpatched kernel already: {stressor}:\n    {text}")
    for failure in failures:
        print(f"FAILED: {failure}")
    if args.keep:
        keep(began, kernels, found, flaky, failures)
    off = found["slices off"]
    print(f"stress-classes: {len(found['stock']['results'])} stressors; at least "
          f"{min(off['share_off']):.0%} of free memory was off when one began, "
          f"{off['woken_by_demand']} slices woke on demand")
    if failures:
        die(f"{len(failures)} differences or problems")


if __name__ == "__main__":
    main()
