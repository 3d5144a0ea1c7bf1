/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What reaches DRAM of a program's loads and stores: a model of two caches,
 * and counts by slice of what misses them.
 *
 * Both caches write back, allocate on a store, and replace the line of a set
 * that was used longest ago. The second neither includes the first nor
 * excludes it:
 *
 *  1. A line that the first does not have is looked up in the second, and
 *     brought there from DRAM if that does not have it, either.
 *  2. It then replaces a line of the first. If that was written to, it goes to
 *     the second, and takes a place there if it has none.
 *
 * DRAM is read by (1) and written when a line that was written to leaves the
 * second. Addresses are physical, and times nanoseconds.
 *
 * No call here depends on QEMU: replay_trace.c is the same for a recorded trace.
 */
#ifndef RAMSLICE_CACHE_MODEL_H
#define RAMSLICE_CACHE_MODEL_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_SHIFT	6
#define MAX_WAYS	64
/* Kinds of data that are counted apart: 0 is what no range names */
#define NR_CLASSES	8
/* Buckets of gaps, four to an octave: see gap_bucket() */
#define NR_BUCKETS	252

/*
 * A line in a set: its number, which is its address over the size of a line,
 * its class, and whether it was written to. Zero is an empty way.
 */
#define LINE_DIRTY	1ULL
#define LINE_CLASS	(7ULL << 1)
#define LINE_VALID	16ULL
#define LINE_NUMBER_SHIFT 5

/**
 * struct cache - one level
 * @ways:	ways of a set
 * @nr_sets:	a power of two
 * @lines:	all ways of the first set, last used first; then of the next
 */
struct cache {
	unsigned int ways;
	uint64_t nr_sets;
	uint64_t *lines;
};

/**
 * struct slice_accesses - what reached the DRAM of a slice
 * @reads, @writes:	lines, by class
 * @last_ns:		when the last one was
 * @gaps:		how many gaps between accesses are in a bucket
 * @gaps_ns:		and how long they are together
 */
struct slice_accesses {
	uint64_t reads[NR_CLASSES];
	uint64_t writes[NR_CLASSES];
	uint64_t last_ns;
	uint64_t gaps[NR_BUCKETS];
	uint64_t gaps_ns[NR_BUCKETS];
};

/**
 * struct dram_model - both caches, and the slices below them
 * @began_ns:	when counting began, which is the beginning of the first gap
 * @loads, @stores: lines that instructions accessed
 * @l1_misses:	of these, what the first cache did not have
 * @beyond:	accesses to addresses above the last slice, which are in no count
 */
struct dram_model {
	struct cache l1, l2;
	uint64_t slice_bytes;
	unsigned int nr_slices;
	struct slice_accesses *slices;
	uint64_t began_ns;
	uint64_t loads, stores, l1_misses, beyond;
};

/*
 * The bucket of a gap. Each octave from 4 ns on has four, of equal width; below
 * that, each nanosecond is one.
 */
static inline unsigned int gap_bucket(uint64_t ns)
{
	unsigned int octave;

	if (ns < 4)
		return ns;
	octave = 63 - __builtin_clzll(ns);
	return 4 * (octave - 1) + ((ns >> (octave - 2)) & 3);
}

/* The shortest gap of a bucket, in ns. */
static inline uint64_t gap_bucket_from(unsigned int bucket)
{
	if (bucket < 4)
		return bucket;
	return (4ULL + bucket % 4) << (bucket / 4 - 1);
}

/* False if no such cache can be: sets must be a power of two. */
static inline bool cache_init(struct cache *cache, uint64_t bytes, unsigned int ways)
{
	uint64_t nr_lines = bytes >> LINE_SHIFT;

	if (!ways || ways > MAX_WAYS || !nr_lines || nr_lines % ways)
		return false;
	cache->ways = ways;
	cache->nr_sets = nr_lines / ways;
	if (cache->nr_sets & (cache->nr_sets - 1))
		return false;
	cache->lines = calloc(nr_lines, sizeof(*cache->lines));
	return cache->lines;
}

