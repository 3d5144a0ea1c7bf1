/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel command line says.
 */
#ifndef __MM_RAMSLICE_BOOT_ARGS_H
#define __MM_RAMSLICE_BOOT_ARGS_H

#include <linux/types.h>

/**
 * struct ramslice_interleave - how the pageblocks of memory go to slices
 * @ways: slices that take turns; 0 or 1: none, each is contiguous
 * @granularity_bytes: what a slice gets each time
 */
struct ramslice_interleave {
	unsigned int ways;
	u64 granularity_bytes;
};

/**
 * struct ramslice_boot - what the kernel command line says
 * @off: ramslice is off
 * @slice_bytes: size of a slice; 0: the default
 * @interleave: as it says, which may be of no use
 * @table: segments that are slices, as text; NULL without
 * @firmware: segments are those that firmware knows; with neither, slices are of
 *	      one size
 */
struct ramslice_boot {
	bool off;
	u64 slice_bytes;
	struct ramslice_interleave interleave;
	const char *table;
	bool firmware;
};

/**
 * struct ramslice_cold_boot - what the kernel command line says of cold memory
 * @bytes: of all nodes together
 * @strict: only what asks for it gets it
 */
struct ramslice_cold_boot {
	u64 bytes;
	bool strict;
};

int ramslice_parse_bytes(const char *arg, u64 *bytes);
int ramslice_parse_boot(const char *arg, struct ramslice_boot *boot);
int ramslice_parse_cold(const char *arg, struct ramslice_cold_boot *cold);

#endif /* __MM_RAMSLICE_BOOT_ARGS_H */
