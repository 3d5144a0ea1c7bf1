// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of prices: figures worked out by hand from Equations 3.1 to 3.4 and
 * the defaults of Table 3.2, and the limits of the arithmetic.
 */

#include <kunit/test.h>
#include "../internal.h"

#define PAGES_64M	16384U

static const struct ramslice_prices defaults = RAMSLICE_PRICES_DEFAULT;

static u64 ramslice_price(u64 nr_pages, const u32 *counters)
{
	return ramslice_price_counters(&defaults, nr_pages, counters, false);
}

static void ramslice_defaults_are_those_of_table_3_2(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, defaults.isolate_slice, 695);
	KUNIT_EXPECT_EQ(test, defaults.isolate_page, 303);
	KUNIT_EXPECT_EQ(test, defaults.drop_page, 39);
	KUNIT_EXPECT_EQ(test, defaults.migrate_page, 100);
	KUNIT_EXPECT_EQ(test, defaults.migrate_mapping, 29);
	KUNIT_EXPECT_EQ(test, defaults.alloc_buddy, 1);
	KUNIT_EXPECT_EQ(test, defaults.alloc_cache, 25);
	KUNIT_EXPECT_EQ(test, defaults.unreclaimable, 1000000000);
}

/* 695 + 303 * 16 */
static void ramslice_empty_slice_of_64m_costs_5543(struct kunit *test)
{
	const u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_FREE] = PAGES_64M,
	};

	KUNIT_EXPECT_EQ(test, ramslice_price_base(&defaults, PAGES_64M), 5543);
	KUNIT_EXPECT_EQ(test, ramslice_price(PAGES_64M, counters), 5543);
}

static void
ramslice_base_grows_with_pages_not_with_thousands_of_them(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ramslice_price_base(&defaults, 0), 695);
	/* 303 * 512 / 1024 = 151.5 */
	KUNIT_EXPECT_EQ(test, ramslice_price_base(&defaults, 512), 846);
	KUNIT_EXPECT_EQ(test, ramslice_price_base(&defaults, 1024), 998);
	/* 303 * 1536 / 1024 = 454.5 */
	KUNIT_EXPECT_EQ(test, ramslice_price_base(&defaults, 1536), 1149);
}

static void
ramslice_content_costs_by_pages_dropped_moved_and_maps(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ramslice_price_content(&defaults, 0, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, ramslice_price_content(&defaults, 1, 0, 0), 39);
	KUNIT_EXPECT_EQ(test, ramslice_price_content(&defaults, 0, 1, 0), 100);
	KUNIT_EXPECT_EQ(test, ramslice_price_content(&defaults, 0, 0, 1), 29);
	/* 3900 + 20000 + 8700 */
	KUNIT_EXPECT_EQ(test,
			ramslice_price_content(&defaults, 100, 200, 300),
			32600);
}

/* What the paper's Eq 3.2 has: nothing dirty, no tmpfs, all anon mapped. */
static void ramslice_plain_slice_costs_what_the_paper_says(struct kunit *test)
{
	const u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_FREE]		= 6384,
		[RAMSLICE_LRU_ANON]	= 4000,
		[RAMSLICE_LRU_FILE]	= 6000,
		[RAMSLICE_ANON_MAPPED]	= 4000,
		[RAMSLICE_FILE_MAPPED]	= 1000,
		[RAMSLICE_FILE]		= 6000,
	};

	KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 5000);
	KUNIT_EXPECT_EQ(test, ramslice_nr_move(counters), 5000);
	/* 5543 + 39 * 5000 + 100 * 5000 + 29 * 5000 */
	KUNIT_EXPECT_EQ(test, ramslice_price(PAGES_64M, counters), 845543);
}

