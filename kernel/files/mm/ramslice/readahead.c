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

/*
 * The zone of which so many pages would wake memory; NULL if there is room for
 * them before it comes to that, or nothing to wake on this node.
 */
static struct zone *ramslice_zone_to_wake(gfp_t gfp, unsigned long nr_pages)
{
	struct zone *zone;
	struct zoneref *z;
	int nid = NUMA_NO_NODE;

	for_each_zone_zonelist(zone, z, node_zonelist(numa_mem_id(), gfp),
			       gfp_zone(gfp)) {
		if (nid == NUMA_NO_NODE)
			nid = zone_to_nid(zone);
		if (zone_to_nid(zone) != nid)
			break;
		if (zone_watermark_ok(zone, 0, ramslice_awake_reserve(zone) +
				      RAMSLICE_CHUNK_PAGES + nr_pages, 0, 0))
			break;
		if (ramslice_zone_wakeable_pages(zone))
			return zone;
	}
	return NULL;
}

/*
 * Is there more page cache than the power driver would have stay? In this zone
 * and those above it: room in others does not keep it from waking.
 */
static bool ramslice_has_much_cache(struct zone *lowest, enum zone_type highest)
{
	unsigned long nr = 0, managed = 0;
	enum zone_type i;

	for (i = zone_idx(lowest); i <= highest; i++) {
		struct zone *zone = lowest->zone_pgdat->node_zones + i;

		managed += zone_managed_pages(zone);
		nr += zone_page_state(zone, NR_ZONE_INACTIVE_FILE);
		/* Where there are but two generations, both count as active */
		if (lru_gen_enabled())
			nr += zone_page_state(zone, NR_ZONE_ACTIVE_FILE);
	}
	return nr >= managed / 100 * ramslice_power_cache_percent();
}

void __ramslice_readahead(struct address_space *mapping, pgoff_t index,
			  unsigned long nr_pages, gfp_t gfp)
{
	unsigned long wanted = max(nr_pages, RECYCLE_BATCH), nr;
	enum zone_type i, highest = gfp_zone(gfp);
	struct ramslice_zone *rz;
	struct zone *zone;

	/* A window that begins behind the end of its file has less than no pages */
	if ((long)nr_pages <= 0 || !ramslice_wakeable_pages() ||
	    !ramslice_may_wait(gfp))
		return;
	zone = ramslice_zone_to_wake(gfp, nr_pages);
	if (!zone)
		return;
	rz = ramslice_zone_of(zone);
	if (!rz || time_before(jiffies, READ_ONCE(rz->recycle_at)) ||
	    xa_is_value(xa_load(&mapping->i_pages, index)) ||
	    !ramslice_has_much_cache(zone, highest))
		return;

	/* Zones above it have little left, and perhaps the stream's own cache */
	nr = ramslice_recycle_cache(zone->zone_pgdat, gfp, highest, wanted);
	if (nr < wanted / 2)
		WRITE_ONCE(rz->recycle_at, jiffies + HZ / 10);
	for (i = 0; i <= highest; i++) {
		if (managed_zone(zone->zone_pgdat->node_zones + i))
			ramslice_drain_local(zone->zone_pgdat->node_zones + i);
	}
}
