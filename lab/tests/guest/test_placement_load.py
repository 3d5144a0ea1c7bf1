# SPDX-License-Identifier: GPL-2.0-or-later
"""A mixture of kernel and user memory under the policy packed, on two nodes with two zones each."""

from ramlab.guest import placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm


# Slices do not divide the zones
@vm(mem="2G", disk="1G", append="ramslice=48M ramslice_placement=packed movablecore=512M",
    numa=("1G,cpus=0", "1G,cpus=1"))
def test_the_counters_are_true_after_a_mixed_load():
    load, figures = placement_workload.run("packed", rounds=3, seed=1)
    print(figures)
    for pid in load.holders:
        placement_workload.end(pid)
    dev.verify()
