# SPDX-License-Identifier: GPL-2.0-or-later
"""Work in a guest, and what the host holds of the guest's memory meanwhile.

Usage: python3 -m ramlab.guest.giveback_work OUT [--quick] [--load NAME] ARM MEMORY SOURCE FILE

MEMORY is the file that is the guest's memory (with MEMORY-more, if there is that): the room that it
takes is what the host holds, and is looked at once a second, together with what the guest uses.
SOURCE is libbpf's, in the kernel's tools/lib; FILE is something large to read. The load, of
giveback_loads.py, is the same for each ARM, which says how memory goes back:

  none       it does not
  reporting  free page reporting, as Linux has it (order 9)
  order-0    free page reporting down to single pages
  timer      free page reporting, and every ten seconds caches are dropped and memory is compacted
  virtio-mem a script plugs and unplugs memory by what is available, as QEMU's monitor lets it
  ours       ramsliced switches slices off, which the power driver reports, by the policy periodic
  governor   the same by the governor, which weighs it
  ours-stock a kernel without ramslice: free page reporting, and ramsliced, which reclaims cache
             that was not read for 20 seconds, and compacts memory
  stock-hotplug
             the same kernel: `ramslice giveback --now --hotplug` every ten seconds instead
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from ramlab.common import ROOT
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.daemon import Daemon
from ramlab.guest.giveback_loads import DISK, LOADS
from ramlab.guest.harness import MIB, PAGE, kernel_log, meminfo, per_cpu_pages
from ramlab.guest.never_idle import NeverIdle
from ramlab.guest.qemu_monitor import monitor

PROGRAM = os.environ.get("RAMSLICE_PROGRAM", "ramslice")
ARMS = ["none", "reporting", "order-0", "timer", "virtio-mem", "ours", "governor", "ours-stock",
        "stock-hotplug"]
TIMER_SECONDS = 10
# What begins with a way of giving back, as of a daemon, is over after so long: it is no part
SETTLED_SECONDS = 10
# virtio-mem: what the device can have, and what its script leaves available, in bytes
PLUGGABLE, HEADROOM = 1536 * MIB, 256 * MIB
DEVICE, BLOCK = "/machine/peripheral/more0", 2 * MIB
# What packages come with, as docs/how-to/give-memory-back.md says
PERIODIC = (ROOT / "packaging/examples/giveback.toml").read_text()
GOVERNOR = """mode = "on"
policy = "governor"
period_seconds = 5
[energy]
profile = "giveback"
"""


class Sampler(threading.Thread):
    """What the host holds and what the guest uses, once a second, with the phase of the work.

    Used is what the kernel and programs have, and of page cache what is read again; not what
    processors keep on lists of their own, which is free.
    """

    def __init__(self, memory, idle):
        super().__init__(daemon=True)
        self.idle = idle
        self.files = [file for file in (memory, Path(f"{memory}-more")) if file.exists()]
        self.phase, self.rows, self.phases = "boot", [], []
        self.again = threading.Event()
        self.hot_bytes = 0
        # The kernel itself, and what describes pages, are not in MemTotal
        self.hidden_kib = (sum(os.stat(file).st_size for file in self.files) >> 10) - (
            meminfo()["MemTotal"])

    def run(self):
        while not self.again.wait(1):
            self.sample()

    def sample(self):
        info = meminfo()
        all_kib = info["MemTotal"] + self.hidden_kib
        used = (all_kib - info["MemFree"] - info["Buffers"] - info["Cached"] + info["Shmem"]
                - per_cpu_pages() * PAGE // 1024)
        self.rows.append({
            "s": round(time.monotonic() - START, 2),
            "phase": self.phase,
            "held_bytes": sum(os.stat(file).st_blocks for file in self.files) * 512,
            "used_bytes": (used << 10) + self.hot_bytes,
            "free_bytes": info["MemFree"] << 10,
            "busy_s": self.busy_s(),
        })

    def busy_s(self):
        """By a clock that counts instructions: in thousands of millions of them."""
        return round(time.monotonic() - START - self.idle.seconds(), 3)

    def begin(self, phase):
        now = time.monotonic() - START
        self.phase = phase
        self.phases.append({"s": round(now, 2), "phase": phase, "busy_s": self.busy_s()})
        print(f"{now:6.1f} s  {phase}", flush=True)


@contextlib.contextmanager
def every(seconds, what):
    """Calls `what` again and again; an error ends the work."""
    over = threading.Event()

    def loop():
        while not over.wait(seconds):
            what()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        looping = pool.submit(loop)
        try:
            yield
        finally:
            over.set()
            looping.result()


def drop_and_compact():
    """What people write today."""
    dev.write("/proc/sys/vm/drop_caches", 3)
    dev.write("/proc/sys/vm/compact_memory", 1)


def give_back_by_hotplug():
    """Takes memory blocks for it. Status 1: short of memory, or interrupted."""
    words = ["giveback", "--now", "--hotplug"]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise AssertionError(f"status {done.returncode}: {done.stderr}")


class PluggingScript:
    """virtio-mem as scripts drive it: at once more when little is available, less every ten
    seconds.
    """

    def __init__(self):
        self.wanted, self.look = PLUGGABLE, 0
        self.ask(self.wanted)
        # All of it is there at boot, but for what is still being plugged in
        while monitor().cmd("qom-get", path=DEVICE, property="size") < PLUGGABLE:
            time.sleep(0.1)

    def ask(self, size):
        monitor().cmd("qom-set", path=DEVICE, property="requested-size", value=size)
        self.wanted = size

    def __call__(self):
        self.look += 1
        beyond = meminfo()["MemAvailable"] * 1024 - HEADROOM
        size = min(max(self.wanted - beyond // BLOCK * BLOCK, 0), PLUGGABLE)
        if size > self.wanted or (size < self.wanted and self.look % TIMER_SECONDS == 0):
            self.ask(size)


@contextlib.contextmanager
def daemon(settings, log):
    """ramsliced, with the driver that reports to the host if the kernel has slices; its log is left
    in the file `log`.
    """
    if dev.SYSFS.exists():
        subprocess.run(["modprobe", "ramslice_report"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        running = Daemon(folder)
        Path(folder, "c.toml").write_text('schema_version = 1\n[metrics]\nlisten = "off"\n')
        Path(folder, "c.toml.d").mkdir()
        Path(folder, "c.toml.d/giveback.toml").write_text(settings)
        running.start()
        try:
            yield
        finally:
            running.end()
            shutil.copy(Path(folder, "log"), log)


def read_bytes():
    """Bytes that came from disks since boot."""
    return dev.vmstat("pgpgin") << 10


def stalled_us():
    """How long some task has waited for memory since boot."""
    some = Path("/proc/pressure/memory").read_text().splitlines()[0]
    return int(some.rpartition("=")[2])


def failed_allocations():
    """Allocations that failed since boot, as the kernel's log says."""
    return kernel_log().count("page allocation failure")


