// SPDX-License-Identifier: GPL-2.0
/*
 * Demand: what mm asks of ramslice when memory runs low.
 *
 * Called from get_page_from_freelist(), with any lock held that permits an
 * allocation, and from reclaim. An allocation that fails a watermark gets a
 * chunk at once; between the high and the low watermark a thread wakes memory
 * ahead of need. What is no demand goes without, or recycles page cache, as
 * reading ahead does: see readahead.c. Huge pages that are merely welcome take
 * what can be woken at once, and never wait.
 *
 * There is one measure of "enough", for allocations, the thread and kswapd alike:
 * the zone's own watermark check at the awake reserve, for the largest order
 * that was wanted lately. It leaves out what only some may have: free pages of
 * CMA, and those kept for atomic allocations of high orders.
 */

#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/psi.h>
#include <linux/sched/clock.h>
#include <linux/swap.h>
#include "../internal.h"
#include "internal.h"
#include "cold.h"

/* How long an order that was wanted is kept awake for those that cannot wait. */
#define ORDER_TIME	(10 * HZ)
/* A thread that could wake nothing is not asked again ahead of need for so long. */
#define CALM_TIME	HZ

/* An allocation that cannot sleep waits so long for memory that others release. */
#define RELEASE_SPIN_NS	(100 * NSEC_PER_USEC)

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
	/* What is wanted was noted before: pairs with the thread's */
	smp_mb();
	if (READ_ONCE(rz->kicked))
		return;
	WRITE_ONCE(rz->kicked, true);
	wake_up(&ramslice_thread_wait);
}

/**
 * ramslice_want_of - how much an allocation wants memory to be woken
 * @gfp: its flags
 * @order: its order
 *
 * Of any order, what may not even wake kswapd may hold the run queue's lock or a
 * timer base's, under which no task can be woken; but no page of a program is
 * allocated there, and a huge one is welcome. Other large orders that their
 * callers would like, but do well without, neither reclaim nor are they urgent
 * (slab and network buffers).
 */
enum ramslice_want ramslice_want_of(gfp_t gfp, unsigned int order)
{
	if (order && (gfp & __GFP_MOVABLE) && !(gfp & __GFP_DIRECT_RECLAIM))
		return RAMSLICE_WANTS_AT_ONCE;
	if (!(gfp & __GFP_RECLAIM))
		return RAMSLICE_WANTS_NOTHING;
	if (order && !(gfp & (__GFP_DIRECT_RECLAIM | __GFP_HIGH)) &&
	    (gfp & __GFP_NOWARN) &&
	    (gfp & (__GFP_NORETRY | __GFP_NOMEMALLOC)))
		return RAMSLICE_WANTS_NOTHING;
	return RAMSLICE_WANTS_IT;
}

/* Can memory of it wake? A driver that hangs wakes none: reclaim has to do. */
bool ramslice_zone_can_wake(struct zone *zone)
{
	return ramslice_zone_wakeable_pages(zone) &&
	       (!ramslice_power_wake_sleeps() || ramslice_calls_left());
}

/*
 * Is enough of a zone awake for allocations of an order? The one measure. What
 * lower zones keep from others is in the reserve.
 */
bool ramslice_enough(struct zone *zone, unsigned int order)
{
	return zone_watermark_ok(zone, order, ramslice_awake_reserve(zone), 0,
				 0);
}

/* A zone's largest order that was wanted lately. */
static unsigned int ramslice_wanted_order(const struct ramslice_zone *rz)
{
	return time_before(jiffies, READ_ONCE(rz->wanted_until)) ?
	       READ_ONCE(rz->wanted_order) : 0;
}

/**
 * struct ramslice_asked - an allocation that failed
 * @zone: the zone
 * @order: its order
 * @mark: the watermark that it failed; ULONG_MAX: it has enough, but not of the
 *	  right kind
 * @highest_zoneidx: the highest zone it may use
 * @alloc_flags: ALLOC_*
 * @nr_released: chunks that the zone had been given when it failed
 */
struct ramslice_asked {
	struct zone *zone;
	unsigned int order;
	unsigned long mark;
	int highest_zoneidx;
	unsigned int alloc_flags;
	unsigned long nr_released;
};

