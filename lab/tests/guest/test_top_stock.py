# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice top` on a terminal of a stock kernel: changes by memory hotplug, and the terminal it
leaves.

tmux is the terminal.
"""

import json
import os
import re
import signal
import subprocess

from ramlab.guest.hotplug_blocks import off, ramslice
from ramlab.guest.terminal import PROGRAM, TopTest, program_pid
from ramlab.pytest_vm import vm

NOTE = "This kernel is without ramslice: only ramsliced (on) or `ramslice guard` wakes."


pytestmark = vm(kernel="debian-6.12", mem="2G")


class StockTop(TopTest):
    def setUp(self):
        self.addCleanup(ramslice, "online", "--all")

    def test_the_screen_follows_changes_by_other_programs(self):
        terminal = self.terminal("--profile thesis-parc --granularity slice --time-factor 15")
        # One screen may show parts of two snapshots, so the test waits for all it looks for
        screen = terminal.wait_for(r"(?s)in \d+ s +0 +0 +0 .*no daemon runs")
        self.assertIn(NOTE, screen.splitlines(), "on one line")
        self.assertEqual(ramslice("compact", "--max-slices", 3)["outcome"]["slices_done"], 3)
        # The outcome is known a moment before the next snapshot
        screen = terminal.wait_for(r"(?s)384 MiB offline.*in \d+ s +3 +0 +0 ")
        self.assertRegex(screen, "╱╱╱╱", "offline slices are hatched")
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

    def test_keys_explain_a_slice_on_any_screen_size(self):
        terminal = self.terminal()
        terminal.wait_for("q quit")
        terminal.keys("Home", "Enter")
        terminal.wait_for("slice 0 at 0x0: It can never be emptied: ")
        for width, height, shown in (
            (40, 10, "per second"),
            (20, 4, "1.9. GiB in"),
            (200, 60, "unmovable  reason"),
        ):
            terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
            screen = terminal.wait_for(rf"(?s){shown}.*q quit.*\n*$")
            self.assertLessEqual(max(map(len, screen.splitlines())), width)
        os.kill(program_pid(), signal.SIGTERM)
        self.assertEqual(terminal.end(), (0, True))

    def test_no_color_is_obeyed_and_a_dumb_terminal_gets_lines(self):
        ramslice("compact", "--max-slices", 1)
        terminal = self.terminal(NO_COLOR="1")
        screen = terminal.wait_for("q quit")
        self.assertNotRegex(terminal.screen(colours=True), r"\x1b\[[0-9;]*[34]8;")
        self.assertRegex(screen, "////", "offline slices have a letter")
        terminal.keys("q")
        self.assertEqual(terminal.end(), (0, True))
        terminal = self.terminal("--count 2", TERM="dumb")
        self.assertEqual(terminal.end(), (0, True))
        self.assertEqual(len(re.findall(r"\d s: memory: ", terminal.screen())), 2)

    def test_json_counts_each_slice_once(self):
        top = subprocess.Popen(
            [PROGRAM, "top", "--json", "--interval", "200ms"], text=True, stdout=subprocess.PIPE
        )
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
