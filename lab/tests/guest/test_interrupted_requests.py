# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests that a second request, a signal, a deadline or the end of their process meets."""

import collections
import contextlib
import errno
import os
import signal
import threading
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.cold_memory import spliced
from ramlab.guest.dma_heap import Buffer, books
from ramlab.guest.harness import MIB, PAGE, Child, ConcurrentAction, Memory, interrupt
from ramlab.guest.pinned_memory import PatternedMemory, setting
from ramlab.pytest_vm import vm

pytestmark = vm(mem="2G", append="ramslice=32M")
SECONDS = 10
MEMORY = Path("/sys/devices/system/memory")


class Interrupted(harness.RamsliceTest):
    """Requests that end early, with a simulated controller that takes 150 ms to power down a
    slice.
    """

    def setUp(self):
        super().setUp()
        parameters = self.enterContext(harness.simulator())
        self.addCleanup(lambda: harness.check_violations(0))
        self.delay = parameters / "off_delay_us"
        dev.write(self.delay, 150_000)
        self.addCleanup(dev.write, self.delay, 0)

    def test_driver_delays_beyond_the_limit_are_refused(self):
        # No signal interrupts a driver
        for text in ("200001", "4294967246", "4294967295", "-1", "1e3", ""):
            with self.assertRaises(OSError) as caught:
                dev.write(self.delay, text or "\n")
            self.assertEqual(caught.exception.errno, errno.EINVAL, text)
            self.assertEqual(dev.read(self.delay), "150000")
        dev.write(self.delay, 200_000)

    def test_a_second_request_gets_ebusy_and_readers_do_not(self):
        outcome = []
        dev.write(self.delay, 0)
        nr_off = self.device.request("compact", max_slices=3).nr_done
        # The first request hangs in the driver until the test lets it go on
        timeout = dev.SYSFS / "driver_timeout_ms"
        self.addCleanup(dev.write, timeout, dev.read(timeout))
        dev.write(timeout, 3_600_000)
        dev.write(harness.SIM / "hang_off", 1)
        self.addCleanup(dev.write, harness.SIM / "hanging", 0)
        first = threading.Thread(
            target=lambda: outcome.append(self.device.request("compact", max_slices=5)))
        with dev.Device() as other:
            first.start()
            self.assertTrue(harness.until(lambda: dev.read(harness.SIM / "hang_off") == "0"))
            for op, fields in (("compact", {}), ("offline_free", {}),
                               ("offline", {"id": self.empty()[0]})):
                with self.assertRaises(OSError) as caught:
                    other.request(op, **fields)
                self.assertEqual(caught.exception.errno, errno.EBUSY, op)
            if (self.folder / "cmd").exists():
                with self.assertRaises(OSError) as caught:
                    dev.command(self.folder, "offline_free")
                self.assertEqual(caught.exception.errno, errno.EBUSY)
            with self.assertRaises(OSError) as caught:
                dev.write(dev.SYSFS / "slice_bytes", 64 * MIB)
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            # Reading goes on meanwhile, and so does waking
            other.info(), other.zones(), other.snapshot()
            done = other.request("online_all")
            self.assertEqual((done.status, done.nr_done), (0, nr_off))
            self.assertTrue(first.is_alive())
            dev.write(harness.SIM / "hanging", 0)
            first.join()
        self.assertEqual((outcome[0].status, outcome[0].nr_done), (0, 5))
        self.assert_sane()

    def test_a_signal_ends_a_request(self):
        old = signal.signal(signal.SIGUSR1, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGUSR1, old)
        with ConcurrentAction(lambda device: harness.ids(device, dev.OFFLINE), interrupt) as sender:
            done = self.device.request("compact")
        # It ends with the slice that was under way
        self.assertLessEqual(done.nr_done, sender.nr_off + 2)
        self.assertEqual((done.status, done.why()), (errno.EINTR, "signal"))
        self.assertEqual(len(harness.ids(self.device, dev.OFFLINE)), done.nr_done)
        self.assertGreater(done.nr_done, 0)
        dev.write(self.delay, 0)
        self.assert_sane()

    def test_a_request_ends_with_its_process(self):
        def compact():
            with dev.Device() as own:
                yield
                own.request("compact")

        child = Child(compact)
        child.step()
        child.start()
        self.assertTrue(harness.until(lambda: harness.ids(self.device, dev.OFFLINE)))
        os.kill(child.pid, signal.SIGKILL)
        nr_off = len(harness.ids(self.device, dev.OFFLINE))
        child.end()
        # It ended with the slice that was under way
        self.assertLessEqual(len(harness.ids(self.device, dev.OFFLINE)), nr_off + 2)
        dev.write(self.delay, 0)
        # The next request gets the lock
        self.assertEqual(self.device.request("compact", max_slices=1).nr_done, 1)
        self.assert_sane()

    def test_a_deadline_ends_a_request(self):
        for milliseconds in (1, 400):
            harness.wake(self.device)
            done = self.device.request("compact", deadline_ms=milliseconds)
            self.assertEqual((done.status, done.why()), (errno.ETIMEDOUT, "deadline"))
            self.assertEqual(len(harness.ids(self.device, dev.OFFLINE)), done.nr_done)
            # Each slice takes 150 ms or more
            self.assertLess(done.nr_done, 10)
        dev.write(self.delay, 0)
        self.assert_sane()


