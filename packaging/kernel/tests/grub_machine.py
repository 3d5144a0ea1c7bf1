# SPDX-License-Identifier: GPL-2.0-or-later
"""A made-up machine that GRUB boots: GRUB's own scripts over another /boot and /etc.

Programs that ask disks and firmware are replaced; the scripts that decide what boots are those of
Debian's packages grub-common and grub2-common, which are downloaded once into the cache.
"""

import os
import re
import shutil
import subprocess

from ramlab.common import CACHE, ROOT, locked, run

TRIAL_BOOT = ROOT / "packaging/kernel/trial-boot"
UUID = "0123-4567"
# What a test may change, apart from programs
STATE = ("boot", "etc", "var", "proc", "sys")
PACKAGE_STATE = "var/package-state"

GRUB_PROBE = f"""#!/bin/sh
case "$*" in
*target=device*) echo /dev/vda1 ;;
*target=abstraction*) echo "${{ABSTRACTION:-}}" ;;
*target=fs_uuid*) echo {UUID} ;;
*target=fs*) echo "${{FS:-ext2}}" ;;
esac
"""
LAST_WORD = '#!/bin/sh\nfor path; do :; done\necho "$path"\n'
# Runs the lines of the menu that choose the entry, as GRUB does, and prints the entry.
BOOT = r"""#!/bin/bash
prefix=$(dirname "$0")/../boot/grub
load_env() {
	while IFS='=' read -r name value; do printf -v "$name" %s "$value"; done \
		< <(grub-editenv "$prefix/grubenv" list)
}
save_env() { grub-editenv "$prefix/grubenv" set "$1=${!1}"; }
set() { printf -v "${1%%=*}" %s "${1#*=}"; }
source <(sed -n '/^if \[ -s $prefix.grubenv/,/^if \[ x/p' "$prefix/grub.cfg" | sed '$d')
echo "$default"
echo $RANDOM$RANDOM$RANDOM >"$prefix/../../proc/sys/kernel/random/boot_id"
"""
SETTINGS = "GRUB_DEFAULT=0\nGRUB_TIMEOUT=1\nGRUB_DISTRIBUTOR=Debian\nGRUB_TERMINAL=console\n"


def entry(release):
    """A kernel's entry in GRUB's submenu."""
    return f"gnulinux-advanced-{UUID}>gnulinux-{release}-advanced-{UUID}"


def _package(name):
    """A package of Debian's, downloaded if the cache lacks the version that apt knows."""
    words = run(["apt-get", "download", "-qq", "--print-uris", name]).split()
    kept = CACHE / "grub" / words[1]
    with locked("grub"):
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.parent / "partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", name], cwd=partial)
            os.replace(next(partial.glob("*.deb")), kept)
    return kept


