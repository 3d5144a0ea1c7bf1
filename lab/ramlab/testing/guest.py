# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's side: runs the tests that the host names and streams their reports.

Each event is a line of JSON after a mark, on a descriptor that the host reads. What the kernel
says is on the console: a line there at each test's beginning says whose complaint follows.
"""

import json
import os

import pytest
from _pytest.subtests import SubtestReport

MARK = "\x1e"
BEGIN_LINE, END_LINE = "ramlab: test {} begins", "ramlab: all tests ended"


class GuestReporter:
    """Chooses the tests in the host's order, and reports them."""

    def __init__(self, config):
        self.config = config
        self.fd = int(os.environ["RAMLAB_REPORT_FD"])
        with open(os.environ["RAMLAB_ITEMS"], encoding="utf-8") as source:
            self.wanted = json.load(source)
        self.number = {nodeid: n for n, nodeid in enumerate(self.wanted)}
        self.console = os.environ.get("RAMLAB_KMSG", "/dev/kmsg")

    def send(self, kind, **what):
        data = (MARK + json.dumps({"event": kind, **what}, default=str) + "\n").encode()
        while data:
            data = data[os.write(self.fd, data):]

    def say(self, line):
        with open(self.console, "w", encoding="utf-8") as sink:
            sink.write(f"<6>{line}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        found = {item.nodeid: item for item in items}
        items[:] = [found[nodeid] for nodeid in self.wanted if nodeid in found]
        if missing := [nodeid for nodeid in self.wanted if nodeid not in found]:
            self.send("missing", items=[self.number[nodeid] for nodeid in missing])

    def pytest_collectreport(self, report):
        if report.failed:
            self.send("uncollected", text=report.longreprtext)

    def pytest_runtest_logstart(self, nodeid):
        self.say(BEGIN_LINE.format(self.number[nodeid]))
        self.send("begin", number=self.number[nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        if call.excinfo and getattr(call.excinfo.value, "never_rerun", False):
            item.user_properties.append(("never_rerun", "yes"))
        return (yield)

    def pytest_runtest_logreport(self, report):
        if isinstance(report, SubtestReport) and report.passed:
            return
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.send("report", number=self.number[report.nodeid], report=data)

    def pytest_runtest_logfinish(self, nodeid):
        self.send("end", number=self.number[nodeid])

    def pytest_sessionfinish(self):
        self.say(END_LINE)
