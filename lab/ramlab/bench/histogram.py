# SPDX-License-Identifier: GPL-2.0-or-later
"""Latencies by HdrHistogram. Runs with the Python of the cache's virtual environment, which has
the library.

Usage: histogram.py FILE... with a 32-bit number of microseconds for each request; prints a row for
each file.
"""

import array
import json
import sys

from hdrh.histogram import HdrHistogram

LONGEST = 60_000_000  # us


def main():
    rows = []
    for name in sys.argv[1:]:
        values = array.array("I", open(name, "rb").read())
        histogram = HdrHistogram(1, LONGEST, 3)
        for value in values:
            histogram.record_value(max(min(value, LONGEST), 1))
        rows.append(
            {
                "n": len(values),
                "mean_us": histogram.get_mean_value(),
                **{
                    f"p{p:g}_us": histogram.get_value_at_percentile(p)
                    for p in (50, 90, 99, 99.9, 100)
                },
            }
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
