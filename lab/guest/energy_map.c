// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * energy_map - transactions on a map in memory (value_map.h), at a rate or as
 * fast as they go. Words are name=number, unless they say otherwise.
 *
 *   energy_map settle state=FILE WORD...    plays transactions on the lists alone,
 *                                           and writes what is hot then
 *   energy_map run state=FILE WORD...       has values, begins from that file, and
 *                                           runs a phase for each rate
 *
 *   keys      values, of 1 KiB
 *   hot       room for values in the hot area; 0: one area for all
 *   cold      room in the cold area
 *   ops       transactions (of each phase)
 *   warm      transactions before each phase, without its rate
 *   rates     commas between: thousands of transactions a second; 0: no pause
 *   draw      zipf, or 80-20
 *   seed      of keys, writes and returns
 *   slice     bytes, for pages by slice
 *   count     1: the plugin counts each phase, which its number labels
 *
 * A transaction reads all of a value and checks it; one of five then writes a
 * new one. Which keys they are is drawn before. Between transactions, run waits
 * without any access to memory, so that no time passes unseen. Classes that the
 * plugin counts: 1 the hot area, or the one area; 2 the cold one; 3 entries.
 *
 * Prints a line of JSON. Each value is checked once more at the end; the status
 * is 1 if any was wrong.
 */
#define _GNU_SOURCE
#include <time.h>

#include "value_map.h"

#define MAX_RATES	16
#define WRITE_ODDS	5
#define IS_WRITE	(1U << 31)

struct settings {
	uint64_t keys, hot, cold, ops, warm, seed, slice, count;
	uint64_t rates[MAX_RATES];
	unsigned int nr_rates;
	bool is_zipf;
	const char *state;
};

static void usage(const char *what)
{
	fprintf(stderr, "energy_map: %s\nusage: energy_map settle|run state=FILE keys=N hot=N "
		"cold=N ops=N [warm=N] [rates=N,N...] [draw=zipf|80-20] [seed=N] [slice=BYTES] "
		"[count=0|1]\n", what);
	exit(2);
}

static void take_rates(struct settings *is, const char *text)
{
	char *end;

	for (is->nr_rates = 0; is->nr_rates < MAX_RATES; text = end + 1) {
		is->rates[is->nr_rates++] = strtoul(text, &end, 10);
		if (end == text || (*end && *end != ','))
			break;
		if (!*end)
			return;
	}
	usage("rates: expected 1 to 16 numbers");
}

static void take(struct settings *is, char *word)
{
	const struct {
		const char *name;
		uint64_t *value;
	} numbers[] = {
		{ "keys", &is->keys }, { "hot", &is->hot }, { "cold", &is->cold },
		{ "ops", &is->ops }, { "warm", &is->warm }, { "seed", &is->seed },
		{ "slice", &is->slice }, { "count", &is->count },
	};
	char *value = strchr(word, '='), *end;
	size_t i;

	if (!value)
		usage(word);
	*value++ = 0;
	for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (!strcmp(word, numbers[i].name)) {
			*numbers[i].value = strtoull(value, &end, 10);
			if (*value < '0' || *value > '9' || *end)
				usage(word);
			return;
		}
	if (!strcmp(word, "state"))
		is->state = value;
	else if (!strcmp(word, "rates"))
		take_rates(is, value);
	else if (!strcmp(word, "draw") && (!strcmp(value, "zipf") || !strcmp(value, "80-20")))
		is->is_zipf = !strcmp(value, "zipf");
	else
		usage(word);
}

/* Keys that are hot, the one that was used longest ago first, behind their number. */
static void write_state(const struct value_map *map, const char *path)
{
	FILE *file = fopen(path, "we");
	uint32_t key, nr = 0;

	if (!file)
		fail(path);
	for (key = map->entries[map->nr_keys].newer; key != map->nr_keys;
	     key = map->entries[key].newer)
		nr++;
	fwrite(&nr, sizeof(nr), 1, file);
	for (key = map->entries[map->nr_keys].newer; key != map->nr_keys;
	     key = map->entries[key].newer)
		fwrite(&key, sizeof(key), 1, file);
	if (fclose(file))
		fail(path);
}

