# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmarks' own arithmetic and judgement: figures from tables, and each verdict made to happen."""

import contextlib
import io
import random
import unittest
from unittest import mock

from benchmarks import entries, stats

ENTRY = {"name": "x", "value": 0.6, "ci95": [0.59, 0.61], "n": 10, "source": "run", "kernel": {"plain": {"code": "now"}},
         "equivalence": {"margin": 0.01, "p": 0.01}}
GOAL = {"what": "x", "most": 0.7, "need_n": 10}


class Statistics(unittest.TestCase):
    def test_students_t_is_that_of_the_tables(self):
        for p, df, t in ((0.975, 9, 2.2622), (0.975, 18, 2.1009), (0.95, 4, 2.1318), (0.995, 30, 2.7500)):
            self.assertAlmostEqual(stats.t_quantile(p, df), t, 4)

    def test_the_interval_of_a_mean(self):
        mean, (low, high) = stats.mean([1, 2, 3, 4, 5])
        self.assertEqual(mean, 3)
        self.assertAlmostEqual(high - 3, 2.7764 * (2.5 / 5) ** 0.5, 3)
        self.assertAlmostEqual(3 - low, high - 3)

    def test_a_ratio_and_its_inverse_are_one_finding(self):
        a, b = [1.0, 1.1, 0.9, 1.05], [2.0, 2.2, 2.1, 1.9]
        value, (low, high) = stats.ratio(a, b)
        inverse, (inverse_low, inverse_high) = stats.ratio(b, a)
        self.assertAlmostEqual(value * inverse, 1)
        self.assertAlmostEqual(low * inverse_high, 1)
        self.assertAlmostEqual(high * inverse_low, 1)

    def test_equivalence_needs_both_closeness_and_certainty(self):
        rnd = random.Random(1)
        same, other = ([1 + rnd.gauss(0, 0.001) for _ in range(10)] for _ in range(2))
        noisy = [1 + rnd.gauss(0, 0.05) for _ in range(10)]
        self.assertLess(stats.equivalent(same, other, 0.01), 0.001)
        self.assertGreater(stats.equivalent(noisy, other, 0.01), 0.05)
        self.assertGreater(stats.equivalent([v * 1.02 for v in same], other, 0.01), 0.95)
        self.assertGreater(stats.equivalent([v * 0.98 for v in same], other, 0.01), 0.95)

    def test_samples_without_spread_are_compared_as_they_are(self):
        self.assertEqual(stats.equivalent([1, 1], [1, 1], 0.01), 0)
        self.assertEqual(stats.equivalent([1.1, 1.1], [1, 1], 0.01), 1)


@mock.patch("benchmarks.machines.code", lambda flavour: "now")
class Judgement(unittest.TestCase):
    def judge(self, goal=None, **changes):
        return entries.judge(ENTRY | changes, GOAL | (goal or {}))

    def test_met(self):
        self.assertEqual(self.judge(), "true")

    def test_missed_if_the_interval_reaches_over_the_target(self):
        self.assertEqual(self.judge(value=0.69, ci95=[0.67, 0.71]), "false")
        self.assertEqual(self.judge(value=0.8, ci95=None), "false")

    def test_unmeasured_without_an_entry_or_with_too_few_samples(self):
        self.assertEqual(entries.judge(None, GOAL), "unmeasured")
        self.assertEqual(self.judge(n=9), "unmeasured")

    def test_stale_if_the_code_is_another_or_unknown(self):
        self.assertEqual(self.judge(kernel={"plain": {"code": "then"}}), "stale")
        self.assertEqual(self.judge(kernel={"plain": {"code": None}}), "stale")

    def test_equivalence_is_asked_for_where_a_margin_is_named(self):
        self.assertEqual(self.judge({"margin": 0.01}), "true")
        self.assertEqual(self.judge({"margin": 0.01}, equivalence={"margin": 0.01, "p": 0.2}), "false")
        self.assertEqual(self.judge({"margin": 0.01}, equivalence={}), "false")

    def test_every_target_names_what_it_is_about(self):
        for suite, wanted in entries.targets().items():
            for name, goal in wanted.items():
                self.assertTrue(goal["what"] and ("most" in goal) != ("above" in goal), f"{suite}.{name}")

    def test_the_table_has_a_line_for_every_target(self):
        table = io.StringIO()
        with contextlib.redirect_stdout(table):
            entries.check([])
        lines = {line.split()[0]: line for line in table.getvalue().splitlines() if line and not line.startswith(" ")}
        for name, goal in ((name, goal) for wanted in entries.targets().values() for name, goal in wanted.items()):
            self.assertIn(entries.limit(goal), lines[name])


if __name__ == "__main__":
    unittest.main()
