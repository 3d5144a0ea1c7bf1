/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of ramslice share.
 *
 *   blocks.c    what is kept for each pageblock, and whether it is free
 *   scan.c      what each pageblock held when it was read last
 *   verify.c    compares that with the allocator's free lists
 *   geometry.c  the table of slices
 *   interleave.c
 *               which pageblocks make up which slice (pure)
 *   segments.c  slices as a table of segments of unequal sizes
 *   mpst.c      such a table by firmware (ACPI)
 *   ddr_regions.c
 *               the same of a device tree
 *   hotplug.c   memory that comes and goes
 *   sleep.c     before the system sleeps or restarts
 *   state.c     the states of a slice and their legal changes
 *   page_class.c
 *               what a page is, and why it may keep its slice on
 *   cache.c     which clean page cache is dropped, and which is moved
 *   cache_events.c
 *               look-ups in the page cache, and distances of refaults
 *   census.c    walks one slice: what is in it, what blocks it
 *   pages.c     shows user space what is in a slice, page by page
 *   price.c     what emptying costs (pure arithmetic)
 *   reserve.c   destinations, dearest first
 *   target.c    page frames of destinations (Algorithm 3.2)
 *   offline.c   emptying one slice (Algorithm 3.1)
 *   migrate.c   its pages on their way, a bite at a time
 *   attempt.c   one slice: checks it against room, budget and reserve, and
 *               empties it
 *   compact.c   which slices to empty: one, or many within a budget
 *   request.c   requests and their outcome
 *   place.c     which slice the allocator's next pageblock comes from
 *   place_files.c
 *               its policy in sysfs
 *   ranking.c   the policy in force, and the worker that ranks slices by it
 *   rank.c      how placement policies like slices (pure)
 *   drain.c     slices that the kernel's pages are to leave
 *   wake.c      waking, for all callers
 *   demand.c    what mm asks when memory runs low
 *   hugetlb.c   pages of the hugetlb pool: migrated or replaced
 *   contig.c    ranges that are free, for contiguous allocations
 *   ranges.c    what pageblocks cost as part of a buffer, and the cheapest range
 *   buffer.c    large contiguous buffers for drivers
 *   buffer_files.c
 *               their books in sysfs
 *   charge.c    charges of these to memory control groups
 *   heap.c      the same for programs, as dma-bufs
 *   power.c     power drivers
 *   driver_call.c
 *               calls of those that sleep
 *   strict.c    slices that are off leave the direct map
 *   cold.c      nodes for what is rarely used: twins, and the way to them
 *   cold_area.c memory moves to a twin and back
 *   cold_sysfs.c their files in sysfs
 *   rest.c      which slices of them the power driver may let rest
 *   boot_args.c what the kernel command line says (pure)
 *   debugfs.c, sysfs.c, chardev.c   the interfaces
 *
 * Locks, outermost first:
 *   ramslice_buffer_mutex	one buffer at a time is made
 *   ramslice_mutex	one request that empties slices at a time; geometry;
 *			power driver registration
 *   ramslice_table_sem	the table of slices and the geometry stay while read
 *   scan_mutex		of a zone: the summaries of its slices
 *   ramslice_lock	states of slices and everything derived from them;
 *			taken by allocations, hence with interrupts off and
 *			never held over anything that allocates
 *   zone->lock		free lists and migrate types
 */
#ifndef __MM_RAMSLICE_INTERNAL_H
#define __MM_RAMSLICE_INTERNAL_H

#ifdef pr_fmt
#undef pr_fmt
#endif
#define pr_fmt(fmt) "ramslice: " fmt

#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/ramslice.h>
#include <linux/ramslice_power.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <uapi/linux/ramslice.h>
#include "geometry.h"

/*
 * Slices wake in chunks of this many pageblocks: 4 MiB on x86-64. Free blocks of
 * the allocator are no larger.
 */
#define RAMSLICE_CHUNK_BLOCKS	max(2U, 1U << (MAX_PAGE_ORDER - pageblock_order))
#define RAMSLICE_CHUNK_PAGES	(RAMSLICE_CHUNK_BLOCKS * pageblock_nr_pages)

/* A request gives up after this long unless it says otherwise. */
#define RAMSLICE_DEADLINE_MS	60000U

/* A slice that failed is left alone: first this long, doubling each time. */
#define RAMSLICE_BACKOFF_MIN_MS	1000U
#define RAMSLICE_BACKOFF_MAX_MS	(10U * 60 * 1000)

