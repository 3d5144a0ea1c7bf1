/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which pageblocks a slice has, and of which slice a page frame is: declared
 * here, worked out in interleave.c, for a table in segments.c.
 */
#ifndef __MM_RAMSLICE_GEOMETRY_H
#define __MM_RAMSLICE_GEOMETRY_H

#include <linux/mmzone.h>
#include <linux/ramslice_power.h>

/**
 * struct ramslice_geometry - the map from pageblocks to slices
 * @nr_blocks: pageblocks in a slice; by a table: in the largest
 * @ways_shift: 2^this slices take turns; 0: each is contiguous
 * @granule_shift: each time, a slice gets 2^this pageblocks; 0 if contiguous
 * @table: slices are what it says, of unequal sizes; NULL: all are of one size
 *
 * Slices are numbered by the physical address of their first pageblock, or by
 * their place in the table.
 * Everything else asks the functions below which blocks a slice has.
 */
struct ramslice_geometry {
	unsigned int nr_blocks;
	u8 ways_shift;
	u8 granule_shift;
	const struct ramslice_segments *table;
};

struct ramslice_interleave;
struct ramslice_segments;

static inline unsigned int
ramslice_geom_ways(const struct ramslice_geometry *geom)
{
	return 1U << geom->ways_shift;
}

/* --- interleave.c --- */
unsigned int ramslice_geom_nr_blocks(const struct ramslice_geometry *geom,
				     u32 id);
unsigned int ramslice_geom_granule_blocks(const struct ramslice_geometry *geom);
unsigned long ramslice_geom_block(const struct ramslice_geometry *geom,
				  u32 id, unsigned int n);
unsigned int ramslice_geom_chunk(const struct ramslice_geometry *geom, u32 id,
				 unsigned int n, unsigned long *pfn);
unsigned int ramslice_geom_run(const struct ramslice_geometry *geom, u32 id,
			       unsigned int n, unsigned long *pfn);
u32 ramslice_geom_slice(const struct ramslice_geometry *geom,
			unsigned long pfn);
u32 ramslice_geom_first_at(const struct ramslice_geometry *geom,
			   unsigned long pfn);
u32 ramslice_geom_end_at(const struct ramslice_geometry *geom,
			 unsigned long pfn);
bool ramslice_geom_touches(const struct ramslice_geometry *geom, u32 id,
			   unsigned long start, unsigned long end);
void ramslice_geom_extents(const struct ramslice_geometry *geom, u32 id,
			   struct ramslice_extents *e);
void ramslice_geom_set_table(struct ramslice_geometry *geom,
			     const struct ramslice_segments *table);
const char *ramslice_geom_make(struct ramslice_geometry *geom,
			       const struct ramslice_interleave *il,
			       u64 slice_bytes, unsigned long nr_pages);

/* The one in force; it changes with the table of slices. */
extern struct ramslice_geometry ramslice_geom;

/* Slices with a pageblock in a range, be they in the table or not; @id is a u32. */
#define for_each_slice_touching(id, start_pfn, end_pfn)			\
	for ((id) = ramslice_geom_first_at(&ramslice_geom, start_pfn);	\
	     (id) < ramslice_geom_end_at(&ramslice_geom, (end_pfn) - 1);\
	     (id)++)							\
		if (ramslice_geom_touches(&ramslice_geom, id,		\
					  start_pfn, end_pfn))

/* First pfn of every pageblock of a slice; @n is an unsigned int. */
#define for_each_slice_block(id, n, pfn)				\
	for ((n) = 0;							\
	     (n) < ramslice_geom_nr_blocks(&ramslice_geom, id) &&	\
	     ((pfn) = ramslice_geom_block(&ramslice_geom, id, n), true);\
	     (n)++)

/*
 * Runs of pageblocks that make up the chunks of a slice: from block @n, @nr
 * blocks, the first at @pfn. A chunk does not leave an aligned
 * RAMSLICE_CHUNK_PAGES.
 */
#define for_each_slice_chunk(id, n, nr, pfn)				\
	for ((n) = 0;							\
	     ((nr) = ramslice_geom_chunk(&ramslice_geom, id, n, &(pfn)));\
	     (n) += (nr))

#endif /* __MM_RAMSLICE_GEOMETRY_H */
