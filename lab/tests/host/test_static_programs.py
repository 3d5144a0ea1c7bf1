# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of `make static` need nothing but themselves, on either architecture.

They run in a root that holds nothing else; those for aarch64 by QEMU's user mode (ramlab arm64).
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from ramlab.common import RAMLAB, ROOT
from ramlab.kernel.images import image
from ramlab.vm.small_guest import MIB, SmallGuest, make_root

ARCHES = ("x86_64", "aarch64")
PROGRAMS = ("ramslice", "ramsliced")
CLI_TESTS = ROOT / "crates/cli/tests"
# In a root of its own; the other also has this machine's /proc and /sys.
ALONE = ["unshare", "--map-root-user", "--root={root}", "--wd=/"]
WITH_KERNEL_FILES = ["unshare", "--map-root-user", "--mount", "sh", "-c",
                     "mount --rbind /proc {root}/proc && mount --rbind /sys {root}/sys &&"
                     ' exec chroot {root} "$@"', "sh"]
# Kept outputs of the crate's own tests, by the machine that they are of.
EXPECTED = {
    "guest-8g.json": ("status", "slices", "slices-price", "map-color", "compact-dry", "offline",
                      "energy-moment", "top-once"),
    "guest-pages.json": ("explain-slab", "explain-all", "map-slice-color"),
    "doctor-guest": ("doctor-guest",),
}
CASES = [(machine, name) for machine, names in EXPECTED.items() for name in names]
# As in the crate's tests.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "COLORTERM"}
ENVIRONMENT["TERM"] = "xterm"
PATIENCE = 60
UNAVAILABLE = 77

# --- before a program is built ---


def cargo(*words, **options):
    """Cargo in the lab's environment, for a target whose Rust library is installed if need be."""
    text = 'source lab/env && need_rust_target "$1" >&2 && shift && exec cargo "$@"'
    return subprocess.run(["bash", "-c", text, "cargo", *words], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)


@pytest.mark.parametrize("target", [f"{arch}-unknown-linux-musl" for arch in ARCHES])
def test_no_dependency_of_the_programs_compiles_c(target):
    words = ["tree", "--locked", "-e", "normal,build", "--prefix", "none", "--target", target]
    ours = cargo(target, *words, "-p", "ramslice-cli", "-p", "ramslice-daemon")
    assert ours.returncode == 0, ours.stderr
    assert re.search(r"^ramsliced? |^ramslice-daemon ", ours.stdout, re.M)
    assert not re.findall(r"^(?:cc|cmake|bindgen) .*", ours.stdout, re.M)
    # Control: ramslice-lab does, so that the search finds what there is.
    lab = cargo(target, *words, "-p", "ramslice-cli-lab")
    assert re.findall(r"^cc .*", lab.stdout, re.M)


@pytest.mark.slow
def test_what_is_unsafe_compiles_for_another_c_library():
    # All calls of the C library are there: no other crate of these programs allows unsafe code.
    target = "aarch64-unknown-linux-musl"
    done = cargo(target, "check", "--locked", "--target", target, "-p", "ramslice-backend")
    assert done.returncode == 0, done.stderr


# --- the programs ---

slow = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.xdist_group("static")]
each_arch = pytest.mark.parametrize("arch", [pytest.param(arch, marks=slow) for arch in ARCHES])
each_program = pytest.mark.parametrize("program", PROGRAMS)


@pytest.fixture(scope="module")
def built():
    subprocess.run([ROOT / "packaging/static/build"], check=True)
    return ROOT / "out/static"


class EmptyRoot:
    """A root that holds the programs of one architecture, and what a test adds."""

    def __init__(self, folder, programs, arch):
        self.folder = folder
        self.before = [RAMLAB, "arm64"] if arch == "aarch64" else []
        for program in PROGRAMS:
            shutil.copy(programs / arch / program, folder)

    def line(self, way, *words):
        return [*self.before, *(word.replace("{root}", str(self.folder)) for word in way), *words]

    def run(self, *words):
        """Runs a program alone; its output is text."""
        done = subprocess.run(self.line(ALONE, *words), text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              env=ENVIRONMENT)
        if done.returncode == UNAVAILABLE:
            pytest.skip(done.stderr)
        return done

    def settings(self):
        """The daemon's own, with any free port for its metrics."""
        text = self.run("/ramsliced", "--print-config").stdout
        path = self.folder / "settings.toml"
        path.write_text(text.replace("127.0.0.1:9750", "127.0.0.1:0"))
        return path

    @contextlib.contextmanager
    def daemon(self, way):
        """The daemon while it runs: its process and the file of its log."""
        self.settings()
        for name in ("state", "runtime", "proc", "sys"):
            (self.folder / name).mkdir()
        log = self.folder / "log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                self.line(way, "/ramsliced", "--config", "/settings.toml", "--state-dir",
                          "/state", "--runtime-dir", "/runtime"),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def root(arch, built, tmp_path):
    return EmptyRoot(tmp_path, built, arch)


