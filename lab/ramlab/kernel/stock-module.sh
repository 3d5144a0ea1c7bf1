#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds a kernel module of one file for one of Debian's own kernels, against Debian's headers, and
# prints where it is.
#
# Usage: ramlab stock-module 6.1|6.12|7 FILE.c
# Status 77 if there are no headers for the kernel in the cache any more.
set -euo pipefail
source "$(dirname "$0")/../../env"

[ $# = 2 ] || die "which kernel, which module? ramlab stock-module 6.1 FILE.c"
headers=$("$RAMSLICE_ROOT/lab/bin/ramlab" stock-kernel "$1" headers)
name=$(basename "$2" .c)
# By what it is made of: another checkout may be using its own.
key=$(cat "$2" "$headers/.config" | sha256sum | cut -c1-16)
module=$RAMSLICE_CACHE/stock-kernels/modules/$key/$name.ko
if [ ! -e "$module" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	cp "$2" "$work"
	echo "obj-m := $name.o" >"$work/Makefile"
	# Type information for BPF would want pahole.
	make -s -C "$headers" M="$work" W=1 KCFLAGS=-Werror CONFIG_DEBUG_INFO_BTF_MODULES= modules >&2
	mkdir -p "${module%/*}"
	# It appears at once or not at all.
	cp "$work/$name.ko" "$module.$$"
	mv "$module.$$" "$module"
fi
echo "$module"
