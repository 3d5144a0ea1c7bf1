// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the debugfs commands: what each means, and a distinct errno for
 * each way to get one wrong.
 */

#include <kunit/test.h>
#include "../internal.h"
#include "../parse.h"

static int parse(struct kunit *test, const char *text, struct ramslice_cmd *cmd)
{
	char line[128];

	KUNIT_ASSERT_GT(test, strscpy(line, text), -1);
	return ramslice_parse_cmd(line, cmd);
}

static void expect_errno(struct kunit *test, int err, const char * const *lines,
			 size_t nr)
{
	struct ramslice_cmd cmd;
	size_t i;

	for (i = 0; i < nr; i++) {
		KUNIT_EXPECT_EQ_MSG(test, parse(test, lines[i], &cmd), err,
				    "in \"%s\"", lines[i]);
	}
}

static void expect_batch(struct kunit *test, const char *text, bool per_slice,
			 u64 budget, u32 max_slices)
{
	struct ramslice_cmd cmd;

	KUNIT_EXPECT_EQ_MSG(test, parse(test, text, &cmd), 0, "in \"%s\"",
			    text);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_BATCH);
	KUNIT_EXPECT_EQ_MSG(test, cmd.per_slice, per_slice, "in \"%s\"", text);
	KUNIT_EXPECT_EQ_MSG(test, cmd.budget, budget, "in \"%s\"", text);
	KUNIT_EXPECT_EQ_MSG(test, cmd.max_slices, max_slices, "in \"%s\"",
			    text);
	KUNIT_EXPECT_EQ(test, cmd.id, 0);
}

static void batch_takes_a_budget_and_a_limit(struct kunit *test)
{
	expect_batch(test, "offline_batch 50000 8", false, 50000, 8);
	expect_batch(test, "offline_batch 0 1", false, 0, 1);
	expect_batch(test, "offline_batch 007 010", false, 7, 10);
}

static void batch_per_slice_is_as_in_the_paper(struct kunit *test)
{
	expect_batch(test, "offline_batch --per-slice 50000 inf", true, 50000,
		     RAMSLICE_ALL_SLICES);
	expect_batch(test, "offline_batch --per-slice inf 3", true,
		     RAMSLICE_UNLIMITED, 3);
}

static void inf_is_the_largest_number(struct kunit *test)
{
	expect_batch(test, "offline_batch inf inf", false, RAMSLICE_UNLIMITED,
		     RAMSLICE_ALL_SLICES);
	expect_batch(test, "offline_batch inf 1", false, RAMSLICE_UNLIMITED, 1);
	expect_batch(test, "offline_batch 1 inf", false, 1,
		     RAMSLICE_ALL_SLICES);
	expect_batch(test, "offline_batch 18446744073709551615 4294967295",
		     false, RAMSLICE_UNLIMITED, RAMSLICE_ALL_SLICES);
}

