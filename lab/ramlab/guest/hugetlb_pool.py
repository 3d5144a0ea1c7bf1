# SPDX-License-Identifier: GPL-2.0-or-later
"""Pools of huge pages: every figure the kernel gives, and their size."""

from pathlib import Path

from ramlab.guest import ramslice_dev as dev

POOLS = Path("/sys/kernel/mm/hugepages")
SMALL, GIGANTIC = "hugepages-2048kB", "hugepages-1048576kB"


def pool(size=SMALL):
    """Every figure there is of a pool, of the node's, too."""
    found = {name: int(dev.read(POOLS / size / f"{name}_hugepages")) for name in
             ("nr", "free", "resv", "surplus", "nr_overcommit")}
    node = Path("/sys/devices/system/node/node0/hugepages") / size
    found |= {
        f"node {name}": int(dev.read(node / f"{name}_hugepages"))
        for name in ("nr", "free", "surplus")
    }
    found |= {name: dev.meminfo(name) for name in
              ("HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp", "Hugetlb")}
    return found


def resize(nr, size=SMALL):
    dev.write(POOLS / size / "nr_hugepages", nr)
    return int(dev.read(POOLS / size / "nr_hugepages"))
