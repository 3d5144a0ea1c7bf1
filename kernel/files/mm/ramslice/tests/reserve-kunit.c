// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the reserve's order: one and the same for the same candidates, in
 * whatever order they come; and of room where no candidate is looked at.
 */

#include <kunit/test.h>
#include <linux/prandom.h>
#include <linux/sched/signal.h>
#include "../internal.h"
#include "../request.h"

#define NR_MANY		8192
#define NR_SHUFFLES	8
#define SEED		0x51ceULL

static void ramslice_shuffle(struct rnd_state *rnd, struct ramslice_candidate *c,
			     size_t nr)
{
	size_t i;

	for (i = nr; i > 1; i--) {
		size_t other = prandom_u32_state(rnd) % i;

		swap(c[i - 1], c[other]);
	}
}

/* Few prices, so that many are equal; they differ in low and high bits. */
static u64 ramslice_price_of(u32 id)
{
	static const u64 prices[] = {
		0, 1, 5543, 1000000000ULL, 1000005543ULL,
		U32_MAX, 1ULL << 32, (1ULL << 32) + 5543, S64_MAX, U64_MAX,
	};

	return prices[id * 7 % ARRAY_SIZE(prices)];
}

static void ramslice_fill(struct ramslice_candidate *c, size_t nr)
{
	u32 id;

	for (id = 0; id < nr; id++) {
		c[id] = (struct ramslice_candidate) {
			.price = ramslice_price_of(id),
			.id = id,
			.nr_free = id + 1,
			.nr_cache = ~id,
		};
	}
}

/* Index of the first candidate that must not follow its predecessor, or @nr. */
static size_t ramslice_first_unordered(const struct ramslice_candidate *c,
				       size_t nr)
{
	size_t i;

	for (i = 1; i < nr; i++) {
		if (c[i - 1].price > c[i].price ||
		    (c[i - 1].price == c[i].price && c[i - 1].id <= c[i].id))
			return i;
	}
	return nr;
}

/* Index of the first candidate that differs, or @nr. */
static size_t ramslice_first_different(const struct ramslice_candidate *a,
				       const struct ramslice_candidate *b,
				       size_t nr)
{
	size_t i;

	for (i = 0; i < nr; i++) {
		if (a[i].price != b[i].price || a[i].id != b[i].id ||
		    a[i].nr_free != b[i].nr_free ||
		    a[i].nr_cache != b[i].nr_cache)
			break;
	}
	return i;
}

static void ramslice_cheapest_is_first_and_dearest_last(struct kunit *test)
{
	struct ramslice_candidate c[] = {
		{ .price = 1ULL << 32, .id = 0 },
		{ .price = 0, .id = 1 },
		{ .price = U64_MAX, .id = 2 },
		{ .price = 5543, .id = 3 },
		{ .price = 1000005543, .id = 4 },
	};

	ramslice_reserve_sort(c, ARRAY_SIZE(c));
	KUNIT_EXPECT_EQ(test, c[0].id, 1);
	KUNIT_EXPECT_EQ(test, c[1].id, 3);
	KUNIT_EXPECT_EQ(test, c[2].id, 4);
	KUNIT_EXPECT_EQ(test, c[3].id, 0);
	KUNIT_EXPECT_EQ(test, c[4].id, 2);
}

static void ramslice_of_equal_prices_the_higher_id_is_first(struct kunit *test)
{
	struct ramslice_candidate c[] = {
		{ .price = 5543, .id = 7 },
		{ .price = 5543, .id = U32_MAX - 1 },
		{ .price = 5543, .id = 0 },
		{ .price = 5542, .id = 3 },
		{ .price = 5543, .id = 8 },
	};

	ramslice_reserve_sort(c, ARRAY_SIZE(c));
	KUNIT_EXPECT_EQ(test, c[0].id, 3);
	KUNIT_EXPECT_EQ(test, c[1].id, U32_MAX - 1);
	KUNIT_EXPECT_EQ(test, c[2].id, 8);
	KUNIT_EXPECT_EQ(test, c[3].id, 7);
	KUNIT_EXPECT_EQ(test, c[4].id, 0);
}

