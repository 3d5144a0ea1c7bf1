// SPDX-License-Identifier: GPL-2.0
/*
 * How placement policies like slices. Pure: no locks, no memory but what is
 * passed.
 *
 * array, list and adaptive follow "Towards Practical Page Placement for a Green
 * Memory Manager" (IISc), sections IV.A, IV.B and IV.D; low follows "Run-time
 * Variation of Memory" (Virginia Tech, 2007), sections 3.2 and 3.6. What these
 * keep as lists and pools follows here from what a slice holds: it is the
 * kernel's if it has kernel pages, free if it holds nothing, else the users'.
 */

#include <linux/mmzone.h>
#include <linux/string.h>
#include "place.h"

static const char * const policy_names[] = {
	[RAMSLICE_PLACE_STOCK]	  = "stock",
	[RAMSLICE_PLACE_PACKED]	  = "packed",
	[RAMSLICE_PLACE_LOW]	  = "low",
	[RAMSLICE_PLACE_ARRAY]	  = "array",
	[RAMSLICE_PLACE_LIST]	  = "list",
	[RAMSLICE_PLACE_ADAPTIVE] = "adaptive",
};

static_assert(ARRAY_SIZE(policy_names) == RAMSLICE_PLACE_POLICIES);

const char *ramslice_place_name(enum ramslice_place_policy policy)
{
	return policy_names[policy];
}

/* The policy of a name, as sysfs takes it, or -EINVAL. */
int ramslice_place_parse(const char *name)
{
	return sysfs_match_string(policy_names, name);
}

/**
 * ramslice_place_class_of - who a pageblock of a migrate type is for
 * @type: migrate type of the request
 * @class: set to it
 *
 * Return: false for types that have memory of their own.
 */
bool ramslice_place_class_of(int type, enum ramslice_place_class *class)
{
	if (type == MIGRATE_MOVABLE)
		*class = RAMSLICE_PLACE_USER;
	else if (type == MIGRATE_UNMOVABLE || type == MIGRATE_RECLAIMABLE)
		*class = RAMSLICE_PLACE_KERNEL;
	else
		return false;
	return true;
}

/*
 * Does a slice stay on because of kernel pages? In movable pageblocks, a few
 * pages on their way look like these, and say nothing.
 */
bool ramslice_place_is_kernel(const struct ramslice_place_slice *p)
{
	return p->fixed || p->kernel_blocks ||
	       p->nr_other >= p->nr_pages / RAMSLICE_PLACE_KERNEL_PART;
}

static bool is_empty(const struct ramslice_place_slice *p)
{
	return p->nr_free == p->nr_pages;
}

/* Tiers are from 1 to 7; above them all, that there are blocks of one's own. */
#define OWN_BLOCKS	BIT_ULL(32 + 3)

/* First by tier; then by @likes. */
static u64 score(u32 tier, u32 likes)
{
	return (u64)tier << 32 | likes;
}

/*
 * Among empty slices the kernel begins at the low end, where boot's pages are,
 * and users at the other: until the next ranking both go by what was empty at
 * the last one, and must not meet in the same slice.
 */
static u32 end_first(enum ramslice_place_class class,
		     const struct ramslice_place_slice *p)
{
	return class == RAMSLICE_PLACE_KERNEL ? U32_MAX - p->index : p->index;
}

/*
 * Ours. Kernel pages go where nothing can be switched off anyway, then where
 * the most of their kind are; if a slice more must be spoilt, it is the one
 * that least has to move out of. Movable pages fill the fullest of the other
 * slices, so that the emptiest may become empty, and leave the kernel's to it.
 */
static u64 packed(enum ramslice_place_class class,
		  const struct ramslice_place_slice *p)
{
	if (class == RAMSLICE_PLACE_KERNEL) {
		if (p->fixed)
			return score(4, p->nr_other);
		if (ramslice_place_is_kernel(p))
			return score(3, p->nr_other);
		if (is_empty(p))
			return score(2, end_first(class, p));
		return score(1, U32_MAX - p->nr_lru);
	}
	if (!ramslice_place_is_kernel(p))
		return is_empty(p) ? score(2, end_first(class, p)) :
				     score(3, U32_MAX - p->nr_free);
	return score(1, U32_MAX - p->nr_other);
}

static u64 low(enum ramslice_place_class class,
	       const struct ramslice_place_slice *p, u32 nr_low)
{
	bool kernels = p->index < nr_low;

	if (class == RAMSLICE_PLACE_KERNEL)
		return score(kernels ? 2 : 1, U32_MAX - p->index);
	return score(kernels ? 1 : 2, U32_MAX - p->index);
}

static u64 array(enum ramslice_place_class class,
		 const struct ramslice_place_slice *p)
{
	return score(1, end_first(class, p));
}

/* Tiers of list and adaptive: one's own, then free ones, then the others'. */
static u32 pool_tier(enum ramslice_place_class class,
		     const struct ramslice_place_slice *p)
{
	if (is_empty(p) && !p->fixed)
		return 2;
	return (class == RAMSLICE_PLACE_KERNEL) ==
	       ramslice_place_is_kernel(p) ? 3 : 1;
}

