// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of placement: which slice each policy likes best, and the list that is
 * made of them.
 */

#include <kunit/test.h>
#include <linux/mmzone.h>
#include <linux/prandom.h>
#include "place.h"

static void ramslice_packed_keeps_the_kernel_together(struct kunit *test)
{
	EXPECT_ORDER(test, PACKED, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL_MORE,
		     KERNEL, EMPTY, LAST, HALF, NEARLY_FULL);
}

static void ramslice_packed_fills_what_is_fullest(struct kunit *test)
{
	EXPECT_ORDER(test, PACKED, USER, RAMSLICE_NO_ID, NEARLY_FULL, HALF,
		     LAST, EMPTY, KERNEL, KERNEL_MORE, FIXED);
}

/* How much packed likes one of those slices, near kernel pages or not. */
static u64 ramslice_likes_near(enum ramslice_place_class class, u32 id, bool near)
{
	struct ramslice_place_slice p = slice(id);

	p.near_kernel = near;
	return ramslice_place_likes(RAMSLICE_PLACE_PACKED, class, &p);
}

static void ramslice_packed_spoils_few_gigantic_pages(struct kunit *test)
{
	const enum ramslice_place_class kernel = RAMSLICE_PLACE_KERNEL;
	const enum ramslice_place_class user = RAMSLICE_PLACE_USER;

	/* The kernel stays near its own, before any order by address or use */
	KUNIT_EXPECT_GT(test, ramslice_likes_near(kernel, LAST, true),
			ramslice_likes_near(kernel, EMPTY, false));
	KUNIT_EXPECT_GT(test, ramslice_likes_near(kernel, NEARLY_FULL, true),
			ramslice_likes_near(kernel, HALF, false));
	/* But takes an empty slice before one that is in use */
	KUNIT_EXPECT_GT(test, ramslice_likes_near(kernel, EMPTY, false),
			ramslice_likes_near(kernel, HALF, true));
	/* Within a range it is as it was, and for users everywhere */
	KUNIT_EXPECT_GT(test, ramslice_likes_near(kernel, EMPTY, true),
			ramslice_likes_near(kernel, LAST, true));
	KUNIT_EXPECT_GT(test, ramslice_likes_near(user, LAST, false),
			ramslice_likes_near(user, EMPTY, true));
	KUNIT_EXPECT_GT(test, ramslice_likes_near(user, LAST, true),
			ramslice_likes_near(user, EMPTY, false));
}

/* Where no pageblock is left, what is taken in parts is another's, too. */
static void ramslice_parts_are_stolen_by_policy(struct kunit *test)
{
	EXPECT_LIKES(test, PACKED, KERNEL, RAMSLICE_NO_ID, FIXED, KERNEL_MORE,
		     KERNEL, EMPTY, LAST, FULL, HALF, NEARLY_FULL);
}

static void ramslice_users_like_blocks_of_others_least(struct kunit *test)
{
	enum ramslice_place_policy policy;

	for (policy = RAMSLICE_PLACE_STOCK + 1;
	     policy < RAMSLICE_PLACE_POLICIES; policy++)
		expect_others_last(test, policy);
}

static void ramslice_blocks_of_others_keep_their_order(struct kunit *test)
{
	enum ramslice_place_policy policy;

	for (policy = RAMSLICE_PLACE_STOCK + 1;
	     policy < RAMSLICE_PLACE_POLICIES; policy++)
		expect_same_order(test, policy);
}

/* Slices with so many pages that stay, of SLICE_PAGES; the first is @fixed. */
static u32 ramslice_kept_of(const u32 *stay, u32 nr, bool fixed, u32 *first)
{
	struct ramslice_kernel_slice slices[8] = {};
	u32 i, kept;

	for (i = 0; i < nr; i++)
		slices[i] = (struct ramslice_kernel_slice) {
			.id = i,
			.nr_stay = stay[i],
			.nr_room = SLICE_PAGES,
			.fixed = fixed && !i,
		};
	kept = ramslice_nr_kept(slices, nr);
	*first = slices[0].id;
	return kept;
}

/* As many as hold all, an eighth more, and two pageblocks. */
static void ramslice_fewest_slices_are_kept(struct kunit *test)
{
	u32 first;

	KUNIT_EXPECT_EQ(test, ramslice_kept_of(NULL, 0, false, &first), 0);
	KUNIT_EXPECT_EQ(test, ramslice_kept_of((u32[]){ 10 }, 1, false, &first),
			1);
	KUNIT_EXPECT_EQ(test, ramslice_kept_of((u32[]){ 10, 900, 10, 10 }, 4,
					       false, &first), 1);
	KUNIT_EXPECT_EQ(test, first, 1);
	/* 8000 and an eighth of it are more than one slice has */
	KUNIT_EXPECT_EQ(test, ramslice_kept_of((u32[]){ 3000, 5000, 0 }, 3,
					       false, &first), 2);
	KUNIT_EXPECT_EQ(test, first, 1);
	/* All are full: none drains */
	KUNIT_EXPECT_EQ(test, ramslice_kept_of((u32[]){ 8192, 8192, 8192 }, 3,
					       false, &first), 3);
}

/* It is on in any case. */
static void ramslice_fixed_slices_are_kept_first(struct kunit *test)
{
	u32 first;

	KUNIT_EXPECT_EQ(test, ramslice_kept_of((u32[]){ 10, 900, 10 }, 3, true,
					       &first), 1);
	KUNIT_EXPECT_EQ(test, first, 0);
	/* An eighth of 5510 more; one of the fixed slice's pages is not wanted */
	KUNIT_EXPECT_EQ(test, ramslice_kept_of((u32[]){ 8192, 5500, 10 }, 3,
					       true, &first), 2);
}

