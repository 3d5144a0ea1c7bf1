// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * never_idle - something to do at any time for a processor, of the lowest priority
 *
 * For guests whose clock counts instructions: while a processor is idle, that clock
 * jumps to the next timer, and so by seconds for an answer of the host's that takes a
 * moment. With this it goes on evenly. QEMU translates a block of instructions that
 * do nothing into next to nothing, so that idle time passes some times faster than
 * on a processor that had to carry them out. It ends with its parent.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>

int main(void)
{
	const struct sched_param param = { .sched_priority = 0 };

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) ||
	    sched_setscheduler(0, SCHED_IDLE, &param) ||
	    /* By this alone the kernel's statistics tell its time from other work */
	    setpriority(PRIO_PROCESS, 0, 19)) {
		perror("never_idle");
		return 1;
	}
	for (;;)
		asm volatile(".rept 20\n\tnop\n\t.endr");
}
