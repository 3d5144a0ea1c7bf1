# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's monitor, from inside the guest: it is wired to a virtio port called "qmp".

The options for ramlab vm that do this, with FOLDER a directory of the host's:
  -chardev socket,id=monitor,path=FOLDER/qmp,server=on,wait=off -mon chardev=monitor,mode=control
  -chardev socket,id=wire,path=FOLDER/qmp,server=off
  -device virtio-serial-pci,id=control -device virtserialport,bus=control.0,chardev=wire,name=qmp
"""

import atexit
import functools
import os
import select
import socket
import threading
from pathlib import Path

SECONDS = 20


def port():
    """The device that the monitor is wired to."""
    for name in Path("/sys/class/virtio-ports").glob("*/name"):
        if name.read_text().strip() == "qmp":
            return Path("/dev", name.parent.name)
    raise FileNotFoundError("there is no virtio port called qmp")


def _relay(device, end):
    """Carries what either side says to the other until one of them ends."""
    try:
        with end:
            while True:
                ready, _, _ = select.select([device, end], [], [])
                if device in ready:
                    if not (data := os.read(device, 4096)):
                        return
                    end.sendall(data)
                if end in ready:
                    if not (data := end.recv(4096)):
                        return
                    while data:
                        data = data[os.write(device, data):]
    finally:
        os.close(device)


def connect(device):
    """A connection over an open character device, which it closes; qemu.qmp takes sockets only.

    The monitor greets once, when the device is opened for the first time.
    """
    from qemu.qmp.legacy import QEMUMonitorProtocol

    if not select.select([device], [], [], SECONDS)[0]:
        name = os.readlink(f"/proc/self/fd/{device}")
        os.close(device)
        raise TimeoutError(f"QEMU's monitor does not greet on {name}")
    ours, theirs = socket.socketpair()
    threading.Thread(target=_relay, args=(device, theirs), daemon=True).start()
    found = QEMUMonitorProtocol(ours)
    found.settimeout(SECONDS)
    found.connect()
    return found


@functools.cache
def monitor():
    """The guest's monitor, open until this program ends: cmd("balloon", value=BYTES)."""
    found = connect(os.open(port(), os.O_RDWR | os.O_NOCTTY))
    atexit.register(found.close)
    return found
