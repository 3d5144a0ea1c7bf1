// SPDX-License-Identifier: GPL-2.0
/*
 * Migration of anonymous pages by runs of neighbours.
 *
 * migrate_pages() walks the reverse map of each page twice: to put a migration
 * entry in the place of each mapping, and to put the new page there. Most pages
 * of most programs are anonymous, small and mapped once, and pages that are
 * neighbours in memory are often neighbours in their program. Such a run has
 * its page table in common, wherever in memory its pages are: under one hold of
 * its lock all entries are cleared, the TLB is flushed once, and the pages are
 * copied and mapped again. No migration entry is needed, because a task that
 * faults waits for that lock.
 *
 * A page keeps its node and its memory cgroup, so the new one takes its place
 * in the LRU list and no statistics change. A page that is of another kind, or
 * is in use by others at the moment, is left to migrate_pages().
 *
 * Lock order: folio, anon_vma, page table, lruvec, as elsewhere. Nothing that
 * another may hold for long is waited for while folios are locked.
 */

#include <linux/memcontrol.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <linux/page_idle.h>
#include <linux/page_owner.h>
#include <linux/pagevec.h>
#include <linux/pgalloc_tag.h>
#include <linux/rmap.h>
#include <linux/vmstat.h>
#include <asm/tlbflush.h>
#include <trace/events/migrate.h>
#include "internal.h"
#include "migrate_run.h"

/* Shorter runs are left to migrate_pages(), which shares TLB flushes better. */
#define MIN_RUN		8U

/* Page tables whose pages are brought together; what belongs to others stays. */
#define MAX_TABLES	8U

/* References to a folio that is mapped once: that one, and ours. */
#define EXPECTED_REFS	2

/*
 * What says that a folio is of another kind: large, in swap cache or written
 * to it, locked in memory, with data of others, or damaged.
 */
#define UNFIT_FLAGS	(BIT(PG_head) | BIT(PG_swapcache) | BIT(PG_writeback) | \
			 BIT(PG_unevictable) | BIT(PG_mlocked) | \
			 BIT(PG_private) | BIT(PG_private_2) | HWPOISON_FLAG)
#ifdef CONFIG_MEMORY_FAILURE
#define HWPOISON_FLAG	BIT(PG_hwpoison)
#else
#define HWPOISON_FLAG	0
#endif

/* What folio_migrate_flags() copies of a folio of the kind. */
#define COPIED_FLAGS	(BIT(PG_referenced) | BIT(PG_uptodate) | \
			 BIT(PG_dirty) | BIT(PG_active) | BIT(PG_workingset) | \
			 BIT(PG_anon_exclusive) | BIT(PG_readahead) | \
			 BIT(PG_swapbacked) | LRU_GEN_MASK | LRU_REFS_MASK)

/*
 * Is it of the kind? Without its lock, this is a guess. KSM pages have another
 * mapping type, and pages in per-CPU batches have more references.
 */
static bool migrate_run_suits(struct folio *folio)
{
	unsigned long mapping = (unsigned long)READ_ONCE(folio->mapping);
	unsigned long flags = READ_ONCE(folio->flags);

	return (flags & (UNFIT_FLAGS | BIT(PG_lru))) == BIT(PG_lru) &&
	       (mapping & PAGE_MAPPING_FLAGS) == PAGE_MAPPING_ANON &&
	       folio_ref_count(folio) == EXPECTED_REFS &&
	       atomic_read(&folio->_mapcount) == 0;
}

/**
 * migrate_run_add - have a folio migrated with others
 * @run: those others
 * @folio: the folio, to which the caller has a reference
 *
 * Return: true if it was added, with the reference. False if it is of another
 * kind, or there is no room.
 */
bool migrate_run_add(struct migrate_run *run, struct folio *folio)
{
	if (run->nr == MIGRATE_RUN_MAX || !migrate_run_suits(folio))
		return false;
	run->src[run->nr++] = folio;
	return true;
}

