/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of libramslice-cold share:
 *
 *   objects.c, pages.c   the interface, see ramslice/cold.h
 *   preload.c            malloc and mmap of programs that do not know it
 *     |
 *   pool.c               jemalloc's arena whose memory is cold
 *     |
 *   machine.c            which nodes are cold, and how memory gets there
 *
 * Calls point down this list. None of these names is exported.
 */
#ifndef RAMSLICE_COLD_INTERNAL_H
#define RAMSLICE_COLD_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ramslice/cold.h"

#if __SIZEOF_LONG__ != 8
#error "address space for cold objects is never given back: 64-bit only"
#endif

#define COLD_MAX_NODES 1024
#define COLD_MASK_WORDS (COLD_MAX_NODES / 64)

/**
 * struct cold_machine - what was found out at the first use
 * @way: how memory becomes cold
 * @nr_cold: number of nodes in @cold
 * @cold: mask of nodes whose memory is cold
 * @cold_of: for each node the cold one next to it, or -1; of a cold one, itself
 * @hot_of: for each node the hot one next to it, or -1; of a hot one, itself
 */
struct cold_machine {
	enum ramslice_cold_way way;
	int nr_cold;
	unsigned long cold[COLD_MASK_WORDS];
	int16_t cold_of[COLD_MAX_NODES];
	int16_t hot_of[COLD_MAX_NODES];
};

const struct cold_machine *cold_machine(void);

/* Flags for mmap(2) of anonymous memory that is to be cold. */
int cold_map_flags(void);

/* To be called on such memory. What cannot be bound stays where it is. */
void cold_bind(void *start, size_t bytes);

/**
 * struct cold_mapping - address space for cold objects
 * @next: the one that was mapped before
 * @start: address of the first byte
 * @bytes: its size
 *
 * Lies in a page of its own below @start. No mapping ever goes away, so the
 * list needs no lock: it may be read in a child after fork(), too.
 */
struct cold_mapping {
	struct cold_mapping *next;
	uintptr_t start;
	size_t bytes;
};

const struct cold_mapping *cold_mappings(void);

/* Flags for mallocx(3) of a cold object; 0 if there is no arena for it. */
int cold_pool_flags(void);

/* Whether an object of jemalloc's is in the cold arena. */
bool cold_pool_has(const void *object);

/*
 * The system call: in a preloaded library, mmap() is the program's.
 * Returns MAP_FAILED with errno.
 */
static inline void *cold_mmap(void *start, size_t bytes, int prot, int flags, int fd,
			      off_t offset)
{
	return (void *)syscall(SYS_mmap, start, bytes, prot, flags, fd, offset);
}

#endif
