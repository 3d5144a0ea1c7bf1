// SPDX-License-Identifier: GPL-2.0
/*
 * The debugfs tree of the thesis, section 3.2.6: to the directory of each zone
 * it adds the other files of Table 3.3. For people, and for reproducing the
 * thesis; tools use /dev/ramslice.
 */

#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "../internal.h"
#include "../request.h"
#include "research.h"

/**
 * struct ramslice_command_zone - a zone and its last command
 * @rz: the zone
 * @result: outcome, 0 or a negative errno
 * @reason: enum ramslice_reason with it
 * @nr_done: slices that it changed
 *
 * The outcome is under ramslice_lock.
 */
struct ramslice_command_zone {
	struct ramslice_zone *rz;
	int result;
	u8 reason;
	u32 nr_done;
};

static struct ramslice_zone *ramslice_zone_of_file(struct seq_file *m)
{
	const struct ramslice_command_zone *zone = m->private;

	return zone->rz;
}

static const char * const ramslice_counter_names[RAMSLICE_NR_COUNTERS] = {
	[RAMSLICE_FREE]		= "free",
	[RAMSLICE_LRU_ANON]	= "lru_anon",
	[RAMSLICE_LRU_FILE]	= "lru_file",
	[RAMSLICE_ANON_MAPPED]	= "anon_mapped",
	[RAMSLICE_FILE_MAPPED]	= "file_mapped",
	[RAMSLICE_FILE]		= "file",
	[RAMSLICE_SHMEM]	= "shmem",
	[RAMSLICE_DIRTY]	= "dirty",
	[RAMSLICE_WRITEBACK]	= "writeback",
	[RAMSLICE_HUGE]		= "huge",
};

static u32 ramslice_count_empty(struct ramslice_zone *rz)
{
	struct ramslice_slice *s;
	u32 id, nr = 0;

	down_read(&ramslice_table_sem);
	for_each_zone_slice(rz, id, s) {
		if (s->state == RAMSLICE_ONLINE)
			nr += ramslice_slice_empty(id);
	}
	up_read(&ramslice_table_sem);
	return nr;
}

static int nr_slices_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = ramslice_zone_of_file(m);

	seq_printf(m, "%u\n", rz->nr_slices);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nr_slices);

static int nr_empty_show(struct seq_file *m, void *unused)
{
	seq_printf(m, "%u\n", ramslice_count_empty(ramslice_zone_of_file(m)));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nr_empty);

