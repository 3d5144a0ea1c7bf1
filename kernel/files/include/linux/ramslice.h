/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ramslice inside the kernel: the hooks that mm calls, with stubs that
 * compile away. Power drivers include ramslice_power.h.
 *
 * Every hook in mm is a few lines around a function declared here. They cost
 * a static key while ramslice is off.
 */
#ifndef _LINUX_RAMSLICE_H
#define _LINUX_RAMSLICE_H

#include <linux/gfp_types.h>
#include <linux/jump_label.h>
#include <linux/mmzone.h>
#include <linux/pageblock-flags.h>
#include <linux/pgtable.h>

struct address_space;
struct mem_cgroup;
struct ramslice_block;

#ifdef CONFIG_RAMSLICE

DECLARE_STATIC_KEY_FALSE(ramslice_key);

/* True once boot is over, unless switched off on the command line. */
static __always_inline bool ramslice_enabled(void)
{
	return static_branch_unlikely(&ramslice_key);
}

/**
 * struct ramslice_blocks - what ramslice knows of a zone's pageblocks
 * @touched: address of the byte that pageblock 0 would have, if the zone had
 *	     it: a byte for each, under zone->lock
 * @bytes: these bytes, from @first on
 * @first: number of the first pageblock
 * @nr: pageblocks, from @first on
 * @block: their summaries, see mm/ramslice/internal.h
 *
 * Every populated zone has one as soon as ramslice is enabled.
 */
struct ramslice_blocks {
	unsigned long touched;
	u8 *bytes;
	unsigned long first;
	unsigned long nr;
	struct ramslice_block *block;
};

/**
 * ramslice_touch - pages enter or leave a zone's free lists
 * @zone: the zone
 * @pfn: the first page
 * @order: of the block that they are
 *
 * What was known of their pageblocks is out of date.
 *
 * Context: zone->lock held.
 */
static __always_inline void ramslice_touch(struct zone *zone, unsigned long pfn,
					   unsigned int order)
{
	unsigned long nr = pfn >> pageblock_order;
	u8 *touched;

	if (!ramslice_enabled())
		return;
	touched = (u8 *)zone->ramslice_blocks->touched;
	WRITE_ONCE(touched[nr], 1);
	if (order <= pageblock_order)
		return;
	while (++nr << pageblock_order < pfn + (1UL << order))
		WRITE_ONCE(touched[nr], 1);
}

bool __ramslice_demand(struct zone *zone, gfp_t gfp, unsigned int order,
		       unsigned long mark, int highest_zoneidx,
		       unsigned int alloc_flags);
void __ramslice_below_high(struct zone *zone, gfp_t gfp, unsigned int order);
void __ramslice_readahead(struct address_space *mapping, pgoff_t index,
			  unsigned long nr_pages, gfp_t gfp);
bool __ramslice_spare_reclaim(struct zone *zone, gfp_t gfp, unsigned int order,
			      int highest_zoneidx);
bool __ramslice_balance(pg_data_t *pgdat, int highest_zoneidx);
void __ramslice_wake_range(unsigned long start_pfn, unsigned long end_pfn,
			   bool held);
unsigned long __ramslice_could_hold(struct mem_cgroup *memcg, int nid);
unsigned long ramslice_contig_pages(unsigned long nr_pages, gfp_t gfp, int nid,
				    nodemask_t *nodemask);

/**
 * ramslice_demand - an allocation fails a zone's watermark: wake memory there
 * @zone: the zone
 * @gfp: the allocation's flags
 * @order: its order
 * @mark: the watermark it failed
 * @highest_zoneidx: the highest zone it may use
 * @alloc_flags: its ALLOC_* flags
 *
 * Never sleeps unless @gfp allows it, allocates nothing, and may be called
 * with any lock held that permits an allocation.
 *
 * Return: true if the zone has grown and should be tried again.
 */
static __always_inline bool ramslice_demand(struct zone *zone, gfp_t gfp,
					    unsigned int order,
					    unsigned long mark,
					    int highest_zoneidx,
					    unsigned int alloc_flags)
{
	return ramslice_enabled() &&
	       __ramslice_demand(zone, gfp, order, mark, highest_zoneidx,
				 alloc_flags);
}

/* The zone is below its high watermark: wake memory there ahead of need. */
static __always_inline void ramslice_below_high(struct zone *zone, gfp_t gfp,
						unsigned int order)
{
	if (ramslice_enabled())
		__ramslice_below_high(zone, gfp, order);
}

/*
 * Pages of a file are about to be read ahead, which is not worth waking memory
 * unless the power driver says so: page cache makes room for them, early enough
 * to leave the awake reserve to others. May sleep if @gfp allows it.
 */
static __always_inline void ramslice_readahead(struct address_space *mapping,
					       pgoff_t index,
					       unsigned long nr_pages,
					       gfp_t gfp)
{
	if (ramslice_enabled())
		__ramslice_readahead(mapping, index, nr_pages, gfp);
}

/* Waking slices does better what kswapd was about to be woken for. */
static __always_inline bool ramslice_spare_reclaim(struct zone *zone, gfp_t gfp,
						   unsigned int order,
						   int highest_zoneidx)
{
	return ramslice_enabled() &&
	       __ramslice_spare_reclaim(zone, gfp, order, highest_zoneidx);
}

/* kswapd is about to reclaim: true if slices were woken instead. */
static __always_inline bool ramslice_balance(pg_data_t *pgdat,
					     int highest_zoneidx)
{
	return ramslice_enabled() && __ramslice_balance(pgdat, highest_zoneidx);
}

/*
 * A particular range is wanted: wake the slices in it, but not those that are
 * held. May sleep.
 */
static __always_inline void ramslice_wake_range(unsigned long start_pfn,
						unsigned long end_pfn)
{
	if (ramslice_enabled())
		__ramslice_wake_range(start_pfn, end_pfn, false);
}

/*
 * Pages that what comes back to the page cache could have stayed in: they are off,
 * and within the limits of its cgroup.
 */
static __always_inline unsigned long
ramslice_could_hold(struct mem_cgroup *memcg, const struct pglist_data *pgdat)
{
	return ramslice_enabled() ? __ramslice_could_hold(memcg, pgdat->node_id) :
				    0;
}

unsigned long ramslice_wakeable_pages(void);
unsigned long ramslice_node_wakeable_pages(int nid);
unsigned long ramslice_zone_wakeable_pages(struct zone *zone);
bool ramslice_could_free(struct zone *zone, unsigned long nr_pages);

#else /* !CONFIG_RAMSLICE */

/*
 * Macros, because these do not look at their arguments: then compilers make of
 * each file with hooks what they make of it without them, to the byte.
 */
#define ramslice_enabled()			false
#define ramslice_touch(...)			do { } while (0)
#define ramslice_demand(...)			false
#define ramslice_below_high(...)		do { } while (0)
#define ramslice_readahead(...)			do { } while (0)
#define ramslice_spare_reclaim(...)		false
#define ramslice_balance(...)			false
#define ramslice_wake_range(...)		do { } while (0)
#define ramslice_could_hold(...)		0UL
#define ramslice_wakeable_pages()		0UL
#define ramslice_node_wakeable_pages(...)	0UL
#define ramslice_zone_wakeable_pages(...)	0UL
#define ramslice_could_free(...)		false

#endif /* CONFIG_RAMSLICE */

#endif /* _LINUX_RAMSLICE_H */
