/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests of placement share: a zone in miniature, and how to state in which
 * order a policy likes its slices.
 */
#ifndef __MM_RAMSLICE_TESTS_PLACE_H
#define __MM_RAMSLICE_TESTS_PLACE_H

#include <kunit/test.h>
#include "../place.h"

#define SLICE_PAGES	8192U

/* A zone in miniature; each slice has room unless it says otherwise. */
enum { FIXED, KERNEL, KERNEL_MORE, FULL, EMPTY, HALF, NEARLY_FULL, LAST, NR };

static const struct ramslice_place_slice zone[NR] = {
	[FIXED] = { .nr_free = 4096, .nr_other = 4096, .free_blocks = 8,
		    .fixed = true },
	[KERNEL] = { .nr_free = 7680, .nr_other = 512, .free_blocks = 15,
		     .kernel_blocks = 1 },
	[KERNEL_MORE] = { .nr_free = 6144, .nr_other = 1024, .nr_lru = 1024,
			  .free_blocks = 12, .kernel_blocks = 2 },
	/* The emptiest of all, were it not for blocks that are used in part */
	[FULL] = { .nr_free = 8000, .nr_lru = 192, .free_blocks = 0 },
	[EMPTY] = { .nr_free = 8192, .free_blocks = 16 },
	[HALF] = { .nr_free = 4096, .nr_lru = 4096, .free_blocks = 8 },
	[NEARLY_FULL] = { .nr_free = 1024, .nr_lru = 7164, .nr_other = 4,
			  .free_blocks = 2 },
	[LAST] = { .nr_free = 8192, .free_blocks = 16 },
};

static inline struct ramslice_place_slice slice(u32 id)
{
	struct ramslice_place_slice p = zone[id];

	p.id = id;
	p.index = id;
	p.nr_pages = SLICE_PAGES;
	p.movable_blocks = p.free_blocks;
	return p;
}

typedef u64 (*scores)(enum ramslice_place_policy policy,
		      enum ramslice_place_class class,
		      const struct ramslice_place_slice *p);

/* The whole order of a policy, and how many are in it. */
static inline u32 order_of(scores score_of, enum ramslice_place_policy policy,
			   enum ramslice_place_class class, u32 current_id,
			   u32 order[RAMSLICE_PLACE_HINTS])
{
	struct ramslice_place_list list = {};
	u32 id;

	for (id = 0; id < NR; id++) {
		struct ramslice_place_slice p = slice(id);

		p.in_use = id == current_id;
		ramslice_place_offer(&list, id, 0,
				     score_of(policy, class, &p));
	}
	memcpy(order, list.id, sizeof(list.id));
	return list.nr;
}

static inline void expect_order(struct kunit *test, scores score_of,
				enum ramslice_place_policy policy,
				enum ramslice_place_class class, u32 current_id,
				const u32 *want, u32 nr_want)
{
	u32 got[RAMSLICE_PLACE_HINTS], i;

	KUNIT_ASSERT_EQ(test, order_of(score_of, policy, class, current_id,
				       got), nr_want);
	for (i = 0; i < nr_want; i++)
		KUNIT_EXPECT_EQ_MSG(test, got[i], want[i], "%s, class %d, %u",
				    ramslice_place_name(policy), class, i);
}

#define WANT(...)	((const u32[]){ __VA_ARGS__ })
#define EXPECT_SCORES(_test, _scores, _policy, _class, _current, ...)	\
	expect_order(_test, _scores, RAMSLICE_PLACE_##_policy,		\
		     RAMSLICE_PLACE_##_class, _current,			\
		     WANT(__VA_ARGS__),					\
		     sizeof(WANT(__VA_ARGS__)) / sizeof(u32))
/* Slices with a pageblock to give */
#define EXPECT_ORDER(_test, ...)					\
	EXPECT_SCORES(_test, ramslice_place_score, __VA_ARGS__)
/* All of them, for less than a pageblock, or if they were to wake */
#define EXPECT_LIKES(_test, ...)					\
	EXPECT_SCORES(_test, ramslice_place_likes, __VA_ARGS__)

/* Users come to blocks of other types when nothing is left of their own. */
static inline void expect_others_last(struct kunit *test,
				      enum ramslice_place_policy policy)
{
	u32 id, other;

	for (id = 0; id < NR; id++) {
		struct ramslice_place_slice p = slice(id);
		u64 users, kernels;

		if (!p.free_blocks)
			continue;
		kernels = ramslice_place_score(policy, RAMSLICE_PLACE_KERNEL,
					       &p);
		p.movable_blocks = 0;
		users = ramslice_place_score(policy, RAMSLICE_PLACE_USER, &p);
		KUNIT_EXPECT_GT(test, users, 0);
		for (other = 0; other < NR; other++) {
			struct ramslice_place_slice q = slice(other);

			if (q.free_blocks)
				KUNIT_EXPECT_LT(test, users,
						ramslice_place_score(policy,
								     RAMSLICE_PLACE_USER,
								     &q));
		}
		/* The kernel takes them over */
		KUNIT_EXPECT_EQ(test, kernels,
				ramslice_place_score(policy,
						     RAMSLICE_PLACE_KERNEL,
						     &p));
	}
}

static inline u64 score_without_own(enum ramslice_place_policy policy,
				    enum ramslice_place_class class,
				    const struct ramslice_place_slice *p)
{
	struct ramslice_place_slice q = *p;

	q.movable_blocks = 0;
	return ramslice_place_score(policy, class, &q);
}

/* Of what is others', too, the best comes first. */
static inline void expect_same_order(struct kunit *test,
				     enum ramslice_place_policy policy)
{
	u32 own[RAMSLICE_PLACE_HINTS], others[RAMSLICE_PLACE_HINTS], i, nr;

	nr = order_of(ramslice_place_score, policy, RAMSLICE_PLACE_USER, HALF,
		      own);
	KUNIT_EXPECT_EQ(test, nr, NR - 1);
	KUNIT_EXPECT_EQ(test, nr, order_of(score_without_own, policy,
					   RAMSLICE_PLACE_USER, HALF, others));
	for (i = 0; i < nr; i++)
		KUNIT_EXPECT_EQ_MSG(test, others[i], own[i], "%s, %u",
				    ramslice_place_name(policy), i);
}

#endif /* __MM_RAMSLICE_TESTS_PLACE_H */
