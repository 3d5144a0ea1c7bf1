// SPDX-License-Identifier: GPL-2.0
/*
 * Which pageblocks make up which slice. Pure.
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
	unsigned long next, end;
	unsigned int nr = 1;

	if (n >= geom->nr_blocks)
		return 0;
	*pfn = ramslice_geom_block(geom, id, n);
	end = ALIGN(*pfn + 1, RAMSLICE_CHUNK_PAGES);
	for (next = *pfn + pageblock_nr_pages;
	     next < end && n + nr < geom->nr_blocks &&
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
	unsigned int nr_run = ramslice_geom_run_blocks(geom);
	unsigned long in_section;

	if (n >= geom->nr_blocks)
		return 0;
	*pfn = ramslice_geom_block(geom, id, n);
	in_section = (PAGES_PER_SECTION - (*pfn & ~PAGE_SECTION_MASK)) >>
		     pageblock_order;
	return min_t(unsigned long, nr_run - n % nr_run, in_section);
}

u32 ramslice_geom_slice(const struct ramslice_geometry *geom,
			unsigned long pfn)
{
	unsigned long block = pfn >> pageblock_order;
	u32 group = block / ramslice_geom_group_blocks(geom);

	return group << geom->ways_shift |
	       ramslice_geom_way(geom, block >> geom->granule_shift);
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
	unsigned long group = ramslice_geom_group_start(geom, id);
	unsigned long group_end = group + ramslice_geom_group_blocks(geom);
	unsigned long first = max(start >> pageblock_order, group);
	unsigned long last = min((end - 1) >> pageblock_order, group_end - 1);

	if (first > last)
		return false;
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
	unsigned int nr_run = ramslice_geom_run_blocks(geom);

	e->pfn = ramslice_geom_block(geom, id, 0);
	e->nr_pages = (unsigned long)nr_run << pageblock_order;
	e->stride_pages = e->nr_pages << geom->ways_shift;
	e->nr = geom->nr_blocks / nr_run;
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
