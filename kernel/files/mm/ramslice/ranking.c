// SPDX-License-Identifier: GPL-2.0
/*
 * Placement: the policy in force, and the worker that ranks the slices of each
 * zone by what their pageblocks hold, as the policy likes them (rank.c). It
 * leaves the best in the lists that the allocator walks (place.c).
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

/* Not more often than this, and never more than a thirtieth of the time. */
#define MIN_INTERVAL	(HZ / 10)
#define MAX_SHARE	30

/* So much time goes into reading what changed, each time. */
#define REREAD_NS	NSEC_PER_MSEC

enum ramslice_place_policy ramslice_policy;
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

/**
 * ramslice_ask_ranking - have the slices ranked again, soon
 * @place: of a zone
 *
 * Context: Any but NMI, with zone->lock held.
 */
void ramslice_ask_ranking(struct ramslice_place *place)
{
	if (place->asked)
		return;
	place->asked = true;
	irq_work_queue(&ramslice_ask_work);
}

/**
 * struct ramslice_ranking - the slices of a zone while they are ranked
 * @rz: the zone
 * @list: the best, for each kind of pages
 * @parts: an element for each slice, as in struct ramslice_place
 * @before: those of the ranking before, or NULL
 * @range_end: where the range ends that was asked about last
 * @range_kernel: it had kernel pages
 * @last_id: for each kind of pages, the slice that the last pageblock came from
 * @kernel: slices with kernel pages, room for all
 * @nr_kernel: their number
 */
struct ramslice_ranking {
	struct ramslice_zone *rz;
	struct ramslice_place_list list[RAMSLICE_PLACE_CLASSES];
	u64 *parts;
	const u64 *before;
	unsigned long range_end;
	bool range_kernel;
	u32 last_id[RAMSLICE_PLACE_CLASSES];
	struct ramslice_kernel_slice *kernel;
	u32 nr_kernel;
};

/* Page frames of a range that may become a gigantic page. */
#define RANGE_PAGES	(1UL << (PUD_SHIFT - PAGE_SHIFT))

/* Can a slice never be emptied, or had it kernel pages at the ranking before? */
static bool ramslice_stays_on(const struct ramslice_ranking *r, u32 id)
{
	if (id >= ramslice_nr_ids)
		return false;
	if (READ_ONCE(ramslice_slices[id].unreclaimable))
		return true;
	if (!r->before || ramslice_policy != RAMSLICE_PLACE_PACKED)
		return false;
	/* Waking writes each at once; none is waited for */
	return ramslice_place_was_kernel(data_race(r->before[id]));
}

/*
 * Does any slice of its range stay on? The range is that of its first page. Looks
 * at each range once, as slices come by address. Under ramslice_table_sem.
 */
static bool ramslice_near_kernel(struct ramslice_ranking *r, u32 id)
{
	unsigned long pfn, end;
	u32 other;

	if (!ramslice_geom_run(&ramslice_geom, id, 0, &pfn))
		return false;
	pfn = ALIGN_DOWN(pfn, RANGE_PAGES);
	end = pfn + RANGE_PAGES;
	if (end == r->range_end)
		return r->range_kernel;
	r->range_end = end;
	r->range_kernel = false;
	for_each_slice_touching(other, pfn, end) {
		if (ramslice_stays_on(r, other)) {
			r->range_kernel = true;
			break;
		}
	}
	return r->range_kernel;
}

/* What waking goes by, too. */
static void ramslice_note_near(u32 id, bool near)
{
	unsigned long *set = ramslice_sets[RAMSLICE_SET_NEAR_KERNEL];

	if (test_bit(id, set) == near)
		return;
	spin_lock_irq(&ramslice_lock);
	__assign_bit(id, set, near);
	spin_unlock_irq(&ramslice_lock);
}

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

/* Is it a page of the kernel's own that a slice was refused for? */
static bool ramslice_kernel_blocks(u8 reason)
{
	return reason == RAMSLICE_REASON_SLAB ||
	       reason == RAMSLICE_REASON_PAGETABLE ||
	       reason == RAMSLICE_REASON_UNMOVABLE;
}

/*
 * Puts a slice into the lists where it belongs; @index is its place in the
 * zone. Under ramslice_table_sem.
 */
