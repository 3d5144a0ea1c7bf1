# SPDX-License-Identifier: GPL-2.0-or-later
"""The architectures that the lab builds kernels and boots guests for: this machine's and arm64."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What differs from one to the other, by the names that others have for it."""

    name: str           # of ramlab's option --arch
    machine: str        # what uname says, and QEMU
    linux: str          # ARCH of the kernel's make
    compiler: str       # prefix of its programs; empty: the machine's own
    image: str          # what boots, in the folder of objects; its last part is its name elsewhere
    fragments: tuple    # of kernel/config, merged over those of the flavour
    qemu: tuple         # words for the machine
    kernel_arguments: str
    disk: str           # device that a scratch disk is
    rust: str           # target of our programs for it; empty: the machine's own

    def prefixed(self, name):
        """Another name for each architecture: the first one's stays as it is."""
        return name if self.is_native else f"{self.name}-{name}"

    @property
    def is_native(self):
        """Whether guests have the files and the programs of this machine."""
        return not self.compiler

    @property
    def boots(self):
        """The name of the file that boots, in the folder of a finished kernel."""
        return self.image.rsplit("/", 1)[1]


ARCHITECTURES = {one.name: one for one in (
    Architecture(
        name="x86_64", machine="x86_64", linux="x86_64", compiler="",
        image="arch/x86/boot/bzImage", fragments=(), qemu=("-machine", "q35"),
        kernel_arguments="no5lvl", disk="virtio-blk-pci", rust=""),
    # A processor that has the atomics of ARMv8.1, and no pointer authentication to emulate
    Architecture(
        name="arm64", machine="aarch64", linux="arm64", compiler="aarch64-linux-gnu-",
        image="arch/arm64/boot/Image", fragments=("arm64.config",),
        qemu=("-machine", "virt,gic-version=3", "-cpu", "neoverse-n1"),
        kernel_arguments="", disk="virtio-blk-device", rust="aarch64-unknown-linux-gnu"),
)}
NATIVE = ARCHITECTURES["x86_64"]
ARM64 = ARCHITECTURES["arm64"]
