# SPDX-License-Identifier: GPL-2.0-or-later
"""Studies of memory sizes: every program, tiny, has the right result with plenty of memory and with
less, and whatever becomes of a run, what it held is given back.
"""

import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm

FOLDER = Path(os.environ.get("RAMSLICE_FOLDER", "/nonexistent"))
SLICE_KIB = 2 << 10
BEGINS = "size: the program begins"


def make_jobs(folder):
    """The orders for a run of each program at its tiny scale; made on the host."""
    from ramlab.common import put_json
    from ramlab.kernel.images import image
    from ramlab.sizes import STUDIES, command, disk_modules

    modules = disk_modules.build(image("plain"))
    for name in STUDIES:
        run = {"memory": "plenty", "seed": 1, "share": None}
        put_json(folder / f"{name}.json", command.job(name, "tiny", run, modules))


# One processor, whose clock counts instructions, as for figures; smaller slices for tiny programs
pytestmark = vm(mem="512M", cpus=1, append="ramslice=2M nokaslr", files={"jobs": make_jobs},
                qemu=("-icount shift=0,sleep=off", "-cpu max,-erms,-fsrm"))


def orders(name, **fields):
    """A program's orders, with some of them changed, in a file."""
    job = json.loads((FOLDER / f"jobs/{name}.json").read_text()) | fields
    path = Path("/tmp/job.json")
    path.write_text(json.dumps(job))
    return path


def begin(name, **fields):
    """Starts a run."""
    line = [sys.executable, "-m", "ramlab.guest.size", str(orders(name, **fields))]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def study(name, **fields):
    """(status, figures or None, all output) of a run."""
    with begin(name, **fields) as process:
        output = process.stdout.read()
    figures = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return process.returncode, figures[-1] if figures else None, output


class Sizes(unittest.TestCase):
    def setUp(self):
        self.device = dev.Device()
        self.addCleanup(self.device.close)
        self.total_kib = dev.meminfo("MemTotal")

    def check_all_given_back(self):
        self.assertEqual({s.state for s in self.device.snapshot()}, {dev.ONLINE})
        self.assertEqual(dev.meminfo("MemTotal"), self.total_kib)

    def figures(self, name, **fields):
        status, figures, output = study(name, **fields)
        self.assertEqual(status, 0, output)
        self.check_all_given_back()
        return figures

    def both(self, name, share, least_kib=0):
        """Figures with plenty of memory and with a share of what was used then, or a little more.
        """
        plenty = self.figures(name)
        share = max(share, least_kib / plenty["footprint_kib"])
        self.assertGreater(plenty["result"]["checked"], 0)
        self.assertEqual(plenty["held_slices"], 0)
        held = self.figures(name, memory="held", share=share,
                            footprint_kib=plenty["footprint_kib"])
        self.assertEqual(held["result"], plenty["result"])
        # Not less than was asked for, but for what a disk needs beside the memory that it takes,
        # and no more than a slice that does not go because of the awake reserve
        above = held["size_kib"] - share * plenty["footprint_kib"]
        least = -2 * SLICE_KIB if held["filled_kib"] else -1
        self.assertTrue(least <= above < 2 * SLICE_KIB, above)
        self.assertGreater(held["held_slices"] + held["filled_kib"], 0)
        return plenty, held

    def check_costs(self, plenty, held, counter):
        """With less memory more is read."""
        both = f"plenty: {plenty}\nheld: {held}"
        self.assertGreater(held["counters"][counter], plenty["counters"][counter], both)
        self.assertGreater(held["disk"]["read_bytes"], plenty["disk"]["read_bytes"], both)


class Programs(Sizes):
    def test_quicksort_swaps_with_less_memory_than_its_array(self):
        plenty, held = self.both("quicksort", 0.7)
        array_kib = 8 * 5_000_000 >> 10
        self.assertTrue(array_kib <= plenty["footprint_kib"] < 1.3 * array_kib, plenty)
        self.assertEqual(plenty["counters"]["pswpin"], 0)
        self.check_costs(plenty, held, "pswpin")
        self.check_costs(plenty, held, "pgmajfault")

    def check_readers(self, name):
        plenty, held = self.both(name, 0.7)
        data_kib = 700 * 64
        self.assertLess(plenty["footprint_kib"], 1.3 * data_kib)
        # Each file that is read is read from the disk once
        self.assertLess(plenty["disk"]["read_bytes"], 1.2 * data_kib * 1024)
        self.check_costs(plenty, held, "workingset_refault_file")
        self.assertLess(held["performance"]["value"], plenty["performance"]["value"])

    def test_a_reader_reads_again_what_no_longer_fits(self):
        self.check_readers("readers")

    def test_ten_readers(self):
        self.check_readers("readers-10")

    def test_a_reader_of_mostly_few_files(self):
        self.check_readers("biased")

    def test_ten_readers_of_mostly_few_files(self):
        self.check_readers("biased-10")

    def test_compilers(self):
        plenty, held = self.both("compile", 0.7)
        self.check_costs(plenty, held, "pgmajfault")

    def test_hpl_has_a_small_residual_with_less_memory_than_its_matrix(self):
        # Its matrix is smaller than what the kernel keeps free
        plenty, held = self.both("hpl", 1, least_kib=20 << 10)
        # What the processors' lists of free pages held before counts as used already
        in_lists_kib = 512
        self.assertGreaterEqual(plenty["footprint_kib"], (500 * 500 * 8 >> 10) - in_lists_kib)
        self.assertGreaterEqual(held["counters"]["pswpout"], plenty["counters"]["pswpout"])

    def test_a_heap_just_above_the_live_data_is_collected_more_often(self):
        plenty = self.figures("garbage")
        live = plenty["live_kib"]
        self.assertEqual(plenty["footprint_kib"], live)
        small = self.figures("garbage", memory="heap", share=1.5, footprint_kib=live)
        self.assertEqual(small["size_kib"], round(1.5 * live))
        self.assertEqual(small["result"], plenty["result"])
        self.assertGreater(small["collections"], plenty["collections"])
        self.assertGreater(small["gc_s"], plenty["gc_s"])

    def test_transactions_leave_a_consistent_data_base(self):
        plenty, held = self.both("tpcc", 0.6)
        self.check_costs(plenty, held, "pgmajfault")

    def test_readers_go_on_while_memory_shrinks_and_grows(self):
        found = self.figures("readers", memory="ramp", share=1.2, share_high=1.2, share_low=0.7,
                             footprint_kib=45 << 10, step=2, step_ms=40, every_ms=10,
                             warm_files=400)
        sizes = [sample[1] for sample in found["samples"]]
        # The awake reserve of a small machine ends it early
        self.assertLess(min(sizes), 0.9 * max(sizes))
        self.assertGreater(sizes[-1], 0.95 * max(sizes))
        self.assertGreater(found["ramp_steps"], 2)
        counts = [sample[3] for sample in found["samples"]]
        self.assertEqual(counts, sorted(counts))


