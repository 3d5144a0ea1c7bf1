// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libramslice-cold-preload - cold memory for programs as they are
 *
 * Preloaded by `ramslice run --cold --larger-than SIZE`, it is the program's
 * malloc, by jemalloc: what is larger than that is cold, all else is hot. The
 * same goes for anonymous memory by mmap(). RAMSLICE_COLD_LARGER_THAN is the
 * size in bytes; without it, or on a machine without cold memory, nothing is
 * cold.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define EXPORT __attribute__((visibility("default")))

/* What is larger is cold. Written once, before main(); until then all is hot. */
static size_t larger_than = SIZE_MAX;

/* Flags for mallocx(3) of what is cold. */
static int cold_flags;

/* jemalloc's code: what it maps for hot objects stays hot. */
static uintptr_t allocator_start, allocator_end;

static int find_code(struct dl_phdr_info *info, size_t size, void *address)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		uintptr_t end = start + info->dlpi_phdr[i].p_memsz;

		if (info->dlpi_phdr[i].p_type == PT_LOAD && (uintptr_t)address >= start &&
		    (uintptr_t)address < end) {
			allocator_start = start;
			allocator_end = end;
			return 1;
		}
	}
	return 0;
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("RAMSLICE_COLD_LARGER_THAN");
	unsigned long bytes;
	char *end;

	if (!text || *text < '0' || *text > '9')
		return;
	errno = 0;
	bytes = strtoul(text, &end, 10);
	if (*end || errno || cold_machine()->way == RAMSLICE_COLD_WAY_NONE)
		return;
	cold_flags = cold_pool_flags();
	/* Not by the address of mallocx here, which may be that of a stub */
	if (cold_flags && dl_iterate_phdr(find_code, dlsym(RTLD_DEFAULT, "mallocx")))
		larger_than = bytes;
}

static int flags_for(size_t bytes)
{
	return bytes > larger_than ? cold_flags : 0;
}

/*
 * Flags to free an object. A thread's cache must not take what is cold: it
 * would hand it out as hot. That is never smaller than the size.
 */
static int flags_to_free(const void *object)
{
	return larger_than != SIZE_MAX && sallocx(object, 0) > larger_than ?
	       MALLOCX_TCACHE_NONE : 0;
}

static bool is_cold(const void *object)
{
	return flags_to_free(object) && cold_pool_has(object);
}

static void *alloc(size_t bytes, int more)
{
	int before = errno;
	void *object = mallocx(bytes ? bytes : 1, flags_for(bytes) | more);

	errno = object ? before : ENOMEM;
	return object;
}

EXPORT void *malloc(size_t bytes)
{
	return alloc(bytes, 0);
}

EXPORT void *calloc(size_t nr, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(nr, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return alloc(all, MALLOCX_ZERO);
}

EXPORT void free(void *object)
{
	int before = errno;

	if (object)
		dallocx(object, flags_to_free(object));
	errno = before;
}

/* What grows or shrinks past the size changes its place. */
EXPORT void *realloc(void *object, size_t bytes)
{
	int before = errno;
	void *resized;
	size_t old;

	if (!object)
		return alloc(bytes, 0);
	if (!bytes) {
		free(object);
		return NULL;
	}
	if (is_cold(object) == (bytes > larger_than)) {
		resized = rallocx(object, bytes, flags_for(bytes) | flags_to_free(object));
		errno = resized ? before : ENOMEM;
		return resized;
	}
	resized = alloc(bytes, 0);
	if (!resized)
		return NULL;
	old = sallocx(object, 0);
	memcpy(resized, object, old < bytes ? old : bytes);
	free(object);
	return resized;
}

static bool is_alignment(size_t alignment)
{
	return alignment && !(alignment & (alignment - 1));
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
	if (!is_alignment(alignment)) {
		errno = EINVAL;
		return NULL;
	}
	return alloc(bytes, MALLOCX_ALIGN(alignment));
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
	return aligned_alloc(alignment, bytes);
}

EXPORT int posix_memalign(void **object, size_t alignment, size_t bytes)
{
	int before = errno;
	void *got;

	if (!is_alignment(alignment) || alignment % sizeof(void *))
		return EINVAL;
	got = alloc(bytes, MALLOCX_ALIGN(alignment));
	errno = before;
	if (!got)
		return ENOMEM;
	*object = got;
	return 0;
}

EXPORT void *valloc(size_t bytes)
{
	return aligned_alloc(sysconf(_SC_PAGESIZE), bytes);
}

EXPORT void *pvalloc(size_t bytes)
{
	size_t page = sysconf(_SC_PAGESIZE), all;

	if (__builtin_add_overflow(bytes, page - 1, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return aligned_alloc(page, all & ~(page - 1));
}

EXPORT size_t malloc_usable_size(void *object)
{
	return object ? sallocx(object, 0) : 0;
}

/* Stacks are hot, and huge pages of the pool have nodes of their own. */
static bool may_be_cold(size_t bytes, int flags, const void *caller)
{
	const int never = MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB;

	return bytes > larger_than && flags & MAP_ANONYMOUS && !(flags & never) &&
	       !((uintptr_t)caller >= allocator_start && (uintptr_t)caller < allocator_end);
}

EXPORT void *mmap(void *start, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	bool cold = may_be_cold(bytes, flags, __builtin_return_address(0));
	void *got;

	flags |= cold ? cold_map_flags() : 0;
	got = cold_mmap(start, bytes, prot, flags, fd, offset);

	if (cold && got != MAP_FAILED)
		cold_bind(got, bytes);
	return got;
}

EXPORT void *mmap64(void *start, size_t bytes, int prot, int flags, int fd, off_t offset)
	__attribute__((alias("mmap")));
