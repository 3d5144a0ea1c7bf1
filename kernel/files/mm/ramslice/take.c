// SPDX-License-Identifier: GPL-2.0
/*
 * Ranges that are taken as a whole: for buffers, and for pages of the hugetlb
 * pool that are larger than the allocator's.
 *
 * The cheapest range is chosen, by what is known of pageblocks. Slices that lie
 * in it as a whole are emptied as for switching them off, into those that are
 * dearest to empty, but stay on. What is left of it alloc_contig_range() moves,
 * wakes and takes: nothing wakes before all else has left the range, and what
 * wakes is isolated until it is taken, so that no other task gets it.
 *
 * Locks, outermost first: ramslice_take_mutex (one range at a time is taken, so
 * that two do not interrupt each other), ramslice_mutex.
 */

#include <linux/bitmap.h>
#include <linux/gfp.h>
#include <linux/sched/signal.h>
#include "../internal.h"
#include "internal.h"
#include "buffer.h"
#include "request.h"

/* Ranges of a zone that are tried, and for how long in all. */
#define MAX_TRIES	16
#define TRY_TIME	(30 * HZ)
/* A request that empties slices is given so long to end. */
#define INTERRUPT_TIME	(10 * HZ)
/* Emptying one slice takes no longer. */
#define CLEAR_TIME	(10 * HZ)

static DEFINE_MUTEX(ramslice_take_mutex);

static enum ramslice_reason ramslice_begin_requests(void)
{
	unsigned long until = jiffies + INTERRUPT_TIME;
	enum ramslice_reason reason;
	int err;

	atomic_inc(&ramslice_nr_interrupting);
	for (;;) {
		err = ramslice_begin_emptying();
		if (!err) {
			reason = RAMSLICE_REASON_NONE;
			break;
		}
		if (err != -EBUSY || fatal_signal_pending(current)) {
			reason = RAMSLICE_REASON_SIGNAL;
			break;
		}
		if (ramslice_inhibited() || time_after(jiffies, until)) {
			reason = RAMSLICE_REASON_PRESSURE;
			break;
		}
		schedule_timeout_killable(1);
	}
	atomic_dec(&ramslice_nr_interrupting);
	return reason;
}

/**
 * ramslice_begin_taking - become the one that takes ranges
 *
 * A request that empties slices gives up for it.
 *
 * Context: May sleep.
 * Return: RAMSLICE_REASON_NONE with ramslice_mutex held, until
 * ramslice_end_taking(); or why it cannot be now.
 */
enum ramslice_reason ramslice_begin_taking(void)
{
	enum ramslice_reason reason;

	if (mutex_lock_killable(&ramslice_take_mutex))
		return RAMSLICE_REASON_SIGNAL;
	reason = ramslice_begin_requests();
	if (reason != RAMSLICE_REASON_NONE)
		mutex_unlock(&ramslice_take_mutex);
	return reason;
}

void ramslice_end_taking(void)
{
	ramslice_end_emptying();
	mutex_unlock(&ramslice_take_mutex);
}

/**
 * ramslice_take_switch_off - switch slices of a range off that were off before
 * @t: the range; those of its slices that are empty again go off
 *
 * Context: ramslice_mutex held. May sleep.
 */
void ramslice_take_switch_off(const struct ramslice_take *t)
{
	struct ramslice_outcome outcome = {};
	struct ramslice_params params = {
		.op = RAMSLICE_OP_OFFLINE,
		.budget = RAMSLICE_UNLIMITED,
		.max_slices = 1,
		.cache = RAMSLICE_CACHE_KEEP,
		.ignore_backoff = true,
	};
	bool drained = false;
	unsigned int i;

	if (ramslice_slice_bytes() != t->slice_bytes)
		return;
	for_each_set_bit(i, t->was_off, t->nr_ids) {
		const struct ramslice_slice *s = ramslice_slice(t->first_id + i);

		if (!s || READ_ONCE(s->state) != RAMSLICE_ONLINE)
			continue;
		/* Pages of the range may be in lists of CPUs */
		if (!drained)
			drain_all_pages(s->rz->zone);
		drained = true;
		if (!ramslice_slice_empty(t->first_id + i))
			continue;
		params.id = t->first_id + i;
		params.deadline = jiffies + CLEAR_TIME ?: 1;
		ramslice_offline_one(&params, &outcome);
	}
}

