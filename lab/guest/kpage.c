// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kpage - derives ramslice's counters from /proc/kpageflags and kpagecount.
 *
 * A second opinion that shares no code with the kernel's own reading:
 *
 *   free		KPF_BUDDY (heads and tails of free blocks)
 *   lru_anon	KPF_LRU with KPF_SWAPBACKED
 *   lru_file	KPF_LRU without
 *   anon_mapped	mapped, KPF_ANON, not KPF_HUGE (hugetlb)
 *   file_mapped	mapped, neither KPF_ANON nor KPF_HUGE
 *   writeback	KPF_WRITEBACK
 *   huge		KPF_LRU in compound pages of a pageblock or more
 *
 * The others have no counterpart there: KPF_DIRTY is set on anonymous and
 * tmpfs pages too, and on pages of files that are never written back; no flag
 * says that a page is in the page cache, hence neither file nor shmem.
 *
 * The page flags take a while to read. So the kernel reads all slices
 * before and after, and all three must agree, slice by slice, in one of the
 * tries. Prints one line of JSON; the status is 1 if they never agreed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/kernel-page-flags.h>
#include <linux/ramslice.h>

#define CHUNK		16384
#define CONTROL_BYTES	(16UL << 20)
#define MAX_REPORTS	24

static const struct {
	enum ramslice_counter counter;
	const char *name;
} compared[] = {
	{ RAMSLICE_FREE, "free" },
	{ RAMSLICE_LRU_ANON, "lru_anon" },
	{ RAMSLICE_LRU_FILE, "lru_file" },
	{ RAMSLICE_ANON_MAPPED, "anon_mapped" },
	{ RAMSLICE_FILE_MAPPED, "file_mapped" },
	{ RAMSLICE_WRITEBACK, "writeback" },
	{ RAMSLICE_HUGE, "huge" },
};

#define NR_COMPARED	(sizeof(compared) / sizeof(compared[0]))

struct sums {
	uint32_t of[RAMSLICE_NR_COUNTERS];
};

static struct ramslice_info info;
static struct ramslice_slice_info *before, *after;
static struct sums *seen;	/* by slice number */
static uint32_t nr_ids;
static int device, flags_fd, count_fd;
static uint64_t flags[CHUNK], counts[CHUNK];
static char verdict[4096];

static void die(const char *what)
{
	fprintf(stderr, "kpage: %s: %s\n", what, strerror(errno));
	exit(2);
}

static int open_or_die(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		die(path);
	return fd;
}

/* Has the kernel read what changed, and compare it with the free lists. */
static void kernel_verify(const char *path)
{
	ssize_t len = -1;
	int try;

	for (try = 0; try < 20 && len < 0; try++) {
		int fd = open_or_die(path);

		len = read(fd, verdict, sizeof(verdict) - 1);
		if (len < 0 && errno != EBUSY)
			die(path);
		close(fd);
		if (len < 0)
			usleep(100000);
	}
	if (len < 0)
		die(path);
	verdict[len] = '\0';
	verdict[strcspn(verdict, "\n")] = '\0';
	if (strncmp(verdict, "true:", 5)) {
		fprintf(stderr, "kpage: the kernel's own recount says: %s\n", verdict);
		exit(1);
	}
}

static uint32_t snapshot(struct ramslice_slice_info *rows)
{
	struct ramslice_snapshot snap = {
		.size = sizeof(snap),
		.entry_size = sizeof(*rows),
		.nr = info.nr_slices,
		.slices = (uintptr_t)rows,
		.flags = RAMSLICE_SNAPSHOT_FRESH,
		.limit_ms = 600 * 1000,
	};

	if (ioctl(device, RAMSLICE_IOC_SNAPSHOT, &snap))
		die("RAMSLICE_IOC_SNAPSHOT");
	return snap.nr;
}

static bool has(uint64_t flag_word, unsigned int bit)
{
	return flag_word >> bit & 1;
}

static void count_page(struct sums *s, uint64_t f, uint64_t mapped)
{
	s->of[RAMSLICE_FREE] += has(f, KPF_BUDDY);
	s->of[RAMSLICE_WRITEBACK] += has(f, KPF_WRITEBACK);
	if (has(f, KPF_LRU))
		s->of[has(f, KPF_SWAPBACKED) ? RAMSLICE_LRU_ANON : RAMSLICE_LRU_FILE]++;
	if (mapped && !has(f, KPF_HUGE))
		s->of[has(f, KPF_ANON) ? RAMSLICE_ANON_MAPPED : RAMSLICE_FILE_MAPPED]++;
}

/* A compound page ends with its last tail; tells if it fills a pageblock. */
static void count_compound(struct sums *s, uint64_t head, uint64_t nr_pages)
{
	if (has(head, KPF_LRU) && nr_pages >= info.pageblock_bytes / info.page_bytes)
		s->of[RAMSLICE_HUGE] += nr_pages;
}

/* The slice that a page frame belongs to, as the header says how slices take turns. */
static uint64_t slice_of(uint64_t pfn)
{
	uint64_t address = pfn * info.page_bytes;
	uint64_t group = address / (info.slice_bytes * info.interleave_ways);
	uint64_t way = address / info.granularity_bytes % info.interleave_ways;

	return group * info.interleave_ways + way;
}

