// SPDX-License-Identifier: GPL-2.0
/*
 * Requests: decoded once, carried out one at a time, and their outcome.
 */

#include <linux/capability.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#include "internal.h"
#include "request.h"

/*
 * What returning a page from a per-CPU list to the free lists takes: an estimate,
 * not measured, of two cache misses and its share of zone->lock.
 */
#define DRAIN_PAGE_NS	250

/*
 * What draining the LRU batches of all CPUs takes: an estimate, not measured. Each
 * CPU has a worker for that, which gets its turn at the next tick.
 */
#define DRAIN_LRU_NS	TICK_NSEC

/* The task that empties slices at the moment; see wake.c. */
struct task_struct *ramslice_requester;

/* Bit 0: a request that empties slices is under way. */
static unsigned long ramslice_busy;

/* Tasks that wait for it to end: for hotplug, sleep, and buffers. */
atomic_t ramslice_nr_interrupting;

static enum ramslice_cache
ramslice_cache_of(const struct ramslice_request *req)
{
	if (req->flags & RAMSLICE_REQ_KEEP_CACHE)
		return RAMSLICE_CACHE_KEEP;
	if (!(req->flags & RAMSLICE_REQ_AUTO_CACHE))
		return RAMSLICE_CACHE_DROP;
	/* A request for a few slices is not to cost a walk of the zone */
	return req->op == RAMSLICE_OP_COMPACT &&
	       req->max_slices == RAMSLICE_ALL_SLICES ?
	       RAMSLICE_CACHE_AGED : RAMSLICE_CACHE_AUTO;
}

/**
 * ramslice_decode_request - what a request asks for
 * @req: valid input
 * @params: set to its meaning; the deadline counts from now
 */
void ramslice_decode_request(const struct ramslice_request *req,
			     struct ramslice_params *params)
{
	u32 ms = req->deadline_ms ?: RAMSLICE_DEADLINE_MS;
	bool dry_run = req->flags & RAMSLICE_REQ_DRY_RUN;

	*params = (struct ramslice_params) {
		.op = req->op,
		.id = req->id,
		.node = req->node,
		.zone = req->zone,
		.budget = req->budget,
		.max_slices = req->max_slices,
		/* 0 would mean none to those who wait */
		.deadline = jiffies + msecs_to_jiffies(ms) ?: 1,
		.end_ns = local_clock() + (u64)ms * NSEC_PER_MSEC,
		.cache = ramslice_cache_of(req),
		.per_slice = req->flags & RAMSLICE_REQ_PER_SLICE,
		.ignore_backoff = req->flags & RAMSLICE_REQ_IGNORE_BACKOFF,
		.dry_run = dry_run,
		.hold = !dry_run && req->flags & RAMSLICE_REQ_HOLD,
	};
}

/* Is it past its deadline? */
bool ramslice_overdue(const struct ramslice_params *params)
{
	return time_after(jiffies, params->deadline) ||
	       !ramslice_left_ns(params);
}

/* What is left until its deadline, U64_MAX if only jiffies say. */
u64 ramslice_left_ns(const struct ramslice_params *params)
{
	u64 now = local_clock();

	if (!params->end_ns)
		return U64_MAX;
	return now < params->end_ns ? params->end_ns - now : 0;
}

/**
 * ramslice_why_end - why a request must end now, whatever it does
 * @params: the request
 *
 * Asked before each slice, too: a dry run, or one whose slices are all refused,
 * empties none in which it would be asked, but holds ramslice_mutex.
 *
 * Return: a final reason, or RAMSLICE_REASON_NONE.
 */
enum ramslice_reason ramslice_why_end(const struct ramslice_params *params)
{
	if (ramslice_is_waited_for())
		return RAMSLICE_REASON_PRESSURE;
	if (signal_pending(current))
		return RAMSLICE_REASON_SIGNAL;
	if (ramslice_overdue(params))
		return RAMSLICE_REASON_DEADLINE;
	return RAMSLICE_REASON_NONE;
}

/**
 * ramslice_drain_zone - return a zone's per-CPU pages to its free lists
 * @zone: the zone
 * @params: the request that wants to see them there
 *
 * Not if that would outlast the request: drain_all_pages() knows no deadline, and
 * the lists may hold tens of thousands of pages.
 *
 * Context: May sleep.
 * Return: false if there is no time for it: the lists are as they were.
 */
bool ramslice_drain_zone(struct zone *zone, const struct ramslice_params *params)
{
	u64 nr_pages = 0;
	int cpu;

	/* An estimate: the counts change while they are read */
	for_each_online_cpu(cpu)
		nr_pages += max(0, READ_ONCE(per_cpu_ptr(zone->per_cpu_pageset,
							 cpu)->count));
	if (nr_pages * DRAIN_PAGE_NS > ramslice_left_ns(params))
		return false;
	drain_all_pages(zone);
	return true;
}

