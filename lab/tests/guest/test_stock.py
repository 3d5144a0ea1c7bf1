#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""ramslice on a kernel that nobody patched: slices of memory blocks, by memory hotplug.

RAMSLICE_PROGRAM is the program. Wants 2 GiB of memory in blocks of 128 MiB. What the tool says is compared with
/sys/devices/system/memory and /proc, which it does not write.
"""

import ctypes
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from ramlab.guest import harness

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
MEMORY = Path("/sys/devices/system/memory")
PAGE = mmap.PAGESIZE
MIB = 1 << 20


def ramslice(*words, status=0):
    """The document that a command prints, and its exit status checked."""
    done = subprocess.run([PROGRAM, "--json", *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != status:
        raise AssertionError(f"ramslice {words}: status {done.returncode}, {done.stdout}{done.stderr}")
    return json.loads(done.stdout) if done.stdout else {}


def blocks():
    """Each block's state and zones, as the kernel tells them."""
    found = {}
    for folder in MEMORY.glob("memory[0-9]*"):
        words = [(folder / name).read_text().strip() for name in ("state", "valid_zones")]
        found[int(folder.name[6:])] = tuple(words)
    return dict(sorted(found.items()))


def off():
    return {number for number, (state, _) in blocks().items() if state != "online"}


def counter(path, name):
    for line in Path(path).read_text().splitlines():
        words = line.replace(":", "").split()
        if words and words[0] == name:
            return int(words[1])
    raise KeyError(name)


# Takes so many bytes as fast as it can, and says how fast that was and whether all is there.
BURST = f"""
import ctypes, mmap, sys, time
# Else more than what is on would be refused at once.
memory = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | {harness.MAP_NORESERVE})
memory.madvise(mmap.MADV_NOHUGEPAGE)
begin = time.monotonic()
ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, len(memory))
took = time.monotonic() - begin
assert all(memory[at] == 1 for at in range(0, len(memory), mmap.PAGESIZE))
print(round(took, 1), "s,", int(len(memory) / took) >> 20, "MiB/s")
"""


def kill_me_first():
    Path("/proc/self/oom_score_adj").write_text("1000")