class GiveBack(Sizes):
    def test_a_run_that_is_ended_gives_back_what_it_held(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with begin("quicksort", memory="held", share=0.6, footprint_kib=24 << 10,
                       announce=True) as process:
                for line in process.stdout:
                    if line.startswith(BEGINS):
                        break
                self.assertLess(dev.meminfo("MemTotal"), self.total_kib)
                process.send_signal(number)
                output = process.stdout.read()
            self.assertEqual(process.returncode, 128 + number, output)
            self.check_all_given_back()

    def test_a_wrong_result_has_no_figures(self):
        job = json.loads((FOLDER / "jobs/quicksort.json").read_text())
        wrong = job["expected"] | {"sum": job["expected"]["sum"] + 1}
        status, figures, output = study("quicksort", expected=wrong)
        self.assertEqual((status, figures), (1, None), output)
        self.assertIn("the result is wrong: 1 of 4 differ, sum first", output)
        self.check_all_given_back()

    def test_what_cannot_be_done_is_refused_before_anything_is_held(self):
        footprint = {"memory": "held", "footprint_kib": 24 << 10}
        above = "share 40 of the footprint of 24 MiB is above the machine"
        below = "of the footprint of 24 MiB is a size below what boots: at least"
        for fields, words in (
            ({"share": 40, **footprint}, above),
            ({"share": 0.01, **footprint}, below),
            ({"share": 0.5, "memory": "held"}, "footprint unknown: a run of quicksort with"),
            ({"disk": {"swap_mib": 0, "files_mib": 16, "delay_us": 200}}, "swap missing: swap_"),
            ({"memory": "squeezed"}, "allowed are plenty, held, booted, heap and"),
        ):
            status, figures, output = study("quicksort", announce=True, **fields)
            self.assertEqual((status, figures), (2, None), output)
            self.assertIn(words, output)
            self.assertNotIn(BEGINS, output)
            self.check_all_given_back()

    def test_a_machine_that_was_booted_with_another_size_runs_nothing(self):
        found = self.figures("quicksort", memory="booted", total_kib=self.total_kib - 4096,
                             tolerance_kib=256)
        self.assertTrue(found["other_size"])
        self.assertNotIn("counters", found)


class SlowDisk(Sizes):
    def test_a_request_takes_the_delay_and_no_host_decides_it(self):
        """Every page of a file that is not in the cache costs at least the disk's delay."""
        script = (
            "import sys, time\n"
            "from pathlib import Path\n"
            "from ramlab.guest import ramslice_dev as dev, slow_disk\n"
            "slow_disk.make_all(sys.argv[1], 4, 24, 500)\n"
            "path = Path('/mnt/file')\n"
            "path.write_bytes(bytes(range(256)) * 4096)\n"
            "import os, mmap\n"
            "os.sync(); dev.write('/proc/sys/vm/drop_caches', 3)\n"
            "fd = os.open(path, os.O_RDONLY | os.O_DIRECT)\n"
            "page = mmap.mmap(-1, 4096)\n"
            "before, began = slow_disk.use(), time.monotonic()\n"
            "for at in range(0, 256):\n"
            "    os.preadv(fd, [page], at * 4096)\n"
            "    assert page[:256] == bytes(range(256)), at\n"
            "took, after = time.monotonic() - began, slow_disk.use()\n"
            "os.close(fd); path.unlink(); slow_disk.end()\n"
            "print(took / 256, after['read_requests'] - before['read_requests'])\n"
        )
        modules = json.loads((FOLDER / "jobs/quicksort.json").read_text())["modules"]
        free_kib = dev.meminfo("MemFree")
        done = subprocess.run([sys.executable, "-c", script, modules], text=True,
                              stdout=subprocess.PIPE, check=True)
        each_s, nr = map(float, done.stdout.split())
        self.assertEqual(nr, 256)
        self.assertTrue(500e-6 <= each_s < 700e-6, each_s)
        # The memory of the disks, 28 MiB, is free again
        self.assertTrue(harness.until(lambda: dev.meminfo("MemFree") > free_kib - (14 << 10), 30))
