// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of slices that are segments of unequal sizes: which one memory is of,
 * with gaps between them, and what is refused as a table.
 */

#include <kunit/test.h>
#include <linux/sizes.h>
#include "../internal.h"
#include "../boot_args.h"
#include "../segments.h"
#include "random.h"

#define MAX_SEGMENTS	24

/* In pageblocks. By hand: out of order, with a gap, and some that touch. */
static const struct { u64 first; u64 nr; } layout[] = {
	{ 96, 16 }, { 8, 8 }, { 16, 32 }, { 48, 5 }, { 200, 1 },
};

static const struct { unsigned long block; u32 id; } places[] = {
	{ 0, RAMSLICE_NO_ID }, { 7, RAMSLICE_NO_ID }, { 8, 0 }, { 15, 0 },
	{ 16, 1 }, { 47, 1 }, { 48, 2 }, { 52, 2 }, { 53, RAMSLICE_NO_ID },
	{ 95, RAMSLICE_NO_ID }, { 96, 3 }, { 111, 3 }, { 112, RAMSLICE_NO_ID },
	{ 199, RAMSLICE_NO_ID }, { 200, 4 }, { 201, RAMSLICE_NO_ID },
	{ 1UL << 40, RAMSLICE_NO_ID },
};

static u64 block_bytes(void)
{
	return (u64)pageblock_nr_pages << PAGE_SHIFT;
}

static void free_table(void *table)
{
	ramslice_free_segments(table);
}

/* Checks them, and has slices be what they say. */
static struct ramslice_geometry
ramslice_geometry_of(struct kunit *test, struct ramslice_segment *seg,
		     unsigned int nr)
{
	struct ramslice_geometry geom = {};
	struct ramslice_segments *t;
	unsigned int bad;

	KUNIT_ASSERT_PTR_EQ(test, ramslice_check_segments(seg, nr, &bad), NULL);
	t = ramslice_make_segments(seg, nr);
	KUNIT_ASSERT_NOT_NULL(test, t);
	KUNIT_ASSERT_EQ(test,
			kunit_add_action_or_reset(test, free_table, t), 0);
	ramslice_geom_set_table(&geom, t);
	return geom;
}

static struct ramslice_geometry ramslice_by_hand(struct kunit *test)
{
	struct ramslice_segment seg[ARRAY_SIZE(layout)];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(layout); i++)
		seg[i] = (struct ramslice_segment) {
			.start_bytes = layout[i].first * block_bytes(),
			.bytes = layout[i].nr * block_bytes(),
		};
	return ramslice_geometry_of(test, seg, ARRAY_SIZE(seg));
}

static void ramslice_memory_is_of_the_segment_around_it(struct kunit *test)
{
	struct ramslice_geometry geom = ramslice_by_hand(test);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(places); i++) {
		unsigned long pfn = places[i].block << pageblock_order;

		KUNIT_EXPECT_EQ_MSG(test, ramslice_geom_slice(&geom, pfn),
				    places[i].id, "pageblock %lu",
				    places[i].block);
		KUNIT_EXPECT_EQ_MSG(test,
				    ramslice_geom_slice(&geom, pfn + pageblock_nr_pages - 1),
				    places[i].id, "pageblock %lu",
				    places[i].block);
	}
	KUNIT_EXPECT_EQ(test, geom.table->nr, ARRAY_SIZE(layout));
	KUNIT_EXPECT_EQ(test, geom.nr_blocks, 32);
	KUNIT_EXPECT_EQ(test, ramslice_geom_ways(&geom), 1);
}

static void ramslice_a_range_has_the_segments_in_it(struct kunit *test)
{
	static const struct { unsigned long from, to; u32 first, end; } ranges[] = {
		{ 0, 8, 0, 0 }, { 0, 9, 0, 1 }, { 15, 16, 0, 1 }, { 15, 17, 0, 2 },
		{ 16, 48, 1, 2 }, { 0, 300, 0, 5 }, { 53, 96, 3, 3 },
		{ 60, 97, 3, 4 }, { 112, 200, 4, 4 }, { 201, 300, 5, 5 },
		{ 52, 53, 2, 3 },
	};
	struct ramslice_geometry geom = ramslice_by_hand(test);
	unsigned int i;
	u32 id;

	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		unsigned long from = ranges[i].from << pageblock_order;
		unsigned long to = ranges[i].to << pageblock_order;

		KUNIT_EXPECT_EQ_MSG(test, ramslice_geom_first_at(&geom, from),
				    ranges[i].first, "from %lu",
				    ranges[i].from);
		KUNIT_EXPECT_EQ_MSG(test, ramslice_geom_end_at(&geom, to - 1),
				    ranges[i].end, "to %lu", ranges[i].to);
		for (id = 0; id < geom.table->nr; id++)
			KUNIT_EXPECT_EQ_MSG(test,
					    ramslice_geom_touches(&geom, id, from, to),
					    id >= ranges[i].first &&
					    id < ranges[i].end,
					    "slice %u, %lu to %lu", id,
					    ranges[i].from, ranges[i].to);
	}
}