struct ramslice_boot;
struct ramslice_place;
struct ramslice_zone;

/**
 * struct ramslice_slice - one slice
 * @rz: the zone it belongs to; NULL if it has no memory
 * @state: enum ramslice_state
 * @reason: enum ramslice_reason: why it cannot be emptied, or did not work
 * @unreclaimable: @reason is for good
 * @powered: while RAMSLICE_WAKING: the power driver has finished
 * @held: while RAMSLICE_OFFLINE: it does not wake by itself, see hold.c
 * @nr_fails: attempts that failed in a row
 * @power_state: state of the power driver it is in while offline
 * @nr_pages: page frames with memory
 * @claimed: while RAMSLICE_WAKING: blocks taken for release
 * @released: while RAMSLICE_WAKING: blocks given to the allocator
 * @retry_at: jiffies before which it is not tried again, if @nr_fails
 * @count: sums of its pageblocks' summaries
 * @nr_blocking: likewise
 * @blocker: page frame of one of the blocking pages
 * @read_at: jiffies when all of it had been read, for the last time
 * @was_read: @read_at says something
 *
 * All under ramslice_lock; @reason, @nr_fails and @retry_at change under
 * ramslice_mutex, too. From @count on, under scan_mutex instead.
 */
struct ramslice_slice {
	struct ramslice_zone *rz;
	u8 state;
	u8 reason;
	bool unreclaimable;
	bool powered;
	bool held;
	u8 nr_fails;
	u8 power_state;
	u32 nr_pages;
	u32 claimed;
	u32 released;
	unsigned long retry_at;
	u32 count[RAMSLICE_NR_COUNTERS];
	u32 nr_blocking;
	unsigned long blocker;
	unsigned long read_at;
	bool was_read;
};

/* What has been done; for the debugfs file and for requests. */
struct ramslice_work {
	u64 pages_migrated;
	u64 pages_dropped;
	u64 pages_failed;
	u64 huge_moved;
	u64 huge_split;
	u64 target_free;	/* page frames taken from free lists */
	u64 target_cache;	/* page frames gained by dropping cache */
	u64 blocks_isolated;
};

/* Statistics of a zone since they were reset. Under ramslice_lock. */
struct ramslice_stats {
	struct ramslice_work work;
	u64 offline_tried;
	u64 offline_done;
	u64 online_request;
	u64 online_demand;
	u64 aborted_pressure;
	u64 price_predicted;
	u64 price_measured;
	u64 longest_bite_ns;
};

/**
 * struct ramslice_zone - what ramslice keeps for a zone; never freed
 * @zone: the zone
 * @first_id: its first slice
 * @end_id: one after its last slice; zones of other nodes may lie between
 * @nr: slices by state
 * @nr_slices: slices of this zone
 * @emptying: a slice of this zone is being emptied
 * @pressure: memory was wanted since; the request that empties gives up
 * @kicked: the wake thread should look here
 * @filling: the wake thread is at it
 * @wants_chunk: one chunk is wanted, whatever there is
 * @wanted_for: enum ramslice_place_class: what memory was last wanted for
 * @wanted_order: the largest order that was wanted
 * @wanted_until: jiffies until which @wanted_order counts
 * @calm_until: jiffies before which the thread is not woken ahead of need
 * @nr_claimed: chunks that are on their way to the allocator
 * @nr_released: chunks given to the allocator
 * @recycle_at: jiffies before which streams do not look for cache to recycle
 * @nr_held: offline slices that are held
 * @nr_held_pages: their pages
 * @nr_quarantined_pages: lost
 * @woken_by_demand: slices woken by allocations
 * @woken_by_request: slices woken by requests; like it, never set back
 * @stats: statistics
 * @place: where its next pageblocks come from, see place.h
 * @scan_mutex: the summaries of its slices
 * @scan_work: reads what changed, and the rest little by little
 * @scan_changed: the slice to look at next for what changed
 * @scan_all: the slice to read next whatever is known of it
 */
struct ramslice_zone {
	struct zone *zone;
	u32 first_id;
	u32 end_id;
	u32 nr[RAMSLICE_NR_STATES];
	u32 nr_slices;
	bool emptying;
	bool pressure;
	bool kicked;
	bool filling;
	bool wants_chunk;
	u8 wanted_for;
	u8 wanted_order;
	unsigned long wanted_until;
	unsigned long calm_until;
	unsigned int nr_claimed;
	unsigned long nr_released;
	unsigned long recycle_at;
	u32 nr_held;
	unsigned long nr_held_pages;
	unsigned long nr_quarantined_pages;
	u64 woken_by_demand;
	u64 woken_by_request;
	struct ramslice_stats stats;
	struct ramslice_place *place;
	struct mutex scan_mutex;	/* summaries of its slices */
	struct delayed_work scan_work;
	u32 scan_changed;
	u32 scan_all;
};

