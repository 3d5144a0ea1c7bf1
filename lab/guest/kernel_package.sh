#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A Debian that systemd has booted with a kernel from our packages: does the kernel work there?
# Each boot has another lockdown. The status goes to /root/status.
source /root/checks.sh

off() { # how many slices are off, by the kernel: off TEST NUMBER
	test "$(ramslice slices --json | grep -o '"state": *"offline"' | wc -l)" "$@"
}
by_debugfs() { # lockdown shuts the files of debugfs that can be written; the tools need none
	echo 0 >/sys/kernel/debug/ramslice/node0/DMA/stats
}
lockdown=$(sed -n 's/.*lockdown=\([a-z]*\).*/\1/p' /proc/cmdline)

holds "the kernel is ours" grep -qE -- '-ramslice(-lean|-local)? ' /proc/version
holds "lockdown is $lockdown" grep -qF "[$lockdown]" /sys/kernel/security/lockdown
holds "the daemon runs" soon systemctl is-active ramsliced
holds "it goes by the kernel, not by memory hotplug" soon status backend kernel
holds "it observes" soon status mode observe
holds "it sees the machine" soon status ok true
settings=/etc/ramslice/ramsliced.toml
cp $settings /root/settings
switch_on_every_second $settings
holds "it reads its settings again" systemctl reload ramsliced
holds "it is on" soon status mode on
holds "in its sandbox it switches slices off" soon off -gt 0
echo 'mode = "on"' >>$settings
holds "a reload of wrong settings fails" not systemctl reload ramsliced
holds "the old ones stay" status mode on
cp /root/settings $settings
holds "it reads its settings again" systemctl reload ramsliced
holds "it observes" soon status mode observe
holds "slices are switched on by hand" ramslice online --all
if [ "$lockdown" = none ]; then
	holds "the module that DKMS built works" modprobe acpi_call
	holds "debugfs can be written" by_debugfs
else
	holds "a module whose key is not enrolled is refused" not modprobe acpi_call
	holds "debugfs cannot be written" not by_debugfs
fi
holds "all slices are on" off = 0
holds "empty slices are switched off" ramslice offline --empty
holds "they are off" off -gt 0
holds "packing works" ramslice compact --budget 1M
holds "they are switched on again" ramslice online --all
holds "all slices are on" off = 0
holds "the kernel has no complaint" no_complaint
passed