/* The most recently used first, then the most free. */
static u64 list(enum ramslice_place_class class,
		const struct ramslice_place_slice *p)
{
	u32 tier = pool_tier(class, p);

	if (tier == 2)
		return score(tier, end_first(class, p));
	if (p->in_use && tier == 3)
		return score(4, 0);
	return score(tier, p->nr_free);
}

/* Within a pool, none is better; the most free is what is stolen from. */
static u64 adaptive(enum ramslice_place_class class,
		    const struct ramslice_place_slice *p)
{
	u32 tier = pool_tier(class, p);

	if (tier == 2)
		return score(tier, end_first(class, p));
	return score(tier, tier == 1 ? p->nr_free : 0);
}

/**
 * ramslice_place_likes - how much a policy likes a slice for a kind of pages
 * @policy: the policy
 * @class: the kind of pages
 * @p: the slice
 * @nr_low: for RAMSLICE_PLACE_LOW: slices that the kernel keeps to
 *
 * Return: the more the better; 0 if the choice is left to the allocator.
 */
u64 ramslice_place_likes(enum ramslice_place_policy policy,
			 enum ramslice_place_class class,
			 const struct ramslice_place_slice *p, u32 nr_low)
{
	switch (policy) {
	case RAMSLICE_PLACE_PACKED:
		return packed(class, p);
	case RAMSLICE_PLACE_LOW:
		return low(class, p, nr_low);
	case RAMSLICE_PLACE_ARRAY:
		return array(class, p);
	case RAMSLICE_PLACE_LIST:
		return list(class, p);
	case RAMSLICE_PLACE_ADAPTIVE:
		return adaptive(class, p);
	default:
		return 0;
	}
}

/*
 * The same where a pageblock is wanted; 0, too, if it has none to give. For
 * movable pages the allocator looks among the blocks of other types last, so
 * that slices which have no others come last, whatever the policy.
 */
u64 ramslice_place_score(enum ramslice_place_policy policy,
			 enum ramslice_place_class class,
			 const struct ramslice_place_slice *p, u32 nr_low)
{
	u64 points;

	if (!p->free_blocks)
		return 0;
	points = ramslice_place_likes(policy, class, p, nr_low);
	if (points && (class == RAMSLICE_PLACE_KERNEL || p->movable_blocks))
		points += OWN_BLOCKS;
	return points;
}

/* Takes an entry out; those who were past it, or at it, go on where they were. */
static void take_out(struct ramslice_place_list *list, u32 at)
{
	u32 nr = --list->nr - at;
	int type;

	memmove(&list->id[at], &list->id[at + 1], nr * sizeof(list->id[0]));
	memmove(&list->score[at], &list->score[at + 1],
		nr * sizeof(list->score[0]));
	memmove(&list->first[at], &list->first[at + 1],
		nr * sizeof(list->first[0]));
	for (type = 0; type < MIGRATE_PCPTYPES; type++) {
		if (list->at[type] > at)
			list->at[type]--;
		else if (list->at[type] == at && at < list->nr)
			list->block[type] = list->first[at];
	}
}

/**
 * ramslice_place_offer - put a slice into a list if it is good enough
 * @list: the list, best first; of equals, the one offered first
 * @id: the slice, not in the list
 * @first: its first pageblock that is wholly free
 * @points: its score; 0 is never good enough
 *
 * Of a list that is in use, it comes behind those that have no movable pageblock
 * any more, and takes the place of such a one if the list is full.
 */
void ramslice_place_offer(struct ramslice_place_list *list, u32 id, u32 first,
			  u64 points)
{
	u32 begin = list->at[MIGRATE_MOVABLE], to, nr;
	int type;

	if (!points)
		return;
	for (to = list->nr; to > begin && list->score[to - 1] < points; to--)
		;
	if (list->nr == RAMSLICE_PLACE_HINTS) {
		if (!begin && to == list->nr)
			return;
		take_out(list, begin ? 0 : list->nr - 1);
		to -= !!begin;
	}
	nr = list->nr++ - to;
	memmove(&list->id[to + 1], &list->id[to], nr * sizeof(list->id[0]));
	memmove(&list->score[to + 1], &list->score[to],
		nr * sizeof(list->score[0]));
	memmove(&list->first[to + 1], &list->first[to],
		nr * sizeof(list->first[0]));
	list->id[to] = id;
	list->score[to] = points;
	list->first[to] = first;
	for (type = 0; type < MIGRATE_PCPTYPES; type++) {
		if (list->at[type] > to)
			list->at[type]++;
		else if (list->at[type] == to)
			list->block[type] = first;
	}
}

/**
 * ramslice_place_renew - pageblocks of a slice have become free
 * @list: the list, which is in use
 * @id: the slice, which may be in the list
 * @first: the first of these pageblocks
 * @points: its score
 */
void ramslice_place_renew(struct ramslice_place_list *list, u32 id, u32 first,
			  u64 points)
{
	u32 begin = list->at[MIGRATE_MOVABLE], *block, at;

	for (at = 0; at < list->nr && list->id[at] != id; at++)
		;
	if (at < list->nr && at >= begin) {
		block = at == begin ? &list->block[MIGRATE_MOVABLE] :
				      &list->first[at];
		*block = min(*block, first);
		return;
	}
	/* What it had is used up */
	if (at < list->nr)
		take_out(list, at);
	ramslice_place_offer(list, id, first, points);
}