static void ramslice_none_and_one_are_sorted(struct kunit *test)
{
	struct ramslice_candidate c = { .price = 5543, .id = 3, .nr_free = 9 };

	ramslice_reserve_sort(&c, 0);
	ramslice_reserve_sort(&c, 1);
	KUNIT_EXPECT_EQ(test, c.price, 5543);
	KUNIT_EXPECT_EQ(test, c.id, 3);
	KUNIT_EXPECT_EQ(test, c.nr_free, 9);
}

static void ramslice_every_permutation_sorts_to_the_same(struct kunit *test)
{
	size_t size = NR_MANY * sizeof(struct ramslice_candidate);
	struct ramslice_candidate *first, *again;
	struct rnd_state rnd;
	unsigned int i;

	first = kunit_kmalloc(test, size, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, first);
	again = kunit_kmalloc(test, size, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, again);

	ramslice_fill(first, NR_MANY);
	memcpy(again, first, size);
	ramslice_reserve_sort(first, NR_MANY);
	KUNIT_EXPECT_EQ(test, ramslice_first_unordered(first, NR_MANY), NR_MANY);

	prandom_seed_state(&rnd, SEED);
	for (i = 0; i < NR_SHUFFLES; i++) {
		ramslice_shuffle(&rnd, again, NR_MANY);
		KUNIT_EXPECT_LT(test, ramslice_first_unordered(again, NR_MANY),
				NR_MANY);
		ramslice_reserve_sort(again, NR_MANY);
		KUNIT_EXPECT_EQ(test,
				ramslice_first_different(first, again, NR_MANY),
				NR_MANY);
	}
}

static void ramslice_candidates_stay_whole(struct kunit *test)
{
	bool seen[64] = {};
	struct ramslice_candidate *c;
	struct rnd_state rnd;
	unsigned int i;

	c = kunit_kmalloc_array(test, ARRAY_SIZE(seen), sizeof(*c), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, c);

	ramslice_fill(c, ARRAY_SIZE(seen));
	prandom_seed_state(&rnd, SEED);
	ramslice_shuffle(&rnd, c, ARRAY_SIZE(seen));
	ramslice_reserve_sort(c, ARRAY_SIZE(seen));
	for (i = 0; i < ARRAY_SIZE(seen); i++) {
		u32 id = c[i].id;

		KUNIT_ASSERT_LT(test, id, ARRAY_SIZE(seen));
		KUNIT_EXPECT_FALSE_MSG(test, seen[id], "%u is there twice", id);
		seen[id] = true;
		KUNIT_EXPECT_EQ(test, c[i].price, ramslice_price_of(id));
		KUNIT_EXPECT_EQ(test, c[i].nr_free, id + 1);
		KUNIT_EXPECT_EQ(test, c[i].nr_cache, ~id);
	}
}

/* Room for pages of slice 0, for a request that has time. */
static enum ramslice_reason ramslice_room(const struct ramslice_reserve *r,
					  u64 nr_move, u64 *nr_free,
					  u64 *nr_cache)
{
	struct ramslice_params params = {
		.deadline = jiffies + MAX_JIFFY_OFFSET,
	};

	return ramslice_reserve_room(r, &params, 0, nr_move, nr_free, nr_cache);
}

static void ramslice_nothing_to_move_needs_no_room(struct kunit *test)
{
	struct ramslice_reserve r = {};
	u64 nr_free = 1, nr_cache = 1;

	KUNIT_EXPECT_EQ(test, ramslice_room(&r, 0, &nr_free, &nr_cache),
			RAMSLICE_REASON_NONE);
	KUNIT_EXPECT_EQ(test, nr_free, 0);
	KUNIT_EXPECT_EQ(test, nr_cache, 0);
}

static void ramslice_empty_reserve_has_no_room(struct kunit *test)
{
	struct ramslice_reserve r = {};
	u64 nr_free = 1, nr_cache = 1;

	KUNIT_EXPECT_EQ(test, ramslice_room(&r, 1, &nr_free, &nr_cache),
			RAMSLICE_REASON_NO_ROOM);
	KUNIT_EXPECT_EQ(test, nr_free, 0);
	KUNIT_EXPECT_EQ(test, nr_cache, 0);
}

