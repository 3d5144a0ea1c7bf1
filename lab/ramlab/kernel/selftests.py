#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the kernel's own tests of mm, memory hotplug, DAMON and control groups (memory) on
unpatched and patched kernels.

Usage: ramlab selftests [--all] [--jobs N] [--resume] [NAME...]

Each kernel of the same source and configuration runs the tests of lab/ramlab/kernel/selftests.list,
the patched one a second time with most of its free memory switched off. With --all, the longer
tests run too, and the unpatched kernel runs everything twice; what differs between kernels then, it
runs eight times more. What differs on it is flaky, and named. Any other difference, in a test's
status or in one verdict of its report, fails. NAME is a
test or a folder (mm, memory-hotplug, damon, cgroup). With --all, results/selftests.json keeps how
each test of a folder ended. Tests are built once, from the kernel's source, into the cache.
Outputs: out/selftests. --resume takes the runs there that came to their end, with the same kernel
and memory, and with tests of these names, and does the others.
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
FORMAT = 2  # raised when build() changes
LIBRARIES = ["libcap-dev", "liburing-dev", "libnuma-dev"]
FOLDER = Path("tools/testing/selftests")
# The folders of tests, and those whose headers or scripts they need
FOLDERS = ("mm", "memory-hotplug", "damon", "cgroup")
NEEDED = ("x86", "kselftest", "clone3", "pidfd")
# name -> (flavour, with slices off)
RUNS = {"stock": ("stock", False), "patched": ("plain", False), "slices off": ("plain", True)}
# The unpatched kernel once more, to see what differs without us
AGAIN = "stock again"
# So often it runs what differs: a test that passes once in four then ends alike in one of ten
REPEATS = 8


def read_list():
    """The tests that run, as dictionaries, and what is left out."""
    tests, out, awake = [], {}, {}
    for line in LIST.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        kind, rest = line.split(None, 1)
        if kind == "out":
            name, reason = rest.split(":", 1)
            out[name] = reason.strip()
        elif kind == "awake":
            what, reason = rest.split(":", 1)
            name, mib = what.split()
            awake[name] = {"awake_mib": int(mib), "why_awake": reason.strip()}
        elif kind in ("quick", "all"):
            name, seconds, huge, *command = rest.split()
            tests.append({"set": kind, "name": name, "seconds": int(seconds), "huge": int(huge),
                          "command": command})
        else:
            die(f"{LIST}: no such set: {kind}")
    if unknown := set(awake) - {test["name"] for test in tests}:
        die(f"{LIST}: memory awake for no test of the list: {', '.join(sorted(unknown))}")
    return [test | awake.get(test["name"], {}) for test in tests], out


def place(test):
    """(folder, file) of what a test's command starts."""
    for word in test["command"]:
        if word.startswith("./"):
            return "mm", word[2:]
        if "/" in word:
            return tuple(word.split("/", 1))
    die(f"{LIST}: {test['name']} runs nothing of ours")


def chosen(tests, names, everything):
    """The tests that names pick: themselves, or by their folder; without names, of all folders.

    Of a folder they are the quick ones, or everything.
    """
    if unknown := set(names) - {test["name"] for test in tests} - set(FOLDERS):
        die(f"no such test: {', '.join(sorted(unknown))}")
    folders = set(names or FOLDERS)
    return [test for test in tests if test["name"] in names or
            place(test)[0] in folders and (everything or test["set"] == "quick")]


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
    missing = [test["name"] for test in tests if not store.joinpath(*place(test)).exists()]
    if missing:
        die(f"these did not build: {', '.join(missing)}; see {CACHE / 'logs/selftests.log'}")
    return store


def compile_tests(tree, store):
    """Builds in a copy: these makefiles write into the source."""
    fresh = store.with_name(f"{store.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    copy_ = fresh / "source"
    (copy_ / FOLDER).mkdir(parents=True)
    for name in (*FOLDERS, *NEEDED):
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
            *(["make", "-k", f"-j{os.cpu_count()}", "-C", copy_ / FOLDER / name]
              for name in FOLDERS),
        ):
            subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
                           check=False, env={**os.environ, "LC_ALL": "C"})
    for name in FOLDERS:
        shutil.copytree(copy_ / FOLDER / name, fresh / name,
                        ignore=shutil.ignore_patterns("*.c", "*.o"))
    shutil.rmtree(copy_)
    shutil.rmtree(fresh / "headers", ignore_errors=True)
    fresh.rename(store)


# --- run ---


