// SPDX-License-Identifier: GPL-2.0
/*
 * Page frames leave the allocator when their slice goes offline, and come back
 * when it wakes.
 *
 * While they are away they are PageOffline and have no reference. For page owner,
 * allocation tags and KASAN, and for free memory that is poisoned, zeroed or not
 * mapped, they are pages that were allocated and are freed again.
 */

#include <linux/alloc_tag.h>
#include <linux/kasan.h>
#include <linux/mm.h>
#include <linux/page_owner.h>
#include <linux/page_table_check.h>
#include <linux/pgalloc_tag.h>
#include "../internal.h"
#include "../page_reporting.h"
#include "internal.h"

/**
 * ramslice_prep_pages - what the allocator does to pages that it hands out
 * @page: the first
 * @order: of the block that was taken from the free lists
 *
 * As post_alloc_hook() does, but without init_on_alloc's zeroes: contents are
 * lost when power goes, or written over by migration.
 */
void ramslice_prep_pages(struct page *page, unsigned int order)
{
	unsigned int i;

	set_page_private(page, 0);
	arch_alloc_page(page, order);
	debug_pagealloc_map_pages(page, 1 << order);
	kernel_unpoison_pages(page, 1 << order);
	if (!kasan_unpoison_pages(page, order, false)) {
		for (i = 0; i < 1U << order; i++)
			page_kasan_tag_reset(page + i);
	}
	set_page_owner(page, order, __GFP_MOVABLE);
	page_table_check_alloc(page, order);
	pgalloc_tag_add(page, current, 1 << order);
}

/* Out of the free lists. False, and nothing is done, if they were not free. */
static bool ramslice_unlink_blocks(struct zone *zone, unsigned long start,
				   unsigned long end)
{
	unsigned long pfn;

	lockdep_assert_held(&zone->lock);
	for (pfn = start; pfn < end; ) {
		struct page *page = pfn_to_page(pfn);

		if (!PageBuddy(page) ||
		    pfn + (1UL << buddy_order(page)) > end)
			return false;
		pfn += 1UL << buddy_order(page);
	}
	for (pfn = start; pfn < end; ) {
		struct page *page = pfn_to_page(pfn);
		unsigned int order = buddy_order(page);

		/* No watermark is asked for of an isolated block */
		__isolate_free_page(page, order);
		pfn += 1UL << order;
	}
	__mod_zone_page_state(zone, NR_RAMSLICE_OFFLINE, end - start);
	return true;
}

static void ramslice_set_offline(struct page *page)
{
	unsigned int i;

#pragma GCC unroll 16
	for (i = 0; i < pageblock_nr_pages; i++)
		__SetPageOffline(page + i);
}

/**
 * ramslice_take_chunk - take free and isolated blocks out of the allocator
 * @zone: their zone
 * @pfn: the first
 * @nr_blocks: pageblocks
 *
 * Context: May sleep. Between page_offline_begin() and page_offline_end(), so
 * that those who read memory by address know. Takes zone->lock.
 * Return: false if they were not free; nothing is done then.
 */
bool ramslice_take_chunk(struct zone *zone, unsigned long pfn,
			 unsigned int nr_blocks)
{
	unsigned long i, end = pfn + nr_blocks * pageblock_nr_pages;
	bool taken;

	spin_lock_irq(&zone->lock);
	taken = ramslice_unlink_blocks(zone, pfn, end);
	spin_unlock_irq(&zone->lock);
	if (!taken)
		return false;

	/* Freeing undoes this when the block wakes: poison, owner, mapping */
	for (i = pfn; i < end; i += pageblock_nr_pages) {
		ramslice_prep_pages(pfn_to_page(i), pageblock_order);
		ramslice_set_offline(pfn_to_page(i));
	}
	return true;
}

/*
 * Does any debugging option record, check or mark free pages? If not, freeing a
 * page that was not used changes nothing.
 */