class GrubMachine:
    """The machine's root is a folder; kernels are empty files in its /boot."""

    def __init__(self, folder):
        self.root, self.saved = folder / "root", folder / "saved"
        self.root.mkdir()
        for name in ("grub-common", "grub2-common"):
            run(["dpkg-deb", "-x", _package(name), self.root])
        for name in ("bin", "boot/grub", "etc/default/grub.d", "var/lib/ramslice", "sys",
                     "proc/sys/kernel/random"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._make_programs()
        self._make_settings()
        self.write(PACKAGE_STATE, "installed")
        self.write("proc/sys/kernel/random/boot_id", "first\n")
        self.editenv("create")

    def _program(self, name, text):
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def _edited(self, source, name, **assignments):
        """A shell script of GRUB's in which variables have other values."""
        text = (self.root / source).read_text()
        for variable, value in assignments.items():
            text = re.sub(rf"^([ \t]*){variable}=.*", rf"\g<1>{variable}={value}", text, flags=re.M)
        self._program(name, text)

    def _make_programs(self):
        root = self.root
        programs = root / "bin"
        self._program("grub-probe", GRUB_PROBE)
        self._program("grub-mkrelpath", LAST_WORD)
        self._program("grub-script-check", "#!/bin/sh\ncat >/dev/null\n")
        self._program("dpkg-query", f"#!/bin/sh\ncat {root}/{PACKAGE_STATE}\n")
        self._program("trial", f"#!/bin/sh\nPATH={programs}:$PATH RAMSLICE_ROOT_DIR={root} exec"
                      f' {TRIAL_BOOT}/ramslice-trial-boot "$@"\n')
        self._program("update-grub", f"#!/bin/sh\nexec {programs}/grub-mkconfig"
                      f" -o {root}/boot/grub/grub.cfg 2>/dev/null\n")
        self._program("boot", BOOT)
        (programs / "grub-editenv").symlink_to("../usr/bin/grub-editenv")
        probe = programs / "grub-probe"
        self._edited("usr/sbin/grub-reboot", "grub-reboot", grub_probe=probe,
                     grub_editenv=programs / "grub-editenv")
        self._edited("usr/sbin/grub-mkconfig", "grub-mkconfig", sysconfdir=root / "etc",
                     grub_probe=probe, grub_script_check=programs / "grub-script-check")
        library = root / "usr/share/grub/grub-mkconfig_lib"
        library.write_text(re.sub(
            r"(grub_mkrelpath|grub_probe)=.*",
            lambda found: f"{found[1]}={programs}/{found[1].replace('_', '-')}",
            library.read_text()))

    def _make_settings(self):
        scripts = self.root / "etc/grub.d"
        for path in scripts.iterdir():
            if path.name == "10_linux":
                path.write_text(path.read_text().replace("/boot/", f"{self.root}/boot/"))
            elif path.name != "00_header":
                path.unlink()
        ours = (TRIAL_BOOT / "zz-ramslice.cfg").read_text()
        self.write("etc/default/grub.d/zz-ramslice.cfg", ours.replace(
            "/usr/sbin/ramslice-trial-boot", f"{self.root}/bin/trial"))
        self.write("etc/default/grub", SETTINGS)

    # --- states, so that tests need not repeat what came before them ---

    def save(self, name):
        for part in STATE:
            shutil.copytree(self.root / part, self.saved / name / part, symlinks=True)

    def restore(self, name):
        for part in STATE:
            shutil.rmtree(self.root / part)
            shutil.copytree(self.saved / name / part, self.root / part, symlinks=True)

    # --- what happens on a machine ---

    def run(self, *words, **environment):
        """Runs a program of the machine; its output and errors are one text."""
        changed = {"PATH": f"{self.root}/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
                   "pkgdatadir": f"{self.root}/usr/share/grub", **environment}
        return subprocess.run(
            [self.root / "bin" / words[0], *words[1:]], env=os.environ | changed, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def setting(self, value):
        """GRUB_DEFAULT, by the administrator."""
        self.write("etc/default/grub", SETTINGS.replace("GRUB_DEFAULT=0", f"GRUB_DEFAULT={value}"))

    def install(self, *releases):
        for release in releases:
            self.write(f"boot/vmlinuz-{release}", "")
            self.write(f"boot/initrd.img-{release}", "")
        self.update()

    def remove(self, *releases):
        for release in releases:
            for kind in ("vmlinuz", "initrd.img"):
                (self.root / f"boot/{kind}-{release}").unlink()
        self.update()

    def replace(self, release):
        """Another image under the same name."""
        self.write(f"boot/vmlinuz-{release}", "built again\n")

    def update(self):
        """update-grub."""
        done = self.run("grub-mkconfig", "-o", self.root / "boot/grub/grub.cfg")
        assert done.returncode == 0, done.stdout

    def editenv(self, *words):
        done = self.run("grub-editenv", self.root / "boot/grub/grubenv", *words)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def trial(self, *words, **environment):
        return self.run("trial", *words, **environment)

    def confirm(self, release):
        """ramslice-trial-boot confirm, while this kernel runs."""
        return self.trial("confirm", RAMSLICE_RUNNING=release)

    def boot(self):
        """The entry that GRUB boots now."""
        done = self.run("boot")
        assert done.returncode == 0, done.stdout
        return done.stdout.strip()

    def default(self):
        """The menu's default: an entry, "0", or "" if another line decides."""
        menu = (self.root / "boot/grub/grub.cfg").read_text()
        found = re.search(r'^ *set default="(gnulinux[^"]*|0)"$', menu, re.M)
        return found[1] if found else ""

    def next_entry(self):
        found = re.search(r"^next_entry=(.*)$", self.editenv("list"), re.M)
        return found[1] if found else ""
