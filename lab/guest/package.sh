#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The package in a clean Debian that systemd booted: installed, edited, upgraded, removed, purged.
# /root/old.deb and /root/new.deb are two versions. The status goes to /root/status.
source /root/checks.sh

metrics() {
	exec 3<>/dev/tcp/127.0.0.1/9750 &&
		printf 'GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 &&
		timeout 30 cat <&3 >/tmp/metrics
	grep -q '^ramslice_' /tmp/metrics
}
all_on() { not grep -qv online /sys/devices/system/memory/memory*/state; }
logged() { journalctl --no-pager -u ramsliced | grep -qF "$1"; }
main_pid() { systemctl show -P MainPID ramsliced; }
# Every file that lasts; dpkg's own database and what man, ldconfig and logs keep are not the
# package's.
files() {
	find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /root \
		-o -path /var/tmp -o -path /var/log -o -path /var/lib/dpkg -o -path /var/cache \
		-o -path /var/lib/systemd/catalog -o -path /dev \) \
		-prune -o -print | sort
}

files >/root/before
holds "no daemon is there before" not test -e /usr/sbin/ramsliced

holds "it installs" dpkg -i /root/old.deb
holds "its files are as they were packaged" dpkg -V ramslice
holds "the daemon is enabled" systemctl is-enabled ramsliced
holds "the daemon runs" soon systemctl is-active ramsliced
holds "it writes its status" soon test -s /run/ramslice/status.json
holds "it observes" soon status mode observe
holds "on this kernel it goes by memory hotplug" soon status backend stock
holds "it sees the machine" soon status ok true
holds "all memory is on" all_on
holds "it has metrics on loopback" soon metrics
holds "the program shows what the daemon says" \
	sh -c 'ramslice top --once --interval 100ms | grep -q "(observe"'
holds "there are manual pages" man -w ramslice ramslice-top ramsliced ramslice-trial-boot
holds "there is completion" \
	bash -c 'source /usr/share/bash-completion/completions/ramslice && complete -p ramslice'
holds "profiles, dashboard and rules are there" ls /usr/share/ramslice/profiles/thesis-parc.toml \
	/usr/share/ramslice/grafana/ramslice.json /usr/share/ramslice/prometheus/ramslice.rules.yml

echo "# edited by the operator" >>/etc/ramslice/ramsliced.toml
holds "edited settings are taken over" systemctl reload ramsliced
before=$(main_pid)
# As unattended upgrades do, without a question about edited settings.
holds "it upgrades" dpkg --force-confdef --force-confold -i /root/new.deb
holds "the new version is there" grep -qx 'Version: .*+newer' <(dpkg -s ramslice)
holds "edited settings survive" grep -q "edited by the operator" /etc/ramslice/ramsliced.toml
holds "the new version's settings lie beside them" \
	grep -q "the new version" /etc/ramslice/ramsliced.toml.dpkg-dist
holds "the daemon runs again" soon systemctl is-active ramsliced
holds "it is a new one" test "$(main_pid)" != "$before"
holds "it still observes" soon status mode observe

# Inside its sandbox it may do what it is for. The governor goes by joules, of which an emulated
# machine has none.
settings=/etc/ramslice/ramsliced.toml
cp $settings /root/settings
switch_on_every_second $settings
holds "mode on is taken over" systemctl reload ramsliced
holds "the unit switches memory off" soon not all_on
holds "it watches whether memory runs short" \
	soon logged "slices wake when less than this is available"
holds "it stops" systemctl stop ramsliced
holds "all memory is on when it has stopped" all_on
holds "it starts" systemctl start ramsliced
holds "memory goes off again" soon not all_on
holds "it upgrades while memory is off" dpkg --force-confdef --force-confold -i /root/new.deb
holds "which goes off again afterwards" soon not all_on
sed -i 's/^mode = .*/mode = "observe"/' $settings
holds "it is killed" systemctl kill --kill-who=main --signal=KILL ramsliced
holds "systemd starts it again, and offline slices wake" soon all_on
holds "because it only observes" soon status mode observe
sed -i 's/^mode = .*/mode = "onn"/' $settings
holds "with wrong settings it does not start" not systemctl restart ramsliced
holds "and systemd does not try again" test "$(systemctl show -P ActiveState ramsliced)" = failed
cp /root/settings $settings
systemctl reset-failed ramsliced
holds "with its settings as they were it does" systemctl start ramsliced

# Between two boots a stock kernel forgets the size: docs/how-to/run-the-daemon.md has this drop-in.
slice_is() { ramslice status --json | grep -qE "\"slice_bytes\": *$1\b"; }
holds "slices have another size" not slice_is 268435456
mkdir -p /etc/systemd/system/ramsliced.service.d
printf '[Service]\nExecStartPre=-/usr/bin/ramslice --backend stock slices --resize 256MiB\n' \
	>/etc/systemd/system/ramsliced.service.d/size.conf
systemctl daemon-reload
holds "the unit starts with a drop-in that asks for a size" systemctl restart ramsliced
holds "slices have it" slice_is 268435456
holds "and the daemon sees them" soon status ok true
rm -r /etc/systemd/system/ramsliced.service.d
systemctl daemon-reload

# What [idle_cache] does in a guest, from within the sandbox.
mkdir -p /etc/systemd/system/ramsliced.service.d
cat >/etc/systemd/system/ramsliced.service.d/cache.conf <<-'END'
	[Service]
	ExecStartPre=/bin/sh -c 'echo 64K >/sys/fs/cgroup/memory.reclaim'
	ExecStartPre=/bin/sh -c 'echo 1 >/proc/sys/vm/compact_memory'
END
systemctl daemon-reload
holds "its unit may reclaim cache and compact memory" systemctl restart ramsliced
printf '[Service]\nExecStartPre=/bin/sh -c "echo 100 >/proc/sys/vm/swappiness"\n' \
	>/etc/systemd/system/ramsliced.service.d/cache.conf
systemctl daemon-reload
holds "and change no other setting of memory" not systemctl restart ramsliced
rm -r /etc/systemd/system/ramsliced.service.d
systemctl daemon-reload
holds "it starts again" systemctl restart ramsliced

packs_before_sleep() {
	for wanted in Wants After; do
		systemctl show -P $wanted sleep.target | grep -qwF ramslice-pack.service || return 1
	done
}
holds "memory is not packed before sleep" not packs_before_sleep
holds "a unit for that can be enabled" systemctl enable ramslice-pack
holds "sleep waits until memory is packed" packs_before_sleep

holds "the program switches memory off" ramslice offline --empty
holds "some is off" not all_on
holds "it is removed" dpkg -r ramslice
holds "the daemon is gone" not systemctl is-active ramsliced
holds "all memory is on again" all_on
holds "settings stay" test -e /etc/ramslice/ramsliced.toml
holds "what was learned stays" test -d /var/lib/ramslice

holds "it is purged" dpkg -P ramslice
holds "dpkg knows nothing of it" not dpkg -s ramslice
holds "nothing is left in /run" not test -e /run/ramslice
systemctl daemon-reload
holds "systemd knows nothing of it" not systemctl cat ramsliced
files >/root/after
holds "nothing else is left" diff /root/before /root/after

passed