/*
 * Fills the map: each area by key, so that with one area what is hot and cold
 * shares pages; then the list is put in the file's order.
 */
static void read_state(struct value_map *map, const char *path, bool is_one_area)
{
	uint32_t key, nr, i, *hot;
	bool *is_hot = calloc(map->nr_keys, sizeof(*is_hot));
	FILE *file = fopen(path, "re");

	if (!file || !is_hot || fread(&nr, sizeof(nr), 1, file) != 1 || nr > map->nr_keys)
		fail(path);
	hot = malloc((nr + 1UL) * sizeof(*hot));
	if (!hot || fread(hot, sizeof(*hot), nr, file) != nr)
		fail(path);
	fclose(file);
	for (i = 0; i < nr; i++) {
		if (hot[i] >= map->nr_keys)
			usage("state: of other keys");
		is_hot[hot[i]] = true;
	}
	for (key = 0; key < map->nr_keys; key++)
		insert(map, key, !is_one_area && !is_hot[key]);
	for (i = 0; i < nr; i++) {
		list_remove(map, hot[i]);
		list_add_newest(map, hot[i]);
	}
	free(hot);
	free(is_hot);
}

/*
 * Plays transactions until the lists have settled. Prints how many accesses of
 * the last tenth were to values in the cold area, and how many would have been
 * with the most popular keys hot.
 */
static int settle(const struct settings *is)
{
	uint64_t i, tenth = is->ops - is->ops / 10, beyond = 0;
	struct value_map map;
	struct draw draw;
	uint32_t key, rank;

	value_map_init(&map, is->keys, is->hot, is->cold, false, is->seed);
	draw_init(&draw, is->seed, is->keys, is->is_zipf);
	for (key = 0; key < is->keys; key++)
		insert(&map, key, false);
	for (i = 0; i < is->ops; i++) {
		if (i == tenth)
			map.accesses = map.cold_accesses = map.returned = beyond = 0;
		rank = draw_rank(&draw);
		beyond += rank >= is->hot;
		access_value(&map, key_of_rank(&draw, rank), false);
	}
	write_state(&map, is->state);
	printf("{\"accesses\": %" PRIu64 ", \"cold\": %" PRIu64 ", \"clairvoyant_cold\": %" PRIu64
	       ", \"returned\": %" PRIu64 "}\n", map.accesses, map.cold_accesses,
	       is->hot ? beyond : 0, map.returned);
	return 0;
}

/* Keys of transactions, with IS_WRITE; returns how many a clairvoyant would have had cold. */
static uint64_t draw_trace(struct draw *draw, uint32_t *trace, uint64_t nr, uint64_t hot)
{
	uint64_t i, beyond = 0;

	for (i = 0; i < nr; i++) {
		uint32_t rank = draw_rank(draw);

		beyond += hot && rank >= hot;
		trace[i] = key_of_rank(draw, rank) |
			   (draw_below(draw, WRITE_ODDS) ? 0 : IS_WRITE);
	}
	return beyond;
}

static void transact(struct value_map *map, const uint32_t *trace, uint64_t nr)
{
	uint64_t i;

	for (i = 0; i < nr; i++)
		access_value(map, trace[i] & ~IS_WRITE, trace[i] & IS_WRITE);
}

/* The same, each not before it is due; returns by how many ns the latest began too late. */
static uint64_t transact_at(struct value_map *map, const uint32_t *trace, uint64_t nr,
			    uint64_t ktps)
{
	uint64_t i, now, due, late = 0, began = clock_ns();

	for (i = 0; i < nr; i++) {
		due = began + i * 1000000 / ktps;
		now = clock_ns();
		if (now < due)
			spin(due - now);
		else if (now - due > late)
			late = now - due;
		access_value(map, trace[i] & ~IS_WRITE, trace[i] & IS_WRITE);
	}
	return late;
}

static void print_area(const char *name, const struct area *area, uint64_t slice)
{
	printf(", \"%s\": ", name);
	if (area->values)
		print_slices(area->values, area->nr * VALUE_BYTES, slice);
	else
		printf("{}");
}

/* What this process has had of a processor. */
static uint64_t cpu_ns(void)
{
	struct timespec used;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used))
		fail("the clock of a process");
	return used.tv_sec * 1000000000UL + used.tv_nsec;
}

