# SPDX-License-Identifier: GPL-2.0-or-later
"""Page cache of a slice that is emptied is dropped, kept or chosen by use, on both LRU
implementations.

A file that was read ahead only and a file that was read twice lie in the same slices.
"""

import ctypes
import errno
import mmap
import os
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Child, libc
from ramlab.guest.pinned_memory import Group
from ramlab.pytest_vm import vm

MIB_OF_EACH = 64
# A slice of the files' pages may hold this many others, which may come and go during a test
OTHERS = 32
# A destination's cache is dropped so many pages at a time, the last time maybe for a single page
DROP_BATCH = 64
PRICES = dev.SYSFS / "price"
# More than everything else that a slice costs
DEAR = 10**9


pytestmark = vm(mem="1G", disk="1G", append="ramslice=4M")


class File:
    """A file of known contents on the scratch disk."""

    def __init__(self, folder, name):
        self.path = Path(folder, name)
        self.bytes = MIB_OF_EACH * MIB
        self.data = os.urandom(MIB)
        with open(self.path, "wb") as file:
            for _ in range(MIB_OF_EACH):
                file.write(self.data)
            os.fsync(file.fileno())
        self.inode = self.path.stat().st_ino

    def read(self):
        """Reads it whole, in order; returns whether it is as it was written."""
        with open(self.path, "rb", buffering=0) as file:
            return [file.read(MIB) == self.data for _ in range(MIB_OF_EACH)] == [True] * MIB_OF_EACH

    def read_ahead(self):
        """Has it read into the cache, where no page of it has been used then."""
        with open(self.path, "rb") as file:
            for at in range(0, self.bytes, MIB):
                os.posix_fadvise(file.fileno(), at, MIB, os.POSIX_FADV_WILLNEED)

    def thin(self):
        """Removes every other 64 KiB from the cache."""
        with open(self.path, "rb") as file:
            for at in range(0, self.bytes, 128 << 10):
                os.posix_fadvise(file.fileno(), at, 64 << 10, os.POSIX_FADV_DONTNEED)

    def cached(self):
        """Pages in the page cache."""
        return sum(self.resident())

    def resident(self):
        """For each page whether it is in the page cache."""
        with (
            open(self.path, "rb") as file,
            mmap.mmap(
                file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE
            ) as view,
        ):
            vector = (ctypes.c_ubyte * (self.bytes // PAGE))()
            anchor = ctypes.c_char.from_buffer(view)
            failed = libc.mincore(
                ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(self.bytes), vector
            )
            del anchor
            if failed:
                raise OSError(ctypes.get_errno(), "mincore")
            return [bool(entry & 1) for entry in vector]


class Cache(harness.RamsliceTest):
    mglru = False

    @classmethod
    def setUpClass(cls):
        dev.set_mglru(cls.mglru)
        folder = Path(dev.file_system())
        cls.unused, cls.twice = File(folder, "unused"), File(folder, "twice")

    @classmethod
    def tearDownClass(cls):
        dev.set_mglru(False)

    def setUp(self):
        super().setUp()
        self.fill()

    def fill(self):
        """Puts the files into slices of their own: all other memory is packed first."""
        dev.write("/proc/sys/vm/drop_caches", 3)
        harness.compact(self.device)
        self.device.request("online_all")
        self.assertEqual((self.unused.cached(), self.twice.cached()), (0, 0))
        self.twice.read()
        self.twice.read()
        self.unused.read_ahead()

    def tearDown(self):
        self.assertTrue(self.unused.read() and self.twice.read())
        self.device.request("online_all")
        self.assert_sane()

    def pages_of(self, number):
        """Pages of either file in the slice.

        None if the slice holds a page that stays, or more than a few pages that would have to move.
        """
        found, others = {self.unused.inode: 0, self.twice.inode: 0}, 0
        for run in self.device.pages(number):
            if run.what() == "file" and run.inode in found:
                found[run.inode] += run.nr_pages
            elif run.what() == "anon" and not run.reason:
                others += run.nr_pages
            elif run.reason or run.what() not in ("free", "transit"):
                return None
        return (found[self.unused.inode], found[self.twice.inode]) if others <= OTHERS else None

    def slice_of(self, file, least=256):
        """A slice that holds almost only pages of this file.

        The files are read again if there is none.
        """
        index = (self.unused, self.twice).index(file)
        for _ in range(5):
            for s in self.device.snapshot():
                if (
                    s.counter("file") >= least
                    and (pages := self.pages_of(s.id))
                    and pages[index] >= least
                ):
                    return s.id, pages
            self.fill()
        self.fail("no slice holds only such pages")

    def assert_about(self, found, wanted):
        """The same number, except for a few other pages."""
        self.assertLessEqual(abs(found - wanted), 2 * OTHERS, f"{found} pages, not {wanted}")

    def empty_of(self, number, flags=0):
        """Empties the slice; returns the pages dropped, there and in destinations, and those
        moved.
        """
        done = self.device.request("offline", id=number, flags=flags | dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, done.why(), done.nr_done), (0, "none", 1), done)
        return done.pages_dropped, done.pages_migrated

    def cached(self):
        return self.unused.cached(), self.twice.cached()

    def test_drop_keeps_no_page_cache(self):
        for file in (self.unused, self.twice):
            number, pages = self.slice_of(file)
            before = self.cached()
            dropped, moved = self.empty_of(number)
            self.assert_about(dropped, sum(pages))
            self.assert_about(moved, 0)
            # Few destinations lose pages
            for was, is_, gone in zip(before, self.cached(), pages):
                self.assert_about(was - is_, gone)

    def test_keep_moves_all_page_cache(self):
        before = self.cached()
        for file in (self.unused, self.twice):
            number, pages = self.slice_of(file)
            dropped, moved = self.empty_of(number, dev.KEEP_CACHE)
            self.assertEqual(dropped, 0)
            self.assert_about(moved, sum(pages))
        self.assertEqual(self.cached(), before)

    def test_auto_moves_used_pages_and_drops_the_others(self):
        for file in (self.unused, self.twice):
            # Moving a page ages it
            self.fill()
            number, pages = self.slice_of(file)
            before = self.cached()
            dropped, moved = self.empty_of(number, dev.AUTO_CACHE)
            self.assert_about(moved, pages[1])
            self.assertGreaterEqual(dropped, pages[0])
            unused, twice = self.cached()
            self.assert_about(twice, before[1])
            self.assert_about(before[0] - unused, dropped)

    def test_a_compaction_keeps_for_once_what_was_read_since_the_last(self):
        def compact():
            self.device.request("compact", flags=dev.AUTO_CACHE | dev.IGNORE_BACKOFF)
            self.device.request("online_all")
            return self.unused.cached()

        self.unused.read()
        cached = self.unused.cached()
        self.assertGreater(compact(), cached * 3 // 4)
        self.assertLess(compact(), cached // 4)

    def test_a_request_for_a_slice_drops_what_was_read_once(self):
        number, pages = self.slice_of(self.unused)
        self.unused.read()
        dropped, moved = self.empty_of(number, dev.AUTO_CACHE)
        # Destinations may lose such pages, too
        self.assertGreaterEqual(dropped, pages[0])
        self.assert_about(moved, pages[1])

    def test_auto_keeps_pages_that_were_read_again(self):
        refaults = harness.vmstat()["workingset_refault_file"]
        before = self.unused.resident()
        # Of one slice they could all come back to where others are, which nothing empties
        for _ in range(4):
            self.empty_of(self.slice_of(self.unused)[0], dev.AUTO_CACHE)
        after = self.unused.resident()
        away = [page for page, was in enumerate(before) if was and not after[page]]
        self.assertGreater(len(away), 1024)
        self.unused.read()
        # A few may be counted late
        self.assertGreater(harness.vmstat()["workingset_refault_file"] - refaults,
                           len(away) * 9 // 10)
        # Pages that were read again stay from now on, wherever they are. A page that was moved and
        # not used since may be dropped the next time, so slices that received pages are left out.
        held = {s.id: self.pages_of(s.id) for s in self.device.snapshot() if s.counter("file")}
        moved = 0
        for s in self.device.snapshot():
            if (
                s.state == dev.ONLINE
                and held.get(s.id)
                and held[s.id][0]
                and self.pages_of(s.id) == held[s.id]
            ):
                done = self.device.request(
                    "offline", id=s.id, flags=dev.AUTO_CACHE | dev.IGNORE_BACKOFF
                )
                moved += done.pages_migrated
        cached = self.unused.resident()
        kept = sum(cached[page] for page in away)
        self.assertGreater(moved, len(away) // 4)
        self.assertGreater(kept, len(away) * 9 // 10)

    def test_pages_dropped_by_drop_do_not_refault(self):
        number, pages = self.slice_of(self.unused)
        refaults = harness.vmstat()["workingset_refault_file"]
        self.assert_about(self.empty_of(number)[0], sum(pages))
        self.unused.read()
        self.assertEqual(harness.vmstat()["workingset_refault_file"], refaults)

    def test_auto_drops_moved_pages_that_stay_unused(self):
        number, pages = self.slice_of(self.twice)
        self.assert_about(self.empty_of(number, dev.AUTO_CACHE)[1], pages[1])
        cached = self.twice.cached()
        for _ in range(12):
            # Again and again, until only slices that stay online hold such pages
            for s in self.device.snapshot():
                if (
                    s.state == dev.ONLINE
                    and s.counter("file")
                    and (held := self.pages_of(s.id))
                    and held[1]
                ):
                    self.device.request(
                        "offline", id=s.id, flags=dev.AUTO_CACHE | dev.IGNORE_BACKOFF
                    )
                    self.device.request("online_all")
        self.assertLess(self.twice.cached(), cached - pages[1] // 2)

    def test_used_cache_that_finds_no_room_goes_once_it_rests(self):
        """Compactions leave no room to move it to; it grows old where it is."""
        def compact():
            self.device.request("compact", flags=dev.AUTO_CACHE | dev.IGNORE_BACKOFF)

        compact()
        for _ in range(4):
            self.twice.read()
            compact()
        cached = self.twice.cached()
        self.assertGreater(cached, MIB_OF_EACH * MIB // PAGE * 3 // 4)
        for _ in range(4):
            compact()
        self.assertLess(self.twice.cached(), cached // 4)

    def test_a_dry_run_predicts_the_price_and_ages_no_page(self):
        number, pages = self.slice_of(self.twice)
        prices = {}
        for name, flags in (("drop", 0), ("keep", dev.KEEP_CACHE), ("auto", dev.AUTO_CACHE)):
            for _ in range(3):
                done = self.device.request(
                    "offline", id=number, flags=flags | dev.DRY_RUN | dev.IGNORE_BACKOFF
                )
                self.assertEqual(done.nr_done, 1)
            prices[name] = done.price_predicted
        self.assertLess(prices["drop"], prices["auto"])
        self.assertLess(prices["drop"], prices["keep"])
        self.assert_about(self.empty_of(number, dev.AUTO_CACHE)[1], pages[1])

    def test_destinations_lose_as_much_cache_as_predicted(self):
        """Free pages of a destination are taken first, so its price alone predicts the dropped
        pages.
        """
        self.addCleanup(dev.write, PRICES / "alloc_buddy", dev.read(PRICES / "alloc_buddy"))
        self.addCleanup(dev.write, PRICES / "alloc_cache", dev.read(PRICES / "alloc_cache"))
        dev.write(PRICES / "alloc_buddy", 0)
        dev.write(PRICES / "alloc_cache", DEAR)
        tried = 0
        for thinned in (True, False):
            self.fill()
            if thinned:
                # Every other part of the cache goes, so that pageblocks have free pages and cache
                self.unused.thin()
                self.twice.thin()
            with harness.Memory(24) as memory:
                memory.touch()
                for s in sorted(self.device.snapshot(), key=lambda s: -s.counter("lru_anon"))[:3]:
                    if s.flags & dev.UNMOVABLE or s.counter("lru_anon") < 256 or s.counter("file"):
                        continue
                    done = self.device.request("offline", id=s.id, flags=dev.IGNORE_BACKOFF)
                    if done.status or done.pages_failed:
                        continue
                    predicted = done.price_predicted // DEAR
                    self.assertLessEqual(
                        abs(done.pages_dropped - predicted), 2 * OTHERS + DROP_BATCH,
                        (thinned, predicted, done),
                    )
                    tried += 1
        self.assertGreater(tried, 2)

    def test_keep_and_auto_together_are_refused(self):
        with self.refused(errno.EINVAL):
            self.device.request("compact", flags=dev.KEEP_CACHE | dev.AUTO_CACHE)

    def test_compaction_obeys_each_cache_choice(self):
        """With many slices at once, room may be short, so that some used pages are dropped, too."""
        dropped = {}
        for name, flags in (("keep", dev.KEEP_CACHE), ("auto", dev.AUTO_CACHE), ("drop", 0)):
            # The kernel may take a moved page for a used one
            self.fill()
            done = self.device.request("compact", flags=flags | dev.IGNORE_BACKOFF)
            self.assertEqual(done.status, 0, done.why())
            self.assertGreater(done.nr_done, 0)
            dropped[name] = done.pages_dropped
            if name == "auto":
                self.assertGreater(self.twice.cached(), self.unused.cached())
            self.device.request("online_all")
        self.assertEqual(dropped["keep"], 0)
        self.assertGreater(dropped["auto"], 0)


class Protected(harness.RamsliceTest):
    """Cache of a group whose memory is protected stays, as reclaim would leave it."""

    @classmethod
    def setUpClass(cls):
        folder = Path(dev.file_system())
        cls.file, cls.stream = File(folder, "protected"), File(folder, "stream")

    def setUp(self):
        super().setUp()
        group = self.enterContext(Group("protected"))
        dev.write(group.path / "memory.min", (MIB_OF_EACH + 32) * MIB)
        dev.write("/proc/sys/vm/drop_caches", 1)

        def child():
            group.enter()
            yield self.file.read()

        with Child(child) as reader:
            self.assertTrue(reader.step())
        self.addCleanup(dev.write, "/proc/sys/vm/drop_caches", 1)
        self.addCleanup(self.device.request, "online_all")
        self.assertGreater(group.table("memory.stat")["file"], MIB_OF_EACH * MIB * 9 // 10)
        self.before = self.file.cached()

    def assert_kept(self):
        self.assertGreater(self.file.cached(), self.before * 95 // 100)

    def test_a_stream_of_another_group_does_not_recycle_it(self):
        # The stream's own pages, which may be recycled, would hold as much again
        for _ in range(2):
            self.device.request("compact", flags=dev.KEEP_CACHE | dev.IGNORE_BACKOFF)
            self.assertTrue(self.stream.read())
            with open(self.stream.path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.assert_kept()

    def check_moves(self, flags):
        """Emptying moves it: a slice that holds some of it, then all that can be emptied."""
        flags |= dev.IGNORE_BACKOFF
        for row in sorted(self.device.snapshot(), key=lambda row: -row.counter("file")):
            done = self.device.request("offline", id=row.id, flags=flags)
            if done.nr_done:
                break
        self.assertGreater(row.counter("file"), 0)
        self.assertGreater(done.pages_migrated, 0)
        self.assertGreater(self.device.request("compact", flags=flags).nr_done, 0)
        self.assert_kept()

    def test_auto_moves_it(self):
        self.check_moves(dev.AUTO_CACHE)

    def test_a_request_that_drops_cache_moves_it(self):
        self.check_moves(0)


class CacheMglru(Cache):
    """The same with the multi-generational LRU."""

    mglru = True


def refaults(read):
    """Pages that came back to the cache while something was read, and those of them that are
    active from then on.
    """
    before = harness.vmstat()
    assert read()
    after = harness.vmstat()
    return [after[name] - before[name]
            for name in ("workingset_refault_file", "workingset_activate_file")]


class CacheAfterIdle(harness.RamsliceTest):
    """Cache that comes back when the active list went with all the rest, on the classic lists."""

    @classmethod
    def setUpClass(cls):
        dev.set_mglru(False)
        cls.file = File(dev.file_system(), "again")
        cls.pages = cls.file.bytes // PAGE

    def setUp(self):
        super().setUp()
        self.addCleanup(self.device.request, "online_all")
        dev.write("/proc/sys/vm/drop_caches", 1)
        self.assertTrue(self.file.read())
        for _ in range(4):
            self.compact()
        # Some lie in slices that stay on
        self.assertLess(self.file.cached(), self.pages // 2)

    def compact(self):
        done = self.device.request("compact", flags=dev.AUTO_CACHE | dev.IGNORE_BACKOFF)
        self.assertEqual(done.status, 0, done.why())

    def test_what_memory_that_is_off_could_have_held_stays(self):
        self.assertGreater(self.device.info().offline_pages, 2 * self.pages)
        came, active = refaults(self.file.read)
        self.assertGreater(came, self.pages // 2)
        self.assertGreater(active, came * 3 // 4)
        self.compact()
        self.assertGreater(self.file.cached(), self.pages * 3 // 4)

    def test_what_no_memory_that_is_off_could_have_held_is_new(self):
        # As much goes after it: what reclaim counts, a few MiB, could not have held both
        other = File(self.file.path.parent, "other")
        self.addCleanup(other.path.unlink)
        for _ in range(4):
            self.compact()
        self.assertLess(other.cached(), self.pages // 2)
        self.device.request("online_all")
        came, active = refaults(self.file.read)
        self.assertGreater(came, self.pages // 2)
        self.assertLess(active, came // 4)

    def test_the_limit_of_a_control_group_counts(self):
        group = self.enterContext(Group("limited"))
        dev.write(group.path / "memory.max", self.file.bytes // 4)
        # One of which nothing was evicted yet
        self.device.request("online_all")
        file = File(self.file.path.parent, "limited")
        self.addCleanup(file.path.unlink)
        dev.write("/proc/sys/vm/drop_caches", 1)
        # As much is off as the file would need, and as much is free, so that reading makes no room
        for row in self.device.snapshot():
            if self.device.info().offline_pages > 2 * self.pages:
                break
            self.device.request("offline", id=row.id, flags=dev.IGNORE_BACKOFF)
        self.assertGreater(self.device.info().offline_pages, 2 * self.pages)
        self.assertGreater(self.device.info().free_pages, 2 * self.pages)

        def child():
            group.enter()
            yield file.read()
            yield refaults(file.read)

        with Child(child) as reader:
            self.assertTrue(reader.step())
            came, active = reader.step()
        self.assertGreater(came, self.pages // 2)
        self.assertLess(active, came // 4)
