# SPDX-License-Identifier: GPL-2.0
"""The interfaces of ramslice: /dev/ramslice, sysfs and debugfs.

The structures and names are those of include/uapi/linux/ramslice.h. The kernel refuses structures
shorter than its first version's, and longer ones with unknown bytes.
"""

import ctypes
import errno
import fcntl
import os
import select
import struct
import subprocess
import time
from pathlib import Path

DEBUGFS = Path("/sys/kernel/debug")
SYSFS = Path("/sys/kernel/mm/ramslice")

STATES = [
    "online", "emptying", "offline", "waking", "quarantined",
]
ONLINE, EMPTYING, OFFLINE, WAKING, QUARANTINED = range(5)
REASONS = [
    "none", "hole", "zone-end", "boot", "quarantined", "slab", "pagetable", "pinned",
    "writeback", "hugetlb", "gigantic", "cma", "highatomic", "hwpoison", "foreign-offline",
    "isolated", "unmovable", "no-room", "over-budget", "awake-reserve", "backoff", "pressure",
    "deadline", "signal", "state", "power", "migration", "buffer", "over-limit",
]
COUNTERS = [
    "free", "lru_anon", "lru_file", "anon_mapped", "file_mapped", "file", "shmem", "dirty",
    "writeback", "huge",
]
CLASSES = [
    "free", "transit", "anon", "file", "shmem", "swap", "movable", "hugetlb", "slab",
    "pagetable", "kernel", "reserved", "hwpoison", "foreign", "hole", "off",
]
OPERATIONS = [
    "offline", "online", "compact", "offline_free", "online_all",
]
OPS = {name: number for number, name in enumerate(OPERATIONS)}
# What emptying costs, by the files of sysfs
PRICES = [
    "isolate_slice", "isolate_page", "drop_page", "migrate_page", "migrate_mapping",
    "alloc_buddy", "alloc_cache",
]
PER_SLICE, KEEP_CACHE, IGNORE_BACKOFF, DRY_RUN, AUTO_CACHE, HOLD = (1 << n for n in range(6))
UNRECLAIMABLE, BACKOFF, UNMOVABLE, HELD, STALE = (1 << n for n in range(5))
# Of a snapshot
FRESH = 1
# Flags of a run of pages
DROP, LRU, DIRTY, WRITEBACK, BUFFERS, SWAPCACHE, UNEVICTABLE, MLOCKED, KSM, PINNED, RUN_HWPOISON = (
    1 << n for n in range(11)
)
UNLIMITED = 2**64 - 1
ALL_SLICES = 2**32 - 1
ANY = -1

u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
s16, s32 = ctypes.c_int16, ctypes.c_int32


class CorruptionError(AssertionError):
    """Something is wrong that no timing excuses: a second run must not hide it."""

    # For runners that give a test which failed a second chance
    never_rerun = True


class ContentsError(CorruptionError):
    """A byte is not what was written, or something wrote to an offline slice."""


class AccountingError(CorruptionError):
    """What memory is said to hold is not what it holds."""


class Struct(ctypes.Structure):
    """A structure of the interface; prints its fields."""

    def dict(self):
        values = {name: getattr(self, name) for name, *_ in self._fields_}
        return {
            name: (
                value.decode()
                if isinstance(value, bytes)
                else list(value) if hasattr(value, "__len__") else value
            )
            for name, value in values.items()
        }

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self.dict().items())})"


