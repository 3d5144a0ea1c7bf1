// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cold_faults - ticks of page faults in memory that asks for cold memory, and in
 * memory that does not. Under QEMU's -icount shift=0 a tick is an instruction.
 *
 *   cold_faults MB ROUNDS hot|cold|both
 *
 * Each round maps MB in small pages, touches every page and unmaps; "both" does so
 * in turns. The first round of each kind is left out. Prints a line of JSON: ticks
 * and instructions of a loop of ten million, and ticks per page of each round.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>
#include "ticks.h"

#define PAGE		4096UL
#define MAP_COLD	0x200000
#define LOOP		5000000UL
#define MAX_ROUNDS	100

static void calibrate(void)
{
	unsigned long n = LOOP;
	uint64_t before = ticks();

	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r" (n));
	printf("{\"calibrate\": {\"instructions\": %lu, \"ticks\": %llu}", 2 * LOOP,
	       (unsigned long long)(ticks() - before));
}

static double ticks_per_page(size_t bytes, bool is_cold)
{
	uint64_t idle;
	unsigned char *p;
	size_t at;

	start();
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | (is_cold ? MAP_COLD : 0), -1, 0);
	if (p == MAP_FAILED || madvise(p, bytes, MADV_NOHUGEPAGE))
		die("mmap");
	for (at = 0; at < bytes; at += PAGE)
		*(volatile unsigned char *)(p + at) = 1;
	if (munmap(p, bytes))
		die("munmap");
	return (double)passed(&idle) / (bytes / PAGE);
}

static void print_rounds(const char *name, const double *rounds, unsigned long nr)
{
	unsigned long i;

	printf(", \"%s\": [", name);
	for (i = 0; i < nr; i++)
		printf("%s%.3f", i ? ", " : "", rounds[i]);
	printf("]");
}

int main(int argc, char **argv)
{
	static double found[2][MAX_ROUNDS];
	const char *kind = argc == 4 ? argv[3] : "";
	bool hot = strcmp(kind, "cold"), cold = strcmp(kind, "hot");
	size_t bytes = argc == 4 ? strtoul(argv[1], NULL, 10) << 20 : 0;
	unsigned long nr = argc == 4 ? strtoul(argv[2], NULL, 10) : 0, i;

	if (!bytes || !nr || nr > MAX_ROUNDS || (hot && cold && strcmp(kind, "both"))) {
		fprintf(stderr, "usage: cold_faults MB ROUNDS hot|cold|both, at most %d rounds\n",
			MAX_ROUNDS);
		return 2;
	}
	start_spinner();
	calibrate();
	for (i = 0; i <= nr; i++) {
		/* The first one grows the lists of the CPU and the tables of pages */
		if (hot)
			found[0][i ? i - 1 : 0] = ticks_per_page(bytes, false);
		if (cold)
			found[1][i ? i - 1 : 0] = ticks_per_page(bytes, true);
	}
	if (hot)
		print_rounds("hot", found[0], nr);
	if (cold)
		print_rounds("cold", found[1], nr);
	printf("}\n");
	end_spinner();
	return 0;
}
