// SPDX-License-Identifier: GPL-2.0
/*
 * Are the summaries what they say? A pageblock that was not touched since it was
 * read has as many free pages as it had then: if not, ramslice_touch() is missing
 * where pages enter or leave the free lists. And slices are the sums of their
 * pageblocks.
 */

#include <linux/seq_file.h>
#include "../internal.h"
#include "internal.h"

#define VERIFY_REPORTS	20

/**
 * struct ramslice_verdict - what was compared
 * @m: gets a line for each of the first differences
 * @nr_blocks: pageblocks
 * @nr_counted: of these, those whose free pages were counted
 * @nr_bad: differences
 */
struct ramslice_verdict {
	struct seq_file *m;
	unsigned long nr_blocks;
	unsigned long nr_counted;
	unsigned long nr_bad;
};

static void ramslice_report(struct ramslice_verdict *v, const char *what,
			    unsigned long where, unsigned int c, u32 kept,
			    u32 counted)
{
	if (kept == counted || v->nr_bad++ >= VERIFY_REPORTS)
		return;
	seq_printf(v->m, "differs: %s %lu counter %u kept %u counted %u\n",
		   what, where, c, kept, counted);
}

/* Under zone->lock. */
static u32 ramslice_count_free(unsigned long start)
{
	unsigned long pfn, end = start + pageblock_nr_pages, n;
	u32 nr = 0;

	if (ramslice_block_free(start))
		return pageblock_nr_pages;
	for (pfn = start; pfn < end; pfn += n) {
		struct page *page = pfn_to_page(pfn);

		n = 1;
		if (PageBuddy(page)) {
			n = min(1UL << buddy_order(page), end - pfn);
			nr += n;
		}
	}
	return nr;
}

static void ramslice_verify_block(struct ramslice_verdict *v, struct zone *zone,
				  unsigned long pfn)
{
	u32 kept = ramslice_block(pfn)->count[RAMSLICE_FREE], counted = kept;

	v->nr_blocks++;
	spin_lock_irq(&zone->lock);
	if (!ramslice_block_touched(pfn)) {
		counted = ramslice_count_free(pfn);
		v->nr_counted++;
	}
	spin_unlock_irq(&zone->lock);
	ramslice_report(v, "pfn", pfn, RAMSLICE_FREE, kept, counted);
}

/* Under scan_mutex. */
static void ramslice_verify_slice(struct ramslice_verdict *v, u32 id)
{
	const struct ramslice_slice *s = &ramslice_slices[id];
	u32 sum[RAMSLICE_NR_COUNTERS] = {}, nr_blocking = 0;
	bool whole = true;
	unsigned long pfn;
	unsigned int n, c;

	for_each_slice_block(id, n, pfn) {
		struct page *page = pfn_to_online_page(pfn);
		const struct ramslice_block *b;

		if (!page) {
			whole = false;
			continue;
		}
		b = ramslice_block(pfn);
		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
			sum[c] += b->count[c];
		nr_blocking += b->nr_blocking;
		/* Of one that zones share, each notes its own pages alone */
		if (READ_ONCE(s->state) == RAMSLICE_ONLINE &&
		    ramslice_block_probe(page_zone(page), pfn) ==
		    RAMSLICE_REASON_NONE)
			ramslice_verify_block(v, page_zone(page), pfn);
	}
	/* Hotplug takes memory out first, and has the table made again after that */
	if (!whole)
		return;
	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		ramslice_report(v, "slice", id, c, s->count[c], sum[c]);
	ramslice_report(v, "slice", id, c, s->nr_blocking, nr_blocking);
}

/**
 * ramslice_verify - compare all summaries with the free lists
 * @m: gets a line for each difference and one with the verdict
 *
 * Context: May sleep; takes ramslice_table_sem.
 * Return: 0.
 */
int ramslice_verify(struct seq_file *m)
{
	struct ramslice_verdict v = { .m = m };
	u32 id;

	down_read(&ramslice_table_sem);
	for (id = 0; id < ramslice_nr_ids; id++) {
		struct ramslice_slice *s = ramslice_slice(id);

		if (!s)
			continue;
		ramslice_scan_slice(id, RAMSLICE_ANY_AGE);
		mutex_lock(&s->rz->scan_mutex);
		ramslice_verify_slice(&v, id);
		mutex_unlock(&s->rz->scan_mutex);
		cond_resched();
	}
	up_read(&ramslice_table_sem);
	seq_printf(m, "%s: %lu pageblocks, %lu recounted, %lu differ\n",
		   v.nr_bad ? "FALSE" : "true", v.nr_blocks, v.nr_counted,
		   v.nr_bad);
	return 0;
}
