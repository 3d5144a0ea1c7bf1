// SPDX-License-Identifier: GPL-2.0
/*
 * Which pageblocks make up which slice. Pure.
 *
 * Slices are of one size, or a table says where each is (segments.c). If of one:
 *
 * Memory is divided into groups, of as many slices as there are interleave ways.
 * Within a group, pageblocks go to its slices in turn, a granule at a time. With
 * one way, a group is a slice, and a slice is a single run. Ways and granules are
 * powers of two, so that one formula is as short for both.
 */

#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include "../internal.h"
#include "internal.h"
#include "boot_args.h"
#include "segments.h"

#define RAMSLICE_MAX_WAYS	16

/* Of the slices of a group, which is it? */
static u32 ramslice_geom_way(const struct ramslice_geometry *geom, u32 id)
{
	return id & (ramslice_geom_ways(geom) - 1);
}

static unsigned long
ramslice_geom_group_blocks(const struct ramslice_geometry *geom)
{
	return (unsigned long)geom->nr_blocks << geom->ways_shift;
}

/* Pageblocks of a slice. */
unsigned int ramslice_geom_nr_blocks(const struct ramslice_geometry *geom,
				     u32 id)
{
	return geom->table ? geom->table->at[id].nr : geom->nr_blocks;
}

/* Of these, those that follow each other. */
static unsigned int
ramslice_geom_run_blocks(const struct ramslice_geometry *geom, u32 id)
{
	return geom->ways_shift ? 1U << geom->granule_shift :
				  ramslice_geom_nr_blocks(geom, id);
}

/* Number of the first pageblock of a group. */
static unsigned long
ramslice_geom_group_start(const struct ramslice_geometry *geom, u32 id)
{
	return (id >> geom->ways_shift) * ramslice_geom_group_blocks(geom);
}

unsigned long ramslice_geom_block(const struct ramslice_geometry *geom,
				  u32 id, unsigned int n)
{
	unsigned long granule = n >> geom->granule_shift;
	unsigned long within = n - (granule << geom->granule_shift);

	if (geom->table)
		return (geom->table->at[id].first + n) << pageblock_order;
	granule = (granule << geom->ways_shift) + ramslice_geom_way(geom, id);
	return (ramslice_geom_group_start(geom, id) +
		(granule << geom->granule_shift) + within) << pageblock_order;
}

/**
 * ramslice_geom_chunk - the blocks from one on that wake together
 * @geom: the geometry
 * @id: the slice
 * @n: index of a block in the slice
 * @pfn: set to its first page frame
 *
 * Return: blocks, contiguous and within an aligned chunk; 0 past the last.
 */
unsigned int ramslice_geom_chunk(const struct ramslice_geometry *geom, u32 id,
				 unsigned int n, unsigned long *pfn)
{
	unsigned int nr = 1, nr_blocks = ramslice_geom_nr_blocks(geom, id);
	unsigned long next, end;

	if (n >= nr_blocks)
		return 0;
	*pfn = ramslice_geom_block(geom, id, n);
	end = ALIGN(*pfn + 1, RAMSLICE_CHUNK_PAGES);
	for (next = *pfn + pageblock_nr_pages;
	     next < end && n + nr < nr_blocks &&
	     ramslice_geom_block(geom, id, n + nr) == next;
	     next += pageblock_nr_pages)
		nr++;
	return nr;
}

/**
 * ramslice_geom_run - neighbouring blocks from one on
 * @geom: the geometry
 * @id: the slice
 * @n: index of a block in the slice
 * @pfn: set to its first page frame
 *
 * Return: blocks, contiguous and within a section of memory; 0 past the last.
 */
unsigned int ramslice_geom_run(const struct ramslice_geometry *geom, u32 id,
			       unsigned int n, unsigned long *pfn)
{
	unsigned int nr_run = ramslice_geom_run_blocks(geom, id);
	unsigned long in_section;

	if (n >= ramslice_geom_nr_blocks(geom, id))
		return 0;
	*pfn = ramslice_geom_block(geom, id, n);
	in_section = (PAGES_PER_SECTION - (*pfn & ~PAGE_SECTION_MASK)) >>
		     pageblock_order;
	return min_t(unsigned long, nr_run - n % nr_run, in_section);
}

/* The slice that a page frame is of; RAMSLICE_NO_ID if a table has none there. */
u32 ramslice_geom_slice(const struct ramslice_geometry *geom,
			unsigned long pfn)
{
	unsigned long block = pfn >> pageblock_order;
	u32 group;

	if (geom->table)
		return ramslice_segment_of(geom->table, block);
	group = block / ramslice_geom_group_blocks(geom);
	return group << geom->ways_shift |
	       ramslice_geom_way(geom, block >> geom->granule_shift);
}

