#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds Debian packages of the kernel with the series: image and headers, into out/kernel-deb.

Usage: ramlab kernel-deb [--key FILE --cert FILE] [--config-only] lean|debian [--modules FILE]
  lean           the lab's configuration and what a real machine needs to boot
                 (packaging/kernel/lean.config) and to be as safe as with Debian's kernel
                 (hardening.config)
  debian         Debian's own configuration and ours on top (packaging/kernel/debian.config);
                 takes hours on a small machine
  --modules      debian: of its modules only those that FILE names, and what they need. FILE is
                 what lsmod prints on the machine that is to boot the kernel. It takes a fraction
                 of the time, but a device that is plugged in for the first time has no driver.
  --key, --cert  sign the image with the operator's key (packaging/kernel/sign-kernel-deb does it
                 later, too)
  --config-only  make the configuration and check it, and build nothing; prints where it is

The kernel's version ends in -ramslice. A build that was interrupted goes on where it stopped when
it is called again: compiled files and ccache are kept.
Packages of the same flavour that were in out/kernel-deb before are removed.

The kernel's own packaging is used (make bindeb-pkg). The image package is then given the
dependencies of Debian's images, and one on the package ramslice, whose ramslice-trial-boot keeps
Debian's kernel the default until a trial boot is confirmed. The headers package gets dependencies
on the libraries of its programs, and a script that has DKMS build modules.

The packages' version is that of Debian's source and when the series changed last: the date of the
commit, or now if something is not committed. A checkout that git does not know is refused unless
SOURCE_DATE_EPOCH is set.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ramlab import progress
from ramlab.common import CACHE, OUT, ROOT, die, locked, need_space, put_json, run
from ramlab.kernel import build as kernel_build
from ramlab.kernel.source import Source

PACKAGING = ROOT / "packaging/kernel"
HARDENING = PACKAGING / "hardening.config"
# Until a build of the flavour has been counted here: objects, archives and modules.
FILES = {"lean": 3500, "debian": 26000, "local": 3500}
MADE = (".o.cmd", ".a.cmd", ".ko.cmd")
# GiB of disk for these, what is packed, the packages and ccache, with a margin.
GIB = {"lean": 3, "debian": 12, "local": 6}
# In the kernel's release
SUFFIXES = {"lean": "-ramslice-lean", "debian": "-ramslice", "local": "-ramslice-local"}
NOT_THERE = 4  # the status if Debian's configuration of this version is not to be had
# What the packages are made of, beside Debian's source
SERIES = ["kernel", "packaging/kernel", "packaging/kernel/kernel_deb.py"]
# As Debian's images have it, as far as our hooks need it
IMAGE_DEPENDS = "kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool"
# Debian's headers do the same, because they may come after the image, whose own hooks then found
# nothing to build with. After another build of the same release, modules that are there may not
# fit any more. Debian renames its kernels in that case, so DKMS does not check it.
HEADERS_POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
if [ -n "$2" ] && command -v dkms >/dev/null; then
	made=$(dkms status -k %(release)s | while IFS=",:/ " read -r name version _ arch status; do
		# Or "installed (WARNING! Diff between built and installed module!)", if signed in place
		case $status in installed | "installed "*) ;; *) continue ;; esac
		# First the old one goes: rather none than one that does not fit
		{ dkms unbuild -m "$name" -v "$version" -k %(release)s -a "$arch" &&
			dkms build -m "$name" -v "$version" -k %(release)s -a "$arch" &&
			dkms install --force -m "$name" -v "$version" -k %(release)s -a "$arch"
		} </dev/null >&2 ||
			echo "%(package)s: DKMS could not build $name $version again" >&2
		echo "$name"
	done)
	# Made by the image's own hooks, if that came first, with the old ones
	initrd=/boot/initrd.img-%(release)s
	if [ -n "$made" ] && [ -e "$initrd" ] && command -v update-initramfs >/dev/null; then
		update-initramfs -u -k %(release)s
	fi
fi
if [ -d /etc/kernel/header_postinst.d ]; then
	DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg=%(release)s \\
		/etc/kernel/header_postinst.d
