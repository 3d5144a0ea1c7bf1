// SPDX-License-Identifier: GPL-2.0
/*
 * Slices that the kernel's pages are to leave.
 *
 * These pages cannot be moved, but they come and go. After a peak they lie in as
 * many slices as it needed, and what is free among them is filled again: each new
 * page goes to the block that was freed last, wherever that is. So the fullest
 * slices that could hold them all are kept, and the others drain:
 *
 *   what is freed there goes to the tail of the free lists, past the lists of CPUs
 *   and of slab caches, and is taken only if kept slices have nothing;
 *   pageblocks there that are wholly free become movable ones;
 *   in kept slices some free pageblocks belong to the kernel ahead of need, so
 *   that it does not spoil another slice, and the emptying of slices does not fill
 *   them.
 *
 * Only kernel pages are looked at, and only under the policy packed.
 */

#include <linux/mm.h>
#include <linux/page-isolation.h>
#include <linux/ramslice_place.h>
#include <linux/rcupdate.h>
#include <linux/sort.h>
#include "../internal.h"
#include "place.h"

/* Entries of a free list that are looked at for a page, under zone->lock. */
#define MAX_ENTRIES	16
/* Kept slices have room for a part in so many more than comes and goes. */
#define SPARE_PART	8
/* Pageblocks that are the kernel's ahead of need, at least. */
#define MIN_SPARE	2

/* On while the policy is packed. */
DEFINE_STATIC_KEY_FALSE(ramslice_drain_key);

/* See ramslice_drains(). */
bool __ramslice_drains(const struct page *page)
{
	const struct ramslice_blocks *b;
	unsigned long nr = page_to_pfn(page) >> pageblock_order;
	bool drains;

	rcu_read_lock();
	b = READ_ONCE(page_zone(page)->ramslice_blocks);
	drains = b && nr - b->first < b->nr &&
		 READ_ONCE(b->block[nr - b->first].drains);
	rcu_read_unlock();
	return drains;
}

/* One of the first entries of a free list in a slice that does not drain, or NULL. */
static struct page *ramslice_first_kept(const struct list_head *free_list)
{
	unsigned int entries = 0;
	struct page *page;

	list_for_each_entry(page, free_list, buddy_list) {
		if (!__ramslice_drains(page))
			return page;
		if (++entries == MAX_ENTRIES)
			break;
	}
	return NULL;
}

/* See ramslice_place.h. */
struct page *ramslice_find_kept(struct zone *zone, struct page *page,
				unsigned int order, int type)
{
	unsigned int list_order;

	for (list_order = buddy_order(page); list_order < NR_PAGE_ORDERS;
	     list_order++) {
		struct list_head *free_list =
			&zone->free_area[list_order].free_list[type];
		struct page *kept;

		if (list_empty(free_list))
			continue;
		if (ramslice_places(list_order))
			return ramslice_place(zone,
					      list_first_entry(free_list,
							       struct page,
							       buddy_list),
					      order, type, type);
		kept = ramslice_first_kept(free_list);
		if (kept)
			return kept;
	}
	return page;
}

/* Those that are on anyway first, then the fullest. */
static int ramslice_cmp_kernel(const void *a, const void *b)
{
	const struct ramslice_kernel_slice *x = a, *y = b;

	if (x->fixed != y->fixed)
		return y->fixed - x->fixed;
	return (x->nr_stay < y->nr_stay) - (x->nr_stay > y->nr_stay);
}

/**
 * ramslice_nr_kept - how many slices the kernel's pages need
 * @slices: all that hold some; sorted by this, those to keep first
 * @nr: their number
 *
 * Return: how many to keep. The others are to drain.
 */
u32 ramslice_nr_kept(struct ramslice_kernel_slice *slices, u32 nr)
{
	u64 wanted = 0, passing = 0, room = 0;
	u32 i;

	sort(slices, nr, sizeof(*slices), ramslice_cmp_kernel, NULL);
	for (i = 0; i < nr; i++) {
		wanted += slices[i].nr_stay;
		/* In a slice that is fixed, most is there since boot */
		if (!slices[i].fixed)
			passing += slices[i].nr_stay;
	}
	wanted += passing / SPARE_PART + MIN_SPARE * pageblock_nr_pages;
	for (i = 0; i < nr && (slices[i].fixed || room < wanted); i++)
		room += slices[i].nr_room;
	return i;
}

