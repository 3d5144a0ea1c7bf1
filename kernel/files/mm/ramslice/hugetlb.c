// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of the hugetlb pool. They are as much the user's as any other, so the
 * pool keeps its size: one that is in use is migrated into another page of
 * the pool, a free one is replaced by a new one elsewhere. Room for that must be
 * there: nothing is reclaimed or compacted to switch memory off.
 */

#include <linux/hugetlb.h>
#include <linux/migrate.h>
#include "../internal.h"
#include "internal.h"

/**
 * ramslice_hugetlb_page - is this pageblock a page of the pool?
 * @pfn: the first page frame of a pageblock
 *
 * Return: false for gigantic ones, too, which do not move.
 */
bool ramslice_hugetlb_page(unsigned long pfn)
{
	struct page *page = pfn_to_page(pfn);

	return PageHuge(page) &&
	       folio_order(page_folio(page)) == pageblock_order;
}

/* Can another page of the pool be had on this node without reclaim? */
static bool ramslice_has_huge(int nid)
{
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		if (managed_zone(zone) &&
		    zone_watermark_ok(zone, pageblock_order,
				      high_wmark_pages(zone), MAX_NR_ZONES - 1,
				      0))
			return true;
	}
	return false;
}

/* Replaces a free page of the pool. False if it stays. */
static bool ramslice_replace_free(unsigned long pfn)
{
	LIST_HEAD(list);

	if (!ramslice_has_huge(page_to_nid(pfn_to_page(pfn))))
		return false;
	if (isolate_or_dissolve_huge_page(pfn_to_page(pfn), &list))
		return false;
	if (list_empty(&list))
		return true;
	/* It was taken meanwhile */
	putback_movable_pages(&list);
	return false;
}

/* new_folio_t for migrate_pages(): of the pool, or one that is there. */
static struct folio *ramslice_hugetlb_alloc(struct folio *src,
					    unsigned long private)
{
	struct hstate *h = folio_hstate(src);
	int nid = folio_nid(src);
	nodemask_t nodes = nodemask_of_node(nid);

	return alloc_hugetlb_folio_nodemask(h, nid, &nodes,
					    (htlb_alloc_mask(h) & ~__GFP_RECLAIM) |
					    __GFP_THISNODE | __GFP_NOWARN, true);
}

static bool ramslice_is_free(unsigned long pfn)
{
	return ramslice_hugetlb_page(pfn) && !page_count(pfn_to_page(pfn));
}

/**
 * ramslice_hugetlb_clear - have a page of the pool leave its pageblock
 * @pfn: its first page frame, isolated
 * @only_free: leave one that is in use where it is
 * @work: where to count
 *
 * Free ones must go first: they might be taken as destinations.
 *
 * Context: May sleep.
 */
void ramslice_hugetlb_clear(unsigned long pfn, bool only_free,
			    struct ramslice_work *work)
{
	struct page *page = pfn_to_page(pfn);
	unsigned int moved = 0;
	LIST_HEAD(list);

	if (ramslice_is_free(pfn)) {
		if (ramslice_replace_free(pfn)) {
			work->pages_migrated += pageblock_nr_pages;
			work->huge_moved++;
		}
		return;
	}
	if (only_free || folio_maybe_dma_pinned(page_folio(page)) ||
	    isolate_or_dissolve_huge_page(page, &list) || list_empty(&list))
		return;
	if (migrate_pages(&list, ramslice_hugetlb_alloc, NULL, 0,
			  MIGRATE_SYNC_LIGHT, MR_CONTIG_RANGE, &moved)) {
		putback_movable_pages(&list);
		work->pages_failed += pageblock_nr_pages;
		return;
	}
	work->pages_migrated += moved;
	work->huge_moved++;
	/* Its contents are elsewhere; the pool may have got it back */
	if (ramslice_is_free(pfn))
		ramslice_replace_free(pfn);
}
