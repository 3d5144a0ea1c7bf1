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
 * A worker ranks the slices of each zone by what their pageblocks hold, as
 * the policy likes them (rank.c), and leaves the best of them here, in two
 * lists: for the kernel's own pages and for movable ones. The allocator walks
 * them with the zone lock held, a bounded number of pageblocks at a time. When
 * it came to the end, or took much, it has them ranked again.
 */

#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/page-isolation.h>
#include <linux/ramslice_place.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "../internal.h"
#include "place.h"

/* Pageblocks that are looked at for a request, under zone->lock. */
#define MAX_PROBES	128
/* Entries of a free list that are looked at for a request, likewise. */
#define MAX_ENTRIES	16
/* Slices are ranked again after so many pageblocks, or after this time. */
#define MAX_TAKEN	16
#define MAX_AGE		HZ
/* Not more often than this, and never more than a thirtieth of the time. */
#define MIN_INTERVAL	(HZ / 10)
#define MAX_SHARE	30

/* What is in force. Written under ramslice_policy_lock. */
static enum ramslice_place_policy ramslice_policy;
static DEFINE_MUTEX(ramslice_policy_lock);

static void ramslice_rank_all(struct work_struct *work);
static DECLARE_DELAYED_WORK(ramslice_rank_work, ramslice_rank_all);
/* jiffies; not earlier */
static unsigned long ramslice_rank_next = INITIAL_JIFFIES;

/* Waking a worker takes locks that are not for the inside of zone->lock. */
static void ramslice_ask_worker(struct irq_work *unused)
{
	long wait = (long)(READ_ONCE(ramslice_rank_next) - jiffies);

	queue_delayed_work(system_unbound_wq, &ramslice_rank_work,
			   max(wait, 0L));
}

static DEFINE_IRQ_WORK(ramslice_ask_work, ramslice_ask_worker);

/* --- under zone->lock ------------------------------------------------------ */

