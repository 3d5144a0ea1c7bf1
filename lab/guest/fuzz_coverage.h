/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which code of the kernel an input reaches, and the inputs that reached more
 * than all before them: these are kept, and others are made from them.
 *
 * An edge is a pair of instrumented places that a task passed one after the
 * other. Pairs say more than places: the loop that ends at its first step, and
 * the error that is met before and after a lock is taken, are told apart. What
 * other tasks and interrupts run meanwhile is not seen (linux/kcov.h).
 */
#ifndef FUZZ_COVERAGE_H
#define FUZZ_COVERAGE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/kcov.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fuzz_input.h"

#define KCOV_FILE	"/sys/kernel/debug/kcov"
/* Places that one input can pass until the rest is not seen: a request looks at many pages. */
#define MAX_TRACE	(1U << 21)
/* A power of two, several times what there are. */
#define MAX_EDGES	(1U << 17)
#define MAX_KEPT	4096

/* What all processes have found. */
struct coverage {
	/* Both places, as the low halves of their addresses; 0: free. */
	uint64_t edge[MAX_EDGES];
	/* In the order of their discovery */
	uint64_t order[MAX_EDGES];
	uint32_t nr_edges;
	/* Of these were known when the run began. */
	uint32_t nr_known_edges;
	uint32_t nr_kept;
	uint32_t nr_known;
	/* Inputs of which not everything was seen. */
	uint32_t nr_cut;
	bool keeping;
	struct input kept[MAX_KEPT];
};

static struct coverage *coverage;
/* Written by the kernel: how many places, and these. */
static unsigned long *trace;

