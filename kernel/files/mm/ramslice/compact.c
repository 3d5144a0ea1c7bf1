// SPDX-License-Identifier: GPL-2.0
/*
 * Which slices to empty: one, or the cheapest as long as a budget lasts.
 *
 * Sources are taken from the cheap end of the price order, destinations from
 * its dear end. A slice's price by its summaries is an estimate, and mostly a
 * lower bound, because it counts each mapped page once; only candidates that come
 * to the front are walked and, if dearer than thought, put back where they
 * belong. What changed since it was read is read again first, within a limit.
 */

#include <linux/swap.h>
#include "../internal.h"
#include "internal.h"
#include "request.h"

/* Cheapest slices in a row that do not fit, before a zone is given up. */
#define MAX_MISSES	16
/* So much time goes into reading what changed before slices are put in order. */
#define REREAD_NS	(10 * NSEC_PER_MSEC)
/* For one slice, where only destinations are to be put in order: less. */
#define REREAD_ONE_NS	(NSEC_PER_MSEC / 4)

/* Walks the candidate at the front and puts it where its price belongs. */
static bool ramslice_settle_front(struct ramslice_reserve *r, u32 front,
				  u32 *walked, enum ramslice_cache cache,
				  struct ramslice_census *census)
{
	struct ramslice_candidate c = r->c[front];
	u32 i;

	if (*walked == c.id)
		return true;
	ramslice_quick_census(c.id, census, cache);
	c.price = ramslice_census_price(census);
	*walked = c.id;

	for (i = front; i + 1 < r->next && r->c[i + 1].price < c.price; i++)
		r->c[i] = r->c[i + 1];
	r->c[i] = c;
	return i == front;
}

/* Notes why slices stay that hold what stays, until the request must end. */
static void ramslice_explain_rest(const struct ramslice_reserve *r,
				  const struct ramslice_params *params)
{
	u32 i;

	for (i = 0; i < r->nr; i++) {
		struct ramslice_slice *s = &ramslice_slices[r->c[i].id];
		enum ramslice_reason reason;

		if (ramslice_why_end(params) != RAMSLICE_REASON_NONE)
			return;
		cond_resched();
		if (!r->c[i].stuck || READ_ONCE(s->unreclaimable) ||
		    s->nr_fails)
			continue;
		reason = ramslice_blocker_of(r->c[i].id);
		spin_lock_irq(&ramslice_lock);
		s->reason = reason;
		spin_unlock_irq(&ramslice_lock);
	}
}

/*
 * Has the cache of all slices that are on grow old by a step, wherever it went
 * or found no room to go. Like other walks it is not charged to the budget, but
 * ends at the deadline and at a signal.
 */
static void ramslice_age_cache(const struct ramslice_reserve *r,
			       const struct ramslice_params *params)
{
	u32 i;

	for (i = 0; i < r->nr; i++) {
		const struct ramslice_slice *s = &ramslice_slices[r->c[i].id];

		if (ramslice_why_end(params) != RAMSLICE_REASON_NONE)
			return;
		cond_resched();
		if (READ_ONCE(s->count[RAMSLICE_FILE]) >
		    READ_ONCE(s->count[RAMSLICE_SHMEM]))
			ramslice_age_slice(r->c[i].id);
	}
}

/**
 * ramslice_compact_zone - empty the cheapest slices of a zone
 * @rz: the zone
 * @params: what the request asks for
 * @outcome: its outcome, which is added to
 * @budget: what may be spent; reduced by what is, unless it is per slice
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: what ended it.
 */
