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

#ifdef CONFIG_RAMSLICE

/* Does a free block of this order, to be split, have a place to choose? */
static __always_inline bool ramslice_places(unsigned int order)
{
	return ramslice_enabled() && order >= pageblock_order;
}

#else /* !CONFIG_RAMSLICE */

/* See ramslice.h */
#define ramslice_places(...)	false

#endif /* CONFIG_RAMSLICE */

#endif /* _LINUX_RAMSLICE_PLACE_H */
