# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's side: a test for each machine, which a guest runs and which reports as if run here."""

import dataclasses
import os
import re
import tempfile
import time

import pytest
from _pytest.runner import runtestprotocol
from _pytest.subtests import SubtestReport

from ramlab.architectures import NATIVE
from ramlab.common import FLAVOURS
from ramlab.kernel.bases import flavour_and_base, named_base
from ramlab.testing.boot import Boot, Ended
from ramlab.testing.machine import machines_of

GUEST_TESTS = "tests/guest/"
# Of one guest test without a mark of its own; the host allows twice as much.
TEST_SECONDS = 900
# A boot that no test began in is tried again, and QEMU's own bugs once more.
BOOT_ATTEMPTS, EMULATOR_ATTEMPTS = 2, 3
# One in 400 tests: emulated machines beside each other are slow at times
RERUNS, UNSTEADY_ALLOWED = 2, 4
ENDS = "RAMLAB_SESSION_ENDS"
FATAL = "RAMSLICE_FATAL"
STOCK = "debian-"
# Kernels beside those that most of the tests run on: their tests are for the long campaigns.
SECOND_BASES = ("debian-6.1", "debian-7")


class GuestTest(pytest.Item):
    """A test that a guest runs, in one machine."""

    def __init__(self, *, original, machine, **kwargs):
        super().__init__(**kwargs)
        self.original, self.machine = original, machine
        self.own_markers = list(original.own_markers)
        self.keywords.update({mark.name: mark for mark in self.own_markers})
        if machine:
            self.add_marker(pytest.mark.xdist_group(name=machine.key()))
            kind = "stock" if machine.kernel.startswith(STOCK) else (
                flavour_and_base(machine.kernel)[0])
            if kind in ("stock", "debug", "research", "kcsan"):
                self.add_marker(kind)
            if machine.kernel in SECOND_BASES or machine.slow:
                self.add_marker("slow")

    def runtest(self):
        raise RuntimeError(f"{self.nodeid} runs in a guest only")

    def reportinfo(self):
        return self.original.reportinfo()

    def seconds(self):
        """How long it may take, in the guest."""
        mark = self.get_closest_marker("timeout")
        if not mark:
            return TEST_SECONDS
        return float((mark.args or [mark.kwargs.get("timeout", 0)])[0] or 0)


def _on_base(machine, base):
    """The machine with a kernel of this source, if its kernel is one of ours."""
    if not base or machine.kernel not in FLAVOURS:
        return machine
    return dataclasses.replace(machine, kernel=named_base(base).suffixed(machine.kernel))


def _mib(size):
    """MiB of a size as machines have it: 512M or 2G."""
    return int(size[:-1]) * {"M": 1, "G": 1024}[size[-1]]


def _with_twin(machine):
    """The machine with as much memory again, which is its twin's; as it is, if it has a say in that
    itself, other nodes, or a kernel that is not ours.
    """
    has_say = any(word in machine.append for word in ("ramslice_cold=", "ramslice=off"))
    ours = machine.kernel in FLAVOURS and machine.arch == NATIVE.name
    # Memory that is a file is as large as that
    if has_say or not ours or machine.numa or machine.files:
        return machine
    number, unit = int(machine.mem[:-1]), machine.mem[-1]
    append, qemu = machine.append, machine.qemu
    # A zone of movable pages is at the end of memory, which the twin takes, and of the highest zone
    # alone: so that has to be larger
    if movable := re.search(r"movablecore=(\w+)", append):
        append = append.replace(movable[0],
                                f"movablecore={_mib(movable[1]) + _mib(machine.mem)}M")
        below = _mib(machine.mem) - _mib(movable[1])
        qemu = (*qemu, f"-machine max-ram-below-4g={below}M")
    append = f"{append} ramslice_cold={machine.mem}".strip()
    return dataclasses.replace(machine, mem=f"{2 * number}{unit}", append=append, qemu=qemu)


def _for_machines(item):
    """The tests that stand for a test which was collected: one for each of its machines."""
    machines = machines_of(item)
    if not machines:
        if item.nodeid.startswith(GUEST_TESTS):
            # Never on the host, where it would switch off this machine's memory.
            return [GuestTest.from_parent(item.parent, name=item.name, original=item, machine=None)]
        return [item]
    made = []
    for label, machine in machines.items():
        name = item.name
        if label:
            name = f"{name[:-1]}-{label}]" if name.endswith("]") else f"{name}[{label}]"
        if item.config.getoption("twin") and not item.get_closest_marker("no_twin"):
            machine = _with_twin(machine)
        machine = _on_base(machine, item.config.getoption("base"))
        made.append(GuestTest.from_parent(item.parent, name=name, original=item, machine=machine))
    return made


