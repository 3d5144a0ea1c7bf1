# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice-lab record` and `ramslice-lab fragment` agree with the kernel's own figures.

RAMSLICE_PROGRAM and RAMSLICE_LAB_PROGRAM name the programs.
"""

import json
import os
import re
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from ramlab.checks.recording import check_recording
from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
LAB_PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", f"{PROGRAM}-lab")
FOLDER = Path("/mnt")
TRACING = Path("/sys/kernel/tracing")


def program_of(words):
    """The operator's program shows a running machine; what records, and what is recorded, is the
    research program's."""
    live = words[0] in {"status", "slices", "census"} and "--from" not in words
    return PROGRAM if live else LAB_PROGRAM


def ramslice(*words, **options):
    return subprocess.run(
        [program_of(words), *map(str, words)], check=True, text=True, stdout=subprocess.PIPE,
        **options,
    ).stdout


def sums(device, *names):
    """Counters over all slices, read now, in pages; pages in per-CPU lists count as free."""
    slices = device.snapshot()
    counters = {name: sum(s.counter(name) for s in slices) for name in names}
    if "free" in counters:
        counters["free"] += sum(
            map(int, re.findall(r"^ +count: +(\d+)$", dev.read("/proc/zoneinfo"), re.M))
        )
    return counters


class RecordTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.ismount(TRACING):
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
        dev.file_system()
        cls.device = dev.Device()

    @classmethod
    def tearDownClass(cls):
        cls.device.close()

    def setUp(self):
        harness.wake(self.device)


