// SPDX-License-Identifier: GPL-2.0
/*
 * Demand: what mm asks of ramslice when memory runs low.
 *
 * Called from get_page_from_freelist(), with any lock held that permits an
 * allocation, and from reclaim. An allocation that fails a watermark gets a
 * chunk at once; between the high and the low watermark a thread wakes memory
 * ahead of need. What is no demand (reading ahead, huge pages that are merely
 * welcome) recycles clean page cache or goes without.
 */

#include <linux/kthread.h>
#include <linux/swap.h>
#include "../internal.h"
#include "internal.h"

/* Pages that a stream recycles in one go. */
#define RECYCLE_BATCH	256UL

static DECLARE_WAIT_QUEUE_HEAD(ramslice_thread_wait);

/* From this CPU's list to the free lists, where all CPUs see it. */
void ramslice_drain_local(struct zone *zone)
{
	migrate_disable();
	drain_local_pages(zone);
	migrate_enable();
}

unsigned long ramslice_wakeable_pages(void)
{
	return global_zone_page_state(NR_RAMSLICE_OFFLINE);
}

unsigned long ramslice_node_wakeable_pages(int nid)
{
	return sum_zone_node_page_state(nid, NR_RAMSLICE_OFFLINE);
}

unsigned long ramslice_zone_wakeable_pages(struct zone *zone)
{
	return zone_page_state(zone, NR_RAMSLICE_OFFLINE);
}

/* Has the wake thread look at a zone. Context: any but NMI. */
void ramslice_kick(struct ramslice_zone *rz)
{
	if (READ_ONCE(rz->kicked))
		return;
	WRITE_ONCE(rz->kicked, true);
	wake_up(&ramslice_thread_wait);
}

/*
 * A large order that its caller would like but does well without: it neither
 * reclaims nor is it urgent (THP faults, slab and network buffers). And, of
 * any order, what may not even wake kswapd: its caller may hold the run
 * queue's lock or a timer base's, under which no task can be woken.
 */
bool ramslice_opportunistic(gfp_t gfp, unsigned int order)
{
	if (!(gfp & __GFP_RECLAIM))
		return true;
	return order && !(gfp & (__GFP_DIRECT_RECLAIM | __GFP_HIGH)) &&
	       (gfp & __GFP_NOWARN) &&
	       (gfp & (__GFP_NORETRY | __GFP_NOMEMALLOC));
}

/*
 * May the allocation go on? By its own measure: by any other, it would come
 * back here for ever, or take what others were promised. One that has enough,
 * but not of the right kind (ULONG_MAX), hopes that more is of it.
 */
static bool ramslice_has_grown(struct zone *zone, unsigned int order,
			       unsigned long mark, int highest_zoneidx,
			       unsigned int alloc_flags, unsigned long before)
{
	if (mark == ULONG_MAX)
		return zone_page_state(zone, NR_FREE_PAGES) > before;
	return zone_watermark_ok(zone, order, mark, highest_zoneidx,
				 alloc_flags);
}

/*
 * Isolated pages of a slice that is being emptied are as good as free: have
 * the request give up, and wait for that where the allocation may sleep.
 */
static bool ramslice_take_from_emptying(struct ramslice_zone *rz, gfp_t gfp)
{
	if (!READ_ONCE(rz->emptying) || READ_ONCE(ramslice_requester) == current)
		return false;
	WRITE_ONCE(rz->pressure, true);
	if (!gfpflags_allow_blocking(gfp) || (current->flags & PF_MEMALLOC))
		return false;
	return wait_event_timeout(ramslice_wait, !READ_ONCE(rz->emptying),
				  HZ / 10) > 0;
}

/* Notes for the thread what memory is wanted for: mostly, that goes on. */
static enum ramslice_place_class ramslice_note_class(struct ramslice_zone *rz,
						     gfp_t gfp)
{
	enum ramslice_place_class class = gfp & __GFP_MOVABLE ?
					  RAMSLICE_PLACE_USER :
					  RAMSLICE_PLACE_KERNEL;

	if (READ_ONCE(rz->wanted_for) != class)
		WRITE_ONCE(rz->wanted_for, class);
	return class;
}

