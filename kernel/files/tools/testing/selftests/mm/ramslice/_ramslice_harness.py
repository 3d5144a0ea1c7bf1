# SPDX-License-Identifier: GPL-2.0
"""What the tests share: slices, the kernel's figures, memory to hold, and a report in TAP."""

import contextlib
import ctypes
import errno
import mmap
import os
import pickle
import re
import signal
import struct
import sys
import threading
import time
import traceback
import unittest
from pathlib import Path

import _ramslice as dev

PAGE = mmap.PAGESIZE
MIB = 1 << 20
MAP_NORESERVE = 0x4000
# System calls on x86-64; elsewhere asm-generic's, where ppoll() does the work of poll()
SYS_READ, SYS_POLL = (0, 7) if os.uname().machine == "x86_64" else (63, 73)
# How long a test waits for what has to come, in seconds. A pass never waits so long.
PATIENCE = 300.0

libc = ctypes.CDLL(None, use_errno=True)


# --- slices ---------------------------------------------------------------------


def states(device):
    return {s.id: s.state for s in device.snapshot()}


def ids(device, state):
    return [s.id for s in device.snapshot() if s.state == state]


def empty_ids(device):
    """Slices that are online and hold nothing."""
    return [
        s.id for s in device.snapshot() if s.state == dev.ONLINE and s.counter("free") == s.nr_pages
    ]


