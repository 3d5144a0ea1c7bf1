# SPDX-License-Identifier: GPL-2.0-or-later
"""Crashes with slices off, so that a crash kernel takes a dump: crash.py WAY.

Needs holes, a disk, allowed complaints and crashkernel= on the command line. The crash kernel runs
lab/guest/crash-init, which takes the dump in the way named there; what it says goes to the console.
"""

import os
import subprocess
import sys

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev


def main():
    way, = sys.argv[1:]
    subprocess.run(["mkfs.ext4", "-q", "-F", "/dev/vda"], check=True)
    subprocess.run(["modprobe", "ramslice_holes"], check=True)
    device = dev.Device()
    harness.compact(device)
    info = device.info()
    if len(harness.ids(device, dev.OFFLINE)) <= info.nr_slices // 3:
        sys.exit(f"crash.py: {info.offline_pages} pages off are not enough")

    init = dev.Path(__file__).resolve().parents[2] / "guest/crash-init"
    consoles = [
        word
        for word in dev.read("/proc/cmdline").split()
        if word.startswith(("console=", "earlyprintk="))
    ]
    line = [
        *consoles,
        "root=/dev/root",
        "rootfstype=9p",
        "rootflags=trans=virtio,version=9p2000.L,msize=524288",
        "ro",
        f"init={init}",
        "ramslice=off",
        "nr_cpus=1",
        "reset_devices",
        "panic=-1",
        "loglevel=7",
        "no5lvl",
        "--",
        way,
    ]
    kernel = f"{os.environ['RAMSLICE_KERNEL']}/bzImage"
    subprocess.run(
        [
            "kexec",
            "--kexec-file-syscall",
            "--load-panic",
            kernel,
            f"--command-line={' '.join(line)}",
        ],
        check=True,
    )
    if dev.read("/sys/kernel/kexec_crash_loaded") != "1":
        sys.exit("crash.py: the crash kernel is not loaded")
    print(f"crash: {device.info().offline_pages} pages off", flush=True)
    harness.time.sleep(0.5)
    dev.write("/proc/sysrq-trigger", "c")


if __name__ == "__main__":
    main()
