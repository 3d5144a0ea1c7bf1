# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugins of QEMU's emulator in lab/plugin: how they are built, and where they are."""

import os

from ramlab.architectures import NATIVE
from ramlab.common import CACHE, ROOT, run

SOURCE = ROOT / "lab/plugin"
NAMES = ("dram_accesses", "kernel_instructions")
FLAGS = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]


def path(name):
    """Where a plugin is, once it is built."""
    return CACHE / NATIVE.prefixed("guest") / f"lib{name}.so"


def build(name):
    """A plugin, for the QEMU that runs native guests; returns its path."""
    plugin = path(name)
    plugin.parent.mkdir(parents=True, exist_ok=True)
    # A machine may have it loaded: it appears at once or not at all.
    fresh = plugin.with_name(f"{plugin.name}.{os.getpid()}")
    run(["gcc", *FLAGS, "-shared", "-fPIC", "-fvisibility=hidden",
         "-I", SOURCE, "-I", SOURCE / "vendor", "-o", fresh, SOURCE / f"{name}.c"])
    fresh.rename(plugin)
    return plugin
