// SPDX-License-Identifier: GPL-2.0
/*
 * Segments of memory as firmware knows them: the nodes of ACPI's Memory Power
 * State Table (ACPI 6.5, 5.2.22).
 *
 * A node is a range of addresses that changes its power state as one. Firmware may
 * be wrong in any way: what is not as the specification has it is refused, with
 * the node and the reason, and nothing is read past the end of the table.
 */

#include <linux/acpi.h>
#include <linux/overflow.h>
#include "../internal.h"
#include "internal.h"
#include "segments.h"

#define RAMSLICE_MPST_WANTED	(ACPI_MPST_ENABLED | ACPI_MPST_POWER_MANAGED)

/* Bytes that a node has by its counts. */
static u64 ramslice_mpst_needs(const struct acpi_mpst_power_node *node)
{
	return sizeof(*node) +
	       (u64)node->num_power_states *
	       sizeof(struct acpi_mpst_power_state) +
	       (u64)node->num_physical_components *
	       sizeof(struct acpi_mpst_component);
}

/* Is there a state below full power, which is 0? The node's bytes are there. */
static bool ramslice_mpst_goes_off(const u8 *at,
				   const struct acpi_mpst_power_node *node)
{
	u32 i;

	at += sizeof(*node);
	for (i = 0; i < node->num_power_states; i++) {
		struct acpi_mpst_power_state state;

		memcpy(&state, at + i * sizeof(state), sizeof(state));
		if (state.power_state)
			return true;
	}
	return false;
}

/* Does another lie in it, smaller? Then it goes off only once all of those are. */
static bool ramslice_mpst_is_outer(const struct ramslice_segment *seg,
				   unsigned int nr, unsigned int at)
{
	u64 start = seg[at].start_bytes, end = start + seg[at].bytes;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (seg[i].start_bytes >= start &&
		    seg[i].start_bytes + seg[i].bytes <= end &&
		    seg[i].bytes < seg[at].bytes)
			return true;
	}
	return false;
}

static unsigned int ramslice_mpst_drop_outer(struct ramslice_segment *seg,
					     unsigned int nr)
{
	unsigned int i, kept = 0;
	/* Those that are left out must stay to be compared with until all are seen */
	DECLARE_BITMAP(outer, RAMSLICE_MAX_SEGMENTS) = {};

	for (i = 0; i < nr; i++) {
		if (ramslice_mpst_is_outer(seg, nr, i))
			__set_bit(i, outer);
	}
	for (i = 0; i < nr; i++) {
		if (!test_bit(i, outer))
			seg[kept++] = seg[i];
	}
	return kept;
}

static u8 ramslice_mpst_sum(const u8 *table, size_t len)
{
	u8 sum = 0;

	while (len--)
		sum += *table++;
	return sum;
}

/**
 * ramslice_parse_mpst - the segments that a Memory Power State Table has
 * @table: the table
 * @len: its length in bytes, as mapped
 * @seg: set to nodes that are enabled, power managed, have a state below full
 *	 power, and have no other of these inside; hot-pluggable ones, too: their
 *	 memory may come later
 * @nr: how many fit there; set to how many there are
 * @node: set to the node that is wrong, counted from 0
 *
 * Return: NULL, or what is wrong.
 */
const char *ramslice_parse_mpst(const void *table, size_t len,
				struct ramslice_segment *seg, unsigned int *nr,
				unsigned int *node)
{
	unsigned int room = *nr, count = 0, i;
	const struct acpi_table_mpst *mpst = table;
	size_t at = sizeof(*mpst);
	u32 length;
	u16 nodes;

	*nr = 0;
	*node = 0;
	if (len < sizeof(*mpst))
		return "the table ends before its count of nodes";
	memcpy(&length, &mpst->header.length, sizeof(length));
	if (length != len)
		return "the table is not as long as it says";
	if (ramslice_mpst_sum(table, len))
		return "the checksum of the table is wrong";
	memcpy(&nodes, &mpst->power_node_count, sizeof(nodes));
	for (i = 0; i < nodes; i++) {
		struct acpi_mpst_power_node n;
		u64 end;

		*node = i;
		if (len - at < sizeof(n))
			return "the table ends inside it";
		memcpy(&n, table + at, sizeof(n));
		if (n.length < ramslice_mpst_needs(&n))
			return "it is shorter than its entries";
		if (n.length > len - at)
			return "it reaches past the end of the table";
		if ((n.flags & RAMSLICE_MPST_WANTED) == RAMSLICE_MPST_WANTED &&
		    ramslice_mpst_goes_off(table + at, &n)) {
			unsigned int other;

			if (!n.range_length)
				return "it has no memory";
			if (check_add_overflow(n.range_address, n.range_length,
					       &end))
				return "its addresses overflow";
			if (count == room)
				return "there are too many";
			seg[count].start_bytes = n.range_address;
			seg[count].bytes = n.range_length;
			for (other = 0; other < count; other++) {
				if (!memcmp(&seg[other], &seg[count],
					    sizeof(*seg)))
					return "another has the same addresses";
			}
			count++;
		}
		at += n.length;
	}
	*nr = ramslice_mpst_drop_outer(seg, count);
	return NULL;
}

/**
 * ramslice_mpst_segments - the segments that ACPI knows
 * @seg: set to them
 * @nr: how many fit there, at most RAMSLICE_MAX_SEGMENTS; set to how many there are
 *
 * Context: boot. May sleep.
 * Return: 0; -ENOENT or -EINVAL, which the log explains.
 */
int __init ramslice_mpst_segments(struct ramslice_segment *seg,
				  unsigned int *nr)
{
	struct acpi_table_header *table;
	unsigned int node;
	const char *wrong;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_MPST, 0, &table))) {
		pr_err("off: which segments of memory power down as one is not known: firmware has no ACPI table MPST\n");
		return -ENOENT;
	}
	wrong = ramslice_parse_mpst(table, table->length, seg, nr, &node);
	acpi_put_table(table);
	if (wrong) {
		pr_err("off: ACPI table MPST, node %u: %s\n", node, wrong);
		return -EINVAL;
	}
	if (!*nr) {
		pr_err("off: no node of the ACPI table MPST is enabled, power managed and has a state below full power\n");
		return -ENOENT;
	}
	return 0;
}
