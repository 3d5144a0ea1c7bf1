# SPDX-License-Identifier: GPL-2.0-or-later
# What tests of packages in a Debian of their own share: each check is a sentence and a command. The
# status goes to /root/status. Sourced by package.sh and kernel_package.sh.
# shellcheck shell=bash
set -uo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

checks=0
fail() {
	echo "FAIL: $*"
	journalctl --no-pager -n 30 -u ramsliced
	dmesg | tail -n 20
	echo 1 >/root/status
	exit 1
}
holds() { # SENTENCE COMMAND...
	local sentence=$1
	shift
	"$@" >/tmp/output 2>&1 || { cat /tmp/output; fail "$sentence: $*"; }
	checks=$((checks + 1))
	echo "ok: $sentence"
}
not() { ! "$@"; }
# Waits until it holds, at most two minutes; emulated machines are slow.
soon() {
	local end=$((SECONDS + 120))
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 1
	done
}
status() { # what the daemon says: status KEY VALUE
	grep -q "\"$1\": \"\\?$2\\>" /run/ramslice/status.json
}
switch_on_every_second() { # mode on with the policy periodic: switch_on_every_second SETTINGS-FILE
	sed -i -e 's/^mode = .*/mode = "on"/' -e 's/^policy = .*/policy = "periodic"/' \
		-e 's/^period_seconds = .*/period_seconds = 1/' "$1"
	printf '[periodic]\nperiod_seconds = 1.0\n' >>"$1"
}
no_complaint() { # of the kernel, by the lab's one list (ramlab/vm/complaints.py)
	dmesg >/root/dmesg
	[ -s /root/dmesg ] && [ -s /root/complaint ] && [ -s /root/not-kernel ] || return 1
	! grep -vE -f /root/not-kernel /root/dmesg | grep -E -f /root/complaint
}
passed() {
	echo "$checks checks passed"
	echo 0 >/root/status
}
