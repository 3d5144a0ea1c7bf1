// SPDX-License-Identifier: GPL-2.0
/*
 * Are the counters right? Recounts every pageblock from page flags and mappings,
 * with user space frozen and batches drained, and compares.
 *
 * How each counter is derived here is its definition:
 *
 *   free		pages covered by a PageBuddy head
 *   lru_anon, lru_file	pages of folios with PG_lru, by PG_swapbacked
 *   anon_mapped	pages of anonymous folios with a mapping of their own
 *			or of the whole folio
 *   file_mapped	the same of all other pages that have one, the vdso's
 *			included
 *   file		pages of folios in a page cache tree; not hugetlb, not
 *			the swap cache
 *   shmem		of these, PG_swapbacked
 *   dirty		of these, PG_dirty, where the mapping writes back
 *   writeback		pages of folios with PG_writeback
 *   huge		pages on the LRU lists in folios of a pageblock or more
 */

#include <linux/backing-dev.h>
#include <linux/delay.h>
#include <linux/freezer.h>
#include <linux/mm_inline.h>
#include <linux/page-flags.h>
#include <linux/pagemap.h>
#include <linux/seq_file.h>
#include <linux/suspend.h>
#include <linux/swap.h>
#include "../internal.h"
#include "internal.h"

/* A difference must last this many recounts, 10 ms apart. */
#define VERIFY_TRIES	50
#define VERIFY_REPORTS	20

static int ramslice_count_free(unsigned long start)
{
	struct zone *zone = page_zone(pfn_to_page(start));
	unsigned long pfn, end = start + pageblock_nr_pages;
	int nr = 0;

	spin_lock_irq(&zone->lock);
	for (pfn = start; pfn < end; ) {
		struct page *page = pfn_to_page(pfn);
		unsigned long n = 1;

		if (PageBuddy(page)) {
			n = min(1UL << buddy_order(page), end - pfn);
			nr += n;
		} else if (pfn == start && is_free_buddy_page(page)) {
			/* The tail of a block that began before */
			n = pageblock_nr_pages;
			nr += n;
		}
		pfn += n;
	}
	spin_unlock_irq(&zone->lock);
	return nr;
}

static bool ramslice_page_is_mapped(struct folio *folio, struct page *page)
{
	if (page_has_type(page))
		return false;
	if (atomic_read(&page->_mapcount) >= 0)
		return true;
	return folio_test_large(folio) && folio_entire_mapcount(folio);
}

static bool ramslice_in_page_cache(struct folio *folio)
{
	return !folio_test_hugetlb(folio) && !folio_test_slab(folio) &&
	       !folio_test_anon(folio) && !__folio_test_movable(folio) &&
	       !page_has_type(&folio->page) && READ_ONCE(folio->mapping);
}

static void ramslice_count_folio(struct folio *folio,
				 int count[RAMSLICE_NR_COUNTERS])
{
	int i, nr = folio_nr_pages(folio);

	if (folio_test_lru(folio)) {
		count[folio_is_file_lru(folio) ? RAMSLICE_LRU_FILE :
						 RAMSLICE_LRU_ANON] += nr;
		if (folio_order(folio) >= pageblock_order)
			count[RAMSLICE_HUGE] += nr;
	}
	if (folio_test_writeback(folio))
		count[RAMSLICE_WRITEBACK] += nr;
	if (ramslice_in_page_cache(folio)) {
		count[RAMSLICE_FILE] += nr;
		if (folio_test_swapbacked(folio))
			count[RAMSLICE_SHMEM] += nr;
		else if (folio_test_dirty(folio) &&
			 mapping_can_writeback(folio->mapping))
			count[RAMSLICE_DIRTY] += nr;
	}
	if (folio_test_hugetlb(folio))
		return;
	for (i = 0; i < nr; i++) {
		if (ramslice_page_is_mapped(folio, folio_page(folio, i)))
			count[folio_test_anon(folio) ? RAMSLICE_ANON_MAPPED :
						RAMSLICE_FILE_MAPPED]++;
	}
}

