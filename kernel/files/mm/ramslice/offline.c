// SPDX-License-Identifier: GPL-2.0
/*
 * Emptying one slice and switching it off (Algorithm 3.1).
 *
 * Isolation is transient. Once every page frame of the slice is proved to be
 * free, its blocks leave the buddy allocator, their pages become PageOffline
 * and the blocks get their migrate types back. A failure before that leaves
 * the slice online with every page usable.
 */

#include <linux/memory_hotplug.h>
#include <linux/migrate.h>
#include <linux/page-isolation.h>
#include <linux/pagemap.h>
#include <linux/swap.h>
#include <trace/events/ramslice.h>
#include "../internal.h"
#include "internal.h"
#include "cold.h"
#include "request.h"
#include "place.h"

/* Walks over a slice before giving up on pages that stay. */
#define MAX_PASSES	8
/* Pageblocks that are isolated in one go: so long, nothing else runs here. */
#define MAX_ISOLATED	8U

/**
 * ramslice_awake_reserve - pages of a zone that stay awake
 * @zone: the zone
 *
 * Enough that allocations which cannot wait find memory while slices wake:
 * the high watermark, below which waking starts, the reserve kept from
 * allocations that could go to higher zones, and a chunk.
 */
unsigned long ramslice_awake_reserve(struct zone *zone)
{
	unsigned long lowmem = 0;
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++)
		lowmem = max_t(unsigned long, lowmem, zone->lowmem_reserve[i]);
	return high_wmark_pages(zone) + lowmem + RAMSLICE_CHUNK_PAGES;
}

/**
 * ramslice_spares - can a zone give up free pages without touching the reserve?
 * @zone: the zone
 * @nr_pages: how many
 */
bool ramslice_spares(struct zone *zone, unsigned long nr_pages)
{
	/* A chunk more, so that the next allocations do not wake it again */
	return zone_watermark_ok(zone, 0, nr_pages + RAMSLICE_CHUNK_PAGES +
				 ramslice_awake_reserve(zone), 0, 0);
}

/* Why the run must end now, if it must. */
static int ramslice_check_run(struct ramslice_run *run)
{
	enum ramslice_reason reason;

	reason = READ_ONCE(run->rz->pressure) ? RAMSLICE_REASON_PRESSURE :
						ramslice_why_end(run->params);
	if (reason == RAMSLICE_REASON_NONE)
		return 0;
	run->reason = reason;
	return ramslice_status_of(reason);
}

/* Gives the first @nr blocks back with the migrate type that each had. */
static void ramslice_undo_isolation(u32 id, unsigned int nr)
{
	unsigned long pfn;
	unsigned int n;

	for_each_slice_block(id, n, pfn) {
		if (n == nr)
			break;
		undo_isolate_page_range(pfn, pfn + pageblock_nr_pages,
					ramslice_block(pfn)->saved_type);
	}
}

/*
 * Of @nr neighbouring blocks, those that have the migrate type of the first, as
 * far as there is no other between. It is noted in each.
 */
static unsigned int ramslice_count_alike(unsigned long pfn, unsigned int nr,
					 int type)
{
	unsigned int n = 0;

	do {
		ramslice_block(pfn)->saved_type = type;
		pfn += pageblock_nr_pages;
	} while (++n < nr && get_pageblock_migratetype(pfn_to_page(pfn)) == type);
	return n;
}

/* Why such blocks could not be isolated; counts those before that one. */
static enum ramslice_reason ramslice_why_not_isolated(struct ramslice_run *run,
						      unsigned long pfn,
						      unsigned int nr)
{
	enum ramslice_reason reason = RAMSLICE_REASON_UNMOVABLE;

	for (; nr-- && reason == RAMSLICE_REASON_UNMOVABLE;
	     pfn += pageblock_nr_pages) {
		reason = ramslice_find_blocker(pfn);
		run->work.blocks_isolated++;
	}
	return reason;
}

/*
 * Neighbours of one type go together: each call reads the pages around its ends
 * to find what reaches into the range.
 */