/*
 * May the allocation go on? By its own measure: by any other, it would come
 * back here for ever, or take what others were promised. One that has enough,
 * but not of the right kind, tries each chunk that comes.
 */
static bool ramslice_has_grown(const struct ramslice_zone *rz,
			       const struct ramslice_asked *a)
{
	if (a->mark == ULONG_MAX)
		return READ_ONCE(rz->nr_released) != a->nr_released;
	return zone_watermark_ok(a->zone, a->order, a->mark,
				 a->highest_zoneidx, a->alloc_flags);
}

/* It may go on, or the thread has nothing left to do about it. */
static bool ramslice_waited_enough(const struct ramslice_zone *rz,
				   const struct ramslice_asked *a)
{
	if (ramslice_has_grown(rz, a) || !ramslice_zone_wakeable_pages(a->zone))
		return true;
	/* Pairs with the thread, which sets @filling before it clears @kicked */
	return !smp_load_acquire(&rz->kicked) && !READ_ONCE(rz->filling);
}

bool ramslice_may_wait(gfp_t gfp)
{
	return gfpflags_allow_blocking(gfp) && !(current->flags & PF_MEMALLOC);
}

/* The driver sleeps: waits until the thread has woken enough, or gives up. */
static bool ramslice_await_thread(struct ramslice_zone *rz,
				  const struct ramslice_asked *a)
{
	unsigned long flags;

	psi_memstall_enter(&flags);
	wait_event_timeout(ramslice_wait, ramslice_waited_enough(rz, a), HZ);
	psi_memstall_leave(&flags);
	return ramslice_has_grown(rz, a);
}

/*
 * Chunks that others have claimed are as good as free: waits for them, a moment
 * if it may not sleep.
 */
static bool ramslice_await_release(struct ramslice_zone *rz, gfp_t gfp,
				   const struct ramslice_asked *a)
{
	u64 limit_ns = RELEASE_SPIN_NS, begun = local_clock();
	bool grown = false, sleeps = ramslice_may_wait(gfp);
	unsigned long flags;

	if (!READ_ONCE(rz->nr_claimed))
		return false;
	if (sleeps) {
		limit_ns = NSEC_PER_SEC / 10;
		psi_memstall_enter(&flags);
	}
	while (!grown && READ_ONCE(rz->nr_claimed) &&
	       local_clock() - begun < limit_ns) {
		if (sleeps)
			schedule_timeout_uninterruptible(1);
		else
			cpu_relax();
		grown = ramslice_has_grown(rz, a);
	}
	if (sleeps)
		psi_memstall_leave(&flags);
	return grown;
}

/*
 * Isolated pages of a slice that is being emptied are as good as free: have
 * the request give up, and wait for that where the allocation may sleep.
 */
static bool ramslice_take_from_emptying(struct ramslice_zone *rz, gfp_t gfp)
{
	unsigned long flags;
	bool ended;

	if (!READ_ONCE(rz->emptying) || READ_ONCE(ramslice_requester) == current)
		return false;
	WRITE_ONCE(rz->pressure, true);
	if (!ramslice_may_wait(gfp))
		return false;
	psi_memstall_enter(&flags);
	ended = wait_event_timeout(ramslice_wait, !READ_ONCE(rz->emptying),
				   HZ / 10) > 0;
	psi_memstall_leave(&flags);
	return ended;
}

/* Notes for the thread what memory is wanted for: mostly, that goes on. */
static enum ramslice_place_class ramslice_note(struct ramslice_zone *rz,
					       gfp_t gfp, unsigned int order)
{
	enum ramslice_place_class class = gfp & __GFP_MOVABLE ?
					  RAMSLICE_PLACE_USER :
					  RAMSLICE_PLACE_KERNEL;

	if (READ_ONCE(rz->wanted_for) != class)
		WRITE_ONCE(rz->wanted_for, class);
	if (order && order >= ramslice_wanted_order(rz)) {
		WRITE_ONCE(rz->wanted_order, order);
		WRITE_ONCE(rz->wanted_until, jiffies + ORDER_TIME);
	}
	return class;
}

