# SPDX-License-Identifier: GPL-2.0-or-later
"""The check of words, lines, cells and links finds what it is for, and nothing besides."""

import pytest

import check_english


@pytest.fixture
def complaints(tmp_path, monkeypatch):
    """A function that writes a file into an otherwise empty tree and returns its complaints."""
    dictionary = (check_english.ROOT / check_english.DICTIONARY).read_text()
    (tmp_path / check_english.DICTIONARY).write_text(dictionary)
    (tmp_path / "there.md").write_text("# Two words\n\n## Twice\n\n## Twice\n")
    monkeypatch.setattr(check_english, "ROOT", tmp_path)

    def of(text, name="page.md"):
        (tmp_path / name).write_text(text)
        return list(check_english.complaints([name]))

    return of


def test_plain_text_has_no_complaint(complaints):
    assert complaints("# A page\n\nOne sentence, with a [link](there.md).\n") == []


@pytest.mark.parametrize("word", ["who" + "ever", "no" + "body", "an" + "ew"])
def test_an_unwanted_word_is_found_with_what_to_write_instead(complaints, word):
    [found] = complaints(f"A {word} b.\n")
    assert word in found and "==>" in found


def test_an_unwanted_phrase_is_found(complaints):
    [found] = complaints("Nothing as " + "yet.\n")
    assert "so far" in found


def test_a_code_span_of_markdown_quotes_any_word(complaints):
    text = "# The case `a " + "no" + "body waits` is here, `as " + "yet`.\n"
    assert complaints(text) == []
    assert len(complaints(text, "a.sh")) == 2


def test_a_line_over_100_columns_is_found(complaints):
    [found] = complaints("x" * 101 + "\n")
    assert "101 columns" in found
    assert complaints("x" * 100 + "\n") == []


def test_a_tab_in_kernel_code_is_eight_columns_wide(complaints):
    assert complaints("\t" + "x" * 92 + "\n", "a.c") == []
    assert len(complaints("\t" + "x" * 93 + "\n", "a.c")) == 1


def test_a_message_in_c_stays_on_its_line(complaints):
    assert complaints('\tpr_err("slice %u: ' + "x" * 90 + '\\n",\n', "a.c") == []
    assert len(complaints('\tpr_err("slice %u: ' + "x" * 90 + '\\n", id);\n', "a.c")) == 1
    assert len(complaints('print("slice: ' + "x" * 90 + '")\n', "a.py")) == 1


def test_a_table_row_and_a_url_may_be_long(complaints):
    assert complaints("| " + " | ".join(["x" * 60] * 3) + " |\n") == []
    assert complaints("See <https://example.org/" + "x" * 100 + ">.\n") == []


def test_a_table_cell_over_100_characters_is_found_without_its_link_target(complaints):
    [found] = complaints("| a | " + "x" * 101 + " |\n")
    assert "101 characters" in found
    assert complaints("| a | [text](there.md#" + "two-words) " + "x" * 80 + " |\n") == []


def test_a_link_to_no_file_is_found(complaints):
    [found] = complaints("A [link](missing.md).\n")
    assert "no file missing.md" in found


def test_a_link_to_no_heading_is_found(complaints):
    assert complaints("A [link](there.md#two-words), [second](there.md#twice-1).\n") == []
    [found] = complaints("A [link](there.md#three-words).\n")
    assert "no heading" in found


def test_code_is_not_searched_for_links(complaints):
    assert complaints("```\n[a](missing.md)\n```\n\n`[a](missing.md)`\n") == []


def test_a_front_page_over_600_words_is_found(complaints):
    [found] = complaints("word\n" * 601, "README.md")
    assert "601 words" in found


def test_a_program_without_a_suffix_is_text(complaints, tmp_path):
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "data").write_text("0 1 2\n")
    assert check_english.is_text("tool") and not check_english.is_text("data")
