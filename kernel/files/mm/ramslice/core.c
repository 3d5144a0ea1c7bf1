// SPDX-License-Identifier: GPL-2.0
/*
 * Boot: the command line, the static key, and bringing up the parts in order.
 */

#include <linux/cpu.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memory_hotplug.h>
#include "internal.h"
#include "boot_args.h"
#include "place.h"
#include "segments.h"

static struct ramslice_boot ramslice_boot_args __initdata = {
	.off = !IS_ENABLED(CONFIG_RAMSLICE_DEFAULT_ON),
};

DEFINE_STATIC_KEY_FALSE(ramslice_key);

/*
 * ramslice=off, ramslice=on, or the size of a slice: ramslice=64M; with the last
 * two, how slices are interleaved: ramslice=64M,ways=2,granularity=4M; or slices
 * of unequal sizes: ramslice=table:64M@128M,192M@192M, or ramslice=firmware
 */
static int __init ramslice_parse_param(char *arg)
{
	int err;

	if (!arg)
		return -EINVAL;
	err = ramslice_parse_boot(arg, &ramslice_boot_args);
	if (err)
		pr_warn("\"%s\" on the command line is neither off, on, nor a size, nor one of the last two with ,ways=NUMBER,granularity=SIZE, nor firmware, nor table: with SIZE@START,...\n",
			arg);
	return err;
}
early_param("ramslice", ramslice_parse_param);

static int __init ramslice_init(void)
{
	int err;

	/* What is switched off must be what the hardware switches, or nothing */
	if (!ramslice_boot_args.off &&
	    ramslice_segments_init(&ramslice_boot_args))
		ramslice_boot_args.off = true;
	if (ramslice_boot_args.off)
		return ramslice_sysfs_init();

	/* No memory comes or goes until its notifier is there */
	cpus_read_lock();
	get_online_mems();
	err = ramslice_blocks_init();
	if (!err) {
		static_branch_enable_cpuslocked(&ramslice_key);
		err = ramslice_geometry_init(&ramslice_boot_args);
		/* Without the notifier, memory that comes would not be known */
		if (err)
			static_branch_disable_cpuslocked(&ramslice_key);
	}
	put_online_mems();
	cpus_read_unlock();
	if (!err)
		err = ramslice_call_init();
	if (!err)
		err = ramslice_demand_init();
	if (!err)
		err = ramslice_sleep_init();
	if (!err)
		err = ramslice_place_init();
	if (!err)
		err = ramslice_sysfs_init();
	if (!err)
		err = ramslice_debugfs_init();
	if (!err)
		err = ramslice_chardev_init();
	if (err)
		pr_err("not available: %d\n", err);
	else if (ramslice_geom.table)
		pr_info("%u zones, %u slices by a table%s, the largest of %llu MiB\n",
			ramslice_nr_zones(), ramslice_geom.table->nr,
			ramslice_boot_args.firmware ? " of firmware" : "",
			ramslice_slice_bytes() >> 20);
	else if (ramslice_interleave_now().ways > 1)
		pr_info("%u zones, slices of %llu MiB, interleaved %u ways by %llu KiB\n",
			ramslice_nr_zones(), ramslice_slice_bytes() >> 20,
			ramslice_interleave_now().ways,
			ramslice_interleave_now().granularity_bytes >> 10);
	else
		pr_info("%u zones, slices of %llu MiB\n",
			ramslice_nr_zones(), ramslice_slice_bytes() >> 20);
	return err;
}
late_initcall(ramslice_init);
