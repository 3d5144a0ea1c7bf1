// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for the driver of a phone's vendor that ends the refresh of DRAM segments whose memory
 * blocks are offline. It follows memory hotplug on any kernel and knows nothing of ramslice.
 *
 * It has from Qualcomm's mem-offline:
 * - a table of regions whose segments differ in size, larger or smaller than a block;
 * - refresh begins at MEM_GOING_ONLINE of a segment's first block, ends at MEM_OFFLINE of its last
 *   one, and ends again at MEM_CANCEL_ONLINE if that block was the first;
 * - a mailbox to the firmware that may not answer: it waits, uninterruptibly, and gives up. Bad
 *   news at MEM_OFFLINE comes too late to refuse: the block is offline, the segment stays powered;
 * - SIGALRM to a task that takes too long to empty a block;
 * - MemTotal stays, because what hotplug takes from totalram_pages is put back;
 * - the files of /sys/kernel/mem-offline, but for anon_migrate.
 *
 * It has not: anon_migrate and its worker, memory that it adds to Movable at boot (kernelcore= or
 * movablecore= do that), the device tree (the table is a parameter), the RPM's older messages, a
 * panic or BUG when the firmware fails.
 *
 * Other than there, the errno of a failure is a parameter, and MEM_GOING_OFFLINE may be refused, as
 * other drivers do. A segment without refresh loses its contents: the first word of each page is
 * overwritten, and looked at when power comes back.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/completion.h>
#include <linux/kobject.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/timer.h>

#define NR_REGIONS	10
#define NR_SEGMENTS	16
#define LOST		0x6c6f7374ul

enum { ONLINE, OFFLINE, NR_STATES };

struct segment {
	phys_addr_t start;
	unsigned long size;
};

/* Attempts to reach one state, and the time spent in it. */
struct history {
	unsigned long successes, failures;
	u64 last_us, best_us, worst_us, total_us;
	ktime_t spent, since;
};

struct block {
	bool online;			/* as hotplug says */
	int state;			/* as the firmware was asked last */
	struct history history[NR_STATES];
};

static struct segment segments[NR_SEGMENTS];
static DECLARE_BITMAP(unpowered, NR_SEGMENTS);
static unsigned int nr_segments;

/* All from the first region's to the last one's; sysfs reads what the notifier writes. */
static DEFINE_MUTEX(history_lock);
static struct block *blocks;
static unsigned long first_block, nr_blocks, block_size;
static bool sizes_differ;

static char *regions[NR_REGIONS];
static int nr_regions;
module_param_array(regions, charp, &nr_regions, 0444);
MODULE_PARM_DESC(regions, "START:LENGTH:FIRST:GRANULE,...: where a region begins, its length, the offset of its first segment, the size of its segments (0: none), all in MiB");

static int nr_down, nr_up, nr_touched, refuse_up, others_refuse, lost;
static long keep = -1;
static int own_errno = ETIME;
static uint mailbox_ms = 4000, alarm_ms = 7000;
module_param(nr_down, int, 0444);
MODULE_PARM_DESC(nr_down, "segments powered down so far");
module_param(nr_up, int, 0444);
MODULE_PARM_DESC(nr_up, "segments powered up so far");
module_param(nr_touched, int, 0444);
MODULE_PARM_DESC(nr_touched, "pages that were written to while they had no power");
module_param(refuse_up, int, 0644);
MODULE_PARM_DESC(refuse_up, "this many times, the firmware refuses to power up");
module_param(others_refuse, int, 0644);
MODULE_PARM_DESC(others_refuse, "this many times, another listener refuses a block that comes online");
module_param(lost, int, 0644);
MODULE_PARM_DESC(lost, "this many messages get no answer");
module_param(mailbox_ms, uint, 0644);
MODULE_PARM_DESC(mailbox_ms, "how long to wait for an answer");
module_param(own_errno, int, 0644);
MODULE_PARM_DESC(own_errno, "what a failure to power up is reported as; 1 is that of NOTIFY_BAD");
module_param(alarm_ms, uint, 0644);
MODULE_PARM_DESC(alarm_ms, "how long a task may take to empty a block; 0: no time at all");
module_param(keep, long, 0644);
MODULE_PARM_DESC(keep, "a block that must stay powered");

static int unpowered_get(char *buffer, const struct kernel_param *param)
{
	return scnprintf(buffer, PAGE_SIZE, "%*pbl\n", NR_SEGMENTS, unpowered);
}