/* Walks all page frames once. Compound pages of interest fit into a slice. */
static uint64_t walk(void)
{
	uint64_t pfn = 0, head = 0, nr_tails = 0;
	struct sums *head_in = seen;

	memset(seen, 0, nr_ids * sizeof(*seen));
	for (;;) {
		ssize_t len = pread(flags_fd, flags, sizeof(flags), pfn * 8);
		size_t i, nr;

		if (len < 0)
			die("/proc/kpageflags");
		nr = len / 8;
		if (!nr)
			break;
		if (pread(count_fd, counts, len, pfn * 8) != len)
			die("/proc/kpagecount");
		for (i = 0; i < nr; i++, pfn++) {
			uint64_t f = flags[i];

			if (has(f, KPF_COMPOUND_TAIL)) {
				nr_tails++;
			} else {
				count_compound(head_in, head, nr_tails + 1);
				head = f;
				nr_tails = 0;
				if (slice_of(pfn) < nr_ids)
					head_in = &seen[slice_of(pfn)];
			}
			if (has(f, KPF_NOPAGE) || slice_of(pfn) >= nr_ids)
				continue;
			count_page(&seen[slice_of(pfn)], f, counts[i]);
		}
	}
	count_compound(head_in, head, nr_tails + 1);
	return pfn;
}

/* Number of counters that differ, printed as members of a JSON list. */
static unsigned int differences(uint32_t nr, bool print)
{
	unsigned int i, c, nr_differ = 0;

	for (i = 0; i < nr; i++) {
		uint32_t id = before[i].id;

		for (c = 0; c < NR_COMPARED; c++) {
			enum ramslice_counter k = compared[c].counter;
			uint32_t first = before[i].counters[k], last = after[i].counters[k];
			uint32_t own = id < nr_ids ? seen[id].of[k] : 0;

			if (id == after[i].id && first == own && last == own)
				continue;
			if (nr_differ++ < MAX_REPORTS && print)
				printf("%s{\"slice\": %u, \"counter\": \"%s\", "
				       "\"before\": %u, \"pages\": %u, \"after\": %u}",
				       nr_differ > 1 ? ", " : "", id, compared[c].name, first, own,
				       last);
		}
	}
	return nr_differ;
}

static void print_sums(uint32_t nr)
{
	unsigned int i, c;

	for (c = 0; c < NR_COMPARED; c++) {
		uint64_t sum = 0;

		for (i = 0; i < nr; i++)
			sum += before[i].id < nr_ids ? seen[before[i].id].of[compared[c].counter]
						     : 0;
		printf("%s\"%s\": %llu", c ? ", " : "", compared[c].name, (unsigned long long)sum);
	}
}

static void *array(size_t nr, size_t size)
{
	void *p = calloc(nr ? nr : 1, size);

	if (!p)
		die("calloc");
	return p;
}

static void set_up(void)
{
	info.size = sizeof(info);
	device = open_or_die("/dev/ramslice");
	flags_fd = open_or_die("/proc/kpageflags");
	count_fd = open_or_die("/proc/kpagecount");
	if (ioctl(device, RAMSLICE_IOC_INFO, &info))
		die("RAMSLICE_IOC_INFO");
	/* A kernel that knows nothing else than contiguous slices leaves zeros */
	if (!info.interleave_ways) {
		info.interleave_ways = 1;
		info.granularity_bytes = info.slice_bytes;
	}
	before = array(info.nr_slices, sizeof(*before));
	after = array(info.nr_slices, sizeof(*after));
	info.nr_slices = snapshot(before);
	nr_ids = info.nr_slices ? before[info.nr_slices - 1].id + 1 : 0;
	seen = array(nr_ids, sizeof(*seen));
	/* Our own page faults would be changes */
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		die("mlockall");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "tries", required_argument, NULL, 't' },
		{ "verify", required_argument, NULL, 'v' },
		{ "control", no_argument, NULL, 'c' },
		{ },
	};
	const char *verify = "/sys/kernel/debug/ramslice/verify";
	unsigned int nr_differ;
	int try = 0, tries = 8, c;
	bool control = false;
	uint64_t nr_pages = 0;
	uint32_t nr = 0;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 't') {
			tries = atoi(optarg);
		} else if (c == 'v') {
			verify = optarg;
		} else if (c == 'c') {
			control = true;
		} else {
			fputs("usage: kpage [--tries N] [--verify FILE] [--control]\n"
			      "  --control  changes memory meanwhile: must find differences\n",
			      stderr);
			return 2;
		}
	}
	set_up();
	do {
		try++;
		kernel_verify(verify);
		nr = snapshot(before);
		if (control) {
			char *p = mmap(NULL, CONTROL_BYTES, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

			if (p == MAP_FAILED)
				die("mmap");
		}
		nr_pages = walk();
		/* A slice that came or went is a difference, too */
		nr_differ = snapshot(after) == nr ? differences(nr, false) : 1;
	} while (nr_differ && try < tries);
	printf("{\"slices\": %u, \"pages\": %llu, \"tries\": %d, \"kernel\": \"%s\", "
	       "\"differ\": %u, \"differences\": [",
	       nr, (unsigned long long)nr_pages, try, verdict, nr_differ);
	differences(nr, true);
	printf("], \"sums\": {");
	print_sums(nr);
	puts("}}");
	return nr_differ ? 1 : 0;
}
