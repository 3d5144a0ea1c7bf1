// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the debugfs commands: what each means, and a distinct errno for
 * each way to get one wrong.
 */

#include <kunit/test.h>
#include <linux/math64.h>
#include "../../internal.h"
#include "../../tests/random.h"
#include "../research.h"

static int ramslice_parse(struct kunit *test, const char *text,
			  struct ramslice_command *cmd)
{
	char line[128];

	KUNIT_ASSERT_GT(test, strscpy(line, text), -1);
	return ramslice_parse_command(line, cmd);
}

static void ramslice_expect_errno(struct kunit *test, int err,
				  const char * const *lines, size_t nr)
{
	struct ramslice_command cmd;
	size_t i;

	for (i = 0; i < nr; i++) {
		KUNIT_EXPECT_EQ_MSG(test, ramslice_parse(test, lines[i], &cmd),
				    err, "in \"%s\"", lines[i]);
	}
}

static void ramslice_expect_batch(struct kunit *test, const char *text,
				  bool per_slice, u64 budget, u32 max_slices)
{
	struct ramslice_command cmd;

	KUNIT_EXPECT_EQ_MSG(test, ramslice_parse(test, text, &cmd), 0,
			    "in \"%s\"", text);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_BATCH);
	KUNIT_EXPECT_EQ_MSG(test, cmd.per_slice, per_slice, "in \"%s\"", text);
	KUNIT_EXPECT_EQ_MSG(test, cmd.budget, budget, "in \"%s\"", text);
	KUNIT_EXPECT_EQ_MSG(test, cmd.max_slices, max_slices, "in \"%s\"",
			    text);
	KUNIT_EXPECT_EQ(test, cmd.id, 0);
}

static void ramslice_batch_takes_a_budget_and_a_limit(struct kunit *test)
{
	ramslice_expect_batch(test, "offline_batch 50000 8", false, 50000, 8);
	ramslice_expect_batch(test, "offline_batch 0 1", false, 0, 1);
	ramslice_expect_batch(test, "offline_batch 007 010", false, 7, 10);
}

static void ramslice_batch_per_slice_is_as_in_the_paper(struct kunit *test)
{
	ramslice_expect_batch(test, "offline_batch --per-slice 50000 inf", true,
			      50000, RAMSLICE_ALL_SLICES);
	ramslice_expect_batch(test, "offline_batch --per-slice inf 3", true,
			      RAMSLICE_UNLIMITED, 3);
}

static void ramslice_inf_is_the_largest_number(struct kunit *test)
{
	ramslice_expect_batch(test, "offline_batch inf inf", false,
			      RAMSLICE_UNLIMITED, RAMSLICE_ALL_SLICES);
	ramslice_expect_batch(test, "offline_batch inf 1", false,
			      RAMSLICE_UNLIMITED, 1);
	ramslice_expect_batch(test, "offline_batch 1 inf", false, 1,
			      RAMSLICE_ALL_SLICES);
	ramslice_expect_batch(test,
			      "offline_batch 18446744073709551615 4294967295",
			      false, RAMSLICE_UNLIMITED, RAMSLICE_ALL_SLICES);
}

static void ramslice_index_commands_take_a_slice(struct kunit *test)
{
	struct ramslice_command cmd;

	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "offline_index 0", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_INDEX);
	KUNIT_EXPECT_EQ(test, cmd.id, 0);

	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "offline_index 42", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_INDEX);
	KUNIT_EXPECT_EQ(test, cmd.id, 42);

	KUNIT_EXPECT_EQ(test,
			ramslice_parse(test, "online_index 4294967294", &cmd),
			0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_ONLINE_INDEX);
	KUNIT_EXPECT_EQ(test, cmd.id, 4294967294U);
}

static void ramslice_other_commands_stand_alone(struct kunit *test)
{
	struct ramslice_command cmd;

	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "offline_free", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_FREE);
	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "online_all", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_ONLINE_ALL);
	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "reinit", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_REINIT);
	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "release", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_RELEASE);
}

static void ramslice_white_space_only_separates(struct kunit *test)
{
	struct ramslice_command cmd;

	ramslice_expect_batch(test, "offline_batch 5 6\n", false, 5, 6);
	ramslice_expect_batch(test, "  offline_batch   5   6  ", false, 5, 6);
	ramslice_expect_batch(test, "\toffline_batch\t--per-slice\t5\t6\n\n",
			      true, 5, 6);
	ramslice_expect_batch(test, "\noffline_batch\n5\n6", false, 5, 6);

	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "online_all\n", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_ONLINE_ALL);
	KUNIT_EXPECT_EQ(test, ramslice_parse(test, " \t\nrelease \t\n", &cmd),
			0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_RELEASE);
	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "offline_index 3\n", &cmd),
			0);
	KUNIT_EXPECT_EQ(test, cmd.id, 3);
}

