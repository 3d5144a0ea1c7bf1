# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's kernel stays GRUB's default until a ramslice kernel was tried and confirmed.

GRUB's own scripts decide, over made-up kernels (grub_machine.py). Each test begins with a machine
in a state that a fixture names.
"""

import subprocess

import pytest

from grub_machine import PACKAGE_STATE, GrubMachine, entry

pytestmark = pytest.mark.xdist_group("trial-boot")

OLD, DEBIAN, NEWER = "6.1.0-54-amd64", "6.12.95+deb12-amd64", "6.12.99+deb12-amd64"
OURS, NEXT, LEAN = "6.12.117-ramslice", "6.12.120-ramslice", "6.12.117-ramslice-lean"
LOADER = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
CONFIRMED = "var/lib/ramslice/kernel-confirmed"
UNWRITABLE = ({"ABSTRACTION": "lvm"}, {"ABSTRACTION": "diskfilter mdraid1x"},
              {"FS": "btrfs"}, {"FS": "zfs"})
UNGUARDED = "Nothing here keeps Debian's kernel the default"


def works(done, words=""):
    """Asserts that a program succeeded and, if words are given, that it said them."""
    assert done.returncode == 0, done.stdout
    assert words in done.stdout
    return done.stdout


def refuses(done, words):
    assert done.returncode != 0, done.stdout
    assert words in done.stdout


def refuses_trial(machine, words, says):
    refuses(machine.trial(*words), says)
    assert machine.next_entry() == ""


def try_once(machine):
    works(machine.trial("once"))
    assert machine.boot() == entry(OURS)


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The machine; it has saved a state for each fixture below."""
    machine = GrubMachine(tmp_path_factory.mktemp("grub"))
    machine.install(OLD, DEBIAN)
    machine.save("debian")
    machine.install(NEWER, OURS)
    machine.save("untried")
    try_once(machine)
    machine.save("tried")
    works(machine.confirm(OURS))
    machine.save("confirmed")
    machine.install(NEXT)
    machine.save("upgraded")
    machine.remove(OURS)
    machine.write(CONFIRMED, f"{NEXT}\n")
    machine.update()
    machine.save("by_release")
    return machine


def _state(name, doc):
    def fixture(states):
        states.restore(name)
        return states
    fixture.__doc__ = doc
    return pytest.fixture(fixture, name=name)


debian = _state("debian", "Two of Debian's kernels.")
untried = _state("untried", "Debian's three kernels and one of ours, which is newer.")
tried = _state("tried", "The same after a trial boot of ours.")
confirmed = _state("confirmed", "The same after the kernel was confirmed.")
upgraded = _state("upgraded", "The same after a newer kernel of ours was installed beside it.")
by_release = _state("by_release", "Confirmed by its release alone, as earlier versions wrote it.")


# --- before any trial ---

def test_grub_chooses_where_no_ramslice_kernel_is_installed(debian):
    assert debian.default() == "0"


def test_debians_newest_kernel_is_the_default_though_ours_is_newer(debian):
    debian.install(OURS)
    assert debian.default() == entry(DEBIAN)


def test_the_menu_has_the_default_entry(debian):
    debian.install(OURS)
    works(debian.trial("status"))


def test_an_update_of_debians_kernel_becomes_the_default(untried):
    assert untried.default() == entry(NEWER)


def test_a_file_of_an_interrupted_unpacking_does_not_become_the_default(untried):
    untried.write("boot/vmlinuz-6.12.100+deb12-amd64.dpkg-new", "")
    untried.update()
    assert untried.default() == entry(NEWER)


@pytest.mark.parametrize("yes", ["y", "yes", "true"])
def test_debians_kernel_is_the_default_in_a_menu_without_submenus(untried, yes):
    untried.write("etc/default/grub.d/zz-local.cfg", f"GRUB_DISABLE_SUBMENU={yes}\n")
    untried.update()
    assert untried.default() == entry(NEWER).split(">")[1]
    works(untried.trial("status"))


