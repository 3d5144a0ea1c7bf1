# SPDX-License-Identifier: GPL-2.0-or-later
"""Each pageblock keeps its migrate type while its slice is emptied, offline, and online again.

A slice is two pageblocks, so that kernel pages of other tests keep few of them online.
"""

import collections
import contextlib
import fcntl
import os
import re
import tempfile
from pathlib import Path

import pytest

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, check_contents
from ramlab.guest.pinned_memory import PageMovementTest, PatternedMemory
from ramlab.pytest_vm import vm

pytestmark = [pytest.mark.slow, vm(mem="1G", append="ramslice=4M", fresh=True)]

POLICY = dev.SYSFS / "placement/policy"
F_SETPIPE_SZ = 1031
MIGRATE_UNMOVABLE, MIGRATE_MOVABLE, MIGRATE_RECLAIMABLE, MIGRATE_ISOLATE = 0, 1, 2, 5
NAMES = {
    MIGRATE_UNMOVABLE: "Unmovable",
    MIGRATE_MOVABLE: "Movable",
    MIGRATE_RECLAIMABLE: "Reclaimable",
}


def sums():
    """{name: pageblocks} of each type over all zones, as /proc/pagetypeinfo prints them."""
    text = dev.read("/proc/pagetypeinfo")
    found = collections.Counter()
    for head, *rows in (part.splitlines() for part in text.split("Number of blocks type")[1:]):
        for row in rows:
            if "zone" not in row:
                break
            for name, number in zip(head.split(), re.split(r"zone\s+\w+\s+", row)[1].split()):
                found[name] += int(number)
    return {name: nr for name, nr in found.items() if nr}


@contextlib.contextmanager
def pipes(mib):
    """Kernel pages, which hold the data of pipes."""
    held, block = [], bytes(MIB)
    try:
        for _ in range(mib):
            out, into = os.pipe2(os.O_NONBLOCK)
            held += [out, into]
            fcntl.fcntl(into, F_SETPIPE_SZ, MIB)
            if os.write(into, block) != MIB:
                raise AssertionError("a pipe took less")
        yield
    finally:
        for fd in held:
            os.close(fd)


@contextlib.contextmanager
def takeovers():
    """[(first page frame, pages, type)] of pageblocks that allocations take over.

    Complete at the end.
    """
    taken = []
    with pinned_memory.traced("kmem/mm_page_alloc_extfrag") as lines:
        yield taken
        for line in lines():
            if line.endswith("change_ownership=1"):
                fields = dict(word.split("=") for word in line.split() if "=" in word)
                taken.append((
                    int(fields["pfn"], 0),
                    1 << int(fields["fallback_order"]),
                    int(fields["alloc_migratetype"]),
                ))


