/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Cold memory: what its parts share.
 *
 *   cold.c       twins, and the way of an allocation to them
 *   cold_area.c  memory moves between a node and its twin, block by block
 *   cold_sysfs.c files in /sys/kernel/mm/ramslice/cold
 *   rest.c       which slices the power driver may let rest
 */
#ifndef __MM_RAMSLICE_COLD_H
#define __MM_RAMSLICE_COLD_H

#include <linux/types.h>
#include <linux/ramslice_cold.h>

struct kobject;

#ifdef CONFIG_RAMSLICE_COLD

/**
 * enum ramslice_cold_mode - who gets the memory of twins
 * @RAMSLICE_COLD_OVERFLOW: all, after all other memory
 * @RAMSLICE_COLD_STRICT: who asks for it, and others only instead of an OOM kill
 */
enum ramslice_cold_mode {
	RAMSLICE_COLD_OVERFLOW,
	RAMSLICE_COLD_STRICT,
};

/* --- cold.c --- */
extern u64 ramslice_cold_boot_bytes;

int ramslice_twin_of(int nid);
int ramslice_partner_of(int twin);
bool ramslice_partner_has_room(struct zone *zone);
enum ramslice_cold_mode ramslice_cold_mode(void);
void ramslice_cold_set_mode(enum ramslice_cold_mode mode);
void ramslice_cold_update(void);

/* --- cold_area.c --- */
extern unsigned int ramslice_cold_deadline_ms;

u64 ramslice_cold_unit(void);
u64 ramslice_cold_bytes(int nid);
u64 ramslice_cold_max_bytes(int nid);
bool ramslice_cold_needs_geometry(void);
int ramslice_cold_resize(int nid, u64 bytes);

/* --- cold_sysfs.c --- */
int ramslice_cold_init(struct kobject *parent);

/* --- rest.c --- */
u64 ramslice_resting_bytes(int twin);
void ramslice_rest_begin(void);
bool ramslice_rest_end(void);
void ramslice_rest_forget(u32 id);

#else

static inline int ramslice_cold_init(struct kobject *parent)
{
	return 0;
}

static inline bool ramslice_partner_has_room(struct zone *zone)
{
	return false;
}

static inline bool ramslice_cold_needs_geometry(void)
{
	return false;
}

static inline void ramslice_rest_begin(void)
{
}

static inline bool ramslice_rest_end(void)
{
	return true;
}

static inline void ramslice_rest_forget(u32 id)
{
}

#endif /* CONFIG_RAMSLICE_COLD */

#endif /* __MM_RAMSLICE_COLD_H */
