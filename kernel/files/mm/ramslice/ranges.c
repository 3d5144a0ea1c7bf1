// SPDX-License-Identifier: GPL-2.0
/*
 * Ranges of pageblocks for a buffer: what each pageblock of a zone costs, and the
 * cheapest range of a length, alignment and end.
 *
 * What is free costs least, and less still in a slice that stays on anyhow. Then
 * come slices that are off, which have to wake, and last what has to be moved, by
 * the same prices as emptying a slice.
 */

#include <linux/mm.h>
#include "../internal.h"
#include "internal.h"
#include "buffer.h"

/* A pageblock that is free or off: less than one page that has to be moved. */
enum {
	RAMSLICE_FREE_ON_ANYHOW	= 0,	/* its slice cannot be switched off */
	RAMSLICE_FREE_AWAKE	= 1,
	RAMSLICE_FREE_OFF	= 2,
	RAMSLICE_FREE_SCARCE	= 3,	/* awake, but others would wake instead */
	RAMSLICE_IN_USE		= 4,	/* and its content */
};

/* No sum of so many pageblocks overflows. */
#define RAMSLICE_MAX_BLOCK_PRICE	1000000000000ULL

static u64 ramslice_price_in_use(const struct ramslice_prices *prices,
				 const struct ramslice_block *b)
{
	u32 counters[RAMSLICE_NR_COUNTERS];
	u64 price, maps;
	unsigned int c;

	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		counters[c] = READ_ONCE(b->count[c]);
	maps = (u64)counters[RAMSLICE_ANON_MAPPED] +
	       counters[RAMSLICE_FILE_MAPPED];
	price = ramslice_price_content(prices, ramslice_nr_drop(counters),
				       ramslice_nr_move(counters), maps);
	return RAMSLICE_IN_USE + min(price, RAMSLICE_MAX_BLOCK_PRICE);
}

static bool ramslice_whole_block(const struct zone *zone, unsigned long pfn)
{
	unsigned long last = pfn + pageblock_nr_pages - 1;

	return pfn_to_online_page(pfn) && zone_spans_pfn(zone, pfn) &&
	       zone_spans_pfn(zone, last) &&
	       page_zone(pfn_to_page(pfn)) == zone &&
	       page_zone(pfn_to_page(last)) == zone;
}

/* Is it the first pageblock of its slice? Under ramslice_mutex. */
static bool ramslice_opens_slice(unsigned long block)
{
	unsigned long pfn = block << pageblock_order;
	u32 id = ramslice_geom_slice(&ramslice_geom, pfn);

	return ramslice_geom_block(&ramslice_geom, id, 0) == pfn;
}

/* Under ramslice_mutex. */
static struct ramslice_range_block
ramslice_look_at_block(const struct ramslice_prices *prices, struct zone *zone,
		       unsigned long pfn, bool spares)
{
	struct ramslice_range_block found = {};
	const struct ramslice_block *b;
	const struct ramslice_slice *s;

	s = ramslice_slice(ramslice_geom_slice(&ramslice_geom, pfn));
	if (!ramslice_whole_block(zone, pfn)) {
		found.reason = RAMSLICE_REASON_HOLE;
		return found;
	}
	found.sleeps = s && !READ_ONCE(s->unreclaimable) &&
		       !READ_ONCE(s->nr_blocking);
	switch (s ? READ_ONCE(s->state) : RAMSLICE_ONLINE) {
	case RAMSLICE_ONLINE:
		break;
	case RAMSLICE_OFFLINE:
		found.price = RAMSLICE_FREE_OFF;
		if (READ_ONCE(s->held))
			found.reason = RAMSLICE_REASON_STATE;
		return found;
	default:
		found.reason = RAMSLICE_REASON_STATE;
		return found;
	}
	found.reason = ramslice_type_blocks(get_pageblock_migratetype(pfn_to_page(pfn)));
	if (found.reason != RAMSLICE_REASON_NONE)
		return found;
	/* Known at once, before what the pageblock holds is read again */
	if (ramslice_in_buffer(pfn)) {
		found.reason = RAMSLICE_REASON_BUFFER;
		return found;
	}
	if (ramslice_block_free(pfn)) {
		if (!spares)
			found.price = RAMSLICE_FREE_SCARCE;
		else
			found.price = found.sleeps ? RAMSLICE_FREE_AWAKE :
						     RAMSLICE_FREE_ON_ANYHOW;
		return found;
	}
	b = ramslice_block(pfn);
	/* Nothing reads what slices hold that never go off, nor what is in none */
	if (!s)
		found.reason = RAMSLICE_REASON_UNMOVABLE;
	else if (READ_ONCE(s->unreclaimable))
		found.reason = s->reason;
	else if (READ_ONCE(b->nr_blocking))
		found.reason = RAMSLICE_REASON_UNMOVABLE;
	else
		found.price = ramslice_price_in_use(prices, b);
	return found;
}

/**
 * ramslice_ranges_begin - look at the pageblocks of a zone
 * @r: set to what they cost
 * @zone: the zone
 * @nr_pages: what is going to be taken
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: 0; -ENOMEM; -EINTR if the caller was killed.
 */
