// SPDX-License-Identifier: GPL-2.0
/*
 * What pageblocks hold, as they were when they were read last.
 *
 * Nothing counts pages as they come and go. A pageblock is read page by page,
 * without locks and mostly without references, and its summary is kept. Where
 * the allocator takes pages out of its free lists or puts them there, it notes
 * in a byte that the pageblock was touched (ramslice_touch()), and its summary
 * is a guess from then on. Whether all of a pageblock is free can be seen from
 * the head of the free block, so that empty slices are known exactly.
 *
 * A worker for each zone reads what was touched, and the rest little by little:
 * pages are mapped, dirtied and put on LRU lists without a touch.
 *
 * How each counter is read here is its definition:
 *
 *   free		pages of free blocks
 *   lru_anon, lru_file	pages of folios with PG_lru, by PG_swapbacked
 *   anon_mapped	pages of anonymous folios with a mapping of their own
 *			or of the whole folio
 *   file_mapped	the same of all other pages that have one, the vdso's
 *			included
 *   file		pages of folios in a page cache tree; not hugetlb, not
 *			the swap cache
 *   shmem		of these, PG_swapbacked
 *   dirty		of the others, PG_dirty
 *   writeback		pages of folios with PG_writeback
 *   huge		pages on the LRU lists in folios of a pageblock or more
 */

#include <linux/hugetlb.h>
#include <linux/mm_inline.h>
#include <linux/page-flags.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include "../internal.h"
#include "internal.h"
#include "place.h"

/* What the worker may use of a CPU for all zones of a node, in millionths. */
u32 ramslice_scan_ppm = 1000;
/* It works for so long at a time, half of it on what was touched. */
#define SCAN_BURST_NS	NSEC_PER_MSEC
/* What was read later than this ago need not be read again, unless touched. */
#define SCAN_MAX_AGE	(10 * HZ)

/* --- reading --------------------------------------------------------------- */

/**
 * struct ramslice_reading - what a pageblock is found to hold
 * @count: pages by enum ramslice_counter
 * @nr_blocking: pages that can be neither dropped nor moved
 * @blocker: page frame of the first of them
 */
struct ramslice_reading {
	u16 count[RAMSLICE_NR_COUNTERS];
	u16 nr_blocking;
	unsigned long blocker;
};

static enum ramslice_reason ramslice_ask_page(struct page *page)
{
	struct folio *folio = ramslice_get_folio(page);
	enum ramslice_reason reason;

	if (!folio)
		return ramslice_frame_blocks(page);
	reason = ramslice_folio_blocks(folio);
	folio_put(folio);
	return reason;
}

/* Is it so unlike other pages on the LRU lists that it may have to stay? */
static bool ramslice_may_block(struct folio *folio, unsigned long flags)
{
	if (!(flags & BIT(PG_lru)) || flags & BIT(PG_unevictable))
		return true;
#ifdef CONFIG_MEMORY_FAILURE
	if (flags & BIT(PG_hwpoison))
		return true;
#endif
	return flags & BIT(PG_head) ?
	       atomic_read(&folio->_pincount) > 0 :
	       page_ref_count(&folio->page) >= GUP_PIN_COUNTING_BIAS;
}

/* Of a folio's @nr pages, those with a mapping. */
static u16 ramslice_nr_mapped(struct folio *folio, unsigned long flags, u16 nr)
{
	if (!(flags & BIT(PG_head)))
		return atomic_read(&folio->_mapcount) >= 0;
	if (atomic_read(&folio->_entire_mapcount) >= 0)
		return nr;
	return min_t(unsigned int, nr, FOLIO_PAGES_MAPPED &
		     atomic_read(&folio->_nr_pages_mapped));
}