bool __ramslice_demand(struct zone *zone, gfp_t gfp, unsigned int order,
		       unsigned long mark, int highest_zoneidx,
		       unsigned int alloc_flags)
{
	unsigned long before = zone_page_state(zone, NR_FREE_PAGES);
	struct ramslice_zone *rz = ramslice_zone_of(zone);
	unsigned long flags;
	struct ramslice_chunk c;
	bool claimed, retried = false;

	if (!rz || (!ramslice_zone_wakeable_pages(zone) &&
		    !READ_ONCE(rz->emptying)))
		return false;
	if (ramslice_opportunistic(gfp, order) || !ramslice_may_wake())
		return false;
	/* Emptying a slice is not worth waking one: a huge page of the pool */
	if (order && READ_ONCE(ramslice_requester) == current)
		return false;

again:
	spin_lock_irqsave(&ramslice_lock, flags);
	/* Another CPU may have woken enough for both */
	if (mark != ULONG_MAX && ramslice_has_grown(zone, order, mark,
						    highest_zoneidx,
						    alloc_flags, before)) {
		spin_unlock_irqrestore(&ramslice_lock, flags);
		return true;
	}
	claimed = ramslice_claim_chunk(rz, &c, ramslice_note_class(rz, gfp));
	spin_unlock_irqrestore(&ramslice_lock, flags);

	if (claimed) {
		ramslice_release_chunk(&c, true);
		return true;
	}
	ramslice_kick(rz);
	if (ramslice_power_wake_sleeps() && ramslice_calls_left() &&
	    ramslice_zone_wakeable_pages(zone) &&
	    gfpflags_allow_blocking(gfp) && !(current->flags & PF_MEMALLOC)) {
		/* The driver sleeps: the thread is at it */
		if (wait_event_timeout(ramslice_wait,
				       ramslice_has_grown(zone, order, mark,
							  highest_zoneidx, alloc_flags,
							  before), HZ) > 0)
			return true;
	}
	if (!ramslice_take_from_emptying(rz, gfp))
		return false;
	if (ramslice_has_grown(zone, order, mark, highest_zoneidx, alloc_flags,
			       before))
		return true;
	/* It went off after all, and can be woken */
	if (retried)
		return false;
	retried = true;
	goto again;
}

void __ramslice_below_high(struct zone *zone, gfp_t gfp, unsigned int order)
{
	struct ramslice_zone *rz = ramslice_zone_of(zone);

	if (!rz || ramslice_opportunistic(gfp, order) || (gfp & __GFP_NOWAKE))
		return;
	if (READ_ONCE(rz->emptying) && READ_ONCE(ramslice_requester) != current)
		WRITE_ONCE(rz->pressure, true);
	if (ramslice_zone_wakeable_pages(zone)) {
		ramslice_note_class(rz, gfp);
		ramslice_kick(rz);
	}
}

/*
 * Reading ahead does not wake memory: it recycles clean page cache. It starts
 * at a level above the one that the wake thread fills to, so that what the
 * thread woke for others is not eaten by a stream.
 *
 * What it reclaims goes through this CPU's list to where it is counted, or the
 * next page would recycle again. If there is little left to recycle, it stops
 * for a while: then the stream allocates like all others.
 */
void __ramslice_recycle(struct zone *zone, gfp_t gfp)
{
	struct ramslice_zone *rz = ramslice_zone_of(zone);
	unsigned long nr;

	if (!rz || !ramslice_zone_wakeable_pages(zone) ||
	    !gfpflags_allow_blocking(gfp) || (current->flags & PF_MEMALLOC))
		return;
	if (zone_page_state(zone, NR_FREE_PAGES) >
	    ramslice_awake_reserve(zone) + RAMSLICE_CHUNK_PAGES)
		return;
	if (time_before(jiffies, READ_ONCE(rz->recycle_at)))
		return;

	nr = ramslice_recycle_cache(zone->zone_pgdat, gfp, zone_idx(zone),
				    RECYCLE_BATCH);
	if (nr < RECYCLE_BATCH / 2)
		WRITE_ONCE(rz->recycle_at, jiffies + HZ / 10);
	ramslice_drain_local(zone);
}

