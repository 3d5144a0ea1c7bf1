// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fuzz - feeds generated inputs to everything that ramslice listens to: the
 * device, sysfs, debugfs, and the parameters of the simulated controller.
 *
 * Several processes share the numbers FIRST to FIRST + COUNT - 1 among them;
 * an input is a function of the seed and its number or, guided by coverage, a
 * changed one of those that reached code that none had (fuzz_coverage.h). What
 * comes of each is held against the documentation (fuzz.h). Prints one JSON
 * object with the answers by kind of input and errno; the status is 1 if there
 * was a bug, 2 if it could not run. Leaves settings as they came out: the caller
 * restores them.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <glob.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fuzz_coverage.h"
#include "fuzz_files.h"
#include "fuzz_memory.h"
#include "fuzz_request.h"

#define MAX_PROCS	16

/* --- races ---------------------------------------------------------------- */

/*
 * A second thread changes the very memory and descriptor that a call uses.
 * What the call returns is then unpredictable; that it returns, and that the
 * rest stays true, is what counts.
 */
static unsigned char *shaky;
static int shaky_fd = -1;
static pthread_barrier_t lights;
static uint64_t meddle_seed;

static void *meddle(void *unused)
{
	(void)unused;
	for (;;) {
		unsigned int i, nr, kind;
		uint64_t r;
		int fd;

		pthread_barrier_wait(&lights);
		r = mix(meddle_seed);
		nr = r % 200;
		kind = r >> 8 & 3;
		for (i = 0; i < nr; i++) {
			r = mix(r + i);
			switch (kind) {
			case 0:
				/* The size, or what comes after it */
				*(volatile uint32_t *)(shaky + (r & 15) * 4) = r >> 32 & 1 ? r >> 40
											   : 128;
				break;
			case 1:
				mprotect(shaky, PAGE, r & 1 ? PROT_READ | PROT_WRITE : PROT_NONE);
				break;
			case 2:
				fd = open(DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC);
				if (fd >= 0) {
					dup3(fd, shaky_fd, O_CLOEXEC);
					close(fd);
				}
				break;
			default:
				if (i == nr / 2)
					close(shaky_fd);
			}
		}
		mprotect(shaky, PAGE, PROT_READ | PROT_WRITE);
		pthread_barrier_wait(&lights);
	}
	return NULL;
}

