// SPDX-License-Identifier: GPL-2.0
/*
 * Contiguous memory, as huge pages of the hugetlb pool need it: a range that is
 * empty is offered before others are emptied, and slices that are off count as
 * empty.
 */

#include <linux/mm.h>
#include "../internal.h"
#include "internal.h"

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

/**
 * ramslice_free_range - look for a range that needs nothing to be moved
 * @zone: the zone
 * @nr_pages: its length in pages, to which it is aligned, too
 *
 * Only if ramslice_enabled().
 *
 * Context: May sleep.
 * Return: the first page frame of one that is all free or off, or 0.
 */
unsigned long ramslice_free_range(const struct zone *zone,
				  unsigned long nr_pages)
{
	unsigned long pfn = ALIGN(zone->zone_start_pfn, nr_pages);

	if (!IS_ALIGNED(nr_pages, pageblock_nr_pages))
		return 0;
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
