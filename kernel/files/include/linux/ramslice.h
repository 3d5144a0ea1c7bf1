/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ramslice inside the kernel: the hooks that mm calls, with stubs that
 * compile away, and the interface of power drivers.
 *
 * Every hook in mm is a few lines around a function declared here. They cost
 * a static key while ramslice is off.
 */
#ifndef _LINUX_RAMSLICE_H
#define _LINUX_RAMSLICE_H

#include <linux/gfp_types.h>
#include <linux/jump_label.h>
#include <linux/mmzone.h>

struct folio;

#ifdef CONFIG_RAMSLICE

DECLARE_STATIC_KEY_FALSE(ramslice_key);

/* True from early boot on, unless switched off on the command line. */
static __always_inline bool ramslice_enabled(void)
{
	return static_branch_unlikely(&ramslice_key);
}

void ramslice_init_early(void);
size_t ramslice_usage_size(void);

void __ramslice_account_free(unsigned long pfn, long nr_pages);
void __ramslice_account_stat(struct folio *folio, enum node_stat_item item,
			     long nr_pages);
void __ramslice_account_lru(struct folio *folio, bool add);
void __ramslice_account_migrate(struct folio *dst, struct folio *src,
				bool dirty);
void __ramslice_account_split(struct folio *folio, unsigned int new_order);
void __ramslice_account_collapse(struct folio *dst, struct folio *src,
				 bool is_shmem);

/**
 * ramslice_account_free - pages entered or left the buddy allocator's lists
 * @pfn: the first page
 * @nr_pages: their number, negative if they left
 *
 * Up to a pageblock's number, all are of one. Context: zone->lock held.
 */
static __always_inline void ramslice_account_free(unsigned long pfn,
						  long nr_pages)
{
	if (ramslice_enabled())
		__ramslice_account_free(pfn, nr_pages);
}

/**
 * ramslice_account_stat - a node counter changed on behalf of a folio
 * @folio: the folio
 * @item: the counter; those ramslice does not keep are ignored
 * @nr_pages: the change
 */
static __always_inline void ramslice_account_stat(struct folio *folio,
						  enum node_stat_item item,
						  long nr_pages)
{
	if (ramslice_enabled())
		__ramslice_account_stat(folio, item, nr_pages);
}

/**
 * ramslice_account_lru - a folio goes onto or leaves the LRU lists
 * @folio: the folio, with the flags that it has on the list
 * @add: onto the list
 */
static __always_inline void ramslice_account_lru(struct folio *folio, bool add)
{
	if (ramslice_enabled())
		__ramslice_account_lru(folio, add);
}

/**
 * ramslice_account_migrate - the page cache slot of a folio passes to another
 * @dst: the new folio
 * @src: the old folio
 * @dirty: the folio is dirty and its mapping accounts that
 */
static __always_inline void ramslice_account_migrate(struct folio *dst,
						     struct folio *src,
						     bool dirty)
{
	if (ramslice_enabled())
		__ramslice_account_migrate(dst, src, dirty);
}

/**
 * ramslice_account_split - a folio on the LRU lists is split in place
 * @folio: the folio, still whole
 * @new_order: order of the parts
 */
static __always_inline void ramslice_account_split(struct folio *folio,
						   unsigned int new_order)
{
	if (ramslice_enabled())
		__ramslice_account_split(folio, new_order);
}

/**
 * ramslice_account_collapse - khugepaged replaces a page cache folio
 * @dst: the huge page
 * @src: a folio whose slot the huge page takes over
 * @is_shmem: it belongs to shmem
 *
 * khugepaged leaves the node's counters alone for slots that change owner.
 */
static __always_inline void ramslice_account_collapse(struct folio *dst,
						      struct folio *src,
						      bool is_shmem)
{
	if (ramslice_enabled())
		__ramslice_account_collapse(dst, src, is_shmem);
}

bool __ramslice_demand(struct zone *zone, gfp_t gfp, unsigned int order,
		       unsigned long mark, int highest_zoneidx,
		       unsigned int alloc_flags);
void __ramslice_below_high(struct zone *zone, gfp_t gfp, unsigned int order);
void __ramslice_recycle(struct zone *zone, gfp_t gfp);
bool __ramslice_spare_reclaim(struct zone *zone, gfp_t gfp, unsigned int order,
			      int highest_zoneidx);
bool __ramslice_balance(pg_data_t *pgdat, int highest_zoneidx);
void __ramslice_wake_range(unsigned long start_pfn, unsigned long end_pfn,
			   bool held);

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
 * A request that is not worth waking memory makes room for itself, early
 * enough to leave the awake reserve to others.
 */
static __always_inline void ramslice_recycle(struct zone *zone, gfp_t gfp)
{
	if (ramslice_enabled() && (gfp & __GFP_NOWAKE))
		__ramslice_recycle(zone, gfp);
}

/*
 * Flags for reading file pages ahead. A page that left a shadow was in the
 * cache before and is wanted again: that is worth waking memory.
 */
static __always_inline gfp_t ramslice_readahead_gfp(gfp_t gfp,
						    const void *entry)
{
	if (ramslice_enabled() && !entry)
		gfp |= __GFP_NOWAKE;
	return gfp;
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

unsigned long ramslice_wakeable_pages(void);
unsigned long ramslice_node_wakeable_pages(int nid);
unsigned long ramslice_zone_wakeable_pages(struct zone *zone);

#else /* !CONFIG_RAMSLICE */

static inline bool ramslice_enabled(void)
{
	return false;
}

static inline void ramslice_init_early(void) { }

static inline size_t ramslice_usage_size(void)
{
	return 0;
}

static inline void ramslice_account_free(unsigned long pfn, long nr_pages) { }
static inline void ramslice_account_stat(struct folio *folio,
					 enum node_stat_item item,
					 long nr_pages) { }
static inline void ramslice_account_lru(struct folio *folio, bool add) { }
static inline void ramslice_account_migrate(struct folio *dst,
					    struct folio *src, bool dirty) { }
static inline void ramslice_account_split(struct folio *folio,
					  unsigned int new_order) { }
static inline void ramslice_account_collapse(struct folio *dst,
					     struct folio *src,
					     bool is_shmem) { }

static inline bool ramslice_demand(struct zone *zone, gfp_t gfp,
				   unsigned int order, unsigned long mark,
				   int highest_zoneidx,
				   unsigned int alloc_flags)
{
	return false;
}

static inline void ramslice_below_high(struct zone *zone, gfp_t gfp,
				       unsigned int order) { }
static inline void ramslice_recycle(struct zone *zone, gfp_t gfp) { }

static inline gfp_t ramslice_readahead_gfp(gfp_t gfp, const void *entry)
{
	return gfp;
}

static inline bool ramslice_spare_reclaim(struct zone *zone, gfp_t gfp,
					  unsigned int order,
					  int highest_zoneidx)
{
	return false;
}

static inline bool ramslice_balance(pg_data_t *pgdat, int highest_zoneidx)
{
	return false;
}

static inline void ramslice_wake_range(unsigned long start_pfn,
				       unsigned long end_pfn) { }

static inline unsigned long ramslice_wakeable_pages(void)
{
	return 0;
}

static inline unsigned long ramslice_node_wakeable_pages(int nid)
{
	return 0;
}

static inline unsigned long ramslice_zone_wakeable_pages(struct zone *zone)
{
	return 0;
}

#endif /* CONFIG_RAMSLICE */

#endif /* _LINUX_RAMSLICE_H */
