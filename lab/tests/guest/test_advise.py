# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice-lab record --reuse` and `ramslice-lab advise`: what is predicted from a recording with
plenty of memory is what is measured when most of it is held.
"""

import json
import subprocess
import time
from pathlib import Path

import pytest

from ramlab.guest import harness, miss_ratio
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import MIB, PAGE
from ramlab.pytest_vm import vm

DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")
# Miss ratios, predicted less measured
NEAR = 0.1


def last_rows(folder):
    """The counts of the sampler with the last sample, by name."""
    dumped = miss_ratio.lab("dump", folder, "--table", "vmstat").splitlines()
    names = dumped[0].split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in dumped[1:]]
    last = rows[-1]["sample"]
    notes = miss_ratio.lab("dump", folder, "--table", "events")
    assert "reuse times ended" not in notes, notes
    return {row["name"].removeprefix("ramslice_reuse_"): int(row["value"]) for row in rows
            if row["sample"] == last and row["name"].startswith("ramslice_reuse_")}


@vm(mem="512M", disk="512M", append="ramslice=4M")
class TestSampler:
    def test_a_loop_shows_as_long_as_it_takes(self):
        """Pages that are read every four seconds are idle for 16 scans."""
        file, folder = miss_ratio.cached_file(), miss_ratio.FOLDER / "loop"
        period, nr_pages = 4.0, miss_ratio.FILE_MIB * MIB / PAGE
        with miss_ratio.reading(file, "loop", 300, nr_pages / period):
            time.sleep(2)
            miss_ratio.lab("record", "--statistics-only", "--for", "30s", *miss_ratio.SAMPLED,
                           "-o", folder)
        rows = last_rows(folder)
        # What is read again is active; libraries that are used all the time are not
        times = {int(name.rsplit("_", 1)[1]): count for name, count in rows.items()
                 if name.startswith("file_active_scans_")}
        scan = rows["elapsed_us"] / rows["scans"] / 1e6
        near = sum(count for scans, count in times.items() if 0.8 < scans * scan / period < 1.2)
        print(json.dumps({"rows": rows, "near": near / sum(times.values())}))
        assert near > 0.9 * sum(times.values())
        # What was allowed of a CPU, and what is in the sample is its share of the file
        assert rows["cpu_us"] <= 0.15 * rows["elapsed_us"]
        share = rows["sampled_frames"] / rows["all_frames"]
        assert rows["file_resident"] * PAGE / share > 0.7 * miss_ratio.FILE_MIB * MIB

    def test_damon_on_physical_memory_is_named(self):
        dev.write(DAMON / "nr_kdamonds", 1)
        try:
            folder = DAMON / "0"
            dev.write(folder / "contexts/nr_contexts", 1)
            dev.write(folder / "contexts/0/operations", "paddr")
            dev.write(folder / "contexts/0/targets/nr_targets", 1)
            dev.write(folder / "contexts/0/targets/0/regions/nr_regions", 1)
            region = folder / "contexts/0/targets/0/regions/0"
            dev.write(region / "start", 0)
            dev.write(region / "end", 256 * MIB)
            dev.write(folder / "state", "on")
            words = ["record", "--statistics-only", "--for", "1s", "--reuse", "1s", "-o",
                     "/tmp/refused"]
            refused = subprocess.run([miss_ratio.LAB_PROGRAM, *words], text=True,
                                     capture_output=True, check=False)
            assert refused.returncode == 1
            assert f"{folder} is on" in refused.stderr
            assert not Path("/tmp/refused").exists()
        finally:
            dev.write(DAMON / "0/state", "off")
            dev.write(DAMON / "nr_kdamonds", 0)


# Its figures depend on how much CPU time the sampler gets: no guest has held the target yet
@pytest.mark.slow
@vm(mem="512M", disk="512M", append="ramslice=4M")
class TestAdvice:
    @pytest.mark.parametrize("pattern", ["zipf", "loop"])
    def test_the_miss_ratio_of_held_memory_is_the_predicted_one(self, pattern):
        if "ramslice_lookup_read" not in harness.vmstat():
            pytest.skip("this kernel does not count look-ups of page cache")
        found = miss_ratio.experiment(pattern)
        known = [point for point in found["points"] if point["predicted"] is not None]
        assert len(known) >= 2, found
        for point in known:
            assert abs(point["predicted"]["value"] - point["measured"]) < NEAR, found