class Pinned:
    """A page that io_uring holds for DMA, in one of the wanted blocks: it can be neither moved nor dropped."""

    def __init__(self, wanted, block_bytes):
        libc = ctypes.CDLL(None, use_errno=True)
        # None of the memory that the kernel gave first may lie there
        elsewhere, page = [], None
        while page is None:
            self.all = mmap.mmap(-1, 400 * MIB)
            self.all.madvise(mmap.MADV_NOHUGEPAGE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self.all))
            ctypes.memset(address, ord("p"), len(self.all))
            count = len(self.all) // PAGE
            with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
                pagemap.seek(address // PAGE * 8)
                entries = struct.unpack(f"<{count}Q", pagemap.read(count * 8))
            where = [(entry & ((1 << 55) - 1)) * PAGE // block_bytes for entry in entries]
            page = next((n for n, block in enumerate(where) if block in wanted), None)
            elsewhere.append(self.all)
            if page is None and len(elsewhere) == 3:
                raise AssertionError(f"no page in the blocks {wanted}")
        self.block, self.at = where[page], page * PAGE
        self.ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
        vector = struct.pack("QQ", address + self.at, PAGE)
        if self.ring < 0 or libc.syscall(427, self.ring, 0, vector, 1):
            raise OSError(ctypes.get_errno(), "io_uring")
        if page:
            self.all.madvise(mmap.MADV_DONTNEED, 0, self.at)
        self.all.madvise(mmap.MADV_DONTNEED, self.at + PAGE, len(self.all) - self.at - PAGE)

    def intact(self):
        return self.all[self.at:self.at + PAGE] == b"p" * PAGE

    def close(self):
        os.close(self.ring)


class Stock(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.block = int((MEMORY / "block_size_bytes").read_text(), 16)
        cls.found = blocks()
        cls.total = counter("/proc/meminfo", "MemTotal")

    def setUp(self):
        self.assertEqual(off(), set(), "everything is on before a test")

    def tearDown(self):
        ramslice("online", "--all")
        ramslice("slices", "--resize", self.block)
        self.assertEqual(blocks(), self.found, "each block is on, and in the zone it was in")
        self.assertEqual(counter("/proc/meminfo", "MemTotal"), self.total)

    @staticmethod
    def movable():
        """Slices that can be emptied as far as can be told."""
        return [s for s in ramslice("status")["snapshot"]["slices"] if not s["unreclaimable"] and not s["unmovable"]]

    def test_slices_are_memory_blocks_with_prices(self):
        document = ramslice("status")
        info, slices = document["info"], document["snapshot"]["slices"]
        self.assertEqual(info["power_driver"], "memory-hotplug")
        self.assertEqual([s["id"] for s in slices], list(self.found))
        self.assertEqual(info["slice_bytes"], self.block)
        # Page by page, free memory is what the kernel's own sum says, give or take what happened meanwhile.
        free = sum(s["counters"]["free_pages"] for s in slices) * PAGE
        self.assertAlmostEqual(free / MIB, counter("/proc/meminfo", "MemFree") / 1024, delta=48)
        for s in slices:
            stays = s["unreclaimable"] or s["unmovable"]
            self.assertEqual(s["price_100cycles"] >= 10**9, stays, s)
            self.assertEqual(s["reason"] != "none", stays, s)
        self.assertTrue(slices[0]["unreclaimable"], "the first block has two zones and firmware")

    def test_the_cheapest_go_first_within_the_budget_and_come_back(self):
        slices = ramslice("status")["snapshot"]["slices"]
        prices = {s["id"]: s["price_100cycles"] for s in slices if not s["unreclaimable"] and not s["unmovable"]}
        cheap = sorted(prices.values())
        answer = ramslice("compact", "--budget", 1, "--deadline", "60s")["outcome"]
        self.assertEqual((answer["reason"], answer["slices_done"], off()), ("over-budget", 0, set()))
        answer = ramslice("compact", "--max-slices", 2)["outcome"]
        self.assertEqual((answer["slices_done"], len(off())), (2, 2))
        # Others may have filled meanwhile; the two were among the cheapest.
        self.assertLessEqual(max(prices[number] for number in off()), cheap[len(cheap) // 2])
        self.assertLess(counter("/proc/meminfo", "MemTotal"), self.total - 200 * 1024)
        info = ramslice("status")["info"]
        self.assertEqual(info["offline_pages"] * PAGE, 2 * self.block)
        number = min(off())
        self.assertEqual(ramslice("online", number)["results"][0]["outcome"]["slices_done"], 1)
        self.assertNotIn(number, off())

    def test_a_ramp_takes_the_highest_first_and_gives_all_back(self):
        floor = len(self.found) - 2
        words = [PROGRAM, "--json", "ramp", "--step", "1", "--every", "1s", "--floor", str(floor)]
        text = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout
        *steps, end = map(json.loads, text.splitlines())
        self.assertEqual([step["offline_slices"] for step in steps if step["slices"]], [1, 2, 1, 0])
        switched = [number for step in steps for number in step["slices"]]
        self.assertGreater(switched[0], switched[1])
        self.assertEqual(switched[2:], switched[1::-1])
        self.assertEqual((end["ended"], off()), ("done", set()))

    def test_never_below_the_margin(self):
        # So much in use that the margin is met before the slices run out.
        used = mmap.mmap(-1, 300 * MIB)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(used)), 1, len(used))
        answer = ramslice("compact", "--deadline", "100s")["outcome"]
        self.assertIn(answer["reason"], ("awake-reserve", "none"))
        self.assertGreater(answer["slices_done"], 2)
        self.assertGreater(counter("/proc/meminfo", "MemAvailable"), 240 * 1024)
        # By name, too, slices go until the same reason ends it.
        reasons = set()
        for s in self.movable():
            if s["state"] == "online" and "awake-reserve" not in reasons:
                done = subprocess.run([PROGRAM, "--json", "offline", str(s["id"])], stdout=subprocess.PIPE, text=True)
                reasons.add(json.loads(done.stdout)["results"][0]["outcome"]["reason"])
        self.assertIn("awake-reserve", reasons)
        self.assertGreater(counter("/proc/meminfo", "MemAvailable"), 240 * 1024)
        self.pressure()

    def pressure(self):
        """With all off that may be: memory is wanted, a guard wakes blocks, nobody is killed."""
        before = len(off())
        killed = counter("/proc/vmstat", "oom_kill")
        guard = subprocess.Popen([PROGRAM, "--json", "guard"], text=True, stdout=subprocess.PIPE)
        self.addCleanup(guard.kill)
        said = []

        def listen():
            with guard.stdout:
                for line in guard.stdout:
                    said.append(json.loads(line))

        reader = threading.Thread(target=listen)
        reader.start()

        def enough():
            return harness.meminfo()["MemAvailable"] << 10 >= harness.GUARD_FLOOR or not off()

        def woken():
            return sum(line["outcome"]["slices_done"] for line in said)

        self.assertTrue(harness.until(lambda: "/proc/pressure/memory" in harness.opened(guard.pid).values()), "it watches")
        memory = mmap.mmap(-1, 400 * MIB)
        for at in range(0, len(memory), PAGE):
            # 16 MiB, then the guard's turn if it has one: no faster than a program in user space can be.
            if at % (16 * MIB) == 0:
                self.assertTrue(harness.until(enough), said)
            memory[at:at + 8] = at.to_bytes(8, "little")
        self.assertTrue(harness.until(lambda: woken() > 0), "it says what it woke")
        for at in range(0, len(memory), PAGE):
            self.assertEqual(memory[at:at + 8], at.to_bytes(8, "little"))
        guard.send_signal(signal.SIGINT)
        reader.join(60)
        self.assertEqual(guard.wait(60), 0)
        self.assertEqual(counter("/proc/vmstat", "oom_kill"), killed)
        self.assertGreater(woken(), 0, said)
        self.assertEqual(len(off()), before - woken())

    def test_a_program_that_takes_what_is_off_as_fast_as_it_can_does_not_outrun_the_guard(self):
        # That of an emulated machine can not: on a faster one it might.
        ramslice("compact", "--deadline", "100s")
        before = {name: counter("/proc/vmstat", name) for name in ("oom_kill", "pswpout")}
        guard = subprocess.Popen([PROGRAM, "--json", "guard"], text=True, stdout=subprocess.PIPE)
        self.addCleanup(guard.kill)
        self.assertTrue(harness.until(lambda: "/proc/pressure/memory" in harness.opened(guard.pid).values()), "it watches")
        gone = len(off()) * self.block
        size = ((harness.meminfo()["MemAvailable"] << 10) + gone // 2) // PAGE * PAGE
        # A child: if somebody is killed, it is this one.
        took = subprocess.run(
            [sys.executable, "-c", BURST, str(size)], text=True, stdout=subprocess.PIPE, preexec_fn=kill_me_first)
        guard.send_signal(signal.SIGINT)
        said = [json.loads(line) for line in guard.communicate(timeout=60)[0].splitlines()]
        after = {name: counter("/proc/vmstat", name) - was for name, was in before.items()}
        woken = sum(line["outcome"]["slices_done"] for line in said)
        print(f"burst: {size // MIB} MiB of which {gone // 2 // MIB} were off; {took.stdout.strip() or took.returncode}; "
              f"{woken} slices woken; {after}", flush=True)
        self.assertEqual((took.returncode, after), (0, dict.fromkeys(after, 0)))
        self.assertGreater(woken, 0, said)

    def test_the_hugetlb_pool_is_left_as_found(self):
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
        self.assertGreater(ramslice("compact", "--deadline", "100s")["outcome"]["slices_done"], 0)
        self.assertEqual(off() & set(holds), set())
        self.assertEqual([counter("/proc/meminfo", name) for name in names], before)
        ramslice("online", "--all")
        self.assertEqual([counter("/proc/meminfo", name) for name in names], before)

    def test_a_refusal_says_why_and_leaves_blocks_as_found(self):
        refused = ramslice("offline", 0, status=1)["results"][0]["outcome"]
        self.assertEqual((refused["reason"], refused["slices_done"]), ("zone-end", 0))
        pages = ramslice("explain", 0)
        self.assertIn("boot", json.dumps(pages))
        self.assertEqual(blocks(), self.found)

    def test_a_pinned_page_ends_at_the_deadline_with_every_block_as_found(self):
        # Slices of two blocks: the upper one goes first and has to come back when the lower one stays.
        ramslice("slices", "--resize", 2 * self.block)
        pinned = Pinned({2 * s["id"] for s in self.movable()}, self.block)
        self.addCleanup(pinned.close)
        number = pinned.block
        refused = ramslice("offline", number // 2, "--deadline", "15s", status=1)["results"][0]["outcome"]
        self.assertIn(refused["reason"], ("pinned", "unmovable"))
        self.assertEqual(blocks(), self.found)
        self.assertTrue(pinned.intact())
        # It is left alone for a while.
        again = ramslice("offline", number // 2, status=1)["results"][0]["outcome"]
        self.assertEqual(again["reason"], "backoff")

    def test_compact_goes_past_a_pinned_page(self):
        pinned = Pinned({s["id"] for s in self.movable()}, self.block)
        self.addCleanup(pinned.close)
        answer = ramslice("compact", "--deadline", "300s")["outcome"]
        self.assertIn(answer["reason"], ("awake-reserve", "pinned", "unmovable", "migration", "none"))
        self.assertGreater(answer["slices_done"], 2)
        self.assertNotIn(pinned.block, off())
        self.assertTrue(pinned.intact())

    def test_ctrl_c_leaves_blocks_as_found(self):
        pinned = Pinned({s["id"] for s in self.movable()}, self.block)
        self.addCleanup(pinned.close)
        number = pinned.block
        request = subprocess.Popen([PROGRAM, "--json", "offline", str(number)], text=True, stdout=subprocess.PIPE)
        while blocks().get(number, ("",))[0] == "online" and request.poll() is None:
            time.sleep(0.1)
        time.sleep(1)
        request.send_signal(signal.SIGINT)
        outcome = json.loads(request.communicate(timeout=60)[0])["results"][0]["outcome"]
        self.assertEqual((outcome["reason"], request.returncode), ("signal", 1))
        self.assertEqual(blocks(), self.found)

    def test_other_commands_work_or_say_why_not(self):
        ramslice("compact", "--max-slices", 1)
        for words in (["map"], ["explain", "--all"], ["slices"], ["watch", "--count", "1"]):
            self.assertTrue(ramslice(*words), words)
        done = subprocess.run([PROGRAM, "--backend", "kernel", "status"], text=True, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no ramslice", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
