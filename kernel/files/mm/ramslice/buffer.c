// SPDX-License-Identifier: GPL-2.0
/*
 * Large contiguous buffers for drivers and user space, of memory that is not set
 * aside for them.
 *
 * The cheapest range is chosen, by what is known of pageblocks. Slices that lie
 * in it as a whole are emptied as for switching them off, into those that are
 * dearest to empty, but stay on. What is left of it alloc_contig_range() moves,
 * wakes and takes: nothing wakes before all else has left the range.
 *
 * The pages are split, with one reference each. Their control group is charged
 * before anything is moved. Slices that were off go off again a while after the
 * buffer is released, unless another request has taken care of them by then.
 *
 * Locks, outermost first: ramslice_buffer_mutex (one buffer at a time is made, so
 * that two do not interrupt each other), ramslice_mutex, ramslice_buffer_lock
 * (the list and the books).
 */

#include <linux/bitmap.h>
#include <linux/cpuset.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/xarray.h>
#include "../internal.h"
#include "internal.h"
#include "buffer.h"
#include "request.h"

/* Ranges of a zone that are tried, and for how long in all. */
#define MAX_TRIES	16
#define TRY_TIME	(30 * HZ)
/* A request that empties slices is given so long to end. */
#define INTERRUPT_TIME	(10 * HZ)
/* Emptying one slice for a buffer takes no longer. */
#define CLEAR_TIME	(10 * HZ)
/* Slices that were off go off again so long after, unless they are taken again. */
#define REST_DELAY	HZ

/**
 * struct ramslice_buffer - a buffer
 * @node: in ramslice_buffers
 * @pfn: its first page frame
 * @nr_pages: their number
 * @owner: who has it, for people
 * @objcg: the control group that is charged, or NULL
 * @slice_bytes: the size of a slice when it was made
 * @first_id: the first slice that it may have a part of
 * @nr_ids: slices from there on, up to the last such
 * @was_off: those of them that were off, and that it has a part of
 * @rz: its zone
 * @nr_requests: slices of the zone that requests had woken until then
 * @rest_work: switches these off again
 */
struct ramslice_buffer {
	struct list_head node;
	unsigned long pfn;
	unsigned long nr_pages;
	const char *owner;
	struct obj_cgroup *objcg;
	u64 slice_bytes;
	u32 first_id;
	u32 nr_ids;
	unsigned long *was_off;
	struct ramslice_zone *rz;
	u64 nr_requests;
	struct delayed_work rest_work;
};

static DEFINE_MUTEX(ramslice_buffer_mutex);
static DEFINE_SPINLOCK(ramslice_buffer_lock);
static LIST_HEAD(ramslice_buffers);
static struct ramslice_buffer_stats ramslice_books;
/* The buffer of a pageblock, by its number. */
static DEFINE_XARRAY(ramslice_buffer_blocks);

/* --- what is known of buffers ---------------------------------------------- */

/* Is the page frame part of a buffer? Context: any. */
bool ramslice_in_buffer(unsigned long pfn)
{
	return xa_load(&ramslice_buffer_blocks, pfn >> pageblock_order);
}

void ramslice_read_buffer_stats(struct ramslice_buffer_stats *stats)
{
	spin_lock(&ramslice_buffer_lock);
	*stats = ramslice_books;
	spin_unlock(&ramslice_buffer_lock);
}

/* A line for each: address, bytes, and who has it. */
void ramslice_list_buffers(struct seq_file *m)
{
	const struct ramslice_buffer *b;

	spin_lock(&ramslice_buffer_lock);
	list_for_each_entry(b, &ramslice_buffers, node)
		seq_printf(m, "%#llx %llu %s\n", (u64)PFN_PHYS(b->pfn),
			   (u64)PFN_PHYS(b->nr_pages), b->owner);
	spin_unlock(&ramslice_buffer_lock);
}

static void ramslice_note_refusal(enum ramslice_reason reason)
{
	spin_lock(&ramslice_buffer_lock);
	ramslice_books.nr_refused++;
	ramslice_books.last_reason = reason;
	spin_unlock(&ramslice_buffer_lock);
}

static void ramslice_enter_buffer(struct ramslice_buffer *b)
{
	spin_lock(&ramslice_buffer_lock);
	list_add_tail(&b->node, &ramslice_buffers);
	ramslice_books.nr++;
	ramslice_books.nr_pages += b->nr_pages;
	spin_unlock(&ramslice_buffer_lock);
}

static void ramslice_strike_buffer(struct ramslice_buffer *b)
{
	spin_lock(&ramslice_buffer_lock);
	list_del(&b->node);
	ramslice_books.nr--;
	ramslice_books.nr_pages -= b->nr_pages;
	spin_unlock(&ramslice_buffer_lock);
}

