/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a page must hold, given a seed, its index and its generation: how often
 * it was written. Generation 0 reads as zeroes.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#define PAGE		4096UL
#define WORDS		(PAGE / sizeof(uint64_t))
#define GOLDEN		0x9e3779b97f4a7c15ULL

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/**
 * struct pattern - a page's words: @first, and each @step more than the last
 */
struct pattern {
	uint64_t first;
	uint64_t step;
};

static inline struct pattern pattern_of(uint64_t seed, size_t page, uint32_t gen)
{
	if (!gen)
		return (struct pattern) { 0, 0 };
	return (struct pattern) {
		.first = mix(seed ^ mix(page * 2654435761ULL + ((uint64_t)gen << 32))),
		.step = GOLDEN,
	};
}

static inline void pattern_fill(void *to, struct pattern p)
{
	uint64_t *word = to, value = p.first;
	size_t i;

	for (i = 0; i < WORDS; i++, value += p.step)
		word[i] = value;
}

/*
 * Number of words that are wrong. The first @max_reports are printed to
 * stderr behind @who.
 */
static inline uint64_t pattern_check(const void *from, struct pattern p, const char *who,
				     size_t page, unsigned int max_reports)
{
	const volatile uint64_t *again = from;
	const uint64_t *word = from;
	uint64_t value = p.first, differs = 0, nr = 0;
	size_t i;

	for (i = 0; i < WORDS; i++, value += p.step)
		differs |= word[i] ^ value;
	if (!differs)
		return 0;

	for (i = 0, value = p.first; i < WORDS; i++, value += p.step) {
		uint64_t seen = again[i];

		if (seen != value && nr++ < max_reports)
			fprintf(stderr,
				"memload: %s: page %zu word %zu: expected %016" PRIx64
				", found %016" PRIx64 "\n",
				who, page, i, value, seen);
	}
	/* Wrong a moment ago and right now is wrong all the same */
	if (!nr)
		fprintf(stderr,
			"memload: %s: page %zu: wrong when first read, right when read again\n",
			who, page);
	return nr ? nr : 1;
}

#endif /* PATTERN_H */
