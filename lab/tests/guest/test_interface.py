# SPDX-License-Identifier: GPL-2.0-or-later
"""The debugfs tree of a research kernel: valid input has its effect, anything else is refused and
changes nothing. The files of every kernel are in its selftests: ramslice_sysfs.py.
"""

import errno
import os
import stat

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, Memory, check_contents
from test_kunit import RESEARCH

# Files of Table 3.3 and their modes
FILES = {
    "nr_slices": 0o400,
    "nr_empty": 0o400,
    "nr_offline": 0o400,
    "all": 0o400,
    "reserve": 0o400,
    "summary": 0o400,
    "stats": 0o600,
    "cmd": 0o200,
    "result": 0o400,
    "placement": 0o400,
}
# Equation 3.1 for an empty slice of 32 MiB
EMPTY_PRICE = 695 + 303 * 8


class ZoneTest(harness.RamsliceTest):
    """The files of the largest zone."""

    def command(self, line):
        dev.command(self.folder, line)

    def result(self):
        status, reason, done = dev.read(self.folder / "result").split()
        return int(status), reason, int(done)

    def number(self, name):
        return int(dev.read(self.folder / name))


@RESEARCH
class DebugfsTree(ZoneTest):
    def test_the_root_holds_its_settings_verify_and_the_nodes(self):
        nodes = {f"node{zone.node}" for zone in self.device.zones()}
        self.assertEqual(
            set(os.listdir(dev.debugfs())),
            {"bite_us", "buffers", "dummy_mode", "migrate_batch", "pause_us", "verify"} | nodes,
        )

    def test_every_zone_with_slices_has_exactly_the_files_of_table_3_3(self):
        expected = {(f"node{zone.node}", zone.name.decode()) for zone in self.device.zones()}
        self.assertEqual({(p.parent.name, p.name) for p in dev.zone_folders()}, expected)
        for folder in dev.zone_folders():
            self.assertEqual(set(os.listdir(folder)), set(FILES))

    def test_files_can_be_read_and_written_as_table_3_3_says(self):
        for name, mode in FILES.items():
            path = self.folder / name
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, name)
            # Modes do not apply to root
            if mode & 0o400:
                path.read_text()
            else:
                self.assertRaises(OSError, path.read_text)
            if not mode & 0o200:
                self.assertRaises(OSError, dev.write, path, "1")

    def test_all_has_a_row_for_each_slice_and_a_column_for_each_counter(self):
        header, *rows = dev.read(self.folder / "all").splitlines()
        self.assertEqual(header, "# index state reason pages price " + " ".join(dev.COUNTERS))
        self.assertEqual(len(rows), self.number("nr_slices"))
        for row in rows:
            words = row.split()
            self.assertEqual(len(words), 5 + len(dev.COUNTERS), row)
            self.assertIn(words[1], dev.STATES, row)
            self.assertIn(words[2], dev.REASONS, row)
            for count in words[5:]:
                self.assertLessEqual(int(count), int(words[3]), row)

    def test_all_agrees_with_a_snapshot(self):
        harness.drain(self.device)
        still = set(harness.empty_ids(self.device))
        shown = {
            int(row.split()[0]): row.split()
            for row in dev.read(self.folder / "all").splitlines()[1:]
        }
        rows = {s.id: s for s in self.device.snapshot()}
        # Slices that are empty before and after
        still &= set(harness.empty_ids(self.device)) & set(shown)
        self.assertGreater(len(still), 5)
        for number in still:
            words, s = shown[number], rows[number]
            self.assertEqual(
                words[1:4], [dev.STATES[s.state], dev.REASONS[s.reason], str(s.nr_pages)]
            )
            self.assertEqual(int(words[4]), s.price)
            self.assertEqual([int(n) for n in words[5:]], list(s.counters))

    def test_summary_is_the_sum_of_all(self):
        rows = [row.split()[3:] for row in dev.read(self.folder / "all").splitlines()[1:]]
        header, summary = dev.read(self.folder / "summary").splitlines()
        self.assertEqual(header, "# pages " + " ".join(dev.COUNTERS))
        sums = [sum(int(row[i]) for row in rows) for i in range(len(rows[0])) if i != 1]
        words = [int(word) for word in summary.split()]
        self.assertEqual(words[0], sums[0])
        for name, shown, expected in zip(dev.COUNTERS, words[1:], sums[1:]):
            # Some pages come and go between the two
            self.assertAlmostEqual(shown, expected, delta=512, msg=name)

    def test_reserve_is_listed_dearest_first(self):
        header, *rows = dev.read(self.folder / "reserve").splitlines()
        self.assertEqual(header, "# index price free freeable")
        prices = [int(row.split()[1]) for row in rows]
        self.assertGreater(len(rows), 3)
        self.assertEqual(prices, sorted(prices, reverse=True))

    def test_counts_agree_with_the_device(self):
        self.command("offline_batch inf 3")
        for folder, zone in zip(
            dev.zone_folders(), sorted(self.device.zones(), key=lambda z: z.name)
        ):
            self.assertEqual(folder.name, zone.name.decode())
            for name in ("nr_slices", "nr_empty", "nr_offline"):
                self.assertEqual(
                    int(dev.read(folder / name)), getattr(zone, name), f"{folder.name}/{name}"
                )
        self.assertEqual(self.number("nr_offline"), 3)
        self.assertEqual(
            sum(z.nr_slices for z in self.device.zones()), self.device.info().nr_slices
        )

    def test_stats_count_and_a_write_resets_them(self):
        dev.write(self.folder / "stats", "0")
        self.assertEqual(set(dev.table(self.folder / "stats").values()), {0})
        self.command("offline_batch inf 2")
        self.command("online_all")
        stats = dev.table(self.folder / "stats")
        self.assertEqual(
            (stats["offline_tried"], stats["offline_done"], stats["online_request"]), (2, 2, 2)
        )
        self.assertEqual(stats["price_predicted"], 2 * EMPTY_PRICE)
        self.assertGreater(stats["price_measured"], 0)
        dev.write(self.folder / "stats", "0")
        self.assertEqual(set(dev.table(self.folder / "stats").values()), {0})


