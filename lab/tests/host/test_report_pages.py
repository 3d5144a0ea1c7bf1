# SPDX-License-Identifier: GPL-2.0-or-later
"""Reports in a browser: no error, no request, nothing too wide or too small; bad pages are found.

RAMSLICE_SHOTS names a folder that keeps a picture of each page.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ramlab.checks.pages import THEMES, WIDTHS, chromium, view_page

pytestmark = pytest.mark.xdist_group("report-pages")

PAGES = ("all", "some", "census")
FIGURES = ("utilisation-1", "slices-3", "energy", "net", "latency", "prices", "residuals",
           "operations")
# In runs 2 and 3 slices were emptied, in run 1 none.
REPAIR = ("repair-free", "repair-moved", "repair-share")
# Run 2 has a census, run 1 and the runs of the other pages have none.
CENSUS = ("bitmaps", "fullness", "footprint", "kept-on", "census-shares")
PNG_WIDTH = 1840
# Name: (what makes a page bad, what the check says of it, a pattern).
BAD = {
    "error": ('<script>throw new Error("thrown")</script>', "error: Error: thrown"),
    "console": ('<script>console.error("told")</script>', "console.error: told"),
    "request": ('<img src="http://127.0.0.1:9/picture.png" alt="">', "request: .*127.0.0.1:9"),
    "wide": ('<div style="width: 1300px; height: 1px"></div>',
             "content is .* wide in a window of 1280"),
    "wide-for-a-phone": ('<div style="width: 500px; height: 1px"></div>',
                         "content is .* wide in a window of 390"),
    "small-text": ("<style>svg text { font-size: 6px !important }</style>", "text of 6.0 pixels"),
    "theme": ("<style>:root { --paper: white !important }</style>",
              "the button does not change the theme"),
}


def _samples(path, *words):
    with path.open("w") as file:
        subprocess.run([sys.executable, "-m", "ramlab.checks.report_samples", *words],
                       stdout=file, check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, lab_program, examples):
    """The reports all.html, some.html and census.html; figures in csv, png and census."""
    folder = tmp_path_factory.mktemp("report")

    def run(*words):
        subprocess.run([*words], cwd=folder, check=True)

    made_up = examples / "made_up"
    run(made_up, "nothing", "0")
    run(made_up, "budget", "4000000")
    run(made_up, "unlimited")
    run(made_up, "counted", "4000000", "--census")
    _samples(folder / "samples.json")
    _samples(folder / "latencies.csv", "--latencies")
    run(lab_program, "report", "nothing", "budget", "unlimited", "samples.json", "latencies.csv",
        "-o", "all.html", "--profile", "thesis-parc", "--granularity", "slice",
        "--time-factor", "12..18", "--csv", "csv", "--png", "png",
        "--title", "A made-up build, three budgets")
    run(lab_program, "report", "samples.json", "-o", "some.html")
    run(lab_program, "report", "nothing", "counted", "-o", "census.html", "--csv", "census",
        "--png", "census")
    return folder


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def has_table(path):
    return path.stat().st_size > 0


def has_picture(path):
    head = path.read_bytes()[:24]
    return head[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(head[16:20]) == PNG_WIDTH


def figure_in(page, figure):
    return f'<figure id="{figure}">' in page.read_text()


# --- figures in files ---

@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_has_a_table_and_a_picture(folder, figure):
    assert has_table(folder / f"csv/{figure}.csv")
    assert has_picture(folder / f"png/{figure}.png")


@pytest.mark.parametrize("run", [2, 3])
@pytest.mark.parametrize("figure", REPAIR)
def test_a_run_in_which_slices_were_emptied_has_figures_of_it(folder, figure, run):
    assert has_table(folder / f"csv/{figure}-{run}.csv")
    assert has_picture(folder / f"png/{figure}-{run}.png")


@pytest.mark.parametrize("figure", REPAIR)
def test_a_run_in_which_no_slice_was_emptied_has_no_figure_of_it(folder, figure):
    assert figure_in(folder / "all.html", f"{figure}-2")
    assert not figure_in(folder / "all.html", f"{figure}-1")


@pytest.mark.parametrize("figure", CENSUS)
def test_a_run_with_a_census_has_figures_of_it(folder, figure):
    assert has_table(folder / f"census/{figure}-2.csv")
    assert has_picture(folder / f"census/{figure}-2.png")
    assert figure_in(folder / "census.html", f"{figure}-2")


@pytest.mark.parametrize("page", ["census", "all"])
@pytest.mark.parametrize("figure", CENSUS)
def test_a_run_without_a_census_has_no_figure_of_one(folder, figure, page):
    for name in (figure, f"{figure}-1"):
        assert not figure_in(folder / f"{page}.html", name)


# --- pages in a browser ---

@pytest.fixture(scope="module")
def views(folder, browser):
    """Each page as the browser shows it: {(page, width, theme): PageView}, made when asked for."""
    shots = os.environ.get("RAMSLICE_SHOTS")
    seen = {}

    def view(page, width, theme):
        if (page, width, theme) not in seen:
            seen[page, width, theme] = view_page(
                browser, folder / f"{page}.html", width, theme, shots and Path(shots))
        return seen[page, width, theme]
    return view


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_problem(views, page, width, theme):
    assert views(page, width, theme).problems == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_light_and_dark_pages_differ(views, page, width):
    assert views(page, width, "light").paper != views(page, width, "dark").paper


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_page_is_found(folder, browser, bad):
    inserted, words = BAD[bad]
    text = (folder / "some.html").read_text()
    assert "</main>" in text
    page = folder / f"bad-{bad}.html"
    page.write_text(text.replace("</main>", f"{inserted}</main>"))
    problems = [problem for width in WIDTHS for theme in THEMES
                for problem in view_page(browser, page, width, theme).problems]
    assert any(re.search(words, problem) for problem in problems), problems
