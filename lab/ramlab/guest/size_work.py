# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs of `ramlab size`: each works in a root of its own on the slow disk, and checks what
it did.

Whatever a program reads while it runs is on that disk, its own code included: the answers of a file
system of the host's would take no certain time of the guest.
"""

import contextlib
import hashlib
import json
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest.case_work import Wrong, compare

# What ends a run, which must not be lost between a process's begin and the note that it runs.
ENDINGS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class SizedProgram:
    """What the programs share: a root, what is copied into it, a process within it."""

    # What the program printed; its performance's unit, and whether more of it is better
    found = {}
    UNIT, MORE_IS_BETTER = "s", False

    def __init__(self, job, root):
        self.job, self.settings, self.seed = job, job["work"], job["seed"]
        self.root, self.processes = Path(root), []

    def prepare(self):
        """What has to be there before anything is counted."""
        for where, path in sorted(self.job["root_files"].items()):
            to = self.root / where.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            if Path(path).is_dir():
                subprocess.run(["cp", "-a", path, to], check=True)
            else:
                shutil.copy2(path, to)
            if self.job.get("sealed"):
                # A RAM disk's file is in memory as long as it is there
                subprocess.run(["rm", "-r", path], check=True)
        (self.root / "tmp").mkdir(exist_ok=True)
        (self.root / "tmp").chmod(0o1777)
        for name in ("dev", "proc"):
            self.mount(name)

    def mount(self, name):
        """One of the system's folders in the root; what is unmounted there stays elsewhere."""
        (self.root / name).mkdir(exist_ok=True)
        subprocess.run(["mount", "--rbind", "--make-rslave", f"/{name}", self.root / name],
                       check=True)

    def unmount(self, name):
        if os.path.ismount(self.root / name):
            subprocess.run(["umount", "-R", self.root / name], check=True)

    def begin(self, *words, folder="/", user=None, **options):
        """Starts a process in the root, as this host's user if one is named."""
        who = pwd.getpwnam(user) if user else None

        def enter():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
            os.chroot(self.root)
            os.chdir(folder)
            if who:
                os.setgroups([])
                os.setgid(who.pw_gid)
                os.setuid(who.pw_uid)

        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        try:
            process = subprocess.Popen(
                [str(word) for word in words], text=True, preexec_fn=enter, start_new_session=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
            self.processes.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        return process

    def call(self, *words, **options):
        """What a process in the root printed; Wrong if it failed."""
        process = self.begin(*words, **options)
        output, errors = process.communicate()
        if process.returncode:
            ended = f"status {process.returncode}"
            if process.returncode < 0:
                ended = signal.Signals(-process.returncode).name
            raise Wrong(f"{words[0]} ended with {ended}: {(output + errors)[-2000:]}")
        return output

    def run(self):
        """Does the work."""
        raise NotImplementedError

    def work_seconds(self):
        """Seconds of the work itself, by the program's own clock; None if it has none."""
        return self.found["work_s"]

    def performance(self, elapsed_s):
        """How much it did, in UNIT: by default, the seconds of the work itself."""
        return self.work_seconds() or elapsed_s

    def result(self):
        """What came out, as {name: value}."""
        raise NotImplementedError

    def check(self, expected):
        """How many values are as expected; Wrong if one is not."""
        found = self.result()
        compare(found, expected)
        return len(found)

    def refuses(self, expected):
        try:
            self.check(expected)
        except Wrong:
            return True
        return False

    def end(self):
        """Ends what still runs, with all that it started; the root can be unmounted."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name in ("proc", "dev", "sys"):
            self.unmount(name)


class Quicksort(SizedProgram):
    """Sorts one array of integers."""

    def run(self):
        self.found = json.loads(self.call("/quicksort", self.settings["elements"], self.seed))

    def result(self):
        return {key: self.found[key] for key in ("in_order", "elements", "sum", "sum_by_place")}


class Readers(SizedProgram):
    """Reads whole files at random."""

    UNIT, MORE_IS_BETTER = "MB/s", True

    def prepare(self):
        super().prepare()
        for number in range(-(-self.settings["files"] // 100)):
            (self.root / f"data/{number:04d}").mkdir(parents=True)
        self.call("/readers", "make", "/data", self.settings["files"], self.settings["kib"])

    def words(self, reads):
        return ["/readers", "read", "/data",
                *reader_words(self.settings | {"reads": reads}, self.seed)]

    def run(self):
        self.found = json.loads(self.call(*self.words(self.settings["reads"])))

    def performance(self, elapsed_s):
        return self.found["bytes"] / 1e6 / self.work_seconds()

    def result(self):
        return {key: self.found[key] for key in ("files", "bytes", "wrong", "sum")}

    def begin_endless(self, every_ms):
        """Starts reading without an end, with a line of progress as often; SIGTERM ends it."""
        return self.begin(*self.words(10**9), every_ms)


def reader_words(settings, seed):
    """What `readers` is given: its files, and how they are chosen."""
    return [settings["files"], settings["kib"], settings["threads"], settings["reads"], seed,
            settings["biased_percent"], settings["few"]]


class Compile(SizedProgram):
    """Compiles a part of the kernel's source, by as many compilers at a time."""

    def prepare(self):
        super().prepare()
        (self.root / "src/out").mkdir(parents=True, exist_ok=True)
        (self.root / "src/rules.mk").write_text(rules(self.settings, self.seed))

    def run(self):
        self.call("/usr/bin/make", "-s", "-f", "rules.mk", f"-j{self.settings['jobs']}", "all",
                  folder="/src", env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})

    def work_seconds(self):
        return None

    def result(self):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted((self.root / "src/out").glob("*.o"))}