static void start_meddling(void)
{
	sigset_t all, old;
	pthread_t thread;

	shaky = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrier_init(&lights, NULL, 2);
	/* Signals are for those who block */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (shaky == MAP_FAILED || pthread_create(&thread, NULL, meddle, NULL))
		exit(2);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void fuzz_race(void)
{
	struct ramslice_request req = {
		.size = sizeof(req), .op = below(5), .flags = RAMSLICE_REQ_DRY_RUN,
		.node = RAMSLICE_ANY,
		.zone = RAMSLICE_ANY, .budget = RAMSLICE_UNLIMITED, .max_slices = 1,
		.deadline_ms = 10,
	};
	struct errs must = {}, may = ERRS(EFAULT, EBADF, EINVAL, E2BIG, ENOENT, EBUSY, EINTR,
					  EAGAIN, ENOSPC, ENOMEM);
	static const unsigned long calls[] = {
		RAMSLICE_IOC_INFO, RAMSLICE_IOC_ZONE, RAMSLICE_IOC_SNAPSHOT, RAMSLICE_IOC_REQUEST,
		RAMSLICE_IOC_REQUEST,
	};
	struct pollfd poll_fd;
	int i, err = 0, nr = 4 + below(12);

	shaky_fd = open_device(O_RDWR | O_NONBLOCK);
	memset(shaky, 0, PAGE);
	memcpy(shaky, &req, sizeof(req));
	meddle_seed = rnd();
	pthread_barrier_wait(&lights);
	interrupt_every(20000);
	for (i = 0; i < nr; i++) {
		switch (below(4)) {
		case 0:
			poll_fd = (struct pollfd){ .fd = shaky_fd, .events = POLLIN };
			err = poll(&poll_fd, 1, 1) < 0 ? errno : 0;
			break;
		case 1:
			err = read(shaky_fd, shaky, 8) < 0 ? errno : 0;
			break;
		default:
			err = try_ioctl(shaky_fd, PICK(calls), shaky);
		}
		if (err && !has_err(&may, err))
			break;
	}
	interrupt_every(0);
	pthread_barrier_wait(&lights);
	close(shaky_fd);
	/* Memory may be anything by now: so an op may be one that is not dry */
	judge(T_RACE, err, &must, &may, "meddled with");
}

/* --- inputs --------------------------------------------------------------- */

/* Of a thousand inputs. What is costly is rare; what nearly works, common. */
static const unsigned int weights[NR_TARGETS] = {
	[T_INFO] = 55, [T_ZONE] = 75, [T_SNAPSHOT] = 110, [T_REQUEST_BAD] = 175, [T_DRY_RUN] = 14,
	[T_EMPTY] = 18,
	[T_WAKE] = 16, [T_OTHER_IOCTL] = 40, [T_READ] = 60, [T_POLL] = 36, [T_FILE] = 30,
	[T_RACE] = 12,
	[T_SLICE_BYTES] = 40, [T_PRICE] = 60, [T_SYSFS] = 20, [T_CMD_BAD] = 70, [T_CMD] = 10,
	[T_DEBUGFS] = 14,
	[T_DEBUGFS_WRITE] = 10, [T_PARAMETER] = 14, [T_MODULE] = 6, [T_PAGES] = 40,
	[T_SETTING] = 40, [T_MEMORY] = 15, [T_SEGMENTS] = 20,
};

static void make_input(const struct input *input)
{
	enum target t = 0;
	unsigned int at;

	rnd_begin(input);
	/* It looks at all of memory */
	if (one_in(4000)) {
		fuzz_verify();
		return;
	}
	for (at = below(1000); at >= weights[t]; t++)
		at -= weights[t];
	switch (t) {
	case T_INFO:
		return fuzz_info();
	case T_ZONE:
		return fuzz_zone();
	case T_SNAPSHOT:
		return fuzz_snapshot();
	case T_REQUEST_BAD:
	case T_DRY_RUN:
	case T_EMPTY:
	case T_WAKE:
		return fuzz_request(t);
	case T_OTHER_IOCTL:
		return fuzz_other_ioctl();
	case T_READ:
		return fuzz_read();
	case T_POLL:
		return fuzz_poll();
	case T_FILE:
		return fuzz_file();
	case T_RACE:
		return fuzz_race();
	case T_PAGES:
		return fuzz_pages();
	case T_SETTING:
		return fuzz_setting();
	case T_MEMORY:
		return fuzz_memory();
	case T_SEGMENTS:
		return fuzz_segments();
	case T_SLICE_BYTES:
		return fuzz_slice_bytes();
	case T_PRICE:
		return fuzz_price();
	case T_SYSFS:
		return fuzz_sysfs();
	case T_CMD_BAD:
	case T_CMD:
		/* Without commands, requests take their place */
		if (!is_research)
			return fuzz_request(t == T_CMD ? T_EMPTY : T_REQUEST_BAD);
		return fuzz_command(t == T_CMD_BAD, hint_ids);
	case T_DEBUGFS:
		return fuzz_debugfs();
	case T_DEBUGFS_WRITE:
		return fuzz_debugfs_write();
	case T_PARAMETER:
		return fuzz_parameter();
	default:
		return fuzz_module();
	}
}

static void on_alarm(int number)
{
	(void)number;
}

/* What the processes do, beside judging answers. */
static struct {
	uint64_t seed, first, count;
	unsigned int procs;
	/* Look at what is reached; make inputs from those kept; begin with running these again. */
	bool tracing, guided, rerun;
} plan = { .seed = 1, .count = 1000, .procs = 4 };

static void run_input(const struct input *input)
{
	if (plan.tracing)
		trace_begin();
	make_input(input);
	if (plan.tracing && trace_end())
		keep_input(&now);
}

static void work(unsigned int process)
{
	struct sigaction action = { .sa_handler = on_alarm };
	uint64_t i, choices;

	/* No SA_RESTART: what blocks is to fail */
	sigaction(SIGALRM, &action, NULL);
	make_arena();
	device_init();
	start_meddling();
	if (plan.tracing)
		trace_task();
	if (plan.rerun) {
		for (i = process; i < coverage->nr_known; i += plan.procs)
			run_input(&coverage->kept[i]);
	}
	for (i = process; i < plan.count; i += plan.procs) {
		struct input input = { .seed = plan.seed, .number = plan.first + i };

		choices = ~base_of(input.seed, input.number);
		if (plan.guided && mix(choices) % 2 && coverage->nr_kept)
			input = mutate(input.number, &choices);
		run_input(&input);
	}
}

static void replay(const struct input *input)
{
	plan.procs = 1;
	plan.count = 0;
	plan.rerun = true;
	verbose = true;
	keep_input(input);
	coverage->nr_known = 1;
}

/* --- the whole ------------------------------------------------------------ */

static void find_zones(void)
{
	glob_t found;
	size_t i;

	is_research = !access(DEBUGFS "dummy_mode", F_OK);
	if (glob(DEBUGFS "node*/*/stats", 0, NULL, &found)) {
		fprintf(stderr, "fuzz: no " DEBUGFS "\n");
		exit(2);
	}
	for (i = 0; i < found.gl_pathc && i < MAX_ZONES; i++)
		snprintf(zone_dirs[nr_zone_dirs++], sizeof(zone_dirs[0]), "%.*s",
			 (int)(strlen(found.gl_pathv[i]) - strlen("/stats")), found.gl_pathv[i]);
	globfree(&found);
}

static void print_json(void)
{
	const char *comma = "";
	int t, e;

	printf("{");
	if (plan.tracing) {
		print_coverage();
		printf(", ");
	}
	printf("\"rerun\": %u, ", plan.rerun ? coverage->nr_known : 0);
	printf("\"reasons\": {");
	for (e = 0; e < RAMSLICE_NR_REASONS; e++, comma = ", ")
		printf("%s\"%d\": %" PRIu64, comma, e, shared->reasons[e]);
	comma = "";
	printf("}, \"bugs\": %" PRIu64 ", \"offlined\": %" PRIu64 ", \"woken\": %" PRIu64
	       ", \"geometries\": %" PRIu64 ", \"answers\": {",
	       shared->bugs, shared->offlined, shared->woken, shared->geometries);
	for (t = 0; t < NR_TARGETS; t++) {
		printf("%s\"%s\": {", comma, target_names[t]);
		comma = "";
		for (e = 0; e < NR_ERRNOS; e++) {
			if (!shared->count[t][e])
				continue;
			printf("%s\"%s\": %" PRIu64, comma,
			       !e ? "ok" : strerrorname_np(e) ? : "?", shared->count[t][e]);
			comma = ", ";
		}
		printf("}");
		comma = ", ";
	}
	printf("}}\n");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' }, { "first", required_argument, NULL, 'f' },
		{ "count", required_argument, NULL, 'c' },
		{ "processes", required_argument, NULL, 'p' },
		{ "module", required_argument, NULL, 'm' },
		{ "slow", required_argument, NULL, 'w' },
		{ "kept", required_argument, NULL, 'k' },
		{ "edges", required_argument, NULL, 'e' },
		{ "file", required_argument, NULL, 'i' },
		{ "replay", required_argument, NULL, 'r' },
		{ "trace", no_argument, NULL, 't' },	     { "guided", no_argument, NULL, 'g' },
		{ "rerun", no_argument, NULL, 'a' },
		{ "control", no_argument, NULL, 'x' },	     { "verbose", no_argument, NULL, 'v' },
		{}
	};
	const char *edges = NULL;
	struct input again;
	unsigned int i;
	bool broken = false;
	int c, status;

	coverage_init();
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			plan.seed = strtoull(optarg, NULL, 0);
			break;
		case 'f':
			plan.first = strtoull(optarg, NULL, 0);
			break;
		case 'c':
			plan.count = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			plan.procs = strtoul(optarg, NULL, 0);
			break;
		case 'm':
			module_path = optarg;
			break;
		case 'w':
			slow = strtoul(optarg, NULL, 0);
			break;
		case 'i':
			file_path = optarg;
			break;
		case 'k':
			read_kept(optarg);
			break;
		case 'e':
			edges = optarg;
			break;
		case 'r':
			if (!parse_input(optarg, &again)) {
				fprintf(stderr, "fuzz: \"%s\" is no input: SEED:NUMBER, and at "
					"most %u times +POSITION=VALUE or +POSITION~NUMBER\n",
					optarg, MAX_STEPS);
				return 2;
			}
			replay(&again);
			break;
		case 't':
			plan.tracing = true;
			break;
		case 'g':
			plan.guided = true;
			break;
		case 'a':
			plan.rerun = true;
			break;
		case 'x':
			control = true;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			return 2;
		}
	}
	if (!module_path || !slow || !plan.procs || plan.procs > MAX_PROCS ||
	    (plan.guided && !plan.tracing)) {
		fprintf(stderr,
			"usage: fuzz --module FILE.ko [--seed N] [--first N] [--count N] "
			"[--processes N] [--slow N] [--file FILE] [--trace [--guided] [--edges FILE]] "
			"[--kept FILE [--rerun]] [--replay INPUT] [--control] [--verbose]\n");
		return 2;
	}
	if (edges)
		read_edges(edges);
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 2;
	find_zones();
	for (i = 0; i < plan.procs; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 2;
		if (!pid) {
			work(i);
			exit(0);
		}
	}
	for (i = 0; i < plan.procs; i++) {
		if (wait(&status) < 0 || status) {
			fprintf(stderr, "fuzz: a process ended with status %#x\n", status);
			broken = true;
		}
	}
	print_json();
	return broken ? 2 : shared->bugs ? 1 : 0;
}