static void ramslice_rank_slice(struct ramslice_ranking *r, u32 id, u32 index)
{
	const struct ramslice_slice *s = &ramslice_slices[id];
	u8 state = READ_ONCE(s->state);
	struct ramslice_place_slice p = {
		.id = id,
		.index = index,
		.nr_pages = s->nr_pages,
		.fixed = READ_ONCE(s->unreclaimable),
		.stuck = ramslice_kernel_blocks(READ_ONCE(s->reason)),
	};
	enum ramslice_place_class class;
	u32 first = 0;

	p.near_kernel = ramslice_near_kernel(r, id);
	ramslice_note_near(id, p.near_kernel);
	if (state != RAMSLICE_ONLINE && state != RAMSLICE_WAKING)
		return;
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
	if (ramslice_place_is_kernel(&p))
		r->kernel[r->nr_kernel++] = (struct ramslice_kernel_slice) {
			.id = id,
			.nr_stay = p.nr_other,
			.nr_room = p.nr_pages - min(p.nr_lru, p.nr_pages),
			.nr_spare = p.free_blocks - p.movable_blocks,
			.nr_own = p.kernel_blocks,
			.fixed = p.fixed,
		};
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

/*
 * @parts, @kernel: an element for each slice. Returns the parts of before, to be
 * freed.
 */
static u64 *ramslice_rank_zone(struct ramslice_zone *rz, u64 *parts,
			       struct ramslice_kernel_slice *kernel)
{
	struct ramslice_place *place = rz->place;
	struct ramslice_ranking r = {
		.rz = rz,
		.parts = parts,
		.kernel = kernel,
	};
	u32 id, shared = ramslice_shared_slice(rz);
	struct ramslice_slice *s;

	spin_lock_irq(&rz->zone->lock);
	memcpy(r.last_id, place->last_id, sizeof(r.last_id));
	/* Which only this replaces */
	if (place->nr_ids == ramslice_nr_ids &&
	    place->policy == ramslice_policy)
		r.before = place->parts;
	spin_unlock_irq(&rz->zone->lock);

	ramslice_scan_zone(rz, RAMSLICE_ANY_AGE, REREAD_NS, jiffies + HZ);
	/* It counts as that zone's, but this one's pages may go there */
	if (shared != RAMSLICE_NO_ID)
		ramslice_rank_slice(&r, shared, 0);
	for_each_zone_slice(rz, id, s) {
		ramslice_rank_slice(&r, id, id - rz->first_id);
		cond_resched();
	}

	spin_lock_irq(&rz->zone->lock);
	memcpy(place->list, r.list, sizeof(r.list));
	place->geom = ramslice_geom;
	swap(place->parts, r.parts);
	place->policy = ramslice_policy;
	place->nr_kernel = r.nr_kernel;
	place->nr_ids = ramslice_nr_ids;
	place->ranked_at = jiffies;
	place->nr_rankings++;
	spin_unlock_irq(&rz->zone->lock);
	ramslice_drain(rz, kernel, r.nr_kernel);
	return r.parts;
}

/* Under ramslice_policy_lock. */
static void ramslice_drain_no_zone(void)
{
	struct ramslice_zone *rz;
	unsigned int i;

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		down_read(&ramslice_table_sem);
		ramslice_drain_none(rz);
		up_read(&ramslice_table_sem);
	}
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
		/* The shared slice besides */
		struct ramslice_kernel_slice *kernel =
			kvmalloc_array(nr_ids + 1, sizeof(*kernel),
				       GFP_KERNEL | __GFP_NORETRY);

		/* What is taken from now on asks again, also if this fails */
		spin_lock_irq(&rz->zone->lock);
		rz->place->asked = false;
		rz->place->nr_taken = 0;
		spin_unlock_irq(&rz->zone->lock);
		/* Then the lists of before stay */
		if (!parts || !kernel) {
			kvfree(parts);
			kvfree(kernel);
			continue;
		}
		down_read(&ramslice_table_sem);
		/* If it has changed, there are none, and the next time is soon */
		if (nr_ids == ramslice_nr_ids)
			parts = ramslice_rank_zone(rz, parts, kernel);
		up_read(&ramslice_table_sem);
		kvfree(parts);
		kvfree(kernel);
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

/* --- the policy ------------------------------------------------------------ */

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
	if (new_policy == RAMSLICE_PLACE_PACKED) {
		static_branch_enable(&ramslice_drain_key);
	} else {
		static_branch_disable(&ramslice_drain_key);
		ramslice_drain_no_zone();
	}
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
