# SPDX-License-Identifier: GPL-2.0-or-later
"""What a kernel complains of on its console: the one list that every reader of a console uses.

The patterns are such that grep -E understands them, too (lab/guest/checks.sh).

Data races are a complaint only if a function of ours is in the stack of either access: reports of
KCSAN name both. Upstream has many races on purpose or unfixed, and what we share with its code is
read and written by functions of ours, or marked where a hook is inlined (ramslice_touch()).
"""

import re

COMPLAINT = re.compile(
    r"\bWARNING: |\bBUG: |\bBUG at |KASAN: |KCSAN: |KFENCE: |UBSAN: |"
    r"possible (recursive|circular|irq lock)|"
    r"INFO: task .* blocked|\bOops\b|general protection|rcu: INFO: .*stall|INFO: rcu_|"
    r"Bad page state|Bad rss-counter|Kernel panic|unable to handle|INFO: lockdep|"
    r"refcount_t: |list_(add|del) corruption"
)
# Lines of user space that pass through the kernel log.
NOT_KERNEL = re.compile(r"virtme-(ng-)?init|udevd?\[|systemd(-\w+)?\[")

# A report of a race, from its first line to the end of its stacks; and a function of ours, or one
# of our modules, in these.
RACE = re.compile(r"BUG: KCSAN: ")
RACE_ENDS = re.compile(r"Reported by Kernel Concurrency Sanitizer|={30}")
OURS = "ramslice"

BEFORE, AFTER, SHOWN = 3, 35, 5


def is_complaint(line):
    return bool(COMPLAINT.search(line)) and not NOT_KERNEL.search(line)


class Reader:
    """Reads a console line by line."""

    def __init__(self):
        # Number of the line that comes next, and of the one that began the report of a race
        self.next, self.race = 0, None

    def complaint(self, line):
        """The number of the line that began a complaint which this line makes one; None without.
        """
        number, self.next = self.next, self.next + 1
        if RACE.search(line):
            self.race = number
        elif self.race is None or is_complaint(line):
            return number if is_complaint(line) else None
        if OURS in line:
            number, self.race = self.race, None
            return number
        if RACE_ENDS.search(line):
            self.race = None
        return None


def excerpt(lines):
    """The first complaints, each with the lines around it; empty if there is none."""
    reader = Reader()
    hits = [n for n in map(reader.complaint, lines) if n is not None][:SHOWN]
    shown = {m for n in hits for m in range(max(0, n - BEFORE), min(len(lines), n + AFTER))}
    return [lines[n] for n in sorted(shown)]
