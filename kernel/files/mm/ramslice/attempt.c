// SPDX-License-Identifier: GPL-2.0
/*
 * One slice: checks it against room, budget and reserve, and empties it.
 */

#include <linux/overflow.h>
#include <linux/sched/cputime.h>
#include <trace/events/ramslice.h>
#ifdef CONFIG_X86_TSC
#include <asm/tsc.h>
#endif
#include "../internal.h"
#include "internal.h"
#include "request.h"

/* Refusals of the power driver in a row that end a request. */
#define MOST_REFUSALS	8

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
static u64 ramslice_cpu_price(u64 ns)
{
	return mul_u64_u64_div_u64(ns, ramslice_clock_khz(),
				   100ULL * NSEC_PER_MSEC);
}

static void ramslice_note_failure(struct ramslice_slice *s,
				  enum ramslice_reason reason)
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

static void ramslice_note_success(struct ramslice_slice *s)
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

/* Why a slice is not to be tried at all, or RAMSLICE_REASON_NONE. */
enum ramslice_reason ramslice_refusal(u32 id, bool ignore_backoff)
{
	const struct ramslice_slice *s = &ramslice_slices[id];
	enum ramslice_reason reason = RAMSLICE_REASON_NONE;

	spin_lock_irq(&ramslice_lock);
	if (s->unreclaimable)
		reason = s->reason;
	else if (s->state != RAMSLICE_ONLINE)
		reason = RAMSLICE_REASON_STATE;
	else if (!ignore_backoff && s->nr_fails &&
		 time_before(jiffies, s->retry_at))
		reason = RAMSLICE_REASON_BACKOFF;
	spin_unlock_irq(&ramslice_lock);
	return reason;
}

/* Traces a refusal and returns its reason; @pfn is the page, 0 if none. */
enum ramslice_reason ramslice_refuse(u32 id, enum ramslice_reason reason,
				     unsigned long pfn)
{
	trace_ramslice_refuse(id, reason, pfn);
	return reason;
}

/* The same because of what the slice holds: it is left alone for a while. */
enum ramslice_reason ramslice_reject(struct ramslice_run *run, u32 id,
				     enum ramslice_reason reason,
				     unsigned long pfn)
{
	if (!run->params->dry_run)
		ramslice_note_failure(&ramslice_slices[id], reason);
	return ramslice_refuse(id, reason, pfn);
}

/* A census that stops early, and does not begin if the slice is empty. */
void ramslice_quick_census(u32 id, struct ramslice_census *c,
			   enum ramslice_cache cache)
{
	const struct ramslice_slice *s = &ramslice_slices[id];

	if (ramslice_slice_empty(id))
		*c = (struct ramslice_census) { .nr_pages = s->nr_pages,
						.nr_free = s->nr_pages };
	else
		ramslice_take_census(id, c, cache, true);
}

u64 ramslice_census_price(const struct ramslice_census *c)
{
	struct ramslice_prices prices = ramslice_current_prices();
	u64 base = ramslice_price_base(&prices, c->nr_pages);
	u64 content = ramslice_price_content(&prices, c->nr_drop, c->nr_move,
					     c->nr_maps);
	u64 price = size_add(base, content);

	if (c->reason != RAMSLICE_REASON_NONE)
		price = size_add(price, prices.unreclaimable);
	return price;
}

