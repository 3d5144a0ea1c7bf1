# SPDX-License-Identifier: GPL-2.0-or-later
"""Studies of memory sizes on the host: which programs there are, at which scales, and what each
needs in the guest.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ramlab import guest_programs, provenance
from ramlab.cases import compile as compile_case
from ramlab.common import CACHE, ROOT, die, put_json
from ramlab.guest import size_work
from ramlab.kernel.source import Source

from . import tpcc

SCALES = ("tiny", "full")
HPCC = Path("/usr/bin/hpcc")
OPENMPI = Path("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3")
# Debian's C compiler and what it calls; its own folder has cc1 and headers.
GCC_FOLDER = Path("/usr/lib/gcc/x86_64-linux-gnu/12")
JAVA = Path("/usr/lib/jvm/java-17-openjdk-amd64")


@dataclasses.dataclass(frozen=True)
class Study:
    """A program, as it is studied.

    scales: {scale: {"work": what the program wants to know, "memory_mib": of the machine,
            "disk": of the guest's slow disks}}.
    files: the paths of what its root has, on this host, in a folder made for it.
    expected: (work, seed, folder) -> what must come out, found without the guest.
    packages: the Debian packages that its programs are from.
    is_heap: its heap is limited, not memory; shares are of its live data.
    slice_kib: the size of a slice. A pageblock of 2 MiB is the least that the kernel knows, so that
        a run takes the least time.
    """

    what: str
    scales: dict
    files: object
    expected: object
    packages: tuple = ()
    can_ramp: bool = False
    is_heap: bool = False
    slice_kib: int = 2 << 10
    # Of its machine's kernel, beside those of all
    kernel_words: str = ""
    # The least footprint of a full run, in slices: a slice is then 2.5% of it
    least_slices: int = 40


def libraries(*programs):
    """The paths of programs, of their libraries and of what loads them."""
    found = set()
    for program in programs:
        found.add(str(program))
        # It says of some that they are not dynamic
        done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True)
        found |= set(re.findall(r"(/\S+) \(0x", done.stdout))
    return sorted(found)


# --- what is written for it: lab/guest/*.c ---


def own_program(name):
    """{path in the root: path here} of one of the lab's C programs."""
    program = guest_programs.folder() / name
    return {f"/{name}": str(program)} | {path: path for path in libraries(program)
                                         if path != str(program)}


def ask(name, *words):
    """What one of the lab's C programs prints on this host."""
    line = [str(guest_programs.folder() / name), *map(str, words)]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        die(f"{' '.join(line)} ended with status {done.returncode}")
    return json.loads(done.stdout)


def expected_quicksort(work, seed, _folder):
    found = ask("quicksort", work["elements"], seed)
    return {key: value for key, value in found.items() if key != "work_s"}


def expected_readers(work, seed, _folder):
    found = ask("readers", "expect", *size_work.reader_words(work, seed))
    return {key: value for key, value in found.items() if key != "work_s"}


def readers(threads, biased):
    """Files to be read, as in Virginia Tech 2007: if biased, a twentieth of them has 80% of the
    reads.
    """
    # Biased reads leave a fifth of the files alone
    full = 1500 if biased else 1400

    def work(files, kib, reads):
        return {"files": files, "kib": kib, "threads": threads, "reads": reads,
                "biased_percent": 80 if biased else 0, "few": files // 20}

    return Study(
        f"whole files read at random by {threads} thread{'s' * (threads > 1)}"
        f"{', 80% of the time one of a twentieth' if biased else ''}",
        {"tiny": {"work": work(700, 64, 2100), "memory_mib": 320,
                  "disk": {"swap_mib": 16, "files_mib": 64, "delay_us": 200}},
         "full": {"work": work(full, 64, 33000), "memory_mib": 424,
                  "disk": {"swap_mib": 16, "files_mib": 112, "delay_us": 200}}},
        lambda _folder, _work: own_program("readers"), expected_readers, can_ramp=True)


# --- HPL of the HPC Challenge ---


def hpl_files(_folder, _work):
    """{path in the root: path here}: the program, and the parts of Open MPI that it loads."""
    if not HPCC.exists():
        die(f"{HPCC} is missing: run 'make setup', which installs hpcc")
    found = {path: os.path.realpath(path) for path in libraries(HPCC)}
    for plugin in sorted(OPENMPI.rglob("*.so")):
        found |= {path: os.path.realpath(path) for path in libraries(plugin)}
    return found | {path: path for path in ("/usr/share/openmpi", "/etc/openmpi", "/etc/passwd")}


def expected_hpl(work, _seed, _folder):
    return {"n": work["n"], "passed": 1, "failed": 0}


# --- Java's garbage ---


def java_classes():
    """The folder of the compiled program, made if its source is newer."""
    source = ROOT / "lab/guest/Garbage.java"
    folder = CACHE / "sizes" / f"java-{digest(source.read_text())}"
    if not folder.exists():
        if not shutil.which("javac"):
            die("javac is missing: run 'make setup', which installs openjdk-17-jdk-headless")
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        fresh.mkdir(parents=True)
        subprocess.run(["javac", "-d", fresh, source], check=True)
        fresh.rename(folder)
    return folder


def expected_garbage(work, _seed, _folder):
    """The sum of all values: each list of the last round, which are neighbours."""
    nr, length = work["lists"], work["length"]
    first, count = work["rounds"] * nr * length, nr * length
    return {"lists": work["rounds"] * nr, "right": True,
            "sum": count * first + count * (count - 1) // 2}


# --- the compile of ramlab case ---


def compile_units(units):
    return compile_case.COMMON | {"units": units}


def compile_files(folder, work):
    """{path in the root: path here}: compiler, make, a shell, the sources, and all headers."""
    source = Source()
    source.extract()
    tools = source.pristine / "tools"
    programs = ["/usr/bin/x86_64-linux-gnu-gcc-12", "/usr/bin/x86_64-linux-gnu-as",
                "/usr/bin/make", "/bin/dash", str(GCC_FOLDER / "cc1")]
    found = {path: os.path.realpath(path) for path in libraries(*programs)}
    found |= {"/usr/bin/gcc-12": os.path.realpath(programs[0]), "/bin/sh": "/bin/dash",
              "/usr/bin/as": os.path.realpath(programs[1])}
    here = folder / "tree"
    if not here.exists():
        fresh = folder / "tree.new"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(tools / "lib/bpf", fresh / "src")
        shutil.copytree(tools / "include", fresh / "tools/include")
        shutil.copytree(tools / "arch/x86/include", fresh / "tools/arch/x86/include")
        fresh.rename(here)
    line = ["gcc-12", *work["flags"].split(), *(f"-I{name}" for name in work["includes"]), "-M",
            *(f"src/{unit}.c" for unit in work["units"])]
    done = subprocess.run(line, cwd=here, check=True, stdout=subprocess.PIPE, text=True)
    for name in set(re.findall(r"[^\s\\]+\.[ch]\b", done.stdout)):
        path = os.path.normpath(here / name)
        where = (f"/src/{os.path.relpath(path, here)}" if path.startswith(str(here))
                 else os.path.normpath(name))
        found[where] = path
    return found


def expected_compile(work, seed, folder):
    """The objects as the same compiler makes them here."""
    with tempfile.TemporaryDirectory(prefix="size-", dir="/var/tmp") as work_folder:
        tree = Path(work_folder) / "src"
        shutil.copytree(folder / "tree", tree)
        (tree / "out").mkdir()
        (tree / "rules.mk").write_text(size_work.rules(work, seed))
        subprocess.run(["make", "-s", "-f", "rules.mk", "-j2", "all"], cwd=tree, check=True)
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted((tree / "out").glob("*.o"))}


STUDIES = {
    "quicksort": Study(
        "one array of integers of 64 bits, sorted",
        {"tiny": {"work": {"elements": 5_000_000}, "memory_mib": 320,
                  "disk": {"swap_mib": 40, "files_mib": 16, "delay_us": 200}},
         "full": {"work": {"elements": 11_000_000}, "memory_mib": 416,
                  "disk": {"swap_mib": 96, "files_mib": 16, "delay_us": 200}}},
        lambda _folder, _work: own_program("quicksort"), expected_quicksort),
    "readers": readers(1, biased=False),
    "readers-10": readers(10, biased=False),
    "biased": readers(1, biased=True),
    "biased-10": readers(10, biased=True),
    "hpl": Study(
        "a system of linear equations, solved by HPL of the HPC Challenge",
        {"tiny": {"work": {"n": 500}, "memory_mib": 320,
                  "disk": {"swap_mib": 32, "files_mib": 96, "delay_us": 200}},
         "full": {"work": {"n": 1600}, "memory_mib": 320,
                  "disk": {"swap_mib": 48, "files_mib": 96, "delay_us": 200}}},
        # Its matrix has 20 MB, so that a run ends within a minute: ten slices of the smallest size.
        # Each zone keeps six to eleven MiB free: one will do
        hpl_files, expected_hpl, packages=("hpcc",), kernel_words="memmap=15M$1M",
        least_slices=10),
    "garbage": Study(
        "an array of linked lists in Java, each dropped and made again",
        {"tiny": {"work": {"lists": 200, "length": 1000, "rounds": 3,
                           "plenty_heap_kib": 32 << 10},
                  "memory_mib": 512, "disk": {"swap_mib": 4, "files_mib": 16, "delay_us": 200}},
         "full": {"work": {"lists": 800, "length": 1000, "rounds": 4,
                           "plenty_heap_kib": 160 << 10},
                  "memory_mib": 768, "disk": {"swap_mib": 4, "files_mib": 16, "delay_us": 200}}},
        lambda _folder, _work: {}, expected_garbage, packages=("openjdk-17-jdk-headless",),
        least_slices=0, is_heap=True),
    "compile": Study(
        "libbpf's source by four compilers at a time",
        {"tiny": {"work": compile_units(["nlattr", "strset"]), "memory_mib": 384,
                  "disk": {"swap_mib": 64, "files_mib": 80, "delay_us": 200}},
         "full": {"work": compile_units(compile_case.SMALL), "memory_mib": 768,
                  "disk": {"swap_mib": 192, "files_mib": 96, "delay_us": 200}}},
        compile_files, expected_compile, packages=("gcc-12", "binutils", "make")),
    "tpcc": Study(
        "a mix like TPC-C's on PostgreSQL, by four clients of pgbench",
        {"tiny": {"work": tpcc.settings(1, 10, 80), "memory_mib": 512,
                  "disk": {"swap_mib": 16, "files_mib": 176, "delay_us": 200}},
         "full": {"work": tpcc.settings(2, 1, 1200), "memory_mib": 1104,
                  "disk": {"swap_mib": 32, "files_mib": 448, "delay_us": 200}}},
        lambda folder, work: tpcc.root_files(folder, work, libraries),
        lambda work, _seed, _folder: tpcc.expected(work), packages=("postgresql-15",)),
}


def digest(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def work_of(name, scale):
    """What decides what a program does, in one word."""
    return f"{name}-{scale}-{digest(STUDIES[name].scales[scale])}"


def made_of(name):
    """What decides the files of a study besides what it does, in one word."""
    return digest(Path(tpcc.__file__).read_text(), Source().sha256,
                  [provenance.package_version(package) for package in STUDIES[name].packages])


@functools.cache
def prepared(name, scale):
    """({path in the root: path here}, folder) of a study at a scale."""
    study = STUDIES[name]
    folder = CACHE / "sizes" / f"{work_of(name, scale)}-{made_of(name)}"
    folder.mkdir(parents=True, exist_ok=True)
    return study.files(folder, study.scales[scale]["work"]), folder


def expected(name, scale, seed):
    """What must come out of a run, worked out once on this host for the programs as they are."""
    files, folder = prepared(name, scale)
    stamps = sorted((where, os.stat(path).st_size) for where, path in files.items())
    path = folder / f"expected-{seed}-{digest(stamps)}.json"
    if not path.exists():
        study = STUDIES[name]
        put_json(path, study.expected(study.scales[scale]["work"], seed, folder))
    return json.loads(path.read_text())