fi
"""
# Its ramslice-trial-boot has all that the scripts call.
GUARD = "ramslice (>= 0.1.0)"
# What the image's scripts begin with. Before its files are replaced, the new ones are untried:
# another kernel must boot if that is interrupted. As in Debian's images, removing the running
# kernel asks first, and hooks that undo what belongs to a kernel run only when it is removed:
# DKMS forgets a module whose last build goes.
IMAGE_BEGINS = {
    "preinst": '[ "$1" != upgrade ] || ramslice-trial-boot replaced %(release)s\n',
    "prerm": '[ "$1" = remove ] || exit 0\nlinux-check-removal %(release)s\n',
}
# And what its last one ends with: a default that nothing guards is told at once.
IMAGE_ENDS = {
    "postinst": """if [ "$1" = configure ] && ! ramslice-trial-boot status >&2; then
	echo "%(package)s: this kernel may boot although it is untried" >&2
fi
""",
}
# Facts about the machine that configures, not options.
TOOLS = re.compile(r"CONFIG_(CC_VERSION_TEXT|\w+_VERSION|PAHOLE_\w+)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--cert", type=Path)
    parser.add_argument("--config-only", action="store_true")
    parser.add_argument("--modules", type=Path, metavar="FILE")
    parser.add_argument("flavour", choices=["lean", "debian"])
    args = parser.parse_args()
    if bool(args.key) != bool(args.cert):
        parser.error("--key and --cert belong together")
    if args.key:
        check_key(args.key, args.cert)
    if args.modules:
        if args.flavour != "debian":
            parser.error("--modules is for the flavour debian: lean has few anyway")
        check_modules(args.modules)
        # From here on a flavour of its own
        args.flavour = "local"
    return args


def check_key(key, cert):
    """Dies unless the image can be signed with these: better now than after hours."""
    for program in ("sbsign", "sbverify"):
        if not shutil.which(program):
            die(f"{program} is missing: apt-get install sbsigntool", 2)
    public = []
    for words in (["pkey", "-in", key, "-pubout"], ["x509", "-in", cert, "-noout", "-pubkey"]):
        asked = subprocess.run(["openssl", *words], text=True, capture_output=True)
        if asked.returncode:
            kind = "certificate" if words[2] is cert else "private key"
            die(f"{words[2]} is no {kind} in PEM: {asked.stderr.strip()}", 2)
        public.append(asked.stdout)
    if public[0] != public[1]:
        die(f"{cert} is not the certificate of {key}: they have different public keys", 2)


def check_modules(path):
    """Dies unless this is a list as lsmod prints it."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        die(f"{path}: {error}", 2)
    for number, line in enumerate(lines, 1):
        if number == 1:
            good = line.split() == ["Module", "Size", "Used", "by"]
        else:
            good = re.fullmatch(r"\w+ +\d+ +-?\d+( .*)?", line)
        if not good:
            die(f"{path}, line {number}: {line!r} is not of lsmod, whose first line is "
                "'Module Size Used by' and each other a name and two numbers; write it with: "
                "lsmod > modules", 2)
    if len(lines) < 2:
        die(f"{path}: names no module", 2)


def debian_config(source):
    """Debian's configuration of this version, from its package linux-config-6.12, which is kept."""
    package = source.lock["package"].replace("source", "config")
    kept = CACHE / "kernel-deb/debian-config"
    wanted = f"{package}_{source.package}_*.deb"
    if not any(kept.glob(wanted)):
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        got = subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root",
                              f"{package}={source.package}"],
                             cwd=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if got.returncode:
            # Mirrors keep the newest version alone.
            die(f"cannot download {package} {source.package}; "
                f"apt-get update and make rebase may help:\n{got.stdout}", NOT_THERE)
    with tempfile.TemporaryDirectory() as folder:
        run(["dpkg-deb", "-x", next(kept.glob(wanted)), folder])
        packed = next(Path(folder).glob("usr/src/linux-config-*/config.amd64_none_amd64.xz"), None)
        if packed is None:
            die(f"{package} {source.package} has no config.amd64_none_amd64.xz")
        unpacked = subprocess.run(["xz", "-dc", packed], check=True, capture_output=True, text=True)
        return unpacked.stdout


