# SPDX-License-Identifier: GPL-2.0-or-later
"""NUMA nodes and control groups: emptying moves no page to another node and changes no group's
accounting.
"""

import contextlib
import mmap
import os
import time
from pathlib import Path

import pytest

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, check_contents
from ramlab.guest.pinned_memory import Group, PageMovementTest, PatternedMemory, by_slice
from ramlab.pytest_vm import vm

TWO_NODES = ("512M,cpus=0", "512M,cpus=1")


def maps_nodes(memory):
    """{node: pages} by a second source, numa_maps."""
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        words = line.split()
        if int(words[0], 16) == memory.address:
            return {int(word[1:].split("=")[0]): int(word.split("=")[1]) for word in words[2:]
                    if word[0] == "N" and word[1].isdigit()}
    raise KeyError(hex(memory.address))


@pytest.mark.slow
@vm(mem="1G", append="ramslice=16M", numa=TWO_NODES)
class Nodes(PageMovementTest):
    @contextlib.contextmanager
    def memories(self):
        """Memory of node 0, of node 1, and of both in turns."""
        with contextlib.ExitStack() as stack:
            found = {}
            kinds = [
                ("node 0", pinned_memory.MPOL_BIND, [0]),
                ("node 1", pinned_memory.MPOL_BIND, [1]),
                ("both", pinned_memory.MPOL_INTERLEAVE, [0, 1]),
            ]
            for seed, (name, mode, nodes) in enumerate(kinds):
                memory = stack.enter_context(PatternedMemory(32, seed=seed + 1, fill=False))
                memory.bind(mode, nodes)
                memory.fill()
                found[name] = memory
                self.assertEqual(set(memory.nodes()), set(nodes))
            yield found

    def places(self, memories):
        return {name: (memory.nodes(), maps_nodes(memory)) for name, memory in memories.items()}

    def assert_kept(self, memories, before):
        for name, (nodes, sums) in self.places(memories).items():
            with self.subTest(name):
                self.assertEqual(nodes, before[name][0])
                self.assertEqual(sums, before[name][1])
                check_contents(memories[name])

    def off_by_node(self):
        nodes = {0: 0, 1: 0}
        for zone in self.device.zones():
            nodes[zone.node] += zone.nr_offline
        return nodes

    def test_slices_emptied_one_by_one_keep_pages_on_their_node(self):
        with self.memories() as memories:
            before = self.places(memories)
            for name, memory in memories.items():
                for number in self.holding(memory)[:2]:
                    pfns = memory.pfns()
                    self.assertGreater(self.assert_goes(number).pages_migrated, 100)
                    self.assertNotEqual(memory.pfns(), pfns)
                self.device.request("online_all")
            self.assert_kept(memories, before)

    def test_compaction_of_one_node_leaves_the_other_alone(self):
        for node in (1, 0):
            with self.subTest(node=node), self.memories() as memories:
                before = self.places(memories)
                other = {name: memory.pfns() for name, memory in memories.items()}
                done = self.device.request("compact", node=node, flags=dev.IGNORE_BACKOFF)
                self.assertEqual(done.status, 0)
                off = self.off_by_node()
                self.assertGreater(off[node], 8)
                self.assertEqual(off[1 - node], 0)
                # No page of the other node has moved
                for name, memory in memories.items():
                    for nid, old, new in zip(before[name][0], other[name], memory.pfns()):
                        self.assertTrue(nid == node or old == new)
                self.assert_kept(memories, before)
                done = self.device.request("online_all", node=1 - node)
                self.assertEqual((done.nr_done, self.off_by_node()[node]), (0, off[node]))
                self.device.request("online_all", node=node)
                self.assertEqual(self.off_by_node(), {0: 0, 1: 0})

    def test_compaction_of_both_nodes(self):
        with self.memories() as memories:
            before = self.places(memories)
            self.assertGreater(harness.compact(self.device), 16)
            self.assertTrue(all(self.off_by_node().values()))
            self.assert_kept(memories, before)

    def test_pages_of_the_hugetlb_pool_stay_on_their_node(self):
        """Used pages move, and free ones are replaced."""
        pools = [
            Path(f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB")
            for node in (0, 1)
        ]
        for path in pools:
            self.addCleanup(dev.write, path / "nr_hugepages", 0)
            dev.write(path / "nr_hugepages", 6)

        def figures():
            names = "nr", "free", "surplus"
            return [
                {name: dev.read(path / f"{name}_hugepages") for name in names} for path in pools
            ]

        with PatternedMemory(12, hugetlb=True) as memory:
            nodes, before = memory.nodes(), figures()
            moved = 0
            for number in by_slice(
                self.device, pinned_memory.blocks_with(self.device, pinned_memory.KPF_HUGE)
            ):
                moved += self.device.request(
                    "offline", id=number, flags=dev.IGNORE_BACKOFF
                ).huge_moved
            self.assertGreater(moved, 3)
            self.assertEqual((memory.nodes(), figures()), (nodes, before))
            check_contents(memory)

    def test_a_slice_on_a_full_node_stays_though_the_other_node_has_room(self):
        """Without room on its own node, the slice stays although the other node is empty."""
        with self.memories() as memories:
            numbers = self.holding(memories["node 1"])[:4]
            free = (
                max(zone.free_pages for zone in self.device.zones() if zone.node == 1) * PAGE // MIB
            )
            with PatternedMemory(free - 40, fill=False) as filler:
                filler.bind(pinned_memory.MPOL_BIND, [1])
                filler.map[::PAGE] = b"\1" * filler.nr
                self.assertEqual(set(filler.nodes()), {1})
                before = self.places(memories)
                for number in numbers:
                    self.assert_stays(number, "no-room", "awake-reserve")
                self.device.request("compact", node=1, flags=dev.IGNORE_BACKOFF)
                self.assert_kept(memories, before)
                self.assertEqual(set(filler.nodes()), {1})


@vm(mem="1G", append="ramslice=16M", numa=TWO_NODES)
class Balancing(PageMovementTest):
    """Automatic NUMA balancing asks whether a node has free pages, and does not reclaim there."""

    MIB = 160

    def test_memory_follows_its_task_to_a_node_that_is_mostly_off(self):
        self.enterContext(pinned_memory.setting("/proc/sys/kernel/numa_balancing", 1))
        cpus = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cpus)
        os.sched_setaffinity(0, {0})
        with PatternedMemory(self.MIB) as memory:
            # Where its task ran, by the default policy
            self.assertGreater(memory.nodes().count(0), memory.nr * 9 // 10)
            self.device.request("compact", node=1, flags=dev.IGNORE_BACKOFF)
            off, = (zone.offline_pages for zone in self.device.zones() if zone.nr_offline)
            self.assertGreater(off, memory.nr)
            os.sched_setaffinity(0, {1})

            def followed():
                for page in range(memory.nr):
                    _ = memory.map[page * PAGE]
                return memory.nodes().count(1) > memory.nr * 9 // 10

            self.assertTrue(harness.until(followed, seconds=120), memory.nodes().count(1))
            check_contents(memory)


@vm(kernel=["plain", "debug"], slow="debug", mem="1G", append="ramslice=24M movablecore=256M",
    numa=TWO_NODES)
class Spanning(PageMovementTest):
    """A slice of 24 MiB begins at the end of node 0's Movable zone and ends on node 1."""

    def test_a_slice_that_spans_two_nodes_moves_no_page_to_the_other(self):
        spanning = [s for s in self.device.snapshot() if dev.REASONS[s.reason] == "zone-end"]
        last = max(s.id for s in self.device.snapshot() if s.node == 0)
        self.assertIn(last, [s.id for s in spanning])
        with PatternedMemory(160, fill=False) as memory:
            memory.bind(pinned_memory.MPOL_BIND, [0])
            memory.fill()
            # The rest of each slice has to move
            for page in range(0, memory.nr, 2):
                memory.map.madvise(mmap.MADV_DONTNEED, page * PAGE, PAGE)
            left, before = range(1, memory.nr, 2), memory.nodes()
            done = self.device.request("compact", node=0, flags=dev.IGNORE_BACKOFF)
            self.assertGreater(done.pages_migrated, 1000)
            self.assertEqual(memory.nodes(), before)
            check_contents(memory, left)


@pytest.mark.slow
@vm(mem="1G", append="ramslice=16M", numa=TWO_NODES)
class Groups(PageMovementTest):
    def grown(self, group, before):
        """Events of the group since then."""
        after = group.table("memory.events")
        return {name: after[name] - value for name, value in before.items() if after[name] != value}

    STAT = (
        "anon",
        "file",
        "shmem",
        "file_mapped",
        "anon_thp",
        "unevictable",
        "kernel",
        "pagetables",
    )

    def figures(self, group):
        stat = group.table("memory.stat")
        found = {name: stat[name] for name in self.STAT}
        # A page that moves may change lists
        found["lru anon"] = stat["active_anon"] + stat["inactive_anon"]
        return found

    def test_a_control_group_just_below_its_limit_never_meets_it(self):
        """Its pages move with their charges."""
        with Group("tight") as group:
            def child():
                group.enter()
                file = os.memfd_create("shared")
                os.ftruncate(file, 8 * MIB)
                with (
                    PatternedMemory(40) as small,
                    PatternedMemory(16, huge=True, seed=2) as huge,
                    PatternedMemory(8, file=file, seed=3) as shared,
                ):
                    memories = small, huge, shared
                    yield [pfn for memory in memories for pfn in memory.pfns()]
                    for memory in memories:
                        check_contents(memory)
                    yield [pfn for memory in memories for pfn in memory.pfns()]

            with harness.Child(child) as inside:
                pfns = inside.step()
                # Nothing runs in the group now, so only pages that move are charged. A request
                # empties LRU batches, whose pages are on no list
                self.device.request("compact", flags=dev.DRY_RUN, max_slices=1)
                current = self.settled(group)
                dev.write(group.path / "memory.max", current + 4 * PAGE)
                events, figures = group.table("memory.events"), self.figures(group)
                self.assertGreaterEqual(figures["anon"] + figures["shmem"], 60 * MIB)
                emptied = 0
                for number in by_slice(self.device, pfns):
                    done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
                    emptied += done.nr_done
                self.device.request("compact", flags=dev.IGNORE_BACKOFF)
                self.assertGreaterEqual(emptied, 2)
                self.assertEqual(self.grown(group, events), {})
                self.assertTrue(harness.until(lambda: self.figures(group) == figures),
                                (figures, self.figures(group)))
                self.assertEqual(self.settled(group), current)
                # The check needs memory, too
                dev.write(group.path / "memory.max", "max")
                now = inside.step()
                self.assertGreater(len(set(pfns) - set(now)), 4096)

    @staticmethod
    def settled(group):
        seen = [group.number("memory.current")]
        for _ in range(100):
            time.sleep(0.1)
            seen.append(group.number("memory.current"))
            if len(set(seen[-5:])) == 1 and len(seen) > 5:
                break
        return seen[-1]

    def test_a_busy_control_group_below_its_limit_never_meets_it(self):
        """While it works on its memory, its slices are emptied again and again."""
        # Shared with the child
        ended = mmap.mmap(-1, PAGE)
        with Group("busy") as group:
            def child():
                group.enter()
                with PatternedMemory(80) as memory:
                    yield memory.pfns()
                    rounds = 0
                    while not ended[0] or rounds < 2:
                        check_contents(memory, range(rounds % 16, memory.nr, 16))
                        memory.fill(rounds % 4 * 1024, rounds % 4 * 1024 + 1024)
                        rounds += 1
                    check_contents(memory)
                    yield rounds

            with harness.Child(child) as inside:
                pfns = inside.step()
                current = self.settled(group)
                dev.write(group.path / "memory.max", current + 64 * PAGE)
                events = group.table("memory.events")
                inside.start()
                moved = 0
                begin = time.monotonic()
                # For 7 s, and longer until enough has moved
                while (passed := time.monotonic() - begin) < 7 or (
                        passed < harness.PATIENCE and moved <= 1000):
                    for number in by_slice(self.device, pfns):
                        moved += self.device.request(
                            "offline", id=number, flags=dev.IGNORE_BACKOFF
                        ).pages_migrated
                    self.device.request("compact", flags=dev.IGNORE_BACKOFF)
                    self.device.request("online_all")
                ended[0] = 1
                rounds = inside.result()
                self.assertGreater(rounds, 1)
                self.assertGreater(moved, 1000)
                self.assertEqual(self.grown(group, events), {})

    def test_a_control_group_that_takes_more_meets_its_limit(self):
        """The events would show a limit that was met."""
        with Group("control") as group:
            def child():
                group.enter()
                with PatternedMemory(8) as memory:
                    yield memory.wrong_at()
                    with PatternedMemory(2, seed=2) as more:
                        yield more.wrong_at()

            dev.write(group.path / "memory.high", "max")
            with harness.Child(child) as inside:
                inside.step()
                dev.write(group.path / "memory.max", self.settled(group) + 16 * PAGE)
                dev.write(group.path / "memory.oom.group", 1)
                events = group.table("memory.events")
                with contextlib.suppress(AssertionError):
                    inside.step()
                self.assertGreater(self.grown(group, events).get("max", 0), 0)
