// SPDX-License-Identifier: GPL-2.0
/*
 * Held slices: offline until a request switches them on.
 *
 * An offline slice is free memory that wakes when it is wanted. A held one is
 * as good as absent: it leaves MemTotal, the zone's managed pages and what can be
 * woken, watermarks follow, and the OOM killer goes by what is left. That is
 * for studies of how much memory a load needs. Sleep, restart and memory
 * hotplug of its range still wake it, and then it is held no longer.
 */

#include <linux/mm.h>
#include <linux/workqueue.h>
#include "../internal.h"
#include "internal.h"

/*
 * As after memory hotplug. A work item, which no task waits for: memory hotplug
 * wakes slices with zone_pcp_disable() in force, and this waits for that to end.
 */
static void ramslice_update_watermarks(struct work_struct *unused)
{
#ifdef CONFIG_MEMORY_HOTPLUG
	init_per_zone_wmark_min();
#else
	setup_per_zone_wmarks();
#endif
}

static DECLARE_WORK(ramslice_watermark_work, ramslice_update_watermarks);

/* Under ramslice_lock; takes zone->lock. */
static void ramslice_set_held(struct ramslice_slice *s, bool out)
{
	struct page *page = pfn_to_page(ramslice_geom_block(&ramslice_geom,
							     s - ramslice_slices,
							     0));
	long nr = out ? -(long)s->nr_pages : (long)s->nr_pages;
	struct zone *zone = s->rz->zone;
	unsigned long flags;

	lockdep_assert_held(&ramslice_lock);
	WRITE_ONCE(s->held, out);
	s->rz->nr_held += out ? 1 : -1;
	WRITE_ONCE(s->rz->nr_held_pages, s->rz->nr_held_pages - nr);
	ramslice_note_sets(s - ramslice_slices);
	spin_lock_irqsave(&zone->lock, flags);
	__mod_zone_page_state(zone, NR_RAMSLICE_OFFLINE, nr);
	spin_unlock_irqrestore(&zone->lock, flags);
	adjust_managed_page_count(page, nr);
	ramslice_event_seq++;
	wake_up_interruptible_all(&ramslice_wait);
}

/**
 * ramslice_hold - keep an offline slice off
 * @id: the slice
 *
 * Context: May sleep. The table must stay: ramslice_mutex or table_sem held.
 * Return: false if the slice is not offline because it was woken.
 */
bool ramslice_hold(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];
	bool offline, changed = false;

	spin_lock_irq(&ramslice_lock);
	offline = s->state == RAMSLICE_OFFLINE;
	if (offline && !s->held) {
		ramslice_set_held(s, true);
		changed = true;
	}
	spin_unlock_irq(&ramslice_lock);
	if (changed)
		schedule_work(&ramslice_watermark_work);
	return offline;
}

/* It is about to wake: its memory counts again. Under ramslice_lock. */
void ramslice_unhold(u32 id)
{
	struct ramslice_slice *s = &ramslice_slices[id];

	if (!s->held)
		return;
	ramslice_set_held(s, false);
	schedule_work(&ramslice_watermark_work);
}
