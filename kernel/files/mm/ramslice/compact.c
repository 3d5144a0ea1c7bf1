// SPDX-License-Identifier: GPL-2.0
/*
 * Which slices to empty: one, or the cheapest as long as a budget lasts.
 *
 * Sources are taken from the cheap end of the price order, destinations from
 * its dear end. A slice's price by its counters is a lower bound, because it
 * counts each mapped page once; only candidates that come to the front are
 * walked and, if dearer than thought, put back where they belong. So the order
 * is exact and few slices are walked.
 */

#include <linux/overflow.h>
#include <linux/random.h>
#include <linux/sched/cputime.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#ifdef CONFIG_X86_TSC
#include <asm/tsc.h>
#endif
#include "../internal.h"
#include "internal.h"

/* Cheapest slices in a row that do not fit, before a zone is given up. */
#define MAX_MISSES	16

/* Debugfs: ignore prices, migrate into an empty slice picked at random. */
bool ramslice_dummy_mode;

/* Cycles in a millisecond of CPU time that is measured. */
u64 ramslice_clock_khz(void)
{
#ifdef CONFIG_X86_TSC
	if (tsc_khz)
		return tsc_khz;
#endif
	/* One in a nanosecond */
	return NSEC_PER_MSEC;
}

/* CPU time in the unit of prices. */
static u64 cpu_price(u64 ns)
{
	return mul_u64_u64_div_u64(ns, ramslice_clock_khz(),
				   100ULL * NSEC_PER_MSEC);
}

static void note_failure(struct ramslice_slice *s, enum ramslice_reason reason)
{
	unsigned int ms;

	spin_lock_irq(&ramslice_lock);
	/* Lost for good, and it says why */
	if (s->state == RAMSLICE_QUARANTINED) {
		spin_unlock_irq(&ramslice_lock);
		return;
	}
	s->reason = reason;
	ms = min(RAMSLICE_BACKOFF_MIN_MS << min_t(u8, s->nr_fails, 16),
		 RAMSLICE_BACKOFF_MAX_MS);
	if (s->nr_fails < U8_MAX)
		s->nr_fails++;
	s->retry_at = jiffies + msecs_to_jiffies(ms);
	spin_unlock_irq(&ramslice_lock);
}

static void note_success(struct ramslice_slice *s)
{
	spin_lock_irq(&ramslice_lock);
	s->reason = RAMSLICE_REASON_NONE;
	s->nr_fails = 0;
	spin_unlock_irq(&ramslice_lock);
}

/* The request ends here, whatever is left to do. */
bool ramslice_is_final(enum ramslice_reason reason)
{
	return reason == RAMSLICE_REASON_PRESSURE ||
	       reason == RAMSLICE_REASON_SIGNAL ||
	       reason == RAMSLICE_REASON_DEADLINE;
}

static enum ramslice_reason refuse(const struct ramslice_slice *s, u32 flags)
{
	if (s->unreclaimable)
		return s->reason;
	if (s->state != RAMSLICE_ONLINE)
		return RAMSLICE_REASON_STATE;
	if (!(flags & RAMSLICE_REQ_IGNORE_BACKOFF) && s->nr_fails &&
	    time_before(jiffies, s->retry_at))
		return RAMSLICE_REASON_BACKOFF;
	return RAMSLICE_REASON_NONE;
}

/* Says so where whoever traces sees it, too; @pfn is the page, 0 if none. */
static enum ramslice_reason refused(u32 id, enum ramslice_reason reason,
				    unsigned long pfn)
{
	trace_ramslice_refuse(id, reason, pfn);
	return reason;
}

static void census_of(u32 id, struct ramslice_census *c,
		      enum ramslice_cache cache)
{
	u32 counters[RAMSLICE_NR_COUNTERS];
	struct ramslice_slice *s = &ramslice_slices[id];

	ramslice_count_slice(id, counters);
	if (counters[RAMSLICE_FREE] == s->nr_pages)
		*c = (struct ramslice_census) { .nr_pages = s->nr_pages,
						.nr_free = s->nr_pages };
	else
		ramslice_take_census(id, c, cache, true);
}

