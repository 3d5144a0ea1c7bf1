// SPDX-License-Identifier: GPL-2.0
/*
 * The table of slices, and the geometry in force.
 */

#include <linux/bits.h>
#include <linux/memblock.h>
#include <linux/memory_hotplug.h>
#include <linux/page-isolation.h>
#include <linux/sizes.h>
#include "internal.h"
#include "boot_args.h"
#include "segments.h"
#include "cold.h"
#include "request.h"
#include "place.h"

#define RAMSLICE_DEFAULT_BYTES	SZ_64M
/* Enough for 1 PiB in slices of 64 MiB. */
#define RAMSLICE_MAX_IDS	BIT(24)
/* Slices that are counted under one hold of the lock, with interrupts off. */
#define IDS_AT_ONCE		256U

/* Requests that empty slices, the geometry, the power driver: internal.h. */
DEFINE_MUTEX(ramslice_mutex);
DECLARE_RWSEM(ramslice_table_sem);

struct ramslice_geometry ramslice_geom = {
	.nr_blocks = RAMSLICE_DEFAULT_BYTES >> (PAGE_SHIFT + pageblock_order),
};

/* The table; replaced under all three locks. */
struct ramslice_slice *ramslice_slices;
u32 ramslice_nr_ids;
unsigned long *ramslice_sets[RAMSLICE_NR_SETS];

static struct ramslice_zone *ramslice_zones[MAX_NUMNODES][MAX_NR_ZONES];
static bool ramslice_classified;

/* Of slices by a table, the largest. */
u64 ramslice_slice_bytes(void)
{
	return (u64)ramslice_geom.nr_blocks << (pageblock_order + PAGE_SHIFT);
}

/* Of the slices that take turns: what is neither cut nor shared with others. */
u64 ramslice_group_bytes(void)
{
	return ramslice_slice_bytes() << ramslice_geom.ways_shift;
}

/* With a single way, the granularity is the size of a slice. */
struct ramslice_interleave ramslice_interleave_now(void)
{
	return (struct ramslice_interleave) {
		.ways = ramslice_geom_ways(&ramslice_geom),
		.granularity_bytes =
			(u64)ramslice_geom_granule_blocks(&ramslice_geom) <<
			(pageblock_order + PAGE_SHIFT),
	};
}

/* Safe in any context: zones appear once and stay. */
struct ramslice_zone *ramslice_zone_of(const struct zone *zone)
{
	int nid = zone_to_nid((struct zone *)zone);

	return READ_ONCE(ramslice_zones[nid][zone_idx(zone)]);
}

unsigned int ramslice_nr_zones(void)
{
	unsigned int nr = 0;
	struct zone *zone;

	for_each_populated_zone(zone)
		nr += !!ramslice_zone_of(zone);
	return nr;
}

struct ramslice_zone *ramslice_zone_by_index(unsigned int index)
{
	struct zone *zone;

	for_each_populated_zone(zone) {
		struct ramslice_zone *rz = ramslice_zone_of(zone);

		if (rz && !index--)
			return rz;
	}
	return NULL;
}

/* The slice of a number, NULL if no memory has it. Needs one of the locks. */
struct ramslice_slice *ramslice_slice(u32 id)
{
	if (id >= ramslice_nr_ids || !ramslice_slices[id].rz)
		return NULL;
	return &ramslice_slices[id];
}

static struct ramslice_zone *ramslice_get_zone(struct zone *zone)
{
	struct ramslice_zone *rz = ramslice_zone_of(zone);

	if (rz)
		return rz;
	rz = kzalloc(sizeof(*rz), GFP_KERNEL);
	if (!rz)
		return NULL;
	if (ramslice_place_new(rz)) {
		kfree(rz);
		return NULL;
	}
	rz->zone = zone;
	rz->recycle_at = jiffies;
	rz->wanted_until = jiffies;
	rz->calm_until = jiffies;
	ramslice_scan_begin(rz);
	/* Allocations find it under no lock: pairs with ramslice_zone_of() */
	smp_store_release(&ramslice_zones[zone_to_nid(zone)][zone_idx(zone)],
			  rz);
	return rz;
}

/**
 * ramslice_block_probe - can a pageblock be part of a slice of a zone?
 * @zone: the zone
 * @pfn: the first page frame of the block
 *
 * Return: RAMSLICE_REASON_NONE, RAMSLICE_REASON_HOLE or RAMSLICE_REASON_ZONE_END.
 */
