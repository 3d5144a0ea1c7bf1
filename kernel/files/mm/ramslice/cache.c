// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of clean page cache that is in the way: dropped, kept and moved,
 * or one or the other by what the kernel knows of its use.
 *
 * What memory.min and memory.low protect is kept, as reclaim would.
 *
 * Used lately is what reclaim calls active, and what was part of the working
 * set before and has been read since. Cache that AUTO drops leaves a shadow
 * behind, so that the kernel notices when it comes back, and makes it active:
 * what was dropped in error is kept the next time. What a request for some slices
 * moves grows old by a step, as it would on reclaim's lists, which do not turn
 * while memory is plenty: so it is dropped in the end unless it is used again.
 *
 * With AGED, a compaction of the zone, all of its cache grows old at the end, and
 * what was read at all since the last one was used lately: it stays for one more.
 */

#include <linux/memcontrol.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include <linux/swap.h>
#include "../internal.h"
#include "internal.h"

/**
 * ramslice_cache_prices - prices with which true counters give a lower bound
 * @prices: changed into these
 * @cache: what becomes of clean unmapped page cache
 *
 * Which of it was used lately the counters do not say.
 */
void ramslice_cache_prices(struct ramslice_prices *prices,
			   enum ramslice_cache cache)
{
	if (cache == RAMSLICE_CACHE_KEEP)
		prices->drop_page = prices->migrate_page;
	else if (cache != RAMSLICE_CACHE_DROP)
		prices->drop_page = min(prices->drop_page,
					prices->migrate_page);
}

/**
 * ramslice_folio_droppable - is this clean unmapped page cache?
 * @folio: a folio that the caller has a reference to
 */
bool ramslice_folio_droppable(struct folio *folio)
{
	return !folio_test_swapbacked(folio) && !folio_test_anon(folio) &&
	       !folio_mapped(folio) && !folio_test_dirty(folio) &&
	       !folio_test_writeback(folio) && !folio_test_unevictable(folio) &&
	       folio_mapping(folio);
}

#ifdef CONFIG_LRU_GEN
/*
 * Generations have no flag for it. The two youngest are the active ones; but
 * where there are no others, the older of them is where reclaim would begin,
 * and where the kernel puts what is read for the first time.
 */
static bool ramslice_generation_active(struct lruvec *lruvec, int gen)
{
	struct lru_gen_folio *lrugen = &lruvec->lrugen;
	unsigned long oldest = READ_ONCE(lrugen->min_seq[LRU_GEN_FILE]);

	return lru_gen_is_active(lruvec, gen) &&
	       gen != lru_gen_from_seq(oldest);
}
#endif

static bool ramslice_folio_active(struct folio *folio)
{
	bool active = folio_test_active(folio);
#ifdef CONFIG_LRU_GEN
	int gen = folio_lru_gen(folio);

	/* The reference keeps the folio's lists */
	if (!active && gen >= 0) {
		rcu_read_lock();
		active = ramslice_generation_active(folio_lruvec(folio), gen);
		rcu_read_unlock();
	}
#endif
	return active;
}

/**
 * ramslice_cache_protect - work out how much of its memory each cgroup keeps
 *
 * Reclaim does that as it goes, and it rests while memory can be woken.
 *
 * Context: May sleep.
 */
void ramslice_cache_protect(void)
{
	struct mem_cgroup *memcg = NULL;

	while ((memcg = mem_cgroup_iter(NULL, memcg, NULL))) {
		mem_cgroup_calculate_protection(NULL, memcg);
		cond_resched();
	}
}

/**
 * __ramslice_could_hold - how much more could have stayed in the page cache
 * @memcg: the cgroup of what comes back, or NULL; its own limits count
 * @nid: its node
 *
 * Emptying slices takes the active list along, by which reclaim tells whether a
 * page could have stayed. Memory that is off is where it could have.
 *
 * Context: any. The caller has a reference to @memcg, or is under RCU.
 * Return: in pages.
 */
unsigned long __ramslice_could_hold(struct mem_cgroup *memcg, int nid)
{
	unsigned long room = ramslice_node_wakeable_pages(nid);
#ifdef CONFIG_MEMCG
	unsigned long limit, usage;

	for (; memcg && !mem_cgroup_is_root(memcg);
	     memcg = parent_mem_cgroup(memcg)) {
		limit = min(READ_ONCE(memcg->memory.max),
			    READ_ONCE(memcg->memory.high));
		usage = page_counter_read(&memcg->memory);
		room = min(room, limit - min(limit, usage));
	}
#endif
	return room;
}

