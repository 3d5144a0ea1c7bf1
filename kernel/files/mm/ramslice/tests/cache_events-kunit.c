// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of how refaults are sorted by distance.
 */

#include <kunit/test.h>
#include "../internal.h"

/* Both ends of each entry, so that entries neither overlap nor leave a gap. */
static void ramslice_distances_have_one_entry(struct kunit *test)
{
	unsigned int order;

	KUNIT_EXPECT_EQ(test, ramslice_distance_order(0), 0);
	for (order = 0; order < RAMSLICE_NR_DISTANCES; order++) {
		unsigned long least = 1UL << order;

		KUNIT_EXPECT_EQ(test, ramslice_distance_order(least), order);
		KUNIT_EXPECT_EQ(test, ramslice_distance_order(least | (least - 1)),
				order);
	}
}

/* Each count on one line, which fits a page even if all are as long as can be. */
static void ramslice_refaults_are_one_line(struct kunit *test)
{
	char *buf = (char *)get_zeroed_page(GFP_KERNEL);
	unsigned int spaces = 0;
	ssize_t len, i;

	KUNIT_ASSERT_NOT_NULL(test, buf);
	len = ramslice_show_refaults(true, buf);
	for (i = 0; i < len; i++)
		spaces += buf[i] == ' ';
	KUNIT_EXPECT_EQ(test, spaces, RAMSLICE_NR_DISTANCES - 1);
	KUNIT_EXPECT_EQ(test, strcspn(buf, "\n"), len - 1);
	free_page((unsigned long)buf);
	/* 20 digits and what separates them */
	KUNIT_EXPECT_LE(test, RAMSLICE_NR_DISTANCES * 21, PAGE_SIZE);
}

static struct kunit_case ramslice_cache_events_cases[] = {
	KUNIT_CASE(ramslice_distances_have_one_entry),
	KUNIT_CASE(ramslice_refaults_are_one_line),
	{}
};

static struct kunit_suite ramslice_cache_events_suite = {
	.name = "ramslice_cache_events",
	.test_cases = ramslice_cache_events_cases,
};

kunit_test_suite(ramslice_cache_events_suite);
