// SPDX-License-Identifier: GPL-2.0
/*
 * Waking slices: on request, on demand and ahead of need.
 *
 * A slice wakes in two steps. Under ramslice_lock it leaves RAMSLICE_OFFLINE
 * and, if the power driver wakes atomically, gets its power back. Then its
 * chunks are claimed one by one, under the lock, and given to the allocator
 * outside it, by as many as want memory. No step allocates. A driver that
 * sleeps is called by whoever may sleep: the wake thread or a request.
 *
 * Demand comes from get_page_from_freelist(), with any lock held that permits
 * an allocation; hence ramslice_lock never encloses anything that allocates.
 */

#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/reboot.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/suspend.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#include "../internal.h"
#include "internal.h"

/* Pages that a stream recycles in one go. */
#define RECYCLE_BATCH	256UL

static DECLARE_WAIT_QUEUE_HEAD(wake_thread_wait);

/* Chunks and slices in somebody's hands. Under ramslice_lock. */
static unsigned int in_flight;

/* Who is inside a power driver, under ramslice_lock; see may_wake(). */
static struct task_struct *waker;

/* Set while nothing may go offline: reboot, suspend. */
static bool inhibited;

/* The table of slices may be exchanged. Under ramslice_lock. */
bool ramslice_wake_idle(void)
{
	lockdep_assert_held(&ramslice_lock);
	return !in_flight;
}

/* From this CPU's list to the free lists, where everybody sees it. */
void ramslice_drain_local(struct zone *zone)
{
	migrate_disable();
	drain_local_pages(zone);
	migrate_enable();
}

bool ramslice_inhibited(void)
{
	return READ_ONCE(inhibited);
}

/**
 * ramslice_give_chunk - make offline blocks free pages again
 * @zone: their zone
 * @pfn: the first
 * @nr_blocks: pageblocks
 *
 * Context: any but NMI. Takes zone->lock.
 */
void ramslice_give_chunk(struct zone *zone, unsigned long pfn,
			 unsigned int nr_blocks)
{
	unsigned long i, end = pfn + nr_blocks * pageblock_nr_pages;
	unsigned int order = pageblock_order;
	unsigned long flags;

	for (i = pfn; i < end; i++) {
		__ClearPageOffline(pfn_to_page(i));
		/* A memory error struck meanwhile: that page stays away */
		if (PageHWPoison(pfn_to_page(i)))
			order = 0;
	}

	/*
	 * Contents were lost. This restores what the allocator assumes of free
	 * pages: zeroes with init_on_free, the pattern with page_poison.
	 */
	for (i = pfn; i < end; i += 1UL << order) {
		if (order || !PageHWPoison(pfn_to_page(i)))
			free_pages_prepare(pfn_to_page(i), order);
	}

	spin_lock_irqsave(&zone->lock, flags);
	for (i = pfn; i < end; i += 1UL << order) {
		struct page *page = pfn_to_page(i);

		if (order || !PageHWPoison(page))
			__putback_isolated_page(page, order,
						get_pageblock_migratetype(page));
	}
	__mod_zone_page_state(zone, NR_RAMSLICE_OFFLINE,
			      -(long)(end - pfn));
	spin_unlock_irqrestore(&zone->lock, flags);
}

/* Every block of a slice that was taken but not switched off. */
void ramslice_give_back(u32 id)
{
	struct zone *zone = ramslice_slices[id].rz->zone;
	unsigned long pfn;
	unsigned int n, nr;

	for_each_slice_chunk(id, n, nr, pfn)
		ramslice_give_chunk(zone, pfn, nr);
}

/* A slice that does not wake is lost memory. Under ramslice_lock. */
static void quarantine(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	struct zone *zone = s->rz->zone;
	unsigned long flags;

	ramslice_set_state(id, RAMSLICE_QUARANTINED);
	s->unreclaimable = true;
	s->reason = RAMSLICE_REASON_QUARANTINED;
	s->rz->nr_quarantined_pages += s->nr_pages;

	spin_lock_irqsave(&zone->lock, flags);
	__mod_zone_page_state(zone, NR_RAMSLICE_OFFLINE, -(long)s->nr_pages);
	spin_unlock_irqrestore(&zone->lock, flags);
	adjust_managed_page_count(pfn_to_page(ramslice_geom_block(&ramslice_geom,
								  id, 0)),
				  -(long)s->nr_pages);
}