def finished(path, made_of, tests):
    """What an earlier run reported, as far as it is about these tests; None if it cannot stand for
    a run of them.
    """
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    names = [test["name"] for test in tests]
    if found.get("made_of") != made_of or not set(names) <= set(found["results"]):
        return None
    return found | {"results": {name: found["results"][name] for name in names}}


def run_tests(name, kernels, built, tests, mem, resume=False):
    """Boots a kernel and runs the tests on it; what the guest reports."""
    flavour, off = RUNS["stock" if name.startswith(AGAIN) else name]
    output = OUT / "selftests" / name.replace(" ", "-")
    made_of = {"kernel": kernels[flavour].name, "tests": built.name, "mem": mem}
    if resume and (found := finished(output / "results.json", made_of, tests)):
        print(f"{name}: as it ended before", flush=True)
        return found
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
    put_json(output / "results.json", found | {"made_of": made_of})
    return found


def repeat(kernels, built, tests, mem):
    """Runs tests REPEATS times in one guest of the unpatched kernel; what it reports, by run."""
    names = [f"{AGAIN} {number}" for number in range(1, REPEATS + 1)]
    many = [test | {"label": f"{test['name']}, {name}"} for name in names for test in tests]
    found = run_tests(f"{AGAIN} more", kernels, built, many, mem)
    return {name: found | {"results": {test["name"]: found["results"][f"{test['name']}, {name}"]
                                       for test in tests}}
            for name in names}


# --- compare ---


def name_of(verdict):
    """The name in a line of a report: "not ok: name"."""
    return verdict.split(": ", 1)[-1]


def differences(one, two, names=("stock", "patched"), apart=None):
    """Test -> what differs, as text.

    apart: test -> names of verdicts that are not compared; the test's status follows from them.
    """
    found = {}
    for test in sorted(set(one) | set(two)):
        if test not in one or test not in two:
            found[test] = f"ran on one of them only: {names[0] if test in one else names[1]}"
            continue
        a, b, ignored = one[test], two[test], (apart or {}).get(test, set())
        lines = []
        if a["status"] != b["status"] and not ignored:
            lines = [f"{names[0]}: {a['status']}", f"{names[1]}: {b['status']}"]
        # How far a test got before its time was over is chance
        if "time-out" not in (a["status"], b["status"]):
            reports = [[line for line in run["report"] if name_of(line) not in ignored]
                       for run in (a, b)]
            diff = difflib.unified_diff(*reports, *names, lineterm="", n=0)
            lines += list(diff)[:30]
        if lines:
            found[test] = "\n    ".join(lines)
    return found


def flaky_verdicts(one, two):
    """Test -> names of verdicts that differ between two runs of the unpatched kernel, for tests
    that report the same verdicts in the same order both times.

    A test that does not, or whose verdicts do not say why its status differs, is not in it: all of
    it is flaky.
    """
    found = {}
    for test in set(one) & set(two):
        a, b = one[test]["report"], two[test]["report"]
        changed = {name_of(line) for line, other in zip(a, b) if line != other}
        if changed and [name_of(line) for line in a] == [name_of(line) for line in b]:
            found[test] = changed
    return found


def judge(found):
    """(flaky, failures) of what guests reported, by run: {test: text}, [text].

    More runs of the unpatched kernel may be there, of some tests only.
    """
    results = {name: run["results"] for name, run in found.items()}
    stock = results["stock"]
    flaky, apart = {}, {}
    for again in (name for name in results if name.startswith(AGAIN)):
        these = {test: stock[test] for test in results[again]}
        flaky = differences(these, results[again], ("stock", again)) | flaky
        for test, names in flaky_verdicts(these, results[again]).items():
            apart[test] = apart.get(test, set()) | names
    failures = []
    for name in ("patched", "slices off"):
        failures += [f"{name}: {problem}" for problem in found[name]["problems"]]
        for test, text in differences(stock, results[name], ("stock", name), apart).items():
            if test not in flaky or test in apart:
                failures.append(f"{test} differs:\n    {text}")
    return flaky, failures


def check_comparison(results):
    """The comparison must see what differs: a status, a verdict, a test that is missing."""
    name = max(results, key=lambda test: len(results[test]["report"]))
    for spoil in (
        lambda r: r[name].update(status="as no test ends"),
        lambda r: r[name]["report"].append("ok: one more"),
        lambda r: r.pop(name),
        lambda r: r[name]["report"].insert(0, "not ok: one more"),
    ):
        spoilt = copy.deepcopy(results)
        spoil(spoilt)
        if list(differences(results, spoilt)) != [name]:
            die("the comparison does not notice differences")


