// SPDX-License-Identifier: GPL-2.0
/*
 * Counters per pageblock, fed by hooks in mm.
 *
 * They live in struct mem_section_usage, behind the migrate types, which is
 * there before the first page of a section is freed: at boot, with deferred
 * initialisation and with memory hotplug alike. Each counter is defined so
 * that verify.c can derive it from page flags and mappings alone.
 */

#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/unaligned.h>
#include "internal.h"

/*
 * A mapped or dirty part of a folio is counted without knowing which pages it
 * is made of, which is exact as long as such folios fit into a pageblock.
 */
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
static_assert(pageblock_order >= HPAGE_PMD_ORDER);
#endif

/**
 * ramslice_usage_size - bytes of a section's counters
 *
 * Return: what struct mem_section_usage is longer by than without them.
 */
size_t ramslice_usage_size(void)
{
	return PAGES_PER_SECTION / pageblock_nr_pages *
	       sizeof(struct ramslice_block);
}

/**
 * ramslice_account_range - spread a change over the pageblocks of a range
 * @pfn: first page frame
 * @span: page frames of the range
 * @c: the counter, other than RAMSLICE_FREE
 * @nr_pages: the change: plus or minus @span, or, in a range that does not
 *	      leave its pageblock, a part of it
 */
void ramslice_account_range(unsigned long pfn, unsigned long span,
			    enum ramslice_counter c, long nr_pages)
{
	unsigned long in_block = pageblock_nr_pages -
				 (pfn & (pageblock_nr_pages - 1));

	if (likely(span <= in_block)) {
		atomic_add(nr_pages, &ramslice_block(pfn)->count[c]);
		return;
	}

	while (span) {
		unsigned long n = min(span, in_block);

		atomic_add(nr_pages < 0 ? -(int)n : (int)n,
			   &ramslice_block(pfn)->count[c]);
		pfn += n;
		span -= n;
		in_block = pageblock_nr_pages;
	}
}

/* Most folios are pages. */
static __always_inline void ramslice_account_page(struct folio *folio,
						  enum ramslice_counter c,
						  int nr)
{
	atomic_add(nr, &ramslice_block(folio_pfn(folio))->count[c]);
}

static __always_inline void ramslice_account_folio(struct folio *folio,
						   enum ramslice_counter c,
						   long nr_pages)
{
	if (likely(!folio_test_large(folio)))
		ramslice_account_page(folio, c, nr_pages);
	else
		ramslice_account_range(folio_pfn(folio), folio_nr_pages(folio),
				       c, nr_pages);
}

/* Under zone->lock, so that no locked operation is needed. */
static __always_inline void ramslice_add_free(unsigned long pfn, int nr_pages)
{
	atomic_t *count = &ramslice_block(pfn)->count[RAMSLICE_FREE];

	atomic_set(count, atomic_read(count) + nr_pages);
}

void __ramslice_account_free(unsigned long pfn, long nr_pages)
{
	long block = pageblock_nr_pages;

	if (likely(nr_pages <= block && nr_pages >= -block)) {
		ramslice_add_free(pfn, nr_pages);
		return;
	}
	/* A larger range may begin within a block, but ends where one does */
	while (nr_pages) {
		long n = block - (pfn & (block - 1));

		ramslice_add_free(pfn, nr_pages < 0 ? -n : n);
		pfn += n;
		nr_pages += nr_pages < 0 ? n : -n;
	}
}

/* One more than the counter that a node's counter feeds. */
static const u8 ramslice_counter_of[NR_VM_NODE_STAT_ITEMS] = {
	[NR_ANON_MAPPED]	= 1 + RAMSLICE_ANON_MAPPED,
	[NR_FILE_MAPPED]	= 1 + RAMSLICE_FILE_MAPPED,
	[NR_FILE_PAGES]		= 1 + RAMSLICE_FILE,
	[NR_SHMEM]		= 1 + RAMSLICE_SHMEM,
	[NR_FILE_DIRTY]		= 1 + RAMSLICE_DIRTY,
	[NR_WRITEBACK]		= 1 + RAMSLICE_WRITEBACK,
};

void __ramslice_account_stat(struct folio *folio, enum node_stat_item item,
			     long nr_pages)
{
	u8 c = ramslice_counter_of[item];

	if (c)
		ramslice_account_folio(folio, c - 1, nr_pages);
}
EXPORT_SYMBOL_GPL(__ramslice_account_stat);

