# SPDX-License-Identifier: GPL-2.0-or-later
"""Instructions of a guest's kernel are counted, and belong to the functions that they are of."""

import json
import subprocess

import pytest

from ramlab import emulator_plugins, kernel_instructions
from ramlab.bench.slices import functions_entry

MAP = """\
ffffffff81000000 T _text
ffffffff81000100 t __pfx_first
ffffffff81000110 T first
ffffffff81000200 T second
ffffffff82000000 D data
"""


@pytest.fixture
def system_map(tmp_path):
    path = tmp_path / "System.map"
    path.write_text(MAP)
    return path


def counts(path, *records):
    path.write_text("".join(json.dumps({"label": label, "counts": own}) + "\n"
                            for label, own in records))
    return path


def test_instructions_belong_to_the_function_before_them(tmp_path, system_map):
    path = counts(tmp_path / "counts",
                  (1, {"ffffffff81000110": 2, "ffffffff810001ff": 3, "ffffffff81000200": 5}))
    assert kernel_instructions.by_function(path, system_map) == {1: {"first": 5, "second": 5}}


def test_of_a_label_that_came_twice_the_last_counts(tmp_path, system_map):
    path = counts(tmp_path / "counts", (1, {"ffffffff81000200": 9}), (2, {}),
                  (1, {"ffffffff81000200": 1}))
    assert kernel_instructions.by_function(path, system_map) == {1: {"second": 1}, 2: {}}


def test_functions_that_hardly_differ_are_left_out():
    entry = functions_entry("x", {"stock": {"a": 100, "b": 50}, "off": {"a": 101, "b": 60, "c": 10},
                                  "on": {"a": 101, "b": 60, "c": 20}}, 10)
    assert entry["value"] == pytest.approx(2.1)
    assert entry["beside"] == {
        "b": {"stock": 5, "off": 6, "on": 6}, "c": {"stock": 0, "off": 1, "on": 2},
        "all functions": {"stock": 15, "off": 17.1, "on": 18.1}}


@pytest.mark.parametrize("words", ["", "out=x,more=1", "in=x"])
def test_wrong_words_are_refused(words, tmp_path):
    plugin = emulator_plugins.build("kernel_instructions")
    comma = "," if words else ""
    done = subprocess.run(["qemu-system-x86_64", "-machine", "none", "-display", "none", "-plugin",
                           f"{plugin}{comma}{words}"], cwd=tmp_path, stderr=subprocess.PIPE,
                          text=True, timeout=60)
    assert done.returncode != 0
    assert "expected out=FILE, and nothing else" in done.stderr
