// SPDX-License-Identifier: GPL-2.0
/*
 * Memory comes and goes, block by block. A block that goes must be awake: hotplug
 * takes its pages from the allocator.
 */

#include <linux/memory.h>
#include "internal.h"
#include "request.h"

static bool ramslice_range_awake(unsigned long pfn, unsigned long end)
{
	for (; pfn < end; pfn += pageblock_nr_pages) {
		struct ramslice_slice *s =
			ramslice_slice(ramslice_geom_slice(&ramslice_geom, pfn));

		if (s && READ_ONCE(s->state) != RAMSLICE_ONLINE)
			return false;
	}
	return true;
}

/*
 * Has the table follow memory that came or went: looks at the slices that have
 * it and no others. Under ramslice_mutex. May sleep.
 */
static int ramslice_update_table(unsigned long pfn, unsigned long end)
{
	int err = 0;
	u32 id;

	if (ramslice_geom_end_at(&ramslice_geom, end - 1) > ramslice_nr_ids)
		return ramslice_rebuild_table(&ramslice_geom, true);

	down_write(&ramslice_table_sem);
	for_each_slice_touching(id, pfn, end) {
		err = ramslice_update_slice(id);
		if (err)
			break;
	}
	ramslice_tell_of_table();
	up_write(&ramslice_table_sem);

	for_each_slice_touching(id, pfn, end)
		ramslice_reclassify_slice(id);
	return err;
}

static int ramslice_memory_callback(struct notifier_block *nb,
				    unsigned long action, void *arg)
{
	struct memory_notify *mn = arg;
	unsigned long end = mn->start_pfn + mn->nr_pages;
	int err = 0;

	switch (action) {
	case MEM_GOING_ONLINE:
		/* Before the first page of it is freed */
		if (!ramslice_interrupt_request())
			return notifier_from_errno(-EBUSY);
		down_write(&ramslice_table_sem);
		err = ramslice_cover_zone(page_zone(pfn_to_page(mn->start_pfn)));
		up_write(&ramslice_table_sem);
		mutex_unlock(&ramslice_mutex);
		return notifier_from_errno(err);
	case MEM_GOING_OFFLINE:
		/*
		 * Its blocks are isolated by now, so that nothing goes offline
		 * under it again. A quarantined slice has no memory to offer.
		 */
		if (!ramslice_interrupt_request())
			return notifier_from_errno(-EBUSY);
		__ramslice_wake_range(mn->start_pfn, end, true);
		if (!ramslice_range_awake(mn->start_pfn, end))
			err = -EBUSY;
		mutex_unlock(&ramslice_mutex);
		return notifier_from_errno(err);
	case MEM_ONLINE:
	case MEM_OFFLINE:
		/* Too late to refuse: one that hangs is waited for */
		if (!ramslice_interrupt_request())
			mutex_lock(&ramslice_mutex);
		if (ramslice_update_table(mn->start_pfn, end))
			pr_warn("no memory for the table of slices; added memory is not used\n");
		mutex_unlock(&ramslice_mutex);
		break;
	}
	return NOTIFY_OK;
}

int __init ramslice_hotplug_init(void)
{
	hotplug_memory_notifier(ramslice_memory_callback, DEFAULT_CALLBACK_PRI);
	return 0;
}
