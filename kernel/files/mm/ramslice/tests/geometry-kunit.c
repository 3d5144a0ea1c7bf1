// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the map between page frames, pageblocks, slices and chunks, for
 * sizes of slices that are and are not powers of two or whole chunks, and for
 * slices that take turns.
 */

#include <kunit/test.h>
#include <linux/sizes.h>
#include "../internal.h"
#include "../boot_args.h"

static const u32 ids[] = { 0, 1, 2, 3, 4, 5, 1000, 1001, 0xfffffe, 0xffffff };

static void ramslice_geometry_desc(const struct ramslice_geometry *geom,
				   char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%u blocks, %u ways by %u",
		 geom->nr_blocks, 1U << geom->ways_shift,
		 1U << geom->granule_shift);
}

static const struct ramslice_geometry geometries[] = {
	{ 1 }, { 2 }, { 3 }, { 32 }, { 512 },
	{ 1, 1, 0 }, { 3, 1, 0 }, { 32, 1, 0 }, { 32, 1, 1 }, { 6, 1, 1 },
	{ 32, 1, 5 }, { 32, 2, 0 }, { 32, 2, 1 }, { 24, 2, 3 }, { 512, 2, 2 },
	{ 8, 4, 1 },
};

KUNIT_ARRAY_PARAM(geometry, geometries, ramslice_geometry_desc);

static struct ramslice_geometry ramslice_geometry(struct kunit *test)
{
	return *(const struct ramslice_geometry *)test->param_value;
}

/* One after the last page frame of the slices that take turns with one. */
static unsigned long ramslice_group_end(const struct ramslice_geometry *geom,
					u32 id)
{
	u32 last = id | (ramslice_geom_ways(geom) - 1);

	return ramslice_geom_block(geom, last, geom->nr_blocks - 1) +
	       pageblock_nr_pages;
}

static void ramslice_page_frames_lead_back_to_their_slice(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i, n;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		for (n = 0; n < geom.nr_blocks; n++) {
			unsigned long pfn = ramslice_geom_block(&geom, ids[i],
								n);
			unsigned long last = pfn + pageblock_nr_pages - 1;

			KUNIT_ASSERT_TRUE(test, pageblock_aligned(pfn));
			KUNIT_ASSERT_EQ(test, ramslice_geom_slice(&geom, pfn),
					ids[i]);
			KUNIT_ASSERT_EQ(test, ramslice_geom_slice(&geom, last),
					ids[i]);
		}
	}
}

/* Walks the blocks of memory from 0 on: each is the next one of its slice. */
static void ramslice_every_block_has_a_slice(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	u32 id, nr_ids = 4 << geom.ways_shift;
	unsigned int *seen = kunit_kcalloc(test, nr_ids, sizeof(*seen),
					   GFP_KERNEL);
	unsigned long block;

	KUNIT_ASSERT_NOT_NULL(test, seen);
	for (block = 0; block < (unsigned long)nr_ids * geom.nr_blocks;
	     block++) {
		unsigned long pfn = block << pageblock_order;

		id = ramslice_geom_slice(&geom, pfn);
		KUNIT_ASSERT_LT(test, id, nr_ids);
		KUNIT_ASSERT_EQ(test,
				ramslice_geom_block(&geom, id, seen[id]++), pfn);
	}
	for (id = 0; id < nr_ids; id++)
		KUNIT_EXPECT_EQ(test, seen[id], geom.nr_blocks);
}

/* Written down by hand: two ways by two pageblocks, and four by one. */
static void ramslice_slices_take_turns(struct kunit *test)
{
	static const u32 two[] = { 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3 };
	static const u32 four[] = { 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7 };
	struct ramslice_geometry by_two = { 4, 1, 1 }, by_one = { 2, 2, 0 };
	unsigned long block;

	for (block = 0; block < ARRAY_SIZE(two); block++) {
		unsigned long pfn = block << pageblock_order;

		KUNIT_EXPECT_EQ(test, ramslice_geom_slice(&by_two, pfn),
				two[block]);
		KUNIT_EXPECT_EQ(test, ramslice_geom_slice(&by_one, pfn),
				four[block]);
	}
}

static void ramslice_groups_touch_their_neighbours(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		unsigned long end = ramslice_group_end(&geom, ids[i]);
		u32 next = (ids[i] | (ramslice_geom_ways(&geom) - 1)) + 1;

		KUNIT_EXPECT_EQ(test, ramslice_geom_block(&geom, next, 0), end);
		KUNIT_EXPECT_EQ(test, ramslice_geom_slice(&geom, end), next);
	}
}

