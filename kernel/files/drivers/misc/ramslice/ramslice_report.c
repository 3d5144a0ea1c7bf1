// SPDX-License-Identifier: GPL-2.0
/*
 * A power driver for virtual machines: slices that are off go to the
 * hypervisor, by what free page reporting uses (a virtio balloon, Hyper-V).
 *
 * The host may drop the memory behind them. It need not: it may also keep
 * contents, or, as with devices that are passed through, ignore the report.
 * Waking is nothing, as the host gives memory again when it is touched.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/module.h>
#include <linux/page_reporting.h>
#include <linux/ramslice_power.h>

static atomic_long_t report_nr_pages = ATOMIC_LONG_INIT(0);

static int report_get_pages(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read(&report_nr_pages));
}

static const struct kernel_param_ops report_pages_ops = {
	.get = report_get_pages,
};

module_param_cb(reported_pages, &report_pages_ops, NULL, 0444);
MODULE_PARM_DESC(reported_pages, "pages reported to the host since the module was loaded");

static int report_off(u32 id, const struct ramslice_extent *extents,
		      unsigned int nr, unsigned int state)
{
	int err;

	for (; nr--; extents++) {
		err = page_reporting_range(extents->pfn, extents->nr_pages);
		if (err)
			return err;
		atomic_long_add(extents->nr_pages, &report_nr_pages);
	}
	return 0;
}

static int report_wake(u32 id, const struct ramslice_extent *extents,
		       unsigned int nr, unsigned int state)
{
	return 0;
}

static const struct ramslice_power_state report_state = {
	.name = "reported",
	/* Of the host, to drop 64 MiB; longer only delays the request */
	.entry_latency_us = 10000,
	/* The first access to each page is a fault of the host's */
	.exit_latency_us = 1,
	.atomic_wake = true,
	.may_stay_mapped = true,
	.survives_sleep = true,
};

static const struct ramslice_power_driver report_driver = {
	.name = "report",
	.states = &report_state,
	.nr_states = 1,
	.off = report_off,
	.wake = report_wake,
};

static int __init report_init(void)
{
	return ramslice_register_power_driver(&report_driver);
}
module_init(report_init);

static void __exit report_exit(void)
{
	ramslice_unregister_power_driver(&report_driver);
}
module_exit(report_exit);

MODULE_DESCRIPTION("ramslice: empty slices go to the hypervisor");
MODULE_LICENSE("GPL");
