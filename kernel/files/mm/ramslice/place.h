/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Placement: what place.c, which acts, ranking.c, which looks at slices, and
 * rank.c, which decides, share.
 */
#ifndef __MM_RAMSLICE_PLACE_H
#define __MM_RAMSLICE_PLACE_H

#include "internal.h"

/* How pages are placed. In this order in rank.c. */
enum ramslice_place_policy {
	RAMSLICE_PLACE_STOCK,	/* as the allocator does by itself */
	RAMSLICE_PLACE_PACKED,	/* kernel pages together, others in full slices */
	RAMSLICE_PLACE_POLICIES,
};

/* Slices that are ranked ahead for each kind of pages. */
#define RAMSLICE_PLACE_HINTS		32
/* A slice is the kernel's from such a part of it on that stays where it is. */
#define RAMSLICE_PLACE_KERNEL_PART	64

/**
 * struct ramslice_place_slice - what a policy goes by
 * @id: the slice
 * @index: how far it is from the first slice of its zone
 * @nr_pages: page frames with memory
 * @nr_free: in the allocator's lists
 * @nr_lru: on the LRU lists
 * @nr_other: of the rest, those that stay: kernel pages, and a few on their way
 * @free_blocks: pageblocks that are wholly free, of any type that is placed
 * @movable_blocks: those of them that are for movable pages
 * @kernel_blocks: others that are not for movable pages
 * @fixed: it can never be switched off
 * @near_kernel: its gigantic page has slices with kernel pages, or fixed ones
 * @stuck: when it was to be emptied last, a page of the kernel's stayed
 * @in_use: the last that pages of the kind came from whose list is made
 */
struct ramslice_place_slice {
	u32 id;
	u32 index;
	u32 nr_pages;
	u32 nr_free;
	u32 nr_lru;
	u32 nr_other;
	u32 free_blocks;
	u32 movable_blocks;
	u32 kernel_blocks;
	bool fixed;
	bool near_kernel;
	bool stuck;
	bool in_use;
};

/**
 * struct ramslice_kernel_slice - a slice that holds pages of the kernel's own
 * @id: the slice
 * @nr_stay: pages that stay, as far as is known
 * @nr_room: page frames that are such pages or may become such
 * @nr_spare: pageblocks that are wholly free and not for movable pages
 * @nr_own: others that are not for movable pages
 * @fixed: it can never be switched off
 */
struct ramslice_kernel_slice {
	u32 id;
	u32 nr_stay;
	u32 nr_room;
	u32 nr_spare;
	u32 nr_own;
	bool fixed;
};

/**
 * struct ramslice_place_list - slices for one kind of pages, best first
 * @id: the slices
 * @score: of each, how well it suits
 * @first: of each, the first pageblock that was wholly free
 * @nr: their number
 * @at: by migrate type of the free list: slices before this one have no
 *	pageblock on it that is wholly free, or had none when they were looked at
 * @block: of this one, the first pageblock that may be
 */
struct ramslice_place_list {
	u32 id[RAMSLICE_PLACE_HINTS];
	u64 score[RAMSLICE_PLACE_HINTS];
	u32 first[RAMSLICE_PLACE_HINTS];
	u32 nr;
	u32 at[MIGRATE_PCPTYPES];
	u32 block[MIGRATE_PCPTYPES];
};

/**
 * struct ramslice_place - where a zone's next pageblocks come from
 * @list: slices that were ranked
 * @last_id: the slice that the last pageblock came from, or RAMSLICE_NO_ID
 * @geom: the geometry that their numbers are of
 * @parts: for each slice, how much it suits kernel pages that find no pageblock
 * @policy: whose opinion that is
 * @nr_ids: elements of @parts; 0 if there are none
 * @nr_kernel: slices that have kernel pages
 * @nr_draining: those of them that these are to leave
 * @asked: the worker is to rank again
 * @nr_taken: pageblocks given since
 * @ranked_at: jiffies
 * @nr_placed: pageblocks taken from a slice that was ranked
 * @nr_passed: pageblocks for which none was left: of the free list's entries, the
 *	first is taken, or for kernel pages the best by @parts
 * @nr_rankings: how often the worker has ranked
 *
 * All under zone->lock.
 */
struct ramslice_place {
	struct ramslice_place_list list[RAMSLICE_PLACE_CLASSES];
	u32 last_id[RAMSLICE_PLACE_CLASSES];
	struct ramslice_geometry geom;
	u64 *parts;
	enum ramslice_place_policy policy;
	u32 nr_ids;
	u32 nr_kernel;
	u32 nr_draining;
	bool asked;
	u32 nr_taken;
	unsigned long ranked_at;
	u64 nr_placed[RAMSLICE_PLACE_CLASSES];
	u64 nr_passed[RAMSLICE_PLACE_CLASSES];
	u64 nr_rankings;
};

