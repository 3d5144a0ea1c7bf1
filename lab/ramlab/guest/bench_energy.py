#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples for the price model, as `ramslice-lab calibrate` takes them.

They are slices of artificial mixtures and of ordinary programs.

Usage: python3 -m ramlab.guest.bench_energy RESULT [--quick] PROGRAM SEED

PROGRAM is ramslice-lab; /dev/vda is an empty disk. RESULT becomes its file of samples. Whether the
machine is steady is for the reader of the samples to say.
"""

import os
import subprocess
import sys
from pathlib import Path

from ramlab.guest import ramslice_dev as dev


def main():
    program, seed = (word for word in sys.argv[2:] if word != "--quick")
    quick = "--quick" in sys.argv
    dev.file_system()
    (Path("/mnt") / "fill").mkdir()
    programs = Path(__file__).resolve().parents[2] / "guest/programs.sh"
    environment = os.environ | {"RAMSLICE_ROOT": str(programs.parents[2])}
    command = [program, "calibrate", "--anyway", "--seed", seed,
               "--dir", "/mnt/fill", "--memory", "25%", "--samples", "8" if quick else "20",
               "--held-out", "20" if quick else "160", "-o", sys.argv[1],
               "--", programs, "1" if quick else "3"]
    subprocess.run([str(word) for word in command], check=True, env=environment)


if __name__ == "__main__":
    main()
