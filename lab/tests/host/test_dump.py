# SPDX-License-Identifier: GPL-2.0-or-later
"""Prometheus and DuckDB take what `ramslice-lab dump` writes, and see what DuckDB sees in Parquet.

Neither shares code with the reader of recordings.
"""

import json
import re
import subprocess

import duckdb
import pytest

# One worker makes the recordings
pytestmark = pytest.mark.xdist_group("dump")

TABLES = ("snapshots", "zones", "events", "meminfo", "vmstat", "census", "samples")
PAGE = 4096
ZONE = 'node="0", zone="Normal"'
# A metric as promtool prints it: its value in DuckDB, and from where.
MADE_UP = {
    '__name__="ramslice_slice_size_bytes"': ("slice_bytes", "samples"),
    '__name__="ramslice_switched_off_slices_total"': ("emptied_slices", "samples"),
    '__name__="ramslice_woken_slices_total"': ("woken_slices", "samples"),
    '__name__="ramslice_dropped_pages_total"': ("dropped_pages", "samples"),
    '__name__="ramslice_price_predicted_cycles_total"':
        ("price_predicted_100cycles * 100", "samples"),
    '__name__="ramslice_census_seconds"': ("census_us / 1e6", "samples"),
    f'__name__="ramslice_memory_bytes", kind="offline", {ZONE}':
        (f"offline_pages * {PAGE}", "zones"),
    f'__name__="ramslice_fragmentation_bound_ratio", {ZONE}':
        ("offline_bound_pages / (free_pages + offline_pages)", "zones"),
    '__name__="ramslice_slices", node="0", state="offline", zone="Normal"':
        ("value", "(SELECT ms, sample, count(*) FILTER (state = 'offline') AS value"
                  " FROM snapshots GROUP BY ms, sample)"),
}
STATISTICS = {
    '__name__="node_memory_MemFree_bytes"': ("value", "meminfo WHERE name = 'MemFree'"),
    '__name__="node_memory_Active_anon_bytes"': ("value", "meminfo WHERE name = 'Active(anon)'"),
    '__name__="node_memory_HugePages_Total"': ("value", "meminfo WHERE name = 'HugePages_Total'"),
    '__name__="node_vmstat_pgfault"': ("value", "vmstat WHERE name = 'pgfault'"),
    '__name__="node_vmstat_nr_kernel_stack_bytes"':
        ("value", "vmstat WHERE name = 'nr_kernel_stack'"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, examples, lab_program):
    """The recordings `made-up`, of an invented machine, and `host`, of the host's statistics."""
    folder = tmp_path_factory.mktemp("dump")
    subprocess.run([examples / "made_up", "made-up", "--census"], cwd=folder, check=True)
    subprocess.run([lab_program, "record", "--statistics-only", "--every", "100ms", "--for", "2s",
                    "-o", "host"], cwd=folder, check=True)
    return folder


def parquet(recording):
    """A database with the tables of a recording; `ms` is a row's time since 1970.

    That is the calendar's at the recording's begin, plus what passed on the clock since boot.
    """
    database = duckdb.connect()
    about = json.loads((recording / "recording.json").read_text())["about"]
    boot_us = about["started_realtime_us"] - about["started_boottime_us"]
    for table in TABLES:
        if any((recording / table).glob("*.parquet")):
            database.execute(
                f"CREATE VIEW {table} AS SELECT *, (boottime_us + {boot_us}) // 1000 AS ms "
                f"FROM '{recording}/{table}/*.parquet'")
    return database


def dumped(lab_program, recording, *words):
    return subprocess.run([lab_program, "dump", recording, *words], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def imported(text, folder):
    """{labels: [(milliseconds, value)]} of a Prometheus that took this text."""
    file, blocks = folder / "metrics.txt", folder / "blocks"
    file.write_text(text)
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", file, blocks],
                   check=True, stdout=subprocess.DEVNULL)
    # promtool wants the log of a running Prometheus, too
    (blocks / "wal").mkdir()
    printed = subprocess.run(["promtool", "tsdb", "dump", blocks], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    series = {}
    for labels, value, time in re.findall(r"^\{(.*)\} (\S+) (\d+)$", printed, re.M):
        series.setdefault(labels, []).append((int(time), float(value)))
    return series


@pytest.mark.parametrize("name, queries", [("made-up", MADE_UP), ("host", STATISTICS)],
                         ids=["made-up", "host"])
def test_prometheus_has_the_figures_of_the_recording(folder, lab_program, tmp_path, name, queries):
    found = imported(dumped(lab_program, folder / name, "-O", "openmetrics"), tmp_path)
    database = parquet(folder / name)
    for labels, (value, source) in queries.items():
        # Of samples within a millisecond the last one counts
        expected = database.execute(
            f"SELECT ms, arg_max({value}, sample) FROM (FROM {source}) "
            f"WHERE {value} IS NOT NULL GROUP BY ms ORDER BY ms").fetchall()
        assert len(expected) > 10
        assert [time for time, _ in found[labels]] == [time for time, _ in expected], labels
        assert [value for _, value in found[labels]] == pytest.approx(
            [float(value) for _, value in expected]), labels


@pytest.mark.parametrize("name, filled", [
    ("made-up", {"snapshots", "zones", "events", "census", "samples"}),
    ("host", {"events", "meminfo", "vmstat", "samples"}),
], ids=["made-up", "host"])
def test_csv_has_every_row_of_the_parquet_files(folder, lab_program, tmp_path, name, filled):
    database = parquet(folder / name)
    found = set()
    for table in filled:
        file = tmp_path / f"{table}.csv"
        file.write_text(dumped(lab_program, folder / name, "--table", table))
        kept = f"SELECT * EXCLUDE ms REPLACE (epoch_us(realtime_us) AS realtime_us) FROM {table}"
        types = {column: kind
                 for column, kind, *_ in database.execute(f"DESCRIBE {kept}").fetchall()}
        csv = f"SELECT * FROM read_csv('{file}', header = true, columns = {types})"
        for one, other in ((kept, csv), (csv, kept)):
            assert database.execute(f"{one} EXCEPT ALL {other}").fetchall() == [], table
        if database.execute(f"SELECT count(*) FROM ({csv})").fetchone()[0]:
            found.add(table)
    assert found == filled


def test_a_part_in_time_is_that_part_and_has_the_labels_asked_for(folder, lab_program, tmp_path):
    text = dumped(lab_program, folder / "made-up", "-O", "openmetrics", "--table", "zones",
                  "--begin", "30s", "--end", "60s", "--label", "instance=a \\ \"b\"")
    found = imported(text, tmp_path)
    database = parquet(folder / "made-up")
    begin, = database.execute("SELECT min(ms) // 1000 * 1000 FROM samples").fetchone()
    within = f"WHERE ms BETWEEN {begin + 30_000} AND {begin + 60_000}"
    expected, = database.execute(f"SELECT count(*) FROM samples {within}").fetchone()
    assert expected == 30
    instance = r'instance="a \\ \"b\""'
    assert len(found[f'__name__="ramslice_empty_slices", {instance}, {ZONE}']) == expected