#define RAMSLICE_NO_ID	U32_MAX

/*
 * Sets of slices, a bit for each: so that an allocation need not walk a table of
 * a hundred thousand with interrupts off. Under ramslice_lock.
 */
enum ramslice_set {
	RAMSLICE_SET_OFF,	/* offline, and not held */
	RAMSLICE_SET_HELD,
	RAMSLICE_SET_WAKING,
	RAMSLICE_SET_NEAR_KERNEL, /* of any state, by ranking.c */
	RAMSLICE_NR_SETS,
};

extern struct mutex ramslice_mutex;
extern struct rw_semaphore ramslice_table_sem;
extern spinlock_t ramslice_lock;
extern wait_queue_head_t ramslice_wait;
extern u64 ramslice_event_seq;
extern struct ramslice_slice *ramslice_slices;
extern unsigned long *ramslice_sets[RAMSLICE_NR_SETS];
extern u32 ramslice_nr_ids;

/* --- geometry.c --- */
int ramslice_set_slice_bytes(u64 bytes);
u64 ramslice_slice_bytes(void);
u64 ramslice_group_bytes(void);
struct ramslice_interleave ramslice_interleave_now(void);
bool ramslice_poisoned(const struct ramslice_slice *s);
int ramslice_geometry_init(const struct ramslice_boot *boot);
int ramslice_rebuild_table(const struct ramslice_geometry *geom, bool spare);
int ramslice_update_slice(u32 id);
void ramslice_tell_of_table(void);
void ramslice_classify(bool again);
void ramslice_reclassify_slice(u32 id);
struct ramslice_zone *ramslice_zone_of(const struct zone *zone);
struct ramslice_zone *ramslice_zone_by_index(unsigned int index);
unsigned int ramslice_nr_zones(void);
struct ramslice_slice *ramslice_slice(u32 id);
enum ramslice_reason ramslice_block_probe(const struct zone *zone,
					  unsigned long pfn);

/* Slices of a zone; @id is a u32, @s the slice. */
#define for_each_zone_slice(rz, id, s)					\
	for ((id) = (rz)->first_id;					\
	     (id) < (rz)->end_id && ((s) = &ramslice_slices[id]);	\
	     (id)++)							\
		if ((s)->rz == (rz))

/* --- hotplug.c --- */
#ifdef CONFIG_MEMORY_HOTPLUG
int ramslice_hotplug_init(void);
#else
static inline int ramslice_hotplug_init(void)
{
	return 0;
}
#endif

/* --- blocks.c --- */
/**
 * struct ramslice_block - a pageblock's summary: what it held when it was read
 * @count: pages by enum ramslice_counter
 * @nr_blocking: pages that could be neither dropped nor moved
 * @saved_type: migrate type to restore when an isolated pageblock comes
 *	   back; owned by the request that took it out of RAMSLICE_ONLINE.
 * @drains: the kernel's pages are to leave its slice; drain.c, under a lock of
 *	   ranking.c
 *
 * The counters change under scan_mutex of the slice's zone. Readers that
 * only want an estimate go without.
 */
struct ramslice_block {
	u16 count[RAMSLICE_NR_COUNTERS];
	u16 nr_blocking;
	u8 saved_type;
	u8 drains;
};

int ramslice_blocks_init(void);
int ramslice_cover_zone(struct zone *zone);
struct ramslice_block *ramslice_block(unsigned long pfn);
u8 *ramslice_touched_byte(const struct ramslice_blocks *b, unsigned long nr);
bool ramslice_block_touched(unsigned long pfn);
void ramslice_clear_touched(unsigned long pfn);
bool ramslice_block_free(unsigned long pfn);

/* --- scan.c --- */
/* As an age: whatever it is, unless pages came or went. */
#define RAMSLICE_ANY_AGE	MAX_JIFFY_OFFSET

bool ramslice_slice_empty(u32 id);
void ramslice_count_slice(u32 id, u32 counters[RAMSLICE_NR_COUNTERS]);
bool ramslice_slice_stale(u32 id);
void ramslice_glance_slice(u32 id);
void ramslice_scan_slice(u32 id, unsigned long max_age);
bool ramslice_scan_part(struct ramslice_zone *rz, u32 *left,
			unsigned long max_age, u64 limit_ns,
			unsigned long deadline);
