// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the command line's parser, with generated inputs. Each is made from
 * parts whose meaning is known, or is one of these with a flaw, so that what
 * must come out is known without parsing. The seed is fixed: failures repeat.
 */

#include <kunit/test.h>
#include "../boot_args.h"
#include "random.h"

static const struct {
	const char *format;
	const char *prefix;
} bases[] = {
	{ "%s%llu", "" },
	{ "%s%llu", "" },
	{ "%s%llx", "0x" },
	{ "%s%llX", "0X" },
	{ "%s%llo", "0" },
	{ "%s%llx", "0x000" },
};

/* A size, its text and its meaning; 0 if it has none. */
static u64 ramslice_make_size(struct rnd_state *rnd, char *text, size_t size)
{
	static const char suffixes[] = "KMGTPEkmgtpe";
	u32 base = ramslice_below(rnd, ARRAY_SIZE(bases));
	u64 value = ramslice_random_number(rnd);
	unsigned int shift = 0;
	char suffix[2] = "";

	if (!ramslice_one_in(rnd, 3)) {
		u32 i = ramslice_below(rnd, sizeof(suffixes) - 1);

		/* After a hexadecimal number it would be a digit */
		if (i % 6 != 5 || bases[base].prefix[0] != '0' ||
		    !bases[base].prefix[1]) {
			suffix[0] = suffixes[i];
			shift = 10 * (i % 6 + 1);
		}
	}
	snprintf(text, size, bases[base].format, bases[base].prefix, value);
	strlcat(text, suffix, size);
	return value > U64_MAX >> shift ? 0 : value << shift;
}

static void ramslice_expect_boot(struct kunit *test, const char *text, u64 bytes)
{
	/* What came before must not show through */
	struct ramslice_boot boot = { .off = true, .slice_bytes = 4096 };
	int err = ramslice_parse_boot(text, &boot);

	if (bytes) {
		KUNIT_EXPECT_EQ_MSG(test, err, 0, "\"%s\"", text);
		KUNIT_EXPECT_EQ_MSG(test, boot.slice_bytes, bytes, "\"%s\"",
				    text);
		KUNIT_EXPECT_FALSE_MSG(test, boot.off, "\"%s\"", text);
	} else {
		KUNIT_EXPECT_LT_MSG(test, err, 0, "\"%s\" was taken", text);
		KUNIT_EXPECT_EQ_MSG(test, boot.slice_bytes, 0, "\"%s\"", text);
		KUNIT_EXPECT_TRUE_MSG(test, boot.off, "\"%s\"", text);
	}
}

static void ramslice_sizes_mean_what_they_say(struct kunit *test)
{
	struct rnd_state rnd;
	char text[64];
	unsigned int i;

	prandom_seed_state(&rnd, 1);
	for (i = 0; i < NR_INPUTS; i++) {
		u64 bytes = ramslice_make_size(&rnd, text, sizeof(text));

		ramslice_expect_boot(test, text, bytes);
	}
}

static void ramslice_sizes_with_a_flaw_are_refused(struct kunit *test)
{
	/* None of these is part of a size, wherever it stands */
	static const char flaws[] = "-+ \t\n,.:;=_/*%'\"()!?hijlnoqrsuvwyzZ\x7f\xff";
	struct rnd_state rnd;
	char text[64];
	unsigned int i;

	prandom_seed_state(&rnd, 2);
	for (i = 0; i < NR_INPUTS; i++) {
		ramslice_make_size(&rnd, text, sizeof(text));
		ramslice_insert_char(&rnd, text, sizeof(text),
				     flaws[ramslice_below(&rnd, sizeof(flaws) - 1)]);
		ramslice_expect_boot(test, text, 0);
	}
}

static void ramslice_sizes_that_do_not_fit_are_refused(struct kunit *test)
{
	static const char * const texts[] = {
		/* 2^64 and 64 MiB, which is 64 MiB to who forgets the carry */
		"18446744073776660480", "17592186044480M", "16777280T",
		"0x10000000004000000", "2000000000000400000000", "17179869184G",
		"16E", "99999999999999999999", "0x1ffffffffffffffff",
		"99999999999999999999999999999999999999999999999999999999999",
		/* and what is no size at all */
		"", "0", "0M", "M", "K", "0x", "0xM", "00", "off ", "On", "offf",
		"64MB", "64MM", "6 4M", "64MiB", "-64M", "+64M", "64M,off",
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(texts); i++)
		ramslice_expect_boot(test, texts[i], 0);
	ramslice_expect_boot(test, "64M", 64ULL << 20);
	ramslice_expect_boot(test, "0x4000000", 64ULL << 20);
	ramslice_expect_boot(test, "18446744073709551615", U64_MAX);
	ramslice_expect_boot(test, "15E", 15ULL << 60);
	/* The E is a digit here, as it always was */
	ramslice_expect_boot(test, "0x10E", 0x10e);
}

static void ramslice_off_and_on_are_about_nothing_else(struct kunit *test)
{
	struct ramslice_boot boot = { .slice_bytes = 4096 };

	KUNIT_EXPECT_EQ(test, ramslice_parse_boot("off", &boot), 0);
	KUNIT_EXPECT_TRUE(test, boot.off);
	KUNIT_EXPECT_EQ(test, boot.slice_bytes, 4096);
	KUNIT_EXPECT_EQ(test, ramslice_parse_boot("on", &boot), 0);
	KUNIT_EXPECT_FALSE(test, boot.off);
	KUNIT_EXPECT_EQ(test, boot.slice_bytes, 4096);
}

