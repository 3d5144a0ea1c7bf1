// SPDX-License-Identifier: GPL-2.0
/*
 * Slices as a table of segments of unequal sizes, as hardware may have them:
 * what the command line or firmware says, whether that can be, and which slice memory is of.
 *
 * Segments begin and end at multiples of a power of two, so that a shift and an
 * array say which one a pageblock is of. What no segment covers is no slice, and
 * stays on.
 */

#include <linux/acpi.h>
#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include "../internal.h"
#include "internal.h"
#include "boot_args.h"
#include "segments.h"

/* Length of the array that is looked up: 4 MiB of memory. */
#define RAMSLICE_MAX_UNITS	BIT(20)

static struct ramslice_segment ramslice_boot_segments[RAMSLICE_MAX_SEGMENTS]
	__initdata;

u64 ramslice_pageblock_bytes(void)
{
	return (u64)pageblock_nr_pages << PAGE_SHIFT;
}

/* SIZE@START */
static int ramslice_parse_segment(char *entry, struct ramslice_segment *seg)
{
	char *start = strchr(entry, '@');
	int err;

	if (!start)
		return -EINVAL;
	*start++ = '\0';
	err = ramslice_parse_bytes(entry, &seg->bytes);
	return err ?: ramslice_parse_bytes(start, &seg->start_bytes);
}

/**
 * ramslice_parse_segments - parse a list of segments
 * @text: SIZE@START, and more of these, separated by commas
 * @seg: set to them, as they come
 * @nr: how many fit there; set to how many there are
 * @entry: set to the one that is wrong, within @text
 *
 * Return: 0; -EINVAL if one is not SIZE@START; -ERANGE if a number does not fit;
 * -E2BIG if there are more than fit.
 */
int ramslice_parse_segments(const char *text, struct ramslice_segment *seg,
			    unsigned int *nr, const char **entry)
{
	unsigned int room = *nr;
	int err = 0;

	*nr = 0;
	do {
		size_t len = strcspn(text, ",");
		char words[64];

		*entry = text;
		if (*nr == room)
			return -E2BIG;
		if (len >= sizeof(words))
			return -EINVAL;
		memcpy(words, text, len);
		words[len] = '\0';
		err = ramslice_parse_segment(words, &seg[*nr]);
		if (err)
			return err;
		++*nr;
		text += len;
	} while (*text++);
	return 0;
}

static int ramslice_by_start(const void *a, const void *b)
{
	const struct ramslice_segment *x = a, *y = b;

	return x->start_bytes < y->start_bytes ? -1 :
	       x->start_bytes > y->start_bytes;
}

static const char *ramslice_check_segment(const struct ramslice_segment *seg)
{
	u64 mask = ramslice_pageblock_bytes() - 1;

	if (!seg->bytes)
		return "it is empty";
	if ((seg->start_bytes | seg->bytes) & mask)
		return "it must consist of whole pageblocks";
	if (seg->bytes >> PAGE_SHIFT > U32_MAX)
		return "it is too large";
	if (seg->bytes > BIT_ULL(MAX_PHYSMEM_BITS) ||
	    seg->start_bytes > BIT_ULL(MAX_PHYSMEM_BITS) - seg->bytes)
		return "it exceeds the addresses that memory can have";
	return NULL;
}

static u64 ramslice_segments_unit(const struct ramslice_segment *seg,
				  unsigned int nr)
{
	u64 all = 0;
	unsigned int i;

	for (i = 0; i < nr; i++)
		all |= seg[i].start_bytes | seg[i].bytes;
	return all & -all;
}

/**
 * ramslice_check_segments - can these be slices?
 * @seg: the segments; sorted by their addresses
 * @nr: their number
 * @bad: set to the index of the one that cannot
 *
 * Return: NULL, or what is wrong with it.
 */
const char *ramslice_check_segments(struct ramslice_segment *seg,
				    unsigned int nr, unsigned int *bad)
{
	unsigned int i;
	u64 span;

	*bad = 0;
	if (!nr)
		return "there is none";
	if (nr > RAMSLICE_MAX_SEGMENTS)
		return "there are too many";
	sort(seg, nr, sizeof(*seg), ramslice_by_start, NULL);
	for (i = 0; i < nr; i++) {
		const char *wrong = ramslice_check_segment(&seg[i]);

		*bad = i;
		if (wrong)
			return wrong;
		if (i && seg[i].start_bytes - seg[i - 1].start_bytes <
			 seg[i - 1].bytes)
			return "it overlaps the one before";
	}
	span = seg[nr - 1].start_bytes + seg[nr - 1].bytes - seg[0].start_bytes;
	if (span >> ilog2(ramslice_segments_unit(seg, nr)) > RAMSLICE_MAX_UNITS)
		return "so far from the first, all need coarser addresses and sizes";
	return NULL;
}

/**
 * ramslice_make_segments - a table of segments that were checked
 * @seg: the segments, by ascending address
 * @nr: their number
 *
 * Context: May sleep.
 * Return: the table, or NULL if there is no memory for it.
 */
