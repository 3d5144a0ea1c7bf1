# SPDX-License-Identifier: GPL-2.0-or-later
"""Demand wakes: an allocation that would have to swap, reclaim or fail wakes offline slices, and
nothing else does.

Swap is there and favoured, so that each test would swap if it could.
"""

import ctypes
import errno
import itertools
import mmap
import os
import re
import subprocess
import threading
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.demand import DemandTest, prepare
from ramlab.guest.harness import MIB, PAGE, Child, Memory, check_contents
from ramlab.guest.pinned_memory import traced
from ramlab.pytest_vm import no_twin, vm

# Size of files in MiB: far more than compaction leaves awake.
FILE = 400
MADV_PAGEOUT = 21

pytestmark = vm(mem="2G", disk="1G", append="ramslice=32M")


def write_file(path, mib):
    block = os.urandom(PAGE) * (MIB // PAGE)
    with open(path, "wb", buffering=0) as file:
        for _ in range(mib):
            file.write(block)


def read_file(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass


def setUpModule():
    prepare()
    subprocess.run(["mkfs.ext4", "-q", "-F", "/dev/vda"], check=True)


class Demand(DemandTest):
    def test_anonymous_memory(self):
        with Memory(self.burst) as memory:
            check_contents(memory.touch())
            self.assert_served_by_waking()

    def test_memory_that_is_wanted_faster_than_the_thread_wakes_it(self):
        """Allocations wake by themselves. What is left to the thread by a real-time process on its
        CPU is a twentieth of the time. Page tables are there before: they would wake for all.
        """
        thread = next(
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm")
            if path.read_text().strip() == "kslicewaked"
        )
        cpus = os.sched_getaffinity(0)
        for pid in (0, thread):
            self.addCleanup(os.sched_setaffinity, pid, cpus)
            os.sched_setaffinity(pid, {0})
        self.addCleanup(os.sched_setscheduler, 0, os.SCHED_OTHER, os.sched_param(0))
        with traced("ramslice/ramslice_chunk") as chunks, Memory(self.burst) as memory:
            memory.touch().map.madvise(mmap.MADV_DONTNEED)
            self.compact()
            before = len(chunks())
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            memory.touch()
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            ours = sum(
                int(re.search(r"nr_pages=(\d+)", line)[1])
                for line in chunks()[before:] if f"-{os.getpid()} " in line
            )
            check_contents(memory)
            self.assert_served_by_waking()
        print(f"({ours * PAGE // MIB} of {self.burst - self.awake} MiB) ", end="", flush=True)
        self.assertGreater(ours * PAGE // MIB, (self.burst - self.awake) // 2)

    def test_the_thread_is_woken_at_most_once_for_each_chunk(self):
        """And once a second, when it may be asked again."""
        with traced("ramslice/ramslice_chunk") as chunks, \
                traced("sched/sched_waking", 'comm == "kslicewaked"') as wakes, \
                Memory(self.burst) as memory:
            began = time.monotonic()
            memory.touch()
            seconds = time.monotonic() - began
            nr_wakes, nr_chunks = len(wakes()), len(chunks())
            check_contents(memory)
            self.assert_served_by_waking()
        print(f"({nr_wakes} for {nr_chunks} chunks in {seconds:.1f} s) ", end="", flush=True)
        # 4 MiB each
        self.assertGreaterEqual(nr_chunks, (self.burst - self.awake) // 4)
        self.assertLessEqual(nr_wakes, nr_chunks + seconds + 1)

    def test_huge_pages_with_direct_compaction(self):
        self.use_defrag("always")
        with Memory(self.burst, huge=True) as memory:
            check_contents(memory.touch())
            self.assert_served_by_waking()
            self.assertGreater(
                self.moved(["thp_fault_alloc"])["thp_fault_alloc"], self.burst // 2 * 9 // 10
            )

    def test_locked_memory(self):
        with Memory(self.burst) as memory:
            memory.lock()
            self.assert_served_by_waking()

    def test_tmpfs(self):
        self.addCleanup(os.unlink, "/dev/shm/burst")
        write_file("/dev/shm/burst", self.burst)
        self.assert_served_by_waking()

    def test_shared_memory_through_a_mapping(self):
        with mmap.mmap(-1, self.burst * MIB) as shared:
            shared[::PAGE] = b"\1" * (self.burst * MIB // PAGE)
            self.assert_served_by_waking()


class Fork(DemandTest):
    compact_first = False

    def test_a_large_process_forks_and_both_go_on_writing(self):
        with Memory(250) as memory:
            memory.touch()
            self.compact()

            def child():
                memory.touch(2)
                yield memory.wrong_at(2)

            with Child(child) as forked:
                self.assertIsNone(forked.step())
                check_contents(memory)
                self.assert_served_by_waking(250)


class OnDisk(DemandTest):
    """A file on disk, several times what stays awake."""

    compact_first = False
    NAME = "/mnt/file"

    @classmethod
    def setUpClass(cls):
        subprocess.run(["mount", "/dev/vda", "/mnt"], check=True)
        if not os.path.exists(cls.NAME):
            write_file(cls.NAME, FILE)
        subprocess.run(["umount", "/mnt"], check=True)

    def setUp(self):
        super().setUp()
        # Mounted for each test only: buffers of a mounted disk cannot move and keep slices online
        subprocess.run(["mount", "/dev/vda", "/mnt"], check=True)
        self.addCleanup(subprocess.run, ["umount", "/mnt"], check=True)

    def mapping(self):
        with open(self.NAME, "rb") as file:
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


class Files(OnDisk):
    def resident(self, view):
        """Numbers of its pages that are in the page cache."""
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        found = ctypes.create_string_buffer(len(view) // PAGE)
        if harness.libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(view)), found):
            raise OSError(ctypes.get_errno(), "mincore")
        return [number for number, byte in enumerate(found.raw) if byte & 1]

    def evict(self):
        """Reads the file and evicts it as reclaim does, which leaves shadow entries."""
        with (
            open(self.NAME, "rb") as file,
            mmap.mmap(
                file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            ) as view,
        ):
            sum(view[::PAGE])
            for _ in range(20):
                # Pages in a CPU's batch are on no LRU list; a request empties the batches
                self.device.request("compact", flags=dev.DRY_RUN, max_slices=1)
                view.madvise(MADV_PAGEOUT)
                left = self.resident(view)
                if not left:
                    return
                # Only what is mapped is paged out
                sum(view[number * PAGE] for number in left)
        self.fail(f"{len(left)} pages stay in the cache")

    def assert_refaulted(self):
        count = self.moved(["workingset_refault_file"]).get("workingset_refault_file", 0)
        self.assertGreater(count, FILE * 256 * 3 // 4)
        self.assert_served_by_waking(FILE)

    def test_reading_an_evicted_file_wakes_slices(self):
        self.evict()
        self.compact()
        read_file(self.NAME)
        self.assert_refaulted()

    def test_faulting_in_an_evicted_file_wakes_slices(self):
        self.evict()
        self.compact()
        with self.mapping() as view:
            sum(view[::PAGE])
        self.assert_refaulted()

    def test_writing_a_file_wakes_slices(self):
        self.compact()
        write_file("/mnt/other", FILE)
        self.assert_served_by_waking(FILE)
        os.unlink("/mnt/other")


class Streams(OnDisk):
    def test_streaming_a_file_recycles_its_own_cache(self):
        with Memory(100) as memory:
            memory.touch()
            self.compact()
            read_file(self.NAME)
            self.assert_few_woken("read")
            self.assertEqual(self.moved(["pswpin"]), {})
            # Only a page read ahead or one of the disk's tables may be recycled just before its use
            count = self.moved(["workingset_refault_file"]).get("workingset_refault_file", 0)
            self.assertLess(count, FILE * 256 // 100)
            check_contents(memory)

    def test_streaming_through_a_mapping_recycles_its_own_cache(self):
        self.compact()
        with self.mapping() as view:
            view.madvise(mmap.MADV_SEQUENTIAL)
            for start in range(0, len(view), 8 * MIB):
                sum(view[start:start + 8 * MIB:PAGE])
                view.madvise(mmap.MADV_DONTNEED, start, 8 * MIB)
        self.assert_few_woken("mapped")


@vm(mem="4G", disk="1G", append="ramslice=32M ramslice_cold=2G")
class StreamsOfTwoZones(Streams):
    """The upper zone is small, and all of it is awake: what wakes is another one's. What is above
    that has gone to a twin, which stays off.
    """

    @classmethod
    def setUpClass(cls):
        prepare()
        subprocess.run(["mkfs.ext4", "-q", "-F", "/dev/vda"], check=True)
        super().setUpClass()

    def compact(self):
        super().compact()
        _, upper = self.two_zones()
        self.device.request("online_all", node=0, zone=upper.zone)
        lower, upper = self.two_zones()
        self.assertLess(upper.managed_pages, lower.managed_pages)
        self.assertEqual(upper.nr_offline, 0)
        self.assertGreater(lower.nr_offline, 10)
        self.begin()

    def two_zones(self):
        """Those of node 0 that have slices, the upper one last."""
        zones = [zone for zone in self.device.zones() if zone.node == 0 and zone.nr_slices]
        return sorted(zones, key=lambda zone: zone.zone)[-2:]

    def test_a_stream_makes_room_before_a_twin(self):
        """All of node 0 is awake, and in use but for little more than its reserve."""
        twin = next(zone for zone in self.device.zones() if zone.node == 1)
        self.assertGreater(self.device.request("offline_free", node=1).nr_done, 30)
        free = sum(zone.free_pages for zone in self.device.zones() if zone.node == 0)
        with Memory(free * PAGE // MIB - 200) as memory:
            memory.touch()
            self.begin()
            read_file(self.NAME)
            self.assert_few_woken("read")
            now = next(zone for zone in self.device.zones() if zone.index == twin.index)
            self.assertGreaterEqual(now.nr_offline, twin.nr_slices * 3 // 4)
            check_contents(memory)


class StreamsByGeneration(Streams):
    """The same with the multi-generational LRU."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        was = dev.read("/sys/kernel/mm/lru_gen/enabled")
        dev.set_mglru(True)
        cls.addClassCleanup(dev.set_mglru, int(was, 16) & 1)


class NoDemand(DemandTest):
    compact_first = False

    def test_a_control_group_at_its_limit_wakes_nothing(self):
        group = Path("/sys/fs/cgroup/limited")
        dev.write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
        group.mkdir()
        self.addCleanup(group.rmdir)
        dev.write(group / "memory.high", 40 * MIB)

        def child():
            dev.write(group / "cgroup.procs", os.getpid())
            with Memory(160) as memory:
                yield memory.touch().wrong_at()
                yield int(dev.read(group / "memory.current"))

        self.compact()
        with Child(child) as limited:
            self.assertIsNone(limited.step())
            self.assertLess(limited.step(), 2 * 40 * MIB)
            # It swapped, as its limit requires
            self.assertIn("pswpout", self.moved())
            self.assertEqual(self.moved(["pgsteal_kswapd"]), {})
            self.assert_few_woken("by the group", ["oom_kill"])


class Afterwards(DemandTest):
    def test_slices_go_offline_again_after_a_burst(self):
        for _ in range(2):
            with Memory(self.burst) as memory:
                memory.touch()
                self.assertLess(len(harness.ids(self.device, dev.OFFLINE)), self.nr_offline - 3)
            self.assertGreaterEqual(harness.compact(self.device), self.nr_offline - 2)

    def test_the_awake_reserve_is_refilled_in_advance(self):
        # Those of a twin stay as they are while its partner has room
        zones = {zone.index: zone for zone in self.device.zones()
                 if zone.nr_offline and zone.node == 0}
        with Memory(self.burst) as memory:
            memory.touch()

            def filled():
                return all(zone.free_pages >= zones[zone.index].awake_reserve_pages - 1024
                           for zone in self.device.zones() if zone.index in zones)

            self.assertTrue(harness.until(filled))


class Races(DemandTest):
    compact_first = False

    def test_a_burst_during_compaction(self):
        outcomes = []
        with Memory(400) as memory:
            for attempt in range(2):
                harness.wake(self.device)
                memory.touch().punch()
                before = harness.vmstat()
                done = []
                worker = threading.Thread(target=lambda: done.append(self.device.request(
                    "compact", flags=dev.IGNORE_BACKOFF)))
                with dev.Device(os.O_RDONLY) as reader, Memory(500) as burst:
                    worker.start()
                    harness.until(
                        lambda: done or len(harness.ids(reader, dev.OFFLINE)) > 20 + 6 * attempt
                    )
                    burst.touch()
                    worker.join()
                    check_contents(burst)
                check_contents(memory)
                after = harness.vmstat()
                self.assertEqual(
                    {
                        n: after[n] - before[n]
                        for n in ("oom_kill", "pswpout")
                        if after[n] != before[n]
                    },
                    {},
                )
                outcomes.append((done[0].status, done[0].why()))
                self.assertLessEqual(
                    set(harness.states(self.device).values()), {dev.ONLINE, dev.OFFLINE}
                )
        print(f"({outcomes}) ", end="", flush=True)
        for status, why in outcomes:
            self.assertIn(status, (0, errno.EAGAIN))
            self.assertEqual(status == errno.EAGAIN, why == "pressure")

    @no_twin
    def test_a_slice_being_emptied_comes_back_on_demand(self):
        """No other slice is offline: all that could help is in the slice that is being emptied."""
        size = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        self.addCleanup(self.device.request, "online_all")
        # Many pages, few at a time, with pauses: moving them takes seconds on any machine
        dev.write(dev.SYSFS / "slice_bytes", 128 * MIB)
        for name, value in (("migrate_batch", 16), ("pause_us", 2000)):
            setting = dev.debugfs() / name
            self.addCleanup(dev.write, setting, dev.read(setting))
            dev.write(setting, value)
        before = harness.vmstat()["oom_kill"]
        zone = max(self.device.zones(), key=lambda zone: zone.free_pages)
        # The request needs room for the slice, the reserve and two chunks; little more is free
        reserve = zone.awake_reserve_pages + self.high_atomic(zone.name.decode())
        room = 128 + reserve * PAGE // MIB + 8 + 16
        bulk = (zone.free_pages * PAGE // MIB - room - 600) // 2 * 2
        with Memory(bulk, huge=True) as huge, Memory(600) as memory:
            huge.touch()
            memory.touch()
            full = [
                s.id
                for s in self.device.snapshot()
                if s.counter("anon_mapped") > s.nr_pages * 9 // 10
                and s.counter("huge") < s.nr_pages // 10
            ]
            self.assertTrue(full)
            numbers = itertools.cycle(full)
            number = None

            def stopped():
                nonlocal number
                number = next(numbers)
                # On a busy host the burst may have all room before that: then it is no-room
                status, why = self.offline_and_want(number)
                self.assertEqual(status == errno.EAGAIN, why == "pressure")
                if status != errno.EAGAIN:
                    self.device.request("online_all")
                return status == errno.EAGAIN

            self.assertTrue(harness.until(stopped))
            self.assertEqual(harness.states(self.device)[number], dev.ONLINE)
            check_contents(memory)
        self.assertEqual(harness.vmstat()["oom_kill"], before)

    def offline_and_want(self, number):
        """Allocates all free memory once the slice is being emptied.

        Returns the request's outcome.
        """
        done = []
        worker = threading.Thread(target=lambda: done.append(
            self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)))
        # More than is free above the reserve, whatever the request has taken by then
        with dev.Device(os.O_RDONLY) as watcher, Memory(200) as memory:
            worker.start()
            self.assertIsNotNone(watcher.wait_event(harness.PATIENCE))
            memory.touch()
            worker.join()
            check_contents(memory)
        return done[0].status, done[0].why()