static void ramslice_mixed_slice_costs_what_its_parts_cost(struct kunit *test)
{
	const u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_FREE]		= 10000,
		[RAMSLICE_LRU_ANON]	= 4000,
		[RAMSLICE_LRU_FILE]	= 2384,
		[RAMSLICE_ANON_MAPPED]	= 3500,
		[RAMSLICE_FILE_MAPPED]	= 300,
		[RAMSLICE_FILE]		= 2484,
		[RAMSLICE_SHMEM]	= 100,
		[RAMSLICE_DIRTY]	= 50,
		[RAMSLICE_WRITEBACK]	= 34,
		[RAMSLICE_HUGE]		= 512,
	};

	/* 2484 - 300 - 100 - 50 - 34 */
	KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 2000);
	/* 4000 + 2384 - 2000 */
	KUNIT_EXPECT_EQ(test, ramslice_nr_move(counters), 4384);
	/* 5543 + 39 * 2000 + 100 * 4384 + 29 * 3800 */
	KUNIT_EXPECT_EQ(test, ramslice_price(PAGES_64M, counters), 632143);
}

static void ramslice_page_off_the_lru_adds_exactly_1e9(struct kunit *test)
{
	u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_FREE]		= 10000,
		[RAMSLICE_LRU_ANON]	= 4000,
		[RAMSLICE_LRU_FILE]	= 2384,
	};
	u64 movable = ramslice_price(PAGES_64M, counters);

	KUNIT_EXPECT_FALSE(test, ramslice_has_unmovable(PAGES_64M, counters));
	KUNIT_EXPECT_LT(test, movable, defaults.unreclaimable);

	counters[RAMSLICE_FREE]--;
	KUNIT_EXPECT_TRUE(test, ramslice_has_unmovable(PAGES_64M, counters));
	KUNIT_EXPECT_EQ(test, ramslice_price(PAGES_64M, counters),
			movable + 1000000000);
}

static void ramslice_poison_adds_exactly_1e9_and_only_once(struct kunit *test)
{
	u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_FREE] = PAGES_64M,
	};

	KUNIT_EXPECT_EQ(test,
			ramslice_price_counters(&defaults, PAGES_64M, counters,
						true),
			1000005543);
	counters[RAMSLICE_FREE] = 0;
	KUNIT_EXPECT_EQ(test,
			ramslice_price_counters(&defaults, PAGES_64M, counters,
						true),
			1000005543);
}

/* A page counts twice for a moment on its way from one list to another. */
static void
ramslice_counters_above_the_slice_are_not_unmovable(struct kunit *test)
{
	const u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_FREE]		= 16000,
		[RAMSLICE_LRU_ANON]	= 400,
		[RAMSLICE_LRU_FILE]	= 400,
	};

	KUNIT_EXPECT_FALSE(test, ramslice_has_unmovable(PAGES_64M, counters));
}

static void ramslice_targets_cost_by_where_they_come_from(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ramslice_price_targets(&defaults, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, ramslice_price_targets(&defaults, 1, 0), 1);
	KUNIT_EXPECT_EQ(test, ramslice_price_targets(&defaults, 0, 1), 25);
	/* 1000 + 25 * 200 */
	KUNIT_EXPECT_EQ(test, ramslice_price_targets(&defaults, 1000, 200),
			6000);
}

static void
ramslice_mapped_shmem_dirty_and_writeback_are_not_dropped(struct kunit *test)
{
	static const enum ramslice_counter kept[] = {
		RAMSLICE_FILE_MAPPED,
		RAMSLICE_SHMEM,
		RAMSLICE_DIRTY,
		RAMSLICE_WRITEBACK,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kept); i++) {
		u32 counters[RAMSLICE_NR_COUNTERS] = {
			[RAMSLICE_LRU_FILE]	= 1000,
			[RAMSLICE_FILE]		= 1000,
		};

		KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 1000);
		KUNIT_EXPECT_EQ(test, ramslice_nr_move(counters), 0);

		counters[kept[i]] = 300;
		KUNIT_EXPECT_EQ_MSG(test, ramslice_nr_drop(counters), 700,
				    "counter %d", kept[i]);
		KUNIT_EXPECT_EQ_MSG(test, ramslice_nr_move(counters), 300,
				    "counter %d", kept[i]);
	}
}

static void
ramslice_other_counters_do_not_change_what_is_dropped(struct kunit *test)
{
	static const enum ramslice_counter other[] = {
		RAMSLICE_FREE,
		RAMSLICE_LRU_ANON,
		RAMSLICE_LRU_FILE,
		RAMSLICE_ANON_MAPPED,
		RAMSLICE_HUGE,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(other); i++) {
		u32 counters[RAMSLICE_NR_COUNTERS] = {
			[RAMSLICE_FILE] = 1000,
		};

		counters[other[i]] = 300;
		KUNIT_EXPECT_EQ_MSG(test, ramslice_nr_drop(counters), 1000,
				    "counter %d", other[i]);
	}
}

