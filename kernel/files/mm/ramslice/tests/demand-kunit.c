// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of demand: which allocations memory is woken for.
 */

#include <kunit/test.h>
#include <linux/gfp.h>
#include "../internal.h"

struct demand_case {
	const char *what;
	gfp_t gfp;
	unsigned int order;
	enum ramslice_want want;
};

static const struct demand_case cases[] = {
	{ "a page", GFP_KERNEL, 0, RAMSLICE_WANTS_IT },
	{ "a program's page", GFP_HIGHUSER_MOVABLE, 0, RAMSLICE_WANTS_IT },
	{ "at once", GFP_ATOMIC, 0, RAMSLICE_WANTS_IT },
	{ "without waiting", GFP_NOWAIT, 0, RAMSLICE_WANTS_IT },
	{ "a huge page that must be", GFP_TRANSHUGE, 9, RAMSLICE_WANTS_IT },
	{ "several at once", GFP_ATOMIC, 4, RAMSLICE_WANTS_IT },
	{ "a huge page if there is one", GFP_TRANSHUGE_LIGHT, 9,
	  RAMSLICE_WANTS_AT_ONCE },
	/* Their callers may hold locks under which no task may be woken */
	{ "under a run queue's lock", __GFP_HIGH, 0, RAMSLICE_WANTS_NOTHING },
	{ "a debug object", __GFP_HIGH | __GFP_NOWARN, 0,
	  RAMSLICE_WANTS_NOTHING },
	{ "one of many that a slab tries",
	  (GFP_KERNEL & ~__GFP_RECLAIM) | __GFP_NOWARN | __GFP_NOMEMALLOC, 3,
	  RAMSLICE_WANTS_NOTHING },
};

static void ramslice_memory_wakes_for_those_alone(struct kunit *test)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct demand_case *c = &cases[i];

		KUNIT_EXPECT_EQ_MSG(test, ramslice_want_of(c->gfp, c->order),
				    c->want, "%s", c->what);
	}
}

static struct kunit_case ramslice_demand_cases[] = {
	KUNIT_CASE(ramslice_memory_wakes_for_those_alone),
	{}
};

static struct kunit_suite ramslice_demand_suite = {
	.name = "ramslice_demand",
	.test_cases = ramslice_demand_cases,
};

kunit_test_suite(ramslice_demand_suite);
