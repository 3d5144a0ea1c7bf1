# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's source trees: Debian's as it is, and a copy with our overlay and patches."""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import CACHE, ROOT, die, need_space, run
from ramlab.kernel.bases import BASES, FIRST

OVERLAY = ROOT / "kernel/files"
NAME, EMAIL = "The ramslice developers", "developers@ramslice.example"


def git(repo, *arguments, date="1735689600 +0000"):
    """Runs git in a scratch repository, whatever the user's own configuration is."""
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER")
           for key, value in (("NAME", NAME), ("EMAIL", EMAIL), ("DATE", date))}
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | who
    env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C",
            "TZ": "UTC"}
    return run(["git", "-C", repo, "-c", "core.abbrev=12", "-c", "gc.auto=0", *arguments], env=env)


def series():
    """The patches for the first base, in order."""
    return FIRST.series()


def files_of(patch):
    """The names of the files that a patch changes."""
    text = patch.read_text(errors="replace")
    return set(re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)", text, re.M))


def changes_ours(patch):
    """Patches of all parts of the series but the first change files of the overlay, too."""
    return patch.parent.name != "core"


def overlay():
    """The overlay's files, relative to the kernel tree; its Python may have been compiled there."""
    return sorted(p.relative_to(OVERLAY) for p in OVERLAY.rglob("*")
                  if p.is_file() and p.parent.name != "__pycache__")


