// SPDX-License-Identifier: GPL-2.0
/*
 * A snapshot and the order by price of slices of 64 MiB, half a terabyte and six
 * of them: memory that is not there. The slices lie above all real memory and have
 * been read, and not touched since, so that no page is ever looked at. What it takes
 * is printed, not judged; where QEMU counts instructions, that is instructions.
 */

#include <kunit/test.h>
#include <linux/prandom.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "../internal.h"
#include "../request.h"

#define SLICE_BLOCKS	32U
#define NR_ROUNDS	5
#define SEED		0x51ceULL

/* Where it begins: far above what a machine for tests has. */
#define FIRST_PFN	(1UL << (40 - PAGE_SHIFT))

/* Slices, for each run of the test. */
static const u32 ramslice_table_sizes[] = { 8192, 98304 };

struct table {
	u32 nr_slices;
	struct ramslice_slice *slices;
	/* of a node of its own */
	struct pglist_data *node;
	struct ramslice_blocks blocks;
	struct ramslice_zone rz;
	struct ramslice_slice_info *rows;
	/* what stands in its place */
	struct ramslice_slice *old_slices;
	struct ramslice_geometry old_geom;
	u32 old_nr_ids;
};

/* Full, free, or with anonymous memory and page cache. */
static void ramslice_fill_slice(struct ramslice_slice *s, struct rnd_state *rnd)
{
	u32 anon = prandom_u32_state(rnd) % (s->nr_pages + 1);
	u32 file = prandom_u32_state(rnd) % (s->nr_pages - anon + 1);

	s->count[RAMSLICE_LRU_ANON] = anon;
	s->count[RAMSLICE_ANON_MAPPED] = anon;
	s->count[RAMSLICE_LRU_FILE] = file;
	s->count[RAMSLICE_FILE] = file;
	s->count[RAMSLICE_FREE] = s->nr_pages - anon - file;
	s->read_at = jiffies;
	s->was_read = true;
}

/* Exchanges the table of slices, as ramslice_rebuild_table() does. */
static void ramslice_swap_tables(struct table *t, bool on)
{
	if (on) {
		down_write(&ramslice_table_sem);
		spin_lock_irq(&ramslice_lock);
		t->old_slices = ramslice_slices;
		t->old_nr_ids = ramslice_nr_ids;
		t->old_geom = ramslice_geom;
		ramslice_slices = t->slices;
		ramslice_nr_ids = t->rz.end_id;
		ramslice_geom.nr_blocks = SLICE_BLOCKS;
		spin_unlock_irq(&ramslice_lock);
		return;
	}
	spin_lock_irq(&ramslice_lock);
	ramslice_slices = t->old_slices;
	ramslice_nr_ids = t->old_nr_ids;
	ramslice_geom = t->old_geom;
	spin_unlock_irq(&ramslice_lock);
	up_write(&ramslice_table_sem);
}

static void ramslice_free_table(void *data)
{
	struct table *t = data;

	vfree(t->slices);
	vfree(t->rows);
	vfree(t->node);
	vfree(t->blocks.bytes);
}

static void ramslice_make_zone(struct kunit *test, struct table *t, u32 first,
			       u32 nr_slices)
{
	struct zone *zone;

	t->node = vzalloc(sizeof(*t->node));
	t->blocks.bytes = vzalloc(array_size(nr_slices, SLICE_BLOCKS));
	KUNIT_ASSERT_TRUE(test, t->node && t->blocks.bytes);
	t->blocks.first = (unsigned long)first * SLICE_BLOCKS;
	t->blocks.nr = (unsigned long)nr_slices * SLICE_BLOCKS;

	zone = &t->node->node_zones[ZONE_MOVABLE];
	zone->zone_pgdat = t->node;
	zone->ramslice_blocks = &t->blocks;
	t->rz.zone = zone;
}

static struct table *ramslice_make_table(struct kunit *test, u32 nr_slices)
{
	struct table *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	u32 first = FIRST_PFN / pageblock_nr_pages / SLICE_BLOCKS, id;
	struct rnd_state rnd;