/* Where the run that begins at @first ends: what may share its page table. */
static unsigned int migrate_run_end(const struct migrate_run *run,
				    unsigned int first)
{
	const struct folio *folio = run->src[first];
	pgoff_t table = READ_ONCE(folio->index) / PTRS_PER_PTE;
	void *mapping = READ_ONCE(folio->mapping);
	unsigned int i;

	for (i = first + 1; i < run->nr; i++) {
		folio = run->src[i];
		if (READ_ONCE(folio->mapping) != mapping ||
		    READ_ONCE(folio->index) / PTRS_PER_PTE != table)
			break;
	}
	return i;
}

/*
 * Brings those together that may have a page table in common. Where memory was
 * compacted before, the pages of one fill the gaps of another.
 */
static void migrate_run_gather(struct migrate_run *run)
{
	unsigned int i, t = 0, nr_tables = 0, sum = 0;
	struct {
		void *mapping;
		pgoff_t table;
	} tables[MAX_TABLES];
	u8 at[MAX_TABLES + 1] = {};

	BUILD_BUG_ON(MIGRATE_RUN_MAX > U8_MAX);
	for (i = 0; i < run->nr; i++) {
		void *mapping = READ_ONCE(run->src[i]->mapping);
		pgoff_t table = READ_ONCE(run->src[i]->index) / PTRS_PER_PTE;

		/* Mostly that of the one before */
		if (!i || t == MAX_TABLES || tables[t].mapping != mapping ||
		    tables[t].table != table) {
			for (t = 0; t < nr_tables; t++) {
				if (tables[t].mapping == mapping &&
				    tables[t].table == table)
					break;
			}
		}
		if (t == nr_tables && t < MAX_TABLES) {
			tables[t].mapping = mapping;
			tables[t].table = table;
			nr_tables++;
		}
		/* Not used before each is prepared; nor are destinations */
		run->state[i] = t;
		at[t]++;
	}
	if (nr_tables < 2)
		return;
	for (t = 0; t <= MAX_TABLES; t++) {
		sum += at[t];
		at[t] = sum - at[t];
	}
	for (i = 0; i < run->nr; i++)
		run->dst[at[run->state[i]]++] = run->src[i];
	memcpy(run->src, run->dst, run->nr * sizeof(*run->src));
}

/*
 * Locks folios and finds destinations for them. Returns how many are ready, and
 * the first and last of their places in the object that they belong to.
 */
static unsigned int migrate_run_prepare(struct migrate_run *run,
					unsigned int first, unsigned int end,
					new_folio_t get_new_folio,
					free_folio_t put_new_folio,
					unsigned long private, pgoff_t *low,
					pgoff_t *high)
{
	struct address_space *mapping = READ_ONCE(run->src[first]->mapping);
	unsigned int i, nr = 0;
	bool more = true;

	*low = ULONG_MAX;
	*high = 0;
	for (i = first; i < end; i++) {
		struct folio *src = run->src[i], *dst;

		run->dst[i] = NULL;
		run->state[i] = MIGRATE_RUN_LEFT;
		if (!more || !folio_trylock(src))
			continue;
		if (!migrate_run_suits(src) || src->mapping != mapping) {
			folio_unlock(src);
			continue;
		}
		dst = get_new_folio(src, private);
		if (!dst) {
			folio_unlock(src);
			more = false;
			continue;
		}
		/* Counted per zone: only within one does nothing change */
		if (folio_zone(dst) != folio_zone(src) || !folio_trylock(dst)) {
			put_new_folio(dst, private);
			folio_unlock(src);
			continue;
		}
		run->dst[i] = dst;
		run->state[i] = MIGRATE_RUN_READY;
		*low = min(*low, src->index);
		*high = max(*high, src->index);
		nr++;
	}
	return nr;
}

/* Where the area would map the folio, or 0 if it does not reach so far. */
static unsigned long migrate_run_address(struct vm_area_struct *vma,
					 const struct folio *folio)
{
	unsigned long pages = vma_pages(vma), n = folio->index - vma->vm_pgoff;

	return folio->index >= vma->vm_pgoff && n < pages ?
	       vma->vm_start + (n << PAGE_SHIFT) : 0;
}