static void ramslice_read_folio(struct ramslice_reading *r, struct folio *folio,
				unsigned long flags, u16 nr)
{
	unsigned long mapping = (unsigned long)READ_ONCE(folio->mapping);
	bool swapbacked = flags & BIT(PG_swapbacked);
	bool typed = page_has_type(&folio->page);

	if (flags & BIT(PG_lru)) {
		r->count[swapbacked ? RAMSLICE_LRU_ANON :
				      RAMSLICE_LRU_FILE] += nr;
		if (nr == pageblock_nr_pages)
			r->count[RAMSLICE_HUGE] += nr;
	}
	if (flags & BIT(PG_writeback))
		r->count[RAMSLICE_WRITEBACK] += nr;
	if (typed)
		return;
	if (mapping && !(mapping & PAGE_MAPPING_FLAGS)) {
		r->count[RAMSLICE_FILE] += nr;
		if (swapbacked)
			r->count[RAMSLICE_SHMEM] += nr;
		else if (flags & BIT(PG_dirty))
			r->count[RAMSLICE_DIRTY] += nr;
	}
	r->count[mapping & PAGE_MAPPING_ANON ? RAMSLICE_ANON_MAPPED :
					       RAMSLICE_FILE_MAPPED] +=
		ramslice_nr_mapped(folio, flags, nr);
}

/*
 * Returns the number of page frames to go on by, at least 1. What is read may
 * become another page at any time, so that everything is read once, and sizes
 * are not believed. Then the pageblock was touched, and is read again.
 */
static unsigned int ramslice_read_page(struct ramslice_reading *r,
				       unsigned long pfn, unsigned int left)
{
	struct page *page = pfn_to_page(pfn);
	struct folio *folio = (struct folio *)page;
	unsigned long flags = READ_ONCE(page->flags);
	unsigned int order, nr;

	if (PageBuddy(page)) {
		order = buddy_order_unsafe(page);
		nr = order <= MAX_PAGE_ORDER ? min(1U << order, left) : 1;
		r->count[RAMSLICE_FREE] += nr;
		return nr;
	}
	/* Read with its head, unless that is in another pageblock */
	if (!PageTail(page)) {
		nr = ramslice_nr_frames(page, left);
		ramslice_read_folio(r, folio, flags, nr);
	} else {
		nr = 1;
		flags = 0;
	}
	if (ramslice_may_block(folio, flags) &&
	    ramslice_ask_page(page) != RAMSLICE_REASON_NONE) {
		if (!r->nr_blocking)
			r->blocker = pfn;
		r->nr_blocking += nr;
	}
	return nr;
}

static void ramslice_read_block(struct ramslice_reading *r, unsigned long start)
{
	unsigned long pfn, end = start + pageblock_nr_pages;

	memset(r, 0, sizeof(*r));
	if (ramslice_block_free(start)) {
		r->count[RAMSLICE_FREE] = pageblock_nr_pages;
		return;
	}
	for (pfn = start; pfn < end; )
		pfn += ramslice_read_page(r, pfn, end - pfn);
}

/* Under scan_mutex. */
static void ramslice_keep(struct ramslice_slice *s, struct ramslice_block *b,
			  const struct ramslice_reading *r)
{
	unsigned int c;

	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++) {
		WRITE_ONCE(s->count[c], s->count[c] + r->count[c] -
					b->count[c]);
		WRITE_ONCE(b->count[c], r->count[c]);
	}
	if (r->nr_blocking)
		WRITE_ONCE(s->blocker, r->blocker);
	WRITE_ONCE(s->nr_blocking,
		   s->nr_blocking + r->nr_blocking - b->nr_blocking);
	WRITE_ONCE(b->nr_blocking, r->nr_blocking);
}

/* --- slices ---------------------------------------------------------------- */

/**
 * ramslice_slice_empty - is all of a slice in the free lists?
 * @id: the slice
 *
 * Context: a lock that keeps the table of slices.
 */
bool ramslice_slice_empty(u32 id)
{
	unsigned long pfn;
	unsigned int n;

	for_each_slice_block(id, n, pfn) {
		if (!pfn_to_online_page(pfn) || !ramslice_block_free(pfn))
			return false;
	}
	return true;
}

/**
 * ramslice_count_slice - the counters of a slice, by its summaries
 * @id: the slice
 * @counters: filled with pages
 */
void ramslice_count_slice(u32 id, u32 counters[RAMSLICE_NR_COUNTERS])
{
	/* Each is written at once, and none is waited for */
	data_race(memcpy(counters, ramslice_slices[id].count,
			 sizeof(ramslice_slices[id].count)));
}

/* Are so many pageblocks of a zone? The rest of a slice may be another zone's. */
static bool ramslice_blocks_have(const struct ramslice_blocks *b,
				 unsigned long first, unsigned int nr)
{
	return first >= b->first && first - b->first + nr <= b->nr;
}