class GuestTests:
    """Runs guest tests: boots machines as they are needed, and hands their reports on."""

    def __init__(self, config):
        self.config = config
        self.boot, self.numbers = None, {}
        self.finished, self.hopeless = set(), {}
        if minutes := config.getoption("session_minutes"):
            # Workers count from the same beginning.
            os.environ.setdefault(ENDS, str(time.time() + 60 * minutes))
        self.ends = float(os.environ.get(ENDS) or 0)

    # --- collection ---

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self):
        report = yield
        if report.passed:
            report.result = [
                made for node in report.result
                for made in (_for_machines(node) if isinstance(node, pytest.Function) else [node])]
        return report

    @staticmethod
    def key(item):
        return item.machine.key() if has_machine(item) else item.nodeid

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, item):
        # The guest keeps the time of a test, and this side that of the guest.
        return True if isinstance(item, GuestTest) else None

    # --- running ---

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if not isinstance(item, GuestTest):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        last = (nextitem is None or not isinstance(nextitem, GuestTest)
                or self.key(nextitem) != self.key(item))
        began = time.monotonic()
        reports = self.run(item, last)
        _add_machine_seconds(reports, time.monotonic() - began)
        if self.config.getoption("rerun_unsteady") and _may_rerun(item, reports):
            reports = self.rerun(item, reports)
        self.finished.add(item)
        if last:
            self.end_boot()
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def run(self, item, last):
        """The test's reports, from the boot that is there or a new one."""
        if not item.machine:
            return _failed(item, "a test of a guest needs a machine: mark it with @vm(...)")
        if why := self.hopeless.get(self.key(item)):
            return _failed(item, why, never_rerun=True)
        for attempt in range(EMULATOR_ATTEMPTS):
            try:
                if not self.boot or item not in self.numbers:
                    self.start(item)
                return self.reports(item, self.boot.outcome(self.numbers[item], last))
            except Ended as end:
                boot, number = self.boot, self.numbers.get(item, 0)
                began = bool(boot) and boot.at >= 0
                broke = bool(boot) and boot.emulator_broke()
                earlier = boot.reports[number] if boot else []
                if end.why != "missing":
                    self.end_boot()
                if end.why == "late":
                    return _failed(item, end.text, never_rerun=True, not_run=True)
                if began or end.why == "missing":
                    return self.broken(item, earlier, end)
                if not broke and attempt + 1 >= BOOT_ATTEMPTS or attempt + 1 >= EMULATOR_ATTEMPTS:
                    self.hopeless[self.key(item)] = end.text
                    return _failed(item, end.text, never_rerun=True)
        raise AssertionError("unreachable")

    def start(self, item):
        """A new guest for the tests of this machine that are left."""
        self.end_boot()
        left = [one for one in self.of_machine(item) if one not in self.finished]
        self.boot = self.new_boot(left)
        self.numbers = {one: number for number, one in enumerate(left)}

    def of_machine(self, item):
        """All tests of the session that have this one's machine."""
        return [one for one in item.session.items
                if has_machine(one) and self.key(one) == self.key(item)]

    def new_boot(self, items):
        if self.ends and time.time() > self.ends:
            raise Ended("late", "not run: the session's minutes were over before its machine began")
        seconds = max(one.seconds() for one in items)
        return Boot(items[0].machine, [one.original.nodeid for one in items], seconds, self.config)

    def end_boot(self):
        if self.boot:
            self.boot.end()
        self.boot, self.numbers = None, {}

    def reports(self, item, serialised):
        """A test's reports. Where parts of it failed (subTest), so has the test."""
        reports = [self.report(item, data) for data in serialised]
        parts = [report for report in reports if isinstance(report, SubtestReport)]
        failed = sum(report.failed for report in parts)
        for report in reports:
            if failed and report.when == "call" and report.passed and report not in parts:
                report.outcome, report.longrepr = "failed", f"{failed} of its parts failed"
        return reports

    def report(self, item, data):
        """A guest's report as one of this session."""
        if data["outcome"] == "skipped" and isinstance(data["longrepr"], list):
            # JSON has no tuples.
            data = data | {"longrepr": tuple(data["longrepr"])}
        report = self.config.hook.pytest_report_from_serializable(config=self.config, data=data)
        report.nodeid, report.location = item.nodeid, item.location
        if report.failed:
            report.sections.append(("machine", item.machine.describe()))
        return report

    def broken(self, item, earlier, end):
        """Reports of a test that took its guest along: what it said before, and the failure."""
        reports = self.reports(item, earlier)
        reports = [report for report in reports if report.when == "setup" and report.passed]
        return _failed(item, end.text, never_rerun=True, before=reports)

    # --- once more ---

    def rerun(self, item, reports):
        """The test in two new boots: if it passes both, it is unsteady only."""
        # Tests that have their machine for themselves may need those before them.
        before = self.of_machine(item) if item.machine.fresh else [item]
        before = before[:before.index(item) + 1]
        for _ in range(RERUNS):
            boot = None
            try:
                boot = self.new_boot(before)
                again = self.reports(item, boot.outcome(len(before) - 1, True))
            except Ended as end:
                failed = _failed(item, end.text, never_rerun=True)
                return reports if end.why == "late" else failed
            finally:
                if boot:
                    boot.end()
            if any(report.failed for report in again):
                return again
        return _unsteady(again, reports)

    def pytest_sessionfinish(self):
        self.end_boot()

    def pytest_keyboard_interrupt(self):
        self.end_boot()

    def pytest_unconfigure(self):
        self.end_boot()


