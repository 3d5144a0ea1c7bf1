# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests of pinned and other pages share: memory of known bytes, its place, and what a
request did to it.
"""

import collections
import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
import signal
import struct
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, libc

HUGE = 2 * MIB
MAP_HUGETLB = 0x40000
GROUPS = Path("/sys/fs/cgroup")
TRACING = Path("/sys/kernel/tracing")

# Bits of /proc/kpageflags
BUDDY, KPF_HUGE, HWPOISON, KPF_THP, KPF_OFFLINE = 10, 17, 19, 22, 23

SYS_MBIND, SYS_SET_MEMPOLICY, SYS_MOVE_PAGES = {
    "x86_64": (237, 238, 279), "aarch64": (235, 237, 239),
}[os.uname().machine]
SYS_IO_URING_SETUP, SYS_IO_URING_REGISTER = 425, 427
REGISTER_BUFFERS, UNREGISTER_BUFFERS = 0, 1
MPOL_BIND, MPOL_INTERLEAVE = 2, 3
MCL_CURRENT, MCL_ONFAULT = 1, 4
MLOCK_ONFAULT = 1
MADV_HWPOISON = 100
F_SETPIPE_SZ = 1031


def system_call(number, *arguments):
    """A system call that Python has no name for; raises OSError."""
    done = libc.syscall(ctypes.c_long(number), *arguments)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"system call {number}")
    return done


def set_mempolicy(mode, nodes):
    """The policy of this task; 0 and no nodes: none of its own."""
    mask = ctypes.c_ulong(sum(1 << node for node in nodes))
    system_call(SYS_SET_MEMPOLICY, mode, ctypes.byref(mask) if nodes else None, ctypes.c_ulong(64))


# --- memory ---------------------------------------------------------------------


def pfns(mapping):
    """Page frame of each page of a writable mapping, or None where there is none."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        data = os.pread(file.fileno(), 8 * (len(mapping) // PAGE), address // PAGE * 8)
    entries = struct.unpack(f"{len(data) // 8}Q", data)
    return [entry & (1 << 55) - 1 if entry >> 63 else None for entry in entries]


