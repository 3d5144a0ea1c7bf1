# SPDX-License-Identifier: GPL-2.0-or-later
"""One boot of a machine and the tests that it runs: its start, reports, console and end."""

import argparse
import contextlib
import ctypes
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from ramlab import guest_programs
from ramlab.architectures import ARCHITECTURES, NATIVE
from ramlab.common import (
    CACHE,
    FLAVOURS,
    RAMLAB,
    ROOT,
    STOCK_KERNELS,
    kvm_usable,
    own_folder,
)
from ramlab.kernel.bases import flavour_and_base
from ramlab.kernel.images import image
from ramlab.testing.guest import MARK
from ramlab.vm import boot as vm
from ramlab.vm import complaints, hole_punch_host

LAB = ROOT / "lab"
# Until the first test begins; an emulated machine beside others takes its time.
BOOT_SECONDS = 900
# For the machine's end after the last test, and for the rest of a complaint.
END_SECONDS, COMPLAINT_SECONDS = 180, 3
# For the console to show what came before a report that is here already.
CONSOLE_SECONDS = 20
BEGIN = re.compile(r"ramlab: test (\d+) begins")
END = re.compile(r"ramlab: all tests ended")
TAIL = 40
SHM = Path("/dev/shm")
SHM_BYTES = 3 << 30
PR_SET_PDEATHSIG = 1
# Supervisor mode access prevention makes an emulator leave its translated code twice for each copy
# to or from user space: a tenth of a boot and more. Kernels with checkers keep it.
LIGHT_PROCESSOR = "-cpu max,-smap"
# pytest's own plug-ins that guests do without: each is a module to import, emulated.
UNUSED = ("junitxml", "doctest", "pastebin", "stepwise", "setuponly", "setupplan", "faulthandler",
          "cacheprovider", "unraisableexception", "threadexception")


class Ended(Exception):
    """The guest can run no more tests: why."""

    def __init__(self, why, text):
        super().__init__(why)
        self.why, self.text = why, text


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _shared_folder(owner):
    """A boot's own folder, with a short name: sockets lie in it, and memory of a guest."""
    roomy = SHM.is_dir() and shutil.disk_usage(SHM).free >= SHM_BYTES
    return own_folder("ramslice-", SHM if roomy else Path("/tmp"), owner)


class Lines:
    """Lines of a pipe as they come."""

    def __init__(self, pipe):
        self.fd, self.rest = pipe.fileno(), b""

    def read(self):
        """The lines that came, or None at the end."""
        data = os.read(self.fd, 1 << 16)
        if not data and not self.rest:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n") if data else [self.rest, b""]
        return [line.decode(errors="replace").rstrip("\r") for line in lines]


