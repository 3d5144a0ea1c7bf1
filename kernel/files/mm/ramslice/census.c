// SPDX-License-Identifier: GPL-2.0
/*
 * Walks one slice page by page: what would have to be dropped or moved, and
 * what stands in the way. A view from outside: without locks, so that a page
 * may have changed by the time it is counted.
 */

#include <linux/migrate.h>
#include <linux/page-isolation.h>
#include <linux/pagemap.h>
#include <linux/secretmem.h>
#include <linux/swap.h>
#include "../internal.h"
#include "internal.h"

/**
 * ramslice_folio_droppable - is this clean unmapped page cache?
 * @folio: a folio that the caller has a reference to
 */
bool ramslice_folio_droppable(struct folio *folio)
{
	return !folio_test_swapbacked(folio) && !folio_test_anon(folio) &&
	       !folio_mapped(folio) && !folio_test_dirty(folio) &&
	       !folio_test_writeback(folio) && !folio_test_unevictable(folio) &&
	       folio_mapping(folio);
}

/**
 * ramslice_page_blocks - why a page can be neither dropped nor moved
 * @page: a page that is neither free nor on the LRU lists
 *
 * Return: the reason, or RAMSLICE_REASON_NONE if it is on its way somewhere
 * (in a per-CPU list, isolated by somebody, in an LRU batch).
 */
enum ramslice_reason ramslice_page_blocks(struct page *page)
{
	if (PageReserved(page))
		return RAMSLICE_REASON_BOOT;
	if (PageHWPoison(page))
		return RAMSLICE_REASON_HWPOISON;
	if (PageOffline(page))
		return RAMSLICE_REASON_FOREIGN_OFFLINE;
	if (PageSlab(page))
		return RAMSLICE_REASON_SLAB;
	if (PageTable(page))
		return RAMSLICE_REASON_PAGETABLE;
	if (PageHuge(page))
		return RAMSLICE_REASON_GIGANTIC;
	if (!page_count(page))
		return RAMSLICE_REASON_NONE;
	/* Anonymous, page cache or movable: somebody else has it just now */
	if (READ_ONCE(page->mapping))
		return RAMSLICE_REASON_NONE;
	return RAMSLICE_REASON_UNMOVABLE;
}

/* Memory that nobody but its owner may touch (memfd_secret). */
static bool is_secret(struct folio *folio)
{
	struct address_space *mapping;
	bool secret;

	/* All of it is unevictable, as little else is */
	if (!folio_test_unevictable(folio) || folio_test_anon(folio) ||
	    !folio_trylock(folio))
		return false;
	/* It stays the folio's while that is locked */
	mapping = folio_mapping(folio);
	secret = mapping && (secretmem_mapping(mapping) ||
			     mapping_inaccessible(mapping));
	folio_unlock(folio);
	return secret;
}

/**
 * ramslice_folio_blocks - why a user's folio cannot be moved
 * @folio: a folio on the LRU lists, or of the hugetlb pool, that the caller
 *         has a reference to
 *
 * Return: the reason, or RAMSLICE_REASON_NONE.
 */
enum ramslice_reason ramslice_folio_blocks(struct folio *folio)
{
	if (folio_test_hwpoison(folio))
		return RAMSLICE_REASON_HWPOISON;
	if (folio_maybe_dma_pinned(folio))
		return RAMSLICE_REASON_PINNED;
	if (is_secret(folio))
		return RAMSLICE_REASON_UNMOVABLE;
	return RAMSLICE_REASON_NONE;
}

static void block(struct ramslice_census *c, unsigned long pfn,
		  unsigned long nr_pages, enum ramslice_reason reason)
{
	if (c->reason == RAMSLICE_REASON_NONE) {
		c->reason = reason;
		c->pfn = pfn;
	}
	c->nr_blocking += nr_pages;
}

/* Returns the number of page frames to go on by, at least 1. */
static unsigned long count_page(struct ramslice_census *c, unsigned long pfn,
				unsigned long left)
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
	folio = folio_get_nontail_page(page);
	if (!folio) {
		if (PageTail(page)) {
			if (!(pfn & (pageblock_nr_pages - 1)))
				block(c, pfn, 1, RAMSLICE_REASON_GIGANTIC);
			return 1;
		}
		/* Free in its pool, which will want another one for it */
		if (ramslice_hugetlb_page(pageblock_start_pfn(pfn))) {
			c->nr_move += left;
			c->nr_huge += left;
			return left;
		}
		reason = ramslice_page_blocks(page);
		if (reason != RAMSLICE_REASON_NONE)
			block(c, pfn, 1, reason);
		else
			c->nr_free++;
		return 1;
	}

	nr = min_t(unsigned long, folio_nr_pages(folio), left);
	if (folio_order(folio) > pageblock_order) {
		block(c, pfn, nr, RAMSLICE_REASON_GIGANTIC);
	} else if (folio_test_lru(folio) || folio_test_hugetlb(folio)) {
		reason = ramslice_folio_blocks(folio);
		if (reason != RAMSLICE_REASON_NONE) {
			block(c, pfn, nr, reason);
		} else if (ramslice_folio_droppable(folio)) {
			c->nr_drop += nr;
		} else {
			c->nr_move += nr;
			c->nr_maps += folio_mapcount(folio);
			if (folio_order(folio) == pageblock_order)
				c->nr_huge += nr;
		}
	} else if (__folio_test_movable(folio)) {
		c->nr_move += nr;
	} else {
		reason = ramslice_page_blocks(page);
		if (reason != RAMSLICE_REASON_NONE)
			block(c, pfn, nr, reason);
		else
			c->nr_move += nr;
	}
	folio_put(folio);
	return nr;
}

static enum ramslice_reason block_reason(struct page *page)
{
	switch (get_pageblock_migratetype(page)) {
	case MIGRATE_ISOLATE:
		return RAMSLICE_REASON_ISOLATED;
#ifdef CONFIG_CMA
	case MIGRATE_CMA:
		return RAMSLICE_REASON_CMA;
#endif
	case MIGRATE_HIGHATOMIC:
		return RAMSLICE_REASON_HIGHATOMIC;
	default:
		return RAMSLICE_REASON_NONE;
	}
}

/**
 * ramslice_take_census - walk a slice
 * @id: the slice, in state RAMSLICE_ONLINE
 * @c: the result
 * @stop_early: stop at the first page that blocks
 *
 * Context: ramslice_mutex held. May sleep.
 */
void ramslice_take_census(u32 id, struct ramslice_census *c, bool stop_early)
{
	unsigned long start, pfn, end;
	unsigned int n;

	memset(c, 0, sizeof(*c));
	for_each_slice_block(id, n, start) {
		enum ramslice_reason reason;

		if (!pfn_to_online_page(start)) {
			block(c, start, 1, RAMSLICE_REASON_HOLE);
			continue;
		}
		reason = block_reason(pfn_to_page(start));
		if (reason != RAMSLICE_REASON_NONE)
			block(c, start, 1, reason);

		end = start + pageblock_nr_pages;
		for (pfn = start; pfn < end; ) {
			if (stop_early && c->reason != RAMSLICE_REASON_NONE)
				return;
			pfn += count_page(c, pfn, end - pfn);
		}
		c->nr_pages += pageblock_nr_pages;
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
		if (!pfn_to_online_page(start))
			continue;
		for (pfn = start; pfn < start + pageblock_nr_pages; pfn++) {
			if (!PageReserved(pfn_to_page(pfn)))
				continue;
			block(c, pfn, 1, RAMSLICE_REASON_BOOT);
			return;
		}
	}
}