/* Any table: random sizes and gaps, all multiples of a random power of two. */
static unsigned int ramslice_random_segments(struct rnd_state *rnd,
					     struct ramslice_segment *seg)
{
	unsigned int i, nr = 1 + ramslice_below(rnd, MAX_SEGMENTS);
	u64 unit = block_bytes() << ramslice_below(rnd, 6);
	u64 at = unit * ramslice_below(rnd, 64);

	for (i = 0; i < nr; i++) {
		if (ramslice_one_in(rnd, 3))
			at += unit * ramslice_below(rnd, 32);
		seg[i].start_bytes = at;
		seg[i].bytes = unit * (1 + ramslice_below(rnd, 16));
		at += seg[i].bytes;
	}
	/* In any order */
	for (i = 0; i < nr; i++) {
		unsigned int other = ramslice_below(rnd, nr);

		swap(seg[i], seg[other]);
	}
	return nr;
}

static void ramslice_blocks_chunks_and_runs_tile_segments(struct kunit *test)
{
	struct ramslice_segment seg[MAX_SEGMENTS];
	struct rnd_state rnd;
	unsigned int i, nr;
	u32 id;

	prandom_seed_state(&rnd, 28);
	for (i = 0; i < 20; i++) {
		struct ramslice_geometry geom;

		nr = ramslice_random_segments(&rnd, seg);
		geom = ramslice_geometry_of(test, seg, nr);
		for (id = 0; id < nr; id++) {
			unsigned int n, len, nr_blocks =
				ramslice_geom_nr_blocks(&geom, id);
			struct ramslice_extents e;
			unsigned long pfn;

			KUNIT_ASSERT_EQ(test, (u64)nr_blocks * block_bytes(),
					seg[id].bytes);
			ramslice_geom_extents(&geom, id, &e);
			KUNIT_EXPECT_EQ(test, e.nr, 1);
			KUNIT_EXPECT_EQ(test, PFN_PHYS(e.pfn),
					seg[id].start_bytes);
			KUNIT_EXPECT_EQ(test, PFN_PHYS(e.nr_pages),
					seg[id].bytes);
			for (n = 0; n < nr_blocks; n++) {
				pfn = ramslice_geom_block(&geom, id, n);
				KUNIT_ASSERT_EQ(test, PFN_PHYS(pfn),
						seg[id].start_bytes +
						n * block_bytes());
				KUNIT_ASSERT_EQ(test,
						ramslice_geom_slice(&geom, pfn),
						id);
			}
			for (n = 0; (len = ramslice_geom_chunk(&geom, id, n,
							       &pfn)); n += len)
				KUNIT_ASSERT_EQ(test, pfn,
						ramslice_geom_block(&geom, id,
								    n));
			KUNIT_EXPECT_EQ(test, n, nr_blocks);
			for (n = 0; (len = ramslice_geom_run(&geom, id, n,
							     &pfn)); n += len)
				KUNIT_ASSERT_EQ(test, pfn,
						ramslice_geom_block(&geom, id,
								    n));
			KUNIT_EXPECT_EQ(test, n, nr_blocks);
		}
	}
}

static void ramslice_refused(struct kunit *test, struct ramslice_segment *seg,
			     unsigned int nr, u64 at, const char *wrong)
{
	unsigned int bad = UINT_MAX;
	const char *found = ramslice_check_segments(seg, nr, &bad);

	KUNIT_ASSERT_NOT_NULL_MSG(test, found, "not refused: %s", wrong);
	KUNIT_EXPECT_NOT_NULL_MSG(test, strstr(found, wrong), "%s", found);
	if (nr && nr <= RAMSLICE_MAX_SEGMENTS)
		KUNIT_EXPECT_EQ(test, seg[bad].start_bytes, at);
}

