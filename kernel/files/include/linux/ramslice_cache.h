/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks of the page cache: what was looked up there, what was absent, what
 * reading ahead brought for nothing, and how far away refaults were.
 *
 * In a header of their own, because only filemap, readahead, swap and workingset
 * need them. They cost a static key while ramslice is off.
 */
#ifndef _LINUX_RAMSLICE_CACHE_H
#define _LINUX_RAMSLICE_CACHE_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/page_idle.h>
#include <linux/ramslice.h>
#include <linux/vmstat.h>

#ifdef CONFIG_RAMSLICE_CACHE_EVENTS

void __ramslice_cache_read(const struct kiocb *iocb, struct folio *folio,
			   size_t bytes);
void __ramslice_cache_fault(const struct vm_fault *vmf, struct folio *folio);
void __ramslice_cache_map(const struct vm_fault *vmf);
void __ramslice_gen_eviction(struct lruvec *lruvec, int type, unsigned long seq,
			     long nr_pages);
void __ramslice_gen_refault(struct lruvec *lruvec, int type, unsigned long seq,
			    long nr_pages);
void __ramslice_refault(bool file, unsigned long distance, long nr_pages);

/*
 * Does a read count? Who must not wait (RWF_NOWAIT) looks once more, by another
 * way, if the page is absent: only that one counts. io_uring tries without
 * waiting first, too, but goes on by itself.
 */
static __always_inline bool ramslice_cache_counts(const struct kiocb *iocb)
{
	return !(iocb->ki_flags & IOCB_NOIO) &&
	       (!(iocb->ki_flags & IOCB_NOWAIT) || iocb->ki_complete);
}

/* The page that a read begins with is not in the cache, and will be read. */
static __always_inline void ramslice_cache_absent(const struct kiocb *iocb)
{
	if (ramslice_enabled() && ramslice_cache_counts(iocb))
		count_vm_event(RAMSLICE_ABSENT_READ);
}

/**
 * ramslice_cache_read - a read has taken what it wants of a folio
 * @iocb: the read, up to whose position it has read
 * @folio: the folio
 * @bytes: how many it has read in all
 *
 * Written out, because a cached read of a page costs some 1700 instructions.
 */
static __always_inline void ramslice_cache_read(const struct kiocb *iocb,
						struct folio *folio,
						size_t bytes)
{
	if (!ramslice_enabled())
		return;
	if (unlikely(iocb->ki_flags & (IOCB_NOWAIT | IOCB_NOIO)) ||
	    folio_test_large(folio))
		__ramslice_cache_read(iocb, folio, bytes);
	else
		count_vm_event(RAMSLICE_LOOKUP_READ);
}

/* A folio is used. The classic lists clear the mark by themselves. */
static __always_inline void ramslice_cache_use(struct folio *folio)
{
	if (ramslice_enabled() && folio_test_idle(folio))
		folio_clear_idle(folio);
}

/* A fault looks up a page of a file: @folio, or NULL if it is absent. */
static __always_inline void ramslice_cache_fault(const struct vm_fault *vmf,
						 struct folio *folio)
{
	if (ramslice_enabled())
		__ramslice_cache_fault(vmf, folio);
}

/* A fault found its page, and mapped others that were there, too. */
static __always_inline void ramslice_cache_map(const struct vm_fault *vmf)
{
	if (ramslice_enabled())
		__ramslice_cache_map(vmf);
}

/* A folio was read because it was absent. */
static __always_inline void ramslice_cache_fill(const struct folio *folio)
{
	if (ramslice_enabled())
		count_vm_events(RAMSLICE_READAHEAD, folio_nr_pages(folio));
}

/*
 * A folio is about to be read ahead: idle until it is used. Nothing else has seen
 * it yet.
 */
static __always_inline void ramslice_cache_read_ahead(struct folio *folio)
{
	if (!ramslice_enabled())
		return;
	count_vm_events(RAMSLICE_READAHEAD, folio_nr_pages(folio));
	folio_set_idle(folio);
}

/*
 * A folio leaves the cache. Idle page tracking and DAMON make folios idle, too,
 * which then count as if they had not been used since they were read.
 *
 * Context: i_pages locked, interrupts off.
 */
static __always_inline void ramslice_cache_remove(const struct folio *folio)
{
	if (ramslice_enabled() && folio_test_idle(folio) &&
	    !folio_test_swapbacked(folio))
		__count_vm_events(RAMSLICE_READAHEAD_UNUSED,
				  folio_nr_pages(folio));
}

/**
 * ramslice_gen_eviction - a folio is evicted from the oldest generation
 * @lruvec: of the folio
 * @type: anonymous 0, file 1
 * @seq: number of that generation
 * @nr_pages: of the folio
 */
static __always_inline void ramslice_gen_eviction(struct lruvec *lruvec,
						  int type, unsigned long seq,
						  long nr_pages)
{
	if (ramslice_enabled())
		__ramslice_gen_eviction(lruvec, type, seq, nr_pages);
}

/* A folio comes back that was evicted from generation @seq. Under RCU. */
static __always_inline void ramslice_gen_refault(struct lruvec *lruvec,
						 int type, unsigned long seq,
						 long nr_pages)
{
	if (ramslice_enabled())
		__ramslice_gen_refault(lruvec, type, seq, nr_pages);
}

/* So many pages come back, after the lists aged by @distance pages. */
#define ramslice_refault(_file, _distance, _nr_pages) do {		\
	if (ramslice_enabled())						\
		__ramslice_refault(_file, _distance, _nr_pages);	\
} while (0)

#else /* !CONFIG_RAMSLICE_CACHE_EVENTS */

/* Macros, as in ramslice.h. */
#define ramslice_cache_absent(...)		do { } while (0)
#define ramslice_cache_read(...)		do { } while (0)
#define ramslice_cache_use(...)			do { } while (0)
#define ramslice_cache_fault(...)		do { } while (0)
#define ramslice_cache_map(...)			do { } while (0)
#define ramslice_cache_fill(...)		do { } while (0)
#define ramslice_cache_read_ahead(...)		do { } while (0)
#define ramslice_cache_remove(...)		do { } while (0)
#define ramslice_gen_eviction(...)		do { } while (0)
#define ramslice_gen_refault(...)		do { } while (0)
#define ramslice_refault(...)			do { } while (0)

#endif /* CONFIG_RAMSLICE_CACHE_EVENTS */

#endif /* _LINUX_RAMSLICE_CACHE_H */
