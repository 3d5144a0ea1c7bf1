# SPDX-License-Identifier: GPL-2.0-or-later
"""A small guest that can be saved, moved to another QEMU, and run several at a time.

The guests of `ramlab vm` have the host's files as their root, which QEMU neither saves nor moves.
This one has a RAM disk with a shell, which carries out what a test says, a line at a time, and the
host's side of it: QEMU's monitor, what the host holds of its memory.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from qemu.qmp.legacy import QEMUMonitorProtocol

from ramlab import guest_programs
from ramlab.common import kvm_usable
from ramlab.vm.complaints import excerpt
from ramlab.vm.kernel_words import DELAY_LOOP, PATIENT

MIB = 1 << 20
# An emulated guest on a busy host takes its time. What passes never waits so long.
PATIENCE_SECONDS = 300
END_SECONDS = 10
BUSYBOX = "busybox"
# The shell on the second serial port: a command a line, its output, its status
INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin LC_ALL=C.UTF-8
mkdir -p /proc /sys /dev /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs -o size=100% tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug
for module in /modules/*; do insmod "$module"; done
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo "guest: ready"
while read -r line; do
	sh -c "$line" </dev/null
	echo "guest: status $?"
done
"""
STATUS = re.compile(rb"^guest: (?:status (\d+)|ready)\r?\n", re.M)
# What QEMU restores in the same process keeps its time stamp counter, which does not go back with
# the other clocks: with that for a clock, time would leap, and the kernel see stalls.
KERNEL_WORDS = f"console=ttyS0 {PATIENT} {DELAY_LOOP} no_timer_check tsc=unstable"


class GuestEnded(AssertionError):
    """QEMU is gone, or the guest does not answer: with the end of its console."""


def _with_libraries(program):
    """The program and the libraries that it needs."""
    listed = subprocess.run(["ldd", program], text=True, capture_output=True, check=True).stdout
    return [Path(program), *map(Path, re.findall(r"(/\S+) \(0x", listed))]


