# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes a hibernation image with slices offline and restores it: all but a lost slice is online
then.

Needs holes, a disk, slices of 16 MiB, and a host that refuses the first wake
(RAMSLICE_REFUSED_WAKES=1): that slice is lost, and nothing may touch it for the image, either. The
devices of the root file system do not survive hibernation, so this program reads no file afterwards
and switches the machine off in the end. The last line it prints is its verdict.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import Memory

DISK = "/dev/vda"
POWER = "/sys/power"
MCL_CURRENT, MCL_FUTURE = 1, 2
RB_POWER_OFF = 0x4321FEDC


def check(good, text):
    if not good:
        raise AssertionError(text)


def lose(device):
    """Loses a slice that holds nothing; its number."""
    number = harness.empty_ids(device)[-1]
    done = device.request("offline", id=number)
    check(done.status == 0, repr(done))
    done = device.request("online", id=number)
    check(done.why() == "quarantined", repr(done))
    print(f"hibernate: slice {number} is lost", flush=True)
    return number


def hibernate(device, holes):
    lost = lose(device)
    memory = Memory(96).touch(5)
    harness.compact(device)
    off = harness.ids(device, dev.OFFLINE)
    check(len(off) > device.info().nr_slices // 3, f"only {len(off)} slices off")
    print(f"hibernate: {len(off)} slices off", flush=True)
    log = harness.KernelLog()
    dev.write(f"{POWER}/disk", "test_resume")
    dev.write(f"{POWER}/state", "disk")

    # The machine as it was when the image was made: it knows nothing of writing and reading that
    lines = log.lines()
    check(any("Need to copy" in line for line in lines), "no image was made")
    check(not any("Image saving" in line for line in lines), "the image was not restored")
    print("hibernate: restored", flush=True)
    check(
        not harness.ids(device, dev.OFFLINE),
        "slices were off when the image was made, or are off again",
    )
    others = {
        number: state for number, state in harness.states(device).items() if state != dev.ONLINE
    }
    check(others == {lost: dev.QUARANTINED}, f"states: {others}")
    check(not any("violation" in line for line in lines), "\n".join(lines))
    check(memory.wrong_at(5) is None, f"wrong at {memory.wrong_at(5)}")
    print("hibernate:", dev.verify(), flush=True)
    # And it goes on
    harness.compact(device)
    check(
        len(harness.ids(device, dev.OFFLINE)) > device.info().nr_slices // 3,
        "nothing goes off any more",
    )
    check(memory.wrong_at(5) is None, f"wrong at {memory.wrong_at(5)}")
    done = device.request("online_all")
    check((done.status, done.nr_failed) == (0, 0), repr(done))
    check(dev.read(holes / "violations") == "0", dev.read(holes / "violations"))


def main():
    if not os.environ.get("RAMSLICE_IN_VM"):
        sys.exit("hibernate.py: runs inside a guest only")
    subprocess.run(["mkswap", DISK], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["swapon", DISK], check=True)
    subprocess.run(["modprobe", "ramslice_holes"], check=True)
    dev.debugfs()
    # Who asks for a file afterwards waits for ever, and cannot be frozen
    for pid, name in harness.processes().items():
        if "udevd" in name:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    # Everything needed afterwards must be in memory by then
    if harness.libc.mlockall(MCL_CURRENT | MCL_FUTURE):
        raise OSError(ctypes.get_errno(), "mlockall")
    try:
        hibernate(dev.Device(), dev.Path("/sys/module/ramslice_holes/parameters"))
        print("hibernate: true", flush=True)
    except BaseException as error:
        # A backtrace would read source files
        print(f"hibernate: failed: {error!r}", flush=True)
    harness.time.sleep(0.5)
    harness.libc.reboot(RB_POWER_OFF)


if __name__ == "__main__":
    main()