def empty_price(device):
    """Equation 3.1 for an empty slice, by the prices that are set."""
    info, prices = device.info(), dev.SYSFS / "price"
    pages = info.slice_bytes // info.page_bytes
    return (int(dev.read(prices / "isolate_slice"))
            + int(dev.read(prices / "isolate_page")) * pages // 1024)


def drain(device):
    """Returns free pages from per-CPU lists to the free lists, as each request does first.

    What is counted next stays as it is.
    """
    device.request("compact", flags=dev.DRY_RUN, max_slices=1, wait_busy=10)


def compact(device, most=dev.ALL_SLICES):
    """Takes offline all that can be; returns the number of offline slices afterwards."""
    for _ in range(5):
        req = device.request("compact", wait_busy=10, flags=dev.IGNORE_BACKOFF, max_slices=most)
        if not req.nr_done or most != dev.ALL_SLICES:
            break
    return len(ids(device, dev.OFFLINE))


def wake(device):
    """Wakes everything and drops caches, so that each test begins in the same state."""
    device.request("online_all")
    os.sync()
    dev.write("/proc/sys/vm/drop_caches", 3)


def woken_by_demand(device):
    return sum(zone.woken_by_demand for zone in device.zones())


# --- the kernel's figures -------------------------------------------------------


def vmstat():
    return dev.table("/proc/vmstat")


def meminfo():
    """In kB."""
    return dev.table("/proc/meminfo")


def zoneinfo():
    """/proc/zoneinfo of populated zones.

    {(node, zone): {"free": pages, "managed": pages, "protection": [...]}}
    """
    zones = {}
    for part in re.split(r"^Node ", dev.read("/proc/zoneinfo"), flags=re.M)[1:]:
        node, name = re.match(r"(\d+), zone\s+(\w+)", part).groups()
        body = part.split("  pages free", 1)[1]
        zone = {"free": int(body.split(None, 1)[0])}
        zone |= {key: int(value) for key, value in re.findall(r"^ +(\w+) +(\d+)$", body, re.M)}
        protection = re.search(r"protection: \((.*)\)", body)
        zone["protection"] = [int(n) for n in protection[1].split(",")] if protection else []
        if zone["managed"]:
            zones[int(node), name] = zone
    return zones


def buddyinfo():
    """Free pages by the free lists: {(node, zone): pages}."""
    zones = {}
    for line in dev.read("/proc/buddyinfo").splitlines():
        node, name, counts = re.match(r"Node (\d+), zone\s+(\w+)\s+(.*)", line).groups()
        zones[int(node), name] = sum(int(n) << order for order, n in enumerate(counts.split()))
    return zones


def until(condition, seconds=PATIENCE):
    """Waits until a condition holds, and returns its value.

    The limit is for a condition that never comes true: no machine is so busy that it matters.
    """
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def blocked_in(number, thread=None):
    """Whether a thread of this process, the main one by default, waits in this system call."""
    thread = threading.main_thread().native_id if thread is None else thread
    return dev.read(f"/proc/self/task/{thread}/syscall").split()[0] == str(number)


class ConcurrentAction(threading.Thread):
    """Does something as soon as a condition holds, while the test itself is inside a call."""

    def __init__(self, condition, act):
        super().__init__()
        self.condition, self.act, self.nr_off = condition, act, None

    def run(self):
        with dev.Device(os.O_RDONLY) as device:
            if until(lambda: self.condition(device)):
                self.act()
                # How many slices were offline afterwards
                self.nr_off = len(ids(device, dev.OFFLINE))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.join()


def interrupt():
    """Sends a signal to the test itself."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


# --- memory to hold -------------------------------------------------------------


def check_contents(memory, *where):
    """Raises ContentsError unless every page holds what was written; arguments as of wrong_at()."""
    wrong = memory.wrong_at(*where)
    if wrong is not None:
        raise dev.ContentsError(f"wrong contents at {wrong:#x} of {memory.bytes:#x} bytes")


class Memory:
    """Anonymous memory whose pages begin with a mark and hold zeroes otherwise."""

    CHUNK = 2 * MIB

    def __init__(self, mib, huge=False):
        self.bytes = mib * MIB
        self.map = mmap.mmap(
            -1, self.bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        )
        self.map.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.map.close()

    def touch(self, mark=1, start=0, end=None):
        end = self.bytes if end is None else end
        self.map[start:end:PAGE] = bytes([mark]) * ((end - start) // PAGE)
        return self

    def lock(self):
        """Locks it, which brings in the pages that are not there yet."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(self.bytes)):
            raise OSError(ctypes.get_errno(), "mlock")

    def punch(self, run=64 << 10):
        """Frees every second run, so that the rest is scattered."""
        for start in range(0, self.bytes, 2 * run):
            self.map.madvise(mmap.MADV_DONTNEED, start, run)
        return self

    def wrong_at(self, mark=1):
        """Offset of the first page that has changed, or None. Freed pages have no mark."""
        zeroes = bytes(PAGE)
        page = bytes([mark]) + zeroes[1:]
        whole = page * (self.CHUNK // PAGE)
        for start in range(0, self.bytes, self.CHUNK):
            chunk = self.map[start:start + self.CHUNK]
            if chunk == whole[:len(chunk)]:
                continue
            for offset in range(0, len(chunk), PAGE):
                if chunk[offset:offset + PAGE] not in (page, zeroes):
                    return start + offset
        return None


class Child:
    """A forked process that runs a generator step by step; step() returns what it yields."""

    def __init__(self, generator, *arguments):
        command, self.commands = os.pipe()
        self.replies, reply = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(command)
            os.close(reply)
            return
        status = 1
        try:
            os.close(self.commands)
            os.close(self.replies)
            steps = generator(*arguments)
            while os.read(command, 1):
                try:
                    message = True, next(steps, None)
                except BaseException as error:
                    # The parent sees the text, and whether memory is wrong
                    corrupt = isinstance(error, dev.CorruptionError)
                    kind = dev.CorruptionError if corrupt else AssertionError
                    message = False, (kind, traceback.format_exc())
                data = pickle.dumps(message)
                os.write(reply, struct.pack("I", len(data)) + data)
            status = 0
        finally:
            os._exit(status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self):
        """Begins the next step without waiting for it."""
        os.write(self.commands, b".")
        return self

    def result(self):
        header = os.read(self.replies, 4)
        if len(header) < 4:
            raise AssertionError(f"the child ended with status {os.waitpid(self.pid, 0)[1]:#x}")
        data, left = b"", struct.unpack("I", header)[0]
        # More than a pipe holds comes in parts
        while len(data) < left:
            data += os.read(self.replies, left - len(data))
        good, value = pickle.loads(data)
        if not good:
            kind, text = value
            raise kind(f"the child failed:\n{text}")
        return value

    def step(self):
        return self.start().result()

    def end(self):
        """Ends the child; its memory is free when this returns."""
        os.close(self.commands)
        os.close(self.replies)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


# --- what test cases have in common ---------------------------------------------


class RamsliceTest(unittest.TestCase):
    """Begins with every slice awake."""

    def setUp(self):
        self.device = dev.Device()
        self.addCleanup(self.device.close)
        wake(self.device)
        # The zone with all but the first few megabytes
        largest = max(self.device.zones(), key=lambda zone: zone.nr_slices)
        self.folder = dev.debugfs() / f"node{largest.node}" / largest.name.decode()

    def row(self, number):
        """The slice's row in a snapshot."""
        return next(s for s in self.device.snapshot() if s.id == number)

    def empty(self, nr=1):
        """Empty slices from the middle, where nothing else goes on."""
        found = empty_ids(self.device)
        self.assertGreaterEqual(len(found), nr)
        return found[len(found) // 2:][:nr]

    def unreclaimable(self):
        """A slice of the zone that can never be emptied."""
        zone = next(z for z in self.device.zones() if z.name.decode() == self.folder.name)
        return next(
            s.id
            for s in self.device.snapshot()
            if s.flags & dev.UNRECLAIMABLE and s.zone == zone.zone
        )

    def movable(self):
        """A slice in use that can be emptied."""
        for s in reversed(self.device.snapshot()):
            if s.counter("anon_mapped") < 1024:
                continue
            if self.device.request(
                "offline", id=s.id, flags=dev.DRY_RUN | dev.IGNORE_BACKOFF
            ).nr_done:
                return s.id
        self.fail("no slice holds only anonymous memory")

    def settings(self):
        """What a refused request must leave alone."""
        return {
            "states": states(self.device), "slice_bytes": dev.read(dev.SYSFS / "slice_bytes"),
            "prices": {path.name: dev.read(path) for path in (dev.SYSFS / "price").iterdir()},
        }

    @contextlib.contextmanager
    def refused(self, number, what=""):
        """The block must fail with this errno and change nothing."""
        before = self.settings()
        with self.subTest(what, errno=errno.errorcode[number]):
            try:
                yield
            except OSError as error:
                self.assertEqual(errno.errorcode[error.errno], errno.errorcode[number], what)
            else:
                self.fail(f"accepted: {what}")
            self.assertEqual(self.settings(), before, f"changed something: {what}")

    def assert_sane(self):
        """No slice is in a transient state, and summaries agree with the free lists."""
        self.assertLessEqual(
            set(states(self.device).values()), {dev.ONLINE, dev.OFFLINE, dev.QUARANTINED}
        )
        dev.verify()


# --- the report -----------------------------------------------------------------


class TapResult(unittest.TestResult):
    """Reports each test as a line of TAP, its failures and subtests in lines of comment before."""

    def __init__(self, ksft):
        super().__init__()
        self.ksft, self.verdict = ksft, None

    def startTest(self, test):
        super().startTest(test)
        self.verdict = self.ksft.test_result_pass

    def stopTest(self, test):
        self.verdict(test.id().removeprefix("__main__."))
        super().stopTest(test)

    def fail(self, test, error):
        self.verdict = self.ksft.test_result_fail
        text = "".join(traceback.format_exception(*error))
        for line in f"{test}\n{text}".splitlines():
            self.ksft.print_msg(line)

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.fail(subtest, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.ksft.print_msg(f"{test}: {reason}")
        self.verdict = self.ksft.test_result_skip


def missing():
    """What the tests lack here, or nothing."""
    if os.geteuid():
        return "only root can run this"
    if not Path("/dev/ramslice").exists():
        return "there is no /dev/ramslice: CONFIG_RAMSLICE is not set, or ramslice is off"
    if not dev.DEBUGFS.exists():
        return "there is no debugfs"
    return None


def main():
    """Runs the tests of this program, or those that its arguments name, and reports in TAP.

    The exit status is that of all selftests: 0 passed, 1 failed, 4 skipped.
    """
    sys.path.append(str(Path(__file__).resolve().parents[2] / "kselftest"))
    import ksft

    sys.stdout.reconfigure(line_buffering=True)
    ksft.print_header()
    if reason := missing():
        print(f"1..0 # SKIP {reason}")
        sys.exit(ksft.KSFT_SKIP)
    names, program = sys.argv[1:], sys.modules["__main__"]
    loader = unittest.defaultTestLoader
    tests = (loader.loadTestsFromNames(names, program) if names
             else loader.loadTestsFromModule(program))
    ksft.set_plan(tests.countTestCases())
    tests.run(TapResult(ksft))
    ksft.finished()
