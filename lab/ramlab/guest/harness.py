# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests inside a guest share: the kernel's figures, the simulated controller.

Slices, memory to hold and the base of tests are those of the kernel's selftests,
_ramslice_harness.py: every name of that module is one of this.
"""

import contextlib
import ctypes
import os
import re
import subprocess
from pathlib import Path

import _ramslice_harness
from _ramslice_harness import MIB, Memory, check_contents, libc, vmstat

from ramlab.guest import ramslice_dev as dev
from ramlab.guest.errors import ContentsError

# A system call on x86-64 and on arm64
SYS_DELETE_MODULE = {"x86_64": 176, "aarch64": 106}[os.uname().machine]
# What the guard of a stock kernel keeps available, with at most 2.5 GiB.
GUARD_FLOOR = 192 * MIB
SIM = Path("/sys/module/ramslice_sim/parameters")
PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")


def __getattr__(name):
    return getattr(_ramslice_harness, name)


def printed(*words):
    """What a command of ramslice prints; it must succeed."""
    return subprocess.run(
        [PROGRAM, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def kernel_log():
    return subprocess.run(["dmesg"], check=True, text=True, stdout=subprocess.PIPE).stdout


# --- the kernel's figures -------------------------------------------------------


def per_cpu_pages():
    """Free pages that the lists of CPUs hold."""
    return sum(map(int, re.findall(r"^ +count: +(\d+)$", dev.read("/proc/zoneinfo"), re.M)))


def packing(device):
    """c = offlined/(free + offlined) over the whole node, and its upper bound.

    The bound packs all used pages perfectly. It accounts for whole slices, for the awake reserve
    of each zone with the chunk above it, and for slices with memory reserved at boot.
    """
    info, slices = device.info(), device.snapshot()
    per_slice = info.slice_bytes // info.page_bytes
    free = offline = best = 0
    for zone in device.zones():
        mine = [s for s in slices if (s.node, s.zone) == (zone.node, zone.zone)]
        usable = sum(not s.flags & dev.UNRECLAIMABLE for s in mine)
        spare = (
            zone.free_pages
            + zone.offline_pages
            - zone.awake_reserve_pages
            - info.chunk_bytes // info.page_bytes
        )
        best += min(usable, max(spare, 0) // per_slice) * per_slice
        free += zone.free_pages
        offline += zone.offline_pages
    return {
        "free_bytes": free * info.page_bytes, "offlined_bytes": offline * info.page_bytes,
        "c": offline / (free + offline), "c_bound": best / (free + offline),
    }


def processes():
    """{pid: name} of running processes; one that ends in between is left out."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[int(path.parent.name)] = path.read_text().strip()
    return found


def opened(pid):
    """{descriptor: target} of a process; one that is closed in between is left out."""
    found = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[path.name] = os.readlink(path)
    return found


class KernelLog:
    """Lines of the kernel log from now on."""

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self.fd, 0, os.SEEK_END)

    def lines(self):
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines.append(
                    os.read(self.fd, 8192).decode(errors="replace").split(";", 1)[1].splitlines()[0]
                )
        return lines

    def close(self):
        os.close(self.fd)


# --- the simulated controller ---------------------------------------------------


def load_sim(**parameters):
    subprocess.run(
        ["modprobe", "ramslice_sim", *(f"{k}={v}" for k, v in parameters.items())], check=True
    )


def unload_sim():
    """Unloads it as rmmod does, but starts no program: failing allocations may prevent that."""
    if libc.syscall(SYS_DELETE_MODULE, b"ramslice_sim", os.O_NONBLOCK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "ramslice_sim")


def violations():
    return int(dev.read(SIM / "violations"))


def check_violations(expected=0):
    """Nothing but what the test did itself has written to a slice that was off."""
    if (found := violations()) != expected:
        raise ContentsError(f"{found} words were written to in offline slices, expected {expected}")


@contextlib.contextmanager
def simulator(**parameters):
    """Loads the simulated controller for a while; yields the folder of its parameters."""
    load_sim(**parameters)
    try:
        yield SIM
    finally:
        unload_sim()


# --- what test cases have in common ---------------------------------------------


class RamsliceTest(_ramslice_harness.RamsliceTest):
    def serve(self, mib, still=("pswpout", "oom_kill")):
        """Touches more memory than is awake; these counters of vmstat must not move."""
        before = vmstat()
        with Memory(mib) as memory:
            check_contents(memory.touch())
        after = vmstat()
        for name in still:
            self.assertEqual(after[name], before[name], name)

    def settings(self):
        """What a refused request must leave alone."""
        # The files of debugfs are those of a research kernel
        research = {path.name: dev.read(path)
                    for path in (self.folder / "result", dev.debugfs() / "dummy_mode")
                    if path.exists()}
        return research | super().settings()