/*
 * Clears the entries of those that this page table maps, and has no CPU use
 * them any more. False if there are none. With the page table's lock.
 */
static bool migrate_run_unmap(struct migrate_run *run, unsigned int first,
			      unsigned int end, struct vm_area_struct *vma,
			      pte_t *table, unsigned long low,
			      unsigned long high)
{
	unsigned int i;
	bool any = false;

	flush_cache_range(vma, low, high);
	for (i = first; i < end; i++) {
		struct folio *src = run->src[i];
		unsigned long address;
		pte_t *ptep, pte;

		if (run->state[i] != MIGRATE_RUN_READY)
			continue;
		address = migrate_run_address(vma, src);
		if (address < low || address >= high)
			continue;
		ptep = table + ((address - low) >> PAGE_SHIFT);
		pte = ptep_get(ptep);
		if (!pte_present(pte) || pte_protnone(pte) || pte_unused(pte) ||
		    pte_pfn(pte) != folio_pfn(src))
			continue;
		/*
		 * With its lock and this one, a folio that is mapped once is
		 * mapped here alone, and stays so: it is not in swap cache, and
		 * fork() would have to copy this entry.
		 */
		if (atomic_read(&src->_mapcount) != 0 ||
		    folio_ref_count(src) != EXPECTED_REFS)
			continue;
		run->pte[i] = ptep_get_and_clear(vma->vm_mm, address, ptep);
		run->state[i] = MIGRATE_RUN_UNMAPPED;
		any = true;
	}
	if (any)
		flush_tlb_range(vma, low, high);
	return any;
}

/*
 * Copies what is in no other use; maps the rest again. A reader that found a
 * folio in the page table without its lock (GUP-fast) either has a reference,
 * then it is not frozen, or gets none, or sees that the entry changed and gives
 * it back.
 */
static void migrate_run_copy(struct migrate_run *run, unsigned int first,
			     unsigned int end, struct vm_area_struct *vma,
			     pte_t *table, unsigned long low)
{
	unsigned int i;

	for (i = first; i < end; i++) {
		struct folio *src = run->src[i];
		unsigned long address;

		if (run->state[i] != MIGRATE_RUN_UNMAPPED)
			continue;
		if (folio_ref_freeze(src, EXPECTED_REFS)) {
			/* Not isolated, nor will it be: that takes a reference */
			if (folio_test_lru(src) &&
			    !folio_mc_copy(run->dst[i], src)) {
				run->state[i] = MIGRATE_RUN_COPIED;
				continue;
			}
			folio_ref_unfreeze(src, EXPECTED_REFS);
		}
		address = migrate_run_address(vma, src);
		set_pte_at(vma->vm_mm, address,
			   table + ((address - low) >> PAGE_SHIFT), run->pte[i]);
		run->state[i] = MIGRATE_RUN_LEFT;
	}
}

/*
 * The destination becomes what the source was, with its place in the LRU list.
 * With the lock of their lruvec, which is the same: so are node and cgroup. The
 * source is frozen, and on the list until it is replaced: its generation may
 * change before, but not under this lock. The destination is not visible yet.
 */
static void migrate_run_replace(struct folio *dst, struct folio *src)
{
	dst->index = src->index;
	dst->mapping = src->mapping;
	/* Others may set bits of either: damaged memory, waiters for a lock */
	set_mask_bits(&dst->flags, 0UL, READ_ONCE(src->flags) & COPIED_FLAGS);
	set_mask_bits(&src->flags, COPIED_FLAGS | BIT(PG_lru), 0UL);
	atomic_set(&dst->_mapcount, 0);
	atomic_set(&src->_mapcount, -1);
	folio_ref_inc(dst);

	if (folio_test_young(src))
		folio_set_young(dst);
	if (folio_test_idle(src))
		folio_set_idle(dst);
	folio_xchg_last_cpupid(dst, folio_xchg_last_cpupid(src, -1));
	folio_copy_owner(dst, src);
	pgalloc_tag_copy(dst, src);
	mem_cgroup_migrate(src, dst);

	list_replace(&src->lru, &dst->lru);
	folio_set_lru(dst);
}

