# SPDX-License-Identifier: GPL-2.0-or-later
"""The demonstration on a stock kernel, inside the guest.

Usage: python3 -m ramlab.guest.demo_stock OUT

Leaves OUT/before.png, after.png and end.png and OUT/result.json. RAMSLICE_PROGRAM is the program.
"""

import ctypes
import json
import mmap
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = os.environ["RAMSLICE_PROGRAM"]
MIB = 1 << 20
START = time.monotonic()


def say(text):
    print(f"{time.monotonic() - START:6.1f} s  {text}", flush=True)


def ramslice(*words):
    done = subprocess.run([PROGRAM, "--json", *words], text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def counter(path, name):
    words = (line.replace(":", "").split() for line in Path(path).read_text().splitlines())
    return next(int(word[1]) for word in words if word and word[0] == name)


def picture(path, title):
    subprocess.run(
        [PROGRAM, "map", "--png", path, "--title", title], check=True, stdout=subprocess.DEVNULL
    )


def take(megabytes, pause):
    """Memory with something in it; 16 MiB at a time."""
    memory = mmap.mmap(-1, megabytes * MIB)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for at in range(0, len(memory), 16 * MIB):
        ctypes.memset(start + at, 1 + at // (16 * MIB) % 250, 16 * MIB)
        time.sleep(pause)
    return memory


def errors(memory):
    """Pieces that are not as they were written."""
    return sum(memory[at] != 1 + at // (16 * MIB) % 250 for at in range(0, len(memory), 4096))


def main():
    out = Path(sys.argv[1])
    killed = counter("/proc/vmstat", "oom_kill")
    say(f"Linux {platform.release()}, as Debian builds it")
    held = take(160, 0)
    scratch = Path("/tmp/cache")
    scratch.write_bytes(os.urandom(MIB) * 96)
    before = ramslice("status")
    picture(out / "before.png", "before: programs hold memory here and there")
    used = sum(
        s["counters"]["free_pages"] < s["present_pages"] for s in before["snapshot"]["slices"]
    )
    say(f"{used} of {before['info']['nr_slices']} memory blocks hold something")
    outcome = ramslice("compact", "--deadline", "120s")["outcome"]
    info = ramslice("status")["info"]
    picture(out / "after.png", "after: packed, and the empty memory blocks are off")
    off = info["offline_pages"] * info["page_bytes"] // MIB
    say(
        f"{outcome['slices_done']} blocks taken offline, {off} MiB, {outcome['migrated_pages']}"
        f" pages moved, ended: {outcome['reason']}"
    )
    guard = subprocess.Popen([PROGRAM, "--json", "guard"], text=True, stdout=subprocess.PIPE)
    time.sleep(2)
    say("a program wants 400 MiB, and a guard watches")
    burst = take(400, 0.3)
    damaged = errors(burst) + errors(held)
    guard.send_signal(signal.SIGINT)
    woken = sum(
        json.loads(line)["outcome"]["slices_done"] for line in guard.communicate()[0].splitlines()
    )
    say(f"{woken} blocks came back online while it grew")
    del burst
    picture(out / "end.png", "end: a guard woke blocks while a program grew")
    ramslice("online", "--all")
    after = ramslice("status")["info"]
    result = {
        "kernel": platform.release(),
        "blocks": before["info"]["nr_slices"],
        "block_bytes": before["info"]["slice_bytes"],
        "blocks_used_before": used,
        "blocks_offline": outcome["slices_done"],
        "offline_mib": off,
        "pages_migrated": outcome["migrated_pages"],
        "ended": outcome["reason"],
        "woken_by_guard": woken,
        "data_errors": damaged,
        "oom_kills": counter("/proc/vmstat", "oom_kill") - killed,
        "offline_pages_at_end": after["offline_pages"],
    }
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    good = (
        not damaged
        and not result["oom_kills"]
        and not after["offline_pages"]
        and outcome["slices_done"]
        and woken
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
