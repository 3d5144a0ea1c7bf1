// SPDX-License-Identifier: GPL-2.0
/*
 * Placement in sysfs, where its policy is chosen, and in debugfs, where tests see
 * what it does.
 */

#include <linux/debugfs.h>
#include <linux/kobject.h>
#include <linux/seq_file.h>
#include <linux/sysfs.h>
#include "internal.h"
#include "place.h"

static ssize_t policy_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  ramslice_place_name(ramslice_place_policy()));
}

static ssize_t policy_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t len)
{
	int policy = ramslice_place_parse(buf);

	if (policy < 0)
		return policy;
	ramslice_place_set_policy(policy);
	return len;
}

static struct kobj_attribute policy_attr = __ATTR_RW(policy);

static ssize_t policies_show(struct kobject *kobj, struct kobj_attribute *attr,
			     char *buf)
{
	int len = ramslice_place_names(buf, PAGE_SIZE);

	return len + sysfs_emit_at(buf, len, "\n");
}

static struct kobj_attribute policies_attr = __ATTR_RO(policies);

static struct attribute *ramslice_place_attrs[] = {
	&policy_attr.attr,
	&policies_attr.attr,
	NULL
};

static const struct attribute_group ramslice_place_group = {
	.name = "placement",
	.attrs = ramslice_place_attrs,
};

int __init ramslice_place_sysfs(struct kobject *kobj)
{
	return sysfs_create_group(kobj, &ramslice_place_group);
}

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
	seq_printf(m, "draining_slices %u\n", st.nr_draining);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(placement);

void __init ramslice_place_debugfs(struct dentry *dir, struct ramslice_zone *rz)
{
	debugfs_create_file("placement", 0400, dir, rz, &placement_fops);
}