@RESEARCH
class Commands(ZoneTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(dev.write, dev.debugfs() / "dummy_mode", "N")

    def test_offline_batch_takes_all_but_the_awake_reserve(self):
        empty = self.number("nr_empty")
        self.command("offline_batch inf inf")
        self.assertGreater(self.number("nr_offline"), empty * 3 // 4)
        self.assertEqual(self.result()[0], 0)
        self.assertEqual(self.result()[2], self.number("nr_offline"))

    def test_slices_with_kernel_pages_name_the_reason(self):
        self.command("offline_batch inf inf")
        tried = 0
        for s in self.device.snapshot():
            unmovable = (
                s.nr_pages - s.counter("free") - s.counter("lru_anon") - s.counter("lru_file")
            )
            # A few pages may be in per-CPU lists
            if s.state == dev.ONLINE and unmovable > s.nr_pages // 16:
                tried += 1
                self.assertIn(
                    dev.REASONS[s.reason],
                    ("boot", "hole", "zone-end", "slab", "pagetable", "unmovable"),
                    s,
                )
        self.assertGreater(tried, 0)

    def test_offline_batch_keeps_to_the_limit_of_slices(self):
        self.command("offline_batch inf 2")
        self.assertEqual(self.number("nr_offline"), 2)
        self.assertEqual(self.result(), (0, "none", 2))
        self.command("offline_batch inf 1")
        self.assertEqual(self.number("nr_offline"), 3)

    def test_the_budget_of_offline_batch_is_for_all_slices_together(self):
        self.command(f"offline_batch {2 * EMPTY_PRICE} inf")
        self.assertEqual(self.number("nr_offline"), 2)
        self.assertEqual(self.result(), (0, "over-budget", 2))

    def test_per_slice_makes_the_budget_hold_for_each(self):
        empty = self.number("nr_empty")
        self.command(f"offline_batch --per-slice {EMPTY_PRICE} inf")
        self.assertGreater(self.number("nr_offline"), empty * 3 // 4)

    def test_nothing_is_cheaper_than_an_empty_slice(self):
        for line in (f"offline_batch --per-slice {EMPTY_PRICE - 1} inf", "offline_batch 0 inf"):
            self.command(line)
            self.assertEqual(self.number("nr_offline"), 0)
            self.assertEqual(self.result(), (0, "over-budget", 0))

    def test_offline_index_and_online_index_change_only_that_slice(self):
        number, = self.empty()
        self.command(f"offline_index {number}")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [number])
        self.assertEqual(self.result(), (0, "none", 1))
        self.command(f"online_index {number}")
        self.assertEqual(harness.ids(self.device, dev.OFFLINE), [])
        self.assertEqual(self.result(), (0, "none", 1))

    def test_offline_free_takes_empty_slices_and_moves_nothing(self):
        harness.drain(self.device)
        empty = set(harness.empty_ids(self.device))
        dev.write(self.folder / "stats", "0")
        self.command("offline_free")
        offline = set(harness.ids(self.device, dev.OFFLINE))
        # Another slice may have become empty in between
        self.assertLessEqual(len(offline - empty), 1)
        self.assertGreater(len(offline), len(empty) * 3 // 4)
        stats = dev.table(self.folder / "stats")
        self.assertEqual((stats["pages_migrated"], stats["pages_dropped"]), (0, 0))

    def test_online_all_wakes_everything(self):
        self.command("offline_batch inf 7")
        self.command("online_all")
        self.assertEqual(self.number("nr_offline"), 0)
        self.assertEqual(self.result(), (0, "none", 7))

    def test_reinit_and_release_set_and_end_the_reserve_of_offline_index(self):
        with Memory(96) as memory:
            memory.touch().punch()
            self.command("reinit")
            self.assertEqual(self.result(), (0, "none", 0))
            number = self.movable()
            self.command(f"offline_index {number}")
            self.assertEqual(harness.states(self.device)[number], dev.OFFLINE)
            self.command("release")
            self.assertEqual(self.result(), (0, "none", 0))
            # A second time changes nothing
            self.command("release")
            check_contents(memory)
        self.assert_sane()

    def test_reinit_does_not_outlive_a_change_of_geometry(self):
        before = dev.read(dev.SYSFS / "slice_bytes")
        self.addCleanup(dev.write, dev.SYSFS / "slice_bytes", before)
        self.addCleanup(self.device.request, "online_all")
        with Memory(96) as memory:
            memory.touch().punch()
            dev.write(dev.SYSFS / "slice_bytes", 2 * MIB)
            self.command("reinit")
            dev.write(dev.SYSFS / "slice_bytes", before)
            number = self.movable()
            self.command(f"offline_index {number}")
            self.assertEqual(harness.states(self.device)[number], dev.OFFLINE)
            check_contents(memory)
        self.assert_sane()

    def test_dummy_mode_migrates_into_one_empty_slice(self):
        with Memory(160) as memory:
            memory.touch().punch()
            number = self.movable()
            moved = next(s for s in self.device.snapshot() if s.id == number).counter("lru_anon")
            empty = set(harness.empty_ids(self.device))
            dev.write(dev.debugfs() / "dummy_mode", "Y")
            self.command(f"offline_index {number}")
            self.assertEqual(harness.states(self.device)[number], dev.OFFLINE)
            filled = [
                s
                for s in self.device.snapshot()
                if s.id in empty and s.counter("lru_anon") > moved * 9 // 10
            ]
            self.assertEqual(len(filled), 1)
            check_contents(memory)
        self.assert_sane()

    def test_dummy_mode_ignores_the_price(self):
        dev.write(dev.debugfs() / "dummy_mode", "Y")
        self.command("offline_batch 0 2")
        self.assertEqual(self.number("nr_offline"), 2)
        dev.write(dev.debugfs() / "dummy_mode", "N")
        self.command("offline_batch 0 2")
        self.assertEqual(self.number("nr_offline"), 2)

    def test_result_holds_the_outcome_of_the_last_command(self):
        number, = self.empty()
        self.command(f"offline_index {number}")
        self.assertEqual(self.result(), (0, "none", 1))
        self.assertRaises(OSError, self.command, f"offline_index {number}")
        self.assertEqual(self.result(), (-errno.EBUSY, "state", 0))
        self.assertRaises(OSError, self.command, f"offline_index {self.unreclaimable()}")
        status, reason, done = self.result()
        self.assertEqual((status, done), (-errno.EBUSY, 0))
        self.assertIn(reason, ("boot", "hole", "zone-end"))
        self.assertRaises(OSError, self.command, "offline_index 1000000")
        self.assertEqual(self.result(), (-errno.ENOENT, "none", 0))
        self.command("online_all")
        self.assertEqual(self.result(), (0, "none", 1))

    def test_each_zone_has_its_own_result_and_its_own_slices(self):
        other = min(dev.zone_folders(), key=lambda folder: int(dev.read(folder / "nr_slices")))
        self.assertNotEqual(other, self.folder, "one zone only")
        before = dev.read(other / "result")
        self.command("offline_batch inf 1")
        self.assertEqual(dev.read(other / "result"), before)
        with self.assertRaises(OSError) as caught:
            dev.command(other, f"online_index {harness.ids(self.device, dev.OFFLINE)[0]}")
        self.assertEqual(caught.exception.errno, errno.ENOENT)

    def test_malformed_commands_change_nothing_and_have_their_own_errno(self):
        self.command("offline_batch inf 2")
        cases = {
            errno.EOPNOTSUPP: [
                "frobnicate",
                "OFFLINE_FREE",
                "offline",
                "offline_freeze",
                "--per-slice 1 1",
                "0",
            ],
            errno.ENODATA: [
                "\n",
                "  \t\n",
                "offline_batch",
                "offline_batch inf",
                "offline_batch --per-slice",
                "offline_batch --per-slice 100",
                "offline_index",
                "online_index",
                "online_index\n",
            ],
            errno.E2BIG: [
                "offline_batch inf inf inf",
                "offline_batch --per-slice inf 1 1",
                "offline_index 5 6",
                "online_index 5 6",
                "offline_free 1",
                "online_all now",
                "reinit 1",
                "release --force",
            ],
            errno.EINVAL: [
                "offline_batch many inf",
                "offline_batch -1 inf",
                "offline_batch 0x10 inf",
                "offline_batch inf 1.5",
                "offline_batch inf -1",
                "offline_batch 1e3 1",
                "offline_batch INF inf",
                "offline_index -1",
                "offline_index inf",
                "offline_index 5x",
                "offline_batch --per-slice --per-slice inf",
                "offline_batch inf --per-slice",
                "offline_free\0 1",
                "\0",
            ],
            errno.ERANGE: [
                "offline_batch 18446744073709551616 inf",
                "offline_batch inf 4294967296",
                "offline_batch inf 0",
                "offline_batch 99999999999999999999999 1",
                "offline_index 4294967295",
                "online_index 18446744073709551615",
                "offline_index 18446744073709551616",
            ],
            errno.EMSGSIZE: ["x" * 257, "offline_free" + " " * 300],
        }
        for number, lines in cases.items():
            for line in lines:
                with self.refused(number, repr(line)):
                    self.command(line)

    def test_commands_for_missing_or_unsuitable_slices_change_no_state(self):
        off, on = self.empty(2)
        self.command(f"offline_index {off}")
        before = harness.states(self.device)
        for line, number in {
            "offline_index 1000000": errno.ENOENT, "online_index 1000000": errno.ENOENT,
            "offline_index 4294967294": errno.ENOENT, f"offline_index {off}": errno.EBUSY,
            f"online_index {on}": errno.EBUSY, f"offline_index {self.unreclaimable()}": errno.EBUSY,
            f"online_index {self.unreclaimable()}": errno.EBUSY,
        }.items():
            with self.subTest(line), self.assertRaises(OSError) as caught:
                self.command(line)
            self.assertEqual(caught.exception.errno, number, line)
            self.assertEqual(harness.states(self.device), before, line)

    def test_white_space_around_words_does_not_matter(self):
        self.command("  offline_batch \t inf   2 \n")
        self.assertEqual(self.number("nr_offline"), 2)