static int ramslice_isolate(struct ramslice_run *run, u32 id)
{
	unsigned int n, nr;
	unsigned long pfn;

	for (n = 0; (nr = ramslice_geom_run(&ramslice_geom, id, n, &pfn));
	     n += nr) {
		int type = get_pageblock_migratetype(pfn_to_page(pfn));

		run->reason = ramslice_type_blocks(type);
		if (run->reason != RAMSLICE_REASON_NONE)
			goto undo;
		nr = ramslice_count_alike(pfn, min(nr, MAX_ISOLATED), type);
		/*
		 * Flags 0: unlike MEMORY_OFFLINE, this makes no exception for
		 * poisoned pages and the PageOffline pages of other owners.
		 */
		if (start_isolate_page_range(pfn, pfn + nr * pageblock_nr_pages,
					     type, 0, GFP_KERNEL)) {
			run->reason = ramslice_why_not_isolated(run, pfn, nr);
			goto undo;
		}
		run->work.blocks_isolated += nr;
		cond_resched();
	}
	return 0;

undo:
	ramslice_undo_isolation(id, n);
	return -EBUSY;
}

/*
 * One walk: drops what can be dropped and migrates the rest in bites.
 * Returns 0 even if pages stay: the next walk meets them again.
 */
static int ramslice_clear_pass(struct ramslice_run *run, u32 id)
{
	unsigned long start, pfn, nr_pages = 0;
	unsigned int n, nr_folios = 0;
	LIST_HEAD(list);
	int err = 0;

	for_each_slice_block(id, n, start) {
		if (!ramslice_hugetlb_page(start))
			continue;
		ramslice_hugetlb_clear(start, true, &run->work);
		err = ramslice_check_run(run);
		if (err)
			return err;
	}
	for_each_slice_block(id, n, start) {
		unsigned long end = start + pageblock_nr_pages;

		/* Met again in the next walk, if it stays */
		if (ramslice_hugetlb_page(start)) {
			ramslice_hugetlb_clear(start, false, &run->work);
			err = ramslice_check_run(run);
			if (err)
				goto out;
			continue;
		}
		for (pfn = start; pfn < end; pfn++) {
			struct page *page = pfn_to_page(pfn);
			enum ramslice_reason reason;
			struct folio *folio;
			unsigned long nr;

			if (PageBuddy(page)) {
				unsigned int order = buddy_order_unsafe(page);

				if (order && order <= MAX_PAGE_ORDER)
					pfn += (1UL << order) - 1;
				continue;
			}
			folio = ramslice_get_folio(page);
			if (!folio) {
				reason = ramslice_frame_blocks(page);
				if (reason == RAMSLICE_REASON_NONE)
					continue;
				run->reason = reason;
				err = -EBUSY;
				goto out;
			}

			nr = folio_nr_pages(folio);
			reason = ramslice_folio_blocks(folio);
			if (reason != RAMSLICE_REASON_NONE) {
				folio_put(folio);
				run->reason = reason;
				err = -EBUSY;
				goto out;
			}
			if (folio_test_lru(folio) &&
			    ramslice_drop_folio(folio, run->target.cache)) {
				run->work.pages_dropped += nr;
			} else if (ramslice_add_to_run(run, folio)) {
				nr_pages++;
				nr_folios++;
				/* With the reference */
				goto batch;
			} else if (isolate_folio_to_list(folio, &list)) {
				if (run->target.cache == RAMSLICE_CACHE_AUTO)
					ramslice_age_folio(folio);
				nr_pages += nr;
				nr_folios++;
			}
			folio_put(folio);
			pfn += nr - 1;
batch:
			if (nr_folios >= run->bite_folios) {
				ramslice_migrate(run, &list, nr_pages,
						 nr_folios);
				nr_pages = 0;
				nr_folios = 0;
				err = ramslice_check_run(run);
				if (err)
					goto out;
				if (run->target.dry && !run->target.nr_free) {
					run->reason = RAMSLICE_REASON_NO_ROOM;
					err = -ENOSPC;
					goto out;
				}
			}
		}
		err = ramslice_check_run(run);
		if (err)
			goto out;
		cond_resched();
	}
	ramslice_migrate(run, &list, nr_pages, nr_folios);
	return 0;

out:
	ramslice_forget_runs(run);
	if (!list_empty(&list))
		putback_movable_pages(&list);
	return err;
}

/* Why pages did not move, after all attempts. */
static enum ramslice_reason ramslice_why_stuck(u32 id)
{
	enum ramslice_reason reason = RAMSLICE_REASON_MIGRATION;
	unsigned long start, pfn;
	unsigned int n;