static inline void cache_clear(struct cache *cache)
{
	memset(cache->lines, 0, cache->nr_sets * cache->ways * sizeof(*cache->lines));
}

/*
 * Uses a line, which is as a way holds it, and leaves it first of its set. What
 * it adds, dirt and a class, stays. Returns whether the line was there; if not,
 * @victim is the way that it replaced.
 */
static inline bool cache_use(struct cache *cache, uint64_t line, uint64_t *victim)
{
	uint64_t number = line >> LINE_NUMBER_SHIFT;
	uint64_t *set = cache->lines + (number & (cache->nr_sets - 1)) * cache->ways;
	unsigned int way, last = cache->ways - 1;
	uint64_t found;

	for (way = 0; way < last; way++)
		if (set[way] >> LINE_NUMBER_SHIFT == number && set[way] & LINE_VALID)
			break;
	found = set[way];
	if (way)
		memmove(set + 1, set, way * sizeof(*set));
	if (found >> LINE_NUMBER_SHIFT == number && found & LINE_VALID) {
		if (line & LINE_CLASS)
			found &= ~LINE_CLASS;
		set[0] = found | line;
		return true;
	}
	set[0] = line;
	*victim = found;
	return false;
}

static inline void count_dram(struct dram_model *model, uint64_t line, bool is_write,
			      uint64_t now_ns)
{
	uint64_t slice = (line >> LINE_NUMBER_SHIFT << LINE_SHIFT) / model->slice_bytes;
	unsigned int kind = (line & LINE_CLASS) >> 1, bucket;
	struct slice_accesses *at;
	uint64_t gap;

	if (slice >= model->nr_slices) {
		model->beyond++;
		return;
	}
	at = model->slices + slice;
	if (is_write)
		at->writes[kind]++;
	else
		at->reads[kind]++;
	gap = now_ns > at->last_ns ? now_ns - at->last_ns : 0;
	bucket = gap_bucket(gap);
	at->gaps[bucket]++;
	at->gaps_ns[bucket] += gap;
	at->last_ns += gap;
}

/* Uses a line in the second cache, and counts what that takes of DRAM. */
static inline void use_l2(struct dram_model *model, uint64_t line, bool is_fill, uint64_t now_ns)
{
	uint64_t victim;

	if (cache_use(&model->l2, line, &victim))
		return;
	if (is_fill)
		count_dram(model, line, false, now_ns);
	if (victim & LINE_DIRTY)
		count_dram(model, victim, true, now_ns);
}

/* A load or store of one line. */
static inline void access_line(struct dram_model *model, uint64_t number, bool is_store,
			       unsigned int kind, uint64_t now_ns)
{
	uint64_t line = number << LINE_NUMBER_SHIFT | LINE_VALID | (uint64_t)kind << 1;
	uint64_t victim;

	if (is_store)
		model->stores++;
	else
		model->loads++;
	if (cache_use(&model->l1, line | (is_store ? LINE_DIRTY : 0), &victim))
		return;
	model->l1_misses++;
	use_l2(model, line, true, now_ns);
	if (victim & LINE_DIRTY)
		use_l2(model, victim, false, now_ns);
}

/* A load or store of so many bytes at a physical address, which may be of two lines. */
static inline void access_bytes(struct dram_model *model, uint64_t address, unsigned int bytes,
				bool is_store, unsigned int kind, uint64_t now_ns)
{
	uint64_t number, last = (address + bytes - 1) >> LINE_SHIFT;

	for (number = address >> LINE_SHIFT; number <= last; number++)
		access_line(model, number, is_store, kind, now_ns);
}

