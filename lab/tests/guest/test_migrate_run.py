# SPDX-License-Identifier: GPL-2.0-or-later
"""Anonymous pages that move by runs keep what they are: contents, what maps them, statistics."""

import os
import re
import threading
import time

from ramlab.guest import pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE, check_contents
from ramlab.guest.pinned_memory import PageMovementTest, PatternedMemory, page_flags
from ramlab.pytest_vm import vm

MIB = 64
# Bits of /proc/kpageflags
LRU, ACTIVE, SWAPBACKED = 5, 6, 14
# Bits of /proc/self/pagemap
SOFT_DIRTY, EXCLUSIVE = 55, 56


def pagemap(memory):
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        data = os.pread(file.fileno(), 8 * memory.nr, memory.address // PAGE * 8)
    return [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data), 8)]


@vm(kernel=["plain", "debug"], slow="plain", mem="1G", append="ramslice=16M")
class MigrationByRuns(PageMovementTest):
    def moved(self, memory, before):
        """Pages that are elsewhere than before."""
        return [page for page, (old, new) in enumerate(zip(before, memory.pfns())) if old != new]

    def empty_most(self, memory):
        """Empties slices with this memory; returns the pages that moved."""
        before = memory.pfns()
        for number in self.holding(memory)[:2]:
            self.assert_goes(number)
        found = self.moved(memory, before)
        self.assertGreater(len(found), 1000)
        return found

    def test_a_program_sees_no_difference(self):
        with PatternedMemory(MIB) as memory:
            bits = 1 << SOFT_DIRTY | 1 << EXCLUSIVE
            before = [entry & bits for entry in pagemap(memory)]
            self.empty_most(memory)
            self.assertEqual([entry & bits for entry in pagemap(memory)], before)
            check_contents(memory)

    def test_what_is_exclusive_is_not_copied_when_written_to(self):
        with PatternedMemory(MIB) as memory:
            self.empty_most(memory)
            before = memory.pfns()
            memory.fill()
            self.assertEqual(memory.pfns(), before)

    def test_pages_keep_their_lru_list(self):
        with PatternedMemory(MIB) as memory:
            before = [page_flags(pfn)[0] for pfn in memory.pfns()]
            found = self.empty_most(memory)
            now = [page_flags(pfn)[0] for pfn in memory.pfns()]
            # The last ones may be in the batches of CPUs, before or after
            listed = [page for page in found if before[page] & now[page] & 1 << LRU]
            self.assertGreater(len(listed), len(found) * 0.9)
            bits = 1 << ACTIVE | 1 << SWAPBACKED
            self.assertEqual([page for page in listed if (before[page] ^ now[page]) & bits], [])

    def test_statistics_stay(self):
        with PatternedMemory(MIB) as memory:
            names = ("nr_anon_pages", "nr_isolated_anon", "nr_zone_active_anon",
                     "nr_zone_inactive_anon")
            before = {name: dev.vmstat(name) for name in names}
            moved = len(self.empty_most(memory))
            for name in names:
                # Other programs come and go; a page counted twice would be thousands
                self.assertLess(abs(dev.vmstat(name) - before[name]), moved // 2, name)

    def test_pages_shared_after_fork_stay_copy_on_write(self):
        with PatternedMemory(MIB) as memory:
            ours, theirs = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(theirs)
                os.read(ours, 1)
                # What the parent wrote meanwhile is not the child's
                os._exit(0 if memory.wrong_at() is None else 1)
            os.close(ours)
            # Every second page becomes the parent's alone
            for page in range(0, memory.nr, 2):
                memory.map[page * PAGE] = 7
            for number in self.holding(memory)[:2]:
                self.assert_goes(number)
            for page in range(1, memory.nr, 2):
                memory.map[page * PAGE] = 7
            os.close(theirs)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertEqual({memory.map[page * PAGE] for page in range(memory.nr)}, {7})

    def test_no_write_is_lost_while_pages_move(self):
        with PatternedMemory(MIB) as memory:
            done, rounds = threading.Event(), []

            def count():
                """A number of its own in each page, one higher in each round."""
                number = 0
                while not done.is_set():
                    number += 1
                    for page in range(memory.nr):
                        at = page * PAGE + 64
                        seen = int.from_bytes(memory.map[at:at + 8], "little")
                        if number > 1 and seen != number - 1:
                            rounds.append((page, seen, number))
                        memory.map[at:at + 8] = number.to_bytes(8, "little")

            writer = threading.Thread(target=count)
            writer.start()
            try:
                for _ in range(3):
                    self.empty_most(memory)
                    self.device.request("online_all")
            finally:
                done.set()
                writer.join()
            self.assertEqual(rounds, [])

    def test_pages_that_lie_in_turns_move_by_runs(self):
        """Where memory was compacted before, pages of one place lie between those of another."""
        bite_us = dev.debugfs() / "bite_us"
        self.addCleanup(dev.write, bite_us, dev.read(bite_us))
        # With checkers a bite is slow, and of small ones neither place has a run
        dev.write(bite_us, 10_000_000)
        with PatternedMemory(MIB // 2, fill=False) as one, \
                PatternedMemory(MIB // 2, fill=False) as other:
            for start in range(0, one.nr, 2):
                for memory in (one, other):
                    memory.fill(start, start + 2)
            with pinned_memory.traced("migrate/mm_migrate_pages") as lines:
                self.empty_most(one)
                moved = {"by runs": 0, "one by one": 0}
                for line in lines():
                    if "reason=contig_range" in line:
                        # migrate_pages() waits for what is locked
                        how = "by runs" if "mode=MIGRATE_ASYNC" in line else "one by one"
                        moved[how] += int(re.search(r"nr_succeeded=(\d+)", line)[1])
            self.assertGreater(moved["by runs"], 5 * moved["one by one"], moved)
            for memory in (one, other):
                check_contents(memory)

    def test_the_longest_bite_is_told(self):
        with PatternedMemory(MIB) as memory:
            for folder in dev.zone_folders():
                dev.write(folder / "stats", 0)
            began = time.monotonic()
            self.empty_most(memory)
            took_us = (time.monotonic() - began) * 1e6
        tables = [dev.table(folder / "stats") for folder in dev.zone_folders()]
        longest = max(table["longest_bite_us"] for table in tables)
        self.assertGreater(longest, 0)
        self.assertLess(longest, took_us)

    def test_a_request_sleeps_after_each_bite_if_it_is_to(self):
        pause_us, took = dev.debugfs() / "pause_us", {}
        self.addCleanup(dev.write, pause_us, dev.read(pause_us))
        with PatternedMemory(MIB) as memory:
            for pause in (0, 20000):
                dev.write(pause_us, pause)
                began = time.monotonic()
                pages = len(self.empty_most(memory))
                took[pause] = time.monotonic() - began
                self.device.request("online_all")
        # So many bites at least, each of which slept
        self.assertGreater(took[20000], pages // 128 * 0.02)


@vm(mem="1G", append="ramslice=16M")
class OfGenerations(MigrationByRuns):
    """The same on the multi-generational LRU."""

    def setUp(self):
        super().setUp()
        dev.set_mglru(True)
        self.addCleanup(dev.set_mglru, False)
