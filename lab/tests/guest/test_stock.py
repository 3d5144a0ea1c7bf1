# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice` on a stock kernel, where slices are memory blocks that memory hotplug takes offline.

Each statement of the tool is compared with /sys/devices/system/memory and /proc, which it does not
write.
"""

import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest.hotplug_blocks import (
    LAB_PROGRAM,
    MEMORY,
    MIB,
    PAGE,
    PROGRAM,
    Pinned,
    blocks,
    counter,
    off,
    ramslice,
)
from ramlab.pytest_vm import vm

# Takes this many bytes as fast as it can, checks them, and prints how fast that was. The program
# and the guard share one CPU, where the guard has precedence: which of them is faster must not
# depend on when the host lets each CPU of the guest run.
BURST = f"""
import ctypes, mmap, sys, time
# Otherwise more than is online would be refused at once
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | {harness.MAP_NORESERVE}
memory = mmap.mmap(-1, int(sys.argv[1]), flags=flags)
memory.madvise(mmap.MADV_NOHUGEPAGE)
begin = time.monotonic()
ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, len(memory))
took = time.monotonic() - begin
assert all(memory[at] == 1 for at in range(0, len(memory), mmap.PAGESIZE))
print(round(took, 1), "s,", int(len(memory) / took) >> 20, "MiB/s")
"""


def take_memory_first_to_be_killed():
    """Settings of the program that takes memory."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    os.sched_setaffinity(0, {0})
    os.nice(19)