def _add_machine_seconds(reports, seconds):
    """Has the setup of a test last as long as the boot before it, and the end of its machine.

    Where a guest's clock counts instructions, its seconds become those of the host.
    """
    guest = sum(report.duration for report in reports if not isinstance(report, SubtestReport))
    for report in reports if guest > seconds else ():
        report.duration *= seconds / guest
    for report in reports[:1]:
        report.duration += max(0, seconds - guest)


def has_machine(item):
    """Whether it runs in a guest that can boot."""
    return isinstance(item, GuestTest) and item.machine is not None


def _failed(item, text, never_rerun=False, not_run=False, before=()):
    """Reports of a test that failed for a reason of its machine's."""
    marks = [("never_rerun", "yes")] * never_rerun + [("not_run", text)] * not_run
    reports = list(before)
    for when in ("setup", "call", "teardown")[len(reports):]:
        failed = when == "call"
        reports.append(pytest.TestReport(
            nodeid=item.nodeid, location=item.location, keywords=dict.fromkeys(item.keywords, 1),
            outcome="failed" if failed else "passed", longrepr=text if failed else None, when=when,
            user_properties=marks if failed else []))
    return reports


def _unsteady(passed, failed):
    """The reports of the pass, which say how it failed before."""
    why = next(report.longreprtext for report in failed if report.failed)
    for report in passed:
        if report.when == "call":
            report.user_properties = [*report.user_properties, ("unsteady", why)]
    return passed


def _may_rerun(item, reports):
    """Whether one failed in a way that timing may excuse."""
    excused = not item.get_closest_marker("never_rerun") and not any(
        name == "never_rerun" for report in reports for name, _ in report.user_properties)
    return excused and any(report.failed for report in reports)


class Unsteady:
    """Runs failed tests of the host again, and counts what was unsteady or not run."""

    def __init__(self, config):
        self.config = config
        self.unsteady, self.not_run = {}, []

    def pytest_runtest_protocol(self, item, nextitem):
        if not self.config.getoption("rerun_unsteady") or isinstance(item, GuestTest):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        with tempfile.NamedTemporaryFile("r", prefix="ramslice-fatal-") as fatal:
            # `ramlab vm` notes there that a kernel complained, or that a guest died or hung
            os.environ[FATAL] = fatal.name
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            excused = not fatal.read()
        os.environ.pop(FATAL)
        if excused and _may_rerun(item, reports):
            for _ in range(RERUNS):
                if hasattr(item, "_initrequest"):
                    item._initrequest()
                again = runtestprotocol(item, nextitem=nextitem, log=False)
                if any(report.failed for report in again):
                    break
            else:
                reports = _unsteady(again, reports)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_runtest_logreport(self, report):
        properties = dict(report.user_properties)
        if "unsteady" in properties:
            self.unsteady[report.nodeid] = properties["unsteady"]
        if "not_run" in properties:
            self.not_run.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        if len(self.unsteady) > UNSTEADY_ALLOWED and not hasattr(self.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for nodeid, why in self.unsteady.items():
            terminalreporter.section(f"unsteady: {nodeid}", sep="-")
            terminalreporter.write_line(why)
        if self.unsteady:
            terminalreporter.section(f"{len(self.unsteady)} unsteady (allowed: {UNSTEADY_ALLOWED})")
            # By name once more: a log is read from its end
            for nodeid in self.unsteady:
                terminalreporter.write_line(nodeid)
        if self.not_run:
            terminalreporter.section(
                f"{len(self.not_run)} not run: the session's minutes were over", red=True)
