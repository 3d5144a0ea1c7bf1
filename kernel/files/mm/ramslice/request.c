// SPDX-License-Identifier: GPL-2.0
/*
 * Requests: who may make one when, their deadline, and their outcome.
 */

#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#include "internal.h"

/* Who empties slices at the moment; see wake.c. */
struct task_struct *ramslice_requester;

/* Bit 0: a request that empties slices is under way. */
static unsigned long busy;

/* Debugfs commands keep a zone's reserve until "release" or the next batch. */
static struct {
	struct ramslice_zone *rz;
	struct ramslice_reserve reserve;
} kept;

static int status_of(enum ramslice_reason reason)
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

static bool zone_wanted(const struct ramslice_request *req,
			const struct ramslice_zone *rz)
{
	return (req->node == RAMSLICE_ANY ||
		req->node == zone_to_nid(rz->zone)) &&
	       (req->zone == RAMSLICE_ANY || req->zone == zone_idx(rz->zone));
}

static int each_zone(struct ramslice_request *req, unsigned long deadline)
{
	enum ramslice_reason reason = RAMSLICE_REASON_NONE, r;
	u64 budget = req->budget;
	struct ramslice_zone *rz;
	bool found = false;
	unsigned int i;

	/* Once for all: pages in LRU batches look unmovable */
	lru_add_drain_all();
	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		if (!zone_wanted(req, rz))
			continue;
		found = true;
		r = req->op == RAMSLICE_OP_COMPACT ?
		    ramslice_compact_zone(rz, req, deadline, &budget) :
		    ramslice_offline_free_zone(rz, req, deadline);
		if (r != RAMSLICE_REASON_NONE)
			reason = r;
		if (ramslice_is_final(r))
			break;
	}
	if (req->nr_done == req->max_slices)
		reason = RAMSLICE_REASON_NONE;
	req->reason = reason;
	/* A budget or room that is used up is how such a request ends */
	req->status = ramslice_is_final(reason) ? -status_of(reason) : 0;
	return found ? 0 : -ENOENT;
}

static unsigned long request_deadline(const struct ramslice_request *req)
{
	return jiffies + msecs_to_jiffies(req->deadline_ms ?:
					  RAMSLICE_DEADLINE_MS);
}

static int emptying_request(struct ramslice_request *req)
{
	unsigned long deadline = request_deadline(req);
	int err = 0;

	/* Others hold the mutex, too, but not for long */
	if (test_and_set_bit_lock(0, &busy))
		return -EBUSY;
	/* Interruptible, so that verify.c can freeze those who wait for it */
	if (mutex_lock_interruptible(&ramslice_mutex)) {
		clear_bit_unlock(0, &busy);
		return -ERESTARTSYS;
	}
	if (ramslice_inhibited()) {
		err = -EBUSY;
		goto unlock;
	}
	ramslice_classify(false);
	WRITE_ONCE(ramslice_requester, current);

	if (req->op != RAMSLICE_OP_OFFLINE) {
		err = each_zone(req, deadline);
	} else if (!ramslice_slice(req->id)) {
		err = -ENOENT;
	} else {
		bool ours = kept.rz == ramslice_slices[req->id].rz;

		req->reason = ramslice_offline_one(req, deadline,
						   ours ? &kept.reserve : NULL);
		req->status = -status_of(req->reason);
	}
	WRITE_ONCE(ramslice_requester, NULL);
unlock:
	mutex_unlock(&ramslice_mutex);
	clear_bit_unlock(0, &busy);
	return err;
}

static enum ramslice_reason wake_reason(int err)
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

static int wake_one(struct ramslice_request *req, unsigned long deadline)
{
	int err;

	if (!ramslice_slice(req->id))
		return -ENOENT;
	req->last_id = req->id;
	err = ramslice_wake_slice(req->id, false, deadline);
	req->nr_done = !err;
	req->nr_failed = err == -EIO;
	req->reason = wake_reason(err);
	/* "Not in that state" is -EBUSY, as for emptying */
	req->status = err == -EINVAL ? EBUSY : -err;
	return 0;
}

