// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of how a change spreads over pageblocks, on the counters of two
 * neighbouring pageblocks that the test has allocated whole, so that only the
 * test changes them. Every change is taken back.
 */

#include <kunit/test.h>
#include <linux/gfp.h>
#include "../internal.h"

#define NR_BLOCKS	2
#define PAIR_ORDER	(pageblock_order + 1)

/* The counters of both blocks at one moment. */
struct counts {
	int block[NR_BLOCKS][RAMSLICE_NR_COUNTERS];
};

static void ramslice_read_counts(unsigned long pfn, struct counts *counts)
{
	unsigned int n, c;

	for (n = 0; n < NR_BLOCKS; n++) {
		struct ramslice_block *block =
			ramslice_block(pfn + n * pageblock_nr_pages);

		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
			counts->block[n][c] = atomic_read(&block->count[c]);
	}
}

/* Each test has a fresh pair. */
static int ramslice_alloc_pair(struct kunit *test)
{
	if (PAIR_ORDER > MAX_PAGE_ORDER)
		kunit_skip(test, "a pageblock is all that can be allocated");
	test->priv = alloc_pages(GFP_KERNEL, PAIR_ORDER);
	return test->priv ? 0 : -ENOMEM;
}

static void ramslice_free_pair(struct kunit *test)
{
	if (test->priv)
		__free_pages(test->priv, PAIR_ORDER);
}

static unsigned long ramslice_first_pfn(struct kunit *test)
{
	struct page *page = test->priv;

	return page_to_pfn(page);
}

/*
 * Accounts @nr_pages for the pages from the @first of the pair on, expects
 * that the blocks' counters change by @a and @b and no other does, and that
 * the opposite brings all back.
 */
static void ramslice_expect_change(struct kunit *test, enum ramslice_counter c,
				   unsigned long first, unsigned long span,
				   long nr_pages, int a, int b)
{
	unsigned long pfn = ramslice_first_pfn(test);
	struct counts before, during, after;

	ramslice_read_counts(pfn, &before);
	ramslice_account_range(pfn + first, span, c, nr_pages);
	ramslice_read_counts(pfn, &during);
	ramslice_account_range(pfn + first, span, c, -nr_pages);
	ramslice_read_counts(pfn, &after);

	KUNIT_EXPECT_EQ(test, during.block[0][c] - before.block[0][c], a);
	KUNIT_EXPECT_EQ(test, during.block[1][c] - before.block[1][c], b);
	during.block[0][c] -= a;
	during.block[1][c] -= b;
	KUNIT_EXPECT_MEMEQ(test, &during, &before, sizeof(before));
	KUNIT_EXPECT_MEMEQ(test, &after, &before, sizeof(before));
}

static void ramslice_range_of_two_blocks_counts_half_in_each(struct kunit *test)
{
	ramslice_expect_change(test, RAMSLICE_WRITEBACK, 0,
			       2 * pageblock_nr_pages, 2 * pageblock_nr_pages,
			       pageblock_nr_pages, pageblock_nr_pages);
}

static void ramslice_negative_change_of_two_blocks_is_halved(struct kunit *test)
{
	ramslice_expect_change(test, RAMSLICE_WRITEBACK, 0,
			       2 * pageblock_nr_pages,
			       -2 * (long)pageblock_nr_pages,
			       -(int)pageblock_nr_pages,
			       -(int)pageblock_nr_pages);
}

static void
ramslice_range_across_the_border_counts_by_where_it_lies(struct kunit *test)
{
	ramslice_expect_change(test, RAMSLICE_DIRTY, pageblock_nr_pages - 3, 8,
			       8, 3, 5);
	ramslice_expect_change(test, RAMSLICE_DIRTY, pageblock_nr_pages - 3, 8,
			       -8, -3, -5);
	ramslice_expect_change(test, RAMSLICE_DIRTY, pageblock_nr_pages - 1, 2,
			       2, 1, 1);
}

