// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * bench - measures what memory management costs, in ticks of the time stamp
 * counter. Under QEMU's -icount shift=0 a tick is an instruction.
 *
 * Commands come on stdin, one a line; each is answered by a line of JSON:
 *
 *   calibrate N          ticks of N rounds of a loop of two instructions
 *   fault THREADS MB N   N rounds of: each thread maps MB, touches every page,
 *                        unmaps; ticks per page and round
 *   fork MB N            N rounds of: fork with MB touched, child exits
 *   read PATH MB N       N rounds of: reads all of a file of MB that is in the page
 *                        cache, page by page; ticks per page
 *   fill MB              takes MB of memory, in small pages; each gets a mark
 *   punch SEED           frees half of it, in runs of 1 to 16 pages at random
 *   free                 frees all of it
 *   census PFN NR N      what N ranges of NR page frames hold: own pages, pages on
 *                        LRU lists, free ones, others
 *   snap                 remembers where each page is
 *   moved                pages that are elsewhere now, and that have a wrong mark
 *   offline ID, online ID, compact MAX, compact_dry MAX
 *                        requests to /dev/ramslice
 *   write PATH TEXT      writes a kernel file in one call
 *   soak PFN             takes all free huge pages from this page frame on
 *   unsoak               frees all that soak took
 *   walk ON              another thread reads all of the memory, on the last CPU
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
#include <linux/ramslice.h>
#include "access_marker.h"
#include "ticks.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE	23
#endif

#define PAGE		4096UL
#define HUGE		(2 * MIB)
#define MAX_THREADS	8
#define MAX_HUGE	2048
#define PM_PRESENT	(1ULL << 63)
#define PM_PFN		((1ULL << 55) - 1)
#define KPF_LRU		(1ULL << 5)
#define KPF_BUDDY	(1ULL << 10)
#define KPF_THP		(1ULL << 22)
#define MARK(i)		(0x51ce000000000000ULL | (i))

static unsigned char *mem;
static size_t nr_pages;
static unsigned char *kept;
static uint64_t *places;

/* Ends the line of JSON with what passed since start(). */
static void finish(void)
{
	uint64_t idle, total = passed(&idle);

	printf("\"ticks\": %lld, \"idle\": %llu}\n",
	       (long long)total, (unsigned long long)idle);
}

/* --- loops ------------------------------------------------------------------ */

/* As a plugin of QEMU that counts what is executed knows them; without one, a store. */
enum loop { LOOP_FAULT = 1, LOOP_READ };

