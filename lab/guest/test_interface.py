#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The interfaces: what they show, what they do, and that they refuse everything else without a trace.

Wants a guest of 2 GiB with slices of 32 MiB.
"""

import contextlib
import ctypes
import errno
import os
import select
import signal
import stat
import struct
import threading
import time
import unittest

import harness
import ramslice_dev as dev
from harness import MIB, PAGE, Child, Memory

FILES = {
    "nr_slices": 0o400, "nr_empty": 0o400, "nr_offline": 0o400, "all": 0o400, "reserve": 0o400, "summary": 0o400,
    "stats": 0o600, "cmd": 0o200, "result": 0o400,
}
PRICES = [
    "isolate_slice", "isolate_page", "drop_page", "migrate_page", "migrate_mapping", "alloc_buddy", "alloc_cache",
    "unreclaimable",
]
EMPTY_PRICE = 695 + 303 * 8


class Test(unittest.TestCase):
    """Begins with every slice awake, and ends with the books true."""

    def setUp(self):
        self.device = dev.Device()
        self.addCleanup(self.device.close)
        harness.wake(self.device)
        # The one with all but the first few megabytes
        self.folder = max(dev.zone_folders(), key=lambda folder: int(dev.read(folder / "nr_slices")))

    def command(self, line):
        dev.command(self.folder, line)

    def result(self):
        status, reason, done = dev.read(self.folder / "result").split()
        return int(status), reason, int(done)

    def number(self, name):
        return int(dev.read(self.folder / name))

    def everything(self):
        """What a refused request must leave alone."""
        return {
            "states": harness.states(self.device),
            "prices": {name: dev.read(dev.SYSFS / "price" / name) for name in PRICES},
            "slice_bytes": dev.read(dev.SYSFS / "slice_bytes"),
            "dummy_mode": dev.read(dev.debugfs() / "dummy_mode"),
            "result": self.result(),
        }

    @contextlib.contextmanager
    def refused(self, number, what=""):
        """The block fails with this errno and changes nothing."""
        before = self.everything()
        with self.subTest(what, errno=errno.errorcode[number]):
            try:
                yield
            except OSError as error:
                self.assertEqual(errno.errorcode[error.errno], errno.errorcode[number], what)
            else:
                self.fail(f"accepted: {what}")
            self.assertEqual(self.everything(), before, f"changed something: {what}")

    def sane(self):
        """Nothing is halfway, and the counters equal what they count."""
        self.assertLessEqual(set(harness.states(self.device).values()), {dev.ONLINE, dev.OFFLINE})
        dev.verify()

    def empty(self, nr=1):
        found = harness.empty_ids(self.device)
        self.assertGreaterEqual(len(found), nr)
        # Of the middle, where nothing else goes on
        return found[len(found) // 2:][:nr]

    def unreclaimable(self):
        """A slice of this zone that can never be emptied."""
        zone = next(z for z in self.device.zones() if z.name.decode() == self.folder.name)
        return next(s.id for s in self.device.snapshot() if s.flags & dev.UNRECLAIMABLE and s.zone == zone.zone)

    def movable_slice(self):
        """A slice in use that can be emptied."""
        for s in reversed(self.device.snapshot()):
            if s.counter("anon_mapped") < 1024:
                continue
            if self.device.request("offline", id=s.id, flags=dev.DRY_RUN | dev.IGNORE_BACKOFF).nr_done:
                return s.id
        self.fail("no slice with anonymous memory alone")


class DebugfsTree(Test):
    def test_the_root_holds_dummy_mode_verify_and_the_nodes(self):
        nodes = {f"node{zone.node}" for zone in self.device.zones()}
        self.assertEqual(set(os.listdir(dev.debugfs())), {"dummy_mode", "verify"} | nodes)

    def test_every_zone_with_slices_has_exactly_the_files_of_table_3_3(self):
        expected = {(f"node{zone.node}", zone.name.decode()) for zone in self.device.zones()}
        self.assertEqual({(p.parent.name, p.name) for p in dev.zone_folders()}, expected)
        for folder in dev.zone_folders():
            self.assertEqual(set(os.listdir(folder)), set(FILES))

    def test_files_can_be_read_and_written_as_table_3_3_says(self):
        for name, mode in FILES.items():
            path = self.folder / name
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, name)
            # Root passes by the modes
            if mode & 0o400:
                path.read_text()
            else:
                self.assertRaises(OSError, path.read_text)
            if not mode & 0o200:
                self.assertRaises(OSError, dev.write, path, "1")

    def test_all_has_a_row_for_each_slice_and_a_column_for_each_counter(self):
        header, *rows = dev.read(self.folder / "all").splitlines()
        self.assertEqual(header, "# index state reason pages price " + " ".join(dev.COUNTERS))
        self.assertEqual(len(rows), self.number("nr_slices"))
        for row in rows:
            words = row.split()
            self.assertEqual(len(words), 5 + len(dev.COUNTERS), row)
            self.assertIn(words[1], dev.STATES, row)
            self.assertIn(words[2], dev.REASONS, row)
            for count in words[5:]:
                self.assertLessEqual(int(count), int(words[3]), row)

    def test_all_agrees_with_a_snapshot(self):
        shown = {int(row.split()[0]): row.split() for row in dev.read(self.folder / "all").splitlines()[1:]}
        rows = {s.id: s for s in self.device.snapshot()}
        # Empty slices are still
        for number in harness.empty_ids(self.device):
            words, s = shown[number], rows[number]
            self.assertEqual(words[1:4], [dev.STATES[s.state], dev.REASONS[s.reason], str(s.nr_pages)])
            self.assertEqual(int(words[4]), s.price)
            self.assertEqual([int(n) for n in words[5:]], list(s.counters))

    def test_summary_is_the_sum_of_all(self):
        rows = [row.split()[3:] for row in dev.read(self.folder / "all").splitlines()[1:]]
        header, summary = dev.read(self.folder / "summary").splitlines()
        self.assertEqual(header, "# pages " + " ".join(dev.COUNTERS))
        sums = [sum(int(row[i]) for row in rows) for i in range(len(rows[0])) if i != 1]
        words = [int(word) for word in summary.split()]
        self.assertEqual(words[0], sums[0])
        for name, shown, expected in zip(dev.COUNTERS, words[1:], sums[1:]):
            # Some pages come and go between the two
            self.assertAlmostEqual(shown, expected, delta=512, msg=name)

    def test_reserve_is_listed_dearest_first(self):
        header, *rows = dev.read(self.folder / "reserve").splitlines()
        self.assertEqual(header, "# index price free freeable")
        prices = [int(row.split()[1]) for row in rows]
        self.assertGreater(len(rows), 3)
        self.assertEqual(prices, sorted(prices, reverse=True))

    def test_counts_agree_with_the_device(self):
        self.command("offline_batch inf 3")
        for folder, zone in zip(dev.zone_folders(), sorted(self.device.zones(), key=lambda z: z.name)):
            self.assertEqual(folder.name, zone.name.decode())
            for name in ("nr_slices", "nr_empty", "nr_offline"):
                self.assertEqual(int(dev.read(folder / name)), getattr(zone, name), f"{folder.name}/{name}")
        self.assertEqual(self.number("nr_offline"), 3)
        self.assertEqual(sum(z.nr_slices for z in self.device.zones()), self.device.info().nr_slices)

    def test_stats_count_and_a_write_resets_them(self):
        dev.write(self.folder / "stats", "0")
        self.assertEqual(set(dev.table(self.folder / "stats").values()), {0})
        self.command("offline_batch inf 2")
        self.command("online_all")
        stats = dev.table(self.folder / "stats")
        self.assertEqual((stats["offline_tried"], stats["offline_done"], stats["online_request"]), (2, 2, 2))
        self.assertEqual(stats["price_predicted"], 2 * EMPTY_PRICE)
        self.assertGreater(stats["price_measured"], 0)
        dev.write(self.folder / "stats", "0")
        self.assertEqual(set(dev.table(self.folder / "stats").values()), {0})


class Commands(Test):
    def setUp(self):
        super().setUp()
        self.addCleanup(dev.write, dev.debugfs() / "dummy_mode", "N")

    def test_offline_batch_takes_all_but_the_awake_reserve(self):
        empty = self.number("nr_empty")
        self.command("offline_batch inf inf")
        self.assertGreater(self.number("nr_offline"), empty * 3 // 4)
        self.assertEqual(self.result()[0], 0)
        self.assertEqual(self.result()[2], self.number("nr_offline"))

    def test_offline_batch_keeps_to_the_limit_of_slices(self):
        self.command("offline_batch inf 2")
        self.assertEqual(self.number("nr_offline"), 2)
        self.assertEqual(self.result(), (0, "none", 2))
        self.command("offline_batch inf 1")
        self.assertEqual(self.number("nr_offline"), 3)

    def test_the_budget_of_offline_batch_is_for_all_slices_together(self):
        self.command(f"offline_batch {2 * EMPTY_PRICE} inf")
        self.assertEqual(self.number("nr_offline"), 2)
        self.assertEqual(self.result(), (0, "over-budget", 2))

    def test_per_slice_makes_the_budget_hold_for_each(self):
        empty = self.number("nr_empty")
        self.command(f"offline_batch --per-slice {EMPTY_PRICE} inf")
        self.assertGreater(self.number("nr_offline"), empty * 3 // 4)

    def test_nothing_is_cheaper_than_an_empty_slice(self):
        for line in (f"offline_batch --per-slice {EMPTY_PRICE - 1} inf", "offline_batch 0 inf"):
            self.command(line)
            self.assertEqual(self.number("nr_offline"), 0)
            self.assertEqual(self.result(), (0, "over-budget", 0))

    def test_offline_index_and_online_index_work_on_that_slice(self):
        number, = self.empty()
        self.command(f"offline_index {number}")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [number])
        self.assertEqual(self.result(), (0, "none", 1))
        self.command(f"online_index {number}")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.assertEqual(self.result(), (0, "none", 1))

    def test_offline_free_takes_what_is_empty_and_moves_nothing(self):
        empty = set(harness.empty_ids(self.device))
        dev.write(self.folder / "stats", "0")
        self.command("offline_free")
        offline = set(harness.ids(self.device, dev.OFFLINE))
        # Per-CPU lists drain first, which may empty another one
        self.assertLessEqual(len(offline - empty), 1)
        self.assertGreater(len(offline), len(empty) * 3 // 4)
        stats = dev.table(self.folder / "stats")
        self.assertEqual((stats["pages_migrated"], stats["pages_dropped"]), (0, 0))

    def test_online_all_wakes_everything(self):
        self.command("offline_batch inf 7")
        self.command("online_all")
        self.assertEqual(self.number("nr_offline"), 0)
        self.assertEqual(self.result(), (0, "none", 7))

    def test_reinit_and_release_are_about_the_reserve_of_offline_index(self):
        with Memory(96) as memory:
            memory.touch().punch()
            self.command("reinit")
            self.assertEqual(self.result(), (0, "none", 0))
            number = self.movable_slice()
            self.command(f"offline_index {number}")
            self.assertEqual(harness.states(self.device)[number], dev.OFFLINE)
            self.command("release")
            self.assertEqual(self.result(), (0, "none", 0))
            # Twice does no harm
            self.command("release")
            self.assertIsNone(memory.wrong_at())
        self.sane()

    def test_reinit_does_not_outlive_a_change_of_geometry(self):
        before = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", before)
        self.addCleanup(self.device.request, "online_all")
        with Memory(96) as memory:
            memory.touch().punch()
            dev.write(dev.SYSFS / "slice_bytes", 2 * MIB)
            self.command("reinit")
            dev.write(dev.SYSFS / "slice_bytes", before)
            number = self.movable_slice()
            self.command(f"offline_index {number}")
            self.assertEqual(harness.states(self.device)[number], dev.OFFLINE)
            self.assertIsNone(memory.wrong_at())
        self.sane()

    def test_dummy_mode_migrates_into_one_empty_slice(self):
        with Memory(160) as memory:
            memory.touch().punch()
            number = self.movable_slice()
            moved = next(s for s in self.device.snapshot() if s.id == number).counter("lru_anon")
            empty = set(harness.empty_ids(self.device))
            dev.write(dev.debugfs() / "dummy_mode", "Y")
            self.command(f"offline_index {number}")
            self.assertEqual(harness.states(self.device)[number], dev.OFFLINE)
            filled = [s for s in self.device.snapshot() if s.id in empty and s.counter("lru_anon") > moved * 9 // 10]
            self.assertEqual(len(filled), 1)
            self.assertIsNone(memory.wrong_at())
        self.sane()

    def test_dummy_mode_ignores_the_price(self):
        dev.write(dev.debugfs() / "dummy_mode", "Y")
        self.command("offline_batch 0 2")
        self.assertEqual(self.number("nr_offline"), 2)
        dev.write(dev.debugfs() / "dummy_mode", "N")
        self.command("offline_batch 0 2")
        self.assertEqual(self.number("nr_offline"), 2)

    def test_result_tells_how_the_last_command_ended(self):
        number, = self.empty()
        self.command(f"offline_index {number}")
        self.assertEqual(self.result(), (0, "none", 1))
        self.assertRaises(OSError, self.command, f"offline_index {number}")
        self.assertEqual(self.result(), (-errno.EBUSY, "state", 0))
        self.assertRaises(OSError, self.command, f"offline_index {self.unreclaimable()}")
        status, reason, done = self.result()
        self.assertEqual((status, done), (-errno.EBUSY, 0))
        self.assertIn(reason, ("boot", "hole", "zone-end"))
        self.assertRaises(OSError, self.command, "offline_index 1000000")
        self.assertEqual(self.result(), (-errno.ENOENT, "none", 0))
        self.command("online_all")
        self.assertEqual(self.result(), (0, "none", 1))

    def test_each_zone_has_its_own_result_and_its_own_slices(self):
        other = min(dev.zone_folders(), key=lambda folder: int(dev.read(folder / "nr_slices")))
        self.assertNotEqual(other, self.folder, "one zone only")
        before = dev.read(other / "result")
        self.command("offline_batch inf 1")
        self.assertEqual(dev.read(other / "result"), before)
        with self.assertRaises(OSError) as caught:
            dev.command(other, f"online_index {harness.ids(self.device, dev.OFFLINE)[0]}")
        self.assertEqual(caught.exception.errno, errno.ENOENT)

    def test_malformed_commands_change_nothing_and_say_what_is_wrong(self):
        self.command("offline_batch inf 2")
        cases = {
            errno.EOPNOTSUPP: ["frobnicate", "OFFLINE_FREE", "offline", "offline_freeze", "--per-slice 1 1", "0"],
            errno.ENODATA: [
                "\n", "  \t\n", "offline_batch", "offline_batch inf", "offline_batch --per-slice",
                "offline_batch --per-slice 100", "offline_index", "online_index", "online_index\n",
            ],
            errno.E2BIG: [
                "offline_batch inf inf inf", "offline_batch --per-slice inf 1 1", "offline_index 5 6",
                "online_index 5 6", "offline_free 1", "online_all now", "reinit 1", "release --force",
            ],
            errno.EINVAL: [
                "offline_batch many inf", "offline_batch -1 inf", "offline_batch 0x10 inf", "offline_batch inf 1.5",
                "offline_batch inf -1", "offline_batch 1e3 1", "offline_batch INF inf", "offline_index -1",
                "offline_index inf", "offline_index 5x", "offline_batch --per-slice --per-slice inf",
                "offline_batch inf --per-slice", "offline_free\0 1", "\0",
            ],
            errno.ERANGE: [
                "offline_batch 18446744073709551616 inf", "offline_batch inf 4294967296", "offline_batch inf 0",
                "offline_batch 99999999999999999999999 1", "offline_index 4294967295",
                "online_index 18446744073709551615", "offline_index 18446744073709551616",
            ],
            errno.EMSGSIZE: ["x" * 257, "offline_free" + " " * 300],
        }
        for number, lines in cases.items():
            for line in lines:
                with self.refused(number, repr(line)):
                    self.command(line)

    def test_commands_for_slices_that_are_not_there_or_not_so_change_no_state(self):
        off, on = self.empty(2)
        self.command(f"offline_index {off}")
        before = harness.states(self.device)
        for line, number in {
            "offline_index 1000000": errno.ENOENT, "online_index 1000000": errno.ENOENT,
            "offline_index 4294967294": errno.ENOENT, f"offline_index {off}": errno.EBUSY,
            f"online_index {on}": errno.EBUSY, f"offline_index {self.unreclaimable()}": errno.EBUSY,
            f"online_index {self.unreclaimable()}": errno.EBUSY,
        }.items():
            with self.subTest(line), self.assertRaises(OSError) as caught:
                self.command(line)
            self.assertEqual(caught.exception.errno, number, line)
            self.assertEqual(harness.states(self.device), before, line)

    def test_white_space_around_words_does_not_matter(self):
        self.command("  offline_batch \t inf   2 \n")
        self.assertEqual(self.number("nr_offline"), 2)


def ioctl(fd, number, argument):
    """The bare call: 0 or an errno."""
    if isinstance(argument, (bytearray, ctypes.Array, ctypes.Structure)):
        argument = ctypes.addressof((ctypes.c_char * len(bytes(argument))).from_buffer(argument))
    ctypes.set_errno(0)
    done = harness.libc.ioctl(fd, ctypes.c_ulong(number), ctypes.c_void_p(argument))
    return ctypes.get_errno() if done < 0 else 0


class Ioctls(Test):
    """Structures as bytes, so that they can be wrong."""

    SIZES = {dev.IOC_INFO: 112, dev.IOC_ZONE: 96, dev.IOC_SNAPSHOT: 40, dev.IOC_REQUEST: 128}

    def valid(self, number):
        """Bytes of a request that is good and changes nothing."""
        what = {
            dev.IOC_INFO: dev.Info(), dev.IOC_ZONE: dev.Zone(), dev.IOC_SNAPSHOT: self.snapshot(256),
            dev.IOC_REQUEST: self.request(flags=dev.DRY_RUN, max_slices=1),
        }[number]
        what.size = ctypes.sizeof(what)
        self.assertEqual(what.size, self.SIZES[number])
        return bytearray(what)

    def request(self, **fields):
        values = {"op": dev.OPS["compact"], "node": dev.ANY, "zone": dev.ANY, "budget": dev.UNLIMITED, "max_slices": 1}
        return dev.Request(size=128, **(values | fields))

    def snapshot(self, nr, entry_size=72, **fields):
        self.rows = bytearray(b"\xaa" * max(nr, 1) * max(entry_size, 1))
        self.keep = (ctypes.c_char * len(self.rows)).from_buffer(self.rows)
        return dev.Snapshot(size=40, nr=nr, entry_size=entry_size, slices=ctypes.addressof(self.keep), **fields)

    def test_sizes_below_the_first_versions_are_refused(self):
        for number, size in self.SIZES.items():
            for short in (0, 4, size - 1):
                buffer = self.valid(number)
                buffer[:4] = struct.pack("I", short)
                with self.refused(errno.EINVAL, f"ioctl {number:#x} size {short}"):
                    self.call(number, buffer)

    def call(self, number, buffer):
        if error := ioctl(self.device.fd, number, buffer):
            raise OSError(error, os.strerror(error))
        return buffer

    def test_bytes_that_the_kernel_does_not_know_must_be_zero(self):
        for number, size in self.SIZES.items():
            for extra in (1, 8, PAGE - size):
                for at in {0, extra - 1}:
                    buffer = self.valid(number) + bytearray(extra)
                    buffer[:4] = struct.pack("I", size + extra)
                    buffer[size + at] = 1
                    with self.refused(errno.E2BIG, f"ioctl {number:#x}, {extra} bytes more, set at {at}"):
                        self.call(number, buffer)

    def test_a_newer_callers_zero_bytes_are_welcome_and_left_alone(self):
        for number, size in self.SIZES.items():
            for extra in (1, 8, PAGE - size):
                buffer = self.valid(number) + bytearray(extra)
                buffer[:4] = struct.pack("I", size + extra)
                # Past what the caller declared
                buffer += b"\xaa" * 16
                self.call(number, buffer)
                self.assertEqual(struct.unpack_from("I", buffer)[0], size + extra)
                self.assertEqual(buffer[size:], bytes(extra) + b"\xaa" * 16)

    def test_sizes_beyond_a_page_are_refused(self):
        for number in self.SIZES:
            for size in (PAGE + 1, 2**31, 2**32 - 1):
                buffer = self.valid(number) + bytearray(PAGE)
                buffer[:4] = struct.pack("I", size)
                error = ioctl(self.device.fd, number, buffer)
                self.assertIn(error, (errno.EINVAL, errno.E2BIG), f"ioctl {number:#x} size {size}")

    def test_unknown_ioctls_are_not_for_this_device(self):
        # TCGETS, numbers around ours, and ours with a direction and a size
        for number in (0x5401, 0xBA04, 0xBAFF, 0xBB00, 0x0000, 0xC070BA00, 0x8070BA00):
            with self.refused(errno.ENOTTY, hex(number)):
                self.call(number, self.valid(dev.IOC_INFO))

    def test_bad_addresses_fault(self):
        nowhere = harness.mmap.mmap(-1, 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(nowhere))
        harness.libc.mprotect(ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE), 0)
        for number, size in self.SIZES.items():
            for bad in (0, 1, 0xFFFF888000000000, 0x7FFFFFFFF000, address + PAGE):
                with self.refused(errno.EFAULT, f"ioctl {number:#x} at {bad:#x}"):
                    self.call(number, bad)
            # Its size can be read, its end cannot
            edge = PAGE - size // 2
            nowhere[edge:PAGE] = bytes(self.valid(number))[:size // 2]
            with self.refused(errno.EFAULT, f"ioctl {number:#x} across the end of a mapping"):
                self.call(number, address + edge)

    def test_rows_at_a_bad_address_fault(self):
        for bad in (0, 0xFFFF888000000000, 0x7FFFFFFFF000):
            snap = self.snapshot(256)
            snap.slices = bad
            with self.refused(errno.EFAULT, hex(bad)):
                self.call(dev.IOC_SNAPSHOT, bytearray(snap))

    def test_info_is_true(self):
        info = self.device.info()
        self.assertEqual(info.abi_version, 1)
        self.assertEqual((info.page_bytes, info.pageblock_bytes, info.chunk_bytes), (4096, 2 * MIB, 4 * MIB))
        self.assertEqual(info.slice_bytes, int(dev.read(dev.SYSFS / "slice_bytes")))
        self.assertEqual(info.power_driver, b"none")
        self.assertEqual(info.managed_pages * 4, harness.meminfo()["MemTotal"])
        self.assertEqual((info.offline_pages, info.quarantined_pages), (0, 0))
        self.assertAlmostEqual(info.free_pages * 4, harness.meminfo()["MemFree"], delta=4096)

    def test_zones_end_with_enoent(self):
        nr = self.device.info().nr_zones
        for index in (nr, nr + 1, 2**32 - 1):
            buffer = bytearray(dev.Zone(size=96, index=index))
            self.assertEqual(ioctl(self.device.fd, dev.IOC_ZONE, buffer), errno.ENOENT)

    def test_a_snapshot_that_does_not_fit_says_how_many_and_writes_nothing(self):
        nr = self.device.info().nr_slices
        for room in (0, 1, nr - 1):
            snap = self.snapshot(room)
            buffer = bytearray(snap)
            self.assertEqual(ioctl(self.device.fd, dev.IOC_SNAPSHOT, buffer), errno.ENOSPC)
            self.assertEqual(struct.unpack_from("4I", buffer), (40, 72, nr, 0))
            self.assertEqual(set(self.rows), {0xAA})
        snap = self.snapshot(nr)
        self.call(dev.IOC_SNAPSHOT, bytearray(snap))

    def test_rows_keep_the_callers_distance(self):
        nr = self.device.info().nr_slices
        snap = self.snapshot(nr, entry_size=80)
        buffer = self.call(dev.IOC_SNAPSHOT, bytearray(snap))
        self.assertEqual(struct.unpack_from("4I", buffer), (40, 72, nr, 0))
        for i in range(nr):
            row = dev.Slice.from_buffer_copy(self.rows, i * 80)
            self.assertEqual(row.reserved, 0)
            self.assertEqual(self.rows[i * 80 + 72:i * 80 + 80], b"\xaa" * 8)
        self.assertEqual(struct.unpack_from("I", self.rows, 80 * (nr - 1))[0], self.device.snapshot()[-1].id)

    def test_snapshots_of_a_kind_that_is_not_there_are_refused(self):
        nr = self.device.info().nr_slices
        for fields in ({"entry_size": 71}, {"entry_size": 0}, {"entry_size": PAGE + 1}, {"flags": 1},
                       {"flags": 1 << 31}):
            snap = self.snapshot(nr)
            for name, value in fields.items():
                setattr(snap, name, value)
            with self.refused(errno.EINVAL, str(fields)):
                self.call(dev.IOC_SNAPSHOT, bytearray(snap))

    def test_a_snapshot_is_in_order_and_dated(self):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        buffer = self.call(dev.IOC_SNAPSHOT, bytearray(self.snapshot(256)))
        snap = dev.Snapshot.from_buffer(buffer)
        self.assertTrue(before <= snap.time_ns <= time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        self.assertEqual(snap.event_seq, self.device.info().event_seq)
        numbers = [s.id for s in self.device.snapshot()]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_requests_out_of_range_are_refused(self):
        number, = self.empty()
        one = {"op": dev.OPS["offline"], "id": number}
        for fields in (
            {"op": len(dev.OPS)}, {"op": 2**32 - 1}, {"flags": 0x10}, {"flags": 1 << 31}, {"reserved": 1},
            {"max_slices": 0}, one | {"max_slices": 0}, {"id": 1}, {"op": dev.OPS["online_all"], "id": 1},
            {"node": -2}, {"node": 2**31 - 1}, {"zone": -2}, {"zone": 1000}, one | {"node": 0}, one | {"zone": 0},
            one | {"reserved": 1}, one | {"flags": 0x20},
            # Waking knows no flags
            {"op": dev.OPS["online_all"], "flags": dev.KEEP_CACHE}, {"op": dev.OPS["online"], "flags": dev.DRY_RUN},
        ):
            with self.refused(errno.EINVAL, str(fields)):
                self.call(dev.IOC_REQUEST, bytearray(self.request(**fields)))

    def test_requests_for_what_is_not_there_are_refused(self):
        for fields in (
            {"op": dev.OPS["offline"], "id": 1 << 20}, {"op": dev.OPS["online"], "id": 1 << 20},
            {"op": dev.OPS["offline"], "id": 2**32 - 1}, {"op": dev.OPS["online"], "id": 2**32 - 1},
            {"node": 15}, {"zone": 3}, {"op": dev.OPS["offline_free"], "node": 15},
            {"op": dev.OPS["offline_free"], "zone": 3}, {"op": dev.OPS["online_all"], "node": 15},
            {"op": dev.OPS["online_all"], "zone": 3},
        ):
            with self.refused(errno.ENOENT, str(fields)):
                self.call(dev.IOC_REQUEST, bytearray(self.request(**fields)))

    def test_what_a_request_says_of_its_outcome_is_not_read(self):
        request = self.request(status=7, reason=9, nr_done=3, nr_failed=3, last_id=1, elapsed_ns=1, pages_failed=5)
        done = dev.Request.from_buffer(self.call(dev.IOC_REQUEST, bytearray(request)))
        self.assertEqual((done.status, done.reason, done.nr_done, done.nr_failed, done.pages_failed), (0, 0, 1, 0, 0))

    def test_a_slice_in_the_wrong_state_stays_so(self):
        off, on = self.empty(2)
        self.device.request("offline", id=off)
        for op, number in (("offline", off), ("online", on)):
            before = harness.states(self.device)
            done = self.device.request(op, id=number)
            self.assertEqual((done.status, done.why(), done.nr_done), (errno.EBUSY, "state", 0))
            self.assertEqual(harness.states(self.device), before)

    def test_a_dry_run_tells_the_price_and_moves_nothing(self):
        before = harness.states(self.device)
        number, = self.empty()
        done = self.device.request("offline", id=number, flags=dev.DRY_RUN)
        self.assertEqual((done.status, done.nr_done, done.price_predicted), (0, 1, EMPTY_PRICE))
        done = self.device.request("compact", flags=dev.DRY_RUN, max_slices=5)
        self.assertEqual((done.status, done.nr_done, done.price_predicted), (0, 5, 5 * EMPTY_PRICE))
        self.assertEqual((done.pages_migrated, done.pages_dropped), (0, 0))
        self.assertEqual(harness.states(self.device), before)

    def test_a_request_keeps_to_its_zone(self):
        for zone in self.device.zones():
            harness.wake(self.device)
            self.device.request("offline_free", node=zone.node, zone=zone.zone)
            self.assertLessEqual({(s.node, s.zone) for s in self.device.snapshot() if s.state == dev.OFFLINE},
                                 {(zone.node, zone.zone)})

    def test_files_opened_for_reading_cannot_request_and_those_for_writing_cannot_look(self):
        with dev.Device(os.O_RDONLY) as reader:
            reader.info(), reader.zones(), reader.snapshot()
            with self.refused(errno.EBADF, "request"):
                reader.request("offline_free")
        with dev.Device(os.O_WRONLY) as writer:
            self.assertEqual(writer.request("offline", id=self.empty()[0]).status, 0)
            for look in (writer.info, writer.snapshot):
                with self.refused(errno.EBADF, "look"):
                    look()
            self.assertRaises(OSError, os.read, writer.fd, 8)


class Events(Test):
    def setUp(self):
        super().setUp()
        self.watcher = dev.Device(os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(self.watcher.close)

    def change(self):
        self.device.request("offline", id=self.empty()[0])

    def test_nothing_new_is_nothing_to_read(self):
        self.assertRaises(BlockingIOError, os.read, self.watcher.fd, 8)
        poll = select.poll()
        poll.register(self.watcher.fd)
        self.assertEqual(poll.poll(0), [])

    def test_a_change_can_be_polled_for_and_read_once(self):
        self.change()
        poll = select.poll()
        poll.register(self.watcher.fd, select.POLLIN | select.POLLRDNORM)
        self.assertEqual(poll.poll(0), [(self.watcher.fd, select.POLLIN | select.POLLRDNORM)])
        seq, = struct.unpack("Q", os.read(self.watcher.fd, 8))
        self.assertEqual(seq, self.device.info().event_seq)
        self.assertRaises(BlockingIOError, os.read, self.watcher.fd, 8)
        self.assertEqual(poll.poll(0), [])

    def test_every_opener_has_news_of_its_own(self):
        with dev.Device(os.O_RDONLY | os.O_NONBLOCK) as other:
            self.change()
            first = os.read(self.watcher.fd, 8)
            self.assertEqual(os.read(other.fd, 8), first)
        with dev.Device(os.O_RDONLY | os.O_NONBLOCK) as late:
            self.assertRaises(BlockingIOError, os.read, late.fd, 8)

    def test_reads_take_eight_bytes_or_more(self):
        self.change()
        for size in (1, 4, 7):
            with self.assertRaises(OSError) as caught:
                os.read(self.watcher.fd, size)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        self.assertEqual(len(os.read(self.watcher.fd, 100)), 8)

    def test_a_waiting_poll_ends_with_the_change(self):
        threading.Timer(0.2, self.change).start()
        begin = time.monotonic()
        self.assertIsNotNone(self.watcher.wait_event(10))
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_waiting_read_ends_with_the_change(self):
        with dev.Device(os.O_RDONLY) as reader:
            threading.Timer(0.2, self.change).start()
            seq, = struct.unpack("Q", os.read(reader.fd, 8))
        # Into emptying, then offline: the reader may be as quick as the first
        self.assertIn(self.device.info().event_seq - seq, (0, 1))

    def test_a_waiting_read_ends_with_a_signal(self):
        class Alarm(Exception):
            pass

        def ring(*_):
            raise Alarm

        old = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with dev.Device(os.O_RDONLY) as reader, self.assertRaises(Alarm):
                os.read(reader.fd, 8)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)

    def test_a_waiting_poll_ends_with_a_change_of_geometry(self):
        size = int(dev.read(dev.SYSFS / "slice_bytes"))
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        threading.Timer(0.2, dev.write, (dev.SYSFS / "slice_bytes", 2 * size)).start()
        begin = time.monotonic()
        self.assertIsNotNone(self.watcher.wait_event(3), "the poll slept through it")
        self.assertLess(time.monotonic() - begin, 2)


class Interrupted(Test):
    """Requests that end early: switching off takes as long as the simulated controller is told to take."""

    def setUp(self):
        super().setUp()
        parameters = self.enterContext(harness.simulator())
        self.addCleanup(lambda: self.assertEqual(harness.violations(), 0))
        self.delay = parameters / "off_delay_us"
        dev.write(self.delay, 150_000)
        self.addCleanup(dev.write, self.delay, 0)

    def test_a_second_writer_is_told_to_wait_and_readers_are_not(self):
        outcome = []
        first = threading.Thread(target=lambda: outcome.append(self.device.request("compact", max_slices=6)))
        with dev.Device() as other:
            first.start()
            self.assertTrue(harness.until(lambda: harness.ids(other, dev.EMPTYING)))
            for op, fields in (("compact", {}), ("offline_free", {}), ("offline", {"id": self.empty()[0]})):
                with self.assertRaises(OSError) as caught:
                    other.request(op, **fields)
                self.assertEqual(caught.exception.errno, errno.EBUSY, op)
            with self.assertRaises(OSError) as caught:
                self.command("offline_free")
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            with self.assertRaises(OSError) as caught:
                dev.write(dev.SYSFS / "slice_bytes", 64 * MIB)
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            # Looking goes on meanwhile, and so does waking
            begin = time.monotonic()
            other.info(), other.zones(), other.snapshot()
            self.assertLess(time.monotonic() - begin, 0.5)
            self.assertEqual(other.request("online_all").status, 0)
            self.assertTrue(first.is_alive())
            first.join()
        self.assertEqual((outcome[0].status, outcome[0].nr_done), (0, 6))
        dev.write(self.delay, 0)
        self.sane()

    def test_a_signal_ends_a_request(self):
        rung = []
        old = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        begin = time.monotonic()
        done = self.device.request("compact")
        self.assertLess(time.monotonic() - begin, 3)
        self.assertEqual((done.status, done.why()), (errno.EINTR, "signal"))
        self.assertEqual(len(harness.ids(self.device, dev.OFFLINE)), done.nr_done)
        self.assertGreater(done.nr_done, 0)
        dev.write(self.delay, 0)
        self.sane()

    def test_a_request_dies_with_its_process(self):
        def compact():
            with dev.Device() as own:
                yield
                own.request("compact")

        child = Child(compact)
        child.step()
        child.start()
        self.assertTrue(harness.until(lambda: harness.ids(self.device, dev.OFFLINE)))
        os.kill(child.pid, signal.SIGKILL)
        begin = time.monotonic()
        child.end()
        self.assertLess(time.monotonic() - begin, 3)
        dev.write(self.delay, 0)
        # The next one gets the lock
        self.assertEqual(self.device.request("compact", max_slices=1).nr_done, 1)
        self.sane()

    def test_a_deadline_ends_a_request(self):
        for milliseconds in (1, 400):
            harness.wake(self.device)
            done = self.device.request("compact", deadline_ms=milliseconds)
            self.assertEqual((done.status, done.why()), (errno.ETIMEDOUT, "deadline"))
            self.assertEqual(len(harness.ids(self.device, dev.OFFLINE)), done.nr_done)
            self.assertLess(done.nr_done, 10)
            self.assertLess(done.elapsed_ns, 3e9)
        dev.write(self.delay, 0)
        self.sane()


class InterruptedWaking(Test):
    """The same for waking, with a controller that takes its time."""

    def setUp(self):
        super().setUp()
        parameters = self.enterContext(harness.simulator(sleeping=1))
        self.addCleanup(lambda: self.assertEqual(harness.violations(), 0))
        self.delay = parameters / "wake_delay_us"
        self.addCleanup(dev.write, self.delay, 0)
        self.device.request("compact", max_slices=20)
        dev.write(self.delay, 100_000)

    def check(self, done, status, why):
        self.assertEqual((done.status, done.why()), (status, why))
        self.assertLess(done.elapsed_ns, 2e9)
        self.assertGreater(len(harness.ids(self.device, dev.OFFLINE)), 5)
        self.assertGreater(done.nr_done, 0)
        dev.write(self.delay, 0)
        self.device.request("online_all")
        self.assertEqual(set(harness.states(self.device).values()), {dev.ONLINE})
        dev.verify()

    def test_a_deadline_ends_it(self):
        self.check(self.device.request("online_all", deadline_ms=300), errno.ETIMEDOUT, "deadline")

    def test_a_signal_ends_it(self):
        old = signal.signal(signal.SIGALRM, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        self.check(self.device.request("online_all"), errno.EINTR, "signal")


class InterruptedMigration(Test):
    """The same in the midst of moving pages: what was half emptied stays usable and whole."""

    def setUp(self):
        super().setUp()
        self.memory = self.enterContext(Memory(700))
        self.memory.touch().punch()

    def compact_used(self, **fields):
        """Takes away what is empty first, so that the request has to move pages from the start."""
        self.device.request("offline_free")
        # Room for what is moved
        for number in harness.ids(self.device, dev.OFFLINE)[:12]:
            self.device.request("online", id=number)
        return self.device.request("offline", id=self.movable_slice(), **fields)

    def check(self, done, status, why):
        self.assertEqual((done.status, done.why(), done.nr_done), (status, why, 0), done)
        self.assertEqual(harness.states(self.device)[done.last_id], dev.ONLINE)
        self.assertIsNone(self.memory.wrong_at())
        self.sane()
        # Nobody is punished for it: at the next attempt it works
        done = self.device.request("offline", id=done.last_id)
        self.assertEqual((done.status, done.nr_done), (0, 1), done)
        self.assertIsNone(self.memory.wrong_at())
        self.sane()

    def test_a_deadline_leaves_the_slice_whole(self):
        self.check(self.compact_used(deadline_ms=1), errno.ETIMEDOUT, "deadline")

    def test_a_signal_leaves_the_slice_whole(self):
        old = signal.signal(signal.SIGALRM, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        # Pending all the time
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            done = self.compact_used()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.check(done, errno.EINTR, "signal")


class Sysfs(Test):
    def setUp(self):
        super().setUp()
        self.size = dev.SYSFS / "slice_bytes"
        self.addCleanup(dev.write, self.size, dev.read(self.size))
        self.addCleanup(self.device.request, "online_all")

    def test_it_says_that_ramslice_is_on(self):
        self.assertEqual(dev.read(dev.SYSFS / "enabled"), "1")
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")
        self.assertEqual(set(os.listdir(dev.SYSFS)), {"enabled", "slice_bytes", "power_driver", "price"})

    def test_slices_of_any_multiple_of_a_pageblock_work(self):
        managed = self.device.info().managed_pages * PAGE
        for size in (2 * MIB, 6 * MIB, 64 * MIB, 1024 * MIB, 34 * MIB):
            with self.subTest(size=size):
                dev.write(self.size, size)
                self.assertEqual(int(dev.read(self.size)), size)
                info = self.device.info()
                self.assertEqual(info.slice_bytes, size)
                self.assertAlmostEqual(info.nr_slices, managed / size, delta=3 + 0.05 * managed / size)
                self.assertEqual(len(self.device.snapshot()), info.nr_slices)
                if size == 1024 * MIB:
                    continue
                # And not in name only
                done = self.device.request("compact", max_slices=4)
                self.assertEqual((done.status, done.nr_done), (0, 4))
                self.assertEqual(self.device.info().offline_pages * PAGE, 4 * size)
                self.device.request("online_all")
                self.sane()

    def test_other_sizes_are_refused(self):
        for text in ("1", "0", "4096", str(3 * MIB), str(2 * MIB + 1), "-2097152", "-1", "text", "", "\n", "64M",
                     "2097152 2097152", "1e6", str(1 << 50)):
            with self.refused(errno.EINVAL, repr(text)):
                dev.write(self.size, text or "\0")
        with self.refused(errno.ERANGE, "2^64"):
            dev.write(self.size, 1 << 64)

    def test_the_size_stays_while_a_slice_is_offline(self):
        self.device.request("compact", max_slices=1)
        with self.refused(errno.EBUSY, "64 MiB"):
            dev.write(self.size, 64 * MIB)
        self.device.request("online_all")
        dev.write(self.size, 64 * MIB)

    def test_prices_are_kept_and_used(self):
        self.assertEqual(set(os.listdir(dev.SYSFS / "price")), set(PRICES))
        for name in PRICES:
            path = dev.SYSFS / "price" / name
            before = dev.read(path)
            for value in ("0", "12345", "1000000000000"):
                dev.write(path, value + "\n")
                self.assertEqual(dev.read(path), value)
            dev.write(path, before)
        number, = self.empty()
        path = dev.SYSFS / "price/isolate_slice"
        dev.write(path, 695 + 1000)
        try:
            price = next(s.price for s in self.device.snapshot() if s.id == number)
            self.assertEqual(price, EMPTY_PRICE + 1000)
        finally:
            dev.write(path, 695)

    def test_bad_prices_are_refused(self):
        for name in PRICES:
            path = dev.SYSFS / "price" / name
            for text in ("-1", "text", "\n", "0x10", "1.5", "1 2", "inf"):
                with self.refused(errno.EINVAL, f"{name} {text!r}"):
                    dev.write(path, text)
            for text in ("1000000000001", str(1 << 64)):
                with self.refused(errno.ERANGE, f"{name} {text!r}"):
                    dev.write(path, text)

    def test_what_only_tells_cannot_be_written(self):
        for name in ("enabled", "power_driver"):
            self.assertEqual(stat.S_IMODE((dev.SYSFS / name).stat().st_mode), 0o444)
            self.assertRaises(OSError, dev.write, dev.SYSFS / name, "1")


class Access(Test):
    NOBODY, GROUP = 65534, 4242

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chmod, "/dev/ramslice", 0o600)
        self.addCleanup(os.chown, "/dev/ramslice", 0, 0)

    def as_user(self, flags, groups=()):
        """Errno of opening the device as an ordinary user, and then of a request: 0 where it works."""
        def attempt():
            os.setgroups(groups)
            os.setgid(self.NOBODY)
            os.setuid(self.NOBODY)
            try:
                with dev.Device(flags) as own:
                    own.request("offline_free", max_slices=1, flags=dev.DRY_RUN)
            except OSError as error:
                yield error.errno
            else:
                yield 0

        with Child(attempt) as child:
            return child.step()

    def test_it_is_for_root_alone(self):
        mode = os.stat("/dev/ramslice")
        self.assertEqual((stat.S_IMODE(mode.st_mode), mode.st_uid, mode.st_gid), (0o600, 0, 0))
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            self.assertEqual(self.as_user(flags), errno.EACCES)

    def test_a_group_can_be_let_in(self):
        os.chown("/dev/ramslice", 0, self.GROUP)
        os.chmod("/dev/ramslice", 0o660)
        self.assertEqual(self.as_user(os.O_RDWR, [self.GROUP]), 0)
        self.assertEqual(self.as_user(os.O_RDWR), errno.EACCES)

    def test_a_group_that_may_look_may_not_request(self):
        os.chown("/dev/ramslice", 0, self.GROUP)
        os.chmod("/dev/ramslice", 0o640)
        self.assertEqual(self.as_user(os.O_RDWR, [self.GROUP]), errno.EACCES)
        self.assertEqual(self.as_user(os.O_RDONLY, [self.GROUP]), errno.EBADF)

    def test_files_are_for_root_alone_to_write(self):
        def attempt():
            os.setgroups([])
            os.setgid(self.NOBODY)
            os.setuid(self.NOBODY)
            paths = [dev.SYSFS / "slice_bytes", dev.SYSFS / "price/drop_page", self.folder / "cmd"]
            yield [os.access(path, os.W_OK) for path in paths]

        with Child(attempt) as child:
            self.assertEqual(child.step(), [False, False, False])


if __name__ == "__main__":
    harness.main()
