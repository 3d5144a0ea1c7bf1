// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the map between page frames, pageblocks, slices and chunks, for
 * sizes of slices that are and are not powers of two or whole chunks.
 */

#include <kunit/test.h>
#include "../internal.h"

static const u32 ids[] = { 0, 1, 2, 3, 4, 5, 1000, 1001, 0xfffffe, 0xffffff };

static void ramslice_geometry_desc(const unsigned int *nr_blocks, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%u blocks", *nr_blocks);
}

static const unsigned int sizes[] = { 1, 2, 3, 32, 512 };
KUNIT_ARRAY_PARAM(size, sizes, ramslice_geometry_desc);

static struct ramslice_geometry ramslice_geometry(struct kunit *test)
{
	return (struct ramslice_geometry) {
		.nr_blocks = *(const unsigned int *)test->param_value,
	};
}

static unsigned long ramslice_end_of(const struct ramslice_geometry *geom,
				     u32 id)
{
	return ramslice_geom_block(geom, id, geom->nr_blocks - 1) +
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

/* Walks the blocks of memory from 0 on as slices number them. */
static void
ramslice_blocks_are_numbered_by_address_without_gaps(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned long pfn = 0;
	unsigned int n;
	u32 id;

	for (id = 0; id < 8; id++) {
		for (n = 0; n < geom.nr_blocks; n++) {
			KUNIT_ASSERT_EQ(test,
					ramslice_geom_block(&geom, id, n), pfn);
			pfn += pageblock_nr_pages;
		}
	}
}

static void ramslice_slices_touch_their_neighbours(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		unsigned long end = ramslice_end_of(&geom, ids[i]);

		KUNIT_EXPECT_EQ(test,
				ramslice_geom_block(&geom, ids[i] + 1, 0), end);
		KUNIT_EXPECT_EQ(test, ramslice_geom_slice(&geom, end),
				ids[i] + 1);
	}
}

static void ramslice_chunks_tile_the_slice(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_geometry(test);
	unsigned int i, n, nr;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		unsigned long pfn, next = ramslice_geom_block(&geom, ids[i], 0);

		for (n = 0;
		     (nr = ramslice_geom_chunk(&geom, ids[i], n, &pfn));
		     n += nr) {
			KUNIT_ASSERT_LE(test, nr, geom.nr_blocks - n);
			KUNIT_ASSERT_EQ(test, pfn, next);
			next = pfn + nr * pageblock_nr_pages;
		}
		KUNIT_EXPECT_EQ(test, n, geom.nr_blocks);
		KUNIT_EXPECT_EQ(test, next, ramslice_end_of(&geom, ids[i]));
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
			unsigned long block = (unsigned long)ids[i] *
					      geom.nr_blocks + n;
			unsigned int left = RAMSLICE_CHUNK_BLOCKS -
					    block % RAMSLICE_CHUNK_BLOCKS;
			unsigned long pfn;

			left = min(left, geom.nr_blocks - n);
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
		unsigned long pfn, next = ramslice_geom_block(&geom, ids[i], 0);

		for (n = 0; (nr = ramslice_geom_run(&geom, ids[i], n, &pfn));
		     n += nr) {
			KUNIT_ASSERT_LE(test, nr, geom.nr_blocks - n);
			KUNIT_ASSERT_EQ(test, pfn, next);
			next = pfn + nr * pageblock_nr_pages;
			KUNIT_ASSERT_EQ(test, pfn_to_section_nr(pfn),
					pfn_to_section_nr(next - 1));
		}
		KUNIT_EXPECT_EQ(test, n, geom.nr_blocks);
		KUNIT_EXPECT_EQ(test, next, ramslice_end_of(&geom, ids[i]));
	}
}

static struct kunit_case ramslice_geometry_cases[] = {
	KUNIT_CASE_PARAM(ramslice_page_frames_lead_back_to_their_slice,
			 size_gen_params),
	KUNIT_CASE_PARAM(ramslice_blocks_are_numbered_by_address_without_gaps,
			 size_gen_params),
	KUNIT_CASE_PARAM(ramslice_slices_touch_their_neighbours,
			 size_gen_params),
	KUNIT_CASE_PARAM(ramslice_chunks_tile_the_slice, size_gen_params),
	KUNIT_CASE_PARAM(ramslice_chunks_never_leave_an_aligned_chunk,
			 size_gen_params),
	KUNIT_CASE_PARAM(ramslice_chunks_are_as_large_as_can_be,
			 size_gen_params),
	KUNIT_CASE_PARAM(ramslice_past_the_last_block_is_no_chunk,
			 size_gen_params),
	KUNIT_CASE_PARAM(ramslice_runs_tile_the_slice_and_stay_within_sections,
			 size_gen_params),
	{}
};

static struct kunit_suite ramslice_geometry_suite = {
	.name = "ramslice_geometry",
	.test_cases = ramslice_geometry_cases,
};

kunit_test_suite(ramslice_geometry_suite);
