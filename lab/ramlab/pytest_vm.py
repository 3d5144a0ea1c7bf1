# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plug-in that runs tests in virtual machines: its marks, and its options.

    from ramlab.pytest_vm import vm

    @vm(mem="1G", append="ramslice=16M")            # a function, a class, or pytestmark of a module
    @vm(kernel=["plain", "debug"], disk="512M")     # for each kernel: test[plain], test[debug]
    @vm(kernel=["plain", "debug"], slow="debug")    # test[debug] is for the long campaigns

Tests of equal machines share a boot. Guests run pytest on just these tests and stream the reports
back (ramlab.testing.guest); the host makes them the reports of its own tests
(ramlab.testing.host). Both import this module, which therefore imports little.
"""

import os

import pytest

# What @vm takes; ramlab.testing.machine says what each means and its default.
ARGUMENTS = frozenset((
    "kernel", "arch", "mem", "append", "cpus", "disk", "numa", "qemu", "holes", "env", "files",
    "modules", "fresh", "allow_complaints", "name", "slow",
))
MARKERS = (
    "vm(kernel, mem, append, ...): runs in a virtual machine; see ramlab.pytest_vm",
    "slow: takes longer than a test should; make test-long runs it",
    "debug: needs the kernel with checkers (set by @vm)",
    "kcsan: needs the kernel that looks for data races (set by @vm)",
    "research: needs the kernel with the research policies (set by @vm)",
    "stock: runs on one of Debian's own kernels (set by @vm)",
    "never_rerun: a failure is no matter of timing: --rerun-unsteady leaves it alone",
    "no_twin: rests on all memory being in one node: --twin leaves its machine as it is",
    "xdist_group(name): tests that one worker runs",
)

never_rerun = pytest.mark.never_rerun
no_twin = pytest.mark.no_twin


def vm(**arguments):
    """The machine of a test, a class or a module; several marks on a class are several machines."""
    if unknown := set(arguments) - ARGUMENTS:
        raise TypeError(f"@vm has no {', '.join(sorted(unknown))}: "
                        f"there is {', '.join(sorted(ARGUMENTS))}")
    return pytest.mark.vm.with_args(**arguments)


def memory_file(size, *qemu):
    """Options of a machine whose memory is a file that the guest can open, too."""
    return {
        "mem": size,
        "files": {"memory": size},
        "env": {"RAMSLICE_GUEST_MEMORY": "{folder}/memory"},
        "qemu": (
            f"-object memory-backend-file,id=ram,size={size},mem-path={{folder}}/memory,share=on",
            "-machine memory-backend=ram",
            *qemu,
        ),
    }


def in_guest():
    return bool(os.environ.get("RAMLAB_ITEMS"))


def pytest_addoption(parser):
    group = parser.getgroup("ramlab", "virtual machines")
    group.addoption("--rerun-unsteady", action="store_true",
                    help="a failed test boots again and must pass twice; more than four "
                         "such tests are a failure")
    group.addoption("--session-minutes", type=float, metavar="N",
                    help="no machine starts later than this; what did not run has failed")
    group.addoption("--grace-seconds", type=float, default=60, metavar="N",
                    help="a guest hangs if nothing comes from it for twice its tests' time and "
                         "this (default %(default)g)")
    group.addoption("--base", metavar="RELEASE",
                    help="kernels of ours are of this source instead: plain is plain-7.3")
    group.addoption("--twin", action="store_true",
                    help="machines have twice their memory, and half of it is their twin's, unless "
                         "their tests rest on there being none")
    group.addoption("--programs", metavar="DIR",
                    help="take our programs from there, those for another architecture from "
                         "DIR/../TARGET, as Cargo has them (default: build them)")
    group.addoption("--guest-program", metavar="FILE",
                    help="runs a guest's script instead of a virtual machine: for tests of this")


def pytest_configure(config):
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    if in_guest():
        from ramlab.testing.guest import GuestReporter
        config.pluginmanager.register(GuestReporter(config), "ramlab-guest")
    else:
        from ramlab.testing.host import GuestTests, Unsteady, has_machine
        from ramlab.testing.order import LongestFirst
        config.pluginmanager.register(GuestTests(config), "ramlab-host")
        config.pluginmanager.register(
            LongestFirst(GuestTests.key, has_machine, keep=not config.getoption("guest_program")),
            "ramlab-order")
        config.pluginmanager.register(Unsteady(config), "ramlab-unsteady")
