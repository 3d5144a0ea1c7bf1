/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Placement: what the page allocator asks of ramslice where pageblocks change
 * hands. Apart from ramslice.h, which all of mm includes.
 */
#ifndef _LINUX_RAMSLICE_PLACE_H
#define _LINUX_RAMSLICE_PLACE_H

#include <linux/pgtable.h>
#include <linux/ramslice.h>

struct page;

/**
 * ramslice_find_kept - find a free block in a slice that does not drain
 * @zone: the zone
 * @page: the first entry of a free list, in a slice that drains
 * @order: the order that is needed
 * @type: migrate type of that list, and of the request
 *
 * Context: zone->lock held.
 * Return: one of the first entries of that list or of a larger order's; @page if
 * all of these drain, which is better than to spoil another pageblock.
 */
struct page *ramslice_find_kept(struct zone *zone, struct page *page,
				unsigned int order, int type);

/**
 * ramslice_convert_free - give a free block to another migrate type
 * @zone: its zone
 * @page: it, of at least a pageblock, on a free list
 * @type: the type
 *
 * Defined by the page allocator.
 *
 * Context: zone->lock held.
 * Return: false, and nothing is done, if it has that type, or one that is no
 * business of others.
 */
bool ramslice_convert_free(struct zone *zone, struct page *page, int type);

#ifdef CONFIG_RAMSLICE_PLACEMENT

/**
 * ramslice_place - a pageblock changes hands, or a part of one: choose which
 * @zone: the zone
 * @page: the free block that the allocator is about to take
 * @order: the order that it needs
 * @list_type: migrate type of the list that the block is on
 * @type: migrate type of the request
 *
 * Only if ramslice_enabled().
 *
 * Context: zone->lock held.
 * Return: @page, or a block on a list of @list_type that suits better. Only
 * one of a pageblock or more is exchanged for one of another order.
 */
struct page *ramslice_place(struct zone *zone, struct page *page,
			    unsigned int order, int list_type, int type);

DECLARE_STATIC_KEY_FALSE(ramslice_drain_key);

bool __ramslice_drains(const struct page *page);

/**
 * ramslice_drains - is a page in a slice that the kernel's pages are to leave?
 * @page: the page
 * @type: migrate type of its pageblock, or of the request: movable pages go
 *	  where they like
 *
 * Context: any.
 */
static __always_inline bool ramslice_drains(const struct page *page, int type)
{
	return static_branch_unlikely(&ramslice_drain_key) &&
	       type != MIGRATE_MOVABLE && __ramslice_drains(page);
}

/* Does a free block of this order, to be split, have a place to choose? */
static __always_inline bool ramslice_places(unsigned int order)
{
	return ramslice_enabled() && order >= pageblock_order;
}

#else /* !CONFIG_RAMSLICE_PLACEMENT */

static inline struct page *ramslice_place(struct zone *zone, struct page *page,
					  unsigned int order, int list_type,
					  int type)
{
	return page;
}

/* See ramslice.h */
#define ramslice_places(...)	false
#define ramslice_drains(...)	false

#endif /* CONFIG_RAMSLICE_PLACEMENT */

#endif /* _LINUX_RAMSLICE_PLACE_H */