@vm(kernel=["debian-6.1", "debian-6.12", "debian-7"], mem="2G")
class Stock(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.block = int((MEMORY / "block_size_bytes").read_text(), 16)
        cls.found = blocks()
        cls.total = counter("/proc/meminfo", "MemTotal")

    def setUp(self):
        self.assertEqual(off(), set(), "every block is online before a test")

    def tearDown(self):
        ramslice("online", "--all")
        ramslice("slices", "--resize", self.block)
        self.assertEqual(blocks(), self.found, "each block is online, in its old zone")
        self.assertEqual(counter("/proc/meminfo", "MemTotal"), self.total)

    @staticmethod
    def movable():
        """Slices that can be emptied as far as `ramslice` knows."""
        return [
            s
            for s in ramslice("status")["snapshot"]["slices"]
            if not s["unreclaimable"] and not s["unmovable"]
        ]

    def test_slices_are_memory_blocks_with_prices(self):
        document = ramslice("status")
        info, slices = document["info"], document["snapshot"]["slices"]
        self.assertEqual(info["power_driver"], "memory-hotplug")
        self.assertEqual([s["id"] for s in slices], list(self.found))
        self.assertEqual(info["slice_bytes"], self.block)
        # Free memory counted page by page is the kernel's own sum, but for what changed in between
        free = sum(s["counters"]["free_pages"] for s in slices) * PAGE
        self.assertAlmostEqual(free / MIB, counter("/proc/meminfo", "MemFree") / 1024, delta=48)
        for s in slices:
            stays = s["unreclaimable"] or s["unmovable"]
            self.assertEqual(s["price_100cycles"] >= 10**9, stays, s)
            self.assertEqual(s["reason"] != "none", stays, s)
        self.assertTrue(slices[0]["unreclaimable"], "the first block has two zones and firmware")

    def test_the_cheapest_slices_go_first_within_the_budget(self):
        slices = ramslice("status")["snapshot"]["slices"]
        prices = {
            s["id"]: s["price_100cycles"]
            for s in slices
            if not s["unreclaimable"] and not s["unmovable"]
        }
        cheap = sorted(prices.values())
        answer = ramslice("compact", "--budget", 1, "--deadline", "60s")["outcome"]
        self.assertEqual(
            (answer["reason"], answer["slices_done"], off()), ("over-budget", 0, set())
        )
        answer = ramslice("compact", "--max-slices", 2)["outcome"]
        self.assertEqual((answer["slices_done"], len(off())), (2, 2))
        # Slices may have filled since; the two were among the cheapest
        self.assertLessEqual(max(prices[number] for number in off()), cheap[len(cheap) // 2])
        self.assertLess(counter("/proc/meminfo", "MemTotal"), self.total - 200 * 1024)
        info = ramslice("status")["info"]
        self.assertEqual(info["offline_pages"] * PAGE, 2 * self.block)
        number = min(off())
        self.assertEqual(ramslice("online", number)["results"][0]["outcome"]["slices_done"], 1)
        self.assertNotIn(number, off())

    def test_a_ramp_takes_the_highest_slices_first_and_returns_them(self):
        floor = len(self.found) - 2
        words = [LAB_PROGRAM, "--json", "ramp", "--step", "1", "--every", "1s"]
        words += ["--floor", str(floor)]
        text = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout
        *steps, end = map(json.loads, text.splitlines())
        self.assertEqual([step["offline_slices"] for step in steps if step["slices"]], [1, 2, 1, 0])
        switched = [number for step in steps for number in step["slices"]]
        self.assertGreater(switched[0], switched[1])
        self.assertEqual(switched[2:], switched[1::-1])
        self.assertEqual((end["ended"], off()), ("done", set()))

    def test_available_memory_stays_above_the_margin(self):
        # So much memory is in use that the margin is met before the slices run out
        used = mmap.mmap(-1, 300 * MIB)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(used)), 1, len(used))
        answer = ramslice("compact", "--deadline", "1000s")["outcome"]
        self.assertIn(answer["reason"], ("awake-reserve", "none"))
        self.assertGreater(answer["slices_done"], 2)
        self.assertGreater(counter("/proc/meminfo", "MemAvailable"), 240 * 1024)
        # Single requests end for the same reason
        reasons = set()
        for s in self.movable():
            if s["state"] == "online" and "awake-reserve" not in reasons:
                done = subprocess.run(
                    [PROGRAM, "--json", "offline", str(s["id"])], stdout=subprocess.PIPE, text=True
                )
                reasons.add(json.loads(done.stdout)["results"][0]["outcome"]["reason"])
        self.assertIn("awake-reserve", reasons)
        self.assertGreater(counter("/proc/meminfo", "MemAvailable"), 240 * 1024)
        self.pressure()

    def pressure(self):
        """With all possible blocks offline, a guard wakes them for an allocation and no process
        is killed.
        """
        before = len(off())
        killed = counter("/proc/vmstat", "oom_kill")
        guard = subprocess.Popen([PROGRAM, "--json", "guard"], text=True, stdout=subprocess.PIPE)
        self.addCleanup(guard.kill)
        reported = []

        def listen():
            with guard.stdout:
                for line in guard.stdout:
                    reported.append(json.loads(line))

        reader = threading.Thread(target=listen)
        reader.start()

        def enough():
            return harness.meminfo()["MemAvailable"] << 10 >= harness.GUARD_FLOOR or not off()

        def woken():
            return sum(line["outcome"]["slices_done"] for line in reported)

        self.assertTrue(
            harness.until(lambda: "/proc/pressure/memory" in harness.opened(guard.pid).values()),
            "the guard watches the pressure file",
        )
        memory = mmap.mmap(-1, 400 * MIB)
        for at in range(0, len(memory), PAGE):
            # After each 16 MiB it waits for the guard, which is a program in user space
            if at % (16 * MIB) == 0:
                self.assertTrue(harness.until(enough), reported)
            memory[at:at + 8] = at.to_bytes(8, "little")
        self.assertTrue(harness.until(lambda: woken() > 0), "the guard reports what it woke")
        for at in range(0, len(memory), PAGE):
            self.assertEqual(memory[at:at + 8], at.to_bytes(8, "little"))
        guard.send_signal(signal.SIGINT)
        reader.join(harness.PATIENCE)
        self.assertEqual(guard.wait(harness.PATIENCE), 0)
        self.assertEqual(counter("/proc/vmstat", "oom_kill"), killed)
        self.assertGreater(woken(), 0, reported)
        self.assertEqual(len(off()), before - woken())

    def test_a_fast_allocation_does_not_outrun_the_guard(self):
        ramslice("compact", "--deadline", "1000s")
        before = {name: counter("/proc/vmstat", name) for name in ("oom_kill", "pswpout")}
        guard = subprocess.Popen([PROGRAM, "--json", "guard"], text=True, stdout=subprocess.PIPE,
                                 preexec_fn=lambda: os.sched_setaffinity(0, {0}))
        self.addCleanup(guard.kill)
        self.assertTrue(
            harness.until(lambda: "/proc/pressure/memory" in harness.opened(guard.pid).values()),
            "the guard watches the pressure file",
        )
        gone = len(off()) * self.block
        size = ((harness.meminfo()["MemAvailable"] << 10) + gone // 2) // PAGE * PAGE
        # A child process, so that it is the one that would be killed
        took = subprocess.run(
            [sys.executable, "-c", BURST, str(size)],
            text=True,
            stdout=subprocess.PIPE,
            preexec_fn=take_memory_first_to_be_killed,
        )
        guard.send_signal(signal.SIGINT)
        reported = [
            json.loads(line) for line in guard.communicate(timeout=harness.PATIENCE)[0].splitlines()
        ]
        after = {name: counter("/proc/vmstat", name) - was for name, was in before.items()}
        woken = sum(line["outcome"]["slices_done"] for line in reported)
        print(
            f"burst: {size // MIB} MiB of which {gone // 2 // MIB} were off;"
            f" {took.stdout.strip() or took.returncode}; {woken} slices woken; {after}",
            flush=True,
        )
        self.assertEqual((took.returncode, after), (0, dict.fromkeys(after, 0)))
        self.assertGreater(woken, 0, reported)

    def test_the_hugetlb_pool_is_left_unchanged(self):
        pool = Path("/proc/sys/vm/nr_hugepages")
        self.addCleanup(pool.write_text, "0")
        pool.write_text("96")
        count = int(pool.read_text())
        self.assertGreater(count, 8)
        slices = ramslice("status")["snapshot"]["slices"]
        holds = [s["id"] for s in slices if s["reason"] == "hugetlb"]
        self.assertTrue(holds, slices)
        names = ("HugePages_Total", "HugePages_Free")
        before = [counter("/proc/meminfo", name) for name in names]
        refused = ramslice("offline", holds[0], status=1)["results"][0]["outcome"]
        self.assertEqual(refused["reason"], "hugetlb")
        self.assertGreater(ramslice("compact", "--deadline", "1000s")["outcome"]["slices_done"], 0)
        self.assertEqual(off() & set(holds), set())
        self.assertEqual([counter("/proc/meminfo", name) for name in names], before)
        ramslice("online", "--all")
        self.assertEqual([counter("/proc/meminfo", name) for name in names], before)

    def test_a_refusal_names_the_reason_and_changes_no_block(self):
        refused = ramslice("offline", 0, status=1)["results"][0]["outcome"]
        self.assertEqual((refused["reason"], refused["slices_done"]), ("zone-end", 0))
        pages = ramslice("explain", 0)
        self.assertIn("boot", json.dumps(pages))
        self.assertEqual(blocks(), self.found)

    def test_a_pinned_page_ends_the_request_at_its_deadline(self):
        # In a slice of two blocks the upper one goes first, and comes back when the lower one stays
        ramslice("slices", "--resize", 2 * self.block)
        pinned = Pinned({2 * s["id"] for s in self.movable()}, self.block)
        self.addCleanup(pinned.close)
        number = pinned.block
        refused = ramslice("offline", number // 2, "--deadline", "15s", status=1)["results"][0][
            "outcome"
        ]
        self.assertIn(refused["reason"], ("pinned", "unmovable"))
        self.assertEqual(blocks(), self.found)
        self.assertTrue(pinned.intact())
        # It is not tried again for a while
        again = ramslice("offline", number // 2, status=1)["results"][0]["outcome"]
        self.assertEqual(again["reason"], "backoff")

    def test_compaction_passes_a_pinned_page(self):
        pinned = Pinned({s["id"] for s in self.movable()}, self.block)
        self.addCleanup(pinned.close)
        answer = ramslice("compact", "--deadline", "300s")["outcome"]
        self.assertIn(
            answer["reason"], ("awake-reserve", "pinned", "unmovable", "migration", "none")
        )
        self.assertGreater(answer["slices_done"], 2)
        self.assertNotIn(pinned.block, off())
        self.assertTrue(pinned.intact())

    def test_ctrl_c_changes_no_block(self):
        pinned = Pinned({s["id"] for s in self.movable()}, self.block)
        self.addCleanup(pinned.close)
        number = pinned.block
        request = subprocess.Popen(
            [PROGRAM, "--json", "offline", str(number)], text=True, stdout=subprocess.PIPE
        )
        while blocks().get(number, ("",))[0] == "online" and request.poll() is None:
            time.sleep(0.1)
        time.sleep(1)
        request.send_signal(signal.SIGINT)
        outcome = json.loads(request.communicate(timeout=harness.PATIENCE)[0])["results"][0][
            "outcome"
        ]
        self.assertEqual((outcome["reason"], request.returncode), ("signal", 1))
        self.assertEqual(blocks(), self.found)

    def test_a_raw_table_has_the_state_of_each_block(self):
        ramslice("compact", "--max-slices", 2)
        done = subprocess.run(
            [PROGRAM, "slices", "-nbr", "-o", "slice,state,present,held"], check=True, text=True,
            stdout=subprocess.PIPE,
        )
        rows = [line.split(" ") for line in done.stdout.splitlines()]
        self.assertEqual({int(row[0]) for row in rows if row[1] == "offline"}, off())
        self.assertEqual(len(off()), 2)
        self.assertEqual([int(row[0]) for row in rows], list(self.found))
        self.assertTrue(all(0 < int(row[2]) <= self.block for row in rows), rows)
        self.assertEqual({row[3] for row in rows}, {"no"})

    def test_other_commands_work_or_name_the_reason(self):
        ramslice("compact", "--max-slices", 1)
        for words in (["map"], ["explain", "--all"], ["slices"], ["top", "--count", "1"]):
            self.assertTrue(ramslice(*words), words)
        done = subprocess.run(
            [PROGRAM, "--backend", "kernel", "status"], text=True, stderr=subprocess.PIPE
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no ramslice", done.stderr)