/* Figures of these, and of slices with kernel pages. */
struct ramslice_place_stats {
	u64 nr_placed[RAMSLICE_PLACE_CLASSES];
	u64 nr_passed[RAMSLICE_PLACE_CLASSES];
	u64 nr_rankings;
	u32 nr_kernel;
	u32 nr_draining;
};

/* Does a slice hold nothing? */
static inline bool ramslice_place_is_empty(const struct ramslice_place_slice *p)
{
	return p->nr_free == p->nr_pages;
}

/* A score: first by tier, which is from 1 to 7, then by @likes. */
static inline u64 ramslice_place_tier(u32 tier, u32 likes)
{
	return (u64)tier << 32 | likes;
}

/*
 * Among empty slices the kernel begins at the low end, where boot's pages are,
 * and users at the other: until the next ranking both go by what was empty at
 * the last one, and must not meet in the same slice.
 */
static inline u32
ramslice_place_end_first(enum ramslice_place_class class,
			 const struct ramslice_place_slice *p)
{
	return class == RAMSLICE_PLACE_KERNEL ? U32_MAX - p->index : p->index;
}

const char *ramslice_place_name(enum ramslice_place_policy policy);
int ramslice_place_parse(const char *name);
int ramslice_place_names(char *buf, size_t size);
bool ramslice_place_class_of(int type, enum ramslice_place_class *class);
bool ramslice_place_is_kernel(const struct ramslice_place_slice *p);
bool ramslice_place_was_kernel(u64 likes);
u64 ramslice_place_score(enum ramslice_place_policy policy,
			 enum ramslice_place_class class,
			 const struct ramslice_place_slice *p);
void ramslice_place_offer(struct ramslice_place_list *list, u32 id, u32 first,
			  u64 points);
void ramslice_place_renew(struct ramslice_place_list *list, u32 id, u32 first,
			  u64 points);

u32 ramslice_nr_kept(struct ramslice_kernel_slice *slices, u32 nr);
void ramslice_drain(struct ramslice_zone *rz,
		    struct ramslice_kernel_slice *slices, u32 nr);
void ramslice_drain_none(struct ramslice_zone *rz);

/* What is in force. Written under a lock of ranking.c. */
extern enum ramslice_place_policy ramslice_policy;

void ramslice_ask_ranking(struct ramslice_place *place);
void ramslice_place_set_policy(enum ramslice_place_policy new_policy);
void ramslice_place_rank_now(void);
void ramslice_place_stats(struct ramslice_zone *rz,
			  struct ramslice_place_stats *st);

/* What others call. */
#ifdef CONFIG_RAMSLICE_PLACEMENT
enum ramslice_place_policy ramslice_place_policy(void);
u64 ramslice_place_likes(enum ramslice_place_policy policy,
			 enum ramslice_place_class class,
			 const struct ramslice_place_slice *p);
int ramslice_place_end_of(enum ramslice_place_policy policy,
			  enum ramslice_place_class class);
int ramslice_place_new(struct ramslice_zone *rz);
void ramslice_place_forget(void);
void ramslice_place_refresh(struct ramslice_zone *rz);
void ramslice_place_woken(struct ramslice_zone *rz, u32 id, u32 first);
void ramslice_place_forget_types(u32 id);
int ramslice_place_init(void);
int ramslice_place_sysfs(struct kobject *kobj);
void ramslice_place_debugfs(struct dentry *dir, struct ramslice_zone *rz);
#else
static inline enum ramslice_place_policy ramslice_place_policy(void)
{
	return RAMSLICE_PLACE_STOCK;
}

static inline u64
ramslice_place_likes(enum ramslice_place_policy policy,
		     enum ramslice_place_class class,
		     const struct ramslice_place_slice *p)
{
	return 0;
}

/* The lowest slice that is empty, as with the policy "stock" */
static inline int ramslice_place_end_of(enum ramslice_place_policy policy,
					enum ramslice_place_class class)
{
	return 1;
}

static inline int ramslice_place_new(struct ramslice_zone *rz)
{
	return 0;
}

static inline void ramslice_place_forget(void)
{
}

static inline void ramslice_place_refresh(struct ramslice_zone *rz)
{
}

static inline void ramslice_place_woken(struct ramslice_zone *rz, u32 id,
					u32 first)
{
}

static inline void ramslice_place_forget_types(u32 id)
{
}

static inline int ramslice_place_init(void)
{
	return 0;
}

static inline int ramslice_place_sysfs(struct kobject *kobj)
{
	return 0;
}

static inline void ramslice_place_debugfs(struct dentry *dir,
					  struct ramslice_zone *rz)
{
}
#endif /* CONFIG_RAMSLICE_PLACEMENT */

#endif /* __MM_RAMSLICE_PLACE_H */