static void ramslice_recount(unsigned long start,
			     int count[RAMSLICE_NR_COUNTERS])
{
	unsigned long pfn, end = start + pageblock_nr_pages;

	memset(count, 0, RAMSLICE_NR_COUNTERS * sizeof(*count));
	count[RAMSLICE_FREE] = ramslice_count_free(start);
	if (count[RAMSLICE_FREE] == pageblock_nr_pages)
		return;

	for (pfn = start; pfn < end; ) {
		struct page *page = pfn_to_page(pfn);
		unsigned long n = 1;
		struct folio *folio;

		folio = folio_get_nontail_page(page);
		if (folio) {
			n = folio_nr_pages(folio);
			ramslice_count_folio(folio, count);
			folio_put(folio);
		}
		pfn += n;
	}
}

/* Index of a counter that differs, or RAMSLICE_NR_COUNTERS. */
static unsigned int ramslice_compare(unsigned long pfn, const int *count)
{
	struct ramslice_block *block = ramslice_block(pfn);
	unsigned int c;

	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++) {
		if (atomic_read(&block->count[c]) != count[c])
			break;
	}
	return c;
}

static bool ramslice_verify_block(struct seq_file *m, unsigned long pfn,
				  unsigned long *nr_bad)
{
	int count[RAMSLICE_NR_COUNTERS];
	unsigned int try, c;

	for (try = 0; try < VERIFY_TRIES; try++) {
		if (try) {
			lru_add_drain_all();
			drain_all_pages(NULL);
			fsleep(10 * USEC_PER_MSEC);
		}
		ramslice_recount(pfn, count);
		if (ramslice_compare(pfn, count) == RAMSLICE_NR_COUNTERS)
			return try;
	}
	if ((*nr_bad)++ >= VERIFY_REPORTS)
		return true;
	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++) {
		int kept = atomic_read(&ramslice_block(pfn)->count[c]);

		if (kept != count[c])
			seq_printf(m, "differs: pfn %lu counter %u kept %d counted %d\n",
				   pfn, c, kept, count[c]);
	}
	return true;
}

#ifdef CONFIG_FREEZER
/**
 * ramslice_verify - compare all counters with what they count
 * @m: gets a line for each difference and one with the verdict
 *
 * Context: May sleep; takes ramslice_mutex and freezes user space meanwhile.
 * Return: 0, or -EBUSY if user space does not freeze.
 */
int ramslice_verify(struct seq_file *m)
{
	unsigned long nr_blocks = 0, nr_retried = 0, nr_bad = 0;
	unsigned int sleep_flags;
	struct zone *zone;
	int err;

	/* A request under way would take the freezer for a signal */
	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	mutex_unlock(&ramslice_mutex);
	/* One freezer at a time: others are suspend, and another of these */
	sleep_flags = lock_system_sleep();
	err = freeze_processes();
	if (err) {
		unlock_system_sleep(sleep_flags);
		return -EBUSY;
	}
	/*
	 * Not around the freezer, which takes cpu_hotplug_lock: memory hotplug
	 * holds that when it comes for the mutex. No task is frozen with it.
	 */
	mutex_lock(&ramslice_mutex);
	lru_add_drain_all();
	drain_all_pages(NULL);

	for_each_populated_zone(zone) {
		unsigned long pfn = pageblock_start_pfn(zone->zone_start_pfn);

		for (; pfn < zone_end_pfn(zone); pfn += pageblock_nr_pages) {
			struct page *page = pfn_to_online_page(pfn);

			if (!page || page_zone(page) != zone)
				continue;
			nr_blocks++;
			nr_retried += ramslice_verify_block(m, pfn, &nr_bad);
			cond_resched();
		}
	}
	mutex_unlock(&ramslice_mutex);
	thaw_processes();
	unlock_system_sleep(sleep_flags);

	seq_printf(m, "%s: %lu pageblocks, %lu recounted, %lu differ\n",
		   nr_bad ? "FALSE" : "true", nr_blocks, nr_retried, nr_bad);
	return 0;
}
#else
int ramslice_verify(struct seq_file *m)
{
	return -EOPNOTSUPP;
}
#endif
