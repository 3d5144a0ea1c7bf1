# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a recording with DuckDB and pandas, by its file names alone, and compares sums.

The readers know nothing of ramslice: what they find must be what the kernel reported.
"""

# One value each, which a test expects. The tables are views of the same names.
QUERIES = {
    "samples": "SELECT count(*) FROM samples",
    "slices": "SELECT count(DISTINCT slice_id) FROM snapshots",
    "state_events": "SELECT count(*) FROM events WHERE kind = 'state'",
    "slices_done": "SELECT count(*) FROM events WHERE kind = 'offline' AND error_errno = 0",
    "migrated_pages": "SELECT sum(migrated_pages) FROM events WHERE kind = 'offline'",
    "offline_pages": (
        "SELECT sum(present_pages) FROM snapshots WHERE state = 'offline' "
        "AND sample = (SELECT max(sample) FROM samples)"
    ),
    "slices_woken_by_demand": (
        "SELECT max(total) - min(total) FROM "
        "(SELECT sum(woken_by_demand) AS total FROM zones GROUP BY sample)"
    ),
    "slices_counted": "SELECT sum(census_slices) FROM samples",
    "slices_staying": (
        "SELECT sum(staying_slices) FROM zones WHERE sample = (SELECT max(sample) FROM census)"
    ),
    "sections_removable": (
        "SELECT sum(removable_sections) FROM zones WHERE sample = (SELECT max(sample) FROM census)"
    ),
    "mem_total_bytes": "SELECT max(value) FROM meminfo WHERE name = 'MemTotal' AND unit = 'bytes'",
}
# Statements that hold for any recording.
TRUTHS = {
    "a wake by demand has its thread": (
        "SELECT count(*) > 0 AND bool_and(task IS NOT NULL AND pid IS NOT NULL) FROM events WHERE"
        " by_demand"
    ),
    "requests add up to their slices": (
        "SELECT sum(done_slices) FILTER (kind = 'request' AND op NOT LIKE 'online%') > 0 AND"
        " sum(done_slices) FILTER (kind = 'request' AND op NOT LIKE 'online%') = count(*) FILTER"
        " (kind = 'offline' AND error_errno = 0) AND sum(migrated_pages) FILTER (kind = 'request')"
        " = sum(migrated_pages) FILTER (kind = 'offline') FROM events"
    ),
    "zones add up to the totals": (
        "SELECT count(*) = 1 AND bool_and(s.offline_pages = z.offline_pages AND s.managed_pages ="
        " z.managed_pages) FROM samples s JOIN (SELECT sample, sum(offline_pages) AS offline_pages,"
        " sum(managed_pages) AS managed_pages FROM zones GROUP BY 1) z USING (sample) WHERE sample"
        " = (SELECT max(sample) FROM samples)"
    ),
    "a census counts every page of every slice once": (
        "SELECT count(*) > 0 AND bool_and(pages * 4096 = slice_bytes) FROM (SELECT sample,"
        " free_pages + anonymous_pages + cache_pages + shmem_pages + swap_cache_pages +"
        " buffer_pages + other_movable_pages + slab_pages + page_table_pages +"
        " other_unmovable_pages + off_pages AS pages FROM census) JOIN samples USING (sample)"
    ),
    "a census has all slices of its sample, and no other sample has one": (
        "SELECT count(*) > 1 AND bool_and(s.census_slices = c.slices AND s.nr_slices = c.slices AND"
        " s.census_us > 0) FROM samples s FULL JOIN (SELECT sample, count(*) AS slices FROM census"
        " GROUP BY 1) c USING (sample) WHERE s.census_slices IS NOT NULL OR c.slices IS NOT NULL"
    ),
    "slices with pages that stay add up to those of their zone": (
        "SELECT bool_and(z.staying_slices = c.slices AND z.staying_pages = c.pages AND"
        " z.least_staying_slices <= z.staying_slices AND z.removable_sections <= z.sections) FROM"
        " zones z JOIN (SELECT sample, zone_index, sum(staying_pages) AS pages, count(*) FILTER"
        " (staying_pages > 0 OR unreclaimable) AS slices FROM census JOIN snapshots USING (sample,"
        " slice_id) GROUP BY 1, 2) c USING (sample, zone_index)"
    ),
    # Large allocations of kmalloc are Slab in /proc/meminfo, but have no slab's pages
    "slab and page tables are those of /proc/meminfo": (
        "SELECT count(*) = 2 AND bool_and(c.pages * 4096 BETWEEN c.least * m.value - 1048576 AND"
        " 1.05 * m.value + 1048576) FROM (SELECT 'Slab' AS name, 0.5 AS least, sum(slab_pages) AS"
        " pages FROM census WHERE sample = (SELECT max(sample) FROM census) UNION ALL SELECT"
        " 'PageTables', 0.95, sum(page_table_pages) FROM census WHERE sample = (SELECT max(sample)"
        " FROM census)) c JOIN meminfo m USING (name) WHERE m.sample = (SELECT max(sample) FROM"
        " census)"
    ),
    "times are of the calendar": (
        "SELECT bool_and(realtime_us > TIMESTAMPTZ '2020-01-01') FROM samples"
    ),
    "vmstat counts on": "SELECT max(value) > min(value) FROM vmstat WHERE name = 'pgfault'",
    "every file says its version": (
        "SELECT count(DISTINCT file_name) > 12 AND bool_and(decode(value) = '1') "
        "FROM parquet_kv_metadata('{}/*/*.parquet') WHERE decode(key) = 'ramslice.schema_version'"
    ),
}


TABLES = ("samples", "snapshots", "zones", "events", "meminfo", "vmstat", "census")


def differences(recording, database):
    """Rows, column names and sums that pandas reads differently from DuckDB."""
    import pandas

    for table in TABLES:
        frame = pandas.read_parquet(recording / table)
        columns = {
            name: kind for name, kind, *_ in database.execute(f"DESCRIBE {table}").fetchall()
        }
        if list(frame.columns) != list(columns):
            yield f"{table} has the columns {list(frame.columns)}, not {list(columns)}"
            continue
        sums = [
            f"sum({name}::DOUBLE)"
            for name in columns
            if pandas.api.types.is_numeric_dtype(frame[name])
        ]
        rows, *wanted = database.execute(
            f"SELECT {', '.join(['count(*)', *sums])} FROM {table}"
        ).fetchone()
        found = [
            float(frame[name].sum())
            for name in columns
            if pandas.api.types.is_numeric_dtype(frame[name])
        ]
        if len(frame) != rows:
            yield f"{table} has {len(frame)} rows, not {rows}"
        for column, value, other in zip(sums, found, wanted):
            if abs(value - (other or 0)) > 1e-9 * abs(value):
                yield f"{table}: {column} is {value}, not {other}"


def check_recording(recording, expected):
    """Compares the recording in a folder with expected sums; returns the problems found."""
    # Here, because importing them takes seconds in a guest
    import duckdb

    if missing := set(QUERIES) ^ set(expected):
        raise ValueError(f"queries and expected sums do not match: {', '.join(sorted(missing))}")
    database = duckdb.connect()
    for table in TABLES:
        database.execute(f"CREATE VIEW {table} AS SELECT * FROM '{recording}/{table}/*.parquet'")
    problems = []
    for name, query in QUERIES.items():
        value, = database.execute(query).fetchone()
        if value != expected[name]:
            problems.append(f"{name} is {value}, expected {expected[name]}")
    for name, query in TRUTHS.items():
        value, = database.execute(query.format(recording)).fetchone()
        if value is not True:
            problems.append(f"does not hold: {name}")
    return problems + [f"pandas: {one}" for one in differences(recording, database)]
