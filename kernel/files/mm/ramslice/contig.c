// SPDX-License-Identifier: GPL-2.0
/*
 * Contiguous memory, as huge pages of the hugetlb pool need it: in each zone, a
 * range that is empty is taken before others are emptied, where slices that are
 * off count as empty, and of the others the one that costs least.
 */

#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include "../internal.h"
#include "internal.h"
#include "buffer.h"

/* Off, and to be had: what is held stays. Under ramslice_table_sem. */
static bool ramslice_frame_is_off(unsigned long pfn)
{
	u32 id = ramslice_geom_slice(&ramslice_geom, pfn);
	const struct ramslice_slice *s = ramslice_slice(id);

	return s && READ_ONCE(s->state) == RAMSLICE_OFFLINE &&
	       !READ_ONCE(s->held);
}

/* Free, and neither kept for other uses nor isolated: CMA's is not to be had. */
static bool ramslice_frame_is_free(unsigned long pfn)
{
	int type = get_pageblock_migratetype(pfn_to_page(pfn));

	return ramslice_block_free(pfn) &&
	       ramslice_type_blocks(type) == RAMSLICE_REASON_NONE;
}

/* Is all of it free, or off? Of some moment. Under ramslice_table_sem. */
static bool ramslice_range_is_free(const struct zone *zone, unsigned long pfn,
				   unsigned long end)
{
	for (; pfn < end; pfn += pageblock_nr_pages) {
		struct page *page = pfn_to_online_page(pfn);

		if (!page || page_zone(page) != zone ||
		    !(ramslice_frame_is_free(pfn) || ramslice_frame_is_off(pfn)))
			return false;
	}
	return true;
}

/*
 * The first page frame of a range that needs nothing to be moved, or 0. It is
 * aligned to its length. May sleep.
 */
static unsigned long ramslice_free_range(const struct zone *zone,
					 unsigned long nr_pages)
{
	unsigned long pfn = ALIGN(zone->zone_start_pfn, nr_pages);

	for (; pfn + nr_pages <= zone_end_pfn(zone); pfn += nr_pages) {
		bool found;

		/* Hotplug waits for no more than one range */
		down_read(&ramslice_table_sem);
		found = ramslice_range_is_free(zone, pfn, pfn + nr_pages);
		up_read(&ramslice_table_sem);
		if (found)
			return pfn;
		cond_resched();
	}
	return 0;
}

/**
 * ramslice_contig_pages - pages in a row, for alloc_contig_pages()
 * @nr_pages: how many
 * @gfp: the allocation's flags
 * @nid: the node whose zones come first
 * @nodemask: nodes that they may be of, or NULL
 *
 * What it cannot have has changed nothing but where some pages lie: the caller
 * may look elsewhere.
 *
 * Context: May sleep.
 * Return: the first page frame, aligned to @nr_pages; 0 if there are none.
 */
unsigned long ramslice_contig_pages(unsigned long nr_pages, gfp_t gfp, int nid,
				    nodemask_t *nodemask)
{
	struct zoneref *z;
	struct zone *zone;

	if (!ramslice_enabled() || nr_pages < pageblock_nr_pages ||
	    !is_power_of_2(nr_pages))
		return 0;
	for_each_zone_zonelist_nodemask(zone, z, node_zonelist(nid, gfp),
					gfp_zone(gfp), nodemask) {
		unsigned long pfn = ramslice_free_range(zone, nr_pages);

		if (pfn && !alloc_contig_range_noprof(pfn, pfn + nr_pages,
						      MIGRATE_MOVABLE, gfp))
			return pfn;
		pfn = ramslice_cheapest_pages(zone, nr_pages, gfp);
		if (pfn)
			return pfn;
	}
	return 0;
}