static u64 census_price(const struct ramslice_census *c)
{
	u64 base = ramslice_price_base(&ramslice_prices, c->nr_pages);
	u64 content = ramslice_price_content(&ramslice_prices, c->nr_drop,
					     c->nr_move, c->nr_maps);
	u64 price = size_add(base, content);

	if (c->reason != RAMSLICE_REASON_NONE)
		price = size_add(price, ramslice_prices.unreclaimable);
	return price;
}

static struct ramslice_work work_since(const struct ramslice_work *now,
				       const struct ramslice_work *before)
{
	return (struct ramslice_work) {
		.pages_migrated = now->pages_migrated - before->pages_migrated,
		.pages_dropped = now->pages_dropped - before->pages_dropped,
		.target_free = now->target_free - before->target_free,
		.blocks_isolated = now->blocks_isolated -
				   before->blocks_isolated,
	};
}

/*
 * Checks one slice against room, budget and reserve, and empties it. Returns
 * the reason if it did not work; *@spent is what the budget is charged.
 */
static enum ramslice_reason try_slice(struct ramslice_run *run,
				      struct ramslice_request *req, u32 id,
				      const struct ramslice_census *c,
				      u64 budget, u64 *spent)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	struct ramslice_work before = run->work, done;
	u64 nr_free, nr_cache, taken, price, ns;
	unsigned long lent;
	int err;

	*spent = 0;
	req->last_id = id;
	if (c->reason != RAMSLICE_REASON_NONE) {
		if (!(req->flags & RAMSLICE_REQ_DRY_RUN))
			note_failure(s, c->reason);
		return refused(id, c->reason, c->pfn);
	}
	lent = ramslice_find_lent(c);
	if (lent) {
		if (!(req->flags & RAMSLICE_REQ_DRY_RUN))
			note_failure(s, RAMSLICE_REASON_PINNED);
		return refused(id, RAMSLICE_REASON_PINNED, lent);
	}

	if (!ramslice_reserve_has(run->target.reserve, id,
				  c->nr_move + run->dry_moved,
				  run->target.cache != RAMSLICE_CACHE_KEEP,
				  &nr_free, &nr_cache)) {
		/* What earlier searches found may still be at hand */
		if (nr_free + nr_cache + run->target.nr_free <
		    c->nr_move + run->dry_moved)
			return refused(id, RAMSLICE_REASON_NO_ROOM, 0);
	}
	nr_free -= min(nr_free, run->dry_moved);
	price = size_add(census_price(c),
			 ramslice_price_targets(&ramslice_prices, nr_free,
						nr_cache));
	trace_ramslice_price(id, price, budget, c->nr_drop, c->nr_move,
			     c->nr_maps);
	if (price > budget && !ramslice_dummy_mode)
		return refused(id, RAMSLICE_REASON_OVER_BUDGET, 0);
	/* A slice full of cache that goes takes no free memory with it */
	taken = c->nr_free + nr_free + run->dry_offline;
	if (taken && !ramslice_spares(run->rz->zone, taken))
		return refused(id, RAMSLICE_REASON_AWAKE_RESERVE, 0);

	req->price_predicted = size_add(req->price_predicted, price);
	if (req->flags & RAMSLICE_REQ_DRY_RUN) {
		*spent = price;
		run->dry_moved += c->nr_move;
		run->dry_offline += s->nr_pages - c->nr_drop;
		req->nr_done++;
		return RAMSLICE_REASON_NONE;
	}

	run->reason = RAMSLICE_REASON_NONE;
	ns = task_sched_runtime(current);
	err = ramslice_offline_slice(run, id);
	ns = task_sched_runtime(current) - ns;
	req->price_measured += cpu_price(ns);
	done = work_since(&run->work, &before);
	*spent = err ? ramslice_price_work(&ramslice_prices, &done,
					   c->nr_maps) : price;
	trace_ramslice_offline(id, err, run->reason, done.pages_migrated,
			       done.pages_dropped);

	spin_lock_irq(&ramslice_lock);
	run->rz->stats.offline_tried++;
	run->rz->stats.offline_done += !err;
	run->rz->stats.aborted_pressure +=
		run->reason == RAMSLICE_REASON_PRESSURE;
	run->rz->stats.price_predicted += price;
	run->rz->stats.price_measured += cpu_price(ns);
	spin_unlock_irq(&ramslice_lock);

	if (!err && req->flags & RAMSLICE_REQ_HOLD && !ramslice_hold(id)) {
		/* Somebody wanted memory before it could be held */
		req->nr_failed++;
		return RAMSLICE_REASON_PRESSURE;
	}
	if (!err) {
		note_success(s);
		req->nr_done++;
		return RAMSLICE_REASON_NONE;
	}
	if (!ramslice_is_final(run->reason) && run->reason != RAMSLICE_REASON_NO_ROOM)
		note_failure(s, run->reason);
	req->nr_failed++;
	return run->reason;
}

