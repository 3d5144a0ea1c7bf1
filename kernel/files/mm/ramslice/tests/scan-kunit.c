// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of what is known of pageblocks, on two neighbouring ones that the test
 * has allocated whole, so that only the test changes them.
 */

#include <kunit/test.h>
#include <linux/gfp.h>
#include <linux/sched/signal.h>
#include "../internal.h"

#define PAIR_ORDER	(pageblock_order + 1)

/* Each test has a fresh pair. */
static int ramslice_alloc_pair(struct kunit *test)
{
	if (!ramslice_enabled())
		kunit_skip(test, "ramslice is off");
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

/* Reads the slices of both pageblocks. */
static void ramslice_read_pair(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);
	u32 id = ramslice_geom_slice(&ramslice_geom, pfn);

	ramslice_scan_slice(id, 0);
	if (ramslice_geom_slice(&ramslice_geom, pfn + pageblock_nr_pages) != id)
		ramslice_scan_slice(id + 1, 0);
}

static void ramslice_expect_touched(struct kunit *test, bool first, bool second)
{
	unsigned long pfn = ramslice_first_pfn(test);

	KUNIT_EXPECT_EQ(test, ramslice_block_touched(pfn), first);
	KUNIT_EXPECT_EQ(test, ramslice_block_touched(pfn + pageblock_nr_pages),
			second);
}

static void ramslice_touch_pair(struct kunit *test, unsigned long offset,
				unsigned int order)
{
	unsigned long pfn = ramslice_first_pfn(test);
	struct zone *zone = page_zone(pfn_to_page(pfn));

	spin_lock_irq(&zone->lock);
	ramslice_touch(zone, pfn + offset, order);
	spin_unlock_irq(&zone->lock);
}

static void ramslice_reading_ends_what_a_touch_began(struct kunit *test)
{
	ramslice_read_pair(test);
	ramslice_expect_touched(test, false, false);
	ramslice_touch_pair(test, 0, 0);
	ramslice_expect_touched(test, true, false);
	ramslice_read_pair(test);
	ramslice_expect_touched(test, false, false);
	ramslice_touch_pair(test, 2 * pageblock_nr_pages - 1, 0);
	ramslice_expect_touched(test, false, true);
}

static void ramslice_a_large_block_touches_all_of_its_pageblocks(struct kunit *test)
{
	ramslice_read_pair(test);
	ramslice_touch_pair(test, 0, pageblock_order);
	ramslice_expect_touched(test, true, false);
	ramslice_read_pair(test);
	ramslice_touch_pair(test, 0, PAIR_ORDER);
	ramslice_expect_touched(test, true, true);
}

static void ramslice_what_is_freed_is_touched_and_free(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);

	ramslice_read_pair(test);
	KUNIT_EXPECT_FALSE(test, ramslice_block_free(pfn));
	/* Pages that others free around it can only make the free block larger */
	__free_pages(test->priv, PAIR_ORDER);
	KUNIT_EXPECT_TRUE(test, ramslice_block_touched(pfn));
	KUNIT_EXPECT_TRUE(test, ramslice_block_touched(pfn + pageblock_nr_pages));
	test->priv = NULL;
}

static void ramslice_a_summary_makes_nothing_free(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);
	struct ramslice_block *block = ramslice_block(pfn);
	struct ramslice_zone *rz;
	u16 before;

	ramslice_read_pair(test);
	rz = ramslice_slices[ramslice_geom_slice(&ramslice_geom, pfn)].rz;
	mutex_lock(&rz->scan_mutex);
	before = block->count[RAMSLICE_FREE];
	WRITE_ONCE(block->count[RAMSLICE_FREE], pageblock_nr_pages);
	KUNIT_EXPECT_FALSE(test, ramslice_block_free(pfn));
	WRITE_ONCE(block->count[RAMSLICE_FREE], before);
	mutex_unlock(&rz->scan_mutex);
}

static void ramslice_a_kernel_allocation_blocks(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);
	u32 id = ramslice_geom_slice(&ramslice_geom, pfn);
	const struct ramslice_block *block = ramslice_block(pfn);

	ramslice_read_pair(test);
	KUNIT_EXPECT_EQ(test, block->count[RAMSLICE_FREE], 0);
	KUNIT_EXPECT_EQ(test, block->count[RAMSLICE_LRU_ANON], 0);
	KUNIT_EXPECT_GT(test, block->nr_blocking, 0);
	if (!ramslice_slices[id].unreclaimable)
		KUNIT_EXPECT_NE(test, ramslice_blocker_of(id),
				RAMSLICE_REASON_NONE);
}