bool ramslice_scan_zone(struct ramslice_zone *rz, unsigned long max_age,
			u64 limit_ns, unsigned long deadline);
void ramslice_forget_slice(u32 id);
void ramslice_sum_slice(u32 id);
enum ramslice_reason ramslice_blocker_of(u32 id);
void ramslice_scan_begin(struct ramslice_zone *rz);
extern u32 ramslice_scan_ppm;

/* --- verify.c --- */
struct seq_file;
int ramslice_verify(struct seq_file *m);

/* --- state.c --- */
bool ramslice_state_legal(enum ramslice_state from, enum ramslice_state to);
bool ramslice_set_state(u32 id, enum ramslice_state to);
void ramslice_note_sets(u32 id);
u32 ramslice_next_in(const struct ramslice_zone *rz, u32 id,
		     enum ramslice_set set);
u32 ramslice_first_in_both(const struct ramslice_zone *rz, enum ramslice_set a,
			   enum ramslice_set b);
u32 ramslice_last_in(const struct ramslice_zone *rz, enum ramslice_set set);
const char *ramslice_state_name(enum ramslice_state state);
const char *ramslice_reason_name(enum ramslice_reason reason);

/* --- price.c --- */
/**
 * struct ramslice_prices - Table 3.2, in units of 100 cycles
 * @isolate_slice: what each slice costs
 * @isolate_page: each 1024 page frames of it
 * @drop_page: a page of clean cache that is dropped
 * @migrate_page: a page that moves
 * @migrate_mapping: each mapping of such a page
 * @alloc_buddy: its destination, out of free memory
 * @alloc_cache: its destination, where cache is dropped for it
 * @unreclaimable: added for a slice that cannot be emptied
 */
struct ramslice_prices {
	u64 isolate_slice;
	u64 isolate_page;
	u64 drop_page;
	u64 migrate_page;
	u64 migrate_mapping;
	u64 alloc_buddy;
	u64 alloc_cache;
	u64 unreclaimable;
};

#define RAMSLICE_PRICES_DEFAULT {					\
	.isolate_slice	 = 695,						\
	.isolate_page	 = 303,						\
	.drop_page	 = 39,						\
	.migrate_page	 = 100,						\
	.migrate_mapping = 29,						\
	.alloc_buddy	 = 1,						\
	.alloc_cache	 = 25,						\
	.unreclaimable	 = 1000000000ULL,				\
}

extern struct ramslice_prices ramslice_prices;

struct ramslice_prices ramslice_current_prices(void);
u64 ramslice_price_base(const struct ramslice_prices *p, u64 nr_pages);
u64 ramslice_price_content(const struct ramslice_prices *p, u64 nr_drop,
			   u64 nr_move, u64 nr_maps);
u64 ramslice_price_targets(const struct ramslice_prices *p, u64 nr_free,
			   u64 nr_cache);
u64 ramslice_price_counters(const struct ramslice_prices *p, u64 nr_pages,
			    const u32 counters[RAMSLICE_NR_COUNTERS],
			    bool poisoned);
u64 ramslice_price_work(const struct ramslice_prices *p,
			const struct ramslice_work *work, u64 nr_maps);
u64 ramslice_nr_drop(const u32 counters[RAMSLICE_NR_COUNTERS]);
u64 ramslice_nr_move(const u32 counters[RAMSLICE_NR_COUNTERS]);
bool ramslice_has_unmovable(u64 nr_pages,
			    const u32 counters[RAMSLICE_NR_COUNTERS]);

/* --- cache.c --- */
/* What becomes of clean unmapped page cache that is in the way. */
enum ramslice_cache {
	RAMSLICE_CACHE_DROP,	/* dropped */
	RAMSLICE_CACHE_KEEP,	/* moved, and left where it is in destinations */
	RAMSLICE_CACHE_AUTO,	/* what was used lately kept, the rest dropped */
	RAMSLICE_CACHE_AGED,	/* the same, and all of the zone ages at the end */
};

void ramslice_cache_prices(struct ramslice_prices *prices,
			   enum ramslice_cache cache);
void ramslice_cache_protect(void);
bool ramslice_folio_droppable(struct folio *folio);
bool ramslice_folio_goes(struct folio *folio, enum ramslice_cache cache);
bool ramslice_drop_folio(struct folio *folio, enum ramslice_cache cache);
void ramslice_age_folio(struct folio *folio);
void ramslice_age_slice(u32 id);

