// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of a slice on their way to their destinations, a bite at a time.
 *
 * A task that needs one of these pages waits for those before it, so a bite is
 * bounded twice: by a number of folios, and by the time that the last ones took.
 * Between two bites nothing is locked or isolated but the slice's pageblocks,
 * and the request may sleep.
 */

#include <linux/hrtimer.h>
#include <linux/migrate.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include "../internal.h"
#include "../migrate_run.h"
#include "internal.h"
#include "request.h"

/*
 * Folios in a bite at most, so that TLB flushes are shared: a quarter of
 * migrate_pages()'s own limit costs hardly more flushes. In debugfs.
 */
u32 ramslice_migrate_batch = 128;
/*
 * What a bite is to take at most, and the sleep after it, in which what waited
 * for a CPU catches up; in debugfs. By calculation, about as many pages move in
 * a second then as memory hotplug moves.
 */
u32 ramslice_bite_us = 1000;
u32 ramslice_pause_us = 500;

/* A bite is not made smaller than that: it would not get shorter. */
#define MIN_FOLIOS	8U

/**
 * ramslice_bites_init - prepare a request for migration
 * @run: the request
 */
void ramslice_bites_init(struct ramslice_run *run)
{
	run->bite_folios = READ_ONCE(ramslice_migrate_batch);
	/* Without it, all goes the usual way */
	if (!run->params->dry_run)
		run->anon = kzalloc(sizeof(*run->anon),
				    GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
}

/* Undoes it. Nothing is under way. */
void ramslice_bites_end(struct ramslice_run *run)
{
	kfree(run->anon);
	run->anon = NULL;
}

/**
 * ramslice_add_to_run - is a folio one that moves by runs?
 * @run: the request
 * @folio: the folio; if so, its reference goes to the run
 */
bool ramslice_add_to_run(struct ramslice_run *run, struct folio *folio)
{
	return run->anon && migrate_run_add(run->anon, folio);
}

/* Lets go of what was to be moved by runs. */
void ramslice_forget_runs(struct ramslice_run *run)
{
	while (run->anon && run->anon->nr)
		folio_put(run->anon->src[--run->anon->nr]);
}

/*
 * Moves by runs what can be moved so; the rest goes to the list. Returns how
 * many pages are neither there nor moved: others have them at the moment.
 */
static unsigned int ramslice_move_runs(struct ramslice_run *run,
				       struct list_head *list)
{
	struct migrate_run *anon = run->anon;
	unsigned int i, busy = 0;

	if (!anon || !anon->nr)
		return 0;
	run->work.pages_migrated +=
		migrate_run_move(anon, ramslice_target_alloc,
				 ramslice_target_free,
				 (unsigned long)&run->target, MR_CONTIG_RANGE);
	for (i = 0; i < anon->nr; i++) {
		busy += !isolate_folio_to_list(anon->src[i], list);
		folio_put(anon->src[i]);
	}
	anon->nr = 0;
	return busy;
}

/* What does not move goes back where it was. */
static void ramslice_move_all(struct ramslice_run *run, struct list_head *list,
			      unsigned long nr_pages)
{
	u64 before = run->work.pages_migrated;
	unsigned int moved = 0;

	nr_pages -= ramslice_move_runs(run, list);
	nr_pages -= run->work.pages_migrated - before;
	if (list_empty(list))
		return;
	/* Light: waiting for I/O here would ignore deadline and signals */
	if (migrate_pages(list, ramslice_target_alloc, ramslice_target_free,
			  (unsigned long)&run->target, MIGRATE_SYNC_LIGHT,
			  MR_CONTIG_RANGE, &moved))
		putback_movable_pages(list);
	run->work.pages_migrated += moved;
	if (moved < nr_pages)
		run->work.pages_failed += nr_pages - moved;
}

/* The next bite is smaller if this one took too long, and grows back slowly. */
static void ramslice_note_bite(struct ramslice_run *run, u64 ns,
			       unsigned int nr_folios)
{
	u64 limit = (u64)READ_ONCE(ramslice_bite_us) * NSEC_PER_USEC;
	u32 most = READ_ONCE(ramslice_migrate_batch);

	run->longest_bite_ns = max(run->longest_bite_ns, ns);
	if (ns > limit)
		run->bite_folios = max(nr_folios / 2, MIN_FOLIOS);
	else if (ns < limit / 2)
		run->bite_folios += run->bite_folios / 4 + 1;
	run->bite_folios = min(run->bite_folios, most);
}

/**
 * ramslice_migrate - migrate a list and what moves by runs: one bite
 * @run: the request
 * @list: folios isolated from their LRU lists; empty afterwards
 * @nr_pages: in both
 * @nr_folios: in both
 *
 * Context: ramslice_mutex held. May sleep.
 */
void ramslice_migrate(struct ramslice_run *run, struct list_head *list,
		      unsigned long nr_pages, unsigned int nr_folios)
{
	u32 pause_us = READ_ONCE(ramslice_pause_us);
	u64 began;

	if (!nr_folios)
		return;
	began = local_clock();
	ramslice_move_all(run, list, nr_pages);
	ramslice_note_bite(run, local_clock() - began, nr_folios);
	if (pause_us) {
		ktime_t pause = ns_to_ktime((u64)min(pause_us, 1000000U) *
					    NSEC_PER_USEC);

		set_current_state(TASK_INTERRUPTIBLE);
		schedule_hrtimeout(&pause, HRTIMER_MODE_REL);
	}
}
