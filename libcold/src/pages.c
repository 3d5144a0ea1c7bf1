// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pages: moved where they are mapped, and counted by the node that they are on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Pages in one system call. */
#define BATCH 512

struct batch {
	void *pages[BATCH];
	int nodes[BATCH];
	int status[BATCH];
};

/* Moves pages, or says in status where they are if nodes is NULL. */
static long move_pages(void **pages, unsigned long nr, const int *nodes, int *status)
{
	return syscall(SYS_move_pages, 0, nr, pages, nodes, status, MPOL_MF_MOVE);
}

/* The node where a page belongs that is on this one; -1 if it stays. */
static int target(int node, enum ramslice_cold_place place)
{
	const struct cold_machine *machine = cold_machine();
	int to;

	if (node < 0 || node >= COLD_MAX_NODES)
		return -1;
	to = place == RAMSLICE_COLD_PLACE_COLD ? machine->cold_of[node] : machine->hot_of[node];
	return to < 0 || to == node ? -1 : to;
}

static bool is_in(int node, enum ramslice_cold_place place)
{
	const struct cold_machine *machine = cold_machine();

	return node >= 0 && node < COLD_MAX_NODES &&
	       (machine->cold[node / 64] >> node % 64 & 1) == (place == RAMSLICE_COLD_PLACE_COLD);
}

/*
 * Looks where pages are, and lists those that belong elsewhere in pages and
 * nodes. Returns how many are in this place, or -1.
 */
static long look(struct batch *batch, char *start, unsigned long nr, size_t page,
		 enum ramslice_cold_place place, unsigned long *nr_left)
{
	unsigned long i, left = 0;
	long there = 0;

	for (i = 0; i < nr; i++)
		batch->pages[i] = start + i * page;
	if (move_pages(batch->pages, nr, NULL, batch->status) < 0)
		return -1;
	for (i = 0; i < nr; i++) {
		int to = target(batch->status[i], place);

		there += is_in(batch->status[i], place);
		if (to < 0)
			continue;
		batch->pages[left] = start + i * page;
		batch->nodes[left++] = to;
	}
	*nr_left = left;
	return there;
}

/*
 * Moves up to BATCH pages from here on; returns how many are in this place
 * then, or -1. The kernel may end a call at a page that does not move: this
 * goes on for as long as that gets anywhere, and then page by page.
 */
static long move_batch(struct batch *batch, char *start, unsigned long nr, size_t page,
		       enum ramslice_cold_place place)
{
	unsigned long i, left, before = nr + 1;
	long there = look(batch, start, nr, page, place, &left);

	while (there >= 0 && left && left < before) {
		before = left;
		/* What has not moved is found by the next look */
		if (move_pages(batch->pages, left, batch->nodes, batch->status) < 0 &&
		    (errno == ENOSYS || errno == EPERM))
			return -1;
		there = look(batch, start, nr, page, place, &left);
	}
	if (there < 0 || !left)
		return there;
	for (i = 0; i < left; i++)
		move_pages(batch->pages + i, 1, batch->nodes + i, batch->status);
	return look(batch, start, nr, page, place, &left);
}

ssize_t ramslice_cold_move_range(void *start, size_t bytes, enum ramslice_cold_place place)
{
	size_t page = sysconf(_SC_PAGESIZE), there = 0, nr;
	uintptr_t at = (uintptr_t)start, end;
	int before = errno;
	struct batch batch;
	long done;

	if (__builtin_add_overflow(at, bytes, &end) || at > UINTPTR_MAX - page ||
	    (place != RAMSLICE_COLD_PLACE_HOT && place != RAMSLICE_COLD_PLACE_COLD)) {
		errno = EINVAL;
		return -1;
	}
	if (place == RAMSLICE_COLD_PLACE_COLD && cold_machine()->way == RAMSLICE_COLD_WAY_NONE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	end &= ~(page - 1);
	for (at = (at + page - 1) & ~(page - 1); at < end; at += nr * page) {
		nr = (end - at) / page;
		nr = nr < BATCH ? nr : BATCH;
		done = move_batch(&batch, (char *)at, nr, page, place);
		if (done < 0)
			return -1;
		there += done * page;
	}
	errno = before;
	return there;
}

static bool is_mapped_here(uintptr_t start)
{
	const struct cold_mapping *mapping;

	for (mapping = cold_mappings(); mapping; mapping = mapping->next) {
		if (start - mapping->start < mapping->bytes)
			return true;
	}
	return false;
}

/* Adds what a line of numa_maps says: "7f00e4000000 default anon=2 N0=1 N1=1 ..." */
static void add_line(struct ramslice_cold_stats *stats, char *line)
{
	size_t kib = 4, nodes[2] = { 0, 0 };
	char *word, *rest;

	if (!is_mapped_here(strtoul(line, NULL, 16)))
		return;
	for (word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		int node, length;
		size_t nr;

		if (sscanf(word, "N%d=%zu%n", &node, &nr, &length) == 2 && !word[length])
			nodes[is_in(node, RAMSLICE_COLD_PLACE_COLD)] += nr;
		else
			sscanf(word, "kernelpagesize_kB=%zu", &kib);
	}
	stats->hot_bytes += nodes[false] * kib << 10;
	stats->cold_bytes += nodes[true] * kib << 10;
}

int ramslice_cold_stats(struct ramslice_cold_stats *stats)
{
	const struct cold_mapping *mapping;
	size_t size = 0;
	char *line = NULL;
	int error, before = errno;
	FILE *file = fopen("/proc/self/numa_maps", "re");

	memset(stats, 0, sizeof(*stats));
	if (!file)
		return -1;
	for (mapping = cold_mappings(); mapping; mapping = mapping->next)
		stats->mapped_bytes += mapping->bytes;
	errno = 0;
	while (getline(&line, &size, file) >= 0)
		add_line(stats, line);
	error = ferror(file) || errno == ENOMEM ? errno : 0;
	free(line);
	fclose(file);
	errno = error ? error : before;
	return error ? -1 : 0;
}
