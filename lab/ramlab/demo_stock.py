#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Shows ramslice on Debian's own kernel, in a virtual machine: make demo-stock. No kernel is built.
#
# Usage: lab/demo-stock [6.1|6.12]
# Leaves pictures before, after and at the end, and result.json, in out/demo-stock. The status is 0 if blocks went
# offline and came back, no data was damaged and nobody was killed for want of memory.
set -euo pipefail
source "$(dirname "$0")/env"
cd "$RAMSLICE_ROOT"

series=${1:-6.12}
out=$RAMSLICE_ROOT/out/demo-stock
program=${RAMSLICE_PROGRAM:-$CARGO_TARGET_DIR/release/ramslice}
mkdir -p "$out"
rm -f "$out"/*
lab/stock-kernel "$series" >/dev/null
[ -n "${RAMSLICE_PROGRAM:-}" ] || cargo build --release --locked --quiet
lab/vm --kernel "debian-$series" --mem 2G --rw "$out" \
	-- "RAMSLICE_PROGRAM=$program python3 lab/guest/demo_stock.py $out"
echo
cat "$out/result.json"
echo "out/demo-stock/before.png, after.png, end.png: physical memory; $SECONDS s"
