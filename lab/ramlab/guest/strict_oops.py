# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads an offline slice in strict mode, which is an oops: prints the address and does not
survive it.

Runs in a guest with --holes and --allow-splats, as python3 -m ramlab.guest.strict_oops.
"""

import os
import subprocess
import sys

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE
from ramlab.guest.proofs import STRICT, kcore_segments


def main():
    if not os.environ.get("RAMSLICE_IN_VM"):
        sys.exit("strict_oops: runs inside a guest only")
    for module in ("ramslice_holes", "ramslice_touch"):
        subprocess.run(["modprobe", module], check=True)
    dev.write(STRICT, 1)
    with dev.Device() as device, open("/proc/kcore", "rb", buffering=0) as kcore:
        empty = harness.empty_ids(device)
        number = empty[len(empty) // 2]
        pfn = number * device.info().slice_bytes // PAGE + 1234
        touch = dev.debugfs().parent / "ramslice_touch/touch"
        dev.write(touch, f"map {pfn}")
        done = device.request("offline", id=number, flags=dev.IGNORE_BACKOFF)
        if done.status:
            sys.exit(f"strict_oops: slice {number} does not go offline: {done.why()}")
        segment = next(s for s in kcore_segments(kcore) if s.is_ram)
        print(f"expect a fault at {segment.virtual - segment.physical + pfn * PAGE:x}", flush=True)
        dev.write(touch, f"read {pfn}")
    sys.exit("strict_oops: the page was read")


if __name__ == "__main__":
    main()
