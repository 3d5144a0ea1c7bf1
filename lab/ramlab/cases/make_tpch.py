# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a data base of TPC-H and asks it each query: make_tpch.py DATABASE WORK. Prints the
expected answers as JSON.

Three runs must agree, and where the extension has an answer for this scale factor, with that, too.
"""

import hashlib
import json
import sys
import time

from ramlab.guest import case_tpch


def near(ours, theirs):
    """Whether two answers are the same but for rounding."""
    if len(ours) != len(theirs):
        return False
    for row, wanted in zip(ours, theirs):
        for a, b in zip(row, wanted):
            try:
                if abs(float(a) - float(b)) > 0.01 * max(1, abs(float(b)) / 1e4):
                    return False
            except (TypeError, ValueError):
                if str(a) != str(b):
                    return False
    return True


def main():
    database, work = sys.argv[1], json.loads(sys.argv[2])
    link = case_tpch.connect(database, "2GB", read_only=False)
    link.execute(f"CALL dbgen(sf={work['factor']})")
    link.execute("CHECKPOINT")
    link.close()
    link = case_tpch.connect(database, "2GB")
    texts = dict(link.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    known = dict(link.execute("SELECT query_nr, answer FROM tpch_answers() WHERE scale_factor = ?",
                              [work["factor"]]).fetchall())
    expected, times, compared = {}, [], 0
    for _ in range(3):
        began = time.process_time()
        for number in work["queries"]:
            rows = link.execute(texts[number]).fetchall()
            sha256 = hashlib.sha256(case_tpch.canonical(rows).encode()).hexdigest()
            if expected.setdefault(str(number), sha256) != sha256:
                sys.exit(f"query {number} has two answers")
            if number in known:
                theirs = [line.split("|") for line in known[number].strip().splitlines()[1:]]
                if not near(rows, theirs):
                    sys.exit(f"query {number}: not the answer of the extension")
                compared += 1
        times.append(time.process_time() - began)
    print(
        json.dumps(
            {"expected": expected, "native_cpu_s": times, "compared_with_extension": compared}
        )
    )


if __name__ == "__main__":
    main()
