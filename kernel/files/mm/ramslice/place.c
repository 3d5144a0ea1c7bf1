// SPDX-License-Identifier: GPL-2.0
/*
 * Placement: which slice the next pageblock comes from.
 *
 * The allocator asks where pageblocks change hands: when it splits a free
 * block of at least a pageblock, and when a request falls back on another
 * migrate type. That is once in hundreds of pages. What it could have taken
 * anyway is all that it is offered, so that no allocation fails, and nothing
 * is reclaimed, because a policy liked another slice better. Where it takes
 * single pages from another type's blocks, which it does when all others are
 * used up, it asks for each.
 *
 * The best slices are in two lists (ranking.c): for the kernel's own pages and
 * for movable ones. The allocator walks them with the zone lock held, a bounded
 * number of pageblocks at a time. When it came to the end, or took much, it has
 * them ranked again.
 */

#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/page-isolation.h>
#include <linux/ramslice_place.h>
#include <linux/slab.h>
#include "../internal.h"
#include "place.h"

/* Pageblocks that are looked at for a request, under zone->lock. */
#define MAX_PROBES	128
/* Entries of a free list that are looked at for a request, likewise. */
#define MAX_ENTRIES	16
/* Slices are ranked again after so many pageblocks, or after this time. */
#define MAX_TAKEN	16
#define MAX_AGE		HZ

/* The free block that a pageblock is part of, or begins with, if it is free. */
static struct page *ramslice_buddy_of(const struct ramslice_place *place,
				      const struct zone *zone, u32 id,
				      unsigned long pfn)
{
	unsigned int order;

	for (order = pageblock_order; order < NR_PAGE_ORDERS; order++) {
		unsigned long head = round_down(pfn, 1UL << order);
		struct page *page = pfn_to_page(head);

		/* It is used from its beginning: that must be in the slice */
		if (ramslice_geom_slice(&place->geom, head) != id)
			return NULL;
		if (PageBuddy(page) && buddy_order(page) >= order)
			return page_zone(page) == zone ? page : NULL;
	}
	return NULL;
}

/**
 * ramslice_find_block - a free block in one of the slices that were ranked
 * @place: the zone's; its position in the list is past what has none
 * @list: of the kind of pages that the block is for
 * @zone: the zone
 * @order: the least that will do
 * @type: migrate type of the free list that the allocator takes from
 *
 * What is free, but on the list of another type, is passed over until the next
 * ranking: a slice full of such blocks must not keep those after it from use.
 */
static struct page *ramslice_find_block(struct ramslice_place *place,
					struct ramslice_place_list *list,
					const struct zone *zone,
					unsigned int order, int type)
{
	u32 at = list->at[type], n = list->block[type];
	unsigned int probes = 0;
	bool too_small = false;

	while (at < list->nr && probes < MAX_PROBES) {
		u32 id = list->id[at];
		unsigned long pfn;

		if (n >= ramslice_geom_nr_blocks(&place->geom, id)) {
			at++;
			n = at < list->nr ? list->first[at] : 0;
		} else {
			pfn = ramslice_geom_block(&place->geom, id, n);
			probes++;
			if (online_section_nr(pfn_to_section_nr(pfn))) {
				struct page *page;

				page = ramslice_buddy_of(place, zone, id, pfn);
				if (page &&
				    get_pageblock_migratetype(page) == type) {
					if (buddy_order(page) >= order)
						return page;
					/* Others want less */
					too_small = true;
				}
			}
			n++;
		}
		if (!too_small) {
			list->at[type] = at;
			list->block[type] = n;
		}
	}
	return NULL;
}

/* A free list's entry in the slice that suits kernel pages best. */
static struct page *ramslice_find_part(const struct ramslice_place *place,
				       const struct list_head *free_list,
				       struct page *first)
{
	unsigned int entries = 0;
	struct page *page;
	u64 best = 0;

