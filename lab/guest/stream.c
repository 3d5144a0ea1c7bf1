// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * stream - four loops over three arrays of doubles, as the memory benchmark
 * STREAM has them, for where their pages and accesses are; not for bandwidth,
 * which means nothing under emulation.
 *
 *   stream hot|cold ELEMENTS ROUNDS SLICE
 *
 *   copy   c[i] = a[i]             scale  b[i] = s * c[i]
 *   add    c[i] = a[i] + b[i]      triad  a[i] = b[i] + s * c[i]
 *
 * Each round runs them in this order. The plugin counts the last round, with a
 * label from 0 to 3 for each loop; the arrays are class 1. All elements are
 * checked at the end. SLICE is in bytes. Prints a line of JSON: pages of the
 * arrays by slice, and what the clock passed in each counted loop.
 */
#define _GNU_SOURCE
#include "access_marker.h"

#define SCALAR		3.0
#define NR_LOOPS	4

/* A loop that copies stays one: a library's would store past the caches */
#define LOOP	__attribute__((noinline, optimize("no-tree-loop-distribute-patterns")))

struct arrays {
	double *a, *b, *c;
	size_t nr;
};

LOOP static void copy(const struct arrays *x)
{
	size_t i;

	for (i = 0; i < x->nr; i++)
		x->c[i] = x->a[i];
}

LOOP static void scale(const struct arrays *x)
{
	size_t i;

	for (i = 0; i < x->nr; i++)
		x->b[i] = SCALAR * x->c[i];
}

LOOP static void add(const struct arrays *x)
{
	size_t i;

	for (i = 0; i < x->nr; i++)
		x->c[i] = x->a[i] + x->b[i];
}

LOOP static void triad(const struct arrays *x)
{
	size_t i;

	for (i = 0; i < x->nr; i++)
		x->a[i] = x->b[i] + SCALAR * x->c[i];
}

static void (*const loops[NR_LOOPS])(const struct arrays *) = { copy, scale, add, triad };
static const char *const names[NR_LOOPS] = { "copy", "scale", "add", "triad" };

/* What the first element is at the beginning; each is 1 more than the one before, modulo 64. */
static double first_value(size_t i)
{
	return 1 + i % 64;
}

/* The number of elements that are not what as many rounds make of their first value. */
static size_t check(const struct arrays *x, unsigned long rounds)
{
	size_t i, wrong = 0;
	unsigned long round;

	for (i = 0; i < x->nr; i++) {
		double a = first_value(i), b = 0, c = 0;

		for (round = 0; round < rounds; round++) {
			c = a;
			b = SCALAR * c;
			c = a + b;
			a = b + SCALAR * c;
		}
		wrong += x->a[i] != a || x->b[i] != b || x->c[i] != c;
	}
	return wrong;
}

static void usage(void)
{
	fprintf(stderr, "usage: stream hot|cold ELEMENTS ROUNDS SLICE\n"
		"ELEMENTS at least 1, ROUNDS 1 to 100, SLICE a multiple of 4096 bytes\n");
	exit(2);
}

int main(int argc, char **argv)
{
	unsigned long rounds, round, slice;
	uint64_t ns[NR_LOOPS];
	struct arrays x;
	size_t bytes, i, wrong;
	char *memory;
	int is_cold, loop;

	if (argc != 5)
		usage();
	is_cold = !strcmp(argv[1], "cold");
	x.nr = strtoul(argv[2], NULL, 10);
	rounds = strtoul(argv[3], NULL, 10);
	slice = strtoul(argv[4], NULL, 10);
	if ((!is_cold && strcmp(argv[1], "hot")) || !x.nr || !rounds || rounds > 100 ||
	    !slice || slice % 4096)
		usage();
	/* Each begins at a page of its own */
	bytes = (x.nr * sizeof(double) + 4095) & ~4095UL;
	memory = map_memory(3 * bytes, is_cold);
	x.a = (double *)memory;
	x.b = (double *)(memory + bytes);
	x.c = (double *)(memory + 2 * bytes);
	for (i = 0; i < x.nr; i++) {
		x.a[i] = first_value(i);
		x.b[i] = x.c[i] = 0;
	}
	for (round = 0; round < rounds; round++) {
		int is_last = round == rounds - 1;

		if (is_last) {
			arm();
			mark_range(memory, 3 * bytes);
		}
		for (loop = 0; loop < NR_LOOPS; loop++) {
			if (is_last)
				mark(MARKER_BEGIN, 0);
			ns[loop] = clock_ns();
			loops[loop](&x);
			ns[loop] = clock_ns() - ns[loop];
			if (is_last)
				mark(MARKER_END, loop);
		}
		if (is_last)
			mark(MARKER_DISARM, 0);
	}
	wrong = check(&x, rounds);
	printf("{\"clock_of_million\": %llu, \"wrong\": %zu, \"bytes\": %zu, \"ns\": {",
	       (unsigned long long)clock_of_million(), wrong, 3 * bytes);
	for (loop = 0; loop < NR_LOOPS; loop++)
		printf("%s\"%s\": %llu", loop ? ", " : "", names[loop],
		       (unsigned long long)ns[loop]);
	printf("}, \"pages\": ");
	print_slices(memory, 3 * bytes, slice);
	printf("}\n");
	return wrong != 0;
}
