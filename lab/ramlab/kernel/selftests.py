#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the kernel's own tests of mm and memory hotplug on unpatched and patched kernels.

Usage: ramlab selftests [--all] [NAME...]

Each kernel of the same source and configuration runs the tests of lab/ramlab/kernel/selftests.list,
the patched one a second time with most of its free memory switched off. With --all, the longer
tests run too, and the unpatched kernel runs everything twice: what differs there is flaky, and
named. Any other difference, in a test's status or in one verdict of its report, fails;
results/selftests.json keeps how each test ended. Tests are built once, from the kernel's source,
into the cache. Outputs: out/selftests.
RAMSLICE_IMAGE_STOCK and RAMSLICE_IMAGE_PLAIN name other images than those that the checkout makes.
"""

import argparse
import concurrent.futures
import contextlib
import copy
import datetime
import difflib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ramlab.common import CACHE, OUT, ROOT, die, locked, provenance, put_json, run
from ramlab.kernel.images import image
from ramlab.kernel.source import Source

LIST = ROOT / "lab/ramlab/kernel/selftests.list"
RESULT = ROOT / "results/selftests.json"
FORMAT = 1  # raised when build() changes
LIBRARIES = ["libcap-dev", "liburing-dev", "libnuma-dev"]
FOLDER = Path("tools/testing/selftests")
# name -> (flavour, with slices off)
RUNS = {"stock": ("stock", False), "patched": ("plain", False), "slices off": ("plain", True)}


def read_list():
    """The tests that run, as dictionaries, and what is left out."""
    tests, out = [], {}
    for line in LIST.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        kind, rest = line.split(None, 1)
        if kind == "out":
            name, reason = rest.split(":", 1)
            out[name] = reason.strip()
        elif kind in ("quick", "all"):
            name, seconds, huge, *command = rest.split()
            tests.append({"set": kind, "name": name, "seconds": int(seconds), "huge": int(huge),
                          "command": command})
        else:
            die(f"{LIST}: no such set: {kind}")
    return tests, out


# --- build ---


def build(tests):
    """The folder with the built tests, from the cache if it is there."""
    source = Source()
    made_of = [str(FORMAT), source.sha256, run(["gcc", "--version"]),
               run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *LIBRARIES])]
    store = CACHE / "selftests" / hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    if not store.exists():
        with locked("selftests"):
            if not store.exists():
                if not source.pristine.exists():
                    with locked("kernel"):
                        source.extract()
                compile_tests(source.pristine, store)
    missing = [test["name"] for test in tests if not program(store, test).exists()]
    if missing:
        die(f"these did not build: {', '.join(missing)}; see {CACHE / 'logs/selftests.log'}")
    return store


def program(store, test):
    """The file that a test's command starts."""
    for word in test["command"]:
        if word.startswith("./"):
            return store / "mm" / word[2:]
        if "/" in word:
            return store / word
    die(f"{LIST}: {test['name']} runs nothing of ours")


def compile_tests(tree, store):
    """Builds in a copy: these makefiles write into the source."""
    fresh = store.with_name(f"{store.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    copy_ = fresh / "source"
    (copy_ / FOLDER).mkdir(parents=True)
    for name in ("mm", "memory-hotplug", "x86", "kselftest"):
        shutil.copytree(tree / FOLDER / name, copy_ / FOLDER / name)
    for path in [*(tree / FOLDER).glob("*.h"), tree / FOLDER / "lib.mk"]:
        shutil.copy2(path, copy_ / FOLDER)
    for name in ("tools/include", "include/vdso"):
        shutil.copytree(tree / name, copy_ / name)
    (copy_ / "mm").mkdir()
    shutil.copy2(tree / "mm/gup_test.h", copy_ / "mm")
    log = CACHE / "logs/selftests.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"building the kernel's own tests (about a minute); log: {log}", flush=True)
    with open(log, "w") as out:
        for command in (
            ["make", "-s", "-C", tree, f"O={fresh}/headers", f"INSTALL_HDR_PATH={copy_}/usr",
             "headers_install"],
            # One that does not build must not keep the others from it; a test that needs it says so
            ["make", "-k", f"-j{os.cpu_count()}", "-C", copy_ / FOLDER / "mm"],
        ):
            subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
                           check=False, env={**os.environ, "LC_ALL": "C"})
    for name in ("mm", "memory-hotplug"):
        shutil.copytree(copy_ / FOLDER / name, fresh / name,
                        ignore=shutil.ignore_patterns("*.c", "*.o"))
    shutil.rmtree(copy_)
    shutil.rmtree(fresh / "headers", ignore_errors=True)
    fresh.rename(store)


# --- run ---


def run_tests(name, kernels, built, tests, mem):
    """Boots a kernel and runs the tests on it; what the guest reports."""
    flavour, off = RUNS[name.removesuffix(" again")]
    output = OUT / "selftests" / name.replace(" ", "-")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    command = [
        "lab/bin/ramlab", "vm", "--quiet", "--kernel", flavour, "--mem", mem, "--disk", "1G",
        "--rw", str(output),
        "--append", "secretmem.enable=1" + (" ramslice=16M" if flavour == "plain" else ""),
        "--timeout", str(300 + sum(test["seconds"] for test in tests)),
        "--console", str(output / "console"), "--",
        "python3", "-m", "ramlab.guest.selftests", "--built", str(built), "--output", str(output),
        *(["--slices-off"] if off else []), json.dumps(tests),
    ]
    environment = os.environ | {"RAMSLICE_IMAGE": str(kernels[flavour])}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                               text=True, errors="replace")
    found = None
    try:
        for line in process.stdout:
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
            else:
                print(f"{name}: {line}", end="", flush=True)
        status = process.wait()
    finally:
        process.terminate()
        process.wait()
    if status or not found:
        die(f"{name}: the guest ended with status {status}")
    (output / "results.json").write_text(json.dumps(found, indent=1))
    return found