def test_programs_that_only_source_the_settings_can_do_so(untried):
    settings = untried.root / "etc/default/grub.d/zz-ramslice.cfg"
    script = '. "$0"; [ -z "${GRUB_DEFAULT:-}" ]'
    subprocess.run(["sh", "-euc", script, settings], check=True)


def test_a_default_that_the_administrator_chose_stays(untried):
    untried.setting("saved")
    untried.update()
    assert untried.default() == ""


def test_status_warns_where_no_default_was_saved(untried):
    untried.setting("saved")
    untried.update()
    refuses(untried.trial("status"), f"GRUB's default is not {NEWER}")


def test_status_accepts_a_saved_default_that_is_debians_kernel(untried):
    untried.setting("saved")
    untried.update()
    untried.editenv("set", f"saved_entry={entry(NEWER)}")
    works(untried.trial("status"))


def test_a_boot_takes_the_default(untried):
    assert untried.boot() == entry(NEWER)


def test_debians_kernel_is_not_confirmed(untried):
    refuses(untried.confirm(OLD), f"this is {OLD}")


def test_a_kernel_without_a_trial_is_not_confirmed(untried):
    refuses(untried.confirm(OURS), f"no trial of {OURS} was begun")


def test_a_refused_confirmation_changes_no_default(untried):
    untried.confirm(OLD)
    untried.confirm(OURS)
    untried.update()
    assert untried.default() == entry(NEWER)


# --- trials that are refused ---

def test_a_kernel_that_is_not_there_is_not_tried(untried):
    refuses_trial(untried, ("once", "6.12.118-ramslice"), f"there are: {OURS}")


def test_a_kernel_that_the_menu_lacks_is_not_tried(untried):
    untried.write("boot/vmlinuz-6.12.118-ramslice", "")
    untried.write("boot/initrd.img-6.12.118-ramslice", "")
    refuses_trial(untried, ("once",), "run update-grub")


def test_a_trial_names_the_kernel_where_there_are_two_flavours(untried):
    untried.install(LEAN)
    refuses_trial(untried, ("once",), f"name the kernel: {OURS} {LEAN}")


def test_a_kernel_whose_package_is_half_installed_is_not_tried(untried):
    untried.write(PACKAGE_STATE, "half-configured")
    refuses_trial(untried, ("once",), "(half-configured)")


def test_a_kernel_without_an_initial_ram_disk_is_not_tried(untried):
    (untried.root / f"boot/initrd.img-{OURS}").unlink()
    refuses_trial(untried, ("once",), f"update-initramfs -c -k {OURS}")


@pytest.mark.parametrize("disk", UNWRITABLE, ids=lambda disk: "-".join(disk.values()))
def test_no_trial_is_set_where_grub_cannot_clear_it(untried, disk):
    refuses(untried.trial("once", **disk), "GRUB cannot write")


@pytest.mark.parametrize("disk", UNWRITABLE, ids=lambda disk: "-".join(disk.values()))
def test_a_refused_trial_leaves_no_next_entry(untried, disk):
    untried.trial("once", **disk)
    assert untried.next_entry() == ""


def test_a_refused_trial_counts_as_no_boot(untried):
    untried.trial("once", ABSTRACTION="lvm")
    refuses(untried.confirm(OURS), "is yet to come")


# --- a trial ---

def test_a_trial_is_the_next_boot(untried):
    works(untried.trial("once"))
    assert untried.next_entry() == entry(OURS)


def test_status_shows_the_trial(untried):
    untried.trial("once")
    works(untried.trial("status"), f"next boot, once: {entry(OURS)}")


def test_a_trial_changes_no_default(untried):
    untried.trial("once")
    assert untried.default() == entry(NEWER)


def test_a_kernel_is_not_confirmed_before_its_trial_boot(untried):
    untried.trial("once")
    refuses(untried.confirm(OURS), "is yet to come")