def last_wins(text):
    """One line for each option: of several that set it, the last."""
    found = {}
    for line in text.splitlines():
        name = line.removeprefix("# ").split("=")[0].split(" ")[0]
        if name.startswith("CONFIG_"):
            found.pop(name, None)
            found[name] = line
    return "".join(f"{line}\n" for line in found.values())


def lost(lab, debian, asked, got):
    """What differs from Debian's configuration though debian.config does not name it."""
    ours = {name: value for name, value in debian.items()
            if name not in asked and not TOOLS.fullmatch(name)}
    return lab.otherwise(ours, got, "Debian has")


def configure(lab, source, objects, flavour, modules=None):
    """Writes .config and checks it: it has what we ask for, and all else as Debian has it.

    Modules that the list does not name are left out, and not compared.
    """
    objects.mkdir(parents=True, exist_ok=True)
    if flavour == "lean":
        files = [*lab.fragments("plain"), HARDENING, PACKAGING / "lean.config"]
        ours = "".join(path.read_text() for path in files)
        # The lab's modules that break things on purpose go with the tests.
        wanted = "".join(line for line in last_wins(ours).splitlines(keepends=True)
                         if "_ERROR_INJECT" not in line and "KUNIT" not in line
                         and "CONFIG_RAMSLICE_HOLES" not in line
                         and "CONFIG_RAMSLICE_TOUCH" not in line)
        target, asked, debian = "allnoconfig", wanted, ""
    else:
        asked = (PACKAGING / "debian.config").read_text()
        debian = debian_config(source)
        wanted = last_wins(debian + asked)
        target = "alldefconfig"
    request = objects / "wanted.config"
    request.write_text(wanted)
    run(lab.make(source.patched, objects, "-s", f"KCONFIG_ALLCONFIG={request}", target),
        env=os.environ | lab.REPRODUCIBLE)
    got = (objects / ".config").read_text()
    asked, debian, got = (lab.options(text) for text in (asked, debian, got))
    if wrong := lab.otherwise(asked, got) + lost(lab, debian, asked, got):
        die(f"the {flavour} configuration did not come out as asked:\n" + "\n".join(wrong))
    if modules:
        choose(lab, source, objects, modules, asked)


