// SPDX-License-Identifier: GPL-2.0
/*
 * The states of a slice and their legal changes, all in one place.
 */

#define CREATE_TRACE_POINTS
#include <trace/events/ramslice.h>
#include "internal.h"

DEFINE_SPINLOCK(ramslice_lock);
DECLARE_WAIT_QUEUE_HEAD(ramslice_wait);

/* State changes so far. Under ramslice_lock. */
u64 ramslice_event_seq;

static const u8 ramslice_legal_changes[RAMSLICE_NR_STATES] = {
	/* a request isolates its blocks */
	[RAMSLICE_ONLINE]	= BIT(RAMSLICE_EMPTYING),
	/* given up; empty and with the driver; or lost in the driver */
	[RAMSLICE_EMPTYING]	= BIT(RAMSLICE_ONLINE) |
				  BIT(RAMSLICE_OFFLINE) |
				  BIT(RAMSLICE_QUARANTINED),
	/* it is wanted */
	[RAMSLICE_OFFLINE]	= BIT(RAMSLICE_WAKING),
	/* all chunks released; or the driver failed */
	[RAMSLICE_WAKING]	= BIT(RAMSLICE_ONLINE) |
				  BIT(RAMSLICE_QUARANTINED),
	/* for good */
	[RAMSLICE_QUARANTINED]	= 0,
};

static const char * const ramslice_state_names[RAMSLICE_NR_STATES] = {
	[RAMSLICE_ONLINE]	= "online",
	[RAMSLICE_EMPTYING]	= "emptying",
	[RAMSLICE_OFFLINE]	= "offline",
	[RAMSLICE_WAKING]	= "waking",
	[RAMSLICE_QUARANTINED]	= "quarantined",
};

static const char * const ramslice_reason_names[RAMSLICE_NR_REASONS] = {
	[RAMSLICE_REASON_NONE]		  = "none",
	[RAMSLICE_REASON_HOLE]		  = "hole",
	[RAMSLICE_REASON_ZONE_END]	  = "zone-end",
	[RAMSLICE_REASON_BOOT]		  = "boot",
	[RAMSLICE_REASON_QUARANTINED]	  = "quarantined",
	[RAMSLICE_REASON_SLAB]		  = "slab",
	[RAMSLICE_REASON_PAGETABLE]	  = "pagetable",
	[RAMSLICE_REASON_PINNED]	  = "pinned",
	[RAMSLICE_REASON_WRITEBACK]	  = "writeback",
	[RAMSLICE_REASON_HUGETLB]	  = "hugetlb",
	[RAMSLICE_REASON_GIGANTIC]	  = "gigantic",
	[RAMSLICE_REASON_CMA]		  = "cma",
	[RAMSLICE_REASON_HIGHATOMIC]	  = "highatomic",
	[RAMSLICE_REASON_HWPOISON]	  = "hwpoison",
	[RAMSLICE_REASON_FOREIGN_OFFLINE] = "foreign-offline",
	[RAMSLICE_REASON_ISOLATED]	  = "isolated",
	[RAMSLICE_REASON_UNMOVABLE]	  = "unmovable",
	[RAMSLICE_REASON_NO_ROOM]	  = "no-room",
	[RAMSLICE_REASON_OVER_BUDGET]	  = "over-budget",
	[RAMSLICE_REASON_AWAKE_RESERVE]	  = "awake-reserve",
	[RAMSLICE_REASON_BACKOFF]	  = "backoff",
	[RAMSLICE_REASON_PRESSURE]	  = "pressure",
	[RAMSLICE_REASON_DEADLINE]	  = "deadline",
	[RAMSLICE_REASON_SIGNAL]	  = "signal",
	[RAMSLICE_REASON_STATE]		  = "state",
	[RAMSLICE_REASON_POWER]		  = "power",
	[RAMSLICE_REASON_MIGRATION]	  = "migration",
	[RAMSLICE_REASON_BUFFER]	  = "buffer",
	[RAMSLICE_REASON_OVER_LIMIT]	  = "over-limit",
};

const char *ramslice_state_name(enum ramslice_state state)
{
	return state < RAMSLICE_NR_STATES ? ramslice_state_names[state] : "?";
}

const char *ramslice_reason_name(enum ramslice_reason reason)
{
	return reason < RAMSLICE_NR_REASONS ?
	       ramslice_reason_names[reason] : "?";
}

bool ramslice_state_legal(enum ramslice_state from, enum ramslice_state to)
{
	return from < RAMSLICE_NR_STATES && to < RAMSLICE_NR_STATES &&
	       (ramslice_legal_changes[from] & BIT(to));
}

/* Its state, or whether it is held, has changed. Under ramslice_lock. */
void ramslice_note_sets(u32 id)
{
	const struct ramslice_slice *s = &ramslice_slices[id];
	bool off = s->state == RAMSLICE_OFFLINE;

	__assign_bit(id, ramslice_sets[RAMSLICE_SET_OFF], off && !s->held);
	__assign_bit(id, ramslice_sets[RAMSLICE_SET_HELD], off && s->held);
	__assign_bit(id, ramslice_sets[RAMSLICE_SET_WAKING],
		     s->state == RAMSLICE_WAKING);
}

/* A zone's first slice from @id on that is in a set, or RAMSLICE_NO_ID. */
u32 ramslice_next_in(const struct ramslice_zone *rz, u32 id,
		     enum ramslice_set set)
{
	for (;; id++) {
		id = find_next_bit(ramslice_sets[set], rz->end_id, id);
		if (id >= rz->end_id)
			return RAMSLICE_NO_ID;
		if (ramslice_slices[id].rz == rz)
			return id;
	}
}

/* A zone's first slice that is in two sets, or RAMSLICE_NO_ID. */
u32 ramslice_first_in_both(const struct ramslice_zone *rz, enum ramslice_set a,
			   enum ramslice_set b)
{
	unsigned long id = rz->first_id;

	for (;; id++) {
		id = find_next_and_bit(ramslice_sets[a], ramslice_sets[b],
				       rz->end_id, id);
		if (id >= rz->end_id)
			return RAMSLICE_NO_ID;
		if (ramslice_slices[id].rz == rz)
			return id;
	}
}

/* The last slice of a zone in a set, or RAMSLICE_NO_ID. */
u32 ramslice_last_in(const struct ramslice_zone *rz, enum ramslice_set set)
{
	unsigned long id = rz->end_id, end;

	do {
		end = id;
		id = find_last_bit(ramslice_sets[set], end);
		if (id >= end || id < rz->first_id)
			return RAMSLICE_NO_ID;
	} while (ramslice_slices[id].rz != rz);
	return id;
}

/**
 * ramslice_set_state - change the state of a slice
 * @id: the slice
 * @to: the new state
 *
 * Context: ramslice_lock held.
 * Return: false, with nothing changed, if the change is not legal.
 */
bool ramslice_set_state(u32 id, enum ramslice_state to)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	enum ramslice_state from = s->state;

	lockdep_assert_held(&ramslice_lock);

	if (!ramslice_state_legal(from, to))
		return false;

	s->rz->nr[from]--;
	s->rz->nr[to]++;
	WRITE_ONCE(s->state, to);
	ramslice_note_sets(id);
	ramslice_event_seq++;
	trace_ramslice_state(id, from, to);
	wake_up_interruptible_all(&ramslice_wait);
	return true;
}
