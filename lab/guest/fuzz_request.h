/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests to /dev/ramslice: invalid ones, dry runs, ones that empty and ones
 * that wake; and what a request may say of its outcome.
 */
#ifndef FUZZ_REQUEST_H
#define FUZZ_REQUEST_H

#include <stddef.h>
#include "fuzz_device.h"

#define REQUEST_MIN	128

static bool is_waking(const struct ramslice_request *req)
{
	return req->op == RAMSLICE_OP_ONLINE || req->op == RAMSLICE_OP_ONLINE_ALL;
}

/* What a request would better not say. */
static void spoil_request(struct ramslice_request *req)
{
	uint64_t value = odd_number();

	switch (below(9)) {
	case 0:
		req->op = value;
		break;
	case 1:
		req->flags = value;
		break;
	case 2:
		req->id = value;
		break;
	case 3:
		req->node = value;
		break;
	case 4:
		req->zone = value;
		break;
	case 5:
		req->max_slices = 0;
		break;
	case 6:
		req->reserved = value;
		break;
	case 7:
		req->budget = value;
		break;
	default:
		/* Outputs: what they hold does not matter */
		memset(&req->status, (int)value, 16);
		memset(&req->elapsed_ns, (int)value, 64);
	}
}

/* What the documentation has against it. */
static void request_errors(const struct ramslice_request *req, struct errs *must, struct errs *may)
{
	bool by_id = req->op == RAMSLICE_OP_OFFLINE || req->op == RAMSLICE_OP_ONLINE;
	unsigned int both = RAMSLICE_REQ_KEEP_CACHE | RAMSLICE_REQ_AUTO_CACHE;

	if (req->op >= RAMSLICE_NR_OPS || req->flags & ~RAMSLICE_REQ_FLAGS || req->reserved ||
	    !req->max_slices || (req->flags & both) == both ||
	    (is_waking(req) &&
	     req->flags & ~(req->op == RAMSLICE_OP_ONLINE_ALL ? RAMSLICE_REQ_HOLD : 0U)))
		add_err(must, EINVAL);
	if (by_id) {
		if (req->node != RAMSLICE_ANY || req->zone != RAMSLICE_ANY)
			add_err(must, EINVAL);
		if (req->id >= MAX_ROWS)
			add_err(must, ENOENT);
		else
			add_err(may, ENOENT);
	} else {
		if (req->id)
			add_err(must, EINVAL);
		if (req->node != RAMSLICE_ANY && (req->node < 0 || req->node >= NR_NODES))
			add_err(must, EINVAL);
		else if (req->node > 0)
			add_err(must, ENOENT);
		if (req->zone != RAMSLICE_ANY && (req->zone < 0 || req->zone > 7))
			add_err(must, EINVAL);
		/* The number of zones is the configuration's; the fourth has no memory here */
		if (req->zone >= 3 && req->zone <= 7) {
			add_err(must, ENOENT);
			add_err(must, EINVAL);
		}
	}
	if (!is_waking(req)) {
		add_err(may, EBUSY);
		add_err(may, EINTR);
	}
}

/* Which reason goes with which status. */
static bool known_outcome(const struct ramslice_request *req)
{
	switch (req->status) {
	case 0:
		return req->reason == RAMSLICE_REASON_NONE || req->op == RAMSLICE_OP_COMPACT ||
		       req->op == RAMSLICE_OP_OFFLINE_FREE;
	case EDQUOT:
		return req->reason == RAMSLICE_REASON_OVER_BUDGET && req->op == RAMSLICE_OP_OFFLINE;
	case ENOSPC:
		return req->reason == RAMSLICE_REASON_NO_ROOM && req->op == RAMSLICE_OP_OFFLINE;
	case ENOMEM:
		return req->reason == RAMSLICE_REASON_AWAKE_RESERVE &&
		       req->op == RAMSLICE_OP_OFFLINE;
	case EAGAIN:
		return req->reason == RAMSLICE_REASON_PRESSURE ||
		       (req->reason == RAMSLICE_REASON_BACKOFF && req->op == RAMSLICE_OP_OFFLINE);
	case ETIMEDOUT:
		return req->reason == RAMSLICE_REASON_DEADLINE;
	case EINTR:
		return req->reason == RAMSLICE_REASON_SIGNAL;
	case EIO:
		return req->reason == RAMSLICE_REASON_POWER && req->op == RAMSLICE_OP_OFFLINE;
	case EBUSY:
		return req->reason && req->reason < RAMSLICE_NR_REASONS &&
		       (req->op == RAMSLICE_OP_OFFLINE || req->op == RAMSLICE_OP_ONLINE);
	default:
		return false;
	}
}

