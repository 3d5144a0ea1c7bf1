# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice` on Debian's kernel for arm64, which keeps all memory of its boot online.

What was added later can go offline. Debian's kernel takes no memory modules in (it has no
CONFIG_ACPI_HOTPLUG_MEMORY), but virtio-mem.
"""

import json
import subprocess
import unittest
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest.hotplug_blocks import MEMORY, PROGRAM, blocks, counter, off, ramslice
from ramlab.pytest_vm import vm

# QEMU's virtual board has its memory from here on; 1 GiB of it was there at boot.
BASE, BOOT_BYTES = 1 << 30, 1 << 30
SAVED = Path("/run/ramslice/stock.json")
SENTENCE = "this kernel gives no memory back that was there at boot (arm64)"


def run(*words):
    """The exit status of a command for people, and what it writes to stdout and stderr."""
    done = subprocess.run([PROGRAM, *map(str, words)], text=True, capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


@vm(kernel="debian-6.12", arch="arm64", mem="1G", slow=True,
    append="memhp_default_state=online_movable",
    qemu=("-m maxmem=4G -object memory-backend-ram,id=more,size=512M",
          "-device virtio-mem-pci,id=vm0,memdev=more,requested-size=384M"))
class StockArm64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run(["modprobe", "virtio_mem"], check=True)
        cls.block = int((MEMORY / "block_size_bytes").read_text(), 16)
        cls.boot = set(range(BASE // cls.block, (BASE + BOOT_BYTES) // cls.block))

    def setUp(self):
        wanted = len(self.boot) + 3
        self.assertTrue(harness.until(lambda: len(blocks()) == wanted and not off()),
                        "virtio-mem adds three blocks")
        self.found, self.total = blocks(), counter("/proc/meminfo", "MemTotal")
        self.added = set(self.found) - self.boot
        # What an earlier test has learned
        SAVED.unlink(missing_ok=True)

    def tearDown(self):
        ramslice("online", "--all")
        self.assertEqual(blocks(), self.found, "each block is online, in its old zone")
        self.assertEqual(counter("/proc/meminfo", "MemTotal"), self.total)

    def slices(self):
        return {row["id"]: row for row in ramslice("status")["snapshot"]["slices"]}

    def test_read_only_commands_say_what_the_kernel_says(self):
        self.assertEqual(ramslice("status")["info"]["power_driver"], "memory-hotplug")
        self.assertEqual(list(self.slices()), list(self.found))
        for words in (["slices"], ["map"], ["explain", "--all"], ["top", "--count", "1"]):
            self.assertTrue(ramslice(*words), words)
        report = ramslice("doctor")
        # QEMU's device tree says so
        self.assertEqual(report["findings"]["virtual_machine"]["is"], "yes")
        hotplug = report["findings"]["hotplug"]
        self.assertEqual((hotplug["block_bytes"], hotplug["blocks"]),
                         (self.block, len(self.found)))

    def test_an_added_block_goes_and_comes_back(self):
        number = max(self.added)
        done = ramslice("offline", number)["results"][0]["outcome"]
        self.assertEqual((done["reason"], done["slices_done"], off()), ("none", 1, {number}))
        self.assertLess(counter("/proc/meminfo", "MemTotal"), self.total)
        done = ramslice("online", number)["results"][0]["outcome"]
        self.assertEqual((done["reason"], done["slices_done"], off()), ("none", 1, set()))

    def test_memory_of_the_boot_is_refused_once_and_named(self):
        status, text, said = run("--json", "compact", "--deadline", "300s")
        outcome = json.loads(text)["outcome"]
        # The zone of what was added keeps room for a block
        self.assertEqual((len(off()), off() & self.boot), (2, set()), text)
        self.assertEqual((outcome["slices_done"], outcome["slices_failed"], status), (2, 1, 0),
                         text)
        self.assertEqual(said.count(SENTENCE), 1, said)
        rows = self.slices()
        for number in self.boot:
            self.assertTrue(rows[number]["unreclaimable"], rows[number])
        kept = [number for number in self.boot if rows[number]["reason"] == "boot-memory"]
        self.assertTrue(kept, rows)
        # It is not tried again, nor said again.
        status, text, said = run("--json", "compact", "--deadline", "300s")
        outcome = json.loads(text)["outcome"]
        self.assertEqual((outcome["slices_failed"], said, status), (0, "", 0), text)
        refused, text, said = run("offline", kept[0])
        self.assertEqual((refused, said), (1, ""))
        self.assertIn("boot-memory: ", text)

    def test_added_memory_is_no_memory_of_the_boot(self):
        ramslice("compact", "--deadline", "300s")
        ramslice("online", "--all")
        rows = self.slices()
        self.assertEqual({rows[number]["reason"] for number in self.added}, {"none"})