# --- compare ---


def differences(one, two, names=("stock", "patched")):
    """Test -> what differs, as text."""
    found = {}
    for test in sorted(set(one) | set(two)):
        if test not in one or test not in two:
            found[test] = f"ran on one of them only: {names[0] if test in one else names[1]}"
            continue
        a, b = one[test], two[test]
        lines = []
        if a["status"] != b["status"]:
            lines = [f"{names[0]}: {a['status']}", f"{names[1]}: {b['status']}"]
        # How far a test got before its time was over is chance
        if a["report"] != b["report"] and "time-out" not in (a["status"], b["status"]):
            diff = difflib.unified_diff(a["report"], b["report"], *names, lineterm="", n=0)
            lines += list(diff)[:30]
        if lines:
            found[test] = "\n    ".join(lines)
    return found


def check_comparison(results):
    """The comparison must see what differs: a status, a verdict, a test that is missing."""
    name = max(results, key=lambda test: len(results[test]["report"]))
    for spoil in (
        lambda r: r[name].update(status="fail (1)"),
        lambda r: r[name]["report"].pop(),
        lambda r: r.pop(name),
        lambda r: r[name]["report"].__setitem__(0, "not ok: " + r[name]["report"][0]),
    ):
        spoilt = copy.deepcopy(results)
        spoil(spoilt)
        if list(differences(results, spoilt)) != [name]:
            die("the comparison does not notice differences")


def keep(began, kernels, found, flaky, failures):
    """How each test ended in each run, for those who do not want to run them for half an hour."""
    results = {name: run["results"] for name, run in found.items()}
    put_json(RESULT, {
        "date": began.isoformat(timespec="seconds"),
        "command": shlex.join(["ramlab", "selftests", *sys.argv[1:]]),
        "kernels": [provenance(kernel, flavour) for flavour, kernel in kernels.items()],
        "elapsed_minutes": round(
            (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds() / 60, 1),
        "differences": failures,
        "flaky": flaky,
        "share_of_free_memory_off": found["slices off"]["share_off"],
        "woken_by_demand": found["slices off"]["woken_by_demand"],
        "tests": {test: {"verdicts": len(result["report"])} |
                  {name: results[name].get(test, {"status": "did not run"})["status"]
                   for name in results}
                  for test, result in results["stock"].items()},
    })


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true",
                        help="the longer tests, too, and twice on the unpatched kernel")
    parser.add_argument("--mem", default="2G", help="the guests' memory (default 2G)")
    parser.add_argument("--list", action="store_true",
                        help="say what runs and what does not, and why")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these tests only")
    args = parser.parse_args()

    # One image cannot be two kernels.
    os.environ.pop("RAMSLICE_IMAGE", None)
    tests, left_out = read_list()
    if args.list:
        for test in tests:
            print(f"{test['set']}: {test['name']}: {' '.join(test['command'])} "
                  f"(at most {test['seconds']} s)")
        for name, reason in left_out.items():
            print(f"left out: {name}: {reason}")
        return
    if unknown := set(args.names) - {test["name"] for test in tests}:
        die(f"no such test: {', '.join(sorted(unknown))}")
    tests = [test for test in tests if test["name"] in args.names or
             not args.names and (args.all or test["set"] == "quick")]
    built = build(tests)
    runs = [*RUNS, *(["stock again"] if args.all else [])]
    kernels = {flavour: image(flavour) for flavour in ("stock", "plain")}
    began = datetime.datetime.now(datetime.timezone.utc)
    with concurrent.futures.ThreadPoolExecutor(max(1, min(len(runs), os.cpu_count() or 1))) as pool:
        found = dict(zip(runs, pool.map(
            lambda name: run_tests(name, kernels, built, tests, args.mem), runs)))

    stock = found["stock"]["results"]
    check_comparison(stock)
    flaky = {}
    if args.all:
        flaky = differences(stock, found["stock again"]["results"], ("stock", "stock again"))
    for test, text in flaky.items():
        print(f"flaky, on the unpatched kernel already: {test}:\n    {text}")
    failures = []
    for name in ("patched", "slices off"):
        failures += [f"{name}: {problem}" for problem in found[name]["problems"]]
        for test, text in differences(stock, found[name]["results"], ("stock", name)).items():
            if test in flaky:
                print(f"not compared, because it is flaky: {test}")
            else:
                failures.append(f"{test} differs:\n    {text}")
    for failure in failures:
        print(f"FAILED: {failure}")
    if args.all and not args.names:
        keep(began, kernels, found, flaky, failures)
    statuses = [result["status"].split()[0] for result in stock.values()]
    verdicts = sum(len(result["report"]) for result in stock.values())
    off = found["slices off"]
    print(f"selftests: {len(stock)} tests with {verdicts} verdicts: " +
          ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses))) +
          f"; with slices off, {min(off['share_off']):.0%} to {max(off['share_off']):.0%} "
          "of free memory were off when a test began, "
          f"{off['woken_by_demand']} slices woke on demand")
    if failures:
        die(f"{len(failures)} differences or problems")
    if statuses.count("pass") < len(stock) / 2:
        die("most tests do not pass on the unpatched kernel either: this proves little")
    print("selftests: the same on both kernels, and with slices off")


if __name__ == "__main__":
    main()