enum ramslice_reason ramslice_block_probe(const struct zone *zone,
					  unsigned long pfn)
{
	unsigned long end = pfn + pageblock_nr_pages - 1;
	struct page *first = pfn_to_online_page(pfn);
	struct page *last = pfn_to_online_page(end);

	if (!first || !last)
		return RAMSLICE_REASON_HOLE;
	if (page_zone(first) != zone || page_zone(last) != zone ||
	    !zone_spans_pfn(zone, pfn) || !zone_spans_pfn(zone, end))
		return RAMSLICE_REASON_ZONE_END;
	return RAMSLICE_REASON_NONE;
}

/* Fills in what a slice is by the memory that its blocks have. */
static int ramslice_probe_slice(u32 id, struct ramslice_slice *s)
{
	struct zone *zone = NULL;
	unsigned int n;
	unsigned long pfn;

	memset(s, 0, sizeof(*s));
	for_each_slice_block(id, n, pfn) {
		struct page *first = pfn_to_online_page(pfn);
		enum ramslice_reason reason = RAMSLICE_REASON_HOLE;

		if (first) {
			zone = zone ?: page_zone(first);
			s->nr_pages += pageblock_nr_pages;
			reason = ramslice_block_probe(zone, pfn);
		}
		if (reason != RAMSLICE_REASON_NONE) {
			s->reason = reason;
			s->unreclaimable = true;
		}
	}
	if (!zone)
		return 0;
	s->rz = ramslice_get_zone(zone);
	return s->rz ? 0 : -ENOMEM;
}

/* Counts a slice of the table for its zone. Under ramslice_lock. */
static void ramslice_add_to_zone(u32 id)
{
	struct ramslice_zone *rz = ramslice_slices[id].rz;

	if (!rz)
		return;
	rz->nr[ramslice_slices[id].state]++;
	rz->nr_slices++;
	ramslice_note_sets(id);
	rz->first_id = min(rz->first_id, id);
	rz->end_id = max(rz->end_id, id + 1);
}

/* Before it leaves the table. Under ramslice_lock. */
static void ramslice_take_from_zone(u32 id)
{
	struct ramslice_zone *rz = ramslice_slices[id].rz;

	if (!rz)
		return;
	rz->nr[ramslice_slices[id].state]--;
	if (!--rz->nr_slices) {
		rz->first_id = U32_MAX;
		rz->end_id = 0;
		return;
	}
	ramslice_slices[id].rz = NULL;
	while (ramslice_slices[rz->first_id].rz != rz)
		rz->first_id++;
	while (ramslice_slices[rz->end_id - 1].rz != rz)
		rz->end_id--;
}

/*
 * Zone ranges and counts, from the table. Under ramslice_lock, which is dropped
 * now and then with @in_parts.
 */
static void ramslice_index_zones(bool in_parts)
{
	u32 i, id;

	/* Those that lost their memory, too: their range must not stay */
	for (i = 0; i < MAX_NUMNODES * MAX_NR_ZONES; i++) {
		struct ramslice_zone *rz = ramslice_zones[i / MAX_NR_ZONES]
						[i % MAX_NR_ZONES];

		if (!rz)
			continue;
		memset(rz->nr, 0, sizeof(rz->nr));
		rz->nr_slices = 0;
		rz->first_id = U32_MAX;
		rz->end_id = 0;
	}
	for (id = 0; id < ramslice_nr_ids; id++) {
		ramslice_add_to_zone(id);
		if (in_parts && id % IDS_AT_ONCE == IDS_AT_ONCE - 1) {
			spin_unlock_irq(&ramslice_lock);
			cond_resched();
			spin_lock_irq(&ramslice_lock);
		}
	}
}

/**
 * ramslice_update_slice - look again at what memory a slice has
 * @id: the slice, of which some came or went
 *
 * Context: ramslice_mutex, and ramslice_table_sem for writing. May sleep.
 * Return: 0 or -ENOMEM.
 */
int ramslice_update_slice(u32 id)
{
	struct ramslice_slice new;
	int err;

	/* Its memory is still there: it goes online first */
	if (READ_ONCE(ramslice_slices[id].state) != RAMSLICE_ONLINE)
		return 0;
	err = ramslice_probe_slice(id, &new);
	if (err)
		return err;
	spin_lock_irq(&ramslice_lock);
	ramslice_take_from_zone(id);
	ramslice_slices[id] = new;
	ramslice_add_to_zone(id);
	spin_unlock_irq(&ramslice_lock);
	if (new.rz)
		ramslice_sum_slice(id);
	return 0;
}

static u32 ramslice_count_ids(bool spare)
{
	unsigned long nr;

	if (ramslice_geom.table)
		return ramslice_geom.table->nr;
	nr = DIV_ROUND_UP(max_pfn, ramslice_group_bytes() >> PAGE_SHIFT);
	if (spare)
		nr += nr / 4;
	return min_t(unsigned long, nr << ramslice_geom.ways_shift,
		     RAMSLICE_MAX_IDS);
}

