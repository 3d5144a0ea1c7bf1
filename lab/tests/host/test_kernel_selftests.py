# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own tests of mm, hotplug, DAMON and control groups end as on the unpatched kernel,
also with slices off.
"""

import json
import re
import subprocess

import pytest

from ramlab.common import RAMLAB, ROOT
from ramlab.guest import selftests as guest
from ramlab.kernel import selftests
from ramlab.kernel.selftests import AGAIN, chosen, differences, judge, kept, place, read_list

PASSED = {"status": "passed", "report": ["ok 1 one"]}
FAILED = {"status": "failed", "report": ["not ok 1 one"]}
LATE = {"status": "time-out", "report": []}


def test_what_ends_alike_differs_in_nothing():
    assert differences({"mm/a": PASSED, "mm/b": FAILED}, {"mm/a": PASSED, "mm/b": FAILED}) == {}


@pytest.mark.parametrize("one, two, words", [
    ({"mm/a": PASSED}, {}, "ran on one of them only: stock"),
    ({}, {"mm/a": PASSED}, "ran on one of them only: patched"),
    ({"mm/a": PASSED}, {"mm/a": FAILED}, "stock: passed"),
    ({"mm/a": PASSED}, {"mm/a": PASSED | {"report": ["ok 1 two"]}}, "+ok 1 two"),
    # How far it got is chance, but that it did not end is none
    ({"mm/a": PASSED}, {"mm/a": LATE}, "patched: time-out"),
])
def test_each_kind_of_difference_is_named(one, two, words):
    found = differences(one, two)
    assert list(found) == ["mm/a"] and words in found["mm/a"]


def runs(**changed):
    """What guests report of cgroup/c with two verdicts; a run by its name, with _ for a blank."""
    names = ("stock", "patched", "slices off", AGAIN)
    return {name: {"results": {"c": changed.get(name.replace(" ", "_"), ended("ok", "ok"))},
                   "problems": []} for name in names}


def ended(low, high):
    """A test of two verdicts, whose status follows from them."""
    status = "pass" if low == high == "ok" else "fail (1)"
    return {"status": status, "report": [f"{low}: memcg_low", f"{high}: memcg_high"]}


def test_runs_that_end_alike_have_no_failure():
    assert judge(runs()) == ({}, [])


@pytest.mark.parametrize("name", ["patched", "slices_off"])
def test_a_verdict_of_a_patched_kernel_that_differs_fails(name):
    flaky, (failure,) = judge(runs(**{name: ended("ok", "not ok")}))
    assert not flaky and "+not ok: memcg_high" in failure


def test_a_flaky_verdict_is_named_and_not_compared():
    flaky, failures = judge(runs(stock_again=ended("not ok", "ok"), patched=ended("not ok", "ok")))
    assert "+not ok: memcg_low" in flaky["c"] and not failures


def test_a_flaky_verdict_does_not_hide_another_one_of_the_same_test():
    flaky, (failure,) = judge(runs(stock_again=ended("not ok", "ok"),
                                   slices_off=ended("not ok", "not ok")))
    assert list(flaky) == ["c"]
    assert "+not ok: memcg_high" in failure and "memcg_low" not in failure


@pytest.mark.parametrize("again", [
    {"status": "fail (1)", "report": ended("ok", "ok")["report"]},
    {"status": "pass", "report": ["ok: memcg_low"]},
    {"status": "time-out", "report": []},
])
def test_what_is_flaky_without_a_verdict_to_blame_is_not_compared_at_all(again):
    flaky, failures = judge(runs(stock_again=again, patched=ended("not ok", "not ok")))
    assert list(flaky) == ["c"] and not failures


def test_what_differs_on_the_unpatched_kernel_in_one_of_many_runs_is_flaky():
    """damon_nr_regions passes once in four: twice in a row it may well end alike."""
    found = runs(patched=ended("ok", "not ok"))
    assert len(judge(found)[1]) == 1
    found |= {f"{AGAIN} {number}": {"results": {"c": ended("ok", "ok")}, "problems": []}
              for number in (1, 2)}
    assert len(judge(found)[1]) == 1, "alike in each run is not flaky"
    found[f"{AGAIN} 2"]["results"]["c"] = ended("ok", "not ok")
    flaky, failures = judge(found)
    assert "+not ok: memcg_high" in flaky["c"] and not failures


def test_problems_of_guests_with_the_patched_kernel_fail():
    found = runs()
    found["slices off"]["problems"] = ["not everything wakes"]
    assert judge(found)[1] == ["slices off: not everything wakes"]


def test_reports_name_what_is_skipped():
    text = ("TAP version 13\nok 1 test_memcg_min\nok 2 # SKIP test_memcg_sock\n"
            "not ok 3 test_memcg_low\nok 4 one more # SKIP no swap\n")
    assert guest.report(text) == ["ok: test_memcg_min", "skip: test_memcg_sock",
                                  "not ok: test_memcg_low", "skip: one more"]


def test_a_test_that_leaves_everything_out_says_why():
    text = "TAP version 13\n1..0 # SKIP zswap isn't configured\n\n"
    assert guest.report(text) == ["skip: zswap isn't configured"]
    assert guest.last_line(text) == "1..0 # SKIP zswap isn't configured"
    assert guest.last_line("") == ""


def test_names_pick_tests_or_folders():
    tests = [{"name": name, "set": kind, "command": [command]} for name, kind, command in [
        ("cow", "all", "./cow"), ("mlock", "quick", "./mlock"), ("sysfs", "all", "damon/sysfs.sh")]]

    def names(*arguments):
        return [test["name"] for test in chosen(tests, *arguments)]

    assert names([], False) == ["mlock"] and names([], True) == ["cow", "mlock", "sysfs"]
    assert names(["damon"], True) == ["sysfs"] and names(["mm"], False) == ["mlock"]
    assert names(["cow"], False) == ["cow"] and names(["damon", "mlock"], False) == ["mlock"]
    with pytest.raises(SystemExit):
        chosen(tests, ["nonesuch"], True)


def test_every_test_of_the_list_is_in_a_folder_that_is_built():
    tests, left_out = read_list()
    folders = {place(test)[0] for test in tests}
    assert folders == set(selftests.FOLDERS)
    names = [test["name"] for test in tests]
    assert len(set(names)) == len(names) and not set(names) & set(left_out)


def test_a_list_that_keeps_memory_awake_for_no_test_of_its_own_is_refused(monkeypatch, tmp_path,
                                                                          capsys):
    path = tmp_path / "selftests.list"
    path.write_text("quick cow 60 0 ./cow\nawake cow 320: reads once\n")
    monkeypatch.setattr(selftests, "LIST", path)
    (test,), _ = read_list()
    assert test["awake_mib"] == 320 and test["why_awake"] == "reads once"
    path.write_text("quick cow 60 0 ./cow\nawake cov 320: reads once\n")
    with pytest.raises(SystemExit):
        read_list()
    assert "memory awake for no test of the list: cov" in capsys.readouterr().err


def test_kept_results_go_by_folder_and_say_why_a_test_was_skipped():
    stock = {
        "cow": {"folder": "mm", "status": "pass", "report": ["ok: one"], "last_line": "done",
                "awake_mib": 320},
        "zswap": {"folder": "cgroup", "status": "skip", "report": [], "last_line": "no zswap"},
    }
    found = kept({"stock": stock, "patched": {"cow": PASSED}}, ["mm", "cgroup"])
    assert found == {
        "mm": {"cow": {"verdicts": 1, "stock": "pass", "patched": "passed", "awake_mib": 320}},
        "cgroup": {"zswap": {"verdicts": 0, "stock": "skip", "patched": "did not run",
                             "why": "no zswap"}},
    }


def test_a_run_stands_for_another_one_of_the_same_kernel_and_of_tests_among_its_own(tmp_path):
    path, made_of = tmp_path / "results.json", {"kernel": "stock-1", "mem": "2G"}
    path.write_text(json.dumps({"made_of": made_of, "results": {"a": PASSED, "b": FAILED},
                                "problems": []}))

    def found(names, **changed):
        return selftests.finished(path, made_of | changed, [{"name": name} for name in names])

    assert found(["b"])["results"] == {"b": FAILED}
    assert found(["a", "b"])["results"] == {"a": PASSED, "b": FAILED}
    assert found(["a", "c"]) is None and found(["a"], kernel="stock-2") is None
    assert selftests.finished(tmp_path / "none.json", made_of, []) is None


def test_a_folder_has_the_differences_of_its_own_tests_and_every_guests_problems():
    failures = ["cow differs:\n    +ok: one", "slices off: not everything wakes"]
    assert selftests.of_folder(failures, {"cow": {}}) == failures
    assert selftests.of_folder(failures, {"zswap": {}}) == failures[1:]


def test_the_page_counts_what_is_kept_and_names_what_is_flaky():
    results = json.loads(selftests.RESULT.read_text())
    page = (ROOT / "results/README.md").read_text()
    assert set(results) <= set(selftests.FOLDERS)
    for folder in selftests.FOLDERS:
        row, = re.findall(rf"^\| `{folder}` \|(.*)\|$", page, re.M)
        *counts, flaky = [cell.strip() for cell in row.split("|")]
        if folder not in results:
            assert counts == ["-", "-", "-", "unmeasured"] and not flaky, folder
            continue
        run = results[folder]
        tests = run["tests"].values()
        assert counts == [str(count) for count in (
            len(tests), sum(test["verdicts"] for test in tests),
            sum(test["stock"] == "skip" for test in tests), len(run["differences"]))], folder
        assert flaky == ", ".join(f"`{test}`" for test in run["flaky"]), folder


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.xdist_group("selftests")
def test_the_kernels_selftests_end_alike_on_both_kernels_and_with_slices_off():
    subprocess.run([RAMLAB, "selftests"], check=True)
