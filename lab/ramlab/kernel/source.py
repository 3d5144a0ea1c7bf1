# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's source trees: Debian's as it is, and a copy with our overlay and patches."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import CACHE, ROOT, die, need_space, read_lock, run

OVERLAY = ROOT / "kernel/files"
PATCHES = ROOT / "kernel/patches"
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
    """The patches, in order."""
    listing = PATCHES / "series"
    if not listing.exists():
        return []
    lines = (line.split("#")[0].strip() for line in listing.read_text().splitlines())
    return [PATCHES / line for line in lines if line]


def files_of(patch):
    """The names of the files that a patch changes."""
    text = patch.read_text(errors="replace")
    return set(re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)", text, re.M))


def is_research(patch):
    """Patches of the last part of the series change files of the overlay, too."""
    return patch.parent.name == "research"


def overlay():
    """The overlay's files, relative to the kernel tree."""
    return sorted(p.relative_to(OVERLAY) for p in OVERLAY.rglob("*") if p.is_file())


class Source:
    """One release of Debian's source package and the trees made from it."""

    def __init__(self):
        lock = read_lock()
        self.tarball = Path(lock["tarball"])
        if not self.tarball.exists():
            die(f"{self.tarball} is missing: run 'make setup', which installs {lock['package']}")
        with open(self.tarball, "rb") as stream:
            self.sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        self.recorded = self.sha256 == lock["sha256"]
        self.package = lock["version"]
        if not self.recorded:
            self.package = run(["dpkg-query", "-W", "-f", "${Version}", lock["package"]])
        self.lock = lock
        self.home = CACHE / "trees" / self.sha256[:12]
        self.pristine = self.home / "pristine"
        self.patched = self.home / "patched"

    def describe(self):
        """One line that names the source in use, and says when it is not the recorded one."""
        text = f"Debian {self.lock['package']} {self.package}"
        if not self.recorded:
            text += f" (recorded: {self.lock['version']}; used because the series applies)"
        return text

    def extract(self):
        """Unpacks Debian's source once; trees of other releases go, to bound the cache."""
        if self.pristine.exists():
            return
        need_space(CACHE, 12)
        print(f"unpacking {self.tarball} (about 15 s)", flush=True)
        for other in (CACHE / "trees").glob("*"):
            if other != self.home:
                shutil.rmtree(other)
        fresh = self.home / "unpacking"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        run(["tar", "-xJf", self.tarball, "--strip-components=1", "-C", fresh])
        head = (fresh / "Makefile").read_text()[:400]
        version = ".".join(re.search(rf"^{k} = (\d+)", head, re.M)[1]
                           for k in ("VERSION", "PATCHLEVEL"))
        if not self.lock["linux"].startswith(version + "."):
            die(f"{self.tarball} holds Linux {version}, the series is for {self.lock['linux']}")
        fresh.rename(self.pristine)

    def changed_files(self):
        """Path -> content of every file that the patches and the overlay give (None: deleted)."""
        with tempfile.TemporaryDirectory(prefix="ramslice-patch-") as scratch:
            scratch = Path(scratch)
            touched = set()
            for patch in series():
                names = self._apply(patch, scratch)
                if not is_research(patch) and (ours := {str(name) for name in overlay()} & names):
                    die(f"kernel/files/{min(ours)}: {patch.name} touches this file too")
                touched |= names
            result = {name: _content(scratch / name) for name in touched}
        for name in overlay():
            path = OVERLAY / name
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
            ours = is_research(patch) and (OVERLAY / name).exists()
            original = (OVERLAY if ours else self.pristine) / name
            if not copy.exists() and original.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(original, copy)
        done = subprocess.run(
            ["patch", "-p1", "-N", "-F0", "-t", "-r-", "--no-backup-if-mismatch", "-d", scratch,
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
            die(f"{patch.name} does not apply to {self.describe_base()}: {where}\n"
                f"{done.stdout.rstrip()}")
        return names

    def describe_base(self):
        return f"{self.lock['package']} {self.package}"

    def sync(self):
        """Brings the patched tree up to date; returns the names whose content changed.

        Files that stay the same keep their modification time, so make rebuilds only what it must.
        """
        if not self.patched.exists():
            fresh = self.home / "copying"
            shutil.rmtree(fresh, ignore_errors=True)
            run(["cp", "-a", self.pristine, fresh])
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
    """Writes a file only if it differs; None deletes it. True if something changed."""
    if content is None:
        if not path.exists():
            return False
        path.unlink()
        return True
    data, mode = content
    if path.exists() and path.read_bytes() == data and path.stat().st_mode & 0o777 == mode:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return True
