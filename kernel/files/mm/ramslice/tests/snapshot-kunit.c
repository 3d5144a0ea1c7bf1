// SPDX-License-Identifier: GPL-2.0
/*
 * A snapshot and the order by price of 8192 slices of 64 MiB: half a terabyte
 * of memory that is not there. Its sections lie above all real memory and have
 * counters, but no page is ever looked at. What it takes is printed, not judged;
 * where QEMU counts instructions, that is instructions.
 */

#include <kunit/test.h>
#include <linux/memory_hotplug.h>
#include <linux/prandom.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "../internal.h"

#define NR_SLICES	8192U
#define SLICE_BLOCKS	32U
#define NR_BLOCKS	(NR_SLICES * SLICE_BLOCKS)
#define NR_ROUNDS	5
#define SEED		0x51ceULL

/* Where it begins: far above what a machine for tests has. */
#define FIRST_PFN	(1UL << (40 - PAGE_SHIFT))

struct table {
	struct mem_section **roots;
	void *usages;
	size_t usage_bytes;
	struct ramslice_slice *slices;
	struct ramslice_zone rz;
	struct ramslice_slice_info *rows;
	/* what stands in its place */
	struct ramslice_slice *old_slices;
	struct ramslice_geometry old_geom;
	u32 old_nr_ids;
};

#ifdef CONFIG_SPARSEMEM_EXTREME

static struct mem_section_usage *ramslice_usage_of(struct table *t,
						   unsigned long nr)
{
	return t->usages + nr * t->usage_bytes;
}

/* Blocks that are full, free, or hold anonymous memory and page cache. */
static void ramslice_fill_block(struct ramslice_block *block,
				struct rnd_state *rnd)
{
	u32 anon = prandom_u32_state(rnd) % (pageblock_nr_pages + 1);
	u32 file = prandom_u32_state(rnd) % (pageblock_nr_pages - anon + 1);

	atomic_set(&block->count[RAMSLICE_LRU_ANON], anon);
	atomic_set(&block->count[RAMSLICE_ANON_MAPPED], anon);
	atomic_set(&block->count[RAMSLICE_LRU_FILE], file);
	atomic_set(&block->count[RAMSLICE_FILE], file);
	atomic_set(&block->count[RAMSLICE_FREE],
		   pageblock_nr_pages - anon - file);
}

static void ramslice_make_sections(struct table *t, unsigned long first,
				   unsigned long nr)
{
	unsigned int blocks = PAGES_PER_SECTION / pageblock_nr_pages, n;
	struct rnd_state rnd;
	unsigned long i;

	prandom_seed_state(&rnd, SEED);
	for (i = 0; i < nr; i++) {
		struct mem_section_usage *usage = ramslice_usage_of(t, i);
		unsigned long root = SECTION_NR_TO_ROOT(first + i);
		struct mem_section *ms;

		bitmap_fill(usage->subsection_map, SUBSECTIONS_PER_SECTION);
		for (n = 0; n < blocks; n++)
			ramslice_fill_block(ramslice_usage_blocks(usage) + n,
					    &rnd);
		ms = &t->roots[root - SECTION_NR_TO_ROOT(first)]
			      [(first + i) & SECTION_ROOT_MASK];
		ms->usage = usage;
		ms->section_mem_map = SECTION_MARKED_PRESENT |
				      SECTION_HAS_MEM_MAP | SECTION_IS_ONLINE;
	}
}

/* Puts the sections where pfn_to_online_page() finds them, or takes them away. */
static bool ramslice_set_roots(struct table *t, bool on)
{
	unsigned long first = SECTION_NR_TO_ROOT(pfn_to_section_nr(FIRST_PFN));
	unsigned long last = SECTION_NR_TO_ROOT(pfn_to_section_nr(FIRST_PFN +
				NR_BLOCKS * pageblock_nr_pages - 1));
	unsigned long root;

	for (root = first; on && root <= last; root++) {
		if (mem_section[root])
			return false;
	}
	for (root = first; root <= last; root++)
		mem_section[root] = on ? t->roots[root - first] : NULL;
	return true;
}

/* Exchanges the table of slices, as rebuild() in geometry.c does. */
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
	unsigned long i;

	for (i = 0; t->roots && i <= NR_BLOCKS * pageblock_nr_pages /
				    PAGES_PER_SECTION / SECTIONS_PER_ROOT; i++)
		kfree(t->roots[i]);
	kfree(t->roots);
	vfree(t->usages);
	vfree(t->slices);
	vfree(t->rows);
}

static struct table *ramslice_make_table(struct kunit *test)
{
	unsigned long nr = NR_BLOCKS * pageblock_nr_pages / PAGES_PER_SECTION;
	unsigned long nr_roots = nr / SECTIONS_PER_ROOT + 1, i;
	struct table *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	u32 first = FIRST_PFN / pageblock_nr_pages / SLICE_BLOCKS, id;

