# SPDX-License-Identifier: GPL-2.0-or-later
"""What a kernel complains of on its console: the one list that every reader of a console uses.

The patterns are such that grep -E understands them, too (lab/guest/checks.sh).
"""

import re

COMPLAINT = re.compile(
    r"\bWARNING: |\bBUG: |\bBUG at |KASAN: |KFENCE: |UBSAN: |"
    r"possible (recursive|circular|irq lock)|"
    r"INFO: task .* blocked|\bOops\b|general protection|rcu: INFO: .*stall|INFO: rcu_|"
    r"Bad page state|Bad rss-counter|Kernel panic|unable to handle|INFO: lockdep|"
    r"refcount_t: |list_(add|del) corruption"
)
# Lines of user space that pass through the kernel log.
NOT_KERNEL = re.compile(r"virtme-(ng-)?init|udevd?\[|systemd(-\w+)?\[")

BEFORE, AFTER, SHOWN = 3, 35, 5


def is_complaint(line):
    return bool(COMPLAINT.search(line)) and not NOT_KERNEL.search(line)


def excerpt(lines):
    """The first complaints, each with the lines around it; empty if there is none."""
    hits = [n for n, line in enumerate(lines) if is_complaint(line)][:SHOWN]
    shown = {m for n in hits for m in range(max(0, n - BEFORE), min(len(lines), n + AFTER))}
    return [lines[n] for n in sorted(shown)]