/* Pages that are dirty and mapped are taken off twice. */
static void ramslice_dropping_never_falls_below_nothing(struct kunit *test)
{
	u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_LRU_FILE]	= 1000,
		[RAMSLICE_FILE_MAPPED]	= 600,
		[RAMSLICE_FILE]		= 1000,
		[RAMSLICE_DIRTY]	= 600,
	};

	KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 0);
	KUNIT_EXPECT_EQ(test, ramslice_nr_move(counters), 1000);

	counters[RAMSLICE_DIRTY] = 400;
	KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 0);
	counters[RAMSLICE_DIRTY] = 399;
	KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 1);
}

static void ramslice_rest_of_the_lru_is_moved(struct kunit *test)
{
	u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_LRU_ANON]	= 300,
		[RAMSLICE_LRU_FILE]	= 500,
		[RAMSLICE_FILE]		= 500,
		[RAMSLICE_DIRTY]	= 100,
	};

	KUNIT_EXPECT_EQ(test, ramslice_nr_move(counters), 400);

	/* Cache that is isolated from the LRU lists is not moved */
	counters[RAMSLICE_LRU_ANON] = 0;
	counters[RAMSLICE_LRU_FILE] = 399;
	KUNIT_EXPECT_EQ(test, ramslice_nr_move(counters), 0);
}

static void ramslice_maximal_counters_do_not_overflow(struct kunit *test)
{
	u32 counters[RAMSLICE_NR_COUNTERS];
	unsigned int c;

	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		counters[c] = U32_MAX;
	KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 0);
	KUNIT_EXPECT_EQ(test, ramslice_nr_move(counters), 8589934590ULL);
	KUNIT_EXPECT_FALSE(test, ramslice_has_unmovable(U32_MAX, counters));
	KUNIT_EXPECT_EQ(test, ramslice_price(U32_MAX, counters),
			1109372436916ULL);

	/* Sums that come to 0 in 32 bits */
	memset(counters, 0, sizeof(counters));
	counters[RAMSLICE_FILE] = U32_MAX;
	counters[RAMSLICE_FILE_MAPPED] = U32_MAX;
	counters[RAMSLICE_SHMEM] = 1;
	KUNIT_EXPECT_EQ(test, ramslice_nr_drop(counters), 0);
	counters[RAMSLICE_FREE] = U32_MAX;
	counters[RAMSLICE_LRU_FILE] = 1;
	KUNIT_EXPECT_FALSE(test, ramslice_has_unmovable(U32_MAX, counters));

	KUNIT_EXPECT_EQ(test, ramslice_price_base(&defaults, U32_MAX),
			1270874806ULL);
	KUNIT_EXPECT_EQ(test,
			ramslice_price_targets(&defaults, U32_MAX, U32_MAX),
			111669149670ULL);
}

/* The largest that sysfs takes; the slice of 16 GiB is all mapped pages. */
static void ramslice_dearest_prices_do_not_overflow_for_16g(struct kunit *test)
{
	const u64 max = 1000000000000ULL;
	const struct ramslice_prices p = {
		.isolate_slice	 = max,
		.isolate_page	 = max,
		.drop_page	 = max,
		.migrate_page	 = max,
		.migrate_mapping = max,
		.alloc_buddy	 = max,
		.alloc_cache	 = max,
		.unreclaimable	 = max,
	};
	const u32 counters[RAMSLICE_NR_COUNTERS] = {
		[RAMSLICE_LRU_ANON]	= 1U << 22,
		[RAMSLICE_ANON_MAPPED]	= 1U << 22,
	};

	/* 1e12 * (1 + 4096 + 2 * 4194304 + 1) */
	KUNIT_EXPECT_EQ(test,
			ramslice_price_counters(&p, 1U << 22, counters, true),
			8392706000000000000ULL);
}

