// SPDX-License-Identifier: GPL-2.0
/*
 * The commands of the thesis, section 3.2.6, carried out: requests, but that a
 * zone's reserve is kept from "reinit" to "release", and that in dummy mode
 * prices do not count and pages go to one slice picked at random.
 */

#include <linux/random.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#include "../../internal.h"
#include "../internal.h"
#include "../request.h"
#include "research.h"

/* Slices in a row that do not fit, before a zone is given up. */
#define MAX_MISSES	16

bool ramslice_dummy_mode;

/* The reserve that is kept, and its zone. Under ramslice_mutex. */
static struct ramslice_reserve ramslice_kept_reserve;
static struct ramslice_zone *ramslice_kept_zone;

/* It is of the old table. Under ramslice_mutex. */
void ramslice_research_forget(void)
{
	ramslice_reserve_free(&ramslice_kept_reserve);
	ramslice_kept_zone = NULL;
}

/* Builds the reserve for offline_index, and looks at boot memory again. */
static int ramslice_reinit(struct ramslice_zone *rz)
{
	struct ramslice_params params = {
		.deadline = jiffies + MAX_JIFFY_OFFSET,
		.cache = RAMSLICE_CACHE_DROP,
	};
	int err;

	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	ramslice_classify(true);
	ramslice_reserve_free(&ramslice_kept_reserve);
	err = ramslice_reserve_build(&ramslice_kept_reserve, rz, &params,
				     false);
	ramslice_kept_zone = err ? NULL : rz;
	mutex_unlock(&ramslice_mutex);
	return err;
}

/* Forgets the reserve. Page frames go back at the end of each request. */
static int ramslice_release(struct ramslice_zone *rz)
{
	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	if (ramslice_kept_zone == rz)
		ramslice_research_forget();
	mutex_unlock(&ramslice_mutex);
	return 0;
}

/*
 * One empty slice of @all at random becomes the only destination, in @one. Returns
 * why the request must end before it is found, or RAMSLICE_REASON_NONE.
 */