class Types(PageMovementTest):
    mixed = False

    def setUp(self):
        super().setUp()
        if not Types.mixed:
            Types.mixed = True
            self.mix()

    def mix(self):
        """Leaves free pageblocks behind that were used for kernel pages and objects."""
        before = sums()
        # Links of one file with names so long that each is an object of its own
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            Path(folder, "file").touch()
            for number in range(72000):
                os.link(f"{folder}/file", f"{folder}/{number:0200}")
        with pipes(160):
            pass
        for _ in range(3):
            dev.write("/proc/sys/vm/drop_caches", 3)
        after = sums()
        self.assertGreater(after["Unmovable"], before["Unmovable"] + 20, (before, after))
        self.assertGreater(after["Reclaimable"], before.get("Reclaimable", 0), (before, after))

    def blocks_of(self, number, types):
        row = self.row(number)
        return {pfn: types[pfn] for pfn in types if pfn // row.nr_pages == number}

    def emptied(self):
        """Takes slices offline one by one, first those with pageblocks of many types."""
        types = pinned_memory.block_types(self.device)
        kinds = {
            row.id: set(self.blocks_of(row.id, types).values()) for row in self.device.snapshot()
        }
        for number in sorted(kinds, key=lambda number: -len(kinds[number])):
            self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        return {number: kinds[number] for number in harness.ids(self.device, dev.OFFLINE)}

    def test_types_stay_the_same_offline_and_online(self):
        with PatternedMemory(96) as memory:
            before, sums_before = pinned_memory.block_types(self.device), sums()
            # The probe has seen every pageblock, with the types that the file prints
            seen = collections.Counter(NAMES.get(kind, kind) for kind in before.values())
            self.assertEqual({name: nr for name, nr in seen.items()}, sums_before)

            emptied = self.emptied()
            mixed = [
                number
                for number, kinds in emptied.items()
                if len(kinds) > 1 or MIGRATE_MOVABLE not in kinds
            ]
            every = {kind for kinds in emptied.values() for kind in kinds}
            print(
                f"({len(emptied)} slices off, {len(mixed)} with blocks that are not movable) ",
                end="",
                flush=True,
            )
            self.assertEqual(every, {MIGRATE_UNMOVABLE, MIGRATE_MOVABLE, MIGRATE_RECLAIMABLE})
            self.assertGreaterEqual(len(mixed), 3)

            off = pinned_memory.block_types(self.device)
            self.assert_same(before, off, emptied)
            self.assertNotIn(MIGRATE_ISOLATE, off.values())
            self.device.request("online_all")
            self.assert_same(before, pinned_memory.block_types(self.device), emptied)
            check_contents(memory)

    def test_types_stay_the_same_after_failed_requests(self):
        """After a refusal by the driver or for a page that stays, no pageblock is isolated or
        changed.
        """
        self.addCleanup(dev.write, POLICY, "stock")
        for policy in ("stock", "packed"):
            dev.write(POLICY, policy)
            before, mixed = pinned_memory.block_types(self.device), self.empty_and_mixed()
            dev.write(harness.SIM / "fail_off", len(mixed))
            for number in mixed:
                done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                self.assertEqual(done.why(), "power")
            self.assert_same(before, pinned_memory.block_types(self.device), mixed)
        for row in self.device.snapshot():
            if row.flags & dev.UNMOVABLE:
                self.device.request(
                    "offline", id=row.id, flags=dev.IGNORE_BACKOFF, deadline_ms=1000
                )
        self.device.request("online_all")
        after = pinned_memory.block_types(self.device)
        self.assertNotIn(MIGRATE_ISOLATE, after.values())

    def test_types_stay_the_same_after_a_deadline(self):
        """Blocks that were isolated while pages moved come back as what they were."""
        for path, value in (
            (dev.SYSFS / "slice_bytes", 8 * MIB),
            (dev.debugfs() / "migrate_batch", 1),
        ):
            self.addCleanup(dev.write, path, dev.read(path))
            dev.write(path, value)
        with PatternedMemory(450) as memory:
            before = pinned_memory.block_types(self.device)
            mixed = [
                row.id for row in self.device.snapshot()
                if row.counter("anon_mapped") > row.nr_pages // 8
                and len(set(self.blocks_of(row.id, before).values())) > 1
                and not any(run.reason for run in self.device.pages(row.id))
            ]
            self.assertTrue(mixed)
            for number in mixed:
                done = self.device.request(
                    "offline", id=number, flags=dev.IGNORE_BACKOFF, deadline_ms=1
                )
                self.assertEqual(done.why(), "deadline", f"slice {number}: {done}")
            after = pinned_memory.block_types(self.device)
            self.assert_same(before, after, mixed)
            self.assertNotIn(MIGRATE_ISOLATE, after.values())
            check_contents(memory)

    def empty_and_mixed(self):
        """Four empty slices with pageblocks that are not movable."""
        types = pinned_memory.block_types(self.device)
        mixed = [number for number in harness.empty_ids(self.device)
                 if set(self.blocks_of(number, types).values()) != {MIGRATE_MOVABLE}][:4]
        self.assertEqual(len(mixed), 4)
        return mixed

    def test_under_a_policy_blocks_of_offline_slices_are_movable(self):
        """Otherwise the kernel would prefer its old pageblocks when the slice wakes, against the
        policy.
        """
        self.addCleanup(dev.write, POLICY, "stock")
        dev.write(POLICY, "packed")
        for number in self.empty_and_mixed():
            self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
            kinds = set(self.blocks_of(number, pinned_memory.block_types(self.device)).values())
            self.assertEqual((self.row(number).state, kinds), (dev.OFFLINE, {MIGRATE_MOVABLE}))

    def test_types_stay_the_same_when_demand_wakes(self):
        """Allocations may take pageblocks over, which they report; no other type changes."""
        before = pinned_memory.block_types(self.device)
        emptied = self.emptied()
        info = self.device.info()
        with takeovers() as taken, harness.Memory(info.free_pages * PAGE // MIB + 64) as memory:
            check_contents(memory.touch())
            woken = [number for number in emptied if self.row(number).state == dev.ONLINE]
            self.assertTrue(woken)
            after = pinned_memory.block_types(self.device)
        per_block = info.pageblock_bytes // PAGE
        for first, nr, kind in taken:
            before |= {
                pfn: kind for pfn in range(first // per_block * per_block, first + nr, per_block)
            }
        self.assert_same(before, after, emptied)
        self.assertNotIn(MIGRATE_ISOLATE, after.values())

    def assert_same(self, before, after, numbers):
        for number in numbers:
            self.assertEqual(
                self.blocks_of(number, before), self.blocks_of(number, after), f"slice {number}"
            )

    def test_a_change_would_be_noticed(self):
        """Kernel pages take movable pageblocks over, which shows."""
        before = pinned_memory.block_types(self.device)
        with pipes(400):
            after = pinned_memory.block_types(self.device)
        self.assertNotEqual(before, after)