/*
 * Starts waking a slice. With a driver that wakes atomically, it has power
 * when this returns; else the caller has to call finish_power() without the
 * lock. Under ramslice_lock.
 */
static bool start_waking(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];

	if (!ramslice_set_state(id, RAMSLICE_WAKING))
		return false;
	s->claimed = 0;
	s->released = 0;
	s->powered = false;
	if (ramslice_power_wake_sleeps()) {
		in_flight++;
		return true;
	}

	waker = current;
	s->powered = !ramslice_power_wake(id, s->power_state);
	waker = NULL;
	if (!s->powered) {
		quarantine(id);
		return false;
	}
	return true;
}

static void finish_power(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	int err = ramslice_power_wake(id, s->power_state);

	spin_lock_irq(&ramslice_lock);
	if (err)
		quarantine(id);
	else
		s->powered = true;
	in_flight--;
	spin_unlock_irq(&ramslice_lock);
	wake_up_all(&ramslice_wait);
}

/* A slice that has power and blocks that nobody claimed. */
static u32 first_waking(struct ramslice_zone *rz)
{
	struct ramslice_slice *s;
	u32 id;

	if (!rz->nr[RAMSLICE_WAKING])
		return RAMSLICE_NO_ID;
	for_each_zone_slice(rz, id, s) {
		if (s->state == RAMSLICE_WAKING && s->powered &&
		    s->claimed < ramslice_geom.nr_blocks)
			return id;
	}
	return RAMSLICE_NO_ID;
}

static u32 first_offline(struct ramslice_zone *rz)
{
	struct ramslice_slice *s;
	u32 id;

	if (!rz->nr[RAMSLICE_OFFLINE])
		return RAMSLICE_NO_ID;
	for_each_zone_slice(rz, id, s) {
		if (s->state == RAMSLICE_OFFLINE)
			return id;
	}
	return RAMSLICE_NO_ID;
}

/**
 * struct chunk - blocks claimed for release
 */
struct chunk {
	u32 id;
	unsigned long pfn;
	unsigned int nr_blocks;
};

/* Claims the next chunk of a waking slice. Under ramslice_lock. */
static bool claim_from(u32 id, struct chunk *c)
{
	struct ramslice_slice *s = &ramslice_slices[id];

	if (s->state != RAMSLICE_WAKING || !s->powered)
		return false;
	c->id = id;
	c->nr_blocks = ramslice_geom_chunk(&ramslice_geom, id, s->claimed,
					   &c->pfn);
	if (!c->nr_blocks)
		return false;
	s->claimed += c->nr_blocks;
	in_flight++;
	return true;
}

/* Claims a chunk anywhere in a zone, waking a slice if none is on its way. */
static bool claim(struct ramslice_zone *rz, struct chunk *c, bool by_demand)
{
	u32 id;

	lockdep_assert_held(&ramslice_lock);
	id = first_waking(rz);
	if (id != RAMSLICE_NO_ID)
		return claim_from(id, c);
	if (ramslice_power_wake_sleeps())
		return false;
	while ((id = first_offline(rz)) != RAMSLICE_NO_ID) {
		if (!start_waking(id))
			continue;
		if (by_demand) {
			rz->woken_by_demand++;
			rz->stats.online_demand++;
		} else {
			rz->stats.online_request++;
		}
		return claim_from(id, c);
	}
	return false;
}

static void release(const struct chunk *c, bool by_demand)
{
	struct ramslice_slice *s = &ramslice_slices[c->id];
	unsigned long flags;

	ramslice_power_check(c->id, c->pfn, c->nr_blocks * pageblock_nr_pages);
	ramslice_give_chunk(s->rz->zone, c->pfn, c->nr_blocks);
	trace_ramslice_chunk(c->id, c->pfn, c->nr_blocks * pageblock_nr_pages,
			     by_demand);

	spin_lock_irqsave(&ramslice_lock, flags);
	in_flight--;
	s->released += c->nr_blocks;
	if (s->released == ramslice_geom.nr_blocks) {
		WARN_ON_ONCE(!ramslice_set_state(c->id, RAMSLICE_ONLINE));
		wake_up_all(&ramslice_wait);
	}
	spin_unlock_irqrestore(&ramslice_lock, flags);
}

