# SPDX-License-Identifier: GPL-2.0-or-later
"""userfaultfd(2): a program fills the pages of another one's memory."""

import ctypes
import fcntl
import os
import struct

from ramlab.guest.pinned_memory import system_call

SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
# ioctls of linux/userfaultfd.h
UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00
UFFDIO_COPY, UFFDIO_ZEROPAGE = 0xC028AA03, 0xC020AA04
UFFD_API, MODE_MISSING = 0xAA, 1


class Userfault:
    """A range of this process, whose pages are put there by copy() and zero() until it is closed.
    """

    def __init__(self, address, size):
        self.fd = system_call(SYS_USERFAULTFD, os.O_CLOEXEC)
        fcntl.ioctl(self.fd, UFFDIO_API, struct.pack("3Q", UFFD_API, 0, 0))
        fcntl.ioctl(self.fd, UFFDIO_REGISTER, struct.pack("4Q", address, size, MODE_MISSING, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def copy(self, address, source, size):
        """Puts copies of `size` bytes at `source` to an address where there are no pages."""
        self._until_done(UFFDIO_COPY, "4Qq", (address, source, size, 0))

    def zero(self, address, size):
        """Maps the page of zeros there."""
        self._until_done(UFFDIO_ZEROPAGE, "3Qq", (address, size, 0))

    def _until_done(self, number, form, words):
        request = ctypes.create_string_buffer(struct.pack(form, *words, 0))
        fcntl.ioctl(self.fd, number, request)
        done, size = struct.unpack(form, request.raw[:struct.calcsize(form)])[-1], words[-2]
        if done != size:
            raise OSError(f"userfaultfd filled {done} of {size} bytes")
