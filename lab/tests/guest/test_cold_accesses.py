# SPDX-License-Identifier: GPL-2.0-or-later
"""What asks for cold memory has its pages in cold slices, and its accesses to DRAM go there."""

import contextlib
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

from ramlab import dram_accesses
from ramlab.guest import bench_cold, harness
from ramlab.guest import cold_memory as cold
from ramlab.pytest_vm import vm

FOLDER = Path(os.environ.get("RAMSLICE_FOLDER", "/nonexistent"))
# An array is eight times the second cache
ELEMENTS = 1 << 20
LINES = ELEMENTS * 8 // 64
# Arrays that each loop reads, lines that are only written are read, too; and that it writes
LOOPS = {"copy": (2, 1), "scale": (2, 1), "add": (3, 1), "triad": (3, 1)}
KEYS, HOT = 32 << 10, 16 << 10

# One processor, whose clock counts instructions
pytestmark = vm(mem="1G", cpus=1, append="ramslice=128M ramslice_cold=256M,strict",
                qemu=("-icount shift=0,sleep=off", "-cpu max,-smap,-erms,-fsrm",
                      dram_accesses.qemu_words("{folder}")))


class ColdAccesses(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        self.cold = set(bench_cold.cold_slices(dram_accesses.SLICE_BYTES))
        self.assertEqual(len(self.cold), 2)
        self.assertEqual(cold.size_mib(), 256)

    def stream(self, kind):
        """Records of the four loops, by name, and pages by slice."""
        words = [kind, ELEMENTS, 1, dram_accesses.SLICE_BYTES]
        found = bench_cold.measure(FOLDER, "stream", words)
        pages = {int(number): nr for number, nr in found["figures"]["pages"].items()}
        self.assertEqual(sum(pages.values()), 3 * ELEMENTS * 8 // harness.PAGE)
        return dict(zip(LOOPS, found["records"], strict=True)), pages

    def test_arrays_that_ask_for_it_are_in_cold_slices(self):
        records, pages = self.stream("cold")
        self.assertLessEqual(set(pages), self.cold)
        for name, record in records.items():
            share = dram_accesses.share_in(record, self.cold, dram_accesses.HOT)
            self.assertGreaterEqual(share, 0.995, name)

    def test_arrays_that_do_not_are_not(self):
        records, pages = self.stream("hot")
        self.assertFalse(set(pages) & self.cold)
        for name, record in records.items():
            share = dram_accesses.share_in(record, self.cold, dram_accesses.HOT)
            self.assertEqual(share, 0, name)

    def test_each_line_of_the_arrays_is_read_and_written_as_often_as_the_loop_says(self):
        records, _ = self.stream("cold")
        for name, (nr_read, nr_written) in LOOPS.items():
            rows = records[name]["slices"]
            read = sum(row["reads"][dram_accesses.HOT] for row in rows)
            written = sum(row["writes"][dram_accesses.HOT] for row in rows)
            self.assertAlmostEqual(read / LINES, nr_read, delta=0.01 * nr_read, msg=name)
            # What was written last is in the cache at the end: an eighth of an array
            self.assertAlmostEqual(written / LINES, nr_written, delta=0.14, msg=name)

    def test_gaps_of_each_slice_are_as_long_as_the_loop(self):
        records, _ = self.stream("cold")
        for record in records.values():
            for row in record["slices"]:
                self.assertEqual(sum(together for *_, together in row["gaps"]), record["ns"])

    def run_map(self, ops, ktps):
        """What a phase of the map leaves, whose values are hot and cold by half."""
        with tempfile.TemporaryDirectory() as folder:
            words = [f"state={folder}/state", f"keys={KEYS}", f"hot={HOT}", f"cold={KEYS}",
                     f"ops={ops}", "seed=1"]
            bench_cold.run_program("energy_map", ["settle", *words])
            words += [f"rates={ktps}", "count=1"]
            return bench_cold.measure(FOLDER, "energy_map", ["run", *words])

    def test_values_of_the_map_are_in_the_area_that_they_belong_to(self):
        found = self.run_map(5000, 90)
        phase, = found["figures"]["phases"]
        record, = found["records"]
        self.assertGreater(phase["cold"], 500)
        self.assertLessEqual({int(number) for number in phase["cold_pages"]}, self.cold)
        self.assertFalse({int(number) for number in phase["hot_pages"]} & self.cold)
        for kind, share in (dram_accesses.COLD, 1), (dram_accesses.HOT, 0):
            self.assertEqual(dram_accesses.share_in(record, self.cold, kind), share)
        # A transaction is due each 11.1 us; its value of 16 lines is read at least
        self.assertAlmostEqual(phase["ns"] / phase["ops"], 1e6 / 90, delta=100)
        lines = sum(dram_accesses.lines(row, dram_accesses.COLD) for row in record["slices"])
        self.assertGreater(lines, 0.9 * 16 * phase["cold"])

    def test_idle_time_is_found_out(self):
        """The plugin does not see time that passes without instructions."""
        over = threading.Event()

        def pause():
            # Again and again, as when it warms up is not known
            while not over.wait(0.5):
                for pid, name in harness.processes().items():
                    if name == "energy_map":
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGSTOP)
                            time.sleep(0.5)
                            os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=pause)
        thread.start()
        try:
            # Three seconds
            with self.assertRaisesRegex(ValueError, "ns by the clock"):
                self.run_map(60_000, 20)
        finally:
            over.set()
            thread.join()