static void ramslice_source_is_no_room_for_its_own_pages(struct kunit *test)
{
	struct ramslice_candidate c = { .id = 0, .nr_free = 1000 };
	struct ramslice_reserve r = { .c = &c, .nr = 1, .next = 1 };
	u64 nr_free = 1, nr_cache = 1;

	KUNIT_EXPECT_EQ(test, ramslice_room(&r, 1, &nr_free, &nr_cache),
			RAMSLICE_REASON_NO_ROOM);
	KUNIT_EXPECT_EQ(test, nr_free, 0);
	KUNIT_EXPECT_EQ(test, nr_cache, 0);
}

static void ramslice_used_sources_and_full_slices_are_no_room(struct kunit *test)
{
	struct ramslice_candidate c[] = {
		{ .id = 1, .nr_free = 1000 },	/* a source before */
		{ .id = 2, .nr_free = 1000 },	/* found full */
	};
	struct ramslice_reserve r = {
		.c = c,
		.nr = ARRAY_SIZE(c),
		.next = 1,
		.low = 1,
	};
	u64 nr_free = 1, nr_cache = 1;

	KUNIT_EXPECT_EQ(test, ramslice_room(&r, 1, &nr_free, &nr_cache),
			RAMSLICE_REASON_NO_ROOM);
	KUNIT_EXPECT_EQ(test, nr_free, 0);
	KUNIT_EXPECT_EQ(test, nr_cache, 0);
}

static void ramslice_looking_for_room_ends_in_time(struct kunit *test)
{
	struct ramslice_candidate c = { .id = 0, .nr_free = 1000 };
	struct ramslice_reserve r = { .c = &c, .nr = 1, .next = 1 };
	struct ramslice_params late = { .deadline = jiffies + HZ, .end_ns = 1 };
	enum ramslice_reason reason;
	u64 nr_free, nr_cache;

	KUNIT_EXPECT_EQ(test, ramslice_reserve_room(&r, &late, 0, 1, &nr_free,
						    &nr_cache),
			RAMSLICE_REASON_DEADLINE);
	set_thread_flag(TIF_SIGPENDING);
	reason = ramslice_room(&r, 1, &nr_free, &nr_cache);
	clear_thread_flag(TIF_SIGPENDING);
	KUNIT_EXPECT_EQ(test, reason, RAMSLICE_REASON_SIGNAL);
}

/* Of a zone with a slice in the table, none of which is looked at. */
static void ramslice_ordering_slices_ends_in_time(struct kunit *test)
{
	struct ramslice_params late = {
		.deadline = jiffies + HZ,
		.end_ns = 1,
		.cache = RAMSLICE_CACHE_DROP,
	};
	struct ramslice_reserve r;
	struct ramslice_zone *rz;
	unsigned int i;

	mutex_lock(&ramslice_mutex);
	for (i = 0; (rz = ramslice_zone_by_index(i)) && !rz->nr_slices; i++)
		;
	if (rz)
		KUNIT_EXPECT_EQ(test, ramslice_reserve_build(&r, rz, &late, false),
				-EAGAIN);
	mutex_unlock(&ramslice_mutex);
	if (!rz)
		kunit_skip(test, "no zone has slices");
	KUNIT_EXPECT_NULL(test, r.c);
}

static struct kunit_case ramslice_reserve_cases[] = {
	KUNIT_CASE(ramslice_cheapest_is_first_and_dearest_last),
	KUNIT_CASE(ramslice_of_equal_prices_the_higher_id_is_first),
	KUNIT_CASE(ramslice_none_and_one_are_sorted),
	KUNIT_CASE(ramslice_every_permutation_sorts_to_the_same),
	KUNIT_CASE(ramslice_candidates_stay_whole),
	KUNIT_CASE(ramslice_nothing_to_move_needs_no_room),
	KUNIT_CASE(ramslice_empty_reserve_has_no_room),
	KUNIT_CASE(ramslice_source_is_no_room_for_its_own_pages),
	KUNIT_CASE(ramslice_used_sources_and_full_slices_are_no_room),
	KUNIT_CASE(ramslice_looking_for_room_ends_in_time),
	KUNIT_CASE(ramslice_ordering_slices_ends_in_time),
	{}
};

static struct kunit_suite ramslice_reserve_suite = {
	.name = "ramslice_reserve",
	.test_cases = ramslice_reserve_cases,
};

kunit_test_suite(ramslice_reserve_suite);