static void ramslice_interleaved_slices_mean_what_they_say(struct kunit *test)
{
	static const char * const flawed[] = {
		"64M,", "64M,,", "64M,ways=2", "64M,granularity=4M", "64M,ways=2,",
		"64M,ways=2,granularity=4M,", "64M,ways=2,granularity=4M,ways=2",
		"64M,ways=2,granularity=4M,granularity=4M", "64M,ways,granularity=4M",
		"64M,ways=,granularity=4M", "64M,ways=0,granularity=4M",
		"64M,ways=-2,granularity=4M", "64M,ways=+2,granularity=4M",
		"64M,ways=2,granularity=", "64M,ways=2,granularity=0",
		"64M,ways=2,granularity=4MB", "64M,ways=2;granularity=4M",
		"64M,stride=8M", "off,ways=2,granularity=4M", "64M,ways=2,strict",
		",ways=2,granularity=4M",
		"64M,ways=2,granularity=000000000000000000000000000000000000000000000000004M",
	};
	struct ramslice_boot boot = { .off = true };
	unsigned int i;

	KUNIT_EXPECT_EQ(test,
			ramslice_parse_boot("64M,ways=2,granularity=4M", &boot),
			0);
	KUNIT_EXPECT_FALSE(test, boot.off);
	KUNIT_EXPECT_EQ(test, boot.slice_bytes, 64ULL << 20);
	KUNIT_EXPECT_EQ(test, boot.interleave.ways, 2);
	KUNIT_EXPECT_EQ(test, boot.interleave.granularity_bytes, 4ULL << 20);

	/* The size of before stays, but not how its slices were interleaved */
	KUNIT_EXPECT_EQ(test,
			ramslice_parse_boot("on,granularity=256,ways=4", &boot),
			0);
	KUNIT_EXPECT_EQ(test, boot.slice_bytes, 64ULL << 20);
	KUNIT_EXPECT_EQ(test, boot.interleave.ways, 4);
	KUNIT_EXPECT_EQ(test, boot.interleave.granularity_bytes, 256);
	KUNIT_EXPECT_EQ(test, ramslice_parse_boot("on", &boot), 0);
	KUNIT_EXPECT_EQ(test, boot.interleave.ways, 0);

	for (i = 0; i < ARRAY_SIZE(flawed); i++) {
		boot = (struct ramslice_boot) { .off = true };
		KUNIT_EXPECT_LT_MSG(test, ramslice_parse_boot(flawed[i], &boot),
				    0, "\"%s\"", flawed[i]);
		KUNIT_EXPECT_TRUE_MSG(test, boot.off, "\"%s\"", flawed[i]);
		KUNIT_EXPECT_EQ_MSG(test, boot.slice_bytes, 0, "\"%s\"",
				    flawed[i]);
		KUNIT_EXPECT_EQ_MSG(test, boot.interleave.ways, 0, "\"%s\"",
				    flawed[i]);
	}
}

static void ramslice_cold_sizes_mean_what_they_say(struct kunit *test)
{
	static const char * const flawed[] = {
		"", ",strict", "strict", "2G,", "2G,strict,", "2G,lax", "2G strict", "-1",
		"0x", "00000000000000000000000000000000000000001G",
	};
	struct ramslice_cold_boot cold = { .bytes = 1, .strict = true };
	unsigned int i;

	KUNIT_EXPECT_EQ(test, ramslice_parse_cold("0", &cold), 0);
	KUNIT_EXPECT_EQ(test, cold.bytes, 0);
	KUNIT_EXPECT_FALSE(test, cold.strict);
	KUNIT_EXPECT_EQ(test, ramslice_parse_cold("2G,strict", &cold), 0);
	KUNIT_EXPECT_EQ(test, cold.bytes, 2ULL << 30);
	KUNIT_EXPECT_TRUE(test, cold.strict);
	for (i = 0; i < ARRAY_SIZE(flawed); i++)
		KUNIT_EXPECT_EQ_MSG(test, ramslice_parse_cold(flawed[i], &cold),
				    -EINVAL, "\"%s\"", flawed[i]);
	KUNIT_EXPECT_EQ(test, ramslice_parse_cold("16E", &cold), -ERANGE);
	/* What is wrong changes nothing */
	KUNIT_EXPECT_EQ(test, cold.bytes, 2ULL << 30);
	KUNIT_EXPECT_TRUE(test, cold.strict);
}

static struct kunit_case ramslice_boot_args_cases[] = {
	KUNIT_CASE_SLOW(ramslice_sizes_mean_what_they_say),
	KUNIT_CASE_SLOW(ramslice_sizes_with_a_flaw_are_refused),
	KUNIT_CASE(ramslice_sizes_that_do_not_fit_are_refused),
	KUNIT_CASE(ramslice_off_and_on_are_about_nothing_else),
	KUNIT_CASE(ramslice_interleaved_slices_mean_what_they_say),
	KUNIT_CASE(ramslice_cold_sizes_mean_what_they_say),
	{}
};

static struct kunit_suite ramslice_boot_args_suite = {
	.name = "ramslice_boot_args",
	.test_cases = ramslice_boot_args_cases,
};

kunit_test_suite(ramslice_boot_args_suite);
