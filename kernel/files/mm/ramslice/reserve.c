// SPDX-License-Identifier: GPL-2.0
/*
 * The reserve: slices that may receive pages, dearest first.
 *
 * The thesis keeps a red-black tree that it builds again for each request. As
 * nothing is inserted meanwhile, a sorted array does the same: sources are
 * taken from its cheap end, destinations from its dear end, and when the two
 * meet, memory is compact.
 */

#include <linux/list_sort.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include "internal.h"
#include "request.h"

/* So many slices are priced before it is asked whether there is time left. */
#define NR_UNASKED	64

static int ramslice_by_price(const void *a, const void *b)
{
	const struct ramslice_candidate *x = a, *y = b;

	if (x->price != y->price)
		return x->price < y->price ? -1 : 1;
	/* Of equals the higher address is emptied: the kernel grows from below */
	return x->id > y->id ? -1 : x->id < y->id;
}

static int ramslice_by_node(void *unused, const struct list_head *a,
			    const struct list_head *b)
{
	return ramslice_by_price(list_entry(a, struct ramslice_candidate, node),
				 list_entry(b, struct ramslice_candidate, node));
}

/*
 * Ascending by price; of equal prices, the higher address first. Merging needs
 * half the comparisons and no swaps, but room; without it, a heap does.
 */
void ramslice_reserve_sort(struct ramslice_candidate *c, size_t nr)
{
	struct ramslice_candidate *sorted, *from, *to;
	LIST_HEAD(list);
	size_t i;

	sorted = kvmalloc_array(nr, sizeof(*c), GFP_KERNEL | __GFP_NOWARN);
	if (ZERO_OR_NULL_PTR(sorted)) {
		sort(c, nr, sizeof(*c), ramslice_by_price, NULL);
		return;
	}
	for (i = 0; i < nr; i++)
		list_add_tail(&c[i].node, &list);
	list_sort(NULL, &list, ramslice_by_node);
	to = sorted;
	list_for_each_entry(from, &list, node)
		memcpy(to++, from, sizeof(*to));
	memcpy(c, sorted, array_size(nr, sizeof(*c)));
	kvfree(sorted);
}

/* Known to be unreclaimable, or left alone for a while: set P of Eq 3.3. */
bool ramslice_poisoned(const struct ramslice_slice *s)
{
	return READ_ONCE(s->unreclaimable) ||
	       (s->nr_fails && time_before(jiffies, s->retry_at));
}

/**
 * ramslice_count_stragglers - count pages that are on their way
 * @id: the slice, online
 * @counters: its counters by its summaries
 *
 * Where no page was found to block, those neither free nor on the LRU lists are
 * in lists of CPUs and batches, of the hugetlb pool, zsmalloc or a balloon. They
 * count as anonymous memory on the LRU lists, which is the most they can cost.
 *
 * Context: a lock that keeps the table of slices. May sleep.
 * Return: true if there are pages that stay.
 */
bool ramslice_count_stragglers(u32 id, u32 counters[RAMSLICE_NR_COUNTERS])
{
	const struct ramslice_slice *s = &ramslice_slices[id];

	if (READ_ONCE(s->unreclaimable))
		return ramslice_has_unmovable(s->nr_pages, counters);
	if (READ_ONCE(s->nr_blocking) &&
	    ramslice_blocker_of(id) != RAMSLICE_REASON_NONE)
		return true;
	if (ramslice_has_unmovable(s->nr_pages, counters))
		counters[RAMSLICE_LRU_ANON] = s->nr_pages -
					      counters[RAMSLICE_FREE] -
					      counters[RAMSLICE_LRU_FILE];
	return false;
}

/**
 * ramslice_reserve_build - order a zone's slices by price
 * @r: the reserve, to be freed with ramslice_reserve_free()
 * @rz: the zone
 * @params: the request that wants it
 * @ignore_backoff: slices that failed lately count like any other
 *
 * Takes in every online slice: the full ones are no destinations, but sources.
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: 0, -ENOMEM, or -EAGAIN if the request must end before that is done.
 */
int ramslice_reserve_build(struct ramslice_reserve *r, struct ramslice_zone *rz,
			   const struct ramslice_params *params,
			   bool ignore_backoff)
{
	struct ramslice_prices prices = ramslice_current_prices();
	struct ramslice_slice *s;
	u32 id;

	memset(r, 0, sizeof(*r));
	ramslice_cache_prices(&prices, params->cache);
	r->c = kvmalloc_array(max(rz->nr_slices, 1U), sizeof(*r->c),
			      GFP_KERNEL);
	if (!r->c)
		return -ENOMEM;

	for_each_zone_slice(rz, id, s) {
		u32 counters[RAMSLICE_NR_COUNTERS];
		bool poisoned, stays;

		/* Pages that blocked are looked at again: only that takes long */
		if ((r->nr % NR_UNASKED == 0 || READ_ONCE(s->nr_blocking)) &&
		    ramslice_why_end(params) != RAMSLICE_REASON_NONE) {
			ramslice_reserve_free(r);
			return -EAGAIN;
		}
		if (READ_ONCE(s->state) != RAMSLICE_ONLINE ||
		    r->nr == rz->nr_slices)
			continue;
		ramslice_count_slice(id, counters);
		stays = ramslice_count_stragglers(id, counters);
		poisoned = ignore_backoff ? READ_ONCE(s->unreclaimable) :
					    ramslice_poisoned(s);
		r->c[r->nr++] = (struct ramslice_candidate) {
			.id = id,
			.price = ramslice_price_counters(&prices, s->nr_pages,
							 counters,
							 poisoned || stays),
			.nr_free = counters[RAMSLICE_FREE],
			.nr_cache = ramslice_nr_drop(counters),
			.stuck = poisoned || stays,
		};
		if (r->nr % NR_UNASKED == 0)
			cond_resched();
	}
	ramslice_reserve_sort(r->c, r->nr);
	r->next = r->nr;
	return 0;
}

void ramslice_reserve_free(struct ramslice_reserve *r)
{
	kvfree(r->c);
	memset(r, 0, sizeof(*r));
}

/**
 * ramslice_reserve_room - is there room for the pages of a slice?
 * @r: the reserve
 * @params: the request that looks for it
 * @source: the slice
 * @nr_move: its pages
 * @nr_free: set to the page frames that would come from free lists
 * @nr_cache: set to those that would come from cache, if that may be dropped
 *
 * By what they hold now, dearest first, as the search will go.
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: RAMSLICE_REASON_NONE, RAMSLICE_REASON_NO_ROOM, or why the request must
 * end before that is known.
 */
enum ramslice_reason ramslice_reserve_room(const struct ramslice_reserve *r,
					   const struct ramslice_params *params,
					   u32 source, u64 nr_move, u64 *nr_free,
					   u64 *nr_cache)
{
	u32 i;

	*nr_free = 0;
	*nr_cache = 0;
	for (i = r->next; nr_move && i-- > r->low; ) {
		enum ramslice_reason reason = ramslice_why_end(params);
		u64 free, cache, n;

		/* What was touched in each of them is read */
		if (reason != RAMSLICE_REASON_NONE)
			return reason;
		if (r->c[i].id == source)
			continue;
		ramslice_target_room(r->c[i].id, &free, &cache);
		n = min(free, nr_move);
		*nr_free += n;
		nr_move -= n;
		if (params->cache != RAMSLICE_CACHE_KEEP) {
			n = min(cache, nr_move);
			*nr_cache += n;
			nr_move -= n;
		}
		cond_resched();
	}
	return nr_move ? RAMSLICE_REASON_NO_ROOM : RAMSLICE_REASON_NONE;
}