static void
ramslice_work_without_isolated_blocks_costs_nothing(struct kunit *test)
{
	const struct ramslice_work none = {};
	const struct ramslice_work no_blocks = {
		.pages_migrated	= 20,
		.pages_dropped	= 10,
		.target_free	= 40,
		.target_cache	= 50,
	};

	KUNIT_EXPECT_EQ(test, ramslice_price_work(&defaults, &none, 0), 0);
	KUNIT_EXPECT_EQ(test, ramslice_price_work(&defaults, &no_blocks, 30),
			0);
}

static void ramslice_work_costs_what_was_done(struct kunit *test)
{
	struct ramslice_work work = {
		.pages_migrated	 = 20,
		.pages_dropped	 = 10,
		.target_free	 = 40,
		.target_cache	 = 50,
		.blocks_isolated = PAGES_64M >> pageblock_order,
	};

	/* 5543 + 39 * 10 + 100 * 20 + 29 * 30 + 40 + 25 * 50 */
	KUNIT_EXPECT_EQ(test, ramslice_price_work(&defaults, &work, 30), 10093);

	/* What failed has no price of its own */
	work.pages_failed = 1000;
	work.huge_moved = 1000;
	work.huge_split = 1000;
	KUNIT_EXPECT_EQ(test, ramslice_price_work(&defaults, &work, 30), 10093);
}

/* Whichever pages are used, the price by true counters is at most the exact one. */
static void ramslice_choice_of_cache_gives_a_lower_bound(struct kunit *test)
{
	static const struct {
		enum ramslice_cache cache;
		u64 drop, move, expected;
	} cases[] = {
		{ RAMSLICE_CACHE_DROP, 39, 100, 39 },
		{ RAMSLICE_CACHE_KEEP, 39, 100, 100 },
		{ RAMSLICE_CACHE_AUTO, 39, 100, 39 },
		{ RAMSLICE_CACHE_DROP, 100, 39, 100 },
		{ RAMSLICE_CACHE_KEEP, 100, 39, 39 },
		{ RAMSLICE_CACHE_AUTO, 100, 39, 39 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ramslice_prices p = defaults, expected = defaults;

		p.drop_page = cases[i].drop;
		p.migrate_page = cases[i].move;
		expected = p;
		expected.drop_page = cases[i].expected;
		ramslice_cache_prices(&p, cases[i].cache);
		KUNIT_EXPECT_MEMEQ(test, &p, &expected, sizeof(p));
	}
}

static struct kunit_case ramslice_price_cases[] = {
	KUNIT_CASE(ramslice_defaults_are_those_of_table_3_2),
	KUNIT_CASE(ramslice_empty_slice_of_64m_costs_5543),
	KUNIT_CASE(ramslice_base_grows_with_pages_not_with_thousands_of_them),
	KUNIT_CASE(ramslice_content_costs_by_pages_dropped_moved_and_maps),
	KUNIT_CASE(ramslice_plain_slice_costs_what_the_paper_says),
	KUNIT_CASE(ramslice_mixed_slice_costs_what_its_parts_cost),
	KUNIT_CASE(ramslice_page_off_the_lru_adds_exactly_1e9),
	KUNIT_CASE(ramslice_poison_adds_exactly_1e9_and_only_once),
	KUNIT_CASE(ramslice_counters_above_the_slice_are_not_unmovable),
	KUNIT_CASE(ramslice_targets_cost_by_where_they_come_from),
	KUNIT_CASE(ramslice_mapped_shmem_dirty_and_writeback_are_not_dropped),
	KUNIT_CASE(ramslice_other_counters_do_not_change_what_is_dropped),
	KUNIT_CASE(ramslice_dropping_never_falls_below_nothing),
	KUNIT_CASE(ramslice_rest_of_the_lru_is_moved),
	KUNIT_CASE(ramslice_maximal_counters_do_not_overflow),
	KUNIT_CASE(ramslice_dearest_prices_do_not_overflow_for_16g),
	KUNIT_CASE(ramslice_work_without_isolated_blocks_costs_nothing),
	KUNIT_CASE(ramslice_work_costs_what_was_done),
	KUNIT_CASE(ramslice_choice_of_cache_gives_a_lower_bound),
	{}
};

static struct kunit_suite ramslice_price_suite = {
	.name = "ramslice_price",
	.test_cases = ramslice_price_cases,
};

kunit_test_suite(ramslice_price_suite);
