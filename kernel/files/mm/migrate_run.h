/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Migration of anonymous pages by runs of neighbours: see migrate_run.c.
 */
#ifndef __MM_MIGRATE_RUN_H
#define __MM_MIGRATE_RUN_H

#include <linux/migrate.h>

/* Folios in one call; at most so many are copied under one page table lock. */
#define MIGRATE_RUN_MAX		128U

enum migrate_run_state {
	MIGRATE_RUN_LEFT,	/* stays where it is */
	MIGRATE_RUN_READY,	/* locked, as its destination is */
	MIGRATE_RUN_UNMAPPED,	/* its page table entry is clear */
	MIGRATE_RUN_COPIED,	/* frozen */
	MIGRATE_RUN_MOVED,	/* its destination is mapped in its place */
};

/**
 * struct migrate_run - folios to be migrated, in the order in which they came
 * @nr: their number
 * @src: the folios, each with a reference; they stay on their LRU lists
 * @dst: where they go, NULL if there is none
 * @pte: what mapped them
 * @state: enum migrate_run_state, of each
 */
struct migrate_run {
	unsigned int nr;
	struct folio *src[MIGRATE_RUN_MAX];
	struct folio *dst[MIGRATE_RUN_MAX];
	pte_t pte[MIGRATE_RUN_MAX];
	u8 state[MIGRATE_RUN_MAX];
};

bool migrate_run_add(struct migrate_run *run, struct folio *folio);
unsigned int migrate_run_move(struct migrate_run *run,
			      new_folio_t get_new_folio,
			      free_folio_t put_new_folio, unsigned long private,
			      enum migrate_reason reason);

#endif /* __MM_MIGRATE_RUN_H */
