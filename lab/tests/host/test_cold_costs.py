# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that measure what cold memory costs, on this machine; what an unmapped page is."""

import json
import statistics
import subprocess

import pytest

from ramlab import guest_programs
from ramlab.guest import cold_places


@pytest.fixture(scope="module")
def programs():
    return guest_programs.build()


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def test_faults_of_each_kind_are_measured_in_turns(programs):
    status, found = run(programs / "cold_faults", 4, 3, "both")
    assert status == 0
    assert {len(found["hot"]), len(found["cold"])} == {3}
    assert statistics.median(found["hot"] + found["cold"]) > 100
    _, found = run(programs / "cold_faults", 4, 2, "hot")
    assert "cold" not in found


@pytest.mark.parametrize("words", [(), (4, 3, "tepid"), (0, 3, "hot"), (4, 101, "hot")])
def test_words_that_measure_nothing_are_refused(programs, words):
    status, said = run(programs / "cold_faults", *words)
    assert (status, said.split(":")[0]) == (2, "usage")


def test_each_access_is_counted_and_checked(programs):
    ktps, window = 20, 2
    status, found = run(programs / "page_accesses", 4096, ktps, 1, window, 7)
    assert (status, found["wrong"], found["pages"]) == (0, 0, 1024)
    assert found["accesses"] == ktps * 1000 * window
    # All of memory here is one node's, or node 0's first
    assert len(found["away"]) == 1
    assert found["clairvoyant_share"] <= 1
    if not found["pages_away"]:
        assert (found["cold"], found["clairvoyant_share"]) == (0, 0)


@pytest.mark.parametrize("bits,kind", [
    ([], "free"), ([cold_places.BUDDY], "free"), ([cold_places.OFFLINE], "free"),
    ([cold_places.LRU, cold_places.SWAP_CACHE, cold_places.SWAP_BACKED], "swap cache"),
    ([cold_places.LRU, cold_places.SWAP_BACKED], "tmpfs"), ([cold_places.LRU], "page cache"),
    ([cold_places.ANON], "in flight"),
])
def test_what_an_unmapped_page_is(bits, kind):
    assert cold_places.kind_unmapped(sum(1 << bit for bit in bits)) == kind
