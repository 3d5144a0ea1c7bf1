/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What carries out a request that empties slices: its decoded form and its
 * outcome, the destinations, and one slice after the other.
 */
#ifndef __MM_RAMSLICE_REQUEST_H
#define __MM_RAMSLICE_REQUEST_H

#include "internal.h"

struct ramslice_params;

/* --- reserve.c --- */
/**
 * struct ramslice_candidate - a slice and its price
 * @price: Eq 3.3
 * @id: the slice
 * @nr_free: free pages
 * @nr_cache: clean unmapped page cache
 * @stuck: cannot be emptied, so that @price has the offset in it
 * @node: while they are put in order
 */
struct ramslice_candidate {
	u64 price;
	u32 id;
	u32 nr_free;
	u32 nr_cache;
	bool stuck;
	struct list_head node;
};

/**
 * struct ramslice_reserve - slices that may receive pages, dearest first
 * @c: the slices, ascending by price, so that the dearest is the last
 * @nr: their number
 * @next: the destination that is scanned is @c[@next - 1]; dearer ones are full
 * @low: slices before this one are sources already used
 */
struct ramslice_reserve {
	struct ramslice_candidate *c;
	u32 nr;
	u32 next;
	u32 low;
};

bool ramslice_count_stragglers(u32 id, u32 counters[RAMSLICE_NR_COUNTERS]);
int ramslice_reserve_build(struct ramslice_reserve *r, struct ramslice_zone *rz,
			   const struct ramslice_params *params,
			   bool ignore_backoff);
void ramslice_reserve_free(struct ramslice_reserve *r);
void ramslice_reserve_sort(struct ramslice_candidate *c, size_t nr);
enum ramslice_reason ramslice_reserve_room(const struct ramslice_reserve *r,
					   const struct ramslice_params *params,
					   u32 source, u64 nr_move, u64 *nr_free,
					   u64 *nr_cache);

/* --- target.c --- */
/**
 * struct ramslice_target - page frames for migration (Algorithm 3.2)
 * @reserve: where they come from
 * @rz: the zone
 * @source: slice that is being emptied, never a destination
 * @block: next pageblock to scan in the current destination
 * @dropping: its free pages are used up, what it has of page cache goes
 * @offset: next page frame of that pageblock to look at then
 * @free: page frames at hand, by order; out of the allocator
 * @nr_free: their number
 * @large_order: blocks at least this large were looked for by themselves
 * @large_next: the destination to go on with is the one before this, dearest
 *		last, as in @reserve
 * @large_block: and its pageblock
 * @cache: what of their clean page cache may be dropped for more
 * @dry: nothing left to find
 * @work: where to count
 */
struct ramslice_target {
	struct ramslice_reserve *reserve;
	struct ramslice_zone *rz;
	u32 source;
	unsigned int block;
	bool dropping;
	unsigned int offset;
	struct list_head free[NR_PAGE_ORDERS];
	unsigned long nr_free;
	unsigned int large_order;
	u32 large_next;
	unsigned int large_block;
	enum ramslice_cache cache;
	bool dry;
	struct ramslice_work *work;
};

void ramslice_target_init(struct ramslice_target *t, struct ramslice_zone *rz,
			  struct ramslice_reserve *reserve,
			  enum ramslice_cache cache,
			  struct ramslice_work *work);
void ramslice_target_room(u32 id, u64 *nr_free, u64 *nr_cache);
void ramslice_target_fill(struct ramslice_target *t, unsigned long nr_pages);
void ramslice_target_leave(struct ramslice_target *t, u32 id);
void ramslice_target_release(struct ramslice_target *t);
struct folio *ramslice_target_alloc(struct folio *src, unsigned long private);
void ramslice_target_free(struct folio *dst, unsigned long private);

/* --- request.c --- */
/**
 * struct ramslice_params - what a request asks for, decoded
 * @op: enum ramslice_op
 * @id: the slice, where @op is about one
 * @node: of the zones to work on, or RAMSLICE_ANY
 * @zone: index of the zones to work on, or RAMSLICE_ANY
 * @budget: what may be spent, in the unit of prices
 * @max_slices: the request ends after this many
 * @deadline: jiffies at which it ends; never 0
 * @end_ns: the same by local_clock(), as a tick is several ms; 0 if that will do
 * @cache: what becomes of clean unmapped page cache
 * @per_slice: @budget is for each slice, not for all together
 * @ignore_backoff: slices that failed lately count like any other
 * @dry_run: nothing changes
 * @hold: slices that go offline are held, or held ones wake
 * @stays_on: a slice is emptied and stays on, its free pages in the allocator
 */
struct ramslice_params {
	u32 op;
	u32 id;
	int node;
	int zone;
	u64 budget;
	u32 max_slices;
	unsigned long deadline;
	u64 end_ns;
	enum ramslice_cache cache;
	bool per_slice;
	bool ignore_backoff;
	bool dry_run;
	bool hold;
	bool stays_on;
};

