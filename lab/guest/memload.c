// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * memload - a workload that knows what every byte of its memory must be.
 *
 * Rounds check all pages, rewrite some, and stir the area in the way that the
 * mode is about: give pages back, swap them out, punch holes, share them with
 * children. The last line of output is JSON; the status is 1 if any word was
 * wrong, 2 if the workload could not run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "pattern.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED	24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif
#define MAP_COLD	0x200000

#define HUGE_PAGES	512UL
#define MAX_REPORTS	10
#define CHILDREN	2

enum mode { ANON, ANON_THP, FILE_CACHE, SHMEM, MLOCK, FORK, SWAP, NR_MODES };

static const char * const mode_names[NR_MODES] = {
	"anon", "anon-thp", "file", "shmem", "mlock", "fork", "swap",
};

static struct {
	enum mode mode;
	size_t mb;
	double seconds;
	unsigned int pause_ms;
	uint64_t seed;
	const char *dir;
	bool announce;
	bool cold;
	bool collapse;
	bool damage;
} opt = { .mode = NR_MODES, .mb = 64, .seconds = 10, .seed = 1, .dir = "." };

/**
 * struct area - the memory under test
 * @mem: where it is mapped
 * @nr: pages
 * @gen: generation of each page
 * @fd: the file behind it, or -1
 */
static struct area {
	unsigned char *mem;
	size_t nr;
	uint32_t *gen;
	int fd;
} area = { .fd = -1 };

static volatile sig_atomic_t stopped;
static struct timespec began;
static uint64_t errors, checked, collapsed;
static uint64_t rng_state;

static void die(const char *what)
{
	fprintf(stderr, "memload: %s: %s: %s\n", mode_names[opt.mode], what, strerror(errno));
	exit(2);
}

static uint64_t rng(void)
{
	rng_state += GOLDEN;
	return mix(rng_state);
}

static size_t below(size_t n)
{
	return rng() % n;
}

static void check(const void *from, size_t page)
{
	struct pattern p = pattern_of(opt.seed, page, area.gen[page]);

	checked++;
	errors += pattern_check(from, p, mode_names[opt.mode], page, errors < MAX_REPORTS ? 4 : 0);
}

/* Writes a page's next generation to wherever it is mapped or staged. */
static void renew(void *to, size_t page)
{
	pattern_fill(to, pattern_of(opt.seed, page, ++area.gen[page]));
}

static double elapsed(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - began.tv_sec + (now.tv_nsec - began.tv_nsec) / 1e9;
}

static bool finished(void)
{
	return stopped || (opt.seconds > 0 && elapsed() > opt.seconds);
}

static unsigned char *at(size_t page)
{
	return area.mem + page * PAGE;
}

/* A random range of at most 1/@part of the area. */
static size_t pick_range(size_t part, size_t *nr)
{
	*nr = 1 + below(area.nr / part);
	return below(area.nr - *nr);
}

/* Checks every page, and rewrites one in @one_in of them if that is not 0. */
static void sweep(size_t one_in)
{
	size_t page;

	for (page = 0; page < area.nr; page++) {
		check(at(page), page);
		if (one_in && !below(one_in))
			renew(at(page), page);
		if (one_in && page % 256 == 0 && finished())
			return;
	}
}

static void forget(size_t start, size_t nr)
{
	memset(&area.gen[start], 0, nr * sizeof(*area.gen));
}

/* --- setting up ---------------------------------------------------------- */

static void map_area(int flags)
{
	/* Room to begin at a huge page's boundary */
	size_t bytes = area.nr * PAGE, huge = HUGE_PAGES * PAGE;
	unsigned char *hint;

	hint = mmap(NULL, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		    0);
	if (hint == MAP_FAILED)
		die("mmap");
	hint = (unsigned char *)(((uintptr_t)hint + huge - 1) & ~(huge - 1));
	if (opt.cold)
		flags |= MAP_COLD;
	area.mem = mmap(hint, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, area.fd, 0);
	if (area.mem == MAP_FAILED)
		die("mmap");
}

static void open_file(void)
{
	char *path;

	if (asprintf(&path, "%s/memload.%d", opt.dir, (int)getpid()) < 0)
		die("asprintf");
	area.fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (area.fd < 0)
		die(path);
	/* It goes with the process, however that ends */
	unlink(path);
	free(path);
}

