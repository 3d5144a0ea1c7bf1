# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests of reasons share: pages that stay for a known reason, and where the reason must
appear.
"""

import ctypes
import errno
import fcntl
import os
import re
import struct
from pathlib import Path

from ramlab.guest import harness, pinned_memory
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE

GUP_TEST = Path("/sys/kernel/debug/gup_test")
# _IOW('g', 7, struct pin_longterm_test), _IO('g', 8)
PIN_START, PIN_STOP = 1 << 30 | 24 << 16 | ord("g") << 8 | 7, ord("g") << 8 | 8


class Pin:
    """Long-term pins of a Memory, as a device driver would have them."""

    def __init__(self, memory):
        self.fd = os.open(GUP_TEST, os.O_RDWR)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory.map))
        fcntl.ioctl(self.fd, PIN_START, struct.pack("QQI4x", address, memory.bytes, 1))

    def release(self):
        if self.fd is not None:
            fcntl.ioctl(self.fd, PIN_STOP)
            os.close(self.fd)
            self.fd = None


def lock(mapped):
    """mlock() of a whole mapping."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    if harness.libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped))):
        raise OSError(ctypes.get_errno(), "mlock")


class ReasonTest(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        dev.debugfs()
        self.block = self.device.info().slice_bytes // PAGE

    def online(self):
        return [s.id for s in self.device.snapshot() if s.state == dev.ONLINE]

    def holding(self, wanted, numbers=None):
        """Slices whose first page that stays has this reason."""
        found = []
        for number in self.online() if numbers is None else numbers:
            first = next((run for run in self.device.pages(number) if run.reason), None)
            if first and first.why() == wanted:
                found.append(number)
        return found

    def trace(self, number, request):
        """Sends a request; returns its outcome and the reasons in the slice's tracepoints."""
        (pinned_memory.TRACING / "trace").write_text("")
        for event in ("ramslice_refuse", "ramslice_offline"):
            dev.write(pinned_memory.TRACING / "events/ramslice" / event / "enable", 1)
        try:
            done = request()
            lines = dev.read(pinned_memory.TRACING / "trace").splitlines()
        finally:
            dev.write(pinned_memory.TRACING / "events/ramslice/enable", 0)
        pattern = re.compile(rf"ramslice_(?:refuse|offline): id={number} .*reason=([\w-]+)")
        return done, [match[1] for line in lines if (match := pattern.search(line))]

    def refuse(self, number, why, status=errno.EBUSY, **fields):
        """The request and the tracepoint report the same reason."""
        fields = {"flags": dev.IGNORE_BACKOFF} | fields
        done, traced = self.trace(
            number, lambda: self.device.request("offline", id=number, wait_busy=10, **fields)
        )
        self.assertEqual(
            (done.status, done.why(), done.nr_done), (status, why, 0), f"slice {number}: {done}"
        )
        self.assertEqual(done.last_id, number)
        self.assertEqual(traced[-1:], [why], f"slice {number}")
        row = self.row(number)
        self.assertEqual(row.state, dev.ONLINE)
        return row

    def reasons(self, number):
        """The reasons of all pages that stay in the slice."""
        return {run.why() for run in self.device.pages(number) if run.reason}

    def blocked(self, number):
        return bool(self.reasons(number))

    def refused_for_content(self, number, why):
        """The same for a page it holds: the row keeps the reason, and a backoff follows."""
        row = self.refuse(number, why)
        self.assertEqual(dev.REASONS[row.reason], why)
        if row.flags & dev.UNRECLAIMABLE:
            self.assertNotEqual(self.device.request("offline", id=number).status, 0)
            return
        # Each failure doubles the backoff: after a few, no test is too slow to see it
        for _ in range(5):
            row = self.refuse(number, why)
        self.assertTrue(row.flags & dev.BACKOFF)
        done = self.device.request("offline", id=number)
        self.assertEqual((done.status, done.why()), (errno.EAGAIN, "backoff"))

    def emptied(self, number):
        """The slice can be emptied now, so the refusals left nothing behind."""
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertEqual((done.status, done.nr_done), (0, 1), done)
        self.device.request("online", id=number)
