/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Large contiguous buffers for drivers, without memory set aside for them: they
 * are made of slices that are off or can be emptied.
 */
#ifndef _LINUX_RAMSLICE_BUFFER_H
#define _LINUX_RAMSLICE_BUFFER_H

#include <linux/err.h>
#include <linux/types.h>
#include <uapi/linux/ramslice.h>

struct page;
struct ramslice_buffer;

/**
 * struct ramslice_contig - a buffer that is wanted
 * @nr_pages: its length in pages, a multiple of pageblock_nr_pages
 * @align_pages: alignment of its first page frame, a power of two; 0 or less
 *		 than a pageblock: a pageblock
 * @end_address: no page of it lies at or above this physical address; 0: anywhere
 * @nid: the node it is looked for first, or NUMA_NO_NODE for the caller's
 * @gfp: GFP_KERNEL, as it may wait for others that reclaim;
 *	 GFP_DMA32 and GFP_DMA limit the zones; __GFP_THISNODE: no other node;
 *	 __GFP_ZERO: its pages are zeroed; __GFP_ACCOUNT: the caller's memory
 *	 control group is charged
 * @owner: who has it, for people; must stay
 */
struct ramslice_contig {
	unsigned long nr_pages;
	unsigned long align_pages;
	phys_addr_t end_address;
	int nid;
	gfp_t gfp;
	const char *owner;
};

#ifdef CONFIG_RAMSLICE_BUFFERS

struct ramslice_buffer *ramslice_alloc_contig(const struct ramslice_contig *want,
					      enum ramslice_reason *reason);
void ramslice_free_contig(struct ramslice_buffer *buffer);
struct page *ramslice_buffer_page(const struct ramslice_buffer *buffer);

#else

static inline struct ramslice_buffer *
ramslice_alloc_contig(const struct ramslice_contig *want,
		      enum ramslice_reason *reason)
{
	*reason = RAMSLICE_REASON_NONE;
	return ERR_PTR(-EOPNOTSUPP);
}

static inline void ramslice_free_contig(struct ramslice_buffer *buffer)
{
}

static inline struct page *
ramslice_buffer_page(const struct ramslice_buffer *buffer)
{
	return NULL;
}

#endif

#endif /* _LINUX_RAMSLICE_BUFFER_H */
