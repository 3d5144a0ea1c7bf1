// SPDX-License-Identifier: GPL-2.0
/*
 * The parsers fed with generated inputs. Each is made from parts whose meaning
 * is known, or is one of these with a flaw, so that what must come out is
 * known without parsing. The seed is fixed: failures repeat.
 */

#include <kunit/test.h>
#include <linux/math64.h>
#include <linux/prandom.h>
#include "../internal.h"
#include "../parse.h"

#define NR_INPUTS	20000

static u32 below(struct rnd_state *rnd, u32 limit)
{
	return prandom_u32_state(rnd) % limit;
}

static bool one_in(struct rnd_state *rnd, u32 nr)
{
	return !below(rnd, nr);
}

/* Of any magnitude, powers of two and their neighbours often. */
static u64 number(struct rnd_state *rnd)
{
	u64 value = (u64)prandom_u32_state(rnd) << 32 | prandom_u32_state(rnd);
	u32 bits = below(rnd, 64);

	switch (below(rnd, 4)) {
	case 0:
		return value >> bits;
	case 1:
		return BIT_ULL(bits);
	case 2:
		return BIT_ULL(bits) - 1;
	default:
		return BIT_ULL(bits) + below(rnd, 4);
	}
}

/* Puts a character somewhere into a string of @size bytes. */
static void insert(struct rnd_state *rnd, char *text, size_t size, char c)
{
	size_t len = strlen(text), at = below(rnd, len + 1);

	if (len + 2 > size)
		return;
	memmove(text + at + 1, text + at, len + 1 - at);
	text[at] = c;
}