/* Was one of them touched? */
static bool ramslice_any_touched(const struct ramslice_blocks *b,
				 unsigned long first, unsigned int nr)
{
	/* Each byte is written at once, and none is waited for */
	return data_race(memchr_inv(&b->bytes[first - b->first], 0, nr));
}

/* Was any of it touched since it was read? Looks at no page. */
bool ramslice_slice_stale(u32 id)
{
	unsigned int n, nr, nr_blocks = ramslice_geom_nr_blocks(&ramslice_geom, id);
	const struct ramslice_slice *s = &ramslice_slices[id];
	const struct ramslice_blocks *b = s->rz->zone->ramslice_blocks;
	unsigned long pfn = ramslice_geom_block(&ramslice_geom, id, 0);

	if (ramslice_geom_ways(&ramslice_geom) == 1 &&
	    ramslice_blocks_have(b, pfn >> pageblock_order, nr_blocks))
		return ramslice_any_touched(b, pfn >> pageblock_order, nr_blocks);
	for (n = 0; n < nr_blocks; n += nr) {
		nr = ramslice_geom_run(&ramslice_geom, id, n, &pfn);
		if (!ramslice_blocks_have(b, pfn >> pageblock_order, nr)) {
			if (READ_ONCE(s->unreclaimable))
				return true;
		} else if (ramslice_any_touched(b, pfn >> pageblock_order, nr)) {
			return true;
		}
	}
	return false;
}

/*
 * Without reading it: is it free, or what may it be? What has never been read is
 * taken for memory that can be moved. Under scan_mutex.
 */
static void ramslice_glance_block(struct ramslice_slice *s, struct page *page,
				  unsigned long pfn)
{
	struct ramslice_block *b = ramslice_block(pfn);
	struct ramslice_reading r = {};
	unsigned int c;

	if (PageOffline(page)) {
		ramslice_keep(s, b, &r);
		return;
	}
	if (ramslice_block_free(pfn)) {
		r.count[RAMSLICE_FREE] = pageblock_nr_pages;
		ramslice_keep(s, b, &r);
		return;
	}
	if (b->count[RAMSLICE_FREE] < pageblock_nr_pages) {
		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++) {
			if (b->count[c])
				return;
		}
		/* Neither free nor on an LRU list, when it was read */
		if (b->nr_blocking)
			return;
	}
	if (get_pageblock_migratetype(page) == MIGRATE_MOVABLE) {
		r.count[RAMSLICE_LRU_ANON] = pageblock_nr_pages;
		r.count[RAMSLICE_ANON_MAPPED] = pageblock_nr_pages;
	}
	ramslice_keep(s, b, &r);
}

/**
 * ramslice_glance_slice - see which of its pageblocks are free
 * @id: the slice
 *
 * Reads a page or two of each pageblock that was touched.
 *
 * Context: a lock that keeps the table of slices. May sleep.
 */
void ramslice_glance_slice(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	unsigned long pfn;
	unsigned int n;

	if (!ramslice_slice_stale(id))
		return;
	mutex_lock(&s->rz->scan_mutex);
	for_each_slice_block(id, n, pfn) {
		struct page *page = pfn_to_online_page(pfn);

		if (page && ramslice_block_touched(pfn))
			ramslice_glance_block(s, page, pfn);
	}
	mutex_unlock(&s->rz->scan_mutex);
}

/* Under scan_mutex. */
static void ramslice_scan_block(struct ramslice_slice *s, unsigned long pfn)
{
	struct ramslice_reading r;

	ramslice_clear_touched(pfn);
	ramslice_read_block(&r, pfn);
	ramslice_keep(s, ramslice_block(pfn), &r);
}

/**
 * ramslice_scan_slice - read a slice
 * @id: the slice; nothing happens unless it is online
 * @max_age: jiffies; if it was read before that, all of it is read, otherwise
 *	     what was touched
 *
 * Context: a lock that keeps the table of slices. May sleep.
 */