static const struct kernel_param_ops unpowered_ops = { .get = unpowered_get };
module_param_cb(unpowered, &unpowered_ops, NULL, 0444);
MODULE_PARM_DESC(unpowered, "segments that are powered down, by number in the table");

/* The control: what this writes is found when the segment's power comes back. */
static int touch_set(const char *text, const struct kernel_param *param)
{
	unsigned long segment;
	int err = kstrtoul(text, 0, &segment);

	if (err)
		return err;
	if (segment >= nr_segments || !test_bit(segment, unpowered))
		return -EINVAL;
	*(unsigned long *)__va(segments[segment].start) = 0;
	return 0;
}

static const struct kernel_param_ops touch_ops = { .set = touch_set };
module_param_cb(touch, &touch_ops, NULL, 0200);
MODULE_PARM_DESC(touch, "writes to a segment that is powered down");

/* The hardware: a segment that is asked for the state it is in stays as it is. */
static void refresh(unsigned int number, bool up)
{
	unsigned long pfn = PHYS_PFN(segments[number].start),
		      end = pfn + (segments[number].size >> PAGE_SHIFT);

	if (test_bit(number, unpowered) != up)
		return;
	for (; pfn < end; pfn++) {
		unsigned long *word = __va(PFN_PHYS(pfn));

		if (up && READ_ONCE(*word) != (LOST ^ pfn))
			nr_touched++;
		if (!up)
			WRITE_ONCE(*word, LOST ^ pfn);
	}
	change_bit(number, unpowered);
	*(up ? &nr_up : &nr_down) += 1;
}

/* The mailbox: one message to the firmware, and its answer. */
static int ask_firmware(unsigned int number, bool up)
{
	DECLARE_COMPLETION_ONSTACK(answer);

	if (lost > 0) {
		lost--;
		wait_for_completion_timeout(&answer, msecs_to_jiffies(mailbox_ms));
		pr_err("no answer within %u ms: segment %u does not power %s\n", mailbox_ms,
		       number, up ? "up" : "down");
		return -own_errno;
	}
	if (up && refuse_up > 0) {
		refuse_up--;
		pr_err("segment %u does not power up\n", number);
		return -own_errno;
	}
	refresh(number, up);
	return 0;
}

static phys_addr_t block_start(unsigned long i)
{
	return (first_block + i) * (phys_addr_t)block_size;
}

static bool overlaps(const struct segment *segment, unsigned long i)
{
	return segment->start < block_start(i) + block_size &&
	       block_start(i) < segment->start + segment->size;
}

static bool others_online(const struct segment *segment, unsigned long except)
{
	unsigned long i;

	for (i = 0; i < nr_blocks; i++)
		if (i != except && blocks[i].online && overlaps(segment, i))
			return true;
	return false;
}

/* Asks for all segments whose first block comes, or whose last one goes: all or none. */
static int block_changes(unsigned long i, int state)
{
	bool up = state == ONLINE;
	unsigned int number;
	int err = 0;

	if (blocks[i].state == state)
		return 0;
	for (number = 0; number < nr_segments; number++) {
		if (!overlaps(&segments[number], i) || others_online(&segments[number], i))
			continue;
		err = ask_firmware(number, up);
		if (err)
			break;
	}
	if (!err) {
		blocks[i].state = state;
		return 0;
	}
	while (number--)
		if (overlaps(&segments[number], i) && !others_online(&segments[number], i) &&
		    ask_firmware(number, !up))
			pr_err("segment %u is left as it is\n", number);
	return err;
}

static void begins(unsigned long i, int state)
{
	mutex_lock(&history_lock);
	blocks[i].history[state].failures++;	/* until it succeeds */
	mutex_unlock(&history_lock);
}

static void succeeds(unsigned long i, int state, ktime_t began)
{
	struct history *to = &blocks[i].history[state], *from = &blocks[i].history[!state];
	ktime_t now = ktime_get();
	u64 us = ktime_us_delta(now, began);

	mutex_lock(&history_lock);
	blocks[i].online = state == ONLINE;
	to->failures--;
	to->successes++;
	to->last_us = us;
	to->total_us += us;
	to->best_us = to->best_us ? min(to->best_us, us) : us;
	to->worst_us = max(to->worst_us, us);
	to->since = now;
	from->spent = ktime_add(from->spent, ktime_sub(now, from->since));
	mutex_unlock(&history_lock);
}

