# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own tests of ramslice run without the lab: kselftest installs them, TAP reports."""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from ramlab.common import CACHE, RAMLAB, ROOT, run
from ramlab.guest import ramslice_dev as dev
from ramlab.kernel import build
from ramlab.kernel.source import Source
from ramlab.testing.vm_command import run_vm

FOLDER = "tools/testing/selftests"
HEADER = (ROOT / "kernel/files/include/uapi/linux/ramslice.h").read_text()
OURS = ROOT / "kernel/files" / FOLDER / "mm/ramslice"
PROGRAMS = sorted(path.name for path in OURS.glob("ramslice_*.py"))
# A machine that suits all of them
MACHINE = ("--kernel", "plain", "--mem", "3G", "--append", "ramslice=32M")

pytestmark = pytest.mark.xdist_group("ramslice-selftests")


# --- the same interface as the header's -----------------------------------------


def enumeration(name, prefix=""):
    """The names of an enumeration in the header, in the order of their numbers."""
    body = re.search(rf"enum {name} {{(.*?)}};", HEADER, re.S)[1]
    found = {int(n): word for word, n in re.findall(r"^\tRAMSLICE_(\w+)\s*= (\d+),", body, re.M)}
    assert sorted(found) == list(range(len(found)))
    return [found[n].removeprefix(prefix).lower() for n in range(len(found))]


@pytest.mark.parametrize("ours, name, prefix", [
    ("STATES", "ramslice_state", ""), ("COUNTERS", "ramslice_counter", ""),
    ("OPERATIONS", "ramslice_op", "OP_"), ("CLASSES", "ramslice_page_class", "PAGE_")])
def test_names_are_the_headers(ours, name, prefix):
    assert getattr(dev, ours) == enumeration(name, prefix)


def test_reasons_are_the_headers():
    expected = [name.replace("_", "-") for name in enumeration("ramslice_reason", "REASON_")]
    assert dev.REASONS == expected


@pytest.mark.parametrize("kind, ours", [
    ("SLICE", ("UNRECLAIMABLE", "BACKOFF", "UNMOVABLE", "HELD", "STALE")),
    ("SNAPSHOT", ("FRESH",)),
    ("REQ", ("PER_SLICE", "KEEP_CACHE", "IGNORE_BACKOFF", "DRY_RUN", "AUTO_CACHE", "HOLD")),
    ("RUN", ("DROP", "LRU", "DIRTY", "WRITEBACK", "BUFFERS", "SWAPCACHE", "UNEVICTABLE",
             "MLOCKED", "KSM", "PINNED", "RUN_HWPOISON"))])
def test_flags_are_the_headers(kind, ours):
    found = dict(re.findall(rf"^#define RAMSLICE_{kind}_(\w+)\s+\(1U << (\d+)\)", HEADER, re.M))
    assert {name.removeprefix(f"{kind}_"): getattr(dev, name) for name in ours} \
        == {name: 1 << int(bit) for name, bit in found.items()}


def test_ioctl_numbers_are_the_headers():
    magic = int(re.search(r"^#define RAMSLICE_IOC_MAGIC\s+(\w+)", HEADER, re.M)[1], 16)
    call = r"^#define RAMSLICE_IOC_(\w+)\s+_IO\(RAMSLICE_IOC_MAGIC, (\d+)\)"
    found = re.findall(call, HEADER, re.M)
    assert len(found) == 6
    for name, number in found:
        assert getattr(dev, f"IOC_{name}") == magic << 8 | int(number)


@pytest.mark.parametrize("ours, name", [
    ("Info", "ramslice_info"), ("Zone", "ramslice_zone_info"), ("Slice", "ramslice_slice_info"),
    ("Snapshot", "ramslice_snapshot"), ("Request", "ramslice_request"),
    ("Run", "ramslice_page_run"), ("Pages", "ramslice_pages"), ("Segment", "ramslice_segment"),
    ("SegmentList", "ramslice_segment_list")])
def test_structures_are_the_headers(ours, name):
    types = {f"__{sign}{bits}": getattr(ctypes, f"c_{word}int{bits}")
             for sign, word in (("u", "u"), ("s", "")) for bits in (8, 16, 32, 64)}
    types["char"] = ctypes.c_char
    body = re.search(rf"^struct {name} {{(.*?)}};", HEADER, re.S | re.M)[1]
    expected = []
    for kind, field, size in re.findall(r"^\t(\w+)\s+(\w+)(?:\[(\w+)\])?;", body, re.M):
        size = size.replace("RAMSLICE_ROW_COUNTERS", str(len(dev.COUNTERS)))
        expected.append((field, types[kind] * int(size) if size else types[kind]))
    assert len(expected) == body.count(";")
    assert getattr(dev, ours)._fields_ == expected


# --- the report -----------------------------------------------------------------