bool __ramslice_spare_reclaim(struct zone *zone, gfp_t gfp, unsigned int order,
			      int highest_zoneidx)
{
	pg_data_t *pgdat = zone->zone_pgdat;
	bool demand = !ramslice_opportunistic(gfp, order) &&
		      !(gfp & __GFP_NOWAKE);
	bool spare = false;
	int i;

	for (i = 0; i <= highest_zoneidx; i++) {
		struct zone *z = pgdat->node_zones + i;
		struct ramslice_zone *rz;

		if (!managed_zone(z) || !ramslice_zone_wakeable_pages(z))
			continue;
		rz = ramslice_zone_of(z);
		if (!rz)
			continue;
		/* Nothing wakes any more: reclaim has to do */
		if (ramslice_power_wake_sleeps() && !ramslice_calls_left())
			continue;
		spare = true;
		if (demand)
			ramslice_kick(rz);
	}
	return spare;
}

/* Wakes chunks until the zone has its awake reserve. May sleep. */
static bool ramslice_fill_reserve(struct ramslice_zone *rz)
{
	bool woke = false;

	while (zone_page_state(rz->zone, NR_FREE_PAGES) <
	       ramslice_awake_reserve(rz->zone)) {
		struct ramslice_chunk c;
		bool claimed;

		spin_lock_irq(&ramslice_lock);
		claimed = ramslice_claim_chunk(rz, &c,
					       READ_ONCE(rz->wanted_for));
		spin_unlock_irq(&ramslice_lock);

		if (!claimed && ramslice_wake_sleeping(rz))
			continue;
		if (!claimed)
			break;
		ramslice_release_chunk(&c, true);
		woke = true;
		cond_resched();
	}
	/* The allocator need not look at us again before it sinks below high */
	if (woke && zone_watermark_ok(rz->zone, 0, high_wmark_pages(rz->zone),
				      MAX_NR_ZONES - 1, 0))
		clear_bit(ZONE_BELOW_HIGH, &rz->zone->flags);
	if (woke)
		wake_up_all(&ramslice_wait);
	return woke;
}

bool __ramslice_balance(pg_data_t *pgdat, int highest_zoneidx)
{
	bool woke = false;
	int i;

	for (i = 0; i <= highest_zoneidx; i++) {
		struct zone *zone = pgdat->node_zones + i;
		struct ramslice_zone *rz;

		if (!managed_zone(zone) || !ramslice_zone_wakeable_pages(zone))
			continue;
		rz = ramslice_zone_of(zone);
		if (rz)
			woke |= ramslice_fill_reserve(rz);
	}
	return woke;
}

/* Finishes slices that were begun by demand: their power is on anyway. */
static void ramslice_finish_waking(struct ramslice_zone *rz)
{
	for (;;) {
		struct ramslice_chunk c;
		bool claimed;

		spin_lock_irq(&ramslice_lock);
		claimed = ramslice_claim_begun_chunk(rz, &c);
		spin_unlock_irq(&ramslice_lock);
		if (!claimed)
			return;
		ramslice_release_chunk(&c, true);
		cond_resched();
	}
}

static bool ramslice_any_kicked(void)
{
	struct ramslice_zone *rz;
	unsigned int i;

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		if (READ_ONCE(rz->kicked))
			return true;
	}
	return false;
}

static int ramslice_wake_thread(void *unused)
{
	/* As for kswapd: this is what others wait for */
	current->flags |= PF_MEMALLOC;

	while (!kthread_should_stop()) {
		struct ramslice_zone *rz;
		unsigned int i;

		wait_event_interruptible(ramslice_thread_wait,
					 ramslice_any_kicked() ||
					 kthread_should_stop());
		for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
			if (!READ_ONCE(rz->kicked))
				continue;
			WRITE_ONCE(rz->kicked, false);
			ramslice_fill_reserve(rz);
			ramslice_finish_waking(rz);
		}
	}
	return 0;
}

int __init ramslice_demand_init(void)
{
	return PTR_ERR_OR_ZERO(kthread_run(ramslice_wake_thread, NULL,
					   "kslicewaked"));
}