static void calibrate(unsigned long rounds)
{
	uint64_t began_at = ticks(), tsc;
	struct timespec a, b;
	unsigned long n = rounds;

	clock_gettime(CLOCK_MONOTONIC, &a);
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r" (n));
	clock_gettime(CLOCK_MONOTONIC, &b);
	tsc = ticks() - began_at;
	printf("{\"instructions\": %lu, \"ticks\": %llu, \"ns\": %lld}\n", 2 * rounds,
	       (unsigned long long)tsc,
	       (b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec);
}

static struct {
	unsigned long bytes;
	unsigned long rounds;
	pthread_barrier_t barrier;
} faults;

static void pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static void touch_and_unmap(void)
{
	unsigned char *p = mmap(NULL, faults.bytes, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long at;

	if (p == MAP_FAILED)
		die("mmap");
	if (madvise(p, faults.bytes, MADV_NOHUGEPAGE))
		die("madvise");
	for (at = 0; at < faults.bytes; at += PAGE)
		*(volatile unsigned char *)(p + at) = 1;
	if (munmap(p, faults.bytes))
		die("munmap");
}

static void *toucher(void *cpu)
{
	unsigned long round;

	pin((uintptr_t)cpu);
	for (round = 0; round < faults.rounds; round++) {
		pthread_barrier_wait(&faults.barrier);
		touch_and_unmap();
		pthread_barrier_wait(&faults.barrier);
	}
	return NULL;
}

/* Ticks of all CPUs: with -icount, one virtual clock counts what each executes. */
static void fault(unsigned int nr_threads, unsigned long mb, unsigned long rounds)
{
	pthread_t threads[MAX_THREADS];
	unsigned long round;
	unsigned int i;

	if (!nr_threads || nr_threads > MAX_THREADS)
		nr_threads = 1;
	faults.bytes = mb * MIB;
	faults.rounds = rounds;
	if (pthread_barrier_init(&faults.barrier, NULL, nr_threads))
		die("barrier");
	pin(0);
	for (i = 1; i < nr_threads; i++)
		if (pthread_create(&threads[i], NULL, toucher, (void *)(uintptr_t)i))
			die("thread");
	printf("{\"per_page\": [");
	mark(MARKER_BEGIN, 0);
	for (round = 0; round < rounds; round++) {
		uint64_t before;

		pthread_barrier_wait(&faults.barrier);
		before = ticks();
		touch_and_unmap();
		pthread_barrier_wait(&faults.barrier);
		printf("%s%.3f", round ? ", " : "", (double)(ticks() - before) /
		       (nr_threads * (faults.bytes / PAGE)));
	}
	mark(MARKER_END, LOOP_FAULT);
	printf("]}\n");
	for (i = 1; i < nr_threads; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&faults.barrier);
}

static void fork_exit(unsigned long mb, unsigned long rounds)
{
	unsigned char *p = mmap(NULL, mb * MIB, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long at, round;

	if (p == MAP_FAILED || madvise(p, mb * MIB, MADV_NOHUGEPAGE))
		die("mmap");
	for (at = 0; at < mb * MIB; at += PAGE)
		*(volatile unsigned char *)(p + at) = 1;
	printf("{\"per_fork\": [");
	fflush(stdout);
	for (round = 0; round < rounds; round++) {
		uint64_t before = ticks();
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid)
			_exit(0);
		if (waitpid(pid, NULL, 0) != pid)
			die("waitpid");
		printf("%s%llu", round ? ", " : "",
		       (unsigned long long)(ticks() - before));
	}
	printf("]}\n");
	munmap(p, mb * MIB);
}

static void read_file(const char *path, unsigned long mb, unsigned long rounds)
{
	static unsigned char page[PAGE];
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	unsigned long at, round;

	if (fd < 0)
		die(path);
	for (at = 0; at < mb * MIB; at += PAGE)
		if (pwrite(fd, page, PAGE, at) != PAGE)
			die("pwrite");
	printf("{\"per_page\": [");
	mark(MARKER_BEGIN, 0);
	for (round = 0; round < rounds; round++) {
		uint64_t before = ticks();

		for (at = 0; at < mb * MIB; at += PAGE)
			if (pread(fd, page, PAGE, at) != PAGE)
				die("pread");
		printf("%s%.1f", round ? ", " : "",
		       (double)(ticks() - before) / (mb * MIB / PAGE));
	}
	mark(MARKER_END, LOOP_READ);
	printf("]}\n");
	close(fd);
}

/* --- memory to be moved ---------------------------------------------------- */

static uint64_t random_state;

static uint64_t random64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void release(void)
{
	if (!mem)
		return;
	munmap(mem, nr_pages * PAGE);
	free(kept);
	free(places);
	mem = NULL;
}

static void split(void)
{
	FILE *file = fopen("/sys/kernel/debug/split_huge_pages", "w");

	if (!file)
		die("split_huge_pages");
	fprintf(file, "%d,%p,%p", getpid(), (void *)mem, (void *)(mem + nr_pages * PAGE));
	if (fclose(file))
		die("split_huge_pages");
}

static void fill(unsigned long mb)
{
	size_t i;

	release();
	nr_pages = mb * MIB / PAGE;
	mem = mmap(NULL, nr_pages * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	kept = malloc(nr_pages);
	places = calloc(nr_pages, sizeof(*places));
	if (mem == MAP_FAILED || !kept || !places)
		die("memory");
	/* Taking huge pages and splitting them is several times faster */
	if (madvise(mem, nr_pages * PAGE, MADV_HUGEPAGE) ||
	    madvise(mem, nr_pages * PAGE, MADV_POPULATE_WRITE) ||
	    madvise(mem, nr_pages * PAGE, MADV_NOHUGEPAGE))
		die("populate");
	split();
	memset(kept, 1, nr_pages);
	for (i = 0; i < nr_pages; i++)
		*(uint64_t *)(mem + i * PAGE) = MARK(i);
	printf("{\"pages\": %zu}\n", nr_pages);
}

static void punch(uint64_t seed)
{
	size_t i, first, nr = 0;
	bool on = false;

	random_state = seed * 0x9e3779b97f4a7c15ULL + 1;
	for (i = 0; i < nr_pages; i = first)
		for (first = i + 1 + random64() % 16, on = !on; i < first && i < nr_pages; i++)
			kept[i] = on;
	for (i = 0; i < nr_pages; i = first) {
		for (first = i; first < nr_pages && kept[first] == kept[i]; first++)
			;
		if (kept[i])
			nr += first - i;
		else if (madvise(mem + i * PAGE, (first - i) * PAGE, MADV_DONTNEED))
			die("madvise");
	}
	printf("{\"pages\": %zu}\n", nr);
}

static void read_at(const char *path, void *to, size_t nr, size_t from)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t done = 0, bytes = nr * 8;

	if (fd < 0)
		die(path);
	while (done < bytes) {
		ssize_t n = pread(fd, (char *)to + done, bytes - done, from * 8 + done);

		if (n <= 0)
			die(path);
		done += n;
	}
	close(fd);
}

static uint64_t *locate(void)
{
	uint64_t *pfns = malloc(nr_pages * sizeof(*pfns));
	size_t i;

	if (!pfns)
		die("memory");
	read_at("/proc/self/pagemap", pfns, nr_pages, (uintptr_t)mem / PAGE);
	for (i = 0; i < nr_pages; i++)
		pfns[i] = pfns[i] & PM_PRESENT ? pfns[i] & PM_PFN : 0;
	return pfns;
}

/* What ranges of page frames hold, one after the other. */
static void census(uint64_t pfn, size_t nr, size_t ranges)
{
	uint64_t *flags = malloc(nr * sizeof(*flags)), *pfns = locate();
	size_t *own = calloc(ranges, sizeof(*own)), i, range;

	if (!flags || !own)
		die("memory");
	for (i = 0; i < nr_pages; i++)
		if (pfns[i] >= pfn && (pfns[i] - pfn) / nr < ranges)
			own[(pfns[i] - pfn) / nr]++;
	printf("[");
	for (range = 0; range < ranges; range++) {
		size_t lru = 0, idle = 0, thp = 0;

		read_at("/proc/kpageflags", flags, nr, pfn + range * nr);
		for (i = 0; i < nr; i++) {
			lru += !!(flags[i] & KPF_LRU);
			idle += !!(flags[i] & KPF_BUDDY);
			thp += !!(flags[i] & KPF_THP);
		}
		printf("%s{\"pfn\": %zu, \"own\": %zu, \"lru\": %zu, \"free\": %zu, "
		       "\"huge\": %zu, \"rest\": %zd}",
		       range ? ", " : "", (size_t)pfn + range * nr, own[range], lru, idle, thp,
		       (ssize_t)(nr - lru - idle));
	}
	printf("]\n");
	free(flags);
	free(own);
	free(pfns);
}

static void snap(void)
{
	free(places);
	places = locate();
	printf("{}\n");
}

static void moved(void)
{
	uint64_t *pfns = locate();
	size_t i, nr = 0, wrong = 0;

	for (i = 0; i < nr_pages; i++) {
		nr += pfns[i] != places[i];
		wrong += kept[i] && *(volatile uint64_t *)(mem + i * PAGE) != MARK(i);
	}
	printf("{\"moved\": %zu, \"wrong\": %zu}\n", nr, wrong);
	free(pfns);
}

/* --- requests --------------------------------------------------------------- */

static void request(unsigned int op, unsigned int id, unsigned int most, unsigned int flags)
{
	struct ramslice_request req = {
		.size = sizeof(req), .op = op, .id = id, .node = RAMSLICE_ANY, .zone = RAMSLICE_ANY,
		.flags = flags,
		.budget = RAMSLICE_UNLIMITED, .max_slices = most,
	};
	int fd = open("/dev/ramslice", O_RDWR | O_CLOEXEC), err;

	if (fd < 0)
		die("/dev/ramslice");
	start();
	err = ioctl(fd, RAMSLICE_IOC_REQUEST, &req) ? errno : (int)req.status;
	printf("{\"error\": %d, \"reason\": %u, \"done\": %u, \"migrated\": %llu, "
	       "\"dropped\": %llu, \"elapsed_ns\": %llu, ",
	       err, req.reason, req.nr_done, req.pages_migrated, req.pages_dropped, req.elapsed_ns);
	finish();
	close(fd);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err;

	if (fd < 0)
		die(path);
	start();
	err = write(fd, text, strlen(text)) < 0 ? errno : 0;
	printf("{\"error\": %d, ", err);
	finish();
	close(fd);
}

static unsigned char *huge_map[MAX_HUGE];
static unsigned int nr_huge;

/* Touches a huge page; its page frame, or 0 if it became a small one. */
static uint64_t touch_huge(void)
{
	unsigned char *map = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *p = (unsigned char *)(((uintptr_t)map + HUGE - 1) & ~(HUGE - 1));
	uint64_t entries[2];

	if (map == MAP_FAILED || madvise(p, HUGE, MADV_HUGEPAGE))
		die("huge");
	*(volatile unsigned char *)p = 1;
	read_at("/proc/self/pagemap", entries, 2, (uintptr_t)p / PAGE);
	huge_map[nr_huge++] = map;
	return entries[1] & PM_PRESENT ? entries[0] & PM_PFN : 0;
}

static void unsoak(void)
{
	unsigned int nr = nr_huge;

	while (nr_huge)
		munmap(huge_map[--nr_huge], 2 * HUGE);
	printf("{\"huge\": %u}\n", nr);
}

/* Takes all huge pages there are from this page frame on. */
static void soak(uint64_t pfn)
{
	uint64_t found;

	do {
		found = touch_huge();
	} while (found >= pfn && nr_huge < MAX_HUGE - 1);
	printf("{\"huge\": %u}\n", nr_huge);
}

static atomic_bool walking;
static atomic_ulong walks;
static pthread_t walker;

static void *walk(void *unused)
{
	(void)unused;
	pin(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	while (atomic_load(&walking)) {
		size_t i;

		for (i = 0; i < nr_pages; i++)
			if (kept[i])
				(void)*(volatile unsigned char *)(mem + i * PAGE);
		atomic_fetch_add(&walks, 1);
	}
	return NULL;
}

static void set_walking(bool on)
{
	if (on == atomic_load(&walking)) {
		printf("{}\n");
		return;
	}
	atomic_store(&walking, on);
	if (on) {
		atomic_store(&walks, 0);
		if (pthread_create(&walker, NULL, walk, NULL))
			die("thread");
		pin(0);
		while (!atomic_load(&walks))
			usleep(1000);
	} else {
		pthread_join(walker, NULL);
	}
	printf("{\"walks\": %lu}\n", atomic_load(&walks));
}

int main(int argc, char **argv)
{
	char line[512], word[32], text[256], path[256];
	unsigned long a, b, c;

	(void)argv;
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	if (argc == 1)
		start_spinner();
	while (fgets(line, sizeof(line), stdin)) {
		a = b = c = 0;
		if (sscanf(line, "%31s", word) != 1)
			continue;
		sscanf(line, "%*s %lu %lu %lu", &a, &b, &c);
		if (!strcmp(word, "calibrate"))
			calibrate(a);
		else if (!strcmp(word, "fault"))
			fault(a, b, c);
		else if (!strcmp(word, "fork"))
			fork_exit(a, b);
		else if (!strcmp(word, "read") &&
			 sscanf(line, "%*s %255s %lu %lu", path, &a, &b) == 3)
			read_file(path, a, b);
		else if (!strcmp(word, "fill"))
			fill(a);
		else if (!strcmp(word, "punch"))
			punch(a);
		else if (!strcmp(word, "free")) {
			release();
			printf("{}\n");
		} else if (!strcmp(word, "census"))
			census(a, b, c);
		else if (!strcmp(word, "snap"))
			snap();
		else if (!strcmp(word, "moved"))
			moved();
		else if (!strcmp(word, "offline"))
			request(RAMSLICE_OP_OFFLINE, a, 1, RAMSLICE_REQ_IGNORE_BACKOFF);
		else if (!strcmp(word, "online"))
			request(RAMSLICE_OP_ONLINE, a, 1, 0);
		else if (!strcmp(word, "compact"))
			request(RAMSLICE_OP_COMPACT, 0, a, RAMSLICE_REQ_IGNORE_BACKOFF);
		else if (!strcmp(word, "compact_dry"))
			request(RAMSLICE_OP_COMPACT, 0, a, RAMSLICE_REQ_DRY_RUN);
		else if (!strcmp(word, "write") && sscanf(line, "%*s %255s %255s", path, text) == 2)
			write_file(path, text);
		else if (!strcmp(word, "soak"))
			soak(a);
		else if (!strcmp(word, "unsoak"))
			unsoak();
		else if (!strcmp(word, "walk"))
			set_walking(a);
		else
			printf("{\"unknown\": true}\n");
		fflush(stdout);
	}
	end_spinner();
	return 0;
}
