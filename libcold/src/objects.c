// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Objects: allocated, resized, freed, and moved between hot and cold. What is
 * hot is in jemalloc's own arenas, so that one function frees both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <string.h>

#include "internal.h"

/* Alignment that a move keeps: that of huge pages. */
#define MOST_ALIGNMENT ((size_t)2 << 20)
/* What is at least this large may be aligned more than its size says. */
#define LARGE ((size_t)4096)

/* Flags of a place; 0 if there can be no arena for cold objects. */
static int flags_of(enum ramslice_cold_place place)
{
	return place == RAMSLICE_COLD_PLACE_COLD ? cold_pool_flags() : MALLOCX_TCACHE_NONE;
}

static void *alloc(size_t bytes, enum ramslice_cold_place place, int more)
{
	int before = errno, flags = flags_of(place);
	void *object = flags ? mallocx(bytes ? bytes : 1, flags | more) : NULL;

	errno = object ? before : ENOMEM;
	return object;
}

void *ramslice_cold_alloc(size_t bytes)
{
	return alloc(bytes, RAMSLICE_COLD_PLACE_COLD, 0);
}

void *ramslice_cold_alloc_hot(size_t bytes)
{
	return alloc(bytes, RAMSLICE_COLD_PLACE_HOT, 0);
}

void *ramslice_cold_calloc(size_t nr, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(nr, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return alloc(all, RAMSLICE_COLD_PLACE_COLD, MALLOCX_ZERO);
}

void *ramslice_cold_aligned_alloc(size_t alignment, size_t bytes)
{
	if (!alignment || alignment & (alignment - 1)) {
		errno = EINVAL;
		return NULL;
	}
	return alloc(bytes, RAMSLICE_COLD_PLACE_COLD, MALLOCX_ALIGN(alignment));
}

void *ramslice_cold_realloc(void *object, size_t bytes)
{
	int before = errno;
	void *resized;

	if (!object)
		return ramslice_cold_alloc(bytes);
	resized = rallocx(object, bytes ? bytes : 1, flags_of(ramslice_cold_place_of(object)));
	errno = resized ? before : ENOMEM;
	return resized;
}

void ramslice_cold_free(void *object)
{
	int before = errno;

	if (object)
		dallocx(object, MALLOCX_TCACHE_NONE);
	errno = before;
}

size_t ramslice_cold_usable_size(const void *object)
{
	return object ? sallocx(object, 0) : 0;
}

enum ramslice_cold_place ramslice_cold_place_of(const void *object)
{
	return cold_pool_has(object) ? RAMSLICE_COLD_PLACE_COLD : RAMSLICE_COLD_PLACE_HOT;
}

void *ramslice_cold_move(void *object, enum ramslice_cold_place place)
{
	size_t bytes, alignment;
	void *moved;
	int more = 0;

	if (!object ||
	    (place != RAMSLICE_COLD_PLACE_HOT && place != RAMSLICE_COLD_PLACE_COLD)) {
		errno = EINVAL;
		return NULL;
	}
	if (ramslice_cold_place_of(object) == place)
		return object;
	bytes = sallocx(object, 0);
	if (bytes >= LARGE) {
		alignment = (uintptr_t)object & -(uintptr_t)object;
		more = MALLOCX_ALIGN(alignment < MOST_ALIGNMENT ? alignment : MOST_ALIGNMENT);
	}
	moved = alloc(bytes, place, more);
	if (!moved)
		return NULL;
	memcpy(moved, object, bytes);
	ramslice_cold_free(object);
	return moved;
}

enum ramslice_cold_way ramslice_cold_way(void)
{
	return cold_machine()->way;
}

const char *ramslice_cold_way_name(void)
{
	switch (ramslice_cold_way()) {
	case RAMSLICE_COLD_WAY_MAP_COLD:
		return "MAP_COLD";
	case RAMSLICE_COLD_WAY_MBIND:
		return "mbind";
	default:
		return "none";
	}
}
