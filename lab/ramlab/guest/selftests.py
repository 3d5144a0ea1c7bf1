# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the kernel's own tests and reports how each ended, on any of our kernels.

Runs in a guest with an empty disk. The tests come as JSON on the command line: name, seconds, huge
pages, command. With --slices-off, the simulated controller is loaded and all possible slices go
offline before each test. Prints one line of JSON: for each test its status and the lines of its
report, without what differs from run to run.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as rs

SKIP = 4
TAP = re.compile(
    r"^\s*(?P<not>not )?ok\s+(\d+\s*)?(-\s*)?(?P<name>.*?)\s*"
    r"(#\s*(?P<why>SKIP|XFAIL|TODO)\b\s*(?P<reason>.*))?$",
    re.I,
)
# All of a test left out
NO_PLAN = re.compile(r"^1\.\.0\s*#\s*SKIP\s+(?P<why>.*)", re.I)
# Tests with a format of their own: uffd-unit-tests, and mem-on-off-test.sh when it leaves something
# out
TESTING = re.compile(r"^Testing (?P<name>.*)\.\.\. (?P<result>done|skipped|failed)")

LEFT_OUT = re.compile(r"^skip (all|extra) tests: (?P<why>.*)")


def without_chance(text):
    """Addresses, times and amounts differ from run to run."""
    text = re.sub(r"0x[0-9a-f]+", "ADDRESS", text)
    text = re.sub(r"\b\d+(\.\d+)? ?(ns|us|ms|s|seconds?|MiB/s|MB/s)\b", "TIME", text)
    return re.sub(r"\b\d{5,}\b", "NUMBER", text)


def report(output):
    """The verdicts in a test's output, in order: ["ok: name", ...]."""
    lines = []
    for line in output.splitlines():
        if match := TAP.match(line):
            verdict = "not ok" if match["not"] else (match["why"] or "ok").lower()
            # Some name what they skip in place of the reason
            lines.append(f"{verdict}: {without_chance(match['name'] or match['reason'] or '')}")
        elif match := NO_PLAN.match(line):
            lines.append(f"skip: {without_chance(match['why'])}")
        elif match := TESTING.match(line):
            lines.append(f"{match['result']}: {without_chance(match['name'])}")
        elif match := LEFT_OUT.match(line):
            lines.append(f"skip: {match['why']}")
    return lines


def last_line(output):
    """What a test said last: why it left everything out, for one that did."""
    lines = output.split("\n")
    return without_chance(next((line.strip() for line in reversed(lines) if line.strip()), ""))


@contextlib.contextmanager
def mounted_for(name):
    """Control groups with huge pages in memory.current, for the one test of it; in others that
    would change what they count.
    """
    if name != "test_hugetlb_memcg":
        yield
        return
    remount = ["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup", "-o"]
    subprocess.run([*remount, "remount,memory_hugetlb_accounting"], check=True)
    try:
        yield
    finally:
        subprocess.run([*remount, "remount"], check=True)


def huge_pages(number):
    """The pool as the test wants it; the test says itself if that is too little."""
    path = "/proc/sys/vm/nr_hugepages"
    if int(rs.read(path)) != number:
        rs.write(path, number)
    return int(rs.read(path))


def with_disk_as_root(command, disk):
    """The command with the disk as its root directory, in mounts of its own.

    test_kmem counts dentries of names in / that are not there; the guest's own root, which is the
    host's, keeps none of those.
    """
    script = """
        disk=$1; shift
        for name in bin dev etc lib lib64 proc sys usr; do
            mkdir -p "$disk/$name" && mount --rbind "/$name" "$disk/$name" || exit 1
        done
        exec chroot "$disk" "$@"
    """
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(disk), *command]


def run(test, folder):
    """Runs one test; its status, report, and output."""
    where = folder / "mm"
    command = test["command"]
    if test["name"] == "test_kmem":
        command = with_disk_as_root([f"/{folder.name}/{command[0]}"], folder.parent)
    elif "/" in command[0] and not command[0].startswith("./"):
        inner, name = command[0].split("/")
        where, command = folder / inner, [f"./{name}", *command[1:]]
    # As kselftest's runner does: otherwise children print again what the test has buffered
    command = ["stdbuf", "--output=L", *command]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output = process.communicate(timeout=test["seconds"])[0]
        status = {0: "pass", SKIP: "skip"}.get(process.returncode, f"fail ({process.returncode})")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0]
        status = "time-out"
    text = output.decode(errors="replace")
    return {
        "status": status,
        "report": report(text),
        "last_line": last_line(text),
        "seconds": round(time.monotonic() - began, 1),
    }, text


class SlicesOff:
    """Has most of the free memory switched off when a test begins, but what it needs awake."""

    def __init__(self):
        harness.load_sim()
        self.device = rs.Device()
        self.shares = []
        self.problems = []

    def before(self, name, awake_mib=0):
        harness.compact(self.device)
        for number in harness.ids(self.device, rs.OFFLINE):
            info = self.device.info()
            if info.free_pages * info.page_bytes >= awake_mib * harness.MIB:
                break
            self.device.request("online", id=number, wait_busy=10)
        info = self.device.info()
        self.shares.append(info.offline_pages / (info.offline_pages + info.free_pages))
        if self.shares[-1] < 0.5:
            self.problems.append(
                f"before {name}, only {self.shares[-1]:.0%} of free memory was off: this proves"
                " little"
            )

    def end(self):
        demand = harness.woken_by_demand(self.device)
        done = self.device.request("online_all")
        if done.status:
            self.problems.append(f"not everything wakes: {done}")
        if harness.violations():
            self.problems.append(
                f"{harness.violations()} words were written to in slices that were off"
            )
        if not demand:
            self.problems.append("no slice was woken by demand: this proves nothing")
        return {"share_off": [round(share, 2) for share in self.shares], "woken_by_demand": demand}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--built", type=Path, required=True, help="folder with the built tests")
    parser.add_argument("--slices-off", action="store_true")
    parser.add_argument("--output", type=Path, help="folder for the tests' output")
    parser.add_argument("tests", help="JSON")
    args = parser.parse_args()

    rs.debugfs()
    disk = rs.file_system()
    if not disk:
        sys.exit("selftests.py: no disk: start the guest with --disk 1G")
    rs.swap_on_zram(512)
    folder = Path(disk) / "selftests"
    shutil.copytree(args.built, folder)
    os.chmod(disk, 0o755)
    off = SlicesOff() if args.slices_off else None
    results, problems = {}, []
    for test in json.loads(args.tests):
        label = test.get("label", test["name"])
        huge_pages(0)
        rs.write("/proc/sys/vm/drop_caches", 3)
        if off:
            off.before(test["name"], test.get("awake_mib", 0))
        got = huge_pages(test["huge"])
        with mounted_for(test["name"]):
            result, text = run(test, folder)
        results[label] = result
        if got != test["huge"]:
            problems.append(f"{test['name']}: {got} of {test['huge']} huge pages")
        if args.output:
            (args.output / f"{label}.txt").write_text(text)
        print(
            f"{label}: {result['status']}, {len(result['report'])} verdicts,"
            f" {result['seconds']} s",
            flush=True,
        )
    huge_pages(0)
    more = off.end() if off else {}
    problems += off.problems if off else []
    if Path("/dev/ramslice").exists():
        try:
            rs.verify()
        except rs.AccountingError as error:
            problems.append(f"the counters are not true: {error}")
    print(json.dumps({"results": results, "problems": problems, **more}), flush=True)


if __name__ == "__main__":
    main()