/* A task that empties a block for too long is interrupted. */
static struct task_struct *emptying;

static void alarm_rings(struct timer_list *unused)
{
	send_sig(SIGALRM, emptying, 1);
}

static DEFINE_TIMER(alarm, alarm_rings);

/* Memory hotplug calls this under its own lock, one block at a time. */
static int memory_changes(struct notifier_block *self, unsigned long action, void *arg)
{
	const struct memory_notify *range = arg;
	unsigned long i = PFN_PHYS(range->start_pfn) / block_size - first_block;
	static ktime_t began;
	int err;

	if (i >= nr_blocks)		/* of no segment */
		return NOTIFY_OK;
	switch (action) {
	case MEM_GOING_OFFLINE:
		if (keep == first_block + i) {
			pr_err("block %ld must stay powered\n", keep);
			return NOTIFY_BAD;
		}
		begins(i, OFFLINE);
		emptying = current;
		if (alarm_ms)
			mod_timer(&alarm, jiffies + msecs_to_jiffies(alarm_ms));
		else
			alarm_rings(NULL);
		began = ktime_get();
		break;
	case MEM_CANCEL_OFFLINE:
		del_timer_sync(&alarm);
		break;
	case MEM_OFFLINE:
		del_timer_sync(&alarm);
		block_changes(i, OFFLINE);	/* too late to refuse */
		succeeds(i, OFFLINE, began);
		totalram_pages_add(range->nr_pages);
		break;
	case MEM_GOING_ONLINE:
		begins(i, ONLINE);
		began = ktime_get();
		err = block_changes(i, ONLINE);
		if (err)
			return notifier_from_errno(err);
		break;
	case MEM_CANCEL_ONLINE:		/* refused here or by another listener */
		block_changes(i, OFFLINE);
		break;
	case MEM_ONLINE:
		succeeds(i, ONLINE, began);
		totalram_pages_add(-(long)range->nr_pages);
		break;
	}
	return NOTIFY_OK;
}

static struct notifier_block listener = { .notifier_call = memory_changes };

static int others_are_asked(struct notifier_block *self, unsigned long action, void *arg)
{
	if (action != MEM_GOING_ONLINE || others_refuse <= 0)
		return NOTIFY_OK;
	others_refuse--;
	return NOTIFY_BAD;
}

static struct notifier_block other_listener = {
	.notifier_call = others_are_asked,
	.priority = -1,
};

/* The files below are those of mem-offline, in their names and forms. */

static struct kobject *folder;

static ktime_t time_in(const struct block *block, int state, ktime_t now)
{
	const struct history *history = &block->history[state];

	if ((block->state == ONLINE) != (state == ONLINE))
		return history->spent;
	return ktime_add(history->spent, ktime_sub(now, history->since));
}

static int percent_in(const struct block *block, int state, ktime_t now)
{
	ktime_t all = ktime_add(time_in(block, ONLINE, now), time_in(block, OFFLINE, now));

	return all ? div64_s64(time_in(block, state, now) * 100, all) : 0;
}

/* One row of the table: a cell for each block. */
#define ROW(buffer, at, label, format, cell)						\
	do {										\
		unsigned long i;							\
											\
		at += sysfs_emit_at(buffer, at, "\t" label "\t");			\
		for (i = 0; i < nr_blocks; i++) {					\
			const struct block *block = &blocks[i];				\
			const struct history *history = &block->history[state];		\
											\
			(void)history;							\
			at += sysfs_emit_at(buffer, at, format "\t\t", cell);		\
		}									\
		at += sysfs_emit_at(buffer, at, "\n");					\
	} while (0)