/* Waits for those who have power or chunks of the slice in hand. */
static int wait_awake(const struct ramslice_slice *s, unsigned long deadline)
{
	long left = (long)(deadline - jiffies);

	if (!deadline) {
		wait_event(ramslice_wait,
			   READ_ONCE(s->state) != RAMSLICE_WAKING);
		return 0;
	}
	left = wait_event_interruptible_timeout(ramslice_wait,
						READ_ONCE(s->state) !=
						RAMSLICE_WAKING,
						max(left, 0L));
	return left < 0 ? -EINTR : left ? 0 : -ETIMEDOUT;
}

/**
 * ramslice_wake_slice - wake a slice and wait until it is online
 * @id: the slice
 * @by_demand: for the statistics
 * @deadline: jiffies at which to stop waiting, also for a signal; 0: never
 *
 * Context: May sleep. The table must stay: ramslice_mutex or table_sem held.
 * Return: 0; -EINVAL if it is neither offline nor waking; -EIO if it did not
 * wake and is quarantined; -EINTR or -ETIMEDOUT if others are still at it.
 */
int ramslice_wake_slice(u32 id, bool by_demand, unsigned long deadline)
{
	bool sleeps = false, started = false;
	struct ramslice_slice *s;
	struct chunk c;
	int err;

	spin_lock_irq(&ramslice_lock);
	s = ramslice_slice(id);
	if (!s || (s->state != RAMSLICE_OFFLINE &&
		   s->state != RAMSLICE_WAKING)) {
		spin_unlock_irq(&ramslice_lock);
		return -EINVAL;
	}
	if (s->state == RAMSLICE_OFFLINE) {
		sleeps = ramslice_power_wake_sleeps();
		started = start_waking(id);
		if (started && by_demand) {
			s->rz->woken_by_demand++;
			s->rz->stats.online_demand++;
		} else if (started) {
			s->rz->stats.online_request++;
		}
	}
	spin_unlock_irq(&ramslice_lock);
	if (started && sleeps)
		finish_power(id);

	for (;;) {
		bool claimed;

		spin_lock_irq(&ramslice_lock);
		claimed = claim_from(id, &c);
		spin_unlock_irq(&ramslice_lock);
		if (!claimed)
			break;
		release(&c, by_demand);
		cond_resched();
	}
	err = wait_awake(s, deadline);
	if (err)
		return err;
	return READ_ONCE(s->state) == RAMSLICE_QUARANTINED ? -EIO : 0;
}

/**
 * ramslice_wake_zone - wake every slice of a zone
 * @rz: the zone
 * @deadline: as for ramslice_wake_slice()
 * @nr_woken: increased by the slices woken
 * @nr_failed: increased by the slices that did not wake
 *
 * Context: May sleep.
 * Return: 0, -EINTR or -ETIMEDOUT.
 */
int ramslice_wake_zone(struct ramslice_zone *rz, unsigned long deadline,
		       u32 *nr_woken, u32 *nr_failed)
{
	int err;

	for (;;) {
		u32 id;

		spin_lock_irq(&ramslice_lock);
		id = first_waking(rz);
		if (id == RAMSLICE_NO_ID)
			id = first_offline(rz);
		spin_unlock_irq(&ramslice_lock);
		if (id == RAMSLICE_NO_ID)
			return 0;
		if (deadline && signal_pending(current))
			return -EINTR;
		if (deadline && time_after(jiffies, deadline))
			return -ETIMEDOUT;
		err = ramslice_wake_slice(id, false, deadline);
		if (err == -EINTR || err == -ETIMEDOUT)
			return err;
		/* -EINVAL: somebody else has woken it first */
		*nr_woken += !err;
		*nr_failed += err == -EIO;
	}
}

void ramslice_wake_all(void)
{
	u32 nr_woken = 0, nr_failed = 0;
	struct ramslice_zone *rz;
	unsigned int i;

	down_read(&ramslice_table_sem);
	for (i = 0; (rz = ramslice_zone_by_index(i)); i++)
		ramslice_wake_zone(rz, 0, &nr_woken, &nr_failed);
	up_read(&ramslice_table_sem);
}