static void migrate_run_replace_all(struct migrate_run *run, unsigned int first,
				    unsigned int end)
{
	struct lruvec *lruvec = NULL;
	unsigned int i;

	for (i = first; i < end; i++) {
		if (run->state[i] != MIGRATE_RUN_COPIED)
			continue;
		lruvec = folio_lruvec_relock_irq(run->src[i], lruvec);
		migrate_run_replace(run->dst[i], run->src[i]);
	}
	if (lruvec)
		unlock_page_lruvec_irq(lruvec);
}

/* The entry that maps the destination as @old mapped the source. */
static pte_t migrate_run_pte(struct vm_area_struct *vma, struct folio *dst,
			     pte_t old)
{
	pte_t pte = mk_pte(&dst->page, READ_ONCE(vma->vm_page_prot));

	if (!pte_young(old))
		pte = pte_mkold(pte);
	if (pte_dirty(old))
		pte = pte_mkdirty(pte);
	if (pte_soft_dirty(old))
		pte = pte_mksoft_dirty(pte);
	else
		pte = pte_clear_soft_dirty(pte);
	if (pte_write(old))
		pte = pte_mkwrite(pte, vma);
	else if (pte_uffd_wp(old))
		pte = pte_mkuffd_wp(pte);
	return pte;
}

static unsigned int migrate_run_map(struct migrate_run *run, unsigned int first,
				    unsigned int end, struct vm_area_struct *vma,
				    pte_t *table, unsigned long low)
{
	unsigned int i, nr = 0;

	/* What a folio is and holds is seen before the entry that maps it */
	smp_wmb();
	for (i = first; i < end; i++) {
		struct folio *dst = run->dst[i];
		unsigned long address;
		pte_t *ptep;

		if (run->state[i] != MIGRATE_RUN_COPIED)
			continue;
		address = migrate_run_address(vma, dst);
		ptep = table + ((address - low) >> PAGE_SHIFT);
		set_pte_at(vma->vm_mm, address, ptep,
			   migrate_run_pte(vma, dst, run->pte[i]));
		update_mmu_cache(vma, address, ptep);
		run->state[i] = MIGRATE_RUN_MOVED;
		nr++;
	}
	return nr;
}

/*
 * Moves those that the area maps, as far as they have a page table in common
 * with the first. Returns how many. With the lock of the anon_vma.
 */
static unsigned int migrate_run_in_area(struct migrate_run *run,
					unsigned int first, unsigned int end,
					struct vm_area_struct *vma)
{
	struct mm_struct *mm = vma->vm_mm;
	unsigned long low = 0, high = 0;
	struct mmu_notifier_range range;
	unsigned int i, nr = 0;
	spinlock_t *ptl; /* of the page table */
	pte_t *table;
	pmd_t *pmd;

	/* As for migrate_pages(): exec() moves it without the page tables */
	if (vma_is_temporary_stack(vma) || vma->vm_flags & VM_LOCKED)
		return 0;
	for (i = first; i < end; i++) {
		unsigned long address;

		if (run->state[i] != MIGRATE_RUN_READY)
			continue;
		address = migrate_run_address(vma, run->src[i]);
		if (!address || (high && (address ^ low) >> PMD_SHIFT))
			continue;
		low = high ? min(low, address) : address;
		high = max(high, address + PAGE_SIZE);
	}
	if (!high)
		return 0;

	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, low, high);
	mmu_notifier_invalidate_range_start(&range);
	pmd = mm_find_pmd(mm, low);
	table = pmd ? pte_offset_map_lock(mm, pmd, low, &ptl) : NULL;
	if (table) {
		if (migrate_run_unmap(run, first, end, vma, table, low, high)) {
			migrate_run_copy(run, first, end, vma, table, low);
			migrate_run_replace_all(run, first, end);
			nr = migrate_run_map(run, first, end, vma, table, low);
		}
		pte_unmap_unlock(table, ptl);
	}
	mmu_notifier_invalidate_range_end(&range);
	return nr;
}