static void ramslice_nothing_is_left_of_the_command_before(struct kunit *test)
{
	struct ramslice_command cmd;

	memset(&cmd, 0xff, sizeof(cmd));
	KUNIT_EXPECT_EQ(test, ramslice_parse(test, "offline_index 3", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.id, 3);
	KUNIT_EXPECT_FALSE(test, cmd.per_slice);
	KUNIT_EXPECT_EQ(test, cmd.budget, 0);
	KUNIT_EXPECT_EQ(test, cmd.max_slices, 0);
}

static void ramslice_unknown_command_is_eopnotsupp(struct kunit *test)
{
	static const char * const lines[] = {
		"offline", "offline_batc", "offline_batchx 1 1",
		"offline-batch 1 1", "OFFLINE_FREE", "Online_all", "inf",
		"--per-slice 1 1", "1", "offline_free,online_all",
		"online_all\r\n",
	};

	ramslice_expect_errno(test, -EOPNOTSUPP, lines, ARRAY_SIZE(lines));
}

static void ramslice_missing_argument_is_enodata(struct kunit *test)
{
	static const char * const lines[] = {
		"", "\n", " \t\n",
		"offline_batch", "offline_batch\n", "offline_batch 1",
		"offline_batch inf\t\n", "offline_batch --per-slice",
		"offline_batch --per-slice 1",
		"offline_index", "offline_index\t\n", "online_index",
	};

	ramslice_expect_errno(test, -ENODATA, lines, ARRAY_SIZE(lines));
}

static void ramslice_extra_argument_is_e2big(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch 1 2 3", "offline_batch 1 2 --per-slice",
		"offline_batch --per-slice 1 2 3", "offline_batch inf 2 inf",
		"offline_index 1 2", "online_index 1 2", "offline_free 1",
		"online_all now", "reinit 0", "release inf",
		"online_all\nonline_all",
	};

	ramslice_expect_errno(test, -E2BIG, lines, ARRAY_SIZE(lines));
}

static void ramslice_what_is_no_number_is_einval(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch x 1", "offline_batch 1 x",
		"offline_batch 1x 1", "offline_batch 1 1x",
		"offline_batch 1.5 1", "offline_batch 0x10 1",
		"offline_batch 50k 1", "offline_batch + 1",
		"offline_batch infinite 1", "offline_batch INF 1",
		"offline_batch --per-slices 1 1",
		"offline_batch --per-slice --per-slice 1 1",
		"offline_batch 1 --per-slice 1",
		"offline_index x", "offline_index inf", "online_index 1,2",
		"online_index 1-2",
	};

	ramslice_expect_errno(test, -EINVAL, lines, ARRAY_SIZE(lines));
}

static void ramslice_negative_number_is_einval(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch -1 1", "offline_batch 1 -1", "offline_batch -0 1",
		"offline_batch -inf 1", "offline_index -1", "online_index -1",
	};

	ramslice_expect_errno(test, -EINVAL, lines, ARRAY_SIZE(lines));
}

static void ramslice_number_that_does_not_fit_is_erange(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch 18446744073709551616 1",
		"offline_batch 99999999999999999999999999 1",
		"offline_batch 1 4294967296",
		"offline_batch 1 18446744073709551616",
		/* the number that stands for no slice */
		"offline_index 4294967295", "online_index 4294967295",
		"offline_index 4294967296", "online_index 4294967296",
		"offline_index 18446744073709551616",
		"online_index 18446744073709551616",
	};

	ramslice_expect_errno(test, -ERANGE, lines, ARRAY_SIZE(lines));
}

static void ramslice_batch_of_no_slices_is_erange(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch 1 0", "offline_batch inf 0",
		"offline_batch --per-slice 1 0", "offline_batch 1 000\n",
	};

	ramslice_expect_errno(test, -ERANGE, lines, ARRAY_SIZE(lines));
}

/*
 * Generated lines: made from parts whose meaning is known, or one of these with
 * a flaw, so that what must come out is known without parsing. The seed is
 * fixed: failures repeat.
 */

/* A word after any white space there can be; @first: there may be none. */
static void ramslice_add_word(struct rnd_state *rnd, char *line, size_t size,
			      const char *word, bool first)
{
	u32 nr = ramslice_below(rnd, 3) + !first;

	while (nr--) {
		char space[2] = { " \t\n"[ramslice_below(rnd, 3)] };

		strlcat(line, space, size);
	}
	strlcat(line, word, size);
}

/* A number up to @max, or "inf", which stands for @inf. */
static u64 ramslice_add_limit(struct rnd_state *rnd, char *line, size_t size,
			      u64 inf, u64 max)
{
	u64 value = ramslice_random_number(rnd), rest;
	char word[40];

	if (ramslice_one_in(rnd, 4)) {
		ramslice_add_word(rnd, line, size, "inf", false);
		return inf;
	}
	if (max != U64_MAX) {
		div64_u64_rem(value, max, &rest);
		/* 1 to @max */
		value = rest + 1;
	}
	snprintf(word, sizeof(word),
		 ramslice_one_in(rnd, 4) ? "00%llu" : "%llu", value);
	ramslice_add_word(rnd, line, size, word, false);
	return value;
}

