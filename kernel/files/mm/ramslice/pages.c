// SPDX-License-Identifier: GPL-2.0
/*
 * RAMSLICE_IOC_PAGES: what a slice holds, page by page, and what of it keeps
 * the slice on. A view from outside, like the census: each page is looked at
 * with a reference but without stopping its users.
 */

#include <linux/capability.h>
#include <linux/hugetlb.h>
#include <linux/kdev_t.h>
#include <linux/memcontrol.h>
#include <linux/memory_hotplug.h>
#include <linux/migrate.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/uaccess.h>
#include "../internal.h"
#include "internal.h"

/* Sizes of the structures' first version: no caller may pass less. */
#define PAGES_SIZE_V1	48
#define RUN_SIZE_V1	56

static_assert(sizeof(struct ramslice_pages) == PAGES_SIZE_V1);
static_assert(sizeof(struct ramslice_page_run) == RUN_SIZE_V1);

/* Runs reported in one call: collected before they are copied out. */
#define MAX_RUNS	1024U

/* Runs found so far. */
struct ramslice_walk {
	const struct ramslice_slice *slice;
	struct ramslice_page_run *runs;
	u32 nr;
	u32 room;
};

/* What two runs must have in common to be one: all after their size. */
static bool ramslice_runs_alike(const struct ramslice_page_run *a,
				const struct ramslice_page_run *b)
{
	size_t from = offsetof(struct ramslice_page_run, flags);

	return !memcmp((const char *)a + from, (const char *)b + from,
		       sizeof(*a) - from);
}

/* False if there is no room for it. */
static bool ramslice_add_run(struct ramslice_walk *w,
			     const struct ramslice_page_run *run)
{
	struct ramslice_page_run *last = w->nr ? &w->runs[w->nr - 1] : NULL;

	if (last && last->pfn + last->nr_pages == run->pfn &&
	    ramslice_runs_alike(last, run)) {
		last->nr_pages += run->nr_pages;
		return true;
	}
	if (w->nr == w->room)
		return false;
	w->runs[w->nr++] = *run;
	return true;
}

/*
 * The order of the free block that a page frame is in, or -1. Blocks larger
 * than a pageblock may begin in an earlier one.
 */
static int ramslice_free_order(unsigned long pfn, unsigned long *end)
{
	unsigned int order, top = pageblock_aligned(pfn) ? MAX_PAGE_ORDER : 0;

	for (order = 0; order <= top; order++) {
		unsigned long first = pfn & ~((1UL << order) - 1);
		struct page *page = pfn_to_online_page(first);
		unsigned int found;

		if (!page || !PageBuddy(page))
			continue;
		/* It may have been allocated meanwhile: check what is read */
		found = buddy_order_unsafe(page);
		if (found > MAX_PAGE_ORDER || first + (1UL << found) <= pfn)
			continue;
		*end = first + (1UL << found);
		return found;
	}
	return -1;
}

static u32 ramslice_folio_flags_of(struct folio *folio)
{
	u32 flags = 0;

	if (folio_test_lru(folio)) {
		flags |= RAMSLICE_RUN_LRU;
		if (ramslice_folio_droppable(folio))
			flags |= RAMSLICE_RUN_DROP;
	}
	if (folio_test_dirty(folio))
		flags |= RAMSLICE_RUN_DIRTY;
	if (folio_test_writeback(folio))
		flags |= RAMSLICE_RUN_WRITEBACK;
	if (folio_test_private(folio))
		flags |= RAMSLICE_RUN_BUFFERS;
	if (folio_test_swapcache(folio))
		flags |= RAMSLICE_RUN_SWAPCACHE;
	if (folio_test_unevictable(folio))
		flags |= RAMSLICE_RUN_UNEVICTABLE;
	if (folio_test_mlocked(folio))
		flags |= RAMSLICE_RUN_MLOCKED;
	if (folio_test_ksm(folio))
		flags |= RAMSLICE_RUN_KSM;
	if (ramslice_folio_pinned(folio))
		flags |= RAMSLICE_RUN_PINNED;
	if (folio_contain_hwpoisoned_page(folio))
		flags |= RAMSLICE_RUN_HWPOISON;
	return flags;
}

/* The lock keeps the inode, unlike the reference. */
static void ramslice_name_file(struct ramslice_page_run *run,
			       struct folio *folio)
{
	struct address_space *mapping;

	if (!folio_trylock(folio))
		return;
	mapping = folio_mapping(folio);
	if (mapping && mapping->host) {
		const struct inode *inode = mapping->host;
		bool disk = S_ISBLK(inode->i_mode);
		dev_t dev = disk ? inode->i_rdev : inode->i_sb->s_dev;

		run->inode = disk ? 0 : inode->i_ino;
		run->dev_major = MAJOR(dev);
		run->dev_minor = MINOR(dev);
	}
	folio_unlock(folio);
}

