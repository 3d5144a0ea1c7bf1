#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The ioctls of /dev/ramslice: their structures, and what each says to invalid arguments."""

import ctypes
import errno
import mmap
import os
import struct
import time

import _ramslice as dev
import _ramslice_harness as harness
from _ramslice_harness import MIB, PAGE


def ioctl(fd, number, argument):
    """The bare call: 0 or an errno."""
    if isinstance(argument, (bytearray, ctypes.Array, ctypes.Structure)):
        argument = ctypes.addressof((ctypes.c_char * len(bytes(argument))).from_buffer(argument))
    ctypes.set_errno(0)
    done = harness.libc.ioctl(fd, ctypes.c_ulong(number), ctypes.c_void_p(argument))
    return ctypes.get_errno() if done < 0 else 0


class Ioctls(harness.RamsliceTest):
    """Structures as bytes, so that they can be invalid."""

    SIZES = {
        dev.IOC_INFO: 136, dev.IOC_ZONE: 112, dev.IOC_SNAPSHOT: 48, dev.IOC_REQUEST: 128,
        dev.IOC_SEGMENTS: 16,
    }
    FIRST_SIZES = SIZES | {dev.IOC_INFO: 112, dev.IOC_ZONE: 96, dev.IOC_SNAPSHOT: 40}

    def valid(self, number):
        """Bytes of a valid request that changes nothing."""
        what = {
            dev.IOC_INFO: dev.Info(),
            dev.IOC_ZONE: dev.Zone(),
            dev.IOC_SNAPSHOT: self.snapshot(self.room()),
            dev.IOC_REQUEST: self.request(flags=dev.DRY_RUN, max_slices=1),
            dev.IOC_SEGMENTS: dev.SegmentList(),
        }[number]
        what.size = ctypes.sizeof(what)
        self.assertEqual(what.size, self.SIZES[number])
        return bytearray(what)

    def room(self):
        """Rows for more slices than there are."""
        return max(self.device.info().nr_slices + 1, 256)

    def request(self, **fields):
        values = {
            "op": dev.OPS["compact"],
            "node": dev.ANY,
            "zone": dev.ANY,
            "budget": dev.UNLIMITED,
            "max_slices": 1,
        }
        return dev.Request(size=128, **(values | fields))

    def snapshot(self, nr, entry_size=72, **fields):
        self.rows = bytearray(b"\xaa" * max(nr, 1) * max(entry_size, 1))
        self.keep = (ctypes.c_char * len(self.rows)).from_buffer(self.rows)
        return dev.Snapshot(
            size=48, nr=nr, entry_size=entry_size, slices=ctypes.addressof(self.keep), **fields
        )

    def test_sizes_below_the_first_versions_are_refused(self):
        for number, size in self.FIRST_SIZES.items():
            for short in (0, 4, size - 1):
                buffer = self.valid(number)
                buffer[:4] = struct.pack("I", short)
                with self.refused(errno.EINVAL, f"ioctl {number:#x} size {short}"):
                    self.call(number, buffer)

    def test_an_older_caller_gets_the_fields_it_knows(self):
        for number, size in self.FIRST_SIZES.items():
            buffer = self.valid(number)[:size] + b"\xaa" * 64
            buffer[:4] = struct.pack("I", size)
            self.call(number, buffer)
            self.assertEqual(struct.unpack_from("I", buffer)[0], size)
            self.assertEqual(buffer[size:], b"\xaa" * 64)

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
                    with self.refused(
                        errno.E2BIG, f"ioctl {number:#x}, {extra} bytes more, set at {at}"
                    ):
                        self.call(number, buffer)

    def test_a_newer_callers_zero_bytes_are_accepted_and_kept(self):
        for number, size in self.SIZES.items():
            for extra in (1, 8, PAGE - size):
                buffer = self.valid(number) + bytearray(extra)
                buffer[:4] = struct.pack("I", size + extra)
                # Beyond the size that the caller declared
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

    def test_unknown_ioctls_are_refused_with_enotty(self):
        # TCGETS, numbers around ours, and ours with a direction and a size
        for number in (0x5401, 0xBA06, 0xBAFF, 0xBB00, 0x0000, 0xC070BA00, 0x8070BA00):
            with self.refused(errno.ENOTTY, hex(number)):
                self.call(number, self.valid(dev.IOC_INFO))

    def test_bad_addresses_fault(self):
        nowhere = mmap.mmap(-1, 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(nowhere))
        harness.libc.mprotect(ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE), 0)
        for number, size in self.SIZES.items():
            for bad in (0, 1, 0xFFFF888000000000, 0x7FFFFFFFF000, address + PAGE):
                with self.refused(errno.EFAULT, f"ioctl {number:#x} at {bad:#x}"):
                    self.call(number, bad)
            # Its size can be read and its end cannot
            edge = PAGE - size // 2
            nowhere[edge:PAGE] = bytes(self.valid(number))[:size // 2]
            with self.refused(errno.EFAULT, f"ioctl {number:#x} across the end of a mapping"):
                self.call(number, address + edge)

    def test_rows_at_a_bad_address_fault(self):
        for bad in (0, 0xFFFF888000000000, 0x7FFFFFFFF000):
            snap = self.snapshot(self.room())
            snap.slices = bad
            with self.refused(errno.EFAULT, hex(bad)):
                self.call(dev.IOC_SNAPSHOT, bytearray(snap))

    def test_info_agrees_with_the_kernels_figures(self):
        info = self.device.info()
        self.assertEqual(info.abi_version, 1)
        self.assertEqual(
            (info.page_bytes, info.pageblock_bytes, info.chunk_bytes), (PAGE, 2 * MIB, 4 * MIB)
        )
        self.assertEqual(info.slice_bytes, int(dev.read(dev.SYSFS / "slice_bytes")))
        self.assertEqual(
            info.power_driver.decode(), dev.read(dev.SYSFS / "power_driver")
        )
        kib = PAGE // 1024
        self.assertEqual(info.managed_pages * kib, harness.meminfo()["MemTotal"])
        self.assertEqual((info.offline_pages, info.quarantined_pages), (0, 0))
        self.assertAlmostEqual(info.free_pages * kib, harness.meminfo()["MemFree"], delta=4096)

    def test_zones_end_with_enoent(self):
        nr = self.device.info().nr_zones
        for index in (nr, nr + 1, 2**32 - 1):
            buffer = bytearray(dev.Zone(size=96, index=index))
            self.assertEqual(ioctl(self.device.fd, dev.IOC_ZONE, buffer), errno.ENOENT)

    def test_a_snapshot_that_does_not_fit_returns_the_count_and_writes_nothing(self):
        nr = self.device.info().nr_slices
        for room in (0, 1, nr - 1):
            snap = self.snapshot(room)
            buffer = bytearray(snap)
            self.assertEqual(ioctl(self.device.fd, dev.IOC_SNAPSHOT, buffer), errno.ENOSPC)
            self.assertEqual(struct.unpack_from("4I", buffer), (48, 72, nr, 0))
            self.assertEqual(set(self.rows), {0xAA})
        snap = self.snapshot(nr)
        self.call(dev.IOC_SNAPSHOT, bytearray(snap))

    def test_snapshot_rows_keep_the_callers_entry_size(self):
        nr = self.device.info().nr_slices
        snap = self.snapshot(nr, entry_size=80)
        buffer = self.call(dev.IOC_SNAPSHOT, bytearray(snap))
        self.assertEqual(struct.unpack_from("4I", buffer), (48, 72, nr, 0))
        for i in range(nr):
            self.assertEqual(self.rows[i * 80 + 72:i * 80 + 80], b"\xaa" * 8)
        self.assertEqual(
            struct.unpack_from("I", self.rows, 80 * (nr - 1))[0], self.device.snapshot()[-1].id
        )

    def test_snapshots_of_an_unknown_kind_are_refused(self):
        nr = self.device.info().nr_slices
        for fields in (
            {"entry_size": 71},
            {"entry_size": 0},
            {"entry_size": PAGE + 1},
            {"flags": 2},
            {"flags": 1 << 31},
        ):
            snap = self.snapshot(nr)
            for name, value in fields.items():
                setattr(snap, name, value)
            with self.refused(errno.EINVAL, str(fields)):
                self.call(dev.IOC_SNAPSHOT, bytearray(snap))

    def test_a_snapshot_is_sorted_and_has_a_time(self):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        buffer = self.call(dev.IOC_SNAPSHOT, bytearray(self.snapshot(self.room())))
        snap = dev.Snapshot.from_buffer(buffer)
        self.assertTrue(before <= snap.time_ns <= time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        self.assertEqual(snap.event_seq, self.device.info().event_seq)
        numbers = [s.id for s in self.device.snapshot()]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_requests_out_of_range_are_refused(self):
        number, = self.empty()
        one = {"op": dev.OPS["offline"], "id": number}
        for fields in (
            {"op": len(dev.OPS)},
            {"op": 2**32 - 1},
            {"flags": 0x40},
            {"flags": 1 << 31},
            {"reserved": 1},
            {"max_slices": 0},
            one | {"max_slices": 0},
            {"id": 1},
            {"op": dev.OPS["online_all"], "id": 1},
            {"node": -2},
            {"node": 2**31 - 1},
            {"zone": -2},
            {"zone": 1000},
            one | {"node": 0},
            one | {"zone": 0},
            one | {"reserved": 1},
            one | {"flags": dev.KEEP_CACHE | dev.AUTO_CACHE},
            # Waking has no flags except that of held slices for all
            {"op": dev.OPS["online_all"], "flags": dev.KEEP_CACHE},
            {"op": dev.OPS["online"], "flags": dev.DRY_RUN},
        ):
            with self.refused(errno.EINVAL, str(fields)):
                self.call(dev.IOC_REQUEST, bytearray(self.request(**fields)))

    def test_requests_for_a_missing_slice_zone_or_node_are_refused(self):
        zones = self.device.zones()
        node = max(set(range(16)) - {zone.node for zone in zones})
        zone = max(set(range(4)) - {zone.zone for zone in zones})
        for fields in (
            {"op": dev.OPS["offline"], "id": 1 << 20}, {"op": dev.OPS["online"], "id": 1 << 20},
            {"op": dev.OPS["offline"], "id": 2**32 - 1}, {"op": dev.OPS["online"], "id": 2**32 - 1},
            {"node": node}, {"op": dev.OPS["offline_free"], "node": node},
            {"op": dev.OPS["online_all"], "node": node},
            {"zone": zone}, {"op": dev.OPS["offline_free"], "zone": zone},
            {"op": dev.OPS["online_all"], "zone": zone},
        ):
            with self.refused(errno.ENOENT, str(fields)):
                self.call(dev.IOC_REQUEST, bytearray(self.request(**fields)))

    def test_the_outcome_fields_of_a_request_are_not_read(self):
        request = self.request(
            status=7, reason=9, nr_done=3, nr_failed=3, last_id=1, elapsed_ns=1, pages_failed=5
        )
        done = dev.Request.from_buffer(self.call(dev.IOC_REQUEST, bytearray(request)))
        self.assertEqual(
            (done.status, done.reason, done.nr_done, done.nr_failed, done.pages_failed),
            (0, 0, 1, 0, 0),
        )

    def test_a_request_for_a_slice_in_the_wrong_state_changes_nothing(self):
        off, on = self.empty(2)
        self.device.request("offline", id=off)
        for op, number in (("offline", off), ("online", on)):
            before = harness.states(self.device)
            done = self.device.request(op, id=number)
            self.assertEqual((done.status, done.why(), done.nr_done), (errno.EBUSY, "state", 0))
            self.assertEqual(harness.states(self.device), before)

    def test_a_dry_run_returns_the_price_and_moves_nothing(self):
        before, price = harness.states(self.device), harness.empty_price(self.device)
        number, = self.empty()
        done = self.device.request("offline", id=number, flags=dev.DRY_RUN)
        self.assertEqual((done.status, done.nr_done, done.price_predicted), (0, 1, price))
        done = self.device.request("compact", flags=dev.DRY_RUN, max_slices=5)
        self.assertEqual((done.status, done.nr_done, done.price_predicted), (0, 5, 5 * price))
        self.assertEqual((done.pages_migrated, done.pages_dropped), (0, 0))
        self.assertEqual(harness.states(self.device), before)

    def test_a_request_keeps_to_its_zone(self):
        for zone in self.device.zones():
            harness.wake(self.device)
            self.device.request("offline_free", node=zone.node, zone=zone.zone)
            self.assertLessEqual(
                {(s.node, s.zone) for s in self.device.snapshot() if s.state == dev.OFFLINE},
                {(zone.node, zone.zone)},
            )

    def test_a_read_only_file_cannot_request_and_a_write_only_file_cannot_read(self):
        with dev.Device(os.O_RDONLY) as reader:
            reader.info(), reader.zones(), reader.snapshot()
            with self.refused(errno.EBADF, "request"):
                reader.request("offline_free")
        with dev.Device(os.O_WRONLY) as writer:
            self.assertEqual(writer.request("offline", id=self.empty()[0]).status, 0)
            for look in (writer.info, writer.snapshot):
                with self.refused(errno.EBADF, "read"):
                    look()
            self.assertRaises(OSError, os.read, writer.fd, 8)


if __name__ == "__main__":
    harness.main()
