// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * archive - an example of libramslice-cold
 *
 * A service keeps documents. Those of the last hours are read all the time and
 * are hot; the older ones are only kept, and move to cold memory. One that is
 * wanted again moves back.
 *
 *   cc archive.c $(pkg-config --cflags --libs ramslice-cold) && ./a.out
 */
#include <stdio.h>
#include <string.h>

#include <ramslice/cold.h>

#define NR_DOCUMENTS 2000
#define NR_RECENT 200
#define DOCUMENT_BYTES 20000

static char *documents[NR_DOCUMENTS];

static void show(const char *when)
{
	struct ramslice_cold_stats stats;

	if (ramslice_cold_stats(&stats)) {
		perror("numa_maps");
		return;
	}
	printf("%s: %zu KiB in cold memory, %zu KiB of cold objects elsewhere\n", when,
	       stats.cold_bytes >> 10, stats.hot_bytes >> 10);
}

int main(void)
{
	char *again;
	int i;

	printf("way to cold memory: %s\n", ramslice_cold_way_name());
	for (i = 0; i < NR_DOCUMENTS; i++) {
		documents[i] = ramslice_cold_alloc_hot(DOCUMENT_BYTES);
		if (!documents[i]) {
			perror("a document");
			return 1;
		}
		memset(documents[i], 'a' + i % 26, DOCUMENT_BYTES);
	}
	show("all are recent");

	for (i = 0; i < NR_DOCUMENTS - NR_RECENT; i++) {
		char *moved = ramslice_cold_move(documents[i], RAMSLICE_COLD_PLACE_COLD);

		/* Without memory for the copy, it stays where it is */
		if (moved)
			documents[i] = moved;
	}
	show("most are old");

	again = ramslice_cold_move(documents[7], RAMSLICE_COLD_PLACE_HOT);
	if (again)
		documents[7] = again;
	printf("document 7 is %s again, and begins with %c\n",
	       ramslice_cold_place_of(documents[7]) == RAMSLICE_COLD_PLACE_HOT ? "hot" : "cold",
	       documents[7][0]);

	for (i = 0; i < NR_DOCUMENTS; i++)
		ramslice_cold_free(documents[i]);
	show("all are freed");
	return 0;
}