void ramslice_scan_slice(u32 id, unsigned long max_age)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	unsigned long pfn;
	unsigned int n;
	bool all;

	if (!s->rz || READ_ONCE(s->state) != RAMSLICE_ONLINE)
		return;
	all = !READ_ONCE(s->was_read) ||
	      time_after_eq(jiffies, READ_ONCE(s->read_at) + max_age);
	if (!all && !ramslice_slice_stale(id))
		return;
	mutex_lock(&s->rz->scan_mutex);
	/* It may have been emptied and forgotten meanwhile */
	if (READ_ONCE(s->state) != RAMSLICE_ONLINE)
		goto unlock;
	if (all) {
		WRITE_ONCE(s->read_at, jiffies);
		WRITE_ONCE(s->was_read, true);
	}
	for_each_slice_block(id, n, pfn) {
		if (pfn_to_online_page(pfn) &&
		    (all || ramslice_block_touched(pfn))) {
			ramslice_scan_block(s, pfn);
			cond_resched();
		}
	}
unlock:
	mutex_unlock(&s->rz->scan_mutex);
}

static bool ramslice_scan_must_end(unsigned long deadline)
{
	return time_after(jiffies, deadline) || signal_pending(current);
}

/*
 * Its slices from *@next on, *@left of them or all; true if none is left. *@left
 * is what time did not suffice for.
 */
static bool ramslice_scan_from(struct ramslice_zone *rz, u32 *next,
			       u32 *left, unsigned long max_age, u64 limit_ns,
			       unsigned long deadline)
{
	u64 begun = local_clock();
	u32 nr = rz->end_id > rz->first_id ? rz->end_id - rz->first_id : 0;

	for (*left = min(*left, nr); *left; ) {
		u32 id = READ_ONCE(*next);

		if (id < rz->first_id || id >= rz->end_id)
			id = rz->first_id;
		WRITE_ONCE(*next, id + 1);
		(*left)--;
		if (ramslice_slices[id].rz != rz)
			continue;
		ramslice_scan_slice(id, max_age);
		if (local_clock() - begun > limit_ns ||
		    ramslice_scan_must_end(deadline))
			return !*left;
		cond_resched();
	}
	return true;
}

/**
 * ramslice_scan_part - read some of a zone's slices
 * @rz: the zone
 * @left: slices to look at yet, U32_MAX for all; reduced by those looked at
 * @max_age: as for ramslice_scan_slice()
 * @limit_ns: end after so much time, or a slice more
 * @deadline: jiffies; end then, too, or at a signal
 *
 * Goes on where it ended when it was called last.
 *
 * Context: a lock that keeps the table of slices. May sleep.
 * Return: true if none is left.
 */
bool ramslice_scan_part(struct ramslice_zone *rz, u32 *left,
			unsigned long max_age, u64 limit_ns,
			unsigned long deadline)
{
	u32 *next = max_age == RAMSLICE_ANY_AGE ? &rz->scan_changed :
						  &rz->scan_all;

	return ramslice_scan_from(rz, next, left, max_age, limit_ns, deadline);
}

/**
 * ramslice_scan_zone - the same, and see which of the others are free
 * @rz: the zone
 * @max_age: as for ramslice_scan_slice()
 * @limit_ns: of reading
 * @deadline: jiffies; end then, too, or at a signal
 *
 * Context: as for ramslice_scan_part().
 * Return: true if all was read.
 */
bool ramslice_scan_zone(struct ramslice_zone *rz, unsigned long max_age,
			u64 limit_ns, unsigned long deadline)
{
	u32 id, left = U32_MAX;
	struct ramslice_slice *s;

	if (ramslice_scan_part(rz, &left, max_age, limit_ns, deadline))
		return true;
	for_each_zone_slice(rz, id, s) {
		if (ramslice_scan_must_end(deadline))
			break;
		if (READ_ONCE(s->state) == RAMSLICE_ONLINE)
			ramslice_glance_slice(id);
		cond_resched();
	}
	return false;
}

/* Every page of the slice has left the allocator: it holds nothing. May sleep. */
void ramslice_forget_slice(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	const struct ramslice_reading nothing = {};
	unsigned long pfn;
	unsigned int n;

	mutex_lock(&s->rz->scan_mutex);
	for_each_slice_block(id, n, pfn) {
		ramslice_clear_touched(pfn);
		ramslice_keep(s, ramslice_block(pfn), &nothing);
	}
	mutex_unlock(&s->rz->scan_mutex);
}

