# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel packages: what is lost of Debian's configuration is named, and what a build takes is told before it begins."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from ramlab.kernel import build as lab
from ramlab.kernel import progress
from ramlab.kernel.source import git

import kernel_deb


class Configuration(unittest.TestCase):
    def test_what_is_lost_is_named_unless_it_was_asked_for_or_is_of_the_compiler(self):
        debian = lab.options('CONFIG_NUMA=y\nCONFIG_KSM=y\nCONFIG_EXT4_FS=m\nCONFIG_CMDLINE="a"\n# CONFIG_SLUB_TINY is not set\n'
                             'CONFIG_DEBUG_INFO=y\nCONFIG_PAHOLE_VERSION=124\nCONFIG_CC_VERSION_TEXT="12"\n')
        asked = lab.options("# CONFIG_DEBUG_INFO is not set\nCONFIG_RAMSLICE=y\n")
        got = lab.options('CONFIG_NUMA=y\nCONFIG_EXT4_FS=y\nCONFIG_CMDLINE="b"\nCONFIG_RAMSLICE=y\nCONFIG_PAHOLE_VERSION=0\n')
        told = [line.strip() for line in kernel_deb.lost(lab, debian, asked, got)]
        self.assertEqual(told, ["CONFIG_KSM: Debian has y, got n", "CONFIG_EXT4_FS: Debian has m, got y",
                                'CONFIG_CMDLINE: Debian has "a", got "b"'])
        self.assertEqual(lab.otherwise(asked, got), [])


class Modules(unittest.TestCase):
    """Lists of modules, as lsmod prints them; anything else is refused by its place."""

    def check(self, text):
        with tempfile.NamedTemporaryFile("w") as file, contextlib.redirect_stderr(io.StringIO()) as said:
            file.write(text)
            file.flush()
            try:
                kernel_deb.check_modules(Path(file.name))
            except SystemExit as end:
                return end.code, said.getvalue()
        return 0, said.getvalue()

    def test_what_lsmod_prints_is_taken(self):
        head = "Module                  Size  Used by\n"
        self.assertEqual(self.check(f"{head}ext4 1036288 2\nvirtio_net             86016  0\nmbcache 16384 1 ext4\nraid6_pq 12 -2\n"), (0, ""))

    def test_anything_else_is_refused_by_its_line(self):
        head = "Module                  Size  Used by\n"
        for text, told in (("", "names no module"), (head, "names no module"), ("ext4 1 0\n", "line 1: 'ext4 1 0'"),
                           (f"{head}ext4 1 0\next4\n", "line 3: 'ext4'"), (f"{head}ext4 1 0\n\n", "line 3: ''"),
                           (f"{head}ext4.ko 1 0\n", "line 2: 'ext4.ko 1 0'")):
            with self.subTest(text):
                status, said = self.check(text)
                self.assertEqual(status, 2)
                self.assertIn(told, said)

    def test_only_a_flavour_with_modules_takes_a_list(self):
        for words in (["lean", "--modules", "list"], ["debian", "--modules", "/nowhere/list"]):
            with mock.patch.object(sys, "argv", ["kernel-deb", *words]), contextlib.redirect_stderr(io.StringIO()) as said, \
                    self.assertRaises(SystemExit) as end:
                kernel_deb.arguments()
            self.assertEqual(end.exception.code, 2)
            self.assertIn("--modules" if words[0] == "lean" else "/nowhere/list", said.getvalue())