enum ramslice_reason ramslice_compact_zone(struct ramslice_zone *rz,
					   const struct ramslice_params *params,
					   struct ramslice_outcome *outcome,
					   u64 *budget)
{
	enum ramslice_reason reason = RAMSLICE_REASON_NONE;
	enum ramslice_reason missed = RAMSLICE_REASON_NONE;
	/* So many free pages a slice cannot take along */
	u32 too_free = U32_MAX;
	unsigned int misses = 0;
	struct ramslice_reserve reserve;
	struct ramslice_census census;
	u32 walked = RAMSLICE_NO_ID;
	struct ramslice_run run;

	ramslice_drain_zone(rz->zone, params);
	ramslice_scan_zone(rz, RAMSLICE_ANY_AGE,
			   min_t(u64, REREAD_NS, ramslice_left_ns(params) / 2),
			   params->deadline);
	if (ramslice_reserve_build(&reserve, rz, params,
				   params->ignore_backoff))
		return ramslice_why_end(params) ?: RAMSLICE_REASON_PRESSURE;
	ramslice_run_begin(&run, rz, &reserve, params, outcome);

	while (reserve.low < reserve.next &&
	       outcome->nr_done < params->max_slices) {
		u64 spent;
		u32 id;

		reason = ramslice_why_end(params);
		if (reason != RAMSLICE_REASON_NONE)
			break;
		if (reserve.c[reserve.low].stuck) {
			/* The dear end: from here on, all are */
			if (reserve.c[reserve.next - 1].stuck)
				break;
			reserve.low++;
			continue;
		}
		/* Not tried, so that those behind it are, which are full */
		if (reserve.c[reserve.low].nr_free >= too_free) {
			reserve.low++;
			continue;
		}
		id = reserve.c[reserve.low].id;
		reason = ramslice_refusal(id, params->ignore_backoff);
		if (reason != RAMSLICE_REASON_NONE) {
			ramslice_refuse(id, reason, 0);
			reserve.low++;
			reason = RAMSLICE_REASON_NONE;
			continue;
		}
		if (!ramslice_settle_front(&reserve, reserve.low, &walked,
					   run.target.cache, &census))
			continue;
		if (census.reason != RAMSLICE_REASON_NONE) {
			ramslice_reject(&run, id, census.reason, census.pfn);
			reserve.low++;
			continue;
		}

		reserve.low++;
		reason = ramslice_attempt(&run, id, &census, *budget, &spent);
		if (!params->per_slice && *budget != RAMSLICE_UNLIMITED)
			*budget -= min(*budget, spent);
		if (reason == RAMSLICE_REASON_OVER_BUDGET ||
		    ramslice_is_final(reason) || ramslice_driver_refuses(&run))
			break;
		/*
		 * A dearer slice may have less to move, or be less empty. Those
		 * that are wholly empty come first; as many as it takes stay.
		 */
		if (reason == RAMSLICE_REASON_NO_ROOM ||
		    reason == RAMSLICE_REASON_AWAKE_RESERVE) {
			missed = reason;
			if (reason == RAMSLICE_REASON_AWAKE_RESERVE)
				too_free = min_t(u64, too_free, census.nr_free +
						 census.nr_move);
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
	/* Nothing stopped it: sources met destinations */
	if (reason == RAMSLICE_REASON_NONE &&
	    outcome->nr_done < params->max_slices)
		reason = missed == RAMSLICE_REASON_NONE ?
			 RAMSLICE_REASON_UNMOVABLE : missed;

	ramslice_run_end(&run);
	if (params->cache == RAMSLICE_CACHE_AGED && !params->dry_run)
		ramslice_age_cache(&reserve, params);
	ramslice_explain_rest(&reserve, params);
	ramslice_reserve_free(&reserve);
	return reason;
}

/**
 * ramslice_offline_free_zone - switch off what is empty already
 * @rz: the zone
 * @params: what the request asks for
 * @outcome: its outcome, which is added to
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: what ended it.
 */
enum ramslice_reason ramslice_offline_free_zone(struct ramslice_zone *rz,
						const struct ramslice_params *params,
						struct ramslice_outcome *outcome)
{
	struct ramslice_reserve none = {};
	enum ramslice_reason reason = RAMSLICE_REASON_NONE;
	struct ramslice_slice *s;
	struct ramslice_run run;
	u32 id;

	ramslice_drain_zone(rz->zone, params);
	ramslice_run_begin(&run, rz, &none, params, outcome);
	for_each_zone_slice(rz, id, s) {
		struct ramslice_census c = {
			.nr_pages = s->nr_pages,
			.nr_free = s->nr_pages,
		};
		u64 spent;

		if (outcome->nr_done >= params->max_slices)
			break;
		reason = ramslice_why_end(params);
		if (reason != RAMSLICE_REASON_NONE)
			break;
		if (ramslice_refusal(id, params->ignore_backoff) !=
		    RAMSLICE_REASON_NONE)
			continue;
		if (!ramslice_slice_empty(id))
			continue;
		reason = ramslice_attempt(&run, id, &c, RAMSLICE_UNLIMITED,
					  &spent);
		if (ramslice_is_final(reason) ||
		    reason == RAMSLICE_REASON_AWAKE_RESERVE ||
		    ramslice_driver_refuses(&run))
			break;
		reason = RAMSLICE_REASON_NONE;
		cond_resched();
	}
	ramslice_run_end(&run);
	return reason;
}

/**
 * ramslice_offline_one - empty one slice and switch it off
 * @params: what the request asks for
 * @outcome: its outcome, which is added to
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: why it did not work, or RAMSLICE_REASON_NONE.
 */
enum ramslice_reason ramslice_offline_one(const struct ramslice_params *params,
					  struct ramslice_outcome *outcome)
{
	struct ramslice_zone *rz = ramslice_slices[params->id].rz;
	struct ramslice_reserve reserve;
	enum ramslice_reason reason;
	struct ramslice_census census;
	struct ramslice_run run;
	u64 spent;

	outcome->last_id = params->id;
	/* What is off already needs only be held */
	if (params->hold && ramslice_hold(params->id)) {
		outcome->nr_done++;
		return RAMSLICE_REASON_NONE;
	}
	reason = ramslice_refusal(params->id, params->ignore_backoff);
	if (reason != RAMSLICE_REASON_NONE)
		return ramslice_refuse(params->id, reason, 0);

	ramslice_drain_lru(params);
	ramslice_drain_zone(rz->zone, params);
	ramslice_scan_zone(rz, RAMSLICE_ANY_AGE, REREAD_ONE_NS,
			   params->deadline);
	if (ramslice_reserve_build(&reserve, rz, params, false))
		return ramslice_why_end(params) ?: RAMSLICE_REASON_PRESSURE;
	ramslice_run_begin(&run, rz, &reserve, params, outcome);
	ramslice_quick_census(params->id, &census, params->cache);
	reason = ramslice_attempt(&run, params->id, &census, params->budget,
				  &spent);
	ramslice_run_end(&run);
	ramslice_reserve_free(&reserve);
	return reason;
}