/**
 * struct ramslice_outcome - what became of a request
 * @status: 0 or a positive errno
 * @reason: why it ended
 * @nr_done: slices that changed
 * @nr_failed: slices that should have changed
 * @last_id: the last slice that was tried
 * @price_predicted: sum of prices
 * @price_measured: CPU time, in the same unit
 * @work: what was done for it
 */
struct ramslice_outcome {
	u32 status;
	enum ramslice_reason reason;
	u32 nr_done;
	u32 nr_failed;
	u32 last_id;
	u64 price_predicted;
	u64 price_measured;
	struct ramslice_work work;
};

extern atomic_t ramslice_nr_interrupting;

/* Does hotplug, or a system about to sleep, wait for who empties slices? */
static inline bool ramslice_is_waited_for(void)
{
	return atomic_read(&ramslice_nr_interrupting) || ramslice_inhibited();
}

void ramslice_decode_request(const struct ramslice_request *req,
			     struct ramslice_params *params);
void ramslice_encode_outcome(const struct ramslice_outcome *outcome,
			     struct ramslice_request *req);
bool ramslice_overdue(const struct ramslice_params *params);
u64 ramslice_left_ns(const struct ramslice_params *params);
enum ramslice_reason ramslice_why_end(const struct ramslice_params *params);
bool ramslice_drain_zone(struct zone *zone,
			 const struct ramslice_params *params);
bool ramslice_drain_lru(const struct ramslice_params *params);
int ramslice_status_of(enum ramslice_reason reason);
int ramslice_request(struct ramslice_request *req);
int ramslice_begin_emptying(void);
void ramslice_end_emptying(void);
bool ramslice_request_busy(void);
bool ramslice_interrupt_request(void);

/* --- offline.c --- */
/**
 * struct ramslice_run - a request under way
 * @params: what it asks for
 * @outcome: what has become of it so far
 * @rz: zone it works on at the moment
 * @target: destinations
 * @anon: pages to be moved by runs, or NULL
 * @bite_folios: what is migrated in one go
 * @longest_bite_ns: what that took at most
 * @work: what it has done so far
 * @dry_moved: dry run: page frames of destinations already spoken for
 * @dry_offline: dry run: page frames that would be offline by now
 * @drained: the LRU batches of all CPUs were drained for it
 * @nr_refused: slices in a row that the power driver refused
 * @reason: why it stopped, or why the last slice failed
 */
struct ramslice_run {
	const struct ramslice_params *params;
	struct ramslice_outcome *outcome;
	struct ramslice_zone *rz;
	struct ramslice_target target;
	struct migrate_run *anon;
	u32 bite_folios;
	u64 longest_bite_ns;
	struct ramslice_work work;
	u64 dry_moved;
	u64 dry_offline;
	bool drained;
	unsigned int nr_refused;
	enum ramslice_reason reason;
};

int ramslice_offline_slice(struct ramslice_run *run, u32 id);

/* --- migrate.c --- */
extern u32 ramslice_migrate_batch;
extern u32 ramslice_bite_us;
extern u32 ramslice_pause_us;

void ramslice_bites_init(struct ramslice_run *run);
void ramslice_bites_end(struct ramslice_run *run);
bool ramslice_add_to_run(struct ramslice_run *run, struct folio *folio);
void ramslice_forget_runs(struct ramslice_run *run);
void ramslice_migrate(struct ramslice_run *run, struct list_head *list,
		      unsigned long nr_pages, unsigned int nr_folios);

/* --- attempt.c --- */
void ramslice_run_begin(struct ramslice_run *run, struct ramslice_zone *rz,
			struct ramslice_reserve *reserve,
			const struct ramslice_params *params,
			struct ramslice_outcome *outcome);
void ramslice_run_end(struct ramslice_run *run);
bool ramslice_driver_refuses(const struct ramslice_run *run);
enum ramslice_reason ramslice_refusal(u32 id, bool ignore_backoff);
enum ramslice_reason ramslice_refuse(u32 id, enum ramslice_reason reason,
				     unsigned long pfn);
enum ramslice_reason ramslice_reject(struct ramslice_run *run, u32 id,
				     enum ramslice_reason reason,
				     unsigned long pfn);
enum ramslice_reason ramslice_attempt(struct ramslice_run *run, u32 id,
				      const struct ramslice_census *c,
				      u64 budget, u64 *spent);
void ramslice_quick_census(u32 id, struct ramslice_census *c,
			   enum ramslice_cache cache);
u64 ramslice_census_price(const struct ramslice_census *c);
bool ramslice_is_final(enum ramslice_reason reason);
u64 ramslice_clock_khz(void);

/* --- compact.c --- */
enum ramslice_reason ramslice_compact_zone(struct ramslice_zone *rz,
					   const struct ramslice_params *params,
					   struct ramslice_outcome *outcome,
					   u64 *budget);
enum ramslice_reason ramslice_offline_free_zone(struct ramslice_zone *rz,
						const struct ramslice_params *params,
						struct ramslice_outcome *outcome);
enum ramslice_reason ramslice_offline_one(const struct ramslice_params *params,
					  struct ramslice_outcome *outcome);

#endif /* __MM_RAMSLICE_REQUEST_H */