static bool ramslice_free_pages_differ(void)
{
#ifdef CONFIG_PAGE_OWNER
	if (static_branch_unlikely(&page_owner_inited))
		return true;
#endif
#ifdef CONFIG_PAGE_TABLE_CHECK
	if (!static_branch_likely(&page_table_check_disabled))
		return true;
#endif
	return static_branch_unlikely(&check_pages_enabled) ||
	       want_init_on_free() || page_poisoning_enabled_static() ||
	       debug_pagealloc_enabled_static() ||
	       mem_alloc_profiling_enabled() || kasan_enabled() ||
	       IS_ENABLED(CONFIG_KMSAN);
}

/*
 * __ClearPageOffline() for a block, in a fraction of the instructions. Returns
 * the flags that any of its pages has.
 */
static unsigned long ramslice_clear_offline(struct page *page)
{
	unsigned long flags = 0;
	unsigned int i;

#pragma GCC unroll 16
	for (i = 0; i < pageblock_nr_pages; i++) {
		VM_WARN_ON_ONCE_PAGE(!PageOffline(page + i), page + i);
		page[i].page_type = UINT_MAX;
		flags |= page[i].flags;
	}
	return flags;
}

/*
 * Is it to stay out of the allocator? A memory error struck it, or it was found
 * to be damaged, which its reference stands for.
 */
static bool ramslice_page_stays(struct page *page)
{
	return PageHWPoison(page) || page_ref_count(page);
}

/*
 * Contents were lost. This restores what the allocator assumes of free pages:
 * zeroes with init_on_free, the pattern with page_poison.
 */
static void ramslice_prepare_free(unsigned long pfn, unsigned long end,
				  unsigned int order)
{
	for (; pfn < end; pfn += 1UL << order) {
		struct page *page = pfn_to_page(pfn);

		/* One that fails the allocator's checks stays away, as elsewhere */
		if (!ramslice_page_stays(page) &&
		    !free_pages_prepare(page, order))
			set_page_count(page, 1);
	}
}

/**
 * ramslice_give_chunk - make offline blocks free pages again
 * @zone: their zone
 * @pfn: the first
 * @nr_blocks: pageblocks
 *
 * An allocation may be waiting: a few instructions for each page.
 *
 * Context: any but NMI. Takes zone->lock.
 */
void ramslice_give_chunk(struct zone *zone, unsigned long pfn,
			 unsigned int nr_blocks)
{
	unsigned long i, end = pfn + nr_blocks * pageblock_nr_pages;
	unsigned long flags, page_flags = 0;
	unsigned int order = pageblock_order;

	for (i = pfn; i < end; i += pageblock_nr_pages)
		page_flags |= ramslice_clear_offline(pfn_to_page(i));
#ifdef CONFIG_MEMORY_FAILURE
	/* A memory error struck meanwhile: page by page */
	if (page_flags & BIT(PG_hwpoison))
		order = 0;
#endif
	if (ramslice_free_pages_differ())
		ramslice_prepare_free(pfn, end, order);

	spin_lock_irqsave(&zone->lock, flags);
	for (i = pfn; i < end; i += 1UL << order) {
		struct page *page = pfn_to_page(i);

		if (!ramslice_page_stays(page))
			__putback_isolated_page(page, order,
						get_pageblock_migratetype(page));
	}
	__mod_zone_page_state(zone, NR_RAMSLICE_OFFLINE,
			      -(long)(end - pfn));
	spin_unlock_irqrestore(&zone->lock, flags);
	/* A hypervisor may have it again; the putback tells it nothing */
	page_reporting_notify_free(order);
}

/* Every block of a slice that was taken but not switched off. */
void ramslice_give_back(u32 id)
{
	struct zone *zone = ramslice_slices[id].rz->zone;
	unsigned long pfn;
	unsigned int n, nr;

	for_each_slice_chunk(id, n, nr, pfn)
		ramslice_give_chunk(zone, pfn, nr);
}