@pytest.fixture(scope="module")
def tree():
    """A part of the patched kernel tree: enough for kselftest to install our tests."""
    source = Source()
    if not source.pristine.exists():
        run([RAMLAB, "kernel", "--source"])
    (CACHE / "runs").mkdir(exist_ok=True)
    # In the cache, which guests see
    with tempfile.TemporaryDirectory(prefix="selftests-", dir=CACHE / "runs") as folder:
        folder = Path(folder)
        for name in (f"{FOLDER}/Makefile", f"{FOLDER}/lib.mk", f"{FOLDER}/kselftest",
                     f"{FOLDER}/run_kselftest.sh", "scripts/subarch.include"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (source.pristine / name).is_dir() else shutil.copy2
            copy(source.pristine / name, folder / name)
        for name, (data, mode) in source.changed_files().items():
            if name.startswith(FOLDER):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
                (folder / name).chmod(mode)
        yield folder


@pytest.fixture(scope="module")
def installed(tree):
    """Our tests as kselftest installs them."""
    folder = tree / "installed"
    run(["make", "-C", tree / FOLDER, "install", "TARGETS=mm/ramslice",
         f"KSFT_INSTALL_PATH={folder}"], env=environment())
    return folder


def environment():
    """No part of the lab."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {"LC_ALL": "C"}


def python(program, *arguments):
    """Runs a program on the host, without the lab."""
    return subprocess.run(["/usr/bin/python3", program, *arguments], env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def names_in(program):
    """The names of a program's tests, Class.test."""
    found, names = None, []
    for line in (OURS / program).read_text().splitlines():
        if match := re.match(r"class (\w+)", line):
            found = match[1]
        elif match := re.match(r"    def (test_\w+)", line):
            names.append(f"{found}.{match[1]}")
    return sorted(names)


def test_kselftest_runs_the_tests_of_ramslice_by_default(tree):
    done = run(["make", "-s", "-C", tree / FOLDER, "--eval", "show: ; @echo $(TARGETS)", "show"],
               env=environment())
    assert {"mm", "mm/ramslice"} <= set(done.split())


def test_kselftest_lists_every_program(installed):
    listed = (installed / "kselftest-list.txt").read_text().split()
    assert sorted(listed) == sorted(f"mm/ramslice:{name}" for name in PROGRAMS)


@pytest.mark.skipif(Path("/dev/ramslice").exists(), reason="this machine has a /dev/ramslice")
@pytest.mark.parametrize("program", PROGRAMS)
def test_without_the_device_a_program_skips(installed, program):
    done = python(installed / "mm/ramslice" / program)
    assert done.returncode == 4, done.stdout
    assert re.fullmatch(r"TAP version 13\n1\.\.0 # SKIP .*\n", done.stdout)


REPORTING = """
import sys, unittest
sys.path.insert(0, {folder!r})
import _ramslice_harness as harness

class Kinds(unittest.TestCase):
    def test_good(self): pass
    def test_skipped(self): self.skipTest("no reason")
    def test_wrong(self): self.assertEqual(1, 2)
    def test_error(self): raise OSError("broken")
    def test_part(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)

harness.missing = lambda: None
harness.main()
"""


def test_each_kind_of_result_is_reported_and_a_failure_is_the_exit_status(installed, tmp_path):
    program = tmp_path / "kinds.py"
    program.write_text(REPORTING.format(folder=str(installed / "mm/ramslice")))
    done = python(program)
    verdicts = re.findall(r"^((?:not )?ok) \d+ Kinds\.test_(\w+) (?:# (SKIP))?$", done.stdout, re.M)
    assert verdicts == [("not ok", "error", ""), ("ok", "good", ""), ("not ok", "part", ""),
                        ("ok", "skipped", "SKIP"), ("not ok", "wrong", "")], done.stdout
    assert "1..5" in done.stdout.splitlines()
    assert re.search(r"^# .*\(number=1\)$", done.stdout, re.M), done.stdout
    assert not re.search(r"\(number=[02]\)", done.stdout)
    assert "# AssertionError: 1 != 2" in done.stdout
    assert done.returncode == 1
    assert python(program, "Kinds.test_good", "Kinds.test_skipped").returncode == 0


# --- in virtual machines --------------------------------------------------------


def test_a_program_passes_on_its_own(installed):
    program = "ramslice_events.py"
    ran = run_vm(*MACHINE, "--", "env", "-u", "PYTHONPATH", "/usr/bin/python3",
                 installed / "mm/ramslice" / program)
    passed = re.findall(r"^ok \d+ (\S+) *$", ran.output, re.M)
    assert sorted(passed) == names_in(program), ran.output
    assert f"1..{len(passed)}" in ran.output.splitlines()
    assert ran.status == 0, ran.output


@pytest.mark.slow
def test_kselftest_passes_with_every_program(installed):
    ran = run_vm(*MACHINE, "--", "env", "-u", "PYTHONPATH", installed / "run_kselftest.sh")
    passed = re.findall(r"^ok \d+ selftests: mm/ramslice: (\S+)$", ran.output, re.M)
    assert sorted(passed) == PROGRAMS, ran.output
    for program in PROGRAMS:
        for name in names_in(program):
            assert re.search(rf"^# ok \d+ {re.escape(name)} *$", ran.output, re.M), name
    assert "not ok" not in ran.output
    assert ran.status == 0, ran.output


# --- what they are no part of ---------------------------------------------------


def test_no_image_is_built_again_for_a_test_of_user_space(monkeypatch):
    source = Source()
    before = build.key(source, "plain")
    names, patches = build.overlay(), source.series()
    tools = [path for path in patches if path.parent.name == "core" and "selftests" in path.name]
    assert len(tools) == 1
    monkeypatch.setattr(source, "series", lambda: [path for path in patches if path not in tools])
    monkeypatch.setattr(build, "overlay", lambda: [n for n in names if n.parts[0] != "tools"])
    assert build.key(source, "plain") == before
    for name in ("mm/ramslice/price.c", "include/uapi/linux/ramslice.h"):
        rest = [each for each in names if str(each) != name]
        monkeypatch.setattr(build, "overlay", lambda rest=rest: rest)
        assert build.key(source, "plain") != before
    monkeypatch.setattr(build, "overlay", lambda: names)
    monkeypatch.setattr(source, "series", lambda: patches[1:])
    assert build.key(source, "plain") != before