int ramslice_ranges_begin(struct ramslice_ranges *r, struct zone *zone,
			  unsigned long nr_pages)
{
	struct ramslice_prices prices = ramslice_current_prices();
	bool spares = ramslice_spares(zone, nr_pages);
	unsigned long i;

	lockdep_assert_held(&ramslice_mutex);
	r->slice_price = ramslice_price_base(&prices,
					     ramslice_slice_bytes() >> PAGE_SHIFT);
	r->geom = ramslice_geom;
	r->first = zone->zone_start_pfn >> pageblock_order;
	r->nr = DIV_ROUND_UP(zone_end_pfn(zone), pageblock_nr_pages) - r->first;
	r->block = kvmalloc_array(r->nr, sizeof(*r->block),
				  GFP_KERNEL | __GFP_NOWARN);
	if (!r->block)
		return -ENOMEM;
	for (i = 0; i < r->nr; i++) {
		r->block[i] = ramslice_look_at_block(&prices, zone,
						     (r->first + i) << pageblock_order,
						     spares);
		r->block[i].opens = r->block[i].sleeps &&
				    ramslice_opens_slice(r->first + i);
		if (i % 1024)
			continue;
		if (fatal_signal_pending(current)) {
			ramslice_ranges_end(r);
			return -EINTR;
		}
		cond_resched();
	}
	return 0;
}

void ramslice_ranges_end(struct ramslice_ranges *r)
{
	kvfree(r->block);
	r->block = NULL;
}

static void ramslice_range_add(struct ramslice_range *range,
			       const struct ramslice_range_block *b)
{
	range->price += b->price;
	range->nr_opened += b->opens;
	range->nr_blocked += b->reason != RAMSLICE_REASON_NONE;
}

static void ramslice_range_remove(struct ramslice_range *range,
				  const struct ramslice_range_block *b)
{
	range->price -= b->price;
	range->nr_opened -= b->opens;
	range->nr_blocked -= b->reason != RAMSLICE_REASON_NONE;
}

static enum ramslice_reason
ramslice_range_reason(const struct ramslice_ranges *r,
		      const struct ramslice_range *range,
		      unsigned long nr_blocks)
{
	unsigned long i, from = (range->pfn >> pageblock_order) - r->first;

	for (i = from; i < from + nr_blocks; i++) {
		if (r->block[i].reason != RAMSLICE_REASON_NONE)
			return r->block[i].reason;
	}
	return RAMSLICE_REASON_NONE;
}

/*
 * Slices that stay on for a range though it does not have their first pageblock:
 * those whose turn it is at its beginning, and for each other way after that.
 */
static unsigned int ramslice_range_nr_cut(const struct ramslice_ranges *r,
					  unsigned long start,
					  unsigned long end)
{
	unsigned int way, ways = ramslice_geom_ways(&r->geom), nr = 0;
	unsigned long block = start;

	for (way = 0; way < ways && block < end; way++) {
		const struct ramslice_range_block *b = &r->block[block - r->first];

		nr += b->sleeps && !b->opens;
		block = ALIGN(block + 1, 1UL << r->geom.granule_shift);
	}
	return nr;
}

/* With what it costs that slices stay on for the one that begins here. */
static u64 ramslice_range_price(const struct ramslice_ranges *r,
				const struct ramslice_range *range,
				unsigned long start, unsigned long nr_blocks)
{
	return range->price + r->slice_price *
	       (range->nr_opened +
		ramslice_range_nr_cut(r, start, start + nr_blocks));
}

/**
 * ramslice_ranges_cheapest - the range that is best had
 * @r: the pageblocks to choose from
 * @nr_blocks: its length, at least 1
 * @align_blocks: alignment of its first pageblock, a power of two
 * @end_block: it ends before the pageblock of this number, or at it
 *
 * Fewest pageblocks that cannot be had come first, then the price, with that of
 * each slice that stays on for it, then the lower address: slices are emptied from
 * the other end.
 *
 * Return: the range. It can be had if @nr_blocked of it is 0. Without a page frame
 * if there is no such range.
 */
struct ramslice_range ramslice_ranges_cheapest(const struct ramslice_ranges *r,
					       unsigned long nr_blocks,
					       unsigned long align_blocks,
					       unsigned long end_block)
{
	struct ramslice_range best = { .reason = RAMSLICE_REASON_HOLE };
	unsigned long begin = ALIGN(max(r->first, 1UL), align_blocks);
	unsigned long end = min(r->first + r->nr, end_block), start, next;
	struct ramslice_range now = {};
	u64 price;

	/* Blocks [start, next) are counted in @now */
	next = begin;
	for (start = begin; start < end && end - start >= nr_blocks;
	     start += align_blocks) {
		for (next = max(next, start); next < start + nr_blocks; next++)
			ramslice_range_add(&now, &r->block[next - r->first]);
		price = ramslice_range_price(r, &now, start, nr_blocks);
		if (!best.pfn || now.nr_blocked < best.nr_blocked ||
		    (now.nr_blocked == best.nr_blocked &&
		     price < best.price)) {
			best = now;
			best.price = price;
			best.pfn = start << pageblock_order;
		}
		if (align_blocks >= nr_blocks) {
			now = (struct ramslice_range) {};
			continue;
		}
		for (begin = start; begin < start + align_blocks; begin++)
			ramslice_range_remove(&now, &r->block[begin - r->first]);
	}
	if (best.pfn)
		best.reason = ramslice_range_reason(r, &best, nr_blocks);
	return best;
}

/* What of it could not be had is not tried again: all of it counts as that. */
void ramslice_ranges_drop(struct ramslice_ranges *r, unsigned long pfn,
			  unsigned long nr_blocks)
{
	unsigned long i, from = (pfn >> pageblock_order) - r->first;

	for (i = from; i < from + nr_blocks; i++)
		r->block[i].reason = RAMSLICE_REASON_MIGRATION;
}
