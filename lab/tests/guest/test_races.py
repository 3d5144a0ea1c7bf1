# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel that looks for data races finds one: without that, its campaigns prove nothing."""

import re
import subprocess
import threading

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm


@vm(kernel="kcsan", mem="1G", append="ramslice=16M", slow=True, fresh=True, allow_complaints=True)
def test_two_tasks_that_change_a_variable_without_a_lock_are_reported():
    subprocess.run(["modprobe", "ramslice_touch"], check=True)
    race = dev.debugfs().parent / "ramslice_touch/race"
    log, seen = harness.KernelLog(), []

    def reported():
        seen.extend(log.lines())
        return re.search("KCSAN: data-race in touch_race_set", "\n".join(seen))

    stop = threading.Event()

    def change():
        while not stop.is_set():
            dev.write(race, 1_000_000)

    writers = [threading.Thread(target=change) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        found = harness.until(reported)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        log.close()
    assert found, "\n".join(seen[-30:])