static enum ramslice_reason ramslice_pick_dummy(struct ramslice_run *run,
						struct ramslice_reserve *all,
						struct ramslice_reserve *one,
						u32 source)
{
	u32 i, start = all->nr ? get_random_u32_below(all->nr) : 0;

	ramslice_target_release(&run->target);
	one->nr = 0;
	for (i = 0; i < all->nr; i++) {
		const struct ramslice_candidate *c =
			&all->c[(start + i) % all->nr];
		enum ramslice_reason reason = ramslice_why_end(run->params);
		u64 nr_free, nr_cache;

		/* What was touched in each of them is read */
		if (reason != RAMSLICE_REASON_NONE)
			return reason;
		cond_resched();
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
	/* The thesis profiles with targets allocated beforehand */
	if (one->nr)
		ramslice_target_fill(&run->target,
				     ramslice_slices[one->c[0].id].nr_pages);
	return RAMSLICE_REASON_NONE;
}

/* As ramslice_offline_one(), with the reserve that is kept and dummy mode. */
static enum ramslice_reason
ramslice_offline_index(const struct ramslice_params *params,
		       struct ramslice_outcome *outcome)
{
	struct ramslice_zone *rz = ramslice_slices[params->id].rz;
	struct ramslice_reserve own = {}, one, *reserve = &own;
	struct ramslice_candidate slot;
	struct ramslice_census census;
	enum ramslice_reason reason;
	struct ramslice_run run;
	u64 spent;

	outcome->last_id = params->id;
	reason = ramslice_refusal(params->id, params->ignore_backoff);
	if (reason != RAMSLICE_REASON_NONE)
		return ramslice_refuse(params->id, reason, 0);

	lru_add_drain_all();
	drain_all_pages(rz->zone);
	if (ramslice_kept_zone == rz)
		reserve = &ramslice_kept_reserve;
	else if (ramslice_reserve_build(&own, rz, params, false))
		return ramslice_why_end(params) ?: RAMSLICE_REASON_NO_ROOM;
	ramslice_run_begin(&run, rz, reserve, params, outcome);
	ramslice_quick_census(params->id, &census, params->cache);
	if (ramslice_dummy_mode) {
		one = (struct ramslice_reserve) { .c = &slot };
		reason = ramslice_pick_dummy(&run, reserve, &one, params->id);
	}
	if (reason == RAMSLICE_REASON_NONE)
		reason = ramslice_attempt(&run, params->id, &census,
					  params->budget, &spent);
	ramslice_run_end(&run);
	ramslice_reserve_free(&own);
	return reason;
}

/* Dummy mode's offline_batch: each slice that can be emptied, in any order. */
static enum ramslice_reason
ramslice_dummy_batch(struct ramslice_zone *rz,
		     const struct ramslice_params *params,
		     struct ramslice_outcome *outcome)
{
	enum ramslice_reason missed = RAMSLICE_REASON_NONE;
	struct ramslice_reserve reserve, one;
	struct ramslice_candidate slot;
	unsigned int misses = 0;
	struct ramslice_run run;

	lru_add_drain_all();
	drain_all_pages(rz->zone);
	if (ramslice_reserve_build(&reserve, rz, params, false))
		return ramslice_why_end(params) ?: RAMSLICE_REASON_NO_ROOM;
	one = (struct ramslice_reserve) { .c = &slot };
	ramslice_run_begin(&run, rz, &reserve, params, outcome);

	while (reserve.low < reserve.next && misses < MAX_MISSES &&
	       outcome->nr_done < params->max_slices) {
		const struct ramslice_candidate *c = &reserve.c[reserve.low++];
		u32 id = c->id;
		enum ramslice_reason reason;
		struct ramslice_census census;
		u64 spent;

		reason = ramslice_why_end(params);
		if (reason != RAMSLICE_REASON_NONE) {
			missed = reason;
			break;
		}
		if (c->stuck ||
		    ramslice_refusal(id, false) != RAMSLICE_REASON_NONE)
			continue;
		ramslice_quick_census(id, &census, params->cache);
		reason = ramslice_pick_dummy(&run, &reserve, &one, id);
		if (reason == RAMSLICE_REASON_NONE)
			reason = ramslice_attempt(&run, id, &census,
						  RAMSLICE_UNLIMITED, &spent);
		if (ramslice_is_final(reason)) {
			missed = reason;
			break;
		}
		if (reason == RAMSLICE_REASON_NO_ROOM ||
		    reason == RAMSLICE_REASON_AWAKE_RESERVE) {
			missed = reason;
			misses += census.nr_free < census.nr_pages;
		} else {
			missed = RAMSLICE_REASON_NONE;
			misses = 0;
		}
		cond_resched();
	}
	ramslice_run_end(&run);
	ramslice_reserve_free(&reserve);
	if (outcome->nr_done == params->max_slices)
		return RAMSLICE_REASON_NONE;
	return missed == RAMSLICE_REASON_NONE ? RAMSLICE_REASON_UNMOVABLE :
						missed;
}

/* What is more than a request; @req gets the outcome as from one. */
static int ramslice_run_thesis(struct ramslice_zone *rz,
			       struct ramslice_request *req)
{
	struct ramslice_outcome outcome = { .last_id = RAMSLICE_NO_ID };
	struct ramslice_params params;
	u64 start = ktime_get_ns();
	int err;

	ramslice_decode_request(req, &params);
	err = ramslice_begin_emptying();
	if (!err) {
		if (params.op == RAMSLICE_OP_COMPACT) {
			outcome.reason = ramslice_dummy_batch(rz, &params,
							      &outcome);
			if (ramslice_is_final(outcome.reason))
				outcome.status =
					-ramslice_status_of(outcome.reason);
		} else if (!ramslice_slice(params.id)) {
			err = -ENOENT;
		} else {
			outcome.reason = ramslice_offline_index(&params,
								&outcome);
			outcome.status = -ramslice_status_of(outcome.reason);
		}
		ramslice_end_emptying();
	}
	ramslice_encode_outcome(&outcome, req);
	req->elapsed_ns = ktime_get_ns() - start;
	trace_ramslice_request(req, err);
	return err;
}

/**
 * ramslice_run_command - carry out a command of the thesis
 * @rz: the zone whose file it was written to
 * @cmd: the command
 * @req: zeroed; gets the outcome
 *
 * Context: May sleep.
 * Return: 0 with the outcome in @req, -ENOENT, -EBUSY, -ENOMEM, -EAGAIN or
 * -ERESTARTSYS.
 */
int ramslice_run_command(struct ramslice_zone *rz,
			 const struct ramslice_command *cmd,
			 struct ramslice_request *req)
{
	struct ramslice_slice *s;
	bool ours;

	req->size = sizeof(*req);
	req->node = zone_to_nid(rz->zone);
	req->zone = zone_idx(rz->zone);
	req->budget = RAMSLICE_UNLIMITED;
	req->max_slices = RAMSLICE_ALL_SLICES;

	switch (cmd->op) {
	case RAMSLICE_CMD_OFFLINE_BATCH:
		req->op = RAMSLICE_OP_COMPACT;
		req->budget = cmd->budget;
		req->max_slices = cmd->max_slices;
		req->flags = cmd->per_slice ? RAMSLICE_REQ_PER_SLICE : 0;
		return ramslice_dummy_mode ? ramslice_run_thesis(rz, req) :
					     ramslice_request(req);
	case RAMSLICE_CMD_OFFLINE_INDEX:
	case RAMSLICE_CMD_ONLINE_INDEX:
		down_read(&ramslice_table_sem);
		s = ramslice_slice(cmd->id);
		ours = s && s->rz == rz;
		up_read(&ramslice_table_sem);
		if (!ours)
			return -ENOENT;
		req->flags = RAMSLICE_REQ_IGNORE_BACKOFF;
		req->id = cmd->id;
		if (cmd->op == RAMSLICE_CMD_OFFLINE_INDEX) {
			req->op = RAMSLICE_OP_OFFLINE;
			return ramslice_run_thesis(rz, req);
		}
		req->op = RAMSLICE_OP_ONLINE;
		break;
	case RAMSLICE_CMD_OFFLINE_FREE:
		req->op = RAMSLICE_OP_OFFLINE_FREE;
		break;
	case RAMSLICE_CMD_ONLINE_ALL:
		req->op = RAMSLICE_OP_ONLINE_ALL;
		break;
	case RAMSLICE_CMD_REINIT:
		return ramslice_reinit(rz);
	case RAMSLICE_CMD_RELEASE:
		return ramslice_release(rz);
	}
	return ramslice_request(req);
}
