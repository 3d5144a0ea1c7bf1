// SPDX-License-Identifier: GPL-2.0
/*
 * A power driver for virtual machines: slices that are off go to the
 * hypervisor, by what free page reporting uses (a virtio balloon, Hyper-V).
 *
 * The host may drop the memory behind them. It need not: it may also keep
 * contents, or, as with devices that are passed through, ignore the report.
 * Waking is nothing, as the host gives memory again when it is touched.
 *
 * A guest that cycles costs the host a report and a fault for every page each
 * time. max_mib_per_s bounds that: a slice beyond it waits. To refuse it would
 * be worse, as a request would then empty the next one for nothing.
 *
 * A wake costs the host a page fault, less than to read a page of a file again:
 * so reading ahead may wake memory for cache, up to cache_percent.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/delay.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/page_reporting.h>
#include <linux/ramslice_power.h>
#include <linux/timekeeping.h>

/* As many as are reported at once after a rest: those of one second. */
#define REPORT_BURST_NS	NSEC_PER_SEC
#define REPORT_MAX_MIB_PER_S	1048576

/* Both are written under report_mutex */
static DEFINE_MUTEX(report_mutex);
static unsigned int report_max_mib_per_s;
/* When what was reported so far would have been, at the limit throughout. */
static u64 report_paid_until_ns;

static atomic_long_t report_nr_pages = ATOMIC_LONG_INIT(0);
/* Bit 0: a slice is being reported. */
static unsigned long report_under_way;

static int report_get_pages(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read(&report_nr_pages));
}

static const struct kernel_param_ops report_pages_ops = {
	.get = report_get_pages,
};

module_param_cb(reported_pages, &report_pages_ops, NULL, 0444);
MODULE_PARM_DESC(reported_pages, "pages reported to the host since the module was loaded");

static int report_set_max(const char *text, const struct kernel_param *kp)
{
	int err;

	mutex_lock(&report_mutex);
	err = param_set_uint_minmax(text, kp, 0, REPORT_MAX_MIB_PER_S);
	if (!err)
		report_paid_until_ns = 0;
	mutex_unlock(&report_mutex);
	return err;
}

static const struct kernel_param_ops report_max_ops = {
	.set = report_set_max,
	.get = param_get_uint,
};

module_param_cb(max_mib_per_s, &report_max_ops, &report_max_mib_per_s, 0644);
MODULE_PARM_DESC(max_mib_per_s,
		 "most MiB reported in a second, after a burst of one second's; 0: no limit");

/*
 * Waits until so many pages may be reported: -EBUSY if that took so long that
 * the driver would be given up, and the slice lost.
 */
static int report_wait(unsigned long nr_pages)
{
	u64 now_ns = ktime_get_ns(), paid_ns, wait_ns = 0;
	u64 longest_ns = ramslice_power_timeout_ms() / 2 * (u64)NSEC_PER_MSEC;
	int err = 0;

	mutex_lock(&report_mutex);
	if (report_max_mib_per_s) {
		paid_ns = max(report_paid_until_ns, now_ns);
		if (paid_ns > now_ns + REPORT_BURST_NS)
			wait_ns = paid_ns - now_ns - REPORT_BURST_NS;
		if (wait_ns > longest_ns)
			err = -EBUSY;
		else
			report_paid_until_ns = paid_ns +
				div_u64(nr_pages * (u64)NSEC_PER_SEC,
					report_max_mib_per_s << (20 - PAGE_SHIFT));
	}
	mutex_unlock(&report_mutex);

	if (!err && wait_ns)
		fsleep(DIV_ROUND_UP_ULL(wait_ns, NSEC_PER_USEC));
	return err;
}

static int report_off(u32 id, const struct ramslice_extents *extents,
		      unsigned int state)
{
	unsigned long pfn;
	unsigned int i;
	int err;

	err = report_wait(extents->nr * extents->nr_pages);
	if (err)
		return err;
	/* The host has not answered the last one: this would hang as well */
	if (test_and_set_bit_lock(0, &report_under_way))
		return -EBUSY;
	for_each_ramslice_extent(extents, i, pfn) {
		err = page_reporting_range(pfn, extents->nr_pages);
		if (err)
			break;
		atomic_long_add(extents->nr_pages, &report_nr_pages);
	}
	clear_bit_unlock(0, &report_under_way);
	return err;
}

static int report_wake(u32 id, const struct ramslice_extents *extents,
		       unsigned int state)
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

static struct ramslice_power_driver report_driver = {
	.name = "report",
	.states = &report_state,
	.nr_states = 1,
	.off = report_off,
	.wake = report_wake,
	.cache_percent = 25,
};

module_param_named(cache_percent, report_driver.cache_percent, uint, 0444);
MODULE_PARM_DESC(cache_percent,
		 "inactive page cache that reading ahead wakes memory for, of a zone's size (25)");

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