static void check_outcome(const struct ramslice_request *in, const struct ramslice_request *out,
			  uint32_t usize)
{
	bool dry = in->flags & RAMSLICE_REQ_DRY_RUN;
	uint64_t work = out->pages_migrated + out->pages_dropped + out->pages_failed +
			out->huge_split + out->huge_moved + out->price_measured;

	if (out->size != usize ||
	    memcmp(&out->op, &in->op,
		   offsetof(struct ramslice_request, status) -
			   offsetof(struct ramslice_request, op)) ||
	    out->reserved)
		bug("request: op %u: its input came back changed", in->op);
	if (!known_outcome(out))
		bug("request: op %u flags %x: status %u with reason %u", in->op, in->flags,
		    out->status, out->reason);
	if ((!is_waking(in) && out->nr_done > in->max_slices) || out->nr_done > MAX_ROWS ||
	    (in->op == RAMSLICE_OP_OFFLINE && out->nr_done != !out->status) ||
	    (in->op == RAMSLICE_OP_ONLINE && out->nr_done != !out->status))
		bug("request: op %u: %u slices done of %u, status %u", in->op, out->nr_done,
		    in->max_slices, out->status);
	if (work && (dry || is_waking(in)))
		bug("request: op %u flags %x moved something", in->op, in->flags);
	if (out->last_id != ~0U && out->last_id >= MAX_ROWS)
		bug("request: op %u: last_id %u", in->op, out->last_id);
	if (out->reason < RAMSLICE_NR_REASONS && !dry)
		__atomic_add_fetch(&shared->reasons[out->reason], 1, __ATOMIC_RELAXED);
	if (!dry)
		__atomic_add_fetch(is_waking(in) ? &shared->woken : &shared->offlined, out->nr_done,
				   __ATOMIC_RELAXED);
}

/*
 * Allocations wake most of what went, and a number drawn is rarely that of an
 * offline slice: a few that are free go right before, and the last one is named.
 */
static void leave_some_to_wake(struct ramslice_request *waking)
{
	struct ramslice_request req = {
		.size = sizeof(req), .op = RAMSLICE_OP_OFFLINE_FREE, .max_slices = 3,
		.node = RAMSLICE_ANY, .zone = RAMSLICE_ANY, .budget = RAMSLICE_UNLIMITED,
		.deadline_ms = 100 * slow,
	};
	struct ramslice_request in = req;
	int err, tries = 20;

	do {
		err = try_ioctl(fd_rw, RAMSLICE_IOC_REQUEST, &req);
	} while (err == EBUSY && tries-- && !usleep(2000));
	if (err)
		return;
	check_outcome(&in, &req, sizeof(req));
	if (waking->op == RAMSLICE_OP_ONLINE && req.nr_done)
		waking->id = req.last_id;
}

