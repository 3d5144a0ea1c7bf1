// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the state machine of a slice: every pair of states against the
 * intended table, and names for all that user space is shown.
 */

#include <kunit/test.h>
#include <linux/ctype.h>
#include "../internal.h"

/*
 * Intended changes, 'x', by old state (row) and new state (column), both in
 * the order of enum ramslice_state.
 */
static const char * const intended[] = {
	/*			     oeowq */
	[RAMSLICE_ONLINE]	  = ".x...",
	[RAMSLICE_EMPTYING]	  = "x.x.x",
	[RAMSLICE_OFFLINE]	  = "...x.",
	[RAMSLICE_WAKING]	  = "x...x",
	[RAMSLICE_QUARANTINED]	  = ".....",
};

static_assert(ARRAY_SIZE(intended) == RAMSLICE_NR_STATES);

/* Some make a shift by them wrap around to a legal state. */
static const unsigned int no_states[] = {
	RAMSLICE_NR_STATES, RAMSLICE_NR_STATES + 1, 7, 8, 31, 32, 33, 34, 35,
	63, 64, 65, 66, 67, 255, 256, 257, U16_MAX, S32_MAX, U32_MAX,
};

static void ramslice_only_intended_changes_are_legal(struct kunit *test)
{
	unsigned int from, to;

	for (from = 0; from < RAMSLICE_NR_STATES; from++) {
		KUNIT_ASSERT_EQ(test, strlen(intended[from]),
				RAMSLICE_NR_STATES);
		for (to = 0; to < RAMSLICE_NR_STATES; to++) {
			KUNIT_EXPECT_EQ_MSG(test,
					    ramslice_state_legal(from, to),
					    intended[from][to] == 'x',
					    "%s -> %s",
					    ramslice_state_name(from),
					    ramslice_state_name(to));
		}
	}
}

static void ramslice_values_that_are_no_states_are_illegal(struct kunit *test)
{
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(no_states); i++) {
		unsigned int no = no_states[i];

		for (j = 0; j < RAMSLICE_NR_STATES; j++) {
			KUNIT_EXPECT_FALSE_MSG(test,
					       ramslice_state_legal(no, j),
					       "%u -> %u", no, j);
			KUNIT_EXPECT_FALSE_MSG(test,
					       ramslice_state_legal(j, no),
					       "%u -> %u", j, no);
		}
		for (j = 0; j < ARRAY_SIZE(no_states); j++) {
			KUNIT_EXPECT_FALSE_MSG(test,
					       ramslice_state_legal(no,
								    no_states[j]),
					       "%u -> %u", no, no_states[j]);
		}
	}
}

static void ramslice_every_state_but_quarantine_can_be_left(struct kunit *test)
{
	unsigned int from, to;

	for (from = 0; from < RAMSLICE_NR_STATES; from++) {
		bool can = false;

		for (to = 0; to < RAMSLICE_NR_STATES; to++)
			can |= ramslice_state_legal(from, to);
		KUNIT_EXPECT_EQ_MSG(test, can, from != RAMSLICE_QUARANTINED,
				    "%s", ramslice_state_name(from));
	}
}

/* An online slice of the running system is asked to skip being emptied. */
static void ramslice_illegal_change_changes_nothing(struct kunit *test)
{
	struct ramslice_slice *s = NULL, before, after;
	u32 nr_before[RAMSLICE_NR_STATES], nr_after[RAMSLICE_NR_STATES];
	u64 seq_before, seq_after;
	bool changed;
	u32 id;

	KUNIT_ASSERT_FALSE(test, ramslice_state_legal(RAMSLICE_ONLINE,
						      RAMSLICE_OFFLINE));
	spin_lock_irq(&ramslice_lock);
	for (id = 0; id < ramslice_nr_ids; id++) {
		s = ramslice_slice(id);
		if (s && s->state == RAMSLICE_ONLINE)
			break;
		s = NULL;
	}
	if (!s) {
		spin_unlock_irq(&ramslice_lock);
		kunit_skip(test, "no slice is online: ramslice is off");
	}
	memcpy(&before, s, sizeof(before));
	memcpy(nr_before, s->rz->nr, sizeof(nr_before));
	seq_before = ramslice_event_seq;
	changed = ramslice_set_state(id, RAMSLICE_OFFLINE);
	memcpy(&after, s, sizeof(after));
	memcpy(nr_after, s->rz->nr, sizeof(nr_after));
	seq_after = ramslice_event_seq;
	spin_unlock_irq(&ramslice_lock);

	KUNIT_EXPECT_FALSE(test, changed);
	KUNIT_EXPECT_MEMEQ(test, &before, &after, sizeof(before));
	KUNIT_EXPECT_MEMEQ(test, nr_before, nr_after, sizeof(nr_before));
	KUNIT_EXPECT_EQ(test, seq_before, seq_after);
}

/* Names are words of tables that programs split at white space. */
static void ramslice_expect_word(struct kunit *test, const char *name,
				 unsigned int i)
{
	KUNIT_ASSERT_NOT_NULL_MSG(test, name, "%u has no name", i);
	KUNIT_EXPECT_GT_MSG(test, strlen(name), 0, "%u has no name", i);
	for (; *name; name++) {
		KUNIT_EXPECT_TRUE_MSG(test, islower(*name) || *name == '-',
				      "%u has a '%c' in its name", i, *name);
	}
}

static void ramslice_every_state_has_a_name_of_its_own(struct kunit *test)
{
	unsigned int i, j;

	for (i = 0; i < RAMSLICE_NR_STATES; i++) {
		ramslice_expect_word(test, ramslice_state_name(i), i);
		for (j = 0; j < i; j++) {
			KUNIT_EXPECT_STRNEQ(test, ramslice_state_name(i),
					    ramslice_state_name(j));
		}
	}
}

static void ramslice_every_reason_has_a_name_of_its_own(struct kunit *test)
{
	unsigned int i, j;

	for (i = 0; i < RAMSLICE_NR_REASONS; i++) {
		ramslice_expect_word(test, ramslice_reason_name(i), i);
		for (j = 0; j < i; j++) {
			KUNIT_EXPECT_STRNEQ(test, ramslice_reason_name(i),
					    ramslice_reason_name(j));
		}
	}
}

static void
ramslice_what_is_no_state_or_reason_has_a_question_mark(struct kunit *test)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(no_states); i++) {
		KUNIT_EXPECT_STREQ(test, ramslice_state_name(no_states[i]),
				   "?");
		if (no_states[i] < RAMSLICE_NR_REASONS)
			continue;
		KUNIT_EXPECT_STREQ(test, ramslice_reason_name(no_states[i]),
				   "?");
	}
	KUNIT_EXPECT_STREQ(test, ramslice_reason_name(RAMSLICE_NR_REASONS),
			   "?");
}

static struct kunit_case ramslice_state_cases[] = {
	KUNIT_CASE(ramslice_only_intended_changes_are_legal),
	KUNIT_CASE(ramslice_values_that_are_no_states_are_illegal),
	KUNIT_CASE(ramslice_every_state_but_quarantine_can_be_left),
	KUNIT_CASE(ramslice_illegal_change_changes_nothing),
	KUNIT_CASE(ramslice_every_state_has_a_name_of_its_own),
	KUNIT_CASE(ramslice_every_reason_has_a_name_of_its_own),
	KUNIT_CASE(ramslice_what_is_no_state_or_reason_has_a_question_mark),
	{}
};

static struct kunit_suite ramslice_state_suite = {
	.name = "ramslice_state",
	.test_cases = ramslice_state_cases,
};

kunit_test_suite(ramslice_state_suite);
