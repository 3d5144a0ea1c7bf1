// SPDX-License-Identifier: GPL-2.0
/*
 * Configuration in /sys/kernel/mm/ramslice: one value for each file. See
 * Documentation/ABI/testing/sysfs-kernel-mm-ramslice.
 */

#include <linux/kobject.h>
#include <linux/sysfs.h>
#include "internal.h"
#include "boot_args.h"
#include "segments.h"
#include "buffer.h"
#include "request.h"
#include "place.h"
#include "cold.h"

static ssize_t enabled_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	return sysfs_emit(buf, "%d\n", ramslice_enabled());
}

static struct kobj_attribute enabled_attr = __ATTR_RO(enabled);

static ssize_t slice_bytes_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	/* The size of before will do while it changes */
	return sysfs_emit(buf, "%llu\n", data_race(ramslice_slice_bytes()));
}

static ssize_t slice_bytes_store(struct kobject *kobj,
				 struct kobj_attribute *attr, const char *buf,
				 size_t len)
{
	u64 bytes;
	int err = kstrtou64(buf, 0, &bytes);

	if (!err)
		err = ramslice_set_slice_bytes(bytes);
	return err ?: len;
}

static struct kobj_attribute slice_bytes_attr = __ATTR_RW(slice_bytes);

static ssize_t interleave_ways_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", ramslice_interleave_now().ways);
}

static struct kobj_attribute interleave_ways_attr =
	__ATTR_RO(interleave_ways);

static ssize_t interleave_granularity_bytes_show(struct kobject *kobj,
						 struct kobj_attribute *attr,
						 char *buf)
{
	struct ramslice_interleave il;

	/* Of contiguous slices it is their size, and that of before will do */
	il = data_race(ramslice_interleave_now());
	return sysfs_emit(buf, "%llu\n", il.granularity_bytes);
}

static struct kobj_attribute interleave_granularity_bytes_attr =
	__ATTR_RO(interleave_granularity_bytes);

static ssize_t nr_segments_show(struct kobject *kobj,
				struct kobj_attribute *attr, char *buf)
{
	const struct ramslice_segments *t = ramslice_geom.table;

	return sysfs_emit(buf, "%u\n", t ? t->nr : 0);
}

static struct kobj_attribute nr_segments_attr = __ATTR_RO(nr_segments);

static ssize_t strict_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%d\n", ramslice_is_strict());
}

static ssize_t strict_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t len)
{
	bool on;
	int err = kstrtobool(buf, &on);

	if (!err)
		err = ramslice_set_strict(on);
	return err ?: len;
}

static struct kobj_attribute strict_attr = __ATTR_RW(strict);

/**
 * ramslice_store_uint - take a number that was written to a file
 * @buf: what was written
 * @len: its length
 * @min: the least that is allowed
 * @max: the most
 * @value: set to it
 *
 * Return: @len; -ERANGE; -EINVAL.
 */
ssize_t ramslice_store_uint(const char *buf, size_t len, unsigned int min,
			    unsigned int max, unsigned int *value)
{
	unsigned int number;
	int err = kstrtouint(buf, 10, &number);

	if (err)
		return err;
	if (number < min || number > max)
		return -ERANGE;
	WRITE_ONCE(*value, number);
	return len;
}

/* A driver that is slow is no driver that hangs. */
#define MIN_TIMEOUT_MS	100
#define MAX_TIMEOUT_MS	(60 * 60 * MSEC_PER_SEC)

static ssize_t driver_timeout_ms_show(struct kobject *kobj,
				      struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(ramslice_call_timeout_ms));
}

static ssize_t driver_timeout_ms_store(struct kobject *kobj,
				       struct kobj_attribute *attr,
				       const char *buf, size_t len)
{
	return ramslice_store_uint(buf, len, MIN_TIMEOUT_MS, MAX_TIMEOUT_MS,
				   &ramslice_call_timeout_ms);
}

static struct kobj_attribute driver_timeout_ms_attr =
	__ATTR_RW(driver_timeout_ms);

static ssize_t scan_ppm_show(struct kobject *kobj, struct kobj_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(ramslice_scan_ppm));
}

static ssize_t scan_ppm_store(struct kobject *kobj, struct kobj_attribute *attr,
			      const char *buf, size_t len)
{
	return ramslice_store_uint(buf, len, 0, USEC_PER_SEC,
				   &ramslice_scan_ppm);
}