/* Walks the candidate at the front and puts it where its price belongs. */
static bool settle_front(struct ramslice_reserve *r, u32 front, u32 *walked,
			 enum ramslice_cache cache,
			 struct ramslice_census *census)
{
	struct ramslice_candidate c = r->c[front];
	u32 i;

	if (*walked == c.id)
		return true;
	census_of(c.id, census, cache);
	c.price = census_price(census);
	*walked = c.id;

	for (i = front; i + 1 < r->next && r->c[i + 1].price < c.price; i++)
		r->c[i] = r->c[i + 1];
	r->c[i] = c;
	return i == front;
}

/* Dummy mode: one empty slice at random is the only destination. */
static void pick_dummy(struct ramslice_run *run, struct ramslice_reserve *all,
		       struct ramslice_reserve *one, u32 source)
{
	u32 i, start = all->nr ? get_random_u32_below(all->nr) : 0;

	ramslice_target_release(&run->target);
	one->nr = 0;
	for (i = 0; i < all->nr; i++) {
		const struct ramslice_candidate *c =
			&all->c[(start + i) % all->nr];
		u64 nr_free, nr_cache;

		if (c->id == source ||
		    ramslice_slices[c->id].state != RAMSLICE_ONLINE)
			continue;
		ramslice_target_room(c->id, &nr_free, &nr_cache);
		if (nr_free < ramslice_slices[c->id].nr_pages)
			continue;
		one->c[one->nr++] = *c;
		break;
	}
	one->next = one->nr;
	one->low = 0;
	run->target.reserve = one;
	run->target.block = 0;
	run->target.dropping = false;
	run->target.offset = 0;
	run->target.dry = false;
	/* The paper profiles with targets allocated beforehand */
	if (one->nr)
		ramslice_target_fill(&run->target,
				     ramslice_slices[one->c[0].id].nr_pages);
}

static void run_init(struct ramslice_run *run, struct ramslice_zone *rz,
		     struct ramslice_reserve *reserve,
		     const struct ramslice_request *req, unsigned long deadline)
{
	memset(run, 0, sizeof(*run));
	run->rz = rz;
	run->deadline = deadline;
	ramslice_target_init(&run->target, rz, reserve, ramslice_cache_of(req),
			     &run->work);
}

static void run_end(struct ramslice_run *run, struct ramslice_request *req)
{
	struct ramslice_stats *st = &run->rz->stats;

	ramslice_target_release(&run->target);
	req->pages_migrated += run->work.pages_migrated;
	req->pages_dropped += run->work.pages_dropped;
	req->pages_failed += run->work.pages_failed;
	req->huge_split += run->work.huge_split;
	req->huge_moved += run->work.huge_moved;

	spin_lock_irq(&ramslice_lock);
	st->work.pages_migrated += run->work.pages_migrated;
	st->work.pages_dropped += run->work.pages_dropped;
	st->work.pages_failed += run->work.pages_failed;
	st->work.huge_split += run->work.huge_split;
	st->work.huge_moved += run->work.huge_moved;
	st->work.target_free += run->work.target_free;
	st->work.target_cache += run->work.target_cache;
	st->work.blocks_isolated += run->work.blocks_isolated;
	spin_unlock_irq(&ramslice_lock);
}

