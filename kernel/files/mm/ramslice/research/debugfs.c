// SPDX-License-Identifier: GPL-2.0
/*
 * The debugfs tree of the paper's section 3.2.6: one directory for each zone
 * with the files of Table 3.3. For people and for reproducing the paper; tools
 * use /dev/ramslice.
 */

#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"
#include "parse.h"
#include "place.h"

static const char * const counter_names[RAMSLICE_NR_COUNTERS] = {
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

static u32 count_empty(struct ramslice_zone *rz)
{
	struct ramslice_slice *s;
	u32 id, nr = 0;

	down_read(&ramslice_table_sem);
	for_each_zone_slice(rz, id, s) {
		u32 counters[RAMSLICE_NR_COUNTERS];

		if (s->state != RAMSLICE_ONLINE)
			continue;
		ramslice_count_slice(id, counters);
		nr += counters[RAMSLICE_FREE] && counters[RAMSLICE_FREE] ==
					      s->nr_pages;
	}
	up_read(&ramslice_table_sem);
	return nr;
}

static int nr_slices_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = m->private;

	seq_printf(m, "%u\n", rz->nr_slices);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nr_slices);

static int nr_empty_show(struct seq_file *m, void *unused)
{
	seq_printf(m, "%u\n", count_empty(m->private));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nr_empty);

static int nr_offline_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = m->private;

	seq_printf(m, "%u\n", READ_ONCE(rz->nr[RAMSLICE_OFFLINE]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nr_offline);

static void show_counters(struct seq_file *m, const u64 *counters)
{
	unsigned int c;

	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		seq_printf(m, " %llu", counters[c]);
	seq_putc(m, '\n');
}

static void show_header(struct seq_file *m, const char *first)
{
	unsigned int c;

	seq_puts(m, first);
	for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
		seq_printf(m, " %s", counter_names[c]);
	seq_putc(m, '\n');
}

static int all_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = m->private;
	struct ramslice_slice *s;
	u32 id;

	show_header(m, "# index state reason pages price");
	down_read(&ramslice_table_sem);
	for_each_zone_slice(rz, id, s) {
		u32 counters[RAMSLICE_NR_COUNTERS];
		u64 wide[RAMSLICE_NR_COUNTERS];
		unsigned int c;

		ramslice_count_slice(id, counters);
		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
			wide[c] = counters[c];
		seq_printf(m, "%u %s %s %u %llu", id,
			   ramslice_state_name(s->state),
			   ramslice_reason_name(s->reason), s->nr_pages,
			   ramslice_price_counters(&ramslice_prices,
						   s->nr_pages, counters,
						   ramslice_poisoned(s)));
		show_counters(m, wide);
	}
	up_read(&ramslice_table_sem);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(all);

static int summary_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = m->private;
	u64 sum[RAMSLICE_NR_COUNTERS] = {}, nr_pages = 0;
	struct ramslice_slice *s;
	unsigned int c;
	u32 id;

	down_read(&ramslice_table_sem);
	for_each_zone_slice(rz, id, s) {
		u32 counters[RAMSLICE_NR_COUNTERS];

		ramslice_count_slice(id, counters);
		for (c = 0; c < RAMSLICE_NR_COUNTERS; c++)
			sum[c] += counters[c];
		nr_pages += s->nr_pages;
	}
	up_read(&ramslice_table_sem);
	show_header(m, "# pages");
	seq_printf(m, "%llu", nr_pages);
	show_counters(m, sum);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(summary);

static int reserve_show(struct seq_file *m, void *unused)
{
	return ramslice_reserve_show(m->private, m);
}
DEFINE_SHOW_ATTRIBUTE(reserve);

static int stats_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = m->private;
	struct ramslice_stats st;

	spin_lock_irq(&ramslice_lock);
	st = rz->stats;
	spin_unlock_irq(&ramslice_lock);

	seq_printf(m, "offline_tried %llu\n", st.offline_tried);
	seq_printf(m, "offline_done %llu\n", st.offline_done);
	seq_printf(m, "aborted_pressure %llu\n", st.aborted_pressure);
	seq_printf(m, "online_request %llu\n", st.online_request);
	seq_printf(m, "online_demand %llu\n", st.online_demand);
	seq_printf(m, "pages_migrated %llu\n", st.work.pages_migrated);
	seq_printf(m, "pages_dropped %llu\n", st.work.pages_dropped);
	seq_printf(m, "pages_failed %llu\n", st.work.pages_failed);
	seq_printf(m, "huge_moved %llu\n", st.work.huge_moved);
	seq_printf(m, "huge_split %llu\n", st.work.huge_split);
	seq_printf(m, "target_free %llu\n", st.work.target_free);
	seq_printf(m, "target_cache %llu\n", st.work.target_cache);
	seq_printf(m, "price_predicted %llu\n", st.price_predicted);
	seq_printf(m, "price_measured %llu\n", st.price_measured);
	return 0;
}

