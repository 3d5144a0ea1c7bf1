// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of what is made of ACPI's Memory Power State Table: of tables as the
 * specification has them, of tables with a flaw, and of tables cut and changed at
 * random, which must never be read past their end.
 */

#include <kunit/test.h>
#include <linux/acpi.h>
#include <linux/sizes.h>
#include "../internal.h"
#include "../segments.h"
#include "random.h"

#define WANTED	(ACPI_MPST_ENABLED | ACPI_MPST_POWER_MANAGED)
#define ROOM	8

/* A table that grows. */
struct mpst {
	size_t len;
	u8 bytes[1024];
};

static void *mpst_add(struct mpst *t, const void *bytes, size_t len)
{
	void *at = t->bytes + t->len;

	memcpy(at, bytes, len);
	t->len += len;
	return at;
}

static void mpst_begin(struct mpst *t)
{
	static const struct acpi_table_mpst head = {
		.header = { .signature = "MPST", .revision = 1 },
	};

	memset(t, 0, sizeof(*t));
	mpst_add(t, &head, sizeof(head));
}

/* With a state at full power, one below if it is to go off, and a component. */
static struct acpi_mpst_power_node *
mpst_node(struct mpst *t, u8 flags, u64 start, u64 bytes, bool goes_off)
{
	struct acpi_table_mpst *head = (void *)t->bytes;
	struct acpi_mpst_power_node node = {
		.flags = flags,
		.node_id = head->power_node_count,
		.range_address = start,
		.range_length = bytes,
		.num_power_states = goes_off ? 2 : 1,
		.num_physical_components = 1,
	};
	static const struct acpi_mpst_power_state states[] = {
		{ 0, 0 }, { 1, 1 },
	};
	static const struct acpi_mpst_component component = { 7 };
	struct acpi_mpst_power_node *at;

	node.length = sizeof(node) + node.num_power_states * sizeof(states[0]) +
		      sizeof(component);
	head->power_node_count++;
	at = mpst_add(t, &node, sizeof(node));
	mpst_add(t, states, node.num_power_states * sizeof(states[0]));
	mpst_add(t, &component, sizeof(component));
	return at;
}

/* Length and checksum as they should be. */
static void mpst_seal(struct mpst *t)
{
	struct acpi_table_mpst *head = (void *)t->bytes;
	u8 sum = 0;
	size_t i;

	head->header.length = t->len;
	head->header.checksum = 0;
	for (i = 0; i < t->len; i++)
		sum += t->bytes[i];
	head->header.checksum = -sum;
}

static void mpst_expect(struct kunit *test, struct mpst *t, unsigned int nr,
			const struct ramslice_segment *expected)
{
	struct ramslice_segment seg[ROOM];
	unsigned int found = ROOM, node;
	const char *wrong;

	mpst_seal(t);
	wrong = ramslice_parse_mpst(t->bytes, t->len, seg, &found, &node);
	KUNIT_ASSERT_PTR_EQ_MSG(test, wrong, NULL, "node %u: %s", node, wrong);
	KUNIT_ASSERT_EQ(test, found, nr);
	KUNIT_EXPECT_MEMEQ(test, seg, expected, nr * sizeof(*seg));
}

static void mpst_refused(struct kunit *test, struct mpst *t, unsigned int node,
			 const char *wrong)
{
	struct ramslice_segment seg[ROOM];
	unsigned int nr = ROOM, at;
	const char *found;

	found = ramslice_parse_mpst(t->bytes, t->len, seg, &nr, &at);
	KUNIT_ASSERT_NOT_NULL_MSG(test, found, "not refused: %s", wrong);
	KUNIT_EXPECT_NOT_NULL_MSG(test, strstr(found, wrong), "%s", found);
	KUNIT_EXPECT_EQ_MSG(test, at, node, "%s", found);
	KUNIT_EXPECT_EQ(test, nr, 0);
}

static void ramslice_nodes_that_go_off_are_segments(struct kunit *test)
{
	struct mpst *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	static const struct ramslice_segment none[1];
	static const struct ramslice_segment two[] = {
		{ SZ_1G, SZ_512M }, { SZ_2G, SZ_64M },
	};

	KUNIT_ASSERT_NOT_NULL(test, t);
	mpst_begin(t);
	mpst_expect(test, t, 0, none);
	/* Not enabled; not for the kernel to manage; nothing but full power */
	mpst_node(t, ACPI_MPST_POWER_MANAGED, 0, SZ_64M, true);
	mpst_node(t, ACPI_MPST_ENABLED, SZ_64M, SZ_64M, true);
	mpst_node(t, WANTED, SZ_128M, SZ_64M, false);
	mpst_expect(test, t, 0, none);
	mpst_node(t, WANTED, SZ_1G, SZ_512M, true);
	/* Its memory may come later */
	mpst_node(t, WANTED | ACPI_MPST_HOT_PLUG_CAPABLE, SZ_2G, SZ_64M, true);
	mpst_expect(test, t, 2, two);
	/* What follows the nodes is of no interest */
	mpst_add(t, "\1\0\0\0 and more", 13);
	mpst_expect(test, t, 2, two);
}

static void ramslice_of_nodes_in_each_other_the_inner_are_segments(struct kunit *test)
{
	struct mpst *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	static const struct ramslice_segment inner[] = {
		{ SZ_64M, SZ_64M }, { 0, SZ_64M }, { SZ_1G, SZ_64M },
	};

	KUNIT_ASSERT_NOT_NULL(test, t);
	mpst_begin(t);
	mpst_node(t, WANTED, 0, SZ_2G, true);
	mpst_node(t, WANTED, SZ_64M, SZ_64M, true);
	mpst_node(t, WANTED, 0, SZ_128M, true);
	mpst_node(t, WANTED, 0, SZ_64M, true);
	mpst_node(t, WANTED, SZ_1G, SZ_64M, true);
	mpst_expect(test, t, 3, inner);
}