static void set_up(void)
{
	size_t page;

	area.nr = opt.mb << 8;
	area.gen = calloc(area.nr, sizeof(*area.gen));
	if (!area.gen)
		die("calloc");

	if (opt.mode == FILE_CACHE)
		open_file();
	if (opt.mode == SHMEM)
		area.fd = memfd_create("memload", 0);
	if (area.fd >= 0) {
		if (ftruncate(area.fd, area.nr * PAGE))
			die("ftruncate");
		map_area(MAP_SHARED);
	} else {
		map_area(MAP_PRIVATE | MAP_ANONYMOUS);
	}
	if (opt.mode == ANON_THP)
		madvise(area.mem, area.nr * PAGE, MADV_HUGEPAGE);
	else if (opt.mode != SHMEM && opt.mode != FILE_CACHE)
		madvise(area.mem, area.nr * PAGE, MADV_NOHUGEPAGE);
	for (page = 0; page < area.nr; page++)
		renew(at(page), page);
	if (opt.mode == MLOCK && mlock(area.mem, area.nr * PAGE))
		die("mlock");
}

/* --- what each mode does between two sweeps ------------------------------ */

static void collapse(void)
{
	size_t page;

	for (page = 0; page + HUGE_PAGES <= area.nr && !finished(); page += HUGE_PAGES) {
		if (!madvise(at(page), HUGE_PAGES * PAGE, MADV_COLLAPSE))
			collapsed++;
	}
}

/* Gives pages back to the kernel: from now on they read as zeroes. */
static void give_back(size_t start, size_t nr)
{
	int advice = opt.mode == MLOCK ? MADV_DONTNEED_LOCKED : MADV_DONTNEED;

	if (madvise(at(start), nr * PAGE, advice))
		die("MADV_DONTNEED");
	forget(start, nr);
}

static void stir_anon(void)
{
	size_t nr, start = pick_range(8, &nr);

	give_back(start, nr);
}

/* Single pages given back split huge ones, later faults may build new ones. */
static void stir_thp(void)
{
	size_t i;

	for (i = 0; i < area.nr / HUGE_PAGES / 4; i++)
		give_back(below(area.nr), 1);
	stir_anon();
}

static void check_by_read(size_t start, size_t nr)
{
	static uint64_t buffer[WORDS];
	size_t page;

	for (page = start; page < start + nr; page++) {
		if (pread(area.fd, buffer, PAGE, page * PAGE) != (ssize_t)PAGE)
			die("pread");
		check(buffer, page);
	}
}

static void write_some(size_t nr)
{
	static uint64_t buffer[WORDS];

	while (nr--) {
		size_t page = below(area.nr);

		renew(buffer, page);
		if (pwrite(area.fd, buffer, PAGE, page * PAGE) != (ssize_t)PAGE)
			die("pwrite");
	}
}

/* Clean cache is dropped and read again; holes and cut ends read as zeroes. */
static void stir_file(void)
{
	size_t nr, start = pick_range(4, &nr);

	check_by_read(start, nr);
	write_some(64);
	switch (below(4)) {
	case 0:
		start = pick_range(16, &nr);
		if (fallocate(area.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start * PAGE,
			      nr * PAGE))
			die("punching a hole");
		forget(start, nr);
		break;
	case 1:
		nr = 1 + below(area.nr / 16);
		if (ftruncate(area.fd, (area.nr - nr) * PAGE) || ftruncate(area.fd, area.nr * PAGE))
			die("ftruncate");
		forget(area.nr - nr, nr);
		break;
	case 2:
		if (fdatasync(area.fd))
			die("fdatasync");
		start = pick_range(2, &nr);
		/* Mapped pages stay in the cache */
		madvise(at(start), nr * PAGE, MADV_DONTNEED);
		posix_fadvise(area.fd, start * PAGE, nr * PAGE, POSIX_FADV_DONTNEED);
		check_by_read(start, nr);
		break;
	}
}

static void stir_mlock(void)
{
	size_t nr, start = pick_range(4, &nr);

	munlock(at(start), nr * PAGE);
	stir_anon();
	if (mlock(at(start), nr * PAGE))
		die("mlock");
}

static void stir_swap(void)
{
	size_t nr, start = pick_range(2, &nr);

	/* Some of it may stay: swap space ends */
	madvise(at(start), nr * PAGE, MADV_PAGEOUT);
}

/* Children check what they share with us and write to copies of some of it. */
static _Noreturn void be_child(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	errors = 0;
	rng_state ^= (uint64_t)getpid() << 32;
	sweep(8);
	usleep(100000);
	sweep(0);
	_exit(errors ? 1 : 0);
}

