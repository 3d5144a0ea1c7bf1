#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Changes of state can be polled for and read from /dev/ramslice."""

import errno
import os
import select
import signal
import struct

import _ramslice as dev
import _ramslice_harness as harness
from _ramslice_harness import ConcurrentAction, interrupt


class Events(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        self.watcher = dev.Device(os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(self.watcher.close)

    def change(self):
        self.device.request("offline", id=self.empty()[0])

    def test_without_a_change_there_is_nothing_to_read(self):
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

    def test_each_opener_has_its_own_events(self):
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
        with ConcurrentAction(lambda _: harness.blocked_in(harness.SYS_POLL), self.change):
            self.assertIsNotNone(self.watcher.wait_event(harness.PATIENCE))

    def test_a_waiting_read_ends_with_the_change(self):
        with dev.Device(os.O_RDONLY) as reader:
            with ConcurrentAction(lambda _: harness.blocked_in(harness.SYS_READ), self.change):
                seq, = struct.unpack("Q", os.read(reader.fd, 8))
        # Two changes, to emptying and to offline: the reader may have seen only the first
        self.assertIn(self.device.info().event_seq - seq, (0, 1))

    def test_a_waiting_read_ends_with_a_signal(self):
        class Alarm(Exception):
            pass

        def ring(*_):
            raise Alarm

        old = signal.signal(signal.SIGUSR1, ring)
        self.addCleanup(signal.signal, signal.SIGUSR1, old)
        with (dev.Device(os.O_RDONLY) as reader, self.assertRaises(Alarm),
              ConcurrentAction(lambda _: harness.blocked_in(harness.SYS_READ), interrupt)):
            os.read(reader.fd, 8)

    def test_a_waiting_poll_ends_with_a_change_of_geometry(self):
        size = int(dev.read(dev.SYSFS / "slice_bytes"))
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        with ConcurrentAction(lambda _: harness.blocked_in(harness.SYS_POLL),
                       lambda: dev.write(dev.SYSFS / "slice_bytes", 2 * size)):
            self.assertIsNotNone(self.watcher.wait_event(harness.PATIENCE), "no event came")


if __name__ == "__main__":
    harness.main()
