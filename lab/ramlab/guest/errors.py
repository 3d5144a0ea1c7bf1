# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures that a second run must not excuse: they are never a matter of timing."""


class NeverRerunError(AssertionError):
    """The runner reports the failure and does not run the test again."""

    never_rerun = True


class ContentsError(NeverRerunError):
    """A byte is not what was written, or something wrote to an offline slice."""


class AccountingError(NeverRerunError):
    """The counters differ from what they count."""