static void stir_fork(void)
{
	int i, nr = 0, status;

	fflush(NULL);
	for (i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		if (!pid)
			be_child();
		nr += pid > 0;
	}
	sweep(8);
	while (nr) {
		if (wait(&status) < 0 && errno == EINTR)
			continue;
		nr--;
		if (status) {
			fprintf(stderr, "memload: fork: a child ended with status 0x%x\n", status);
			errors++;
		}
	}
}

static void stir(void)
{
	switch (opt.mode) {
	case ANON:
		stir_anon();
		break;
	case ANON_THP:
		stir_thp();
		break;
	case FILE_CACHE:
	case SHMEM:
		stir_file();
		break;
	case MLOCK:
		stir_mlock();
		break;
	case FORK:
		stir_fork();
		break;
	case SWAP:
		stir_swap();
		break;
	default:
		break;
	}
	if (opt.collapse)
		collapse();
}

/* --- the program --------------------------------------------------------- */

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

static _Noreturn void usage(void)
{
	fputs("usage: memload --mode MODE [--mb N] [--seconds S] [--seed N] [--dir DIR]\n"
	      "               [--pause-ms N] [--cold] [--collapse] [--announce] [--damage]\n"
	      "  MODE: anon, anon-thp, file, shmem, mlock, fork, swap\n"
	      "  --seconds 0   until SIGTERM\n"
	      "  --dir         where mode file keeps its file (default .)\n"
	      "  --pause-ms    rest between two rounds\n"
	      "  --cold        memory that asks for cold memory, by MAP_COLD\n"
	      "  --collapse    MADV_COLLAPSE all of it in each round\n"
	      "  --announce    print \"ready\" once everything has been written, \"round\"\n"
	      "                after the first round\n"
	      "  --damage      change one bit at the end, which must be found\n", stderr);
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "mode", required_argument, NULL, 'm' },
		{ "mb", required_argument, NULL, 'b' },
		{ "seconds", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'r' },
		{ "dir", required_argument, NULL, 'd' },
		{ "pause-ms", required_argument, NULL, 'p' },
		{ "cold", no_argument, NULL, 'o' },
		{ "collapse", no_argument, NULL, 'c' },
		{ "announce", no_argument, NULL, 'a' },
		{ "damage", no_argument, NULL, 'x' },
		{ },
	};
	int c, i;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'm':
			for (i = 0; i < NR_MODES; i++) {
				if (!strcmp(optarg, mode_names[i]))
					opt.mode = i;
			}
			break;
		case 'b':
			opt.mb = strtoul(optarg, NULL, 0);
			break;
		case 's':
			opt.seconds = strtod(optarg, NULL);
			break;
		case 'r':
			opt.seed = strtoull(optarg, NULL, 0);
			break;
		case 'd':
			opt.dir = optarg;
			break;
		case 'p':
			opt.pause_ms = strtoul(optarg, NULL, 0);
			break;
		case 'o':
			opt.cold = true;
			break;
		case 'c':
			opt.collapse = true;
			break;
		case 'a':
			opt.announce = true;
			break;
		case 'x':
			opt.damage = true;
			break;
		default:
			usage();
		}
	}
	if (opt.mode == NR_MODES || opt.mb < 4 || optind != argc)
		usage();
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_signal };
	unsigned long rounds = 0;

	parse(argc, argv);
	rng_state = opt.seed;
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	clock_gettime(CLOCK_MONOTONIC, &began);

	set_up();
	if (opt.announce) {
		puts("ready");
		fflush(stdout);
	}
	while (!finished()) {
		sweep(4);
		stir();
		if (!rounds++ && opt.announce) {
			puts("round");
			fflush(stdout);
		}
		if (opt.pause_ms && !finished())
			usleep(opt.pause_ms * 1000);
	}
	if (opt.damage)
		at(area.nr / 2)[123] ^= 4;
	sweep(0);

	printf("{\"mode\": \"%s\", \"mb\": %zu, \"seed\": %" PRIu64
	       ", \"rounds\": %lu, \"pages_checked\": %" PRIu64 ", \"collapsed\": %" PRIu64
	       ", \"errors\": %" PRIu64 "}\n",
	       mode_names[opt.mode], opt.mb, opt.seed, rounds, checked, collapsed, errors);
	return errors ? 1 : 0;
}