class WakingAgainstEmptying(harness.RamsliceTest):
    """Requests that wake slices while another process empties them again at once."""

    def test_slices_that_went_off_again_have_been_woken(self):
        """Such a slice once made online_all say that it was in the wrong state."""

        def repeat(op):
            outcomes = collections.Counter()
            with dev.Device() as own:
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    done = own.request(op, wait_busy=10)
                    outcomes[done.status, done.why()] += done.nr_done
            yield outcomes

        with contextlib.ExitStack() as children:
            all_of_them = [children.enter_context(Child(repeat, op)).start()
                           for op in ("offline_free", "online_all", "online_all")]
            emptied, *woken = [child.result() for child in all_of_them]
        for outcomes in woken:
            self.assertEqual(list(outcomes), [(0, "none")])
            self.assertGreater(sum(outcomes.values()), 200)
        self.assertGreater(sum(emptied.values()), 200)
        self.assert_sane()


class InterruptedWaking(harness.RamsliceTest):
    """Waking that ends early, with a controller that takes 200 ms for a slice."""

    def setUp(self):
        super().setUp()
        parameters = self.enterContext(harness.simulator(sleeping=1))
        self.addCleanup(lambda: harness.check_violations(0))
        self.delay = parameters / "wake_delay_us"
        self.addCleanup(dev.write, self.delay, 0)
        self.hang, self.hanging = parameters / "hang_wake", parameters / "hanging"
        self.addCleanup(dev.write, self.hanging, 0)
        # No hanging call is given up here
        timeout = dev.SYSFS / "driver_timeout_ms"
        self.addCleanup(dev.write, timeout, dev.read(timeout))
        dev.write(timeout, 3_600_000)
        self.off = self.device.request("compact", max_slices=20).nr_done
        self.assertGreater(self.off, 10)

    def one_awake(self, device):
        return (
            len(harness.ids(device, dev.OFFLINE)) + len(harness.ids(device, dev.WAKING)) < self.off
        )

    def stop(self):
        """The driver hangs in the next slice, with which the request is half done."""
        dev.write(self.hang, 1)
        self.assertTrue(harness.until(lambda: dev.read(self.hang) == "0"))

    def check(self, done, status, why):
        self.assertEqual((done.status, done.why(), done.nr_failed), (status, why, 0))
        self.assertGreater(len(harness.ids(self.device, dev.OFFLINE)), 5)
        self.assertGreater(done.nr_done, 0)
        dev.write(self.delay, 0)
        dev.write(self.hanging, 0)
        self.device.request("online_all")
        self.assertTrue(
            harness.until(lambda: set(harness.states(self.device).values()) == {dev.ONLINE})
        )
        dev.verify()

    def test_a_deadline_ends_waking(self):
        # Long enough for one slice, on this machine
        self.delayed()
        one = self.device.request("online", id=harness.ids(self.device, dev.OFFLINE)[0])
        self.off -= one.nr_done
        deadline_ms = 5000 + 5 * one.elapsed_ns // 1_000_000
        with ConcurrentAction(self.one_awake, self.stop):
            # The driver hangs, so only the deadline can end it
            done = self.device.request("online_all", deadline_ms=deadline_ms)
        self.check(done, errno.ETIMEDOUT, "deadline")

    def test_a_signal_ends_waking(self):
        old = signal.signal(signal.SIGUSR1, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGUSR1, old)
        self.delayed()

        def act():
            self.stop()
            interrupt()

        with ConcurrentAction(self.one_awake, act):
            # The driver hangs, so only the signal can end it
            done = self.device.request("online_all")
        self.check(done, errno.EINTR, "signal")

    def delayed(self):
        """From now on a slice takes long enough to wake for others to step in before the last."""
        dev.write(self.delay, 200_000)


