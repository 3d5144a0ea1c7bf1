#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice explain` names causes that were made on purpose, and says so when it cannot.

RAMSLICE_PROGRAM is the program. With page_owner=on it must name who allocated; without, how to learn that.
"""

import json
import mmap
import os
import subprocess
import tempfile
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
import test_reasons
from ramlab.guest.harness import MIB, Memory

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")


def explain(*words):
    """What it prints."""
    return subprocess.run([PROGRAM, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE).stdout


class Test(test_reasons.Test):
    def one(self, number, *words):
        return json.loads(explain("explain", number, "--json", *words))["slices"][0]

    def owners(self):
        return "page_owner=on" in dev.read("/proc/cmdline").split()


class Slice(Test):
    def slab_pages(self, number):
        return sum(run.nr_pages for run in self.device.pages(number) if run.what() == "slab")

    def test_a_pinned_page_is_named(self):
        with Memory(4) as memory:
            memory.touch()
            pin = test_reasons.Pin(memory)
            self.addCleanup(pin.release)
            number = next(number for number in self.holding("pinned") if self.reasons(number) == {"pinned"})
            told = self.one(number)
            group, = [group for group in told["groups"] if group["reason"] == "pinned"]
            self.assertEqual((group["fate"], group["class"]), ("stays", "anonymous"))
            self.assertEqual(group["pinned_pages"], group["pages"])
            self.assertRegex(told["plain_words"], "^To empty it, .* of anonymous memory ha(s|ve) to be released by whoever pinned")
            self.assertEqual(told["price_100cycles"], None)
            self.assertEqual(told["page_owner"], "on" if self.owners() else "off")
            if self.owners():
                self.assertIn("python3", {process["name"] for site in told["sites"] for process in site["processes"]})
            pin.release()
            told = self.one(number)
            self.assertFalse([group for group in told["groups"] if group["reason"] == "pinned"])

    def test_slab_is_named_with_who_allocated_it(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            before = {number: self.slab_pages(number) for number in self.online()}
            for n in range(12000):
                os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY))
            number = max(self.holding("slab"), key=lambda number: self.slab_pages(number) - before[number])
            told = self.one(number)
            self.assertIn("of slab objects have to be freed by the kernel", told["plain_words"])
            slab = sum(group["pages"] for group in told["groups"] if group["class"] == "slab")
            self.assertGreater(slab, 100)
            if self.owners():
                self.assertEqual(told["page_owner"], "on")
                stack = told["sites"][0]["stack"]
                self.assertTrue(any("shmem_alloc_inode" in line or "d_alloc" in line for line in stack), stack)
                pages = sum(site["pages"] for site in told["sites"])
                self.assertLessEqual(pages, sum(g["pages"] for g in told["groups"] if g["fate"] == "stays") + 8)

    def test_a_locked_file_is_named_with_its_path(self):
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="locked-") as file:
            file.write(bytes(4 * MIB))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 4 * MIB)
            test_reasons.lock(mapped)
            stat = os.fstat(file.fileno())
            inode = stat.st_ino
            number = max((s.id for s in self.device.snapshot() if not s.flags & dev.UNRECLAIMABLE), key=lambda number: sum(
                run.nr_pages for run in self.device.pages(number) if run.inode == inode and run.flags & dev.MLOCKED))
            told = self.one(number)
            owner = {"device": f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}", "inode": inode}
            mine = [known for known in told["files"] if known["owner"] == owner]
            self.assertEqual([known["name"] for known in mine], [file.name])
            self.assertGreater(mine[0]["mlocked_pages"], 0)
            self.assertIn(file.name, explain("explain", number))
            # It stands in nobody's way
            self.assertEqual(mine[0]["staying_pages"], 0)

    def test_without_page_owner_it_says_how_to_switch_it_on(self):
        number = self.holding("slab")[0]
        text = explain("explain", number)
        if self.owners():
            self.assertNotIn("page_owner is off", text)
        else:
            self.assertIn("Boot with `page_owner=on`", text.replace("\n", " "))

    def test_an_empty_slice_and_one_that_is_off(self):
        number, = self.empty()
        self.assertIn("Nothing stands in the way: it is empty.", self.one(number)["plain_words"])
        self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertIn("It is off", self.one(number)["plain_words"])


class All(Test):
    def test_every_slice_that_cannot_be_emptied_is_listed_and_no_other(self):
        with Memory(4) as memory, Memory(64) as loose:
            memory.touch()
            loose.touch()
            pin = test_reasons.Pin(memory)
            self.addCleanup(pin.release)
            stuck = {number for number in self.online() if any(run.reason for run in self.device.pages(number))}
            told = json.loads(explain("explain", "--all", "--json"))
            listed = {row["slice"] for row in told["stuck"]}
            # Both look at a system that goes on
            self.assertLessEqual(len(listed ^ stuck), len(stuck) // 10, listed ^ stuck)
            self.assertTrue(set(self.holding("pinned")) <= listed)
            self.assertIn("pinned", {row["reason"] for row in told["reasons"]})
            self.assertLessEqual(len(told["next"]), 5)
            prices = [row["price_100cycles"] for row in told["next"]]
            self.assertEqual(prices, sorted(prices))
            self.assertTrue(told["next"])
            # The first of them can be had
            done = self.device.request("offline", id=told["next"][0]["slice"], flags=dev.IGNORE_BACKOFF)
            self.assertEqual(done.status, 0, done)
            if self.owners():
                self.assertEqual(told["page_owner"], "on")
                self.assertTrue(told["sites"])

    def test_what_was_saved_explains_the_same(self):
        saved = Path("/tmp/saved.json")
        saved.write_text(explain("status", "--json", "--pages", "stuck"))
        told = json.loads(explain("explain", "--all", "--json", "--from", saved))
        held = {row["slice"]: row for row in json.loads(saved.read_text())["contents"]}
        self.assertEqual({row["slice"] for row in told["stuck"]}, set(held))
        number = min(held)
        self.assertTrue(explain("explain", number, "--from", saved).startswith(f"Slice {number}: "))
        self.assertIn("each cell is", explain("map", number, "--from", saved))


class Map(Test):
    def test_a_slice_is_drawn_page_by_page(self):
        number = self.holding("slab")[0]
        text = explain("map", number)
        self.assertIn("slab", text)
        self.assertIn("S", text)
        png = Path("/tmp/slice.png")
        explain("map", number, "--png", png)
        self.assertTrue(png.read_bytes().startswith(b"\x89PNG"))


if __name__ == "__main__":
    harness.main()