	/* Not ranked yet: there is no geometry, either */
	if (!place->nr_ids)
		return first;
	list_for_each_entry(page, free_list, buddy_list) {
		u32 id = ramslice_geom_slice(&place->geom, page_to_pfn(page));

		if (id < place->nr_ids && place->parts[id] > best) {
			best = place->parts[id];
			first = page;
		}
		if (++entries == MAX_ENTRIES)
			break;
	}
	return first;
}

struct page *ramslice_place(struct zone *zone, struct page *page,
			    unsigned int order, int list_type, int type)
{
	struct ramslice_zone *rz;
	struct ramslice_place *place;
	enum ramslice_place_class class;
	unsigned int found = buddy_order(page);
	const struct list_head *free_list;
	struct page *better;

	if (READ_ONCE(ramslice_policy) == RAMSLICE_PLACE_STOCK)
		return page;
	rz = ramslice_zone_of(zone);
	/* CMA and the atomic reserve have memory of their own */
	if (!rz || !ramslice_place_class_of(type, &class) ||
	    list_type >= MIGRATE_PCPTYPES)
		return page;
	lockdep_assert_held(&zone->lock);
	place = rz->place;
	free_list = &zone->free_area[found].free_list[list_type];

	if (found < pageblock_order) {
		if (class != RAMSLICE_PLACE_KERNEL)
			return page;
		return ramslice_find_part(place, free_list, page);
	}

	better = ramslice_find_block(place, &place->list[class], zone, order,
				     list_type);
	if (better) {
		place->nr_placed[class]++;
		place->last_id[class] =
			ramslice_geom_slice(&place->geom, page_to_pfn(better));
	} else {
		place->nr_passed[class]++;
		/* So that not each block spoils another slice at random */
		if (class == RAMSLICE_PLACE_KERNEL && place->nr_ids) {
			better = ramslice_find_part(place, free_list, page);
			place->last_id[class] =
				ramslice_geom_slice(&place->geom,
						    page_to_pfn(better));
		}
	}
	if (place->list[class].at[list_type] >= place->list[class].nr ||
	    ++place->nr_taken >= MAX_TAKEN ||
	    time_after(jiffies, place->ranked_at + MAX_AGE))
		ramslice_ask_ranking(place);
	return better ?: page;
}

/**
 * ramslice_place_refresh - have a ranking that is old made again
 * @rz: its zone
 *
 * What the kernel frees and takes again within pageblocks changes which slices
 * are to drain, and asks for no ranking.
 *
 * Context: process context. Takes zone->lock.
 */
void ramslice_place_refresh(struct ramslice_zone *rz)
{
	if (READ_ONCE(ramslice_policy) != RAMSLICE_PLACE_PACKED)
		return;
	spin_lock_irq(&rz->zone->lock);
	if (time_after(jiffies, rz->place->ranked_at + MAX_AGE))
		ramslice_ask_ranking(rz->place);
	spin_unlock_irq(&rz->zone->lock);
}

/* --- what a zone keeps ----------------------------------------------------- */

/* No list, no slice in use. */
static void ramslice_clear_lists(struct ramslice_place *place)
{
	enum ramslice_place_class class;

	memset(place->list, 0, sizeof(place->list));
	for (class = 0; class < RAMSLICE_PLACE_CLASSES; class++)
		place->last_id[class] = RAMSLICE_NO_ID;
	place->nr_ids = 0;
}

/* For a zone that appears: there are no slices yet. 0 or -ENOMEM. May sleep. */
int ramslice_place_new(struct ramslice_zone *rz)
{
	rz->place = kzalloc(sizeof(*rz->place), GFP_KERNEL);
	if (!rz->place)
		return -ENOMEM;
	ramslice_clear_lists(rz->place);
	return 0;
}

/**
 * ramslice_place_forget - the table of slices, or the geometry, is another
 *
 * Context: ramslice_table_sem held for writing. Takes zone->lock.
 */