/* Notes which slices of the range are off. Under ramslice_mutex. */
static int ramslice_note_off(struct ramslice_take *t, unsigned long pfn)
{
	unsigned long end = pfn + t->nr_pages;
	u32 id;

	bitmap_free(t->was_off);
	t->slice_bytes = ramslice_slice_bytes();
	t->rz = ramslice_zone_of(page_zone(pfn_to_page(pfn)));
	t->nr_requests = READ_ONCE(t->rz->woken_by_request);
	t->first_id = ramslice_geom_first_at(&ramslice_geom, pfn);
	/* None, where a table has a gap */
	t->nr_ids = ramslice_geom_end_at(&ramslice_geom, end - 1) - t->first_id;
	t->was_off = bitmap_zalloc(max(t->nr_ids, 1U), GFP_KERNEL);
	if (!t->was_off)
		return -ENOMEM;
	for_each_slice_touching(id, pfn, end) {
		const struct ramslice_slice *s = ramslice_slice(id);

		if (s && READ_ONCE(s->state) == RAMSLICE_OFFLINE)
			__set_bit(id - t->first_id, t->was_off);
	}
	return 0;
}

/* Does all of a slice lie in it? Under ramslice_mutex. */
static bool ramslice_slice_within(u32 id, unsigned long pfn, unsigned long end)
{
	unsigned long block;
	unsigned int n;

	for_each_slice_block(id, n, block) {
		if (block < pfn || block >= end)
			return false;
	}
	return true;
}

/*
 * Empties slices that lie in the range as a whole, and leaves them on. Where there
 * is no room, alloc_contig_range() has some woken. Under ramslice_mutex.
 */
static enum ramslice_reason ramslice_clear_slices(const struct ramslice_take *t,
						  unsigned long pfn)
{
	struct ramslice_outcome outcome = {};
	struct ramslice_params params = {
		.op = RAMSLICE_OP_OFFLINE,
		.budget = RAMSLICE_UNLIMITED,
		.max_slices = 1,
		.cache = RAMSLICE_CACHE_AUTO,
		.ignore_backoff = true,
		.stays_on = true,
	};
	u32 id;

	for (id = t->first_id; id < t->first_id + t->nr_ids; id++) {
		const struct ramslice_slice *s = ramslice_slice(id);
		enum ramslice_reason reason;

		if (ramslice_is_waited_for())
			return RAMSLICE_REASON_PRESSURE;
		if (!s || READ_ONCE(s->state) != RAMSLICE_ONLINE ||
		    ramslice_slice_empty(id) ||
		    !ramslice_slice_within(id, pfn, pfn + t->nr_pages))
			continue;
		params.id = id;
		params.deadline = jiffies + CLEAR_TIME ?: 1;
		reason = ramslice_offline_one(&params, &outcome);
		if (reason != RAMSLICE_REASON_NONE &&
		    reason != RAMSLICE_REASON_NO_ROOM &&
		    reason != RAMSLICE_REASON_AWAKE_RESERVE &&
		    reason != RAMSLICE_REASON_PRESSURE)
			return reason;
	}
	return RAMSLICE_REASON_NONE;
}

/*
 * Does the zone keep its reserve? What is free in the range counts as taken, what
 * is in use needs as much elsewhere, or is page cache, which may go.
 */
static bool ramslice_has_room(struct zone *zone, unsigned long nr_pages)
{
	unsigned long have = zone_page_state(zone, NR_FREE_PAGES) +
			     zone_page_state(zone, NR_ZONE_INACTIVE_FILE) +
			     ramslice_zone_wakeable_pages(zone);

	return have > nr_pages + ramslice_awake_reserve(zone);
}

/* Under ramslice_mutex. May sleep. */
static enum ramslice_reason ramslice_take_range(struct ramslice_take *t,
						unsigned long pfn)
{
	enum ramslice_reason reason;
	int err;

	if (ramslice_note_off(t, pfn))
		return RAMSLICE_REASON_NO_ROOM;
	reason = ramslice_clear_slices(t, pfn);
	if (reason != RAMSLICE_REASON_NONE)
		return reason;
	err = t->take(t, pfn);
	if (!err) {
		t->pfn = pfn;
		return RAMSLICE_REASON_NONE;
	}
	/* It woke them only if nothing was left to move: all but never */
	ramslice_take_switch_off(t);
	if (fatal_signal_pending(current))
		return RAMSLICE_REASON_SIGNAL;
	return err == -ENOMEM ? RAMSLICE_REASON_NO_ROOM :
				RAMSLICE_REASON_MIGRATION;
}

