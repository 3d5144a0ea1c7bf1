# SPDX-License-Identifier: GPL-2.0-or-later
"""ramsliced with `[cold] automatic`, memory that is idle or in use, and DAMON's own files."""

import ctypes
import mmap
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import ColdMemory
from ramlab.guest.daemon import Daemon
from ramlab.guest.harness import MIB, PAGE

KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds")
# Emulated, moving a page takes some fifteen times as long: a CPU's whole time may go into it.
COLD = """backend = "{backend}"
[cold]
automatic = {automatic}
idle = "{idle}"
in_use = {in_use}
rate = "{rate}"
cpu_share = {cpu_share}
except = [{groups}]
rate_by_group = {{{rates}}}
"""


class ColdDaemon(Daemon):
    """Its settings of cold memory are a drop-in."""

    def configure_cold(self, automatic="true", idle="4s", in_use=0.1, rate="256M", cpu_share=1.0,
                       groups=(), rates=None, backend="auto"):
        folder = self.folder / "c.toml.d"
        folder.mkdir(exist_ok=True)
        groups = ", ".join(f'"{group}"' for group in groups)
        rates = ", ".join(f'"{group}" = "{size}"' for group, size in (rates or {}).items())
        (folder / "cold.toml").write_text(COLD.format(
            backend=backend, automatic=automatic, idle=idle, in_use=in_use, rate=rate,
            cpu_share=cpu_share, groups=groups, rates=rates))

    def cold(self):
        """What its status says of cold memory; an empty state until it has written one."""
        return (self.status() or {}).get("cold") or {"state": "", "why": "", "nodes": []}

    def until_state(self, state):
        self.until(lambda: self.cold()["state"] == state)
        return self.cold()

    def moved(self):
        """MiB that went to cold nodes and came back, by its status."""
        nodes = self.cold()["nodes"]
        return [sum(node[f"moved_{way}_bytes"] for node in nodes) // MIB
                for way in ("to_cold", "back")]


def kdamonds():
    return int(dev.read(KDAMONDS / "nr_kdamonds"))


def kdamond_of_others():
    """Sets up a kdamond as another program may: it is there, and off."""
    dev.write(KDAMONDS / "nr_kdamonds", 1)


class UsedMemory(ColdMemory):
    """Memory that asks for no cold memory, unless flags say so, and can be used so that DAMON
    notices.
    """

    def __init__(self, mib, flags=mmap.MAP_PRIVATE, **more):
        super().__init__(mib, flags=flags, **more)
        # More pages than the kernel flushes one by one
        self.flushed = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.flushed.write(bytes(64 * PAGE))

    def use(self, seconds=0.5):
        """Reads a byte of each page over and over.

        A CPU sets the accessed bit when it fills its TLB, which the emulated one hardly ever
        empties: so the TLB is flushed each time.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.flush_tlb()
            assert len(self.map[::PAGE]) == self.nr

    def flush_tlb(self):
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.flushed))
        for protection in mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE:
            if harness.libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(64 * PAGE),
                                     protection):
                raise OSError(ctypes.get_errno(), "mprotect")

    def mib_on(self, node):
        return self.places().get(node, 0) * PAGE // MIB
