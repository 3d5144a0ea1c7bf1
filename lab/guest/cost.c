// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cost - what allocating memory page by page and running a program cost, in
 * ticks (ticks.h). Prints one line of JSON.
 *
 *   cost touch MB             maps MB and touches each page once; per page:
 *                             mean, the dearest one, and by how many ticks
 *                             all but one in ten thousand are cheaper
 *   cost run N PROGRAM...     runs a program N times, without its output; ticks
 *                             of each run, its own and the kernel's. PROGRAM
 *                             must end with 0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "ticks.h"

#define PAGE	4096UL
#define MIB	(1UL << 20)
/* A touch that costs more than this has its cost in the mean and the dearest */
#define COSTS	(1UL << 20)

extern char **environ;

static void touch(unsigned long mb)
{
	unsigned long nr = mb * MIB / PAGE, i, rest, cost, worst = 0;
	uint32_t *seen = calloc(COSTS, sizeof(*seen));
	uint64_t sum = 0;
	unsigned char *p = mmap(NULL, mb * MIB, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!seen || p == MAP_FAILED || madvise(p, mb * MIB, MADV_NOHUGEPAGE))
		die("memory");
	memset(seen, 0, COSTS * sizeof(*seen));
	for (i = 0; i < nr; i++) {
		uint64_t before = ticks();

		*(volatile unsigned char *)(p + i * PAGE) = 1;
		cost = ticks() - before;
		sum += cost;
		if (cost > worst)
			worst = cost;
		seen[cost < COSTS ? cost : COSTS - 1]++;
	}
	for (rest = nr / 10000, i = COSTS - 1; i && seen[i] <= rest; i--)
		rest -= seen[i];
	printf("{\"pages\": %lu, \"mean\": %.3f, \"most_but_1_in_10000\": %lu, \"worst\": %lu}\n",
	       nr, (double)sum / nr, i, worst);
}

static void run(unsigned long rounds, char **argv)
{
	posix_spawn_file_actions_t quiet;
	unsigned long round;

	if (posix_spawn_file_actions_init(&quiet) ||
	    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0) ||
	    posix_spawn_file_actions_adddup2(&quiet, 1, 2))
		die("memory");
	start_spinner();
	printf("{\"ticks\": [");
	for (round = 0; round < rounds; round++) {
		uint64_t idle, cost;
		int status;
		pid_t pid;

		fflush(stdout);
		start();
		errno = posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ);
		if (errno || waitpid(pid, &status, 0) != pid)
			die(argv[0]);
		cost = passed(&idle);
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "cost: %s failed, status %#x\n", argv[0], status);
			end_spinner();
			exit(1);
		}
		printf("%s%llu", round ? ", " : "", (unsigned long long)cost);
	}
	printf("]}\n");
	end_spinner();
}

int main(int argc, char **argv)
{
	unsigned long number = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

	if (number && argc == 3 && !strcmp(argv[1], "touch"))
		touch(number);
	else if (number && argc > 3 && !strcmp(argv[1], "run"))
		run(number, argv + 3);
	else {
		fprintf(stderr, "usage: cost touch MB | cost run N PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	return 0;
}