static int stats_open(struct inode *inode, struct file *file)
{
	return single_open(file, stats_show, inode->i_private);
}

/* Any write resets. */
static ssize_t stats_write(struct file *file, const char __user *buf,
			   size_t len, loff_t *pos)
{
	struct seq_file *m = file->private_data;
	struct ramslice_zone *rz = m->private;

	spin_lock_irq(&ramslice_lock);
	memset(&rz->stats, 0, sizeof(rz->stats));
	spin_unlock_irq(&ramslice_lock);
	return len;
}

static const struct file_operations stats_fops = {
	.owner		= THIS_MODULE,
	.open		= stats_open,
	.read		= seq_read,
	.write		= stats_write,
	.llseek		= seq_lseek,
	.release	= single_release,
};

static int placement_show(struct seq_file *m, void *unused)
{
	struct ramslice_place_stats st = {};

	ramslice_place_stats(m->private, &st);
	seq_printf(m, "kernel_placed %llu\n",
		   st.nr_placed[RAMSLICE_PLACE_KERNEL]);
	seq_printf(m, "kernel_passed %llu\n",
		   st.nr_passed[RAMSLICE_PLACE_KERNEL]);
	seq_printf(m, "user_placed %llu\n", st.nr_placed[RAMSLICE_PLACE_USER]);
	seq_printf(m, "user_passed %llu\n", st.nr_passed[RAMSLICE_PLACE_USER]);
	seq_printf(m, "rankings %llu\n", st.nr_rankings);
	seq_printf(m, "kernel_slices %u\n", st.nr_kernel);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(placement);

static int result_show(struct seq_file *m, void *unused)
{
	struct ramslice_zone *rz = m->private;

	spin_lock_irq(&ramslice_lock);
	seq_printf(m, "%d %s %u\n", rz->result,
		   ramslice_reason_name(rz->result_reason), rz->result_done);
	spin_unlock_irq(&ramslice_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(result);

static int run_cmd(struct ramslice_zone *rz, const struct ramslice_cmd *cmd,
		   struct ramslice_request *req)
{
	req->size = sizeof(*req);
	req->node = zone_to_nid(rz->zone);
	req->zone = zone_idx(rz->zone);
	req->budget = RAMSLICE_UNLIMITED;
	req->max_slices = RAMSLICE_ALL_SLICES;

	switch (cmd->op) {
	case RAMSLICE_CMD_OFFLINE_BATCH:
		req->op = RAMSLICE_OP_COMPACT;
		req->budget = cmd->budget;
		req->max_slices = cmd->max_slices;
		req->flags = cmd->per_slice ? RAMSLICE_REQ_PER_SLICE : 0;
		break;
	case RAMSLICE_CMD_OFFLINE_INDEX:
	case RAMSLICE_CMD_ONLINE_INDEX: {
		struct ramslice_slice *s;
		bool ours;

		down_read(&ramslice_table_sem);
		s = ramslice_slice(cmd->id);
		ours = s && s->rz == rz;
		up_read(&ramslice_table_sem);
		if (!ours)
			return -ENOENT;
		req->op = cmd->op == RAMSLICE_CMD_OFFLINE_INDEX ?
			  RAMSLICE_OP_OFFLINE : RAMSLICE_OP_ONLINE;
		req->flags = RAMSLICE_REQ_IGNORE_BACKOFF;
		req->id = cmd->id;
		break;
	}
	case RAMSLICE_CMD_OFFLINE_FREE:
		req->op = RAMSLICE_OP_OFFLINE_FREE;
		break;
	case RAMSLICE_CMD_ONLINE_ALL:
		req->op = RAMSLICE_OP_ONLINE_ALL;
		break;
	case RAMSLICE_CMD_REINIT:
		return ramslice_request_reinit(rz);
	case RAMSLICE_CMD_RELEASE:
		return ramslice_request_release(rz);
	}
	return ramslice_request(req);
}

/* The outcome goes to whoever wrote, too: as the errno of the write. */
static ssize_t cmd_write(struct file *file, const char __user *buf, size_t len,
			 loff_t *pos)
{
	struct ramslice_zone *rz = file->private_data;
	struct ramslice_request req = {};
	struct ramslice_cmd cmd;
	char *line;
	int err;

	if (len > 256)
		return -EMSGSIZE;
	line = memdup_user_nul(buf, len);
	if (IS_ERR(line))
		return PTR_ERR(line);
	/* A NUL inside would hide what follows it */
	err = strlen(line) == len ? ramslice_parse_cmd(line, &cmd) : -EINVAL;
	kfree(line);
	if (err)
		return err;

	err = run_cmd(rz, &cmd, &req);
	if (!err && req.status)
		err = -(int)req.status;

	spin_lock_irq(&ramslice_lock);
	rz->result = err;
	rz->result_reason = req.reason;
	rz->result_done = req.nr_done;
	spin_unlock_irq(&ramslice_lock);
	return err ?: len;
}

static const struct file_operations cmd_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.write	= cmd_write,
	.llseek	= noop_llseek,
};

/* Recounts everything: reading takes a while and freezes user space. */
static int verify_show(struct seq_file *m, void *unused)
{
	return ramslice_verify(m);
}
DEFINE_SHOW_ATTRIBUTE(verify);

int __init ramslice_debugfs_init(void)
{
	struct dentry *root = debugfs_create_dir("ramslice", NULL);
	struct ramslice_zone *rz;
	unsigned int i;

	debugfs_create_bool("dummy_mode", 0600, root, &ramslice_dummy_mode);
	debugfs_create_u32("migrate_batch", 0600, root, &ramslice_migrate_batch);
	debugfs_create_file("verify", 0400, root, NULL, &verify_fops);

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		struct dentry *node, *dir;
		char name[16];

		snprintf(name, sizeof(name), "node%d", zone_to_nid(rz->zone));
		node = debugfs_lookup(name, root);
		if (node)
			dput(node);
		else
			node = debugfs_create_dir(name, root);
		dir = debugfs_create_dir(rz->zone->name, node);
		debugfs_create_file("nr_slices", 0400, dir, rz,
				    &nr_slices_fops);
		debugfs_create_file("nr_empty", 0400, dir, rz, &nr_empty_fops);
		debugfs_create_file("nr_offline", 0400, dir, rz,
				    &nr_offline_fops);
		debugfs_create_file("all", 0400, dir, rz, &all_fops);
		debugfs_create_file("reserve", 0400, dir, rz, &reserve_fops);
		debugfs_create_file("summary", 0400, dir, rz, &summary_fops);
		debugfs_create_file("stats", 0600, dir, rz, &stats_fops);
		debugfs_create_file("cmd", 0200, dir, rz, &cmd_fops);
		debugfs_create_file("result", 0400, dir, rz, &result_fops);
		debugfs_create_file("placement", 0400, dir, rz,
				    &placement_fops);
	}
	return 0;
}