/* The first slice that may have memory from a page frame on. */
u32 ramslice_geom_first_at(const struct ramslice_geometry *geom,
			   unsigned long pfn)
{
	if (geom->table)
		return ramslice_segments_from(geom->table,
					      pfn >> pageblock_order);
	return ramslice_geom_slice(geom, pfn) & ~(ramslice_geom_ways(geom) - 1);
}

/* One after the last slice that may have memory up to a page frame, inclusive. */
u32 ramslice_geom_end_at(const struct ramslice_geometry *geom,
			 unsigned long pfn)
{
	if (geom->table)
		return ramslice_segments_up_to(geom->table,
					       pfn >> pageblock_order);
	return (ramslice_geom_slice(geom, pfn) |
		(ramslice_geom_ways(geom) - 1)) + 1;
}

/**
 * ramslice_geom_touches - does a slice have a pageblock in a range?
 * @geom: the geometry
 * @id: the slice
 * @start: the first page frame of the range
 * @end: one after its last, which is not the first
 */
bool ramslice_geom_touches(const struct ramslice_geometry *geom, u32 id,
			   unsigned long start, unsigned long end)
{
	unsigned long group, group_end, first, last;

	if (geom->table) {
		group = geom->table->at[id].first;
		group_end = group + geom->table->at[id].nr;
	} else {
		group = ramslice_geom_group_start(geom, id);
		group_end = group + ramslice_geom_group_blocks(geom);
	}
	first = max(start >> pageblock_order, group);
	last = min((end - 1) >> pageblock_order, group_end - 1);
	if (first > last)
		return false;
	if (geom->table)
		return true;
	first >>= geom->granule_shift;
	last >>= geom->granule_shift;
	/* Granules from the first of the range to the next one that is its own */
	return ramslice_geom_way(geom, id - first) <= last - first;
}

/**
 * ramslice_geom_extents - the runs of page frames that a slice consists of
 * @geom: the geometry
 * @id: the slice
 * @e: set to them
 */
void ramslice_geom_extents(const struct ramslice_geometry *geom, u32 id,
			   struct ramslice_extents *e)
{
	unsigned int nr_run = ramslice_geom_run_blocks(geom, id);

	e->pfn = ramslice_geom_block(geom, id, 0);
	e->nr_pages = (unsigned long)nr_run << pageblock_order;
	e->stride_pages = e->nr_pages << geom->ways_shift;
	e->nr = ramslice_geom_nr_blocks(geom, id) / nr_run;
}

/* What a slice gets each time; without ways, all of it: of a table, the largest. */
unsigned int ramslice_geom_granule_blocks(const struct ramslice_geometry *geom)
{
	return geom->ways_shift ? 1U << geom->granule_shift : geom->nr_blocks;
}

/* Has slices be what a table says, which has to stay. */
void ramslice_geom_set_table(struct ramslice_geometry *geom,
			     const struct ramslice_segments *table)
{
	u32 i;

	*geom = (struct ramslice_geometry) { .table = table };
	for (i = 0; i < table->nr; i++)
		geom->nr_blocks = max(geom->nr_blocks, table->at[i].nr);
}

/**
 * ramslice_geom_make - the geometry of slices of a size
 * @geom: set to it
 * @il: how slices are interleaved
 * @slice_bytes: the size of a slice
 * @nr_pages: page frames up to the end of memory
 *
 * Return: NULL, or what is wrong: what is allowed. Then @geom stays as it is.
 */
const char *ramslice_geom_make(struct ramslice_geometry *geom,
			       const struct ramslice_interleave *il,
			       u64 slice_bytes, unsigned long nr_pages)
{
	u64 block_bytes = (u64)pageblock_nr_pages << PAGE_SHIFT;
	unsigned int ways = max(il->ways, 1U);

	u64 granularity = ways > 1 ? il->granularity_bytes : block_bytes;

	if (!slice_bytes || slice_bytes & (block_bytes - 1))
		return "a slice must consist of whole pageblocks";
	if (!is_power_of_2(ways) || ways > RAMSLICE_MAX_WAYS)
		return "ways must be 2, 4, 8 or 16";
	/* The allocator groups pages by pageblock, and isolates them so */
	if (granularity < block_bytes)
		return "granularity must be a pageblock or more, as none is emptied in part";
	if (granularity & (granularity - 1))
		return "granularity must be a power of two";
	if (slice_bytes & (granularity - 1))
		return "a slice must consist of whole granules";
	if (slice_bytes >> PAGE_SHIFT > nr_pages / ways)
		return "a slice for each way must not exceed memory";
	*geom = (struct ramslice_geometry) {
		.nr_blocks = div64_u64(slice_bytes, block_bytes),
		.ways_shift = ilog2(ways),
		.granule_shift = ilog2(div64_u64(granularity, block_bytes)),
	};
	return NULL;
}
