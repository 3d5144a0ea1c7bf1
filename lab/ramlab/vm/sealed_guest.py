# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that nothing of the host's reaches: the same orders have the same outcome, count by
count.

Its clock counts instructions, it starts at the same second with the same random numbers, and all
its files are in a RAM disk. The guests of `ramlab vm` have the host's files as their root: each
answer comes at another moment of the guest's clock, and of two guests no two have the same memory
free when a program begins.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import CACHE, run
from ramlab.kernel.source import Source

from .complaints import excerpt
from .kernel_words import DELAY_LOOP, NO_LOCAL_TIMER, PATIENT

# One instruction is one nanosecond of the guest's clock; idle time passes at once.
CLOCK = ("-icount", "shift=0,sleep=off", "-rtc", "base=2030-01-01,clock=vm")
# Without the fast byte-wise string instructions, of which QEMU counts every iteration, and without
# the host's random numbers.
CPU = "max,-erms,-fsrm,-rdrand,-rdseed"
KERNEL_WORDS = (f"console=ttyS0 {PATIENT} {DELAY_LOOP} {NO_LOCAL_TIMER} nokaslr "
                # Not tmpfs, which has room for half of memory, and could be swapped out
                "rootfstype=ramfs")
# The tag of a folder of the host's that a guest may mount
SHARE = "results"
BUSYBOX = "/usr/bin/busybox"
# What the command prints goes to the second serial port, its status after it
INIT = """#!{busybox} sh
export PATH=/usr/bin:/usr/sbin:/bin:/sbin LC_ALL=C.UTF-8 HOME=/tmp
{busybox} mkdir -p /proc /sys /dev /tmp /mnt /run
{busybox} mount -t proc proc /proc
{busybox} mount -t sysfs sysfs /sys
{busybox} mount -t devtmpfs devtmpfs /dev
{busybox} mkdir -p /dev/shm
{busybox} mount -t tmpfs tmpfs /dev/shm
{busybox} mount -t tmpfs tmpfs /tmp
{busybox} stty -F /dev/ttyS1 raw -echo
exec </dev/null >/dev/ttyS1 2>&1
{command}
echo "sealed: status $?"
{busybox} poweroff -f
"""
STATUS = "sealed: status "


def packer():
    """The kernel's own program that packs a RAM disk by a list, compiled once."""
    source = Source()
    source.extract()
    program = CACHE / "tools" / f"gen_init_cpio-{source.sha256[:12]}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        run(["gcc", "-O2", "-o", fresh, source.pristine / "usr/gen_init_cpio.c"])
        fresh.rename(program)
    return program


def listed(files):
    """The lines of a list for the packer: {path in the guest: path here}, folders with all that is
    in them, with their modes and owners.
    """
    found = {}
    for where, path in files.items():
        _list(found, where, Path(path))
    for where in list(found):
        for parent in Path(where).parents:
            found.setdefault(str(parent), f"dir {parent} 0755 0 0")
    found.pop("/", None)
    # A folder comes before what is in it
    return [found[where] for where in sorted(found)]


def _list(found, where, path):
    if path.is_symlink() and not path.exists():
        # As it is: to nowhere
        found[where] = f"slink {where} {path.readlink()} 0777 0 0"
        return
    state = path.stat()
    rights = f"{state.st_mode & 0o7777:04o} {state.st_uid} {state.st_gid}"
    if not path.is_dir():
        found[where] = f"file {where} {path.resolve()} {rights}"
        return
    found[where] = f"dir {where} {rights}"
    for entry in path.iterdir():
        _list(found, f"{where}/{entry.name}", entry)


def pack(to, files):
    """Writes a RAM disk, or a part of one: {path in the guest: path here}.

    A name with white space in it cannot be said to the packer, and is a ValueError.
    """
    lines = listed(files)
    words = {"dir": 5, "file": 6, "slink": 6}
    if odd := [line for line in lines if len(line.split()) != words[line.split()[0]]]:
        raise ValueError(f"a RAM disk takes no name with white space: {odd[0]}")
    # What packages installed keeps its times, by which Python and Java know what they compiled.
    # What is made here has another time whenever it is made, and folders that of the packing.
    lasting = [line for line in lines if line.startswith("file ")
               and line.split()[2].startswith(("/usr/", "/etc/"))]
    kept = set(lasting)
    others = [line for line in lines if line not in kept]
    with open(to, "wb") as sink:
        for part, options in ((others, ["-t", "0"]), (lasting, [])):
            with tempfile.NamedTemporaryFile("w", suffix=".list") as listing:
                listing.write("\n".join(part) + "\n")
                listing.flush()
                subprocess.run([packer(), *options, listing.name], stdout=sink, check=True)


def init(folder, command):
    """A file for /init, in a folder of the caller's: it runs a line of shell as root."""
    path = Path(folder) / "init"
    path.write_text(INIT.format(busybox=BUSYBOX, command=command))
    path.chmod(0o755)
    return path


def join(to, parts):
    """Writes one RAM disk of several parts, of which later ones are put over earlier ones."""
    with open(to, "wb") as sink:
        for part in parts:
            subprocess.run(["cat", part], stdout=sink, check=True)


def boot(kernel, disk, folder, memory_mib, words="", share=None, limit_s=600):
    """(status, lines that the command printed) of a guest on an image of our kernel.

    disk: its RAM disk; folder: a folder of the caller's, which has the consoles afterwards;
    share: a folder here that the guest may mount by the tag SHARE, where nothing that is counted
    may wait for it.

    The status is the command's own, 3 if the kernel complained, 4 if the guest ended without one,
    124 if the time was over: the end of its console is then among the lines.
    """
    folder = Path(folder)
    console, output = folder / "console", folder / "output"
    line = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-name", "ramslice-sealed",
            "-machine", "q35", "-accel", "tcg", "-cpu", CPU, *CLOCK, "-smp", "1",
            "-m", f"{memory_mib}M", "-no-reboot", "-display", "none",
            "-kernel", kernel / "bzImage", "-initrd", disk,
            "-append", f"{KERNEL_WORDS} {words}".strip(),
            "-serial", f"file:{console}", "-serial", f"file:{output}"]
    if share:
        line += ["-virtfs", f"local,path={share},mount_tag={SHARE},security_model=none"]
    errors = folder / "errors"
    with open(errors, "w") as sink:
        process = subprocess.Popen([str(word) for word in line], stdin=subprocess.DEVNULL,
                                   stdout=sink, stderr=sink)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return 124, _told(console, errors, f"time limit of {limit_s:g} s passed")
        finally:
            process.kill()
            process.wait()
    if complaints := excerpt(_lines(console)):
        return 3, ["the kernel complained:", *complaints]
    lines = _lines(output)
    if not lines or not lines[-1].startswith(STATUS):
        return 4, [*lines, *_told(console, errors, "the guest ended without a status")]
    return int(lines[-1].removeprefix(STATUS)), lines[:-1]


def _lines(path):
    text = path.read_text(errors="replace") if path.exists() else ""
    return text.replace("\r", "").splitlines()


def _told(console, errors, what):
    return [f"{what}; {' '.join(_lines(errors))} console ends:", *_lines(console)[-25:]]