/* Says of the slices that stay because of what they hold what that is. */
static void explain_rest(const struct ramslice_reserve *r)
{
	struct ramslice_census c;
	u32 i;

	for (i = 0; i < r->nr; i++) {
		struct ramslice_slice *s = &ramslice_slices[r->c[i].id];

		if (!r->c[i].stuck || s->unreclaimable || s->nr_fails)
			continue;
		ramslice_take_census(r->c[i].id, &c, RAMSLICE_CACHE_DROP, true);
		spin_lock_irq(&ramslice_lock);
		s->reason = c.reason;
		spin_unlock_irq(&ramslice_lock);
		cond_resched();
	}
}

/**
 * ramslice_compact_zone - empty the cheapest slices of a zone
 * @rz: the zone
 * @req: the request; its counts are added to
 * @deadline: jiffies
 * @budget: what may be spent; reduced by what is, unless it is per slice
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: what ended it.
 */
enum ramslice_reason ramslice_compact_zone(struct ramslice_zone *rz,
					   struct ramslice_request *req,
					   unsigned long deadline, u64 *budget)
{
	enum ramslice_reason reason = RAMSLICE_REASON_NONE;
	enum ramslice_reason missed = RAMSLICE_REASON_NONE;
	unsigned int misses = 0;
	struct ramslice_reserve reserve, dummy;
	struct ramslice_candidate dummy_slot;
	struct ramslice_census census;
	u32 walked = RAMSLICE_NO_ID;
	struct ramslice_run run;

	drain_all_pages(rz->zone);
	if (ramslice_reserve_build(&reserve, rz, ramslice_cache_of(req),
				   req->flags & RAMSLICE_REQ_IGNORE_BACKOFF))
		return RAMSLICE_REASON_NO_ROOM;
	dummy = (struct ramslice_reserve) { .c = &dummy_slot };
	run_init(&run, rz, &reserve, req, deadline);

	while (reserve.low < reserve.next && req->nr_done < req->max_slices) {
		u64 spent;
		u32 id;

		if (signal_pending(current)) {
			reason = RAMSLICE_REASON_SIGNAL;
			break;
		}
		if (time_after(jiffies, deadline)) {
			reason = RAMSLICE_REASON_DEADLINE;
			break;
		}
		if (reserve.c[reserve.low].stuck) {
			/* The dear end: from here on, all are */
			if (reserve.c[reserve.next - 1].stuck)
				break;
			reserve.low++;
			continue;
		}
		id = reserve.c[reserve.low].id;
		reason = refuse(&ramslice_slices[id], req->flags);
		if (reason != RAMSLICE_REASON_NONE) {
			refused(id, reason, 0);
			reserve.low++;
			reason = RAMSLICE_REASON_NONE;
			continue;
		}
		if (!settle_front(&reserve, reserve.low, &walked,
				  run.target.cache, &census))
			continue;
		if (census.reason != RAMSLICE_REASON_NONE) {
			if (!(req->flags & RAMSLICE_REQ_DRY_RUN))
				note_failure(&ramslice_slices[id],
					     census.reason);
			refused(id, census.reason, census.pfn);
			reserve.low++;
			continue;
		}

		reserve.low++;
		if (ramslice_dummy_mode)
			pick_dummy(&run, &reserve, &dummy, id);
		reason = try_slice(&run, req, id, &census, *budget, &spent);
		if (!(req->flags & RAMSLICE_REQ_PER_SLICE) &&
		    *budget != RAMSLICE_UNLIMITED)
			*budget -= min(*budget, spent);
		if (reason == RAMSLICE_REASON_OVER_BUDGET || ramslice_is_final(reason))
			break;
		/*
		 * A dearer slice may have less to move, or be less empty. Those
		 * that are wholly empty come first; as many as it takes stay.
		 */
		if (reason == RAMSLICE_REASON_NO_ROOM ||
		    reason == RAMSLICE_REASON_AWAKE_RESERVE) {
			missed = reason;
			if (census.nr_free < census.nr_pages &&
			    ++misses == MAX_MISSES)
				break;
		} else {
			missed = RAMSLICE_REASON_NONE;
			misses = 0;
		}
		reason = RAMSLICE_REASON_NONE;
		cond_resched();
	}
	/* Nothing else stopped it: sources met destinations */
	if (reason == RAMSLICE_REASON_NONE && req->nr_done < req->max_slices)
		reason = missed == RAMSLICE_REASON_NONE ?
			 RAMSLICE_REASON_UNMOVABLE : missed;

	run_end(&run, req);
	explain_rest(&reserve);
	ramslice_reserve_free(&reserve);
	return reason;
}

