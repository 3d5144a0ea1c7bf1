// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An arena of jemalloc whose memory is cold: its extents come from here.
 *
 * Mappings stay for as long as the process: jemalloc takes extents that were
 * freed again, and their pages go back to the kernel at once. So a list of
 * mappings that only grows is enough, and no lock is needed that a fork()
 * could leave held.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

#include "internal.h"

#define HUGE ((size_t)2 << 20)

static _Atomic(struct cold_mapping *) newest;

static unsigned int arena;
static bool has_arena;
static size_t lookup_mib[2], lookup_length = 2;
static pthread_once_t arena_once = PTHREAD_ONCE_INIT;

const struct cold_mapping *cold_mappings(void)
{
	return atomic_load_explicit(&newest, memory_order_acquire);
}

static void publish(struct cold_mapping *mapping)
{
	mapping->next = atomic_load_explicit(&newest, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&newest, &mapping->next, mapping,
						      memory_order_release, memory_order_relaxed))
		;
}

/*
 * Below the memory are a page with its description and one that is no memory,
 * which is above it, too. So no other area touches it and would be counted as
 * part of it.
 */
static void *extent_alloc(extent_hooks_t *hooks, void *wanted, size_t bytes, size_t alignment,
			  bool *zero, bool *commit, unsigned int index)
{
	size_t page = sysconf(_SC_PAGESIZE), all;
	uintptr_t base, start, end;
	struct cold_mapping *mapping;
	void *at;

	(void)hooks;
	(void)index;
	/* Mappings do not grow */
	if (wanted)
		return NULL;
	if (bytes >= HUGE && alignment < HUGE)
		alignment = HUGE;
	if (__builtin_add_overflow(bytes, alignment + 3 * page, &all))
		return NULL;
	at = cold_mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	base = (uintptr_t)at;
	start = (base + 2 * page + alignment - 1) & ~(alignment - 1);
	end = start + bytes;
	at = cold_mmap((void *)start, bytes, PROT_READ | PROT_WRITE,
		       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | cold_map_flags(), -1, 0);
	mapping = (struct cold_mapping *)(start - 2 * page);
	if (at == MAP_FAILED || mprotect(mapping, page, PROT_READ | PROT_WRITE)) {
		munmap((void *)base, all);
		return NULL;
	}
	cold_bind(at, bytes);
	if ((uintptr_t)mapping > base)
		munmap((void *)base, (uintptr_t)mapping - base);
	if (base + all > end + page)
		munmap((void *)(end + page), base + all - end - page);
	mapping->start = start;
	mapping->bytes = bytes;
	publish(mapping);
	*zero = true;
	*commit = true;
	return at;
}

/* Gives pages back; what is read there afterwards is zero. */
static bool extent_purge(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
			 size_t length, unsigned int index)
{
	(void)hooks;
	(void)size;
	(void)index;
	return madvise((char *)address + offset, length, MADV_DONTNEED);
}

static bool extent_split(extent_hooks_t *hooks, void *address, size_t size, size_t first,
			 size_t second, bool committed, unsigned int index)
{
	(void)hooks;
	(void)address;
	(void)size;
	(void)first;
	(void)second;
	(void)committed;
	(void)index;
	return false;
}

/* Only neighbours are asked about, which are of one mapping. */
static bool extent_merge(extent_hooks_t *hooks, void *first, size_t first_size, void *second,
			 size_t second_size, bool committed, unsigned int index)
{
	(void)hooks;
	(void)first;
	(void)first_size;
	(void)second;
	(void)second_size;
	(void)committed;
	(void)index;
	return false;
}

static extent_hooks_t hooks = {
	.alloc = extent_alloc,
	.purge_forced = extent_purge,
	.split = extent_split,
	.merge = extent_merge,
};

static void create(void)
{
	extent_hooks_t *ours = &hooks;
	size_t size = sizeof(arena);
	static const char * const decays[] = { "dirty", "muzzy" };
	ssize_t at_once = 0;
	char name[64];

	/* Opening folders allocates: not within a hook */
	cold_machine();
	if (mallctlnametomib("arenas.lookup", lookup_mib, &lookup_length) ||
	    mallctl("arenas.create", &arena, &size, &ours, sizeof(ours)))
		return;
	/* Time passes for an arena only while it is used; a cold one rarely is */
	for (size_t i = 0; i < sizeof(decays) / sizeof(decays[0]); i++) {
		snprintf(name, sizeof(name), "arena.%u.%s_decay_ms", arena, decays[i]);
		mallctl(name, NULL, NULL, &at_once, sizeof(at_once));
	}
	has_arena = true;
}

int cold_pool_flags(void)
{
	pthread_once(&arena_once, create);
	/* A thread's cache of free objects does not know which of them are cold */
	return has_arena ? MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE : 0;
}

bool cold_pool_has(const void *object)
{
	unsigned int found;
	size_t size = sizeof(found);

	return cold_pool_flags() &&
	       !mallctlbymib(lookup_mib, lookup_length, &found, &size, &object, sizeof(object)) &&
	       found == arena;
}
