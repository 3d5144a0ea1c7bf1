/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an input is: the numbers that its maker draws, one after the other.
 *
 * They come from a seed and the input's number. Steps change them: a mutated
 * input is another one's numbers but for a few. So its maker still knows what
 * should come of it, and a line of text is enough to have it again:
 *
 *	1:4711			the input with number 4711 of seed 1
 *	1:4711+3=9		the same, but the number drawn fourth is 9
 *	1:4711+3=9+7~12		and from the eighth on they are those of input 12
 */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pattern.h"

#define MAX_STEPS	12
/* Longest text: two numbers, and a position and a number per step. */
#define INPUT_TEXT	(48 + MAX_STEPS * 32)

/**
 * struct step - a change to the numbers that an input is made of
 * @at: how many are drawn before
 * @rest: all that follow are those of the input with number @value
 * @value: otherwise, what is drawn instead
 */
struct step {
	uint32_t at;
	bool rest;
	uint64_t value;
};

struct input {
	uint64_t seed, number;
	uint32_t nr_steps;
	struct step step[MAX_STEPS];
};

/* The input being made, and how many numbers it has drawn. */
static struct input now;
static uint32_t nr_drawn;
static uint64_t rng_base;

static uint64_t base_of(uint64_t seed, uint64_t number)
{
	return mix(seed * GOLDEN + number);
}

static void rnd_begin(const struct input *input)
{
	now = *input;
	nr_drawn = 0;
	rng_base = base_of(now.seed, now.number);
}

/* The next number of the input being made. */
static uint64_t rnd(void)
{
	uint32_t at = nr_drawn++, i;
	bool given = false;
	uint64_t value = 0;

	for (i = 0; i < now.nr_steps; i++) {
		const struct step *step = &now.step[i];

		if (step->at != at)
			continue;
		if (step->rest)
			rng_base = base_of(now.seed, step->value);
		else
			value = step->value;
		given = !step->rest;
	}
	return given ? value : mix(rng_base + (at + 1) * GOLDEN);
}

/* As text that parse_input() takes; the next call overwrites it. */
static const char *input_text(const struct input *input)
{
	static char text[INPUT_TEXT];
	int len = snprintf(text, sizeof(text), "%" PRIu64 ":%" PRIu64, input->seed, input->number);
	uint32_t i;

	for (i = 0; i < input->nr_steps; i++)
		len += snprintf(text + len, sizeof(text) - len, "+%" PRIu32 "%c%" PRIu64,
				input->step[i].at, input->step[i].rest ? '~' : '=',
				input->step[i].value);
	return text;
}

/* False: the text is no input. */
static bool parse_input(const char *text, struct input *input)
{
	char *end;

	*input = (struct input){ .seed = strtoull(text, &end, 10) };
	if (end == text || *end != ':')
		return false;
	text = end + 1;
	input->number = strtoull(text, &end, 10);
	if (end == text)
		return false;
	while (*end == '+') {
		struct step *step = &input->step[input->nr_steps];

		if (input->nr_steps++ == MAX_STEPS)
			return false;
		text = end + 1;
		step->at = strtoul(text, &end, 10);
		if (end == text || (*end != '=' && *end != '~'))
			return false;
		step->rest = *end == '~';
		text = end + 1;
		step->value = strtoull(text, &end, 10);
		if (end == text)
			return false;
	}
	return !*end;
}

#endif
