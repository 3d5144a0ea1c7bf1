# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's own control channel, from inside the guest: its monitor is wired to a virtio port called
"qmp".

The options for ramlab vm that do this, with FOLDER a directory of the host's:
  -chardev socket,id=monitor,path=FOLDER/qmp,server=on,wait=off -mon chardev=monitor,mode=control
  -chardev socket,id=wire,path=FOLDER/qmp,server=off
  -device virtio-serial-pci,id=control -device virtserialport,bus=control.0,chardev=wire,name=qmp
"""

import json
import os
import select
from pathlib import Path


class Monitor:
    """An open monitor."""

    def __init__(self):
        ports = [path.parent.name for path in Path("/sys/class/virtio-ports").glob("*/name")
                 if path.read_text().strip() == "qmp"]
        if not ports:
            raise FileNotFoundError("there is no virtio port called qmp")
        self.fd = os.open(f"/dev/{ports[0]}", os.O_RDWR)
        self.buffer = b""
        # It greets each client; the first opener reads that, later ones find it in capability
        # mode already
        self.command("qmp_capabilities", fine=("CommandNotFound",))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def line(self, seconds=20):
        while b"\n" not in self.buffer:
            if not select.select([self.fd], [], [], seconds)[0]:
                raise TimeoutError("QEMU's monitor does not answer")
            self.buffer += os.read(self.fd, 4096)
        text, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(text)

    def command(self, name, fine=(), **arguments):
        """Carries out a command and returns its answer; events that come in between are dropped."""
        os.write(self.fd, json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self.line()
            if "error" in answer and answer["error"]["class"] not in fine:
                raise RuntimeError(f"{name}: {answer['error']['desc']}")
            if "return" in answer or "error" in answer:
                return answer.get("return")
