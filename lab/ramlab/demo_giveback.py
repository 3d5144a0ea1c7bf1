# SPDX-License-Identifier: GPL-2.0-or-later
"""Shows memory that goes back to the host: make demo-giveback [HUGE=1].

Two guests of 2 GiB do the same, side by side: files, a build, a program that needs 700 MiB for a
moment; then they idle, and read one file every ten seconds. One has the unpatched kernel with free
page reporting, the other ramslice. What the host holds of each is the room that the file takes that
is its memory; with --huge, the host has it in huge pages. Leaves a picture and the figures in
out/demo-giveback.

The status is 0 if the host holds less of the guest with ramslice, and nothing was damaged, killed
or swapped, and no allocation failed.
"""

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import subprocess
import sys
import time

import matplotlib

from ramlab.bench import giveback, machines
from ramlab.common import OUT, RAMLAB, ROOT, built, die
from ramlab.kernel.images import image

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  the backend is chosen before

FOLDER = OUT / "demo-giveback"
# Where the guests' memory is, with --huge
HUGE = FOLDER / "huge"
NAMES = {
    giveback.USUAL: "free page reporting",
    giveback.OURS: "ramslice",
}
MIB = 1 << 20
# Width of a name in the picture; a phase of less has none
NAME_SECONDS, PHASE_SECONDS = 3, 0.5
WORK = f"ramlab.guest.{giveback.SCRIPT.removesuffix('.py')}"


def command(arm, folder, programs):
    """What runs the work in a guest; ramsliced and ramslice."""
    boot = giveback.boot(arm, *programs)
    words = [RAMLAB, "vm", "--quiet", "--kernel", boot.flavour, "--timeout", 1200, *boot.words,
             "--rw", folder, "--", *boot.environment, "python3", "-u", "-m", WORK,
             folder / machines.RESULT, *boot.parts]
    line = [str(word).replace("{folder}", str(folder)) for word in words]
    # Huge pages of the host need memory that is mapped at such an address
    return [word.replace("share=on", "share=on,align=2M") for word in line]


@contextlib.contextmanager
def huge_pages():
    """Has files in HUGE take huge pages of the host."""
    HUGE.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "huge=always,size=6G", "ramslice", HUGE],
                   check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", HUGE], check=True)


def guest(arm, programs, parent):
    """Runs the work in a guest that has its folder in `parent`; its figures."""
    folder = parent / arm
    folder.mkdir(parents=True, exist_ok=True)
    memory, result = folder / machines.MEMORY, folder / machines.RESULT
    with subprocess.Popen(command(arm, folder, programs), cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as machine:
        for said in machine.stdout:
            print(f"{NAMES[arm]:<20} {said.rstrip()}", flush=True)
    memory.unlink(missing_ok=True)
    if machine.returncode or not result.exists():
        die(f"the guest with {NAMES[arm]} failed (status {machine.returncode})")
    return json.loads(result.read_text())


def picture(figures, path):
    """What the host holds of each guest over time, with the phases of the work."""
    chart, axes = pyplot.subplots(figsize=(10, 5), dpi=120)

    def seconds(arm, name):
        """Of each row, since the work began."""
        return [row["s"] - figures[arm]["samples"][0]["s"] for row in figures[arm][name]]

    for arm, colour in ((giveback.USUAL, "#b45f06"), (giveback.OURS, "#1f6fb2")):
        rows = figures[arm]["samples"]
        axes.plot(seconds(arm, "samples"), [row["held_bytes"] / MIB for row in rows],
                  color=colour, linewidth=2, label=f"held by the host: {NAMES[arm]}")
    rows = figures[giveback.OURS]["samples"]
    axes.fill_between(seconds(giveback.OURS, "samples"), [row["used_bytes"] / MIB for row in rows],
                      color="#999999", alpha=0.4, linewidth=0, label="used by the guest")
    last = -math.inf
    begun = seconds(giveback.OURS, "phases")
    for row, at, end in zip(figures[giveback.OURS]["phases"], begun, [*begun[1:], math.inf],
                            strict=True):
        axes.axvline(at, color="#cccccc", linewidth=0.8, zorder=0)
        if at - last > NAME_SECONDS and end - at > PHASE_SECONDS:
            axes.text(at, 1, f"{row['phase']} ", rotation=90, va="top",
                      ha="left" if at < NAME_SECONDS else "right",
                      fontsize=8, color="#666666", transform=axes.get_xaxis_transform())
            last = at
    axes.set_xlabel("seconds (phases are those of the guest with ramslice)")
    axes.set_ylabel("MiB")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_title("The same work in two guests of 2 GiB")
    # Below: the lines reach every corner
    chart.legend(loc="outside lower center", ncols=3, frameon=False)
    chart.set_layout_engine("constrained")
    chart.savefig(path)


def table(figures):
    print(f"\n  {'':<46} {NAMES[giveback.USUAL]:>20} {NAMES[giveback.OURS]:>10}")

    def row(label, value, form):
        cells = [form.format(value(figures[arm])) for arm in (giveback.USUAL, giveback.OURS)]
        print(f"  {label:<46} {cells[0]:>20} {cells[1]:>10}")

    def idle(name):
        def value(one):
            rows = giveback.settled(one["samples"])
            return sum(r[name] for r in rows) / len(rows) / MIB
        return value

    row("held by the host when idle, MiB", idle("held_bytes"), "{:.0f}")
    row("used by the guest, MiB", idle("used_bytes"), "{:.0f}")
    row("GiB x minutes held", lambda one: giveback.gib_minutes(one["samples"], "held_bytes"),
        "{:.2f}")
    row("read again from the disk, MiB", lambda one: one["read_bytes"] / MIB, "{:.0f}")
    row("thousand millions of instructions of the work", giveback.work_s, "{:.1f}")
    row("seconds until the second burst had its memory", lambda one: one["second_burst_s"],
        "{:.1f}")
    row("killed, swapped pages, failed allocations", giveback.lost_by, "{}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--huge", action="store_true",
                        help="have the guests' memory in huge pages of the host")
    args = parser.parse_args()
    if args.huge and os.geteuid():
        die("--huge mounts a file system for the guests' memory: it needs root")
    began = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for flavour in ("plain", "stock"):
        if subprocess.run([RAMLAB, "kernel", flavour]).returncode:
            die(f"no {flavour} kernel")
        image(flavour)
    programs = [os.environ.get(name) or built(program) for name, program in
                (("RAMSLICE_DAEMON", "ramsliced"), ("RAMSLICE_PROGRAM", "ramslice"))]
    with (huge_pages() if args.huge else contextlib.nullcontext(),
          concurrent.futures.ThreadPoolExecutor(2) as pool):
        running = {arm: pool.submit(guest, arm, programs, HUGE if args.huge else FOLDER)
                   for arm in NAMES}
        figures = {arm: future.result() for arm, future in running.items()}
    suffix = "-huge" if args.huge else ""
    shown, kept = FOLDER / f"held{suffix}.png", FOLDER / f"result{suffix}.json"
    kept.write_text(json.dumps(figures, indent=1) + "\n")
    picture(figures, shown)
    table(figures)
    print(f"\n  {shown.relative_to(ROOT)}: memory over time; {kept.name}: these figures")
    print(f"  {(time.monotonic() - began) / 60:.1f} minutes")
    used = giveback.used_when_settled(figures[giveback.USUAL])
    ours, usual = (giveback.held_over_used(figures[arm], used)
                   for arm in (giveback.OURS, giveback.USUAL))
    lost = any(map(giveback.lost_by, figures.values()))
    return 0 if ours < usual and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