static void ramslice_ask_ranking(struct ramslice_place *place)
{
	if (place->asked)
		return;
	place->asked = true;
	irq_work_queue(&ramslice_ask_work);
}

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

		if (n >= place->geom.nr_blocks) {
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

/* --- ranking --------------------------------------------------------------- */

/* So much time goes into reading what changed, each time. */
#define REREAD_NS	NSEC_PER_MSEC

/**
 * struct ramslice_ranking - the slices of a zone while they are ranked
 * @rz: the zone
 * @list: the best, for each kind of pages
 * @parts: an element for each slice, as in struct ramslice_place
 * @last_id: for each kind of pages, the slice that the last pageblock came from
 */
struct ramslice_ranking {
	struct ramslice_zone *rz;
	struct ramslice_place_list list[RAMSLICE_PLACE_CLASSES];
	u64 *parts;
	u32 last_id[RAMSLICE_PLACE_CLASSES];
};

/*
 * What a policy goes by. Under ramslice_table_sem; of no moment.
 * @waking: some blocks may not have been given to the allocator yet
 * @first: set to the first pageblock that is wholly free
 */
static void ramslice_look_at(const struct zone *zone, bool waking,
			     struct ramslice_place_slice *p, u32 *first)
{
	unsigned long pfn;
	unsigned int n;

	for_each_slice_block(p->id, n, pfn) {
		struct page *page = pfn_to_online_page(pfn);
		const struct ramslice_block *block;
		u32 free, lru, used, other;
		int type;

		if (!(n % 1024))
			cond_resched();
		if (!page || page_zone(page) != zone)
			continue;
		block = ramslice_block(pfn);
		free = ramslice_block_free(pfn) ?
		       pageblock_nr_pages :
		       READ_ONCE(block->count[RAMSLICE_FREE]);
		lru = free == pageblock_nr_pages ? 0 :
		      READ_ONCE(block->count[RAMSLICE_LRU_ANON]) +
		      READ_ONCE(block->count[RAMSLICE_LRU_FILE]);
		/* It will be free in a moment: it has no user yet */
		if (waking && (PageOffline(page) ||
			       (!free && !lru && !page_count(page)))) {
			p->nr_free += pageblock_nr_pages;
			continue;
		}
		used = pageblock_nr_pages - free;
		/* On no LRU list, and yet the user's */
		if (ramslice_hugetlb_page(pfn))
			lru = used;
		other = used > lru ? used - lru : 0;
		p->nr_free += free;
		p->nr_lru += lru;
		type = get_pageblock_migratetype(page);
		/* Others are free in lists of CPUs, or on their way to an LRU list */
		p->nr_other += type == MIGRATE_MOVABLE ?
			       min_t(u32, READ_ONCE(block->nr_blocking),
				     other) : other;
		/* Nothing takes these blocks out of their area */
		p->fixed |= is_migrate_cma(type);
		if (used) {
			p->kernel_blocks += type != MIGRATE_MOVABLE &&
					    !is_migrate_isolate(type);
			continue;
		}
		/* CMA and the atomic reserve have memory of their own */
		if (type >= MIGRATE_PCPTYPES)
			continue;
		if (!p->free_blocks++)
			*first = n;
		p->movable_blocks += type == MIGRATE_MOVABLE;
	}
}

/*
 * Puts a slice into the lists where it belongs; @index is its place in the
 * zone. Under ramslice_table_sem. Says whether it has kernel pages.
 */
static bool ramslice_rank_slice(struct ramslice_ranking *r, u32 id, u32 index)
{
	const struct ramslice_slice *s = &ramslice_slices[id];
	u8 state = READ_ONCE(s->state);
	struct ramslice_place_slice p = {
		.id = id,
		.index = index,
		.nr_pages = s->nr_pages,
		.fixed = READ_ONCE(s->unreclaimable),
	};
	enum ramslice_place_class class;
	u32 first = 0;

	if (state != RAMSLICE_ONLINE && state != RAMSLICE_WAKING)
		return false;
	ramslice_look_at(r->rz->zone, state == RAMSLICE_WAKING, &p, &first);
	p.in_use = id == r->last_id[RAMSLICE_PLACE_KERNEL];
	r->parts[id] = ramslice_place_likes(ramslice_policy,
					    RAMSLICE_PLACE_KERNEL, &p);
	for (class = 0; class < RAMSLICE_PLACE_CLASSES; class++) {
		p.in_use = id == r->last_id[class];
		ramslice_place_offer(&r->list[class], id, first,
				     ramslice_place_score(ramslice_policy,
							  class, &p));
	}
	return ramslice_place_is_kernel(&p);
}

/*
 * The slice that a zone begins in though it is another zone's, or
 * RAMSLICE_NO_ID. It can never go off, as it ends in more than one.
 */
static u32 ramslice_shared_slice(const struct ramslice_zone *rz)
{
	u32 id = ramslice_geom_slice(&ramslice_geom, rz->zone->zone_start_pfn);

	if (id >= ramslice_nr_ids || !ramslice_slices[id].rz ||
	    ramslice_slices[id].rz == rz)
		return RAMSLICE_NO_ID;
	return id;
}

/* @parts: an element for each slice. Returns those of before, to be freed. */
static u64 *ramslice_rank_zone(struct ramslice_zone *rz, u64 *parts)
{
	struct ramslice_place *place = rz->place;
	struct ramslice_ranking r = {
		.rz = rz,
		.parts = parts,
	};
	u32 id, nr_kernel = 0, shared = ramslice_shared_slice(rz);
	struct ramslice_slice *s;

	spin_lock_irq(&rz->zone->lock);
	memcpy(r.last_id, place->last_id, sizeof(r.last_id));
	spin_unlock_irq(&rz->zone->lock);

	ramslice_scan_zone(rz, RAMSLICE_ANY_AGE, REREAD_NS, jiffies + HZ);
	/* It counts as that zone's, but this one's pages may go there */
	if (shared != RAMSLICE_NO_ID)
		ramslice_rank_slice(&r, shared, 0);
	for_each_zone_slice(rz, id, s) {
		nr_kernel += ramslice_rank_slice(&r, id, id - rz->first_id);
		cond_resched();
	}

	spin_lock_irq(&rz->zone->lock);
	memcpy(place->list, r.list, sizeof(r.list));
	place->geom = ramslice_geom;
	swap(place->parts, r.parts);
	place->nr_kernel = nr_kernel;
	place->nr_ids = ramslice_nr_ids;
	place->ranked_at = jiffies;
	place->nr_rankings++;
	spin_unlock_irq(&rz->zone->lock);
	return r.parts;
}

/* Under ramslice_policy_lock. */
static void ramslice_rank_zones(void)
{
	struct ramslice_zone *rz;
	unsigned int i;

	/* Boot has given back its memory: which slices can never be emptied? */
	if (system_state == SYSTEM_RUNNING && mutex_trylock(&ramslice_mutex)) {
		ramslice_classify(false);
		mutex_unlock(&ramslice_mutex);
	}

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		u32 nr_ids = READ_ONCE(ramslice_nr_ids);
		/* Not with the table held, which memory hotplug may want */
		u64 *parts = kvcalloc(nr_ids, sizeof(*parts),
				      GFP_KERNEL | __GFP_NORETRY);

		/* What is taken from now on asks again, also if this fails */
		spin_lock_irq(&rz->zone->lock);
		rz->place->asked = false;
		rz->place->nr_taken = 0;
		spin_unlock_irq(&rz->zone->lock);
		/* Then the lists of before stay */
		if (!parts)
			continue;
		down_read(&ramslice_table_sem);
		/* If it has changed, there are none, and the next time is soon */
		if (nr_ids == ramslice_nr_ids)
			parts = ramslice_rank_zone(rz, parts);
		up_read(&ramslice_table_sem);
		kvfree(parts);
	}
}