/* Unlocks all; frees sources that moved, and destinations that are not used. */
static void migrate_run_finish(struct migrate_run *run, unsigned int first,
			       unsigned int end, free_folio_t put_new_folio,
			       unsigned long private, enum migrate_reason reason)
{
	struct folio_batch moved;
	unsigned int i;

	folio_batch_init(&moved);
	for (i = first; i < end; i++) {
		struct folio *src = run->src[i], *dst = run->dst[i];

		if (!dst)
			continue;
		folio_unlock(src);
		folio_unlock(dst);
		if (run->state[i] != MIGRATE_RUN_MOVED) {
			put_new_folio(dst, private);
			continue;
		}
		set_page_owner_migrate_reason(&dst->page, reason);
		folio_put(dst);
		run->src[i] = NULL;
		/* It has no references, and its charge went with the other */
		if (!folio_batch_add(&moved, src))
			free_unref_folios(&moved);
	}
	if (folio_batch_count(&moved))
		free_unref_folios(&moved);
}

/* One run, of folios that may have a page table in common. */
static unsigned int migrate_run_part(struct migrate_run *run,
				     unsigned int first, unsigned int end,
				     new_folio_t get_new_folio,
				     free_folio_t put_new_folio,
				     unsigned long private,
				     enum migrate_reason reason)
{
	struct rmap_walk_control rwc = { .try_lock = true };
	unsigned int i, ready, nr = 0;
	struct anon_vma_chain *avc;
	struct anon_vma *anon_vma;
	pgoff_t low, high;

	ready = migrate_run_prepare(run, first, end, get_new_folio,
				    put_new_folio, private, &low, &high);
	if (!ready)
		return 0;
	for (i = first; run->state[i] != MIGRATE_RUN_READY; i++)
		;
	anon_vma = folio_lock_anon_vma_read(run->src[i], &rwc);
	if (anon_vma) {
		anon_vma_interval_tree_foreach(avc, &anon_vma->rb_root, low,
					       high) {
			nr += migrate_run_in_area(run, first, end, avc->vma);
			if (nr == ready)
				break;
			cond_resched();
		}
		anon_vma_unlock_read(anon_vma);
	}
	migrate_run_finish(run, first, end, put_new_folio, private, reason);
	return nr;
}

/**
 * migrate_run_move - migrate what was added, as far as that works by runs
 * @run: folios that migrate_run_add() took; afterwards those that did not move,
 *	each still with its reference
 * @get_new_folio: gives a destination, as for migrate_pages()
 * @put_new_folio: takes back one that was not needed
 * @private: for these two
 * @reason: for page owner and the tracepoint
 *
 * Context: May sleep. A page table's lock is held while at most MIGRATE_RUN_MAX
 * pages are copied.
 * Return: how many moved.
 */
unsigned int migrate_run_move(struct migrate_run *run,
			      new_folio_t get_new_folio,
			      free_folio_t put_new_folio, unsigned long private,
			      enum migrate_reason reason)
{
	unsigned int first, end, i, left = 0, nr = 0;

	migrate_run_gather(run);
	for (first = 0; first < run->nr; first = end) {
		end = migrate_run_end(run, first);
		if (end - first >= MIN_RUN)
			nr += migrate_run_part(run, first, end, get_new_folio,
					       put_new_folio, private, reason);
		cond_resched();
	}
	for (i = 0; i < run->nr; i++) {
		if (run->src[i])
			run->src[left++] = run->src[i];
	}
	run->nr = left;
	if (nr) {
		count_vm_events(PGMIGRATE_SUCCESS, nr);
		trace_mm_migrate_pages(nr, 0, 0, 0, 0, 0, MIGRATE_ASYNC,
				       reason);
	}
	return nr;
}