/* A slice that is new to the table. Nothing is read meanwhile. */
void ramslice_sum_slice(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	unsigned long pfn;
	unsigned int n, c;

	memset(s->count, 0, sizeof(s->count));
	s->nr_blocking = 0;
	for_each_slice_block(id, n, pfn) {
		const struct ramslice_block *b;

		if (!pfn_to_online_page(pfn))
			continue;
		b = ramslice_block(pfn);
		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
			s->count[c] += b->count[c];
		s->nr_blocking += b->nr_blocking;
	}
}

/* Why the page of a slice that was found to block does so; NONE if it has gone. */
static enum ramslice_reason ramslice_ask_blocker(u32 id)
{
	unsigned long pfn = READ_ONCE(ramslice_slices[id].blocker);
	struct page *page = pfn_to_online_page(pfn);

	if (!page || ramslice_geom_slice(&ramslice_geom, pfn) != id ||
	    PageBuddy(page))
		return RAMSLICE_REASON_NONE;
	return ramslice_ask_page(page);
}

/**
 * ramslice_blocker_of - what keeps a slice on, as far as is known
 * @id: the slice, online
 *
 * Reads one page, or if that has gone, pageblocks that had such pages, up to the
 * first that still does.
 *
 * Context: a lock that keeps the table of slices. May sleep.
 * Return: the reason, or RAMSLICE_REASON_NONE if nothing was found to block, or
 * what did no longer does.
 */
enum ramslice_reason ramslice_blocker_of(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	enum ramslice_reason reason;
	unsigned long pfn;
	unsigned int n;

	if (!READ_ONCE(s->nr_blocking))
		return RAMSLICE_REASON_NONE;
	reason = ramslice_ask_blocker(id);
	if (reason != RAMSLICE_REASON_NONE)
		return reason;

	mutex_lock(&s->rz->scan_mutex);
	for_each_slice_block(id, n, pfn) {
		if (reason != RAMSLICE_REASON_NONE)
			break;
		if (!pfn_to_online_page(pfn) || !ramslice_block(pfn)->nr_blocking)
			continue;
		ramslice_scan_block(s, pfn);
		if (ramslice_block(pfn)->nr_blocking)
			reason = ramslice_ask_blocker(id);
		cond_resched();
	}
	mutex_unlock(&s->rz->scan_mutex);
	return reason;
}

/* --- the worker ------------------------------------------------------------ */

/* How long to pause after @spent_ns of work, for the zone's part of the share. */
static unsigned long ramslice_scan_pause(const struct ramslice_zone *rz,
					 u64 spent_ns)
{
	u64 node = node_present_pages(zone_to_nid(rz->zone));
	u64 ppm = READ_ONCE(ramslice_scan_ppm) * (u64)rz->zone->present_pages;

	ppm = max(div64_u64(ppm, max(node, 1ULL)), 1ULL);
	return max(nsecs_to_jiffies(div64_u64(spent_ns * USEC_PER_SEC, ppm)),
		   HZ / 10UL);
}

static void ramslice_scan(struct work_struct *work)
{
	struct ramslice_zone *rz = container_of(to_delayed_work(work),
						struct ramslice_zone,
						scan_work);
	unsigned long deadline = jiffies + HZ;
	u64 begun = local_clock(), spent;
	u32 left = U32_MAX;

	if (!READ_ONCE(ramslice_scan_ppm)) {
		queue_delayed_work(system_unbound_wq, &rz->scan_work, HZ);
		return;
	}
	down_read(&ramslice_table_sem);
	ramslice_scan_from(rz, &rz->scan_changed, &left, RAMSLICE_ANY_AGE,
			   SCAN_BURST_NS / 2, deadline);
	left = U32_MAX;
	spent = local_clock() - begun;
	/* Not at once again where there is little */
	ramslice_scan_from(rz, &rz->scan_all, &left, SCAN_MAX_AGE,
			   SCAN_BURST_NS - min(spent, SCAN_BURST_NS / 2),
			   deadline);
	up_read(&ramslice_table_sem);
	ramslice_place_refresh(rz);
	queue_delayed_work(system_unbound_wq, &rz->scan_work,
			   ramslice_scan_pause(rz, local_clock() - begun));
}

/* For a zone that appears. It does not wake a CPU that sleeps. */
void ramslice_scan_begin(struct ramslice_zone *rz)
{
	mutex_init(&rz->scan_mutex);
	INIT_DEFERRABLE_WORK(&rz->scan_work, ramslice_scan);
	queue_delayed_work(system_unbound_wq, &rz->scan_work, HZ);
}
