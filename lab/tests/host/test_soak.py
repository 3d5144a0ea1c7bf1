# SPDX-License-Identifier: GPL-2.0-or-later
"""Which soak runs replace the summary that is kept."""

import argparse
import datetime
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ramlab import soak


class Kept(unittest.TestCase):
    def files(self, asked, *minutes, status=0, only=None):
        """Names of the files that rounds of so many minutes leave in a run that was to take so
        long.
        """
        rounds = [{"minutes": each, "status": 0, "summary": {"problems": 0}} for each in minutes]
        rounds[-1]["status"] = status
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            args = argparse.Namespace(minutes=asked, kernel="debug", only=only)
            with mock.patch.multiple(
                soak, RESULT=folder / "out", KEPT=folder, provenance=lambda *_: {}
            ):
                soak.keep(args, datetime.datetime.now(), None, rounds)
            for path in folder.iterdir():
                self.assertEqual(json.loads(path.read_text())["minutes"], sum(minutes))
            return sorted(path.name for path in folder.iterdir())

    def test_short_runs_keep_what_there_is(self):
        for asked, minutes in ((5, [5]), (12, [4, 4, 4]), (30, [5, 5])):
            self.assertEqual(self.files(asked, *minutes), ["out"])
        self.assertEqual(self.files(5, 5, status=1), ["out"])

    def test_half_an_hour_replaces_it_and_so_does_a_problem_on_the_way_there(self):
        self.assertEqual(self.files(30, *6 * [5]), ["out", "soak.json"])
        self.assertEqual(self.files(120, 5, status=1), ["out", "soak.json"])

    def test_one_kind_does_not_replace_all_kinds(self):
        self.assertEqual(self.files(30, 30, only="daemon"), ["out", "soak-daemon.json"])

    def test_eight_minutes_are_enough_for_memory_blocks(self):
        self.assertEqual(self.files(8, 4, 4, only="cold"), ["out", "soak-cold.json"])
        self.assertEqual(self.files(7, 7, only="cold"), ["out"])

    def test_minutes_are_those_of_load_not_those_asked_for(self):
        self.assertEqual(soak.load_minutes([{"seconds": 90}], wanted=13), 1.5)
        self.assertEqual(soak.load_minutes([], wanted=13), 13)


if __name__ == "__main__":
    unittest.main()
