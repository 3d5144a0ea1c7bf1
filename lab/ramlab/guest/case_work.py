# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs of the case studies: each runs, takes its pauses, and checks its own result.

They run inside the guest. They also run on the host, for the expected result and the time that the
work takes without emulation.
"""

import copy
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path


class Wrong(Exception):
    """The program did not do what it was there for."""


def compare(found, expected):
    """Raises Wrong, which names the first, if values differ: {name: value} each."""
    names = [n for n in {**found, **expected} if found.get(n) != expected.get(n)]
    if names:
        raise Wrong(f"{len(names)} of {len(expected)} differ, {names[0]} first: "
                    f"{found.get(names[0])} instead of {expected.get(names[0])}")


def spoiled(expected):
    """An expected result with its first value changed, for a check of the check."""
    other = copy.deepcopy(expected)
    name = sorted(other)[0]
    other[name] = f"not {other[name]}" if isinstance(other[name], str) else other[name] + 1
    return other


class Work:
    """What the programs share: phases and pauses on the clock, CPU time, a check of the result."""

    def __init__(self, job, folder):
        self.job, self.settings, self.folder = job, job["work"], Path(folder)
        self.random = random.Random(job["seed"])
        self.phases, self.busy_s, self.cpu_s = [], 0.0, 0.0

    def prepare(self):
        """What has to be there before anything is counted."""

    def run(self):
        raise NotImplementedError

    def result(self):
        """What came out, as {name: value}."""
        raise NotImplementedError

    def phase(self, name, does):
        """Carries out a part of the work on the clock."""
        began, cpu = time.monotonic(), self.used()
        value = does()
        took, cpu = time.monotonic() - began, self.used() - cpu
        self.phases.append({"name": name, "took_s": round(took, 2), "cpu_s": round(cpu, 2)})
        self.busy_s += took
        self.cpu_s += cpu
        return value

    def used(self):
        """Processor time of this process' children that have ended."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def pause(self):
        if self.settings["pause_s"]:
            time.sleep(self.settings["pause_s"])
            self.phases.append({"name": "pause", "took_s": self.settings["pause_s"], "cpu_s": 0})

    def check(self, expected):
        """The result, if it is what is expected; raises Wrong."""
        found = self.result()
        compare(found, expected)
        text = json.dumps(found, sort_keys=True)
        return {"checked": len(found), "sha256": hashlib.sha256(text.encode()).hexdigest()}

    def refuses(self, expected):
        try:
            self.check(expected)
        except Wrong:
            return True
        return False


class Compile(Work):
    """libbpf of the kernel's source, by as many compilers at a time; then again after a change.

    The change is a header's and makes some of the objects stale.
    """

    def prepare(self):
        self.out = self.folder / "out"
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        units = list(self.settings["units"])
        self.random.shuffle(units)
        includes = " ".join(f"-I{name}" for name in self.settings["includes"])
        rules = [f"all: {' '.join(f'out/{u}.o' for u in units)}"]
        for unit in units:
            again = " stamp" if unit in self.settings["again"] else ""
            # Without the folder's own name in it, an object is the same wherever it is made
            rules.append(f"out/{unit}.o: src/{unit}.c{again}\n"
                         f"\tgcc {self.settings['flags']} {includes} -c src/{unit}.c -o $@")
        (self.folder / "rules.mk").write_text("\n".join(rules) + "\n")
        (self.folder / "stamp").touch()

    def make(self):
        done = subprocess.run(["make", "-s", "-f", "rules.mk", f"-j{self.settings['jobs']}", "all"],
                              cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise Wrong(f"make: {done.stdout}")

    def run(self):
        self.phase("build", self.make)
        self.pause()
        for _ in range(self.settings["rounds"]):
            (self.folder / "stamp").touch()
            self.phase("build again", self.make)
            self.pause()

    def result(self):
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest()
                for p in sorted(self.out.glob("*.o"))}


