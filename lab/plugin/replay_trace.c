// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * replay_trace - counts what reaches DRAM of a trace, as the plugin does of a
 * guest: for tests of the model.
 *
 *   replay_trace L1 L1_WAYS L2 L2_WAYS SLICE SLICES <TRACE
 *
 * Sizes are in bytes. A line of TRACE is an access, "NS ADDRESS BYTES KIND CLASS"
 * with a KIND of 0 for a load and 1 for a store; the last one, "NS", is the end.
 * Prints what dram_model_end() writes.
 */
#include "cache_model.h"

int main(int argc, char **argv)
{
	uint64_t word[7] = {}, ns, address;
	unsigned int bytes, is_store, kind;
	struct dram_model model;
	const char *wrong;
	char line[128];
	int i, found;

	if (argc != 7) {
		fprintf(stderr, "usage: replay_trace L1 L1_WAYS L2 L2_WAYS SLICE SLICES <TRACE\n");
		return 2;
	}
	for (i = 1; i < argc; i++)
		word[i] = strtoull(argv[i], NULL, 0);
	wrong = dram_model_init(&model, word[1], word[2], word[3], word[4], word[5], word[6]);
	if (wrong) {
		fprintf(stderr, "replay_trace: %s\n", wrong);
		return 2;
	}
	while (fgets(line, sizeof(line), stdin)) {
		found = sscanf(line, "%" SCNu64 " %" SCNu64 " %u %u %u", &ns, &address, &bytes,
			       &is_store, &kind);
		if (found == 1) {
			dram_model_end(&model, stdout, 0, ns);
			return 0;
		}
		if (found != 5 || kind >= NR_CLASSES || is_store > 1 || !bytes)
			break;
		access_bytes(&model, address, bytes, is_store, kind, ns);
	}
	fprintf(stderr, "replay_trace: not an access, nor the end: %s\n", line);
	return 2;
}
