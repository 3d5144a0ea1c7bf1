/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of the fuzzer share: numbers drawn from a seed, memory with
 * an edge, and the verdict on what the kernel answered.
 *
 * An input is a function of the numbers drawn for it (fuzz_input.h), so that it
 * can be had again; only how many slices there are at the moment enters, too.
 * Each is made right first and, mostly, spoilt in a way or two.
 * Its maker says what may come of it, by the documentation: "must" holds
 * the errors of which one has to come, "may" those that the moment can bring
 * (another request runs, a signal). Anything else is a bug.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <linux/ramslice.h>
#include "fuzz_input.h"

#define MIB		(1UL << 20)
#define NR_ERRNOS	192
#define ARENA		(4 * MIB)
#define CANARY		0xa5

enum target {
	T_INFO, T_ZONE, T_SNAPSHOT, T_REQUEST_BAD, T_DRY_RUN, T_EMPTY, T_WAKE, T_OTHER_IOCTL,
	T_READ, T_POLL, T_FILE,
	T_RACE, T_SLICE_BYTES, T_PRICE, T_SYSFS, T_CMD_BAD, T_CMD, T_DEBUGFS, T_DEBUGFS_WRITE,
	T_PARAMETER, T_MODULE,
	T_PAGES, T_SETTING, T_VERIFY, T_MEMORY, T_SEGMENTS, NR_TARGETS
};

static const char * const target_names[NR_TARGETS] = {
	"ioctl info", "ioctl zone", "ioctl snapshot", "request, invalid", "request, dry run",
	"request, emptying",
	"request, waking", "ioctl, other", "read", "poll", "other calls", "race",
	"sysfs slice_bytes", "sysfs price",
	"sysfs other", "debugfs cmd, invalid", "debugfs cmd", "debugfs read", "debugfs write",
	"module parameter",
	"module", "ioctl pages", "settings", "debugfs verify", "memory", "ioctl segments",
};

/* Of all processes. */
struct shared {
	uint64_t count[NR_TARGETS][NR_ERRNOS];
	uint64_t bugs;
	uint64_t offlined;
	uint64_t woken;
	uint64_t geometries;
	/* How requests that were carried out ended, by enum ramslice_reason. */
	uint64_t reasons[RAMSLICE_NR_REASONS];
	bool loading;
	bool block;
};

static struct shared *shared;
static bool verbose;
/* Has it take bad addresses for bugs: the control that it notices any. */
static bool control;
/* How much slower than usual the kernel is: deadlines and signals come as much later. */
static unsigned int slow = 1;

/* --- numbers -------------------------------------------------------------- */

static uint64_t below(uint64_t limit)
{
	return rnd() % limit;
}

static bool one_in(uint64_t nr)
{
	return !below(nr);
}

#define PICK(array) ((array)[below(sizeof(array) / sizeof(*(array)))])

/* Numbers at which programs err, for a field of any width. */
static uint64_t odd_number(void)
{
	static const uint64_t odd[] = {
		0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 63, 64, 255, 256, 4095, 4096, 4097, 65535,
		65536, INT32_MAX,
		1UL + INT32_MAX, UINT32_MAX - 1, UINT32_MAX, 1UL + UINT32_MAX, INT64_MAX,
		1UL + INT64_MAX,
		UINT64_MAX - 1, UINT64_MAX,
	};

	if (one_in(3))
		return rnd() >> below(64);
	return PICK(odd);
}

/* --- verdicts ------------------------------------------------------------- */

struct errs {
	uint64_t bit[NR_ERRNOS / 64];
};

static inline void add_err(struct errs *e, int err)
{
	e->bit[err / 64] |= 1UL << err % 64;
}

static inline bool has_err(const struct errs *e, int err)
{
	return err >= 0 && err < NR_ERRNOS && (e->bit[err / 64] >> err % 64 & 1);
}

static inline bool any_err(const struct errs *e)
{
	return e->bit[0] | e->bit[1] | e->bit[2];
}

static inline struct errs make_errs(const int *list)
{
	struct errs e = {};

	while (*list)
		add_err(&e, *list++);
	return e;
}

#define ERRS(...) make_errs((const int[]){ __VA_ARGS__, 0 })

/* One bug shows again and again: a process that met many has reported enough. */
#define MAX_BUGS	40

