// SPDX-License-Identifier: GPL-2.0
/*
 * What emptying a slice costs, in units of 100 cycles: Equations 3.1 to 3.4
 * and the defaults of Table 3.2 in "Enhancing Energy Efficiency with Advanced
 * DRAM Management in Linux" (Hannover, 2024). Pure arithmetic.
 *
 * It departs from the paper in what counts as droppable: tmpfs, dirty and
 * written-back pages are not, so they are to be moved (Equation 3.2 drops
 * every unmapped file page and would forget them).
 */

#include <linux/math64.h>
#include <linux/overflow.h>
#include "internal.h"

struct ramslice_prices ramslice_prices = RAMSLICE_PRICES_DEFAULT;

struct ramslice_prices ramslice_current_prices(void)
{
	/* sysfs may change each at any time: some old and some new ones will do */
	return data_race(ramslice_prices);
}

/* Prices and counts may be any number: what does not fit is U64_MAX. */
static u64 ramslice_plus(u64 a, u64 b)
{
	u64 sum;

	return check_add_overflow(a, b, &sum) ? U64_MAX : sum;
}

static u64 ramslice_times(u64 price, u64 nr)
{
	u64 product;

	return check_mul_overflow(price, nr, &product) ? U64_MAX : product;
}

/**
 * ramslice_price_base - cost that does not depend on the content (Eq 3.1)
 * @p: prices
 * @nr_pages: page frames of the slice
 */
u64 ramslice_price_base(const struct ramslice_prices *p, u64 nr_pages)
{
	return ramslice_plus(p->isolate_slice,
			     div_u64(ramslice_times(p->isolate_page, nr_pages),
				     1024));
}

/**
 * ramslice_price_content - cost of what a slice holds (Eq 3.2)
 * @p: prices
 * @nr_drop: pages to drop
 * @nr_move: pages to migrate
 * @nr_maps: mappings of these
 */
u64 ramslice_price_content(const struct ramslice_prices *p, u64 nr_drop,
			   u64 nr_move, u64 nr_maps)
{
	u64 moving = ramslice_plus(ramslice_times(p->migrate_page, nr_move),
				   ramslice_times(p->migrate_mapping, nr_maps));

	return ramslice_plus(ramslice_times(p->drop_page, nr_drop), moving);
}

/**
 * ramslice_price_targets - cost of destinations (what Eq 3.4 adds)
 * @p: prices
 * @nr_free: page frames taken from free lists
 * @nr_cache: page frames gained by dropping cache
 */
u64 ramslice_price_targets(const struct ramslice_prices *p, u64 nr_free,
			   u64 nr_cache)
{
	return ramslice_plus(ramslice_times(p->alloc_buddy, nr_free),
			     ramslice_times(p->alloc_cache, nr_cache));
}

/* Clean unmapped page cache; a lower bound where pages are dirty and mapped. */
u64 ramslice_nr_drop(const u32 c[RAMSLICE_NR_COUNTERS])
{
	u64 keep = (u64)c[RAMSLICE_FILE_MAPPED] + c[RAMSLICE_SHMEM] +
		   c[RAMSLICE_DIRTY] + c[RAMSLICE_WRITEBACK];

	return c[RAMSLICE_FILE] > keep ? c[RAMSLICE_FILE] - keep : 0;
}

/* The rest of what is on the LRU lists. */
u64 ramslice_nr_move(const u32 c[RAMSLICE_NR_COUNTERS])
{
	u64 lru = (u64)c[RAMSLICE_LRU_ANON] + c[RAMSLICE_LRU_FILE];
	u64 drop = ramslice_nr_drop(c);

	return lru > drop ? lru - drop : 0;
}

bool ramslice_has_unmovable(u64 nr_pages, const u32 c[RAMSLICE_NR_COUNTERS])
{
	return nr_pages > (u64)c[RAMSLICE_FREE] + c[RAMSLICE_LRU_ANON] +
			  c[RAMSLICE_LRU_FILE];
}

/**
 * ramslice_price_counters - price of a slice by its counters (Eq 3.3)
 * @p: prices
 * @nr_pages: page frames of the slice
 * @counters: pages, by enum ramslice_counter
 * @poisoned: the slice is known to be unreclaimable or is left alone
 *
 * Each mapped page counts one mapping; pages mapped more often make the true
 * price higher, never lower.
 */
u64 ramslice_price_counters(const struct ramslice_prices *p, u64 nr_pages,
			    const u32 counters[RAMSLICE_NR_COUNTERS],
			    bool poisoned)
{
	u64 maps = (u64)counters[RAMSLICE_ANON_MAPPED] +
		   counters[RAMSLICE_FILE_MAPPED];
	u64 content = ramslice_price_content(p, ramslice_nr_drop(counters),
					     ramslice_nr_move(counters), maps);
	u64 price = ramslice_plus(ramslice_price_base(p, nr_pages), content);

	if (poisoned || ramslice_has_unmovable(nr_pages, counters))
		price = ramslice_plus(price, p->unreclaimable);
	return price;
}

/**
 * ramslice_price_work - what work that was done costs by the same prices
 * @p: prices
 * @work: the work
 * @nr_maps: mappings of the pages that were migrated
 *
 * Requests are charged this, also for slices that failed.
 */
u64 ramslice_price_work(const struct ramslice_prices *p,
			const struct ramslice_work *work, u64 nr_maps)
{
	u64 nr_pages = work->blocks_isolated << pageblock_order;
	u64 content, targets;

	if (!nr_pages)
		return 0;
	content = ramslice_price_content(p, work->pages_dropped,
					 work->pages_migrated, nr_maps);
	targets = ramslice_price_targets(p, work->target_free,
					 work->target_cache);
	return ramslice_plus(ramslice_price_base(p, nr_pages),
			     ramslice_plus(content, targets));
}