/**
 * ramslice_drain_lru - put pages from the LRU batches of all CPUs on their lists
 * @params: the request that wants to see them there
 *
 * Not if that would outlast the request: lru_add_drain_all() knows no deadline.
 *
 * Context: May sleep.
 * Return: false if there is no time for it: the batches are as they were.
 */
bool ramslice_drain_lru(const struct ramslice_params *params)
{
	if (ramslice_left_ns(params) < DRAIN_LRU_NS)
		return false;
	lru_add_drain_all();
	return true;
}

/* Writes the outcome to where the caller finds it. */
void ramslice_encode_outcome(const struct ramslice_outcome *outcome,
			     struct ramslice_request *req)
{
	req->status = outcome->status;
	req->reason = outcome->reason;
	req->nr_done = outcome->nr_done;
	req->nr_failed = outcome->nr_failed;
	req->last_id = outcome->last_id;
	req->price_predicted = outcome->price_predicted;
	req->price_measured = outcome->price_measured;
	req->pages_migrated = outcome->work.pages_migrated;
	req->pages_dropped = outcome->work.pages_dropped;
	req->pages_failed = outcome->work.pages_failed;
	req->huge_split = outcome->work.huge_split;
	req->huge_moved = outcome->work.huge_moved;
}

/* The errno that goes with a reason, negative. */
int ramslice_status_of(enum ramslice_reason reason)
{
	switch (reason) {
	case RAMSLICE_REASON_NONE:
		return 0;
	case RAMSLICE_REASON_NO_ROOM:
		return -ENOSPC;
	case RAMSLICE_REASON_OVER_BUDGET:
		return -EDQUOT;
	case RAMSLICE_REASON_AWAKE_RESERVE:
		return -ENOMEM;
	case RAMSLICE_REASON_BACKOFF:
	case RAMSLICE_REASON_PRESSURE:
		return -EAGAIN;
	case RAMSLICE_REASON_DEADLINE:
		return -ETIMEDOUT;
	case RAMSLICE_REASON_SIGNAL:
		return -EINTR;
	case RAMSLICE_REASON_POWER:
		return -EIO;
	default:
		return -EBUSY;
	}
}

static bool ramslice_zone_wanted(const struct ramslice_params *params,
				 const struct ramslice_zone *rz)
{
	return (params->node == RAMSLICE_ANY ||
		params->node == zone_to_nid(rz->zone)) &&
	       (params->zone == RAMSLICE_ANY ||
		params->zone == zone_idx(rz->zone));
}

static int ramslice_empty_zones(const struct ramslice_params *params,
				struct ramslice_outcome *outcome)
{
	enum ramslice_reason reason = RAMSLICE_REASON_NONE, r;
	u64 budget = params->budget;
	struct ramslice_zone *rz;
	bool found = false;
	unsigned int i;

	/* Once for all: pages in LRU batches look unmovable */
	ramslice_drain_lru(params);
	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		if (!ramslice_zone_wanted(params, rz))
			continue;
		found = true;
		r = params->op == RAMSLICE_OP_COMPACT ?
		    ramslice_compact_zone(rz, params, outcome, &budget) :
		    ramslice_offline_free_zone(rz, params, outcome);
		if (r != RAMSLICE_REASON_NONE)
			reason = r;
		if (ramslice_is_final(r))
			break;
	}
	if (outcome->nr_done == params->max_slices)
		reason = RAMSLICE_REASON_NONE;
	outcome->reason = reason;
	/* A budget or room that is used up is how such a request ends */
	if (ramslice_is_final(reason))
		outcome->status = -ramslice_status_of(reason);
	return found ? 0 : -ENOENT;
}

/**
 * ramslice_interrupt_request - take ramslice_mutex, from a request if need be
 *
 * A request that empties slices gives up at once, unless it hangs: in a power
 * driver, or in a file system whose server does not answer.
 *
 * Context: May sleep, for a second.
 * Return: true with ramslice_mutex held; false if it was not to be had.
 */
bool ramslice_interrupt_request(void)
{
	unsigned long until = jiffies + HZ;
	bool taken;

	/* Not @pressure of the zones, which each slice that is begun clears */
	atomic_inc(&ramslice_nr_interrupting);
	while (!(taken = mutex_trylock(&ramslice_mutex)) &&
	       !time_after(jiffies, until))
		schedule_timeout_uninterruptible(1);
	atomic_dec(&ramslice_nr_interrupting);
	return taken;
}

/**
 * ramslice_begin_emptying - become the one request that empties slices
 *
 * Context: May sleep. On success, ramslice_mutex is held until
 * ramslice_end_emptying().
 * Return: 0; -EBUSY if another request runs or the system goes down;
 * -ERESTARTSYS.
 */
