# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices that take turns at physical addresses: each consists of many runs, and is emptied,
switched off, woken, counted and shown as one.

What a slice consists of is derived here by the formula of the header, and compared with page flags
and page frames. RAMSLICE_PROGRAM names the program.
"""

import errno
import json
import re
import subprocess
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.dma_heap import Buffer, listed
from ramlab.guest.harness import MIB, PAGE, Memory, check_contents
from ramlab.guest.pinned_memory import PageMovementTest, PatternedMemory, by_slice, page_flags
from ramlab.guest.proofs import HOLES, KPF_OFFLINE, ProofTest
from ramlab.guest.workload import Load
from ramlab.pytest_vm import vm

MEMORY = Path("/sys/devices/system/memory")
BLOCK = 2 * MIB
# Two ways by a chunk, and four by a pageblock, which is half of one: free blocks of the allocator
# may then reach into the neighbour
TWO = vm(kernel=["plain", "debug"], slow="debug", mem="1G", disk="1G",
         append="ramslice=16M,ways=2,granularity=4M")
FOUR = vm(kernel=["plain", "debug"], slow="debug", mem="1G", disk="1G",
          append="ramslice=16M,ways=4,granularity=2M")


def zone_spans():
    """Page frames of each populated zone, by /proc/zoneinfo."""
    spans = []
    for part in dev.read("/proc/zoneinfo").split("\nNode "):
        if start := re.search(r"start_pfn: +(\d+)", part):
            nr = int(re.search(r"spanned +(\d+)", part)[1])
            spans.append(range(int(start[1]), int(start[1]) + nr))
    return spans


def is_off(pfn):
    return bool(page_flags(pfn)[0] >> KPF_OFFLINE & 1)


class InterleaveTest(PageMovementTest):
    def setUp(self):
        super().setUp()
        self.info = self.device.info()
        self.addCleanup(self.device.request, "online_all")

    def frames(self, number):
        """First page frame of each pageblock of a slice."""
        return [pfn for first, nr in self.info.extents(number)
                for pfn in range(first, first + nr, BLOCK // PAGE)]

    def off_blocks(self):
        """First page frames of pageblocks that are off, by their flags."""
        last = max(row.id for row in self.device.snapshot())
        return {pfn for number in range(last + 1) for pfn in self.frames(number)
                if page_flags(pfn) and is_off(pfn)}


@TWO
@FOUR
class Interleaved(InterleaveTest):
    def test_the_kernel_says_how_slices_take_turns(self):
        size, ways, granularity = (
            self.info.slice_bytes, self.info.interleave_ways, self.info.granularity_bytes
        )
        self.assertIn(
            f"ramslice={size >> 20}M,ways={ways},granularity={granularity >> 20}M",
            dev.read("/proc/cmdline").split(),
        )
        self.assertGreater(ways, 1)
        self.assertEqual(int(dev.read(dev.SYSFS / "interleave_ways")), ways)
        self.assertEqual(
            int(dev.read(dev.SYSFS / "interleave_granularity_bytes")), granularity
        )
        self.assertIn(f"interleaved {ways} ways by {granularity >> 10} KiB", harness.kernel_log())

    def test_the_pages_of_a_slice_are_those_of_its_runs(self):
        rows = self.device.snapshot()
        seen = set()
        for row in rows[:: max(1, len(rows) // 12)]:
            frames = set()
            for run in self.device.pages(row.id):
                frames.update(range(run.pfn, run.pfn + run.nr_pages))
            expected = {pfn for first, nr in self.info.extents(row.id)
                        for pfn in range(first, first + nr)}
            self.assertEqual(frames, expected)
            self.assertFalse(frames & seen)
            seen |= frames

    def test_exactly_the_runs_of_a_slice_go_off(self):
        with PatternedMemory(64) as memory:
            # Small machines have no room for the pages of some, and pages are in use for a moment
            number = harness.until(lambda: next(
                (number for number in self.holding(memory)
                 if self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF).nr_done),
                None))
            self.assertEqual(self.off_blocks(), set(self.frames(number)))
            self.assertNotIn(number, by_slice(self.device, memory.pfns()))
            self.assertIsNone(memory.wrong_at())
            # What is off is one run for each that it consists of, as the file says, too
            runs = self.device.pages(number)
            self.assertEqual([(run.pfn, run.nr_pages) for run in runs], self.info.extents(number))
            self.assertEqual({run.what() for run in runs}, {"off"})
            self.assertEqual(self.device.request("online", id=number).nr_done, 1)
            self.assertEqual(self.off_blocks(), set())
            self.assertIsNone(memory.wrong_at())

    def test_memory_wakes_on_demand_and_loses_nothing(self):
        with PatternedMemory(160) as memory:
            nr = harness.compact(self.device)
            self.assertGreater(nr, len(self.device.snapshot()) // 4)
            self.assertIsNone(memory.wrong_at())
            before = harness.woken_by_demand(self.device)
            # More than is awake
            awake = self.device.info().free_pages * PAGE // MIB
            self.serve(awake + nr * self.info.slice_bytes // MIB // 2)
            self.assertGreater(harness.woken_by_demand(self.device), before)
            self.assertIsNone(memory.wrong_at())

    def test_thp_folios_move_whole(self):
        with PatternedMemory(96, huge=True) as memory:
            number = self.holding(memory)[0]
            done = self.assert_goes(number)
            self.assertGreater(done.pages_migrated + done.huge_moved, 0)
            self.assertIsNone(memory.wrong_at())

    def test_the_counters_agree_with_a_walk_while_memory_is_used(self):
        load = Load("anon", 200).wait_ready().wait_round()
        self.addCleanup(load.kill)
        harness.compact(self.device)
        load.hold()
        for _ in range(5):
            done = subprocess.run([dev.program("kpage")], stdout=subprocess.PIPE, text=True)
            if not done.returncode:
                break
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(json.loads(done.stdout)["sums"]["lru_anon"], 200 * MIB // PAGE // 2)
        load.resume()
        load.end()

    def test_a_slice_that_reaches_into_two_zones_says_so(self):
        rows, spans = self.device.snapshot(), zone_spans()
        between = {
            row.id for row in rows
            if len({tuple(pfn in span for span in spans) for first in self.frames(row.id)
                    for pfn in (first, first + BLOCK // PAGE - 1)}) > 1
        }
        # All that take turns where the first zone ends, at 16 MiB
        self.assertLessEqual(set(range(self.info.interleave_ways)), between)
        self.assertEqual(
            between, {row.id for row in rows if dev.REASONS[row.reason] == "zone-end"}
        )
        for row in rows:
            if row.id in between:
                self.assertTrue(row.flags & dev.UNRECLAIMABLE)

    def test_another_size_keeps_the_interleave(self):
        size = self.info.slice_bytes
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        dev.write(dev.SYSFS / "slice_bytes", 2 * size)
        self.info = self.device.info()
        self.assertEqual(self.info.slice_bytes, 2 * size)
        self.assertEqual(int(dev.read(dev.SYSFS / "interleave_ways")), self.info.interleave_ways)
        with PatternedMemory(32) as memory:
            number, = self.empty()
            self.assert_goes(number)
            self.assertEqual(self.off_blocks(), set(self.frames(number)))
            self.device.request("online_all")
            self.assertIsNone(memory.wrong_at())
        if self.info.granularity_bytes > BLOCK:
            # Slices of an odd number of pageblocks would end within a granule
            with self.refused(errno.EINVAL):
                dev.write(dev.SYSFS / "slice_bytes", size + BLOCK)

    def test_the_commands_say_where_a_slice_lies(self):
        number, = self.empty()
        runs = self.info.extents(number)
        last = runs[-1][0] + runs[-1][1]
        stride = self.info.interleave_ways * self.info.granularity_bytes
        where = (f"{runs[0][0] * PAGE:010x}-{last * PAGE - 1:010x} ({len(runs)} runs of "
                 f"{self.info.granularity_bytes >> 20} MiB, one every {stride >> 20} MiB)")
        self.assertIn(f"Slice {number}: {where}", harness.printed("explain", number))
        self.assertIn(where, harness.printed("slices"))
        ways = f"interleaved {self.info.interleave_ways} ways by " \
               f"{self.info.granularity_bytes >> 20} MiB"
        self.assertIn(ways, harness.printed("status"))
        for words in (["explain", number], ["slices"], ["map"], ["map", number]):
            with self.subTest(words):
                document = json.loads(harness.printed(*words, "--json"))
                self.assertEqual(document["interleave"], {
                    "ways": self.info.interleave_ways,
                    "granularity_bytes": self.info.granularity_bytes,
                })
        tiles = json.loads(harness.printed("map", "--json"))["tiles"]
        starts = {tile["slice"]: tile["start_bytes"] for tile in tiles}
        self.assertEqual(starts[number], runs[0][0] * PAGE)

    def test_a_buffer_wakes_the_slices_whose_turn_it_is(self):
        harness.compact(self.device)
        before = set(harness.ids(self.device, dev.OFFLINE))
        with Buffer(4 * BLOCK) as buffer:
            (address, size, _), = listed()
            within = {self.info.slice_at(pfn)
                      for pfn in range(address // PAGE, (address + size) // PAGE, BLOCK // PAGE)}
            buffer.number_pages()
            self.assertTrue(buffer.pages_are_numbered())
            self.assertFalse(within & set(harness.ids(self.device, dev.OFFLINE)))
            # No other slice woke, but for what the reserve of free memory needs
            woken = before - set(harness.ids(self.device, dev.OFFLINE)) - within
            self.assertLessEqual(len(woken), 2)
        again = harness.until(
            lambda: within & before <= set(harness.ids(self.device, dev.OFFLINE)), 60
        )
        self.assertTrue(again)


@vm(mem="1G", append="ramslice=16M,ways=2,granularity=4M", slow=True)
@vm(mem="1G", append="ramslice=16M,ways=4,granularity=2M")
class Unmapped(harness.RamsliceTest):
    def test_every_run_leaves_the_direct_map_for_a_driver_that_demands_it(self):
        """The simulated controller reads each page that goes off, which must fault."""
        with harness.simulator(unmapped=1):
            with PatternedMemory(64) as memory:
                self.assertGreater(harness.compact(self.device), 4)
                self.assertIsNone(memory.wrong_at())
                self.device.request("online_all")
                self.assertIsNone(memory.wrong_at())
            harness.check_violations()
        self.assert_sane()


@vm(mem="2G", append="ramslice=32M,ways=2,granularity=4M movablecore=768M")
@vm(mem="2G", append="ramslice=16M,ways=4,granularity=2M movablecore=768M", slow=True)
class Hotplug(InterleaveTest):
    def test_unplugging_a_block_wakes_the_slices_that_it_has_a_part_of(self):
        block_bytes = int(dev.read(MEMORY / "block_size_bytes"), 16)
        with PatternedMemory(48) as memory:
            harness.compact(self.device)
            off = set(harness.ids(self.device, dev.OFFLINE))
            for path in MEMORY.glob("memory[0-9]*"):
                first = int(dev.read(path / "phys_index"), 16) * block_bytes // PAGE
                under = {self.info.slice_at(pfn)
                         for pfn in range(first, first + block_bytes // PAGE, BLOCK // PAGE)}
                if "Movable" in dev.read(path / "valid_zones") and under <= off:
                    break
            else:
                self.fail("no movable block lies in slices that are off")
            dev.write(path / "state", "offline")
            self.assertEqual(off - set(harness.ids(self.device, dev.OFFLINE)), under)
            rows = {row.id: row for row in self.device.snapshot()}
            for number in under & set(rows):
                self.assertEqual(dev.REASONS[rows[number].reason], "hole")
            self.assert_sane()
            dev.write(path / "state", "online_movable")
            for number in sorted(under)[:2]:
                self.assert_goes(number)
            self.assertIsNone(memory.wrong_at())


@vm(mem="1G", append="ramslice=16M,ways=2,granularity=4M", holes=True, slow=True)
@vm(mem="1G", append="ramslice=16M,ways=4,granularity=2M", holes=True)
class Holes(ProofTest):
    def test_nothing_touches_the_runs_of_a_slice_that_is_off(self):
        """The host has punched each run out of the guest's memory, and looks for pages there."""
        nr = harness.compact(self.device)
        self.assertGreater(nr, len(self.device.snapshot()) // 4)
        self.assertEqual(dev.read(HOLES / "touched").split()[0], "0")
        with Memory(64) as memory:
            check_contents(memory.touch())
        dev.write("/proc/sys/vm/compact_memory", 1)
        self.assertEqual(dev.read(HOLES / "touched").split()[0], "0")


@vm(mem="1G", append="ramslice=16M,ways=2,granularity=64K")
class TooFine(harness.RamsliceTest):
    def test_an_interleave_finer_than_a_pageblock_is_refused_with_the_reason(self):
        info = self.device.info()
        self.assertEqual((info.slice_bytes, info.interleave_ways), (16 * MIB, 1))
        self.assertEqual(info.granularity_bytes, info.slice_bytes)
        self.assertIn(
            "slices of 16777216 bytes stay contiguous, not interleaved 2 ways by 65536 bytes: "
            "granularity must be a pageblock or more, as none is emptied in part "
            "(a pageblock has 2097152 bytes)",
            harness.kernel_log(),
        )
        # It goes on with these
        self.assertGreater(harness.compact(self.device), 4)
        harness.wake(self.device)
        self.assert_sane()


@vm(mem="512M", append="ramslice=16M,stride=8M")
class Malformed(harness.RamsliceTest):
    def test_what_is_no_interleave_is_refused_and_the_syntax_named(self):
        info = self.device.info()
        self.assertEqual((info.slice_bytes, info.interleave_ways), (64 * MIB, 1))
        self.assertRegex(
            harness.kernel_log(),
            r'"16M,stride=8M" on the command line is neither .*,ways=NUMBER,granularity=SIZE',
        )
