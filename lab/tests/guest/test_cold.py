# SPDX-License-Identifier: GPL-2.0-or-later
"""Cold memory: a node's twin takes memory and gives it back, and what asks for it is there."""

import contextlib
import errno
import json
import mmap
import os
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from ramlab.guest import cold_memory as cold
from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import MAP_COLD, ColdMemory, ColdTest, present
from ramlab.guest.harness import MIB, PAGE
from ramlab.pytest_vm import vm

MADV_PAGEOUT = 21

pytestmark = vm(mem="2G", disk="512M", append="ramslice=16M ramslice_cold=0")


class Area(ColdTest):
    def test_a_twin_is_possible_and_not_there(self):
        self.assertEqual(dev.read(cold.NODE / "possible").strip(), "0-1")
        self.assertEqual(dev.read(cold.NODE / "online").strip(), "0")
        self.assertEqual(cold.size_mib(), 0)
        self.assertEqual(int(dev.read(cold.COLD / "unit_bytes")), 128 * MIB)

    def test_memory_moves_there_and_back(self):
        before = present()
        for mib in 512, 128, 1024, 0:
            with self.subTest(mib):
                cold.resize(mib)
                self.assertEqual(cold.size_mib(), mib)
                self.assertEqual(harness.meminfo()["MemTotal"], self.total)
                self.assertEqual((cold.NODE / "node1").exists(), mib > 0)
                self.assert_sane()
        self.assertEqual(present(), before)

    def test_a_twin_is_a_lower_tier_and_near(self):
        cold.resize(128)
        self.assertEqual(dev.read(cold.NODE / "node0/distance").split(), ["10", "11"])
        self.assertEqual(dev.read(cold.NODE / "has_cpu").strip(), "0")
        tiers = {
            path.name: path.joinpath("nodelist").read_text().strip()
            for path in Path("/sys/devices/virtual/memory_tiering").glob("memory_tier*")
        }
        self.assertEqual([tiers[name] for name in sorted(tiers)], ["0", "1"])
        demotes = Path("/sys/kernel/mm/numa/demotion_enabled")
        for mode, word in (("strict", "false"), ("overflow", "true")):
            dev.write(cold.COLD / "mode", mode)
            self.assertEqual(demotes.read_text().strip(), word)
        cold.resize(0)
        self.assertEqual(demotes.read_text().strip(), "false")

    def test_slices_of_a_twin_go_off_and_wake(self):
        cold.resize(512)
        with harness.simulator():
            done = self.device.request("offline_free", node=cold.twin()).nr_done
            self.assertGreater(done, 20)
            with ColdMemory(400) as memory:
                self.assert_cold(memory)
                self.assertIsNone(memory.wrong_at())
            self.assertGreater(harness.woken_by_demand(self.device), 0)
            self.device.request("online_all")
            harness.check_violations(0)

    def test_what_cannot_be_is_refused(self):
        limit = int(dev.read(cold.COLD / "node0/max_bytes"))
        for value, number in (
            (MIB, errno.EINVAL),
            (limit + 128 * MIB, errno.ERANGE),
            (-1, errno.EINVAL),
            ("much", errno.EINVAL),
        ):
            with self.subTest(value), self.assertRaises(OSError) as caught:
                dev.write(cold.COLD / "node0/bytes", value)
            self.assertEqual(caught.exception.errno, number)
        with self.assertRaises(OSError) as caught:
            dev.write(cold.COLD / "mode", "lukewarm")
        self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_a_resize_that_cannot_end_gives_up_and_undoes(self):
        old = dev.read(cold.COLD / "deadline_ms")
        self.addCleanup(dev.write, cold.COLD / "deadline_ms", old)
        cold.resize(256)
        # vmsplice'd pages stay where they are until the pipe is read
        with ColdMemory(1) as memory, cold.spliced(memory):
            dev.write(cold.COLD / "deadline_ms", 1500)
            with self.assertRaises(OSError) as caught:
                cold.resize(0)
            self.assertEqual(caught.exception.errno, errno.ETIMEDOUT)
            self.assertEqual(cold.size_mib(), 256)
            self.assertIsNone(memory.wrong_at())
            dev.write(cold.COLD / "deadline_ms", old)

    def test_other_requests_do_not_end_a_resize(self):
        def ask():
            with contextlib.closing(dev.Device()) as device:
                with contextlib.suppress(BlockingIOError, OSError):
                    device.request("compact", flags=dev.DRY_RUN)

        with again_and_again(ask):
            cold.resize(512)
        self.assertEqual(cold.size_mib(), 512)

    def test_slices_keep_their_size_meanwhile(self):
        """Otherwise half a slice goes to the twin."""
        file, changed = dev.SYSFS / "slice_bytes", []

        def change():
            for mib in 32, 16:
                with contextlib.suppress(OSError):
                    dev.write(file, mib * MIB)
                    changed.append(cold.size_mib())

        self.addCleanup(dev.write, file, 16 * MIB)
        with again_and_again(change):
            cold.resize(1024)
        # Before it begins and after it has ended, it may be changed
        self.assertLessEqual(set(changed), {0, 1024})

    def test_a_block_that_goes_off_and_on_by_hand_stays_cold(self):
        cold.resize(128)
        block, = (path for path in (cold.NODE / "node1").glob("memory[0-9]*"))
        for state in "offline", "online":
            dev.write(block / "state", state)
        self.assertEqual({zone for node, zone in present() if node == cold.twin()}, {"Movable"})
        self.assertEqual(cold.size_mib(), 128)

    def test_what_has_moved_comes_back_on_failure(self):
        """The kernel's own pages leave too few blocks that can be emptied."""
        before = present()
        with pinned_memory.full_pipes(900):
            with self.assertRaises(OSError) as caught:
                cold.resize(int(dev.read(cold.COLD / "node0/max_bytes")) // MIB)
            self.assertIn(caught.exception.errno, (errno.ENOSPC, errno.EBUSY))
            self.assertEqual(cold.size_mib(), 0)
            self.assertEqual(present(), before)

    def test_a_signal_ends_a_resize_and_all_comes_back(self):
        before = present()
        pid = os.fork()
        if not pid:
            try:
                cold.resize(1024)
                os._exit(0)
            except InterruptedError:
                os._exit(errno.EINTR)
        harness.until(lambda: cold.size_mib() > 0)
        os.kill(pid, signal.SIGTERM)
        status = os.waitpid(pid, 0)[1]
        self.assertEqual(os.WTERMSIG(status), signal.SIGTERM)
        self.assertEqual(cold.size_mib(), 0)
        self.assertEqual(present(), before)


class Mappings(ColdTest):
    def setUp(self):
        super().setUp()
        cold.resize(512)

    def test_private_memory(self):
        with ColdMemory(64) as memory:
            self.assert_cold(memory)
            self.assertIn("co", memory.smaps_flags())
        with ColdMemory(64, flags=mmap.MAP_PRIVATE) as memory:
            self.assertEqual(set(memory.places()), {0})
            self.assertNotIn("co", memory.smaps_flags())

    def test_huge_pages(self):
        before = harness.vmstat()["thp_fault_alloc"]
        with ColdMemory(64, huge=True) as memory:
            self.assert_cold(memory)
            self.assertGreater(harness.vmstat()["thp_fault_alloc"], before)

    def test_shared_memory(self):
        with ColdMemory(64, flags=mmap.MAP_SHARED | MAP_COLD) as memory:
            self.assert_cold(memory)

    def test_a_file_in_memory_tells_whether_it_works(self):
        with self.file() as fd:
            with ColdMemory(16, flags=cold.MAP_SHARED_VALIDATE | MAP_COLD, file=fd) as memory:
                self.assert_cold(memory)
            # Cold for all from then on
            os.pwrite(fd, bytes(16 * MIB), 16 * MIB)
            with ColdMemory(32, flags=mmap.MAP_SHARED, file=fd, fill=False) as memory:
                self.assertEqual(len(memory.map[::PAGE]), memory.bytes // PAGE)
                self.assert_cold(memory)

    def test_who_may_only_read_makes_no_file_cold(self):
        with self.file() as fd:
            only_reads = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
            self.addCleanup(os.close, only_reads)
            flags = mmap.MAP_SHARED | MAP_COLD
            mmap.mmap(only_reads, MIB, flags=flags, prot=mmap.PROT_READ).close()
            with ColdMemory(16, flags=mmap.MAP_SHARED, file=fd) as memory:
                self.assertEqual(set(memory.places()), {0})

    @contextlib.contextmanager
    def file(self):
        fd = os.memfd_create("cold")
        os.ftruncate(fd, 32 * MIB)
        try:
            yield fd
        finally:
            os.close(fd)

    def test_what_is_copied_on_write(self):
        with ColdMemory(32) as memory:
            pid = os.fork()
            if not pid:
                memory.map[:: 16 * PAGE] = bytes(len(range(0, memory.bytes, 16 * PAGE)))
                os._exit(set(memory.places()) != {cold.twin()})
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            self.assertIsNone(memory.wrong_at())

    def test_a_mapping_that_grows(self):
        with ColdMemory(16) as memory:
            memory.map.resize(48 * MIB)
            memory.bytes, memory.nr = 48 * MIB, 48 * MIB // PAGE
            self.assert_cold(memory.fill())

    def test_more_than_there_is(self):
        """What does not fit goes on as if there were no cold memory."""
        with ColdMemory(640) as memory:
            nodes = memory.places()
            self.assertGreater(nodes[cold.twin()] * PAGE, 400 * MIB)
            self.assertGreater(nodes[0] * PAGE, 100 * MIB)
            self.assertIsNone(memory.wrong_at())

    def test_pages_go_along_when_memory_is_given_back(self):
        with ColdMemory(300) as memory:
            self.assert_cold(memory)
            cold.resize(0)
            self.assertEqual(set(memory.places()), {0})
            self.assertIsNone(memory.wrong_at())


class Modes(ColdTest):
    def test_strict_mode_keeps_cold_memory_for_what_asks(self):
        cold.resize(512)
        dev.write(cold.COLD / "mode", "strict")
        free = self.device.info().free_pages * PAGE // MIB
        available = harness.meminfo()["MemAvailable"] // 1024
        self.assertLess(available, free - 256)
        with ColdMemory(free - 700, flags=mmap.MAP_PRIVATE) as memory:
            self.assertEqual(set(memory.places()), {0})
        with ColdMemory(64) as memory:
            self.assert_cold(memory)

    def test_strict_mode_drops_page_cache_first(self):
        cold.resize(512)
        dev.write(cold.COLD / "mode", "strict")
        free = self.device.info().free_pages * PAGE // MIB - 512
        self.assertGreater(free, 600)
        with self.page_cache(300):
            with ColdMemory(free - 150, flags=mmap.MAP_PRIVATE) as memory:
                self.assertEqual(set(memory.places()), {0})
                self.assertIsNone(memory.wrong_at())

    @contextlib.contextmanager
    def page_cache(self, mib):
        """A file on the disk, all of it in page cache."""
        path = Path(dev.file_system()) / "cache"
        path.write_bytes(bytes(mib * MIB))
        os.sync()
        try:
            yield
        finally:
            path.unlink()

    @pytest.mark.slow
    def test_nobody_is_killed_while_cold_memory_is_free(self):
        cold.resize(512)
        dev.write(cold.COLD / "mode", "strict")
        killed = harness.vmstat()["oom_kill"]
        free = self.device.info().free_pages * PAGE // MIB
        with ColdMemory(free - 250, flags=mmap.MAP_PRIVATE) as memory:
            nodes = memory.places()
            self.assertGreater(nodes[cold.twin()] * PAGE, 64 * MIB)
            self.assertIsNone(memory.wrong_at())
        self.assertEqual(harness.vmstat()["oom_kill"], killed)

    def test_kernel_pages_find_room_when_others_are_demoted(self):
        """Page tables and pipes cannot be in cold memory: what can goes there for them."""
        cold.resize(512)
        dev.write(cold.COLD / "mode", "strict")
        before = harness.vmstat()
        free = self.device.info().free_pages * PAGE // MIB
        with ColdMemory(free - 512 - 150, flags=mmap.MAP_PRIVATE) as memory:
            self.assertEqual(set(memory.places()), {0})
            with pinned_memory.full_pipes(200):
                self.assertGreater(memory.places()[cold.twin()] * PAGE, 32 * MIB)
            self.assertIsNone(memory.wrong_at())
        self.assertEqual(harness.vmstat()["oom_kill"], before["oom_kill"])

    def test_page_cache_goes_before_other_memory_overflows(self):
        cold.resize(512)
        free = self.device.info().free_pages * PAGE // MIB - 512
        with self.page_cache(300):
            cached = harness.meminfo()["Cached"]
            with ColdMemory(free - 150, flags=mmap.MAP_PRIVATE) as memory:
                nodes = memory.places()
                self.assertLess(nodes.get(cold.twin(), 0) * PAGE, 24 * MIB)
            self.assertLess(harness.meminfo()["Cached"], cached - (80 << 10))

    def test_other_memory_overflows_into_it(self):
        cold.resize(512)
        swapped = harness.vmstat()["pswpout"]
        free = self.device.info().free_pages * PAGE // MIB
        with ColdMemory(free - 200, flags=mmap.MAP_PRIVATE) as memory:
            nodes = memory.places()
            self.assertGreater(nodes[cold.twin()] * PAGE, 100 * MIB)
            self.assertIsNone(memory.wrong_at())
        self.assertEqual(harness.vmstat()["pswpout"], swapped)


class Churn(ColdTest):
    """Blocks go to the twin and back while memory and files come and go."""

    moves = 8

    def test_moves_under_churn(self):
        rng = random.Random(1)
        stop = threading.Event()
        wrong = []

        def churn():
            while not stop.is_set():
                with ColdMemory(48, flags=mmap.MAP_PRIVATE | rng.choice((0, MAP_COLD))) as memory:
                    wrong.append(memory.wrong_at())
                path = Path("/tmp/churn")
                path.write_bytes(bytes(8 * MIB))
                path.unlink()

        with ColdMemory(64) as stays, ColdMemory(64, flags=mmap.MAP_PRIVATE) as hot:
            thread = threading.Thread(target=churn)
            thread.start()
            try:
                moved = refused = 0
                while moved < self.moves:
                    mib, before = rng.choice((0, 128, 256, 512, 768)), cold.size_mib()
                    try:
                        cold.resize(mib)
                    except OSError as error:
                        # Too little can be emptied at this moment: then nothing has changed
                        self.assertEqual(error.errno, errno.ENOSPC)
                        self.assertEqual(cold.size_mib(), before)
                        refused += 1
                        self.assertLess(refused, self.moves)
                        continue
                    self.assertEqual(cold.size_mib(), mib)
                    moved += abs(mib - before) // 128
            finally:
                stop.set()
                thread.join()
            print(f"({moved} blocks moved, {refused} times refused) ", end="", flush=True)
            self.assertIsNone(stays.wrong_at())
            self.assertIsNone(hot.wrong_at())
        self.assertEqual(set(wrong), {None})


@pytest.mark.slow
class LongChurn(Churn):
    moves = 200


class Policies(ColdTest):
    """What counts for more than the flag."""

    def setUp(self):
        super().setUp()
        cold.resize(512)

    def test_a_policy_of_the_range(self):
        with ColdMemory(16, fill=False) as memory:
            memory.bind(pinned_memory.MPOL_BIND, [0])
            self.assertEqual(set(memory.fill().places()), {0})

    def test_a_task_that_is_bound(self):
        pinned_memory.set_mempolicy(pinned_memory.MPOL_BIND, [0])
        self.addCleanup(pinned_memory.set_mempolicy, 0, [])
        with ColdMemory(16) as memory:
            self.assertEqual(set(memory.places()), {0})

    def test_a_task_that_interleaves_gets_cold_memory(self):
        pinned_memory.set_mempolicy(pinned_memory.MPOL_INTERLEAVE, [0])
        self.addCleanup(pinned_memory.set_mempolicy, 0, [])
        with ColdMemory(16) as memory:
            self.assert_cold(memory)

    def test_a_cpuset_without_the_twin(self):
        with pinned_memory.Group("cold", "+cpuset") as group:
            dev.write(group.path / "cpuset.mems", "0")
            pid = os.fork()
            if not pid:
                group.enter()
                with ColdMemory(16) as memory:
                    os._exit(set(memory.places()) != {0})
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    def test_memory_is_moved_there_and_back_by_hand(self):
        with ColdMemory(16, flags=mmap.MAP_PRIVATE) as memory:
            for node in cold.twin(), 0:
                memory.move(node)
                self.assertEqual(set(memory.places()), {node})
            self.assertIsNone(memory.wrong_at())

    def test_pages_that_were_swapped_come_back_cold(self):
        dev.swap_on_zram(128)
        self.addCleanup(subprocess.run, ["swapoff", "/dev/zram0"], check=True)
        with ColdMemory(32) as memory:
            memory.map.madvise(MADV_PAGEOUT)
            self.assertLess(sum(memory.places().values()), memory.nr // 2)
            self.assertIsNone(memory.wrong_at())
            self.assert_cold(memory)


@contextlib.contextmanager
def again_and_again(what):
    """Calls it in a thread, until the end of the block."""
    over = threading.Event()

    def loop():
        while not over.is_set():
            what()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@vm(mem="2G", append="ramslice=16M ramslice_cold=512M", numa=("1G,cpus=0", "1G,cpus=1"))
class TwoNodes(harness.RamsliceTest):
    def test_each_node_has_a_twin_that_is_near(self):
        self.assertEqual(dev.read(cold.NODE / "possible").strip(), "0-3")
        self.assertEqual([cold.size_mib(node) for node in (0, 1)], [256, 256])
        self.assertEqual([cold.twin(node) for node in (0, 1)], [2, 3])
        found = [dev.read(cold.NODE / f"node{node}/distance").split() for node in range(4)]
        wanted = "10 20 11 21", "20 10 21 11", "11 21 10 22", "21 11 22 10"
        self.assertEqual(found, [row.split() for row in wanted])
        self.assert_sane()

    def test_cold_memory_is_that_of_the_nearest_twin(self):
        for cpu in 0, 1:
            old = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {cpu})
            self.addCleanup(os.sched_setaffinity, 0, old)
            with ColdMemory(32) as memory:
                self.assertEqual(set(memory.places()), {cold.twin(cpu)})


@vm(mem="2G", append="ramslice=256M ramslice_cold=0")
class LargeSlices(ColdTest):
    """Slices of two memory blocks."""

    def test_both_blocks_of_a_slice_go_together(self):
        self.assertEqual(int(dev.read(cold.COLD / "unit_bytes")), 256 * MIB)
        for mib in 512, 256, 768, 0:
            cold.resize(mib)
            self.assertEqual(cold.size_mib(), mib)
            reasons = [dev.REASONS[s.reason] for s in self.device.snapshot()]
            self.assertNotIn("zones", reasons)
            self.assert_sane()

    def test_a_slice_of_which_one_block_is_busy_stays_whole(self):
        old = dev.read(cold.COLD / "deadline_ms")
        self.addCleanup(dev.write, cold.COLD / "deadline_ms", old)
        cold.resize(512)
        with ColdMemory(400) as memory, cold.spliced(memory):
            dev.write(cold.COLD / "deadline_ms", 1500)
            with self.assertRaises(OSError):
                cold.resize(0)
            dev.write(cold.COLD / "deadline_ms", old)
            self.assertEqual(cold.size_mib(), 512)
            self.assertIsNone(memory.wrong_at())
        self.assert_sane()


@vm(mem="1G", append="ramslice=16M ramslice_cold=0 memhp_default_state=online_movable",
    qemu=("-m maxmem=4G -object memory-backend-ram,id=more,size=512M",
          "-device virtio-mem-pci,id=vm0,memdev=more,requested-size=512M"))
class BesideAddedMemory(ColdTest):
    """The highest blocks belong to a driver (virtio-mem), and cannot be lent."""

    def setUp(self):
        harness.until(lambda: harness.meminfo()["MemTotal"] > 1300 << 10)
        super().setUp()

    def test_blocks_of_a_driver_are_passed_over(self):
        before = harness.states(self.device)
        cold.resize(256)
        self.assertEqual(cold.size_mib(), 256)
        self.assertEqual(harness.states(self.device), before)


@vm(mem="2G", append="ramslice=16M")
class Without(harness.RamsliceTest):
    def test_no_twin_unless_asked_for(self):
        self.assertEqual(dev.read(cold.NODE / "possible").strip(), "0")
        self.assertFalse(cold.COLD.exists())
        with ColdMemory(16) as memory:
            self.assertEqual(set(memory.places()), {0})


@vm(mem="2G", append="ramslice=16M ramslice_cold=512M,strict")
class FromBoot(harness.RamsliceTest):
    def test_the_command_line_sizes_it(self):
        self.assertEqual(cold.size_mib(), 512)
        self.assertEqual(dev.read(cold.COLD / "mode").strip(), "strict")
        with ColdMemory(64) as memory:
            self.assertEqual(set(memory.places()), {cold.twin()})
        self.assert_sane()


@vm(mem="2G", append="ramslice=16M ramslice_cold=100M")
class TooLittleFromBoot(harness.RamsliceTest):
    def test_less_than_a_unit_is_none_and_the_log_says_so(self):
        self.assertEqual(cold.size_mib(), 0)
        log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
        self.assertIn("no cold memory: ramslice_cold= is less than 128 MiB", log)


class Command(ColdTest):
    """`ramslice cold`."""

    def test_it_sizes_shows_and_switches(self):
        self.assertEqual(self.state()["nodes"][0]["size_bytes"], 0)
        done = self.run_cold("--size", "512M", "--mode", "strict", "--json")
        document = json.loads(done.stdout)
        node = document["nodes"][0]
        self.assertEqual((document["mode"], node["size_bytes"]), ("strict", 512 * MIB))
        with ColdMemory(64):
            self.assertGreaterEqual(self.state()["nodes"][0]["used_bytes"], 60 * MIB)
        self.assertIn("strict: only what asks", self.run_cold().stdout)
        self.run_cold("--size", "0", "--mode", "overflow")
        self.assertEqual(cold.size_mib(), 0)

    def test_what_cannot_be_is_said_in_words(self):
        for words, status, text in (
            (("--size", "100M"), 2, "no multiple of 128MiB: write 0 or 128MiB"),
            (("--size", "64G"), 2, "too much for node 0: at most"),
            (("--size", "1G", "--node", "7"), 2, "node 7 has no cold memory"),
            (("--mode", "cool"), 2, "overflow or strict"),
            (("--mode", "strict", "--size", "1M"), 2, "no multiple"),
            (("--size", "0", "--deadline", "2h"), 2, "at most 1h"),
        ):
            with self.subTest(words):
                done = self.run_cold(*words, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(text, done.stderr)
        self.assertEqual(self.state()["mode"], "overflow")
        with pinned_memory.full_pipes(900):
            most = str(self.state()["nodes"][0]["most_bytes"])
            done = self.run_cold("--size", most, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("node 0 keeps 0 B of cold memory", done.stderr)

    def state(self):
        return json.loads(self.run_cold("--json").stdout)

    def run_cold(self, *words, check=True):
        line = [os.environ["RAMSLICE_PROGRAM"], "cold", *words]
        return subprocess.run(line, capture_output=True, text=True, check=check)
