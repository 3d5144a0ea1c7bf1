// SPDX-License-Identifier: GPL-2.0
/*
 * Which pageblocks make up which slice. Pure.
 */

#include <linux/mm.h>
#include <linux/mmzone.h>
#include "../internal.h"
#include "internal.h"

unsigned long ramslice_geom_block(const struct ramslice_geometry *geom,
				  u32 id, unsigned int n)
{
	return ((unsigned long)id * geom->nr_blocks + n) << pageblock_order;
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
	unsigned long in_section;

	if (n >= geom->nr_blocks)
		return 0;
	*pfn = ramslice_geom_block(geom, id, n);
	in_section = (PAGES_PER_SECTION - (*pfn & ~PAGE_SECTION_MASK)) >>
		     pageblock_order;
	return min_t(unsigned long, geom->nr_blocks - n, in_section);
}

u32 ramslice_geom_slice(const struct ramslice_geometry *geom,
			unsigned long pfn)
{
	return (pfn >> pageblock_order) / geom->nr_blocks;
}