static void ramslice_chunks_tile_the_slice(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i, n, nr;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		unsigned long pfn;

		for (n = 0;
		     (nr = ramslice_geom_chunk(&geom, ids[i], n, &pfn));
		     n += nr) {
			unsigned long last = pfn + (nr - 1) * pageblock_nr_pages;

			KUNIT_ASSERT_LE(test, nr, geom.nr_blocks - n);
			KUNIT_ASSERT_EQ(test, pfn,
					ramslice_geom_block(&geom, ids[i], n));
			KUNIT_ASSERT_EQ(test, last,
					ramslice_geom_block(&geom, ids[i],
							    n + nr - 1));
		}
		KUNIT_EXPECT_EQ(test, n, geom.nr_blocks);
	}
}

static void ramslice_chunks_never_leave_an_aligned_chunk(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i, n, nr;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		/* From every block, as after a chunk that was interrupted */
		for (n = 0; n < geom.nr_blocks; n++) {
			unsigned long pfn, last;

			nr = ramslice_geom_chunk(&geom, ids[i], n, &pfn);
			KUNIT_ASSERT_GT(test, nr, 0);
			last = pfn + nr * pageblock_nr_pages - 1;
			KUNIT_ASSERT_EQ(test, pfn / RAMSLICE_CHUNK_PAGES,
					last / RAMSLICE_CHUNK_PAGES);
		}
	}
}

/* A chunk ends only where it must, so that waking takes few steps. */
static void ramslice_chunks_are_as_large_as_can_be(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i, n;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		for (n = 0; n < geom.nr_blocks; n++) {
			unsigned int run = ramslice_geom_granule_blocks(&geom);
			unsigned long block =
				ramslice_geom_block(&geom, ids[i], n) >>
				pageblock_order;
			unsigned int left = RAMSLICE_CHUNK_BLOCKS -
					    block % RAMSLICE_CHUNK_BLOCKS;
			unsigned long pfn;

			left = min(left, run - n % run);
			KUNIT_ASSERT_EQ(test,
					ramslice_geom_chunk(&geom, ids[i], n,
							    &pfn),
					left);
			KUNIT_ASSERT_EQ(test, pfn, block << pageblock_order);
		}
	}
}

static void ramslice_past_the_last_block_is_no_chunk(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		unsigned long pfn = 1;

		KUNIT_EXPECT_EQ(test,
				ramslice_geom_chunk(&geom, ids[i],
						    geom.nr_blocks, &pfn), 0);
		KUNIT_EXPECT_EQ(test,
				ramslice_geom_chunk(&geom, ids[i], UINT_MAX,
						    &pfn), 0);
		KUNIT_EXPECT_EQ(test, pfn, 1);
	}
}

static void
ramslice_runs_tile_the_slice_and_stay_within_sections(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i, n, nr;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		unsigned long pfn;

		for (n = 0; (nr = ramslice_geom_run(&geom, ids[i], n, &pfn));
		     n += nr) {
			unsigned long last = pfn + (nr - 1) * pageblock_nr_pages;

			KUNIT_ASSERT_LE(test, nr, geom.nr_blocks - n);
			KUNIT_ASSERT_EQ(test, pfn,
					ramslice_geom_block(&geom, ids[i], n));
			KUNIT_ASSERT_EQ(test, last,
					ramslice_geom_block(&geom, ids[i],
							    n + nr - 1));
			KUNIT_ASSERT_EQ(test, pfn_to_section_nr(pfn),
					pfn_to_section_nr(last));
		}
		KUNIT_EXPECT_EQ(test, n, geom.nr_blocks);
	}
}

static void ramslice_extents_are_the_blocks_of_the_slice(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i, n, run;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		struct ramslice_extents e;
		unsigned long pfn, block;

		ramslice_geom_extents(&geom, ids[i], &e);
		n = 0;
		for_each_ramslice_extent(&e, run, pfn) {
			for (block = pfn; block < pfn + e.nr_pages;
			     block += pageblock_nr_pages)
				KUNIT_ASSERT_EQ(test, block,
						ramslice_geom_block(&geom,
								    ids[i],
								    n++));
		}
		KUNIT_EXPECT_EQ(test, n, geom.nr_blocks);
	}
}

/* By every block of the range. */
static bool ramslice_has_any(const struct ramslice_geometry *geom, u32 id,
			     unsigned long start, unsigned long end)
{
	unsigned long pfn;

	for (pfn = pageblock_start_pfn(start); pfn < end;
	     pfn += pageblock_nr_pages) {
		if (ramslice_geom_slice(geom, pfn) == id)
			return true;
	}
	return false;
}

static void ramslice_a_range_has_the_slices_of_its_blocks(struct kunit *test)
{
	static const unsigned int lengths[] = { 1, 2, 3, 5, 9, 33 };
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned long base = ramslice_geom_block(&geom, 16, 0);
	unsigned int first, i;
	u32 id;

	for (first = 0; first < 2 * geom.nr_blocks; first += 1 + first / 8) {
		for (i = 0; i < ARRAY_SIZE(lengths); i++) {
			/* Ends within a pageblock, as ranges of pages may */
			unsigned long start = base + first * pageblock_nr_pages + 1;
			unsigned long end = start - 1 +
					    lengths[i] * pageblock_nr_pages;

			for (id = 8; id < 56; id++)
				KUNIT_ASSERT_EQ_MSG(test,
						    ramslice_geom_touches(&geom, id, start, end),
						    ramslice_has_any(&geom, id, start, end),
						    "slice %u, %u blocks from %u",
						    id, lengths[i], first);
		}
	}
}