bool __ramslice_demand(struct zone *zone, gfp_t gfp, unsigned int order,
		       unsigned long mark, int highest_zoneidx,
		       unsigned int alloc_flags)
{
	enum ramslice_want want = ramslice_want_of(gfp, order);
	struct ramslice_zone *rz = ramslice_zone_of(zone);
	struct ramslice_asked asked = {
		.zone = zone,
		.order = order,
		.mark = mark,
		.highest_zoneidx = highest_zoneidx,
		.alloc_flags = alloc_flags,
	};
	unsigned long flags;
	struct ramslice_chunk c;
	bool claimed, retried = false;

	if (!rz || (!ramslice_zone_wakeable_pages(zone) &&
		    !READ_ONCE(rz->emptying)))
		return false;
	if (want == RAMSLICE_WANTS_NOTHING || !ramslice_may_wake())
		return false;
	asked.nr_released = READ_ONCE(rz->nr_released);
	/* Emptying a slice is not worth waking one: a huge page of the pool */
	if (order && READ_ONCE(ramslice_requester) == current)
		return false;

again:
	spin_lock_irqsave(&ramslice_lock, flags);
	/* Another CPU may have woken enough for both */
	if (mark != ULONG_MAX && ramslice_has_grown(rz, &asked)) {
		spin_unlock_irqrestore(&ramslice_lock, flags);
		return true;
	}
	claimed = ramslice_claim_chunk(rz, &c, ramslice_note(rz, gfp, order));
	spin_unlock_irqrestore(&ramslice_lock, flags);

	if (claimed) {
		ramslice_release_chunk(&c, true);
		/* The rest of the slice has power, too */
		ramslice_kick(rz);
		return true;
	}
	if (mark == ULONG_MAX) {
		/* Before @kicked is read: pairs with ramslice_has_to_fill() */
		smp_store_mb(rz->wants_chunk, true);
	}
	ramslice_kick(rz);
	if (want == RAMSLICE_WANTS_AT_ONCE)
		return false;
	if (ramslice_power_wake_sleeps() && ramslice_calls_left() &&
	    ramslice_zone_wakeable_pages(zone) && ramslice_may_wait(gfp) &&
	    ramslice_await_thread(rz, &asked))
		return true;
	if (ramslice_await_release(rz, gfp, &asked))
		return true;
	if (!ramslice_take_from_emptying(rz, gfp))
		return false;
	if (ramslice_has_grown(rz, &asked))
		return true;
	/* It went off after all, and can be woken */
	if (retried)
		return false;
	retried = true;
	goto again;
}

void __ramslice_below_high(struct zone *zone, gfp_t gfp, unsigned int order)
{
	enum ramslice_want want = ramslice_want_of(gfp, order);
	struct ramslice_zone *rz = ramslice_zone_of(zone);

	if (!rz || want == RAMSLICE_WANTS_NOTHING)
		return;
	if (ramslice_enough(zone, order)) {
		/* Another order set it, of which there is none */
		if (!order)
			clear_bit(ZONE_BELOW_HIGH, &zone->flags);
		return;
	}
	/* Others do without: large blocks are rare where memory is packed */
	if (want == RAMSLICE_WANTS_IT && READ_ONCE(rz->emptying) &&
	    READ_ONCE(ramslice_requester) != current)
		WRITE_ONCE(rz->pressure, true);
	if (!ramslice_zone_wakeable_pages(zone))
		return;
	ramslice_note(rz, gfp, order);
	if (time_after_eq(jiffies, READ_ONCE(rz->calm_until)))
		ramslice_kick(rz);
}

/**
 * ramslice_could_free - would a zone have room if its memory were awake?
 * @zone: the zone
 * @nr_pages: how much room
 *
 * For those that look whether a node is full before they move pages there, and
 * allocate without reclaim then: memory wakes ahead of them.
 */
bool ramslice_could_free(struct zone *zone, unsigned long nr_pages)
{
	struct ramslice_zone *rz;

	if (!ramslice_enabled() || ramslice_zone_wakeable_pages(zone) < nr_pages)
		return false;
	rz = ramslice_zone_of(zone);
	if (!rz || !ramslice_zone_can_wake(zone))
		return false;
	if (!ramslice_enough(zone, 0) &&
	    time_after_eq(jiffies, READ_ONCE(rz->calm_until)))
		ramslice_kick(rz);
	return true;
}

/*
 * The allocator took pages of another kind's pageblock because its own had none,
 * and wants more to be reclaimed than usual, so that this gets rarer. What wakes
 * is whole pageblocks: no reclaim is needed, and the boost would stay, as only
 * kswapd takes it back.
 */