def rules(settings, seed):
    """The makefile of a compile: the order of the units is the seed's."""
    units = list(settings["units"])
    random.Random(seed).shuffle(units)
    includes = " ".join(f"-I{name}" for name in settings["includes"])
    lines = [f"all: {' '.join(f'out/{unit}.o' for unit in units)}"]
    lines += [f"out/{unit}.o: src/{unit}.c\n\tgcc-12 {settings['flags']} {includes} "
              f"-c src/{unit}.c -o $@" for unit in units]
    return "\n".join(lines) + "\n"


class Garbage(SizedProgram):
    """An array of linked lists in Java, each dropped and made again: what a heap of a size costs.

    It has plenty of memory, and is limited by its heap. So it needs no root of its own.
    """

    UNIT, MORE_IS_BETTER = "lists/s", True
    # One collector, which stops the program while it works
    OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    heap_kib = None

    def prepare(self):
        self.heap_kib = self.settings["plenty_heap_kib"]

    def run(self):
        # Half of what is above the live data is for what is new: these have to fit into the rest
        live_kib = self.job.get("footprint_kib") or self.heap_kib // 2
        young_kib = (self.heap_kib - live_kib) // 2
        heap = [f"-Xms{self.heap_kib}k", f"-Xmx{self.heap_kib}k", f"-Xmn{young_kib}k"]
        line = ["java", *self.OPTIONS, *heap, "-cp", self.job["classes"], "Garbage",
                *(str(self.settings[key]) for key in ("lists", "length", "rounds")),
                str(self.seed)]
        done = subprocess.run(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise Wrong(f"java ended with status {done.returncode}: "
                        f"{(done.stdout + done.stderr)[-2000:]}")
        self.found = json.loads(done.stdout)

    def performance(self, elapsed_s):
        return self.found["lists"] / self.work_seconds()

    def result(self):
        return {key: self.found[key] for key in ("lists", "right", "sum")}

    def end(self):
        pass


class Hpl(SizedProgram):
    """HPL, the part of the HPC Challenge that solves a system of linear equations.

    The other parts, which cannot be left out, run before anything is counted, with a small matrix:
    the program reads its input at first and once more at the begin of HPL. There it is stopped, and
    goes on in run(). The residual is checked by HPL itself.
    """

    UNIT, MORE_IS_BETTER = "Gflop/s", True
    BEGIN, END = "Begin of HPL section", "End of HPL section"
    # One of the last parts before HPL, and what all before it have for N
    EARLIER, EARLIER_N = "Begin of MPIFFT section", 200
    POLL_S = 0.005
    # One process, without anything to start or talk to others; what other parts have freed is not
    # kept in the heap, where the matrix would find it
    ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp",
                   "MALLOC_MMAP_THRESHOLD_": "131072", "OPENBLAS_NUM_THREADS": "1",
                   "OMPI_MCA_ess_singleton_isolated": "1",
                   "OMPI_MCA_btl": "self", "OMPI_MCA_pml": "ob1"}
    process = None

    def prepare(self):
        super().prepare()
        self.mount("sys")
        self.write_input(self.EARLIER_N)
        self.out = self.root / "tmp/hpccoutf.txt"
        self.process = self.begin("/usr/bin/hpcc", folder="/tmp", env=self.ENVIRONMENT)
        self.wait_for(self.EARLIER)
        self.write_input(self.settings["n"])
        self.wait_for(self.BEGIN)
        self.process.send_signal(signal.SIGSTOP)

    def write_input(self, n):
        """The program's input, which appears at once."""
        fresh = self.root / "tmp/hpccinf.new"
        fresh.write_text(HPL_INPUT.format(n=n))
        fresh.rename(self.root / "tmp/hpccinf.txt")

    def wait_for(self, text):
        """Until the program has written this."""
        while not (self.out.exists() and text in self.out.read_text()):
            if self.process.poll() is not None:
                raise Wrong(f"hpcc ended with status {self.process.returncode} before "
                            f"'{text}': {self.process.stderr.read()[-2000:]}")
            time.sleep(self.POLL_S)

    def run(self):
        self.process.send_signal(signal.SIGCONT)
        try:
            self.wait_for(self.END)
        finally:
            self.process.kill()
        text = self.out.read_text().split(self.BEGIN)[1]
        row = re.search(r"^W\S+ +(\d+) +\d+ +1 +1 +(\S+) +(\S+)", text, re.MULTILINE)
        if not row:
            raise Wrong(f"hpcc has no result of HPL: {text[-2000:]}")
        self.found = {"n": int(row[1]), "work_s": float(row[2]),
                      "passed": text.count("PASSED"), "failed": text.count("FAILED")}

    def performance(self, elapsed_s):
        n = self.settings["n"]
        # As HPL counts (HPL_pdtest.c)
        return (2 / 3 * n**3 + 1.5 * n**2) / self.work_seconds() / 1e9

    def result(self):
        return {key: self.found[key] for key in ("n", "passed", "failed")}



