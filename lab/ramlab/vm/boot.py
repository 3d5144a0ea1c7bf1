#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a command in a virtual machine on one of our kernels or Debian's, over the host's own files.

Usage: ramlab vm [OPTION...] -- COMMAND...

The command runs as root in the repository's directory; its output streams to stdout and its exit
status is ours. The host's files are read-only in the guest and /tmp is a fresh tmpfs: results go to
a directory given with --rw, which appears at the same path. With --disk, /dev/vda is an empty disk.
modprobe finds the kernel's modules, also in an --interactive shell; HOME is /tmp, the loopback
network is up. The guest finds RAMSLICE_KERNEL (directory of the booted image) and RAMSLICE_FLAVOUR
in its environment. With --holes, the guest's memory is a file in which its power driver
ramslice_holes has holes punched, and how that ended is printed. With --arch arm64, an emulated
guest of that architecture boots its kernel over a small Debian of its own, which has the repository
and the cache in their places.

Exit status: the command's own, or
  3    the kernel complained (WARNING, BUG, KASAN, lockdep, hung task, stall); the excerpt is
       printed
  4    the guest ended without a status (crash, power-off) and the end of its console is printed;
       or the machine broke
  124  the time limit passed; everything was killed
"""

import argparse
import contextlib
import copy
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from ramlab import guest_programs
from ramlab.architectures import ARCHITECTURES, NATIVE
from ramlab.common import CACHE, ROOT, STOCK_KERNELS, die, kvm_usable, own_folder
from ramlab.kernel.bases import full_name
from ramlab.kernel.images import KERNELS, image
from ramlab.vm import foreign_root
from ramlab.vm import hole_punch_host as holes
from ramlab.vm.complaints import excerpt
from ramlab.vm.kernel_words import DELAY_LOOP, NO_LOCAL_TIMER, PATIENT

# QEMU without hardware virtualisation changes its memory map while other CPUs run. In one boot of
# thirty on a busy host, a CPU met a map that was gone (an assertion in iotlb_to_section), or the
# guest waited for its root for ever. Why the second happens is not known. Neither was seen since
# guests boot with one CPU and switch the others on before the command begins. If an assertion fails
# nevertheless, before that, the guest boots once more.
ONE_CPU = "maxcpus=1"
ALL_CPUS = ("for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do "
            "[ ! -e $cpu ] || echo 1 >$cpu; done\n")
# And a host that lets it run seldom enough has the guest miss its timer's first interrupts.
EMULATOR_BUG = re.compile(r"^.*(?:qemu-system-\S+: .*Assertion .* failed|"
                          r"panic - not syncing: IO-APIC \+ timer doesn't work).*$", re.MULTILINE)
ATTEMPTS = 3

# It may also go on executing an instruction that the kernel has just replaced on another CPU.
# Tracing any event has the scheduler note who ran, and replaces instructions that all CPUs pass all
# the time: one run of thirty died of a breakpoint in __schedule() that was gone. Without it, lines
# of a trace have "<...>" for the task's name.
NO_NAMES = "trace_options=norecord-cmd"

# Statuses of ours that no repetition of a test excuses.
FATAL = {3: "the kernel complained", 4: "a guest died", 124: "a guest hung"}

# QEMU's word for a clock that is that of instructions, while idle time passes at once
COUNTS_INSTRUCTIONS = "sleep=off"

# What virtme-ng's init says when the command's output goes to the console.
NO_PORTS = "cannot find script I/O ports"

KERNEL_ARGUMENTS = (f"{PATIENT} "
                    "rootflags=version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="plain", type=full_name, choices=KERNELS,
                        metavar="FLAVOUR",
                        help=", ".join(KERNELS))
    parser.add_argument("--arch", default=NATIVE.name, choices=ARCHITECTURES,
                        help=f"architecture (default {NATIVE.name})")
    parser.add_argument("--mem", default="4G", help="memory (default 4G)")
    parser.add_argument("--cpus", default="2", help="number of CPUs (default 2)")
    parser.add_argument("--append", action="append", default=[], metavar="ARGS",
                        help="kernel command line")
    parser.add_argument("--timeout", type=float, default=3600, metavar="SECONDS",
                        help="ends what hangs: default 3600; 0: none")
    parser.add_argument("--disk", metavar="SIZE", help="an empty disk of this size, /dev/vda")
    parser.add_argument("--ro", action="append", default=[], metavar="DIR",
                        help="readable in a guest of another architecture, too; repeat")
    parser.add_argument("--rw", action="append", default=[], metavar="DIR",
                        help="writable in the guest")
    parser.add_argument("--numa", action="append", default=[], metavar="SIZE[,cpus=A-B]",
                        help="one node; repeat; sums to --mem")
    parser.add_argument("--qemu-opt", action="append", default=[], metavar="WORDS",
                        help="more words for QEMU")
    parser.add_argument("--holes", nargs="?", const="", metavar="REPORT",
                        help="see above; REPORT: the end, as JSON")
    parser.add_argument("--console", metavar="FILE", help="keep the kernel's console there")
    parser.add_argument("--allow-splats", action="store_true",
                        help="report kernel complaints, keep the status")
    parser.add_argument("--interactive", action="store_true",
                        help="a shell on this terminal instead of a command")
    parser.add_argument("--quiet", action="store_true", help="no line about the machine")
    parser.add_argument("command", nargs="*")
    args = parser.parse_args()
    if not args.command and not args.interactive:
        parser.error("a command is needed after --")
    if args.arch != NATIVE.name and args.holes is not None:
        parser.error(f"--arch {args.arch} has no holes")
    return args


def fresh_tmp(needed):
    """Shell text that mounts a tmpfs on /tmp and keeps the directories below it that are needed."""
    needed = [Path(path).resolve() for path in needed]
    kept = sorted({str(path) for path in needed if path.is_relative_to("/tmp")})
    lines = [f"mkdir -p /run/keep{p}; mount --rbind {p} /run/keep{p}"
             for p in map(shlex.quote, kept)]
    lines.append("mount -t tmpfs tmpfs /tmp")
    lines += [f"mkdir -p {p}; mount --rbind /run/keep{p} {p}" for p in map(shlex.quote, kept)]
    return "\n".join(lines) + "\n"


def guest_script(args, folder, kernel):
    """What the guest runs: the command, with its output merged and its status written to a file."""
    arch = ARCHITECTURES[args.arch]
    path = os.environ["PATH"]
    if arch.is_native:
        # The lab's Python before others: one may be a script that starts several programs
        path = f"{CACHE / 'python/bin'}:{path}"
    settings = {
        "RAMSLICE_GUEST_PROGRAMS": str(guest_programs.folder(arch)),
        "RAMSLICE_IN_VM": "1", "RAMSLICE_FLAVOUR": args.kernel, "RAMSLICE_KERNEL": str(kernel),
        "RAMSLICE_CACHE": str(CACHE), "PYTHONPATH": str(ROOT / "lab"),
        "PATH": path, "LC_ALL": "C.UTF-8", "HOME": "/tmp",
        "MODPROBE_OPTIONS": f"-d {kernel}",
    }
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    # One word is shell text; several are a command and its arguments.
    command = args.command[0] if len(args.command) == 1 else shlex.join(args.command)
    script = folder / "guest.sh"
    mounts = "" if arch.is_native else foreign_root.mount_writable([folder, *args.rw])
    script.write_text(
        f"exec 2>&1\n{mounts}touch {shlex.quote(str(folder / 'begun'))}\n"
        f"{exports}{fresh_tmp([ROOT, CACHE, *args.rw])}"
        f"{ALL_CPUS}cd {shlex.quote(str(ROOT))}\n"
        f"bash -c {shlex.quote(command)}\n"
        f"echo $? > {shlex.quote(str(folder / 'status'))}\nsync\n"
    )
    return script


def virtme(args, folder, kernel):
    """The command line that boots the guest."""
    program = CACHE / "python/bin/virtme-run"
    if not program.exists():
        die(f"{program} is missing: run 'make setup'")
    arch = ARCHITECTURES[args.arch]
    emulated = not arch.is_native or not kvm_usable()
    stock = args.kernel in STOCK_KERNELS
    boot = next((kernel / "boot").glob("vmlinuz-*")) if stock else kernel / arch.boots
    line = [program, "--kimg", boot, "--memory", args.mem, "--force-9p", "--mods", "none",
            "--name", "ramslice"]
    if emulated:
        line += ["--disable-kvm", "--kopt", NO_NAMES]
    writable = [folder, *args.rw]
    if arch.is_native:
        line += [f"--rwdir={Path(path).resolve()}" for path in writable]
    else:
        line += foreign_root.virtme_words(arch, args.ro, writable)
    for node in args.numa:
        line += ["--numa", node]
    # The scheduler expects a node's CPUs to share a socket, and no socket to span nodes.
    sockets = sum("cpus=" in node for node in args.numa)
    if sockets and args.cpus.isdigit() and int(args.cpus) % sockets == 0:
        args.cpus += f",sockets={sockets}"
    line += ["--cpus", args.cpus]
    for argument in [*KERNEL_ARGUMENTS.split(), *arch.kernel_arguments.split(),
                     *shlex.split(" ".join(args.append))]:
        line += ["--kopt", argument]
    words = [*arch.qemu]
    if stock:
        # Not the initramfs of virtme-run, which mounts the root without a cache: five times slower.
        words += ["-initrd", kernel / "initrd"]
        if arch.is_native:
            # They check in real time whether the timer ticks: too early for an emulator on a busy
            # host.
            line += ["--kopt", "no_timer_check"]
    if args.disk:
        disk = folder / "disk.raw"
        subprocess.run(["truncate", "-s", args.disk, disk], check=True)
        words += ["-drive", f"if=none,id=scratch,format=raw,cache=unsafe,discard=unmap,file={disk}"]
        words += ["-device", f"{arch.disk},drive=scratch"]
    for word in words + [w for option in args.qemu_opt for w in shlex.split(option)]:
        line.append(f"--qemu-opt={word}")
    if emulated and arch.is_native:
        line += ["--kopt", DELAY_LOOP]
        if any(COUNTS_INSTRUCTIONS in option for option in args.qemu_opt):
            line += ["--kopt", NO_LOCAL_TIMER]
    if args.interactive:
        # What the kernel does not know of its command line is in the environment of init and so of
        # the shell: modprobe finds the modules, and lab/env the programs.
        for setting in (f"RAMSLICE_CACHE={CACHE}", f"RAMSLICE_KERNEL={kernel}",
                        f"MODPROBE_OPTIONS=-d{kernel}"):
            line += ["--kopt", setting]
        # The folder is none of a foreign guest's root
        return [*line, "--pwd"] if arch.is_native else line
    if emulated:
        line += ["--kopt", ONE_CPU]
    script = guest_script(args, folder, kernel)
    return line + ["--show-boot-console", "--script-sh", f"bash {shlex.quote(str(script))}"]


def stream(line, console, limit):
    """Runs the guest: its stdout to ours, its console (stderr) to a file. False if time ran out."""
    process = subprocess.Popen(
        [str(word) for word in line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )

    def kill(*_):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def interrupted(number, _):
        kill()
        sys.exit(128 + number)

    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, interrupted)
    deadline = time.monotonic() + limit if limit else None
    sinks = {process.stdout.fileno(): sys.stdout.buffer, process.stderr.fileno(): console}
    try:
        in_time = pass_on(sinks, deadline, kill)
    except BaseException:
        # No process reads any more, or there is no room for what is said
        kill()
        raise
    process.wait()
    return in_time


def pass_on(sinks, deadline, kill):
    """Copies {file descriptor: sink} until all end. False if that was because time ran out."""
    in_time = True
    while sinks:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0 and in_time:
            in_time = False
            kill()
        for fd in select.select(list(sinks), [], [], None if left is None else max(left, 1))[0]:
            data = os.read(fd, 65536)
            if data:
                sinks[fd].write(data)
                sinks[fd].flush()
            else:
                del sinks[fd]
    return in_time


def note_fatal(status):
    """Reports that this failure has nothing to do with timing, so no test is repeated for it."""
    if status in FATAL and "RAMSLICE_FATAL" in os.environ:
        with open(os.environ["RAMSLICE_FATAL"], "a", encoding="utf-8") as file:
            file.write(f"{FATAL[status]}\n")


class EmulatorBroke(Exception):
    """QEMU met a bug of its own before the guest ran the command, or the output has no way out."""


def main():
    args = arguments()
    arch = ARCHITECTURES[args.arch]
    kernel = image(args.kernel, arch)
    if not arch.is_native:
        guest_programs.build(arch)
    for attempt in range(ATTEMPTS):
        # Each adds what it needs
        own = copy.deepcopy(args)
        try:
            with contextlib.ExitStack() as stack:
                folder = own_folder("vm-", CACHE / "runs", stack)
                stack.enter_context(holes.beside(own, folder))
                status = run_guest(own, folder, kernel)
            if not args.allow_splats:
                note_fatal(status)
            sys.exit(status)
        except EmulatorBroke as broken:
            last = attempt + 1 == ATTEMPTS
            what = f"giving up after {ATTEMPTS} attempts" if last else "starting it again"
            print(f"vm: the emulated machine broke, {what}: {broken}", file=sys.stderr, flush=True)
    sys.exit(4)


def run_guest(args, folder, kernel):
    """Boots, waits, judges; returns the exit status."""
    line = virtme(args, folder, kernel)
    if args.interactive:
        return subprocess.run([str(word) for word in line], cwd=ROOT).returncode
    if not args.quiet:
        arch = ARCHITECTURES[args.arch]
        usable = arch.is_native and kvm_usable()
        engine = "KVM" if usable else "TCG (no hardware virtualisation: slower)"
        print(f"vm: {arch.prefixed(args.kernel)} kernel, {args.mem}, {args.cpus} CPUs, {engine}",
              file=sys.stderr, flush=True)
    console = folder / "console"
    with open(console, "wb") as sink:
        in_time = stream(line, sink, args.timeout)
    broken = EMULATOR_BUG.search(console.read_text(errors="replace"))
    if broken and not (folder / "begun").exists():
        raise EmulatorBroke(broken[0].strip())
    if args.console:
        shutil.copyfile(console, args.console)
    lines = console.read_text(errors="replace").replace("\r", "").splitlines()
    complaints = excerpt(lines)
    if complaints:
        print("vm: the kernel complained:\n  " + "\n  ".join(complaints), file=sys.stderr)
    if not in_time:
        tail = "\n  ".join(lines[-10:])
        print(f"vm: time limit of {args.timeout:g} s passed; console ends:\n  {tail}",
              file=sys.stderr)
        return 124
    if complaints and not args.allow_splats:
        return 3
    if NO_PORTS in "".join(lines):
        raise EmulatorBroke("the command's output is lost among the console's: virtme-ng's init "
                            "found no port for it (it waits for ports with udev; "
                            "'make setup' installs what is missing)")
    status = folder / "status"
    text = status.read_text().strip() if status.exists() else ""
    if not text:
        print("vm: the guest ended without a status; console ends:\n  " +
              "\n  ".join(lines[-25:]), file=sys.stderr)
        return 4
    return int(text)


if __name__ == "__main__":
    main()
