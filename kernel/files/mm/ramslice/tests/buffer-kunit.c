// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of buffers: which range of pageblocks is the cheapest, and what a driver
 * gets that asks for one with a limit and an alignment.
 */

#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include "../internal.h"
#include "../buffer.h"

#define NR_BLOCKS	16
/* Number of the first pageblock: not aligned to anything. */
#define FIRST		5

struct ramslice_map {
	struct ramslice_range_block block[NR_BLOCKS];
	struct ramslice_ranges ranges;
};

static int ramslice_map_init(struct kunit *test)
{
	struct ramslice_map *map = kunit_kzalloc(test, sizeof(*map), GFP_KERNEL);
	unsigned int i;

	if (!map)
		return -ENOMEM;
	for (i = 0; i < NR_BLOCKS; i++)
		map->block[i].price = 100;
	map->ranges.first = FIRST;
	map->ranges.nr = NR_BLOCKS;
	map->ranges.block = map->block;
	test->priv = map;
	return 0;
}

static void ramslice_expect_range(struct kunit *test, unsigned long nr,
				  unsigned long align, unsigned long end,
				  unsigned long block, u64 price)
{
	struct ramslice_map *map = test->priv;
	struct ramslice_range range;

	range = ramslice_ranges_cheapest(&map->ranges, nr, align, end);
	KUNIT_EXPECT_EQ(test, range.pfn, block << pageblock_order);
	KUNIT_EXPECT_EQ(test, range.nr_blocked, 0);
	KUNIT_EXPECT_EQ(test, range.price, price);
}

static void ramslice_of_equal_ranges_the_lowest_is_taken(struct kunit *test)
{
	ramslice_expect_range(test, 3, 1, ULONG_MAX, FIRST, 300);
}

static void ramslice_the_cheapest_range_is_found(struct kunit *test)
{
	struct ramslice_map *map = test->priv;

	map->block[7].price = 1;
	map->block[8].price = 2;
	ramslice_expect_range(test, 2, 1, ULONG_MAX, FIRST + 7, 3);
	ramslice_expect_range(test, 3, 1, ULONG_MAX, FIRST + 6, 103);
	ramslice_expect_range(test, NR_BLOCKS, 1, ULONG_MAX, FIRST, 1403);
}

static void
ramslice_slices_that_take_turns_stay_on_once_each(struct kunit *test)
{
	struct ramslice_map *map = test->priv;
	unsigned int i;

	/* Two ways by two blocks, of eight each; 5 is the last of a granule */
	map->ranges.geom = (struct ramslice_geometry) { 8, 1, 1 };
	map->ranges.slice_price = 1000;
	for (i = 0; i < NR_BLOCKS; i++) {
		map->block[i].sleeps = true;
		map->block[i].opens = FIRST + i == 16 || FIRST + i == 18;
		map->block[i].price = 1 + i;
	}
	/* One way, then both, though blocks of each come back */
	ramslice_expect_range(test, 1, 1, ULONG_MAX, 5, 1001);
	ramslice_expect_range(test, 2, 2, ULONG_MAX, 6, 2 + 3 + 1000);
	ramslice_expect_range(test, 2, 1, ULONG_MAX, 6, 2 + 3 + 1000);
	ramslice_expect_range(test, 8, 8, ULONG_MAX, 8,
			      4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 2000);
	/* Across the end of the group: two that end and one that begins */
	ramslice_expect_range(test, 9, 4, 21, 8,
			      4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + 3000);
}

static void ramslice_a_range_is_aligned(struct kunit *test)
{
	struct ramslice_map *map = test->priv;

	/* Blocks 12 and 13: not aligned to 8, and longer than that nowhere */
	map->block[12 - FIRST].price = 1;
	map->block[13 - FIRST].price = 1;
	map->block[16 - FIRST].price = 50;
	ramslice_expect_range(test, 2, 4, ULONG_MAX, 12, 2);
	ramslice_expect_range(test, 2, 8, ULONG_MAX, 16, 150);
	ramslice_expect_range(test, 6, 4, ULONG_MAX, 12, 352);
}

static void ramslice_a_range_ends_at_the_limit(struct kunit *test)
{
	struct ramslice_map *map = test->priv;

	map->block[NR_BLOCKS - 1].price = 0;
	map->block[3].price = 90;
	ramslice_expect_range(test, 2, 1, FIRST + NR_BLOCKS - 1, FIRST + 2, 190);
	ramslice_expect_range(test, 2, 1, FIRST + NR_BLOCKS,
			      FIRST + NR_BLOCKS - 2, 100);
	KUNIT_EXPECT_EQ(test, ramslice_ranges_cheapest(&map->ranges, 2, 1,
						       FIRST + 1).pfn, 0);
}

static void ramslice_what_cannot_be_had_is_left_out_and_named(struct kunit *test)
{
	struct ramslice_map *map = test->priv;
	struct ramslice_range range;

	map->block[4].price = 0;
	map->block[4].reason = RAMSLICE_REASON_SLAB;
	ramslice_expect_range(test, 4, 1, ULONG_MAX, FIRST, 400);
	ramslice_expect_range(test, 5, 1, ULONG_MAX, FIRST + 5, 500);
	range = ramslice_ranges_cheapest(&map->ranges, 12, 1, ULONG_MAX);
	KUNIT_EXPECT_EQ(test, range.nr_blocked, 1);
	KUNIT_EXPECT_EQ(test, range.reason, RAMSLICE_REASON_SLAB);
}

