# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulator's tables add up to its report, seeds repeat, and damaged input is refused."""

import json
import math
import subprocess

import duckdb
import pytest

pytestmark = pytest.mark.xdist_group("simulate")

MACHINES, STEPS = 100, 288
FLEET = ("--memory", "64G", "--slice", "1G")
# Figure of the report: query over the tables `machines` and `levels`.
SUMS = {
    "machines": "SELECT count(*) FROM machines",
    "machines_with_levels": "SELECT count(DISTINCT machine) FROM levels",
    "machine_steps": "SELECT count(*) FROM levels",
    "net_joules_low": "SELECT sum(net_low_joules) FROM machines",
    "net_joules_high": "SELECT sum(net_high_joules) FROM machines",
    "demand_wakes": "SELECT sum(demand_wakes) FROM machines",
    "mean_offline_slices": "SELECT avg(offline_slices) FROM levels",
    "policies": "SELECT count(DISTINCT policy) FROM levels",
    "policy": "SELECT any_value(policy) FROM machines",
}


@pytest.fixture(scope="module")
def lab(lab_program):
    def run(*words, check=True):
        return subprocess.run([lab_program, *map(str, words)], text=True, capture_output=True,
                              check=check)
    return run


@pytest.fixture(scope="module")
def fleet_csv(lab, tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "synthetic.csv"
    lab("sim", "generate", path, "--machines", MACHINES, "--for", "24h", "--memory-percent", "50",
        "--daily-swing", "30")
    return path


@pytest.fixture(scope="module")
def report(lab, fleet_csv):
    """What `sim fleet` says in JSON, under the names of SUMS."""
    tables = fleet_csv.with_name("tables")
    found = json.loads(
        lab("sim", "fleet", fleet_csv, *FLEET, "--output", tables, "--json").stdout)
    slices = found["memory_bytes"] // found["slice_bytes"]
    return found | {
        "machines_with_levels": found["machines"], "policies": 1,
        "net_joules_low": found["net_joules"]["low"],
        "net_joules_high": found["net_joules"]["high"],
        "mean_offline_slices": found["mean_offline_share"] * slices,
    }


@pytest.fixture(scope="module")
def tables(report, fleet_csv):
    """The fleet's tables as DuckDB reads them, partitions and all."""
    database = duckdb.connect()
    for name in ("machines", "levels"):
        files = f"{fleet_csv.with_name('tables')}/{name}/*/*.parquet"
        database.execute(f"CREATE VIEW {name} AS SELECT * FROM"
                         f" read_parquet('{files}', hive_partitioning = true)")
    return database


@pytest.mark.parametrize("figure", SUMS)
def test_the_tables_of_a_fleet_add_up_to_its_report(tables, report, figure):
    found, = tables.execute(SUMS[figure]).fetchone()
    wanted = report[figure]
    if isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=1e-9)
    else:
        assert found == wanted


@pytest.fixture(scope="module")
def tournaments(lab, tmp_path_factory):
    """[(output without its time, drawing)] of one tournament with one thread and with two."""
    folder = tmp_path_factory.mktemp("tournament")
    found = []
    for jobs in (1, 2):
        drawing = folder / f"{jobs}.svg"
        done = lab("sim", "tournament", "--loads", "bursty,batch", "--seeds", 7, "--coarse",
                   "--for", "4h", "--jobs", jobs, "--svg", drawing, "--json")
        lines = [line for line in done.stdout.splitlines() if '"elapsed_us"' not in line]
        assert lines
        found.append((lines, drawing.read_bytes()))
    return found


def test_a_tournament_has_the_same_figures_with_one_thread_and_with_two(tournaments):
    assert tournaments[0][0] == tournaments[1][0]


def test_a_tournament_has_the_same_drawing_with_one_thread_and_with_two(tournaments):
    assert tournaments[0][1] == tournaments[1][1]


@pytest.fixture(scope="module")
def truncated(lab, fleet_csv, tmp_path_factory):
    """What becomes of a fleet file that lacks its last bytes."""
    path = tmp_path_factory.mktemp("truncated") / "synthetic.csv"
    path.write_bytes(fleet_csv.read_bytes()[:-5])
    return lab("sim", "fleet", path, check=False)


def test_a_truncated_file_is_refused(truncated):
    assert truncated.returncode != 0


def test_a_truncated_file_is_refused_by_its_row(truncated):
    assert f"synthetic.csv:{MACHINES * STEPS}:" in truncated.stderr


def test_no_figure_is_printed_for_a_truncated_file(truncated):
    assert truncated.stdout == ""
