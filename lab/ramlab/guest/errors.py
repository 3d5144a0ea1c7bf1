# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures that a second run must not excuse, and how programs report theirs."""

import json


class NeverRerunError(AssertionError):
    """The runner reports the failure and does not run the test again."""

    never_rerun = True


class ContentsError(NeverRerunError):
    """A byte is not what was written, or something wrote to an offline slice."""


class AccountingError(NeverRerunError):
    """The counters differ from what they count."""


def report(problems, summary):
    """Prints each problem, then the summary as a line of JSON; returns the exit status."""
    for problem in problems:
        print(f"FAILED: {problem}")
    print(json.dumps(summary))
    return 1 if problems else 0
