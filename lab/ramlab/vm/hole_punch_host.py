# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's side of the power driver ramslice_holes: offline slices are holes in a memory file.

The guest says over a serial port which slices go off and which wake. For one that goes off, its
range is punched out of the file. Any access through QEMU, by a CPU or by a device, reading or
writing, makes the page appear again; so at waking the file itself shows whether the slice was
touched. The first RAMSLICE_REFUSED_WAKES wakes are refused: those slices stay off here and are lost
to the guest.
"""

import contextlib
import ctypes
import errno
import json
import os
import re
import shlex
import socket
import struct
import sys
import threading

from ramlab.common import die

PAGE = 4096
GIB = 1 << 30
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 1, 2
PORT = 0x2F8

libc = ctypes.CDLL(None, use_errno=True)


def punch(fd, start, size):
    """Frees a range of a file."""
    if libc.fallocate64(fd, FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE,
                        ctypes.c_long(start), ctypes.c_long(size)):
        raise OSError(ctypes.get_errno(), "fallocate")


def present(fd, start, end):
    """How many bytes of a range of a file there are, and where the first is (None if none are)."""
    first, total, at = None, 0, start
    while at < end:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        if data >= end:
            break
        at = min(os.lseek(fd, data, os.SEEK_HOLE), end)
        first = data if first is None else first
        total += at - data
    return total, first


def absent(fd, start, end):
    """Which parts of a range of a file are holes: [(start, end)]."""
    found = []
    while start < end:
        hole = os.lseek(fd, start, os.SEEK_HOLE)
        if hole >= end:
            break
        _, data = present(fd, hole, end)
        start = end if data is None else data
        found.append((hole, start))
    return found


class Memory:
    """A guest's memory: a file in RAM that goes with the processes that hold it."""

    def __init__(self, size):
        self.size = size
        self.fd = os.memfd_create("guest-memory", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"
        # QEMU's q35: what does not fit below the PCI window goes above 4 GiB, and the window grows.
        # The guest's driver checks this with pages of its own.
        self.low = size if size < 0xB0000000 else 2 * GIB

    def offset(self, pfn):
        address = pfn * PAGE
        return address if address < 4 * GIB else address - 4 * GIB + self.low

    def pfn(self, offset):
        return (offset if offset < self.low else offset - self.low + 4 * GIB) // PAGE

    def range(self, pfn, nr_pages):
        """File offsets of page frames, which must be memory."""
        start = self.offset(pfn)
        end = start + nr_pages * PAGE
        if nr_pages <= 0 or end > self.size or self.pfn(start) != pfn or start < self.low < end:
            raise ValueError(f"no memory at pfn {pfn}+{nr_pages}")
        return start, end


class Host(threading.Thread):
    """Answers one guest until it ends."""

    def __init__(self, size, path):
        super().__init__(daemon=True)
        self.memory = Memory(size)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(1)
        self.off = {}
        self.to_refuse = int(os.environ.get("RAMSLICE_REFUSED_WAKES", 0))
        self.figures = {"punched": 0, "woken": 0, "violations": 0, "refused": 0}

    def run(self):
        with self.listener, contextlib.suppress(OSError):
            connection, _ = self.listener.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    connection.sendall(self.answer(line.decode(errors="replace")).encode())

    def answer(self, line):
        """One request: NUMBER OP SLICE [PFN+PAGES]...; one answer: NUMBER ERROR COUNT VALUE."""
        # What the guest's firmware or drivers left on the line may come first.
        match = re.search(r"(\d+) ([a-z]+) (\d+)((?: \d+\+\d+)*)$", line.strip())
        if not match:
            return ""
        number, op, slice_id, rest = match.groups()
        try:
            ranges = [self.memory.range(*map(int, word.split("+"))) for word in rest.split()]
            count, value = getattr(self, f"do_{op}")(int(slice_id), ranges)
            return f"{number} 0 {count} {value}\n"
        except (AttributeError, KeyError, OSError, ValueError) as error:
            self.figures["refused"] += 1
            print(f"holes: {line.strip()}: {error!r}", file=sys.stderr, flush=True)
            return f"{number} {errno.EIO} 0 0\n"

    def do_off(self, slice_id, ranges):
        for start, end in ranges:
            punch(self.memory.fd, start, end - start)
        self.off[slice_id] = ranges
        self.figures["punched"] += 1
        return self.touched(ranges)

    def do_wake(self, slice_id, ranges):
        if self.to_refuse:
            self.to_refuse -= 1
            raise OSError(errno.EIO, "refused, as told")
        if self.off.pop(slice_id) != ranges:
            raise ValueError("not the ranges that went off")
        count, pfn = self.touched(ranges)
        self.figures["woken"] += 1
        self.figures["violations"] += count
        return count, pfn

    def do_touched(self, _slice_id, _ranges):
        return self.touched([one for ranges in self.off.values() for one in ranges])

    def do_present(self, _slice_id, _ranges):
        return present(self.memory.fd, 0, self.memory.size)[0] // 1024, self.memory.size // 1024

    def do_peek(self, _slice_id, ranges):
        (start, _), = ranges
        return 0, struct.unpack("<Q", os.pread(self.memory.fd, 8, start))[0]

    def touched(self, ranges):
        """How many pages of these ranges are there, and the pfn of the first."""
        found = [present(self.memory.fd, start, end) for start, end in sorted(ranges)]
        first = next((at for _, at in found if at is not None), None)
        pages = sum(total for total, _ in found) // PAGE
        return pages, 0 if first is None else self.memory.pfn(first)

    def end(self):
        """Gives back the guest's memory, once it has ended; it may never have called."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.join()
        os.close(self.memory.fd)

    def report(self):
        """How it ended, once the guest has."""
        touched, pfn = self.do_touched(0, [])
        kib, of_kib = self.do_present(0, [])
        untouched = [hole for ranges in self.off.values() for start, end in ranges
                     for hole in absent(self.memory.fd, start, end)]
        return self.figures | {
            "off": sorted(self.off), "off_touched": touched, "first_touched_pfn": pfn,
            "present_kib": kib, "memory_kib": of_kib,
            # The first few: pfn, pages
            "off_untouched": [(self.memory.pfn(start), (end - start) // PAGE)
                              for start, end in untouched[:8]],
        }


def bytes_of(text):
    """A size as QEMU takes it: 512M, 4G; a bare number is in MiB."""
    match = re.fullmatch(r"(\d+)([MG]?)", text.upper())
    if not match:
        die(f"--mem {text}: --holes wants megabytes (M) or gigabytes (G)", 2)
    return int(match[1]) << {"": 20, "M": 20, "G": 30}[match[2]]


@contextlib.contextmanager
def beside(args, folder):
    """Answers a guest while it runs: adds what --holes needs to its options, reports in the end."""
    if args.holes is None:
        yield
        return
    if args.numa:
        die("--holes does not go with --numa: that brings its own memory", 2)
    path = folder / "holes.sock"
    host = Host(bytes_of(args.mem), str(path))
    host.start()
    backend = (f"memory-backend-file,id=ram,size={host.memory.size},"
               f"mem-path={host.memory.path},share=on")
    args.qemu_opt += [
        f"-object {backend} -machine memory-backend=ram",
        f"-chardev socket,id=holes,path={shlex.quote(str(path))},server=off",
        f"-device isa-serial,chardev=holes,iobase={PORT:#x},irq=3,index=1",
    ]
    # The guest's own serial driver leaves it alone.
    args.append.append(f"reserve={PORT:#x},8")
    try:
        yield
        report = host.report()
    finally:
        host.end()
    print(f"holes: {json.dumps(report)}", file=sys.stderr, flush=True)
    if args.holes:
        with open(args.holes, "w") as sink:
            json.dump(report, sink)
            sink.write("\n")
