// SPDX-License-Identifier: GPL-2.0
/*
 * Waking slices for all callers: requests, demand (demand.c), memory hotplug,
 * suspend and reboot.
 *
 * A slice wakes in two steps. Under ramslice_lock it leaves RAMSLICE_OFFLINE
 * and, if the power driver wakes atomically, gets its power back. Then its
 * chunks are claimed one by one, under the lock, and given to the allocator
 * outside it, by as many CPUs as want memory. No step allocates. A driver that
 * sleeps is called by a task that may sleep: the wake thread or a request.
 *
 * Allocations wake slices with any lock held that permits an allocation; hence
 * ramslice_lock never encloses anything that allocates.
 */

#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#include "../internal.h"
#include "internal.h"
#include "place.h"

/* Number of chunks and slices being woken. Under ramslice_lock. */
static unsigned int ramslice_in_flight;

/* The task inside a power driver, under ramslice_lock; see ramslice_may_wake(). */
static struct task_struct *ramslice_waker;

/* The table of slices may be exchanged. Under ramslice_lock. */
bool ramslice_wake_idle(void)
{
	lockdep_assert_held(&ramslice_lock);
	return !ramslice_in_flight;
}

/* Counts a slice as lost memory. Under ramslice_lock; takes zone->lock. */
void ramslice_lose(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	struct zone *zone = s->rz->zone;
	unsigned long flags;

	WRITE_ONCE(s->unreclaimable, true);
	s->reason = RAMSLICE_REASON_QUARANTINED;
	WRITE_ONCE(s->rz->nr_quarantined_pages,
		   s->rz->nr_quarantined_pages + s->nr_pages);

	spin_lock_irqsave(&zone->lock, flags);
	__mod_zone_page_state(zone, NR_RAMSLICE_OFFLINE, -(long)s->nr_pages);
	spin_unlock_irqrestore(&zone->lock, flags);
	adjust_managed_page_count(pfn_to_page(ramslice_geom_block(&ramslice_geom,
								  id, 0)),
				  -(long)s->nr_pages);
}

/* A slice that does not wake. Under ramslice_lock. */
static void ramslice_quarantine(u32 id)
{
	ramslice_set_state(id, RAMSLICE_QUARANTINED);
	ramslice_lose(id);
}

/*
 * Starts waking a slice. With a driver that wakes atomically, it has power
 * when this returns; otherwise it sets @call, to be started without the lock.
 * Under ramslice_lock.
 */
static bool ramslice_start_waking(u32 id, struct ramslice_call **call)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	bool powered;

	*call = NULL;
	if (ramslice_power_wake_sleeps() && s->state == RAMSLICE_OFFLINE) {
		*call = ramslice_call_prepare(id, RAMSLICE_CALL_WAKE,
					      s->power_state);
		if (!*call)
			return false;
	}
	if (!ramslice_set_state(id, RAMSLICE_WAKING))
		return false;
	WRITE_ONCE(s->claimed, 0);
	s->released = 0;
	WRITE_ONCE(s->powered, false);
	if (*call) {
		ramslice_in_flight++;
		return true;
	}

	WRITE_ONCE(ramslice_waker, current);
	powered = !ramslice_power_wake(id, s->power_state);
	WRITE_ONCE(ramslice_waker, NULL);
	WRITE_ONCE(s->powered, powered);
	if (!powered) {
		ramslice_quarantine(id);
		return false;
	}
	return true;
}

/* The driver has answered, or never will. Under ramslice_lock. */
void ramslice_wake_answered(u32 id, int err)
{
	struct ramslice_slice *s = &ramslice_slices[id];

	lockdep_assert_held(&ramslice_lock);
	ramslice_in_flight--;
	if (err) {
		ramslice_quarantine(id);
		return;
	}
	WRITE_ONCE(s->powered, true);
	/* The caller may have gone: the thread gives out the chunks */
	ramslice_kick(s->rz);
}

/* Safe without a hold on the table: the slice may be gone. */
static bool ramslice_power_pending(u32 id)
{
	struct ramslice_slice *s;
	unsigned long flags;
	bool pending;

	spin_lock_irqsave(&ramslice_lock, flags);
	s = ramslice_slice(id);
	pending = s && s->state == RAMSLICE_WAKING && !s->powered;
	spin_unlock_irqrestore(&ramslice_lock, flags);
	return pending;
}

/*
 * A waking slice. If @to_claim, one with power and unclaimed blocks: not one
 * that the driver is still waking or whose last chunks are being released.
 */