static void ramslice_another_page_blocks_when_one_has_gone(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);
	u32 id = ramslice_geom_slice(&ramslice_geom, pfn);
	struct ramslice_slice *s = &ramslice_slices[id];

	ramslice_read_pair(test);
	mutex_lock(&s->rz->scan_mutex);
	/* Of the allocation, the first page alone has a reference */
	WRITE_ONCE(s->blocker, pfn + 1);
	mutex_unlock(&s->rz->scan_mutex);
	KUNIT_EXPECT_NE(test, ramslice_blocker_of(id), RAMSLICE_REASON_NONE);
	KUNIT_EXPECT_NE(test, READ_ONCE(s->blocker), pfn + 1);
}

static void ramslice_a_slice_is_the_sum_of_its_pageblocks(struct kunit *test)
{
	u32 id = ramslice_geom_slice(&ramslice_geom, ramslice_first_pfn(test));
	struct ramslice_slice *s = &ramslice_slices[id];
	u32 before[RAMSLICE_NR_COUNTERS], nr_blocking;

	ramslice_read_pair(test);
	mutex_lock(&s->rz->scan_mutex);
	memcpy(before, s->count, sizeof(before));
	nr_blocking = s->nr_blocking;
	ramslice_sum_slice(id);
	KUNIT_EXPECT_MEMEQ(test, before, s->count, sizeof(before));
	KUNIT_EXPECT_EQ(test, nr_blocking, s->nr_blocking);
	mutex_unlock(&s->rz->scan_mutex);
}

/* Reads a slice after this one; true if it had time to look at this one, too. */
static bool ramslice_glances(struct ramslice_zone *rz, u32 id,
			     const struct ramslice_block *block,
			     unsigned long deadline)
{
	WRITE_ONCE(rz->scan_changed, id + 1);
	ramslice_scan_zone(rz, RAMSLICE_ANY_AGE, 0, deadline);
	return block->count[RAMSLICE_FREE] != pageblock_nr_pages;
}

static void ramslice_glancing_at_slices_ends_in_time(struct kunit *test)
{
	unsigned long pfn = ramslice_first_pfn(test);
	u32 id = ramslice_geom_slice(&ramslice_geom, pfn);
	struct ramslice_zone *rz = ramslice_slices[id].rz;
	struct ramslice_block *block = ramslice_block(pfn);
	bool late, interrupted, in_time;

	if (rz->nr_slices < 2)
		kunit_skip(test, "the zone has a single slice");
	ramslice_read_pair(test);
	/* Keeps the zone's worker from reading it */
	down_write(&ramslice_table_sem);
	mutex_lock(&rz->scan_mutex);
	/* A glance finds that it is not free */
	WRITE_ONCE(block->count[RAMSLICE_FREE], pageblock_nr_pages);
	ramslice_sum_slice(id);
	mutex_unlock(&rz->scan_mutex);
	ramslice_touch_pair(test, 0, 0);

	late = ramslice_glances(rz, id, block, jiffies - 1);
	set_thread_flag(TIF_SIGPENDING);
	interrupted = ramslice_glances(rz, id, block, jiffies + HZ);
	clear_thread_flag(TIF_SIGPENDING);
	in_time = ramslice_glances(rz, id, block, jiffies + 60 * HZ);
	up_write(&ramslice_table_sem);

	KUNIT_EXPECT_FALSE(test, late);
	KUNIT_EXPECT_FALSE(test, interrupted);
	KUNIT_EXPECT_TRUE(test, in_time);
}

static struct kunit_case ramslice_scan_cases[] = {
	KUNIT_CASE(ramslice_reading_ends_what_a_touch_began),
	KUNIT_CASE(ramslice_a_large_block_touches_all_of_its_pageblocks),
	KUNIT_CASE(ramslice_what_is_freed_is_touched_and_free),
	KUNIT_CASE(ramslice_a_summary_makes_nothing_free),
	KUNIT_CASE(ramslice_a_kernel_allocation_blocks),
	KUNIT_CASE(ramslice_another_page_blocks_when_one_has_gone),
	KUNIT_CASE(ramslice_a_slice_is_the_sum_of_its_pageblocks),
	KUNIT_CASE(ramslice_glancing_at_slices_ends_in_time),
	{}
};

static struct kunit_suite ramslice_scan_suite = {
	.name = "ramslice_scan",
	.init = ramslice_alloc_pair,
	.exit = ramslice_free_pair,
	.test_cases = ramslice_scan_cases,
};

kunit_test_suite(ramslice_scan_suite);