/* --- pageblocks of a buffer ------------------------------------------------- */

static void ramslice_unmark_blocks(unsigned long pfn, unsigned long end)
{
	for (; pfn < end; pfn += pageblock_nr_pages)
		xa_erase(&ramslice_buffer_blocks, pfn >> pageblock_order);
}

/* Has entries ready, so that marking cannot fail. */
static int ramslice_reserve_marks(unsigned long start, unsigned long end)
{
	unsigned long pfn;
	int err;

	for (pfn = start; pfn < end; pfn += pageblock_nr_pages) {
		err = xa_reserve(&ramslice_buffer_blocks,
				 pfn >> pageblock_order, GFP_KERNEL);
		if (err) {
			ramslice_unmark_blocks(start, pfn);
			return err;
		}
	}
	return 0;
}

static void ramslice_mark_blocks(struct ramslice_buffer *b)
{
	unsigned long pfn, end = b->pfn + b->nr_pages;

	for (pfn = b->pfn; pfn < end; pfn += pageblock_nr_pages)
		xa_store(&ramslice_buffer_blocks, pfn >> pageblock_order, b,
			 GFP_NOWAIT);
}

/* --- switching slices off again ----------------------------------------------- */

/* Switches slices off that are empty. Under ramslice_mutex; may sleep. */
static void ramslice_switch_off(const struct ramslice_buffer *b)
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

	if (ramslice_slice_bytes() != b->slice_bytes)
		return;
	for_each_set_bit(i, b->was_off, b->nr_ids) {
		const struct ramslice_slice *s = ramslice_slice(b->first_id + i);

		if (!s || READ_ONCE(s->state) != RAMSLICE_ONLINE)
			continue;
		/* Pages of the buffer may be in lists of CPUs */
		if (!drained)
			drain_all_pages(s->rz->zone);
		drained = true;
		if (!ramslice_slice_empty(b->first_id + i))
			continue;
		params.id = b->first_id + i;
		params.deadline = jiffies + CLEAR_TIME ?: 1;
		ramslice_offline_one(&params, &outcome);
	}
}

static void ramslice_forget_buffer(struct ramslice_buffer *b)
{
	bitmap_free(b->was_off);
	kfree(b);
}

static void ramslice_rest_again(struct work_struct *work)
{
	struct ramslice_buffer *b = container_of(to_delayed_work(work),
						 struct ramslice_buffer,
						 rest_work);

	if (!ramslice_begin_emptying()) {
		/* Slices were woken for good meanwhile: so may these be */
		if (READ_ONCE(b->rz->woken_by_request) == b->nr_requests)
			ramslice_switch_off(b);
		ramslice_end_emptying();
	} else if (!ramslice_inhibited()) {
		queue_delayed_work(system_unbound_wq, &b->rest_work, REST_DELAY);
		return;
	}
	ramslice_forget_buffer(b);
}

/* --- making one ----------------------------------------------------------------- */