	for_each_slice_block(id, n, start) {
		if (ramslice_hugetlb_page(start))
			return RAMSLICE_REASON_HUGETLB;
		for (pfn = start; pfn < start + pageblock_nr_pages; pfn++) {
			struct page *page = pfn_to_page(pfn);
			bool writeback;
			struct folio *folio;

			if (PageBuddy(page))
				continue;
			folio = ramslice_get_folio(page);
			if (!folio)
				continue;
			writeback = folio_test_writeback(folio);
			if (folio_test_lru(folio) &&
			    ramslice_folio_extra_refs(folio))
				reason = RAMSLICE_REASON_PINNED;
			folio_put(folio);
			if (writeback)
				return RAMSLICE_REASON_WRITEBACK;
		}
		cond_resched();
	}
	return reason;
}

/* A while, but not past the deadline: longer for a disk than for a CPU. */
static void ramslice_wait_for_stuck(struct ramslice_run *run, u32 id)
{
	bool disk = ramslice_why_stuck(id) == RAMSLICE_REASON_WRITEBACK;
	long left = run->params->deadline - jiffies;

	/* No time for a tick: what is left is for another pass */
	if (ramslice_left_ns(run->params) < TICK_NSEC)
		return;
	schedule_timeout_interruptible(clamp(left, 1L,
					     disk ? HZ / 10 : HZ / 50 + 1L));
}

static int ramslice_clear(struct ramslice_run *run, u32 id)
{
	int pass, err;

	for (pass = 0; pass < MAX_PASSES; pass++) {
		u64 before = run->work.pages_migrated + run->work.pages_dropped;

		err = ramslice_clear_pass(run, id);
		if (err)
			return err;

		/* What was freed meanwhile may be in per-CPU lists */
		if (!ramslice_slice_empty(id) &&
		    !ramslice_drain_zone(run->rz->zone, run->params))
			goto late;
		if (ramslice_slice_empty(id))
			return 0;

		if (run->target.dry && !run->target.nr_free) {
			run->reason = RAMSLICE_REASON_NO_ROOM;
			return -ENOSPC;
		}
		/* Nothing moved */
		if (before == run->work.pages_migrated +
			      run->work.pages_dropped) {
			if (!ramslice_drain_lru(run->params))
				goto late;
			if (pass >= 2)
				ramslice_wait_for_stuck(run, id);
		}
		err = ramslice_check_run(run);
		if (err)
			return err;
	}
	run->reason = ramslice_why_stuck(id);
	return -EBUSY;

late:
	/* Not stuck: that would have the slice left alone */
	run->reason = RAMSLICE_REASON_DEADLINE;
	return -ETIMEDOUT;
}

/* Is every page frame of the slice free and isolated? */
static bool ramslice_isolated_free(u32 id)
{
	unsigned long pfn;
	unsigned int n, nr;

	for_each_slice_chunk(id, n, nr, pfn) {
		if (test_pages_isolated(pfn, pfn + nr * pageblock_nr_pages, 0))
			return false;
		cond_resched();
	}
	return true;
}

/*
 * Ends the isolation of blocks that have left the free lists: nothing is to be
 * moved between these, for which undo_isolate_page_range() reads every page.
 */
static void ramslice_restore_types(u32 id)
{
	struct zone *zone = ramslice_slices[id].rz->zone;
	unsigned long pfn;
	unsigned int n;

	for_each_slice_block(id, n, pfn) {
		spin_lock_irq(&zone->lock);
		set_pageblock_migratetype(pfn_to_page(pfn),
					  ramslice_block(pfn)->saved_type);
		zone->nr_isolate_pageblock--;
		spin_unlock_irq(&zone->lock);
	}
}

/* From isolated to PageOffline, or, if that fails, to online. */
static int ramslice_take(struct ramslice_run *run, u32 id)
{
	struct zone *zone = run->rz->zone;
	unsigned int n, nr, taken = 0;
	unsigned long pfn;

	/* Readers of memory by address (kcore) skip it from here on */
	page_offline_begin();
	for_each_slice_chunk(id, n, nr, pfn) {
		if (!ramslice_take_chunk(zone, pfn, nr))
			break;
		taken = n + nr;
		cond_resched();
	}
	page_offline_end();
	if (taken == ramslice_geom_nr_blocks(&ramslice_geom, id)) {
		ramslice_restore_types(id);
		return 0;
	}

	ramslice_undo_isolation(id, ramslice_geom_nr_blocks(&ramslice_geom, id));
	for_each_slice_chunk(id, n, nr, pfn) {
		if (n >= taken)
			break;
		ramslice_give_chunk(zone, pfn, nr);
	}
	run->reason = RAMSLICE_REASON_MIGRATION;
	return -EBUSY;
}