static void ramslice_a_range_keeps_few_slices_on(struct kunit *test)
{
	struct ramslice_map *map = test->priv;
	unsigned int i;

	/* Slices of four pageblocks, the first of which begins at 8 */
	for (i = 0; i < NR_BLOCKS; i++) {
		map->block[i].sleeps = true;
		map->block[i].opens = !((FIRST + i) % 4);
	}
	map->ranges.slice_price = 1000;
	ramslice_expect_range(test, 3, 1, ULONG_MAX, FIRST, 1300);
	ramslice_expect_range(test, 4, 1, ULONG_MAX, 8, 1400);
	ramslice_expect_range(test, 6, 1, ULONG_MAX, FIRST, 2600);
	/* One that stays on anyhow costs nothing more */
	for (i = 12 - FIRST; i < 16 - FIRST; i++) {
		map->block[i].sleeps = false;
		map->block[i].opens = false;
	}
	ramslice_expect_range(test, 4, 1, ULONG_MAX, 12, 400);
}

static void ramslice_a_range_that_failed_is_not_tried_again(struct kunit *test)
{
	struct ramslice_map *map = test->priv;

	ramslice_ranges_drop(&map->ranges, FIRST << pageblock_order, 3);
	ramslice_expect_range(test, 3, 1, ULONG_MAX, FIRST + 3, 300);
}

static void ramslice_a_driver_gets_what_it_asks_for(struct kunit *test)
{
	struct ramslice_contig want = {
		.nr_pages = 3 * pageblock_nr_pages,
		.align_pages = 4 * pageblock_nr_pages,
		/* Memory begins elsewhere than at 0 on some machines */
		.end_address = PFN_PHYS(node_start_pfn(first_online_node)) +
			       SZ_1G,
		.nid = NUMA_NO_NODE,
		.gfp = GFP_KERNEL | __GFP_ZERO,
		.owner = "kunit",
	};
	struct ramslice_buffer_stats before, now;
	enum ramslice_reason reason;
	struct ramslice_buffer *b;
	unsigned long pfn, i;

	if (!ramslice_enabled())
		kunit_skip(test, "ramslice is off");
	ramslice_read_buffer_stats(&before);
	b = ramslice_alloc_contig(&want, &reason);
	KUNIT_ASSERT_FALSE(test, IS_ERR(b));
	pfn = page_to_pfn(ramslice_buffer_page(b));
	KUNIT_EXPECT_TRUE(test, IS_ALIGNED(pfn, want.align_pages));
	KUNIT_EXPECT_LE(test, PFN_PHYS(pfn + want.nr_pages), want.end_address);
	for (i = 0; i < want.nr_pages; i++) {
		struct page *page = pfn_to_page(pfn + i);

		KUNIT_ASSERT_EQ(test, page_count(page), 1);
		KUNIT_ASSERT_NULL(test, memchr_inv(page_address(page), 0,
						   PAGE_SIZE));
		KUNIT_ASSERT_TRUE(test, ramslice_in_buffer(pfn + i));
	}
	ramslice_read_buffer_stats(&now);
	KUNIT_EXPECT_EQ(test, now.nr, before.nr + 1);
	KUNIT_EXPECT_EQ(test, now.nr_pages, before.nr_pages + want.nr_pages);

	ramslice_free_contig(b);
	ramslice_read_buffer_stats(&now);
	KUNIT_EXPECT_EQ(test, now.nr, before.nr);
	KUNIT_EXPECT_FALSE(test, ramslice_in_buffer(pfn));
}

static void ramslice_what_cannot_be_is_refused_with_a_reason(struct kunit *test)
{
	struct ramslice_contig want = {
		.nr_pages = 2 * pageblock_nr_pages,
		.end_address = PFN_PHYS(pageblock_nr_pages),
		.nid = NUMA_NO_NODE,
		.gfp = GFP_KERNEL,
		.owner = "kunit",
	};
	enum ramslice_reason reason;

	if (!ramslice_enabled())
		kunit_skip(test, "ramslice is off");
	KUNIT_EXPECT_EQ(test, PTR_ERR(ramslice_alloc_contig(&want, &reason)),
			-ENOMEM);
	KUNIT_EXPECT_EQ(test, reason, RAMSLICE_REASON_HOLE);
	want.nr_pages++;
	KUNIT_EXPECT_EQ(test, PTR_ERR(ramslice_alloc_contig(&want, &reason)),
			-EINVAL);
	want.nr_pages--;
	want.gfp = GFP_NOWAIT;
	KUNIT_EXPECT_EQ(test, PTR_ERR(ramslice_alloc_contig(&want, &reason)),
			-EINVAL);
}

static struct kunit_case ramslice_buffer_cases[] = {
	KUNIT_CASE(ramslice_of_equal_ranges_the_lowest_is_taken),
	KUNIT_CASE(ramslice_the_cheapest_range_is_found),
	KUNIT_CASE(ramslice_slices_that_take_turns_stay_on_once_each),
	KUNIT_CASE(ramslice_a_range_is_aligned),
	KUNIT_CASE(ramslice_a_range_ends_at_the_limit),
	KUNIT_CASE(ramslice_what_cannot_be_had_is_left_out_and_named),
	KUNIT_CASE(ramslice_a_range_keeps_few_slices_on),
	KUNIT_CASE(ramslice_a_range_that_failed_is_not_tried_again),
	KUNIT_CASE(ramslice_a_driver_gets_what_it_asks_for),
	KUNIT_CASE(ramslice_what_cannot_be_is_refused_with_a_reason),
	{}
};

static struct kunit_suite ramslice_buffer_suite = {
	.name = "ramslice_buffer",
	.init = ramslice_map_init,
	.test_cases = ramslice_buffer_cases,
};

kunit_test_suite(ramslice_buffer_suite);
