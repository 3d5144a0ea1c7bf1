// SPDX-License-Identifier: GPL-2.0
/*
 * Large contiguous buffers for drivers and user space, of memory that is not set
 * aside for them: of the range that costs least (take.c).
 *
 * The pages are split, with one reference each. Their control group is charged
 * before anything is moved. Slices that were off go off again a while after the
 * buffer is released, unless another request has taken care of them by then.
 *
 * ramslice_buffer_lock, for the list and the books, is taken with no other lock of
 * ours inside.
 */

#include <linux/bitmap.h>
#include <linux/cpuset.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/xarray.h>
#include "../internal.h"
#include "internal.h"
#include "buffer.h"
#include "request.h"

/* Slices that were off go off again so long after, unless they are taken again. */
#define REST_DELAY	HZ

/**
 * struct ramslice_buffer - a buffer
 * @node: in ramslice_buffers
 * @take: its range, and what was off there
 * @owner: who has it, for people
 * @objcg: the control group that is charged, or NULL
 * @rest_work: switches these off again
 */
struct ramslice_buffer {
	struct list_head node;
	struct ramslice_take take;
	const char *owner;
	struct obj_cgroup *objcg;
	struct delayed_work rest_work;
};

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
		seq_printf(m, "%#llx %llu %s\n", (u64)PFN_PHYS(b->take.pfn),
			   (u64)PFN_PHYS(b->take.nr_pages), b->owner);
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
	ramslice_books.nr_pages += b->take.nr_pages;
	spin_unlock(&ramslice_buffer_lock);
}

static void ramslice_strike_buffer(struct ramslice_buffer *b)
{
	spin_lock(&ramslice_buffer_lock);
	list_del(&b->node);
	ramslice_books.nr--;
	ramslice_books.nr_pages -= b->take.nr_pages;
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

static void ramslice_mark_blocks(struct ramslice_buffer *b, unsigned long pfn,
				 unsigned long end)
{
	for (; pfn < end; pfn += pageblock_nr_pages)
		xa_store(&ramslice_buffer_blocks, pfn >> pageblock_order, b,
			 GFP_NOWAIT);
}

/* --- its end ------------------------------------------------------------------- */

static void ramslice_forget_buffer(struct ramslice_buffer *b)
{
	bitmap_free(b->take.was_off);
	kfree(b);
}

static void ramslice_rest_again(struct work_struct *work)
{
	struct ramslice_buffer *b = container_of(to_delayed_work(work),
						 struct ramslice_buffer,
						 rest_work);

	if (!ramslice_begin_emptying()) {
		/* Slices were woken for good meanwhile: so may these be */
		if (READ_ONCE(b->take.rz->woken_by_request) ==
		    b->take.nr_requests)
			ramslice_take_switch_off(&b->take);
		ramslice_end_emptying();
	} else if (!ramslice_inhibited()) {
		queue_delayed_work(system_unbound_wq, &b->rest_work, REST_DELAY);
		return;
	}
	ramslice_forget_buffer(b);
}

/* --- making one ----------------------------------------------------------------- */

/* What a buffer does with its range: see struct ramslice_take. */
static int ramslice_take_buffer(struct ramslice_take *t, unsigned long pfn)
{
	struct ramslice_buffer *b = container_of(t, struct ramslice_buffer, take);
	unsigned long end = pfn + t->nr_pages;
	int err = ramslice_reserve_marks(pfn, end);

	if (err)
		return err;
	err = alloc_contig_range(pfn, end, MIGRATE_MOVABLE, t->gfp);
	if (err)
		ramslice_unmark_blocks(pfn, end);
	else
		ramslice_mark_blocks(b, pfn, end);
	return err;
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
		found = ramslice_take_in_zone(&b->take, zone);
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
	b->take.nr_pages = want->nr_pages;
	b->take.align_pages = want->align_pages;
	b->take.end_pfn = want->end_address ? PHYS_PFN(want->end_address) :
					      ULONG_MAX;
	b->take.gfp = (want->gfp & (GFP_KERNEL | __GFP_ZERO)) | __GFP_NOWARN;
	b->take.take = ramslice_take_buffer;
	b->owner = want->owner;
	INIT_DELAYED_WORK(&b->rest_work, ramslice_rest_again);

	if (want->gfp & __GFP_ACCOUNT &&
	    ramslice_charge(PFN_PHYS(b->take.nr_pages), want->gfp, &b->objcg)) {
		*reason = RAMSLICE_REASON_OVER_LIMIT;
		goto refused;
	}
	*reason = ramslice_begin_taking();
	if (*reason == RAMSLICE_REASON_NONE) {
		*reason = ramslice_make(b, want);
		ramslice_end_taking();
	}
	if (*reason != RAMSLICE_REASON_NONE)
		goto refused;
	ramslice_enter_buffer(b);
	return b;

refused:
	ramslice_note_refusal(*reason);
	if (b->objcg)
		ramslice_uncharge(b->objcg, PFN_PHYS(b->take.nr_pages));
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
	unsigned long pfn, end = b->take.pfn + b->take.nr_pages;

	ramslice_strike_buffer(b);
	ramslice_unmark_blocks(b->take.pfn, end);
	for (pfn = b->take.pfn; pfn < end; pfn += pageblock_nr_pages) {
		free_contig_range(pfn, pageblock_nr_pages);
		cond_resched();
	}
	if (b->objcg)
		ramslice_uncharge(b->objcg, PFN_PHYS(b->take.nr_pages));
	if (bitmap_empty(b->take.was_off, b->take.nr_ids))
		ramslice_forget_buffer(b);
	else
		queue_delayed_work(system_unbound_wq, &b->rest_work, REST_DELAY);
}
EXPORT_SYMBOL_GPL(ramslice_free_contig);

/* Its first page; the others follow, each with a reference of its own. */
struct page *ramslice_buffer_page(const struct ramslice_buffer *b)
{
	return pfn_to_page(b->take.pfn);
}
EXPORT_SYMBOL_GPL(ramslice_buffer_page);
