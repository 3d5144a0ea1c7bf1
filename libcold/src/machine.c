// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which nodes of this machine are cold, and how memory gets there: found out
 * once, from what the kernel does and says in sysfs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define TWINS "/sys/kernel/mm/ramslice/cold"
#define TIERS "/sys/devices/virtual/memory_tiering"
#define NODES "/sys/devices/system/node"

/*
 * The kernel's flag, in no C library's header so far. Alpha has another flag
 * of this value, and only x86-64 has cold memory.
 */
#ifdef __x86_64__
#define COLD_FLAG 0x200000
#else
#define COLD_FLAG 0
#endif

#ifndef MPOL_PREFERRED_MANY
#define MPOL_PREFERRED_MANY 5
#endif

struct nodes {
	unsigned long bits[COLD_MASK_WORDS];
};

static struct cold_machine machine;
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;

static bool has(const unsigned long *bits, int node)
{
	return bits[node / 64] >> node % 64 & 1;
}

static void set(unsigned long *bits, int node)
{
	bits[node / 64] |= 1UL << node % 64;
}

/* Reads a short file as text; false if there is none. */
static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return false;
	got = read(fd, text, size - 1);
	close(fd);
	text[got < 0 ? 0 : got] = 0;
	return got >= 0;
}

/* Reads a list as in 0-1,4; returns how many nodes are in it. */
static int read_nodes(const char *path, struct nodes *nodes)
{
	char text[4096], *at = text;
	int nr = 0;

	memset(nodes, 0, sizeof(*nodes));
	if (!read_text(path, text, sizeof(text)))
		return 0;
	while (*at >= '0' && *at <= '9') {
		long first = strtol(at, &at, 10), last = first;

		if (*at == '-')
			last = strtol(at + 1, &at, 10);
		for (; first <= last && first < COLD_MAX_NODES; first++, nr++)
			set(nodes->bits, first);
		at += *at == ',';
	}
	return nr;
}

/* The number at the end of a name that is prefix and number; -1 otherwise. */
static int numbered(const char *name, const char *prefix)
{
	size_t length = strlen(prefix);
	char *end;
	long number;

	if (strncmp(name, prefix, length) || name[length] < '0' || name[length] > '9')
		return -1;
	number = strtol(name + length, &end, 10);
	return *end || number > INT_MAX ? -1 : (int)number;
}