def test_grub_boots_the_tried_kernel(untried):
    untried.trial("once")
    assert untried.boot() == entry(OURS)


def test_grub_clears_the_trial_when_it_boots(tried):
    assert tried.next_entry() == ""


def test_an_image_that_was_replaced_after_the_trial_is_not_confirmed(tried):
    tried.replace(OURS)
    refuses(tried.confirm(OURS), "was replaced after its trial")
    assert not (tried.root / CONFIRMED).exists()


def test_the_boot_after_the_trial_is_debians(tried):
    assert tried.boot() == entry(NEWER)


def test_a_tried_kernel_is_confirmed(tried):
    works(tried.confirm(OURS))


# --- a confirmed kernel ---

def test_a_confirmed_kernel_is_the_default(confirmed):
    assert confirmed.default() == entry(OURS)


def test_a_second_confirmation_does_no_harm(confirmed):
    works(confirmed.confirm(OURS))
    assert confirmed.default() == entry(OURS)


def test_undo_works_after_another_trial(confirmed):
    works(confirmed.trial("once"))
    works(confirmed.trial("undo"))


def undone(machine):
    """A second trial was set and everything undone."""
    works(machine.trial("once"))
    works(machine.trial("undo"))
    return machine


def test_undo_clears_the_next_entry(confirmed):
    assert undone(confirmed).next_entry() == ""


def test_undo_makes_debians_kernel_the_default(confirmed):
    assert undone(confirmed).default() == entry(NEWER)


def test_undo_makes_the_next_boot_debians(confirmed):
    assert undone(confirmed).boot() == entry(NEWER)


def test_undo_forgets_earlier_trials(confirmed):
    refuses(undone(confirmed).confirm(OURS), "no trial")


def chosen_in_the_menu(machine):
    """Where GRUB cannot clear a trial, the administrator chooses the kernel in the menu."""
    refuses(machine.trial("once", ABSTRACTION="lvm"), "GRUB cannot write")
    machine.editenv("set", f"next_entry={entry(OURS)}")
    assert machine.boot() == entry(OURS)
    return machine


def test_a_kernel_chosen_in_the_menu_is_confirmed(untried):
    works(chosen_in_the_menu(untried).confirm(OURS))


def test_a_kernel_chosen_in_the_menu_is_the_default_once_confirmed(untried):
    chosen_in_the_menu(untried).confirm(OURS)
    assert untried.default() == entry(OURS)


def test_a_kernel_chosen_in_the_menu_is_confirmed_after_undo(confirmed):
    works(chosen_in_the_menu(undone(confirmed)).confirm(OURS))
    assert confirmed.default() == entry(OURS)


def test_status_shows_the_confirmed_default(confirmed):
    lines = works(confirmed.trial("status")).splitlines()
    assert f"default: {OURS}, which was confirmed" in lines


@pytest.mark.parametrize("same", ["6.12.117+deb12-amd64", "6.12.117-xanmod1"])
def test_a_confirmed_kernel_stays_the_default_beside_the_same_linux_of_others(confirmed, same):
    confirmed.install(same)
    assert confirmed.default() == entry(OURS)
    works(confirmed.trial("status"))


def test_a_confirmed_kernel_stays_the_default_beside_another_flavour(confirmed):
    confirmed.install(LEAN)
    assert confirmed.default() == entry(OURS)


def test_status_is_silent_while_debians_updates_can_become_newer(confirmed):
    assert "security updates" not in works(confirmed.trial("status"))


def test_status_warns_where_only_an_older_series_is_installed(confirmed):
    confirmed.remove(DEBIAN, NEWER)
    works(confirmed.trial("status"), f"{OLD} is not of series 6.12")


def test_confirm_warns_where_only_an_older_series_is_installed(confirmed):
    confirmed.remove(DEBIAN, NEWER)
    works(confirmed.confirm(OURS), "install linux-image-6.12-amd64")


