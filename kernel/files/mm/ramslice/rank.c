// SPDX-License-Identifier: GPL-2.0
/*
 * How placement policies like slices. Pure: no locks, no memory but what is
 * passed.
 */

#include <linux/mmzone.h>
#include <linux/string.h>
#include "place.h"

static const char * const ramslice_policy_names[] = {
	[RAMSLICE_PLACE_STOCK]	  = "stock",
	[RAMSLICE_PLACE_PACKED]	  = "packed",
};

static_assert(ARRAY_SIZE(ramslice_policy_names) == RAMSLICE_PLACE_POLICIES);

const char *ramslice_place_name(enum ramslice_place_policy policy)
{
	return ramslice_policy_names[policy];
}

/* Writes the names of all policies, a space between two; returns the length. */
int ramslice_place_names(char *buf, size_t size)
{
	unsigned int policy;
	int len = 0;

	for (policy = 0; policy < RAMSLICE_PLACE_POLICIES; policy++)
		len += scnprintf(buf + len, size - len, "%s%s",
				 policy ? " " : "",
				 ramslice_policy_names[policy]);
	return len;
}

/* The policy of a name, as sysfs takes it, or -EINVAL. */
int ramslice_place_parse(const char *name)
{
	return sysfs_match_string(ramslice_policy_names, name);
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
 * pages on their way look like these, and say nothing, unless they are known to
 * have stayed.
 */
bool ramslice_place_is_kernel(const struct ramslice_place_slice *p)
{
	return p->fixed || p->kernel_blocks || (p->stuck && p->nr_other) ||
	       p->nr_other >= p->nr_pages / RAMSLICE_PLACE_KERNEL_PART;
}

/* Above all tiers: that there are blocks of one's own. */
#define OWN_BLOCKS	BIT_ULL(32 + 3)

/* Above all differences within a tier: where the range suits, too. */
#define RANGE_SUITS	BIT(31)

/*
 * Ours. Kernel pages go where nothing can be switched off anyway, then where
 * the most of their kind are; if a slice more must be spoilt, it is the one
 * that least has to move out of, in a range that can become no gigantic page
 * anyway. Movable pages fill the fullest of the other slices, so that the
 * emptiest may become empty, and leave the kernel's to it.
 */
static u64 ramslice_packed_likes(enum ramslice_place_class class,
				 const struct ramslice_place_slice *p)
{
	u32 first = ramslice_place_end_first(class, p) & ~RANGE_SUITS;
	u32 range = p->near_kernel ? RANGE_SUITS : 0;

	if (class == RAMSLICE_PLACE_KERNEL) {
		if (p->fixed)
			return ramslice_place_tier(4, p->nr_other);
		if (ramslice_place_is_kernel(p))
			return ramslice_place_tier(3, p->nr_other);
		if (ramslice_place_is_empty(p))
			return ramslice_place_tier(2, range | first);
		return ramslice_place_tier(1, range | (S32_MAX - p->nr_lru));
	}
	if (!ramslice_place_is_kernel(p))
		return ramslice_place_is_empty(p) ?
		       ramslice_place_tier(2, first) :
		       ramslice_place_tier(3, U32_MAX - p->nr_free);
	return ramslice_place_tier(1, U32_MAX - p->nr_other);
}

/**
 * ramslice_place_was_kernel - did a slice have kernel pages?
 * @likes: how much it was liked for these when it was ranked
 *
 * Means something under the policy packed alone.
 */
bool ramslice_place_was_kernel(u64 likes)
{
	return likes >= ramslice_place_tier(3, 0);
}

/**
 * ramslice_place_likes - how much a policy likes a slice for a kind of pages
 * @policy: the policy
 * @class: the kind of pages
 * @p: the slice
 *
 * Return: the more the better; 0 if the choice is left to the allocator.
 */
u64 ramslice_place_likes(enum ramslice_place_policy policy,
			 enum ramslice_place_class class,
			 const struct ramslice_place_slice *p)
{
	switch (policy) {
	case RAMSLICE_PLACE_PACKED:
		return ramslice_packed_likes(class, p);
	default:
		return 0;
	}
}

/*
 * At which end of a zone a policy begins with empty slices that are alike: 1 at
 * the lowest, -1 at the highest, 0 if that is for ramslice_place_likes() to say.
 */
int ramslice_place_end_of(enum ramslice_place_policy policy,
			  enum ramslice_place_class class)
{
	if (policy == RAMSLICE_PLACE_PACKED)
		return class == RAMSLICE_PLACE_KERNEL ? 1 : -1;
	return policy == RAMSLICE_PLACE_STOCK;
}

/*
 * The same where a pageblock is wanted; 0, too, if it has none to give. For
 * movable pages the allocator looks among the blocks of other types last, so
 * that slices which have no others come last, whatever the policy.
 */
u64 ramslice_place_score(enum ramslice_place_policy policy,
			 enum ramslice_place_class class,
			 const struct ramslice_place_slice *p)
{
	u64 points;

	if (!p->free_blocks)
		return 0;
	points = ramslice_place_likes(policy, class, p);
	if (points && (class == RAMSLICE_PLACE_KERNEL || p->movable_blocks))
		points += OWN_BLOCKS;
	return points;
}

/* Takes an entry out; those who were past it, or at it, go on where they were. */
static void ramslice_take_out(struct ramslice_place_list *list, u32 at)
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
		ramslice_take_out(list, begin ? 0 : list->nr - 1);
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
		ramslice_take_out(list, at);
	ramslice_place_offer(list, id, first, points);
}
