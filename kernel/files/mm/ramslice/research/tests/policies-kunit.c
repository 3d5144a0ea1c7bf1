// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the placement policies that others are compared with.
 */

#include <kunit/test.h>
#include "../../tests/place.h"
#include "../research.h"

#define NR_LOW		2U

static void ramslice_low_confines_the_kernel_to_the_first(struct kunit *test)
{
	EXPECT_ORDER(test, LOW, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_ORDER(test, LOW, USER, RAMSLICE_NO_ID, KERNEL_MORE, EMPTY, HALF,
		     NEARLY_FULL, LAST, FIXED, KERNEL);
}

static void ramslice_array_grows_from_both_ends(struct kunit *test)
{
	EXPECT_ORDER(test, ARRAY, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_ORDER(test, ARRAY, USER, RAMSLICE_NO_ID, LAST, NEARLY_FULL, HALF,
		     EMPTY, KERNEL_MORE, KERNEL, FIXED);
}

static void ramslice_list_begins_where_it_was(struct kunit *test)
{
	EXPECT_ORDER(test, LIST, KERNEL, FIXED, FIXED, KERNEL, KERNEL_MORE,
		     EMPTY, LAST, HALF, NEARLY_FULL);
	EXPECT_ORDER(test, LIST, USER, NEARLY_FULL, NEARLY_FULL, HALF, LAST,
		     EMPTY, KERNEL, KERNEL_MORE, FIXED);
	/* None in use: the most free first */
	EXPECT_ORDER(test, LIST, KERNEL, RAMSLICE_NO_ID, KERNEL, KERNEL_MORE,
		     FIXED, EMPTY, LAST, HALF, NEARLY_FULL);
	/* Another list's is not one's own because it was used last */
	EXPECT_ORDER(test, LIST, USER, KERNEL, HALF, NEARLY_FULL, LAST, EMPTY,
		     KERNEL, KERNEL_MORE, FIXED);
}

static void ramslice_adaptive_steals_from_the_most_free(struct kunit *test)
{
	EXPECT_ORDER(test, ADAPTIVE, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, LAST, HALF, NEARLY_FULL);
	EXPECT_ORDER(test, ADAPTIVE, USER, RAMSLICE_NO_ID, HALF, NEARLY_FULL,
		     LAST, EMPTY, KERNEL, KERNEL_MORE, FIXED);
}

/* Where no pageblock is left, what is taken in parts is another's, too. */
static void ramslice_parts_are_stolen_by_policy(struct kunit *test)
{
	EXPECT_LIKES(test, LOW, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, FULL, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_LIKES(test, ARRAY, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, FULL, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_LIKES(test, LIST, KERNEL, KERNEL_MORE, KERNEL_MORE, KERNEL,
		     FIXED, EMPTY, LAST, FULL, HALF, NEARLY_FULL);
	EXPECT_LIKES(test, ADAPTIVE, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, LAST, FULL, HALF, NEARLY_FULL);
}

static void ramslice_users_like_blocks_of_others_least(struct kunit *test)
{
	enum ramslice_place_policy policy;

	for (policy = RAMSLICE_PLACE_LOW; policy < RAMSLICE_PLACE_POLICIES;
	     policy++)
		expect_others_last(test, policy);
}

static void ramslice_blocks_of_others_keep_their_order(struct kunit *test)
{
	enum ramslice_place_policy policy;

	for (policy = RAMSLICE_PLACE_LOW; policy < RAMSLICE_PLACE_POLICIES;
	     policy++)
		expect_same_order(test, policy);
}

static void ramslice_names_lead_to_their_policies(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("low"),
			(int)RAMSLICE_PLACE_LOW);
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("array\n"),
			(int)RAMSLICE_PLACE_ARRAY);
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("list"),
			(int)RAMSLICE_PLACE_LIST);
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("adaptive"),
			(int)RAMSLICE_PLACE_ADAPTIVE);
}

static u32 low_slices_before;

static int ramslice_policies_init(struct kunit_suite *suite)
{
	/* No policy is in force at boot that would go by it */
	low_slices_before = ramslice_low_slices;
	ramslice_low_slices = NR_LOW;
	return 0;
}

static void ramslice_policies_exit(struct kunit_suite *suite)
{
	ramslice_low_slices = low_slices_before;
}

static struct kunit_case ramslice_policies_cases[] = {
	KUNIT_CASE(ramslice_low_confines_the_kernel_to_the_first),
	KUNIT_CASE(ramslice_array_grows_from_both_ends),
	KUNIT_CASE(ramslice_list_begins_where_it_was),
	KUNIT_CASE(ramslice_adaptive_steals_from_the_most_free),
	KUNIT_CASE(ramslice_parts_are_stolen_by_policy),
	KUNIT_CASE(ramslice_users_like_blocks_of_others_least),
	KUNIT_CASE(ramslice_blocks_of_others_keep_their_order),
	KUNIT_CASE(ramslice_names_lead_to_their_policies),
	{}
};

static struct kunit_suite ramslice_policies_suite = {
	.name = "ramslice_policies",
	.suite_init = ramslice_policies_init,
	.suite_exit = ramslice_policies_exit,
	.test_cases = ramslice_policies_cases,
};

kunit_test_suite(ramslice_policies_suite);