class Boot:
    """A guest and the tests that it was given, by their numbers."""

    def __init__(self, machine, nodeids, seconds, config):
        self.machine, self.nodeids, self.seconds = machine, nodeids, seconds
        self.config = config
        self.reports = {n: [] for n in range(len(nodeids))}
        self.ended_tests, self.missing = set(), set()
        self.at = self.console_at = -1
        self.console, self.output, self.uncollected = [], [], []
        self.complained_at = self.complained_when = None
        self.complaints = complaints.Reader()
        self.console_done = False
        self.stack = contextlib.ExitStack()
        self.process = None
        try:
            self._start()
        except BaseException:
            self.stack.close()
            raise
        self.began = self.since = time.monotonic()

    # --- starting ---

    def _start(self):
        own = own_folder("test-", CACHE / "runs", self.stack)
        shared = _shared_folder(self.stack)
        (own / "items").write_text(json.dumps(self.nodeids))
        for name, content in self.machine.files:
            if callable(content):
                content(shared / name)
            else:
                subprocess.run(["truncate", "-s", content, shared / name], check=True)
        options = self._options(own, shared)
        if program := self.config.getoption("guest_program"):
            # Not in a virtual machine at all
            script = own / "fake.sh"
            script.write_text(options.command[0])
            line = [program, script]
        else:
            kernel = image(self.machine.kernel, ARCHITECTURES[self.machine.arch])
            self.stack.enter_context(hole_punch_host.beside(options, own))
            line = vm.virtme(options, own, kernel)
        self.process = subprocess.Popen(
            [str(word) for word in line], cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=_die_with_parent)
        self.stack.callback(self._kill)
        self.selector = selectors.DefaultSelector()
        self.stack.callback(self.selector.close)
        for pipe, take in ((self.process.stdout, self._take_output),
                           (self.process.stderr, self._take_console)):
            self.stack.callback(pipe.close)
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, (Lines(pipe), take))

    def _options(self, own, shared):
        machine = self.machine
        qemu = [word.replace("{folder}", str(shared)) for word in machine.qemu]
        is_native = ARCHITECTURES[machine.arch].is_native
        _, fragments = FLAVOURS.get(flavour_and_base(machine.kernel)[0], (False, ()))
        if is_native and not kvm_usable() and "debug.config" not in fragments:
            # Of several processors, the last one counts
            qemu.insert(0, LIGHT_PROCESSOR)
        return argparse.Namespace(
            kernel=machine.kernel, arch=machine.arch, mem=machine.mem, cpus=str(machine.cpus),
            disk=machine.disk, append=[machine.append, "printk.devkmsg=on"], timeout=0,
            ro=self._program_folders(), rw=[str(own), str(shared)], numa=list(machine.numa),
            qemu_opt=qemu,
            holes="" if machine.holes else None,
            console=None, allow_splats=machine.allow_complaints, interactive=False, quiet=True,
            command=[self._command(own, shared)])

    def _command(self, own, shared):
        """The guest's shell text: pytest on these tests, its reports on descriptor 9."""
        environment = {
            "RAMLAB_ITEMS": own / "items", "RAMLAB_REPORT_FD": 9, "RAMSLICE_IN_VM": 1,
            "RAMSLICE_FOLDER": shared, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": 1,
            # Not by -p, for which pytest reads the metadata of each package there is
            "PYTEST_PLUGINS": "pytest_timeout,ramlab.pytest_vm",
            "PYTHONDONTWRITEBYTECODE": 1, **self._programs(), **self._modules()}
        for name, value in self.machine.env:
            environment[name] = str(value).replace("{folder}", str(shared))
        words = [sys.executable, "-m", "pytest"]
        words += [word for name in UNUSED for word in ("-p", f"no:{name}")]
        words += ["-c", self.config.inipath] if self.config.inipath else []
        words += ["-o", "addopts=", "--rootdir", self.config.rootpath,
                  "--timeout", int(self.seconds),
                  "--tb", self.config.getoption("tbstyle"), *self.files()]
        exports = "".join(f"export {name}={shlex.quote(str(value))}\n"
                          for name, value in environment.items())
        return (f"exec 9>&1\n{exports}cd {shlex.quote(str(self.config.rootpath))}\n"
                f"{shlex.join(map(str, words))}\n")

    def _programs(self):
        """Variables that name our programs. Tests of our kernel on other architectures need none.
        """
        arch = ARCHITECTURES[self.machine.arch]
        if arch.is_native or self.machine.kernel in STOCK_KERNELS:
            return programs(self.config, arch)
        guest_programs.build(arch)
        return {}

    def _program_folders(self):
        """Where our programs are, for a guest that does not have the host's files."""
        if "RAMSLICE_PROGRAM" not in (found := self._programs()):
            return []
        return [str(Path(found["RAMSLICE_PROGRAM"]).parent)]

    def files(self):
        return list(dict.fromkeys(nodeid.split("::")[0] for nodeid in self.nodeids))

    def _modules(self):
        """{variable: path} of the modules that tests want.

        The path is empty where Debian has no headers any more.
        """
        found = {}
        for variable, source in self.machine.modules:
            series = STOCK_KERNELS[self.machine.kernel]
            built = subprocess.run([RAMLAB, "stock-module", series, ROOT / source],
                                   stdout=subprocess.PIPE, text=True)
            if built.returncode not in (0, 77):
                raise Ended("no module", f"{source} does not build for Debian's {series}")
            found[variable] = built.stdout.strip() if not built.returncode else ""
        return found

    # --- reading ---

    def _take_output(self, line):
        if MARK not in line:
            self.output = [*self.output[-200:], line]
            return
        event = json.loads(line.split(MARK, 1)[1])
        self.since = time.monotonic()
        number = event.get("number")
        match event["event"]:
            case "begin":
                self.at = number
            case "report":
                self.reports[number].append(event["report"])
            case "end":
                self.ended_tests.add(number)
            case "missing":
                self.missing |= set(event["items"])
            case "uncollected":
                self.uncollected.append(event["text"])

    def _take_console(self, line):
        self.console.append(line)
        if begins := BEGIN.search(line):
            self.console_at = int(begins[1])
        elif END.search(line):
            self.console_done = True
        elif (self.complained_at is None and not self.machine.allow_complaints
              and self.complaints.complaint(line) is not None):
            self.complained_at, self.complained_when = self.console_at, time.monotonic()

    def _pump(self, seconds):
        """Takes what comes, for at most so long. False when the guest's pipes have ended."""
        if not self.selector.get_map():
            return False
        for key, _ in self.selector.select(max(0, seconds)):
            lines, take = key.data
            with contextlib.suppress(BlockingIOError):
                found = lines.read()
                if found is None:
                    self.selector.unregister(key.fileobj)
                for line in found or ():
                    take(line)
        return True

    def _wait(self, condition, seconds):
        """Reads until the condition holds or time is over: whether it does."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if left <= 0 or not self._pump(min(left, 1)):
                return condition()
        return True

    # --- a test's outcome ---

    def outcome(self, number, last):
        """The serialised reports of a test; Ended if the guest did not survive it.

        last: no other test of this boot will be asked for, so this waits for the machine's end.
        """
        deadline = None
        while not (number in self.ended_tests or number in self.missing or self.uncollected
                   or self.complained_at is not None):
            limit = BOOT_SECONDS
            if self.at >= 0:
                limit = 2 * self.seconds + self.config.getoption("grace_seconds")
            deadline = self.since + limit
            if time.monotonic() > deadline:
                raise self._ended("hung", f"nothing came from the guest for {limit:.0f} s")
            if not self._pump(1):
                break
        if number in self.ended_tests:
            # What the kernel said until then is on its way.
            self._wait(lambda: self.console_at > number or self.console_done
                       or self.complained_at is not None, CONSOLE_SECONDS)
            if last:
                self._wait(lambda: not self.selector.get_map(), END_SECONDS)
        if self.complained_at is not None and self.complained_at <= number:
            self._wait(lambda: False, COMPLAINT_SECONDS)
            raise self._ended("complaint", "the kernel complained:\n  "
                              + "\n  ".join(complaints.excerpt(self.console)))
        if number in self.ended_tests:
            return self.reports[number]
        if self.uncollected:
            raise self._ended("uncollected", "\n".join(self.uncollected))
        if number in self.missing:
            raise Ended("missing", "the guest does not find this test")
        raise self._ended("died", "the guest died; its console ends:\n  "
                          + "\n  ".join(self.console[-TAIL:])
                          + "\nand its output:\n  " + "\n  ".join(self.output[-TAIL:]))

    def _ended(self, why, text):
        return Ended(why, f"{text}\n(machine: {self.machine.describe()})")

    def emulator_broke(self):
        """Whether QEMU met one of its own bugs before any test began."""
        text = "\n".join(self.console)
        return self.at < 0 and bool(vm.EMULATOR_BUG.search(text) or vm.NO_PORTS in text)

    # --- ending ---

    def _kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.stack.close()


_found_programs = {}


def _build_programs(arch):
    """Our programs for an architecture, in the folder that this returns."""
    build, folder = "build_programs", "$CARGO_TARGET_DIR/release"
    if not arch.is_native:
        build = f"need_rust_target {arch.rust} && build_programs --target {arch.rust}"
        folder = f"$CARGO_TARGET_DIR/{arch.rust}/release"
    text = f'source lab/env && {{ {build}; }} >&2 && echo "{folder}"'
    done = subprocess.run(["bash", "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Ended("no programs", "our programs do not build: see what Cargo says")
    return done.stdout.strip()


def programs(config, arch=NATIVE):
    """Variables that name our programs, which are built before the first boot."""
    if arch.name not in _found_programs:
        folder = config.getoption("programs")
        if not config.getoption("guest_program"):
            guest_programs.build(arch)
        if folder and not arch.is_native:
            # Where Cargo puts them
            folder = Path(folder).parent / arch.rust / Path(folder).name
        if not folder and not config.getoption("guest_program"):
            folder = _build_programs(arch)
        folder = Path(folder or "/nonexistent")
        found = {
            "RAMSLICE_PROGRAM": folder / "ramslice", "RAMSLICE_DAEMON": folder / "ramsliced",
            "RAMSLICE_LAB_PROGRAM": folder / "ramslice-lab",
            "RAMSLICE_EXAMPLES": folder / "examples"}
        if arch.is_native:
            found = {name: os.environ.get(name, path) for name, path in found.items()}
        _found_programs[arch.name] = found
    return _found_programs[arch.name]
