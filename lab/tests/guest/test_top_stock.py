#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""ramslice top on a real terminal of a kernel that nobody patched: what memory hotplug has switched, and the terminal it leaves.

RAMSLICE_PROGRAM is the program. tmux is the terminal. Wants 2 GiB of memory in blocks of 128 MiB.
"""

import json
import os
import re
import signal
import subprocess

from ramlab.guest import harness
from ramlab.guest.terminal import PROGRAM, TopTest, program_pid
from test_stock import off, ramslice

NOTE = "This kernel is without ramslice: only ramsliced (on) or `ramslice guard` wakes."


class Top(TopTest):
    def setUp(self):
        self.addCleanup(ramslice, "online", "--all")

    def test_what_others_switch_is_seen(self):
        terminal = self.terminal("--profile thesis-parc --granularity slice --time-factor 15")
        # A screen may be half of one look and half of the next: all of what is looked for is waited for
        screen = terminal.wait_for(r"(?s)in \d+ s +0 +0 +0 .*no daemon runs")
        self.assertIn(NOTE, screen.splitlines(), "as one line")
        self.assertEqual(ramslice("compact", "--max-slices", 3)["outcome"]["slices_done"], 3)
        # What was done is known a moment before slices are looked at again
        screen = terminal.wait_for(r"(?s)384 MiB offline.*in \d+ s +3 +0 +0 ")
        self.assertRegex(screen, "╱╱╱╱", "slices that are off are hatched")
        self.assertRegex(screen, r"saves [1-9][0-9.]* (to [0-9.]+ )?mW now")
        last = max(off())
        terminal.keys("End")
        for _ in range(len(ramslice("status")["snapshot"]["slices"]) - 1 - last):
            terminal.keys("Up")
        terminal.wait_for(rf"slice {last} at 0x[0-9a-f]+: It is off. It has been offline for \d+ s")
        ramslice("online", "--all")
        screen = terminal.wait_for(r"(?s) 0 B offline.*in \d+ s +3 +3 +0 ")
        self.assertLessEqual(max(map(len, screen.splitlines())), 80)
        terminal.keys("q")
        self.assertEqual(terminal.end(), (0, True))

    def test_a_slice_is_explained_and_a_small_screen_shows_what_happens(self):
        terminal = self.terminal()
        terminal.wait_for("q quit")
        terminal.keys("Home", "Enter")
        terminal.wait_for("slice 0 at 0x0: It can never be emptied: ")
        for width, height, shown in ((40, 10, "per second"), (20, 4, "1.9. GiB in"), (200, 60, "unmovable  reason")):
            terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
            screen = terminal.wait_for(rf"(?s){shown}.*q quit.*\n*$")
            self.assertLessEqual(max(map(len, screen.splitlines())), width)
        os.kill(program_pid(), signal.SIGTERM)
        self.assertEqual(terminal.end(), (0, True))

    def test_no_color_has_none_and_a_dumb_terminal_gets_lines(self):
        ramslice("compact", "--max-slices", 1)
        terminal = self.terminal(NO_COLOR="1")
        screen = terminal.wait_for("q quit")
        self.assertNotRegex(terminal.screen(colours=True), r"\x1b\[[0-9;]*[34]8;")
        self.assertRegex(screen, "////", "slices that are off have a letter")
        terminal.keys("q")
        self.assertEqual(terminal.end(), (0, True))
        terminal = self.terminal("--count 2", TERM="dumb")
        self.assertEqual(terminal.end(), (0, True))
        self.assertEqual(len(re.findall(r"\d s: memory: ", terminal.screen())), 2)

    def test_json_counts_each_slice_once(self):
        top = subprocess.Popen([PROGRAM, "top", "--json", "--interval", "200ms"], text=True, stdout=subprocess.PIPE)
        self.addCleanup(top.stdout.close)
        self.addCleanup(top.wait)
        self.addCleanup(top.kill)
        first = json.loads(top.stdout.readline())
        self.assertEqual((first["notes"], "last" in first), ([NOTE], False))
        ramslice("compact", "--max-slices", 2)
        seen = 0
        while seen < 2:
            document = json.loads(top.stdout.readline())
            seen += document.get("last", {}).get("slices_off", 0)
        self.assertEqual((seen, document["since_start"]["slices_off"]), (2, 2))


if __name__ == "__main__":
    harness.main()