	KUNIT_ASSERT_NOT_NULL(test, t);
	KUNIT_ASSERT_EQ(test,
			kunit_add_action_or_reset(test, ramslice_free_table, t),
			0);
	t->nr_slices = nr_slices;
	t->slices = vzalloc(array_size(first + nr_slices, sizeof(*t->slices)));
	t->rows = vzalloc(array_size(nr_slices, sizeof(*t->rows)));
	KUNIT_ASSERT_TRUE(test, t->slices && t->rows);

	ramslice_make_zone(test, t, first, nr_slices);
	mutex_init(&t->rz.scan_mutex);
	t->rz.first_id = first;
	t->rz.end_id = first + nr_slices;
	t->rz.nr_slices = nr_slices;
	t->rz.nr[RAMSLICE_ONLINE] = nr_slices;
	prandom_seed_state(&rnd, SEED);
	for (id = first; id < t->rz.end_id; id++) {
		t->slices[id].rz = &t->rz;
		t->slices[id].nr_pages = SLICE_BLOCKS * pageblock_nr_pages;
		ramslice_fill_slice(&t->slices[id], &rnd);
	}
	return t;
}

static void ramslice_check(struct kunit *test, struct table *t,
			   const struct ramslice_reserve *r, u32 nr)
{
	u32 i, wrong = 0;

	KUNIT_ASSERT_EQ(test, nr, t->nr_slices);
	KUNIT_ASSERT_EQ(test, r->nr, t->nr_slices);
	for (i = 0; i < nr; i++) {
		const struct ramslice_slice_info *row = &t->rows[i];

		wrong += row->counters[RAMSLICE_FREE] !=
			 t->slices[row->id].count[RAMSLICE_FREE];
		wrong += row->flags & RAMSLICE_SLICE_STALE;
		wrong += row->zone != ZONE_MOVABLE;
		wrong += r->c[i].nr_free !=
			 t->slices[r->c[i].id].count[RAMSLICE_FREE];
		wrong += i && r->c[i - 1].price > r->c[i].price;
	}
	KUNIT_EXPECT_EQ(test, wrong, 0);
	KUNIT_EXPECT_LT(test, r->c[0].price, r->c[nr - 1].price);
}

static void ramslice_snapshot_and_order(struct kunit *test)
{
	const u32 *nr_slices = test->param_value;
	struct table *t = ramslice_make_table(test, *nr_slices);
	unsigned int round;

	for (round = 0; round < NR_ROUNDS; round++) {
		struct ramslice_params params = {
			.deadline = jiffies + MAX_JIFFY_OFFSET,
			.cache = RAMSLICE_CACHE_DROP,
		};
		struct ramslice_reserve r;
		u64 ns, rows_ns, order_ns, seq;
		u32 nr;
		int err;

		memset(t->rows, 0, array_size(*nr_slices, sizeof(*t->rows)));
		mutex_lock(&ramslice_mutex);
		ramslice_swap_tables(t, true);
		ns = local_clock();
		nr = ramslice_fill_rows(t->rows, &seq);
		rows_ns = local_clock();
		err = ramslice_reserve_build(&r, &t->rz, &params, false);
		order_ns = local_clock();
		ramslice_swap_tables(t, false);
		mutex_unlock(&ramslice_mutex);

		KUNIT_ASSERT_EQ(test, err, 0);
		ramslice_check(test, t, &r, nr);
		ramslice_reserve_free(&r);
		kunit_info(test, "slices %u snapshot_ns %llu order_ns %llu\n",
			   nr, rows_ns - ns, order_ns - rows_ns);
	}
}

static void ramslice_describe_size(const u32 *nr_slices, char *text)
{
	snprintf(text, KUNIT_PARAM_DESC_SIZE, "%u slices", *nr_slices);
}

KUNIT_ARRAY_PARAM(ramslice_table, ramslice_table_sizes, ramslice_describe_size);

static struct kunit_case ramslice_snapshot_cases[] = {
	KUNIT_CASE_PARAM(ramslice_snapshot_and_order, ramslice_table_gen_params),
	{}
};

static struct kunit_suite ramslice_snapshot_suite = {
	.name = "ramslice_snapshot",
	.test_cases = ramslice_snapshot_cases,
};

kunit_test_suite(ramslice_snapshot_suite);
