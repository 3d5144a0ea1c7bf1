#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The files in sysfs, and who may use files and device: valid input has its effect, anything else
is refused and changes nothing.
"""

import errno
import os
import stat

import _ramslice as dev
import _ramslice_harness as harness
from _ramslice_harness import MIB, PAGE, Child

PRICES = [*dev.PRICES, "unreclaimable"]


class Sysfs(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        self.size = dev.SYSFS / "slice_bytes"
        self.addCleanup(dev.write, self.size, dev.read(self.size))
        self.addCleanup(self.device.request, "online_all")

    def test_sysfs_reports_that_ramslice_is_enabled(self):
        self.assertEqual(dev.read(dev.SYSFS / "enabled"), "1")
        names = {
            "enabled",
            "slice_bytes",
            "interleave_ways",
            "interleave_granularity_bytes",
            "nr_segments",
            "clock_khz",
            "power_driver",
            "driver_timeout_ms",
            "strict",
            "scan_ppm",
            "price",
            "placement",
            "refault_distances",
            "buffers",
        }
        self.assertEqual(set(os.listdir(dev.SYSFS)), names)

    def test_prices_are_measured_by_the_clock_of_the_processor(self):
        if os.path.exists("/sys/devices/system/cpu/cpu0/cpufreq"):
            self.skipTest("the processor changes its clock")
        lines = [line for line in dev.read("/proc/cpuinfo").splitlines()
                 if line.startswith("cpu MHz")]
        # Where the kernel does not know the clock, prices are nanoseconds
        mhz = float(lines[0].split(":")[1]) if lines else 1000
        self.assertAlmostEqual(int(dev.read(dev.SYSFS / "clock_khz")) / 1000, mhz, delta=mhz / 100)

    def test_slices_of_any_multiple_of_a_pageblock_work(self):
        managed = self.device.info().managed_pages * PAGE
        for size in (2 * MIB, 6 * MIB, 64 * MIB, 1024 * MIB, 34 * MIB):
            with self.subTest(size=size):
                dev.write(self.size, size)
                self.assertEqual(int(dev.read(self.size)), size)
                info = self.device.info()
                self.assertEqual(info.slice_bytes, size)
                # Each slice is a single run, whatever its size
                self.assertEqual((info.interleave_ways, info.granularity_bytes), (1, size))
                self.assertEqual(int(dev.read(dev.SYSFS / "interleave_ways")), 1)
                self.assertEqual(
                    int(dev.read(dev.SYSFS / "interleave_granularity_bytes")), size
                )
                self.assertAlmostEqual(
                    info.nr_slices, managed / size, delta=3 + 0.05 * managed / size
                )
                self.assertEqual(len(self.device.snapshot()), info.nr_slices)
                if size == 1024 * MIB:
                    continue
                # Slices of this size can be emptied
                done = self.device.request("compact", max_slices=4)
                self.assertEqual((done.status, done.nr_done), (0, 4))
                self.assertEqual(self.device.info().offline_pages * PAGE, 4 * size)
                self.device.request("online_all")
                self.assert_sane()

    def test_other_sizes_are_refused(self):
        for text in (
            "1",
            "0",
            "4096",
            str(3 * MIB),
            str(2 * MIB + 1),
            "-2097152",
            "-1",
            "text",
            "",
            "\n",
            "64M",
            "2097152 2097152",
            "1e6",
            str(1 << 50),
        ):
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

    def test_prices_are_stored_and_used(self):
        self.assertEqual(set(os.listdir(dev.SYSFS / "price")), set(PRICES))
        for name in PRICES:
            path = dev.SYSFS / "price" / name
            before = dev.read(path)
            # The offset of unreclaimable slices must be larger than any price
            for value in (
                "1000000" if name == "unreclaimable" else "0",
                "1234567",
                "1000000000000",
            ):
                dev.write(path, value + "\n")
                self.assertEqual(dev.read(path), value)
            dev.write(path, before)
        number, = self.empty()
        path = dev.SYSFS / "price/isolate_slice"
        default, before = dev.read(path), harness.empty_price(self.device)
        dev.write(path, int(default) + 1000)
        try:
            price = next(s.price for s in self.device.snapshot() if s.id == number)
            self.assertEqual(price, before + 1000)
        finally:
            dev.write(path, default)

    def test_bad_prices_are_refused(self):
        for name in PRICES:
            path = dev.SYSFS / "price" / name
            for text in ("-1", "text", "\n", "0x10", "1.5", "1 2", "inf"):
                with self.refused(errno.EINVAL, f"{name} {text!r}"):
                    dev.write(path, text)
            for text in ("1000000000001", str(1 << 64)):
                with self.refused(errno.ERANGE, f"{name} {text!r}"):
                    dev.write(path, text)
        with self.refused(errno.ERANGE, "an offset below any price"):
            dev.write(dev.SYSFS / "price/unreclaimable", 999_999)

    def test_read_only_files_cannot_be_written(self):
        for name in ("enabled", "clock_khz", "power_driver"):
            self.assertEqual(stat.S_IMODE((dev.SYSFS / name).stat().st_mode), 0o444)
            self.assertRaises(OSError, dev.write, dev.SYSFS / name, "1")


class Access(harness.RamsliceTest):
    UNPRIVILEGED, GROUP = 65534, 4242

    def setUp(self):
        super().setUp()
        mode = os.stat("/dev/ramslice")
        self.addCleanup(os.chmod, "/dev/ramslice", stat.S_IMODE(mode.st_mode))
        self.addCleanup(os.chown, "/dev/ramslice", mode.st_uid, mode.st_gid)

    def as_user(self, mode, groups=(), op="offline_free", flags=dev.DRY_RUN, **fields):
        """Errno of opening the device and sending a request as an ordinary user; 0 if both work."""
        def attempt():
            os.setgroups(groups)
            os.setgid(self.UNPRIVILEGED)
            os.setuid(self.UNPRIVILEGED)
            try:
                with dev.Device(mode) as own:
                    own.request(op, max_slices=1, flags=flags, **fields)
            except OSError as error:
                yield error.errno
            else:
                yield 0

        with Child(attempt) as child:
            return child.step()

    def test_the_device_is_for_root_alone(self):
        mode = os.stat("/dev/ramslice")
        self.assertEqual((stat.S_IMODE(mode.st_mode), mode.st_uid, mode.st_gid), (0o600, 0, 0))
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            self.assertEqual(self.as_user(flags), errno.EACCES)

    def test_a_group_can_be_given_access(self):
        os.chown("/dev/ramslice", 0, self.GROUP)
        os.chmod("/dev/ramslice", 0o660)
        self.assertEqual(self.as_user(os.O_RDWR, [self.GROUP]), 0)
        self.assertEqual(self.as_user(os.O_RDWR), errno.EACCES)

    def test_a_group_cannot_hold_slices(self):
        """The machine has less memory then, for all."""
        os.chown("/dev/ramslice", 0, self.GROUP)
        os.chmod("/dev/ramslice", 0o660)
        self.assertEqual(self.as_user(os.O_RDWR, [self.GROUP], flags=dev.HOLD), errno.EPERM)

    def test_a_group_cannot_wake_held_slices(self):
        """The machine has more memory then, for all; other slices are the group's to wake."""
        os.chown("/dev/ramslice", 0, self.GROUP)
        os.chmod("/dev/ramslice", 0o660)
        number, = self.empty()
        self.addCleanup(self.device.request, "online_all", flags=dev.HOLD)
        wake = {"op": "online", "flags": 0, "id": number}
        self.assertEqual(self.device.request("offline", id=number, flags=dev.HOLD).nr_done, 1)
        self.assertEqual(self.as_user(os.O_RDWR, [self.GROUP], **wake), errno.EPERM)
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        self.assertTrue(self.row(number).flags & dev.HELD)
        self.assertEqual(self.device.request("online", id=number).nr_done, 1)
        self.assertEqual(self.device.request("offline", id=number).nr_done, 1)
        self.assertEqual(self.as_user(os.O_RDWR, [self.GROUP], **wake), 0)
        self.assertEqual(self.row(number).state, dev.ONLINE)

    def test_a_group_with_read_access_cannot_request(self):
        os.chown("/dev/ramslice", 0, self.GROUP)
        os.chmod("/dev/ramslice", 0o640)
        self.assertEqual(self.as_user(os.O_RDWR, [self.GROUP]), errno.EACCES)
        self.assertEqual(self.as_user(os.O_RDONLY, [self.GROUP]), errno.EBADF)

    def test_only_root_can_write_the_files(self):
        def attempt():
            os.setgroups([])
            os.setgid(self.UNPRIVILEGED)
            os.setuid(self.UNPRIVILEGED)
            paths = [dev.SYSFS / "slice_bytes", dev.SYSFS / "price/drop_page",
                     self.folder / "stats"]
            yield [os.access(path, os.W_OK) for path in paths]

        with Child(attempt) as child:
            self.assertEqual(child.step(), [False, False, False])


if __name__ == "__main__":
    harness.main()