/* Empties caches and counts; gaps begin now. */
static inline void dram_model_begin(struct dram_model *model, uint64_t now_ns)
{
	unsigned int i;

	cache_clear(&model->l1);
	cache_clear(&model->l2);
	memset(model->slices, 0, model->nr_slices * sizeof(*model->slices));
	for (i = 0; i < model->nr_slices; i++)
		model->slices[i].last_ns = now_ns;
	model->began_ns = now_ns;
	model->loads = model->stores = model->l1_misses = model->beyond = 0;
}

/*
 * Sizes in bytes; nr_slices slices from address 0 on. Returns what cannot be, in
 * words, or NULL.
 */
static inline const char *dram_model_init(struct dram_model *model, uint64_t l1_bytes,
					  unsigned int l1_ways, uint64_t l2_bytes,
					  unsigned int l2_ways, uint64_t slice_bytes,
					  unsigned int nr_slices)
{
	if (!cache_init(&model->l1, l1_bytes, l1_ways))
		return "l1, l1_ways: sets of 1 to 64 ways must be a power of two";
	if (!cache_init(&model->l2, l2_bytes, l2_ways))
		return "l2, l2_ways: sets of 1 to 64 ways must be a power of two";
	if (slice_bytes < 1 << LINE_SHIFT || !nr_slices)
		return "slice, slices: slices of at least 64 bytes, and at least one";
	model->slice_bytes = slice_bytes;
	model->nr_slices = nr_slices;
	model->slices = calloc(nr_slices, sizeof(*model->slices));
	if (!model->slices)
		return "slices: too many for the memory here";
	dram_model_begin(model, 0);
	return NULL;
}

static inline void print_classes(FILE *out, const char *name, const uint64_t *values)
{
	unsigned int i;

	fprintf(out, "\"%s\": [", name);
	for (i = 0; i < NR_CLASSES; i++)
		fprintf(out, "%s%" PRIu64, i ? ", " : "", values[i]);
	fprintf(out, "], ");
}

/*
 * Ends counting and writes a line of JSON: what all accesses were, and for each
 * slice with any, lines read and written by class, and gaps as [shortest of the
 * bucket, how many, ns together]. What is left of the time after the last
 * access is a gap, too, so a slice's gaps are together as long as the time.
 */
static inline void dram_model_end(struct dram_model *model, FILE *out, uint64_t label,
				  uint64_t now_ns)
{
	const char *comma = "";
	unsigned int i, bucket;

	fprintf(out, "{\"label\": %" PRIu64 ", \"ns\": %" PRIu64 ", \"slice_bytes\": %" PRIu64
		", \"loads\": %" PRIu64 ", \"stores\": %" PRIu64 ", \"l1_misses\": %" PRIu64
		", \"beyond\": %" PRIu64 ", \"slices\": [", label, now_ns - model->began_ns,
		model->slice_bytes, model->loads, model->stores, model->l1_misses, model->beyond);
	for (i = 0; i < model->nr_slices; i++) {
		struct slice_accesses *at = model->slices + i;
		const char *between = "";
		uint64_t any = 0;

		for (bucket = 0; bucket < NR_BUCKETS; bucket++)
			any += at->gaps[bucket];
		if (!any)
			continue;
		bucket = gap_bucket(now_ns - at->last_ns);
		at->gaps[bucket]++;
		at->gaps_ns[bucket] += now_ns - at->last_ns;
		fprintf(out, "%s\n{\"slice\": %u, ", comma, i);
		print_classes(out, "reads", at->reads);
		print_classes(out, "writes", at->writes);
		fprintf(out, "\"gaps\": [");
		for (bucket = 0; bucket < NR_BUCKETS; bucket++)
			if (at->gaps[bucket]) {
				fprintf(out, "%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", between,
					gap_bucket_from(bucket), at->gaps[bucket],
					at->gaps_ns[bucket]);
				between = ", ";
			}
		fprintf(out, "]}");
		comma = ",";
	}
	fprintf(out, "]}\n");
	fflush(out);
}

#endif