static void run_phase(struct value_map *map, const struct settings *is, struct draw *draw,
		      uint32_t *trace, unsigned int phase)
{
	uint64_t beyond, began, ended, cpu_began, cpu_ended, late = 0, rate = is->rates[phase];

	draw_trace(draw, trace, is->warm, 0);
	transact(map, trace, is->warm);
	beyond = draw_trace(draw, trace, is->ops, is->hot);
	map->accesses = map->cold_accesses = map->evicted = map->returned = 0;
	if (is->count) {
		arm();
		mark_range(map->hot.values, map->hot.nr * VALUE_BYTES);
		if (map->cold.values)
			mark_range(map->cold.values, map->cold.nr * VALUE_BYTES);
		else
			/* No address: entries are class 3 all the same */
			mark_range(NULL, 1);
		mark_range(map->entries, (map->nr_keys + 1UL) * sizeof(*map->entries));
		mark(MARKER_BEGIN, 0);
	}
	cpu_began = cpu_ns();
	began = clock_ns();
	if (rate)
		late = transact_at(map, trace, is->ops, rate);
	else
		transact(map, trace, is->ops);
	ended = clock_ns();
	cpu_ended = cpu_ns();
	if (is->count) {
		mark(MARKER_END, phase);
		mark(MARKER_DISARM, 0);
	}
	printf("%s{\"label\": %u, \"ktps\": %" PRIu64 ", \"ops\": %" PRIu64 ", \"ns\": %" PRIu64
	       ", \"cpu_ns\": %" PRIu64 ", \"cold\": %" PRIu64 ", \"clairvoyant_cold\": %" PRIu64
	       ", \"evicted\": %" PRIu64 ", \"returned\": %" PRIu64 ", \"late_ns\": %" PRIu64,
	       phase ? ", " : "", phase, rate, map->accesses, ended - began,
	       cpu_ended - cpu_began, map->cold_accesses, beyond, map->evicted, map->returned,
	       late);
	print_area("hot_pages", &map->hot, is->slice);
	print_area("cold_pages", &map->cold, is->slice);
	printf("}");
}

static int run(const struct settings *is)
{
	uint64_t most = is->ops > is->warm ? is->ops : is->warm;
	uint32_t *trace = malloc(most * sizeof(*trace)), key;
	struct value_map map;
	struct draw draw;
	unsigned int i;

	if (!trace)
		fail("memory");
	value_map_init(&map, is->keys, is->hot, is->cold, true, is->seed);
	read_state(&map, is->state, !is->hot);
	/* Other keys than those that settled it */
	draw_init(&draw, is->seed + 1, is->keys, is->is_zipf);
	printf("{\"clock_of_million\": %" PRIu64 ", \"phases\": [", clock_of_million());
	for (i = 0; i < is->nr_rates; i++)
		run_phase(&map, is, &draw, trace, i);
	for (key = 0; key < is->keys; key++)
		map.wrong += !value_is_right(value_at(&map, map.entries[key].place), key,
					     map.entries[key].version);
	printf("], \"wrong\": %" PRIu64 "}\n", map.wrong);
	return map.wrong != 0;
}

int main(int argc, char **argv)
{
	struct settings is = { .is_zipf = true, .slice = 128 * MIB, .nr_rates = 1 };
	int i;

	for (i = 2; i < argc; i++)
		take(&is, argv[i]);
	if (argc < 2 || !is.state)
		usage("a command and state=FILE are needed");
	if (!is.keys || is.keys >= IS_WRITE || !is.ops)
		usage("keys and ops: expected at least 1 of each, and fewer keys than 2^31");
	if (is.hot && (is.hot < 2 * EVICTED || (is.hot < is.keys && is.cold < is.keys - is.hot +
						EVICTED)))
		usage("hot, cold: too little room, with 64 values that move together");
	if (!is.slice || is.slice % 4096)
		usage("slice: expected a multiple of 4096");
	if (!strcmp(argv[1], "settle"))
		return settle(&is);
	if (!strcmp(argv[1], "run"))
		return run(&is);
	usage(argv[1]);
}