/* --- ramslice= on the command line ---------------------------------------- */

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
static u64 make_size(struct rnd_state *rnd, char *text, size_t size)
{
	static const char suffixes[] = "KMGTPEkmgtpe";
	u32 base = below(rnd, ARRAY_SIZE(bases));
	u64 value = number(rnd);
	unsigned int shift = 0;
	char suffix[2] = "";

	if (!one_in(rnd, 3)) {
		u32 i = below(rnd, sizeof(suffixes) - 1);

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

static void expect_boot(struct kunit *test, const char *text, u64 bytes)
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

static void sizes_mean_what_they_say(struct kunit *test)
{
	struct rnd_state rnd;
	char text[64];
	unsigned int i;

	prandom_seed_state(&rnd, 1);
	for (i = 0; i < NR_INPUTS; i++) {
		u64 bytes = make_size(&rnd, text, sizeof(text));

		expect_boot(test, text, bytes);
	}
}

static void sizes_with_a_flaw_are_refused(struct kunit *test)
{
	/* None of these is part of a size, wherever it stands */
	static const char flaws[] = "-+ \t\n,.:;=_/*%'\"()!?hijlnoqrsuvwyzZ\x7f\xff";
	struct rnd_state rnd;
	char text[64];
	unsigned int i;

	prandom_seed_state(&rnd, 2);
	for (i = 0; i < NR_INPUTS; i++) {
		make_size(&rnd, text, sizeof(text));
		insert(&rnd, text, sizeof(text),
		       flaws[below(&rnd, sizeof(flaws) - 1)]);
		expect_boot(test, text, 0);
	}
}

static void sizes_that_do_not_fit_are_refused(struct kunit *test)
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
		expect_boot(test, texts[i], 0);
	expect_boot(test, "64M", 64ULL << 20);
	expect_boot(test, "0x4000000", 64ULL << 20);
	expect_boot(test, "18446744073709551615", U64_MAX);
	expect_boot(test, "15E", 15ULL << 60);
	/* The E is a digit here, as it always was */
	expect_boot(test, "0x10E", 0x10e);
}

static void off_and_on_are_about_nothing_else(struct kunit *test)
{
	struct ramslice_boot boot = { .slice_bytes = 4096 };

	KUNIT_EXPECT_EQ(test, ramslice_parse_boot("off", &boot), 0);
	KUNIT_EXPECT_TRUE(test, boot.off);
	KUNIT_EXPECT_EQ(test, boot.slice_bytes, 4096);
	KUNIT_EXPECT_EQ(test, ramslice_parse_boot("on", &boot), 0);
	KUNIT_EXPECT_FALSE(test, boot.off);
	KUNIT_EXPECT_EQ(test, boot.slice_bytes, 4096);
}

/* --- debugfs commands ----------------------------------------------------- */

/* A word after any white space there can be; @first: there may be none. */
static void add_word(struct rnd_state *rnd, char *line, size_t size,
		     const char *word, bool first)
{
	u32 nr = below(rnd, 3) + !first;

	while (nr--) {
		char space[2] = { " \t\n"[below(rnd, 3)] };

		strlcat(line, space, size);
	}
	strlcat(line, word, size);
}

/* A number up to @max, or "inf", which stands for @inf. */
static u64 add_limit(struct rnd_state *rnd, char *line, size_t size, u64 inf,
		     u64 max)
{
	u64 value = number(rnd), rest;
	char word[40];

	if (one_in(rnd, 4)) {
		add_word(rnd, line, size, "inf", false);
		return inf;
	}
	if (max != U64_MAX) {
		div64_u64_rem(value, max, &rest);
		/* 1 to @max */
		value = rest + 1;
	}
	snprintf(word, sizeof(word), one_in(rnd, 4) ? "00%llu" : "%llu", value);
	add_word(rnd, line, size, word, false);
	return value;
}

/* A line that is right, and what it means. */
static void make_line(struct rnd_state *rnd, char *line, size_t size,
		      struct ramslice_cmd *cmd)
{
	static const char * const alone[] = {
		[RAMSLICE_CMD_OFFLINE_FREE] = "offline_free",
		[RAMSLICE_CMD_ONLINE_ALL] = "online_all",
		[RAMSLICE_CMD_REINIT] = "reinit",
		[RAMSLICE_CMD_RELEASE] = "release",
	};
	char word[24];

	memset(cmd, 0, sizeof(*cmd));
	line[0] = '\0';
	cmd->op = below(rnd, RAMSLICE_CMD_RELEASE + 1);
	switch (cmd->op) {
	case RAMSLICE_CMD_OFFLINE_BATCH:
		add_word(rnd, line, size, "offline_batch", true);
		cmd->per_slice = one_in(rnd, 2);
		if (cmd->per_slice)
			add_word(rnd, line, size, "--per-slice", false);
		cmd->budget = add_limit(rnd, line, size, RAMSLICE_UNLIMITED,
					U64_MAX);
		cmd->max_slices = add_limit(rnd, line, size,
					    RAMSLICE_ALL_SLICES, U32_MAX);
		break;
	case RAMSLICE_CMD_OFFLINE_INDEX:
	case RAMSLICE_CMD_ONLINE_INDEX:
		add_word(rnd, line, size, cmd->op == RAMSLICE_CMD_OFFLINE_INDEX ?
			 "offline_index" : "online_index", true);
		cmd->id = number(rnd);
		if (cmd->id == RAMSLICE_NO_ID)
			cmd->id = 0;
		snprintf(word, sizeof(word), "%u", cmd->id);
		add_word(rnd, line, size, word, false);
		break;
	default:
		add_word(rnd, line, size, alone[cmd->op], true);
	}
}

static void commands_mean_what_they_say(struct kunit *test)
{
	struct ramslice_cmd want, got;
	char line[256], copy[256];
	struct rnd_state rnd;
	unsigned int i;

	prandom_seed_state(&rnd, 3);
	for (i = 0; i < NR_INPUTS; i++) {
		make_line(&rnd, line, sizeof(line), &want);
		add_word(&rnd, line, sizeof(line), "", true);
		strscpy(copy, line);
		KUNIT_EXPECT_EQ_MSG(test, ramslice_parse_cmd(copy, &got), 0,
				    "in \"%s\"", line);
		KUNIT_EXPECT_EQ_MSG(test, got.op, want.op, "in \"%s\"", line);
		KUNIT_EXPECT_EQ_MSG(test, got.per_slice, want.per_slice,
				    "in \"%s\"", line);
		KUNIT_EXPECT_EQ_MSG(test, got.budget, want.budget, "in \"%s\"",
				    line);
		KUNIT_EXPECT_EQ_MSG(test, got.max_slices, want.max_slices,
				    "in \"%s\"", line);
		KUNIT_EXPECT_EQ_MSG(test, got.id, want.id, "in \"%s\"", line);
	}
}

static void commands_with_a_flaw_are_refused(struct kunit *test)
{
	/* No command has these anywhere */
	static const char flaws[] = "+.,;:=/*%'\"()!?ABCDEFGHIJKLMNOPQRSTUVWXYZ\r\x7f\xff";
	struct ramslice_cmd want, got;
	char line[256], copy[256];
	struct rnd_state rnd;
	unsigned int i;
	int err;

	prandom_seed_state(&rnd, 4);
	for (i = 0; i < NR_INPUTS; i++) {
		char flaw = flaws[below(&rnd, sizeof(flaws) - 1)];

		make_line(&rnd, line, sizeof(line), &want);
		if (one_in(&rnd, 4))
			add_word(&rnd, line, sizeof(line), "0", false);
		else
			insert(&rnd, line, sizeof(line), flaw);
		strscpy(copy, line);
		err = ramslice_parse_cmd(copy, &got);
		/* A plus sign before a number is let through */
		if (!err && strchr(line, '+'))
			continue;
		KUNIT_EXPECT_LT_MSG(test, err, 0, "\"%s\" was taken", line);
		KUNIT_EXPECT_TRUE_MSG(test, err == -EOPNOTSUPP ||
				      err == -ENODATA || err == -E2BIG ||
				      err == -EINVAL || err == -ERANGE,
				      "%d in \"%s\"", err, line);
	}
}

static struct kunit_case parse_cases[] = {
	KUNIT_CASE_SLOW(sizes_mean_what_they_say),
	KUNIT_CASE_SLOW(sizes_with_a_flaw_are_refused),
	KUNIT_CASE(sizes_that_do_not_fit_are_refused),
	KUNIT_CASE(off_and_on_are_about_nothing_else),
	KUNIT_CASE_SLOW(commands_mean_what_they_say),
	KUNIT_CASE_SLOW(commands_with_a_flaw_are_refused),
	{}
};

static struct kunit_suite parse_suite = {
	.name = "ramslice_parse",
	.test_cases = parse_cases,
};

kunit_test_suite(parse_suite);