def choose(lab, source, objects, modules, asked):
    """Leaves modules that are not in the list out of .config, by the kernel's localmodconfig."""
    before = modules_in(lab, objects)
    command = lab.make(source.patched, objects, "-s", f"LSMOD={modules.resolve()}",
                       "LMC_KEEP=mm/ramslice:drivers/misc/ramslice:lib", "localmodconfig")
    made = subprocess.run(command, text=True, env=os.environ | lab.REPRODUCIBLE,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if made.returncode:
        die(f"localmodconfig: {made.stdout[-2000:]}")
    if wrong := lab.otherwise(asked, lab.options((objects / ".config").read_text())):
        die("with these modules the configuration did not come out as asked:\n" + "\n".join(wrong))
    print(f"{modules_in(lab, objects)} of Debian's {before} modules, by {modules}", flush=True)


def modules_in(lab, objects):
    """Options that make modules."""
    return sum(value == "m" for value in lab.options((objects / ".config").read_text()).values())


def libraries(tree):
    """The libraries that the headers' own programs (objtool, sign-file) need, for Depends."""
    programs = [path for path in tree.rglob("*")
                if path.is_file() and not path.is_symlink() and os.access(path, os.X_OK)]
    programs = [path for path in programs if path.read_bytes().startswith(b"\x7fELF")]
    with tempfile.TemporaryDirectory() as folder:
        # dpkg-shlibdeps wants to stand in a source package
        control = Path(folder) / "debian/control"
        control.parent.mkdir()
        control.write_text("Source: headers\n\nPackage: headers\nArchitecture: any\n")
        found = subprocess.run(["dpkg-shlibdeps", "-O", *programs],
                               cwd=folder, check=True, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL).stdout
    return found.strip().removeprefix("shlibs:Depends=")


def depend(control, field, value):
    """The text of a control file with this dependency in it, once."""
    lines = control.splitlines()
    at = next((number for number, line in enumerate(lines) if line.startswith(f"{field}:")), None)
    if at is None:
        at = next(number for number, line in enumerate(lines) if line.startswith("Architecture:"))
        lines.insert(at + 1, f"{field}: {value}")
    elif value not in lines[at]:
        lines[at] += f", {value}"
    return "".join(f"{line}\n" for line in lines)


def put_into(scripts, names):
    """Has an image's scripts do what is ours, once."""
    for file, text in (IMAGE_BEGINS | IMAGE_ENDS).items():
        script, text = scripts / file, text % names
        before = script.read_text()
        if text in before:
            continue
        if file in IMAGE_BEGINS:
            after = before.replace("set -e\n", f"set -e\n{text}", 1)
        else:
            after = re.sub(r"exit 0\n*\Z", f"{text}exit 0\n", before)
        if after == before:
            die(f"{script} of the kernel's packaging is not as it was: our part has no place in it")
        script.write_text(after)


def repack(package):
    """Adds dependencies and scripts to a package.

    The image then needs the package that keeps Debian's kernel the default. The headers need the
    libraries of their programs and call DKMS.
    """
    work = package.with_suffix(".tree")
    shutil.rmtree(work, ignore_errors=True)
    run(["dpkg-deb", "-R", package, work])
    file = work / "DEBIAN/control"
    control = file.read_text()
    name, version = (re.search(rf"^{field}: (.*)$", control, re.M)[1]
                     for field in ("Package", "Version"))
    # Modules may not fit another build, and the headers have DKMS build them: both packages are
    # upgraded together.
    if "-image-" in name:
        other = name.replace("-image-", "-headers-")
    else:
        other = name.replace("-headers-", "-image-")
    if name.startswith("linux-image-"):
        control = depend(depend(control, "Depends", IMAGE_DEPENDS), "Pre-Depends", GUARD)
        control = depend(control, "Breaks", f"{other} (<< {version})")
        put_into(work / "DEBIAN", {"package": name, "release": name.removeprefix("linux-image-")})
    else:
        control = depend(control, "Depends", libraries(work))
        control = depend(control, "Breaks", f"{other} (<< {version})")
        script = work / "DEBIAN/postinst"
        release = name.removeprefix("linux-headers-")
        script.write_text(HEADERS_POSTINST % {"package": name, "release": release})
        script.chmod(0o755)
    file.write_text(control)
    run(["dpkg-deb", "--root-owner-group", "-b", work, package])
    shutil.rmtree(work)


def changed_at():
    """When what the packages are made of changed last, in seconds since 1970."""
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        if not re.fullmatch(r"[0-9]{1,11}", epoch):
            die(f"SOURCE_DATE_EPOCH is '{epoch}': must be seconds since 1970", 2)
        return int(epoch)
    words = [["status", "--porcelain", "--", *SERIES], ["log", "-1", "--format=%ct", "--", *SERIES]]
    asked = [subprocess.run(["git", "-C", ROOT, *line], text=True, capture_output=True)
             for line in words]
    status, log = asked
    if status.returncode or log.returncode or not log.stdout.strip():
        reason = (status.stderr or log.stderr).strip() or "no commit has it"
        die("git does not know when the series changed, by which packages are newer or older: "
            "set SOURCE_DATE_EPOCH, the same or higher each time (as $(date +%s)); "
            f"git says: {reason}")
    # A shallow clone has no older commit, and gives the date of the oldest it has. That lies
    # after the change and before the next one.
    return int(time.time()) if status.stdout.strip() else int(log.stdout)


def package_version(debian, changed):
    """Made of Debian's and the series' versions: a newer one of either makes an upgrade."""
    date = time.strftime("%Y%m%d%H%M%S", time.gmtime(changed))
    return f"{debian.replace('-', '+')}+rs{date}-1"


def deliver(packages, out, suffix):
    """Moves packages to out and removes the flavour's older ones, which *.deb would match, too."""
    out.mkdir(parents=True, exist_ok=True)
    old = set(out.glob(f"linux-*{suffix}_*.deb"))
    for package in packages:
        # Maybe to another disk, which may be full
        shutil.move(package, out / f"{package.name}.new")
    for package in packages:
        (out / f"{package.name}.new").replace(out / package.name)
        print(out / package.name)
    for package in old - {out / package.name for package in packages}:
        package.unlink()


def made(objects):
    """How many files are made there, and the GiB that all take."""
    files = blocks = 0
    for folder, _, names in os.walk(objects):
        files += sum(name.endswith(MADE) for name in names)
        blocks += sum(os.lstat(os.path.join(folder, name)).st_blocks for name in names)
    return files, blocks / 2**21


def pace():
    """Seconds for a step, by the lab's largest kernel that was built here; None without one."""
    built = [json.loads(path.read_text()) for path in (CACHE / "kernels").glob("*/info.json")]
    built = [(info["steps"], info["build_seconds"]) for info in built
             if info["flavour"] != "debug" and info["steps"] > 1000]
    return max(built)[1] / max(built)[0] if built else None


def estimate(flavour, objects, counts):
    """Prints what a build takes, and dies without the disk for it; returns the files to make."""
    files, gib = made(objects)
    all_files = counts.get(f"deb-{flavour}", FILES[flavour])
    left, need = max(all_files - files, 1), max(round(GIB[flavour] - gib), 2)
    text = f"{files} of about {all_files} files are made; {need} GiB of disk are needed"
    if seconds := pace():
        hours = left * seconds / 3600
        text += f", and about {hours:.1f} hours at the pace of the lab's kernels on this machine"
    print(text, flush=True)
    need_space(CACHE, need)
    return left


def build(lab, source, home, flavour, modules, version):
    """Compiles what is not yet compiled, and packs it."""
    objects = home / "objects"
    configure(lab, source, objects, flavour, modules)
    left = estimate(flavour, objects, lab.read_counts())
    for old in home.glob("*.deb"):
        old.unlink()
    words = [f"LOCALVERSION={SUFFIXES[flavour]}", f"KDEB_PKGVERSION={version}", "DPKG_FLAGS=-d",
             "bindeb-pkg"]
    began = time.time()
    progress.build(lab.make(source.patched, objects, *words), f"kernel packages, {flavour}",
                   home / "log", left,
                   lab.REPRODUCIBLE | {"DEB_BUILD_PROFILES": "pkg.linux-upstream.nokerneldbg"})
    # Whatever else builds kernels here brings the same tree up to date with its checkout.
    files = [source.patched / name for name in source.changed_files()]
    if changed := [path for path in files if path.exists() and path.stat().st_mtime > began]:
        die(f"the series has changed during the build ({changed[0].name} is one of "
            f"{len(changed)}): call it again")
    put_json(lab.COUNTS, lab.read_counts() | {f"deb-{flavour}": made(objects)[0]})


def main():
    args = arguments()
    lab = kernel_build
    source = Source()
    home = CACHE / "kernel-deb" / args.flavour
    with locked("kernel"):
        source.extract()
        source.sync()
    if args.config_only:
        # Beside the compiled files: they may be of another version, or in the making.
        configure(lab, source, home / "config", args.flavour, args.modules)
        print(home / "config/.config")
        return
    # Before hours of compiling: it may not be known.
    version = package_version(source.package, changed_at())
    print(f"building {source.describe()} with the series as {version}, flavour {args.flavour}; "
          f"log: {home / 'log'}", flush=True)
    with locked(f"kernel-deb-{args.flavour}"):
        build(lab, source, home, args.flavour, args.modules, version)
        packages = sorted([*home.glob("linux-image-*.deb"), *home.glob("linux-headers-*.deb")])
        for package in packages:
            repack(package)
            if args.key and package.name.startswith("linux-image-"):
                subprocess.run([ROOT / "packaging/kernel/sign-kernel-deb", "--key", args.key,
                                "--cert", args.cert, package], check=True)
        deliver(packages, OUT / "kernel-deb", SUFFIXES[args.flavour])
    if not args.key:
        print("the image is not signed: Secure Boot refuses it "
              "(packaging/kernel/sign-kernel-deb signs it with a key of yours)", file=sys.stderr)


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        die("interrupted; called again, it goes on where it stopped", 130)
