/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libramslice-cold - memory for what a program rarely uses
 *
 * Objects are cold or hot. Those that are cold lie in memory that may rest: on
 * a kernel with cold memory in the twin of the local node, by mmap(MAP_COLD);
 * otherwise on a node of the lowest memory tier, by mbind(2). A machine that
 * has neither treats both alike. Cold memory that is full is no error: what
 * does not fit is elsewhere, and ramslice_cold_stats() counts it.
 *
 * All functions may be called from any thread. They print nothing. The prefix
 * of all names is the library's own name.
 *
 * Objects belong to this library: what ramslice_cold_alloc() and its like
 * return is for ramslice_cold_free(), never for free(), and the reverse.
 *
 * Programs link it. One that loads it later, by dlopen(3), as bindings of other
 * languages do, has to leave room for jemalloc's thread-local data when it
 * starts: GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384
 */
#ifndef RAMSLICE_COLD_H
#define RAMSLICE_COLD_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAMSLICE_COLD_API __attribute__((visibility("default")))

/* How a program gets cold memory on this machine. */
enum ramslice_cold_way {
	/* It has none */
	RAMSLICE_COLD_WAY_NONE,
	/* mmap(MAP_COLD): the kernel takes the twin of the local node */
	RAMSLICE_COLD_WAY_MAP_COLD,
	/* mbind(2): nodes without CPUs of the lowest memory tier */
	RAMSLICE_COLD_WAY_MBIND,
};

enum ramslice_cold_place {
	RAMSLICE_COLD_PLACE_HOT,
	RAMSLICE_COLD_PLACE_COLD,
};

/* Memory for cold objects, in bytes. */
struct ramslice_cold_stats {
	/* Address space that was mapped for cold objects; it never shrinks */
	size_t mapped_bytes;
	/* Of that, pages that are in cold memory */
	size_t cold_bytes;
	/* Pages that are elsewhere, as cold memory was full or there is none */
	size_t hot_bytes;
};

/*
 * The way that this process takes. It is found out at the first call of any
 * function, and stays. A twin that has no size so far counts: what is mapped
 * later goes there once it has one.
 */
RAMSLICE_COLD_API enum ramslice_cold_way ramslice_cold_way(void);

/* The same in one word: "MAP_COLD", "mbind" or "none". */
RAMSLICE_COLD_API const char *ramslice_cold_way_name(void);

/*
 * A cold object of at least so many bytes, aligned for any type; its contents
 * are undefined. 0 bytes are allocated as 1. NULL with ENOMEM if there is no
 * memory.
 */
RAMSLICE_COLD_API void *ramslice_cold_alloc(size_t bytes)
	__attribute__((malloc, alloc_size(1), warn_unused_result));

/* The same for an object in hot memory, which may become cold later. */
RAMSLICE_COLD_API void *ramslice_cold_alloc_hot(size_t bytes)
	__attribute__((malloc, alloc_size(1), warn_unused_result));

/* A cold object of nr * bytes bytes, all zero. ENOMEM if that overflows. */
RAMSLICE_COLD_API void *ramslice_cold_calloc(size_t nr, size_t bytes)
	__attribute__((malloc, alloc_size(1, 2), warn_unused_result));

/*
 * A cold object at a multiple of alignment, which must be a power of two:
 * otherwise NULL with EINVAL.
 */
RAMSLICE_COLD_API void *ramslice_cold_aligned_alloc(size_t alignment, size_t bytes)
	__attribute__((malloc, alloc_align(1), alloc_size(2), warn_unused_result));

/*
 * Changes the size of an object; it stays in its place, hot or cold, and may
 * have a new address. NULL: as ramslice_cold_alloc(). 0 bytes: as 1. After
 * NULL with ENOMEM the object is as it was.
 */
RAMSLICE_COLD_API void *ramslice_cold_realloc(void *object, size_t bytes)
	__attribute__((alloc_size(2), warn_unused_result));

/*
 * Frees an object of either place. Pages of cold objects go back to the kernel
 * at once. NULL is allowed. errno stays as it was.
 */
RAMSLICE_COLD_API void ramslice_cold_free(void *object);

/* Bytes that may be used of an object: at least what was asked for. 0 of NULL. */
RAMSLICE_COLD_API size_t ramslice_cold_usable_size(const void *object);

/* Where an object was allocated or moved to. */
RAMSLICE_COLD_API enum ramslice_cold_place ramslice_cold_place_of(const void *object);

/*
 * Moves an object: copies all of its usable bytes to a new address and frees
 * the old one, which nothing may use any more. Alignment is kept, up to 2 MiB.
 * An object that is there already stays. NULL with ENOMEM, or EINVAL if place
 * is none: then the object is as it was.
 *
 * For what is smaller than a page, this is the only way: its neighbours stay.
 */
RAMSLICE_COLD_API void *ramslice_cold_move(void *object, enum ramslice_cold_place place)
	__attribute__((warn_unused_result));

/*
 * Moves the pages of any memory of this process that lie wholly in the range,
 * by move_pages(2). Addresses stay, and so does what its mapping says about
 * pages that are absent now. Pages that several processes map, or that are
 * pinned, do not move; nor does what finds no room.
 *
 * Returns the bytes of the range that are in this place afterwards, from 0 to
 * bytes; -1 with EINVAL if place is none or the range wraps around, EOPNOTSUPP
 * if it is to be cold and the way is none, or an errno of move_pages(2), as
 * EPERM where a sandbox forbids it.
 */
RAMSLICE_COLD_API ssize_t ramslice_cold_move_range(void *start, size_t bytes,
						   enum ramslice_cold_place place);

/*
 * Where the pages of cold objects are, by /proc/self/numa_maps. The kernel
 * walks all memory of the process for it. -1 with the errno of reading that
 * file: ENOENT on kernels without NUMA.
 */
RAMSLICE_COLD_API int ramslice_cold_stats(struct ramslice_cold_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