static void coverage_init(void)
{
	coverage = mmap(NULL, sizeof(*coverage), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (coverage == MAP_FAILED)
		exit(2);
}

/* Has the kernel trace this task from now on. */
static void trace_task(void)
{
	int fd = open(KCOV_FILE, O_RDWR | O_CLOEXEC);

	if (fd >= 0 && !ioctl(fd, KCOV_INIT_TRACE, MAX_TRACE))
		trace = mmap(NULL, MAX_TRACE * sizeof(*trace), PROT_READ | PROT_WRITE, MAP_SHARED,
			     fd, 0);
	if (!trace || trace == MAP_FAILED || ioctl(fd, KCOV_ENABLE, KCOV_TRACE_PC)) {
		perror("fuzz: " KCOV_FILE);
		exit(2);
	}
}

/* True: no process has found it before. */
static bool add_edge(uint64_t edge)
{
	uint32_t at = mix(edge) % MAX_EDGES;

	for (;;) {
		uint64_t there = __atomic_load_n(&coverage->edge[at], __ATOMIC_RELAXED);

		if (there == edge)
			return false;
		if (!there && __atomic_compare_exchange_n(&coverage->edge[at], &there, edge, false,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			break;
		/* Another process may have taken it for the same edge */
		if (there == edge)
			return false;
		at = (at + 1) % MAX_EDGES;
	}
	at = __atomic_fetch_add(&coverage->nr_edges, 1, __ATOMIC_RELAXED);
	if (at > MAX_EDGES / 2) {
		fprintf(stderr, "fuzz: more than %u edges\n", MAX_EDGES / 2);
		exit(2);
	}
	coverage->order[at] = edge;
	return true;
}

static void trace_begin(void)
{
	__atomic_store_n(&trace[0], 0, __ATOMIC_RELAXED);
}

/* Ends the trace of an input; returns how many edges are new. */
static unsigned int trace_end(void)
{
	unsigned long nr = __atomic_load_n(&trace[0], __ATOMIC_RELAXED), i;
	unsigned int nr_new = 0;
	uint32_t last = 0;

	for (i = 1; i <= nr; i++) {
		nr_new += add_edge((uint64_t)last << 32 | (uint32_t)trace[i]);
		last = trace[i];
	}
	if (nr == MAX_TRACE - 1)
		__atomic_add_fetch(&coverage->nr_cut, 1, __ATOMIC_RELAXED);
	return nr_new;
}

/* --- the inputs that are kept --------------------------------------------- */

/* False: there is no room. */
static bool keep_input(const struct input *input)
{
	bool room;

	while (__atomic_test_and_set(&coverage->keeping, __ATOMIC_ACQUIRE))
		usleep(10);
	room = coverage->nr_kept < MAX_KEPT;
	if (room) {
		coverage->kept[coverage->nr_kept] = *input;
		__atomic_store_n(&coverage->nr_kept, coverage->nr_kept + 1, __ATOMIC_RELEASE);
	}
	__atomic_clear(&coverage->keeping, __ATOMIC_RELEASE);
	return room;
}

/* Puts a step where its position belongs, in place of one there. False: there is no room. */
static bool add_step(struct input *input, struct step step)
{
	uint32_t i = 0, behind;

	while (i < input->nr_steps && input->step[i].at < step.at)
		i++;
	if (i < input->nr_steps && input->step[i].at == step.at) {
		input->step[i] = step;
		return true;
	}
	if (input->nr_steps == MAX_STEPS)
		return false;
	behind = input->nr_steps++ - i;
	memmove(&input->step[i + 1], &input->step[i], behind * sizeof(step));
	input->step[i] = step;
	return true;
}

/*
 * A kept input with a few of its numbers changed; @choices is a state of its own, so that the
 * numbers of inputs stay what they are.
 */
static struct input mutate(uint64_t number, uint64_t *choices)
{
#define CHOOSE(limit) (mix(*choices += GOLDEN) % (limit))
	uint32_t nr = __atomic_load_n(&coverage->nr_kept, __ATOMIC_ACQUIRE), steps;
	/* What was found last is what least has been made of */
	uint32_t newest = nr < 8 || CHOOSE(2) ? nr : nr / 4;
	struct input input = coverage->kept[nr - 1 - CHOOSE(newest)];
	uint64_t seed = input.seed;

	for (steps = 1 + CHOOSE(3); steps; steps--) {
		/* Choices of kind and shape come first, most inputs draw few numbers */
		struct step step = { .at = CHOOSE(4) ? CHOOSE(16) : CHOOSE(64) };

		switch (CHOOSE(4)) {
		case 0:
			step.rest = true;
			step.value = number;
			break;
		case 1:
			/* As a choice of one in several it is the first, or one of the first */
			step.value = CHOOSE(16);
			break;
		default:
			step.value = mix(*choices += GOLDEN);
		}
		if (!add_step(&input, step))
			return (struct input){ .seed = seed, .number = number };
	}
	return input;
#undef CHOOSE
}

/* --- what is handed on from run to run ------------------------------------ */

static FILE *open_list(const char *path)
{
	FILE *list = fopen(path, "r");

	if (!list) {
		fprintf(stderr, "fuzz: %s: %s\n", path, strerror(errno));
		exit(2);
	}
	return list;
}

/* One input a line. */
static void read_kept(const char *path)
{
	FILE *list = open_list(path);
	char line[INPUT_TEXT + 2];
	struct input input;

	while (fgets(line, sizeof(line), list)) {
		line[strcspn(line, "\n")] = 0;
		if (!parse_input(line, &input) || !keep_input(&input)) {
			fprintf(stderr, "fuzz: %s: \"%s\" is no input, or one of more than %u\n",
				path, line, MAX_KEPT);
			exit(2);
		}
	}
	fclose(list);
	coverage->nr_known = coverage->nr_kept;
}

/* One edge a line, as its two places in hexadecimal digits. */
static void read_edges(const char *path)
{
	FILE *list = open_list(path);
	uint32_t from, to;

	while (fscanf(list, "%" SCNx32 "-%" SCNx32, &from, &to) == 2)
		add_edge((uint64_t)from << 32 | to);
	if (!feof(list)) {
		fprintf(stderr, "fuzz: %s: after %u edges comes what is none\n", path,
			coverage->nr_edges);
		exit(2);
	}
	fclose(list);
	coverage->nr_known_edges = coverage->nr_edges;
}

/* What is new since, as members of a JSON object. */
static void print_coverage(void)
{
	const char *comma = "";
	uint32_t i;

	printf("\"edges\": %u, \"kept\": %u, \"cut\": %u, \"new_kept\": [", coverage->nr_edges,
	       coverage->nr_kept, coverage->nr_cut);
	for (i = coverage->nr_known; i < coverage->nr_kept; i++, comma = ", ")
		printf("%s\"%s\"", comma, input_text(&coverage->kept[i]));
	printf("], \"new_edges\": [");
	for (i = coverage->nr_known_edges, comma = ""; i < coverage->nr_edges; i++, comma = ", ")
		printf("%s\"%x-%x\"", comma, (uint32_t)(coverage->order[i] >> 32),
		       (uint32_t)coverage->order[i]);
	printf("]");
}

#endif
