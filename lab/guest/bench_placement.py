#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The mixture of place_load.py under a placement policy, for the placement suite.

Usage: bench_placement.py OUT.json [--quick] POLICY SEED
"""

import argparse
import json
from pathlib import Path

import place_load


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("policy")
    parser.add_argument("seed", type=int)
    args = parser.parse_args()
    _, left = place_load.run(args.policy, 3 if args.quick else 9, args.seed)
    args.out.write_text(json.dumps(left) + "\n")


if __name__ == "__main__":
    main()
