// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * objects - the library's own test: what must hold on any machine, whatever
 * way to cold memory it has
 *
 * Prints the way and one line for each check. The status is 1 if one failed.
 * Where pages are is checked by the lab's tests, on machines that have cold
 * memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ramslice/cold.h>

#define HOT RAMSLICE_COLD_PLACE_HOT
#define COLD RAMSLICE_COLD_PLACE_COLD

static bool failed;

static void check(bool holds, const char *what)
{
	printf("%s: %s\n", holds ? "ok" : "FAILED", what);
	failed |= !holds;
}

/* Each byte depends on its place and on the seed. */
static void fill(void *object, size_t bytes, unsigned int seed)
{
	uint8_t *at = object;

	for (size_t i = 0; i < bytes; i++)
		at[i] = seed + i * 31 + (i >> 12) * 7;
}

static bool is_filled(const void *object, size_t bytes, unsigned int seed)
{
	const uint8_t *at = object;

	for (size_t i = 0; i < bytes; i++) {
		if (at[i] != (uint8_t)(seed + i * 31 + (i >> 12) * 7))
			return false;
	}
	return true;
}

static struct ramslice_cold_stats stats(void)
{
	struct ramslice_cold_stats now;

	/* Kernels without NUMA have no such file */
	if (ramslice_cold_stats(&now) && errno != ENOENT)
		check(false, "statistics can be read");
	return now;
}

static size_t present(void)
{
	struct ramslice_cold_stats now = stats();

	return now.cold_bytes + now.hot_bytes;
}

static void check_sizes(void)
{
	static const size_t sizes[] = {
		0, 1, 7, 16, 100, 1000, 4095, 4096, 4097, 14336, 14337, 70000, 1 << 20,
		(1 << 20) + 1, 5 << 20, 33 << 20,
	};
	bool large = true, kept = true, place = true;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *object = ramslice_cold_alloc(sizes[i]);

		if (!object) {
			large = false;
			continue;
		}
		large &= ramslice_cold_usable_size(object) >= sizes[i] &&
			 (uintptr_t)object % sizeof(void *) == 0;
		place &= ramslice_cold_place_of(object) == COLD;
		fill(object, sizes[i], i);
		kept &= is_filled(object, sizes[i], i);
		ramslice_cold_free(object);
	}
	check(large, "an object is as large as was asked for");
	check(kept, "objects of all sizes keep what is written to them");
	check(place, "an object that is allocated cold is cold");
}

static void check_arguments(void)
{
	/* The compiler would refuse them, too */
	volatile size_t odd = 48, half = SIZE_MAX / 2, much = (size_t)1 << 62;
	void *object;

	errno = 0;
	check(!ramslice_cold_aligned_alloc(odd, 100) && errno == EINVAL,
	      "an alignment that is no power of two is refused");
	errno = 0;
	check(!ramslice_cold_calloc(half, 3) && errno == ENOMEM,
	      "a product that overflows is refused");
	errno = 0;
	object = ramslice_cold_alloc(much);
	check(!object && errno == ENOMEM, "more than there can be is refused");
	errno = 0;
	check(!ramslice_cold_move(NULL, COLD) && errno == EINVAL, "nothing cannot be moved");
	object = ramslice_cold_alloc(10);
	errno = 0;
	check(!ramslice_cold_move(object, 7) && errno == EINVAL, "a place that is none is refused");
	errno = 0;
	check(ramslice_cold_move_range(object, SIZE_MAX, HOT) < 0 && errno == EINVAL,
	      "a range that wraps around is refused");
	errno = 77;
	ramslice_cold_free(object);
	ramslice_cold_free(NULL);
	check(errno == 77 && ramslice_cold_usable_size(NULL) == 0,
	      "freeing keeps errno, and NULL may be freed");
}

static void check_zero(void)
{
	bool zero = true;

	for (int round = 0; round < 3; round++) {
		char *object = ramslice_cold_calloc(1000, 300);

		for (int i = 0; i < 300000; i++)
			zero &= !object[i];
		fill(object, 300000, round);
		ramslice_cold_free(object);
	}
	check(zero, "memory that is to be zero is, also when it was in use before");
}

static void check_alignment(void)
{
	bool aligned = true, stays = true;

	for (size_t alignment = 8; alignment <= (size_t)2 << 20; alignment *= 2) {
		char *object = ramslice_cold_aligned_alloc(alignment, 3 * alignment / 2);

		aligned &= object && (uintptr_t)object % alignment == 0;
		object = ramslice_cold_move(object, HOT);
		stays &= object && (uintptr_t)object % alignment == 0;
		object = ramslice_cold_move(object, COLD);
		stays &= object && (uintptr_t)object % alignment == 0;
		ramslice_cold_free(object);
	}
	check(aligned, "objects are aligned as was asked for");
	check(stays, "a move keeps the alignment");
}

static void check_resizing(void)
{
	static const size_t sizes[] = {
		10, 100, 5000, 100000, 3 << 20, 40 << 20, 200000, 6000, 50, 1, 1 << 20,
	};
	bool kept = true, place = true;

	for (int hot = 0; hot < 2; hot++) {
		size_t old = 0;
		char *object = hot ? ramslice_cold_alloc_hot(1) : NULL;

		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			size_t both = old < sizes[i] ? old : sizes[i];

			object = ramslice_cold_realloc(object, sizes[i]);
			kept &= object && is_filled(object, both, hot);
			place &= ramslice_cold_place_of(object) == (hot ? HOT : COLD);
			fill(object, sizes[i], hot);
			old = sizes[i];
		}
		ramslice_cold_free(object);
	}
	check(kept, "contents survive any change of size");
	check(place, "an object whose size changes stays in its place");
}