void __ramslice_wake_range(unsigned long start_pfn, unsigned long end_pfn)
{
	u32 id, last;

	down_read(&ramslice_table_sem);
	last = ramslice_geom_slice(&ramslice_geom, end_pfn - 1);
	for (id = ramslice_geom_slice(&ramslice_geom, start_pfn);
	     id <= last && id < ramslice_nr_ids; id++) {
		if (READ_ONCE(ramslice_slices[id].state) == RAMSLICE_OFFLINE ||
		    READ_ONCE(ramslice_slices[id].state) == RAMSLICE_WAKING)
			ramslice_wake_slice(id, true, 0);
	}
	up_read(&ramslice_table_sem);
}

/* --- demand ------------------------------------------------------------- */

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

static void kick(struct ramslice_zone *rz)
{
	if (READ_ONCE(rz->kicked))
		return;
	WRITE_ONCE(rz->kicked, true);
	wake_up(&wake_thread_wait);
}

/*
 * A large order that its caller would like but does well without: it neither
 * reclaims nor is it urgent (THP faults, slab and network buffers).
 */
static bool opportunistic(gfp_t gfp, unsigned int order)
{
	return order && !(gfp & (__GFP_DIRECT_RECLAIM | __GFP_HIGH)) &&
	       (gfp & __GFP_NOWARN) &&
	       (gfp & (__GFP_NORETRY | __GFP_NOMEMALLOC));
}

/* Not from inside a power driver, which must not allocate, but might. */
static bool may_wake(void)
{
	return READ_ONCE(waker) != current && !in_nmi();
}

/*
 * Isolated pages of a slice that is being emptied are as good as free: have
 * the request give up, and wait for that where the allocation may sleep.
 */
static bool take_from_emptying(struct ramslice_zone *rz, gfp_t gfp)
{
	if (!READ_ONCE(rz->emptying) || READ_ONCE(ramslice_requester) == current)
		return false;
	WRITE_ONCE(rz->pressure, true);
	if (!gfpflags_allow_blocking(gfp) || (current->flags & PF_MEMALLOC))
		return false;
	return wait_event_timeout(ramslice_wait, !READ_ONCE(rz->emptying),
				  HZ / 10) > 0;
}

bool __ramslice_demand(struct zone *zone, gfp_t gfp, unsigned int order,
		       unsigned long mark, int highest_zoneidx,
		       unsigned int alloc_flags)
{
	struct ramslice_zone *rz = ramslice_zone_of(zone);
	unsigned long flags;
	struct chunk c;
	bool claimed;

	if (!rz || (!ramslice_zone_wakeable_pages(zone) &&
		    !READ_ONCE(rz->emptying)))
		return false;
	if (opportunistic(gfp, order) || !may_wake())
		return false;

	spin_lock_irqsave(&ramslice_lock, flags);
	/*
	 * Somebody else may have woken enough for the two of us. By the
	 * allocation's own measure: by any other, it would come back here for
	 * ever.
	 */
	if (mark != ULONG_MAX &&
	    zone_watermark_ok(zone, order, mark, highest_zoneidx,
			      alloc_flags)) {
		spin_unlock_irqrestore(&ramslice_lock, flags);
		return true;
	}
	claimed = claim(rz, &c, true);
	spin_unlock_irqrestore(&ramslice_lock, flags);

	if (claimed) {
		release(&c, true);
		return true;
	}
	kick(rz);
	if (ramslice_zone_wakeable_pages(zone) &&
	    gfpflags_allow_blocking(gfp) && !(current->flags & PF_MEMALLOC)) {
		/* The driver sleeps: the thread is at it */
		unsigned long before = zone_page_state(zone, NR_FREE_PAGES);

		if (wait_event_timeout(ramslice_wait,
				       zone_page_state(zone, NR_FREE_PAGES) >
				       before, HZ) > 0)
			return true;
	}
	return take_from_emptying(rz, gfp);
}

void __ramslice_below_high(struct zone *zone, gfp_t gfp, unsigned int order)
{
	struct ramslice_zone *rz = ramslice_zone_of(zone);

	if (!rz || opportunistic(gfp, order) || (gfp & __GFP_NOWAKE))
		return;
	if (READ_ONCE(rz->emptying) && READ_ONCE(ramslice_requester) != current)
		WRITE_ONCE(rz->pressure, true);
	if (ramslice_zone_wakeable_pages(zone))
		kick(rz);
}