/* Is it of a cgroup that reclaim would not take it from? */
static bool ramslice_folio_protected(struct folio *folio)
{
	struct mem_cgroup *memcg;
	bool protected;

	rcu_read_lock();
	memcg = folio_memcg(folio);
	protected = memcg && (mem_cgroup_below_min(NULL, memcg) ||
			      mem_cgroup_below_low(NULL, memcg));
	rcu_read_unlock();
	return protected;
}

/**
 * ramslice_folio_goes - is it to be dropped, rather than moved?
 * @folio: a folio on the LRU lists that the caller has a reference to
 * @cache: what becomes of clean unmapped page cache
 */
bool ramslice_folio_goes(struct folio *folio, enum ramslice_cache cache)
{
	if (cache == RAMSLICE_CACHE_KEEP || !ramslice_folio_droppable(folio))
		return false;
	if (cache != RAMSLICE_CACHE_DROP &&
	    (ramslice_folio_active(folio) ||
	     (folio_test_referenced(folio) &&
	      (cache == RAMSLICE_CACHE_AGED || folio_test_workingset(folio)))))
		return false;
	return !ramslice_folio_protected(folio);
}

/**
 * ramslice_drop_folio - drop a folio if it is to go
 * @folio: a folio on the LRU lists that the caller has a reference to
 * @cache: what becomes of clean unmapped page cache
 *
 * Return: whether it has left the page cache.
 */
bool ramslice_drop_folio(struct folio *folio, enum ramslice_cache cache)
{
	bool dropped = false;

	if (!ramslice_folio_goes(folio, cache) || !folio_trylock(folio))
		return false;
	if (ramslice_folio_goes(folio, cache))
		dropped = cache == RAMSLICE_CACHE_DROP ?
			  mapping_evict_folio(folio_mapping(folio), folio) :
			  ramslice_evict_folio(folio);
	folio_unlock(folio);
	return dropped;
}

/**
 * ramslice_age_folio - have cache that is moved grow old by a step
 * @folio: a folio that the caller has isolated from the LRU lists
 */
void ramslice_age_folio(struct folio *folio)
{
	if (!ramslice_folio_droppable(folio))
		return;
	if (folio_test_referenced(folio)) {
		folio_clear_referenced(folio);
		/* Back in use after it went inactive: reclaim would keep it */
		if (folio_test_workingset(folio))
			folio_set_active(folio);
	} else if (folio_test_active(folio)) {
		/* As reclaim does: it was part of the working set */
		folio_clear_active(folio);
		folio_set_workingset(folio);
	}
}

/* The same on the LRU lists. */
static void ramslice_age_in_place(struct folio *folio)
{
	if (!folio_test_lru(folio) || !ramslice_folio_droppable(folio))
		return;
	if (folio_test_referenced(folio)) {
		/* Activates it, as if it moved; generations cannot be told to */
		if (!lru_gen_enabled() && folio_test_workingset(folio) &&
		    !folio_test_active(folio))
			folio_mark_accessed(folio);
		else
			folio_clear_referenced(folio);
	} else if (ramslice_folio_active(folio)) {
		folio_set_workingset(folio);
		folio_deactivate(folio);
	}
}

/**
 * ramslice_age_slice - have the cache of a slice grow old by a step where it is
 * @id: the slice; nothing happens unless it is online
 *
 * Context: ramslice_mutex held. May sleep.
 */
void ramslice_age_slice(u32 id)
{
	unsigned long start, pfn;
	struct folio *folio;
	unsigned int n;

	if (READ_ONCE(ramslice_slices[id].state) != RAMSLICE_ONLINE)
		return;
	for_each_slice_block(id, n, start) {
		if (!pfn_to_online_page(start) || ramslice_block_free(start))
			continue;
		for (pfn = start; pfn < start + pageblock_nr_pages; pfn++) {
			folio = ramslice_get_folio(pfn_to_page(pfn));
			if (!folio)
				continue;
			ramslice_age_in_place(folio);
			folio_put(folio);
		}
		cond_resched();
	}
}