/* Notes which slices of the range are off. Under ramslice_mutex. */
static int ramslice_note_off(struct ramslice_buffer *b, unsigned long pfn)
{
	unsigned long end = pfn + b->nr_pages;
	u32 id;

	bitmap_free(b->was_off);
	b->slice_bytes = ramslice_slice_bytes();
	b->rz = ramslice_zone_of(page_zone(pfn_to_page(pfn)));
	b->nr_requests = READ_ONCE(b->rz->woken_by_request);
	b->first_id = ramslice_geom_first_at(&ramslice_geom, pfn);
	/* None, where a table has a gap */
	b->nr_ids = ramslice_geom_end_at(&ramslice_geom, end - 1) - b->first_id;
	b->was_off = bitmap_zalloc(max(b->nr_ids, 1U), GFP_KERNEL);
	if (!b->was_off)
		return -ENOMEM;
	for_each_slice_touching(id, pfn, end) {
		const struct ramslice_slice *s = ramslice_slice(id);

		if (s && READ_ONCE(s->state) == RAMSLICE_OFFLINE)
			__set_bit(id - b->first_id, b->was_off);
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
static enum ramslice_reason ramslice_clear_slices(const struct ramslice_buffer *b,
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

	for (id = b->first_id; id < b->first_id + b->nr_ids; id++) {
		const struct ramslice_slice *s = ramslice_slice(id);
		enum ramslice_reason reason;

		if (ramslice_is_waited_for())
			return RAMSLICE_REASON_PRESSURE;
		if (!s || READ_ONCE(s->state) != RAMSLICE_ONLINE ||
		    ramslice_slice_empty(id) ||
		    !ramslice_slice_within(id, pfn, pfn + b->nr_pages))
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
static enum ramslice_reason ramslice_take_range(struct ramslice_buffer *b,
						unsigned long pfn, gfp_t gfp)
{
	unsigned long end = pfn + b->nr_pages;
	enum ramslice_reason reason;

	if (ramslice_note_off(b, pfn) || ramslice_reserve_marks(pfn, end))
		return RAMSLICE_REASON_NO_ROOM;
	reason = ramslice_clear_slices(b, pfn);
	if (reason == RAMSLICE_REASON_NONE &&
	    alloc_contig_range(pfn, end, MIGRATE_MOVABLE,
			       (gfp & (GFP_KERNEL | __GFP_ZERO)) | __GFP_NOWARN)) {
		reason = fatal_signal_pending(current) ? RAMSLICE_REASON_SIGNAL :
			 RAMSLICE_REASON_MIGRATION;
		/* It woke them only if nothing was left to move: all but never */
		ramslice_switch_off(b);
	}
	if (reason != RAMSLICE_REASON_NONE) {
		ramslice_unmark_blocks(pfn, end);
		return reason;
	}
	b->pfn = pfn;
	ramslice_mark_blocks(b);
	return RAMSLICE_REASON_NONE;
}

/* The first page frame that a buffer may not have. */
static unsigned long ramslice_end_of(const struct ramslice_contig *want)
{
	return want->end_address ? PHYS_PFN(want->end_address) : ULONG_MAX;
}

/* Tries a zone's ranges, the cheapest first. Under ramslice_mutex. May sleep. */
static enum ramslice_reason ramslice_make_in_zone(struct ramslice_buffer *b,
						  const struct ramslice_contig *want,
						  struct zone *zone)
{
	unsigned long nr_blocks = b->nr_pages >> pageblock_order;
	unsigned long align = max(want->align_pages >> pageblock_order, 1UL);
	unsigned long end = ramslice_end_of(want) >> pageblock_order;
	enum ramslice_reason reason = RAMSLICE_REASON_NO_ROOM;
	struct ramslice_zone *rz = ramslice_zone_of(zone);
	unsigned long until = jiffies + TRY_TIME;
	struct ramslice_range range;
	struct ramslice_ranges r;
	unsigned int tries;

	if (!rz || zone->zone_start_pfn >= ramslice_end_of(want))
		return RAMSLICE_REASON_HOLE;
	drain_all_pages(zone);
	ramslice_scan_zone(rz, RAMSLICE_ANY_AGE, 10 * NSEC_PER_MSEC,
			   jiffies + CLEAR_TIME);
	switch (ramslice_ranges_begin(&r, zone, b->nr_pages)) {
	case 0:
		break;
	case -EINTR:
		return RAMSLICE_REASON_SIGNAL;
	default:
		return RAMSLICE_REASON_NO_ROOM;
	}
	for (tries = 0; tries < MAX_TRIES; tries++) {
		range = ramslice_ranges_cheapest(&r, nr_blocks, align, end);
		if (!range.pfn || range.nr_blocked) {
			/* What the last one that was tried failed of says more */
			if (!tries)
				reason = range.reason;
			break;
		}
		if (!ramslice_has_room(zone, b->nr_pages)) {
			reason = RAMSLICE_REASON_AWAKE_RESERVE;
			break;
		}
		reason = ramslice_take_range(b, range.pfn, want->gfp);
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

static enum ramslice_reason ramslice_make(struct ramslice_buffer *b,
					  const struct ramslice_contig *want)
{
	int nid = want->nid == NUMA_NO_NODE ? numa_mem_id() : want->nid;
	enum ramslice_reason reason = RAMSLICE_REASON_HOLE, found;
	struct zoneref *z;
	struct zone *zone;

	for_each_zone_zonelist_nodemask(zone, z, node_zonelist(nid, want->gfp),
					gfp_zone(want->gfp),
					&cpuset_current_mems_allowed) {
		found = ramslice_make_in_zone(b, want, zone);
		if (found == RAMSLICE_REASON_NONE ||
		    found == RAMSLICE_REASON_SIGNAL)
			return found;
		if (ramslice_is_waited_for())
			return RAMSLICE_REASON_PRESSURE;
		/* That a zone lies beyond the limit says little */
		if (found != RAMSLICE_REASON_HOLE)
			reason = found;
	}
	return reason;
}

/* Becomes the one that empties slices; a request gives up for it. May sleep. */
static enum ramslice_reason ramslice_begin_making(void)
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

static bool ramslice_contig_valid(const struct ramslice_contig *want)
{
	return want->nr_pages && IS_ALIGNED(want->nr_pages, pageblock_nr_pages) &&
	       want->nr_pages <= totalram_pages() &&
	       (!want->align_pages || is_power_of_2(want->align_pages)) &&
	       (want->nid == NUMA_NO_NODE ||
		(want->nid >= 0 && want->nid < MAX_NUMNODES &&
		 node_online(want->nid))) &&
	       (want->gfp & GFP_KERNEL) == GFP_KERNEL &&
	       !(want->gfp & (__GFP_MOVABLE | __GFP_COMP)) && want->owner;
}

/**
 * ramslice_alloc_contig - make a large contiguous buffer
 * @want: what is wanted
 * @reason: set to why it could not be had, RAMSLICE_REASON_NONE if that has nothing
 *	    to do with memory
 *
 * Chooses the cheapest range that is memory of one zone: free, off, or holding
 * pages that move. Pages in use and other buffers are never taken away. Nothing
 * is killed for it. What could not be had leaves slices as they were.
 *
 * Context: process context, may sleep for seconds; no lock that memory reclaim
 * takes.
 * Return: the buffer, to be given to ramslice_free_contig(); -EINVAL if @want is
 * not valid or ramslice is off; -EINTR if the caller has a signal; -ENOMEM if
 * memory of that kind is not to be had, or the caller's control group may not
 * have it (RAMSLICE_REASON_OVER_LIMIT).
 */
struct ramslice_buffer *ramslice_alloc_contig(const struct ramslice_contig *want,
					      enum ramslice_reason *reason)
{
	struct ramslice_buffer *b;

	*reason = RAMSLICE_REASON_NONE;
	if (!ramslice_enabled() || !ramslice_contig_valid(want))
		return ERR_PTR(-EINVAL);
	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return ERR_PTR(-ENOMEM);
	b->nr_pages = want->nr_pages;
	b->owner = want->owner;
	INIT_DELAYED_WORK(&b->rest_work, ramslice_rest_again);

	if (want->gfp & __GFP_ACCOUNT &&
	    ramslice_charge(PFN_PHYS(b->nr_pages), want->gfp, &b->objcg)) {
		*reason = RAMSLICE_REASON_OVER_LIMIT;
		goto refused;
	}
	if (mutex_lock_killable(&ramslice_buffer_mutex)) {
		*reason = RAMSLICE_REASON_SIGNAL;
		goto refused;
	}
	*reason = ramslice_begin_making();
	if (*reason == RAMSLICE_REASON_NONE) {
		*reason = ramslice_make(b, want);
		ramslice_end_emptying();
	}
	mutex_unlock(&ramslice_buffer_mutex);
	if (*reason != RAMSLICE_REASON_NONE)
		goto refused;
	ramslice_enter_buffer(b);
	return b;

refused:
	ramslice_note_refusal(*reason);
	if (b->objcg)
		ramslice_uncharge(b->objcg, PFN_PHYS(b->nr_pages));
	ramslice_forget_buffer(b);
	return ERR_PTR(*reason == RAMSLICE_REASON_SIGNAL ? -EINTR : -ENOMEM);
}
EXPORT_SYMBOL_GPL(ramslice_alloc_contig);

/**
 * ramslice_free_contig - give back a buffer
 * @b: the buffer; the caller has the only reference to each of its pages
 *
 * Slices that were off when it was made go off again a moment later, if they are
 * empty.
 *
 * Context: process context, may sleep.
 */
void ramslice_free_contig(struct ramslice_buffer *b)
{
	unsigned long pfn, end = b->pfn + b->nr_pages;

	ramslice_strike_buffer(b);
	ramslice_unmark_blocks(b->pfn, end);
	for (pfn = b->pfn; pfn < end; pfn += pageblock_nr_pages) {
		free_contig_range(pfn, pageblock_nr_pages);
		cond_resched();
	}
	if (b->objcg)
		ramslice_uncharge(b->objcg, PFN_PHYS(b->nr_pages));
	if (bitmap_empty(b->was_off, b->nr_ids))
		ramslice_forget_buffer(b);
	else
		queue_delayed_work(system_unbound_wq, &b->rest_work, REST_DELAY);
}
EXPORT_SYMBOL_GPL(ramslice_free_contig);

/* Its first page; the others follow, each with a reference of its own. */
struct page *ramslice_buffer_page(const struct ramslice_buffer *b)
{
	return pfn_to_page(b->pfn);
}
EXPORT_SYMBOL_GPL(ramslice_buffer_page);
