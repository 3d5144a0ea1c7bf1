# SPDX-License-Identifier: GPL-2.0-or-later
"""Generated inputs to all interfaces, and to the kernel's command line, do no harm.

The inputs are the same each time, so that what fails, fails again; RAMSLICE_FUZZ_SEED and
RAMSLICE_FUZZ_INPUTS choose others. `ramlab fuzz` by hand takes new ones each time. What a run of
all tests feeds is the beginning of what the long campaigns feed.
"""

import json
import os
import random
import re
import subprocess

import pytest

from ramlab import fuzz as generator
from ramlab import fuzz_coverage
from ramlab.common import OUT, RAMLAB, ROOT
from ramlab.fuzz_coverage import Corpus, Site
from ramlab.kernel import build
from ramlab.kernel.source import Source

SEED = os.environ.get("RAMSLICE_FUZZ_SEED", "1")
SHORT_INPUTS, FULL_INPUTS, ARM64_INPUTS, GUIDED_INPUTS, RACE_INPUTS = (
    int(os.environ.get("RAMSLICE_FUZZ_INPUTS", inputs))
    for inputs in (3000, 12000, 10000, 3000, 5000))


def expected_policies(research):
    """{policy that a generated command line should give}, and whether one names a research policy.
    """
    found, foreign = set(), False
    for seed in range(500):
        words, (_, _, policy, low, complaints) = generator.boot_words(random.Random(seed), research)
        found.add(policy)
        assert (low == "none") == (policy == "none" or not research), words
        if f"ramslice_placement={generator.RESEARCH_POLICIES[0]}" in words and not research:
            foreign = True
            assert int(complaints) > 0, words
    return found - {"none"}, foreign


def test_the_research_kernel_is_to_follow_every_policy():
    known = generator.POLICIES + generator.RESEARCH_POLICIES
    assert expected_policies(research=True)[0] == set(known)


def test_other_kernels_are_to_refuse_the_policies_of_the_research_kernel():
    assert expected_policies(research=False) == (set(generator.POLICIES), True)