def kept(results, folders):
    """How each test of these folders ended in each run, and why it was skipped, by folder."""
    found = {folder: {} for folder in folders}
    for test, result in results["stock"].items():
        row = {"verdicts": len(result["report"])}
        row |= {name: run.get(test, {"status": "did not run"})["status"]
                for name, run in results.items() if name in (*RUNS, AGAIN) or test in run}
        if result["status"] == "skip":
            row["why"] = result["last_line"]
        if "awake_mib" in result:
            row["awake_mib"] = result["awake_mib"]
        found[result["folder"]][test] = row
    return found


def of_folder(failures, tests):
    """The failures without differences of tests that are in other folders."""
    return [text for text in failures
            if " differs:" not in text or text.split(" differs:")[0] in tests]


def keep(began, kernels, found, flaky, failures, folders):
    """Replaces the parts of these folders in the kept results, for those who do not want to run
    them for half an hour.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    results = {name: run["results"] for name, run in found.items()}
    shares = found["slices off"]["share_off"]
    run_ = {
        "date": began.isoformat(timespec="seconds"),
        "command": shlex.join(["ramlab", "selftests", *sys.argv[1:]]),
        "kernels": [provenance(kernel, flavour) for flavour, kernel in kernels.items()],
        "elapsed_minutes": round((now - began).total_seconds() / 60, 1),
        "least_share_of_free_memory_off": min(shares),
        "woken_by_demand": found["slices off"]["woken_by_demand"],
    }
    old = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for folder, tests in kept(results, folders).items():
        old[folder] = run_ | {
            "differences": of_folder(failures, tests),
            "flaky": {test: text for test, text in flaky.items() if test in tests},
            "tests": tests,
        }
    put_json(RESULT, old)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true",
                        help="the longer tests, too, and twice on the unpatched kernel")
    parser.add_argument("--mem", default="2G", help="the guests' memory (default 2G)")
    parser.add_argument("--list", action="store_true",
                        help="say what runs and what does not, and why")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N",
                        help="guests at the same time (default: as many as CPUs)")
    parser.add_argument("--resume", action="store_true", help="take runs that ended before")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these tests or folders only")
    args = parser.parse_args()

    # One image cannot be two kernels.
    os.environ.pop("RAMSLICE_IMAGE", None)
    tests, left_out = read_list()
    if args.list:
        for test in tests:
            print(f"{test['set']}: {test['name']}: {' '.join(test['command'])} "
                  f"(at most {test['seconds']} s)")
            if "awake_mib" in test:
                print(f"    with {test['awake_mib']} MiB awake: {test['why_awake']}")
        for name, reason in left_out.items():
            print(f"left out: {name}: {reason}")
        return
    tests = chosen(tests, args.names, args.all)
    built = build(tests)
    runs = [*RUNS, *([AGAIN] if args.all else [])]
    kernels = {flavour: image(flavour) for flavour in ("stock", "plain")}
    began = datetime.datetime.now(datetime.timezone.utc)
    with concurrent.futures.ThreadPoolExecutor(max(1, min(len(runs), args.jobs))) as pool:
        found = dict(zip(runs, pool.map(
            lambda name: run_tests(name, kernels, built, tests, args.mem, args.resume), runs)))

    stock = found["stock"]["results"]
    check_comparison(stock)
    flaky, failures = judge(found)
    if args.all and (again := [test for test in tests
                               if any(text.startswith(f"{test['name']} differs:")
                                      for text in failures)]):
        print(f"{REPEATS} times more on the unpatched kernel: "
              + ", ".join(test["name"] for test in again), flush=True)
        found |= repeat(kernels, built, again, args.mem)
        flaky, failures = judge(found)
    for test, text in flaky.items():
        print(f"flaky, on the unpatched kernel already: {test}:\n    {text}")
    for failure in failures:
        print(f"FAILED: {failure}")
    if args.all and set(args.names) <= set(FOLDERS):
        for test in tests:
            stock[test["name"]]["folder"] = place(test)[0]
            if "awake_mib" in test:
                stock[test["name"]]["awake_mib"] = test["awake_mib"]
        keep(began, kernels, found, flaky, failures, args.names or FOLDERS)
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
    if statuses.count("pass") < (len(stock) - statuses.count("skip")) / 2 or "pass" not in statuses:
        die("most tests do not pass on the unpatched kernel either: this proves little")
    print("selftests: the same on both kernels, and with slices off")


if __name__ == "__main__":
    main()
