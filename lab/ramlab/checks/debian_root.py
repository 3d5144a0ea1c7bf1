# SPDX-License-Identifier: GPL-2.0-or-later
"""A clean Debian in a folder: unpacked for a test, given a script that it runs, and booted.

Its tarball is fetched once, from where this machine gets its own packages, and stays in the cache.
The script's checks are sentences (lab/guest/checks.sh), each of which a test can ask for.
"""

import os
import re
import subprocess
from collections import Counter

import pytest

from ramlab.common import CACHE, RAMLAB, ROOT, locked, run
from ramlab.vm.complaints import COMPLAINT, NOT_KERNEL

RELEASE = "bookworm"
GUEST = ROOT / "lab/guest"
UNIT = """[Unit]
Description=checks in a clean Debian
After=multi-user.target dbus.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash /root/{script}
ExecStopPost=/bin/systemctl poweroff --no-block
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
"""


def need_root():
    """Skips the test unless it runs as root."""
    if os.geteuid():
        pytest.skip("only root can make and boot a Debian of its own: run as root")


def unpack_debian(tree, name, packages):
    """Unpacks a minimal Debian with these packages into a new folder."""
    archive = CACHE / name
    with locked("debian-root"):
        if not archive.exists():
            mirror = run(["bash", "-c", f"source lab/env && mirror_of {RELEASE}"], cwd=ROOT).strip()
            assert mirror, f"apt has no source for {RELEASE} (see sources.list(5))"
            partial = CACHE / f"{name}.part.tar"
            run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}",
                 RELEASE, partial, f"deb {mirror} {RELEASE} main"])
            partial.rename(archive)
    tree.mkdir()
    run(["tar", "-xf", archive, "-C", tree, "--exclude", "./dev/*"])


def run_at_boot(tree, script):
    """The Debian runs a script of lab/guest when it boots, then powers off."""
    for name in (script, "checks.sh"):
        (tree / "root" / name).write_text((GUEST / name).read_text())
    for name, pattern in (("complaint", COMPLAINT), ("not-kernel", NOT_KERNEL)):
        (tree / "root" / name).write_text(pattern.pattern + "\n")
    units = tree / "etc/systemd/system"
    (units / "checks.service").write_text(UNIT.format(script=script))
    (units / "default.target.wants").mkdir(parents=True, exist_ok=True)
    (units / "default.target.wants/checks.service").symlink_to("../checks.service")
    # A getty on the console would hang it up.
    (units / "serial-getty@.service").symlink_to("/dev/null")


def boot_debian(tree, *words):
    """Boots it and waits until it powers off; its console is the output."""
    return subprocess.run([RAMLAB, "boot-root", *words, tree], text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def sentences(script):
    """The checks of a script of lab/guest, by name; a second check of a name has its number."""
    found, seen = [], Counter()
    for sentence in re.findall(r'\bholds "([^"]+)"', (GUEST / script).read_text()):
        seen[sentence] += 1
        found.append(f"{sentence} ({seen[sentence]})" if seen[sentence] > 1 else sentence)
    return found


def passed(output):
    """The checks that passed, by the same names."""
    found, seen = set(), Counter()
    for sentence in re.findall(r"^ok: (.*?)\r?$", output, re.M):
        seen[sentence] += 1
        found.add(f"{sentence} ({seen[sentence]})" if seen[sentence] > 1 else sentence)
    return found


def why_failed(output):
    """The console's end, or what follows its first failed check."""
    at = output.find("FAIL: ")
    return output[max(0, at - 2000):at + 4000] if at >= 0 else output[-4000:]