def run_fuzz(*words):
    done = subprocess.run([RAMLAB, "fuzz", "--seed", SEED, *map(str, words)], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    return done


def fuzz(*words):
    return run_fuzz(*words).returncode


# --- coverage, without a kernel -------------------------------------------------


def test_a_corpus_keeps_inputs_on_every_image_and_edges_on_theirs(tmp_path):
    corpus = Corpus(tmp_path / "corpus.json", "coverage-one")
    corpus.take({"inputs": ["1:1"], "new_edges": ["0-10", "10-20"]})
    corpus.take({"inputs": ["1:1", "1:7+3=9"], "new_edges": ["20-10"]})
    again = Corpus(corpus.path, "coverage-one")
    assert again.inputs == ["1:1", "1:7+3=9"]
    assert again.edges == ["0-10", "10-20", "20-10"]
    assert again.places() == {0x10, 0x20}
    other = Corpus(corpus.path, "coverage-two")
    assert (other.inputs, other.edges) == (again.inputs, [])


def test_a_corpus_is_bounded_and_keeps_what_came_last(tmp_path):
    corpus = Corpus(tmp_path / "corpus.json", "coverage-one")
    many = [f"1:{number}" for number in range(fuzz_coverage.MOST_KEPT + 1)]
    corpus.take({"inputs": many, "new_edges": []})
    assert Corpus(corpus.path, "coverage-one").inputs == many[1:]


SITES = {
    0x10: Site("core.c", "ramslice_one", 5, init=False),
    0x20: Site("core.c", "ramslice_one", 7, init=False),
    0x30: Site("core.c", "ramslice_two", 9, init=False),
    0x40: Site("wake.c", "ramslice_wake", 3, init=False),
    0x50: Site("wake.c", "ramslice_init", 8, init=True),
}


def test_fewer_inputs_do_not_replace_the_summary_of_more(tmp_path):
    path = tmp_path / "fuzz-debug.json"
    assert generator.place_of_summary(path, 10) == path
    for summary, inputs, where in (({"inputs": 100}, 99, OUT / path.name),
                                   ({"inputs": 100}, 100, path), (None, 1, path)):
        path.write_text(json.dumps({"summary": summary}))
        assert generator.place_of_summary(path, inputs) == where


def test_a_report_counts_what_was_reached_of_each_file_and_names_what_never_was():
    report = fuzz_coverage.report(SITES, {0x10, 0x20, 0x99}, {"ramslice_two": "a driver fails"})
    assert report["sites"] == [2, 4] and report["functions"] == [1, 3]
    assert report["files"]["core.c"] == {"sites": [2, 3], "lines": [2, 3], "functions": [1, 2]}
    assert report["files"]["wake.c"]["sites"] == [0, 1]
    assert report["never"] == {"core.c": {"ramslice_two": "a driver fails"},
                               "wake.c": {"ramslice_wake": "not looked at"}}
    assert report["unknown_places"] == 1


def test_code_that_runs_at_boot_alone_is_left_out():
    report = fuzz_coverage.report(SITES, set(), {})
    assert "1 sites" in report["left_out"] and "ramslice_init" not in report["never"]["wake.c"]


def test_what_make_is_asked_for_beside_the_configuration_is_a_part_of_the_image(monkeypatch):
    source = Source()
    keys = {flavour: build.key(source, flavour) for flavour in ("coverage", "plain")}
    monkeypatch.setattr(build, "VARIABLES", {"coverage": ["CFLAGS_KCOV=-g"]})
    assert build.key(source, "coverage") != keys["coverage"]
    assert build.key(source, "plain") == keys["plain"]


def test_reasons_are_for_functions_that_there_are():
    files = (ROOT / "kernel/files/mm/ramslice").glob("*.[ch]")
    source = "".join(path.read_text() for path in files)
    names = [name for name in fuzz_coverage.unreached_reasons() if "*" not in name]
    assert names
    for name in names:
        assert re.search(rf"\b{name}\(", source), name


# --- in virtual machines --------------------------------------------------------


def answers(output):
    """What a replayed input did, call by call."""
    return re.findall(r"^input (\S+): (.*)$", output, re.M)


def test_an_input_that_is_replayed_gives_the_same_answers_again():
    # A mutated input: of number 5, but for the kind of input and the rest, which are another's
    text = "1:5+0=5+1=290+9~77"
    runs = [run_fuzz("--replay", text, "--kernel", "plain") for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0]
    first, second = (answers(run.stdout) for run in runs)
    assert first == second and first[0][0] == text


def test_a_text_that_is_no_input_is_refused_with_what_one_looks_like():
    for text in ("1:5+x=3", "1:", "5", "1:5=3", "1:5" + "+1=2" * 13, "1:5+3=99999999999999999999"):
        done = run_fuzz("--replay", text)
        assert done.returncode == 2
        assert f"--replay {text} is no input: SEED:NUMBER" in done.stdout


@pytest.mark.slow
@pytest.mark.never_rerun
@pytest.mark.timeout(3600)
def test_inputs_guided_by_coverage_find_no_bug_and_are_kept_for_other_kernels(tmp_path):
    corpus, summary = tmp_path / "corpus.json", tmp_path / "fuzz.json"
    assert fuzz("--kernel", "coverage", "--inputs", GUIDED_INPUTS, "--portion",
                (GUIDED_INPUTS + 1) // 2, "--corpus", corpus, "--summary", summary) == 0
    kept = json.loads(corpus.read_text())
    reached = json.loads(summary.read_text())["reached"]
    # Some inputs are fresh, others were made from those that were kept
    assert any("+" in text for text in kept["inputs"])
    assert any("+" not in text for text in kept["inputs"])
    assert reached["unknown_places"] == 0
    assert reached["sites"][0] > reached["sites"][1] // 2
    assert fuzz("--kernel", "debug", "--inputs", 500, "--corpus", corpus, "--summary",
                summary) == 0
    assert json.loads(summary.read_text())["summary"]["rerun"] == len(kept["inputs"])


@pytest.mark.slow
@pytest.mark.never_rerun
@pytest.mark.timeout(7200)
def test_generated_inputs_find_no_data_race_and_nothing_undefined(tmp_path):
    assert fuzz("--kernel", "kcsan", "--inputs", RACE_INPUTS, "--summary",
                tmp_path / "fuzz.json") == 0


@pytest.mark.never_rerun
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("inputs", [
    pytest.param(SHORT_INPUTS, id="short"),
    pytest.param(FULL_INPUTS, id="full", marks=pytest.mark.slow),
])
def test_generated_inputs_find_no_bug_on_the_debug_kernel(tmp_path, inputs):
    # Two portions: what the second one leaves behind is compared with the first
    assert fuzz("--inputs", inputs, "--portion", (inputs + 1) // 2,
                "--summary", tmp_path / "fuzz.json") == 0


@pytest.mark.slow
@pytest.mark.never_rerun
@pytest.mark.timeout(7200)
def test_generated_inputs_find_no_bug_on_arm64(tmp_path):
    assert fuzz("--arch", "arm64", "--kernel", "plain", "--inputs", ARM64_INPUTS,
                "--summary", tmp_path / "fuzz.json") == 0


@pytest.mark.timeout(3600)
def test_generated_command_lines_boot_with_the_settings_that_they_should_give():
    assert fuzz("--boots", 4) == 0
