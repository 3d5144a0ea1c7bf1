#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Shows slices being emptied, switched off and woken, in a virtual machine: make demo.

Leaves out/demo/result.json, pictures before, after and at the end, and a table. The status is 0 if
no data was damaged, no process was killed for want of memory and nothing was swapped.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

from ramlab.common import OUT, RAMLAB, ROOT, built, die, kvm_usable
from ramlab.kernel.bases import full_name
from ramlab.kernel.images import image

# Slices of 32 MiB: 128 of them in the guest, as in the papers' machines.
GUEST = ["--mem", "4G", "--cpus", "2", "--disk", "6G", "--timeout", "3600"]
FOLDER = OUT / "demo"
# Something large to read that is surely there: the kernel was built from it.
TARBALL = "/usr/src/linux-source-6.12.tar.xz"
# Rows that the tutorial has and the README has not
NOT_IN_README = ("slices off after the first", "with movablecore", "pages moved", "price predicted")
README_PICTURES = """
![Physical memory before packing: every slice is on](docs/images/map-before.png)
![Physical memory after packing: most slices are off](docs/images/map-after.png)

From the same run: tiles are slices, dark if off ([more](docs/how-to/read-the-map.md)).
*c_bound* is *c* of perfect packing.
"""


def prepare(kernel):
    """Builds what the guest needs; returns our program and libbpf's source."""
    image(kernel)
    print("building the programs, unless they are up to date", flush=True)
    program = os.environ.get("RAMSLICE_PROGRAM") or built("ramslice")
    if subprocess.run([RAMLAB, "guest-programs"], stdout=subprocess.DEVNULL).returncode:
        die("failed: ramlab guest-programs")
    source = subprocess.run([RAMLAB, "kernel", "--source", kernel],
                            stdout=subprocess.PIPE, text=True, check=True)
    return program, source.stdout.split()[-1] + "/tools/lib/bpf"


def guest(kernel, program, append, *words):
    """Runs the demonstration in a guest, its output passing through."""
    line = [RAMLAB, "vm", "--kernel", kernel, *GUEST, "--append", f"ramslice=32M {append}",
            "--rw", FOLDER, "--", "env", f"RAMSLICE_PROGRAM={program}",
            "python3", "-m", "ramlab.guest.demo", FOLDER, "--file", TARBALL, *words]
    return subprocess.run([str(word) for word in line]).returncode


def row(label, value, unit=""):
    return f"  {label:<46} {value:>14}{unit}"


def table(result, short):
    """What happened, for people: lines."""
    mib = 2**20
    return [
        f"ramslice on Linux {result['kernel']}: "
        f"{result['slices_total']} slices of {result['slice_bytes'] // mib} MiB", "",
        row("slices that hold something, before", result["nonempty_before"]),
        row("slices that hold something, after compaction", result["nonempty_after"]),
        row("slices off after the first compaction", result["offline_after_first"]),
        row("slices woken by the second burst", result["woken_by_pressure"]),
        row("slices off after the second compaction", result["offline_after_second"]),
        row("memory off at the end", result["offlined_bytes"] // mib, " MiB"),
        row("c = offlined / (free + offlined)", f"{result['c']:.3f}"),
        row("  the best that was to be had (c_bound)", f"{result['c_bound']:.3f}"),
        row("  with movablecore=3G (bound)",
            f"{result['c_movablecore']:.3f} ({short['c_bound']:.3f})"),
        row("pages moved / dropped", f"{result['pages_migrated']} / {result['pages_dropped']}"),
        row("price predicted / measured (100 cycles)",
            f"{result['price_predicted']} / {result['price_measured']}"),
        row("data errors", result["data_errors"]),
        row("processes killed for want of memory", result["oom_kills"]),
        row("pages swapped out", result["pswpout_delta"]),
    ]


def replace(path, name, text):
    """Writes what stands between two comments of a page."""
    head, start, rest = path.read_text().partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(f"<!-- /{name} -->\n")
    if not end:
        die(f"{path} has no part {name}")
    path.write_text(f"{head}{start}{text}{end}{tail}")


def keep(lines, folder, root=ROOT):
    """Shows this run in the README and the tutorial: the figures, and pictures of the same."""
    def shown(text):
        return "\n".join(["```", *text, "```\n"])

    replace(root / "docs/tutorials/try-it.md", "demo-output", shown(lines))
    excerpt = [line for line in lines if not line.strip().startswith(NOT_IN_README)]
    replace(root / "README.md", "demo-result",
            shown(["$ make demo        # excerpt", *excerpt]) + README_PICTURES)
    for picture, name in (("before", "before"), ("end", "after")):
        shutil.copyfile(folder / f"{picture}.png", root / f"docs/images/map-{name}.png")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="plain", type=full_name, metavar="NAME",
                        help="plain, or plain-7.3 (in short 7.3) for another kernel source")
    parser.add_argument("--keep", action="store_true",
                        help="show this run in the README and in the tutorial")
    args = parser.parse_args()
    kernel = args.kernel
    began = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*"):
        old.unlink()
    program, bpf = prepare(kernel)
    status = guest(kernel, program, "", "--source", bpf)
    if not (FOLDER / "demo.json").exists():
        die(f"the guest left no result (status {status})", status or 1)
    print("\nthe same, shorter, with kernel and user memory apart (movablecore)")
    short_status = guest(kernel, program, "movablecore=3G", "--short")
    if not (FOLDER / "short.json").exists():
        die(f"the guest left no result (status {short_status})", short_status or 1)

    result = json.loads((FOLDER / "demo.json").read_text())
    short = json.loads((FOLDER / "short.json").read_text())
    result["c_movablecore"] = short["c"]
    result["c_bound_movablecore"] = short["c_bound"]
    result["machine"] = "virtualised by KVM" if kvm_usable() else "emulated by QEMU (TCG)"
    for name in ("data_errors", "oom_kills", "pswpout_delta"):
        result[name] += short[name]
    (FOLDER / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = table(result, short)
    print("\n" + "\n".join(lines))
    if "emulated" in result["machine"]:
        print("\n  The machine was emulated: measured prices are emulated cycles, not a CPU's.")
    if args.keep:
        keep(lines, FOLDER)
    folder = FOLDER.relative_to(ROOT)
    print(f"\n  {folder}/before.png, after.png, end.png: physical memory; "
          f"{folder}/result.json: these figures")
    print(f"  {(time.monotonic() - began) / 60:.1f} minutes")
    return 1 if status or short_status else 0


if __name__ == "__main__":
    sys.exit(main())
