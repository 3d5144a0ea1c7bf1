# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice huge`: ranges are emptied and become pages of the hugetlb pool, or come back."""

import json
import mmap
import subprocess
import time
from pathlib import Path

import pytest

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import ColdTest, resize
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.hotplug_blocks import PROGRAM
from ramlab.guest.pinned_memory import KPF_HUGE, PatternedMemory, Ring
from ramlab.guest.workload import Load
from ramlab.pytest_vm import vm

GIB = 1 << 30
MADV_POPULATE_WRITE = 23
POOL = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
NODES = Path("/sys/devices/system/node")


def huge(*words, status=0):
    """The document that the command prints; its exit status must be this one."""
    done = subprocess.run([PROGRAM, "huge", "--json", *map(str, words)], capture_output=True,
                          text=True)
    if done.returncode != status:
        raise AssertionError(f"huge {words}: status {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


@vm(mem="6G", append="ramslice=64M", fresh=True, qemu=("-cpu max",))
@vm(mem="6G", append="ramslice=64M,ways=2,granularity=4M", fresh=True, qemu=("-cpu max",),
    slow=True)
class Huge(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(harness.wake, self.device)
        self.addCleanup(dev.write, POOL, 0)

    def tearDown(self):
        self.assert_sane()

    def offline(self):
        return set(harness.ids(self.device, dev.OFFLINE))

    def stays(self, number):
        """Takes a slice offline; the reason if it refuses, three times: a page may be in use."""
        for _ in range(3):
            done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
            if done.nr_done:
                return None
            time.sleep(0.2)
        return done.why()

    def test_a_range_in_use_becomes_a_page_and_what_was_there_is_elsewhere(self):
        # Memory in use in every range, so that none is free; its page tables may be in each, too
        for _ in range(4):
            load = Load("anon", 2500).wait_ready()
            self.addCleanup(load.kill)
            before = huge("--size", "1G")["pools"][0]
            if before["could_be_had"]:
                break
            load.kill()
        self.assertGreaterEqual(before["could_be_had"], 1)
        done = huge("--size", "1G", "--count", 1)
        self.assertEqual((done["got"], done["total"]), (1, 1))
        self.assertEqual(dev.read(POOL), "1")
        # It is where slices were emptied, so that the kernel moved nothing else
        self.assertEqual(self.offline(), set())
        # Checks every byte, and raises what is wrong
        load.end()
        back = huge("--size", "1G", "--give-back", 1)
        self.assertEqual((back["got"], back["total"]), (1, 0))

    @pytest.mark.slow
    def test_slices_that_are_off_become_pages_by_the_plain_way(self):
        # Memory in use in every range: a page would be of one that is free, and wake nothing
        load = Load("anon", 2500).wait_ready()
        self.addCleanup(load.kill)
        slice_bytes = self.device.info().slice_bytes
        nr = GIB // slice_bytes
        tried = []
        ranges = huge("--size", "1G", "--count", 50, "--dry-run", status=1)["ranges"]
        # In some boots a page of the kernel's lies in each
        self.assertGreater(len(ranges), 0)
        for one in ranges:
            first = one["address"] // slice_bytes
            stays = {number: why for number in range(first, first + nr)
                     if (why := self.stays(number))}
            if not stays:
                break
            tried.append((stays, harness.meminfo()["MemFree"]))
            harness.wake(self.device)
        self.assertEqual(self.offline(), set(range(first, first + nr)), tried)
        before = self.device.info().event_seq
        dev.write(POOL, 1)
        self.assertEqual(dev.read(POOL), "1")
        self.assertEqual(self.offline(), set())
        # Each of them woke, and no other changed its state
        self.assertLessEqual(self.device.info().event_seq - before, 2 * nr)
        load.end()

    @pytest.mark.slow
    def test_the_plain_way_takes_the_range_that_costs_least(self):
        for _ in range(10):
            could = huge("--size", "1G", "--count", 50, "--dry-run", status=1)["ranges"]
            if len(could) > 1:
                break
            # Pages of the kernel that lie in others may be of objects not in use
            dev.write("/proc/sys/vm/drop_caches", 3)
            time.sleep(0.5)
        # Every range becomes full, then one free but for a page in each slice
        memory = mmap.mmap(-1, dev.meminfo("MemAvailable") * 1024 - 300 * MIB,
                           flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.addCleanup(memory.close)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)
        pfns = pinned_memory.pfns(memory)
        # The first that could be had is what Linux itself would take
        self.assertGreater(len(could), 1, could)
        chosen = max(one["address"] for one in could)
        slice_bytes = self.device.info().slice_bytes
        inside = [page for page, pfn in enumerate(pfns)
                  if pfn is not None and pfn * PAGE // GIB == chosen // GIB]
        kept = {pfns[page] * PAGE // slice_bytes: page for page in inside}
        for page in kept.values():
            memory[page * PAGE:page * PAGE + 8] = page.to_bytes(8, "little")
        going = set(inside) - set(kept.values())
        for page in sorted(going):
            if page - 1 in going:
                continue
            end = next(after for after in range(page, len(pfns) + 1) if after not in going)
            memory.madvise(mmap.MADV_DONTNEED, page * PAGE, (end - page) * PAGE)
        self.assertEqual(len(kept), GIB // slice_bytes)
        dev.write(POOL, 1)
        self.assertEqual(dev.read(POOL), "1")
        flags, = pinned_memory.page_flags(chosen // PAGE)
        self.assertTrue(flags >> KPF_HUGE & 1, could)
        self.assertEqual(self.offline(), set())
        for page in kept.values():
            self.assertEqual(int.from_bytes(memory[page * PAGE:page * PAGE + 8], "little"), page)

    def test_a_dry_run_changes_nothing(self):
        before = self.device.info().event_seq
        done = huge("--size", "1G", "--count", 1, "--dry-run")
        self.assertEqual((done["got"], done["total"]), (1, 0))
        self.assertEqual(self.device.info().event_seq, before)

    def test_more_than_there_is_gives_what_can_be_had_and_leaves_no_slice_off(self):
        done = huge("--size", "1G", "--count", 50, status=1)
        self.assertGreaterEqual(done["got"], 1)
        self.assertEqual(str(done["got"]), dev.read(POOL))
        self.assertEqual(self.offline(), set())

    def test_a_pinned_page_costs_its_range_and_the_rest_of_it_comes_back(self):
        with PatternedMemory(64) as memory:
            ring = Ring(memory, 0)
            pinned = memory.pfns()[0] * 4096 // GIB
            done = huge("--size", "1G", "--count", 50, status=1)
            for one in done["ranges"]:
                if one["address"] // GIB == pinned:
                    self.assertIn("slice", one.get("refused", ""))
            self.assertEqual(self.offline(), set())
            ring.release()

    def test_what_the_kernel_does_not_have_is_refused_by_name(self):
        for words, text in (
            (("--size", "3M", "--count", 1), "this kernel has huge pages of"),
            (("--size", "1G", "--give-back", 3), "are not in use"),
            (("--count", 1), "--size"),
            (("--size", "1G", "--objects", "shrink"), "--count"),
        ):
            done = subprocess.run([PROGRAM, "huge", *map(str, words)], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(text, done.stderr)

    def test_pages_of_2_mib_are_made_too(self):
        pool = POOL.replace("1048576", str(2 * MIB >> 10))
        self.addCleanup(dev.write, pool, 0)
        done = huge("--size", "2M", "--count", 8)
        self.assertEqual((done["got"], dev.read(pool)), (8, "8"))


# So much that a range of each node has neither its first pages nor its last ones
@vm(mem="8G", append="ramslice=64M", fresh=True, qemu=("-cpu max",),
    numa=("5G,cpus=0", "3G,cpus=1"))
class HugeOnNodes(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(harness.wake, self.device)
        self.addCleanup(dev.write, POOL, 0)

    def tearDown(self):
        self.assert_sane()

    def parts(self):
        """Pages of the pool on each node."""
        path = f"hugepages/{Path(POOL).parent.name}/nr_hugepages"
        return [int(dev.read(NODES / f"node{node}" / path)) for node in (0, 1)]

    def test_a_page_is_made_on_the_node_that_is_named_and_given_back_there(self):
        self.assertGreaterEqual(huge("--size", "1G", "--node", 1)["pools"][0]["could_be_had"], 1)
        done = huge("--size", "1G", "--count", 1, "--node", 1)
        self.assertEqual((done["got"], done["total"], done["node"]), (1, 1, 1))
        self.assertEqual((self.parts(), dev.read(POOL)), ([0, 1], "1"))
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        done = subprocess.run([PROGRAM, "huge", "--size", "1G", "--give-back", "1", "--node", "0"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("in the pool of node 0, 0 are not in use", done.stderr)
        back = huge("--size", "1G", "--give-back", 1, "--node", 1)
        self.assertEqual((back["got"], back["total"], self.parts()), (1, 0, [0, 0]))

    def test_a_page_is_of_the_node_whose_range_was_emptied_though_another_has_its_turn(self):
        # The kernel makes pages of the whole pool on both nodes in turn, wherever it begins
        for turn in range(2):
            with self.subTest(turn):
                done = huge("--size", "1G", "--count", 1)
                node, = (one["node"] for one in done["ranges"] if "refused" not in one)
                self.assertEqual(self.parts(), [1 - node, node])
                self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
                dev.write(POOL, 0)

    def test_a_table_has_a_row_for_each_node_and_a_dry_run_says_where_ranges_are(self):
        pool, = huge("--size", "1G")["pools"]
        self.assertEqual([row["node"] for row in pool["nodes"]], [0, 1])
        self.assertEqual(sum(row["could_be_had"] for row in pool["nodes"]), pool["could_be_had"])
        for node in (0, 1):
            words = [PROGRAM, "huge", "--size", "1G", "--count", "9", "--node", str(node),
                     "--dry-run"]
            text = subprocess.run(words, capture_output=True, text=True).stdout
            self.assertIn(f"on node {node}: could be made", text)
            self.assertNotIn(f"on node {1 - node}", text)
        self.assertEqual(self.parts(), [0, 0])

    def test_small_pages_are_spread_over_nodes_unless_one_is_named(self):
        small = 2 * MIB >> 10
        paths = [NODES / f"node{node}/hugepages/hugepages-{small}kB/nr_hugepages"
                 for node in (0, 1)]
        self.addCleanup(dev.write, POOL.replace("1048576", str(small)), 0)
        self.assertEqual(huge("--size", "2M", "--count", 8)["got"], 8)
        self.assertEqual([dev.read(path) for path in paths], ["4", "4"])
        self.assertEqual(huge("--size", "2M", "--count", 4, "--node", 0)["total"], 8)
        self.assertEqual([dev.read(path) for path in paths], ["8", "4"])

    def test_an_unknown_node_is_answered_by_those_that_are_there(self):
        done = subprocess.run([PROGRAM, "huge", "--size", "1G", "--count", "1", "--node", "7"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("there is no node 7", done.stderr)
        self.assertIn("this machine has nodes 0 and 1", done.stderr)


@vm(mem="6G", append="ramslice=64M ramslice_cold=0", fresh=True, qemu=("-cpu max",))
class HugeOnTwins(ColdTest):
    def setUp(self):
        super().setUp()
        # Before the twin gives its memory back
        self.addCleanup(dev.write, POOL, 0)

    def test_a_cold_node_has_no_page_unless_it_is_named(self):
        resize(2048)
        pool, = huge("--size", "2M")["pools"]
        cold = [(row["node"], row.get("cold", False)) for row in pool["nodes"]]
        self.assertEqual(cold, [(0, False), (1, True)])
        self.assertEqual(pool["could_be_had"], pool["nodes"][0]["could_be_had"])
        small = POOL.replace("1048576", str(2 * MIB >> 10))
        self.addCleanup(dev.write, small, 0)
        path = NODES / f"node1/hugepages/{Path(small).parent.name}/nr_hugepages"
        self.addCleanup(dev.write, path, 0)
        self.assertEqual(huge("--size", "2M", "--count", 4)["got"], 4)
        self.assertEqual(dev.read(path), "0")
        done = huge("--size", "2M", "--count", 4, "--node", 1)
        self.assertEqual((done["got"], done["total"], dev.read(path)), (4, 4, "4"))

    def test_cold_memory_has_no_range_for_a_large_page(self):
        # Its zone is Movable, and the kernel makes none there
        resize(2048)
        done = huge("--size", "1G", "--count", 1, "--node", 1, status=1)
        self.assertEqual((done["got"], done["ranges"]), (0, []))
        dev.write(NODES / f"node1/hugepages/{Path(POOL).parent.name}/nr_hugepages", 1)
        self.assertEqual(dev.read(POOL), "0")