static ssize_t stats_show(struct kobject *kobj, struct kobj_attribute *attr, char *buffer)
{
	ktime_t now = ktime_get(), online = 0, all = 0;
	int at = 0, state;
	unsigned long i;

	mutex_lock(&history_lock);
	for (state = ONLINE; state < NR_STATES; state++) {
		at += sysfs_emit_at(buffer, at, "\n\t%s\n\t\t\t",
				    state == ONLINE ? "ONLINE" : "OFFLINE");
		for (i = 0; i < nr_blocks; i++)
			at += sysfs_emit_at(buffer, at, "mem%lu\t\t", first_block + i);
		at += sysfs_emit_at(buffer, at, "\n");
		ROW(buffer, at, "Last recd time:", "%lluus", history->last_us);
		ROW(buffer, at, "Avg time:\t", "%lluus", history->successes ?
		    div64_ul(history->total_us, history->successes) : 0);
		ROW(buffer, at, "Best time:\t", "%lluus", history->best_us);
		ROW(buffer, at, "Worst time:\t", "%lluus", history->worst_us);
		ROW(buffer, at, "Success count:\t", "%lu", history->successes);
		ROW(buffer, at, "Fail count:\t", "%lu", history->failures);
	}
	state = ONLINE;
	at += sysfs_emit_at(buffer, at, "\n");
	ROW(buffer, at, "State:\t", "%s", block->state == ONLINE ? "Online" : "Offline");
	at += sysfs_emit_at(buffer, at, "\n");
	ROW(buffer, at, "Online time:", "%llds", ktime_divns(time_in(block, ONLINE, now),
							     NSEC_PER_SEC));
	ROW(buffer, at, "Offline time:", "%llds", ktime_divns(time_in(block, OFFLINE, now),
							      NSEC_PER_SEC));
	at += sysfs_emit_at(buffer, at, "\n");
	ROW(buffer, at, "Online %%:", "%d%%", percent_in(block, ONLINE, now));
	ROW(buffer, at, "Offline %%:", "%d%%", percent_in(block, OFFLINE, now));
	for (i = 0; i < nr_blocks; i++) {
		online = ktime_add(online, time_in(&blocks[i], ONLINE, now));
		all = ktime_add(all, time_in(&blocks[i], OFFLINE, now));
	}
	mutex_unlock(&history_lock);
	all = ktime_add(all, online);
	state = all ? div64_s64(online, div64_s64(all, 100) ?: 1) : 100;
	at += sysfs_emit_at(buffer, at, "\n\tAvg Online %%:\t%d%%\n", state);
	at += sysfs_emit_at(buffer, at, "\tAvg Offline %%:\t%d%%\n\n", 100 - state);
	return at;
}

#define FILE(name, format, value)							\
	static ssize_t name##_show(struct kobject *kobj, struct kobj_attribute *attr,	\
				   char *buffer)					\
	{										\
		return sysfs_emit(buffer, format "\n", value);				\
	}										\
	static struct kobj_attribute name = __ATTR_RO(name)

FILE(offline_granule, "%lu", segments[0].size);
FILE(differing_seg_sizes, "%d", sizes_differ);
FILE(num_segment, "%u", nr_segments);

static struct kobj_attribute stats = __ATTR_RO(stats);
static const struct attribute *folder_files[] = { &stats.attr, &offline_granule.attr, NULL };
static const struct attribute *differing_files[] = {
	&differing_seg_sizes.attr, &num_segment.attr, NULL
};

/* Folders are named by the number of their first section, as in memory8. */
static ssize_t allocated_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
				    char *buffer)
{
	unsigned long section, pfn, end, free = 0;
	struct page *page;

	if (sscanf(kobject_name(kobj), "memory%lu", &section) != 1)
		return -EINVAL;
	pfn = section_nr_to_pfn(section);
	end = pfn + PHYS_PFN(block_size);
	page = pfn_to_online_page(pfn);
	if (!page || page_zonenum(page) != ZONE_MOVABLE)
		return sysfs_emit(buffer, "0\n");
	/* Without the zone's lock: a page that changes hands meanwhile may count twice. */
	while (pfn < end) {
		unsigned long order = 0;

		page = pfn_to_online_page(pfn);
		if (page && PageBuddy(page)) {
			order = min(READ_ONCE(page->private), 10ul);
			free += 1ul << order;
		}
		pfn += 1ul << order;
	}
	return sysfs_emit(buffer, "%lu\n", block_size - min(free << PAGE_SHIFT, block_size));
}

static const struct segment *segment_of(const struct kobject *kobj)
{
	unsigned int number = 0;

	sscanf(kobject_name(kobj), "segment%u", &number);
	return &segments[min(number, nr_segments - 1)];
}

FILE(memblk_start, "%lu", (unsigned long)pfn_to_section_nr(PHYS_PFN(segment_of(kobj)->start)));
FILE(num_memblks, "%lu", max(segment_of(kobj)->size / block_size, 1ul));
FILE(seg_size, "%lu", segment_of(kobj)->size);