/*
 * Reading ahead does not wake memory: it recycles clean page cache. It starts
 * at a level above the one that the wake thread fills to, so that what the
 * thread woke for others is not eaten by a stream.
 *
 * What it reclaims goes through this CPU's list to where it is counted, or the
 * next page would recycle again. If there is little left to recycle, it lets
 * things be for a while: then the stream gets on like everybody else.
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
	bool demand = !opportunistic(gfp, order) && !(gfp & __GFP_NOWAKE);
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
		spare = true;
		if (demand)
			kick(rz);
	}
	return spare;
}

/* Wakes chunks until the zone has its awake reserve. May sleep. */
static bool fill_reserve(struct ramslice_zone *rz)
{
	bool woke = false;

	while (zone_page_state(rz->zone, NR_FREE_PAGES) <
	       ramslice_awake_reserve(rz->zone)) {
		bool claimed, sleeps = false;
		struct chunk c;
		u32 id;

		spin_lock_irq(&ramslice_lock);
		claimed = claim(rz, &c, true);
		if (!claimed && ramslice_power_wake_sleeps()) {
			id = first_offline(rz);
			sleeps = id != RAMSLICE_NO_ID && start_waking(id);
			if (sleeps) {
				rz->woken_by_demand++;
				rz->stats.online_demand++;
			}
		}
		spin_unlock_irq(&ramslice_lock);

		if (sleeps) {
			finish_power(id);
			continue;
		}
		if (!claimed)
			break;
		release(&c, true);
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
			woke |= fill_reserve(rz);
	}
	return woke;
}

/* Finishes slices that were begun by demand: their power is on anyway. */
static void finish_waking(struct ramslice_zone *rz)
{
	for (;;) {
		struct chunk c;
		bool claimed;
		u32 id;

		spin_lock_irq(&ramslice_lock);
		id = first_waking(rz);
		claimed = id != RAMSLICE_NO_ID && claim_from(id, &c);
		spin_unlock_irq(&ramslice_lock);
		if (!claimed)
			return;
		release(&c, true);
		cond_resched();
	}
}

static bool any_kicked(void)
{
	struct ramslice_zone *rz;
	unsigned int i;

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		if (READ_ONCE(rz->kicked))
			return true;
	}
	return false;
}

static int wake_thread(void *unused)
{
	/* As for kswapd: this is what others wait for */
	current->flags |= PF_MEMALLOC;

	while (!kthread_should_stop()) {
		struct ramslice_zone *rz;
		unsigned int i;

		wait_event_interruptible(wake_thread_wait,
					 any_kicked() || kthread_should_stop());
		for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
			if (!READ_ONCE(rz->kicked))
				continue;
			WRITE_ONCE(rz->kicked, false);
			fill_reserve(rz);
			finish_waking(rz);
		}
	}
	return 0;
}

/* --- when the system goes down ------------------------------------------- */

/* Lets nothing go offline any more, and wakes what is. */
static void inhibit(void)
{
	WRITE_ONCE(inhibited, true);
	/* A request under way sees the flag and gives up */
	mutex_lock(&ramslice_mutex);
	mutex_unlock(&ramslice_mutex);
	ramslice_wake_all();
}

/* The next kernel, or the firmware, knows nothing of slices. */
static int reboot_callback(struct notifier_block *nb, unsigned long action,
			   void *unused)
{
	inhibit();
	return NOTIFY_DONE;
}

static struct notifier_block reboot_nb = {
	.notifier_call = reboot_callback,
};

static int pm_callback(struct notifier_block *nb, unsigned long action,
		       void *unused)
{
	switch (action) {
	case PM_HIBERNATION_PREPARE:
	case PM_SUSPEND_PREPARE:
	case PM_RESTORE_PREPARE:
		inhibit();
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_SUSPEND:
	case PM_POST_RESTORE:
		WRITE_ONCE(inhibited, false);
		break;
	}
	return NOTIFY_DONE;
}

int __init ramslice_wake_init(void)
{
	struct task_struct *task;

	task = kthread_run(wake_thread, NULL, "kslicewaked");
	if (IS_ERR(task))
		return PTR_ERR(task);
	register_reboot_notifier(&reboot_nb);
	pm_notifier(pm_callback, 0);
	return 0;
}