static int nr_offline_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = ramslice_zone_of_file(m);

	seq_printf(m, "%u\n", READ_ONCE(rz->nr[RAMSLICE_OFFLINE]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nr_offline);

static void ramslice_show_counters(struct seq_file *m, const u64 *counters)
{
	unsigned int c;

	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		seq_printf(m, " %llu", counters[c]);
	seq_putc(m, '\n');
}

static void ramslice_show_header(struct seq_file *m, const char *first)
{
	unsigned int c;

	seq_puts(m, first);
	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		seq_printf(m, " %s", ramslice_counter_names[c]);
	seq_putc(m, '\n');
}

static int all_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = ramslice_zone_of_file(m);
	struct ramslice_slice *s;
	u32 id;

	ramslice_show_header(m, "# index state reason pages price");
	down_read(&ramslice_table_sem);
	for_each_zone_slice(rz, id, s) {
		u32 counters[RAMSLICE_NR_COUNTERS];
		u64 wide[RAMSLICE_NR_COUNTERS];
		unsigned int c;

		ramslice_scan_slice(id, 0);
		ramslice_count_slice(id, counters);
		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
			wide[c] = counters[c];
		seq_printf(m, "%u %s %s %u %llu", id,
			   ramslice_state_name(s->state),
			   ramslice_reason_name(s->reason), s->nr_pages,
			   ramslice_price_counters(&ramslice_prices,
						   s->nr_pages, counters,
						   ramslice_poisoned(s)));
		ramslice_show_counters(m, wide);
	}
	up_read(&ramslice_table_sem);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(all);

static int summary_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = ramslice_zone_of_file(m);
	u64 sum[RAMSLICE_NR_COUNTERS] = {}, nr_pages = 0;
	struct ramslice_slice *s;
	unsigned int c;
	u32 id;

	down_read(&ramslice_table_sem);
	for_each_zone_slice(rz, id, s) {
		u32 counters[RAMSLICE_NR_COUNTERS];

		ramslice_scan_slice(id, 0);
		ramslice_count_slice(id, counters);
		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
			sum[c] += counters[c];
		nr_pages += s->nr_pages;
	}
	up_read(&ramslice_table_sem);
	ramslice_show_header(m, "# pages");
	seq_printf(m, "%llu", nr_pages);
	ramslice_show_counters(m, sum);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(summary);

static int reserve_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = ramslice_zone_of_file(m);
	struct ramslice_params params = {
		.deadline = jiffies + MAX_JIFFY_OFFSET,
		.cache = RAMSLICE_CACHE_DROP,
	};
	struct ramslice_reserve r;
	int err;
	u32 i;

	if (mutex_lock_interruptible(&ramslice_mutex))
		return -ERESTARTSYS;
	ramslice_scan_zone(rz, 0, U64_MAX, jiffies + MAX_JIFFY_OFFSET);
	err = ramslice_reserve_build(&r, rz, &params, false);
	mutex_unlock(&ramslice_mutex);
	if (err)
		return err;

	seq_puts(m, "# index price free freeable\n");
	for (i = r.nr; i-- > 0; ) {
		if (r.c[i].nr_free + r.c[i].nr_cache)
			seq_printf(m, "%u %llu %u %u\n", r.c[i].id,
				   r.c[i].price, r.c[i].nr_free,
				   r.c[i].nr_cache);
	}
	ramslice_reserve_free(&r);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(reserve);

static int result_show(struct seq_file *m, void *unused)
{
	struct ramslice_command_zone *zone = m->private;

	spin_lock_irq(&ramslice_lock);
	seq_printf(m, "%d %s %u\n", zone->result,
		   ramslice_reason_name(zone->reason), zone->nr_done);
	spin_unlock_irq(&ramslice_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(result);

/* The caller gets the outcome, too: as the errno of the write. */
static ssize_t cmd_write(struct file *file, const char __user *buf, size_t len,
			 loff_t *pos)
{
	struct ramslice_command_zone *zone = file->private_data;
	struct ramslice_request req = {};
	struct ramslice_command cmd;
	char *line;
	int err;

	if (len > 256)
		return -EMSGSIZE;
	line = memdup_user_nul(buf, len);
	if (IS_ERR(line))
		return PTR_ERR(line);
	/* A NUL inside would hide what follows it */
	err = strlen(line) == len ? ramslice_parse_command(line, &cmd) :
				    -EINVAL;
	kfree(line);
	if (err)
		return err;

	err = ramslice_run_command(zone->rz, &cmd, &req);
	if (!err && req.status)
		err = -(int)req.status;

	spin_lock_irq(&ramslice_lock);
	zone->result = err;
	zone->reason = req.reason;
	zone->nr_done = req.nr_done;
	spin_unlock_irq(&ramslice_lock);
	return err ?: len;
}

static const struct file_operations cmd_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.write	= cmd_write,
	.llseek	= noop_llseek,
};

static int __init ramslice_add_files(struct dentry *root,
				     struct ramslice_zone *rz)
{
	struct ramslice_command_zone *zone = kzalloc(sizeof(*zone), GFP_KERNEL);
	struct dentry *dir;
	char name[16];

	if (!zone)
		return -ENOMEM;
	zone->rz = rz;
	snprintf(name, sizeof(name), "node%d", zone_to_nid(rz->zone));
	root = debugfs_lookup(name, root);
	dir = debugfs_lookup(rz->zone->name, root);
	debugfs_create_file("nr_slices", 0400, dir, zone, &nr_slices_fops);
	debugfs_create_file("nr_empty", 0400, dir, zone, &nr_empty_fops);
	debugfs_create_file("nr_offline", 0400, dir, zone, &nr_offline_fops);
	debugfs_create_file("all", 0400, dir, zone, &all_fops);
	debugfs_create_file("reserve", 0400, dir, zone, &reserve_fops);
	debugfs_create_file("summary", 0400, dir, zone, &summary_fops);
	debugfs_create_file("cmd", 0200, dir, zone, &cmd_fops);
	debugfs_create_file("result", 0400, dir, zone, &result_fops);
	dput(dir);
	dput(root);
	return 0;
}

/* After ramslice's own, which made the directories. */
static int __init ramslice_research_init(void)
{
	struct dentry *root = debugfs_lookup("ramslice", NULL);
	struct ramslice_zone *rz;
	unsigned int i;
	int err = 0;

	/* ramslice is off */
	if (!root)
		return 0;
	debugfs_create_bool("dummy_mode", 0600, root, &ramslice_dummy_mode);
	for (i = 0; !err && (rz = ramslice_zone_by_index(i)); i++)
		err = ramslice_add_files(root, rz);
	dput(root);
	return err;
}
late_initcall(ramslice_research_init);