static void ramslice_rank_all(struct work_struct *work)
{
	unsigned long began = jiffies;
	long wait = (long)(READ_ONCE(ramslice_rank_next) - began);

	/* Asked for while the one before was at work */
	if (wait > 0) {
		queue_delayed_work(system_unbound_wq, &ramslice_rank_work, wait);
		return;
	}
	mutex_lock(&ramslice_policy_lock);
	if (ramslice_policy != RAMSLICE_PLACE_STOCK)
		ramslice_rank_zones();
	mutex_unlock(&ramslice_policy_lock);
	WRITE_ONCE(ramslice_rank_next, jiffies + max(MIN_INTERVAL,
						     MAX_SHARE * (jiffies - began)));
}

/* --- settings -------------------------------------------------------------- */

/* No list, no slice in use. */
static void ramslice_clear_lists(struct ramslice_place *place)
{
	enum ramslice_place_class class;

	memset(place->list, 0, sizeof(place->list));
	for (class = 0; class < RAMSLICE_PLACE_CLASSES; class++)
		place->last_id[class] = RAMSLICE_NO_ID;
	place->nr_ids = 0;
}

/* For a zone that appears: there are no slices yet. May sleep. */
struct ramslice_place *ramslice_place_new(void)
{
	struct ramslice_place *place = kzalloc(sizeof(*place), GFP_KERNEL);

	if (place)
		ramslice_clear_lists(place);
	return place;
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
		struct ramslice_place_slice p = {
			.id = id,
			.index = id - rz->first_id,
			.nr_pages = s->nr_pages,
			.nr_free = s->nr_pages,
			.free_blocks = place->geom.nr_blocks,
			.movable_blocks = place->geom.nr_blocks,
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
	spin_lock_irq(&zone->lock);
	for_each_slice_block(id, n, pfn)
		set_pageblock_migratetype(pfn_to_page(pfn), MIGRATE_MOVABLE);
	spin_unlock_irq(&zone->lock);
}

enum ramslice_place_policy ramslice_place_policy(void)
{
	return READ_ONCE(ramslice_policy);
}

/**
 * ramslice_place_set_policy - choose where pages go from now on
 * @new_policy: the policy
 *
 * In force when this returns. Pages that are in use stay where they are.
 *
 * Context: Process context, may sleep.
 */
void ramslice_place_set_policy(enum ramslice_place_policy new_policy)
{
	mutex_lock(&ramslice_policy_lock);
	WRITE_ONCE(ramslice_policy, new_policy);
	if (new_policy != RAMSLICE_PLACE_STOCK)
		ramslice_rank_zones();
	mutex_unlock(&ramslice_policy_lock);
}

/**
 * ramslice_place_rank_now - rank again, because the policy's settings changed
 *
 * Context: Process context, may sleep.
 */
void ramslice_place_rank_now(void)
{
	mutex_lock(&ramslice_policy_lock);
	if (ramslice_policy != RAMSLICE_PLACE_STOCK)
		ramslice_rank_zones();
	mutex_unlock(&ramslice_policy_lock);
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
	spin_unlock_irq(&rz->zone->lock);
}

/* ramslice_placement= on the command line. */
static enum ramslice_place_policy ramslice_boot_policy __initdata;

static int __init ramslice_parse_placement(char *arg)
{
	int found = arg ? ramslice_place_parse(arg) : -EINVAL;
	char names[64];

	if (found < 0) {
		ramslice_place_names(names, sizeof(names));
		pr_warn("\"%s\" on the command line is no placement policy of this kernel, which has: %s\n",
			arg ?: "", names);
		return found;
	}
	ramslice_boot_policy = found;
	return 0;
}
early_param("ramslice_placement", ramslice_parse_placement);

int __init ramslice_place_init(void)
{
	if (ramslice_boot_policy != RAMSLICE_PLACE_STOCK)
		ramslice_place_set_policy(ramslice_boot_policy);
	return 0;
}
