# SPDX-License-Identifier: GPL-2.0-or-later
"""Shows ramslice on Debian's own kernel, in a virtual machine: make demo-stock. No kernel is built.

Leaves pictures before, after and at the end, and result.json, in out/demo-stock. The status is 0 if
blocks went offline and came back, no data was damaged and no process was killed for want of memory.
"""

import argparse
import os
import subprocess
import sys
import time

from ramlab.common import OUT, RAMLAB, ROOT, STOCK_KERNELS, built

FOLDER = OUT / "demo-stock"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", nargs="?", default="6.12", choices=STOCK_KERNELS.values(),
                        help="which of Debian's kernels (default 6.12)")
    series = parser.parse_args().series
    began = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*"):
        old.unlink()
    print("building the programs, unless they are up to date", flush=True)
    program = os.environ.get("RAMSLICE_PROGRAM") or built("ramslice")
    line = [RAMLAB, "vm", "--kernel", f"debian-{series}", "--mem", "2G", "--rw", FOLDER, "--",
            f"RAMSLICE_PROGRAM={program} python3 -m ramlab.guest.demo_stock {FOLDER}"]
    if status := subprocess.run(line, cwd=ROOT).returncode:
        sys.exit(status)
    print()
    print((FOLDER / "result.json").read_text(), end="")
    print(f"out/demo-stock/before.png, after.png, end.png: physical memory; "
          f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
