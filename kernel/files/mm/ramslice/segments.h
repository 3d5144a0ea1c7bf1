/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slices as a table of segments of unequal sizes.
 */
#ifndef __MM_RAMSLICE_SEGMENTS_H
#define __MM_RAMSLICE_SEGMENTS_H

#include <linux/printk.h>
#include <linux/types.h>
#include <uapi/linux/ramslice.h>
#include "boot_args.h"

#define RAMSLICE_MAX_SEGMENTS	1024U

/* The same in pageblocks. */
struct ramslice_segment_blocks {
	unsigned long first;
	u32 nr;
};

/**
 * struct ramslice_segments - slices as a table: each is one segment
 * @nr: segments, at least 1
 * @at: their pageblocks, by ascending address; the index is the id of the slice
 * @unit_shift: all begin and end at a multiple of 2^this pageblocks
 * @first_unit: such units before the first segment
 * @nr_units: units from there on, up to the end of the last segment
 * @id: which slice each has; RAMSLICE_NO_ID: none, memory there never goes off
 *
 * Made at boot, and stays.
 */
struct ramslice_segments {
	u32 nr;
	struct ramslice_segment_blocks *at;
	u8 unit_shift;
	unsigned long first_unit;
	unsigned long nr_units;
	u32 *id;
};

struct device_node;
struct ramslice_geometry;

int ramslice_parse_segments(const char *text, struct ramslice_segment *seg,
			    unsigned int *nr, const char **entry);
const char *ramslice_check_segments(struct ramslice_segment *seg,
				    unsigned int nr, unsigned int *bad);
struct ramslice_segments *
ramslice_make_segments(const struct ramslice_segment *seg, unsigned int nr);
void ramslice_free_segments(struct ramslice_segments *t);

u64 ramslice_pageblock_bytes(void);

/* With CONFIG_ACPI */
const char *ramslice_parse_mpst(const void *table, size_t len,
				struct ramslice_segment *seg, unsigned int *nr,
				unsigned int *node);
int ramslice_mpst_segments(struct ramslice_segment *seg, unsigned int *nr);

/* With CONFIG_OF */
const char *ramslice_parse_ddr_regions(const struct device_node *node,
				       u64 block_bytes,
				       struct ramslice_segment *seg,
				       unsigned int *nr, unsigned int *number);
int ramslice_ddr_segments(struct ramslice_segment *seg, unsigned int *nr);

/* What others call. */
#ifdef CONFIG_RAMSLICE_SEGMENTS
int ramslice_segments_init(const struct ramslice_boot *boot);
u32 ramslice_segment_of(const struct ramslice_segments *t, unsigned long block);
u32 ramslice_segments_from(const struct ramslice_segments *t,
			   unsigned long block);
u32 ramslice_segments_up_to(const struct ramslice_segments *t,
			    unsigned long block);
#else
/* There is no table then, and these are not called */
static inline u32 ramslice_segment_of(const struct ramslice_segments *t,
				      unsigned long block)
{
	return 0;
}

static inline u32 ramslice_segments_from(const struct ramslice_segments *t,
					 unsigned long block)
{
	return 0;
}

static inline u32 ramslice_segments_up_to(const struct ramslice_segments *t,
					  unsigned long block)
{
	return 0;
}

static inline int ramslice_segments_init(const struct ramslice_boot *boot)
{
	if (!boot->firmware && !boot->table)
		return 0;
	pr_err("off: this kernel has slices of one size alone, without CONFIG_RAMSLICE_SEGMENTS\n");
	return -EOPNOTSUPP;
}
#endif /* CONFIG_RAMSLICE_SEGMENTS */

#endif /* __MM_RAMSLICE_SEGMENTS_H */
