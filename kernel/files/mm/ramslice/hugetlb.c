// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of the hugetlb pool. They are as much the user's as any other, so the
 * pool keeps its size: one that is in use is migrated into another page of
 * the pool, a free one is replaced by a new one elsewhere. Where the room for
 * that comes from is for hugetlb to say.
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

/* Replaces a free page of the pool. False if it stays. */
static bool ramslice_replace_free(unsigned long pfn)
{
	LIST_HEAD(list);

	if (isolate_or_dissolve_huge_page(pfn_to_page(pfn), &list))
		return false;
	if (list_empty(&list))
		return true;
	/* It was taken meanwhile */
	putback_movable_pages(&list);
	return false;
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
	int nid = page_to_nid(page);
	nodemask_t nodes = nodemask_of_node(nid);
	struct migration_target_control mtc = {
		.nid = nid,
		.nmask = &nodes,
		.gfp_mask = GFP_USER | __GFP_MOVABLE | __GFP_RETRY_MAYFAIL |
			    __GFP_THISNODE,
		.reason = MR_CONTIG_RANGE,
	};
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
	if (migrate_pages(&list, alloc_migration_target, NULL,
			  (unsigned long)&mtc, MIGRATE_SYNC_LIGHT,
			  MR_CONTIG_RANGE, &moved)) {
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
