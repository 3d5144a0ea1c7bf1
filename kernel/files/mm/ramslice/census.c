// SPDX-License-Identifier: GPL-2.0
/*
 * Walks one slice page by page: what would have to be dropped or moved, and
 * what stands in the way. A view from outside: without locks, so that a page
 * may have changed by the time it is counted.
 */

#include <linux/migrate.h>
#include <linux/page-isolation.h>
#include <linux/pagemap.h>
#include "../internal.h"
#include "internal.h"

static void ramslice_count_blocker(struct ramslice_census *c, unsigned long pfn,
				   unsigned long nr_pages,
				   enum ramslice_reason reason)
{
	if (c->reason == RAMSLICE_REASON_NONE) {
		c->reason = reason;
		c->pfn = pfn;
	}
	c->nr_blocking += nr_pages;
}

/* Returns the number of page frames to go on by, at least 1. */
static unsigned long ramslice_count_page(struct ramslice_census *c,
					 unsigned long pfn, unsigned long left,
					 enum ramslice_cache cache)
{
	struct page *page = pfn_to_page(pfn);
	enum ramslice_reason reason;
	unsigned long nr = 1;
	struct folio *folio;

	if (PageBuddy(page)) {
		unsigned int order = buddy_order_unsafe(page);

		/* It may have been allocated meanwhile: check what is read */
		if (order <= MAX_PAGE_ORDER)
			nr = min(1UL << order, left);
		c->nr_free += nr;
		return nr;
	}

	/*
	 * The reference keeps the folio what it is. Free pages and tails have
	 * none: tails were counted with their head, which lies in the same
	 * pageblock unless the folio is larger than one.
	 */
	folio = ramslice_get_folio(page);
	if (!folio) {
		/* Free in its pool, which will want another one for it */
		if (ramslice_hugetlb_page(pageblock_start_pfn(pfn))) {
			c->nr_move += left;
			c->nr_huge += left;
			return left;
		}
		reason = ramslice_frame_blocks(page);
		if (reason == RAMSLICE_REASON_NONE) {
			if (!PageTail(page))
				c->nr_free++;
			return 1;
		}
		nr = ramslice_nr_frames(page, left);
		ramslice_count_blocker(c, pfn, nr, reason);
		return nr;
	}

	nr = min_t(unsigned long, folio_nr_pages(folio), left);
	reason = ramslice_folio_blocks(folio);
	if (reason != RAMSLICE_REASON_NONE) {
		ramslice_count_blocker(c, pfn, nr, reason);
	} else if (folio_test_lru(folio) && ramslice_folio_goes(folio, cache)) {
		c->nr_drop += nr;
	} else {
		c->nr_move += nr;
		if (folio_test_lru(folio) || folio_test_hugetlb(folio)) {
			c->nr_maps += folio_mapcount(folio);
			if (folio_order(folio) == pageblock_order)
				c->nr_huge += nr;
			/* Page cache is looked at all the time */
			if (c->nr_lent < RAMSLICE_MAX_LENT &&
			    folio_test_anon(folio) &&
			    ramslice_folio_extra_refs(folio))
				c->lent[c->nr_lent++] = pfn;
		}
	}
	folio_put(folio);
	return nr;
}

static void ramslice_count_block(struct ramslice_census *c, unsigned long start,
				 enum ramslice_cache cache, bool stop_early)
{
	unsigned long pfn, end = start + pageblock_nr_pages;
	enum ramslice_reason reason;

	reason = ramslice_type_blocks(get_pageblock_migratetype(pfn_to_page(start)));
	if (reason != RAMSLICE_REASON_NONE)
		ramslice_count_blocker(c, start, 1, reason);
	for (pfn = start; pfn < end; ) {
		if (stop_early && c->reason != RAMSLICE_REASON_NONE)
			return;
		pfn += ramslice_count_page(c, pfn, end - pfn, cache);
	}
	c->nr_pages += pageblock_nr_pages;
}

/**
 * ramslice_find_blocker - why a pageblock could not be isolated
 * @pfn: its first page frame
 *
 * Return: what stands in the way, or RAMSLICE_REASON_UNMOVABLE if that has
 * gone since, or is for the allocator alone to know.
 */
enum ramslice_reason ramslice_find_blocker(unsigned long pfn)
{
	struct ramslice_census c = {};

	ramslice_count_block(&c, pfn, RAMSLICE_CACHE_DROP, true);
	return c.reason == RAMSLICE_REASON_NONE ? RAMSLICE_REASON_UNMOVABLE :
						  c.reason;
}

/**
 * ramslice_find_lent - is a folio that the census found lent still lent?
 * @c: the census
 *
 * Those that were only in a CPU's batch, which was drained since, are not.
 *
 * Return: page frame of the first of them, or 0.
 */
unsigned long ramslice_find_lent(const struct ramslice_census *c)
{
	unsigned int i;

	for (i = 0; i < c->nr_lent; i++) {
		struct folio *folio;
		bool lent;

		folio = ramslice_get_folio(pfn_to_page(c->lent[i]));
		if (!folio)
			continue;
		lent = folio_test_lru(folio) && folio_test_anon(folio) &&
		       ramslice_folio_extra_refs(folio);
		folio_put(folio);
		if (lent)
			return c->lent[i];
	}
	return 0;
}

/**
 * ramslice_take_census - walk a slice
 * @id: the slice, in state RAMSLICE_ONLINE
 * @c: the result
 * @cache: what becomes of clean unmapped page cache
 * @stop_early: stop at the first page that blocks
 *
 * Context: ramslice_mutex held. May sleep.
 */
void ramslice_take_census(u32 id, struct ramslice_census *c,
			  enum ramslice_cache cache, bool stop_early)
{
	const struct zone *zone = ramslice_slices[id].rz->zone;
	unsigned long start;
	unsigned int n;

	memset(c, 0, sizeof(*c));
	for_each_slice_block(id, n, start) {
		enum ramslice_reason reason = ramslice_block_probe(zone, start);

		if (reason != RAMSLICE_REASON_NONE)
			ramslice_count_blocker(c, start, 1, reason);
		else
			ramslice_count_block(c, start, cache, stop_early);
		if (stop_early && c->reason != RAMSLICE_REASON_NONE)
			return;
		cond_resched();
	}
}

/* Only what boot reserved; much cheaper than a census. */
void ramslice_find_reserved(u32 id, struct ramslice_census *c)
{
	unsigned long start, pfn;
	unsigned int n;

	memset(c, 0, sizeof(*c));
	for_each_slice_block(id, n, start) {
		/* Most are free after boot, and the head of free pages says so */
		if (!pfn_to_online_page(start) || ramslice_block_free(start))
			continue;
		for (pfn = start; pfn < start + pageblock_nr_pages; pfn++) {
			if (!PageReserved(pfn_to_page(pfn)))
				continue;
			ramslice_count_blocker(c, pfn, 1, RAMSLICE_REASON_BOOT);
			return;
		}
	}
}
