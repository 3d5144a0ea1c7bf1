# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin of QEMU's emulator that counts how often each instruction of a guest's kernel is
executed: how it is loaded, and what that is by function.
"""

import bisect
import collections
import json
from pathlib import Path

from ramlab import emulator_plugins

PLUGIN = emulator_plugins.path("kernel_instructions")
# Where boots leave counts, in a folder of theirs
FILE = "instructions"
# What lab/guest/bench.c calls its loops
FAULT, READ = 1, 2


def qemu_words(folder):
    """QEMU's words that load it: counts go to FILE in this folder, on the host."""
    return f"-plugin {PLUGIN},out={folder}/{FILE}"


def functions(system_map):
    """(addresses, names) of a kernel's functions, in the order of addresses."""
    found = []
    for line in Path(system_map).read_text().splitlines():
        address, kind, name = line.split()
        # Padding before functions has symbols of its own
        if kind in "tTwW" and not name.startswith("__pfx_"):
            found.append((int(address, 16), name))
    found.sort()
    return [address for address, _ in found], [name for _, name in found]


def by_function(path, system_map):
    """{label: {function: instructions executed}} of a file of counts; of a label that came twice,
    the last.
    """
    addresses, names = functions(system_map)
    found = {}
    for line in Path(path).read_text().splitlines():
        record = json.loads(line)
        sums = collections.Counter()
        for address, times in record["counts"].items():
            at = bisect.bisect_right(addresses, int(address, 16)) - 1
            sums[names[at] if at >= 0 else "?"] += times
        found[record["label"]] = sums
    return found
