#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An upgrade from a released version in a clean Debian that systemd booted, with memory off: once by
# its daemon, once by its program. /root/old.deb is the released version, /root/new.deb the one of
# the tree. The status goes to /root/status.
source /root/checks.sh

all_on() { not grep -qv online /sys/devices/system/memory/memory*/state; }
logged() { journalctl --no-pager -u ramsliced | grep -qF "$1"; }
main_pid() { systemctl show -P MainPID ramsliced; }
version() { dpkg-query -W -f '${Version}' ramslice; }
version_in() { dpkg-deb --field "$1" Version; }
# As unattended upgrades do, without a question about edited settings.
upgrade() { dpkg --force-confdef --force-confold -i /root/new.deb; }
settings=/etc/ramslice/ramsliced.toml

holds "the new version is a later one" dpkg --compare-versions \
	"$(version_in /root/old.deb)" lt "$(version_in /root/new.deb)"
holds "the released version installs" dpkg -i /root/old.deb
cp $settings /root/settings
switch_on_every_second $settings
holds "its daemon takes mode on over" systemctl reload ramsliced
holds "it switches memory off" soon not all_on
before=$(main_pid)
holds "it upgrades while its daemon has memory off" upgrade
holds "the new version is there" test "$(version)" = "$(version_in /root/new.deb)"
holds "its files are as they were packaged, but for the settings" \
	sh -c '! dpkg -V ramslice | grep -v /etc/ramslice/ramsliced.toml'
holds "the daemon runs again" soon systemctl is-active ramsliced
holds "it is a new one" test "$(main_pid)" != "$before"
holds "the old settings hold" soon status mode on
holds "it sees the machine" soon status ok true
holds "memory goes off again" soon not all_on
holds "no saved state was set aside" not logged "set aside"
holds "it stops" systemctl stop ramsliced
holds "all memory is on when it has stopped" all_on

holds "it is purged" dpkg -P ramslice
holds "the released version installs again" dpkg -i /root/old.deb
holds "its daemon stops" systemctl stop ramsliced
holds "its program switches memory off" ramslice offline --empty
holds "some is off" not all_on
holds "it upgrades while its program has memory off" upgrade
holds "the new program wakes what the old one switched off" ramslice online --all
holds "all memory is on" all_on
holds "the new daemon observes" soon status mode observe
holds "all memory stays on" all_on
holds "the kernel has no complaint" no_complaint

passed
