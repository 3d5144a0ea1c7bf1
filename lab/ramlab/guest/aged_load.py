# SPDX-License-Identifier: GPL-2.0-or-later
"""Hours of use, compressed, in a machine of any size, and how many blocks of a size could be had.

The load is the mixture of placement_workload.py, as large as the machine, whose peaks leave the
kernel's pages wherever there was room. A quarter of it stays. It is the same on kernels with and
without ramslice.
"""

import array
import re
from pathlib import Path

from ramlab.guest import harness, placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE

# The mixture is made for this much memory
MIXTURE_BYTES = 2 << 30
# Bits of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst)
KPF_NOPAGE, KPF_RESERVED = 20, 32


class AgedLoad(placement_workload.Load):
    """The mixture in a machine of any size, on kernels with and without ramslice."""

    def __init__(self, seed):
        super().__init__(seed, device=None,
                         scale=max(round(memory_bytes() / MIXTURE_BYTES), 1))

    def note_least(self):
        """Only kernels with ramslice can say what they need at least."""

    def go_on(self, chance):
        """A little of the load: as much as it starts, it ends."""
        for kind, how in ((self.holders, placement_workload.end),
                          (self.pipes, placement_workload.close), (self.folders, self.delete)):
            if kind:
                how(kind.pop(chance.randrange(len(kind))))
        self.holders.append(placement_workload.holder(chance.randrange(10, 70),
                                                      chance.randrange(40)))
        self.grow_pipes(1)
        self.make_files(chance.randrange(30, 120))


def age(seed, rounds):
    """The load after so many rounds, of which a quarter goes on. No process may be killed for lack
    of memory: that would be less work.
    """
    before = harness.vmstat()["oom_kill"]
    load = AgedLoad(seed)
    for number in range(rounds):
        load.round(number)
    load.finish()
    check_none_killed(before)
    return load


def check_none_killed(before):
    if harness.vmstat()["oom_kill"] > before:
        raise RuntimeError("a process was killed for lack of memory: that is less work")


def memory_bytes():
    return dev.meminfo("MemTotal") * 1024


def zones():
    """[(first page frame, page frames spanned, high watermark in pages)] of every zone in use."""
    found = []
    for text in Path("/proc/zoneinfo").read_text().split("Node ")[1:]:
        values = {name: int(value)
                  for name, value in re.findall(r"^ +(high|spanned|managed|start_pfn:?) +(\d+)$",
                                                text, re.MULTILINE)}
        if values.get("managed"):
            found.append((values["start_pfn:"], values["spanned"], values["high"]))
    return found


def may_become_free(flags):
    """Whether no page of a range is missing or was reserved at boot: those never move."""
    never = 1 << KPF_NOPAGE | 1 << KPF_RESERVED
    return not any(word & never for word in flags)


def nr_ranges(spans, nr_bytes):
    """Aligned ranges of a size that lie in one zone each and could be free as a whole."""
    found, pages = 0, nr_bytes // PAGE
    with open("/proc/kpageflags", "rb", buffering=0) as file:
        for first, nr, _ in spans:
            for start in range(-(-first // pages) * pages, first + nr - pages + 1, pages):
                file.seek(8 * start)
                flags = array.array("Q", file.read(8 * pages))
                found += len(flags) == pages and may_become_free(flags)
    return found


def room_pages():
    """Memory that is free or holds cache, above the high watermarks."""
    info = harness.meminfo()
    kib = info["MemFree"] + info["Active(file)"] + info["Inactive(file)"]
    return max(kib * 1024 // PAGE - sum(high for _, _, high in zones()), 0)


def attainable(nr_bytes):
    """Blocks of a size that could be had if what is in use lay elsewhere: as many as there is room
    for; at most one for each range that could be free.
    """
    return min(nr_ranges(zones(), nr_bytes), room_pages() // (nr_bytes // PAGE))