def wait_for(pattern, log, process):
    """The match of a pattern in a log, when it is there."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := re.search(pattern, log.read_text()):
            return found
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"no {pattern} within {PATIENCE} s:\n{log.read_text()}")


@each_arch
@each_program
def test_a_program_names_no_library_and_no_loader(built, arch, program):
    done = subprocess.run(["readelf", "--wide", "--file-header", "--program-headers", "--dynamic",
                           built / arch / program], text=True, stdout=subprocess.PIPE, check=True)
    machine = {"x86_64": "X86-64", "aarch64": "AArch64"}[arch]
    assert re.search(rf"Machine: .*{machine}", done.stdout)
    assert "LOAD" in done.stdout
    assert "INTERP" not in done.stdout
    assert "(NEEDED)" not in done.stdout


@each_arch
def test_a_program_that_is_too_large_fails_the_build(built, arch):
    done = subprocess.run([ROOT / "packaging/static/build", "--at-most", "1000000", arch],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    bytes_ = (built / arch / "ramslice").stat().st_size
    assert f"ramslice for {arch} has {bytes_} bytes; at most 1000000 are allowed" in done.stderr


@each_arch
@each_program
def test_a_program_prints_its_version_and_help(root, program):
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    assert root.run(f"/{program}", "--version").stdout == f"{program} {version}\n"
    done = root.run(f"/{program}", "--help")
    assert done.returncode == 0
    assert f"Usage: {program}" in done.stdout


@each_arch
@pytest.mark.parametrize("machine, name", CASES, ids=[name for _, name in CASES])
def test_what_is_printed_of_a_saved_machine_is_what_the_crate_expects(root, machine, name):
    source = CLI_TESTS / "data" / machine
    if source.is_dir():
        shutil.copytree(source, root.folder / machine)
    else:
        shutil.copy(source, root.folder)
    expected = (CLI_TESTS / f"expects/{name}.txt").read_text()
    command = expected.splitlines()[0].removeprefix("$ ramslice ")
    done = root.run("/ramslice", *command.split(), "--from", f"/{machine}")
    assert (f"$ ramslice {command}\n{done.stdout}{done.stderr}[exit {done.returncode}]\n"
            == expected)


@each_arch
def test_doctor_in_an_empty_root_says_what_is_absent(root):
    done = root.run("/ramslice", "doctor")
    expected = (CLI_TESTS / "expects/doctor-empty.txt").read_text()
    assert f"$ ramslice doctor\n{done.stdout}{done.stderr}[exit {done.returncode}]\n" == expected


@each_arch
def test_status_in_an_empty_root_says_that_neither_interface_is_there(root):
    done = root.run("/ramslice", "status")
    assert done.returncode == 2
    assert "/dev/ramslice and /sys/kernel/mm/ramslice are missing" in done.stderr
    assert "/sys/devices/system/memory is missing" in done.stderr


@pytest.mark.slow
@pytest.mark.xdist_group("static")
def test_both_architectures_draw_the_same_picture(built, tmp_path):
    pictures = []
    for arch in ARCHES:
        (tmp_path / arch).mkdir()
        root = EmptyRoot(tmp_path / arch, built, arch)
        shutil.copy(CLI_TESTS / "data/guest-8g.json", root.folder)
        done = root.run("/ramslice", "map", "--png", "/map.png", "--from", "/guest-8g.json")
        assert done.returncode == 0, done.stderr
        pictures.append((root.folder / "map.png").read_bytes())
    assert pictures[0].startswith(b"\x89PNG")
    assert pictures[0] == pictures[1]


@each_arch
def test_the_daemon_checks_its_settings(root):
    path = root.settings()
    words = ["/ramsliced", "--check-config", "--config", "/settings.toml"]
    assert root.run(*words).returncode == 0
    path.write_text(path.read_text() + "nonsense = 1\n")
    done = root.run(*words)
    assert done.returncode == 2
    assert "nonsense" in done.stderr


@each_arch
def test_the_daemon_waits_in_an_empty_root_and_says_what_is_missing(root):
    with root.daemon(ALONE) as (process, log):
        wait_for("the machine cannot be read: trying again", log, process)
        assert "/sys/devices/system/memory is missing" in log.read_text()
        port = wait_for(r"metrics at (http://\S+)", log, process)[1]
        assert "ramslice_" in urllib.request.urlopen(port, timeout=PATIENCE).read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()


@each_arch
def test_the_daemon_observes_this_machine(root):
    if not Path("/sys/devices/system/memory").exists():
        pytest.skip("this machine cannot switch memory: /sys/devices/system/memory is missing")
    with root.daemon(WITH_KERNEL_FILES) as (process, log):
        wait_for("the machine can be read", log, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    assert (root.folder / "state/state.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("static")
def test_a_guest_on_an_unpatched_kernel_gives_back_with_this_one_file(built, tmp_path):
    """From an initramfs, in a root that holds nothing but the program and the kernel's files."""
    kernel, disk, disk_mib = image("stock"), tmp_path / "disk", 200
    with open(disk, "wb") as file:
        file.truncate(disk_mib * MIB)
    initrd = make_root(tmp_path, kernel, [built / "x86_64/ramslice"], modules=())
    with SmallGuest(tmp_path / "guest", kernel, initrd,
                    qemu=["-drive", f"if=virtio,format=raw,file={disk}"]) as guest:

        def giveback(*words):
            line = ["chroot", "/alone", "/ramslice", "giveback", "--json", *words]
            return json.loads(guest.run(" ".join(line)))

        guest.run("mkdir -p /alone/proc /alone/sys && cp /bin/ramslice /alone")
        guest.run("mount -t proc proc /alone/proc && mount -t sysfs sysfs /alone/sys && "
                  "mount -t cgroup2 cgroup2 /alone/sys/fs/cgroup")
        # Closed by all, the disk's cache would go
        guest.run("sleep 3600 </dev/vda >/dev/null 2>&1 & cat /dev/vda >/dev/null")
        before = giveback("--now", "--dry-run")
        assert (before["dry_run"], before["cache_reclaimable"]) == (True, True)
        assert giveback()["idle_cache_bytes"] > disk_mib * MIB * 9 // 10
        held = guest.resident_bytes()
        done = giveback("--now")
        assert done["reclaimed_bytes"] > disk_mib * MIB * 8 // 10
        guest.wait_for("the host has what was reclaimed",
                       lambda: guest.resident_bytes() < held - disk_mib * MIB * 7 // 10)
        guest.check_console()
