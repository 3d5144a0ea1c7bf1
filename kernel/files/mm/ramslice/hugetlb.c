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

/* Puts a page of the pool that is in use on @list, or replaces a free one. */
static bool take_out(unsigned long pfn, struct list_head *list)
{
	return !isolate_or_dissolve_huge_page(pfn_to_page(pfn), list);
}

/**
 * ramslice_hugetlb_clear - have the pages of the pool leave a slice
 * @id: the slice, isolated
 * @work: where to count
 *
 * The free ones go first: they might be taken as destinations.
 *
 * Context: May sleep.
 */
void ramslice_hugetlb_clear(u32 id, struct ramslice_work *work)
{
	int nid = zone_to_nid(ramslice_slices[id].rz->zone);
	nodemask_t nodes = nodemask_of_node(nid);
	struct migration_target_control mtc = {
		.nid = nid,
		.nmask = &nodes,
		.gfp_mask = GFP_USER | __GFP_MOVABLE | __GFP_RETRY_MAYFAIL |
			    __GFP_THISNODE,
		.reason = MR_CONTIG_RANGE,
	};
	unsigned int n, moved = 0;
	unsigned long pfn, nr;
	LIST_HEAD(list);

	for_each_slice_block(id, n, pfn) {
		if (ramslice_hugetlb_page(pfn) &&
		    !page_count(pfn_to_page(pfn)) && take_out(pfn, &list)) {
			work->pages_migrated += pageblock_nr_pages;
			work->huge_moved++;
		}
	}
	for_each_slice_block(id, n, pfn) {
		if (ramslice_hugetlb_page(pfn) &&
		    !folio_maybe_dma_pinned(page_folio(pfn_to_page(pfn))))
			take_out(pfn, &list);
	}
	nr = list_count_nodes(&list) * pageblock_nr_pages;
	if (!nr)
		return;
	if (migrate_pages(&list, alloc_migration_target, NULL,
			  (unsigned long)&mtc, MIGRATE_SYNC, MR_CONTIG_RANGE,
			  &moved))
		putback_movable_pages(&list);
	work->pages_migrated += moved;
	work->huge_moved += moved >> pageblock_order;
	work->pages_failed += nr - moved;
}