void ramslice_place_forget(void)
{
	struct ramslice_zone *rz;
	unsigned int i;

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		spin_lock_irq(&rz->zone->lock);
		ramslice_clear_lists(rz->place);
		spin_unlock_irq(&rz->zone->lock);
	}
}

/**
 * ramslice_place_woken - some pageblocks of a slice that was off are free
 * @rz: its zone
 * @id: the slice
 * @first: which of its pageblocks is the first of them
 *
 * Until the next ranking, for which this asks, it is in the lists like one that
 * was empty in the last. Their other slices may be those that pages of the kind
 * should not come to.
 *
 * Context: Any but NMI; a chunk of the slice in flight, so that the table stays.
 * Takes zone->lock.
 */
void ramslice_place_woken(struct ramslice_zone *rz, u32 id, u32 first)
{
	enum ramslice_place_policy now = READ_ONCE(ramslice_policy);
	struct ramslice_place *place = rz->place;
	enum ramslice_place_class class;
	const struct ramslice_slice *s = &ramslice_slices[id];
	unsigned long flags;

	if (now == RAMSLICE_PLACE_STOCK)
		return;

	spin_lock_irqsave(&rz->zone->lock, flags);
	if (id < place->nr_ids) {
		u32 nr_blocks = ramslice_geom_nr_blocks(&place->geom, id);
		struct ramslice_place_slice p = {
			.id = id,
			.index = id - rz->first_id,
			.nr_pages = s->nr_pages,
			.nr_free = s->nr_pages,
			.free_blocks = nr_blocks,
			.movable_blocks = nr_blocks,
			.near_kernel = test_bit(id,
					ramslice_sets[RAMSLICE_SET_NEAR_KERNEL]),
		};

		place->parts[id] = ramslice_place_likes(now,
							RAMSLICE_PLACE_KERNEL,
							&p);
		for (class = 0; class < RAMSLICE_PLACE_CLASSES; class++)
			ramslice_place_renew(&place->list[class], id, first,
					     ramslice_place_score(now, class,
								  &p));
	}
	ramslice_ask_ranking(place);
	spin_unlock_irqrestore(&rz->zone->lock, flags);
}

/**
 * ramslice_place_forget_types - an empty slice belongs to no kind of pages
 * @id: the slice, switched off
 *
 * Pageblocks that were the kernel's would be its first choice when the slice
 * wakes, whatever the policy says, as they are on a free list of its own. So
 * they come back as movable ones, which it has to claim.
 *
 * Context: ramslice_mutex held, state RAMSLICE_EMPTYING, every page offline.
 * Takes zone->lock.
 */
void ramslice_place_forget_types(u32 id)
{
	struct zone *zone = ramslice_slices[id].rz->zone;
	unsigned long pfn;
	unsigned int n;

	if (READ_ONCE(ramslice_policy) == RAMSLICE_PLACE_STOCK)
		return;
	for_each_slice_block(id, n, pfn) {
		struct page *page = pfn_to_page(pfn);

		spin_lock_irq(&zone->lock);
		/* Memory hotplug may have isolated it while the driver worked */
		if (!is_migrate_isolate_page(page))
			set_pageblock_migratetype(page, MIGRATE_MOVABLE);
		spin_unlock_irq(&zone->lock);
	}
}

/* A zone's figures, at one moment. Takes zone->lock. */
void ramslice_place_stats(struct ramslice_zone *rz,
			  struct ramslice_place_stats *st)
{
	const struct ramslice_place *place = rz->place;
	enum ramslice_place_class class;

	spin_lock_irq(&rz->zone->lock);
	for (class = 0; class < RAMSLICE_PLACE_CLASSES; class++) {
		st->nr_placed[class] = place->nr_placed[class];
		st->nr_passed[class] = place->nr_passed[class];
	}
	st->nr_rankings = place->nr_rankings;
	st->nr_kernel = place->nr_ids ? place->nr_kernel : 0;
	st->nr_draining = place->nr_ids ? place->nr_draining : 0;
	spin_unlock_irq(&rz->zone->lock);
}