static void index_commands_take_a_slice(struct kunit *test)
{
	struct ramslice_cmd cmd;

	KUNIT_EXPECT_EQ(test, parse(test, "offline_index 0", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_INDEX);
	KUNIT_EXPECT_EQ(test, cmd.id, 0);

	KUNIT_EXPECT_EQ(test, parse(test, "offline_index 42", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_INDEX);
	KUNIT_EXPECT_EQ(test, cmd.id, 42);

	KUNIT_EXPECT_EQ(test, parse(test, "online_index 4294967294", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_ONLINE_INDEX);
	KUNIT_EXPECT_EQ(test, cmd.id, 4294967294U);
}

static void other_commands_stand_alone(struct kunit *test)
{
	struct ramslice_cmd cmd;

	KUNIT_EXPECT_EQ(test, parse(test, "offline_free", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_OFFLINE_FREE);
	KUNIT_EXPECT_EQ(test, parse(test, "online_all", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_ONLINE_ALL);
	KUNIT_EXPECT_EQ(test, parse(test, "reinit", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_REINIT);
	KUNIT_EXPECT_EQ(test, parse(test, "release", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_RELEASE);
}

static void white_space_only_separates(struct kunit *test)
{
	struct ramslice_cmd cmd;

	expect_batch(test, "offline_batch 5 6\n", false, 5, 6);
	expect_batch(test, "  offline_batch   5   6  ", false, 5, 6);
	expect_batch(test, "\toffline_batch\t--per-slice\t5\t6\n\n", true, 5,
		     6);
	expect_batch(test, "\noffline_batch\n5\n6", false, 5, 6);

	KUNIT_EXPECT_EQ(test, parse(test, "online_all\n", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_ONLINE_ALL);
	KUNIT_EXPECT_EQ(test, parse(test, " \t\nrelease \t\n", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.op, RAMSLICE_CMD_RELEASE);
	KUNIT_EXPECT_EQ(test, parse(test, "offline_index 3\n", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.id, 3);
}

static void nothing_is_left_of_the_command_before(struct kunit *test)
{
	struct ramslice_cmd cmd;

	memset(&cmd, 0xff, sizeof(cmd));
	KUNIT_EXPECT_EQ(test, parse(test, "offline_index 3", &cmd), 0);
	KUNIT_EXPECT_EQ(test, cmd.id, 3);
	KUNIT_EXPECT_FALSE(test, cmd.per_slice);
	KUNIT_EXPECT_EQ(test, cmd.budget, 0);
	KUNIT_EXPECT_EQ(test, cmd.max_slices, 0);
}

static void unknown_command_is_eopnotsupp(struct kunit *test)
{
	static const char * const lines[] = {
		"offline", "offline_batc", "offline_batchx 1 1",
		"offline-batch 1 1", "OFFLINE_FREE", "Online_all", "inf",
		"--per-slice 1 1", "1", "offline_free,online_all",
		"online_all\r\n",
	};

	expect_errno(test, -EOPNOTSUPP, lines, ARRAY_SIZE(lines));
}

static void missing_argument_is_enodata(struct kunit *test)
{
	static const char * const lines[] = {
		"", "\n", " \t\n",
		"offline_batch", "offline_batch\n", "offline_batch 1",
		"offline_batch inf\t\n", "offline_batch --per-slice",
		"offline_batch --per-slice 1",
		"offline_index", "offline_index\t\n", "online_index",
	};

	expect_errno(test, -ENODATA, lines, ARRAY_SIZE(lines));
}

static void extra_argument_is_e2big(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch 1 2 3", "offline_batch 1 2 --per-slice",
		"offline_batch --per-slice 1 2 3", "offline_batch inf 2 inf",
		"offline_index 1 2", "online_index 1 2", "offline_free 1",
		"online_all now", "reinit 0", "release inf",
		"online_all\nonline_all",
	};

	expect_errno(test, -E2BIG, lines, ARRAY_SIZE(lines));
}

static void what_is_no_number_is_einval(struct kunit *test)
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

	expect_errno(test, -EINVAL, lines, ARRAY_SIZE(lines));
}

static void negative_number_is_einval(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch -1 1", "offline_batch 1 -1", "offline_batch -0 1",
		"offline_batch -inf 1", "offline_index -1", "online_index -1",
	};

	expect_errno(test, -EINVAL, lines, ARRAY_SIZE(lines));
}

static void number_that_does_not_fit_is_erange(struct kunit *test)
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

	expect_errno(test, -ERANGE, lines, ARRAY_SIZE(lines));
}

static void batch_of_no_slices_is_erange(struct kunit *test)
{
	static const char * const lines[] = {
		"offline_batch 1 0", "offline_batch inf 0",
		"offline_batch --per-slice 1 0", "offline_batch 1 000\n",
	};

	expect_errno(test, -ERANGE, lines, ARRAY_SIZE(lines));
}

static struct kunit_case cmd_cases[] = {
	KUNIT_CASE(batch_takes_a_budget_and_a_limit),
	KUNIT_CASE(batch_per_slice_is_as_in_the_paper),
	KUNIT_CASE(inf_is_the_largest_number),
	KUNIT_CASE(index_commands_take_a_slice),
	KUNIT_CASE(other_commands_stand_alone),
	KUNIT_CASE(white_space_only_separates),
	KUNIT_CASE(nothing_is_left_of_the_command_before),
	KUNIT_CASE(unknown_command_is_eopnotsupp),
	KUNIT_CASE(missing_argument_is_enodata),
	KUNIT_CASE(extra_argument_is_e2big),
	KUNIT_CASE(what_is_no_number_is_einval),
	KUNIT_CASE(negative_number_is_einval),
	KUNIT_CASE(number_that_does_not_fit_is_erange),
	KUNIT_CASE(batch_of_no_slices_is_erange),
	{}
};

static struct kunit_suite cmd_suite = {
	.name = "ramslice_cmd",
	.test_cases = cmd_cases,
};

kunit_test_suite(cmd_suite);
