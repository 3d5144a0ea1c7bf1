# SPDX-License-Identifier: GPL-2.0-or-later
"""The file system of guests of another architecture: a small Debian of theirs, and our folders.

Guests of this machine's architecture run over the machine's own files. Others have programs of
their own, unpacked once into the cache, not configured, and never started here. The repository and
the cache are mounted in them at their own paths, so that Python programs, which have no
architecture, run as they do elsewhere.
"""

import hashlib
import shlex
import shutil
from pathlib import Path

from ramlab.common import CACHE, ROOT, die, locked, run

FORMAT = 1  # raised when this program changes what it unpacks
RELEASE = "bookworm"
# What virtme-ng's init and the tests call, without what would only be there to be configured.
PACKAGES = (
    "base-files", "base-passwd", "bash", "busybox-static", "coreutils", "dash", "diffutils",
    "e2fsprogs", "findutils", "grep", "hostname", "iproute2", "kmod", "libc-bin", "login", "mawk",
    "mount", "ncurses-bin", "passwd", "procps", "python3", "sed", "udev", "util-linux",
)
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
# Where what is writable appears first; /run is the guest's own
WRITABLE = "/run/ramslice-rw"


def _unpack(arch, tree):
    """Debian's packages in a new folder, all of them the user's own files."""
    mirror = run(["bash", "-c", f"source lab/env && mirror_of {RELEASE}"], cwd=ROOT).strip()
    if not mirror:
        die(f"apt has no source for {RELEASE} (see sources.list(5))")
    archive = tree.with_suffix(".tar")
    print(f"unpacking a Debian {RELEASE} for {arch.name} guests (about 20 s)", flush=True)
    run(["mmdebstrap", "--quiet", "--variant=extract", f"--architectures={arch.name}",
         f"--hook-dir={MERGED_USR}", f"--include={','.join(PACKAGES)}",
         RELEASE, archive, f"deb {mirror} {RELEASE} main"])
    tree.mkdir()
    run(["tar", "-xf", archive, "-C", tree, "--no-same-owner", "--exclude", "./dev/*"])
    archive.unlink()
    # What the packages' scripts would have done, as far as anything here needs it
    for name in ("passwd", "group"):
        shutil.copy(tree / "usr/share/base-passwd" / f"{name}.master", tree / "etc" / name)
    for name in ("fstab", "shadow", "sudoers", "hosts"):
        (tree / "etc" / name).touch()
    # Where virtme-ng's init and tests mount something
    for name in ("etc/lvm", "lib/modules", "mnt"):
        (tree / name).mkdir(exist_ok=True)
    (tree / "usr/bin/awk").symlink_to("mawk")
    (tree / "usr/sbin/poweroff").symlink_to("/usr/bin/busybox")


def foreign_root(arch):
    """The folder that is the root of a guest, made if need be."""
    what = f"{FORMAT} {RELEASE} {arch.name} {' '.join(PACKAGES)}"
    tree = CACHE / "roots" / f"{arch.name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    if not tree.exists():
        with locked("roots"):
            if not tree.exists():
                for old in tree.parent.glob(f"{arch.name}-*"):
                    shutil.rmtree(old)
                tree.parent.mkdir(parents=True, exist_ok=True)
                fresh = tree.with_name(f"new-{tree.name}")
                shutil.rmtree(fresh, ignore_errors=True)
                _unpack(arch, fresh)
                fresh.rename(tree)
    return tree


def virtme_words(arch, readable, writable):
    """What virtme-run needs for such a guest, which sees these folders as well; writable ones are
    mounted in two steps.
    """
    tree = foreign_root(arch)
    words = ["--arch", arch.name, "--root", tree]
    read_only = sorted({ROOT, CACHE.resolve()})
    read_only += sorted({Path(path).resolve() for path in readable
                         if not any(Path(path).resolve().is_relative_to(each)
                                    for each in read_only)})
    for path in [*read_only, *(Path(path).resolve() for path in writable)]:
        # The root is read-only, too: what is mounted in it needs a place, unless another mount has.
        if path.parts[1] not in ("dev", "run") and not any(
                path.is_relative_to(each) for each in read_only if each != path):
            (tree / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
    words += [f"--rodir={path.relative_to('/')}={path}" for path in read_only]
    words += [f"--rwdir={WRITABLE[1:]}/{number}={Path(path).resolve()}"
              for number, path in enumerate(writable)]
    return words


def mount_writable(writable):
    """Shell text that puts writable folders where they belong, over those that are read-only."""
    return "".join(
        f"mkdir -p {path}; mount --bind {WRITABLE}/{number} {path}\n"
        for number, path in enumerate(shlex.quote(str(Path(each).resolve())) for each in writable))
