#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Opens a fleet's tables with DuckDB, partitions and all, and compares sums with the report.

Usage: lab/ramlab/checks/fleet.py DIR    DIR/fleet holds the tables, DIR/report.json is what `ramslice-lab sim fleet --json` printed
"""

import json
import math
import sys
from pathlib import Path

import duckdb


def main():
    folder = Path(sys.argv[1])
    report = json.loads((folder / "report.json").read_text())
    tables = {name: f"read_parquet('{folder}/fleet/{name}/*/*.parquet', hive_partitioning = true)"
              for name in ("machines", "levels")}

    def value(query):
        return duckdb.sql(query.format(**tables)).fetchone()[0]

    slices = report["memory_bytes"] // report["slice_bytes"]
    expected = {
        "SELECT count(*) FROM {machines}": report["machines"],
        "SELECT count(DISTINCT machine) FROM {levels}": report["machines"],
        "SELECT count(*) FROM {levels}": report["machine_steps"],
        "SELECT sum(net_low_joules) FROM {machines}": report["net_joules"]["low"],
        "SELECT sum(net_high_joules) FROM {machines}": report["net_joules"]["high"],
        "SELECT sum(demand_wakes) FROM {machines}": report["demand_wakes"],
        f"SELECT avg(offline_slices) / {slices} FROM {{levels}}": report["mean_offline_share"],
        "SELECT count(DISTINCT policy) FROM {levels}": 1,
        "SELECT any_value(policy) FROM {machines}": report["policy"],
    }
    failed = 0
    for query, wanted in expected.items():
        found = value(query)
        same = math.isclose(found, wanted, rel_tol=1e-9) if isinstance(wanted, float) else found == wanted
        failed += not same
        shown = query.format(machines="machines", levels="levels")
        print(f"{'ok' if same else 'FAILED'}: {shown} is {found}, expected {wanted}")
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main()
