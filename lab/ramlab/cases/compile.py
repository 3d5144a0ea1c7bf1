# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiling libbpf, a part of the kernel's own source, which lab/setup pins by its hash."""

import shutil

from ramlab.guest import case_work
from ramlab.kernel.source import Source

from . import folder_of, native, prepared

ALL = [
    "bpf",
    "bpf_prog_linfo",
    "btf",
    "btf_dump",
    "btf_iter",
    "btf_relocate",
    "elf",
    "features",
    "gen_loader",
    "hashmap",
    "libbpf",
    "libbpf_errno",
    "libbpf_probes",
    "linker",
    "netlink",
    "nlattr",
    "relo_core",
    "ringbuf",
    "str_error",
    "strset",
    "usdt",
    "zip",
]
FEW = ["hashmap", "nlattr", "strset"]
SMALL = [
    "btf_relocate",
    "elf",
    "features",
    "gen_loader",
    "libbpf_probes",
    "netlink",
    "nlattr",
    "relo_core",
    "ringbuf",
    "strset",
    "usdt",
    "zip",
]
COMMON = {
    "flags": "-O1 -fPIC -D_GNU_SOURCE -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64",
    "jobs": 4,
    "includes": ["src", "tools/include", "tools/include/uapi", "tools/arch/x86/include"],
}
SCALES = {
    "tiny": COMMON | {"units": FEW, "again": ["strset"], "rounds": 1, "pause_s": 4},
    "small": COMMON
    | {"units": SMALL, "again": ["elf", "strset", "zip"], "rounds": 1, "pause_s": 100},
    "full": COMMON
    | {
        "units": ALL,
        "again": ["btf_dump", "elf", "features", "netlink", "ringbuf", "zip"],
        "rounds": 2,
        "pause_s": 150,
    },
}


def home(scale):
    return folder_of("compile", scale, SCALES[scale], [__file__, case_work.Compile])


def prepare(scale):
    work = SCALES[scale]

    def make(disk, _):
        source = Source()
        source.extract()
        tools = source.pristine / "tools"
        shutil.copytree(tools / "lib/bpf", disk / "src")
        shutil.copytree(tools / "include", disk / "tools/include")
        shutil.copytree(tools / "arch/x86/include", disk / "tools/arch/x86/include")
        job = {"seed": 1, "work": work | {"pause_s": 0, "rounds": 0}}
        times = []
        for _ in range(3):
            expected, cpu = native(case_work.Compile, job, disk)
            times.append(cpu)
            shutil.rmtree(disk / "out")
        return {
            "expected": expected,
            "native_cpu_s": times,
            "work": work,
            "source": source.describe(),
        }, 256

    return prepared(home(scale), make)
