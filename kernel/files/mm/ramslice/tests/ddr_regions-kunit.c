// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of what is made of a device tree's node ddr-regions: of a compiled tree,
 * whose nodes are in ddr_regions.dts, and of nodes made at random, whose properties
 * must never be read past their end.
 */

#include <kunit/test.h>
#include <linux/of.h>
#include <linux/of_fdt.h>
#include <linux/sizes.h>
#include <linux/unaligned.h>
#include "../internal.h"
#include "../segments.h"
#include "random.h"

#define ROOM	16

extern u8 __dtb_ddr_regions_begin[];

static void *ramslice_dt_memory;
static struct device_node *ramslice_dt_root;

static int ramslice_unflatten(struct kunit_suite *suite)
{
	const void *blob = __dtb_ddr_regions_begin;

	ramslice_dt_memory = of_fdt_unflatten_tree(blob, NULL, &ramslice_dt_root);
	return ramslice_dt_memory ? 0 : -EINVAL;
}

static void ramslice_drop_tree(struct kunit_suite *suite)
{
	kfree(ramslice_dt_memory);
	ramslice_dt_memory = NULL;
}

/* The node in one of the trees. */
static struct device_node *ramslice_ddr_node(struct kunit *test, const char *tree)
{
	struct device_node *node = ramslice_dt_root->child;

	while (node && !of_node_name_eq(node, tree))
		node = node->sibling;
	KUNIT_ASSERT_NOT_NULL_MSG(test, node, "no tree %s", tree);
	KUNIT_ASSERT_TRUE(test, of_node_name_eq(node->child, "ddr-regions"));
	return node->child;
}

static void ramslice_ddr_expect(struct kunit *test, const char *tree,
				unsigned int nr,
				const struct ramslice_segment *expected)
{
	struct ramslice_segment seg[ROOM];
	unsigned int found = ROOM, number;
	const char *wrong;

	wrong = ramslice_parse_ddr_regions(ramslice_ddr_node(test, tree), SZ_2M,
					   seg, &found, &number);
	KUNIT_ASSERT_PTR_EQ_MSG(test, wrong, NULL, "%s, region%u: %s", tree,
				number, wrong);
	KUNIT_ASSERT_EQ_MSG(test, found, nr, "%s", tree);
	KUNIT_EXPECT_MEMEQ_MSG(test, seg, expected, nr * sizeof(*seg), "%s", tree);
}

static void ramslice_whole_segments_of_regions_are_segments(struct kunit *test)
{
	static const struct ramslice_segment one[] = {
		{ 2ULL * SZ_1G, SZ_1G }, { 3ULL * SZ_1G, SZ_1G },
		{ 4ULL * SZ_1G, SZ_1G }, { 5ULL * SZ_1G, SZ_1G },
	};
	static const struct ramslice_segment remainders[] = {
		{ 2ULL * SZ_1G + SZ_512M, SZ_512M },
		{ 3ULL * SZ_1G, SZ_512M },
	};

	ramslice_ddr_expect(test, "one", ARRAY_SIZE(one), one);
	ramslice_ddr_expect(test, "remainders", ARRAY_SIZE(remainders), remainders);
}

static void ramslice_regions_may_have_segments_of_other_sizes(struct kunit *test)
{
	static const struct ramslice_segment unequal[] = {
		{ 34ULL * SZ_1G, SZ_1G }, { 35ULL * SZ_1G, SZ_1G },
		{ 2ULL * SZ_1G, SZ_512M }, { 2ULL * SZ_1G + SZ_512M, SZ_512M },
		{ 4ULL * SZ_1G + SZ_64M, SZ_512M + SZ_256M },
	};
	struct ramslice_segment ten[10];
	unsigned int i;

	ramslice_ddr_expect(test, "unequal", ARRAY_SIZE(unequal), unequal);
	for (i = 0; i < ARRAY_SIZE(ten); i++) {
		ten[i].start_bytes = (u64)i * SZ_1G;
		ten[i].bytes = SZ_1G;
	}
	ramslice_ddr_expect(test, "ten", ARRAY_SIZE(ten), ten);
}