/* A line that is right, and what it means. */
static void ramslice_make_line(struct rnd_state *rnd, char *line, size_t size,
			       struct ramslice_command *cmd)
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
	cmd->op = ramslice_below(rnd, RAMSLICE_CMD_RELEASE + 1);
	switch (cmd->op) {
	case RAMSLICE_CMD_OFFLINE_BATCH:
		ramslice_add_word(rnd, line, size, "offline_batch", true);
		cmd->per_slice = ramslice_one_in(rnd, 2);
		if (cmd->per_slice)
			ramslice_add_word(rnd, line, size, "--per-slice", false);
		cmd->budget = ramslice_add_limit(rnd, line, size,
						 RAMSLICE_UNLIMITED, U64_MAX);
		cmd->max_slices = ramslice_add_limit(rnd, line, size,
						     RAMSLICE_ALL_SLICES, U32_MAX);
		break;
	case RAMSLICE_CMD_OFFLINE_INDEX:
	case RAMSLICE_CMD_ONLINE_INDEX:
		ramslice_add_word(rnd, line, size, cmd->op == RAMSLICE_CMD_OFFLINE_INDEX ?
				  "offline_index" : "online_index", true);
		cmd->id = ramslice_random_number(rnd);
		if (cmd->id == RAMSLICE_NO_ID)
			cmd->id = 0;
		snprintf(word, sizeof(word), "%u", cmd->id);
		ramslice_add_word(rnd, line, size, word, false);
		break;
	default:
		ramslice_add_word(rnd, line, size, alone[cmd->op], true);
	}
}

static void ramslice_commands_mean_what_they_say(struct kunit *test)
{
	struct ramslice_command want, got;
	char line[256], copy[256];
	struct rnd_state rnd;
	unsigned int i;

	prandom_seed_state(&rnd, 3);
	for (i = 0; i < NR_INPUTS; i++) {
		ramslice_make_line(&rnd, line, sizeof(line), &want);
		ramslice_add_word(&rnd, line, sizeof(line), "", true);
		strscpy(copy, line);
		KUNIT_EXPECT_EQ_MSG(test, ramslice_parse_command(copy, &got), 0,
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

static void ramslice_commands_with_a_flaw_are_refused(struct kunit *test)
{
	/* No command has these anywhere */
	static const char flaws[] = "+.,;:=/*%'\"()!?ABCDEFGHIJKLMNOPQRSTUVWXYZ\r\x7f\xff";
	struct ramslice_command want, got;
	char line[256], copy[256];
	struct rnd_state rnd;
	unsigned int i;
	int err;

	prandom_seed_state(&rnd, 4);
	for (i = 0; i < NR_INPUTS; i++) {
		char flaw = flaws[ramslice_below(&rnd, sizeof(flaws) - 1)];

		ramslice_make_line(&rnd, line, sizeof(line), &want);
		if (ramslice_one_in(&rnd, 4))
			ramslice_add_word(&rnd, line, sizeof(line), "0", false);
		else
			ramslice_insert_char(&rnd, line, sizeof(line), flaw);
		strscpy(copy, line);
		err = ramslice_parse_command(copy, &got);
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

static struct kunit_case ramslice_command_cases[] = {
	KUNIT_CASE(ramslice_batch_takes_a_budget_and_a_limit),
	KUNIT_CASE(ramslice_batch_per_slice_is_as_in_the_paper),
	KUNIT_CASE(ramslice_inf_is_the_largest_number),
	KUNIT_CASE(ramslice_index_commands_take_a_slice),
	KUNIT_CASE(ramslice_other_commands_stand_alone),
	KUNIT_CASE(ramslice_white_space_only_separates),
	KUNIT_CASE(ramslice_nothing_is_left_of_the_command_before),
	KUNIT_CASE(ramslice_unknown_command_is_eopnotsupp),
	KUNIT_CASE(ramslice_missing_argument_is_enodata),
	KUNIT_CASE(ramslice_extra_argument_is_e2big),
	KUNIT_CASE(ramslice_what_is_no_number_is_einval),
	KUNIT_CASE(ramslice_negative_number_is_einval),
	KUNIT_CASE(ramslice_number_that_does_not_fit_is_erange),
	KUNIT_CASE(ramslice_batch_of_no_slices_is_erange),
	KUNIT_CASE_SLOW(ramslice_commands_mean_what_they_say),
	KUNIT_CASE_SLOW(ramslice_commands_with_a_flaw_are_refused),
	{}
};

static struct kunit_suite ramslice_command_suite = {
	.name = "ramslice_command",
	.test_cases = ramslice_command_cases,
};

kunit_test_suite(ramslice_command_suite);