static u32 ramslice_first_waking(struct ramslice_zone *rz, bool to_claim)
{
	u32 id = RAMSLICE_NO_ID;

	if (rz->nr[RAMSLICE_WAKING])
		id = ramslice_next_in(rz, rz->first_id, RAMSLICE_SET_WAKING);
	while (id != RAMSLICE_NO_ID) {
		const struct ramslice_slice *s = &ramslice_slices[id];
		u32 nr_blocks = ramslice_geom_nr_blocks(&ramslice_geom, id);

		if (!to_claim || (s->powered && s->claimed < nr_blocks))
			break;
		id = ramslice_next_in(rz, id + 1, RAMSLICE_SET_WAKING);
	}
	return id;
}

static u32 ramslice_best_in(struct ramslice_zone *rz,
			    enum ramslice_place_class class,
			    enum ramslice_set set)
{
	enum ramslice_place_policy policy = ramslice_place_policy();
	int end = ramslice_place_end_of(policy, class);
	u32 id, best_id = RAMSLICE_NO_ID;
	u64 best = 0;

	if (end < 0)
		return ramslice_last_in(rz, set);
	/* Rather where no gigantic page can be had anyway */
	if (policy == RAMSLICE_PLACE_PACKED) {
		id = ramslice_first_in_both(rz, set, RAMSLICE_SET_NEAR_KERNEL);
		if (id != RAMSLICE_NO_ID)
			return id;
	}
	id = ramslice_next_in(rz, rz->first_id, set);
	if (end)
		return id;
	for (; id != RAMSLICE_NO_ID; id = ramslice_next_in(rz, id + 1, set)) {
		const struct ramslice_slice *s = &ramslice_slices[id];
		struct ramslice_place_slice p = {
			.id = id,
			.index = id - rz->first_id,
			.nr_pages = s->nr_pages,
			.nr_free = s->nr_pages,
		};
		u64 points = ramslice_place_likes(policy, class, &p);

		if (points > best) {
			best = points;
			best_id = id;
		}
	}
	return best_id;
}

/*
 * The slice that best wakes for a kind of pages: of those that are off, the
 * one that the placement policy likes best, the first of equals; held ones
 * only if @held, and then after the others. RAMSLICE_NO_ID if there is none.
 * Under ramslice_lock.
 */
static u32 ramslice_best_to_wake(struct ramslice_zone *rz,
				 enum ramslice_place_class class, bool held)
{
	u32 id = RAMSLICE_NO_ID;

	lockdep_assert_held(&ramslice_lock);
	if (rz->nr[RAMSLICE_OFFLINE] > rz->nr_held)
		id = ramslice_best_in(rz, class, RAMSLICE_SET_OFF);
	if (id == RAMSLICE_NO_ID && held && rz->nr_held)
		id = ramslice_best_in(rz, class, RAMSLICE_SET_HELD);
	return id;
}

/* Claims the next chunk of a waking slice. Under ramslice_lock. */
static bool ramslice_claim_from(u32 id, struct ramslice_chunk *c)
{
	struct ramslice_slice *s = &ramslice_slices[id];

	if (s->state != RAMSLICE_WAKING || !s->powered)
		return false;
	c->id = id;
	c->first = s->claimed;
	c->nr_blocks = ramslice_geom_chunk(&ramslice_geom, id, s->claimed,
					   &c->pfn);
	if (!c->nr_blocks)
		return false;
	WRITE_ONCE(s->claimed, s->claimed + c->nr_blocks);
	WRITE_ONCE(s->rz->nr_claimed, s->rz->nr_claimed + 1);
	ramslice_in_flight++;
	return true;
}

/* Claims a chunk of a slice that is on its way. Under ramslice_lock. */
bool ramslice_claim_begun_chunk(struct ramslice_zone *rz,
				struct ramslice_chunk *c)
{
	u32 id = ramslice_first_waking(rz, true);

	return id != RAMSLICE_NO_ID && ramslice_claim_from(id, c);
}

/**
 * ramslice_claim_chunk - claim a chunk anywhere in a zone
 * @rz: the zone
 * @c: the chunk, to be given to ramslice_release_chunk()
 * @class: what it is wanted for
 *
 * Wakes a slice if none is on its way and the driver does that atomically.
 *
 * Context: ramslice_lock held.
 * Return: false if there is none.
 */
bool ramslice_claim_chunk(struct ramslice_zone *rz, struct ramslice_chunk *c,
			  enum ramslice_place_class class)
{
	u32 id;

	lockdep_assert_held(&ramslice_lock);
	if (ramslice_claim_begun_chunk(rz, c))
		return true;
	if (ramslice_power_wake_sleeps())
		return false;
	while ((id = ramslice_best_to_wake(rz, class,
					   false)) != RAMSLICE_NO_ID) {
		struct ramslice_call *call;

		if (!ramslice_start_waking(id, &call))
			continue;
		rz->woken_by_demand++;
		rz->stats.online_demand++;
		return ramslice_claim_from(id, c);
	}
	return false;
}