static void ramslice_regions_without_whole_segments_stay_on(struct kunit *test)
{
	static const struct ramslice_segment none[1];

	ramslice_ddr_expect(test, "none", 0, none);
}

static void ramslice_regions_with_a_flaw_are_refused(struct kunit *test)
{
	static const struct {
		const char *tree;
		unsigned int number;
		const char *wrong;
	} bad[] = {
		{ "empty", 0, "it is missing" },
		{ "gap", 1, "it is missing, but a later one is there" },
		{ "eleven", 10, "there are too many regions" },
		{ "narrow", 0, "it does not have five numbers of 64 bits" },
		{ "long", 1, "it does not have five numbers of 64 bits" },
		{ "no-value", 0, "it does not have five numbers of 64 bits" },
		{ "no-memory", 0, "it has no memory" },
		{ "no-address", 0, "its addresses overflow" },
		{ "no-size", 0, "the size of its segments overflows" },
		{ "overlap", 2, "it overlaps a region before it" },
		{ "part-of-a-block", 1,
		  "its segments do not consist of whole pageblocks" },
		{ "begins-in-a-block", 0,
		  "its segments do not consist of whole pageblocks" },
		{ "offset-into-a-block", 0,
		  "its segments do not consist of whole pageblocks" },
		{ "many-segments", 1, "there are too many segments" },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct ramslice_segment seg[ROOM];
		unsigned int nr = ROOM, number;
		const char *wrong;

		wrong = ramslice_parse_ddr_regions(ramslice_ddr_node(test, bad[i].tree),
						   SZ_2M, seg, &nr, &number);
		KUNIT_ASSERT_NOT_NULL_MSG(test, wrong, "not refused: %s", bad[i].tree);
		KUNIT_EXPECT_STREQ_MSG(test, wrong, bad[i].wrong, "%s", bad[i].tree);
		KUNIT_EXPECT_EQ_MSG(test, number, bad[i].number, "%s", bad[i].tree);
		KUNIT_EXPECT_EQ_MSG(test, nr, 0, "%s", bad[i].tree);
	}
}

/* Room for as many as there are is enough. */
static void ramslice_no_segment_is_written_past_the_room(struct kunit *test)
{
	struct device_node *node = ramslice_ddr_node(test, "unequal");
	unsigned int room, nr, number;

	for (room = 0; room <= 5; room++) {
		struct ramslice_segment *seg;
		const char *wrong;

		seg = kmalloc_array(room, sizeof(*seg), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, seg);
		nr = room;
		wrong = ramslice_parse_ddr_regions(node, SZ_2M, seg, &nr, &number);
		kfree(seg);
		if (room == 5) {
			KUNIT_EXPECT_PTR_EQ(test, wrong, NULL);
			KUNIT_EXPECT_EQ(test, nr, 5);
		} else {
			KUNIT_EXPECT_STREQ(test, wrong, "there are too many segments");
		}
	}
}

/* A property that is sound more often than not, in memory of just its length. */
static bool ramslice_random_region(struct rnd_state *rnd, struct property *region)
{
	u64 numbers[5] = {
		(u64)ramslice_below(rnd, 256) * SZ_256M,
		(u64)ramslice_below(rnd, 8) * SZ_128M,
		(u64)ramslice_below(rnd, 4) * SZ_64M,
		ramslice_below(rnd, 16),
		64 << ramslice_below(rnd, 5),
	};
	u8 bytes[48] = {};
	unsigned int i;

	if (ramslice_one_in(rnd, 8))
		numbers[ramslice_below(rnd, 5)] = ramslice_random_number(rnd);
	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		put_unaligned_be64(numbers[i], bytes + 8 * i);
	region->length = ramslice_one_in(rnd, 32) ?
		ramslice_below(rnd, sizeof(bytes) + 1) : sizeof(numbers);
	region->value = kmemdup(bytes, region->length, GFP_KERNEL);
	return region->value;
}

