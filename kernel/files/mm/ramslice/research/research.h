/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What only research needs: the commands of the thesis, and placement policies
 * that are kept to compare others with.
 */
#ifndef __MM_RAMSLICE_RESEARCH_H
#define __MM_RAMSLICE_RESEARCH_H

#include "../place.h"

/**
 * struct ramslice_command - a debugfs command, parsed
 * @op: what to do
 * @per_slice: --per-slice
 * @budget: first argument of offline_batch
 * @max_slices: its second
 * @id: argument of offline_index and online_index
 */
struct ramslice_command {
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

/* --- command.c --- */
int ramslice_parse_command(char *line, struct ramslice_command *cmd);

/* --- thesis.c --- */
extern bool ramslice_dummy_mode;

int ramslice_run_command(struct ramslice_zone *rz,
			 const struct ramslice_command *cmd,
			 struct ramslice_request *req);
void ramslice_research_forget(void);

/* --- policies.c --- */
#define RAMSLICE_PLACE_LOW_DEFAULT	8

extern u32 ramslice_low_slices;
extern struct kobj_attribute ramslice_low_slices_attr;

u64 ramslice_research_likes(enum ramslice_place_policy policy,
			    enum ramslice_place_class class,
			    const struct ramslice_place_slice *p);
int ramslice_research_policy(const char *arg, int found);

#endif /* __MM_RAMSLICE_RESEARCH_H */
