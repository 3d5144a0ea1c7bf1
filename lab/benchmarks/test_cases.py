# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kept runs of case studies are made into: pairs by seed, gains whose ends are the worst and best case."""

import unittest
from unittest import mock

from benchmarks import cases, entries


def joules(low, high):
    return {"low": low / 1e3, "high": high / 1e3}


def run(setting, low, high, seed=1, scale="small", start="fresh", off=30.0, read=0, dropped=0, emptying=(0, 0), busy=20.0):
    """A kept run of 10 real seconds, 50 of the guest, that saved and invested so much energy in mJ."""
    return {"setting": setting, "seed": seed, "scale": scale, "start": start, "disk_read_bytes": read, "busy_s": busy,
            "elapsed_s": 50.0,
            "energy": {"saved_joules": joules(low, high), "time_seconds": {"low": 10.0, "high": 10.0},
                       "lines": [{"term": "emptying", "joules": joules(*emptying)}, {"term": "refaults", "joules": None}],
                       "net_joules": joules(low - emptying[1], high - emptying[0]), "work": {"dropped_pages": dropped}},
            "slice_seconds": {"off": off, "attainable": 40.0}}


def kept(*runs):
    return mock.patch.object(cases, "load", lambda name: list(runs))


class Cases(unittest.TestCase):
    def test_what_is_uncertain_is_the_same_in_both_runs(self):
        # Twice as much is off: whatever that saves, it is more
        self.assertEqual([round(end, 6) for end in cases.gain(run("ours", 20, 40), run("nothing", 10, 20))], [1.0, 2.0])
        # The price of emptying is not known so well that this pays
        low, high = cases.gain(run("ours", 20, 40, emptying=(5, 15)), run("nothing", 10, 20))
        self.assertEqual([round(low, 6), round(high, 6)], [-0.5, 1.5])
        # Of a price that both have paid, nothing is left
        both = {"emptying": (5, 15)}
        self.assertEqual(cases.gain(run("ours", 20, 40, **both), run("nothing", 20, 40, **both)), (0, 0))

    def test_work_that_took_longer_costs_the_whole_machines_power(self):
        low, high = cases.platform_watts()
        ours, nothing = run("ours", 20, 40, busy=20.05), run("nothing", 10, 20)
        found = cases.gain(ours, nothing)
        # A thousandth of the time
        self.assertEqual([round(end, 6) for end in found], [round(1.0 - high, 6), round(2.0 - low, 6)])
        self.assertEqual([round(end, 6) for end in cases.gain(ours, nothing, run_time=False)], [1.0, 2.0])
        faster = cases.gain(run("ours", 20, 40, busy=19.95), nothing)
        self.assertEqual([round(end, 6) for end in faster], [round(1.0 + low, 6), round(2.0 + high, 6)])

    def test_only_runs_of_one_seed_scale_and_start_are_compared(self):
        runs = [run("ours", 1, 2, seed=1), run("nothing", 1, 2, seed=2), run("nothing", 1, 2, scale="tiny"),
                run("nothing", 1, 2, start="aged")]
        self.assertEqual(cases.pairs(runs), [])
        self.assertEqual(len(cases.pairs([*runs, run("nothing", 1, 2, seed=1)])), 1)

    def test_seeds_that_differ_widen_the_interval(self):
        one = [run("ours", 20, 30), run("nothing", 10, 15)]
        with kept(*one):
            [entry] = cases.net_entry("compile")
        self.assertEqual((entry["n"], [round(v, 6) for v in entry["ci95"]]), (1, [1.0, 1.5]))
        with kept(*one, run("ours", 40, 50, seed=2), run("nothing", 10, 15, seed=2)):
            [entry] = cases.net_entry("compile")
        self.assertEqual(entry["n"], 2)
        self.assertLess(entry["ci95"][0], 0)

    def test_the_import_does_not_count_unless_its_cache_is_used_again_and_unlimited_loses(self):
        ours, nothing = run("ours", 20, 30), run("nothing", 10, 15)
        for unlimited, counts in ((run("unlimited", -20, -10, read=3 * 4096, dropped=10), True),
                                  (run("unlimited", -20, -10, read=2 * 4096, dropped=10), False),
                                  (run("unlimited", -20, 12, read=3 * 4096, dropped=10), False)):
            with self.subTest(counts=counts), kept(ours, nothing, unlimited):
                self.assertEqual(len(cases.import_entry()), counts)

    def test_slices_that_are_off_at_a_loss_are_worth_nothing(self):
        unlimited = run("unlimited", -20, -10, read=3 * 4096, dropped=10)
        for low, share in ((20, 0.75), (5, 0.0)):
            with kept(run("ours", low, 30), run("nothing", 10, 15), unlimited):
                self.assertEqual(cases.import_entry()[0]["value"], share)

    def test_an_import_that_surely_took_longer_is_worth_nothing(self):
        runs = [run("unlimited", -20, -10, seed=seed, read=3 * 4096, dropped=10) for seed in (1, 2, 3)]
        runs += [run("nothing", 10, 15, seed=seed) for seed in (1, 2, 3)]
        for busy, share in (((20.5, 20.6, 20.7), 0.0), ((20.5, 19.0, 20.4), 0.75)):
            ours = [run("ours", 20, 30, seed=seed + 1, busy=took) for seed, took in enumerate(busy)]
            with kept(*runs, *ours):
                self.assertEqual(cases.import_entry()[0]["value"], share)

    @mock.patch("benchmarks.machines.code", lambda flavour: "now")
    def test_above_means_the_whole_interval(self):
        entry = {"name": "x", "value": 1.0, "n": 3, "kernel": {"plain": {"code": "now"}}}
        for ci95, verdict in (([0.1, 2.0], "true"), ([-0.1, 2.0], "false"), ([0.0, 2.0], "false")):
            self.assertEqual(entries.judge(entry | {"ci95": ci95}, {"above": 0, "need_n": 3}), verdict)


if __name__ == "__main__":
    unittest.main()