def make_root(folder, kernel, programs, modules=("ramslice_report",)):
    """Writes the RAM disk: the programs are in the guest's PATH. Returns its path."""
    root = folder / "root"
    for name in ("bin", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy(shutil.which(BUSYBOX), root / "bin/busybox")
    for program in (*programs, guest_programs.build() / "memload"):
        first, *libraries = _with_libraries(program)
        subprocess.run(["strip", "-o", root / "bin" / first.name, first], check=True)
        for library in libraries:
            (root / library.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library.relative_to("/"))
    for module in modules:
        shutil.copy(next(kernel.rglob(f"{module}.ko")), root / "modules")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run([BUSYBOX, "cpio", "-o", "-H", "newc"], cwd=root,
                            input=names.encode(), capture_output=True, check=True)
    (folder / "initrd").write_bytes(packed.stdout)
    shutil.rmtree(root)
    return folder / "initrd"


class SmallGuest:
    """A guest while it runs, a context manager; `folder` is its own."""

    def __init__(self, folder, kernel, initrd, mem_mib=512, slices="4M", balloon=True, qemu=(),
                 incoming=None, before=()):
        folder.mkdir()
        self.folder, self.mem_bytes = folder, mem_mib * MIB
        self.console = folder / "console"
        kvm = kvm_usable()
        line = [*before, "qemu-system-x86_64", "-name", "ramslice-small", "-nodefaults",
                "-machine", "q35", "-accel", "kvm" if kvm else "tcg",
                "-cpu", "host" if kvm else "max,-smap", "-smp", "1", "-m", f"{mem_mib}M",
                "-no-reboot", "-display", "none",
                "-kernel", kernel / "bzImage", "-initrd", initrd,
                "-append", f"{KERNEL_WORDS} ramslice={slices}",
                "-serial", f"file:{self.console}",
                "-chardev", "socket,id=shell,path=shell,server=on,wait=off",
                "-serial", "chardev:shell",
                "-chardev", "socket,id=monitor,path=monitor,server=on,wait=off",
                "-mon", "chardev=monitor,mode=control", *qemu]
        if balloon:
            line += ["-device", "virtio-balloon-pci,free-page-reporting=on"]
        if incoming:
            line += ["-incoming", incoming]
        self.stack = contextlib.ExitStack()
        self.errors = self.stack.enter_context(open(folder / "errors", "w+b"))
        self.process = subprocess.Popen([str(word) for word in line], cwd=folder,
                                        stdin=subprocess.DEVNULL, stdout=self.errors,
                                        stderr=self.errors)
        self.stack.callback(self._kill)
        try:
            self.shell = self.stack.enter_context(self._connect("shell"))
            self.qmp = QEMUMonitorProtocol(self._connect("monitor"))
            self.stack.callback(self._close_monitor)
            self.qmp.settimeout(PATIENCE_SECONDS)
            self.qmp.connect()
            self.unread = b""
            if not incoming:
                self._answer()
        except BaseException:
            self.stack.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends QEMU, if it has not ended; again does nothing."""
        self.stack.close()

    def _close_monitor(self):
        # Of a QEMU that was killed, it ends with an end of file
        with contextlib.suppress(EOFError, ConnectionError):
            self.qmp.close()

    def _kill(self):
        self.process.kill()
        self.process.wait()

    def _connect(self, name):
        """A connection to a socket of QEMU's, which is there a moment after it began."""
        found = socket.socket(socket.AF_UNIX)
        end = time.monotonic() + PATIENCE_SECONDS
        folder = os.open(self.folder, os.O_PATH)
        try:
            while True:
                try:
                    # Names of sockets are short: the folder's own may be too long
                    found.connect(f"/proc/self/fd/{folder}/{name}")
                    break
                except (FileNotFoundError, ConnectionRefusedError):
                    if self.process.poll() is not None or time.monotonic() > end:
                        raise self.ended("did not begin") from None
                    time.sleep(0.05)
        finally:
            os.close(folder)
        found.settimeout(PATIENCE_SECONDS)
        return found

    def ended(self, what):
        """An error that says how the guest is."""
        self.errors.flush()
        said = (self.folder / "errors").read_text(errors="replace")[-2000:]
        lines = self.console.read_text(errors="replace").splitlines()[-20:] \
            if self.console.exists() else []
        return GuestEnded(f"the guest {what}; QEMU's status {self.process.poll()}; {said}\n"
                          + "\n".join(lines))

    # --- the guest's side ---

    def _answer(self):
        """What the guest has printed when it is ready for a command, and the status."""
        while not (match := STATUS.search(self.unread)):
            try:
                data = self.shell.recv(1 << 16)
            except (TimeoutError, ConnectionResetError):
                data = b""
            if not data:
                # It may be ending: how it ended is known a moment later
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(END_SECONDS)
                raise self.ended("does not answer")
            self.unread += data
        text = self.unread[:match.start()].decode(errors="replace").replace("\r", "")
        self.unread = self.unread[match.end():]
        return int(match[1] or 0), text

    def start(self, command):
        """Has the guest begin a command; finish() returns what it printed."""
        self.shell.sendall(command.encode() + b"\n")

    def finish(self):
        status, text = self._answer()
        if status:
            raise AssertionError(f"the guest's command ended with {status}: {text}")
        return text

    def run(self, command):
        """Runs a line of shell in the guest; what it printed."""
        self.start(command)
        return self.finish()

    def check_console(self):
        """Fails if the kernel complained."""
        lines = self.console.read_text(errors="replace").replace("\r", "").splitlines()
        if complaints := excerpt(lines):
            raise AssertionError("the kernel complained:\n" + "\n".join(complaints))

    # --- the host's side ---

    def cmd(self, command, **arguments):
        """A command of QEMU's monitor; its answer, or QEMU's error."""
        return self.qmp.cmd(command, **arguments)

    def wait_for(self, what, condition):
        """Waits until a condition on the host's side holds; its value."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (value := condition()):
            if time.monotonic() > end or self.process.poll() is not None:
                raise self.ended(f"has not come to this: {what}")
            time.sleep(0.05)
        return value

    def _end_job(self, name):
        """Waits for one of QEMU's jobs, which must succeed."""
        def done():
            return next((job for job in self.cmd("query-jobs")
                         if job["id"] == name and job["status"] == "concluded"), None)

        found = self.wait_for(f"the end of job {name}", done)
        self.cmd("job-dismiss", id=name)
        if "error" in found:
            raise AssertionError(f"{name}: {found['error']}")

    def make_snapshots(self):
        """Makes the image that save() and load() use."""
        self.cmd("blockdev-create", **{"job-id": "file"}, options={
            "driver": "file", "filename": "snapshots", "size": 0})
        self._end_job("file")
        self.cmd("blockdev-add", **{"driver": "file", "node-name": "file",
                                    "filename": "snapshots"})
        self.cmd("blockdev-create", **{"job-id": "image"}, options={
            "driver": "qcow2", "file": "file", "size": MIB})
        self._end_job("image")
        self.cmd("blockdev-add", **{"driver": "qcow2", "node-name": "snapshots", "file": "file"})

    def snapshot(self, what):
        """Does to the one snapshot what is said: save, load or delete."""
        self.cmd(f"snapshot-{what}", **{"job-id": what}, tag="kept", devices=["snapshots"],
                 **({} if what == "delete" else {"vmstate": "snapshots"}))
        self._end_job(what)

    def migrate(self, uri):
        """Moves the guest away; this QEMU keeps nothing but its monitor."""
        self.cmd("migrate", uri=uri)

        def over():
            status = self.cmd("query-migrate")["status"]
            return status if status in ("completed", "failed", "cancelled") else None

        if (status := self.wait_for("a migration's end", over)) != "completed":
            raise self.ended(f"did not move: {status}")

    def resident_bytes(self):
        """What the host holds of the guest's memory, which is the one mapping of its size."""
        text = Path(f"/proc/{self.process.pid}/smaps").read_text()
        found = re.findall(rf"^Size: +{self.mem_bytes // 1024} kB\n(?:.*\n){{2}}Rss: +(\d+) kB",
                           text, re.M)
        if len(found) != 1:
            raise self.ended(f"has {len(found)} mappings of {self.mem_bytes} bytes")
        return int(found[0]) * 1024