/* A folio that is referenced, from @pfn on. */
static void ramslice_describe_folio(struct ramslice_page_run *run,
				    struct folio *folio)
{
	struct page *page = &folio->page;

	run->page_class = ramslice_page_class(page, true);
	run->reason = ramslice_folio_blocks(folio);
	run->order = folio_order(folio);
#ifdef CONFIG_MEMCG
	run->cgroup = page_cgroup_ino(page);
#endif
	switch (run->page_class) {
	case RAMSLICE_PAGE_ANON:
	case RAMSLICE_PAGE_FILE:
	case RAMSLICE_PAGE_SHMEM:
	case RAMSLICE_PAGE_SWAP:
		run->flags = ramslice_folio_flags_of(folio);
		run->nr_maps = folio_mapcount(folio);
		run->extra_refs = ramslice_folio_extra_refs(folio);
		if (run->page_class != RAMSLICE_PAGE_ANON)
			ramslice_name_file(run, folio);
		break;
	case RAMSLICE_PAGE_HUGETLB:
		run->nr_maps = folio_mapcount(folio);
		if (ramslice_folio_pinned(folio))
			run->flags |= RAMSLICE_RUN_PINNED;
		break;
	}
}

/* The page at @run->pfn and those like it up to @end; @run->nr_pages is 1. */
static void ramslice_describe(struct ramslice_page_run *run, unsigned long end)
{
	unsigned long pfn = run->pfn, free_end, last;
	struct page *page = pfn_to_page(pfn);
	struct folio *folio;
	int order;

	order = ramslice_free_order(pfn, &free_end);
	if (order >= 0) {
		run->page_class = RAMSLICE_PAGE_FREE;
		run->order = order;
		run->nr_pages = min(free_end, end) - pfn;
		return;
	}

	/* A tail only if its head is in an earlier block: a gigantic folio */
	folio = page_folio(page);
	if (ramslice_get_folio(&folio->page)) {
		last = folio_pfn(folio) + folio_nr_pages(folio);
		if (page_folio(page) == folio && last > pfn) {
			ramslice_describe_folio(run, folio);
			run->nr_pages = min(last, end) - pfn;
			folio_put(folio);
			return;
		}
		folio_put(folio);
	}
	page = &folio->page;
	run->reason = ramslice_frame_blocks(page);
	run->page_class = ramslice_page_class(page, false);
#ifdef CONFIG_MEMCG
	run->cgroup = page_cgroup_ino(page);
#endif
	/* What is read may be of another by now */
	last = folio_pfn(folio) + folio_nr_pages(folio);
	if (last <= pfn || folio_nr_pages(folio) > MAX_FOLIO_NR_PAGES)
		return;
	run->order = folio_order(folio);
	run->nr_pages = min(last, end) - pfn;
}

/* Walks a pageblock from @pfn on. Returns where it stopped: there is no room. */
static unsigned long ramslice_walk_block(struct ramslice_walk *w,
					 unsigned long pfn, unsigned long end)
{
	const struct ramslice_slice *s = w->slice;
	struct ramslice_page_run run;
	enum ramslice_reason reason;

	reason = ramslice_block_probe(s->rz->zone, end - pageblock_nr_pages);

	if (reason == RAMSLICE_REASON_HOLE) {
		run = (struct ramslice_page_run) {
			.pfn = pfn,
			.nr_pages = end - pfn,
			.page_class = RAMSLICE_PAGE_HOLE,
			.reason = reason,
		};
		return ramslice_add_run(w, &run) ? end : pfn;
	}
	if (reason == RAMSLICE_REASON_NONE)
		reason = ramslice_type_blocks(get_pageblock_migratetype(pfn_to_page(pfn)));
	/* A slice that is being emptied is isolated by that request */
	if (reason == RAMSLICE_REASON_ISOLATED &&
	    READ_ONCE(s->state) == RAMSLICE_EMPTYING)
		reason = RAMSLICE_REASON_NONE;

	while (pfn < end) {
		run = (struct ramslice_page_run) { .pfn = pfn, .nr_pages = 1 };
		ramslice_describe(&run, end);
		/* Of a slice that comes or goes meanwhile, it is ours */
		if (run.page_class == RAMSLICE_PAGE_FOREIGN &&
		    READ_ONCE(s->state) != RAMSLICE_ONLINE) {
			run.page_class = RAMSLICE_PAGE_OFF;
			run.reason = RAMSLICE_REASON_NONE;
		}
		if (reason != RAMSLICE_REASON_NONE)
			run.reason = reason;
		if (!ramslice_add_run(w, &run))
			break;
		pfn += run.nr_pages;
	}
	return pfn;
}