/**
 * ramslice_offline_free_zone - switch off what is empty already
 * @rz: the zone
 * @req: the request; its counts are added to
 * @deadline: jiffies
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: what ended it.
 */
enum ramslice_reason ramslice_offline_free_zone(struct ramslice_zone *rz,
						struct ramslice_request *req,
						unsigned long deadline)
{
	struct ramslice_reserve none = {};
	enum ramslice_reason reason = RAMSLICE_REASON_NONE;
	struct ramslice_slice *s;
	struct ramslice_run run;
	u32 id;

	drain_all_pages(rz->zone);
	run_init(&run, rz, &none, req, deadline);
	for_each_zone_slice(rz, id, s) {
		struct ramslice_census c = {
			.nr_pages = s->nr_pages,
			.nr_free = s->nr_pages,
		};
		u32 counters[RAMSLICE_NR_COUNTERS];
		u64 spent;

		if (req->nr_done >= req->max_slices)
			break;
		if (refuse(s, req->flags) != RAMSLICE_REASON_NONE)
			continue;
		ramslice_count_slice(id, counters);
		if (counters[RAMSLICE_FREE] != s->nr_pages)
			continue;
		reason = try_slice(&run, req, id, &c, RAMSLICE_UNLIMITED,
				   &spent);
		if (ramslice_is_final(reason) || reason == RAMSLICE_REASON_AWAKE_RESERVE)
			break;
		reason = RAMSLICE_REASON_NONE;
		cond_resched();
	}
	run_end(&run, req);
	return reason;
}

/**
 * ramslice_offline_one - empty one slice and switch it off
 * @req: the request; its counts are added to
 * @deadline: jiffies
 * @kept: a reserve built before, or NULL
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: why it did not work, or RAMSLICE_REASON_NONE.
 */
enum ramslice_reason ramslice_offline_one(struct ramslice_request *req,
					  unsigned long deadline,
					  struct ramslice_reserve *kept)
{
	struct ramslice_slice *s = &ramslice_slices[req->id];
	struct ramslice_reserve own, *reserve = &own, dummy;
	struct ramslice_candidate dummy_slot;
	enum ramslice_reason reason;
	struct ramslice_census census;
	struct ramslice_run run;
	u64 spent;

	req->last_id = req->id;
	/* What is off already needs only be held */
	if (req->flags & RAMSLICE_REQ_HOLD &&
	    !(req->flags & RAMSLICE_REQ_DRY_RUN) && ramslice_hold(req->id)) {
		req->nr_done++;
		return RAMSLICE_REASON_NONE;
	}
	reason = refuse(s, req->flags);
	if (reason != RAMSLICE_REASON_NONE)
		return refused(req->id, reason, 0);

	lru_add_drain_all();
	drain_all_pages(s->rz->zone);
	if (kept)
		reserve = kept;
	else if (ramslice_reserve_build(&own, s->rz, ramslice_cache_of(req),
					false))
		return RAMSLICE_REASON_NO_ROOM;
	run_init(&run, s->rz, reserve, req, deadline);
	census_of(req->id, &census, run.target.cache);
	if (ramslice_dummy_mode) {
		dummy = (struct ramslice_reserve) { .c = &dummy_slot };
		pick_dummy(&run, reserve, &dummy, req->id);
	}
	reason = try_slice(&run, req, req->id, &census, req->budget, &spent);
	run_end(&run, req);
	if (reserve == &own)
		ramslice_reserve_free(&own);
	return reason;
}