static void
ramslice_range_up_to_the_border_stays_in_its_block(struct kunit *test)
{
	ramslice_expect_change(test, RAMSLICE_SHMEM, 0, pageblock_nr_pages,
			       pageblock_nr_pages, pageblock_nr_pages, 0);
	ramslice_expect_change(test, RAMSLICE_SHMEM, pageblock_nr_pages,
			       pageblock_nr_pages, pageblock_nr_pages,
			       0, pageblock_nr_pages);
	ramslice_expect_change(test, RAMSLICE_SHMEM, pageblock_nr_pages - 4, 4,
			       4, 4, 0);
	ramslice_expect_change(test, RAMSLICE_SHMEM, 2 * pageblock_nr_pages - 1,
			       1, 1, 0, 1);
}

/* A huge page of which a few pages are mapped. */
static void ramslice_part_of_a_range_counts_as_that_part(struct kunit *test)
{
	ramslice_expect_change(test, RAMSLICE_ANON_MAPPED, 0,
			       pageblock_nr_pages, 1, 1, 0);
	ramslice_expect_change(test, RAMSLICE_ANON_MAPPED, pageblock_nr_pages,
			       pageblock_nr_pages, -7, 0, -7);
	ramslice_expect_change(test, RAMSLICE_ANON_MAPPED, 0,
			       pageblock_nr_pages, 0, 0, 0);
}

static void ramslice_every_counter_is_its_own(struct kunit *test)
{
	unsigned int c;

	for (c = RAMSLICE_FREE + 1; c < RAMSLICE_NR_COUNTERS; c++)
		ramslice_expect_change(test, c, pageblock_nr_pages - 1, 2, 2, 1,
				       1);
}

static void ramslice_free_pages_count_where_they_lie(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);
	struct zone *zone = page_zone(pfn_to_page(pfn));
	struct counts before, during, after;

	spin_lock_irq(&zone->lock);
	ramslice_read_counts(pfn, &before);
	__ramslice_account_free(pfn + 1, 2 * pageblock_nr_pages - 1);
	ramslice_read_counts(pfn, &during);
	__ramslice_account_free(pfn + 1, 1 - 2 * (long)pageblock_nr_pages);
	ramslice_read_counts(pfn, &after);
	spin_unlock_irq(&zone->lock);

	KUNIT_EXPECT_EQ(test, during.block[0][RAMSLICE_FREE] -
			before.block[0][RAMSLICE_FREE],
			(int)pageblock_nr_pages - 1);
	KUNIT_EXPECT_EQ(test, during.block[1][RAMSLICE_FREE] -
			before.block[1][RAMSLICE_FREE],
			(int)pageblock_nr_pages);
	KUNIT_EXPECT_MEMEQ(test, &after, &before, sizeof(before));
}

static void ramslice_allocated_block_has_no_free_pages(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);
	struct counts counts;

	if (!ramslice_enabled())
		kunit_skip(test, "ramslice is off");
	ramslice_read_counts(pfn, &counts);
	KUNIT_EXPECT_EQ(test, counts.block[0][RAMSLICE_FREE], 0);
	KUNIT_EXPECT_EQ(test, counts.block[1][RAMSLICE_FREE], 0);
}

static struct kunit_case ramslice_account_cases[] = {
	KUNIT_CASE(ramslice_range_of_two_blocks_counts_half_in_each),
	KUNIT_CASE(ramslice_negative_change_of_two_blocks_is_halved),
	KUNIT_CASE(ramslice_range_across_the_border_counts_by_where_it_lies),
	KUNIT_CASE(ramslice_range_up_to_the_border_stays_in_its_block),
	KUNIT_CASE(ramslice_part_of_a_range_counts_as_that_part),
	KUNIT_CASE(ramslice_every_counter_is_its_own),
	KUNIT_CASE(ramslice_free_pages_count_where_they_lie),
	KUNIT_CASE(ramslice_allocated_block_has_no_free_pages),
	{}
};

static struct kunit_suite ramslice_account_suite = {
	.name = "ramslice_account",
	.init = ramslice_alloc_pair,
	.exit = ramslice_free_pair,
	.test_cases = ramslice_account_cases,
};

kunit_test_suite(ramslice_account_suite);
