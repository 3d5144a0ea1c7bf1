# SPDX-License-Identifier: GPL-2.0-or-later
"""The command ramlab: each sub-command is a module with a main(), or a program."""

import importlib
import os
import sys

from ramlab.common import ROOT

# Name: (module with a main(), or program from the root of the tree; what it does).
COMMANDS = {
    "vm": ("ramlab.vm.boot", "run a command in a virtual machine, over this machine's files"),
    "kernel": ("ramlab.kernel.build", "build a flavour of the kernel, or print where it is"),
    "test-all": ("ramlab.testing.everything", "build everything, then run every test"),
    "test": ("ramlab.testing.command", "run tests with pytest, in virtual machines and here"),
    "bench": ("ramlab.bench.command", "run benchmark suites, or compare kept figures with targets"),
    "case": ("ramlab.cases.command", "run case studies: compile, tpch, import"),
    "size": ("ramlab.sizes.command", "measure how programs fare with less and less memory"),
    "demo": ("ramlab.demo", "show slices being emptied, switched off and woken"),
    "demo-stock": ("ramlab.demo_stock", "show the same on Debian's own kernel"),
    "demo-giveback": ("ramlab.demo_giveback", "show memory that goes back to the host"),
    "soak": ("ramlab.soak", "stress the debug kernel for half an hour or longer"),
    "fuzz": ("ramlab.fuzz", "feed generated inputs to all interfaces"),
    "selftests": ("ramlab.kernel.selftests", "run the kernel's selftests, patched and stock"),
    "stress-classes": ("ramlab.kernel.stress_classes", "run stress-ng's, patched and stock"),
    "mutations": ("ramlab.mutations", "break one thing at a time: does its test notice?"),
    "check": ("lab/check", "check style and spelling of everything"),
    "checkpatch": ("ramlab.kernel.checkpatch", "check the kernel's files and patches"),
    "series": ("ramlab.kernel.export_series", "write the kernel changes as a git-am series"),
    "rebase": ("packaging/kernel/rebase.py", "move the series to a newer kernel source"),
    "release": ("ramlab.release", "build what a version is released with"),
    "kernel-deb": ("packaging/kernel/kernel_deb.py", "build kernel packages"),
    "boot-root": ("ramlab.vm.boot_root", "boot a directory that holds a whole Debian"),
    "wake-guest": ("ramlab.vm.wake_guest", "wake a guest from suspend, over QEMU's monitor"),
    "stock-kernel": ("lab/ramlab/kernel/stock-kernel.sh", "fetch one of Debian's own kernels"),
    "stock-module": ("lab/ramlab/kernel/stock-module.sh", "build a module for one of them"),
    "arm64": ("lab/arm64", "run a command that may run programs for aarch64"),
    "guest-programs": ("ramlab.guest_programs", "compile the C programs that guests run"),
}


def usage():
    lines = [f"  {name:<15} {text}" for name, (_, text) in COMMANDS.items()]
    return ("usage: ramlab COMMAND [OPTION...]\n\nThe lab of ramslice. Each command teaches itself:"
            " ramlab COMMAND --help\n\n" + "\n".join(lines))


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help", "help"):
        print(usage())
        return 0 if len(sys.argv) > 1 else 2
    name, words = sys.argv[1], sys.argv[2:]
    if name not in COMMANDS:
        print(f"ramlab: no command {name}: there is {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    target = COMMANDS[name][0]
    if "/" in target:
        program = str(ROOT / target)
        line = [sys.executable, program] if target.endswith(".py") else [program]
        os.execv(line[0], [*line, *words])
    # Messages and help texts bear this name.
    sys.argv = [f"ramlab {name}", *words]
    return importlib.import_module(target).main()


if __name__ == "__main__":
    sys.exit(main())
