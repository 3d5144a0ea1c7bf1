// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of decoding: a request's fields and flags mean what the header says.
 */

#include <kunit/test.h>
#include <linux/kthread.h>
#include <linux/sched/clock.h>
#include "../internal.h"
#include "../request.h"

static struct ramslice_params ramslice_decoded(u32 flags)
{
	struct ramslice_request req = {
		.op = RAMSLICE_OP_COMPACT,
		.flags = flags,
		.node = RAMSLICE_ANY,
		.zone = 1,
		.budget = 1234,
		.max_slices = 7,
	};
	struct ramslice_params params;

	ramslice_decode_request(&req, &params);
	return params;
}

static void ramslice_fields_keep_their_values(struct kunit *test)
{
	struct ramslice_params params = ramslice_decoded(0);

	KUNIT_EXPECT_EQ(test, params.op, (u32)RAMSLICE_OP_COMPACT);
	KUNIT_EXPECT_EQ(test, params.node, RAMSLICE_ANY);
	KUNIT_EXPECT_EQ(test, params.zone, 1);
	KUNIT_EXPECT_EQ(test, params.budget, 1234);
	KUNIT_EXPECT_EQ(test, params.max_slices, 7);
	KUNIT_EXPECT_FALSE(test, params.per_slice);
	KUNIT_EXPECT_FALSE(test, params.ignore_backoff);
	KUNIT_EXPECT_FALSE(test, params.dry_run);
	KUNIT_EXPECT_FALSE(test, params.hold);
}

static void ramslice_flags_name_the_choice_of_cache(struct kunit *test)
{
	struct ramslice_request req = {
		.op = RAMSLICE_OP_COMPACT,
		.flags = RAMSLICE_REQ_AUTO_CACHE,
		.max_slices = RAMSLICE_ALL_SLICES,
	};
	struct ramslice_params params;

	KUNIT_EXPECT_EQ(test, ramslice_decoded(RAMSLICE_REQ_DRY_RUN).cache,
			RAMSLICE_CACHE_DROP);
	KUNIT_EXPECT_EQ(test, ramslice_decoded(RAMSLICE_REQ_KEEP_CACHE).cache,
			RAMSLICE_CACHE_KEEP);
	KUNIT_EXPECT_EQ(test, ramslice_decoded(RAMSLICE_REQ_AUTO_CACHE |
					       RAMSLICE_REQ_PER_SLICE).cache,
			RAMSLICE_CACHE_AUTO);
	ramslice_decode_request(&req, &params);
	KUNIT_EXPECT_EQ(test, params.cache, RAMSLICE_CACHE_AGED);
}

static void ramslice_each_flag_is_its_own(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test,
			  ramslice_decoded(RAMSLICE_REQ_PER_SLICE).per_slice);
	KUNIT_EXPECT_TRUE(test, ramslice_decoded(RAMSLICE_REQ_IGNORE_BACKOFF).ignore_backoff);
	KUNIT_EXPECT_TRUE(test, ramslice_decoded(RAMSLICE_REQ_DRY_RUN).dry_run);
	KUNIT_EXPECT_TRUE(test, ramslice_decoded(RAMSLICE_REQ_HOLD).hold);
}

static void ramslice_dry_runs_hold_nothing(struct kunit *test)
{
	struct ramslice_params params = ramslice_decoded(RAMSLICE_REQ_HOLD |
							 RAMSLICE_REQ_DRY_RUN);

	KUNIT_EXPECT_TRUE(test, params.dry_run);
	KUNIT_EXPECT_FALSE(test, params.hold);
}

static void ramslice_deadlines_count_from_now(struct kunit *test)
{
	unsigned long before = jiffies;
	struct ramslice_request req = { .deadline_ms = 3600000 };
	struct ramslice_params params;

	ramslice_decode_request(&req, &params);
	KUNIT_EXPECT_TRUE(test, time_after_eq(params.deadline,
					      before + 3600 * HZ));
	req.deadline_ms = 0;
	ramslice_decode_request(&req, &params);
	KUNIT_EXPECT_TRUE(test, time_after_eq(params.deadline,
					      before + msecs_to_jiffies(RAMSLICE_DEADLINE_MS)));
	KUNIT_EXPECT_TRUE(test, time_before(params.deadline,
					    before + 3600 * HZ));
}

/* A tick may be 10 ms, which a deadline of 1 ms must not become. */
static void ramslice_short_deadlines_are_kept_to_the_ns(struct kunit *test)
{
	struct ramslice_request req = { .deadline_ms = 1 };
	struct ramslice_params params;
	u64 before;

	ramslice_decode_request(&req, &params);
	before = local_clock();
	KUNIT_EXPECT_LE(test, params.end_ns, before + NSEC_PER_MSEC);
	KUNIT_EXPECT_LE(test, ramslice_left_ns(&params), NSEC_PER_MSEC);
	params.end_ns = before;
	params.deadline = jiffies + HZ;
	KUNIT_EXPECT_TRUE(test, ramslice_overdue(&params));
	KUNIT_EXPECT_EQ(test, ramslice_left_ns(&params), 0);
	/* Callers that set jiffies alone */
	params.end_ns = 0;
	KUNIT_EXPECT_FALSE(test, ramslice_overdue(&params));
}

