#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Ordinary programs one after the other, which leave in memory what such programs leave: processes
# with shared mappings, cache of files that were read, dirty files, tmpfs. Usage: programs.sh ROUNDS
# No pipefail: head ends before its writer
set -eu
folder=$(mktemp -d)
# A process that has ended needs no killing
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT

for ((round = 1; round <= $1; round++)); do
	# Several interpreters that map the same libraries, each with its own heap
	for heap in 4 8 12 20; do
		python3 -c "import json, sqlite3, time; heap = bytearray($heap << 20)
for at in range(0, len(heap), 4096): heap[at] = 1
time.sleep(20)" &
	done
	tar -cf - /usr/lib/python3/dist-packages /usr/share/perl5 2>/dev/null |
		head -c 24M >"$folder/archive$round.tar"
	find /usr/include -type f -name '*.h' -print0 | head -z -n 60 | xargs -0 cat |
		sort -S 4M | wc -l
	python3 - "$folder/$round.db" <<-'SQL'
		import sqlite3, sys
		base = sqlite3.connect(sys.argv[1])
		base.execute("create table t (a integer primary key, b text)")
		rows = ((f"{n * 7919 % 100003:020}" * 4,) for n in range(10000))
		base.executemany("insert into t (b) values (?)", rows)
		base.execute("create index i on t (b)")
		print(base.execute("select count(*), max(b) from t").fetchone())
	SQL
	cat >"$folder/program.c" <<-'C'
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		int main(void)
		{
			char *p = malloc(1 << 20);
			memset(p, 1, 1 << 20);
			return printf("%d\n", p[9]) < 0;
		}
	C
	gcc -O2 -o "$folder/program" "$folder/program.c"
	"$folder/program"
	git -C "$RAMSLICE_ROOT" log --stat -n 3 2>/dev/null | wc -l
done
wait
