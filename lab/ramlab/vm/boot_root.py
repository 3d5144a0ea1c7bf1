#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots a directory that holds a whole Debian, with its own systemd, and waits until it powers off.

Usage: ramlab boot-root [--kernel debian-6.1|...] [--mem 2G] [--timeout SECONDS] DIRECTORY
       ramlab boot-root --own-kernel RELEASE --disk FILE [--append WORDS] [--mem 2G]
                        [--timeout SECONDS] DIRECTORY

Unlike ramlab vm, which runs a command over the host's own files: here systemd starts units as on
any machine. The directory is written to as root of the guest, so this program is for root and the
directory is one to throw away. With --own-kernel, a kernel that is installed there boots with its
own initial RAM disk from a disk, the FILE, into which the directory is copied: what the guest
writes is there. The guest's console streams to stdout. Exit status: 0 when it powered off, 3 if its
kernel complained, 124 when the time was over.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from ramlab.common import STOCK_KERNELS, die, kvm_usable
from ramlab.kernel.images import image
from ramlab.vm.complaints import is_complaint

# Mounts the directory and hands over; the modules are those of ramlab stock-kernel's initial RAM
# disk.
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do /bin/busybox insmod "$module"; done
options=rw,trans=virtio,version=9p2000.L,access=any,msize=524288,cache=loose
/bin/busybox mount -t 9p -o $options root /newroot ||
	/bin/busybox poweroff -f
/bin/busybox umount /proc
/bin/busybox mount -o move /dev /newroot/dev
exec /bin/busybox switch_root /newroot /lib/systemd/systemd
"""
DISK_SIZE = "4G"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="debian-6.12", choices=STOCK_KERNELS)
    parser.add_argument("--own-kernel", metavar="RELEASE",
                        help="one that is installed in the directory")
    parser.add_argument("--disk", type=Path, metavar="FILE",
                        help="made of the directory, for --own-kernel")
    parser.add_argument("--append", default="", metavar="WORDS",
                        help="for the kernel's command line")
    parser.add_argument("--mem", default="2G")
    parser.add_argument("--timeout", type=float, default=1800, metavar="SECONDS")
    parser.add_argument("directory", type=Path)
    args = parser.parse_args()
    if bool(args.own_kernel) != bool(args.disk):
        parser.error("--own-kernel and --disk belong together")
    if os.geteuid():
        die("only root can boot a directory whose files belong to root")
    if not (args.directory / "lib/systemd/systemd").exists():
        die(f"{args.directory} has no systemd")
    return args


def initrd(kernel, folder):
    """The kernel's initial RAM disk with an init of ours, which replaces its own."""
    (folder / "init").write_text(INIT)
    (folder / "init").chmod(0o755)
    ours = subprocess.run(["busybox", "cpio", "-o", "-H", "newc"],
                          cwd=folder, input=b"init\n", capture_output=True, check=True)
    path = folder / "initrd"
    first = (kernel / "initrd").read_bytes()
    # The kernel takes an archive that is not compressed at a multiple of four only.
    path.write_bytes(first + bytes(-len(first) % 4) + ours.stdout)
    return path


def stock(args, folder):
    """QEMU's words for one of Debian's kernels over the directory."""
    kernel = image(args.kernel)
    share = f"local,id=root,path={args.directory.resolve()}"
    return ["-fsdev", f"{share},security_model=passthrough,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
            "-kernel", next((kernel / "boot").glob("vmlinuz-*")),
            "-initrd", initrd(kernel, Path(folder))], []


def own(args):
    """The same for a kernel of the directory's own, from a disk."""
    boot = args.directory / "boot"
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", args.directory, args.disk, DISK_SIZE],
                   check=True)
    return ["-drive", f"file={args.disk},format=raw,if=virtio,cache=unsafe",
            "-kernel", boot / f"vmlinuz-{args.own_kernel}",
            "-initrd", boot / f"initrd.img-{args.own_kernel}"], ["root=/dev/vda", "rw"]


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="ramslice-boot-") as folder:
        machine, root = own(args) if args.own_kernel else stock(args, folder)
        words = [*root, *args.append.split(), "console=ttyS0", "loglevel=5", "panic=-1", "no5lvl",
                 "no_timer_check", "psi=1",
                 "systemd.show_status=0", "systemd.default_timeout_start_sec=600"]
        line = ["qemu-system-x86_64", "-name", "ramslice-root", "-machine", "q35", "-m", args.mem,
                "-smp", "2", "-cpu", "host" if kvm_usable() else "max",
                "-accel", "kvm" if kvm_usable() else "tcg", "-no-reboot", "-display", "none",
                "-monitor", "none", "-serial", "stdio", "-nic", "none",
                *machine, "-append", " ".join(words)]
        guest = subprocess.Popen([str(word) for word in line],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: (guest.kill(), sys.exit(130)))
        late = threading.Event()
        timer = threading.Timer(args.timeout, lambda: (late.set(), guest.kill()))
        timer.start()
        complained = False
        for line in guest.stdout:
            text = line.decode(errors="replace").rstrip()
            # Programs write to this console, too: what the kernel says begins with its clock.
            complained |= text.startswith("[") and is_complaint(text)
            print(text, flush=True)
        timer.cancel()
        if late.is_set():
            print(f"boot-root: not over after {args.timeout:g} s", file=sys.stderr)
            sys.exit(124)
        sys.exit(guest.wait() or (3 if complained else 0))


if __name__ == "__main__":
    main()