struct ramslice_segments *
ramslice_make_segments(const struct ramslice_segment *seg, unsigned int nr)
{
	unsigned int i, shift = ilog2(ramslice_segments_unit(seg, nr));
	struct ramslice_segments *t = kzalloc(sizeof(*t), GFP_KERNEL);
	unsigned long unit, first, end;

	if (!t)
		return NULL;
	first = seg[0].start_bytes >> shift;
	end = (seg[nr - 1].start_bytes + seg[nr - 1].bytes) >> shift;
	t->nr = nr;
	t->unit_shift = shift - PAGE_SHIFT - pageblock_order;
	t->first_unit = first;
	t->nr_units = end - first;
	t->at = kvcalloc(nr, sizeof(*t->at), GFP_KERNEL);
	t->id = kvmalloc_array(t->nr_units, sizeof(*t->id), GFP_KERNEL);
	if (!t->at || !t->id) {
		ramslice_free_segments(t);
		return NULL;
	}
	memset32(t->id, RAMSLICE_NO_ID, t->nr_units);
	for (i = 0; i < nr; i++) {
		unit = (seg[i].start_bytes >> shift) - first;
		t->at[i].first = (first + unit) << t->unit_shift;
		t->at[i].nr = (seg[i].bytes >> shift) << t->unit_shift;
		memset32(t->id + unit, i, seg[i].bytes >> shift);
	}
	return t;
}

void ramslice_free_segments(struct ramslice_segments *t)
{
	kvfree(t->id);
	kvfree(t->at);
	kfree(t);
}

/* The slice that a pageblock is of, or RAMSLICE_NO_ID. */
u32 ramslice_segment_of(const struct ramslice_segments *t, unsigned long block)
{
	unsigned long unit = (block >> t->unit_shift) - t->first_unit;

	return unit < t->nr_units ? t->id[unit] : RAMSLICE_NO_ID;
}

/* How many segments begin at a pageblock or before. */
u32 ramslice_segments_up_to(const struct ramslice_segments *t,
			    unsigned long block)
{
	u32 low = 0, high = t->nr;

	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (t->at[mid].first <= block)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The first slice that ends after a pageblock; as many as there are: none. */
u32 ramslice_segments_from(const struct ramslice_segments *t,
			   unsigned long block)
{
	u32 id = ramslice_segments_up_to(t, block);

	if (id && block - t->at[id - 1].first < t->at[id - 1].nr)
		return id - 1;
	return id;
}

static int __init ramslice_refuse_segment(const struct ramslice_segment *seg,
					  const char *wrong)
{
	pr_err("off: the table of slices has %llu bytes at 0x%llx: %s (a pageblock has %llu bytes)\n",
	       seg->bytes, seg->start_bytes, wrong, ramslice_pageblock_bytes());
	return -EINVAL;
}

static int __init ramslice_refuse_entry(const char *entry, int err)
{
	int len = strcspn(entry, ",");

	if (err == -E2BIG)
		pr_err("off: the table of slices has more than %u entries, from \"%.*s\" on\n",
		       RAMSLICE_MAX_SEGMENTS, len, entry);
	else
		pr_err("off: \"%.*s\" in the table of slices is not SIZE@START%s\n",
		       len, entry, err == -ERANGE ? " with numbers that fit" : "");
	return err;
}

/* Those of firmware: 0, or an error that the log explains. */
static int __init ramslice_firmware_segments(struct ramslice_segment *seg,
					     unsigned int *nr)
{
	/* A constant without CONFIG_ACPI */
	if (!acpi_disabled)
		return ramslice_mpst_segments(seg, nr);
	if (IS_ENABLED(CONFIG_OF))
		return ramslice_ddr_segments(seg, nr);
	pr_err("off: which segments of memory power down as one is not known: the kernel was booted without ACPI, and reads no device tree\n");
	return -ENOENT;
}

/**
 * ramslice_segments_init - have slices be what a table says, if there is one
 * @boot: the command line
 *
 * Context: boot. May sleep.
 * Return: 0, or an error that the log explains; ramslice has to stay off then.
 */
int __init ramslice_segments_init(const struct ramslice_boot *boot)
{
	struct ramslice_segment *seg = ramslice_boot_segments;
	unsigned int nr = RAMSLICE_MAX_SEGMENTS, bad;
	struct ramslice_segments *t;
	const char *entry, *wrong;
	int err;

	if (boot->firmware) {
		err = ramslice_firmware_segments(seg, &nr);
		if (err)
			return err;
	} else if (boot->table) {
		err = ramslice_parse_segments(boot->table, seg, &nr, &entry);
		if (err)
			return ramslice_refuse_entry(entry, err);
	} else {
		return 0;
	}
	wrong = ramslice_check_segments(seg, nr, &bad);
	if (wrong)
		return ramslice_refuse_segment(&seg[bad], wrong);
	t = ramslice_make_segments(seg, nr);
	if (!t)
		return -ENOMEM;
	ramslice_geom_set_table(&ramslice_geom, t);
	return 0;
}