#define bug(...) do {							\
	if (__atomic_add_fetch(&shared->bugs, 1, __ATOMIC_RELAXED) > MAX_BUGS) \
		exit(0);						\
	printf("BUG: input %s: ", input_text(&now));			\
	printf(__VA_ARGS__);						\
	putchar('\n');							\
	fflush(stdout);							\
} while (0)

#define say(...) do {							\
	if (verbose) {							\
		printf("input %s: ", input_text(&now));			\
		printf(__VA_ARGS__);					\
		putchar('\n');						\
	}								\
} while (0)

static void count(enum target t, int err)
{
	if (err < 0 || err >= NR_ERRNOS)
		err = NR_ERRNOS - 1;
	__atomic_add_fetch(&shared->count[t][err], 1, __ATOMIC_RELAXED);
}

/* Counts an answer, and complains if it is none that there should be. True: it worked. */
static bool judge(enum target t, int err, const struct errs *must, const struct errs *may,
		  const char *what)
{
	count(t, err);
	say("%s: %s: %s", target_names[t], what, err ? strerrorname_np(err) : "ok");
	if ((has_err(may, err) || has_err(must, err)) && !(control && err == EFAULT))
		return false;
	if (err)
		bug("%s: %s: %s is not a documented outcome", target_names[t], what,
		    strerrorname_np(err));
	else if (any_err(must))
		bug("%s: %s: worked, though it is invalid", target_names[t], what);
	return !err;
}

/* Has a signal interrupt what blocks, again and again, every so many us; 0: no more. */
static void interrupt_every(unsigned int us)
{
	const struct timeval every = { (uint64_t)us * slow / 1000000,
				       (uint64_t)us * slow % 1000000 };
	const struct itimerval timer = { every, every };

	setitimer(ITIMER_REAL, &timer, NULL);
}

/* --- memory --------------------------------------------------------------- */

/* Memory with nothing after it; the same read-only. */
static unsigned char *arena, *frozen;

static void make_arena(void)
{
	int fd = memfd_create("arena", 0);

	if (fd < 0 || ftruncate(fd, ARENA))
		abort();
	arena = mmap(NULL, ARENA + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	frozen = mmap(NULL, ARENA + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED || frozen == MAP_FAILED ||
	    mmap(arena, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		    MAP_FAILED ||
	    mmap(frozen, ARENA, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		abort();
	close(fd);
}

/**
 * struct place - where to point the kernel at
 * @p: the address
 * @mine: where to reach it for writing; NULL if nothing is there
 * @avail: bytes there
 * @readonly: the kernel can read these only
 */
struct place {
	unsigned char *p;
	unsigned char *mine;
	size_t avail;
	bool readonly;
};

/* The last @avail bytes before the edge, or bytes well inside. */
static struct place place_at_edge(size_t avail)
{
	unsigned char *p = arena + ARENA - avail;

	return (struct place){ p, p, avail, false };
}

static struct place place_inside(size_t want)
{
	unsigned char *p = arena + 8 * below((ARENA - want - PAGE) / 8);

	return (struct place){ p, p, want, false };
}

/* A place for so many bytes, good or bad. */
static struct place make_place(size_t want, bool good)
{
	static const uint64_t nowhere[] = {
		0, 1, 4095, 0x7ffffffff000, 0x800000000000, 0xffff800000000000, 0xffff888000000000,
		0xffffea0000000000,
		0xffffffff81000000, 0xffffffffff600000, -4096UL, -8UL, -1UL,
	};
	struct place place;

	if (good)
		return one_in(4) ? place_at_edge(want) : place_inside(want);
	switch (below(4)) {
	case 0:
		return (struct place){ .p = (unsigned char *)PICK(nowhere) };
	case 1:
		place = place_inside(want);
		place.p = frozen + (place.mine - arena);
		place.readonly = true;
		return place;
	case 2:
		/* Not aligned: which is fine */
		place = place_inside(want + 8);
		place.p += 1 + below(7);
		place.mine = place.p;
		place.avail = want;
		return place;
	default:
		return place_at_edge(below(want));
	}
}

/* What must hold of bytes that the kernel had no business to write. */
static void expect_canary(const unsigned char *p, size_t len, const char *what)
{
	size_t i;

	for (i = 0; i < len; i++) {
		if (p[i] != CANARY) {
			bug("%s: byte %zu beyond was written", what, i);
			return;
		}
	}
}

#endif
