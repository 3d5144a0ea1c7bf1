// SPDX-License-Identifier: GPL-2.0
/*
 * Strict mode: slices that are off are not in the direct map, so that an access
 * by kernel address faults at once. Power drivers demand it unless they declare
 * that a slice may stay mapped: CPUs read ahead of need, through any mapping.
 *
 * The map is split when a slice goes off, while that may fail; taking pages
 * out and putting them back then needs no memory. It needs a flush of all
 * TLBs and a sleeping context, though: in strict mode every wake sleeps.
 */

#include <linux/mm.h>
#include <linux/set_memory.h>
#include "internal.h"
#include "request.h"

/* Asked for by hand. Changes under ramslice_mutex and ramslice_lock, with nothing offline. */
static bool ramslice_strict;

bool ramslice_is_strict(void)
{
	return READ_ONCE(ramslice_strict) || ramslice_power_unmaps();
}

#ifdef CONFIG_X86_64
static int ramslice_set_present(unsigned long pfn, unsigned int nr_blocks,
				bool present)
{
	unsigned long addr = (unsigned long)page_address(pfn_to_page(pfn));
	int nr_pages = nr_blocks * pageblock_nr_pages;

	return present ? set_memory_p(addr, nr_pages) :
			 set_memory_np(addr, nr_pages);
}
#else
static int ramslice_set_present(unsigned long pfn, unsigned int nr_blocks,
				bool present)
{
	return -EOPNOTSUPP;
}
#endif

static int ramslice_set_slice(u32 id, bool present)
{
	unsigned int n, nr;
	unsigned long pfn;
	int err = 0;

	for_each_slice_chunk(id, n, nr, pfn) {
		err = ramslice_set_present(pfn, nr, present);
		if (err)
			break;
	}
	return err;
}

/**
 * ramslice_strict_split - have the direct map of a slice in pieces of its own
 * @id: the slice, empty and out of the allocator
 *
 * Context: May sleep.
 * Return: 0, or -ENOMEM with the map in order.
 */
int ramslice_strict_split(u32 id)
{
	int err;

	if (!ramslice_is_strict())
		return 0;
	err = ramslice_set_slice(id, false);
	/* What was split stays so, hence this does not fail */
	WARN_ON_ONCE(ramslice_set_slice(id, true));
	return err;
}

/**
 * ramslice_strict_unmap - take a slice out of the direct map, in strict mode
 * @id: the slice
 * @before: before its power is off, which is when a driver demands it; a driver
 *	    that does not may use the mapping until then
 *
 * Context: May sleep.
 */
void ramslice_strict_unmap(u32 id, bool before)
{
	if (ramslice_is_strict() && before == ramslice_power_unmaps())
		WARN_ON_ONCE(ramslice_set_slice(id, false));
}

/* Puts it back, before it is used. May sleep. */
void ramslice_strict_map(u32 id)
{
	if (ramslice_is_strict())
		WARN_ON_ONCE(ramslice_set_slice(id, true));
}

/**
 * ramslice_set_strict - switch strict mode
 * @on: on or off
 *
 * Context: Process context; takes ramslice_mutex.
 * Return: 0; -EBUSY while a request runs or a slice is off or on its way, or if
 * the power driver demands it; -EOPNOTSUPP if this architecture cannot.
 */
int ramslice_set_strict(bool on)
{
	int err = 0;

	if (on && !RAMSLICE_CAN_UNMAP)
		return -EOPNOTSUPP;
	if (ramslice_request_busy())
		return -EBUSY;
	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	spin_lock_irq(&ramslice_lock);
	if (ramslice_power_idle() && (on || !ramslice_power_unmaps()))
		WRITE_ONCE(ramslice_strict, on);
	else
		err = -EBUSY;
	spin_unlock_irq(&ramslice_lock);
	mutex_unlock(&ramslice_mutex);
	return err;
}