static struct ramslice_work
ramslice_work_since(const struct ramslice_work *now,
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

static void ramslice_add_work(struct ramslice_work *sum,
			      const struct ramslice_work *work)
{
	sum->pages_migrated += work->pages_migrated;
	sum->pages_dropped += work->pages_dropped;
	sum->pages_failed += work->pages_failed;
	sum->huge_moved += work->huge_moved;
	sum->huge_split += work->huge_split;
	sum->target_free += work->target_free;
	sum->target_cache += work->target_cache;
	sum->blocks_isolated += work->blocks_isolated;
}

/* Is there room, budget and reserve for it? *@price is what it costs. */
static enum ramslice_reason
ramslice_check_limits(struct ramslice_run *run, u32 id,
		      const struct ramslice_census *c, u64 budget, u64 *price)
{
	struct ramslice_prices prices = ramslice_current_prices();
	u64 nr_move = c->nr_move + run->dry_moved;
	u64 nr_free, nr_cache, taken;
	enum ramslice_reason reason;

	reason = ramslice_reserve_room(run->target.reserve, run->params, id,
				       nr_move, &nr_free, &nr_cache);
	/* What earlier searches found may still be at hand */
	if (ramslice_is_final(reason) ||
	    nr_free + nr_cache + run->target.nr_free < nr_move)
		return reason;
	nr_free -= min(nr_free, run->dry_moved);
	*price = size_add(ramslice_census_price(c),
			  ramslice_price_targets(&prices, nr_free, nr_cache));
	trace_ramslice_price(id, *price, budget, c->nr_drop, c->nr_move,
			     c->nr_maps);
	if (*price > budget)
		return RAMSLICE_REASON_OVER_BUDGET;
	/* A slice full of cache that goes takes no free memory with it */
	taken = c->nr_free + nr_free + run->dry_offline;
	if (taken && !ramslice_spares(run->rz->zone, taken))
		return RAMSLICE_REASON_AWAKE_RESERVE;
	return RAMSLICE_REASON_NONE;
}

/* Empties a slice that passed all checks. */
static enum ramslice_reason ramslice_empty_slice(struct ramslice_run *run,
						 u32 id,
						 const struct ramslice_census *c,
						 u64 price, u64 *spent)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	struct ramslice_prices prices = ramslice_current_prices();
	struct ramslice_work before = run->work, done;
	struct ramslice_outcome *outcome = run->outcome;
	u64 ns;
	int err;

	run->reason = RAMSLICE_REASON_NONE;
	ns = task_sched_runtime(current);
	err = ramslice_offline_slice(run, id);
	ns = task_sched_runtime(current) - ns;
	run->nr_refused = err == -EIO ? run->nr_refused + 1 : 0;
	outcome->price_measured += ramslice_cpu_price(ns);
	done = ramslice_work_since(&run->work, &before);
	*spent = err ? ramslice_price_work(&prices, &done, c->nr_maps) : price;
	if (!run->params->stays_on)
		trace_ramslice_offline(id, err, run->reason, done.pages_migrated,
				       done.pages_dropped);

	spin_lock_irq(&ramslice_lock);
	run->rz->stats.offline_tried += !run->params->stays_on;
	run->rz->stats.offline_done += !err && !run->params->stays_on;
	run->rz->stats.aborted_pressure +=
		run->reason == RAMSLICE_REASON_PRESSURE;
	run->rz->stats.price_predicted += price;
	run->rz->stats.price_measured += ramslice_cpu_price(ns);
	spin_unlock_irq(&ramslice_lock);

	if (!err && run->params->hold && !ramslice_hold(id)) {
		/* An allocation woke it before it could be held */
		outcome->nr_failed++;
		return RAMSLICE_REASON_PRESSURE;
	}
	if (!err) {
		ramslice_note_success(s);
		outcome->nr_done++;
		return RAMSLICE_REASON_NONE;
	}
	if (!ramslice_is_final(run->reason) &&
	    run->reason != RAMSLICE_REASON_NO_ROOM)
		ramslice_note_failure(s, run->reason);
	outcome->nr_failed++;
	return run->reason;
}

/**
 * ramslice_attempt - check one slice and empty it
 * @run: the request; its counts are added to
 * @id: the slice
 * @c: what it holds
 * @budget: what may be spent on it
 * @spent: set to what the budget is charged
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: why it did not work, or RAMSLICE_REASON_NONE.
 */
enum ramslice_reason ramslice_attempt(struct ramslice_run *run, u32 id,
				      const struct ramslice_census *c,
				      u64 budget, u64 *spent)
{
	struct ramslice_outcome *outcome = run->outcome;
	enum ramslice_reason reason;
	unsigned long lent = 0;
	u64 price;

	*spent = 0;
	outcome->last_id = id;
	if (c->reason != RAMSLICE_REASON_NONE)
		return ramslice_reject(run, id, c->reason, c->pfn);
	/* Interrupts every CPU, so once: later on, it is for migration to say */
	if (c->nr_lent && !run->drained && ramslice_drain_lru(run->params)) {
		run->drained = true;
		lent = ramslice_find_lent(c);
	}
	if (lent)
		return ramslice_reject(run, id, RAMSLICE_REASON_PINNED, lent);
	ramslice_target_leave(&run->target, id);
	reason = ramslice_check_limits(run, id, c, budget, &price);
	if (reason != RAMSLICE_REASON_NONE)
		return ramslice_refuse(id, reason, 0);

	outcome->price_predicted = size_add(outcome->price_predicted, price);
	if (!run->params->dry_run)
		return ramslice_empty_slice(run, id, c, price, spent);
	*spent = price;
	run->dry_moved += c->nr_move;
	run->dry_offline += ramslice_slices[id].nr_pages - c->nr_drop;
	outcome->nr_done++;
	return RAMSLICE_REASON_NONE;
}

/*
 * Does the power driver refuse whatever it gets? The host of a virtual machine
 * may take no reports: then slices would be emptied for nothing.
 */
bool ramslice_driver_refuses(const struct ramslice_run *run)
{
	return run->nr_refused >= MOST_REFUSALS;
}

/* Prepares a request's work on a zone. */
void ramslice_run_begin(struct ramslice_run *run, struct ramslice_zone *rz,
			struct ramslice_reserve *reserve,
			const struct ramslice_params *params,
			struct ramslice_outcome *outcome)
{
	memset(run, 0, sizeof(*run));
	run->params = params;
	run->outcome = outcome;
	run->rz = rz;
	if (params->cache != RAMSLICE_CACHE_KEEP)
		ramslice_cache_protect();
	ramslice_target_init(&run->target, rz, reserve, params->cache,
			     &run->work);
	ramslice_bites_init(run);
}

/* Gives back unused destinations and adds up what was done. */
void ramslice_run_end(struct ramslice_run *run)
{
	ramslice_target_release(&run->target);
	ramslice_bites_end(run);
	ramslice_add_work(&run->outcome->work, &run->work);
	spin_lock_irq(&ramslice_lock);
	ramslice_add_work(&run->rz->stats.work, &run->work);
	run->rz->stats.longest_bite_ns = max(run->rz->stats.longest_bite_ns,
					     run->longest_bite_ns);
	spin_unlock_irq(&ramslice_lock);
}