/* Gives a claimed chunk to the allocator. Context: any but NMI. */
void ramslice_release_chunk(const struct ramslice_chunk *c, bool by_demand)
{
	struct ramslice_slice *s = &ramslice_slices[c->id];
	unsigned long flags;

	ramslice_power_check(c->id, c->pfn, c->nr_blocks * pageblock_nr_pages);
	ramslice_give_chunk(s->rz->zone, c->pfn, c->nr_blocks);
	trace_ramslice_chunk(c->id, c->pfn, c->nr_blocks * pageblock_nr_pages,
			     by_demand);
	/* Until it is no longer in flight, the table stays as it is */
	ramslice_place_woken(s->rz, c->id, c->first);

	spin_lock_irqsave(&ramslice_lock, flags);
	ramslice_in_flight--;
	s->released += c->nr_blocks;
	WRITE_ONCE(s->rz->nr_claimed, s->rz->nr_claimed - 1);
	WRITE_ONCE(s->rz->nr_released, s->rz->nr_released + 1);
	if (s->released == ramslice_geom_nr_blocks(&ramslice_geom, c->id)) {
		WARN_ON_ONCE(!ramslice_set_state(c->id, RAMSLICE_ONLINE));
		wake_up_all(&ramslice_wait);
	}
	spin_unlock_irqrestore(&ramslice_lock, flags);
}

/**
 * ramslice_wake_sleeping - wake a slice whose driver sleeps for that
 * @rz: the zone
 *
 * Waits for it twice as long as the driver says that it takes, so that after
 * one that hangs the next gets its turn.
 *
 * Context: May sleep.
 * Return: false if the driver does not sleep or there is nothing to wake.
 */
bool ramslice_wake_sleeping(struct ramslice_zone *rz)
{
	struct ramslice_call *call = NULL;
	bool started = false;
	u32 id;

	spin_lock_irq(&ramslice_lock);
	if (ramslice_power_wake_sleeps()) {
		id = ramslice_best_to_wake(rz, READ_ONCE(rz->wanted_for), false);
		started = id != RAMSLICE_NO_ID && ramslice_start_waking(id,
									&call);
	}
	if (started) {
		rz->woken_by_demand++;
		rz->stats.online_demand++;
	}
	spin_unlock_irq(&ramslice_lock);
	if (!started)
		return false;
	ramslice_call_start(call);
	wait_event_timeout(ramslice_wait, !ramslice_power_pending(id),
			   usecs_to_jiffies(2 * ramslice_power_latency_us()) +
			   HZ / 10);
	return true;
}

/* Not from inside a power driver, which must not allocate, but might. */
bool ramslice_may_wake(void)
{
	return READ_ONCE(ramslice_waker) != current && !in_nmi();
}

/* Is it still waking, with nothing to claim? */
static bool ramslice_in_others_hands(const struct ramslice_slice *s)
{
	return READ_ONCE(s->state) == RAMSLICE_WAKING &&
	       (!READ_ONCE(s->powered) ||
		READ_ONCE(s->claimed) ==
		ramslice_geom_nr_blocks(&ramslice_geom, s - ramslice_slices));
}

/* Waits for the driver, and for tasks that release chunks of the slice. */
static int ramslice_wait_others(const struct ramslice_slice *s,
				unsigned long deadline)
{
	long left = (long)(deadline - jiffies);

	if (!deadline) {
		wait_event(ramslice_wait, !ramslice_in_others_hands(s));
		return 0;
	}
	left = wait_event_interruptible_timeout(ramslice_wait,
						!ramslice_in_others_hands(s),
						max(left, 0L));
	return left < 0 ? -EINTR : left ? 0 : -ETIMEDOUT;
}

/**
 * ramslice_wake_slice - wake a slice and wait until it is online
 * @id: the slice
 * @by_demand: for the statistics
 * @held: also if it is held
 * @deadline: jiffies at which to stop waiting, also for a signal; 0: never
 *
 * Context: May sleep. The table must stay: ramslice_mutex or table_sem held.
 * Return: 0; -EINVAL if it is neither offline nor waking; -EPERM if it is held
 * and @held is false; -EIO if it did not wake and is quarantined; -EINTR or
 * -ETIMEDOUT if others are still at it; -EBUSY if the power driver hangs in too
 * many calls.
 */
