# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice explain` names causes that the test brings about, and says when it cannot.

With page_owner=on it must name the allocation site; without, how to enable that.
RAMSLICE_PROGRAM names the program.
"""

import json
import mmap
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, Memory
from ramlab.guest.page_reasons import Pin, ReasonTest, lock
from ramlab.pytest_vm import vm

pytestmark = pytest.mark.slow

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")


def explain(*words):
    """What it prints."""
    return subprocess.run(
        [PROGRAM, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE
    ).stdout


class ExplainTest(ReasonTest):
    def one(self, number, *words):
        return json.loads(explain("explain", number, "--json", *words))["slices"][0]

    def owners(self):
        return "page_owner=on" in dev.read("/proc/cmdline").split()


@vm(mem="2064M", append="ramslice=32M")
@vm(mem="2G", disk="256M", append="ramslice=2M page_owner=on")
class Slice(ExplainTest):
    def slab_pages(self, number):
        return sum(run.nr_pages for run in self.device.pages(number) if run.what() == "slab")

    def test_a_pinned_page_is_named(self):
        with Memory(4) as memory:
            memory.touch()
            pin = Pin(memory)
            self.addCleanup(pin.release)
            number = next(
                number for number in self.holding("pinned") if self.reasons(number) == {"pinned"}
            )
            explained = self.one(number)
            group, = [group for group in explained["groups"] if group["reason"] == "pinned"]
            self.assertEqual((group["fate"], group["class"]), ("stays", "anonymous"))
            self.assertEqual(group["pinned_pages"], group["pages"])
            self.assertRegex(
                explained["plain_words"],
                "^To empty it, .* of anonymous memory ha(s|ve) to be released",
            )
            self.assertEqual(explained["price_100cycles"], None)
            self.assertEqual(explained["page_owner"], "on" if self.owners() else "off")
            if self.owners():
                self.assertIn(
                    dev.read("/proc/self/comm"),
                    {
                        process["name"]
                        for site in explained["sites"]
                        for process in site["processes"]
                    },
                )
            pin.release()
            explained = self.one(number)
            self.assertFalse(
                [group for group in explained["groups"] if group["reason"] == "pinned"]
            )

    def test_slab_is_named_with_its_allocation_site(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            before = {number: self.slab_pages(number) for number in self.online()}
            for n in range(12000):
                os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY))
            number = max(
                self.holding("slab"), key=lambda number: self.slab_pages(number) - before[number]
            )
            explained = self.one(number)
            self.assertIn(
                "of slab objects have to be freed by the kernel", explained["plain_words"]
            )
            slab = sum(group["pages"] for group in explained["groups"] if group["class"] == "slab")
            self.assertGreater(slab, 100)
            if self.owners():
                self.assertEqual(explained["page_owner"], "on")
                stack = explained["sites"][0]["stack"]
                self.assertTrue(
                    any("shmem_alloc_inode" in line or "d_alloc" in line for line in stack), stack
                )
                pages = sum(site["pages"] for site in explained["sites"])
                self.assertLessEqual(
                    pages, sum(g["pages"] for g in explained["groups"] if g["fate"] == "stays") + 8
                )

    def test_a_locked_file_is_named_with_its_path(self):
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="locked-") as file:
            file.write(bytes(4 * MIB))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 4 * MIB)
            lock(mapped)
            stat = os.fstat(file.fileno())
            inode = stat.st_ino
            number = max(
                (s.id for s in self.device.snapshot() if not s.flags & dev.UNRECLAIMABLE),
                key=lambda number: sum(
                    run.nr_pages
                    for run in self.device.pages(number)
                    if run.inode == inode and run.flags & dev.MLOCKED
                ),
            )
            explained = self.one(number)
            owner = {"device": f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}", "inode": inode}
            mine = [known for known in explained["files"] if known["owner"] == owner]
            self.assertEqual([known["name"] for known in mine], [file.name])
            self.assertGreater(mine[0]["mlocked_pages"], 0)
            self.assertIn(file.name, explain("explain", number))
            # It keeps no slice from being emptied
            self.assertEqual(mine[0]["staying_pages"], 0)

    def test_without_page_owner_the_text_says_how_to_enable_it(self):
        number = self.holding("slab")[0]
        text = explain("explain", number)
        if self.owners():
            self.assertNotIn("page_owner is off", text)
        else:
            self.assertIn("Boot with `page_owner=on`", text.replace("\n", " "))

    def test_an_empty_slice_and_an_offline_slice_are_named(self):
        number, = self.empty()
        self.assertIn("Nothing stands in the way: it is empty.", self.one(number)["plain_words"])
        self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertIn("It is off", self.one(number)["plain_words"])


@vm(mem="2G", disk="256M", append="ramslice=2M page_owner=on")
class All(ExplainTest):
    def test_exactly_the_slices_that_cannot_be_emptied_are_listed(self):
        with Memory(4) as memory, Memory(64) as loose:
            memory.touch()
            loose.touch()
            pin = Pin(memory)
            self.addCleanup(pin.release)
            stuck = {
                number
                for number in self.online()
                if any(run.reason for run in self.device.pages(number))
            }
            explained = json.loads(explain("explain", "--all", "--json"))
            listed = {row["slice"] for row in explained["stuck"]}
            # The system changes between the two snapshots
            self.assertLessEqual(len(listed ^ stuck), len(stuck) // 10, listed ^ stuck)
            self.assertTrue(set(self.holding("pinned")) <= listed)
            self.assertIn("pinned", {row["reason"] for row in explained["reasons"]})
            self.assertLessEqual(len(explained["next"]), 5)
            prices = [row["price_100cycles"] for row in explained["next"]]
            self.assertEqual(prices, sorted(prices))
            self.assertTrue(explained["next"])
            # The first of them can be emptied
            done = self.device.request(
                "offline", id=explained["next"][0]["slice"], flags=dev.IGNORE_BACKOFF
            )
            self.assertEqual(done.status, 0, done)
            if self.owners():
                self.assertEqual(explained["page_owner"], "on")
                self.assertTrue(explained["sites"])

    def test_a_saved_status_gives_the_same_explanation(self):
        saved = Path("/tmp/saved.json")
        saved.write_text(explain("status", "--json", "--pages", "stuck"))
        explained = json.loads(explain("explain", "--all", "--json", "--from", saved))
        held = {row["slice"]: row for row in json.loads(saved.read_text())["contents"]}
        self.assertEqual({row["slice"] for row in explained["stuck"]}, set(held))
        number = min(held)
        self.assertTrue(explain("explain", number, "--from", saved).startswith(f"Slice {number}: "))
        self.assertIn("each cell is", explain("map", number, "--from", saved))


@vm(mem="2G", disk="256M", append="ramslice=2M page_owner=on")
class Map(ExplainTest):
    def test_a_slice_is_drawn_page_by_page(self):
        number = self.holding("slab")[0]
        text = explain("map", number)
        self.assertIn("slab", text)
        self.assertIn("S", text)
        png = Path("/tmp/slice.png")
        explain("map", number, "--png", png)
        self.assertTrue(png.read_bytes().startswith(b"\x89PNG"))
