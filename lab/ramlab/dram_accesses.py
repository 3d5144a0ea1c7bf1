# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin of QEMU's emulator that counts accesses to DRAM by slice: how it is loaded, and what
its records say.

A record is a line that lab/plugin/cache_model.h writes, as a dictionary. Its slices have reads and
writes by class of data, and gaps between accesses, each a row [shortest of the bucket in ns, how
many, ns together]. A slice that is not in a record was not accessed.
"""

import json
from pathlib import Path

from ramlab import emulator_plugins

PLUGIN = emulator_plugins.path("dram_accesses")
# Where boots leave records, in a folder of theirs
FILE = "accesses"
MIB = 1 << 20
SLICE_BYTES = 128 * MIB
# Classes of `energy_map`; `stream` has its arrays in the first.
OTHER, HOT, COLD, ENTRIES = range(4)


def qemu_words(folder, slice_bytes=SLICE_BYTES, **more):
    """QEMU's words that load it: records go to FILE in this folder, on the host.

    more: sizes of the caches, as the plugin names them: l1, l1_ways, l2, l2_ways.
    """
    words = {"out": f"{folder}/{FILE}", "slice": slice_bytes, **more}
    return f"-plugin {PLUGIN}," + ",".join(f"{name}={value}" for name, value in words.items())


def records(path, after=0):
    """{label: record} of a file, from its byte `after` on; of a label that came twice, the last."""
    text = Path(path).read_bytes()[after:].decode()
    found, decoder, at = {}, json.JSONDecoder(), 0
    while at < len(text):
        record, at = decoder.raw_decode(text, at)
        at += 1
        found[record["label"]] = record
    return found


def by_slice(record):
    """{slice: its row}"""
    return {row["slice"]: row for row in record["slices"]}


def lines(row, kind=None):
    """Lines of a slice's row that were read or written, of a class or of all."""
    if kind is None:
        return sum(row["reads"]) + sum(row["writes"])
    return row["reads"][kind] + row["writes"][kind]


def share_in(record, slices, kind):
    """The share of a class's lines that were in these slices; None if there were none at all."""
    everywhere = sum(lines(row, kind) for row in record["slices"])
    inside = sum(lines(row, kind) for row in record["slices"] if row["slice"] in slices)
    return inside / everywhere if everywhere else None


def rest_share(record, number, threshold_ns):
    """The share of the time that a slice rests, if it does from so long after each access on.

    Exact where the threshold is the shortest of a bucket.
    """
    if not record["ns"]:
        raise ValueError("no time passed while accesses were counted")
    row = by_slice(record).get(number)
    gaps = row["gaps"] if row else [[record["ns"], 1, record["ns"]]]
    rested = sum(together - count * threshold_ns
                 for shortest, count, together in gaps if shortest >= threshold_ns)
    return rested / record["ns"]


def thresholds(first_ns=1_000, last_ns=10_000_000):
    """Thresholds at which rest is exact, four to an octave, from the last that is not above
    first_ns to the first that is not below last_ns.
    """
    edges = [(4 + quarter) << (octave - 2) for octave in range(2, 60) for quarter in range(4)]
    first = max((i for i, edge in enumerate(edges) if edge <= first_ns), default=0)
    last = min(i for i, edge in enumerate(edges) if edge >= last_ns)
    return edges[first:last + 1]


def weighted_rest(record, pages, threshold_ns):
    """The mean share of rest of slices, weighted by pages: {slice: pages}."""
    return sum(nr * rest_share(record, number, threshold_ns)
               for number, nr in pages.items()) / sum(pages.values())
