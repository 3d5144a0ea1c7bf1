// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of placement: which slice each policy likes best, and the list that is
 * made of them.
 */

#include <kunit/test.h>
#include <linux/mmzone.h>
#include <linux/prandom.h>
#include "../place.h"

#define SLICE_PAGES	8192U
#define NR_LOW		2U

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

static struct ramslice_place_slice slice(u32 id)
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
		      const struct ramslice_place_slice *p, u32 nr_low);

/* The whole order of a policy, and how many are in it. */
static u32 order_of(scores score_of, enum ramslice_place_policy policy,
		    enum ramslice_place_class class, u32 current_id,
		    u32 order[RAMSLICE_PLACE_HINTS])
{
	struct ramslice_place_list list = {};
	u32 id;

	for (id = 0; id < NR; id++) {
		struct ramslice_place_slice p = slice(id);

		p.in_use = id == current_id;
		ramslice_place_offer(&list, id, 0,
				     score_of(policy, class, &p, NR_LOW));
	}
	memcpy(order, list.id, sizeof(list.id));
	return list.nr;
}

static void expect_order(struct kunit *test, scores score_of,
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

static void packed_keeps_the_kernel_together(struct kunit *test)
{
	EXPECT_ORDER(test, PACKED, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL_MORE,
		     KERNEL, EMPTY, LAST, HALF, NEARLY_FULL);
}

static void packed_fills_what_is_fullest(struct kunit *test)
{
	EXPECT_ORDER(test, PACKED, USER, RAMSLICE_NO_ID, NEARLY_FULL, HALF,
		     LAST, EMPTY, KERNEL, KERNEL_MORE, FIXED);
}

static void low_confines_the_kernel_to_the_first(struct kunit *test)
{
	EXPECT_ORDER(test, LOW, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_ORDER(test, LOW, USER, RAMSLICE_NO_ID, KERNEL_MORE, EMPTY, HALF,
		     NEARLY_FULL, LAST, FIXED, KERNEL);
}

static void array_grows_from_both_ends(struct kunit *test)
{
	EXPECT_ORDER(test, ARRAY, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_ORDER(test, ARRAY, USER, RAMSLICE_NO_ID, LAST, NEARLY_FULL, HALF,
		     EMPTY, KERNEL_MORE, KERNEL, FIXED);
}

static void list_begins_where_it_was(struct kunit *test)
{
	EXPECT_ORDER(test, LIST, KERNEL, FIXED, FIXED, KERNEL, KERNEL_MORE,
		     EMPTY, LAST, HALF, NEARLY_FULL);
	EXPECT_ORDER(test, LIST, USER, NEARLY_FULL, NEARLY_FULL, HALF, LAST,
		     EMPTY, KERNEL, KERNEL_MORE, FIXED);
	/* Nobody's: the most free first */
	EXPECT_ORDER(test, LIST, KERNEL, RAMSLICE_NO_ID, KERNEL, KERNEL_MORE,
		     FIXED, EMPTY, LAST, HALF, NEARLY_FULL);
	/* Another list's is not one's own because it was used last */
	EXPECT_ORDER(test, LIST, USER, KERNEL, HALF, NEARLY_FULL, LAST, EMPTY,
		     KERNEL, KERNEL_MORE, FIXED);
}

static void adaptive_steals_from_the_most_free(struct kunit *test)
{
	EXPECT_ORDER(test, ADAPTIVE, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, LAST, HALF, NEARLY_FULL);
	EXPECT_ORDER(test, ADAPTIVE, USER, RAMSLICE_NO_ID, HALF, NEARLY_FULL,
		     LAST, EMPTY, KERNEL, KERNEL_MORE, FIXED);
}

/* Where no pageblock is left, what is taken in parts is another's, too. */
static void parts_are_stolen_by_policy(struct kunit *test)
{
	EXPECT_LIKES(test, PACKED, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL_MORE,
		     KERNEL, EMPTY, LAST, FULL, HALF, NEARLY_FULL);
	EXPECT_LIKES(test, LOW, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, FULL, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_LIKES(test, ARRAY, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, FULL, EMPTY, HALF, NEARLY_FULL, LAST);
	EXPECT_LIKES(test, LIST, KERNEL, KERNEL_MORE, KERNEL_MORE, KERNEL,
		     FIXED, EMPTY, LAST, FULL, HALF, NEARLY_FULL);
	EXPECT_LIKES(test, ADAPTIVE, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL,
		     KERNEL_MORE, EMPTY, LAST, FULL, HALF, NEARLY_FULL);
}

/* Blocks of other types are what users come to when nothing else is left. */
static void users_like_blocks_of_others_least(struct kunit *test)
{
	enum ramslice_place_policy policy;
	u32 id, other;

	for (policy = RAMSLICE_PLACE_STOCK + 1;
	     policy < RAMSLICE_PLACE_POLICIES; policy++) {
		for (id = 0; id < NR; id++) {
			struct ramslice_place_slice p = slice(id);
			u64 users, kernels;

			if (!p.free_blocks)
				continue;
			kernels = ramslice_place_score(policy,
						       RAMSLICE_PLACE_KERNEL,
						       &p, NR_LOW);
			p.movable_blocks = 0;
			users = ramslice_place_score(policy,
						     RAMSLICE_PLACE_USER, &p,
						     NR_LOW);
			KUNIT_EXPECT_GT(test, users, 0);
			for (other = 0; other < NR; other++) {
				struct ramslice_place_slice q = slice(other);

				if (q.free_blocks)
					KUNIT_EXPECT_LT(test, users,
							ramslice_place_score(policy,
									     RAMSLICE_PLACE_USER,
									     &q, NR_LOW));
			}
			/* The kernel takes them over */
			KUNIT_EXPECT_EQ(test, kernels,
					ramslice_place_score(policy,
							     RAMSLICE_PLACE_KERNEL,
							     &p, NR_LOW));
		}
	}
}

static u64 score_without_own(enum ramslice_place_policy policy,
			     enum ramslice_place_class class,
			     const struct ramslice_place_slice *p, u32 nr_low)
{
	struct ramslice_place_slice q = *p;

	q.movable_blocks = 0;
	return ramslice_place_score(policy, class, &q, nr_low);
}

/* Of what is others', too, the best comes first. */
static void blocks_of_others_keep_their_order(struct kunit *test)
{
	enum ramslice_place_policy policy;
	u32 own[RAMSLICE_PLACE_HINTS], others[RAMSLICE_PLACE_HINTS], i, nr;

	for (policy = RAMSLICE_PLACE_STOCK + 1;
	     policy < RAMSLICE_PLACE_POLICIES; policy++) {
		nr = order_of(ramslice_place_score, policy,
			      RAMSLICE_PLACE_USER, HALF, own);
		KUNIT_EXPECT_EQ(test, nr, NR - 1);
		KUNIT_EXPECT_EQ(test, nr, order_of(score_without_own, policy,
						   RAMSLICE_PLACE_USER, HALF,
						   others));
		for (i = 0; i < nr; i++)
			KUNIT_EXPECT_EQ_MSG(test, others[i], own[i], "%s, %u",
					    ramslice_place_name(policy), i);
	}
}

static void stock_has_no_opinion(struct kunit *test)
{
	u32 order[RAMSLICE_PLACE_HINTS];

	KUNIT_EXPECT_EQ(test, order_of(ramslice_place_likes,
				       RAMSLICE_PLACE_STOCK,
				       RAMSLICE_PLACE_KERNEL, KERNEL, order), 0);
	KUNIT_EXPECT_EQ(test, order_of(ramslice_place_likes,
				       RAMSLICE_PLACE_STOCK,
				       RAMSLICE_PLACE_USER, HALF, order), 0);
}

/* A few pages on their way are no kernel's; many are, and so is a block. */
static void few_pages_make_no_kernel_slice(struct kunit *test)
{
	struct ramslice_place_slice p = slice(HALF);

	p.nr_other = SLICE_PAGES / 64 - 1;
	KUNIT_EXPECT_FALSE(test, ramslice_place_is_kernel(&p));
	p.nr_other++;
	KUNIT_EXPECT_TRUE(test, ramslice_place_is_kernel(&p));
	p.nr_other = 0;
	p.kernel_blocks = 1;
	KUNIT_EXPECT_TRUE(test, ramslice_place_is_kernel(&p));
	p.kernel_blocks = 0;
	p.fixed = true;
	KUNIT_EXPECT_TRUE(test, ramslice_place_is_kernel(&p));
}

static void only_three_types_are_placed(struct kunit *test)
{
	enum ramslice_place_class class = RAMSLICE_PLACE_CLASSES;

	KUNIT_EXPECT_TRUE(test, ramslice_place_class_of(MIGRATE_MOVABLE,
							&class));
	KUNIT_EXPECT_EQ(test, class, RAMSLICE_PLACE_USER);
	KUNIT_EXPECT_TRUE(test, ramslice_place_class_of(MIGRATE_UNMOVABLE,
							&class));
	KUNIT_EXPECT_EQ(test, class, RAMSLICE_PLACE_KERNEL);
	class = RAMSLICE_PLACE_CLASSES;
	KUNIT_EXPECT_TRUE(test, ramslice_place_class_of(MIGRATE_RECLAIMABLE,
							&class));
	KUNIT_EXPECT_EQ(test, class, RAMSLICE_PLACE_KERNEL);
	KUNIT_EXPECT_FALSE(test, ramslice_place_class_of(MIGRATE_HIGHATOMIC,
							 &class));
#ifdef CONFIG_CMA
	KUNIT_EXPECT_FALSE(test, ramslice_place_class_of(MIGRATE_CMA, &class));
#endif
#ifdef CONFIG_MEMORY_ISOLATION
	KUNIT_EXPECT_FALSE(test, ramslice_place_class_of(MIGRATE_ISOLATE,
							 &class));
#endif
}

/* However many are offered, in whatever order: the best, best first. */
static void the_best_are_kept(struct kunit *test)
{
	struct ramslice_place_list list = {};
	struct rnd_state rnd;
	u64 worst = U64_MAX, nr_better = 0;
	u64 *points;
	u32 id, i, nr = 1000;

	points = kunit_kcalloc(test, nr, sizeof(*points), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, points);
	prandom_seed_state(&rnd, 0x51ceULL);
	for (id = 0; id < nr; id++) {
		points[id] = prandom_u32_state(&rnd) % 500;
		ramslice_place_offer(&list, id, 3 * id, points[id]);
	}
	KUNIT_ASSERT_EQ(test, list.nr, RAMSLICE_PLACE_HINTS);
	for (i = 0; i < list.nr; i++) {
		KUNIT_EXPECT_EQ(test, list.score[i], points[list.id[i]]);
		KUNIT_EXPECT_EQ(test, list.first[i], 3 * list.id[i]);
		KUNIT_EXPECT_LE(test, list.score[i], worst);
		/* Of equals, the one that was offered first */
		if (i && list.score[i] == list.score[i - 1])
			KUNIT_EXPECT_GT(test, list.id[i], list.id[i - 1]);
		worst = list.score[i];
	}
	for (id = 0; id < nr; id++)
		nr_better += points[id] > worst;
	KUNIT_EXPECT_LT(test, nr_better, (u64)RAMSLICE_PLACE_HINTS);
	/* Who begins with the list begins with the first block of the best */
	for (i = 0; i < MIGRATE_PCPTYPES; i++) {
		KUNIT_EXPECT_EQ(test, list.at[i], 0);
		KUNIT_EXPECT_EQ(test, list.block[i], list.first[0]);
	}
}

static void expect_list(struct kunit *test,
			const struct ramslice_place_list *list, const u32 *want,
			u32 nr_want, u32 at, u32 block)
{
	u32 i;

	KUNIT_ASSERT_EQ(test, list->nr, nr_want);
	for (i = 0; i < nr_want; i++)
		KUNIT_EXPECT_EQ(test, list->id[i], want[i]);
	KUNIT_EXPECT_EQ(test, list->at[MIGRATE_MOVABLE], at);
	KUNIT_EXPECT_EQ(test, list->block[MIGRATE_MOVABLE], block);
}

/* It comes behind what is used up, and before what the policy likes less. */
static void what_wakes_is_in_the_list(struct kunit *test)
{
	struct ramslice_place_list list = {};
	u32 id;

	for (id = 0; id < 3; id++)
		ramslice_place_offer(&list, id, 0, 30 - 10 * id);
	list.at[MIGRATE_MOVABLE] = 1;
	list.block[MIGRATE_MOVABLE] = 5;
	list.block[MIGRATE_UNMOVABLE] = 2;
	list.at[MIGRATE_RECLAIMABLE] = 3;

	ramslice_place_renew(&list, 7, 4, 40);
	expect_list(test, &list, (u32[]){ 0, 7, 1, 2 }, 4, 1, 4);
	/* Its blocks before those */
	ramslice_place_renew(&list, 7, 2, 40);
	expect_list(test, &list, (u32[]){ 0, 7, 1, 2 }, 4, 1, 2);
	/* More, when these are used up */
	list.at[MIGRATE_MOVABLE] = 2;
	ramslice_place_renew(&list, 7, 6, 40);
	expect_list(test, &list, (u32[]){ 0, 7, 1, 2 }, 4, 1, 6);
	/* One that nobody has come to, twice */
	ramslice_place_renew(&list, 8, 6, 5);
	ramslice_place_renew(&list, 8, 3, 5);
	expect_list(test, &list, (u32[]){ 0, 7, 1, 2, 8 }, 5, 1, 6);
	KUNIT_EXPECT_EQ(test, list.first[4], 3);
	/* Who looks for blocks of another type goes on where it was */
	KUNIT_EXPECT_EQ(test, list.at[MIGRATE_UNMOVABLE], 0);
	KUNIT_EXPECT_EQ(test, list.block[MIGRATE_UNMOVABLE], 2);
	KUNIT_EXPECT_EQ(test, list.at[MIGRATE_RECLAIMABLE], 4);
	KUNIT_EXPECT_EQ(test, list.block[MIGRATE_RECLAIMABLE], 6);
}

/* A full list has room for it if something of it is used up. */
static void what_wakes_finds_room(struct kunit *test)
{
	struct ramslice_place_list list = {};
	u32 want[RAMSLICE_PLACE_HINTS], id, last = RAMSLICE_PLACE_HINTS - 1;

	for (id = 0; id <= last; id++) {
		ramslice_place_offer(&list, id, 0, 100);
		want[id] = id;
	}
	ramslice_place_renew(&list, 99, 1, 50);
	expect_list(test, &list, want, RAMSLICE_PLACE_HINTS, 0, 0);

	list.at[MIGRATE_MOVABLE] = RAMSLICE_PLACE_HINTS;
	ramslice_place_renew(&list, 99, 1, 50);
	memmove(want, want + 1, last * sizeof(*want));
	want[last] = 99;
	expect_list(test, &list, want, RAMSLICE_PLACE_HINTS, last, 1);
}

static void names_are_parsed(struct kunit *test)
{
	enum ramslice_place_policy policy;

	for (policy = 0; policy < RAMSLICE_PLACE_POLICIES; policy++)
		KUNIT_EXPECT_EQ(test, (int)policy,
				ramslice_place_parse(ramslice_place_name(policy)));
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("packed\n"),
			(int)RAMSLICE_PLACE_PACKED);
	KUNIT_EXPECT_EQ(test, ramslice_place_parse(""), -EINVAL);
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("pack"), -EINVAL);
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("packed "), -EINVAL);
	KUNIT_EXPECT_EQ(test, ramslice_place_parse("Packed"), -EINVAL);
}

static struct kunit_case place_cases[] = {
	KUNIT_CASE(packed_keeps_the_kernel_together),
	KUNIT_CASE(packed_fills_what_is_fullest),
	KUNIT_CASE(low_confines_the_kernel_to_the_first),
	KUNIT_CASE(array_grows_from_both_ends),
	KUNIT_CASE(list_begins_where_it_was),
	KUNIT_CASE(adaptive_steals_from_the_most_free),
	KUNIT_CASE(parts_are_stolen_by_policy),
	KUNIT_CASE(users_like_blocks_of_others_least),
	KUNIT_CASE(blocks_of_others_keep_their_order),
	KUNIT_CASE(stock_has_no_opinion),
	KUNIT_CASE(few_pages_make_no_kernel_slice),
	KUNIT_CASE(only_three_types_are_placed),
	KUNIT_CASE(the_best_are_kept),
	KUNIT_CASE(what_wakes_is_in_the_list),
	KUNIT_CASE(what_wakes_finds_room),
	KUNIT_CASE(names_are_parsed),
	{}
};

static struct kunit_suite place_suite = {
	.name = "ramslice_place",
	.test_cases = place_cases,
};

kunit_test_suite(place_suite);