/* Whole slices that are away. Returns the page frame where it stopped. */
static u32 ramslice_walk_off(struct ramslice_walk *w, u32 id, u32 first,
			     u32 nr_pages, enum ramslice_reason reason)
{
	struct ramslice_extents e;
	u32 run_pages;

	ramslice_geom_extents(&ramslice_geom, id, &e);
	run_pages = e.nr_pages;
	while (first < nr_pages) {
		struct ramslice_page_run run = {
			.pfn = ramslice_geom_block(&ramslice_geom, id,
						   first >> pageblock_order) +
			       first % pageblock_nr_pages,
			.nr_pages = run_pages - first % run_pages,
			.page_class = RAMSLICE_PAGE_OFF,
			.reason = reason,
		};

		if (!ramslice_add_run(w, &run))
			break;
		first += run.nr_pages;
	}
	return first;
}

/* Fills @w from page frame @pages->first on; under table_sem. */
static int ramslice_walk_slice(struct ramslice_walk *w,
			       struct ramslice_pages *pages)
{
	const struct ramslice_slice *s = ramslice_slice(pages->id);
	u32 first = pages->first;
	unsigned long start;
	unsigned int n;

	if (!s)
		return -ENOENT;
	pages->nr_pages = ramslice_geom_nr_blocks(&ramslice_geom, pages->id) <<
			  pageblock_order;
	spin_lock_irq(&ramslice_lock);
	pages->state = s->state;
	pages->reason = s->reason;
	spin_unlock_irq(&ramslice_lock);
	if (first >= pages->nr_pages)
		return 0;

	if (pages->state == RAMSLICE_OFFLINE ||
	    pages->state == RAMSLICE_QUARANTINED) {
		pages->first = ramslice_walk_off(w, pages->id, first,
						 pages->nr_pages,
						 pages->reason);
		return 0;
	}

	w->slice = s;
	for_each_slice_block(pages->id, n, start) {
		u32 base = n << pageblock_order;
		unsigned long pfn;

		if (first >= base + pageblock_nr_pages)
			continue;
		if (fatal_signal_pending(current))
			return -EINTR;
		pfn = ramslice_walk_block(w, start + first - base,
					  start + pageblock_nr_pages);
		first = base + (pfn - start);
		if (pfn < start + pageblock_nr_pages)
			break;
		cond_resched();
	}
	pages->first = first;
	return 0;
}

static int ramslice_put_runs(const struct ramslice_pages *pages,
			     const struct ramslice_walk *w)
{
	u32 i, bytes = min_t(u32, pages->entry_size, sizeof(*w->runs));

	for (i = 0; i < w->nr; i++) {
		void __user *to = u64_to_user_ptr(pages->runs) +
				  (size_t)i * pages->entry_size;

		if (copy_to_user(to, &w->runs[i], bytes))
			return -EFAULT;
	}
	return 0;
}

/**
 * ramslice_ioc_pages - RAMSLICE_IOC_PAGES
 * @arg: struct ramslice_pages of the caller
 *
 * Shows which files and cgroups are where in physical memory, as
 * /proc/kpageflags and its like do, for root alone.
 *
 * Context: May sleep. Takes no lock that holds up a request.
 */
long ramslice_ioc_pages(void __user *arg)
{
	struct ramslice_pages pages;
	struct ramslice_walk w = {};
	u32 usize;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	err = ramslice_get_struct(&pages, sizeof(pages), PAGES_SIZE_V1, arg,
				  &usize);
	if (err)
		return err;
	if (pages.flags || pages.reserved || !pages.nr ||
	    pages.entry_size < RUN_SIZE_V1 || pages.entry_size > PAGE_SIZE)
		return -EINVAL;

	w.room = min(pages.nr, MAX_RUNS);
	w.runs = kvcalloc(w.room, sizeof(*w.runs), GFP_KERNEL);
	if (!w.runs)
		return -ENOMEM;

	/*
	 * Memory that is unplugged takes its struct pages along, but not before
	 * the table was built again without it, which waits for us.
	 */
	down_read(&ramslice_table_sem);
	err = ramslice_walk_slice(&w, &pages);
	up_read(&ramslice_table_sem);

	if (!err)
		err = ramslice_put_runs(&pages, &w);
	if (!err) {
		pages.size = usize;
		pages.nr = w.nr;
		pages.entry_size = min_t(u32, pages.entry_size,
					 sizeof(*w.runs));
		err = ramslice_put_struct(arg, &pages, sizeof(pages), usize);
	}
	kvfree(w.runs);
	return err;
}