static void fuzz_request(enum target t)
{
	static const uint32_t emptying[] = {
		RAMSLICE_OP_OFFLINE, RAMSLICE_OP_OFFLINE, RAMSLICE_OP_COMPACT,
		RAMSLICE_OP_OFFLINE_FREE,
	};
	struct ramslice_request req = { .node = RAMSLICE_ANY, .zone = RAMSLICE_ANY }, in;
	struct errs may = {};
	struct form form;
	int fd, err, tries = 20;
	bool patient;

	req.op = t == T_WAKE || (t == T_REQUEST_BAD && one_in(3)) ?
		 (one_in(4) ? RAMSLICE_OP_ONLINE_ALL : RAMSLICE_OP_ONLINE) : PICK(emptying);
	req.budget = one_in(3) ? rnd() >> below(64) : RAMSLICE_UNLIMITED;
	/* What is free goes at once, and leaves little awake for what comes after */
	req.max_slices = one_in(req.op == RAMSLICE_OP_OFFLINE_FREE ? 2 : 8) ?
			 RAMSLICE_ALL_SLICES : 1 + below(3);
	/* Most end it early, at any step; some leave time to move pages */
	req.deadline_ms = one_in(10) ? 0 : (1 + below(one_in(6) ? 1000 : 40)) * slow;
	if (req.op == RAMSLICE_OP_OFFLINE || req.op == RAMSLICE_OP_ONLINE)
		req.id = below(hint_ids + 1);
	else if (one_in(3))
		req.zone = below(3);
	if (!is_waking(&req))
		req.flags = below(8) | (one_in(4) ? RAMSLICE_REQ_AUTO_CACHE : 0) |
			    (t == T_DRY_RUN || t == T_REQUEST_BAD ? RAMSLICE_REQ_DRY_RUN : 0) |
			    /* Few, and all of them come back: the guest lives on what is left */
			    (req.max_slices <= 3 && one_in(8) ? RAMSLICE_REQ_HOLD : 0);
	else if (req.op == RAMSLICE_OP_ONLINE_ALL && one_in(2))
		req.flags = RAMSLICE_REQ_HOLD;
	if (t == T_WAKE && !one_in(3))
		leave_some_to_wake(&req);
	if (t == T_REQUEST_BAD) {
		spoil_request(&req);
		if (one_in(3))
			spoil_request(&req);
	}
	patient = one_in(2);
	form = hand_in(&req, sizeof(req), REQUEST_MIN);
	in = req;
	request_errors(&req, &form.must, &may);
	/* ENOENT where zones are concerned that this machine has none of */
	if (req.zone >= 0)
		add_err(&may, ENOENT);
	fd = some_fd(true, &form.must);
	do {
		interrupt_every(patient ? 1000000 : 20000 + below(80000));
		err = try_ioctl(fd, RAMSLICE_IOC_REQUEST, form.place.p);
		interrupt_every(0);
		/* One request at a time: the others had better wait, or little would happen */
	} while (err == EBUSY && t != T_REQUEST_BAD && tries-- && !usleep(2000));
	if (!judge(t, err, &form.must, &may, "request"))
		return;
	take_back(&form, &req, sizeof(req));
	check_outcome(&in, &req, form.usize);
}

static void fuzz_other_ioctl(void)
{
	/* Ours are 0 to 5; a few more numbers may be in use one day */
	static const unsigned long others[] = {
		_IO(RAMSLICE_IOC_MAGIC, 200), _IO(RAMSLICE_IOC_MAGIC, 255),
		_IOR(RAMSLICE_IOC_MAGIC, 0, int),
		_IOWR(RAMSLICE_IOC_MAGIC, 3, struct ramslice_request),
		_IO(RAMSLICE_IOC_MAGIC - 1, 0), 0, -1UL,
	};
	struct errs must = ERRS(ENOTTY), may = ERRS(EBADF);
	struct place place = make_place(256, one_in(2));
	unsigned long nr = one_in(4) ? (rnd() | 1UL << 20) & 0xffffffff : PICK(others);
	int fd = one_in(5) ? fd_wo : fd_rw;

	/* Calls that every file has */
	if ((nr >> 8 & 0xff) == 'T' || (nr >> 8 & 0xff) == 'f' || (nr >> 8 & 0xff) == 'X' || nr < 4)
		nr = _IO(RAMSLICE_IOC_MAGIC, 77);
	judge(T_OTHER_IOCTL, try_ioctl(fd, nr, place.p), &must, &may, "unknown number");
}

#endif