# --- after upgrades ---

def test_an_untried_newer_kernel_does_not_replace_the_confirmed_default(upgraded):
    assert upgraded.default() == entry(OURS)


def test_the_menu_has_the_confirmed_entry_after_an_upgrade(upgraded):
    works(upgraded.trial("status"))


def test_a_kernel_of_debians_newer_than_the_confirmed_one_is_the_default(upgraded):
    upgraded.install("6.12.118+deb12-amd64")
    assert upgraded.default() == entry("6.12.118+deb12-amd64")


def test_status_shows_debians_newer_kernel(upgraded):
    upgraded.install("6.12.118+deb12-amd64")
    works(upgraded.trial("status"), "6.12.118+deb12-amd64, until")


def test_a_kernel_of_debians_newer_than_all_of_ours_is_the_default(upgraded):
    upgraded.install("6.12.121+deb12-amd64")
    assert upgraded.default() == entry("6.12.121+deb12-amd64")


def test_a_confirmed_kernel_that_was_replaced_is_not_the_default(upgraded):
    upgraded.replace(OURS)
    upgraded.update()
    assert upgraded.default() == entry(NEWER)


def test_a_replaced_kernel_is_not_the_default_even_if_it_is_the_newest(confirmed):
    confirmed.replace(OURS)
    confirmed.update()
    assert confirmed.default() == entry(NEWER)


def test_debians_kernel_is_the_default_once_the_confirmed_one_is_removed(upgraded):
    upgraded.remove(OURS)
    assert upgraded.default() == entry(NEWER)


def test_a_file_of_earlier_versions_confirms_a_kernel_by_its_release(by_release):
    assert by_release.default() == entry(NEXT)


def test_a_package_that_replaces_another_kernel_changes_nothing(by_release):
    works(by_release.trial("replaced", "6.12.119-ramslice"))
    assert by_release.default() == entry(NEXT)


def test_a_package_that_replaces_the_confirmed_kernel_makes_debians_the_default(by_release):
    works(by_release.trial("replaced", NEXT))
    assert by_release.default() == entry(NEWER)


# --- other boot loaders ---

def loader_info(machine, name):
    """What the firmware's variable says of the boot loader."""
    machine.write(LOADER, "")
    (machine.root / LOADER).write_bytes(b"\6\0\0\0" + name.encode("utf-16-le"))


def test_a_trial_is_set_where_the_firmware_names_grub(by_release):
    loader_info(by_release, "GRUB")
    works(by_release.trial("once"))
    assert by_release.next_entry() == entry(NEXT)


def test_no_trial_is_set_where_systemd_boot_starts_beside_grubs_files(by_release):
    loader_info(by_release, "systemd-boot 252")
    refuses(by_release.trial("once"), "bootctl set-oneshot")


def test_status_warns_where_systemd_boot_starts_beside_grubs_files(by_release):
    loader_info(by_release, "systemd-boot 252")
    works(by_release.trial("status"), UNGUARDED)


def without_grub(machine):
    (machine.root / "boot/grub/grub.cfg").unlink()
    machine.write("boot/efi/loader/loader.conf", "timeout 3\ndefault *-amd64.conf\n")
    return machine


def test_status_warns_where_grub_is_not_installed(by_release):
    (by_release.root / "boot/grub/grub.cfg").unlink()
    works(by_release.trial("status"), UNGUARDED)


def test_status_shows_the_default_of_systemd_boot(by_release):
    works(without_grub(by_release).trial("status"), "loader.conf: *-amd64.conf")


def test_no_trial_is_set_without_grub(by_release):
    refuses(without_grub(by_release).trial("once"), "bootctl set-oneshot")


def test_an_unknown_command_is_named(by_release):
    done = by_release.trial("sttaus")
    assert done.returncode == 2, done.stdout
    refuses(done, "unknown command: sttaus")