static void ramslice_stock_has_no_opinion(struct kunit *test)
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
static void ramslice_few_pages_make_no_kernel_slice(struct kunit *test)
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

static void ramslice_only_three_types_are_placed(struct kunit *test)
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
static void ramslice_the_best_are_kept(struct kunit *test)
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
	/* A search of the list begins with the first block of the best */
	for (i = 0; i < MIGRATE_PCPTYPES; i++) {
		KUNIT_EXPECT_EQ(test, list.at[i], 0);
		KUNIT_EXPECT_EQ(test, list.block[i], list.first[0]);
	}
}

static void ramslice_expect_list(struct kunit *test,
				 const struct ramslice_place_list *list,
				 const u32 *want, u32 nr_want, u32 at,
				 u32 block)
{
	u32 i;

	KUNIT_ASSERT_EQ(test, list->nr, nr_want);
	for (i = 0; i < nr_want; i++)
		KUNIT_EXPECT_EQ(test, list->id[i], want[i]);
	KUNIT_EXPECT_EQ(test, list->at[MIGRATE_MOVABLE], at);
	KUNIT_EXPECT_EQ(test, list->block[MIGRATE_MOVABLE], block);
}

/* It comes behind what is used up, and before what the policy likes less. */
static void ramslice_what_wakes_is_in_the_list(struct kunit *test)
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
	ramslice_expect_list(test, &list, (u32[]){ 0, 7, 1, 2 }, 4, 1, 4);
	/* Its blocks before those */
	ramslice_place_renew(&list, 7, 2, 40);
	ramslice_expect_list(test, &list, (u32[]){ 0, 7, 1, 2 }, 4, 1, 2);
	/* More, when these are used up */
	list.at[MIGRATE_MOVABLE] = 2;
	ramslice_place_renew(&list, 7, 6, 40);
	ramslice_expect_list(test, &list, (u32[]){ 0, 7, 1, 2 }, 4, 1, 6);
	/* One that no search has come to, twice */
	ramslice_place_renew(&list, 8, 6, 5);
	ramslice_place_renew(&list, 8, 3, 5);
	ramslice_expect_list(test, &list, (u32[]){ 0, 7, 1, 2, 8 }, 5, 1, 6);
	KUNIT_EXPECT_EQ(test, list.first[4], 3);
	/* A search for blocks of another type goes on where it was */
	KUNIT_EXPECT_EQ(test, list.at[MIGRATE_UNMOVABLE], 0);
	KUNIT_EXPECT_EQ(test, list.block[MIGRATE_UNMOVABLE], 2);
	KUNIT_EXPECT_EQ(test, list.at[MIGRATE_RECLAIMABLE], 4);
	KUNIT_EXPECT_EQ(test, list.block[MIGRATE_RECLAIMABLE], 6);
}

/* A full list has room for it if something of it is used up. */
static void ramslice_what_wakes_finds_room(struct kunit *test)
{
	struct ramslice_place_list list = {};
	u32 want[RAMSLICE_PLACE_HINTS], id, last = RAMSLICE_PLACE_HINTS - 1;

	for (id = 0; id <= last; id++) {
		ramslice_place_offer(&list, id, 0, 100);
		want[id] = id;
	}
	ramslice_place_renew(&list, 99, 1, 50);
	ramslice_expect_list(test, &list, want, RAMSLICE_PLACE_HINTS, 0, 0);

	list.at[MIGRATE_MOVABLE] = RAMSLICE_PLACE_HINTS;
	ramslice_place_renew(&list, 99, 1, 50);
	memmove(want, want + 1, last * sizeof(*want));
	want[last] = 99;
	ramslice_expect_list(test, &list, want, RAMSLICE_PLACE_HINTS, last, 1);
}

static void ramslice_names_are_parsed(struct kunit *test)
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

static struct kunit_case ramslice_place_cases[] = {
	KUNIT_CASE(ramslice_packed_keeps_the_kernel_together),
	KUNIT_CASE(ramslice_packed_fills_what_is_fullest),
	KUNIT_CASE(ramslice_packed_spoils_few_gigantic_pages),
	KUNIT_CASE(ramslice_parts_are_stolen_by_policy),
	KUNIT_CASE(ramslice_users_like_blocks_of_others_least),
	KUNIT_CASE(ramslice_blocks_of_others_keep_their_order),
	KUNIT_CASE(ramslice_fewest_slices_are_kept),
	KUNIT_CASE(ramslice_fixed_slices_are_kept_first),
	KUNIT_CASE(ramslice_stock_has_no_opinion),
	KUNIT_CASE(ramslice_few_pages_make_no_kernel_slice),
	KUNIT_CASE(ramslice_only_three_types_are_placed),
	KUNIT_CASE(ramslice_the_best_are_kept),
	KUNIT_CASE(ramslice_what_wakes_is_in_the_list),
	KUNIT_CASE(ramslice_what_wakes_finds_room),
	KUNIT_CASE(ramslice_names_are_parsed),
	{}
};

static struct kunit_suite ramslice_place_suite = {
	.name = "ramslice_place",
	.test_cases = ramslice_place_cases,
};

kunit_test_suite(ramslice_place_suite);