static void ramslice_expect_made(struct kunit *test, u64 slice_bytes,
				 unsigned int ways, u64 granularity_bytes,
				 const char *wrong)
{
	struct ramslice_interleave il = {
		.ways = ways,
		.granularity_bytes = granularity_bytes,
	};
	const struct ramslice_geometry before = { 7, 1, 1 };
	struct ramslice_geometry geom = before;
	const char *found = ramslice_geom_make(&geom, &il, slice_bytes,
					       SZ_1G >> PAGE_SHIFT);

	if (wrong) {
		KUNIT_ASSERT_NOT_NULL(test, found);
		KUNIT_EXPECT_NOT_NULL_MSG(test, strstr(found, wrong), "%s",
					  found);
		KUNIT_EXPECT_MEMEQ(test, &geom, &before, sizeof(geom));
		return;
	}
	KUNIT_ASSERT_PTR_EQ_MSG(test, found, NULL, "%s", found);
	KUNIT_EXPECT_EQ(test,
			(u64)geom.nr_blocks << (pageblock_order + PAGE_SHIFT),
			slice_bytes);
	KUNIT_EXPECT_EQ(test, ramslice_geom_ways(&geom), max(ways, 1U));
	KUNIT_EXPECT_EQ(test,
			(u64)ramslice_geom_granule_blocks(&geom) <<
			(pageblock_order + PAGE_SHIFT),
			ways > 1 ? granularity_bytes : slice_bytes);
}

static void ramslice_what_cannot_be_a_geometry_is_refused(struct kunit *test)
{
	u64 block = (u64)pageblock_nr_pages << PAGE_SHIFT;

	ramslice_expect_made(test, 8 * block, 0, 0, NULL);
	ramslice_expect_made(test, 3 * block, 1, 0, NULL);
	ramslice_expect_made(test, 8 * block, 2, block, NULL);
	ramslice_expect_made(test, 8 * block, 4, 2 * block, NULL);
	ramslice_expect_made(test, 8 * block, 16, 8 * block, NULL);
	ramslice_expect_made(test, SZ_512M, 2, block, NULL);

	ramslice_expect_made(test, 0, 2, block, "whole pageblocks");
	ramslice_expect_made(test, block / 2, 0, 0, "whole pageblocks");
	ramslice_expect_made(test, 8 * block, 3, block, "2, 4, 8 or 16");
	ramslice_expect_made(test, 8 * block, 32, block, "2, 4, 8 or 16");
	ramslice_expect_made(test, 8 * block, UINT_MAX, block, "2, 4, 8 or 16");
	/* What memory controllers do */
	ramslice_expect_made(test, 8 * block, 2, 256, "a pageblock or more");
	ramslice_expect_made(test, 8 * block, 2, block / 2,
			     "a pageblock or more");
	ramslice_expect_made(test, 9 * block, 2, 3 * block, "a power of two");
	ramslice_expect_made(test, 9 * block, 2, 2 * block, "whole granules");
	ramslice_expect_made(test, 8 * block, 2, 16 * block, "whole granules");
	ramslice_expect_made(test, SZ_512M, 4, block, "exceed memory");
	ramslice_expect_made(test, 2ULL * SZ_1G, 0, 0, "exceed memory");
}

static struct kunit_case ramslice_geometry_cases[] = {
	KUNIT_CASE_PARAM(ramslice_page_frames_lead_back_to_their_slice,
			 geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_every_block_has_a_slice, geometry_gen_params),
	KUNIT_CASE(ramslice_slices_take_turns),
	KUNIT_CASE_PARAM(ramslice_groups_touch_their_neighbours,
			 geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_chunks_tile_the_slice, geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_chunks_never_leave_an_aligned_chunk,
			 geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_chunks_are_as_large_as_can_be,
			 geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_past_the_last_block_is_no_chunk,
			 geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_runs_tile_the_slice_and_stay_within_sections,
			 geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_extents_are_the_blocks_of_the_slice,
			 geometry_gen_params),
	KUNIT_CASE_PARAM(ramslice_a_range_has_the_slices_of_its_blocks,
			 geometry_gen_params),
	KUNIT_CASE(ramslice_what_cannot_be_a_geometry_is_refused),
	{}
};

static struct kunit_suite ramslice_geometry_suite = {
	.name = "ramslice_geometry",
	.test_cases = ramslice_geometry_cases,
};

kunit_test_suite(ramslice_geometry_suite);
