// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * openloop - asks a Redis server for random keys at a fixed rate, whether it
 * has answered or not, and writes how long each answer took.
 *
 * Usage: openloop SOCKET KEYS RATE SECONDS SEED FILE
 *
 * Requests are due at exponentially distributed intervals. The time of each
 * counts from the moment at which it was due, so that a server that stands
 * still is charged for all who would have come meanwhile. FILE gets one
 * 32-bit number of microseconds for each request.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static char input[1 << 16];
static size_t have;

static void die(const char *what)
{
	fprintf(stderr, "openloop: %s: %s\n", what, strerror(errno));
	exit(2);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t state;

static uint64_t random64(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		die(path);
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		die("fcntl");
	return fd;
}

static void ask(int fd, uint64_t key)
{
	char name[32], line[96];
	int length = snprintf(name, sizeof(name), "key:%llu", (unsigned long long)key);

	length = snprintf(line, sizeof(line), "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", length, name);
	/* The socket's buffer holds far more than can be under way */
	if (write(fd, line, length) != length)
		die("write");
}

/* Takes whole answers off the input; their number. */
static unsigned int answers(void)
{
	size_t at = 0;
	unsigned int nr = 0;

	while (at < have) {
		char *end = memchr(input + at, '\n', have - at);
		long length;

		if (!end)
			break;
		if (input[at] != '$')
			die("not a value");
		length = atol(input + at + 1);
		if (length < 0)
			die("no such key");
		if ((size_t)(end + 1 - input) + length + 2 > have)
			break;
		at = end + 1 - input + length + 2;
		nr++;
	}
	memmove(input, input + at, have - at);
	have -= at;
	return nr;
}

int main(int argc, char **argv)
{
	uint64_t keys;
	double rate, seconds, begin, *due;
	size_t nr = 0, sent = 0, done = 0, i;
	uint32_t *took;
	FILE *file;
	int fd;

	if (argc != 7)
		die("usage: openloop SOCKET KEYS RATE SECONDS SEED FILE");
	keys = strtoull(argv[2], NULL, 0);
	rate = atof(argv[3]);
	seconds = atof(argv[4]);
	state = strtoull(argv[5], NULL, 0) * 0x9e3779b97f4a7c15ULL + 1;
	fd = connect_to(argv[1]);

	due = calloc((size_t)(rate * seconds * 2) + 64, sizeof(*due));
	took = calloc((size_t)(rate * seconds * 2) + 64, sizeof(*took));
	if (!due || !took)
		die("memory");
	for (double at = 0; at < seconds && nr < (size_t)(rate * seconds * 2) + 64;) {
		at += -log((double)((random64() >> 11) + 1) / 9007199254740993.0) / rate;
		due[nr++] = at;
	}

	begin = now();
	while (done < nr) {
		double wait = 1;
		struct pollfd poll = { .fd = fd, .events = POLLIN };
		struct timespec timeout;

		while (sent < nr && now() - begin >= due[sent]) {
			ask(fd, random64() % keys);
			sent++;
		}
		if (sent < nr)
			wait = due[sent] - (now() - begin);
		if (wait < 0)
			wait = 0;
		timeout.tv_sec = wait;
		timeout.tv_nsec = (wait - timeout.tv_sec) * 1e9;
		if (ppoll(&poll, 1, &timeout, NULL) < 0 && errno != EINTR)
			die("poll");
		if (poll.revents) {
			ssize_t n = read(fd, input + have, sizeof(input) - have);

			if (n <= 0)
				die("read");
			have += n;
			for (i = answers(); i; i--, done++)
				took[done] = (now() - begin - due[done]) * 1e6;
		}
	}

	file = fopen(argv[6], "wb");
	if (!file || fwrite(took, sizeof(*took), nr, file) != nr || fclose(file))
		die(argv[6]);
	printf("%zu\n", nr);
	return 0;
}
