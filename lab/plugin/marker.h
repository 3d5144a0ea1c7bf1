/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a program in a guest talks to the plugin: one store of a word, by an
 * instruction that no compiler writes. It has three segment prefixes, which
 * mean nothing in 64-bit mode, so that it costs what a store costs, with the
 * plugin or without.
 *
 * The word's highest byte is a command, the rest its operand.
 */
#ifndef RAMSLICE_MARKER_H
#define RAMSLICE_MARKER_H

#include <stdint.h>

/* cs ds cs mov %rax, (%rdi) */
#define MARKER_BYTES	{ 0x2e, 0x3e, 0x2e, 0x48, 0x89, 0x07 }
#define MARKER_SIZE	6
#define MARKER_SHIFT	56

enum marker {
	/* Observe instructions from now on, which takes some thousand of them; forget ranges */
	MARKER_ARM = 1,
	/* A range of virtual addresses, first and end: what is there is the next class's */
	MARKER_RANGE_FIRST,
	MARKER_RANGE_END,
	/* Caches and counts are empty, and counting begins */
	MARKER_BEGIN,
	/* Counting ends; the operand labels what is written */
	MARKER_END,
	/* Leave instructions alone again */
	MARKER_DISARM,
};

#endif