static int ramslice_take_from_request(void *unused)
{
	bool taken = ramslice_interrupt_request();

	if (taken)
		mutex_unlock(&ramslice_mutex);
	return taken;
}

/* With no slice begun, as in a dry run: hotplug and sleep wait a second at most. */
static void ramslice_requests_end_for_those_who_interrupt(struct kunit *test)
{
	struct ramslice_params params = ramslice_decoded(RAMSLICE_REQ_DRY_RUN);
	unsigned long until = jiffies + HZ;
	enum ramslice_reason reason;
	struct task_struct *task;

	mutex_lock(&ramslice_mutex);
	KUNIT_EXPECT_EQ(test, ramslice_why_end(&params), RAMSLICE_REASON_NONE);
	task = kthread_create(ramslice_take_from_request, NULL, "interrupts");
	if (IS_ERR(task)) {
		mutex_unlock(&ramslice_mutex);
		KUNIT_FAIL_AND_ABORT(test, "no task: %ld", PTR_ERR(task));
	}
	get_task_struct(task);
	wake_up_process(task);
	do {
		schedule_timeout_uninterruptible(1);
		reason = ramslice_why_end(&params);
	} while (reason == RAMSLICE_REASON_NONE && time_before(jiffies, until));
	mutex_unlock(&ramslice_mutex);
	KUNIT_EXPECT_EQ(test, reason, RAMSLICE_REASON_PRESSURE);
	/* It got the mutex, and the next request goes on */
	KUNIT_EXPECT_EQ(test, kthread_stop_put(task), true);
	KUNIT_EXPECT_EQ(test, ramslice_why_end(&params), RAMSLICE_REASON_NONE);
}

static long ramslice_count_pcp(struct zone *zone)
{
	long nr = 0;
	int cpu;

	for_each_online_cpu(cpu)
		nr += READ_ONCE(per_cpu_ptr(zone->per_cpu_pageset, cpu)->count);
	return nr;
}

/* Has per-CPU lists hold pages, and returns their zone. */
static struct zone *ramslice_fill_pcp(struct kunit *test)
{
	struct page *pages[64];
	struct zone *zone;
	unsigned int nr;

	for (nr = 0; nr < ARRAY_SIZE(pages); nr++) {
		pages[nr] = alloc_page(GFP_KERNEL);
		if (!pages[nr])
			break;
	}
	KUNIT_ASSERT_GT(test, nr, 0);
	zone = page_zone(pages[0]);
	while (nr)
		__free_page(pages[--nr]);
	return zone;
}

/*
 * Other tasks allocate and drain meanwhile, and this one may wait for a CPU: what
 * they spoil is tried again.
 */
static void ramslice_drains_only_in_time(struct kunit *test)
{
	struct ramslice_params late = { .deadline = 1, .end_ns = 1 };
	struct ramslice_params any = { .deadline = 1 };
	bool kept = false, drained = false;
	unsigned int tries;

	for (tries = 0; tries < 100 && !(kept && drained); tries++) {
		struct zone *zone = ramslice_fill_pcp(test);
		long before = ramslice_count_pcp(zone);

		if (before <= 32)
			continue;
		kept |= !ramslice_drain_zone(zone, &late) &&
			ramslice_count_pcp(zone) > before / 2;
		drained |= ramslice_drain_zone(zone, &any) &&
			   ramslice_count_pcp(zone) < before / 2;
	}
	KUNIT_EXPECT_TRUE(test, kept);
	KUNIT_EXPECT_TRUE(test, drained);
	KUNIT_EXPECT_FALSE(test, ramslice_drain_lru(&late));
	KUNIT_EXPECT_TRUE(test, ramslice_drain_lru(&any));
}

static struct kunit_case ramslice_request_cases[] = {
	KUNIT_CASE(ramslice_fields_keep_their_values),
	KUNIT_CASE(ramslice_flags_name_the_choice_of_cache),
	KUNIT_CASE(ramslice_each_flag_is_its_own),
	KUNIT_CASE(ramslice_dry_runs_hold_nothing),
	KUNIT_CASE(ramslice_deadlines_count_from_now),
	KUNIT_CASE(ramslice_short_deadlines_are_kept_to_the_ns),
	KUNIT_CASE(ramslice_requests_end_for_those_who_interrupt),
	KUNIT_CASE(ramslice_drains_only_in_time),
	{}
};

static struct kunit_suite ramslice_request_suite = {
	.name = "ramslice_request",
	.test_cases = ramslice_request_cases,
};

kunit_test_suite(ramslice_request_suite);
