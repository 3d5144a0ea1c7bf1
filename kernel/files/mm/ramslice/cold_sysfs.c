// SPDX-License-Identifier: GPL-2.0
/*
 * Cold memory in /sys/kernel/mm/ramslice/cold: mode, deadline and unit, and for
 * each node the size of its twin. See
 * Documentation/ABI/testing/sysfs-kernel-mm-ramslice.
 */

#include <linux/kobject.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include "internal.h"
#include "cold.h"

static const char * const ramslice_cold_modes[] = {
	[RAMSLICE_COLD_OVERFLOW] = "overflow",
	[RAMSLICE_COLD_STRICT] = "strict",
};

static ssize_t mode_show(struct kobject *kobj, struct kobj_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%s\n", ramslice_cold_modes[ramslice_cold_mode()]);
}

static ssize_t mode_store(struct kobject *kobj, struct kobj_attribute *attr,
			  const char *buf, size_t len)
{
	int mode = sysfs_match_string(ramslice_cold_modes, buf);

	if (mode < 0)
		return mode;
	ramslice_cold_set_mode(mode);
	return len;
}

static struct kobj_attribute mode_attr = __ATTR_RW(mode);

static ssize_t deadline_ms_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(ramslice_cold_deadline_ms));
}

#define MAX_DEADLINE_MS	(60 * 60 * MSEC_PER_SEC)

static ssize_t deadline_ms_store(struct kobject *kobj,
				 struct kobj_attribute *attr, const char *buf,
				 size_t len)
{
	return ramslice_store_uint(buf, len, 1, MAX_DEADLINE_MS,
				   &ramslice_cold_deadline_ms);
}

static struct kobj_attribute deadline_ms_attr = __ATTR_RW(deadline_ms);

static ssize_t unit_bytes_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	/* The size of before will do while it changes */
	return sysfs_emit(buf, "%llu\n", data_race(ramslice_cold_unit()));
}

static struct kobj_attribute unit_bytes_attr = __ATTR_RO(unit_bytes);

static struct attribute *ramslice_cold_attrs[] = {
	&mode_attr.attr,
	&deadline_ms_attr.attr,
	&unit_bytes_attr.attr,
	NULL
};

static const struct attribute_group ramslice_cold_group = {
	.attrs = ramslice_cold_attrs,
};

/**
 * struct ramslice_cold_node - files of a node that has a twin
 * @kobj: its folder
 * @nid: the node
 */
struct ramslice_cold_node {
	struct kobject kobj;
	int nid;
};

static int ramslice_nid_of(struct kobject *kobj)
{
	return container_of(kobj, struct ramslice_cold_node, kobj)->nid;
}

static ssize_t bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%llu\n",
			  ramslice_cold_bytes(ramslice_nid_of(kobj)));
}

static ssize_t bytes_store(struct kobject *kobj, struct kobj_attribute *attr,
			   const char *buf, size_t len)
{
	u64 bytes;
	int err = kstrtou64(buf, 0, &bytes);

	if (!err)
		err = ramslice_cold_resize(ramslice_nid_of(kobj), bytes);
	return err ?: len;
}

static struct kobj_attribute bytes_attr = __ATTR_RW(bytes);

static ssize_t max_bytes_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	int nid = ramslice_nid_of(kobj);

	/* Likewise */
	return sysfs_emit(buf, "%llu\n", data_race(ramslice_cold_max_bytes(nid)));
}

static struct kobj_attribute max_bytes_attr = __ATTR_RO(max_bytes);

static ssize_t resting_bytes_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	int twin = ramslice_twin_of(ramslice_nid_of(kobj));

	return sysfs_emit(buf, "%llu\n", ramslice_resting_bytes(twin));
}

static struct kobj_attribute resting_bytes_attr = __ATTR_RO(resting_bytes);

static ssize_t twin_show(struct kobject *kobj, struct kobj_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%d\n", ramslice_twin_of(ramslice_nid_of(kobj)));
}

static struct kobj_attribute twin_attr = __ATTR_RO(twin);

static struct attribute *ramslice_cold_node_attrs[] = {
	&bytes_attr.attr,
	&max_bytes_attr.attr,
	&resting_bytes_attr.attr,
	&twin_attr.attr,
	NULL
};
ATTRIBUTE_GROUPS(ramslice_cold_node);

static void ramslice_cold_node_release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct ramslice_cold_node, kobj));
}

static const struct kobj_type ramslice_cold_node_type = {
	.release = ramslice_cold_node_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = ramslice_cold_node_groups,
};

static int __init ramslice_cold_add_node(struct kobject *parent, int nid)
{
	struct ramslice_cold_node *node = kzalloc(sizeof(*node), GFP_KERNEL);
	int err;

	if (!node)
		return -ENOMEM;
	node->nid = nid;
	err = kobject_init_and_add(&node->kobj, &ramslice_cold_node_type,
				   parent, "node%d", nid);
	if (err)
		kobject_put(&node->kobj);
	return err;
}

/* Sizes twins as the command line says: each gets as much. */
static void __init ramslice_cold_boot(int nr_nodes)
{
	u64 bytes = rounddown(div_u64(ramslice_cold_boot_bytes, nr_nodes),
			      ramslice_cold_unit());
	int nid, err;

	if (!bytes) {
		pr_warn("no cold memory: ramslice_cold= is less than %llu MiB for each node\n",
			ramslice_cold_unit() >> 20);
		return;
	}
	for_each_node_state(nid, N_MEMORY) {
		if (ramslice_twin_of(nid) == NUMA_NO_NODE)
			continue;
		err = ramslice_cold_resize(nid, bytes);
		if (err)
			pr_warn("no %llu MiB of cold memory for node %d: %d\n",
				bytes >> 20, nid, err);
	}
}

/* Twins are there only if the command line asks for them; then these files are. */
int __init ramslice_cold_init(struct kobject *parent)
{
	struct kobject *kobj;
	int nid, err, nr = 0;

	if (!ramslice_has_twins())
		return 0;
	kobj = kobject_create_and_add("cold", parent);
	if (!kobj)
		return -ENOMEM;
	err = sysfs_create_group(kobj, &ramslice_cold_group);
	for_each_node_state(nid, N_MEMORY) {
		if (err)
			return err;
		if (ramslice_twin_of(nid) == NUMA_NO_NODE)
			continue;
		err = ramslice_cold_add_node(kobj, nid);
		nr++;
	}
	if (!err && nr && ramslice_cold_boot_bytes)
		ramslice_cold_boot(nr);
	return err;
}
