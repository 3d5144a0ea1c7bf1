// SPDX-License-Identifier: GPL-2.0
/*
 * A vendor's driver for memory whose segments can be powered down, as it would be written for any
 * kernel: it follows memory hotplug and knows nothing of ramslice. Powered down, a segment loses
 * its contents and must not be touched. Here the first word of each page is overwritten, and looked
 * at when power comes back.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/module.h>

#define SEGMENT_PAGES	(SZ_64M >> PAGE_SHIFT)
#define NR_SEGMENTS	4096	/* 256 GiB */
#define LOST		0x6c6f7374ul

static DECLARE_BITMAP(unpowered, NR_SEGMENTS);

static int nr_down, nr_up, nr_touched, refuse_up, keep = -1;
module_param(nr_down, int, 0444);
MODULE_PARM_DESC(nr_down, "segments powered down so far");
module_param(nr_up, int, 0444);
MODULE_PARM_DESC(nr_up, "segments powered up so far");
module_param(nr_touched, int, 0444);
MODULE_PARM_DESC(nr_touched, "pages that were written to while they had no power");
module_param(refuse_up, int, 0644);
MODULE_PARM_DESC(refuse_up, "this many times, power does not come back");
module_param(keep, int, 0644);
MODULE_PARM_DESC(keep, "a segment that must stay powered");

static int unpowered_get(char *buffer, const struct kernel_param *param)
{
	return scnprintf(buffer, PAGE_SIZE, "%*pbl\n", NR_SEGMENTS, unpowered);
}

static const struct kernel_param_ops unpowered_ops = { .get = unpowered_get };
module_param_cb(unpowered, &unpowered_ops, NULL, 0444);
MODULE_PARM_DESC(unpowered, "segments that are powered down, by number from address 0");

/* The control: what this writes is found when the segment's power comes back. */
static int touch_set(const char *text, const struct kernel_param *param)
{
	unsigned long segment;
	int err = kstrtoul(text, 0, &segment);

	if (err)
		return err;
	if (segment >= NR_SEGMENTS || !test_bit(segment, unpowered))
		return -EINVAL;
	*(unsigned long *)__va(PFN_PHYS(segment * SEGMENT_PAGES)) = 0;
	return 0;
}

static const struct kernel_param_ops touch_ops = { .set = touch_set };
module_param_cb(touch, &touch_ops, NULL, 0200);
MODULE_PARM_DESC(touch, "writes to a segment that is powered down");

static void power(unsigned long first, unsigned long nr, bool up)
{
	unsigned long i, pfn;

	for (i = first; i < first + nr; i++) {
		if (test_bit(i, unpowered) != up)
			continue;
		for (pfn = i * SEGMENT_PAGES; pfn < (i + 1) * SEGMENT_PAGES; pfn++) {
			unsigned long *word = __va(PFN_PHYS(pfn));

			if (up && READ_ONCE(*word) != (LOST ^ pfn))
				nr_touched++;
			if (!up)
				WRITE_ONCE(*word, LOST ^ pfn);
		}
		change_bit(i, unpowered);
		*(up ? &nr_up : &nr_down) += 1;
	}
}

/* Memory hotplug calls this under its own lock, one block at a time. */
static int memory_changes(struct notifier_block *self, unsigned long action, void *arg)
{
	const struct memory_notify *range = arg;
	unsigned long first = range->start_pfn / SEGMENT_PAGES,
		      nr = range->nr_pages / SEGMENT_PAGES;

	switch (action) {
	case MEM_GOING_OFFLINE:		/* still in use: only the moment to refuse */
		if (keep < 0 || keep < first || keep >= first + nr)
			break;
		pr_err("segment %d must stay powered\n", keep);
		return NOTIFY_BAD;
	case MEM_OFFLINE:		/* it is out of use */
	case MEM_CANCEL_ONLINE:		/* another listener refused it */
		power(first, nr, false);
		break;
	case MEM_GOING_ONLINE:		/* before it is in use */
		if (refuse_up > 0) {
			refuse_up--;
			pr_err("segments %lu to %lu do not power up\n", first, first + nr - 1);
			return NOTIFY_BAD;
		}
		power(first, nr, true);
		break;
	}
	return NOTIFY_OK;
}

static struct notifier_block listener = { .notifier_call = memory_changes };

static int __init segments_init(void)
{
	return register_memory_notifier(&listener);
}
module_init(segments_init);
/* It cannot be unloaded: what has no power would be forgotten. */

MODULE_DESCRIPTION("A vendor's power driver behind memory hotplug, for tests");
MODULE_LICENSE("GPL");
