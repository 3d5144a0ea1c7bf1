/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ticks - what was executed, by the time stamp counter. Under QEMU's -icount
 * shift=0 a tick is an instruction.
 *
 * What is timed runs beside a process of the lowest priority that never sleeps,
 * so that no time passes without instructions; what that process got is
 * subtracted.
 */
#ifndef RAMSLICE_TICKS_H
#define RAMSLICE_TICKS_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static pid_t spinner;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		strerror(errno));
	exit(2);
}

static uint64_t ticks(void)
{
	unsigned int cpu;

	return __rdtscp(&cpu);
}

static void start_spinner(void)
{
	struct sched_param param = {};

	spinner = fork();
	if (spinner < 0)
		die("fork");
	if (spinner)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sched_setscheduler(0, SCHED_IDLE, &param))
		die("SCHED_IDLE");
	for (;;)
		__asm__ volatile("");
}

static uint64_t spun(void)
{
	struct timespec now;
	clockid_t clock;

	if (!spinner)
		return 0;
	if (clock_getcpuclockid(spinner, &clock) || clock_gettime(clock, &now))
		die("the spinner's clock");
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static uint64_t began, began_spun;

static void start(void)
{
	began_spun = spun();
	began = ticks();
}

/* Ticks since start() that were not idle; and those that were. */
static uint64_t passed(uint64_t *idle)
{
	uint64_t total = ticks() - began;

	*idle = spun() - began_spun;
	return total - *idle;
}

static void end_spinner(void)
{
	if (spinner)
		kill(spinner, SIGKILL);
}

#endif
