// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * readers - threads that read whole files, chosen at random.
 *
 *   readers make DIR FILES KIB
 *   readers expect FILES KIB THREADS READS SEED SHARE FEW
 *   readers read DIR FILES KIB THREADS READS SEED SHARE FEW [EVERY_MS]
 *
 * There are FILES files of KIB KiB. Each of the THREADS reads its part of READS
 * files: SHARE percent of the time one of FEW files, which are the same for all
 * threads, otherwise any. Every file that is read is checked. Prints a line of
 * JSON: seconds, files and bytes read, wrong files, and the sum of all words
 * read; `expect` prints the same without reading anything. With EVERY_MS, a line
 * "SECONDS FILES BYTES" is printed as often, and SIGTERM ends it early.
 * The status is 1 if a file was wrong, 2 if it could not run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "pattern.h"

#define MOST_THREADS	64
#define PATH_ROOM	4096

static struct {
	const char *dir;
	uint64_t files, kib, threads, reads, seed, share, few, every_ms;
	bool only_expect;
} opt;

static atomic_uint_fast64_t nr_read, nr_wrong, nr_ended;
static volatile sig_atomic_t stopped;

struct reader {
	pthread_t thread;
	uint64_t number, sum;
};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list words;

	fprintf(stderr, "readers: ");
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fprintf(stderr, "\n");
	exit(2);
}

static uint64_t number(const char *text, const char *name, uint64_t least)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (!*text || *end || value < least)
		die("%s is `%s`, and a number of %" PRIu64 " or more is needed", name, text, least);
	return value;
}

static uint64_t words_of_file(void)
{
	return opt.kib * 1024 / sizeof(uint64_t);
}

/* The first word of a file; each word is one more than the word before it. */
static uint64_t first_word(uint64_t file)
{
	return mix(file + 1);
}

static uint64_t sum_of_file(uint64_t file)
{
	uint64_t nr = words_of_file();

	return nr * first_word(file) + nr * (nr - 1) / 2;
}

static void path_of(char *path, uint64_t file)
{
	/* 100 files to a folder */
	snprintf(path, PATH_ROOM, "%s/%04" PRIu64 "/%02" PRIu64, opt.dir, file / 100, file % 100);
}

static void make_files(void)
{
	uint64_t nr = words_of_file(), file, i;
	ssize_t size = nr * sizeof(uint64_t);
	uint64_t *words = malloc(size);
	char path[PATH_ROOM];

	if (!words)
		die("a buffer of %" PRIu64 " KiB: %s", opt.kib, strerror(errno));
	for (file = 0; file < opt.files; file++) {
		int fd;

		path_of(path, file);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		for (i = 0; i < nr; i++)
			words[i] = first_word(file) + i;
		if (fd < 0 || write(fd, words, size) != size)
			die("%s: %s", path, strerror(errno));
		close(fd);
	}
	free(words);
}

/* The next file of a thread, by the state of its random numbers. */
static uint64_t choose(uint64_t *state)
{
	uint64_t toss = mix(*state += GOLDEN), which = mix(*state += GOLDEN);

	/* The few lie apart in the folders, as any others do */
	if (toss % 100 < opt.share)
		return which % opt.few * (opt.files / opt.few);
	return which % opt.files;
}

/* Reads a file; its sum, or one that is wrong. */
static uint64_t read_file(uint64_t file, uint64_t *words)
{
	uint64_t nr = words_of_file(), sum = 0, i;
	size_t done = 0, size = nr * sizeof(*words);
	char path[PATH_ROOM];
	int fd;

	path_of(path, file);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	while (done < size) {
		ssize_t got = read(fd, (char *)words + done, size - done);

		if (got < 0)
			die("%s: %s", path, strerror(errno));
		if (!got)
			break;
		done += got;
	}
	close(fd);
	for (i = 0; i < done / sizeof(*words); i++)
		sum += words[i];
	if (done != size || words[0] != first_word(file) || sum != sum_of_file(file)) {
		if (nr_wrong++ < 10)
			fprintf(stderr, "readers: %s is not what was written\n", path);
	}
	return sum;
}

static void *read_files(void *argument)
{
	struct reader *me = argument;
	uint64_t state = (opt.seed << 32) + (me->number << 24), nr, i;
	uint64_t *words = malloc(opt.kib * 1024);

	if (!words)
		die("a buffer of %" PRIu64 " KiB: %s", opt.kib, strerror(errno));
	nr = opt.reads / opt.threads + (me->number < opt.reads % opt.threads);
	for (i = 0; i < nr && !stopped; i++) {
		uint64_t file = choose(&state);

		me->sum += opt.only_expect ? sum_of_file(file) : read_file(file, words);
		nr_read++;
	}
	free(words);
	nr_ended++;
	return NULL;
}

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Prints how far they are, until all have ended. */
static void report(double began)
{
	struct timespec pause = { opt.every_ms / 1000, opt.every_ms % 1000 * 1000000 };

	while (nr_ended < opt.threads) {
		nanosleep(&pause, NULL);
		printf("%.6f %" PRIuFAST64 " %" PRIuFAST64 "\n", seconds() - began, nr_read,
		       nr_read * opt.kib * 1024);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	static struct reader readers[MOST_THREADS];
	uint64_t sum = 0, i;
	char **words = argv + 2;
	double began;

	if (argc == 5 && !strcmp(argv[1], "make")) {
		opt.dir = argv[2];
		opt.files = number(argv[3], "FILES", 1);
		opt.kib = number(argv[4], "KIB", 1);
		make_files();
		return 0;
	}
	opt.only_expect = argc == 9 && !strcmp(argv[1], "expect");
	if (!opt.only_expect) {
		if ((argc != 10 && argc != 11) || strcmp(argv[1], "read"))
			die("see the head of its source for what it is called with");
		opt.dir = *words++;
	}
	opt.files = number(words[0], "FILES", 1);
	opt.kib = number(words[1], "KIB", 1);
	opt.threads = number(words[2], "THREADS", 1);
	opt.reads = number(words[3], "READS", 1);
	opt.seed = number(words[4], "SEED", 0);
	opt.share = number(words[5], "SHARE", 0);
	opt.few = number(words[6], "FEW", 1);
	if (argc == 11)
		opt.every_ms = number(words[7], "EVERY_MS", 1);
	if (opt.threads > MOST_THREADS || opt.share > 100 || opt.few > opt.files)
		die("at most %d threads, 100 percent and as many few files as there are",
		    MOST_THREADS);
	signal(SIGTERM, stop);
	began = seconds();
	for (i = 0; i < opt.threads; i++) {
		readers[i].number = i;
		if (pthread_create(&readers[i].thread, NULL, read_files, &readers[i]))
			die("no thread: %s", strerror(errno));
	}
	if (opt.every_ms)
		report(began);
	for (i = 0; i < opt.threads; i++) {
		pthread_join(readers[i].thread, NULL);
		sum += readers[i].sum;
	}
	printf("{\"work_s\": %.9f, \"files\": %" PRIuFAST64 ", \"bytes\": %" PRIuFAST64
	       ", \"wrong\": %" PRIuFAST64 ", \"sum\": %" PRIu64 "}\n",
	       seconds() - began, nr_read, nr_read * opt.kib * 1024, nr_wrong, sum);
	return nr_wrong != 0;
}