@contextlib.contextmanager
def nothing():
    yield


def reserve_bytes():
    """What ramslice keeps awake and free for a sudden need; 0 without it."""
    if not dev.SYSFS.exists():
        return 0
    with dev.Device(os.O_RDONLY) as device:
        return sum(zone.awake_reserve_pages for zone in device.zones()) * device.info().page_bytes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true", help="less work: proves nothing")
    parser.add_argument("--load", choices=LOADS, default="morning")
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("memory", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()

    if args.arm == "order-0":
        dev.write("/sys/module/page_reporting/parameters/page_reporting_order", 0)
    dev.file_system(str(DISK))
    plugging = PluggingScript() if args.arm == "virtio-mem" else None
    before = {name: dev.vmstat(name) for name in ("oom_kill", "pswpout")}
    log = args.out.with_name("ramsliced.log")
    ways = {
        "timer": lambda: every(TIMER_SECONDS, drop_and_compact),
        "virtio-mem": lambda: every(1, plugging),
        "stock-hotplug": lambda: every(TIMER_SECONDS, give_back_by_hotplug),
        "ours": lambda: daemon(PERIODIC, log),
        "ours-stock": lambda: daemon(PERIODIC, log),
        "governor": lambda: daemon(GOVERNOR, log),
    }
    with NeverIdle() as idle:
        sampler = Sampler(args.memory, idle)
        with ways.get(args.arm, nothing)():
            time.sleep(SETTLED_SECONDS)
            read_before, stalled_before = read_bytes(), stalled_us()
            sampler.sample()
            sampler.start()
            result = LOADS[args.load](sampler, args)
        sampler.again.set()
        sampler.join()
        sampler.sample()
    args.out.write_text(json.dumps(result | {
        "arm": args.arm,
        "read_bytes": read_bytes() - read_before,
        "stalled_ms": (stalled_us() - stalled_before) / 1000,
        "failed_allocations": failed_allocations(),
        "busy_s": sampler.rows[-1]["busy_s"] - sampler.rows[0]["busy_s"],
        "reserve_bytes": reserve_bytes(),
        "killed": dev.vmstat("oom_kill") - before["oom_kill"],
        "swapped_pages": dev.vmstat("pswpout") - before["pswpout"],
        "phases": sampler.phases,
        "samples": sampler.rows,
    }) + "\n")


START = time.monotonic()
if __name__ == "__main__":
    main()
