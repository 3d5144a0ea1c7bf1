# SPDX-License-Identifier: GPL-2.0-or-later
"""The placement suite: policies are compared on the same seeds, and what entries tell beside the
figure.
"""

import argparse
import unittest
from unittest import mock

from ramlab.bench import placement


def left(seed, spoilt=10, c=0.9, removable=4):
    load = {
        "in_use": 0.3,
        "c": c,
        "c_bound": 0.95,
        "off": 0.5,
        "off_most": 0.6,
        "off_interleaved": 0.4,
    }
    return {
        "seed": seed,
        "light": load,
        "medium": load | {"in_use": 0.6},
        "slices_unmovable": spoilt,
        "slices_unmovable_least": 5,
        "slices_unmovable_least_ever": 8,
        "migrated_per_slice": 0.1,
        "pgsteal_": 7,
        "sections": 16,
        "sections_removable": removable,
    }


@mock.patch("ramlab.bench.placement.images_of", lambda *flavours: {})
class Placement(unittest.TestCase):
    def entries(self):
        """Entries by name, and the boots behind them."""
        boots = []

        def run(new, _images, name, _args):
            boots.extend((name, boot) for boot in new)
            found = {}
            for boot in new:
                seed = boot.parts[2]
                better = boot.arm == placement.OURS
                found.setdefault(boot.arm, []).append(
                    left(seed, spoilt=5 + seed % 7 if better else 15, removable=6 if better else 4)
                )
            return found

        with mock.patch("ramlab.bench.machines.run", run):
            new, _ = placement.mixture(
                argparse.Namespace(quick=False, jobs=1, seed=1, resume=False)
            )
        return {entry["name"]: entry for entry in new}, boots

    def test_each_policy_has_the_same_seeds_and_values_in_their_order(self):
        found, boots = self.entries()
        mixture = [boot for name, boot in boots if name == "placement"]
        seeds = {
            policy: sorted(boot.parts[2] for boot in mixture if boot.arm == policy)
            for policy in placement.POLICIES
        }
        entry = found["spoilt"]
        self.assertEqual(len(entry["seeds"]), placement.SEEDS)
        nr = dict.fromkeys(placement.POLICIES, placement.SEEDS_BESIDE) | dict.fromkeys(
            (placement.OURS, "stock"), placement.SEEDS
        )
        self.assertEqual(
            seeds, {policy: entry["seeds"][: nr[policy]] for policy in placement.POLICIES}
        )
        self.assertEqual(entry["values"], [(5 + seed % 7) / 5 for seed in entry["seeds"]])
        self.assertEqual(
            {policy: len(values) for policy, values in entry["beside_values"].items()},
            {policy: nr[policy] for policy in placement.POLICIES if policy != placement.OURS},
        )

    def test_low_has_as_many_slices_as_kernel_pages_needed_in_a_first_boot(self):
        found, boots = self.entries()
        [first] = [boot for name, boot in boots if name == "placement-first"]
        self.assertEqual(first.arm, "stock")
        words = {boot.arm: boot.parts[3:] for name, boot in boots if name == "placement"}
        self.assertEqual(
            words, {policy: [8] if policy == "low" else [] for policy in placement.POLICIES}
        )
        self.assertEqual(found["c-light"]["low_slices"], 8)

    def test_entries_tell_what_was_in_use_the_bound_and_sections(self):
        found, _ = self.entries()
        self.assertEqual(
            (found["c-light"]["in_use"]["low"], found["c-medium"]["in_use"]["low"]), (0.3, 0.6)
        )
        self.assertAlmostEqual(found["c-light"]["c_bound"][placement.OURS], 0.95)
        self.assertAlmostEqual(found["c-light"]["c"][placement.OURS], 0.9)
        removable = found["spoilt"]["removable"]
        self.assertEqual((removable["sections"], removable["mean"]["stock"]), (16, 4))
        self.assertAlmostEqual(removable["more_than_stock"][placement.OURS], 0.5)

    def test_an_allocation_is_compared_where_slices_are_off_and_a_sample_is_a_boot(self):
        def run(new, _images, _name, _args):
            found = {}
            for boot in new:
                on = {"mean": 1000, "worst": 5000}
                slower = 1.0 if boot.arm == placement.UNPATCHED else 1.1
                states = {"on": on} if boot.arm == placement.UNPATCHED else {
                    "on": on, "off": {key: value * slower for key, value in on.items()}}
                found.setdefault(boot.arm, []).append(states)
            return found

        with mock.patch("ramlab.bench.machines.run", run):
            new, _ = placement.alloc(argparse.Namespace(quick=False, jobs=1, seed=1, resume=False))
        mean, worst = new
        self.assertEqual((mean["name"], worst["name"]), ("alloc-mean", "alloc-worst"))
        self.assertAlmostEqual(worst["value"], 1.1)
        self.assertEqual((mean["n"], mean["all_slices_on"]), (placement.BOOTS, 1.0))


if __name__ == "__main__":
    unittest.main()
