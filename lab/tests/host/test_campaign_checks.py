# SPDX-License-Identifier: GPL-2.0-or-later
"""What guests of the long campaigns count and compare, checked without their hours."""

import types

import pytest

from ramlab.guest import case_work, daemon_programs

EXPECTED = {"files": 3, "sum": "a1"}


def test_a_result_as_expected_is_taken():
    case_work.compare(dict(EXPECTED), EXPECTED)


@pytest.mark.parametrize("found, words", [
    (EXPECTED | {"files": 4}, "1 of 2 differ, files first: 4 instead of 3"),
    ({"files": 3}, "1 of 2 differ, sum first: None instead of a1"),
    (EXPECTED | {"more": 1}, "1 of 2 differ, more first: 1 instead of None"),
    ({}, "2 of 2 differ"),
])
def test_a_wrong_result_of_a_case_study_is_refused_by_name(found, words):
    with pytest.raises(case_work.Wrong, match=words):
        case_work.compare(found, EXPECTED)


@pytest.mark.parametrize("expected", [EXPECTED, {"digest": "x"}, {"rows": 0}])
def test_a_spoiled_result_is_a_wrong_one(expected):
    with pytest.raises(case_work.Wrong, match=f"1 of {len(expected)} differ"):
        case_work.compare(expected, case_work.spoiled(expected))


class Daemon:
    """One that is killed and started, and ends by itself before each third kill."""

    def __init__(self, folder, killer_done, last):
        self.folder, self.killer_done, self.last = folder, killer_done, last
        self.signals = []
        self.process = types.SimpleNamespace(poll=lambda: 1 if len(self.signals) % 3 == 2 else None)

    def end(self, number):
        self.signals.append(number)

    def start(self):
        if len(self.signals) == self.last:
            self.killer_done().set()


def test_each_kill_of_the_daemon_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(daemon_programs, "KILL_S", (0, 0))
    killer = daemon_programs.Killer(Daemon(tmp_path, lambda: killer.done, 7), seed=1)
    killer.run()
    assert killer.daemon.signals == [9] * 7
    assert (killer.kills, killer.ended, killer.unsaved) == (7, 2, 7)


def test_a_kill_after_the_state_was_saved_is_told_from_others(tmp_path, monkeypatch):
    monkeypatch.setattr(daemon_programs, "KILL_S", (0, 0))
    (tmp_path / "state.json").touch()
    killer = daemon_programs.Killer(Daemon(tmp_path, lambda: killer.done, 2), seed=1)
    killer.run()
    assert (killer.kills, killer.unsaved) == (2, 0)
