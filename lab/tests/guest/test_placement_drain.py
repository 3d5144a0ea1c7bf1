# SPDX-License-Identifier: GPL-2.0-or-later
"""After a peak, the kernel's pages leave the slices that they hardly use.

Data waits in pipes, which is kernel memory: much of it for a moment, then little that comes and
goes. New pipes must not fill the gaps that old ones left all over memory.
"""

import random
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.placement_workload import close, full_pipe, least_slices
from ramlab.pytest_vm import vm

SLICE_MIB = 4
PEAK_MIB = 160
LEFT_MIB = 24
ROUNDS, MOST_ROUNDS, ROUND_SECONDS = 24, 120, 0.5
# The worker that ranks slices, and so decides which drain, may use a tenth of a CPU: by its own
# thousandth it ranks once in ten seconds on a kernel that checks everything
SCAN_PPM = 100_000


def slices_over_least(device):
    """Slices with kernel pages that could go off but for these, over the fewest for as many."""
    (held, fixed), least = least_slices(device)
    return len(set(held) - fixed) / max(least - len(fixed), 1)


def peak_and_after(device, part=0):
    """What is left after a peak, and once each pipe of that time was read: slices over least. Goes
    on, for a time, until the second is less than this part of the first.
    """
    chance = random.Random(7)
    pipes = [full_pipe() for _ in range(PEAK_MIB)]
    chance.shuffle(pipes)
    for pipe in pipes[LEFT_MIB:]:
        close(pipe)
    pipes = pipes[:LEFT_MIB]
    spread = slices_over_least(device)
    for number in range(1, MOST_ROUNDS + 1):
        for _ in range(LEFT_MIB // 6):
            close(pipes.pop(0))
            pipes.append(full_pipe())
        time.sleep(ROUND_SECONDS)
        if number >= ROUNDS:
            after = slices_over_least(device)
            if after < part * spread or not part:
                break
    for pipe in pipes:
        close(pipe)
    print(f"({spread:.2f} times the fewest, then {after:.2f}) ", end="", flush=True)
    return spread, after


class Drain(harness.RamsliceTest):
    def setUp(self):
        super().setUp()
        dev.write(dev.SYSFS / "scan_ppm", SCAN_PPM)

    def tearDown(self):
        self.assert_sane()


@vm(mem="1G", append="ramslice=4M ramslice_placement=packed", fresh=True)
class Packed(Drain):
    def test_kernel_pages_leave_slices_that_drain(self):
        spread, after = peak_and_after(self.device, part=0.7)
        self.assertGreater(spread, 2)
        self.assertLess(after, 0.7 * spread)

    def test_slices_that_drained_can_be_emptied(self):
        peak_and_after(self.device)
        before = len(harness.ids(self.device, dev.OFFLINE))
        self.device.request("compact", flags=dev.IGNORE_BACKOFF)
        self.assertGreater(len(harness.ids(self.device, dev.OFFLINE)), before + 100)
        harness.wake(self.device)

    def test_another_policy_ends_it(self):
        pipes = [full_pipe() for _ in range(40)]
        for pipe in pipes[::2]:
            close(pipe)
        policy = dev.SYSFS / "placement/policy"
        time.sleep(1.2)
        dev.write(policy, "stock")
        self.addCleanup(dev.write, policy, "packed")
        for zone in Path("/sys/kernel/debug/ramslice").rglob("placement"):
            self.assertIn("draining_slices 0", zone.read_text())
        for pipe in pipes[1::2]:
            close(pipe)


@vm(mem="1G", append="ramslice=4M", fresh=True)
class Stock(Drain):
    def test_without_it_they_fill_what_is_free_anywhere(self):
        """The negative control."""
        spread, after = peak_and_after(self.device)
        self.assertGreater(spread, 2)
        self.assertGreater(after, 0.85 * spread)


