# SPDX-License-Identifier: GPL-2.0-or-later
"""Placement: each policy puts pages where it should, nothing fails because of it, and it can
change under load.
"""

import errno
import functools
import resource
import threading

import pytest

from ramlab.guest import harness, pinned_memory, placement_workload
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE, Memory
from ramlab.guest.placement import COMPARED, POLICY, PRODUCT, PlacementTest, policies
from ramlab.guest.placement_workload import LOW
from ramlab.pytest_vm import no_twin, vm

STILL = (
    "pswpout",
    "oom_kill",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "allocstall_normal",
    "allocstall_dma32",
)


# Kernel pages that one test leaves behind are in the way of the next: these are the first of their
# machines, or have one of their own.
FIRST = {"mem": "2G", "disk": "1G", "append": "ramslice=16M"}
ALONE = FIRST | {"fresh": True}
ONE_SLICE = {"mem": "512M", "disk": "512M"}


# The policy before any test has changed it
AT_BOOT = []


def setUpModule():
    AT_BOOT.append(dev.read(POLICY))
    dev.file_system()


class Policies(PlacementTest):
    """Where pages come to lie."""

    # Free pages within used pageblocks are taken first, wherever they are: hence the margins

    def both(self):
        for _ in range(8):
            self.take_kernel(8)
            self.take(20)

    def assert_mostly(self, found, where):
        """At least three quarters of the pages lie in slices for which where(slice) is true."""
        self.assertGreater(sum(found.values()), 8000, found)
        self.assertGreater(
            sum(n for s, n in found.items() if where(s)), 0.75 * sum(found.values()), found
        )

    @pytest.mark.slow
    @vm(kernel="research", **ALONE)
    def test_array_grows_from_both_ends(self):
        dev.write(POLICY, "array")
        ids = self.ids()
        middle = (ids[0] + ids[-1]) / 2
        kernel, user = self.where(self.both)
        self.assert_mostly(user, lambda s: s > middle)
        self.assert_mostly(kernel, lambda s: s < middle)

    @pytest.mark.slow
    @vm(kernel="research", **ALONE)
    def test_low_confines_the_kernel(self):
        ids = self.ids()
        dev.write(LOW, len(ids) // 2)
        dev.write(POLICY, "low")
        end = ids[len(ids) // 2]
        kernel, user = self.where(self.both)
        self.assert_mostly(kernel, lambda s: s < end)
        self.assert_mostly(user, lambda s: s >= end)

    def apart(self, policy):
        """Kernel pages and user pages that come in turns lie in slices of their own.

        Free pages in slices that had kernel pages before may be used for either.
        """
        dev.write(POLICY, policy)
        before, _ = placement_workload.unmovable(self.device)
        kernel, user = self.where(self.both)
        self.assert_mostly(user, lambda s: s in before or kernel.get(s, 0) < 256)

    @pytest.mark.slow
    @vm(kernel="research", **FIRST)
    def test_list_separates_kernel_and_user_pages(self):
        self.apart("list")

    @pytest.mark.slow
    @vm(kernel="research", **ALONE)
    def test_adaptive_separates_kernel_and_user_pages(self):
        self.apart("adaptive")

    @vm(**FIRST)
    def test_packed_puts_kernel_pages_in_few_slices(self):
        dev.write(POLICY, "packed")
        before, fixed = placement_workload.unmovable(self.device)
        kernel, _ = self.where(self.both)
        slice_pages = self.device.info().slice_bytes // PAGE
        spoilt = set(kernel) - set(before) - fixed
        # Two more: one is partly filled, one holds what did not fit
        self.assertLessEqual(len(spoilt), sum(kernel.values()) // slice_pages + 2, (kernel, before))


@vm(**ONE_SLICE, append="ramslice=510M ramslice_placement=packed")
@vm(kernel=["plain", "research"], mem="2G", disk="1G", append="ramslice=16M")
class Interface(PlacementTest):
    def test_policies_are_selected_by_name(self):
        self.assertIn(policies(), (PRODUCT, PRODUCT + COMPARED))
        for name in policies():
            dev.write(POLICY, name + "\n")
            self.assertEqual(dev.read(POLICY), name)

    def test_other_words_are_refused(self):
        before = dev.read(POLICY)
        for text in ("", "pack", "packed low", "Packed", "0", "\n", "packed" * 100):
            with self.refused(errno.EINVAL, repr(text)):
                dev.write(POLICY, text or "\0")
        self.assertEqual(dev.read(POLICY), before)

    @vm(kernel="research", mem="2G", disk="1G", append="ramslice=16M")
    def test_low_slices_is_a_number(self):
        for text in ("-1", "text", "1.5", "0x10", "\n"):
            with self.refused(errno.EINVAL, repr(text)):
                dev.write(LOW, text)
        with self.refused(errno.ERANGE, "2^32"):
            dev.write(LOW, 1 << 32)
        for text in ("0", "1", str((1 << 32) - 1)):
            dev.write(LOW, text)
            self.assertEqual(dev.read(LOW), text)

    @vm(kernel="research", mem="2G", disk="1G", append="ramslice=16M")
    def test_a_concurrent_write_to_low_slices_does_not_undo_a_policy(self):
        def low():
            while not done.is_set():
                dev.write(LOW, 8)

        known, done = policies(), threading.Event()
        writer = threading.Thread(target=low)
        writer.start()
        try:
            for name in (known[1:] + known[:1]) * 60:
                dev.write(POLICY, name)
                self.assertEqual(dev.read(POLICY), name)
        finally:
            done.set()
            writer.join()

    def test_stock_places_nothing(self):
        before = placement_workload.figures()
        self.take(64)
        self.assertEqual(placement_workload.figures(), before)


@vm(kernel="research", slow=True, **ALONE)
class Ranked(PlacementTest):
    def test_free_blocks_of_another_type_do_not_end_the_search(self):
        size = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", size)
        # A slice has so many pageblocks that one search does not get beyond it
        dev.write(dev.SYSFS / "slice_bytes", 512 * MIB)
        dev.write(LOW, 4)
        dev.write(POLICY, "low")
        load = placement_workload.Load(1, self.device)
        load.grow_pipes(700)
        load.drop_some(load.pipes, 1, placement_workload.close)
        harness.drain(self.device)
        # These pageblocks are free and the kernel's, in the slices that the policy now prefers for
        # users
        dev.write(LOW, 0)
        before = placement_workload.figures()
        self.take(640)
        placed, passed = (
            placement_workload.figures()[name] - before[name]
            for name in ("user_placed", "user_passed")
        )
        self.assertGreater(placed, 100)
        self.assertLess(passed, placed / 4)


@vm(kernel="research", slow=True, mem="2G", disk="512M", append="ramslice=256M", fresh=True)
class Shared(PlacementTest):
    """The second zone begins at 16 MiB, in the first slice, which belongs to the first zone."""

    def free_blocks(self):
        """Free pageblocks in the second zone's part of the first slice."""
        begin, block = 16 * MIB // PAGE, self.device.info().pageblock_bytes // PAGE
        harness.drain(self.device)
        found = 0
        for run in self.device.pages(0):
            if run.what() == "free" and run.pfn >= begin:
                found += max((run.pfn + run.nr_pages) // block + run.pfn // -block, 0)
        return found

    def test_the_shared_slice_is_the_first_of_both_zones(self):
        before = self.free_blocks()
        self.assertGreater(before, 32)
        dev.write(POLICY, "array")
        # As much as the slice holds, which is more than is free within the kernel's pageblocks
        self.take_kernel(256)
        # Other pages come and go
        left = self.free_blocks()
        print(f"({before}, then {left}) ", end="", flush=True)
        self.assertLessEqual(left, before // 4)


@vm(**ONE_SLICE, append="ramslice=510M ramslice_placement=packed")
@vm(kernel="research", slow=True, **ONE_SLICE, append="ramslice=510M ramslice_placement=list")
class Small(PlacementTest):
    """There is no choice: one slice is nearly as large as the machine."""

    def test_each_policy_works_on_a_machine_of_one_slice(self):
        self.assertEqual(dev.read(dev.SYSFS / "slice_bytes"), str(510 * MIB))
        self.assertIn(f"ramslice_placement={AT_BOOT[0]}", dev.read("/proc/cmdline").split())
        kills = harness.vmstat()["oom_kill"]
        for policy in policies():
            dev.write(POLICY, policy)
            load = placement_workload.Load(1, self.device)
            try:
                self.take(64)
                load.grow_pipes(16)
                load.make_files(200)
                harness.compact(self.device)
            finally:
                while load.drop_one(load.random):
                    pass
        self.assertEqual(harness.vmstat()["oom_kill"], kills)


@vm(kernel=["plain", "research"], slow="research", mem="1G", disk="512M", append="ramslice=16M")
class NothingFails(PlacementTest):
    """The memory that a policy prefers is used up."""

    def confine_kernel(self):
        """One slice for the kernel, if this kernel has the policy low."""
        if LOW.exists():
            dev.write(LOW, 1)

    def test_nothing_is_reclaimed_because_of_a_policy(self):
        self.confine_kernel()
        for policy in policies():
            with self.subTest(policy=policy):
                dev.write(POLICY, policy)
                available = harness.meminfo()["MemFree"] // 1024
                self.serve(available - 200, STILL)

    def test_nothing_is_reclaimed_for_kernel_pages_because_of_a_policy(self):
        self.confine_kernel()
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
        # Taking over a pageblock of another type starts kswapd under stock, too, which is not
        # tested
        with pinned_memory.setting("/proc/sys/vm/watermark_boost_factor", 0):
            for policy in policies():
                dev.write(POLICY, policy)
                before = harness.vmstat()
                pipes = [
                    placement_workload.full_pipe()
                    for _ in range(harness.meminfo()["MemFree"] // 1024 - 300)
                ]
                after = harness.vmstat()
                for pipe in pipes:
                    placement_workload.close(pipe)
                self.assertEqual(
                    {name: after[name] - before[name] for name in STILL},
                    dict.fromkeys(STILL, 0),
                    policy,
                )


@vm(kernel=["plain", "research"], slow="research", mem="2G", disk="1G", append="ramslice=16M")
class AtWork(PlacementTest):
    def test_offline_slices_wake_for_kernel_pages(self):
        for policy in {"packed", "array"}.intersection(policies()):
            with self.subTest(policy=policy):
                dev.write(POLICY, policy)
                self.assertGreater(harness.compact(self.device), 10)
                woken = harness.woken_by_demand(self.device)
                # More than is awake
                pipes = [
                    placement_workload.full_pipe()
                    for _ in range(self.device.info().free_pages * PAGE // MIB + 32)
                ]
                self.assertGreater(harness.woken_by_demand(self.device), woken)
                for pipe in pipes:
                    placement_workload.close(pipe)
                harness.wake(self.device)

    @no_twin
    def test_the_kind_of_page_decides_which_slice_wakes(self):
        from_above = {"stock": False, "packed": True, "low": False, "array": True}
        for policy in [name for name in from_above if name in policies()]:
            user_from_above = from_above[policy]
            dev.write(POLICY, policy)
            for kernel in (True, False):
                harness.wake(self.device)
                # Most slices have to be offline: of a few, all might wake
                self.assertTrue(harness.until(lambda: harness.compact(self.device) > 64))
                off = harness.ids(self.device, dev.OFFLINE)
                mib = self.device.info().free_pages * PAGE // MIB + 48
                if kernel:
                    for pipe in [placement_workload.full_pipe() for _ in range(mib)]:
                        placement_workload.close(pipe)
                else:
                    with Memory(mib) as memory:
                        memory.touch()
                gone = sorted(set(off) - set(harness.ids(self.device, dev.OFFLINE)))
                found = policy, kernel, gone, off
                self.assertTrue(gone, found)
                self.assertLess(len(gone), len(off) // 2, found)
                # Another task may want a page, too
                above = sum(number > off[len(off) // 2] for number in gone) / len(gone)
                (self.assertGreater if user_from_above and not kernel else self.assertLess)(
                    above, 0.5, found
                )
        harness.wake(self.device)

    def test_policies_can_change_under_load(self):
        load = placement_workload.Load(7, self.device)
        self.addCleanup(lambda: [placement_workload.end(pid) for pid in load.holders])
        known, done = policies(), threading.Event()
        switches = []

        def switch():
            while not done.wait(0.05):
                name = known[len(switches) % len(known)]
                dev.write(POLICY, name)
                switches.append(name)

        thread = threading.Thread(target=switch)
        thread.start()
        kills = harness.vmstat()["oom_kill"]
        try:
            for number in range(3):
                load.round(number)
                harness.compact(self.device)
            load.finish()
        finally:
            done.set()
            thread.join()
        self.assertGreater(len(switches), len(known))
        self.assertEqual(harness.vmstat()["oom_kill"], kills)

    @staticmethod
    def placed_by_new_ranks(before):
        """Whether slices were ranked and pages were placed since, after some were asked for."""
        # More than is free within used pageblocks
        with Memory(512) as memory:
            memory.touch()
        now = placement_workload.figures()
        return all(now[name] > before[name] for name in ("rankings", "user_placed"))

    def test_slices_of_a_new_size_are_ranked_again(self):
        size = dev.SYSFS / "slice_bytes"
        self.addCleanup(dev.write, size, dev.read(size))
        dev.write(POLICY, "packed")
        for mib in (2, 6, 64, 16):
            dev.write(size, mib * MIB)
            before = placement_workload.figures()
            # A worker ranks them after the first pageblocks are taken
            self.assertTrue(
                harness.until(functools.partial(self.placed_by_new_ranks, before)),
                (mib, before, placement_workload.figures()),
            )
