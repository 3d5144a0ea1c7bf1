// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * quicksort - sorts one array of integers that fills the memory of a process.
 *
 *   quicksort ELEMENTS SEED
 *
 * The array has ELEMENTS random integers of 64 bits. Prints a line of JSON: the
 * seconds that sorting took, whether the array is in order, and two sums: of
 * the elements, which sorting must not change, and of the elements times their
 * places, which two orders do not share by chance. The status is 1 if the array
 * is out of order or the first sum has changed, 2 if it could not run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "pattern.h"

/* Below this many elements, insertion is faster than partition */
#define FEW	16

static void insert(uint64_t *a, size_t nr)
{
	size_t i, j;

	for (i = 1; i < nr; i++) {
		uint64_t value = a[i];

		for (j = i; j && a[j - 1] > value; j--)
			a[j] = a[j - 1];
		a[j] = value;
	}
}

static uint64_t median(uint64_t x, uint64_t y, uint64_t z)
{
	if (x > y) {
		uint64_t t = x;

		x = y;
		y = t;
	}
	return z < x ? x : z > y ? y : z;
}

/* Hoare's partition; the longer part is sorted by the loop, so that the stack stays small. */
static void quicksort(uint64_t *a, size_t nr)
{
	while (nr > FEW) {
		uint64_t pivot = median(a[0], a[nr / 2], a[nr - 1]);
		size_t i = 0, j = nr - 1;

		for (;;) {
			while (a[i] < pivot)
				i++;
			while (a[j] > pivot)
				j--;
			if (i >= j)
				break;
			uint64_t t = a[i];

			a[i++] = a[j];
			a[j--] = t;
		}
		/* a[..i) is at most the pivot, a[i..] at least */
		if (i < nr - i) {
			quicksort(a, i);
			a += i;
			nr -= i;
		} else {
			quicksort(a + i, nr - i);
			nr = i;
		}
	}
	insert(a, nr);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	uint64_t seed, before = 0, after = 0, places = 0;
	bool in_order = true;
	size_t nr, i;
	uint64_t *a;
	double began, took;

	nr = argc == 3 ? strtoull(argv[1], NULL, 0) : 0;
	if (!nr) {
		fprintf(stderr, "usage: quicksort ELEMENTS SEED, with ELEMENTS of 1 or more\n");
		return 2;
	}
	seed = strtoull(argv[2], NULL, 0);
	a = mmap(NULL, nr * sizeof(*a), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a == MAP_FAILED) {
		fprintf(stderr, "quicksort: %zu elements: %s\n", nr, strerror(errno));
		return 2;
	}
	for (i = 0; i < nr; i++) {
		a[i] = mix((seed << 40) + i);
		before += a[i];
	}
	began = seconds();
	quicksort(a, nr);
	took = seconds() - began;
	for (i = 0; i < nr; i++) {
		after += a[i];
		places += a[i] * (i + 1);
		in_order = in_order && (!i || a[i - 1] <= a[i]);
	}
	printf("{\"work_s\": %.9f, \"in_order\": %s, \"elements\": %zu, \"sum\": %" PRIu64
	       ", \"sum_by_place\": %" PRIu64 "}\n",
	       took, in_order ? "true" : "false", nr, after, places);
	return !in_order || before != after;
}
