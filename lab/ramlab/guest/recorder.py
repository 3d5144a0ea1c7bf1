# SPDX-License-Identifier: GPL-2.0-or-later
"""`ramslice-lab record` beside a program of `ramlab size`: what advice of its memory is from."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from ramlab.guest import harness

LAB_PROGRAM = os.environ.get("RAMSLICE_LAB_PROGRAM", "ramslice-lab")
# In memory: the host's file system would answer in no certain time of the guest
FOLDER = Path("/tmp/recording")
BEGIN_S = 60


class NoRecording(Exception):
    """The recorder did not do what it was asked for."""


@contextlib.contextmanager
def recording(wanted):
    """Records meanwhile, if that is wanted.

    `wanted` is None or {"words": options of the recorder, "lead_s": for how long it records before
    the program begins, "to": where the recording goes at the end}. In a sealed guest, "share" is
    the tag of the host's folder that "to" is in, where it is mounted at the end.
    """
    if not wanted:
        yield
        return
    with open("/tmp/recorder.log", "w+", encoding="utf-8") as log:
        process = subprocess.Popen([LAB_PROGRAM, "record", *wanted["words"], "-o", FOLDER],
                                   stdout=log, stderr=log)
        try:
            # It has chosen its sample of pages, and taken the first one of all counters
            if not harness.until(lambda: FOLDER.exists() or process.poll() is not None, BEGIN_S):
                raise NoRecording(f"the recorder has not begun within {BEGIN_S} s")
            # What there is has been watched for so long when the program begins
            time.sleep(wanted["lead_s"])
            yield
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait()
            log.seek(0)
            print(log.read(), end="", flush=True)
    if status not in (0, 128 + signal.SIGINT):
        raise NoRecording(f"the recorder ended with status {status}")
    to = Path(wanted["to"])
    if share := wanted.get("share"):
        to.parent.mkdir()
        subprocess.run(["mount", "-t", "9p", "-o", "trans=virtio,version=9p2000.L", share,
                        to.parent], check=True)
    shutil.copytree(FOLDER, to)