/* What a region has, from bytes that were read; whole segments are on its grid. */
static bool ramslice_in_region(const struct property *region,
			       const struct ramslice_segment *seg)
{
	u64 start = get_unaligned_be64(region->value);
	u64 bytes = get_unaligned_be64(region->value + 8);
	u64 offset = get_unaligned_be64(region->value + 16);
	u64 granule = get_unaligned_be64(region->value + 32) * SZ_1M;

	return seg->start_bytes >= start && seg->start_bytes - start >= offset &&
	       seg->start_bytes - start < bytes &&
	       seg->bytes <= bytes - (seg->start_bytes - start) &&
	       seg->bytes == granule &&
	       !((seg->start_bytes - start - offset) % granule);
}

static void ramslice_no_region_is_read_past_its_end(struct kunit *test)
{
	static const char * const names[] = {
		"region0", "region1", "region2", "region3", "region4",
	};
	static struct property regions[ARRAY_SIZE(names)];
	unsigned int round, nr_taken = 0, nr_segments = 0;
	struct rnd_state rnd;

	prandom_seed_state(&rnd, 29);
	for (round = 0; round < NR_INPUTS / 10; round++) {
		struct device_node node = { .full_name = "ddr-regions" };
		struct ramslice_segment seg[ROOM];
		unsigned int nr = ROOM, number, i, n, count;
		bool ok = true, outside = false;
		const char *wrong;

		count = ramslice_below(&rnd, ARRAY_SIZE(names) + 1);
		for (i = 0; i < count; i++) {
			regions[i].name = (char *)names[i];
			regions[i].next = node.properties;
			node.properties = &regions[i];
			ok &= ramslice_random_region(&rnd, &regions[i]);
		}
		wrong = ok ? ramslice_parse_ddr_regions(&node, SZ_2M, seg, &nr,
							&number) : NULL;
		for (n = 0; ok && !wrong && n < nr; n++) {
			for (i = 0; i < count; i++) {
				if (ramslice_in_region(&regions[i], &seg[n]))
					break;
			}
			outside |= i == count;
		}
		for (i = 0; i < count; i++)
			kfree(regions[i].value);
		KUNIT_ASSERT_TRUE(test, ok);
		KUNIT_ASSERT_FALSE(test, outside);
		KUNIT_ASSERT_LE(test, nr, ROOM);
		if (wrong)
			KUNIT_ASSERT_EQ(test, nr, 0);
		nr_taken += !wrong;
		nr_segments += nr;
	}
	/* Neither all nor none: it is about both */
	KUNIT_EXPECT_GT(test, nr_taken, 100);
	KUNIT_EXPECT_LT(test, nr_taken, NR_INPUTS / 10 - 100);
	KUNIT_EXPECT_GT(test, nr_segments, 100);
}

static struct kunit_case ramslice_ddr_cases[] = {
	KUNIT_CASE(ramslice_whole_segments_of_regions_are_segments),
	KUNIT_CASE(ramslice_regions_may_have_segments_of_other_sizes),
	KUNIT_CASE(ramslice_regions_without_whole_segments_stay_on),
	KUNIT_CASE(ramslice_regions_with_a_flaw_are_refused),
	KUNIT_CASE(ramslice_no_segment_is_written_past_the_room),
	KUNIT_CASE(ramslice_no_region_is_read_past_its_end),
	{}
};

static struct kunit_suite ramslice_ddr_suite = {
	.name = "ramslice_ddr_regions",
	.suite_init = ramslice_unflatten,
	.suite_exit = ramslice_drop_tree,
	.test_cases = ramslice_ddr_cases,
};

kunit_test_suite(ramslice_ddr_suite);