def fetch(lock, folder):
    """Downloads a base's package from the machine's mirror into a folder; returns the tarball.

    Its hash is locked, so that it does not matter who is trusted to send it.
    """
    mirror = run(["bash", "-c", "source lab/env && mirror_of bookworm"], cwd=ROOT).strip()
    if not mirror:
        die("apt has no source for bookworm, whose mirror would have "
            f"{lock['suite']}, too (see sources.list(5))")
    url = f"{mirror.rstrip('/')}/{lock['file']}"
    print(f"fetching {lock['package']} {lock['version']}", flush=True)
    done = subprocess.run(["curl", "-sSfL", "--retry", "3", "-o", folder / "package.deb", url],
                          text=True, stderr=subprocess.PIPE)
    if done.returncode:
        die(f"cannot download {url}: {done.stderr.strip()} (if the mirror has dropped this "
            f"version, snapshot.debian.org has it)")
    run(["dpkg-deb", "-x", folder / "package.deb", folder / "package"])
    tarball = folder / "package" / lock["tarball"].lstrip("/")
    with open(tarball, "rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != lock["sha256"]:
        die(f"{url}: its {tarball.name} has the hash {sha256}, not {lock['sha256']}")
    return tarball


class Source:
    """One release of Debian's source package and the trees made from it.

    The first base is the package that is installed. Others are fetched for their trees alone.
    """

    def __init__(self, base=FIRST):
        self.base, self.lock = base, base.lock
        self.package, self.sha256 = self.lock["version"], self.lock["sha256"]
        self.recorded = True
        if base is FIRST:
            self._read_installed()
        self.home = CACHE / "trees" / self.sha256[:12]
        self.pristine = self.home / "pristine"
        self.patched = self.home / "patched"

    def _read_installed(self):
        """The package that is installed may be a newer one than the lock names."""
        self.tarball = Path(self.lock["tarball"])
        if not self.tarball.exists():
            die(f"{self.tarball} is missing: run 'make setup', "
                f"which installs {self.lock['package']}")
        with open(self.tarball, "rb") as stream:
            self.sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        self.recorded = self.sha256 == self.lock["sha256"]
        if not self.recorded:
            self.package = run(["dpkg-query", "-W", "-f", "${Version}", self.lock["package"]])

    def series(self):
        """The patches to files of this source, in order."""
        return self.base.series()

    @functools.cached_property
    def overlay_root(self):
        """The folder of the overlay's files as this base has them; it lasts as long as this."""
        if not self.base.overlay_patches():
            return OVERLAY
        self._overlay_folder = tempfile.TemporaryDirectory(prefix="ramslice-overlay-")
        root = Path(self._overlay_folder.name)
        shutil.copytree(OVERLAY, root, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
        for patch in self.base.overlay_patches():
            if unknown := files_of(patch) - {str(name) for name in overlay()}:
                die(f"{patch.relative_to(ROOT)}: kernel/files has no {min(unknown)}")
            self._run_patch(patch, root, "kernel/files")
        return root

    def describe(self):
        """One line that names the source in use, and says when it is not the recorded one."""
        text = f"Debian {self.lock['package']} {self.package}"
        if not self.recorded:
            text += f" (recorded: {self.lock['version']}; used because the series applies)"
        return text

    def extract(self):
        """Unpacks Debian's source once; trees of no base go, to bound the cache."""
        if self.pristine.exists():
            return
        need_space(CACHE, 12)
        kept = {self.home} | {CACHE / "trees" / base.lock["sha256"][:12]
                              for base in BASES.values()}
        for other in (CACHE / "trees").glob("*"):
            if other not in kept:
                shutil.rmtree(other)
        fresh = self.home / "unpacking"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=self.home) as folder:
            tarball = self.tarball if self.base is FIRST else fetch(self.lock, Path(folder))
            print(f"unpacking {tarball.name} (about 15 s)", flush=True)
            run(["tar", "-xJf", tarball, "--strip-components=1", "-C", fresh])
        head = (fresh / "Makefile").read_text()[:400]
        version = ".".join(re.search(rf"^{k} = (\d+)", head, re.M)[1]
                           for k in ("VERSION", "PATCHLEVEL"))
        if not self.lock["linux"].startswith(version + "."):
            die(f"{self.describe_base()} holds Linux {version}, "
                f"the series is for {self.lock['linux']}")
        fresh.rename(self.pristine)

    def changed_files(self):
        """Path -> content of every file that the patches and the overlay give (None: deleted)."""
        with tempfile.TemporaryDirectory(prefix="ramslice-patch-") as scratch:
            scratch = Path(scratch)
            touched = set()
            for patch in self.series():
                names = self._apply(patch, scratch)
                if not changes_ours(patch) and (ours := {str(name) for name in overlay()} & names):
                    die(f"kernel/files/{min(ours)}: {patch.name} touches this file too")
                touched |= names
            result = {name: _content(scratch / name) for name in touched}
        for name in overlay():
            path = self.overlay_root / name
            if str(name) in result:
                continue
            if (self.pristine / name).exists():
                die(f"kernel/files/{name}: {self.describe_base()} has this file; "
                    "change it with a patch")
            result[str(name)] = _content(path)
        return result

    def _apply(self, patch, scratch):
        """Applies one patch to copies of the files it names, without fuzz; returns their names."""
        if not patch.exists():
            die(f"kernel/patches/series names {patch.name}, which does not exist")
        names = files_of(patch)
        for name in names:
            copy = scratch / name
            ours = changes_ours(patch) and (self.overlay_root / name).exists()
            original = (self.overlay_root if ours else self.pristine) / name
            if not copy.exists() and original.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(original, copy)
        self._run_patch(patch, scratch, self.describe_base())
        return names

    @staticmethod
    def _run_patch(patch, folder, what):
        """Applies a patch in a folder without fuzz, or says which files it does not apply to."""
        done = subprocess.run(
            ["patch", "-p1", "-N", "-F0", "-t", "-r-", "--no-backup-if-mismatch", "-d", folder,
             "-i", patch],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        if done.returncode:
            current, failed = "?", []
            for line in done.stdout.splitlines():
                if match := re.match(r"patching file (\S+)|\|\+\+\+ b/(\S+)", line):
                    current = match[1] or match[2]
                if re.search(r"FAILED|malformed|already exists|hunks? ignored", line):
                    failed.append(current)
            where = ", ".join(dict.fromkeys(failed)) or "see below"
            die(f"{patch.name} does not apply to {what}: {where}\n{done.stdout.rstrip()}")

    def describe_base(self):
        return f"{self.lock['package']} {self.package}"

    def sync(self):
        """Brings the patched tree up to date; returns the names whose content changed.

        Files that stay the same keep their modification time, so make rebuilds only what it must.
        """
        if not self.patched.exists():
            fresh = self.home / "copying"
            shutil.rmtree(fresh, ignore_errors=True)
            # Files that stay the same need their space once
            run(["cp", "-al", self.pristine, fresh])
            fresh.rename(self.patched)
        manifest = self.home / "patched.json"
        before = set(json.loads(manifest.read_text())) if manifest.exists() else set()
        wanted = self.changed_files()
        # Recorded before the first write: after an interruption all of it is looked at again.
        manifest.write_text(json.dumps(sorted(before | set(wanted))))
        for name in before - set(wanted):
            path = self.pristine / name
            wanted[name] = _content(path)
        changed = [name for name, content in sorted(wanted.items())
                   if _put(self.patched / name, content)]
        return changed


def _content(path):
    """A file's bytes and mode; None if it does not exist."""
    return (path.read_bytes(), path.stat().st_mode & 0o777) if path.exists() else None


def _put(path, content):
    """Writes a file only if it differs; None deletes it. True if something changed.

    What is written is a new file: the old one may be a hard link into another tree.
    """
    if content is None:
        if not path.exists():
            return False
        path.unlink()
        return True
    data, mode = content
    if path.exists() and path.read_bytes() == data and path.stat().st_mode & 0o777 == mode:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return True
