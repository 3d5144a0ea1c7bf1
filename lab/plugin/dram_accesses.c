// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * dram_accesses - a plugin of QEMU's emulator that counts which slices' DRAM a
 * guest's loads and stores reach, and how long each rests in between.
 *
 *   -plugin libdram_accesses.so,out=FILE[,slice=BYTES][,slices=N]
 *           [,l1=BYTES][,l1_ways=N][,l2=BYTES][,l2_ways=N]
 *
 * A program in the guest says when, by markers (marker.h). Each END adds a line
 * to FILE (cache_model.h).
 *
 * Time is the number of instructions executed since BEGIN, a nanosecond each:
 * the guest's own clock under -icount shift=0, as long as its processor does
 * not idle. Programs that are counted never sleep; they wait in loops that touch
 * no memory, and compare their clock with the time in the line. Idle time, which
 * that clock jumps over, would be missing here.
 *
 * Instructions count a translated block at a time: an access has the time of
 * the end of its block. What is fetched to be executed, and page tables that the
 * processor walks, are in no count. The caches are empty at BEGIN, and what is
 * in them at END stays there.
 */
#include <errno.h>

#include "cache_model.h"
#include "find_marker.h"
#include "qemu-plugin.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* The caches of a small server's core, and slices of a memory block */
#define L1_BYTES	(32ULL << 10)
#define L1_WAYS		8
#define L2_BYTES	(1ULL << 20)
#define L2_WAYS		16
#define SLICE_BYTES	(128ULL << 20)
#define NR_SLICES	1024

struct range {
	uint64_t first;
	uint64_t end;
};

static struct dram_model model;
static FILE *out;
static qemu_plugin_id_t self;
static struct qemu_plugin_scoreboard *scoreboard;
static qemu_plugin_u64 executed;
/* Where the one processor's count of instructions is */
static const uint64_t *now_ns;
static struct range ranges[NR_CLASSES - 1];
static unsigned int nr_ranges;
static bool armed, counting;

static unsigned int class_of(uint64_t address)
{
	unsigned int i;

	for (i = 0; i < nr_ranges; i++)
		if (address - ranges[i].first < ranges[i].end - ranges[i].first)
			return i + 1;
	return 0;
}

static void on_access(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	struct qemu_plugin_hwaddr *at;

	(void)cpu;
	(void)unused;
	if (!counting)
		return;
	at = qemu_plugin_get_hwaddr(info, address);
	if (!at || qemu_plugin_hwaddr_is_io(at))
		return;
	access_bytes(&model, qemu_plugin_hwaddr_phys_addr(at),
		     1U << qemu_plugin_mem_size_shift(info), qemu_plugin_mem_is_store(info),
		     class_of(address), *now_ns);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block);

/* Nothing is translated any more: all will be, and look as is now wanted. */
static void after_reset(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
}

static void complain(const char *what)
{
	fprintf(stderr, "dram_accesses: %s\n", what);
	exit(1);
}

static void take_range(uint64_t operand, bool is_end)
{
	if (!is_end && nr_ranges == NR_CLASSES - 1)
		complain("a guest named too many ranges: there is room for 7");
	if (is_end && (!nr_ranges || operand <= ranges[nr_ranges - 1].first))
		complain("a guest's range ends before it begins");
	if (is_end)
		ranges[nr_ranges - 1].end = operand;
	else
		ranges[nr_ranges++] = (struct range) { operand, operand };
}

static void on_marker(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	uint64_t word = qemu_plugin_mem_get_value(info).data.u64;
	uint64_t operand = word & ((1ULL << MARKER_SHIFT) - 1);

	(void)address;
	(void)unused;
	now_ns = qemu_plugin_scoreboard_find(scoreboard, cpu);
	switch (word >> MARKER_SHIFT) {
	case MARKER_ARM:
	case MARKER_DISARM:
		armed = word >> MARKER_SHIFT == MARKER_ARM;
		counting = false;
		nr_ranges = 0;
		qemu_plugin_reset(self, after_reset);
		break;
	case MARKER_RANGE_FIRST:
	case MARKER_RANGE_END:
		take_range(operand, word >> MARKER_SHIFT == MARKER_RANGE_END);
		break;
	case MARKER_BEGIN:
		if (!armed)
			complain("a guest began to count before it armed");
		dram_model_begin(&model, *now_ns);
		counting = true;
		break;
	case MARKER_END:
		if (!counting)
			complain("a guest ended what it had not begun");
		counting = false;
		dram_model_end(&model, out, operand, *now_ns);
		break;
	default:
		complain("a guest gave a command that there is not");
	}
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t i, nr = qemu_plugin_tb_n_insns(block);

	(void)id;
	if (armed)
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
			block, QEMU_PLUGIN_INLINE_ADD_U64, executed, nr);
	for (i = 0; i < nr; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);

		if (is_marker(instruction))
			qemu_plugin_register_vcpu_mem_cb(instruction, on_marker,
							 QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_W, NULL);
		else if (armed)
			qemu_plugin_register_vcpu_mem_cb(instruction, on_access,
							 QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW, NULL);
	}
}

/* A number that an argument gives; false if it is none. */
static bool take_number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	return !errno && *text >= '0' && *text <= '9' && !*end;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	uint64_t l1 = L1_BYTES, l1_ways = L1_WAYS, l2 = L2_BYTES, l2_ways = L2_WAYS;
	uint64_t slice = SLICE_BYTES, slices = NR_SLICES;
	const struct {
		const char *name;
		uint64_t *value;
	} numbers[] = {
		{ "l1", &l1 }, { "l1_ways", &l1_ways }, { "l2", &l2 }, { "l2_ways", &l2_ways },
		{ "slice", &slice }, { "slices", &slices },
	};
	const char *wrong, *path = NULL;
	size_t nr = sizeof(numbers) / sizeof(*numbers), n;
	int i;

	for (i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		size_t length = value ? value++ - argv[i] : 0;

		if (length == 3 && !strncmp(argv[i], "out", 3)) {
			path = value;
			continue;
		}
		for (n = 0; n < nr; n++)
			if (length == strlen(numbers[n].name) &&
			    !strncmp(argv[i], numbers[n].name, length))
				break;
		if (n == nr || !take_number(value, numbers[n].value)) {
			fprintf(stderr, "dram_accesses: %s: expected out=FILE, or a number for l1, "
				"l1_ways, l2, l2_ways, slice or slices\n", argv[i]);
			return -1;
		}
	}
	if (!info->system_emulation || info->system.max_vcpus != 1 ||
	    strcmp(info->target_name, "x86_64")) {
		fprintf(stderr, "dram_accesses: a machine of x86_64 with one processor is needed\n");
		return -1;
	}
	wrong = l1_ways > MAX_WAYS || l2_ways > MAX_WAYS || slices > UINT32_MAX ?
		"too many ways or slices" :
		dram_model_init(&model, l1, l1_ways, l2, l2_ways, slice, slices);
	out = path && !wrong ? fopen(path, "we") : NULL;
	if (!out) {
		fprintf(stderr, "dram_accesses: %s: %s\n", wrong || !path ? "arguments" : path,
			wrong ? wrong : path ? strerror(errno) : "out=FILE is missing");
		return -1;
	}
	self = id;
	scoreboard = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	executed = (qemu_plugin_u64) { scoreboard, 0 };
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
