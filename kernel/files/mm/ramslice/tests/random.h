/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests of parsers generate their inputs with.
 */
#ifndef __MM_RAMSLICE_TESTS_RANDOM_H
#define __MM_RAMSLICE_TESTS_RANDOM_H

#include <linux/prandom.h>
#include <linux/string.h>

#define NR_INPUTS	20000

static inline u32 ramslice_below(struct rnd_state *rnd, u32 limit)
{
	return prandom_u32_state(rnd) % limit;
}

static inline bool ramslice_one_in(struct rnd_state *rnd, u32 nr)
{
	return !ramslice_below(rnd, nr);
}

/* Of any magnitude, powers of two and their neighbours often. */
static inline u64 ramslice_random_number(struct rnd_state *rnd)
{
	u64 value = (u64)prandom_u32_state(rnd) << 32 | prandom_u32_state(rnd);
	u32 bits = ramslice_below(rnd, 64);

	switch (ramslice_below(rnd, 4)) {
	case 0:
		return value >> bits;
	case 1:
		return BIT_ULL(bits);
	case 2:
		return BIT_ULL(bits) - 1;
	default:
		return BIT_ULL(bits) + ramslice_below(rnd, 4);
	}
}

/* Puts a character somewhere into a string of @size bytes. */
static inline void ramslice_insert_char(struct rnd_state *rnd, char *text,
					size_t size, char c)
{
	size_t len = strlen(text), at = ramslice_below(rnd, len + 1);

	if (len + 2 > size)
		return;
	memmove(text + at + 1, text + at, len + 1 - at);
	text[at] = c;
}

#endif /* __MM_RAMSLICE_TESTS_RANDOM_H */