class Info(Struct):
    _fields_ = [
        ("size", u32),
        ("abi_version", u32),
        ("page_bytes", u32),
        ("pageblock_bytes", u32),
        ("slice_bytes", u64),
        ("chunk_bytes", u64),
        ("nr_slices", u32),
        ("nr_zones", u32),
        ("event_seq", u64),
        ("managed_pages", u64),
        ("free_pages", u64),
        ("offline_pages", u64),
        ("quarantined_pages", u64),
        ("power_driver", ctypes.c_char * 32),
        ("held_pages", u64),
        ("interleave_ways", u32),
        ("nr_segments", u32),
        ("granularity_bytes", u64),
    ]

    def extents(self, number):
        """The runs of a slice, as a list of (first page frame, page frames)."""
        ways, run = self.interleave_ways, self.granularity_bytes // self.page_bytes
        pages = self.slice_bytes // self.page_bytes
        first = number // ways * ways * pages + number % ways * run
        return [(first + at * ways * run, run) for at in range(pages // run)]

    def slice_at(self, pfn):
        """The number of the slice that a page frame is of, be there memory or not."""
        ways, address = self.interleave_ways, pfn * self.page_bytes
        return address // (self.slice_bytes * ways) * ways + (
            address // self.granularity_bytes % ways
        )


class Zone(Struct):
    _fields_ = [
        ("size", u32),
        ("index", u32),
        ("node", s32),
        ("zone", u32),
        ("name", ctypes.c_char * 16),
        ("nr_slices", u32),
        ("nr_empty", u32),
        ("nr_offline", u32),
        ("nr_quarantined", u32),
        ("managed_pages", u64),
        ("free_pages", u64),
        ("offline_pages", u64),
        ("awake_reserve_pages", u64),
        ("low_wmark_pages", u64),
        ("woken_by_demand", u64),
        ("held_pages", u64),
        ("nr_held", u32),
        ("reserved", u32),
    ]


class Slice(Struct):
    _fields_ = [
        ("id", u32),
        ("state", u8),
        ("reason", u8),
        ("flags", u16),
        ("node", s16),
        ("zone", u16),
        ("nr_pages", u32),
        ("price", u64),
        ("counters", u32 * len(COUNTERS)),
        ("retry_ms", u32),
        ("age_ms", u32),
    ]

    def counter(self, name):
        return self.counters[COUNTERS.index(name)]


class Snapshot(Struct):
    _fields_ = [
        ("size", u32),
        ("entry_size", u32),
        ("nr", u32),
        ("flags", u32),
        ("slices", u64),
        ("event_seq", u64),
        ("time_ns", u64),
        ("limit_ms", u32),
        ("max_age_ms", u32),
    ]


class Request(Struct):
    _fields_ = [
        ("size", u32),
        ("op", u32),
        ("flags", u32),
        ("id", u32),
        ("node", s32),
        ("zone", s32),
        ("budget", u64),
        ("max_slices", u32),
        ("deadline_ms", u32),
        ("status", u32),
        ("reason", u32),
        ("nr_done", u32),
        ("nr_failed", u32),
        ("last_id", u32),
        ("reserved", u32),
        ("elapsed_ns", u64),
        ("price_predicted", u64),
        ("price_measured", u64),
        ("pages_migrated", u64),
        ("pages_dropped", u64),
        ("pages_failed", u64),
        ("huge_split", u64),
        ("huge_moved", u64),
    ]

    def why(self):
        return REASONS[self.reason] if self.reason < len(REASONS) else f"reason {self.reason}"


class Run(Struct):
    _fields_ = [
        ("pfn", u64),
        ("nr_pages", u32),
        ("flags", u32),
        ("inode", u64),
        ("cgroup", u64),
        ("dev_major", u32),
        ("dev_minor", u32),
        ("nr_maps", u32),
        ("extra_refs", u32),
        ("page_class", u8),
        ("reason", u8),
        ("order", u8),
        ("reserved8", u8),
        ("reserved", u32),
    ]

    def what(self):
        return CLASSES[self.page_class]

    def why(self):
        return REASONS[self.reason]


class Pages(Struct):
    _fields_ = [
        ("size", u32),
        ("id", u32),
        ("entry_size", u32),
        ("nr", u32),
        ("runs", u64),
        ("first", u32),
        ("nr_pages", u32),
        ("flags", u32),
        ("state", u32),
        ("reason", u32),
        ("reserved", u32),
    ]


class Segment(Struct):
    _fields_ = [("start_bytes", u64), ("bytes", u64)]


class SegmentList(Struct):
    _fields_ = [("size", u32), ("nr", u32), ("segments", u64)]


def _io(number):
    return 0xBA << 8 | number


IOC_INFO, IOC_ZONE, IOC_SNAPSHOT, IOC_REQUEST, IOC_PAGES, IOC_SEGMENTS = map(_io, range(6))


class Device:
    """An open /dev/ramslice."""

    def __init__(self, flags=os.O_RDWR):
        self.fd = os.open("/dev/ramslice", flags | os.O_CLOEXEC)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self.fd)

    def _call(self, number, what):
        if not what.size:
            what.size = ctypes.sizeof(what)
        fcntl.ioctl(self.fd, number, what)
        return what

    def info(self):
        return self._call(IOC_INFO, Info())

    def zones(self):
        return [self._call(IOC_ZONE, Zone(index=i)) for i in range(self.info().nr_zones)]

    def snapshot(self, flags=FRESH, limit_ms=60_000):
        """All slices, as a list of Slice, read just now if FRESH."""
        nr = self.info().nr_slices
        while True:
            rows = (Slice * max(nr, 1))()
            snap = Snapshot(
                entry_size=ctypes.sizeof(Slice), nr=nr, slices=ctypes.addressof(rows),
                flags=flags, limit_ms=limit_ms,
            )
            try:
                self._call(IOC_SNAPSHOT, snap)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                nr = snap.nr
                continue
            return list(rows[:snap.nr])

    def pages(self, number, room=1024):
        """What a slice holds, as a list of Run, in as many calls as it takes."""
        runs, first = [], 0
        while True:
            rows = (Run * room)()
            head = self._call(
                IOC_PAGES,
                Pages(
                    id=number,
                    entry_size=ctypes.sizeof(Run),
                    nr=room,
                    first=first,
                    runs=ctypes.addressof(rows),
                ),
            )
            runs += list(rows[:head.nr])
            if head.first >= head.nr_pages:
                return runs
            first = head.first

    def segments(self):
        """Slices by a table, as a list of Segment; without one, it is empty."""
        rows = (Segment * max(self.info().nr_segments, 1))()
        head = self._call(
            IOC_SEGMENTS, SegmentList(nr=len(rows), segments=ctypes.addressof(rows))
        )
        return list(rows[:head.nr])

    def request(self, op, wait_busy=0.0, **fields):
        """Carries out a request and returns it with its outcome; invalid ones raise OSError.

        While another request runs, the kernel says EBUSY: this tries again for wait_busy seconds.
        """
        req = Request(op=OPS[op], node=ANY, zone=ANY, budget=UNLIMITED, max_slices=ALL_SLICES)
        for name, value in fields.items():
            if not hasattr(req, name):
                raise TypeError(f"struct ramslice_request has no field {name}")
            setattr(req, name, value)
        until = time.monotonic() + wait_busy
        while True:
            try:
                return self._call(IOC_REQUEST, req)
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def wait_event(self, timeout):
        """Waits for a change of state.

        Returns how many there were so far, or None after the timeout.
        """
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if not poll.poll(timeout * 1000):
            return None
        return struct.unpack("Q", os.read(self.fd, 8))[0]


def debugfs():
    """The debugfs tree, mounted if need be."""
    if not os.path.ismount(DEBUGFS):
        subprocess.run(["mount", "-t", "debugfs", "debugfs", DEBUGFS], check=True)
    return DEBUGFS / "ramslice"


def zone_folders():
    """Debugfs directories, one for each zone."""
    return sorted(p.parent for p in debugfs().glob("node*/*/stats"))


def verify():
    """Has the kernel compare its summaries with the free lists; raises AccountingError."""
    text = (debugfs() / "verify").read_text()
    if not text.splitlines() or not text.splitlines()[-1].startswith("true:"):
        raise AccountingError(text)
    return text.strip()


def write(path, text):
    """Writes a kernel file in one call."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, str(text).encode())
    finally:
        os.close(fd)


def read(path):
    return Path(path).read_text().strip()


def table(path):
    """A kernel file of lines "name: number" or "name number" as a dictionary."""
    rows = (line.replace(":", " ").split() for line in read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdigit()}
