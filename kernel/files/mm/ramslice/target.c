// SPDX-License-Identifier: GPL-2.0
/*
 * Page frames for migration, from the dearest slices (Algorithm 3.2).
 *
 * Free pages come block by block: all of a pageblock's under one hold of the
 * zone lock, as compaction does. They stay in the orders that they had, to be
 * split only as needed, and what is left goes back. Clean page cache of a
 * destination is dropped for more if the request allows that, and only when
 * its free pages are used up: that is also what prices predict.
 */

#include <linux/migrate.h>
#include <linux/pagemap.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#include "../internal.h"
#include "internal.h"
#include "request.h"

/* Page frames to have at hand after a search. */
#define TARGET_BATCH	512UL
/* The same if they cost cache: what is not used then has gone in vain. */
#define DROP_BATCH	64UL

void ramslice_target_init(struct ramslice_target *t, struct ramslice_zone *rz,
			  struct ramslice_reserve *reserve,
			  enum ramslice_cache cache,
			  struct ramslice_work *work)
{
	unsigned int order;

	memset(t, 0, sizeof(*t));
	t->rz = rz;
	t->reserve = reserve;
	t->source = RAMSLICE_NO_ID;
	t->large_order = NR_PAGE_ORDERS;
	t->cache = cache;
	t->work = work;
	for (order = 0; order < NR_PAGE_ORDERS; order++)
		INIT_LIST_HEAD(&t->free[order]);
}

/*
 * Movable pages go into movable pageblocks only: elsewhere they would stand
 * in the way of the kernel's own allocations, which would then spread. A slice
 * that spans the end of its zone has blocks of another one, maybe of another
 * node: those are not for this zone's pages.
 */
static bool ramslice_target_block(u32 id, unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);

	return page && page_zone(page) == ramslice_slices[id].rz->zone &&
	       get_pageblock_migratetype(page) == MIGRATE_MOVABLE;
}

/* Of the kind, and not known to have fewer free pages than that? */
static bool ramslice_may_have_free(u32 id, unsigned long pfn, u16 nr_pages)
{
	return ramslice_target_block(id, pfn) &&
	       (ramslice_block_touched(pfn) ||
		READ_ONCE(ramslice_block(pfn)->count[RAMSLICE_FREE]) >= nr_pages);
}

static u64 ramslice_block_cache(unsigned long pfn)
{
	const struct ramslice_block *block = ramslice_block(pfn);
	u32 counters[RAMSLICE_NR_COUNTERS];
	unsigned int c;

	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		counters[c] = READ_ONCE(block->count[c]);
	return ramslice_nr_drop(counters);
}

/**
 * ramslice_target_room - what a slice could take
 * @id: the slice
 * @nr_free: set to the free page frames
 * @nr_cache: set to those that dropping clean page cache would give
 *
 * Reads again what was touched. May sleep.
 */
void ramslice_target_room(u32 id, u64 *nr_free, u64 *nr_cache)
{
	unsigned long pfn;
	unsigned int n;

	*nr_free = 0;
	*nr_cache = 0;
	ramslice_scan_slice(id, RAMSLICE_ANY_AGE);
	for_each_slice_block(id, n, pfn) {
		if (!ramslice_target_block(id, pfn))
			continue;
		*nr_free += READ_ONCE(ramslice_block(pfn)->count[RAMSLICE_FREE]);
		*nr_cache += ramslice_block_cache(pfn);
	}
}

/* Takes the free pages of a block out of the allocator. False: no more. */
static bool ramslice_take_block(struct ramslice_target *t, u32 id,
				unsigned long start, unsigned int min_order)
{
	unsigned long pfn = start, end = start + pageblock_nr_pages;
	struct zone *zone = t->rz->zone;
	bool more = true;

	spin_lock_irq(&zone->lock);
	while (pfn < end) {
		struct page *page = pfn_to_page(pfn);
		unsigned int order;

		/* A zone may end inside a pageblock; the lock is for this one */
		if (page_zone(page) != zone || !PageBuddy(page)) {
			pfn++;
			continue;
		}
		order = buddy_order(page);
		/* A block shared with the neighbour is not ours to take */
		if (order < min_order ||
		    ramslice_geom_slice(&ramslice_geom,
					pfn + (1UL << order) - 1) != id) {
			pfn += 1UL << order;
			continue;
		}
		/* Minds the watermark: what the others need stays */
		if (!__isolate_free_page(page, order)) {
			more = false;
			break;
		}
		set_page_private(page, order);
		list_add_tail(&page->lru, &t->free[order]);
		t->nr_free += 1UL << order;
		t->work->target_free += 1UL << order;
		pfn += 1UL << order;
	}
	spin_unlock_irq(&zone->lock);
	return more;
}

