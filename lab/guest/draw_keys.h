/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keys drawn at random, some more often than others: by Zipf's law, or four
 * fifths of them from one fifth of the keys.
 *
 * The rank of a key is how many are drawn at least as often. Ranks are
 * scattered over the keys, so that neighbours are not equally popular.
 */
#ifndef RAMSLICE_DRAW_KEYS_H
#define RAMSLICE_DRAW_KEYS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "pattern.h"

/* A prime beyond every number of keys: ranks times this, modulo the keys, are all keys once */
#define SCATTER		4294967291ULL
#define ZIPF_EXPONENT	0.95

/**
 * struct draw - a sequence of draws
 * @state:	SplitMix64's
 * @nr_keys:	ranks are from 0 to below this
 * @is_zipf:	otherwise, four fifths are of one fifth
 * @from, @to, @always: what Zipf draws work out once, see draw_zipf()
 */
struct draw {
	uint64_t state;
	uint32_t nr_keys;
	bool is_zipf;
	double from, to, always;
};

static inline uint64_t draw_bits(struct draw *draw)
{
	return mix(draw->state += GOLDEN);
}

/* From 0 to below 1. */
static inline double draw_fraction(struct draw *draw)
{
	return (draw_bits(draw) >> 11) * 0x1p-53;
}

static inline uint32_t draw_below(struct draw *draw, uint32_t limit)
{
	return (draw_bits(draw) >> 32) * limit >> 32;
}

/* The integral of x^-s from 1 on, and its inverse. */
static inline double zipf_integral(double x)
{
	return (pow(x, 1 - ZIPF_EXPONENT) - 1) / (1 - ZIPF_EXPONENT);
}

static inline double zipf_inverse(double y)
{
	return pow(1 + y * (1 - ZIPF_EXPONENT), 1 / (1 - ZIPF_EXPONENT));
}

static inline void draw_init(struct draw *draw, uint64_t seed, uint32_t nr_keys, bool is_zipf)
{
	*draw = (struct draw) {
		.state = mix(seed), .nr_keys = nr_keys, .is_zipf = is_zipf,
		.from = zipf_integral(1.5) - 1,
		.to = zipf_integral(nr_keys + 0.5),
		.always = 2 - zipf_inverse(zipf_integral(2.5) - pow(2, -ZIPF_EXPONENT)),
	};
}

/*
 * A rank by Zipf's law, in constant time and memory: rejection by inversion of
 * the integral (Hörmann and Derflinger 1996). A point is drawn evenly below the
 * integral; the whole number next to it is taken if the point is within that
 * number's own bar of the histogram, which nearly all are.
 */
static inline uint32_t draw_zipf(struct draw *draw)
{
	for (;;) {
		double y = draw->to + draw_fraction(draw) * (draw->from - draw->to);
		double x = zipf_inverse(y), k = floor(x + 0.5);

		if (k < 1)
			k = 1;
		if (k > draw->nr_keys)
			k = draw->nr_keys;
		if (k - x <= draw->always ||
		    y >= zipf_integral(k + 0.5) - pow(k, -ZIPF_EXPONENT))
			return k - 1;
	}
}

static inline uint32_t draw_rank(struct draw *draw)
{
	uint32_t popular = draw->nr_keys / 5;

	if (draw->is_zipf)
		return draw_zipf(draw);
	if (popular && draw_below(draw, 5))
		return draw_below(draw, popular);
	return popular + draw_below(draw, draw->nr_keys - popular);
}

static inline uint32_t key_of_rank(const struct draw *draw, uint32_t rank)
{
	return rank * (SCATTER % draw->nr_keys) % draw->nr_keys;
}

#endif
