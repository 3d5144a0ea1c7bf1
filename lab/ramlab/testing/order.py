# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of tests: what took longest in earlier runs begins first.

So no worker is idle at the end. The cache keeps the longest time that each machine with its tests,
and each test of the host, took. Machines without a kept time begin before all others, those with
most tests first.
"""

import collections
import json
import os

import pytest

from ramlab.common import CACHE

FILE = CACHE / "test-seconds.json"
# Workers have to agree on the order: they get the seconds as the first process read them.
KNOWN = "RAMLAB_TEST_SECONDS"
# What took less is not worth a place of its own.
LEAST_SECONDS = 2


class LongestFirst:
    """Sorts the tests, and keeps how long they took.

    key(item) is equal for tests of one machine; has_machine(item): whether one boots.
    """

    def __init__(self, key, has_machine, keep=True):
        self.key, self.has_machine, self.keep = key, has_machine, keep
        if KNOWN not in os.environ:
            os.environ[KNOWN] = FILE.read_text() if FILE.exists() else "{}"
        try:
            self.known = json.loads(os.environ[KNOWN])
        except ValueError:
            self.known = {}
        self.seconds = collections.Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        """Tests of a machine one after the other, in the order in which they were found."""
        count, first = collections.Counter(), {}
        for number, item in enumerate(items):
            count[self.key(item)] += 1
            first.setdefault(self.key(item), number)

        def place(item):
            key = self.key(item)
            known = self.known.get(key, 0)
            # Guests of which nothing is known may take minutes
            unknown = self.has_machine(item) and key not in self.known
            return not unknown, -known, -count[key], first[key]

        items.sort(key=place)

    def pytest_runtest_logreport(self, report):
        # xdist appends a test's group to its name
        name, _, group = report.nodeid.rpartition("@")
        self.seconds[group if name else report.nodeid] += report.duration

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workerinput") or not self.seconds or not self.keep:
            return
        took = {key: round(seconds, 1) for key, seconds in self.seconds.items()
                if seconds >= LEAST_SECONDS}
        # A part of a machine's tests says nothing of all of them: the longest stays
        merged = {key: max(took.get(key, 0), self.known.get(key, 0))
                  for key in self.known | took}
        FILE.parent.mkdir(parents=True, exist_ok=True)
        begun = FILE.with_name(f"{FILE.name}.{os.getpid()}")
        begun.write_text(json.dumps(merged, indent=1, sort_keys=True))
        begun.replace(FILE)