static bool ramslice_spare_boost(struct zone *zone)
{
	struct ramslice_zone *rz = ramslice_zone_of(zone);
	unsigned long flags;

	if (!rz || !ramslice_zone_can_wake(zone))
		return false;
	if (!ramslice_enough(zone, 0))
		ramslice_kick(rz);
	spin_lock_irqsave(&zone->lock, flags);
	zone->watermark_boost = 0;
	spin_unlock_irqrestore(&zone->lock, flags);
	return true;
}

bool __ramslice_spare_reclaim(struct zone *zone, gfp_t gfp, unsigned int order,
			      int highest_zoneidx)
{
	pg_data_t *pgdat = zone->zone_pgdat;
	bool spare;
	int i;

	/*
	 * A fallback that fragments memory boosts a watermark, and asks like
	 * this; so does migration that finds no room for a page
	 */
	if (!gfp && !order)
		return ramslice_spare_boost(zone);
	spare = ramslice_partner_has_room(zone);
	/* What does well without may have memory compacted */
	if (ramslice_want_of(gfp, order) != RAMSLICE_WANTS_IT)
		return spare;

	for (i = 0; i <= highest_zoneidx; i++) {
		struct zone *z = pgdat->node_zones + i;
		struct ramslice_zone *rz;

		if (!managed_zone(z) || !ramslice_zone_can_wake(z))
			continue;
		rz = ramslice_zone_of(z);
		/* Waking does not cure it */
		if (!rz || ramslice_enough(z, order))
			continue;
		spare = true;
		ramslice_note(rz, gfp, order);
		ramslice_kick(rz);
	}
	return spare;
}

/* Is more to be woken? What asked for one chunk, whatever there is, gets it. */
static bool ramslice_has_to_fill(struct ramslice_zone *rz)
{
	return !ramslice_enough(rz->zone, ramslice_wanted_order(rz)) ||
	       xchg(&rz->wants_chunk, false);
}

/* Wakes chunks until enough of the zone is awake. May sleep. */
static bool ramslice_fill_reserve(struct ramslice_zone *rz)
{
	bool woke = false;

	while (ramslice_has_to_fill(rz)) {
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
		/* Those who wait need not wait for all of it */
		wake_up_all(&ramslice_wait);
		cond_resched();
	}
	if (!woke && !ramslice_enough(rz->zone, ramslice_wanted_order(rz)))
		WRITE_ONCE(rz->calm_until, jiffies + CALM_TIME);
	/* The allocator need not look at us again before it sinks below high */
	if (zone_watermark_ok(rz->zone, 0, high_wmark_pages(rz->zone),
			      MAX_NR_ZONES - 1, 0))
		clear_bit(ZONE_BELOW_HIGH, &rz->zone->flags);
	return woke;
}

/* kswapd leaves the waking to the thread, and waits no longer than one takes. */
static bool ramslice_leave_to_thread(struct ramslice_zone *rz)
{
	unsigned long before = READ_ONCE(rz->nr_released);

	if (!ramslice_calls_left())
		return false;
	ramslice_kick(rz);
	return wait_event_timeout(ramslice_wait,
				  READ_ONCE(rz->nr_released) != before,
				  usecs_to_jiffies(ramslice_power_latency_us()) +
				  HZ / 100 + 1) > 0;
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
		if (!rz || ramslice_enough(zone, ramslice_wanted_order(rz)))
			continue;
		woke |= ramslice_power_wake_sleeps() ?
			ramslice_leave_to_thread(rz) : ramslice_fill_reserve(rz);
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
			WRITE_ONCE(rz->filling, true);
			/* Pairs with ramslice_waited_enough() */
			smp_store_release(&rz->kicked, false);
			/* What is wanted is read after that: pairs with ramslice_kick() */
			smp_mb();
			ramslice_fill_reserve(rz);
			ramslice_finish_waking(rz);
			WRITE_ONCE(rz->filling, false);
			/* Some wait for more than is to be had */
			wake_up_all(&ramslice_wait);
		}
	}
	return 0;
}

int __init ramslice_demand_init(void)
{
	return PTR_ERR_OR_ZERO(kthread_run(ramslice_wake_thread, NULL,
					   "kslicewaked"));
}
