// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kernel_instructions - a plugin of QEMU's emulator that counts how often each
 * instruction of a guest's kernel is executed.
 *
 *   -plugin libkernel_instructions.so,out=FILE
 *
 * A program in the guest says when, by BEGIN and END (marker.h). Each END adds a
 * line of JSON to FILE: {"label": OPERAND, "counts": {"ADDRESS": TIMES, ...}}, with
 * addresses in hexadecimal digits. What is executed between the two counts,
 * interrupts included. One processor, and a kernel at the address that it is
 * linked for (nokaslr).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "find_marker.h"
#include "qemu-plugin.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/*
 * The text of x86-64's kernel, from _text on: ours has 10 MiB. QEMU makes room
 * for 16 processors, 1.5 GiB of which a sixteenth is used.
 */
#define TEXT		0xffffffff81000000UL
#define TEXT_BYTES	(12UL << 20)

static FILE *out;
/* A count for each byte that an instruction may begin at */
static struct qemu_plugin_scoreboard *scoreboard;
static uint64_t *before;

static const uint64_t *counts(unsigned int cpu)
{
	return qemu_plugin_scoreboard_find(scoreboard, cpu);
}

static void write_counts(const uint64_t *now, uint64_t label)
{
	const char *comma = "";
	size_t i;

	fprintf(out, "{\"label\": %" PRIu64 ", \"counts\": {", label);
	for (i = 0; i < TEXT_BYTES; i++) {
		if (now[i] == before[i])
			continue;
		fprintf(out, "%s\"%" PRIx64 "\": %" PRIu64, comma, TEXT + i, now[i] - before[i]);
		comma = ", ";
	}
	fprintf(out, "}}\n");
	fflush(out);
}

static void on_marker(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	uint64_t word = qemu_plugin_mem_get_value(info).data.u64;

	(void)address;
	(void)unused;
	if (word >> MARKER_SHIFT == MARKER_BEGIN)
		memcpy(before, counts(cpu), TEXT_BYTES * sizeof(*before));
	else if (word >> MARKER_SHIFT == MARKER_END)
		write_counts(counts(cpu), word & ((1ULL << MARKER_SHIFT) - 1));
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t i, nr = qemu_plugin_tb_n_insns(block);

	(void)id;
	for (i = 0; i < nr; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
		uint64_t at = qemu_plugin_insn_vaddr(instruction) - TEXT;

		if (is_marker(instruction))
			qemu_plugin_register_vcpu_mem_cb(instruction, on_marker,
							 QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_W, NULL);
		else if (at < TEXT_BYTES)
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
				instruction, QEMU_PLUGIN_INLINE_ADD_U64,
				(qemu_plugin_u64) { scoreboard, at * sizeof(uint64_t) }, 1);
	}
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "kernel_instructions: expected out=FILE, and nothing else\n");
		return -1;
	}
	if (!info->system_emulation || info->system.max_vcpus != 1 ||
	    strcmp(info->target_name, "x86_64")) {
		fprintf(stderr, "kernel_instructions: a machine of x86_64 with one processor is needed\n");
		return -1;
	}
	out = fopen(argv[0] + 4, "we");
	before = calloc(TEXT_BYTES, sizeof(*before));
	if (!out || !before) {
		fprintf(stderr, "kernel_instructions: %s: %s\n", argv[0] + 4, strerror(errno));
		return -1;
	}
	scoreboard = qemu_plugin_scoreboard_new(TEXT_BYTES * sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
