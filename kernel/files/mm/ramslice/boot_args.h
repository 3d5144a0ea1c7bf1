/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What text says: commands written to debugfs, and the kernel command line.
 */
#ifndef __MM_RAMSLICE_PARSE_H
#define __MM_RAMSLICE_PARSE_H

#include <linux/types.h>

/**
 * struct ramslice_cmd - a parsed debugfs command
 * @op: what to do
 * @per_slice: --per-slice
 * @budget: first argument of offline_batch
 * @max_slices: its second
 * @id: argument of offline_index and online_index
 */
struct ramslice_cmd {
	enum {
		RAMSLICE_CMD_OFFLINE_BATCH,
		RAMSLICE_CMD_OFFLINE_INDEX,
		RAMSLICE_CMD_ONLINE_INDEX,
		RAMSLICE_CMD_OFFLINE_FREE,
		RAMSLICE_CMD_ONLINE_ALL,
		RAMSLICE_CMD_REINIT,
		RAMSLICE_CMD_RELEASE,
	} op;
	bool per_slice;
	u64 budget;
	u32 max_slices;
	u32 id;
};

int ramslice_parse_cmd(char *line, struct ramslice_cmd *cmd);

/**
 * struct ramslice_boot - what the kernel command line says
 * @off: ramslice is off
 * @slice_bytes: size of a slice; 0: the default
 */
struct ramslice_boot {
	bool off;
	u64 slice_bytes;
};

int ramslice_parse_boot(const char *arg, struct ramslice_boot *boot);

#endif /* __MM_RAMSLICE_PARSE_H */