static void ramslice_tables_with_a_flaw_are_refused(struct kunit *test)
{
	struct mpst *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	struct acpi_mpst_power_node *node;
	struct ramslice_segment seg[2];
	unsigned int nr = 2, i;

	KUNIT_ASSERT_NOT_NULL(test, t);
	for (i = 0; i < 9; i++) {
		static const char * const wrong[] = {
			"is shorter", "is shorter", "is shorter", "past the end",
			"ends inside", "no memory", "overflow", "same addresses",
			"checksum",
		};

		mpst_begin(t);
		mpst_node(t, WANTED, 0, SZ_64M, true);
		node = mpst_node(t, WANTED, SZ_64M, SZ_64M, true);
		if (i == 0)
			node->length = 0;
		if (i == 1)
			node->length--;
		if (i == 2)
			node->num_power_states = U32_MAX;
		if (i == 3)
			node->length++;
		if (i == 4)
			t->len -= 12;
		if (i == 5)
			node->range_length = 0;
		if (i == 6)
			node->range_length = -SZ_64M + 1;
		if (i == 7)
			node->range_address = 0;
		mpst_seal(t);
		if (i == 8)
			t->bytes[20]++;
		mpst_refused(test, t, i == 8 ? 0 : 1, wrong[i]);
	}
	/* More nodes than there are; a count alone */
	mpst_begin(t);
	((struct acpi_table_mpst *)t->bytes)->power_node_count = 1;
	mpst_seal(t);
	mpst_refused(test, t, 0, "ends inside");
	t->len--;
	mpst_refused(test, t, 0, "before its count");
	t->len += 2;
	mpst_refused(test, t, 0, "as long as it says");
	/* More than fit */
	mpst_begin(t);
	for (i = 0; i < 3; i++)
		mpst_node(t, WANTED, i * SZ_64M, SZ_64M, true);
	mpst_seal(t);
	KUNIT_EXPECT_STREQ(test,
			   ramslice_parse_mpst(t->bytes, t->len, seg, &nr, &i),
			   "there are too many");
	KUNIT_EXPECT_EQ(test, i, 2);
	/* What overlaps in part, and lies in no other, the check of all tables finds */
	mpst_begin(t);
	mpst_node(t, WANTED, 0, SZ_128M, true);
	mpst_node(t, WANTED, SZ_64M, SZ_128M, true);
	mpst_seal(t);
	nr = 2;
	KUNIT_EXPECT_PTR_EQ(test,
			    ramslice_parse_mpst(t->bytes, t->len, seg, &nr, &i),
			    NULL);
	KUNIT_EXPECT_STREQ(test, ramslice_check_segments(seg, nr, &i),
			   "it overlaps the one before");
}

/* Each in memory of just its length, so that KASAN sees what is read past it. */
static void ramslice_no_table_is_read_past_its_end(struct kunit *test)
{
	struct mpst *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	unsigned int i, nr_taken = 0;
	struct rnd_state rnd;

	KUNIT_ASSERT_NOT_NULL(test, t);
	prandom_seed_state(&rnd, 28);
	for (i = 0; i < NR_INPUTS / 10; i++) {
		struct ramslice_segment seg[ROOM];
		unsigned int nr = ROOM, node, changes, n;
		const char *wrong;
		void *copy;

		mpst_begin(t);
		for (n = ramslice_below(&rnd, ROOM); n; n--)
			mpst_node(t, ramslice_below(&rnd, 8),
				  ramslice_random_number(&rnd),
				  ramslice_random_number(&rnd),
				  ramslice_below(&rnd, 2));
		for (changes = ramslice_below(&rnd, 4); changes; changes--)
			t->bytes[sizeof(struct acpi_table_header) +
				 ramslice_below(&rnd, t->len -
						sizeof(struct acpi_table_header))] =
				ramslice_below(&rnd, 256);
		if (ramslice_one_in(&rnd, 2))
			t->len -= ramslice_below(&rnd, t->len -
						 sizeof(struct acpi_table_header));
		mpst_seal(t);
		copy = kmemdup(t->bytes, t->len, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, copy);
		wrong = ramslice_parse_mpst(copy, t->len, seg, &nr, &node);
		kfree(copy);
		nr_taken += !wrong;
		KUNIT_ASSERT_LE(test, nr, ROOM);
		if (wrong)
			KUNIT_ASSERT_EQ(test, nr, 0);
		for (n = 0; n < nr; n++)
			KUNIT_ASSERT_GT(test, seg[n].start_bytes + seg[n].bytes,
					seg[n].start_bytes);
	}
	/* Neither all nor none: it is about both */
	KUNIT_EXPECT_GT(test, nr_taken, 100);
	KUNIT_EXPECT_LT(test, nr_taken, NR_INPUTS / 10 - 100);
}

static struct kunit_case ramslice_mpst_cases[] = {
	KUNIT_CASE(ramslice_nodes_that_go_off_are_segments),
	KUNIT_CASE(ramslice_of_nodes_in_each_other_the_inner_are_segments),
	KUNIT_CASE(ramslice_tables_with_a_flaw_are_refused),
	KUNIT_CASE(ramslice_no_table_is_read_past_its_end),
	{}
};

static struct kunit_suite ramslice_mpst_suite = {
	.name = "ramslice_mpst",
	.test_cases = ramslice_mpst_cases,
};

kunit_test_suite(ramslice_mpst_suite);
