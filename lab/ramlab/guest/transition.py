# SPDX-License-Identifier: GPL-2.0-or-later
"""Leaves this kernel with slices offline: by reboot, by kexec, or by suspend.

python3 -m ramlab.guest.transition reboot
python3 -m ramlab.guest.transition reboot-hung
    while a request hangs in the driver
python3 -m ramlab.guest.transition reboot-silent
    with a driver that answers no call to wake a slice
python3 -m ramlab.guest.transition kexec FOLDER
    boots the same kernel, which runs the same command again and compares what it finds
python3 -m ramlab.guest.transition suspend
    passes each test level of idle (s2idle) and off (S3), then suspends until it is woken

After a real suspend the host's file system is gone, so that the program ends by a restart. Real
idle is not tried: the lab's kernels have no alarm that could end it (RTC_INTF_SYSFS). What cannot
be reported afterwards goes to the kernel's console.
"""

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import libc
from ramlab.guest.pinned_memory import PatternedMemory

SECOND = "ramlab.second"
PM = Path("/sys/power")
RB_AUTOBOOT = 0x01234567
MCL_CURRENT, MCL_FUTURE = 1, 2
# After this time a driver that answers no call is given up; no call that works takes so long
SILENT_MS = 5000


def say(text):
    """To the console, behind what the kernel has said so far."""
    dev.write("/dev/kmsg", f"<5>hard: {text}\n")


def check(condition, text):
    """Says what must hold; if it does not, that is the last that is heard."""
    say(f"{'ok' if condition else 'FAILED'}: {text}")
    if not condition:
        libc.reboot(RB_AUTOBOOT)


def figures(device):
    """What another boot of this machine has to find, too."""
    return {"MemTotal": dev.meminfo("MemTotal"), "slices": device.info().nr_slices,
            "bytes": sum(int(end, 16) - int(start, 16) + 1 for start, end in
                         re.findall(r"^(\w+)-(\w+) : System RAM$", dev.read("/proc/iomem"), re.M))}


def go_off(device):
    """Packs memory; returns the number of slices that are off."""
    if not harness.SIM.exists():
        harness.load_sim()
    nr = harness.compact(device)
    check(nr > 8, f"{nr} slices are off")
    return nr


def reboot():
    with dev.Device() as device:
        go_off(device)
        os.sync()
        libc.reboot(RB_AUTOBOOT)


def reboot_hung():
    with dev.Device() as device:
        # A driver that hangs is waited for so long; the request is
        dev.write(dev.SYSFS / "driver_timeout_ms", 600_000)
        go_off(device)
        # One to go off again, and one as room for what else is allocated
        for number in harness.ids(device, dev.OFFLINE)[-2:]:
            device.request("online", id=number)
        dev.write(harness.SIM / "hang_off", 1)
        if not os.fork():
            done = device.request("offline", id=number)
            check(False, f"the request hangs: {done.status} {done.why()}")
        check(harness.until(lambda: dev.read(harness.SIM / "hang_off") == "0"), "the driver hangs")
        os.sync()
        say("restarts")
        libc.reboot(RB_AUTOBOOT)


def reboot_silent():
    with dev.Device() as device:
        harness.load_sim(sleeping=1)
        go_off(device)
        # Room for what else is allocated
        device.request("online", id=harness.ids(device, dev.OFFLINE)[-1])
        dev.write(dev.SYSFS / "driver_timeout_ms", SILENT_MS)
        dev.write(harness.SIM / "hang_wake", 1000)
        os.sync()
        say("restarts")
        libc.reboot(RB_AUTOBOOT)


def first(folder):
    with dev.Device() as device:
        (folder / "figures").write_text(json.dumps(figures(device)))
        line = dev.read("/proc/cmdline")
        image = Path(os.environ["RAMSLICE_KERNEL"]) / "bzImage"
        # Loaded while slices are off: the new kernel's place may be in one of them
        nr = go_off(device)
        subprocess.run(["kexec", "-c", "-l", image, f"--command-line={line} {SECOND}"], check=True)
        check(int(dev.read("/sys/kernel/kexec_loaded")) == 1, "a kernel is loaded")
        (folder / "off").write_text(str(nr))
        os.sync()
        subprocess.run(["kexec", "-e"], check=True)


def second(folder):
    """All of memory is there, works, and can be switched off and on as before."""
    with dev.Device() as device:
        before = json.loads((folder / "figures").read_text())
        now = figures(device)
        if now["slices"] != before["slices"] or now["bytes"] != before["bytes"]:
            sys.exit(f"it was {before} and is {now}")
        if abs(now["MemTotal"] - before["MemTotal"]) > 1024:
            sys.exit(f"MemTotal was {before['MemTotal']} kB and is {now['MemTotal']} kB")
        if any(state != dev.ONLINE for state in harness.states(device).values()):
            sys.exit("not every slice is awake")
        with harness.Memory(dev.meminfo("MemAvailable") // 1024 - 60) as memory:
            wrong = memory.touch().wrong_at()
        if wrong is not None:
            sys.exit(f"offset {wrong} does not hold what was put there")
        nr, old = go_off(device), int((folder / "off").read_text())
        device.request("online_all")
        dev.verify()
        if nr < old - 4 or harness.violations():
            sys.exit(f"{nr} slices went off, {old} before; {harness.violations()} violations")
        print(f"kexec: {now}; {old} slices were off, {nr} went off again")


def suspend():
    """Passes each test level in turn, then suspends until ramlab wake-guest wakes the machine."""
    # The host's files are out of reach from the first level on that stops devices: who reached for
    # them then could not be frozen for the next
    subprocess.run(["udevadm", "control", "--exit"], check=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE):
        sys.exit("mlockall failed")
    device = dev.Device()
    dev.write("/sys/module/suspend/parameters/pm_test_delay", 1)
    dev.write(PM / "mem_sleep", "deep")
    memory = PatternedMemory(32)
    go_off(device)
    dev.verify()
    rounds = [
        ("freezer", "freeze"),
        ("devices", "freeze"),
        ("platform", "freeze"),
        ("devices", "mem"),
        ("platform", "mem"),
        ("processors", "mem"),
        ("core", "mem"),
        ("none", "mem"),
    ]
    for level, state in rounds:
        nr = go_off(device)
        dev.write(PM / "pm_test", level)
        say(f"suspending: {state}, test {level}")
        try:
            dev.write(PM / "state", state)
            error = None
        except OSError as failure:
            error = failure
        check(error is None, f"{state}, {level}: suspended and resumed ({error})")
        check(
            not harness.ids(device, dev.OFFLINE),
            f"{state}, {level}: {nr} slices were off, all are awake",
        )
        check(memory.wrong_at() is None, f"{state}, {level}: memory is as it was")
        check(harness.violations() == 0, f"{state}, {level}: nothing was violated")
    go_off(device)
    device.request("online_all")
    check(memory.wrong_at() is None, "slices go off and on as before")
    say("suspend: done")
    time.sleep(0.5)
    libc.reboot(RB_AUTOBOOT)


def main():
    if not os.environ.get("RAMSLICE_IN_VM"):
        sys.exit(f"{sys.argv[0]}: runs inside a guest only")
    libc.reboot.argtypes = [ctypes.c_uint]
    what = sys.argv[1]
    if what == "kexec":
        folder = Path(sys.argv[2])
        (second if SECOND in dev.read("/proc/cmdline").split() else first)(folder)
    else:
        {"reboot": reboot, "reboot-hung": reboot_hung, "reboot-silent": reboot_silent,
         "suspend": suspend}[what]()


if __name__ == "__main__":
    main()
