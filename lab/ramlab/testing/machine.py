# SPDX-License-Identifier: GPL-2.0-or-later
"""From @vm marks to machines: which there are, what each is called, which tests share one."""

import dataclasses
import hashlib
import re

import pytest

from ramlab.architectures import ARCHITECTURES, NATIVE


@dataclasses.dataclass(frozen=True)
class Machine:
    """A virtual machine as tests ask for it."""

    kernel: str = "plain"
    arch: str = "x86_64"        # or another of ramlab.architectures
    mem: str = "4G"
    append: str = ""            # words for the kernel's command line
    cpus: int = 2
    disk: str = None            # size of an empty disk, /dev/vda
    numa: tuple = ()            # a node each: "1G,cpus=0"
    qemu: tuple = ()            # words for QEMU; {folder}: the boot's folder
    holes: bool = False         # punch holes where slices are off
    env: tuple = ()             # (name, value) of the tests' environment; {folder} as above
    files: tuple = ()           # (name, size or function of the path) in the boot's folder
    modules: tuple = ()         # (variable, source): a module built for this kernel
    fresh: str = ""             # node id of whom the boot is for alone
    allow_complaints: bool = False
    name: str = ""              # what the tests of this machine are called, in brackets
    slow: bool = False          # its tests are for the long campaigns

    # What makes no other machine of it, and what its key begins with.
    LABELS = ("name", "slow", "arch")

    def key(self):
        """Equal for machines that are the same."""
        values = [getattr(self, field.name) for field in dataclasses.fields(self)
                  if field.name not in self.LABELS]
        digest = hashlib.sha256(repr([_constant(value) for value in values]).encode())
        name = ARCHITECTURES[self.arch].prefixed(self.kernel)
        return f"{name}-{self.mem}-{digest.hexdigest()[:8]}"

    def describe(self):
        words = [f"{ARCHITECTURES[self.arch].prefixed(self.kernel)} kernel", self.mem, self.append]
        words += [f"disk {self.disk}"] if self.disk else []
        words += [f"nodes {' '.join(self.numa)}"] if self.numa else []
        words += list(self.qemu)
        return ", ".join(word for word in words if word)


def _constant(value):
    """A value whose text is the same in each process: functions by their names."""
    if isinstance(value, tuple):
        return tuple(_constant(each) for each in value)
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else value


def _frozen(arguments):
    """A mark's arguments as fields of Machine."""
    found = dict(arguments)
    for name in ("numa", "qemu"):
        value = found.get(name, ())
        found[name] = (value,) if isinstance(value, str) else tuple(value)
    if not isinstance(found.get("append", ""), str):
        found["append"] = " ".join(found["append"])
    for name in ("env", "files", "modules"):
        found[name] = tuple(sorted(dict(found.get(name, {})).items(), key=lambda pair: pair[0]))
    return found


def _marks(item):
    """The node whose marks count, which is the closest that has any, and these marks."""
    for node in reversed(item.listchain()):
        marks = [mark for mark in node.own_markers if mark.name == "vm"]
        if marks and isinstance(node, pytest.Class):
            # A class has its bases' marks, too: its own come first.
            for one in node.obj.__mro__:
                own = [m for m in _as_list(one.__dict__.get("pytestmark", ())) if m.name == "vm"]
                if own:
                    marks = own
                    break
        if marks:
            # Decorators apply from below: read them from above.
            return node, list(reversed(marks))
    return None, []


def _as_list(marks):
    marks = marks if isinstance(marks, (list, tuple)) else [marks]
    return [getattr(mark, "mark", mark) for mark in marks]


def machines_of(item):
    """{label: machine} of a test as its marks say; empty without a mark."""
    node, marks = _marks(item)
    machines = []
    for mark in marks:
        arguments = _frozen(mark.kwargs)
        arguments["fresh"] = node.nodeid if arguments.get("fresh") else ""
        kernels = arguments.pop("kernel", "plain")
        kernels = [kernels] if isinstance(kernels, str) else list(kernels)
        # All of them, or the kernels of this name.
        slow = arguments.pop("slow", False)
        machines += [Machine(kernel=kernel, slow=slow in (True, kernel), **arguments)
                     for kernel in kernels]
    return dict(zip(_labels(machines), machines))


def _labels(machines):
    """What tells each machine from the others; nothing if there is one."""
    if len(machines) == 1:
        return [machines[0].name]
    labels = [machine.name for machine in machines]
    for field in ("kernel", "arch", "append", "mem", "numa", "disk", "qemu", "env"):
        values = [getattr(machine, field) for machine in machines]
        # Tests of this machine's own architecture do not say so
        values = ["" if value == NATIVE.name else value for value in values]
        if len(set(values)) > 1 and len(set(labels)) < len(machines):
            labels = ["-".join(filter(None, (label, _text(value))))
                      for label, value in zip(labels, values)]
    if len(set(labels)) < len(machines):
        labels = [f"{label}-{number}" for number, label in enumerate(labels)]
    return labels


def _text(value):
    return re.sub(r"[^\w.=,$-]+", "+", str(value)) if value else ""
