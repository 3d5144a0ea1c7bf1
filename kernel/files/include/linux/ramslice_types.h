/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What ramslice keeps per pageblock. Apart from ramslice.h so that mmzone.h
 * can embed it in struct mem_section_usage.
 */
#ifndef _LINUX_RAMSLICE_TYPES_H
#define _LINUX_RAMSLICE_TYPES_H

#include <linux/types.h>

/* RAMSLICE_NR_COUNTERS, which account.c checks; all of mm includes this file. */
#define RAMSLICE_BLOCK_COUNTERS	10

/**
 * struct ramslice_block - what a pageblock holds
 * @count: pages by enum ramslice_counter. RAMSLICE_FREE changes under
 *	   zone->lock only, all others by atomic additions from any context.
 * @saved_type: migrate type to restore when an isolated pageblock comes
 *	   back; owned by the request that took it out of RAMSLICE_ONLINE.
 *
 * A counter may be negative for a moment on its way between two pageblocks;
 * readers clamp.
 */
struct ramslice_block {
	atomic_t count[RAMSLICE_BLOCK_COUNTERS];
	u32 saved_type;
};

#endif /* _LINUX_RAMSLICE_TYPES_H */
