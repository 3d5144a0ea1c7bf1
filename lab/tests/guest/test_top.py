# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice top` on a terminal: what it shows while slices change, and the terminal it leaves
behind.

tmux is the terminal.
"""

import json
import os
import re
import signal
import subprocess
import time

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import Memory
from ramlab.guest.terminal import PATIENCE, PROGRAM, TopTest, program_pid
from ramlab.pytest_vm import vm

pytestmark = vm(mem="1G", disk="1G", append="ramslice=32M")


class Top(TopTest):
    def setUp(self):
        self.device = dev.Device()
        harness.wake(self.device)

    def tearDown(self):
        self.device.request("online_all")
        self.device.close()

    def test_the_screen_follows_the_slices(self):
        terminal = self.terminal("--profile thesis-parc --granularity slice --time-factor 15")
        terminal.wait_for(r"in \d+ s +0 +0 +0 ")
        harness.compact(self.device)
        nr = len(harness.ids(self.device, dev.OFFLINE))
        self.assertGreater(nr, 5)
        screen = terminal.wait_for(rf"in \d+ s +{nr} +\d+ +0 ")
        self.assertRegex(screen, "╱╱╱╱", "offline slices are hatched")
        self.assertRegex(screen, r"saves [1-9][0-9.]* (to [0-9.]+ )?mW now")
        with Memory(400) as memory:
            memory.touch()
            screen = terminal.wait_for(r"in \d+ s +\d+ +(\d+) +[1-9]\d* ")
        self.assertIn("no daemon runs", screen)
        terminal.keys("q")
        self.assertEqual(terminal.end(), (0, True))

    def test_keys_select_and_explain_a_slice_on_any_screen_size(self):
        terminal = self.terminal()
        terminal.wait_for("q quit")
        terminal.keys("End")
        last = self.device.snapshot()[-1].id
        terminal.wait_for(rf"> *{last} ")
        terminal.keys("Home", "Enter")
        terminal.wait_for("slice 0 at 0x0: It can never be emptied: ")
        for width, height in ((40, 10), (20, 4), (200, 60)):
            terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
            screen = terminal.wait_for("q quit.*\n*$")
            self.assertLessEqual(max(map(len, screen.splitlines())), width)
        terminal.keys("p")
        terminal.wait_for("paused")
        terminal.keys("?")
        terminal.wait_for("Ctrl-C +quit")
        terminal.keys("C-c")
        self.assertEqual(terminal.end(), (0, True))

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            terminal = self.terminal()
            terminal.wait_for("q quit")
            os.kill(program_pid(), number)
            self.assertEqual(terminal.end(), (0, True))
            terminal.close()

    def test_no_color_is_obeyed_and_a_dumb_terminal_gets_lines(self):
        terminal = self.terminal(NO_COLOR="1")
        terminal.wait_for("q quit")
        self.assertNotRegex(terminal.screen(colours=True), r"\x1b\[[0-9;]*[34]8;")
        terminal.keys("q")
        self.assertEqual(terminal.end(), (0, True))
        terminal = self.terminal("--count 2", TERM="dumb")
        self.assertEqual(terminal.end(), (0, True))
        self.assertEqual(len(re.findall(r"\d s: memory: ", terminal.screen())), 2)

    def test_a_kernel_without_ramslice_is_named(self):
        done = subprocess.run(
            [PROGRAM, "top", "--once", "--interval", "100ms", "--backend", "stock"],
            text=True,
            capture_output=True,
        )
        # Where memory hotplug is not built in, it says so.
        if done.returncode == 0:
            self.assertIn("This kernel is without ramslice", done.stdout)
        else:
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("hotplug", done.stderr)

    def test_json_agrees_with_the_kernels_counters(self):
        before = harness.woken_by_demand(self.device)
        top = subprocess.Popen(
            [PROGRAM, "top", "--json", "--interval", "500ms"], text=True, stdout=subprocess.PIPE
        )
        self.addCleanup(top.kill)
        first = json.loads(top.stdout.readline())
        self.assertNotIn("last", first)
        harness.compact(self.device)
        with Memory(400) as memory:
            memory.touch()
            woken = harness.woken_by_demand(self.device) - before
            self.assertGreater(woken, 0)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                document = json.loads(top.stdout.readline())
                if document["since_start"]["woken_by_demand"] >= woken:
                    break
            else:
                self.fail(f"{woken} slices woke by demand: {document['since_start']}")
        top.send_signal(signal.SIGINT)
        self.assertEqual(top.wait(PATIENCE), 0)
