// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * page_accesses - values of 1 KiB in one area that asks for nothing, read at a rate
 * by keys that are drawn at random, and which node their pages are on.
 *
 *   page_accesses KEYS KTPS WARM_S WINDOW_S SEED
 *
 * It reads for WARM_S seconds, and then for WINDOW_S, KTPS thousand values a second;
 * every fifth is written, too. Between transactions it sleeps. The TLB is flushed
 * four times a second: a processor sets a page's accessed bit when it fills its TLB,
 * which an emulated one hardly ever empties.
 *
 * Prints a line of JSON: after the first second of the warm-up, and each ten seconds
 * from then on, the pages on other nodes than 0; of the window the accesses, those to
 * pages that were there at its beginning and at its end (each counts half), and those
 * that the same number of pages would have had if they were the ones accessed most
 * rarely, by the law of the draw. Each value is checked when it is read; the status
 * is 1 if any was wrong.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "access_marker.h"
#include "draw_keys.h"

#define VALUE_BYTES	1024UL
#define VALUE_WORDS	(VALUE_BYTES / sizeof(uint64_t))
#define PAGE		4096UL
#define PER_PAGE	(PAGE / VALUE_BYTES)
#define WRITE_ODDS	5
#define NS		1000000000ULL
/* Seconds between two looks where the pages are */
#define SHOWN_S		10
/* More pages than the kernel flushes one by one */
#define FLUSHED_PAGES	64

static uint64_t *values;
static uint32_t *accesses;
static size_t nr_pages;
static uint64_t wrong;

static void fill(uint32_t key, uint64_t word)
{
	size_t i;

	for (i = 0; i < VALUE_WORDS; i++)
		values[key * VALUE_WORDS + i] = word + i;
}

static void use(uint32_t key, bool is_write)
{
	uint64_t *value = values + key * VALUE_WORDS, differs = 0;
	size_t i;

	for (i = 0; i < VALUE_WORDS; i++)
		differs |= value[i] ^ (value[0] + i);
	wrong += differs || (uint32_t)value[0] != key;
	if (is_write)
		fill(key, value[0] + (1ULL << 32));
	accesses[key / PER_PAGE]++;
}

static void flush_tlb(void)
{
	static char *pages;
	size_t i;

	if (!pages) {
		pages = map_memory(FLUSHED_PAGES * PAGE, false);
		for (i = 0; i < FLUSHED_PAGES; i++)
			pages[i * PAGE] = 1;
	}
	if (mprotect(pages, FLUSHED_PAGES * PAGE, PROT_READ) ||
	    mprotect(pages, FLUSHED_PAGES * PAGE, PROT_READ | PROT_WRITE))
		fail("mprotect");
}

/* Nodes of all pages; returns how many are not on node 0. */
static size_t locate(int *nodes)
{
	enum { CHUNK = 4096 };
	static void *pages[CHUNK];
	size_t i, j, nr, away = 0;

	for (i = 0; i < nr_pages; i += nr) {
		nr = nr_pages - i < CHUNK ? nr_pages - i : CHUNK;
		for (j = 0; j < nr; j++)
			pages[j] = (char *)values + (i + j) * PAGE;
		if (syscall(SYS_move_pages, 0, nr, pages, NULL, nodes + i, 0))
			fail("move_pages");
		for (j = 0; j < nr; j++)
			away += nodes[i + j] > 0;
	}
	return away;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec left = { ns / NS, ns % NS };

	if (nanosleep(&left, NULL))
		fail("nanosleep");
}

/* Transactions of a quarter of a second at a rate. */
static void quarter(struct draw *draw, uint64_t ktps)
{
	uint64_t i, now, due, began = clock_ns(), nr = ktps * 250;

	flush_tlb();
	for (i = 0; i < nr; i++) {
		due = began + i * 1000000 / ktps;
		now = clock_ns();
		if (now < due)
			sleep_ns(due - now);
		use(key_of_rank(draw, draw_rank(draw)), !draw_below(draw, WRITE_ODDS));
	}
}

static int rarest_first(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The share of accesses that so many pages would have: the rarest, by Zipf's law. */
static double clairvoyant(struct draw *draw, uint32_t nr_keys, double nr_cold)
{
	double *weight = calloc(nr_pages, sizeof(*weight)), all = 0, part = 0, w;
	uint32_t rank;
	size_t i;

	if (!weight)
		fail("memory");
	for (rank = 0; rank < nr_keys; rank++) {
		w = pow(rank + 1.0, -ZIPF_EXPONENT);
		weight[key_of_rank(draw, rank) / PER_PAGE] += w;
		all += w;
	}
	qsort(weight, nr_pages, sizeof(*weight), rarest_first);
	for (i = 0; i < nr_pages && i < nr_cold; i++)
		part += weight[i];
	free(weight);
	return part / all;
}

int main(int argc, char **argv)
{
	uint64_t keys, ktps, warm, window, i, all = 0, began, ended;
	double inside = 0, average;
	int *before, *after;
	struct draw draw;
	size_t page;

	if (argc != 6) {
		fprintf(stderr, "usage: page_accesses KEYS KTPS WARM_S WINDOW_S SEED\n");
		return 2;
	}
	keys = strtoull(argv[1], NULL, 10) / PER_PAGE * PER_PAGE;
	ktps = strtoull(argv[2], NULL, 10);
	warm = strtoull(argv[3], NULL, 10);
	window = strtoull(argv[4], NULL, 10);
	if (!keys || keys > UINT32_MAX || !ktps || !window) {
		fprintf(stderr, "page_accesses: keys, ktps and window: expected at least 1\n");
		return 2;
	}
	nr_pages = keys / PER_PAGE;
	values = map_memory(keys * VALUE_BYTES, false);
	/* Pages move one by one */
	if (madvise(values, keys * VALUE_BYTES, MADV_NOHUGEPAGE))
		fail("madvise");
	accesses = calloc(nr_pages, sizeof(*accesses));
	before = calloc(nr_pages, sizeof(*before));
	after = calloc(nr_pages, sizeof(*after));
	if (!accesses || !before || !after)
		fail("memory");
	for (i = 0; i < keys; i++)
		fill(i, i);
	/* Sleeps end when they should */
	if (prctl(PR_SET_TIMERSLACK, 1))
		fail("prctl");
	draw_init(&draw, strtoull(argv[5], NULL, 10), keys, true);
	printf("{\"clock_of_million\": %" PRIu64 ", \"pages\": %zu, \"away\": [",
	       clock_of_million(), nr_pages);
	for (i = 0; i < warm; i++) {
		for (int j = 0; j < 4; j++)
			quarter(&draw, ktps);
		if (i % SHOWN_S == 0)
			printf("%s%zu", i ? ", " : "", locate(before));
	}
	average = locate(before);
	memset(accesses, 0, nr_pages * sizeof(*accesses));
	began = clock_ns();
	for (i = 0; i < 4 * window; i++)
		quarter(&draw, ktps);
	ended = clock_ns();
	average = (average + locate(after)) / 2;
	for (page = 0; page < nr_pages; page++) {
		all += accesses[page];
		inside += accesses[page] * ((before[page] > 0) + (after[page] > 0)) / 2.0;
	}
	printf("], \"ns\": %" PRIu64 ", \"accesses\": %" PRIu64 ", \"cold\": %.1f, "
	       "\"pages_away\": %.1f, \"clairvoyant_share\": %.8f, \"wrong\": %" PRIu64 "}\n",
	       ended - began, all, inside, average, clairvoyant(&draw, keys, average), wrong);
	return wrong != 0;
}
