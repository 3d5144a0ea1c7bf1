# SPDX-License-Identifier: GPL-2.0-or-later
"""The package's own scripts wait for a request that runs and report memory that stays offline.

They run as dpkg runs them, with another /run, /sys, /etc and /var and a made-up `ramslice`.
"""

import os
import re
import shutil
import subprocess

import pytest

from ramlab.common import ROOT

BUSY = "another ramslice request is running"
BUSY_TEXT = f"{BUSY} (REQUEST on /dev/ramslice): wait until it ends"
STUCK = "slice 7: refused by the power driver"
FOREVER = 1000
# Fails until the script has slept SECONDS_OF_IT times.
TOOL = """#!/bin/sh
[ "$*" = "online --all" ] || exit 3
[ "$(wc -l <"$WORK/slept")" -lt "$SECONDS_OF_IT" ] || exit 0
echo "$MESSAGE" >&2
exit "$STATUS"
"""
SLEEP = '#!/bin/sh\necho "$1" >>"$WORK/slept"\n'
OURS = ("run/ramslice", "var/lib/ramslice", "etc/ramslice")


class Package:
    """A root of its own, in which scripts of the package run."""

    def __init__(self, root):
        self.root = root
        for name, text in (("ramslice", TOOL), ("sleep", SLEEP)):
            path = root / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        for name in OURS:
            (root / name).mkdir(parents=True)
        (root / "slept").touch()

    def script(self, name, action, **environment):
        """Runs a script of the package; returns what it says."""
        text = (ROOT / f"packaging/deb/debian/ramslice.{name}").read_text()
        path = self.root / name
        path.write_text(re.sub("/(run|sys|etc|var)/", rf"{self.root}/\1/", text))
        changed = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "WORK": str(self.root)}
        done = subprocess.run(
            ["sh", path, action], env=os.environ | changed | environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def remove(self, seconds, status, message):
        """The package is removed; for so many seconds, waking memory ends with this status."""
        return self.script("prerm", "remove", SECONDS_OF_IT=str(seconds), STATUS=str(status),
                           MESSAGE=message)

    def slept(self):
        return len((self.root / "slept").read_text().splitlines())

    def block_state(self, block):
        return self.root / f"sys/devices/system/memory/memory{block}/state"

    def purge(self, zones, **states):
        """The package is purged; it knows zones of blocks, and the machine has states."""
        for block, state in states.items():
            path = self.block_state(block.removeprefix("memory"))
            path.parent.mkdir(parents=True)
            path.write_text(f"{state}\n")
        if zones is not None:
            blocks = ",".join(f'"{block}":"{zone}"' for block, zone in zones.items())
            (self.root / "run/ramslice/stock.json").write_text(
                f'{{"slice_bytes":0,"price_100cycles":{{}},"blocks":{{{blocks}}},'
                '"failures":{},"work":null}')
        return self.script("postrm", "purge")


@pytest.fixture
def package(tmp_path):
    return Package(tmp_path)


# --- removal ---

def test_the_tool_reports_a_running_request_in_the_words_that_the_script_knows():
    # Both backends do; the rest of the message holds a path.
    sources = (ROOT / "crates/backend/src").rglob("*.rs")
    found = sum(len(re.findall(rf'^ *"{BUSY}', path.read_text(), re.M)) for path in sources)
    assert found == 2
    assert BUSY in (ROOT / "packaging/deb/debian/ramslice.prerm").read_text()


def test_removal_does_not_wait_where_memory_wakes_at_once(package):
    package.remove(0, 1, "")
    assert package.slept() == 0


def test_removal_waits_for_a_request_of_a_minute(package):
    package.remove(61, 1, BUSY_TEXT)
    assert package.slept() == 61


def test_removal_says_nothing_where_all_memory_woke(package):
    assert package.remove(61, 1, BUSY_TEXT) == ""


def test_removal_waits_at_most_70_seconds_for_a_request(package):
    package.remove(FOREVER, 1, BUSY_TEXT)
    assert package.slept() <= 70


def test_removal_reports_a_request_that_never_ends(package):
    said = package.remove(FOREVER, 1, BUSY_TEXT)
    assert f"waking it all ended with: {BUSY}" in said
    assert "until the machine restarts" in said


def test_removal_waits_at_most_20_seconds_for_memory_that_cannot_wake(package):
    package.remove(FOREVER, 1, STUCK)
    assert package.slept() <= 20


def test_removal_reports_memory_that_cannot_wake(package):
    assert "slice 7: refused" in package.remove(FOREVER, 1, STUCK)


def test_removal_does_not_ask_a_tool_again_that_cannot_work(package):
    package.remove(FOREVER, 2, "neither kernel nor hotplug")
    assert package.slept() == 0


# --- purge ---

@pytest.fixture
def purged(package):
    """What a purge reports if blocks 32 and 33 of the package and 30 of others are offline."""
    return package.purge({31: "Normal", 32: "Normal", 33: "Movable"}, memory30="offline",
                         memory31="online", memory32="offline", memory33="offline")


def test_a_purge_reports_an_offline_block_and_how_to_wake_it(package, purged):
    assert "block 32, of zone Normal" in purged
    assert f"echo online_kernel >{package.block_state(32)}" in purged


def test_a_purge_wakes_a_block_in_its_own_zone(package, purged):
    assert f"echo online_movable >{package.block_state(33)}" in purged


def test_a_purge_reports_no_other_block(purged):
    assert len(purged.splitlines()) == 2


def test_a_purge_leaves_none_of_its_folders(package, purged):
    assert not any((package.root / name).exists() for name in OURS)


def test_a_purge_says_nothing_where_the_package_took_no_block(package):
    assert package.purge(None, memory30="offline") == ""


def test_a_purge_says_nothing_where_every_block_came_back(package):
    assert package.purge({31: "Normal"}, memory31="online") == ""


def test_a_purge_keeps_other_files_in_its_settings_folder(package):
    (package.root / "etc/ramslice/local.toml").touch()
    shutil.rmtree(package.root / "run/ramslice")
    package.purge(None)
    assert (package.root / "etc/ramslice/local.toml").exists()