/*
 * Makes the table for the geometry; NULL if there is no memory for it. With
 * @spare, so much longer that not every block that is added makes it too short.
 */
static struct ramslice_slice *ramslice_make_table(u32 *nr_ids, bool spare)
{
	struct ramslice_slice *table;
	u32 id;

	*nr_ids = ramslice_count_ids(spare);
	/* At least one slot, so that NULL means "none yet" */
	table = kvcalloc(max(*nr_ids, 1U), sizeof(*table), GFP_KERNEL);
	for (id = 0; table && id < *nr_ids; id++) {
		if (ramslice_probe_slice(id, &table[id])) {
			kvfree(table);
			return NULL;
		}
		cond_resched();
	}
	return table;
}

/* Empty ones, or false and none. */
static bool ramslice_make_sets(unsigned long *sets[RAMSLICE_NR_SETS],
			       u32 nr_ids)
{
	bool all = true;
	unsigned int i;

	for (i = 0; i < RAMSLICE_NR_SETS; i++) {
		sets[i] = kvcalloc(BITS_TO_LONGS(max(nr_ids, 1U)), sizeof(long),
				   GFP_KERNEL);
		all &= !!sets[i];
	}
	for (i = 0; !all && i < RAMSLICE_NR_SETS; i++)
		kvfree(sets[i]);
	return all;
}

/*
 * The table has changed: for those who keep something of it, and for those who
 * wait. Under ramslice_table_sem, for writing.
 */
void ramslice_tell_of_table(void)
{
	spin_lock_irq(&ramslice_lock);
	ramslice_event_seq++;
	spin_unlock_irq(&ramslice_lock);
	ramslice_place_forget();
	wake_up_interruptible_all(&ramslice_wait);
}

/* Under ramslice_mutex, without which none leaves that state. */
static bool ramslice_all_online(void)
{
	u32 id;

	for (id = 0; id < ramslice_nr_ids; id++) {
		if (READ_ONCE(ramslice_slices[id].state) != RAMSLICE_ONLINE)
			return false;
	}
	return true;
}

/*
 * Builds the table of slices again from present memory. Slices that are not
 * online keep their state: their memory is still there.
 *
 * Context: ramslice_mutex held. May sleep.
 * Return: 0; with the old table and geometry in place -ENOMEM, or -EBUSY if
 * cold memory needs that geometry.
 */
int ramslice_rebuild_table(const struct ramslice_geometry *geom, bool spare)
{
	struct ramslice_geometry old_geom = ramslice_geom;
	bool resized = geom != &ramslice_geom;
	unsigned long *sets[RAMSLICE_NR_SETS];
	struct ramslice_slice *table, *old;
	bool all_online;
	unsigned int i;
	u32 id, nr_ids;

	lockdep_assert_held(&ramslice_mutex);

	down_write(&ramslice_table_sem);
	if (resized && ramslice_cold_needs_geometry()) {
		up_write(&ramslice_table_sem);
		return -EBUSY;
	}
	/* Then no state changes, and nothing is to be carried over at one moment */
	all_online = ramslice_all_online();
	/* Without another geometry, chunks may be on their way, which read it */
	if (resized)
		ramslice_geom = *geom;
	table = ramslice_make_table(&nr_ids, spare);
	if (table && !ramslice_make_sets(sets, nr_ids)) {
		kvfree(table);
		table = NULL;
	}
	if (!table) {
		if (resized)
			ramslice_geom = old_geom;
		up_write(&ramslice_table_sem);
		return -ENOMEM;
	}

	spin_lock_irq(&ramslice_lock);
	/* Allocations release chunks under no lock but this */
	while (!ramslice_wake_idle()) {
		spin_unlock_irq(&ramslice_lock);
		schedule_timeout_uninterruptible(1);
		spin_lock_irq(&ramslice_lock);
	}
	old = ramslice_slices;
	for (id = 0; !all_online && id < min(nr_ids, ramslice_nr_ids); id++) {
		if (old[id].state != RAMSLICE_ONLINE)
			table[id] = old[id];
	}
	ramslice_slices = table;
	WRITE_ONCE(ramslice_nr_ids, nr_ids);
	for (i = 0; i < RAMSLICE_NR_SETS; i++)
		swap(ramslice_sets[i], sets[i]);
	ramslice_index_zones(all_online);
	spin_unlock_irq(&ramslice_lock);
	for (id = 0; id < nr_ids; id++) {
		if (table[id].rz && table[id].state == RAMSLICE_ONLINE)
			ramslice_sum_slice(id);
	}
	ramslice_tell_of_table();
	up_write(&ramslice_table_sem);

	ramslice_classified = false;
	kvfree(old);
	for (i = 0; i < RAMSLICE_NR_SETS; i++)
		kvfree(sets[i]);
	return 0;
}