static struct kobj_attribute scan_ppm_attr = __ATTR_RW(scan_ppm);

static ssize_t power_driver_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	char name[RAMSLICE_DRIVER_NAME_LEN];

	ramslice_power_name(name);
	return sysfs_emit(buf, "%s\n", name);
}

static struct kobj_attribute power_driver_attr = __ATTR_RO(power_driver);

static ssize_t clock_khz_show(struct kobject *kobj, struct kobj_attribute *attr,
			      char *buf)
{
	return sysfs_emit(buf, "%llu\n", ramslice_clock_khz());
}

static struct kobj_attribute clock_khz_attr = __ATTR_RO(clock_khz);

static struct attribute *ramslice_attrs[] = {
	&enabled_attr.attr,
	&slice_bytes_attr.attr,
	&interleave_ways_attr.attr,
	&interleave_granularity_bytes_attr.attr,
	&nr_segments_attr.attr,
	&clock_khz_attr.attr,
	&power_driver_attr.attr,
	&driver_timeout_ms_attr.attr,
	&strict_attr.attr,
	&scan_ppm_attr.attr,
	NULL
};

static const struct attribute_group ramslice_group = {
	.attrs = ramslice_attrs,
};

/* No operation on a page costs more; sums saturate, see price.c. */
#define MAX_PRICE	1000000000000ULL
/* Less would not set unreclaimable slices apart from dear ones. */
#define MIN_OFFSET	1000000ULL

#define PRICE_ATTR(_name, _min)						\
static ssize_t _name##_show(struct kobject *kobj,			\
			    struct kobj_attribute *attr, char *buf)	\
{									\
	return sysfs_emit(buf, "%llu\n",				\
			  READ_ONCE(ramslice_prices._name));		\
}									\
static ssize_t _name##_store(struct kobject *kobj,			\
			     struct kobj_attribute *attr,		\
			     const char *buf, size_t len)		\
{									\
	u64 value;							\
	int err = kstrtou64(buf, 10, &value);				\
									\
	if (err)							\
		return err;						\
	if (value > MAX_PRICE || value < (_min))			\
		return -ERANGE;						\
	WRITE_ONCE(ramslice_prices._name, value);			\
	return len;							\
}									\
static struct kobj_attribute _name##_attr = __ATTR_RW(_name)

PRICE_ATTR(isolate_slice, 0);
PRICE_ATTR(isolate_page, 0);
PRICE_ATTR(drop_page, 0);
PRICE_ATTR(migrate_page, 0);
PRICE_ATTR(migrate_mapping, 0);
PRICE_ATTR(alloc_buddy, 0);
PRICE_ATTR(alloc_cache, 0);
PRICE_ATTR(unreclaimable, MIN_OFFSET);

static struct attribute *ramslice_price_attrs[] = {
	&isolate_slice_attr.attr,
	&isolate_page_attr.attr,
	&drop_page_attr.attr,
	&migrate_page_attr.attr,
	&migrate_mapping_attr.attr,
	&alloc_buddy_attr.attr,
	&alloc_cache_attr.attr,
	&unreclaimable_attr.attr,
	NULL
};

static const struct attribute_group ramslice_price_group = {
	.name = "price",
	.attrs = ramslice_price_attrs,
};

static struct attribute *ramslice_off_attrs[] = {
	&enabled_attr.attr,
	NULL
};

static const struct attribute_group ramslice_off_group = {
	.attrs = ramslice_off_attrs,
};

/* With ramslice off, "enabled" says so and nothing else is there. */
int __init ramslice_sysfs_init(void)
{
	struct kobject *kobj = kobject_create_and_add("ramslice", mm_kobj);
	int err;

	if (!kobj)
		return -ENOMEM;
	if (!ramslice_enabled())
		return sysfs_create_group(kobj, &ramslice_off_group);
	err = sysfs_create_group(kobj, &ramslice_group);
	err = err ?: sysfs_create_group(kobj, &ramslice_price_group);
	err = err ?: ramslice_place_sysfs(kobj);
	err = err ?: ramslice_refault_sysfs(kobj);
	err = err ?: ramslice_buffer_sysfs(kobj);
	return err ?: ramslice_cold_init(kobj);
}
