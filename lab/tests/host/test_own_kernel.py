# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands that only look, on the kernel that the tests run on, which no part of the lab chose.

What a kernel does not have is no reason to skip: the command then has to say the sentence that
documents it.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

BLOCKS = Path("/sys/devices/system/memory")
# Each with the words that its output has to have
LOOKS = {
    "status": "slices of ",
    "slices": "physical address",
    "map": "movable",
    "explain --all": "",
    "census": "slice",
    "compact --dry-run": "would switch off|nothing to switch off|ended:",
    "top --once": "slices",
}


def missing():
    """What this kernel or user lacks for memory hotplug: the words that an error needs, or None."""
    numbers = list(BLOCKS.glob("memory[0-9]*"))
    if not numbers:
        return "CONFIG_MEMORY_HOTPLUG"
    if not (numbers[0] / "valid_zones").exists():
        return "CONFIG_MEMORY_HOTREMOVE"
    if not Path("/proc/kpageflags").exists():
        return "CONFIG_PROC_PAGE_MONITOR"
    if os.geteuid():
        return "only root"
    return None


@pytest.fixture
def look(ramslice_program):
    def run(*words):
        return subprocess.run([ramslice_program, *words], text=True, capture_output=True)

    return run


@pytest.mark.parametrize("words", LOOKS)
def test_a_command_that_only_looks_works_or_says_what_is_missing(look, words):
    done = look("--backend", "stock", *words.split())
    if missing():
        assert done.returncode == 2
        assert missing() in done.stderr
        assert done.stdout == ""
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(LOOKS[words], done.stdout)


@pytest.fixture
def without_hotremove(tmp_path):
    """A folder of memory blocks as a kernel without CONFIG_MEMORY_HOTREMOVE shows them."""
    (tmp_path / "block_size_bytes").write_text("8000000\n")
    for number in range(2):
        block = tmp_path / f"memory{number}"
        block.mkdir()
        for name, text in (("state", "online"), ("phys_index", f"{number:08x}"), ("removable", 1)):
            (block / name).write_text(f"{text}\n")
    return tmp_path


@pytest.mark.skipif(not BLOCKS.is_dir(), reason="this kernel has no folder to put others over")
@pytest.mark.parametrize("words", [*LOOKS, "offline 0", "compact", "online --all"])
def test_each_command_names_the_lack_of_hotremove(ramslice_program, without_hotremove, words):
    """In a namespace of mounts of its own."""
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    allowed = subprocess.run([*own, "true"], text=True, capture_output=True)
    if allowed.returncode:
        pytest.skip(f"no namespaces of its own here: {allowed.stderr.strip()}")
    done = subprocess.run(
        [*own, "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh",
         without_hotremove, BLOCKS, ramslice_program, "--backend", "stock", *words.split()],
        text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is built without CONFIG_MEMORY_HOTREMOVE" in done.stderr
    assert "valid_zones is missing" in done.stderr


@pytest.fixture
def status(look):
    done = look("--backend", "stock", "--json", "status")
    if missing():
        assert missing() in done.stderr
        return None
    return json.loads(done.stdout)


def zoneinfo():
    """[(present, managed)] of the zones."""
    text = Path("/proc/zoneinfo").read_text()
    return [tuple(int(re.search(rf"^ +{name} +(\d+)$", zone, re.M)[1])
                  for name in ("present", "managed"))
            for zone in text.split("\nNode ")]


def test_slices_and_memory_are_those_of_the_kernel(status):
    if status is None:
        return
    info, slices = status["info"], status["snapshot"]["slices"]
    blocks = {int(path.name[6:]) for path in BLOCKS.glob("memory[0-9]*")}
    each = info["slice_bytes"] // int((BLOCKS / "block_size_bytes").read_text(), 16)
    assert {row["id"] for row in slices} == {block // each for block in blocks}
    page = os.sysconf("SC_PAGE_SIZE")
    assert info["page_bytes"] == page
    managed = sum(managed for _, managed in zoneinfo())
    # It changes while a kernel still hands out memory
    assert info["managed_pages"] == pytest.approx(managed, rel=0.02)
    for row in slices:
        assert row["present_pages"] * page <= info["slice_bytes"]


def test_memory_that_the_allocator_does_not_have_is_named(status):
    """With the descriptors of pages initialised late, on demand, it is most of it after boot."""
    if status is None:
        return
    total = int(re.search("MemTotal: +([0-9]+)", Path("/proc/meminfo").read_text())[1]) * 1024
    lacks = total - sum(managed for _, managed in zoneinfo()) * os.sysconf("SC_PAGE_SIZE")
    named = [row for row in status["snapshot"]["slices"] if row["reason"] == "not-given"]
    slice_bytes = status["info"]["slice_bytes"]
    if lacks > 2 * slice_bytes:
        assert lacks * 0.8 <= len(named) * slice_bytes <= lacks * 1.5 + 2 * slice_bytes
    elif lacks <= 0:
        assert named == []


def test_the_machine_is_described(look):
    done = look("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search("^power down +[0-9]", done.stdout, re.M)
    count = len(list(BLOCKS.glob("memory[0-9]*")))
    assert re.search(rf"^memory hotplug +{count} blocks of ", done.stdout, re.M) or not count