/**
 * ramslice_set_slice_bytes - change the size of slices
 * @bytes: the new size
 *
 * How they are interleaved stays.
 *
 * Context: Process context; takes ramslice_mutex.
 * Return: 0; -EINVAL if @bytes is no multiple of a pageblock and, where slices
 * take turns, of what each gets at a time, or is larger than memory; -EBUSY while a
 * request runs, a slice is not online, or cold memory gets another size;
 * -EOPNOTSUPP if slices are what a table says; -ENOMEM.
 */
int ramslice_set_slice_bytes(u64 bytes)
{
	struct ramslice_interleave il;
	struct ramslice_geometry geom;
	int err;

	if (ramslice_geom.table)
		return -EOPNOTSUPP;
	/* It stays; where there is none, the granularity does not matter */
	il = data_race(ramslice_interleave_now());
	if (ramslice_geom_make(&geom, &il, bytes, max_pfn))
		return -EINVAL;

	if (ramslice_request_busy())
		return -EBUSY;
	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	/* The driver knows slices by their size */
	if (!ramslice_all_online() || !ramslice_rest_end()) {
		err = -EBUSY;
		goto unlock;
	}
	err = ramslice_rebuild_table(&geom, false);
unlock:
	mutex_unlock(&ramslice_mutex);
	return err;
}

static void ramslice_classify_slice(u32 id)
{
	struct ramslice_slice *s = ramslice_slice(id);
	struct ramslice_census c;

	/* One that is online stays so without ramslice_mutex, and is not lost */
	if (!s || READ_ONCE(s->state) != RAMSLICE_ONLINE)
		return;
	if (s->unreclaimable && s->reason != RAMSLICE_REASON_BOOT)
		return;
	ramslice_find_reserved(id, &c);
	spin_lock_irq(&ramslice_lock);
	if (c.reason != RAMSLICE_REASON_NONE) {
		WRITE_ONCE(s->unreclaimable, true);
		s->reason = c.reason;
	} else if (s->reason == RAMSLICE_REASON_BOOT) {
		WRITE_ONCE(s->unreclaimable, false);
		s->reason = RAMSLICE_REASON_NONE;
	}
	spin_unlock_irq(&ramslice_lock);
}

/* A slice whose memory came or went. Under ramslice_mutex. May sleep. */
void ramslice_reclassify_slice(u32 id)
{
	if (ramslice_classified)
		ramslice_classify_slice(id);
}

/**
 * ramslice_classify - find the slices that hold memory reserved at boot
 * @again: even if done before
 *
 * Left until the first request or snapshot, when boot has given back its memory.
 *
 * Context: ramslice_mutex held. May sleep.
 */
void ramslice_classify(bool again)
{
	u32 id;

	lockdep_assert_held(&ramslice_mutex);
	if (ramslice_classified && !again)
		return;

	for (id = 0; id < ramslice_nr_ids; id++) {
		ramslice_classify_slice(id);
		cond_resched();
	}
	ramslice_classified = true;
}

/* What the command line says, as far as it can be done. */
static void __init ramslice_choose_geometry(u64 bytes,
					    const struct ramslice_interleave *il)
{
	u64 block_bytes = (u64)pageblock_nr_pages << PAGE_SHIFT;
	const struct ramslice_interleave none = {};
	const char *wrong;

	if (bytes && ramslice_geom_make(&ramslice_geom, &none, bytes, max_pfn))
		pr_warn("slice size %llu on the command line is not a multiple of %llu bytes or exceeds memory; using %u\n",
			bytes, block_bytes, RAMSLICE_DEFAULT_BYTES);
	wrong = ramslice_geom_make(&ramslice_geom, il, ramslice_slice_bytes(),
				   max_pfn);
	if (il->ways && wrong)
		pr_warn("slices of %llu bytes stay contiguous, not interleaved %u ways by %llu bytes: %s (a pageblock has %llu bytes)\n",
			ramslice_slice_bytes(), il->ways, il->granularity_bytes,
			wrong, block_bytes);
}

int __init ramslice_geometry_init(const struct ramslice_boot *boot)
{
	int err;

	if (!ramslice_geom.table)
		ramslice_choose_geometry(boot->slice_bytes, &boot->interleave);
	mutex_lock(&ramslice_mutex);
	err = ramslice_rebuild_table(&ramslice_geom, false);
	mutex_unlock(&ramslice_mutex);
	return err ?: ramslice_hotplug_init();
}
