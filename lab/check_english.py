#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks text by the rules of the house: words, length of lines and table cells, links.

Usage: lab/check_english.py [PATH...]

Without arguments it checks all that git tracks; with paths, these files and folders alone. The
exit status is 1 if a rule is broken. What it checks:

- words that .codespell-house.txt replaces, and the phrases below; in Markdown, code spans quote
  names and outputs as they are, and are left out
- lines of at most 100 columns in documents and programs (tables, URLs and messages of C excepted)
- Markdown table cells of at most 100 characters, link targets not counted
- that every relative link in Markdown leads to a file, and its anchor to a heading
- that README.md has at most 600 words
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DICTIONARY = ".codespell-house.txt"
COLUMNS = 100
CELL_CHARACTERS = 100
README_WORDS = 600

# What these suffixes and names hold is text that people read and write by hand.
SUFFIXES = {".md", ".rst", ".py", ".c", ".h", ".rs", ".sh", ".toml", ".yml", ".service", ".8",
            ".config", ".patch"}
NAMES = {"Makefile", "Kconfig", ".codespellrc"}
# Tabs are eight columns wide in the kernel's style, four elsewhere.
TAB_COLUMNS = {".c": 8, ".h": 8, ".rst": 8}

# Phrases of several words, which codespell cannot know, and what to write instead.
PHRASES = {
    r"as yet": "so far, yet",
    r"tells? of": "report, say",
    r"told of": "reported",
    r"no one": "nothing, no process",
    r"[;,] or else": "otherwise",
}
CODE_SPAN = "`[^`]+`"
PHRASE = re.compile(r"\b(?:" + "|".join(f"(?:{one})" for one in PHRASES) + r")\b", re.IGNORECASE)


def tracked(paths):
    """Files below the paths that git tracks, or that are new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
               "--deduplicate", "--", *paths]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in output.split("\0") if name and (ROOT / name).is_file()]


def is_text(name):
    """Whether a person writes this file: by its suffix, its name, or its first line."""
    path = ROOT / name
    if path.suffix in SUFFIXES or path.name in NAMES:
        return True
    if path.suffix:
        return False
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def unwanted_words(names):
    """Complaints of codespell with the dictionary of the house, and of the phrases."""
    yield from codespell([name for name in names if not name.endswith(".md")])
    yield from codespell([name for name in names if name.endswith(".md")],
                         "--ignore-regex", CODE_SPAN)
    for name in names:
        if name.endswith("check_english.py"):
            continue
        for number, line in enumerate(read(name), 1):
            if name.endswith(".md"):
                line = re.sub(CODE_SPAN, "", line)
            for match in PHRASE.finditer(line):
                better = next(to for one, to in PHRASES.items()
                              if re.fullmatch(one, match[0].lower()))
                yield f"{name}:{number}: {match[0]} ==> {better}"


def codespell(names, *options):
    if not names:
        return []
    command = ["codespell", "--dictionary", DICTIONARY, *options, *names]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode not in (0, 65):
        sys.exit(f"codespell failed: {found.stderr}")
    return found.stdout.splitlines()


def read(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace").splitlines()


def is_table_row(name, line):
    """A row of a Markdown table; in TOML and YAML, a row of data: an inline table."""
    if name.endswith((".toml", ".yml")):
        return bool(re.match(r"(\w+ =|\s*-( \w+:)?) \{.*\}$|source = ", line))
    return name.endswith(".md") and line.lstrip().startswith("|")


def is_message(name, line):
    """Whether it is a message that makes a line of C long.

    The kernel's style keeps messages on one line, so that grep finds them.
    """
    message = re.search(r'"[^"]* [^"]*"[,);]*$', re.sub(r"\\.", "", line))
    return name.endswith((".c", ".h")) and message and message.start() < COLUMNS


def long_lines(name):
    """Lines over COLUMNS. Table rows, messages, and lines with a URL may be long."""
    # Most lines of a patch are its context's
    if name.endswith(".patch"):
        return
    tab = TAB_COLUMNS.get(Path(name).suffix, 4)
    for number, line in enumerate(read(name), 1):
        columns = len(line.expandtabs(tab))
        if columns > COLUMNS and not ("://" in line or is_table_row(name, line) or
                                      is_message(name, line)):
            yield f"{name}:{number}: {columns} columns (at most {COLUMNS})"


def prose(lines):
    """Numbered lines of a Markdown file outside fenced blocks."""
    fence = None
    for number, line in enumerate(lines, 1):
        opening = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            if opening and opening[1].startswith(fence):
                fence = None
        elif opening:
            fence = opening[1]
        else:
            yield number, line


def shown(text):
    """What a reader sees of Markdown: links without their targets."""
    return re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)


def wide_cells(name):
    for number, line in prose(read(name)):
        if not is_table_row(name, line):
            continue
        for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
            if (characters := len(shown(cell.strip()))) > CELL_CHARACTERS:
                yield (f"{name}:{number}: a table cell of {characters} characters "
                       f"(at most {CELL_CHARACTERS}): {shown(cell.strip())[:40]}...")


def anchors(path):
    """The anchors that GitHub gives to the headings of a Markdown file."""
    found, counts = set(), {}
    for _, line in prose(path.read_text(encoding="utf-8").splitlines()):
        found.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
        if not (heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line)):
            continue
        slug = re.sub(r"[^\w\- ]", "", shown(heading[1]).lower()).replace(" ", "-")
        count = counts.get(slug, 0)
        counts[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def broken_links(name):
    for number, line in prose(read(name)):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            path = (ROOT / name).parent / file if file else ROOT / name
            if not path.exists():
                yield f"{name}:{number}: no file {target}"
            elif anchor and path.suffix == ".md" and anchor not in anchors(path):
                yield f"{name}:{number}: no heading for the anchor {target}"


def long_readme(name):
    words = len((ROOT / name).read_text().split())
    if words > README_WORDS:
        yield f"{name}: {words} words (at most {README_WORDS})"


def complaints(names):
    yield from unwanted_words(names)
    for name in names:
        yield from long_lines(name)
        if name.endswith(".md"):
            yield from wide_cells(name)
            yield from broken_links(name)
        if name == "README.md":
            yield from long_readme(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="check these alone")
    args = parser.parse_args()
    names = tracked([str(Path(path).resolve().relative_to(ROOT)) for path in args.paths])
    names = [name for name in names if is_text(name)]
    count = 0
    for count, complaint in enumerate(complaints(names), 1):
        print(complaint)
    if count:
        print(f"{count} complaints in {len(names)} files checked")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
