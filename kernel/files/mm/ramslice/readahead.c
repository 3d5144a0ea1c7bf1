// SPDX-License-Identifier: GPL-2.0
/*
 * Reading ahead does not wake memory: it recycles clean page cache, where there
 * is more than the power driver would rather have stay.
 *
 * It starts at a level above the one that the wake thread fills to, so that what
 * the thread woke for others is not eaten by a stream, and does so once for all
 * pages that are read in one go. A page that left a shadow was in the cache before
 * and is wanted again: that is worth waking memory, and the first stands for all.
 *
 * What it reclaims goes through this CPU's list to where it is counted, or the
 * next window would recycle again. If there is little left to recycle, it stops
 * for a while: then the stream allocates like all others.
 */

#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include "../internal.h"
#include "internal.h"

/* Pages that a stream recycles in one go, or as many as it reads. */
#define RECYCLE_BATCH	256UL

void __ramslice_readahead(struct address_space *mapping, pgoff_t index,
			  unsigned long nr_pages, gfp_t gfp)
{
	unsigned long wanted = max(nr_pages, RECYCLE_BATCH), nr;
	struct zone *zone;
	struct ramslice_zone *rz;

	/* A window that begins behind the end of its file has less than no pages */
	if ((long)nr_pages <= 0)
		return;
	zone = zonelist_zone(first_zones_zonelist(node_zonelist(numa_mem_id(),
								gfp),
						  gfp_zone(gfp), NULL));
	if (!zone || !ramslice_zone_wakeable_pages(zone) ||
	    !ramslice_may_wait(gfp))
		return;
	if (zone_page_state(zone, NR_FREE_PAGES) >
	    ramslice_awake_reserve(zone) + RAMSLICE_CHUNK_PAGES + nr_pages)
		return;
	rz = ramslice_zone_of(zone);
	if (!rz || time_before(jiffies, READ_ONCE(rz->recycle_at)) ||
	    xa_is_value(xa_load(&mapping->i_pages, index)))
		return;
	nr = zone_page_state(zone, NR_ZONE_INACTIVE_FILE);
	/* Where there are but two generations, both count as active */
	if (lru_gen_enabled())
		nr += zone_page_state(zone, NR_ZONE_ACTIVE_FILE);
	if (nr < zone_managed_pages(zone) / 100 * ramslice_power_cache_percent())
		return;

	nr = ramslice_recycle_cache(zone->zone_pgdat, gfp, zone_idx(zone),
				    wanted);
	if (nr < wanted / 2)
		WRITE_ONCE(rz->recycle_at, jiffies + HZ / 10);
	ramslice_drain_local(zone);
}