HPL_INPUT = """\
HPLinpack benchmark input file
one process
HPL.out      output file name
8            device out
1            number of problem sizes
{n}          N
1            number of NBs
80           NB
0            process mapping by rows
1            number of process grids
1            P
1            Q
16.0         threshold of the residual
1            number of panel factorisations
2            PFACT: right
1            number of recursive stopping criteria
4            NBMIN
1            number of panels in recursion
2            NDIV
1            number of recursive panel factorisations
1            RFACT: Crout
1            number of broadcasts
1            BCAST
1            number of lookahead depths
0            DEPTH
2            SWAP
64           swapping threshold
0            L1 in transposed form
0            U in transposed form
1            equilibration
8            memory alignment in doubles
this line is a separator
0            number of additional problem sizes for PTRANS
1200         N
0            number of additional block sizes for PTRANS
40           NB
"""


class Transactions(SizedProgram):
    """A mix like that of TPC-C on PostgreSQL: five transactions as weighted scripts of pgbench, a
    fixed number of them; then the standard's consistency conditions 1 to 4 (clause 3.3.2).
    """

    UNIT, MORE_IS_BETTER = "new orders/min", True
    BIN = "/usr/lib/postgresql/15/bin"
    # In percent: the standard's least for all but the first
    MIX = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}
    # Each counts the rows that break it
    CONDITIONS = {
        "condition_1": "SELECT count(*) FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM "
                       "district WHERE d_w_id = w_id)",
        "condition_2": "SELECT count(*) FROM district WHERE d_next_o_id - 1 <> (SELECT max(o_id) "
                       "FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) OR d_next_o_id - 1 "
                       "<> (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND "
                       "no_d_id = d_id)",
        "condition_3": "SELECT count(*) FROM (SELECT 1 FROM new_order GROUP BY no_w_id, no_d_id "
                       "HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) AS broken",
        "condition_4": "SELECT count(*) FROM district WHERE (SELECT sum(o_ol_cnt) FROM orders "
                       "WHERE o_w_id = d_w_id AND o_d_id = d_id) <> (SELECT count(*) FROM "
                       "order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
    }
    server = None

    def prepare(self):
        super().prepare()
        scripts = self.root / "scripts"
        scripts.mkdir()
        for name in self.MIX:
            (scripts / f"{name}.sql").write_text(
                f"\\set w random(1, {self.settings['warehouses']})\n"
                "\\set d random(1, 10)\n\\set draw random(1, 1000000000)\n"
                f"SELECT {name}(:w, :d, :draw);\n")
        self.server = self.begin(f"{self.BIN}/postgres", "-D", "/data", "-k", "/tmp",
                                 user="postgres")
        if not harness.until(self.is_ready, 300):
            raise Wrong("PostgreSQL does not begin")

    def is_ready(self):
        if self.server.poll() is not None:
            raise Wrong(f"PostgreSQL ended: {self.server.stderr.read()[-2000:]}")
        ask = self.begin(f"{self.BIN}/pg_isready", "-q", "-h", "/tmp", user="postgres")
        ask.communicate()
        return ask.returncode == 0

    def run(self):
        files = [word for name, weight in self.MIX.items()
                 for word in ("-f", f"/scripts/{name}.sql@{weight}")]
        each = self.settings["transactions"] // self.settings["clients"]
        text = self.call(f"{self.BIN}/pgbench", "-n", "-h", "/tmp", "-M", "prepared", "-c",
                         self.settings["clients"], "-j", "1", "-t", each, "--random-seed",
                         self.seed, *files, "postgres", user="postgres")
        self.done = int(re.search(r"actually processed: (\d+)/", text)[1])
        self.failed = int(re.search(r"failed transactions: (\d+)", text)[1])
        self.new_orders = int(re.search(r"new_order\.sql.*?\n.*?- (\d+) transactions", text,
                                        re.DOTALL)[1])

    def work_seconds(self):
        return None

    def performance(self, elapsed_s):
        return self.new_orders / elapsed_s * 60

    def ask(self, statement):
        return self.call(f"{self.BIN}/psql", "-h", "/tmp", "-XAtq", "-c", statement, "postgres",
                         user="postgres").strip()

    def result(self):
        broken = {name: int(self.ask(text)) for name, text in self.CONDITIONS.items()}
        made = int(self.ask("SELECT count(*) FROM orders")) - self.settings["orders"]
        return broken | {"transactions": self.done, "failed": self.failed,
                         "orders_missing": self.new_orders - made}

    def end(self):
        if self.server and self.server.poll() is None:
            # Its fast shutdown
            self.server.send_signal(signal.SIGINT)
            self.server.communicate()
        super().end()


PROGRAMS = {"quicksort": Quicksort, "readers": Readers, "readers-10": Readers,
            "biased": Readers, "biased-10": Readers, "compile": Compile,
            "garbage": Garbage, "hpl": Hpl, "tpcc": Transactions}
