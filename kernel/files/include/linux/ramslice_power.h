/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Power drivers: they tell the hardware, a simulated controller or a
 * hypervisor that a slice holds nothing.
 */
#ifndef _LINUX_RAMSLICE_POWER_H
#define _LINUX_RAMSLICE_POWER_H

#include <linux/types.h>

/**
 * struct ramslice_extents - the runs of page frames that a slice consists of
 * @pfn: the first page frame of the first run
 * @nr_pages: page frames of each run
 * @stride_pages: from the first page frame of a run to that of the next
 * @nr: runs; 1 unless slices are interleaved
 */
struct ramslice_extents {
	unsigned long pfn;
	unsigned long nr_pages;
	unsigned long stride_pages;
	unsigned int nr;
};

/* First page frame of every run; @n is an unsigned int. */
#define for_each_ramslice_extent(e, n, start)				\
	for ((n) = 0, (start) = (e)->pfn; (n) < (e)->nr;		\
	     (n)++, (start) += (e)->stride_pages)

/**
 * struct ramslice_power_state - a state that a slice can be put into
 * @name: for people
 * @entry_latency_us: time from off() to the state
 * @exit_latency_us: longest time wake() takes
 * @retention: contents survive
 * @atomic_wake: wake() does not sleep and may run with interrupts off and any
 *		 lock held. If false, the promise to allocations that cannot
 *		 sleep holds within the awake reserve only.
 * @may_stay_mapped: reads do no harm meanwhile: CPUs speculate, and read ahead of
 *		     need, through any mapping. If false, a slice leaves the
 *		     direct map before off(), comes back after wake(), and every
 *		     wake sleeps.
 * @survives_sleep: the state lasts while the system is suspended, to idle or to
 *		    memory, and wake() works before devices have resumed. If
 *		    false, every slice wakes first.
 */
struct ramslice_power_state {
	const char *name;
	u32 entry_latency_us;
	u32 exit_latency_us;
	bool retention;
	bool atomic_wake;
	bool may_stay_mapped;
	bool survives_sleep;
};

/**
 * struct ramslice_power_driver - a power driver
 * @name: for people, at most 31 characters
 * @states: what it offers; slices go to the first, and rest in the first with
 *	    @retention
 * @nr_states: at least 1
 * @off: the extents are unused from now until wake(). May sleep. An error
 *	 leaves the slice awake.
 * @wake: the extents will be used again when this returns. Must not allocate
 *	  memory. An error costs the slice: it is quarantined.
 * @rest: optional: the slice is in use and stays so, but is touched rarely:
 *	  between accesses it may be as deep as the state, which has @retention,
 *	  and every access is answered. If the last argument is false, that is
 *	  over; off() ends it, too, even if it fails. Not called while the slice
 *	  is off. May sleep. After an error it is over for all slices.
 * @cache_percent: up to this much of a zone may be inactive page cache before
 *		   reading ahead recycles it, instead of waking memory; 0 where a
 *		   wake costs more than to read a file again
 * @check: optional: page frames of a woken slice are about to be given to the
 *	   allocator. Same context as an atomic wake().
 *
 * @id is the slice: the address of its first page frame divided by the slice size,
 * unless slices are interleaved, or a table says where each is.
 */
struct ramslice_power_driver {
	const char *name;
	const struct ramslice_power_state *states;
	unsigned int nr_states;
	int (*off)(u32 id, const struct ramslice_extents *extents,
		   unsigned int state);
	int (*wake)(u32 id, const struct ramslice_extents *extents,
		    unsigned int state);
	int (*rest)(u32 id, const struct ramslice_extents *extents,
		    unsigned int state, bool rests);
	unsigned int cache_percent;
	void (*check)(u32 id, unsigned long pfn, unsigned long nr_pages);
};

int ramslice_register_power_driver(const struct ramslice_power_driver *drv);
int ramslice_unregister_power_driver(const struct ramslice_power_driver *drv);

unsigned int ramslice_power_timeout_ms(void);

#endif /* _LINUX_RAMSLICE_POWER_H */
