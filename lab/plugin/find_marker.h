/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Markers among the instructions that a plugin sees translated. */
#ifndef RAMSLICE_FIND_MARKER_H
#define RAMSLICE_FIND_MARKER_H

#include <stdbool.h>
#include <string.h>

#include "marker.h"
#include "qemu-plugin.h"

static inline bool is_marker(const struct qemu_plugin_insn *instruction)
{
	static const uint8_t wanted[MARKER_SIZE] = MARKER_BYTES;
	uint8_t found[MARKER_SIZE];

	return qemu_plugin_insn_size(instruction) == MARKER_SIZE &&
	       qemu_plugin_insn_data(instruction, found, MARKER_SIZE) == MARKER_SIZE &&
	       !memcmp(found, wanted, MARKER_SIZE);
}

#endif
