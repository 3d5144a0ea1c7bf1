# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests are what their tests ask for: kernel, command line, disk, nodes, shared folder."""

import os
import subprocess
from pathlib import Path

from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm


@vm(kernel=["plain", "debug"], slow="debug", mem="1G", append="ramslice=16M", disk="1G")
def test_each_kernel_boots_our_release_with_our_arguments():
    assert os.uname().release.startswith("6.12.")
    assert "ramslice=16M" in Path("/proc/cmdline").read_text().split()
    assert os.environ["RAMSLICE_FLAVOUR"] in os.environ["RAMSLICE_KERNEL"]


@vm(mem="1G", append="ramslice=16M", disk="1G")
def test_a_disk_can_be_formatted_and_mounted():
    assert int(Path("/sys/block/vda/size").read_text()) * 512 == 1 << 30
    dev.file_system()
    assert any(line.split()[:3] == ["/dev/vda", "/mnt", "ext4"]
               for line in Path("/proc/mounts").read_text().splitlines())
    (Path("/mnt") / "file").write_text("here")


@vm(mem="1G", append="ramslice=16M", disk="1G")
def test_the_boots_folder_is_written_to_and_the_loopback_network_is_up():
    (Path(os.environ["RAMSLICE_FOLDER"]) / "file").write_text("here")
    shown = subprocess.run(["ip", "-br", "addr", "show", "lo"], stdout=subprocess.PIPE, text=True)
    assert "127.0.0.1" in shown.stdout


@vm(mem="1G", append="ramslice=16M", disk="1G")
def test_the_lab_and_its_tests_are_there_as_bytecode():
    assert Path(dev.__cached__).exists()
    here = Path(__file__)
    assert list(here.parent.glob(f"__pycache__/{here.stem}.*pytest*.pyc"))


@vm(mem="2G", numa=("1G,cpus=0", "1G,cpus=1"), append="ramslice=32M", disk="1G")
def test_a_machine_has_the_nodes_that_were_asked_for():
    assert Path("/sys/devices/system/node/online").read_text().strip() == "0-1"