/* --- cache_events.c --- */
#define RAMSLICE_NR_DISTANCES	64

unsigned int ramslice_distance_order(unsigned long distance);
ssize_t ramslice_show_refaults(bool file, char *buf);
#ifdef CONFIG_RAMSLICE_CACHE_EVENTS
int ramslice_refault_sysfs(struct kobject *kobj);
#else
static inline int ramslice_refault_sysfs(struct kobject *kobj)
{
	return 0;
}
#endif

/* --- census.c --- */
/* Folios that may be lent, of which a census keeps where they are. */
#define RAMSLICE_MAX_LENT	16

/**
 * struct ramslice_census - one slice, page by page
 * @nr_pages: page frames with memory
 * @nr_free: in the allocator, per-CPU lists included
 * @nr_drop: clean unmapped page cache to be dropped
 * @nr_move: to be migrated
 * @nr_maps: mappings of these
 * @nr_huge: of these, in folios of a pageblock
 * @nr_blocking: pages that can be neither dropped nor moved
 * @reason: why the first of these cannot, or RAMSLICE_REASON_NONE
 * @pfn: the first of these
 * @lent: page frames of the first anonymous folios with extra references
 * @nr_lent: their number
 */
struct ramslice_census {
	unsigned long nr_pages;
	unsigned long nr_free;
	unsigned long nr_drop;
	unsigned long nr_move;
	unsigned long nr_maps;
	unsigned long nr_huge;
	unsigned long nr_blocking;
	enum ramslice_reason reason;
	unsigned long pfn;
	unsigned long lent[RAMSLICE_MAX_LENT];
	unsigned int nr_lent;
};

void ramslice_find_reserved(u32 id, struct ramslice_census *c);
void ramslice_take_census(u32 id, struct ramslice_census *c,
			  enum ramslice_cache cache, bool stop_early);
enum ramslice_reason ramslice_find_blocker(unsigned long pfn);
unsigned long ramslice_find_lent(const struct ramslice_census *c);

/* --- page_class.c --- */
enum ramslice_reason ramslice_folio_blocks(struct folio *folio);
int ramslice_folio_extra_refs(struct folio *folio);
bool ramslice_folio_pinned(struct folio *folio);
enum ramslice_reason ramslice_frame_blocks(struct page *page);
struct folio *ramslice_get_folio(struct page *page);
enum ramslice_reason ramslice_type_blocks(int type);
enum ramslice_page_class ramslice_page_class(struct page *page, bool held);

/* Page frames to go on by; without a reference, what is read is not believed. */
static inline unsigned long ramslice_nr_frames(const struct page *page,
					       unsigned long left)
{
	const struct folio *folio = (const struct folio *)page;
	unsigned int order;

	if (!PageHead(page))
		return 1;
	order = READ_ONCE(folio->_flags_1) & 0xff;
	if (order >= BITS_PER_TYPE(u32))
		return 1;
	return min(1UL << order, left);
}

/* --- pages.c --- */
long ramslice_ioc_pages(void __user *arg);

/* --- offline.c --- */
unsigned long ramslice_awake_reserve(struct zone *zone);
bool ramslice_spares(struct zone *zone, unsigned long nr_pages);

/* --- hugetlb.c --- */
bool ramslice_hugetlb_page(unsigned long pfn);
void ramslice_hugetlb_clear(unsigned long pfn, bool only_free,
			    struct ramslice_work *work);

/* --- driver_call.c --- */
/* What a power driver is called for. */
enum ramslice_call_kind {
	RAMSLICE_CALL_OFF,
	RAMSLICE_CALL_WAKE,
	RAMSLICE_CALL_REST,
	RAMSLICE_CALL_END_REST,
};

struct ramslice_call;
extern unsigned int ramslice_call_timeout_ms;

struct ramslice_call *ramslice_call_prepare(u32 id,
					    enum ramslice_call_kind kind,
					    u8 power_state);
void ramslice_call_start(struct ramslice_call *call);
int ramslice_call_off(u32 id, u8 *power_state);
int ramslice_call_rest(u32 id, bool rests);
bool ramslice_calls_busy(void);
bool ramslice_calls_left(void);
unsigned int ramslice_calls_late(void);
int ramslice_call_init(void);

/* --- strict.c --- */
#define RAMSLICE_CAN_UNMAP	IS_ENABLED(CONFIG_X86_64)
bool ramslice_is_strict(void);
int ramslice_set_strict(bool on);
int ramslice_strict_split(u32 id);
void ramslice_strict_unmap(u32 id, bool before);
void ramslice_strict_map(u32 id);

