// SPDX-License-Identifier: GPL-2.0
/*
 * Segments of memory as a device tree has them: the node ddr-regions, which
 * Qualcomm's bootloaders add.
 *
 * There is no binding. As the driver that the node is for reads it, the properties
 * region0, region1 and so on have five numbers of 64 bits each: where the region
 * begins, its length in bytes, how many bytes lie before its first whole segment,
 * that segment's index in the DRAM, and the size of segments in MiB, 0 where memory
 * does not power down. What is before the first and after the last whole segment
 * stays on. The index is the memory controller's, and is not needed here.
 *
 * Firmware may be wrong in any way: what cannot be is refused, with the property
 * and the reason, and nothing is read past a property's end.
 */

#include <linux/kernel.h>
#include <linux/of.h>
#include <linux/overflow.h>
#include <linux/sizes.h>
#include "../internal.h"
#include "internal.h"
#include "segments.h"

/* As many as Qualcomm's driver reads. */
#define RAMSLICE_DDR_REGIONS	10

/* A property, as it is in the tree. */
struct ramslice_ddr_cells {
	__be32 start[2];
	__be32 bytes[2];
	__be32 offset[2];
	__be32 index[2];
	__be32 granule_mib[2];
};

struct ramslice_ddr_region {
	u64 start_bytes;
	u64 end_bytes;
	u64 offset_bytes;
	u64 granule_bytes;
};

static const struct property *
ramslice_ddr_property(const struct device_node *node, unsigned int number)
{
	char name[16];

	snprintf(name, sizeof(name), "region%u", number);
	return of_find_property(node, name, NULL);
}

/* NULL, or what is wrong with a region. */
static const char *
ramslice_ddr_read_region(const struct property *property,
			 struct ramslice_ddr_region *region)
{
	const struct ramslice_ddr_cells *cells = property->value;
	u64 bytes;

	if (property->length != sizeof(*cells))
		return "it does not have five numbers of 64 bits";
	region->start_bytes = of_read_number(cells->start, 2);
	bytes = of_read_number(cells->bytes, 2);
	region->offset_bytes = of_read_number(cells->offset, 2);
	region->granule_bytes = of_read_number(cells->granule_mib, 2);
	if (!bytes)
		return "it has no memory";
	if (check_add_overflow(region->start_bytes, bytes, &region->end_bytes))
		return "its addresses overflow";
	if (check_mul_overflow(region->granule_bytes, (u64)SZ_1M,
			       &region->granule_bytes))
		return "the size of its segments overflows";
	return NULL;
}

/* Adds a region's whole segments. NULL, or what is wrong with them. */
static const char *
ramslice_ddr_add_segments(const struct ramslice_ddr_region *region,
			  u64 block_bytes, struct ramslice_segment *seg,
			  unsigned int room, unsigned int *count)
{
	u64 bytes = region->end_bytes - region->start_bytes;
	u64 nr, at, i;

	if (!region->granule_bytes || region->offset_bytes >= bytes)
		return NULL;
	nr = (bytes - region->offset_bytes) / region->granule_bytes;
	if (!nr)
		return NULL;
	at = region->start_bytes + region->offset_bytes;
	if ((at | region->granule_bytes) & (block_bytes - 1))
		return "its segments do not consist of whole pageblocks";
	if (nr > room - *count)
		return "there are too many segments";
	for (i = 0; i < nr; i++) {
		seg[*count].start_bytes = at;
		seg[*count].bytes = region->granule_bytes;
		++*count;
		at += region->granule_bytes;
	}
	return NULL;
}

/**
 * ramslice_parse_ddr_regions - the segments that a device tree's node has
 * @node: the node
 * @block_bytes: size of a pageblock, a power of two
 * @seg: set to the whole segments of regions whose memory powers down
 * @nr: how many fit there; set to how many there are
 * @number: set to the number in the name of the property that is wrong
 *
 * Return: NULL, or what is wrong.
 */
const char *ramslice_parse_ddr_regions(const struct device_node *node,
				       u64 block_bytes,
				       struct ramslice_segment *seg,
				       unsigned int *nr, unsigned int *number)
{
	struct ramslice_ddr_region regions[RAMSLICE_DDR_REGIONS];
	unsigned int room = *nr, count = 0, i, other;

	*nr = 0;
	for (i = 0; i < RAMSLICE_DDR_REGIONS; i++) {
		const struct property *property = ramslice_ddr_property(node, i);
		const char *wrong;

		if (!property)
			break;
		*number = i;
		wrong = ramslice_ddr_read_region(property, &regions[i]);
		if (wrong)
			return wrong;
		for (other = 0; other < i; other++) {
			if (regions[i].start_bytes < regions[other].end_bytes &&
			    regions[other].start_bytes < regions[i].end_bytes)
				return "it overlaps a region before it";
		}
		wrong = ramslice_ddr_add_segments(&regions[i], block_bytes, seg,
						  room, &count);
		if (wrong)
			return wrong;
	}
	*number = i;
	if (!i)
		return "it is missing";
	if (ramslice_ddr_property(node, i))
		return "there are too many regions";
	/* The driver stops at a gap, and would not know what comes after it */
	for (other = i + 1; other <= RAMSLICE_DDR_REGIONS; other++) {
		if (ramslice_ddr_property(node, other))
			return "it is missing, but a later one is there";
	}
	*nr = count;
	return NULL;
}

/**
 * ramslice_ddr_segments - the segments that the device tree knows
 * @seg: set to them
 * @nr: how many fit there, at most RAMSLICE_MAX_SEGMENTS; set to how many there are
 *
 * Context: boot. May sleep.
 * Return: 0; -ENOENT or -EINVAL, which the log explains.
 */
int __init ramslice_ddr_segments(struct ramslice_segment *seg, unsigned int *nr)
{
	struct device_node *node;
	unsigned int number;
	const char *wrong;
	int err = 0;

	node = of_find_node_by_name(NULL, "ddr-regions");
	if (!node) {
		pr_err("off: which segments of memory power down as one is not known: the device tree has no node ddr-regions\n");
		return -ENOENT;
	}
	wrong = ramslice_parse_ddr_regions(node, ramslice_pageblock_bytes(),
					   seg, nr, &number);
	if (wrong) {
		pr_err("off: device tree node %pOF, property region%u: %s\n",
		       node, number, wrong);
		err = -EINVAL;
	} else if (!*nr) {
		pr_err("off: no region of the device tree node %pOF has a whole segment that powers down\n",
		       node);
		err = -ENOENT;
	}
	of_node_put(node);
	return err;
}
