/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program says to the plugin that counts its accesses (lab/plugin):
 * without the plugin, a store.
 */
#ifndef RAMSLICE_ACCESS_MARKER_H
#define RAMSLICE_ACCESS_MARKER_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include "../plugin/marker.h"

#define MIB		(1UL << 20)
#define MAP_COLD	0x200000

/* Long enough for all translated code to be left and translated again */
#define ARMING_INSTRUCTIONS 4000000ULL

static inline void mark(enum marker command, uint64_t operand)
{
	uint64_t word = (uint64_t)command << MARKER_SHIFT | operand, to;

	/* MARKER_BYTES */
	__asm__ volatile(".byte 0x2e, 0x3e, 0x2e, 0x48, 0x89, 0x07"
			 : "=m"(to) : "a"(word), "D"(&to) : "memory");
}

static inline void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(2);
}

/* The guest's clock: ns, and instructions under -icount shift=0. */
static inline uint64_t clock_ns(void)
{
	unsigned int cpu;

	return __rdtscp(&cpu);
}

/* Executes about so many instructions, without any access to memory. */
static inline void spin(uint64_t instructions)
{
	uint64_t rounds = instructions / 2;

	if (rounds)
		__asm__ volatile("1: dec %0; jnz 1b" : "+r"(rounds) : : "cc");
}

/*
 * What the clock passes in a million instructions, at least: as many ns, or it
 * does not count them. Most of several times have interrupts among them.
 */
static inline uint64_t clock_of_million(void)
{
	uint64_t began, passed, least = UINT64_MAX;
	int i;

	for (i = 0; i < 10; i++) {
		began = clock_ns();
		spin(1000000);
		passed = clock_ns() - began;
		if (passed < least)
			least = passed;
	}
	return least;
}

static inline void arm(void)
{
	mark(MARKER_ARM, 0);
	spin(ARMING_INSTRUCTIONS);
}

/* What is at these addresses is the next class's; call after arm(). */
static inline void mark_range(const void *first, size_t bytes)
{
	mark(MARKER_RANGE_FIRST, (uintptr_t)first);
	mark(MARKER_RANGE_END, (uintptr_t)first + bytes);
}

/* Private memory, cold or not. It is not there until it is touched. */
static inline void *map_memory(size_t bytes, int is_cold)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		       MAP_NORESERVE | (is_cold ? MAP_COLD : 0), -1, 0);

	if (p == MAP_FAILED)
		fail("mmap");
	return p;
}

/*
 * Prints where pages are as JSON: {"slice": pages, ...}. Pages that are not
 * there are left out; without privileges, where they are is "hidden".
 */
static inline void print_slices(const void *at, size_t bytes, uint64_t slice_bytes)
{
	const size_t page = 4096, nr = bytes / page, chunk = 512, most = 4096;
	FILE *map = fopen("/proc/self/pagemap", "re");
	uint64_t *pages = calloc(most, sizeof(*pages)), entry[512];
	size_t i, j, got, hidden = 0;
	const char *comma = "";

	if (!map || !pages || fseek(map, (uintptr_t)at / page * sizeof(*entry), SEEK_SET))
		fail("pagemap");
	for (i = 0; i < nr; i += got) {
		got = fread(entry, sizeof(*entry), nr - i < chunk ? nr - i : chunk, map);
		if (!got)
			fail("pagemap");
		for (j = 0; j < got; j++) {
			uint64_t frame = entry[j] & ((1ULL << 55) - 1);

			/* Bit 63: it is there */
			if (!(entry[j] >> 63))
				continue;
			if (!frame)
				hidden++;
			else if (frame * page / slice_bytes < most)
				pages[frame * page / slice_bytes]++;
			else
				fail("a page beyond 4096 slices");
		}
	}
	printf("{");
	for (i = 0; i < most; i++)
		if (pages[i]) {
			printf("%s\"%zu\": %zu", comma, i, (size_t)pages[i]);
			comma = ", ";
		}
	if (hidden)
		printf("%s\"hidden\": %zu", comma, hidden);
	printf("}");
	free(pages);
	fclose(map);
}

#endif
