// SPDX-License-Identifier: GPL-2.0
/*
 * What debugfs has for tests: statistics of each zone, the recount of free
 * pages, how many folios are migrated in one go, how long that may take, and the
 * pause after it. Tools use /dev/ramslice.
 */

#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include "internal.h"
#include "buffer.h"
#include "request.h"
#include "place.h"

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
	seq_printf(m, "longest_bite_us %llu\n",
		   DIV_ROUND_UP_ULL(st.longest_bite_ns, NSEC_PER_USEC));
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

/* Reads what was touched, then compares all with the free lists. */
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

	debugfs_create_u32("migrate_batch", 0600, root, &ramslice_migrate_batch);
	debugfs_create_u32("bite_us", 0600, root, &ramslice_bite_us);
	debugfs_create_u32("pause_us", 0600, root, &ramslice_pause_us);
	debugfs_create_file("verify", 0400, root, NULL, &verify_fops);
	ramslice_buffer_debugfs(root);

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
		debugfs_create_file("stats", 0600, dir, rz, &stats_fops);
		ramslice_place_debugfs(dir, rz);
	}
	return 0;
}
