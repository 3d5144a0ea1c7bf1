#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Wakes a guest whenever it has fallen asleep (S3), until it ends.

Usage: ramlab wake-guest SOCKET    the monitor of a guest started with -qmp unix:SOCKET,server=on,wait=off
"""

import json
import socket
import sys
import time
from pathlib import Path


def connect(path, seconds=60):
    """QEMU makes the socket when it starts."""
    end = time.monotonic() + seconds
    while True:
        monitor = socket.socket(socket.AF_UNIX)
        try:
            monitor.connect(path)
            return monitor
        except OSError:
            monitor.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    with connect(str(Path(sys.argv[1]))) as monitor:
        stream = monitor.makefile("rw")

        def command(name):
            stream.write(json.dumps({"execute": name}) + "\n")
            stream.flush()

        command("qmp_capabilities")
        for line in stream:
            if json.loads(line).get("event") == "SUSPEND":
                time.sleep(1)
                command("system_wakeup")


if __name__ == "__main__":
    main()
