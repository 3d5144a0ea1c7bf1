/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Large contiguous buffers: what the pageblocks of a zone cost as part of one,
 * how a range of them is taken, and which are part of a buffer.
 */
#ifndef __MM_RAMSLICE_BUFFER_H
#define __MM_RAMSLICE_BUFFER_H

#include <linux/ramslice_buffer.h>
#include "internal.h"

/* --- ranges.c --- */
/**
 * struct ramslice_range_block - a pageblock as part of a buffer
 * @price: what it costs, in the unit of prices
 * @reason: why it cannot be had, or RAMSLICE_REASON_NONE
 * @sleeps: its slice is off, or could be without the buffer
 * @opens: it is the first pageblock of such a slice
 */
struct ramslice_range_block {
	u64 price;
	u8 reason;
	bool sleeps;
	bool opens;
};

/**
 * struct ramslice_ranges - the pageblocks of a zone, to choose ranges from
 * @geom: which slice each is of
 * @first: number of the first pageblock
 * @nr: pageblocks
 * @slice_price: what it costs to keep a slice on, that of emptying it again
 * @block: each of them
 */
struct ramslice_ranges {
	struct ramslice_geometry geom;
	unsigned long first;
	unsigned long nr;
	u64 slice_price;
	struct ramslice_range_block *block;
};

/**
 * struct ramslice_range - pageblocks in a row
 * @pfn: the first page frame; 0 if there is no such range
 * @price: what it costs, in the unit of prices
 * @nr_opened: first pageblocks of slices that it keeps on
 * @nr_blocked: pageblocks that cannot be had
 * @reason: why one of them cannot
 */
struct ramslice_range {
	unsigned long pfn;
	u64 price;
	unsigned long nr_opened;
	unsigned long nr_blocked;
	enum ramslice_reason reason;
};

int ramslice_ranges_begin(struct ramslice_ranges *r, struct zone *zone,
			  unsigned long nr_pages);
struct ramslice_range ramslice_ranges_cheapest(const struct ramslice_ranges *r,
					       unsigned long nr_blocks,
					       unsigned long align_blocks,
					       unsigned long end_block);
void ramslice_ranges_drop(struct ramslice_ranges *r, unsigned long pfn,
			  unsigned long nr_blocks);
void ramslice_ranges_end(struct ramslice_ranges *r);

/* --- take.c --- */
/**
 * struct ramslice_take - a range that is taken
 * @nr_pages: its length, a multiple of a pageblock's
 * @align_pages: alignment of its first page frame, a power of two
 * @end_pfn: it ends before this page frame, or at it
 * @gfp: as alloc_contig_range() takes them
 * @take: takes a range whose slices were emptied; 0, or a negative error
 * @pfn: its first page frame; 0 as long as none was taken
 * @slice_bytes: the size of a slice when it was taken
 * @first_id: the first slice that it may have a part of
 * @nr_ids: slices from there on, up to the last such
 * @was_off: those of them that were off, and that it has a part of
 * @rz: its zone
 * @nr_requests: slices of the zone that requests had woken until then
 */
struct ramslice_take {
	unsigned long nr_pages;
	unsigned long align_pages;
	unsigned long end_pfn;
	gfp_t gfp;
	int (*take)(struct ramslice_take *t, unsigned long pfn);
	unsigned long pfn;
	u64 slice_bytes;
	u32 first_id;
	u32 nr_ids;
	unsigned long *was_off;
	struct ramslice_zone *rz;
	u64 nr_requests;
};

enum ramslice_reason ramslice_begin_taking(void);
void ramslice_end_taking(void);
enum ramslice_reason ramslice_take_in_zone(struct ramslice_take *t,
					   struct zone *zone);
void ramslice_take_switch_off(const struct ramslice_take *t);

/* --- buffer.c --- */
/**
 * struct ramslice_buffer_stats - the books of buffers
 * @nr: buffers that exist
 * @nr_pages: their pages
 * @nr_refused: requests that failed
 * @last_reason: why the last of these did
 */
struct ramslice_buffer_stats {
	unsigned long nr;
	unsigned long nr_pages;
	unsigned long nr_refused;
	enum ramslice_reason last_reason;
};

void ramslice_read_buffer_stats(struct ramslice_buffer_stats *stats);
void ramslice_list_buffers(struct seq_file *m);

#ifdef CONFIG_RAMSLICE_BUFFERS
bool ramslice_in_buffer(unsigned long pfn);
unsigned long ramslice_cheapest_pages(struct zone *zone, unsigned long nr_pages,
				      gfp_t gfp);

/* --- buffer_files.c --- */
int ramslice_buffer_sysfs(struct kobject *kobj);
void ramslice_buffer_debugfs(struct dentry *root);
#else
static inline bool ramslice_in_buffer(unsigned long pfn)
{
	return false;
}

static inline unsigned long ramslice_cheapest_pages(struct zone *zone,
						    unsigned long nr_pages,
						    gfp_t gfp)
{
	return 0;
}

static inline int ramslice_buffer_sysfs(struct kobject *kobj)
{
	return 0;
}

static inline void ramslice_buffer_debugfs(struct dentry *root)
{
}
#endif

/* --- charge.c --- */
struct obj_cgroup;

#ifdef CONFIG_MEMCG
int ramslice_charge(size_t bytes, gfp_t gfp, struct obj_cgroup **charged);
void ramslice_uncharge(struct obj_cgroup *objcg, size_t bytes);
#else
static inline int ramslice_charge(size_t bytes, gfp_t gfp,
				  struct obj_cgroup **charged)
{
	*charged = NULL;
	return 0;
}

static inline void ramslice_uncharge(struct obj_cgroup *objcg, size_t bytes)
{
}
#endif

#endif /* __MM_RAMSLICE_BUFFER_H */