/* Goes on where it stopped in this block the last time. */
static unsigned long ramslice_drop_some(struct ramslice_target *t,
					unsigned long start)
{
	unsigned long dropped = 0;

	while (t->offset < pageblock_nr_pages && dropped < DROP_BATCH) {
		struct page *page = pfn_to_page(start + t->offset++);
		struct folio *folio;
		long nr;

		/* A zone may end here */
		if (page_zone(page) != t->rz->zone || !PageLRU(page) ||
		    PageTail(page))
			continue;
		folio = ramslice_get_folio(page);
		if (!folio)
			continue;
		nr = folio_nr_pages(folio);
		if (ramslice_drop_folio(folio, t->cache))
			dropped += nr;
		folio_put(folio);
	}
	if (dropped) {
		ramslice_drain_local(t->rz->zone);
		t->work->pages_dropped += dropped;
		t->work->target_cache += dropped;
	}
	return dropped;
}

/* Has the search go over the destination once more, for its cache. */
static bool ramslice_begin_dropping(struct ramslice_target *t, u32 id)
{
	u64 nr_free, nr_cache;

	if (t->dropping || t->cache == RAMSLICE_CACHE_KEEP)
		return false;
	ramslice_target_room(id, &nr_free, &nr_cache);
	if (!nr_cache)
		return false;
	t->dropping = true;
	t->block = 0;
	t->offset = 0;
	return true;
}

/* The destination to scan, or RAMSLICE_NO_ID if there is none left. */
static u32 ramslice_destination(struct ramslice_target *t)
{
	struct ramslice_reserve *r = t->reserve;

	while (r->next > r->low) {
		u32 id = r->c[r->next - 1].id;

		if (id != t->source &&
		    READ_ONCE(ramslice_slices[id].state) == RAMSLICE_ONLINE &&
		    (t->block < ramslice_geom_nr_blocks(&ramslice_geom, id) ||
		     ramslice_begin_dropping(t, id)))
			return id;
		/* The source's place will be empty anyway */
		r->next--;
		t->block = 0;
		t->offset = 0;
		t->dropping = false;
	}
	t->dry = true;
	return RAMSLICE_NO_ID;
}

/**
 * ramslice_target_fill - have page frames at hand
 * @t: the search
 * @nr_pages: how many; fewer if there are no more, and then @t->dry is set
 */
void ramslice_target_fill(struct ramslice_target *t, unsigned long nr_pages)
{
	while (!t->dry && t->nr_free < (t->dropping ? min(nr_pages, DROP_BATCH) :
						      nr_pages)) {
		u32 id = ramslice_destination(t);
		unsigned long before = t->nr_free, dropped = 0, pfn;

		if (id == RAMSLICE_NO_ID)
			break;
		pfn = ramslice_geom_block(&ramslice_geom, id, t->block);
		/* Looking for cache page by page costs as much as a page */
		if (t->dropping && ramslice_target_block(id, pfn) &&
		    (ramslice_block_touched(pfn) || ramslice_block_cache(pfn)))
			dropped = ramslice_drop_some(t, pfn);
		if (!dropped || t->offset >= pageblock_nr_pages) {
			t->block++;
			t->offset = 0;
		}
		if (t->dropping ? !dropped : !ramslice_may_have_free(id, pfn, 1))
			continue;
		/* At the watermark only what is dropped makes room */
		if (!ramslice_take_block(t, id, pfn,
					 0) && !ramslice_begin_dropping(t, id))
			t->dry = true;
		trace_ramslice_target(id, pfn, t->nr_free - before, dropped);
	}
}

/*
 * Free blocks for a folio of @order, leaving smaller ones where they are: all
 * that a pageblock of the dearest slice with such blocks has. Goes on where it
 * found the last ones; what is before that has none of the order it looked for.
 */
