/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A map of values of 1 KiB in memory, most of whose accesses go to one of two
 * areas: after the Energy-Aware Map of a master's thesis on hot and cold memory
 * in Linux, whose values and odds are those of DimmStore.
 *
 * Values in the hot area are in a list by their last use. When that area has no
 * room, the EVICTED values at the list's end go to the cold area; an access to a
 * value there brings it back with a probability of 1 in RETURN_ODDS. With one
 * area, there is the list, and nothing moves.
 *
 * A map without memory for values keeps its lists alone.
 */
#ifndef RAMSLICE_VALUE_MAP_H
#define RAMSLICE_VALUE_MAP_H

#include "access_marker.h"
#include "draw_keys.h"

#define VALUE_BYTES	1024UL
#define VALUE_WORDS	(VALUE_BYTES / sizeof(uint64_t))
#define EVICTED		64
#define RETURN_ODDS	64
#define IS_COLD		(1U << 31)

/**
 * struct entry - a key
 * @place:	its value's slot, with IS_COLD if that is one of the cold area
 * @version:	how often it was written
 * @newer, @older: the list of the hot area; its ends are the entry behind the last
 */
struct entry {
	uint32_t place;
	uint32_t version;
	uint32_t newer, older;
};

/**
 * struct area - room for values
 * @values:	where they are, or NULL
 * @nr:		how many there is room for
 * @nr_begun:	slots from this one on were never in use
 * @unused:	slots below it that are not, last one first
 */
struct area {
	char *values;
	uint32_t nr, nr_begun, nr_unused;
	uint32_t *unused;
};

/**
 * struct value_map - all of it
 * @coins:	what decides whether a value comes back
 * @accesses, @cold_accesses: to values, and those of them that were in the cold area
 * @evicted, @returned: values that moved
 * @wrong:	values that were not what was written
 */
struct value_map {
	struct entry *entries;
	uint32_t nr_keys;
	struct area hot, cold;
	struct draw coins;
	uint64_t accesses, cold_accesses, evicted, returned, wrong;
};

static inline bool area_is_full(const struct area *area)
{
	return !area->nr_unused && area->nr_begun == area->nr;
}

static inline uint32_t area_take(struct area *area)
{
	if (area->nr_unused)
		return area->unused[--area->nr_unused];
	if (area->nr_begun == area->nr) {
		errno = ENOSPC;
		fail("the cold area");
	}
	return area->nr_begun++;
}

static inline void area_init(struct area *area, uint32_t nr, bool has_values, bool is_cold)
{
	area->nr = nr;
	area->unused = nr ? malloc(nr * sizeof(*area->unused)) : NULL;
	area->values = nr && has_values ? map_memory(nr * VALUE_BYTES, is_cold) : NULL;
	if (nr && !area->unused)
		fail("memory");
}

static inline uint64_t *value_at(struct value_map *map, uint32_t place)
{
	struct area *area = place & IS_COLD ? &map->cold : &map->hot;

	return area->values ?
		(uint64_t *)(area->values + (place & ~IS_COLD) * VALUE_BYTES) : NULL;
}

static inline uint64_t first_word(uint32_t key, uint32_t version)
{
	return mix((uint64_t)key << 32 | version);
}

static inline void fill_value(uint64_t *value, uint32_t key, uint32_t version)
{
	uint64_t word = first_word(key, version);
	size_t i;

	for (i = 0; value && i < VALUE_WORDS; i++, word += GOLDEN)
		value[i] = word;
}

/* Reads all of a value: whether it is what was written. */
static inline bool value_is_right(const uint64_t *value, uint32_t key, uint32_t version)
{
	uint64_t word = first_word(key, version), differs = 0;
	size_t i;

	for (i = 0; value && i < VALUE_WORDS; i++, word += GOLDEN)
		differs |= value[i] ^ word;
	return !differs;
}

static inline void list_remove(struct value_map *map, uint32_t key)
{
	struct entry *entry = map->entries + key;

	map->entries[entry->newer].older = entry->older;
	map->entries[entry->older].newer = entry->newer;
}

static inline void list_add_newest(struct value_map *map, uint32_t key)
{
	struct entry *ends = map->entries + map->nr_keys, *entry = map->entries + key;

	entry->newer = map->nr_keys;
	entry->older = ends->older;
	map->entries[ends->older].newer = key;
	ends->older = key;
}

static inline void move_value(struct value_map *map, uint32_t key, uint32_t place)
{
	uint64_t *from = value_at(map, map->entries[key].place), *to = value_at(map, place);

	if (from)
		memcpy(to, from, VALUE_BYTES);
	map->entries[key].place = place;
}

/* Has room in the hot area for one more value. */
static inline void make_room(struct value_map *map)
{
	struct entry *ends = map->entries + map->nr_keys;
	unsigned int i;

	if (!area_is_full(&map->hot))
		return;
	for (i = 0; i < EVICTED && ends->newer != map->nr_keys; i++) {
		uint32_t key = ends->newer, slot = map->entries[key].place;

		list_remove(map, key);
		move_value(map, key, area_take(&map->cold) | IS_COLD);
		map->hot.unused[map->hot.nr_unused++] = slot;
		map->evicted++;
	}
}

static inline void bring_back(struct value_map *map, uint32_t key)
{
	uint32_t slot = map->entries[key].place & ~IS_COLD;

	make_room(map);
	move_value(map, key, area_take(&map->hot));
	map->cold.unused[map->cold.nr_unused++] = slot;
	list_add_newest(map, key);
	map->returned++;
}

/* Puts a new value where it is wanted. */
static inline void insert(struct value_map *map, uint32_t key, bool is_cold)
{
	uint32_t place;

	if (is_cold) {
		place = area_take(&map->cold) | IS_COLD;
	} else {
		make_room(map);
		place = area_take(&map->hot);
		list_add_newest(map, key);
	}
	map->entries[key].place = place;
	fill_value(value_at(map, place), key, map->entries[key].version);
}

/* A transaction: reads a value, and then may write another. */
static inline void access_value(struct value_map *map, uint32_t key, bool is_write)
{
	struct entry *entry = map->entries + key;
	uint64_t *value = value_at(map, entry->place);

	map->accesses++;
	map->wrong += !value_is_right(value, key, entry->version);
	if (is_write)
		fill_value(value, key, ++entry->version);
	if (entry->place & IS_COLD) {
		map->cold_accesses++;
		if (!draw_below(&map->coins, RETURN_ODDS))
			bring_back(map, key);
	} else {
		list_remove(map, key);
		list_add_newest(map, key);
	}
}

/* A map without a value; with nr_hot of 0 it has one area, for all. */
static inline void value_map_init(struct value_map *map, uint32_t nr_keys, uint32_t nr_hot,
				  uint32_t nr_cold, bool has_values, uint64_t seed)
{
	*map = (struct value_map) { .nr_keys = nr_keys };
	map->entries = calloc(nr_keys + 1UL, sizeof(*map->entries));
	if (!map->entries)
		fail("memory");
	map->entries[nr_keys].newer = map->entries[nr_keys].older = nr_keys;
	area_init(&map->hot, nr_hot ? nr_hot : nr_keys, has_values, false);
	area_init(&map->cold, nr_hot ? nr_cold : 0, has_values, true);
	draw_init(&map->coins, ~seed, nr_keys, false);
}

#endif
