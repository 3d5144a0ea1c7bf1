#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Requests take slices offline and online; one that fails leaves everything as it was."""

import errno
import signal

import _ramslice as dev
import _ramslice_harness as harness
from _ramslice_harness import MIB, PAGE, Memory, check_contents


class RoundTrip(harness.RamsliceTest):
    """Slices go offline and come back, and every figure with them."""

    def test_an_empty_slice_goes_offline_and_comes_back(self):
        number, = self.empty()
        before, total = self.device.info(), harness.meminfo()["MemTotal"]
        done = self.device.request("offline", id=number)
        self.assertEqual(
            (done.status, done.why(), done.nr_done, done.last_id), (0, "none", 1, number)
        )
        self.assertEqual(self.row(number).state, dev.OFFLINE)
        info, now = self.device.info(), harness.meminfo()
        self.assertEqual(info.offline_pages * PAGE, info.slice_bytes)
        self.assertGreater(info.event_seq, before.event_seq)
        self.assertEqual(sum(zone.nr_offline for zone in self.device.zones()), 1)
        self.assertEqual(now["MemTotal"], total)
        self.assertEqual(now["RamsliceOffline"] * 1024, info.slice_bytes)
        done = self.device.request("online", id=number)
        self.assertEqual(
            (done.status, done.why(), done.nr_done, done.last_id), (0, "none", 1, number)
        )
        self.assertEqual(self.row(number).state, dev.ONLINE)
        self.assertEqual(self.device.info().offline_pages, 0)
        self.assert_sane()

    def test_pages_in_use_move_and_keep_their_contents(self):
        with Memory(160) as memory:
            memory.touch().punch()
            number = self.movable()
            done = self.device.request("offline", id=number)
            self.assertEqual((done.status, done.nr_done), (0, 1), done)
            self.assertGreater(done.pages_migrated, 1024)
            self.assertEqual(self.row(number).state, dev.OFFLINE)
            check_contents(memory)
            self.assertEqual(self.device.request("online", id=number).nr_done, 1)
            check_contents(memory)
        self.assert_sane()

    def test_compaction_takes_as_many_slices_as_asked(self):
        self.assertEqual(self.device.request("compact", max_slices=3).nr_done, 3)
        self.assertEqual(len(harness.ids(self.device, dev.OFFLINE)), 3)
        self.assertEqual(self.device.request("online_all").nr_done, 3)
        self.assertEqual(set(harness.states(self.device).values()), {dev.ONLINE})

    def test_a_slice_that_can_never_be_emptied_stays_online(self):
        before = harness.states(self.device)
        done = self.device.request("offline", id=self.unreclaimable())
        self.assertEqual((done.status, done.nr_done), (errno.EBUSY, 0))
        self.assertIn(done.why(), ("boot", "hole", "zone-end"))
        self.assertEqual(harness.states(self.device), before)


class InterruptedMigration(harness.RamsliceTest):
    """Emptying that ends while pages move: a half-emptied slice stays online and complete."""

    def setUp(self):
        super().setUp()
        # Large slices and one page at a time: on any machine this outlasts the shortest deadline
        self.migrate_batch = dev.debugfs() / "migrate_batch"
        self.usual_batch = dev.read(self.migrate_batch)
        self.addCleanup(dev.write, self.migrate_batch, self.usual_batch)
        dev.write(self.migrate_batch, 1)
        path = dev.SYSFS / "slice_bytes"
        self.addCleanup(dev.write, path, dev.read(path))
        dev.write(path, 128 * MIB)
        self.addCleanup(self.device.request, "online_all")
        self.memory = Memory(700)
        self.addCleanup(self.memory.map.close)
        self.memory.touch().punch()

    def used(self):
        """A slice whose pages have to move. Empty ones go offline first, but for room to move to.
        """
        self.device.request("offline_free")
        for number in harness.ids(self.device, dev.OFFLINE)[:12]:
            self.device.request("online", id=number)
        return self.movable()

    def check(self, done, status, why):
        self.assertEqual((done.status, done.why(), done.nr_done), (status, why, 0), done)
        self.assertEqual(harness.states(self.device)[done.last_id], dev.ONLINE)
        check_contents(self.memory)
        self.assert_sane()
        # The next attempt is not refused for it, and works: at the usual pace, in time anywhere
        dev.write(self.migrate_batch, self.usual_batch)
        done = self.device.request("offline", id=done.last_id)
        self.assertEqual((done.status, done.nr_done), (0, 1), done)
        check_contents(self.memory)
        self.assert_sane()

    def test_a_deadline_leaves_the_slice_whole(self):
        done = self.device.request("offline", id=self.used(), deadline_ms=1)
        self.check(done, errno.ETIMEDOUT, "deadline")

    def test_a_signal_leaves_the_slice_whole(self):
        old = signal.signal(signal.SIGALRM, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        number = self.used()
        # Pending all the time
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            done = self.device.request("offline", id=number)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.check(done, errno.EINTR, "signal")


if __name__ == "__main__":
    harness.main()
