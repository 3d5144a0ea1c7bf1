// SPDX-License-Identifier: GPL-2.0
/*
 * What ramslice keeps for each pageblock of a zone: room for a summary, and the
 * byte that ramslice_touch() sets. And whether a pageblock is free, which its
 * pages tell.
 */

#include <linux/mm.h>
#include <linux/slab.h>
#include "../internal.h"
#include "internal.h"

/* NULL if the zone does not have the pageblock of this number. */
u8 *ramslice_touched_byte(const struct ramslice_blocks *b, unsigned long nr)
{
	return nr - b->first < b->nr ? &b->bytes[nr - b->first] : NULL;
}

static void ramslice_free_blocks(struct ramslice_blocks *b)
{
	if (!b)
		return;
	kvfree(b->bytes);
	kvfree(b->block);
	kfree(b);
}

static struct ramslice_blocks *ramslice_new_blocks(unsigned long first,
						   unsigned long nr)
{
	struct ramslice_blocks *b = kzalloc(sizeof(*b), GFP_KERNEL);

	BUILD_BUG_ON(pageblock_nr_pages > U16_MAX);
	if (!b)
		return NULL;
	b->bytes = kvmalloc(nr, GFP_KERNEL);
	b->block = kvcalloc(nr, sizeof(*b->block), GFP_KERNEL);
	if (!b->bytes || !b->block) {
		ramslice_free_blocks(b);
		return NULL;
	}
	/* Nothing has been read yet */
	memset(b->bytes, 1, nr);
	b->touched = (unsigned long)b->bytes - first;
	b->first = first;
	b->nr = nr;
	return b;
}

/**
 * ramslice_cover_zone - have a summary for each pageblock that a zone spans
 * @zone: the zone
 *
 * Context: before ramslice is enabled, or with ramslice_table_sem held for
 * writing. May sleep; takes zone->lock.
 * Return: 0 or -ENOMEM.
 */
int ramslice_cover_zone(struct zone *zone)
{
	unsigned long first = zone->zone_start_pfn >> pageblock_order;
	unsigned long end = DIV_ROUND_UP(zone_end_pfn(zone),
					 pageblock_nr_pages);
	struct ramslice_blocks *old = zone->ramslice_blocks, *b;

	if (old && first >= old->first && end <= old->first + old->nr)
		return 0;
	if (old) {
		first = min(first, old->first);
		end = max(end, old->first + old->nr);
	}
	b = ramslice_new_blocks(first, end - first);
	if (!b)
		return -ENOMEM;
	if (old)
		memcpy(b->block + (old->first - first), old->block,
		       array_size(old->nr, sizeof(*b->block)));
	/* What was touched meanwhile counts as touched, as all does */
	spin_lock_irq(&zone->lock);
	/* Who sees it without the lock, in __ramslice_drains(), sees what it has */
	smp_store_release(&zone->ramslice_blocks, b);
	spin_unlock_irq(&zone->lock);
	/* __ramslice_drains() reads it without a lock */
	if (old)
		synchronize_rcu();
	ramslice_free_blocks(old);
	return 0;
}

int __init ramslice_blocks_init(void)
{
	struct zone *zone;
	int err = 0;

	for_each_populated_zone(zone)
		err = err ?: ramslice_cover_zone(zone);
	return err;
}

/* Of a page frame that has memory. */
struct ramslice_block *ramslice_block(unsigned long pfn)
{
	struct ramslice_blocks *b = page_zone(pfn_to_page(pfn))->ramslice_blocks;

	return &b->block[(pfn >> pageblock_order) - b->first];
}

/* Of a page frame that has memory: is its pageblock's summary a guess? */
bool ramslice_block_touched(unsigned long pfn)
{
	struct ramslice_blocks *b = page_zone(pfn_to_page(pfn))->ramslice_blocks;

	return READ_ONCE(*ramslice_touched_byte(b, pfn >> pageblock_order));
}

/* Of a page frame that has memory. Takes zone->lock. */
void ramslice_clear_touched(unsigned long pfn)
{
	struct zone *zone = page_zone(pfn_to_page(pfn));
	u8 *touched = ramslice_touched_byte(zone->ramslice_blocks,
					    pfn >> pageblock_order);

	/* A holder of the lock may have changed the lists, and not noted it yet */
	spin_lock_irq(&zone->lock);
	WRITE_ONCE(*touched, 0);
	spin_unlock_irq(&zone->lock);
}

/**
 * ramslice_block_free - is all of a pageblock in the free lists?
 * @pfn: its first page frame, which has memory
 *
 * Context: any. Exact with zone->lock held, otherwise of some moment.
 */
bool ramslice_block_free(unsigned long pfn)
{
	unsigned int order;

	for (order = pageblock_order; order <= MAX_PAGE_ORDER; order++) {
		struct page *head = pfn_to_page(round_down(pfn, 1UL << order));

		if (PageBuddy(head) && buddy_order_unsafe(head) >= order)
			return true;
	}
	return false;
}