/**
 * ramslice_take_in_zone - take the cheapest range of a zone that can be had
 * @t: what is wanted; set to what was taken
 * @zone: the zone
 *
 * Context: within ramslice_begin_taking(). May sleep.
 * Return: RAMSLICE_REASON_NONE, or why none could be had.
 */
enum ramslice_reason ramslice_take_in_zone(struct ramslice_take *t,
					   struct zone *zone)
{
	unsigned long nr_blocks = t->nr_pages >> pageblock_order;
	unsigned long align = max(t->align_pages >> pageblock_order, 1UL);
	enum ramslice_reason reason = RAMSLICE_REASON_NO_ROOM;
	struct ramslice_zone *rz = ramslice_zone_of(zone);
	unsigned long until = jiffies + TRY_TIME;
	struct ramslice_range range;
	struct ramslice_ranges r;
	unsigned int tries;

	if (!rz || zone->zone_start_pfn >= t->end_pfn)
		return RAMSLICE_REASON_HOLE;
	drain_all_pages(zone);
	ramslice_scan_zone(rz, RAMSLICE_ANY_AGE, 10 * NSEC_PER_MSEC,
			   jiffies + CLEAR_TIME);
	switch (ramslice_ranges_begin(&r, zone, t->nr_pages)) {
	case 0:
		break;
	case -EINTR:
		return RAMSLICE_REASON_SIGNAL;
	default:
		return RAMSLICE_REASON_NO_ROOM;
	}
	for (tries = 0; tries < MAX_TRIES; tries++) {
		range = ramslice_ranges_cheapest(&r, nr_blocks, align,
						 t->end_pfn >> pageblock_order);
		if (!range.pfn || range.nr_blocked) {
			/* What the last one that was tried failed of says more */
			if (!tries)
				reason = range.reason;
			break;
		}
		if (!ramslice_has_room(zone, t->nr_pages)) {
			reason = RAMSLICE_REASON_AWAKE_RESERVE;
			break;
		}
		reason = ramslice_take_range(t, range.pfn);
		if (reason == RAMSLICE_REASON_NONE ||
		    reason == RAMSLICE_REASON_SIGNAL ||
		    ramslice_is_waited_for() || time_after(jiffies, until))
			break;
		ramslice_ranges_drop(&r, range.pfn, nr_blocks);
		cond_resched();
	}
	ramslice_ranges_end(&r);
	return reason;
}

static int ramslice_take_pages(struct ramslice_take *t, unsigned long pfn)
{
	return alloc_contig_range_noprof(pfn, pfn + t->nr_pages,
					 MIGRATE_MOVABLE, t->gfp);
}

/**
 * ramslice_cheapest_pages - pages of the range of a zone that costs least
 * @zone: the zone
 * @nr_pages: how many, a power of two and of pageblocks; aligned to as many
 * @gfp: as alloc_contig_range() takes them
 *
 * Hugetlb's own locks may be held: emptying slices takes none of those that are
 * held while its pool grows.
 *
 * Context: May sleep if @gfp allows it; else there are none.
 * Return: the first page frame, or 0 if there is no such range.
 */
unsigned long ramslice_cheapest_pages(struct zone *zone, unsigned long nr_pages,
				      gfp_t gfp)
{
	struct ramslice_take t = {
		.nr_pages = nr_pages,
		.align_pages = nr_pages,
		.end_pfn = ULONG_MAX,
		.gfp = gfp,
		.take = ramslice_take_pages,
	};

	if ((gfp & GFP_KERNEL) != GFP_KERNEL ||
	    ramslice_begin_taking() != RAMSLICE_REASON_NONE)
		return 0;
	ramslice_take_in_zone(&t, zone);
	ramslice_end_taking();
	bitmap_free(t.was_off);
	return t.pfn;
}
