# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests of placement policies share: the policies, and where pages come to lie."""

from ramlab.guest import harness, placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import Memory

POLICY = dev.SYSFS / "placement/policy"
# The product's policies, and those that a research kernel has for comparison
PRODUCT, COMPARED = ["stock", "packed"], ["low", "array", "list", "adaptive"]


def policies():
    """The policies that this kernel has."""
    return dev.read(dev.SYSFS / "placement/policies").split()


class PlacementTest(harness.RamsliceTest):
    """Ends with the policy stock and true summaries."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.check_end)

    def check_end(self):
        dev.write(POLICY, "stock")
        if placement_workload.LOW.exists():
            dev.write(placement_workload.LOW, 8)
        self.assert_sane()

    def ids(self):
        """Slices of the largest zone, ascending."""
        zone = next(z for z in self.device.zones() if z.name.decode() == self.folder.name)
        return [s.id for s in self.device.snapshot() if s.zone == zone.zone and s.node == zone.node]

    def counted(self, *names):
        """{slice: pages} of these counters."""
        return {s.id: sum(s.counter(name) for name in names) for s in self.device.snapshot()}

    def grown(self, before, *names):
        """{slice: growth} of these counters, without small changes."""
        return {number: pages - before[number] for number, pages in self.counted(*names).items()
                if pages - before[number] > 128}

    def take(self, mib):
        """Takes memory of a program, held until the test ends."""
        memory = Memory(mib)
        self.addCleanup(memory.__exit__, None, None, None)
        memory.__enter__().touch()

    def take_kernel(self, mib):
        """Takes kernel pages, held until the test ends."""
        for _ in range(mib):
            self.addCleanup(placement_workload.close, placement_workload.full_pipe())

    def where(self, work):
        """Where the pages that work() takes come to lie.

        Returns {slice: pages} for kernel pages and for user pages.
        """
        user, (kernel, _) = self.counted("anon_mapped"), placement_workload.unmovable(self.device)
        work()
        found = self.grown(user, "anon_mapped")
        after, _ = placement_workload.unmovable(self.device)
        return {number: pages - kernel.get(number, 0) for number, pages in after.items()
                if pages - kernel.get(number, 0) > 128}, found