class Tpch(Work):
    """Queries derived from TPC-H on DuckDB, in random order with pauses, by one process."""

    PYTHON = "python/bin/python"

    def prepare(self):
        self.answers = {}
        every = self.settings["queries"]
        self.order = [self.random.choice(every) for _ in range(self.settings["count"])] or every
        program = Path(os.environ.get("RAMSLICE_CACHE", "")) / self.PYTHON
        self.process = subprocess.Popen(
            [str(program) if program.exists() else sys.executable, "-m", "ramlab.guest.case_tpch",
             str(self.folder / "data.duckdb"), self.settings["memory"]],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask({"query": 0})

    def ask(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Wrong(f"DuckDB ended with status {self.process.wait()}")
        answer = json.loads(line)
        self.own = answer["cpu_s"]
        return answer

    def used(self):
        return self.own

    def run(self):
        for number in self.order:
            answer = self.phase(f"query {number}",
                                lambda number=number: self.ask({"query": number}))
            if self.answers.setdefault(str(number), answer["sha256"]) != answer["sha256"]:
                raise Wrong(f"query {number} has two answers")
            self.pause()
        self.process.stdin.close()
        self.process.wait()

    def result(self):
        return self.answers

    def check(self, expected):
        return super().check({n: expected[n] for n in self.answers})

    def refuses(self, expected):
        # The first value that is spoiled may be of a query that was not asked
        return super().refuses({n: f"not {value}" for n, value in expected.items()})


AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
BY_INDEX = "SET enable_seqscan = off; SET enable_bitmapscan = off"


class Import(Work):
    """osm2pgsql imports an extract into PostgreSQL with PostGIS, by tables that it reads often."""

    BIN = Path("/usr/lib/postgresql/15/bin")
    # What a service does with such a data base. Whole tables, in the order of the place:
    READS = {
        "polygons": "SELECT count(*), round(sum(ST_Area(way))) FROM planet_osm_polygon",
        "lines": "SELECT count(*), round(sum(ST_Length(way))) FROM planet_osm_line",
        "nodes": "SELECT count(*), sum(lat::bigint) FROM planet_osm_nodes",
        "ways": "SELECT count(*), sum(cardinality(nodes)) FROM planet_osm_ways",
    }
    # and by their indexes, which wander through them
    READS |= {f"{name} by index": f"{BY_INDEX}; {statement}" for name, statement in {
        "polygons": "SELECT count(*), sum(ST_NPoints(way)) FROM planet_osm_polygon WHERE way && "
                    "ST_TileEnvelope(0, 0, 0)",
        "lines": "SELECT count(*), sum(ST_NPoints(way)) FROM planet_osm_line WHERE way && "
                 "ST_TileEnvelope(0, 0, 0)",
        "nodes": "SELECT count(*), sum(lat::bigint) FROM planet_osm_nodes WHERE id > 0",
        "ways": "SELECT count(*), sum(cardinality(nodes)) FROM planet_osm_ways WHERE id > 0",
    }.items()}
    READS_A_ROUND = 4

    def as_postgres(self, *words, **options):
        return subprocess.run([*AS_POSTGRES, *map(str, words)], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, **options)

    def must(self, *words, **options):
        done = self.as_postgres(*words, **options)
        if done.returncode:
            raise Wrong(f"{words[0]}: {done.stdout[-2000:]}")
        return done.stdout

    def prepare(self):
        # A copy, so that each run begins with an empty data base
        self.data, self.answers = self.folder / "server", {}
        shutil.rmtree(self.data, ignore_errors=True)
        subprocess.run(["cp", "-a", self.folder / "pg", self.data], check=True)
        self.start(self.data)

    def start(self, data):
        # A server that is started with its output in a pipe keeps that open
        with open(os.devnull, "w") as null:
            done = subprocess.run(
                [*AS_POSTGRES, str(self.BIN / "pg_ctl"), "-D", str(data), "-l", str(data / "log"),
                 "-w", "-o", f"-k {data}", "-t", "600", "start"],
                cwd="/tmp", stdout=null, stderr=null)
        if done.returncode:
            raise Wrong(f"pg_ctl: {(data / 'log').read_text()[-2000:]}")

    def server_cpu(self):
        """CPU time of the server: its own, that of its processes, and of those that have ended."""
        server = (self.data / "postmaster.pid").read_text().split()[0]
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(") ", 1)[1].split()
            except OSError:
                continue
            if path.parent.name == server:
                ticks += sum(map(int, fields[11:15]))
            elif fields[1] == server:
                ticks += sum(map(int, fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def used(self):
        return super().used() + self.server_cpu()

    def psql(self, statement):
        return self.must("psql", "-h", self.data, "-d", "gis", "-XAtq", "-F", " ", "-c", statement,
                         cwd="/tmp").strip()

    def run(self):
        try:
            self.work()
        finally:
            self.as_postgres(self.BIN / "pg_ctl", "-D", self.data, "-m", "fast", "-w",
                             "-t", "600", "stop", cwd="/tmp")

    def work(self):
        extract = self.folder / "extract.osm.pbf"
        self.phase("import", lambda: self.must(
            "osm2pgsql", "--create", "--slim", "-C", "0", "--number-processes", "1",
            "-H", self.data, "-d", "gis", "-S", self.settings["style"], extract, cwd="/tmp"))
        self.pause()
        for number in range(self.settings["rounds"]):
            self.phase(f"look-ups {number + 1}", self.look_ups)
            self.pause()
        self.rows = self.phase("count", self.count)

    def look_ups(self):
        """Some of the reads in random order, each with the answer that it had before."""
        for name in self.random.sample(sorted(self.READS), self.READS_A_ROUND):
            answer = self.psql(self.READS[name])
            if self.answers.setdefault(name, answer) != answer:
                raise Wrong(f"{name}: {answer}, and {self.answers[name]} before")

    def count(self):
        tables = ("point", "line", "polygon", "roads", "nodes", "ways", "rels")
        text = self.psql("; ".join(f"SELECT '{t}', count(*) FROM planet_osm_{t}" for t in tables))
        rows = {name: int(number) for name, number in (line.split() for line in text.splitlines())}
        # Not rows alone: what is in them
        rows["length_m"] = round(float(
            self.psql("SELECT sum(ST_Length(way)) FROM planet_osm_line")))
        rows["area_m2"] = round(float(
            self.psql("SELECT sum(ST_Area(way)) FROM planet_osm_polygon")))
        return rows

    def result(self):
        return self.rows


CASES = {"compile": Compile, "tpch": Tpch, "import": Import}