static noinline void ramslice_account_lru_large(struct folio *folio,
						enum ramslice_counter c,
						bool add)
{
	long nr_pages = folio_nr_pages(folio);

	if (!add)
		nr_pages = -nr_pages;
	ramslice_account_folio(folio, c, nr_pages);
	if (folio_order(folio) >= pageblock_order)
		ramslice_account_folio(folio, RAMSLICE_HUGE, nr_pages);
}

void __ramslice_account_lru(struct folio *folio, bool add)
{
	enum ramslice_counter c = folio_is_file_lru(folio) ?
				  RAMSLICE_LRU_FILE : RAMSLICE_LRU_ANON;

	if (likely(!folio_test_large(folio)))
		ramslice_account_page(folio, c, add ? 1 : -1);
	else
		ramslice_account_lru_large(folio, c, add);
}

void __ramslice_account_split(struct folio *folio, unsigned int new_order)
{
	if (folio_order(folio) >= pageblock_order &&
	    new_order < pageblock_order)
		ramslice_account_folio(folio, RAMSLICE_HUGE,
				       -folio_nr_pages(folio));
}

void __ramslice_account_migrate(struct folio *dst, struct folio *src,
				bool dirty)
{
	long nr_pages = folio_nr_pages(src);

	/* The swap cache is not page cache here, see verify.c */
	if (!folio_test_swapcache(src)) {
		ramslice_account_folio(src, RAMSLICE_FILE, -nr_pages);
		ramslice_account_folio(dst, RAMSLICE_FILE, nr_pages);
		if (folio_test_swapbacked(src)) {
			ramslice_account_folio(src, RAMSLICE_SHMEM, -nr_pages);
			ramslice_account_folio(dst, RAMSLICE_SHMEM, nr_pages);
		}
	}
	if (dirty) {
		ramslice_account_folio(src, RAMSLICE_DIRTY, -nr_pages);
		ramslice_account_folio(dst, RAMSLICE_DIRTY, nr_pages);
	}
}

void __ramslice_account_collapse(struct folio *dst, struct folio *src,
				 bool is_shmem)
{
	long nr_pages = folio_nr_pages(src);

	ramslice_account_folio(src, RAMSLICE_FILE, -nr_pages);
	ramslice_account_folio(dst, RAMSLICE_FILE, nr_pages);
	if (is_shmem) {
		ramslice_account_folio(src, RAMSLICE_SHMEM, -nr_pages);
		ramslice_account_folio(dst, RAMSLICE_SHMEM, nr_pages);
	}
}

/*
 * Counters are added up two at a time: as none is below zero, or only for a
 * moment, none borrows from its neighbour, or only a page, for that moment.
 */
#define NR_PAIRS	(RAMSLICE_NR_COUNTERS / 2)
static_assert(RAMSLICE_NR_COUNTERS % 2 == 0);

union counter_pair {
	u64 both;
	s32 count[2];
};

static __always_inline u64 ramslice_read_pair(const atomic_t *pair)
{
	/* Not volatile: one instruction for each */
	return data_race(get_unaligned((const u64 *)pair));
}

/**
 * ramslice_count_slice - the counters of a slice
 * @id: the slice
 * @counters: filled with pages, never negative
 */
void ramslice_count_slice(u32 id, u32 counters[RAMSLICE_NR_COUNTERS])
{
	union counter_pair sum[NR_PAIRS] = {};
	unsigned int n, i, nr;
	unsigned long pfn;

	for (n = 0; (nr = ramslice_geom_run(&ramslice_geom, id, n, &pfn));
	     n += nr) {
		const struct ramslice_block *block, *end;

		/* Blocks that an online section lacks have counters, all 0 */
		if (!online_section_nr(pfn_to_section_nr(pfn)))
			continue;
		block = ramslice_block(pfn);
		for (end = block + nr; block < end; block++) {
			/* Unrolled, the sums stay in registers */
#pragma GCC unroll 5
			for (i = 0; i < NR_PAIRS; i++)
				sum[i].both +=
					ramslice_read_pair(&block->count[2 * i]);
		}
	}
	for (i = 0; i < RAMSLICE_NR_COUNTERS; i++)
		counters[i] = max(sum[i / 2].count[i % 2], 0);
}