@contextlib.contextmanager
def full_pipes(mib):
    """The kernel's own pages, which can be neither reclaimed nor moved: pipes keep their data."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    block = bytes(MIB)
    with contextlib.ExitStack() as stack:
        for _ in range(mib):
            out, into = os.pipe2(os.O_NONBLOCK)
            stack.callback(os.close, out)
            stack.callback(os.close, into)
            fcntl.fcntl(into, F_SETPIPE_SZ, MIB)
            if os.write(into, block) != MIB:
                raise OSError("a pipe of 1 MiB takes less")
        yield


class PatternedMemory:
    """Memory of any kind in which every page holds bytes of its own."""

    def __init__(
        self, mib, huge=False, hugetlb=False, file=None, seed=1, fill=True, flags=None
    ):
        """flags: of mmap(2); without, a file is shared and other memory private."""
        self.bytes = mib * MIB
        self.seed = seed
        flags = flags or (mmap.MAP_PRIVATE if file is None else mmap.MAP_SHARED)
        if file is not None:
            self.map = mmap.mmap(file, self.bytes, flags=flags)
        else:
            flags |= mmap.MAP_ANONYMOUS | (MAP_HUGETLB if hugetlb else 0)
            self.map = mmap.mmap(-1, self.bytes, flags=flags)
            if not hugetlb:
                self.map.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
        self.nr = self.bytes // PAGE
        if fill:
            self.fill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.map.close()

    @property
    def address(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def expected(self, page):
        return struct.pack("<QQ", self.seed ^ 0x5a5a5a5a5a5a5a5a, page) * (PAGE // 16)

    def fill(self, start=0, end=None):
        for page in range(start, self.nr if end is None else end):
            self.map[page * PAGE:(page + 1) * PAGE] = self.expected(page)
        return self

    def wrong_at(self, pages=None):
        """The first page that does not hold its bytes, or None."""
        for page in range(self.nr) if pages is None else pages:
            if self.map[page * PAGE:(page + 1) * PAGE] != self.expected(page):
                return page
        return None

    def pfns(self):
        """Page frame of each page, or None where there is none."""
        return pfns(self.map)

    def nodes(self):
        """NUMA node of each page; a negative errno where there is none."""
        pages = (ctypes.c_void_p * self.nr)(*range(self.address, self.address + self.bytes, PAGE))
        status = (ctypes.c_int * self.nr)()
        system_call(SYS_MOVE_PAGES, 0, ctypes.c_ulong(self.nr), pages, None, status, 0)
        return list(status)

    def move(self, node):
        """Moves every page to a node."""
        pages = (ctypes.c_void_p * self.nr)(*range(self.address, self.address + self.bytes, PAGE))
        nodes, status = (ctypes.c_int * self.nr)(*[node] * self.nr), (ctypes.c_int * self.nr)()
        system_call(SYS_MOVE_PAGES, 0, ctypes.c_ulong(self.nr), pages, nodes, status, 2)

    def bind(self, mode, nodes):
        """Has pages that come in from now on belong to these nodes."""
        mask = ctypes.c_ulong(sum(1 << node for node in nodes))
        system_call(
            SYS_MBIND,
            ctypes.c_void_p(self.address),
            ctypes.c_ulong(self.bytes),
            mode,
            ctypes.byref(mask),
            ctypes.c_ulong(64),
            0,
        )

    def poison(self, page):
        """Has the page's memory fail.

        A signal reports to this process that it has lost the page.
        """
        signals = []
        old = signal.signal(signal.SIGBUS, lambda *_: signals.append(True))
        self.map.madvise(MADV_HWPOISON, page * PAGE, PAGE)
        # Python's own handler runs between two instructions
        time.sleep(0.01)
        signal.signal(signal.SIGBUS, old)
        if not signals:
            raise AssertionError("no signal came")

    def smaps(self, name):
        """In kB: a line of /proc/self/smaps for this memory."""
        begin, inside = f"{self.address:x}-", False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if "-" in line.split(None, 1)[0] and not line.split(None, 1)[0].endswith(":"):
                inside = line.startswith(begin)
            elif inside and line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise KeyError(name)


def by_slice(device, pfns):
    """{slice: number of these page frames}, the largest numbers first."""
    slice_at = device.info().slice_at
    return dict(
        collections.Counter(slice_at(pfn) for pfn in pfns if pfn is not None).most_common()
    )


def page_flags(pfn, nr=1):
    """Words of /proc/kpageflags; fewer where memory ends."""
    with open("/proc/kpageflags", "rb", buffering=0) as file:
        data = os.pread(file.fileno(), 8 * nr, pfn * 8)
        return struct.unpack(f"{len(data) // 8}Q", data)


def blocks_with(device, bit):
    """First page frame of each pageblock whose first page has this flag."""
    info = device.info()
    return [
        pfn
        for row in device.snapshot()
        for first, nr in info.extents(row.id)
        for pfn in range(first, first + nr, info.pageblock_bytes // PAGE)
        if page_flags(pfn)[0] >> bit & 1
    ]


@contextlib.contextmanager
def setting(path, value):
    """A kernel file that has this value for a while."""
    text = dev.read(path)
    old = text.split("[")[1].split("]")[0] if "[" in text else text
    dev.write(path, value)
    try:
        yield
    finally:
        dev.write(path, old)


@contextlib.contextmanager
def no_free_block(spare=64):
    """Leaves no free pageblock: every free page is in a run of at most 64 KiB.

    First nearly all memory is taken and every second run given back, then huge faults take the
    pageblocks that are left. The process is locked in memory and compaction leaves locked pages
    alone, so that no new pageblocks come free.
    """
    defrag = Path("/sys/kernel/mm/transparent_hugepage/defrag")
    dev.write("/proc/sys/vm/drop_caches", 3)
    free = dev.meminfo("MemFree") // 1024
    with (
        setting(defrag, "never"),
        setting("/proc/sys/vm/compact_unevictable_allowed", 0),
        harness.Memory((free - spare) // 2 * 2) as scattered,
        harness.Memory(8 * spare, huge=True) as rest,
    ):
        scattered.touch().punch()
        before = dev.vmstat("thp_fault_fallback")
        for start in range(0, rest.bytes, HUGE):
            rest.touch(1, start, start + HUGE)
            if dev.vmstat("thp_fault_fallback") > before + 4:
                break
        else:
            raise AssertionError("there are still free pageblocks")
        libc.mlockall(MCL_CURRENT | MCL_ONFAULT)
        try:
            yield scattered
        finally:
            libc.munlockall()


# --- control groups -------------------------------------------------------------


class Group:
    """A control group with these controllers, and a child process in it."""

    def __init__(self, name, controllers="+memory"):
        dev.write(GROUPS / "cgroup.subtree_control", controllers)
        self.path = GROUPS / name
        self.path.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Freed pages may be charged for another moment
        harness.until(lambda: not dev.read(self.path / "cgroup.procs"))
        self.path.rmdir()

    def enter(self):
        dev.write(self.path / "cgroup.procs", os.getpid())

    def read(self, name):
        return dev.read(self.path / name)

    def number(self, name):
        return int(self.read(name))

    def table(self, name):
        return dev.table(self.path / name)


# --- migrate types --------------------------------------------------------------


def block_types(device):
    """Migrate type of every pageblock, by its first page frame: {pfn: type}.

    /proc/pagetypeinfo reads the type of each pageblock and prints sums; a probe sees each type.
    """
    if not os.path.ismount(TRACING):
        raise FileNotFoundError(f"{TRACING} is not mounted")
    per_block = device.info().pageblock_bytes // PAGE
    dev.write(
        TRACING / "kprobe_events",
        "r64:ramlab/type get_pfnblock_flags_mask pfn=$arg2:u64 type=$retval:u64",
    )
    try:
        dev.write(TRACING / "buffer_size_kb", 4096)
        dev.write(TRACING / "events/ramlab/type/filter", f"common_pid == {os.getpid()}")
        dev.write(TRACING / "trace", "")
        dev.write(TRACING / "events/ramlab/type/enable", 1)
        try:
            dev.read("/proc/pagetypeinfo")
        finally:
            dev.write(TRACING / "events/ramlab/type/enable", 0)
        types = {}
        for line in (TRACING / "trace").read_text().splitlines():
            if "pfn=" not in line:
                continue
            pfn, kind = (int(line.split(f" {name}=")[1].split()[0]) for name in ("pfn", "type"))
            types[pfn // per_block * per_block] = kind
        return types
    finally:
        dev.write(TRACING / "kprobe_events", "-:ramlab/type")


@contextlib.contextmanager
def traced(event, only=None):
    """Listens to a tracepoint in a buffer of its own, or only where a filter of the kernel's holds.

    Yields a function that returns the lines so far.
    """
    instance = TRACING / "instances" / event.replace("/", "-")
    instance.mkdir()
    try:
        dev.write(instance / "buffer_size_kb", 4096)
        if only:
            dev.write(instance / "events" / event / "filter", only)
        dev.write(instance / "events" / event / "enable", 1)
        yield lambda: [
            line for line in dev.read(instance / "trace").splitlines() if not line.startswith("#")
        ]
    finally:
        dev.write(instance / "events/enable", 0)
        instance.rmdir()


# --- what test cases have in common ---------------------------------------------


class Vector(ctypes.Structure):
    """struct iovec"""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Ring:
    """An io_uring with a registered buffer."""

    def __init__(self, memory, page, nr=1):
        self.fd = system_call(SYS_IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
        vector = Vector(memory.address + page * PAGE, nr * PAGE)
        self.register(REGISTER_BUFFERS, ctypes.byref(vector), 1)

    def register(self, code, argument, nr):
        system_call(SYS_IO_URING_REGISTER, self.fd, code, argument, nr)

    def release(self):
        self.register(UNREGISTER_BUFFERS, None, 0)
        os.close(self.fd)


def pin_each(stack, mib, range_bytes):
    """Pins a page in each range of memory of so many bytes that `mib` MiB of huge pages reach, and
    gives back the others; how many are pinned, until the stack ends.
    """
    memory = stack.enter_context(PatternedMemory(mib, huge=True, fill=False))
    for page in range(0, memory.nr, HUGE // PAGE):
        memory.map[page * PAGE] = 1
    pinned = {}
    for page, pfn in enumerate(memory.pfns()):
        if pfn is not None:
            pinned.setdefault(pfn * PAGE // range_bytes, page)
    for page in pinned.values():
        stack.callback(Ring(memory, page).release)
    memory.map.madvise(mmap.MADV_DONTNEED)
    return len(pinned)


class PageMovementTest(harness.RamsliceTest):
    """Offline slices lose their contents. Ends with every slice online, no violation, and true
    summaries.
    """

    def setUp(self):
        super().setUp()
        harness.load_sim()
        self.addCleanup(self.check_end)

    def check_end(self):
        self.device.request("online_all")
        self.assert_sane()
        self.assertEqual(harness.violations(), 0)
        harness.unload_sim()

    def holding(self, memory, op="offline"):
        """Slices with pages of the memory that could be emptied, those with the most pages first.
        """
        found = [
            number
            for number in by_slice(self.device, memory.pfns())
            if self.device.request(op, id=number, flags=dev.DRY_RUN | dev.IGNORE_BACKOFF).nr_done
        ]
        self.assertTrue(found, "no slice with this memory can be emptied")
        return found

    def assert_goes(self, number, **fields):
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF, **fields)
        self.assertEqual((done.status, done.why(), done.nr_done), (0, "none", 1), done)
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        return done

    def assert_stays(self, number, *reasons):
        """Refused for one of these reasons, and all other slices are as they were.

        The slice reports the reason, too, unless it is a lack of room elsewhere.
        """
        before = harness.states(self.device)
        done = self.device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        self.assertIn(done.why(), reasons, done)
        self.assertNotEqual(done.status, 0)
        self.assertEqual(done.nr_done, 0)
        if done.why() not in ("no-room", "awake-reserve"):
            self.assertEqual(dev.REASONS[self.row(number).reason], done.why())
        self.assertEqual(harness.states(self.device), before)
        return done

    def assert_cheap(self, done):
        """Refused before anything was done."""
        self.assertEqual(
            (done.pages_migrated, done.pages_dropped, done.pages_failed, done.huge_moved),
            (0, 0, 0, 0),
        )
        self.assertEqual((done.price_predicted, done.price_measured), (0, 0))


def lock_present(memory):
    """Locks the pages that are present."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory.map))
    if libc.mlock2(ctypes.c_void_p(address), ctypes.c_size_t(memory.bytes), MLOCK_ONFAULT):
        raise OSError(ctypes.get_errno(), "mlock2")