static int wake_zones(struct ramslice_request *req, unsigned long deadline)
{
	struct ramslice_zone *rz;
	bool found = false;
	unsigned int i;
	int err = 0;

	for (i = 0; !err && (rz = ramslice_zone_by_index(i)); i++) {
		if (!zone_wanted(req, rz))
			continue;
		found = true;
		err = ramslice_wake_zone(rz, deadline,
					 req->flags & RAMSLICE_REQ_HOLD,
					 &req->nr_done, &req->nr_failed);
	}
	if (!err && req->nr_failed)
		err = -EIO;
	req->reason = wake_reason(err);
	req->status = -err;
	return found ? 0 : -ENOENT;
}

static int waking_request(struct ramslice_request *req)
{
	/* 0 would mean none */
	unsigned long deadline = request_deadline(req) ?: 1;
	int err;

	down_read(&ramslice_table_sem);
	err = req->op == RAMSLICE_OP_ONLINE ? wake_one(req, deadline) :
					      wake_zones(req, deadline);
	up_read(&ramslice_table_sem);
	return err;
}

/**
 * ramslice_request - carry out a request
 * @req: valid input; the output fields are zero
 *
 * Context: May sleep, for as long as the request's deadline and a batch.
 * Return: 0 with the outcome in @req, -ENOENT or -EBUSY.
 */
int ramslice_request(struct ramslice_request *req)
{
	u64 start = ktime_get_ns();
	int err;

	req->last_id = RAMSLICE_NO_ID;
	if (req->op == RAMSLICE_OP_ONLINE || req->op == RAMSLICE_OP_ONLINE_ALL)
		err = waking_request(req);
	else
		err = emptying_request(req);
	req->elapsed_ns = ktime_get_ns() - start;
	trace_ramslice_request(req, err);
	return err;
}

/* --- what only the debugfs commands need --------------------------------- */

/* The reserve that debugfs keeps is of the old table. Under ramslice_mutex. */
void ramslice_request_forget(void)
{
	ramslice_reserve_free(&kept.reserve);
	kept.rz = NULL;
}

/* Builds the reserve for offline_index, and looks at boot memory again. */
int ramslice_request_reinit(struct ramslice_zone *rz)
{
	int err;

	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	ramslice_classify(true);
	ramslice_reserve_free(&kept.reserve);
	err = ramslice_reserve_build(&kept.reserve, rz, RAMSLICE_CACHE_DROP,
				     false);
	kept.rz = err ? NULL : rz;
	mutex_unlock(&ramslice_mutex);
	return err;
}

/* Forgets the reserve. Page frames go back at the end of each request. */
int ramslice_request_release(struct ramslice_zone *rz)
{
	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	if (kept.rz == rz)
		ramslice_request_forget();
	mutex_unlock(&ramslice_mutex);
	return 0;
}

/* A request that empties slices is under way. */
bool ramslice_request_busy(void)
{
	return test_bit(0, &busy);
}

int ramslice_reserve_show(struct ramslice_zone *rz, struct seq_file *m)
{
	struct ramslice_reserve r;
	u32 i;

	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	if (ramslice_reserve_build(&r, rz, RAMSLICE_CACHE_DROP, false)) {
		mutex_unlock(&ramslice_mutex);
		return -ENOMEM;
	}
	mutex_unlock(&ramslice_mutex);

	seq_puts(m, "# index price free freeable\n");
	for (i = r.nr; i-- > 0; ) {
		if (r.c[i].nr_free + r.c[i].nr_cache)
			seq_printf(m, "%u %llu %u %u\n", r.c[i].id,
				   r.c[i].price, r.c[i].nr_free,
				   r.c[i].nr_cache);
	}
	ramslice_reserve_free(&r);
	return 0;
}