static void check_moves(void)
{
	bool kept = true, place = true;

	for (size_t bytes = 1; bytes < 20 << 20; bytes = bytes * 5 + 3) {
		char *object = ramslice_cold_alloc_hot(bytes);

		fill(object, bytes, 5);
		for (int i = 0; i < 4; i++) {
			enum ramslice_cold_place to = i % 2 ? HOT : COLD;

			object = ramslice_cold_move(object, to);
			kept &= object && is_filled(object, bytes, 5);
			place &= ramslice_cold_place_of(object) == to;
			place &= ramslice_cold_move(object, to) == object;
		}
		ramslice_cold_free(object);
	}
	check(kept, "contents survive moves from hot to cold and back");
	check(place, "an object is where it was moved to, and stays if it is there");
}

static void check_return(void)
{
	size_t before = present(), mapped;
	void *object = ramslice_cold_alloc(64 << 20);

	memset(object, 1, 64 << 20);
	/* Beside it, only what jemalloc keeps about it */
	check(!before || present() >= before + (64 << 20), "statistics count what is written to");
	ramslice_cold_free(object);
	/* A huge page that the object shared, and one with what jemalloc keeps, may stay */
	check(present() <= before + (4 << 20), "what is freed goes back to the kernel");
	mapped = stats().mapped_bytes;
	for (int i = 0; i < 50; i++) {
		object = ramslice_cold_alloc(64 << 20);
		memset(object, 1, 4096);
		ramslice_cold_free(object);
	}
	check(stats().mapped_bytes == mapped, "address space is used again");
}

static void check_range(void)
{
	size_t bytes = 4 << 20, page = 4096;
	char *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool can = ramslice_cold_way() != RAMSLICE_COLD_WAY_NONE;
	ssize_t done;

	fill(range, bytes, 9);
	errno = 0;
	done = ramslice_cold_move_range(range, bytes, COLD);
	check(can ? done >= 0 : done == -1 && errno == EOPNOTSUPP,
	      "a range moves, or that it cannot is said");
	check(is_filled(range, bytes, 9), "a range that moves keeps its contents");
	done = ramslice_cold_move_range(range + 1, 2 * page - 2, HOT);
	check(done == 0 || errno == ENOSYS, "pages that lie in the range in part stay");
	munmap(range, bytes);
}

#define NR_THREADS 4
#define NR_SLOTS 64

/* Objects come, go, move and change size; each is full of bytes of its own. */
static void *churn(void *argument)
{
	unsigned int seed = (uintptr_t)argument * 977 + 13;
	struct { char *object; size_t bytes; unsigned int seed; } slots[NR_SLOTS] = { 0 };
	bool right = true;

	for (int i = 0; i < 20000 && right; i++) {
		int at = rand_r(&seed) % NR_SLOTS;
		size_t bytes = (size_t)1 << rand_r(&seed) % 17, kept;
		char *object = slots[at].object;

		bytes += rand_r(&seed) % bytes;
		kept = slots[at].bytes < bytes ? slots[at].bytes : bytes;
		right = !object || is_filled(object, slots[at].bytes, slots[at].seed);
		switch (object ? rand_r(&seed) % 4 : 4) {
		case 0:
			ramslice_cold_free(object);
			slots[at].object = NULL;
			slots[at].bytes = 0;
			break;
		case 1:
			slots[at].object = ramslice_cold_move(object, rand_r(&seed) % 2);
			right &= slots[at].object != NULL;
			break;
		case 2:
			slots[at].object = ramslice_cold_realloc(object, bytes);
			right &= slots[at].object &&
				 is_filled(slots[at].object, kept, slots[at].seed);
			break;
		case 3:
			continue;
		case 4:
			slots[at].object = rand_r(&seed) % 2 ? ramslice_cold_alloc(bytes) :
							       ramslice_cold_alloc_hot(bytes);
			right &= slots[at].object != NULL;
			break;
		}
		if (!slots[at].object)
			continue;
		if (ramslice_cold_usable_size(slots[at].object) < bytes)
			bytes = slots[at].bytes;
		slots[at].bytes = bytes;
		slots[at].seed = i;
		fill(slots[at].object, bytes, i);
	}
	for (int at = 0; at < NR_SLOTS; at++)
		ramslice_cold_free(slots[at].object);
	return (void *)right;
}

static void check_threads(void)
{
	pthread_t threads[NR_THREADS];
	bool right = true;
	pid_t child;
	int status;

	for (uintptr_t i = 0; i < NR_THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)i);
	/* In the middle of that */
	child = fork();
	if (!child)
		_exit(!churn((void *)99));
	for (int i = 0; i < NR_THREADS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		right &= result != NULL;
	}
	check(right, "threads share the library");
	check(waitpid(child, &status, 0) == child && status == 0,
	      "a child of a process with threads goes on with it");
}

int main(void)
{
	printf("way: %s\n", ramslice_cold_way_name());
	check_sizes();
	check_arguments();
	check_zero();
	check_alignment();
	check_resizing();
	check_moves();
	check_return();
	check_range();
	check_threads();
	return failed;
}
