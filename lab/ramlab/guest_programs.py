#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Compiles the programs that tests run inside guests into the cache, and prints their directory.
set -euo pipefail
source "$(dirname "$0")/env"

folder=$RAMSLICE_CACHE/guest
mkdir -p "$folder"
for source in "$RAMSLICE_ROOT"/lab/guest/*.c; do
	program=$folder/$(basename "$source" .c)
	# Another checkout may be using it: it appears at once or not at all.
	gcc -std=gnu11 -O2 -g -Wall -Wextra -Werror -I "$RAMSLICE_ROOT/kernel/files/include/uapi" \
		-o "$program.$$" "$source" -lm
	mv "$program.$$" "$program"
done
echo "$folder"
