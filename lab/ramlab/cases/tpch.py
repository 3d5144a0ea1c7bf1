# SPDX-License-Identifier: GPL-2.0-or-later
"""Queries derived from TPC-H on DuckDB. The data are made here, and the answers compared with
those of the extension.
"""

import json
import subprocess

from ramlab.common import CACHE, ROOT, die
from ramlab.guest import case_work

from . import environment, folder_of, prepared

# The extension has published answers for 0.01, 0.1 and 1.
SCALES = {
    "tiny": {"factor": 0.01, "queries": [1, 3, 6], "count": 0, "pause_s": 2, "memory": "200MB"},
    "small": {
        "factor": 0.1,
        "queries": list(range(1, 23)),
        "count": 8,
        "pause_s": 25,
        "memory": "200MB",
    },
    "full": {
        "factor": 0.1,
        "queries": list(range(1, 23)),
        "count": 20,
        "pause_s": 30,
        "memory": "200MB",
    },
}
PROGRAM = ROOT / "lab/ramlab/cases/make_tpch.py"


def home(scale):
    return folder_of(
        "tpch",
        scale,
        SCALES[scale],
        [__file__, PROGRAM, ROOT / "lab/ramlab/guest/case_tpch.py", case_work.Tpch],
    )


def prepare(scale):
    work = SCALES[scale]

    def make(disk, _):
        done = subprocess.run(
            [CACHE / "python/bin/python", PROGRAM, disk / "data.duckdb", json.dumps(work)],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        answers = json.loads(done.stdout)
        if not answers["compared_with_extension"]:
            die(f"the extension has no answers for a scale factor of {work['factor']}")
        size = (disk / "data.duckdb").stat().st_size >> 20
        return answers | {"work": work}, size * 5 // 4 + 64

    return prepared(home(scale), make)