int ramslice_begin_emptying(void)
{
	/* Others hold the mutex, too, but not for long */
	if (test_and_set_bit_lock(0, &ramslice_busy))
		return -EBUSY;
	if (mutex_lock_interruptible(&ramslice_mutex)) {
		clear_bit_unlock(0, &ramslice_busy);
		return -ERESTARTSYS;
	}
	if (ramslice_inhibited()) {
		ramslice_end_emptying();
		return -EBUSY;
	}
	ramslice_classify(false);
	WRITE_ONCE(ramslice_requester, current);
	return 0;
}

void ramslice_end_emptying(void)
{
	WRITE_ONCE(ramslice_requester, NULL);
	mutex_unlock(&ramslice_mutex);
	clear_bit_unlock(0, &ramslice_busy);
}

static int ramslice_carry_out_emptying(const struct ramslice_params *params,
				       struct ramslice_outcome *outcome)
{
	int err = ramslice_begin_emptying();

	if (err)
		return err;
	if (params->op != RAMSLICE_OP_OFFLINE) {
		err = ramslice_empty_zones(params, outcome);
	} else if (!ramslice_slice(params->id)) {
		err = -ENOENT;
	} else {
		outcome->reason = ramslice_offline_one(params, outcome);
		outcome->status = -ramslice_status_of(outcome->reason);
	}
	ramslice_end_emptying();
	return err;
}

static enum ramslice_reason ramslice_wake_reason(int err)
{
	switch (err) {
	case 0:
		return RAMSLICE_REASON_NONE;
	case -EINTR:
		return RAMSLICE_REASON_SIGNAL;
	case -ETIMEDOUT:
		return RAMSLICE_REASON_DEADLINE;
	case -EIO:
		return RAMSLICE_REASON_QUARANTINED;
	default:
		return RAMSLICE_REASON_STATE;
	}
}

static int ramslice_wake_one(const struct ramslice_params *params,
			     struct ramslice_outcome *outcome)
{
	int err;

	if (!ramslice_slice(params->id))
		return -ENOENT;
	outcome->last_id = params->id;
	err = ramslice_wake_slice(params->id, false, false, params->deadline);
	/* As for ONLINE_ALL: the machine has more memory then, for all */
	if (err == -EPERM && capable(CAP_SYS_ADMIN))
		err = ramslice_wake_slice(params->id, false, true,
					  params->deadline);
	if (err == -EPERM)
		return err;
	outcome->nr_done = !err;
	outcome->nr_failed = err == -EIO;
	outcome->reason = ramslice_wake_reason(err);
	/* "Not in that state" is -EBUSY, as for emptying */
	outcome->status = err == -EINVAL ? EBUSY : -err;
	return 0;
}

static int ramslice_wake_zones(const struct ramslice_params *params,
			       struct ramslice_outcome *outcome)
{
	struct ramslice_zone *rz;
	bool found = false;
	unsigned int i;
	int err = 0;

	for (i = 0; !err && (rz = ramslice_zone_by_index(i)); i++) {
		if (!ramslice_zone_wanted(params, rz))
			continue;
		found = true;
		err = ramslice_wake_zone(rz, params->deadline, params->hold,
					 &outcome->nr_done,
					 &outcome->nr_failed);
	}
	if (!err && outcome->nr_failed)
		err = -EIO;
	outcome->reason = ramslice_wake_reason(err);
	outcome->status = -err;
	return found ? 0 : -ENOENT;
}

static int ramslice_carry_out_waking(const struct ramslice_params *params,
				     struct ramslice_outcome *outcome)
{
	int err;

	down_read(&ramslice_table_sem);
	err = params->op == RAMSLICE_OP_ONLINE ?
	      ramslice_wake_one(params, outcome) :
	      ramslice_wake_zones(params, outcome);
	up_read(&ramslice_table_sem);
	return err;
}

/**
 * ramslice_request - carry out a request
 * @req: valid input; the output fields are zero
 *
 * Context: May sleep, for as long as the request's deadline and a batch.
 * Return: 0 with the outcome in @req, -ENOENT, -EBUSY, or -EPERM if the slice is
 * held and the caller may not change that.
 */
int ramslice_request(struct ramslice_request *req)
{
	struct ramslice_outcome outcome = { .last_id = RAMSLICE_NO_ID };
	struct ramslice_params params;
	u64 start = ktime_get_ns();
	int err;

	ramslice_decode_request(req, &params);
	if (params.op == RAMSLICE_OP_ONLINE ||
	    params.op == RAMSLICE_OP_ONLINE_ALL)
		err = ramslice_carry_out_waking(&params, &outcome);
	else
		err = ramslice_carry_out_emptying(&params, &outcome);
	ramslice_encode_outcome(&outcome, req);
	req->elapsed_ns = ktime_get_ns() - start;
	trace_ramslice_request(req, err);
	return err;
}

/* A request that empties slices is under way. */
bool ramslice_request_busy(void)
{
	return test_bit(0, &ramslice_busy);
}