@vm(mem="2G", append="ramslice=32M movablecore=512M")
class GivingWay(harness.RamsliceTest):
    """Memory hotplug holds its lock while it waits: what empties slices gives up for it."""

    def setUp(self):
        super().setUp()
        self.block_bytes = int(dev.read(MEMORY / "block_size_bytes"), 16)
        self.addCleanup(self.check_end)

    def check_end(self):
        self.device.request("online_all")
        self.assert_sane()

    def blocks_of(self, memory):
        """For each page the number of its memory block; none for a page that is on its way."""
        return [pfn * PAGE // self.block_bytes for pfn in memory.pfns() if pfn is not None]

    @contextlib.contextmanager
    def meanwhile(self, work):
        """Does something in a thread; yields a list, in which its result or error is at the end."""
        found = []

        def run():
            try:
                found.append(work())
            except OSError as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield found
        finally:
            thread.join()

    def test_a_request_ends_when_memory_has_gone(self):
        """It began while a block waited for its last page, after hotplug had asked for the first
        time. Otherwise it would go on to its deadline, or until all slices are off.
        """
        held = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            # The last block has a hole, where firmware's tables are: it never goes offline
            last = max(int(path.name[6:]) for path in MEMORY.glob("memory[0-9]*"))
            for _ in range(10):
                memory = stack.enter_context(PatternedMemory(32))
                block = self.blocks_of(memory)[0]
                if block < last and self.blocks_of(memory).count(block) > 1000:
                    break
            # Pages that are in a pipe stay, and the block waits for them
            held.enter_context(spliced(memory))
            state = MEMORY / f"memory{block}/state"
            self.assertEqual(dev.read(state.parent / "valid_zones").split()[0], "Movable")
            parameters = self.enterContext(harness.simulator())
            dev.write(parameters / "off_delay_us", 200_000)
            with self.meanwhile(lambda: dev.write(state, "offline")) as gone, held:
                harness.until(lambda: gone or self.blocks_of(memory).count(block) <= 4)
                self.assertEqual(gone, [])
                with (
                    dev.Device(os.O_RDONLY) as reader,
                    self.meanwhile(lambda: self.device.request("compact")) as done,
                ):
                    harness.until(lambda: done or harness.ids(reader, dev.OFFLINE))
                    self.assertEqual((gone, done), ([], []))
                    held.close()
            self.assertEqual(gone, [None])
            self.assertEqual(dev.read(state), "offline")
            dev.write(state, "online_movable")
            self.assertEqual((done[0].status, done[0].why()), (errno.EAGAIN, "pressure"))
            self.device.request("online_all")
            harness.check_violations(0)
            self.assertIsNone(memory.wrong_at())

    def test_a_buffer_that_is_made_gives_way_to_memory_that_comes(self):
        """Many pages, few at a time, with pauses: emptying its slices takes seconds."""
        state = next(path / "state" for path in sorted(MEMORY.glob("memory[0-9]*"))
                     if dev.read(path / "valid_zones").split()[0] == "Movable")
        dev.write(state, "offline")
        self.addCleanup(self.bring, state)
        for name, value in (("migrate_batch", 16), ("pause_us", 2000)):
            self.enterContext(setting(dev.debugfs() / name, value))
        with Memory(1500) as memory:
            memory.touch().punch()
            with self.meanwhile(lambda: Buffer(512 * MIB).close()) as made:
                self.assertTrue(harness.until(
                    lambda: made or harness.ids(self.device, dev.EMPTYING)))
                dev.write(state, "online_movable")
            self.assertEqual([getattr(result, "errno", result) for result in made], [errno.ENOMEM])
            self.assertEqual(books()["last_refusal"], "pressure")
            harness.check_contents(memory)

    @staticmethod
    def bring(state):
        if dev.read(state) == "offline":
            dev.write(state, "online_movable")