static void ramslice_set_drains(u32 id, bool drains)
{
	unsigned long pfn;
	unsigned int n;

	for_each_slice_block(id, n, pfn) {
		if (pfn_to_online_page(pfn))
			WRITE_ONCE(ramslice_block(pfn)->drains, drains);
	}
}

/*
 * Gives wholly free pageblocks of a slice to another kind of pages, as many as
 * are wanted. Returns how many it gave.
 */
static u32 ramslice_convert(struct zone *zone, u32 id, int to, u32 wanted)
{
	unsigned long pfn;
	unsigned int n;
	u32 nr = 0;

	for_each_slice_block(id, n, pfn) {
		struct page *page = pfn_to_online_page(pfn);

		if (nr >= wanted)
			break;
		if (!page || page_zone(page) != zone ||
		    !ramslice_block_free(pfn))
			continue;
		spin_lock_irq(&zone->lock);
		/* Larger blocks by their heads, which may be in another slice */
		if (PageBuddy(page) && buddy_order(page) >= pageblock_order &&
		    ramslice_geom_slice(&ramslice_geom, pfn +
					(1UL << buddy_order(page)) - 1) == id &&
		    ramslice_convert_free(zone, page, to))
			nr += 1U << (buddy_order(page) - pageblock_order);
		spin_unlock_irq(&zone->lock);
		cond_resched();
	}
	return nr;
}

/**
 * ramslice_drain - decide which slices the kernel's pages keep
 * @rz: the zone
 * @slices: those that hold some; sorted by this
 * @nr: their number
 *
 * Context: ramslice_table_sem held, and a lock of ranking.c. May sleep; takes
 * zone->lock.
 */
void ramslice_drain(struct ramslice_zone *rz,
		    struct ramslice_kernel_slice *slices, u32 nr)
{
	u32 i, id, kept, spare = 0, wanted = 0;
	struct ramslice_slice *s;

	/* What the kernel has of the movable zone is in a slice that is shared */
	if (READ_ONCE(ramslice_policy) != RAMSLICE_PLACE_PACKED ||
	    zone_idx(rz->zone) == ZONE_MOVABLE)
		return;
	kept = ramslice_nr_kept(slices, nr);
	/* What was to drain and has, or has grown since */
	for_each_zone_slice(rz, id, s) {
		ramslice_set_drains(id, false);
		cond_resched();
	}
	for (i = kept; i < nr; i++) {
		ramslice_set_drains(slices[i].id, true);
		ramslice_convert(rz->zone, slices[i].id, MIGRATE_MOVABLE,
				 U32_MAX);
		cond_resched();
	}
	for (i = 0; i < kept; i++) {
		spare += slices[i].nr_spare;
		wanted += slices[i].nr_own;
	}
	wanted = max(wanted / SPARE_PART, MIN_SPARE);
	for (i = 0; i < kept && spare < wanted; i++)
		spare += ramslice_convert(rz->zone, slices[i].id,
					  MIGRATE_UNMOVABLE, wanted - spare);
	spin_lock_irq(&rz->zone->lock);
	rz->place->nr_draining = nr - kept;
	spin_unlock_irq(&rz->zone->lock);
}

/**
 * ramslice_drain_none - the kernel's pages may stay where they are
 * @rz: the zone
 *
 * Context: ramslice_table_sem held, and a lock of ranking.c. May sleep; takes
 * zone->lock.
 */
void ramslice_drain_none(struct ramslice_zone *rz)
{
	struct ramslice_slice *s;
	u32 id;

	for_each_zone_slice(rz, id, s) {
		ramslice_set_drains(id, false);
		cond_resched();
	}
	spin_lock_irq(&rz->zone->lock);
	rz->place->nr_draining = 0;
	spin_unlock_irq(&rz->zone->lock);
}