/* --- wake.c --- */
/* What pages are for, as far as placement goes: see place.h. */
enum ramslice_place_class {
	RAMSLICE_PLACE_KERNEL,	/* unmovable and reclaimable pages */
	RAMSLICE_PLACE_USER,	/* movable pages */
	RAMSLICE_PLACE_CLASSES,
};

/**
 * struct ramslice_chunk - blocks claimed for release
 * @id: the slice
 * @first: which of its pageblocks is the first
 * @pfn: of that one
 * @nr_blocks: their number
 */
struct ramslice_chunk {
	u32 id;
	u32 first;
	unsigned long pfn;
	unsigned int nr_blocks;
};

bool ramslice_claim_chunk(struct ramslice_zone *rz, struct ramslice_chunk *c,
			  enum ramslice_place_class class);
bool ramslice_claim_begun_chunk(struct ramslice_zone *rz,
				struct ramslice_chunk *c);
void ramslice_release_chunk(const struct ramslice_chunk *c, bool by_demand);
bool ramslice_wake_sleeping(struct ramslice_zone *rz);
bool ramslice_may_wake(void);

int ramslice_wake_slice(u32 id, bool by_demand, bool held,
			unsigned long deadline);
int ramslice_wake_zone(struct ramslice_zone *rz, unsigned long deadline,
		       bool held, u32 *nr_woken, u32 *nr_failed);
bool ramslice_wake_all(u32 *nr_woken);
void ramslice_lose(u32 id);
void ramslice_wake_answered(u32 id, int err);
bool ramslice_wake_idle(void);
extern struct task_struct *ramslice_requester;

/* --- hold.c --- */
bool ramslice_hold(u32 id);
void ramslice_unhold(u32 id);

/* --- frames.c --- */
void ramslice_prep_pages(struct page *page, unsigned int order);
bool ramslice_take_chunk(struct zone *zone, unsigned long pfn,
			 unsigned int nr_blocks);
void ramslice_give_chunk(struct zone *zone, unsigned long pfn,
			 unsigned int nr_blocks);
void ramslice_give_back(u32 id);

/* --- sleep.c --- */
bool ramslice_inhibited(void);
int ramslice_sleep_init(void);

/* --- demand.c --- */
/* How much an allocation wants memory to be woken. */
enum ramslice_want {
	RAMSLICE_WANTS_NOTHING,	/* it does well without */
	RAMSLICE_WANTS_AT_ONCE,	/* what can be had without waiting */
	RAMSLICE_WANTS_IT,
};

enum ramslice_want ramslice_want_of(gfp_t gfp, unsigned int order);
bool ramslice_enough(struct zone *zone, unsigned int order);
bool ramslice_may_wait(gfp_t gfp);
bool ramslice_zone_can_wake(struct zone *zone);
int ramslice_demand_init(void);
void ramslice_drain_local(struct zone *zone);
void ramslice_kick(struct ramslice_zone *rz);

/* --- power.c --- */
/* As in struct ramslice_info. */
#define RAMSLICE_DRIVER_NAME_LEN	32

int ramslice_power_off(u32 id, u8 *power_state);
int ramslice_power_wake(u32 id, u8 power_state);
int ramslice_power_rest(u32 id, bool rests);
bool ramslice_power_rests(void);
void ramslice_power_check(u32 id, unsigned long pfn, unsigned long nr_pages);
bool ramslice_power_idle(void);
bool ramslice_power_wake_sleeps(void);
bool ramslice_power_unmaps(void);
bool ramslice_power_survives_sleep(void);
unsigned int ramslice_power_latency_us(void);
unsigned int ramslice_power_cache_percent(void);
void ramslice_power_name(char name[RAMSLICE_DRIVER_NAME_LEN]);

/* --- interfaces --- */
int ramslice_sysfs_init(void);
ssize_t ramslice_store_uint(const char *buf, size_t len, unsigned int min,
			    unsigned int max, unsigned int *value);
int ramslice_debugfs_init(void);
int ramslice_chardev_init(void);
int ramslice_get_struct(void *dst, size_t ksize, size_t min_size,
			const void __user *src, u32 *usize);
int ramslice_put_struct(void __user *dst, const void *src, size_t ksize,
			u32 usize);
u32 ramslice_fill_rows(struct ramslice_slice_info *rows, u64 *seq);

#endif /* __MM_RAMSLICE_INTERNAL_H */
