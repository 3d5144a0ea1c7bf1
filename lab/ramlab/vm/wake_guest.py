# SPDX-License-Identifier: GPL-2.0-or-later
"""Wakes a guest whenever it has fallen asleep (S3), until it ends.

Usage: ramlab wake-guest SOCKET

SOCKET is the monitor of a guest started with -qmp unix:SOCKET,server=on,wait=off.
"""

import asyncio
import contextlib
import sys
import time

PATIENCE = 60


async def connect(monitor, path):
    """Waits for the socket, which QEMU makes when it starts."""
    from qemu.qmp import ConnectError

    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await monitor.connect(path)
        except ConnectError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.2)


async def answer(monitor):
    """Wakes the guest a second after each suspend."""
    # A listener of its own would miss what happens before it is there.
    async for event in monitor.events:
        if event["event"] == "SUSPEND":
            await asyncio.sleep(1)
            await monitor.execute("system_wakeup")


async def wake(path):
    from qemu.qmp import ExecInterruptedError, QMPClient

    monitor = QMPClient()
    await connect(monitor, path)
    answering = asyncio.create_task(answer(monitor))
    ended = asyncio.create_task(monitor.runstate_changed())
    await asyncio.wait({answering, ended}, return_when=asyncio.FIRST_COMPLETED)
    answering.cancel()
    # The guest may have ended at any moment, also while it was asked to wake.
    with contextlib.suppress(asyncio.CancelledError, ExecInterruptedError):
        await answering
    with contextlib.suppress(EOFError, OSError):
        await monitor.disconnect()


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    asyncio.run(wake(sys.argv[1]))


if __name__ == "__main__":
    main()