class Keys(unittest.TestCase):
    """What an image cannot be signed with is refused before hours of compiling."""

    def test_key_and_certificate_must_be_there_and_belong_together(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(shutil, "which", lambda name: name):
            folder = Path(folder)
            for name in ("one", "two"):
                subprocess.run(["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a test/",
                                "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"], check=True, capture_output=True)
            kernel_deb.check_key(folder / "one.key", folder / "one.pem")
            for key, cert, told in (("one.key", "two.pem", "different public keys"), ("no.key", "one.pem", "no.key is no private key"),
                                    ("one.pem", "one.pem", "one.pem is no private key"), ("one.key", "one.key", "is no certificate")):
                with self.subTest(told), contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
                    kernel_deb.check_key(folder / key, folder / cert)
                self.assertEqual(end.exception.code, 2)
                self.assertIn(told, said.getvalue())


class Version(unittest.TestCase):
    """Packages of a later change to the series, or of a later source of Debian's, are upgrades."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.enterContext(mock.patch.object(kernel_deb, "ROOT", self.root))
        self.enterContext(mock.patch.dict(os.environ))
        os.environ.pop("SOURCE_DATE_EPOCH", None)

    def git(self, *words, date=0):
        git(self.root, *words, date=f"{date} +0000")

    def commit(self, name, date):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(f"{date}")
        self.git("add", ".")
        self.git("commit", "-q", "-m", name, date=date)

    def refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
            kernel_deb.changed_at()
        self.assertTrue(end.exception.code)
        return said.getvalue()

    def test_each_is_above_the_one_before(self):
        first = 1700000000
        versions = [kernel_deb.package_version(debian, first + seconds) for debian, seconds in (
            ("6.12.117-1~deb12u1", 0), ("6.12.117-1~deb12u1", 1), ("6.12.117-1~deb12u1", 10**9), ("6.12.117-1~deb12u2", 0),
            ("6.12.117-1", 0), ("6.12.117-2", 0), ("6.12.118-1~deb12u1", 0), ("6.13.1-1", 0))]
        # What was given out before there was a date in it
        versions.insert(0, "6.12.117+1~deb12u1-1")
        for older, newer in zip(versions, versions[1:]):
            self.assertEqual(subprocess.run(["dpkg", "--compare-versions", older, "lt", newer]).returncode, 0, f"{older} < {newer}")
        self.assertEqual(versions[1], "6.12.117+1~deb12u1+rs20231114221320-1")

    def test_it_goes_by_the_last_commit_to_the_series(self):
        self.git("init", "-q")
        self.commit("kernel/patches/series", 1700000000)
        self.commit("docs/install.md", 1700000100)
        self.assertEqual(kernel_deb.changed_at(), 1700000000)
        self.commit("packaging/kernel/lean.config", 1700000200)
        self.assertEqual(kernel_deb.changed_at(), 1700000200)
        # What is not committed is newer than every commit.
        (self.root / "kernel/new.c").touch()
        self.assertAlmostEqual(kernel_deb.changed_at(), time.time(), delta=60)

    def test_without_git_somebody_must_say(self):
        self.assertIn("set SOURCE_DATE_EPOCH", self.refused())
        self.git("init", "-q")
        self.commit("README.md", 1700000000)
        self.assertIn("set SOURCE_DATE_EPOCH", self.refused())
        os.environ["SOURCE_DATE_EPOCH"] = "1700000300"
        self.assertEqual(kernel_deb.changed_at(), 1700000300)
        os.environ["SOURCE_DATE_EPOCH"] = "yesterday"
        self.assertIn("'yesterday'", self.refused())


class Packages(unittest.TestCase):
    """What becomes of a package that the kernel's own packaging made."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)

    def repacked(self, name, extra=""):
        """The control file and the scripts of such a package, after repack()."""
        tree = self.home / "made"
        (tree / "DEBIAN").mkdir(parents=True)
        if name.startswith("linux-image-"):
            for script in ("preinst", "postinst", "prerm"):
                (tree / "DEBIAN" / script).write_text(f"#!/bin/sh\n\nset -e\n\necho \"{script} $1\" >>{self.home}/called\nexit 0\n")
                (tree / "DEBIAN" / script).chmod(0o755)
        (tree / "usr/src/scripts").mkdir(parents=True)
        shutil.copy("/bin/true", tree / "usr/src/scripts/objtool")
        (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1\nArchitecture: amd64\n{extra}"
                                             "Maintainer: Tester <tester@ramslice.example>\nDescription: a test\n")
        package = self.home / f"{name}_1_amd64.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, stdout=subprocess.DEVNULL)
        # Once more changes nothing: signing and repacking may come in any order.
        for _ in range(2):
            kernel_deb.repack(package)
        subprocess.run(["dpkg-deb", "-e", package, self.home / "control"], check=True)
        lines = dict(line.split(": ", 1) for line in (self.home / "control/control").read_text().splitlines())
        return lines, self.home / "control"

    def test_an_image_has_the_dependencies_of_debians_and_the_guard_of_the_default(self):
        control, scripts = self.repacked("linux-image-6.12.0-ramslice")
        self.assertEqual(control["Depends"], "kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool")
        self.assertEqual(control["Pre-Depends"], "ramslice (>= 0.1.0+git)")
        self.assertEqual(control["Breaks"], "linux-headers-6.12.0-ramslice (<< 1)")
        self.assertTrue(os.access(scripts / "preinst", os.X_OK))

    def called(self, calls, failing=""):
        """What an image's scripts do when dpkg calls them: tools that tell how they were called, and one that fails."""
        _, scripts = self.repacked("linux-image-6.12.0-ramslice")
        tools = self.home / "tools"
        tools.mkdir()
        for name in ("ramslice-trial-boot", "linux-check-removal"):
            (tools / name).write_text(f"#!/bin/sh\necho \"{name} $*\" >>{self.home}/called\n[ {name} != '{failing}' ]\n")
            (tools / name).chmod(0o755)
        done = [subprocess.run([scripts / script, *words], env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, text=True,
                               capture_output=True) for script, *words in calls]
        return (self.home / "called").read_text().splitlines(), done

    def test_before_an_image_is_replaced_it_is_no_longer_the_confirmed_one(self):
        told, _ = self.called((("preinst", "install"), ("preinst", "upgrade", "1")))
        self.assertEqual(told, ["preinst install", "ramslice-trial-boot replaced 6.12.0-ramslice", "preinst upgrade"])

    def test_one_that_stays_confirmed_is_not_replaced(self):
        told, done = self.called([("preinst", "upgrade", "1")], failing="ramslice-trial-boot")
        self.assertEqual((len(told), done[0].returncode), (1, 1))

    def test_a_default_that_nothing_guards_is_told_at_once(self):
        told, done = self.called((("postinst", "configure"), ("postinst", "abort-remove")), failing="ramslice-trial-boot")
        self.assertEqual(told, ["postinst configure", "ramslice-trial-boot status", "postinst abort-remove"])
        self.assertEqual([each.returncode for each in done], [0, 0])
        self.assertIn("linux-image-6.12.0-ramslice: this kernel may boot although it is untried", done[0].stderr)

    def test_what_belongs_to_an_image_is_undone_when_it_is_removed_and_not_when_it_is_upgraded(self):
        told, _ = self.called((("prerm", "upgrade"), ("prerm", "remove"), ("prerm", "deconfigure")))
        self.assertEqual(told, ["linux-check-removal 6.12.0-ramslice", "prerm remove"])

    def test_whoever_does_not_want_the_running_kernel_removed_keeps_it(self):
        told, done = self.called([("prerm", "remove")], failing="linux-check-removal")
        self.assertEqual((len(told), done[0].returncode), (1, 1))

    def test_a_dependency_that_is_there_stays(self):
        control, _ = self.repacked("linux-image-6.12.0-ramslice", "Depends: other\n")
        self.assertEqual(control["Depends"], "other, kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool")

    def test_headers_call_dkms_for_their_release_when_they_are_configured(self):
        control, scripts = self.repacked("linux-headers-6.12.0-ramslice")
        self.assertIn("libc6", control["Depends"])
        self.assertEqual(control["Breaks"], "linux-image-6.12.0-ramslice (<< 1)")
        hooks = self.home / "hooks"
        hooks.mkdir()
        (hooks / "dkms").write_text(f'#!/bin/sh\necho "$1" >>{self.home}/called\n')
        (hooks / "dkms").chmod(0o755)
        script = (scripts / "postinst").read_text().replace("/etc/kernel/header_postinst.d", str(hooks))
        for action in ("abort-upgrade", "configure"):
            subprocess.run(["sh", "-c", script, "postinst", action], check=True)
        self.assertEqual((self.home / "called").read_text(), "6.12.0-ramslice\n")
        # Another build of the same release: what is there does not fit any more.
        (hooks / "dkms").unlink()
        tool = self.home / "bin/dkms"
        tool.parent.mkdir()
        tool.write_text(f"""#!/bin/sh
[ "$1" != status ] || {{ echo "one/1.2, 6.12.0-ramslice, x86_64: installed"; echo "two/3, 6.12.0-ramslice, x86_64: added"
	echo "three/4, 6.12.0-ramslice, x86_64: installed (WARNING! Diff between built and installed module!)"; exit; }}
echo "$@" >>{self.home}/asked
[ "$1 $3" != "build one" ]
""")
        tool.chmod(0o755)
        path = f"{tool.parent}:{os.environ['PATH']}"
        subprocess.run(["sh", "-c", script, "postinst", "configure", "1"], check=True, env={**os.environ, "PATH": path})
        # One that cannot be built is gone, and holds up no other.
        asked = [line.replace("--force ", "").split()[:5] for line in (self.home / "asked").read_text().splitlines()]
        self.assertEqual(asked, [["unbuild", "-m", "one", "-v", "1.2"], ["build", "-m", "one", "-v", "1.2"],
                                 *([step, "-m", "three", "-v", "4"] for step in ("unbuild", "build", "install"))])
        self.assertTrue(os.access(scripts / "postinst", os.X_OK))

    def test_older_packages_of_the_flavour_go_and_those_of_others_stay(self):
        out = self.home / "out"
        out.mkdir()
        others = {f"linux-image-6.12.1-ramslice{flavour}_1_amd64.deb" for flavour in ("-lean", "-local")}
        for name in {"linux-image-6.12.1-ramslice_1_amd64.deb", "linux-headers-6.12.1-ramslice_1_amd64.deb"} | others:
            (out / name).touch()
        new = [self.home / f"linux-{kind}-6.12.1-ramslice_2_amd64.deb" for kind in ("headers", "image")]
        for package in new:
            package.touch()
        with contextlib.redirect_stdout(io.StringIO()):
            kernel_deb.deliver(new, out, kernel_deb.SUFFIXES["debian"])
        self.assertEqual({path.name for path in out.iterdir()}, {path.name for path in new} | others)

    def test_without_room_for_the_new_ones_the_old_ones_stay(self):
        out = self.home / "out"
        out.mkdir()
        (out / "linux-image-6.12.1-ramslice_1_amd64.deb").touch()
        full = mock.patch.object(shutil, "move", mock.Mock(side_effect=OSError("no space left on device")))
        with full, self.assertRaises(OSError):
            kernel_deb.deliver([self.home / "linux-image-6.12.1-ramslice_2_amd64.deb"], out, kernel_deb.SUFFIXES["debian"])
        self.assertEqual([path.name for path in out.iterdir()], ["linux-image-6.12.1-ramslice_1_amd64.deb"])


class Foretold(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = Path(folder.name)
        self.objects = self.cache / "kernel-deb/debian/objects"
        (self.objects / "mm").mkdir(parents=True)
        self.enterContext(mock.patch.object(kernel_deb, "CACHE", self.cache))

    def foretell(self, free_gib, counts):
        disk = mock.patch.object(shutil, "disk_usage", lambda _: mock.Mock(free=free_gib * 2**30))
        with disk, contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            try:
                return kernel_deb.foretell("debian", self.objects, counts), out.getvalue()
            except SystemExit as end:
                return end.code, out.getvalue()

    def test_without_the_disk_for_it_nothing_is_begun(self):
        status, said = self.foretell(kernel_deb.GIB["debian"] - 1, {})
        self.assertEqual(status, 1)
        self.assertIn(f"{kernel_deb.GIB['debian']} GiB are needed", said)

    def test_what_was_made_before_counts(self):
        for name in (".a.o.cmd", "mm/.b.o.cmd", "mm/.built-in.a.cmd", "mm/b.o"):
            (self.objects / name).touch()
        left, said = self.foretell(100, {"deb-debian": 10})
        self.assertEqual(left, 7)
        self.assertIn("3 of about 10 files", said)
        self.assertNotIn("hours", said)
        with open(self.objects / "vmlinux.o", "wb") as file:
            file.write(b"x" * 2**20)
        self.assertAlmostEqual(kernel_deb.made(self.objects)[1], 1 / 1024, places=4)

    def test_the_time_is_told_by_kernels_that_were_built_here(self):
        for name, flavour, steps, seconds in (("a", "debug", 3000, 9999), ("b", "stock", 2000, 1440), ("c", "plain", 64, 64)):
            info = self.cache / "kernels" / name / "info.json"
            info.parent.mkdir(parents=True)
            info.write_text(json.dumps({"flavour": flavour, "steps": steps, "build_seconds": seconds}))
        self.assertIn("about 2.0 hours", self.foretell(100, {"deb-debian": 10000})[1])


class Interrupted(unittest.TestCase):
    def test_whoever_ends_the_lab_ends_the_build(self):
        begun = []
        started = mock.patch.object(subprocess, "Popen", lambda *args, **named: begun.append(popen(*args, **named)) or begun[-1])
        popen = subprocess.Popen
        line = "import signal; print('  CC      a.o', flush=True); signal.pause()"
        with tempfile.TemporaryDirectory() as folder, started, mock.patch.object(progress, "STEP") as step:
            step.match.side_effect = KeyboardInterrupt
            with self.assertRaises(KeyboardInterrupt):
                progress.build([sys.executable, "-c", line], "a build", Path(folder) / "log", 1, {})
        self.assertEqual(begun[0].returncode, -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