	KUNIT_ASSERT_NOT_NULL(test, t);
	KUNIT_ASSERT_EQ(test,
			kunit_add_action_or_reset(test, ramslice_free_table, t),
			0);
	t->usage_bytes = mem_section_usage_size();
	t->usages = vzalloc(nr * t->usage_bytes);
	t->slices = vzalloc(array_size(first + NR_SLICES, sizeof(*t->slices)));
	t->rows = vzalloc(array_size(NR_SLICES, sizeof(*t->rows)));
	t->roots = kcalloc(nr_roots, sizeof(*t->roots), GFP_KERNEL);
	KUNIT_ASSERT_TRUE(test, t->usages && t->slices && t->rows && t->roots);
	for (i = 0; i < nr_roots; i++) {
		t->roots[i] = kcalloc(SECTIONS_PER_ROOT, sizeof(**t->roots),
				      GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, t->roots[i]);
	}
	ramslice_make_sections(t, pfn_to_section_nr(FIRST_PFN), nr);

	t->rz.zone = page_zone(virt_to_page(t));
	t->rz.first_id = first;
	t->rz.end_id = first + NR_SLICES;
	t->rz.nr_slices = NR_SLICES;
	t->rz.nr[RAMSLICE_ONLINE] = NR_SLICES;
	for (id = first; id < t->rz.end_id; id++) {
		t->slices[id].rz = &t->rz;
		t->slices[id].nr_pages = SLICE_BLOCKS * pageblock_nr_pages;
	}
	return t;
}

/* The counters of a slice, by themselves. */
static u32 ramslice_free_pages_of(struct table *t, u32 id)
{
	unsigned long pfn = (unsigned long)id * SLICE_BLOCKS *
			    pageblock_nr_pages;
	unsigned int n;
	u32 sum = 0;

	for (n = 0; n < SLICE_BLOCKS; n++, pfn += pageblock_nr_pages) {
		struct mem_section_usage *usage =
			ramslice_usage_of(t, pfn_to_section_nr(pfn - FIRST_PFN));
		unsigned long block = (pfn & ~PAGE_SECTION_MASK) >>
				      pageblock_order;

		sum += atomic_read(&ramslice_usage_blocks(usage)[block]
				   .count[RAMSLICE_FREE]);
	}
	return sum;
}

static void ramslice_check(struct kunit *test, struct table *t,
			   const struct ramslice_reserve *r, u32 nr)
{
	u32 i, wrong = 0;

	KUNIT_EXPECT_EQ(test, nr, NR_SLICES);
	KUNIT_EXPECT_EQ(test, r->nr, NR_SLICES);
	for (i = 0; i < NR_SLICES; i++) {
		wrong += t->rows[i].counters[RAMSLICE_FREE] !=
			 ramslice_free_pages_of(t, t->rows[i].id);
		wrong += r->c[i].nr_free != ramslice_free_pages_of(t,
								   r->c[i].id);
		wrong += i && r->c[i - 1].price > r->c[i].price;
	}
	KUNIT_EXPECT_EQ(test, wrong, 0);
	KUNIT_EXPECT_LT(test, r->c[0].price, r->c[NR_SLICES - 1].price);
}

static void ramslice_snapshot_and_order_of_8192_slices(struct kunit *test)
{
	struct table *t = ramslice_make_table(test);
	unsigned int round;

	for (round = 0; round < NR_ROUNDS; round++) {
		struct ramslice_reserve r;
		u64 ns, rows_ns, order_ns, seq;
		int err = -EBUSY;
		u32 nr = 0;

		memset(t->rows, 0, array_size(NR_SLICES, sizeof(*t->rows)));
		mutex_lock(&ramslice_mutex);
		ramslice_swap_tables(t, true);
		ns = local_clock();
		rows_ns = ns;
		order_ns = ns;
		if (ramslice_set_roots(t, true)) {
			nr = ramslice_fill_rows(t->rows, &seq);
			rows_ns = local_clock();
			err = ramslice_reserve_build(&r, &t->rz,
						     RAMSLICE_CACHE_DROP,
						     false);
			order_ns = local_clock();
			ramslice_set_roots(t, false);
		}
		ramslice_swap_tables(t, false);
		mutex_unlock(&ramslice_mutex);

		KUNIT_ASSERT_EQ(test, err, 0);
		ramslice_check(test, t, &r, nr);
		ramslice_reserve_free(&r);
		kunit_info(test, "snapshot_ns %llu order_ns %llu\n",
			   rows_ns - ns, order_ns - rows_ns);
	}
}

#else

static void ramslice_snapshot_and_order_of_8192_slices(struct kunit *test)
{
	kunit_skip(test, "sections are not allocated as needed");
}

#endif

static struct kunit_case ramslice_snapshot_cases[] = {
	KUNIT_CASE(ramslice_snapshot_and_order_of_8192_slices),
	{}
};

static struct kunit_suite ramslice_snapshot_suite = {
	.name = "ramslice_snapshot",
	.test_cases = ramslice_snapshot_cases,
};

kunit_test_suite(ramslice_snapshot_suite);