static struct kobj_attribute allocated_bytes = __ATTR_RO(allocated_bytes);
static const struct attribute *block_files[] = { &allocated_bytes.attr, NULL };
static const struct attribute *segment_files[] = {
	&memblk_start.attr, &num_memblks.attr, &seg_size.attr, NULL
};

static int add_folder(struct kobject *parent, const struct attribute **files, const char *format,
		      unsigned long number)
{
	struct kobject *kobj;
	char name[32];

	snprintf(name, sizeof(name), format, number);
	kobj = kobject_create_and_add(name, parent);
	return kobj ? sysfs_create_files(kobj, files) : -ENOMEM;
}

static int add_files(void)
{
	struct kobject *seg_info;
	unsigned long i;
	int err;

	folder = kobject_create_and_add("mem-offline", kernel_kobj);
	if (!folder)
		return -ENOMEM;
	err = sysfs_create_files(folder, folder_files);
	for (i = 0; i < nr_blocks && !err; i++)
		err = add_folder(folder, block_files, "memory%lu",
				 pfn_to_section_nr(PHYS_PFN(block_start(i))));
	if (err || !sizes_differ)
		return err;
	err = sysfs_create_files(folder, differing_files);
	seg_info = kobject_create_and_add("seg_info", folder);
	if (!seg_info)
		return -ENOMEM;
	for (i = 0; i < nr_segments && !err; i++)
		err = add_folder(seg_info, segment_files, "segment%lu", i);
	return err;
}

static int add_segment(phys_addr_t start, unsigned long size)
{
	if (nr_segments == NR_SEGMENTS) {
		pr_err("more than %d segments\n", NR_SEGMENTS);
		return -EINVAL;
	}
	if (!is_power_of_2(size) || !IS_ALIGNED(start, min(size, block_size)) ||
	    !pfn_valid(PHYS_PFN(start)) || !pfn_valid(PHYS_PFN(start + size - 1))) {
		pr_err("segment at %pa of %lu MiB: no power of two, not aligned, or no memory\n",
		       &start, size / SZ_1M);
		return -EINVAL;
	}
	segments[nr_segments++] = (struct segment){ .start = start, .size = size };
	return 0;
}

static int read_table(void)
{
	phys_addr_t low = PHYS_ADDR_MAX, high = 0, at, end;
	unsigned long start, length, first, granule;
	int i, err;

	for (i = 0; i < nr_regions; i++) {
		if (sscanf(regions[i], "%lu:%lu:%lu:%lu", &start, &length, &first,
			   &granule) != 4) {
			pr_err("region `%s` is not START:LENGTH:FIRST:GRANULE\n", regions[i]);
			return -EINVAL;
		}
		end = (phys_addr_t)(start + length) * SZ_1M;
		at = (phys_addr_t)(start + first) * SZ_1M;
		for (; granule && at + granule * SZ_1M <= end; at += granule * SZ_1M) {
			err = add_segment(at, granule * SZ_1M);
			if (err)
				return err;
			sizes_differ |= segments[0].size != granule * SZ_1M;
			low = min(low, at);
			high = max_t(phys_addr_t, high, at + granule * SZ_1M);
		}
	}
	if (!nr_segments) {
		pr_err("`regions` names no segment, as regions=1024:1024:0:128 does\n");
		return -EINVAL;
	}
	first_block = low / block_size;
	nr_blocks = DIV_ROUND_UP(high, block_size) - first_block;
	return 0;
}

static int __init segments_init(void)
{
	ktime_t now = ktime_get();
	unsigned long i;
	int err;

	block_size = memory_block_size_bytes();
	err = read_table();
	if (err)
		return err;
	blocks = kcalloc(nr_blocks, sizeof(*blocks), GFP_KERNEL);
	if (!blocks)
		return -ENOMEM;
	for (i = 0; i < nr_blocks; i++) {	/* taken to be online, as after a boot */
		blocks[i].online = true;
		blocks[i].history[ONLINE].since = now;
	}
	err = add_files();
	if (err)
		goto remove;
	err = register_memory_notifier(&listener);
	if (err)
		goto remove;
	err = register_memory_notifier(&other_listener);
	if (!err)
		return 0;
	unregister_memory_notifier(&listener);
remove:
	kobject_put(folder);
	kfree(blocks);
	return err;
}
module_init(segments_init);
/* It cannot be unloaded: what has no power would be forgotten. */

MODULE_DESCRIPTION("A vendor's power driver behind memory hotplug, for tests");
MODULE_LICENSE("GPL");