@vm(mem="1G", disk="1G", append="ramslice=32M")
class Recording(RecordTest):
    WORK = """
import json, sys
from ramlab.guest import harness, ramslice_dev as dev
with dev.Device() as device:
    first = device.request("compact", flags=dev.IGNORE_BACKOFF)
    free = 4 * device.info().free_pages // 1024
    # More than is awake, so that demand wakes slices
    with harness.Memory(free + 150) as memory:
        # What is left of it in each slice has to move
        memory.touch().punch()
        second = device.request("compact", flags=dev.IGNORE_BACKOFF)
    json.dump([r.dict() for r in (first, second)], open(sys.argv[1], "w"))
"""

    def test_a_recording_agrees_with_the_kernels_figures(self):
        folder, outcome = FOLDER / "recording", FOLDER / "outcome.json"
        before = self.device.info().event_seq
        woken = harness.woken_by_demand(self.device)
        ramslice("record", "-o", folder, "--every", "500ms", "--part", "2s", "--census", "3s",
                 "--", sys.executable, "-c", self.WORK, outcome,
                 env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        info, slices = self.device.info(), self.device.snapshot()
        woken = harness.woken_by_demand(self.device) - woken
        requests = json.loads(outcome.read_text())
        self.assertGreater(woken, 0)
        self.assertGreater(min(r["nr_done"] for r in requests), 0)
        self.assertGreater(sum(r["pages_migrated"] for r in requests), 0)
        self.assertEqual(list(TRACING.glob("instances/ramslice-*")), [])

        checked = json.loads(ramslice("record", "--json", "--check", folder))
        about, findings = checked["about"], checked["findings"]
        self.assertEqual(about["events_source"], "trace")
        self.assertEqual(about["kernel_release"], os.uname().release)
        self.assertEqual(about["kernel_command_line"], dev.read("/proc/cmdline").strip())
        self.assertTrue(about["platform"]["virtual"])
        self.assertEqual(about["geometry"]["slice_bytes"], info.slice_bytes)
        for name in (
            "missing_parts",
            "missing_samples",
            "incomplete_samples",
            "incomplete_censuses",
            "lost_events",
            "temporary_files",
        ):
            self.assertEqual(findings[name], 0, name)
        self.assertEqual(findings["rows"]["snapshots"], len(slices) * findings["rows"]["samples"])

        # The last sample shows the machine as it is now: no state has changed since
        last = json.loads(ramslice("status", "--json", "--from", folder))
        self.assertEqual(last["snapshot"]["event_seq"], info.event_seq)
        self.assertEqual(
            {s["id"]: s["state"] for s in last["snapshot"]["slices"]},
            {s.id: "offline" if s.state == dev.OFFLINE else "online" for s in slices},
        )
        self.assertEqual(last["info"]["offline_pages"], info.offline_pages)
        for where in ([], ["--from", folder]):
            table = ramslice("slices", "-nr", "-o", "slice,state", *where).splitlines()
            off = [line.split(" ")[0] for line in table if line.endswith(" offline")]
            self.assertEqual(off, [str(s.id) for s in slices if s.state == dev.OFFLINE])
            self.assertEqual(len(table), len(slices))

        # The ledger over the recording adds up what the kernel did for these requests
        ledger = json.loads(
            ramslice(
                "energy",
                "--json",
                "--profile",
                "thesis-parc",
                "--granularity",
                "slice",
                "--time-factor",
                "15",
                "--from",
                folder,
            )
        )
        work = ledger["work"]
        self.assertEqual(work["emptied_slices"], sum(r["nr_done"] for r in requests))
        self.assertEqual(work["migrated_pages"], sum(r["pages_migrated"] for r in requests))
        self.assertEqual(
            work["price_predicted_100cycles"], sum(r["price_predicted"] for r in requests)
        )
        self.assertGreater(work["woken_slices"], 0)
        self.assertGreater(work["allocated_pages"], 150 * 256)
        self.assertEqual(
            ledger["clock"], "emulated" if about["platform"]["emulated"] else ledger["clock"]
        )
        without = subprocess.run(
            [LAB_PROGRAM, "energy", "--profile", "thesis-parc", "--from", folder],
            text=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            check=False,
        )
        self.assertEqual(
            without.returncode, 2 if about["platform"]["emulated"] else 0, without.stderr
        )

        # The last census belongs to the last sample and agrees with one of now
        recorded, now = (
            json.loads(ramslice("census", "--json", *more)) for more in (("--from", folder), ())
        )
        self.assertEqual([s["slice"] for s in recorded["slices"]], [s.id for s in slices])
        self.assertEqual(findings["rows"]["census"] % len(slices), 0)
        self.assertGreaterEqual(findings["rows"]["census"], 2 * len(slices))
        for name in ("sections", "slices_unreclaimable", "slices_unknown"):
            self.assertEqual(recorded["totals"][name], now["totals"][name], name)
        free, off = last["info"]["free_pages"], last["info"]["offline_pages"]
        self.assertAlmostEqual(recorded["totals"]["offline_ratio"], off / (free + off))

        # A report of it has the figures that need no profile, and those that only root records
        page = FOLDER / "report.html"
        report = json.loads(ramslice("report", "--json", folder, "-o", page))
        drawn = [f["id"] for f in report["figures"] if f["drawn"]]
        self.assertEqual(
            drawn[:11],
            [
                "utilisation",
                "occupation",
                "statistics",
                "statistics-means",
                "hit-ratio",
                "slices",
                "bitmaps",
                "fullness",
                "footprint",
                "kept-on",
                "census-shares",
            ],
        )
        # Those of repair need slices that were emptied by moving pages, which the kernel decides
        self.assertIn(drawn[11:], ([], ["repair-free", "repair-moved", "repair-share"]))
        self.assertIn('class="compaction"', page.read_text())

        # Other readers find the same in its files
        expected = {
            "state_events": info.event_seq - before,
            "offline_pages": info.offline_pages,
            "slices_woken_by_demand": woken,
            "slices_done": sum(r["nr_done"] for r in requests),
            "migrated_pages": sum(r["pages_migrated"] for r in requests),
            "samples": findings["rows"]["samples"],
            "slices": len(slices),
            "slices_counted": findings["rows"]["census"],
            "slices_staying": recorded["totals"]["slices_staying"],
            "sections_removable": recorded["totals"]["sections_removable"],
            "mem_total_bytes": harness.meminfo()["MemTotal"] * 1024,
        }
        self.assertEqual(check_recording(folder, expected), [])

    def test_the_next_recorder_removes_the_trace_of_a_killed_one(self):
        folder = FOLDER / "killed"
        process = subprocess.Popen(
            [LAB_PROGRAM, "record", "-o", folder, "--every", "100ms", "--part", "200ms"]
        )
        self.assertTrue(harness.until(lambda: len(list(folder.glob("samples/part-*"))) >= 3))
        instance = TRACING / f"instances/ramslice-record-{process.pid}"
        self.assertTrue(instance.exists())
        process.send_signal(signal.SIGKILL)
        process.wait()
        findings = json.loads(ramslice("record", "--json", "--check", folder))["findings"]
        self.assertGreater(findings["rows"]["samples"], 0)
        ramslice("record", "--append", "-o", folder, "--for", "300ms", "--every", "100ms")
        self.assertFalse(instance.exists())
        findings = json.loads(ramslice("record", "--json", "--check", folder))["findings"]
        self.assertEqual(findings["temporary_files"], 0)


@vm(mem="1G", disk="1G", append="ramslice=32M")
class Fragments(RecordTest):
    def made(self, *words):
        """Makes a state, which is held until the test ends; returns the program's account."""
        process = subprocess.Popen(
            [LAB_PROGRAM, "fragment", "--json", "--dir", FOLDER, *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
        )

        def end():
            process.terminate()
            self.assertEqual(process.wait(), 0)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "}\n":
                self.addCleanup(process.stdout.close)
                self.addCleanup(end)
                return json.loads("".join(lines))["made"]
        self.fail(f"no account, status {process.wait()}")

    def test_the_census_agrees_with_the_account(self):
        names = ("free", "lru_anon", "lru_file", "anon_mapped")
        # Once before, so that the program's own file is in the page cache
        ramslice(
            "fragment",
            "--dir",
            FOLDER,
            "--memory",
            "1M",
            "--free",
            "1",
            "--anon",
            "1",
            "--file",
            "1",
            "--map-count",
            "2",
            "--for",
            "10ms",
        )
        before = sums(self.device, *names)
        had = {s.id: s for s in self.device.snapshot()}
        made = self.made(
            "--memory",
            "400M",
            "--free",
            "0.5",
            "--anon",
            "0.3",
            "--file",
            "0.2",
            "--map-count",
            "3",
        )
        after = sums(self.device, *names)
        # The program's own memory does not count: 6 MiB
        near = 6 << 8
        self.assertGreater(made["freed_pages"], 10 * near)
        for name, pages in (
            ("lru_anon", made["anon_present_pages"]),
            ("anon_mapped", made["anon_present_pages"]),
            ("lru_file", made["file_present_pages"]),
            ("free", -made["anon_present_pages"] - made["file_present_pages"]),
        ):
            self.assertAlmostEqual(after[name] - before[name], pages, delta=near, msg=name)
        self.assertGreater(made["anon_present_pages"], 10 * near)
        self.assertGreater(made["file_present_pages"], 10 * near)
        self.assertAlmostEqual(made["mappings_per_anon_page"], 3, delta=0.01)
        # What it freed lies between what it kept, so few of the slices it filled are empty
        def gained(s, *names):
            return sum(s.counter(name) - had[s.id].counter(name) for name in names)

        kept = [s for s in self.device.snapshot() if gained(s, "lru_anon") * 5 > s.nr_pages]
        self.assertGreaterEqual(len(kept), 400 // 32 - 4)
        for s in kept:
            self.assertLess(gained(s, "lru_anon", "lru_file"), s.nr_pages * 4 // 5, s.id)

    def test_a_gradient_fills_slices_from_nearly_empty_to_nearly_full(self):
        made = self.made("--memory", "400M", "--free", "1..0", "--anon", "0..1")
        slices = self.device.snapshot()
        shares = sorted(
            s.counter("lru_anon") / s.nr_pages for s in slices if s.counter("free") < s.nr_pages
        )
        self.assertGreater(shares[-1], 0.8)
        # Most tenths between 0.1 and 0.8 have a slice
        met = {int(10 * share) for share in shares if 0.1 <= share < 0.8}
        self.assertGreaterEqual(len(met), 4, shares)
        self.assertEqual(made["touched"]["file_pages"], 0)

    def test_an_aged_machine_has_few_empty_slices(self):
        killed = harness.vmstat()["oom_kill"]
        harness.drain(self.device)
        empty = len(harness.empty_ids(self.device))
        made = self.made("--recipe", "aged")
        self.assertEqual(harness.vmstat()["oom_kill"], killed)
        self.assertGreater(empty, 15)
        self.assertLess(len(harness.empty_ids(self.device)), empty // 3)
        # About half of what it touched is free again, and there are lots of it
        touched = sum(made["touched"].values())
        self.assertAlmostEqual(made["freed_pages"] / touched, 0.5, delta=0.1)
        self.assertGreater(harness.meminfo()["MemFree"], harness.meminfo()["MemTotal"] // 3)

    def test_memory_freed_at_the_end_is_free(self):
        before = sums(self.device, "lru_anon")["lru_anon"]
        ramslice(
            "fragment",
            "--dir",
            FOLDER,
            "--memory",
            "200M",
            "--anon",
            "1",
            "--map-count",
            "4",
            "--for",
            "100ms",
        )
        self.assertLess(sums(self.device, "lru_anon")["lru_anon"] - before, 2 << 8)

    def test_a_folder_on_tmpfs_is_refused(self):
        done = subprocess.run(
            [LAB_PROGRAM, "fragment", "--memory", "10M", "--file", "1", "--dir", "/tmp"],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("is on tmpfs", done.stderr)