static void ramslice_fill_large(struct ramslice_target *t, unsigned int order)
{
	struct ramslice_reserve *r = t->reserve;

	if (order < t->large_order) {
		t->large_order = order;
		t->large_next = r->next;
		t->large_block = 0;
	}
	for (; t->large_next > r->low; t->large_next--, t->large_block = 0) {
		u32 id = r->c[t->large_next - 1].id;

		if (id == t->source ||
		    READ_ONCE(ramslice_slices[id].state) != RAMSLICE_ONLINE)
			continue;
		for (; t->large_block < ramslice_geom_nr_blocks(&ramslice_geom, id);
		     t->large_block++) {
			unsigned long before = t->nr_free, pfn;

			pfn = ramslice_geom_block(&ramslice_geom, id,
						  t->large_block);
			if (!ramslice_may_have_free(id, pfn, 1 << order))
				continue;
			if (!ramslice_take_block(t, id, pfn, order) ||
			    t->nr_free > before)
				return;
		}
	}
}

static struct page *ramslice_pop(struct ramslice_target *t, unsigned int order)
{
	unsigned int high;

	for (high = order; high < NR_PAGE_ORDERS; high++) {
		struct page *page;

		page = list_first_entry_or_null(&t->free[high], struct page,
						lru);
		if (!page)
			continue;
		list_del(&page->lru);
		set_page_private(page, 0);
		t->nr_free -= 1UL << order;
		while (high > order) {
			struct page *half;

			high--;
			half = page + (1UL << high);
			set_page_private(half, high);
			list_add(&half->lru, &t->free[high]);
		}
		return page;
	}
	return NULL;
}

/**
 * ramslice_target_alloc - new_folio_t for migrate_pages()
 * @src: the folio to be migrated
 * @private: the struct ramslice_target
 *
 * Return: a folio in a destination, or NULL; a large folio is then split by
 * migrate_pages() and comes again in parts.
 */
struct folio *ramslice_target_alloc(struct folio *src, unsigned long private)
{
	struct ramslice_target *t = (struct ramslice_target *)private;
	unsigned int order = folio_order(src);
	struct page *page;

	page = ramslice_pop(t, order);
	if (!page && order < pageblock_order) {
		ramslice_target_fill(t, TARGET_BATCH);
		page = ramslice_pop(t, order);
	}
	if (!page && order) {
		ramslice_fill_large(t, order);
		page = ramslice_pop(t, order);
	}
	if (!page) {
		t->work->huge_split += order >= pageblock_order;
		return NULL;
	}

	ramslice_prep_pages(page, order);
	set_page_refcounted(page);
	t->work->huge_moved += order >= pageblock_order;
	if (order)
		prep_compound_page(page, order);
	return page_rmappable_folio(page);
}

/* free_folio_t for migrate_pages(): it did not need the folio after all. */
void ramslice_target_free(struct folio *dst, unsigned long private)
{
	struct ramslice_target *t = (struct ramslice_target *)private;
	unsigned int order = folio_order(dst);
	struct page *page = &dst->page;

	t->work->huge_moved -= order >= pageblock_order;
	if (!folio_put_testzero(dst))
		return;
	if (!free_pages_prepare(page, order))
		return;
	set_page_private(page, order);
	list_add(&page->lru, &t->free[order]);
	t->nr_free += 1UL << order;
}

/* Gives back what lies in slice @id, or in any for RAMSLICE_NO_ID. */
static void ramslice_give_frames(struct ramslice_target *t, u32 id)
{
	unsigned long given = 0;
	unsigned int order;

	for (order = 0; order < NR_PAGE_ORDERS; order++) {
		struct page *page, *next;

		list_for_each_entry_safe(page, next, &t->free[order], lru) {
			if (id != RAMSLICE_NO_ID &&
			    ramslice_geom_slice(&ramslice_geom,
						page_to_pfn(page)) != id)
				continue;
			list_del(&page->lru);
			set_page_private(page, 0);
			ramslice_prep_pages(page, order);
			set_page_refcounted(page);
			__free_pages(page, order);
			given += 1UL << order;
		}
	}
	if (given && id != RAMSLICE_NO_ID)
		ramslice_drain_local(t->rz->zone);
	t->work->target_free -= min_t(u64, given, t->work->target_free);
	t->nr_free -= given;
}

/**
 * ramslice_target_leave - give back what was not used of a slice
 * @t: the search
 * @id: the slice, which is to be emptied: what is at hand of it is not free
 *
 * What a search for a large folio found lies in slices that come later.
 */
void ramslice_target_leave(struct ramslice_target *t, u32 id)
{
	if (t->nr_free)
		ramslice_give_frames(t, id);
}

/**
 * ramslice_target_release - give back what was not used
 * @t: the search, which may go on afterwards
 */
void ramslice_target_release(struct ramslice_target *t)
{
	ramslice_give_frames(t, RAMSLICE_NO_ID);
	t->large_order = NR_PAGE_ORDERS;
}
