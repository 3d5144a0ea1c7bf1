# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures that a second run must not excuse, and how programs report theirs."""

import json

from _ramslice import AccountingError, ContentsError
from _ramslice import CorruptionError as NeverRerunError

__all__ = ["AccountingError", "ContentsError", "NeverRerunError", "report"]


def report(problems, summary):
    """Prints each problem, then the summary as a line of JSON; returns the exit status."""
    for problem in problems:
        print(f"FAILED: {problem}")
    print(json.dumps(summary))
    return 1 if problems else 0
