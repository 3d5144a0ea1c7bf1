# SPDX-License-Identifier: GPL-2.0-or-later
"""What the README and the tutorial show of a run of the demonstration is all of that run."""

import shutil

import pytest

from ramlab import demo
from ramlab.common import ROOT

PAGES = ("README.md", "docs/tutorials/try-it.md")
RESULT = {
    "kernel": "6.12.1", "slices_total": 128, "slice_bytes": 32 << 20, "nonempty_before": 80,
    "nonempty_after": 17, "offline_after_first": 91, "woken_by_pressure": 59,
    "offline_after_second": 93, "offlined_bytes": 93 << 25, "c": 0.9, "c_bound": 0.95,
    "c_movablecore": 0.96, "pages_migrated": 1, "pages_dropped": 2, "price_predicted": 3,
    "price_measured": 4, "data_errors": 0, "oom_kills": 0, "pswpout_delta": 0,
}


@pytest.fixture(name="root")
def pages_with_a_run(tmp_path):
    """Copies of the pages that show RESULT, whose pictures say what they are of."""
    for page in (*PAGES, "docs/images/map-after.png"):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        shutil.copyfile(ROOT / page, tmp_path / page)
    run = tmp_path / "run"
    run.mkdir()
    for picture in ("before", "after", "end"):
        (run / f"{picture}.png").write_text(picture)
    demo.keep(demo.table(RESULT, {"c_bound": 0.97}), run, tmp_path)
    return tmp_path


def without_numbers(text):
    return "".join(char for char in text if not char.isdigit()).split()


def test_pages_change_by_their_figures_alone(root):
    for page in PAGES:
        before, after = ((at / page).read_text() for at in (ROOT, root))
        if page == "README.md":
            before = before.replace("From another run, 105 off:", "From the same run:")
        assert without_numbers(before) == without_numbers(after)


def test_the_picture_is_of_the_moment_that_the_figures_are_of(root):
    text = (root / "README.md").read_text()
    assert "after the second compaction                     93\n" in text
    assert "the first compaction" not in text
    assert (root / "docs/images/map-after.png").read_text() == "end"
    assert (root / "docs/images/map-before.png").read_text() == "before"


def test_a_page_without_the_part_is_named(root):
    (root / "README.md").write_text("nothing")
    with pytest.raises(SystemExit):
        demo.replace(root / "README.md", "demo-result", "x")
    assert (root / "README.md").read_text() == "nothing"