int ramslice_wake_slice(u32 id, bool by_demand, bool held,
			unsigned long deadline)
{
	struct ramslice_call *call = NULL;
	enum ramslice_state state;
	struct ramslice_slice *s;
	struct ramslice_chunk c;
	bool was_held, begun;
	int err = 0;

	spin_lock_irq(&ramslice_lock);
	s = ramslice_slice(id);
	if (!s || (s->state != RAMSLICE_OFFLINE &&
		   s->state != RAMSLICE_WAKING)) {
		spin_unlock_irq(&ramslice_lock);
		return -EINVAL;
	}
	was_held = s->held;
	if (was_held && !held) {
		spin_unlock_irq(&ramslice_lock);
		return -EPERM;
	}
	if (s->state == RAMSLICE_OFFLINE)
		ramslice_unhold(id);
	if (s->state == RAMSLICE_OFFLINE && ramslice_start_waking(id, &call)) {
		if (by_demand) {
			s->rz->woken_by_demand++;
			s->rz->stats.online_demand++;
		} else {
			s->rz->woken_by_request++;
			s->rz->stats.online_request++;
		}
	}
	begun = s->state != RAMSLICE_OFFLINE;
	spin_unlock_irq(&ramslice_lock);
	if (call)
		ramslice_call_start(call);

	while (!err && READ_ONCE(s->state) == RAMSLICE_WAKING) {
		bool claimed;

		spin_lock_irq(&ramslice_lock);
		claimed = ramslice_claim_from(id, &c);
		spin_unlock_irq(&ramslice_lock);
		if (claimed)
			ramslice_release_chunk(&c, by_demand);
		else
			err = ramslice_wait_others(s, deadline);
		cond_resched();
	}
	if (err)
		return err;
	/* Not before the change is booked everywhere: that is, locked */
	spin_lock_irq(&ramslice_lock);
	state = s->state;
	spin_unlock_irq(&ramslice_lock);
	switch (state) {
	case RAMSLICE_QUARANTINED:
		return -EIO;
	case RAMSLICE_OFFLINE:
		/* It woke, and another request has emptied it since */
		if (begun)
			return 0;
		/* As many drivers' calls as there can be are hanging */
		if (was_held)
			ramslice_hold(id);
		return -EBUSY;
	default:
		return 0;
	}
}

/**
 * ramslice_wake_zone - wake every slice of a zone, and wait for those under way
 * @rz: the zone
 * @deadline: as for ramslice_wake_slice()
 * @held: held ones, too
 * @nr_woken: increased by the slices woken
 * @nr_failed: increased by the slices that did not wake
 *
 * Without a deadline, it ends once the power driver has not answered a call.
 *
 * Context: May sleep.
 * Return: 0, -EINTR or -ETIMEDOUT; -EBUSY if the power driver hangs, with a
 * deadline in as many calls as there can be.
 */
int ramslice_wake_zone(struct ramslice_zone *rz, unsigned long deadline,
		       bool held, u32 *nr_woken, u32 *nr_failed)
{
	unsigned int nr_late = ramslice_calls_late();
	int err;

	for (;;) {
		bool others;
		u32 id;

		spin_lock_irq(&ramslice_lock);
		id = ramslice_first_waking(rz, true);
		if (id == RAMSLICE_NO_ID)
			id = ramslice_best_to_wake(rz, RAMSLICE_PLACE_USER,
						   held);
		others = id == RAMSLICE_NO_ID;
		if (others)
			id = ramslice_first_waking(rz, false);
		spin_unlock_irq(&ramslice_lock);
		if (id == RAMSLICE_NO_ID)
			return 0;
		if (deadline && signal_pending(current))
			return -EINTR;
		if (deadline && time_after(jiffies, deadline))
			return -ETIMEDOUT;
		err = ramslice_wake_slice(id, false, held, deadline);
		if (err == -EINTR || err == -ETIMEDOUT || err == -EBUSY)
			return err;
		/* -EINVAL: another task woke it first; -EPERM: held it */
		*nr_woken += !err && !others;
		*nr_failed += err == -EIO;
		/* The next would take as long, and be lost as well */
		if (!deadline && ramslice_calls_late() > nr_late)
			return -EBUSY;
	}
}

/*
 * Every slice of every zone. Adds the number that woke to @nr_woken; says
 * whether none is left that is off and not lost. May sleep.
 */
bool ramslice_wake_all(u32 *nr_woken)
{
	struct ramslice_zone *rz;
	bool all = true;
	u32 nr_failed = 0;
	unsigned int i;

	down_read(&ramslice_table_sem);
	for (i = 0; (rz = ramslice_zone_by_index(i)); i++)
		all &= !ramslice_wake_zone(rz, 0, true, nr_woken, &nr_failed);
	up_read(&ramslice_table_sem);
	return all;
}

void __ramslice_wake_range(unsigned long start_pfn, unsigned long end_pfn,
			   bool held)
{
	u32 id;

	down_read(&ramslice_table_sem);
	for_each_slice_touching(id, start_pfn, end_pfn) {
		struct ramslice_slice *s = ramslice_slice(id);

		if (!s)
			continue;
		if (READ_ONCE(s->state) == RAMSLICE_WAKING ||
		    READ_ONCE(s->state) == RAMSLICE_OFFLINE)
			ramslice_wake_slice(id, true, held, 0);
	}
	up_read(&ramslice_table_sem);
}
