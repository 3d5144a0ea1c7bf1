# SPDX-License-Identifier: GPL-2.0-or-later
"""What a kernel complains of on its console: the one list that every reader of a console uses.

The patterns are such that grep -E understands them, too (lab/guest/checks.sh).

Data races are a complaint only if a function of ours makes one of the accesses, itself or by a
function of the kernel's library: reports of KCSAN name both. Upstream has many races on purpose or
unfixed, of which some are met wherever a function sleeps or takes a lock. What we share with its
code is read and written by functions of ours, or marked where a hook is inlined (ramslice_touch()).
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

# Where the machine goes down, at the latest: its other processors still print what they did before.
# And what Linux warns of then by itself: it breaks virtio devices first, and the balloon's driver
# takes no answer to a report of free pages for a bug.
GOES_DOWN = re.compile(r"ramlab: all tests ended|Preparing to enter system sleep state S5|reboot: ")
WHILE_GOING_DOWN = re.compile(r"WARNING: .* virtballoon_free_page_report\+")

# A report of a race, from its first line to the end of its stacks; the line before a stack; and one
# of a stack, with its function and the module that this is in.
RACE = re.compile(r"BUG: KCSAN: ")
RACE_ENDS = re.compile(r"Reported by Kernel Concurrency Sanitizer|={30}")
ACCESS = re.compile(r"\b(read|write|read-write)( \(\w+\))? to 0x[0-9a-f]+ of \d+ bytes by ")
FRAME = re.compile(r" ([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+( \[\w+\])?")
# Functions that access what their callers hand them
LIBRARY = re.compile(r"_*(mem(cpy|move|set|cmp|chr)|str\w*cpy|str\w*cmp|strn?len|find_\w*bit|"
                     r"bitmap_|list_|sort|copy_(to|from)_|kasan_|kcsan_|tsan_)")
OURS = "ramslice"

BEFORE, AFTER, SHOWN = 3, 35, 5


def is_complaint(line):
    return bool(COMPLAINT.search(line)) and not NOT_KERNEL.search(line)


class Reader:
    """Reads a console line by line."""

    def __init__(self):
        # Number of the line that comes next, and of the one that began the report of a race
        self.next, self.race = 0, None
        self.goes_down = False
        # Whether the function that makes an access is yet to come
        self.access = False

    def complaint(self, line):
        """The number of the line that began a complaint which this line makes one; None without.
        """
        number, self.next = self.next, self.next + 1
        self.goes_down = self.goes_down or bool(GOES_DOWN.search(line))
        if self.goes_down and WHILE_GOING_DOWN.search(line):
            return None
        if RACE.search(line):
            self.race, self.access = number, False
        elif self.race is None or is_complaint(line):
            return number if is_complaint(line) else None
        elif RACE_ENDS.search(line):
            self.race = None
        elif ACCESS.search(line):
            self.access = True
        elif self.access and (frame := FRAME.search(line)):
            self.access = bool(LIBRARY.match(frame[1]))
            if OURS in frame[0]:
                number, self.race = self.race, None
                return number
        return None


def excerpt(lines):
    """The first complaints, each with the lines around it; empty if there is none."""
    reader = Reader()
    hits = [n for n in map(reader.complaint, lines) if n is not None][:SHOWN]
    shown = {m for n in hits for m in range(max(0, n - BEFORE), min(len(lines), n + AFTER))}
    return [lines[n] for n in sorted(shown)]
