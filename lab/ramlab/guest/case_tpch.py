# SPDX-License-Identifier: GPL-2.0-or-later
"""A process that holds a DuckDB database and answers queries of TPC-H by number, as lines of JSON.

Usage: python3 -m ramlab.guest.case_tpch DATABASE MEMORY_LIMIT. Query 0 does nothing.
"""

import hashlib
import json
import resource
import sys

import duckdb
import duckdb_extension_tpch


def canonical(rows):
    """Rows as text, with figures rounded: sums of floats depend on the order of the threads."""
    return "\n".join("|".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row)
                     for row in rows)


def extension():
    """The extension's file, which comes from PyPI: nothing is fetched."""
    folder = next(duckdb_extension_tpch.__path__.__iter__())
    return f"{folder}/extensions/v{duckdb.__version__}/tpch.duckdb_extension"


def connect(database, memory, threads=1, read_only=True):
    link = duckdb.connect(database, read_only=read_only, config={
        "memory_limit": memory, "threads": threads, "temp_directory": "",
        "allow_unsigned_extensions": "true"})
    link.execute(f"LOAD '{extension()}'")
    return link


def main():
    link = connect(sys.argv[1], sys.argv[2])
    texts = dict(link.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    for line in sys.stdin:
        number = json.loads(line)["query"]
        rows = link.execute(texts[number]).fetchall() if number else []
        usage = resource.getrusage(resource.RUSAGE_SELF)
        sha256 = hashlib.sha256(canonical(rows).encode()).hexdigest()
        print(json.dumps({"sha256": sha256, "rows": len(rows),
                          "cpu_s": usage.ru_utime + usage.ru_stime}), flush=True)


if __name__ == "__main__":
    main()