/* Whether the kernel knows the flag: those that do not refuse it here. */
static bool has_flag(void)
{
	long page = sysconf(_SC_PAGESIZE);
	void *at = MAP_FAILED;
	int fd;

	if (!COLD_FLAG)
		return false;
	fd = memfd_create("cold", MFD_CLOEXEC);
	if (fd < 0)
		return false;
	if (!ftruncate(fd, page))
		at = cold_mmap(NULL, page, PROT_READ, MAP_SHARED_VALIDATE | COLD_FLAG, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return false;
	munmap(at, page);
	return true;
}

/* Nodes that have a twin, and their twins; false if there is none. */
static bool find_twins(void)
{
	DIR *folder = opendir(TWINS);
	struct dirent *entry;
	char path[sizeof(TWINS) + 64], text[32];

	if (!folder)
		return false;
	while ((entry = readdir(folder))) {
		int twin, node = numbered(entry->d_name, "node");

		if (node < 0 || node >= COLD_MAX_NODES)
			continue;
		snprintf(path, sizeof(path), TWINS "/node%d/twin", node);
		if (!read_text(path, text, sizeof(text)))
			continue;
		twin = atoi(text);
		if (twin < 0 || twin >= COLD_MAX_NODES)
			continue;
		set(machine.cold, twin);
		machine.nr_cold++;
		machine.cold_of[node] = machine.cold_of[twin] = twin;
		machine.hot_of[node] = machine.hot_of[twin] = node;
	}
	closedir(folder);
	return machine.nr_cold;
}

/* The node of the mask that is next to this one; -1 if the mask is empty. */
static int nearest(int node, const struct nodes *online, const unsigned long *mask)
{
	char path[sizeof(NODES) + 64], text[8192], *at = text;
	long least = LONG_MAX;
	int other, best = -1;

	snprintf(path, sizeof(path), NODES "/node%d/distance", node);
	if (!read_text(path, text, sizeof(text)))
		return -1;
	/* A number for each node that is online, in order */
	for (other = 0; other < COLD_MAX_NODES; other++) {
		long distance;

		if (!has(online->bits, other))
			continue;
		distance = strtol(at, &at, 10);
		if (has(mask, other) && distance < least) {
			least = distance;
			best = other;
		}
	}
	return best;
}

/*
 * Nodes without CPUs of the lowest tier, if there are several tiers. Without,
 * nothing says which node is slower: one without CPUs may be the fastest.
 */
static bool find_lowest_tier(void)
{
	struct nodes tier, lowest, cpus, online, hot;
	char path[sizeof(TIERS) + 64];
	struct dirent *entry;
	int node, number, nr_tiers = 0, last = -1;
	DIR *folder = opendir(TIERS);

	if (!folder)
		return false;
	memset(&lowest, 0, sizeof(lowest));
	while ((entry = readdir(folder))) {
		number = numbered(entry->d_name, "memory_tier");
		if (number < 0)
			continue;
		snprintf(path, sizeof(path), TIERS "/memory_tier%d/nodelist", number);
		if (!read_nodes(path, &tier))
			continue;
		nr_tiers++;
		/* The higher its number, the slower a tier */
		if (number > last) {
			last = number;
			lowest = tier;
		}
	}
	closedir(folder);
	if (nr_tiers < 2)
		return false;
	read_nodes(NODES "/has_cpu", &cpus);
	read_nodes(NODES "/has_memory", &hot);
	read_nodes(NODES "/online", &online);
	for (node = 0; node < COLD_MAX_NODES; node++) {
		if (!has(lowest.bits, node))
			continue;
		hot.bits[node / 64] &= ~(1UL << node % 64);
		if (!has(cpus.bits, node)) {
			set(machine.cold, node);
			machine.nr_cold++;
		}
	}
	if (!machine.nr_cold)
		return false;
	for (node = 0; node < COLD_MAX_NODES; node++) {
		if (!has(online.bits, node))
			continue;
		machine.cold_of[node] = has(machine.cold, node) ?
					node : nearest(node, &online, machine.cold);
		machine.hot_of[node] = has(machine.cold, node) ?
				       nearest(node, &online, hot.bits) : node;
	}
	return true;
}

static long bind(void *start, size_t bytes)
{
	/* Of several, that next to the CPU which touches a page first */
	int mode = machine.nr_cold > 1 ? MPOL_PREFERRED_MANY : MPOL_PREFERRED;

	return syscall(SYS_mbind, start, bytes, mode, machine.cold, COLD_MAX_NODES + 1UL, 0U);
}

/* A sandbox may forbid policies, and a cpuset these nodes. */
static bool may_bind(void)
{
	long page = sysconf(_SC_PAGESIZE);
	void *at = cold_mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool may;

	if (at == MAP_FAILED)
		return false;
	may = !bind(at, page);
	munmap(at, page);
	return may;
}

static void find(void)
{
	int before = errno;

	memset(machine.cold_of, -1, sizeof(machine.cold_of));
	memset(machine.hot_of, -1, sizeof(machine.hot_of));
	if (has_flag() && find_twins())
		machine.way = RAMSLICE_COLD_WAY_MAP_COLD;
	else if (find_lowest_tier() && may_bind())
		machine.way = RAMSLICE_COLD_WAY_MBIND;
	else
		memset(machine.cold, 0, sizeof(machine.cold));
	errno = before;
}

const struct cold_machine *cold_machine(void)
{
	pthread_once(&machine_once, find);
	return &machine;
}

int cold_map_flags(void)
{
	return cold_machine()->way == RAMSLICE_COLD_WAY_MAP_COLD ? COLD_FLAG : 0;
}

void cold_bind(void *start, size_t bytes)
{
	int before = errno;

	if (cold_machine()->way == RAMSLICE_COLD_WAY_MBIND)
		bind(start, bytes);
	errno = before;
}