static void ramslice_begin_slice(struct ramslice_run *run, u32 id)
{
	spin_lock_irq(&ramslice_lock);
	WRITE_ONCE(run->rz->pressure, false);
	WRITE_ONCE(run->rz->emptying,
		   ramslice_set_state(id, RAMSLICE_EMPTYING));
	spin_unlock_irq(&ramslice_lock);
}

static void ramslice_finish_emptying(struct ramslice_run *run, u32 id,
				     enum ramslice_state state)
{
	spin_lock_irq(&ramslice_lock);
	WRITE_ONCE(run->rz->emptying, false);
	if (state == RAMSLICE_QUARANTINED)
		ramslice_lose(id);
	WARN_ON_ONCE(!ramslice_set_state(id, state));
	spin_unlock_irq(&ramslice_lock);
	/* Allocations that wait for the isolated pages */
	wake_up_all(&ramslice_wait);
}

/**
 * ramslice_offline_slice - empty a slice and switch it off
 * @run: the request; its target search has been set up
 * @id: the slice, found to be reclaimable and worth its price
 *
 * With @stays_on of the request, it stays online, empty for a moment.
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: 0, or with @run->reason set and the slice online: -EBUSY if a page
 * stays, -ENOSPC if destinations are full, -EAGAIN if memory was wanted
 * meanwhile, -EINTR, -ETIMEDOUT, or -EIO if the power driver refused. If it
 * did not answer, the slice is quarantined.
 */
int ramslice_offline_slice(struct ramslice_run *run, u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	u8 power_state = 0;
	int err;

	lockdep_assert_held(&ramslice_mutex);

	ramslice_begin_slice(run, id);
	if (READ_ONCE(s->state) != RAMSLICE_EMPTYING) {
		run->reason = RAMSLICE_REASON_STATE;
		return -EBUSY;
	}

	err = ramslice_isolate(run, id);
	if (err)
		goto online;

	run->target.source = id;
	if (!ramslice_slice_empty(id)) {
		ramslice_drain_zone(run->rz->zone, run->params);
		err = ramslice_clear(run, id);
		if (err)
			goto undo;
	}

	/* The allocator's own view has the last word */
	err = -EBUSY;
	if (!ramslice_isolated_free(id)) {
		run->reason = RAMSLICE_REASON_MIGRATION;
		goto undo;
	}
	err = ramslice_check_run(run);
	if (err || run->params->stays_on)
		goto undo;

	err = ramslice_take(run, id);
	if (err)
		goto online;
	ramslice_forget_slice(id);

	err = ramslice_strict_split(id);
	if (err) {
		ramslice_give_back(id);
		run->reason = RAMSLICE_REASON_NO_ROOM;
		goto online;
	}
	ramslice_strict_unmap(id, true);
	err = ramslice_call_off(id, &power_state);
	/* The driver was called, unless too many of its calls hang */
	if (err != -EBUSY)
		ramslice_rest_forget(id);
	if (err == -ETIMEDOUT) {
		/* It may be on or off */
		run->target.source = RAMSLICE_NO_ID;
		run->reason = RAMSLICE_REASON_POWER;
		ramslice_finish_emptying(run, id, RAMSLICE_QUARANTINED);
		return -EIO;
	}
	if (err) {
		if (ramslice_power_unmaps())
			ramslice_strict_map(id);
		ramslice_give_back(id);
		run->reason = RAMSLICE_REASON_POWER;
		err = -EIO;
		goto online;
	}
	ramslice_strict_unmap(id, false);
	ramslice_place_forget_types(id);
	s->power_state = power_state;
	run->target.source = RAMSLICE_NO_ID;
	ramslice_finish_emptying(run, id, RAMSLICE_OFFLINE);
	return 0;

undo:
	ramslice_undo_isolation(id, ramslice_geom_nr_blocks(&ramslice_geom, id));
online:
	run->target.source = RAMSLICE_NO_ID;
	ramslice_finish_emptying(run, id, RAMSLICE_ONLINE);
	return err;
}
