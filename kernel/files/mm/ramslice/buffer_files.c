// SPDX-License-Identifier: GPL-2.0
/*
 * The books of contiguous buffers in sysfs, and in debugfs where they are.
 */

#include <linux/debugfs.h>
#include <linux/kobject.h>
#include <linux/seq_file.h>
#include <linux/sysfs.h>
#include "internal.h"
#include "buffer.h"

static ssize_t nr_show(struct kobject *kobj, struct kobj_attribute *attr,
		       char *buf)
{
	struct ramslice_buffer_stats stats;

	ramslice_read_buffer_stats(&stats);
	return sysfs_emit(buf, "%lu\n", stats.nr);
}

static struct kobj_attribute nr_attr = __ATTR_RO(nr);

static ssize_t bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	struct ramslice_buffer_stats stats;

	ramslice_read_buffer_stats(&stats);
	return sysfs_emit(buf, "%llu\n", (u64)PFN_PHYS(stats.nr_pages));
}

static struct kobj_attribute bytes_attr = __ATTR_RO(bytes);

static ssize_t nr_refused_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	struct ramslice_buffer_stats stats;

	ramslice_read_buffer_stats(&stats);
	return sysfs_emit(buf, "%lu\n", stats.nr_refused);
}

static struct kobj_attribute nr_refused_attr = __ATTR_RO(nr_refused);

static ssize_t last_refusal_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	struct ramslice_buffer_stats stats;

	ramslice_read_buffer_stats(&stats);
	return sysfs_emit(buf, "%s\n",
			  ramslice_reason_name(stats.last_reason));
}

static struct kobj_attribute last_refusal_attr = __ATTR_RO(last_refusal);

static struct attribute *ramslice_buffer_attrs[] = {
	&nr_attr.attr,
	&bytes_attr.attr,
	&nr_refused_attr.attr,
	&last_refusal_attr.attr,
	NULL
};

static const struct attribute_group ramslice_buffer_group = {
	.name = "buffers",
	.attrs = ramslice_buffer_attrs,
};

int __init ramslice_buffer_sysfs(struct kobject *kobj)
{
	return sysfs_create_group(kobj, &ramslice_buffer_group);
}

static int buffers_show(struct seq_file *m, void *unused)
{
	ramslice_list_buffers(m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(buffers);

void __init ramslice_buffer_debugfs(struct dentry *root)
{
	debugfs_create_file("buffers", 0400, root, NULL, &buffers_fops);
}
