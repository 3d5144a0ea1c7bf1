# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests that nothing of the host's reaches: what is in their RAM disks, and that the same orders
have the same outcome.
"""

import os
import shutil
import subprocess

import pytest

from ramlab.kernel.images import image
from ramlab.vm import sealed_guest

# Every count of the kernel's that could differ
COUNTS = "cat /proc/uptime /proc/vmstat /proc/interrupts /proc/sys/kernel/random/uuid"


@pytest.fixture(name="boot")
def boot_in(tmp_path):
    """Boots a guest that runs a line of shell, in a folder of its own."""
    def boot(command, name="one", **options):
        folder = tmp_path / name
        folder.mkdir()
        applets = shutil.which("busybox")
        sealed_guest.pack(folder / "disk", {
            "/init": sealed_guest.init(folder, command), sealed_guest.BUSYBOX: applets,
            **{f"/usr/bin/{applet}": applets for applet in ("cat", "stat", "sh", "sleep")}})
        return sealed_guest.boot(image("plain"), folder / "disk", folder, 128, **options)
    return boot


def listing(disk):
    """What a RAM disk has, as lines of a detailed list."""
    with open(disk, "rb") as source:
        done = subprocess.run(["busybox", "cpio", "-tv"], stdin=source, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout.splitlines()


def test_what_is_made_here_is_packed_the_same_whenever_it_was_made(tmp_path):
    (tmp_path / "data/below").mkdir(parents=True)
    (tmp_path / "data/below/file").write_text("text")
    (tmp_path / "data").chmod(0o700)
    disks = []
    for second in (1, 10**9):
        for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
            os.utime(path, (second, second))
        disks.append(tmp_path / f"disk-{second}")
        sealed_guest.pack(disks[-1], {"/var/data": tmp_path / "data", "/etc/group": "/etc/group"})
    assert disks[0].read_bytes() == disks[1].read_bytes()
    assert any(line.startswith("drwx------") and line.endswith("var/data")
               for line in listing(disks[0]))


def test_a_name_with_white_space_is_refused_and_named(tmp_path):
    (tmp_path / "two words").write_text("text")
    with pytest.raises(ValueError, match="no name with white space: .*two words"):
        sealed_guest.pack(tmp_path / "disk", {"/file": tmp_path / "two words"})


def test_two_guests_with_the_same_orders_count_the_same(boot):
    status, lines = boot(COUNTS)
    assert status == 0
    assert any(line.startswith("pgfault ") for line in lines)
    assert boot(COUNTS, "other") == (status, lines)


def test_the_status_is_that_of_the_command(boot):
    assert boot("echo begun; false") == (1, ["begun"])


def test_a_guest_that_crashes_says_so_and_one_that_hangs_is_ended(boot):
    status, lines = boot("echo c >/proc/sysrq-trigger", words="sysrq_always_enabled")
    assert status == 3
    assert any("Kernel panic" in line for line in lines)
    status, lines = boot("while :; do :; done", "hangs", limit_s=8)
    assert status == 124
    assert lines[0].startswith("time limit of 8 s passed")