static void ramslice_what_cannot_be_a_table_is_refused(struct kunit *test)
{
	u64 b = block_bytes();
	struct ramslice_segment seg[2];

	ramslice_refused(test, seg, 0, 0, "there is none");
	ramslice_refused(test, seg, RAMSLICE_MAX_SEGMENTS + 1, 0, "too many");
	seg[0] = (struct ramslice_segment) { 4 * b, 4 * b };
	seg[1] = (struct ramslice_segment) { 7 * b, 4 * b };
	ramslice_refused(test, seg, 2, 7 * b, "overlaps");
	/* In either order, and if one lies in the other, or is the other */
	swap(seg[0], seg[1]);
	ramslice_refused(test, seg, 2, 7 * b, "overlaps");
	seg[0] = (struct ramslice_segment) { 4 * b, 8 * b };
	seg[1] = (struct ramslice_segment) { 5 * b, b };
	ramslice_refused(test, seg, 2, 5 * b, "overlaps");
	seg[1] = seg[0];
	ramslice_refused(test, seg, 2, 4 * b, "overlaps");
	seg[1] = (struct ramslice_segment) { 16 * b, 0 };
	ramslice_refused(test, seg, 2, 16 * b, "empty");
	seg[1] = (struct ramslice_segment) { 16 * b, b / 2 };
	ramslice_refused(test, seg, 2, 16 * b, "whole pageblocks");
	seg[1] = (struct ramslice_segment) { 16 * b + PAGE_SIZE, b };
	ramslice_refused(test, seg, 2, 16 * b + PAGE_SIZE, "whole pageblocks");
	seg[1] = (struct ramslice_segment) { 16 * b, -b };
	ramslice_refused(test, seg, 2, 16 * b, "too large");
	seg[1] = (struct ramslice_segment) { -b, b };
	ramslice_refused(test, seg, 2, -b, "exceeds");
	seg[1] = (struct ramslice_segment) { BIT_ULL(MAX_PHYSMEM_BITS), b };
	ramslice_refused(test, seg, 2, BIT_ULL(MAX_PHYSMEM_BITS), "exceeds");
	/* A look-up by pageblocks over so much would be too long */
	seg[0] = (struct ramslice_segment) { b, b };
	seg[1] = (struct ramslice_segment) { b << 21, b };
	ramslice_refused(test, seg, 2, b << 21, "coarser");
}

static void ramslice_lists_of_segments_mean_what_they_say(struct kunit *test)
{
	static const char * const flawed[] = {
		"", ",", "64M", "@", "64M@", "@64M", "64M@0,", "64M@0,,64M@1G",
		"64M@0@0", "64M@-1", "-64M@0", "64M@0x", "64M@ 0", "64M+0",
		"64M@0;64M@1G", "64M@0,ways=2",
		"64M@0000000000000000000000000000000000000000000000000000000000000",
	};
	struct ramslice_segment seg[3];
	unsigned int i, nr = ARRAY_SIZE(seg);
	const char *entry;

	KUNIT_ASSERT_EQ(test,
			ramslice_parse_segments("64M@0,0x200000@1G,3G@4G", seg,
						&nr, &entry), 0);
	KUNIT_EXPECT_EQ(test, nr, 3);
	KUNIT_EXPECT_EQ(test, seg[0].start_bytes, 0);
	KUNIT_EXPECT_EQ(test, seg[0].bytes, SZ_64M);
	KUNIT_EXPECT_EQ(test, seg[1].start_bytes, SZ_1G);
	KUNIT_EXPECT_EQ(test, seg[1].bytes, SZ_2M);
	KUNIT_EXPECT_EQ(test, seg[2].start_bytes, 4ULL * SZ_1G);
	KUNIT_EXPECT_EQ(test, seg[2].bytes, 3ULL * SZ_1G);
	for (i = 0; i < ARRAY_SIZE(flawed); i++) {
		nr = ARRAY_SIZE(seg);
		KUNIT_EXPECT_EQ_MSG(test,
				    ramslice_parse_segments(flawed[i], seg, &nr, &entry),
				    -EINVAL, "\"%s\"", flawed[i]);
	}
	/* The one that is wrong is named */
	nr = ARRAY_SIZE(seg);
	KUNIT_EXPECT_EQ(test,
			ramslice_parse_segments("64M@0,64M@16E,1M@1M", seg, &nr,
						&entry), -ERANGE);
	KUNIT_EXPECT_STREQ(test, entry, "64M@16E,1M@1M");
	nr = ARRAY_SIZE(seg);
	KUNIT_EXPECT_EQ(test,
			ramslice_parse_segments("1M@1M,1M@2M,1M@3M,1M@4M", seg,
						&nr, &entry), -E2BIG);
	KUNIT_EXPECT_STREQ(test, entry, "1M@4M");
}

static struct kunit_case ramslice_segments_cases[] = {
	KUNIT_CASE(ramslice_memory_is_of_the_segment_around_it),
	KUNIT_CASE(ramslice_a_range_has_the_segments_in_it),
	KUNIT_CASE(ramslice_blocks_chunks_and_runs_tile_segments),
	KUNIT_CASE(ramslice_what_cannot_be_a_table_is_refused),
	KUNIT_CASE(ramslice_lists_of_segments_mean_what_they_say),
	{}
};

static struct kunit_suite ramslice_segments_suite = {
	.name = "ramslice_segments",
	.test_cases = ramslice_segments_cases,
};

kunit_test_suite(ramslice_segments_suite);
