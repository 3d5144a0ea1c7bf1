# SPDX-License-Identifier: GPL-2.0-or-later
"""Importing a generated OpenStreetMap extract with osm2pgsql into PostgreSQL with PostGIS."""

import shutil
import subprocess

from ramlab.common import CACHE, ROOT
from ramlab.guest import case_work

from . import environment, folder_of, native, prepared

SCALES = {
    "tiny": {"nodes": 2000, "rounds": 1, "pause_s": 0},
    "small": {"nodes": 30000, "rounds": 6, "pause_s": 0},
    # So long that a setting sends more than ten requests, one each 20 s, and what it dropped is
    # read again
    "full": {"nodes": 200000, "rounds": 12, "pause_s": 16},
}
STYLE = "/usr/share/osm2pgsql/default.style"
PROGRAM = ROOT / "lab/ramlab/cases/make_extract.py"
# The data base of a machine with little memory: what it reads again comes from the page cache.
CONFIGURATION = """
listen_addresses = ''
shared_buffers = 4MB
maintenance_work_mem = 32MB
fsync = off
full_page_writes = off
max_wal_size = 64MB
min_wal_size = 32MB
wal_level = minimal
max_wal_senders = 0
max_parallel_workers_per_gather = 0
autovacuum = off
jit = off
dynamic_shared_memory_type = mmap
"""


def _work(scale):
    return SCALES[scale] | {"style": STYLE}


def home(scale):
    return folder_of("import", scale, _work(scale), [__file__, PROGRAM, case_work.Import])


def prepare(scale):
    work = _work(scale)

    def make(disk, _):
        subprocess.run(
            [CACHE / "python/bin/python", PROGRAM, disk / "extract.osm.pbf", str(work["nodes"])],
            check=True,
            env=environment(),
        )
        # The server does not run as root, and its socket's path has to be short
        shutil.chown(disk, "postgres", "postgres")
        job = {"seed": 1, "work": work | {"rounds": 0, "pause_s": 0}}
        server = case_work.Import(job, disk)
        data = disk / "pg"
        server.must(
            server.BIN / "initdb", "-D", data, "-A", "trust", "--no-locale", "-E", "UTF8", "-N"
        )
        with open(data / "postgresql.conf", "a") as file:
            file.write(CONFIGURATION)
        expected, mib = _fill(server, disk, data, job)
        return expected | {"work": work}, mib

    return prepared(home(scale), make)


def _fill(server, disk, data, job):
    """An empty data base in the disk's folder, and what an import into a copy of it gives."""
    server.start(data)
    try:
        for words in (
            ["createdb", "-h", data, "gis"],
            [
                "psql",
                "-h",
                data,
                "-d",
                "gis",
                "-c",
                "CREATE EXTENSION postgis; CREATE EXTENSION hstore",
            ],
        ):
            server.must(*words, cwd="/tmp")
    finally:
        server.as_postgres(
            server.BIN / "pg_ctl", "-D", data, "-m", "fast", "-w", "stop", cwd="/tmp"
        )
    times = []
    for _ in range(2):
        expected, cpu = native(case_work.Import, job, disk)
        times.append(cpu)
    size = sum(p.stat().st_size for p in disk.rglob("*") if p.is_file()) >> 20
    shutil.rmtree(disk / "server")
    return {"expected": expected, "native_cpu_s": times}, 2 * size + 128
