// SPDX-License-Identifier: GPL-2.0
/*
 * A simulated memory controller, and an example of a power driver.
 *
 * Switching a slice off scrambles its memory, as losing power would. When it
 * wakes, each chunk is compared before it is used again: a write to it meanwhile
 * is a violation, counted and reported. So is a call that no controller expects.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/reboot.h>
#include <linux/ramslice_power.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>

static bool sleeping;
module_param(sleeping, bool, 0444);
MODULE_PARM_DESC(sleeping, "waking sleeps");

static bool unmapped;
module_param(unmapped, bool, 0444);
MODULE_PARM_DESC(unmapped, "demand that what is off leaves the direct map, and leave it as it is");

/*
 * Nothing interrupts a power driver, and an atomic wake spins with interrupts
 * off: a mistyped delay must not cost more than a moment. udelay() would not
 * even wait for longer ones.
 */
#define MAX_DELAY_US	200000

static int sim_set_delay(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 0, MAX_DELAY_US);
}

static const struct kernel_param_ops sim_delay_ops = {
	.set = sim_set_delay,
	.get = param_get_uint,
};

static unsigned int off_delay_us;
module_param_cb(off_delay_us, &sim_delay_ops, &off_delay_us, 0644);
MODULE_PARM_DESC(off_delay_us, "time that switching off takes");

static unsigned int wake_delay_us;
module_param_cb(wake_delay_us, &sim_delay_ops, &wake_delay_us, 0644);
MODULE_PARM_DESC(wake_delay_us, "time that waking takes");

static bool survives_sleep;
module_param(survives_sleep, bool, 0444);
MODULE_PARM_DESC(survives_sleep, "what is off stays so while the system is suspended");

static unsigned int fail_off;
module_param(fail_off, uint, 0644);
MODULE_PARM_DESC(fail_off, "refuse to switch off this many slices");

static unsigned int fail_wake;
module_param(fail_wake, uint, 0644);
MODULE_PARM_DESC(fail_wake, "fail to wake this many slices");

static unsigned int hang_off;
module_param(hang_off, uint, 0644);
MODULE_PARM_DESC(hang_off, "hang in switching off this many slices");

static unsigned int hang_wake;
module_param(hang_wake, uint, 0644);
MODULE_PARM_DESC(hang_wake, "hang in waking this many slices, if that sleeps");

static bool rests;
module_param(rests, bool, 0444);
MODULE_PARM_DESC(rests, "let slices in use rest");

static bool retains = true;
module_param(retains, bool, 0444);
MODULE_PARM_DESC(retains, "0 says that contents are lost at rest: no slice may");

static unsigned int fail_rest;
module_param(fail_rest, uint, 0644);
MODULE_PARM_DESC(fail_rest, "refuse to let this many slices rest");

static unsigned int hang_rest;
module_param(hang_rest, uint, 0644);
MODULE_PARM_DESC(hang_rest, "hang in letting this many slices rest");

static bool hanging = true;
module_param(hanging, bool, 0644);
MODULE_PARM_DESC(hanging, "0 has the calls that hang return");

static unsigned long violations;
module_param(violations, ulong, 0444);
MODULE_PARM_DESC(violations, "words found written to while off, and wrong calls");

static unsigned int nr_resting;
module_param(nr_resting, uint, 0444);
MODULE_PARM_DESC(nr_resting, "slices that may rest");

/* Those slices. Calls for different slices may come at the same time. */
static DEFINE_XARRAY(sim_resting);
/* A call for one hung: there are no more calls. */
static bool sim_rest_hung;
static DEFINE_MUTEX(sim_rest_mutex);

static u64 sim_seed;

/* Slices that are off as far as the controller knows. */
static atomic_t sim_nr_off = ATOMIC_INIT(0);

/* What a page frame holds while it is off. */
static u64 sim_pattern(unsigned long pfn)
{
	return (sim_seed ^ pfn) * 0x9e3779b97f4a7c15ULL | 1;
}

static bool sim_take_one(unsigned int *counter)
{
	if (!READ_ONCE(*counter))
		return false;
	WRITE_ONCE(*counter, *counter - 1);
	return true;
}

/* True if it hung. */
static bool sim_hang(unsigned int *counter)
{
	if (!sim_take_one(counter))
		return false;
	while (READ_ONCE(hanging))
		msleep(20);
	return true;
}

/* No page of it may be read while it is off, ahead of need or otherwise. */
static void sim_check_unmapped(u32 id, const struct ramslice_extents *extents)
{
	unsigned long start, i;
	unsigned int n;
	u64 word;

	for_each_ramslice_extent(extents, n, start) {
		for (i = 0; i < extents->nr_pages; i++) {
			unsigned long pfn = start + i;

			if (copy_from_kernel_nofault(&word, page_address(pfn_to_page(pfn)),
						     sizeof(word)))
				continue;
			if (!violations++)
				pr_err("violation: slice %u is mapped while off: pfn %lu\n",
				       id, pfn);
		}
	}
}

static void sim_end_rest(u32 id)
{
	mutex_lock(&sim_rest_mutex);
	if (xa_erase(&sim_resting, id))
		nr_resting--;
	mutex_unlock(&sim_rest_mutex);
}

static int sim_off(u32 id, const struct ramslice_extents *extents,
		   unsigned int state)
{
	unsigned long start, i;
	unsigned int n;

	sim_end_rest(id);
	/* As hardware would that was asked in vain: no reason to lose a slice */
	if (sim_take_one(&fail_off))
		return -ETIMEDOUT;
	sim_hang(&hang_off);
	if (off_delay_us)
		usleep_range(off_delay_us, off_delay_us + 50);
	if (unmapped) {
		sim_check_unmapped(id, extents);
		atomic_inc(&sim_nr_off);
		return 0;
	}
	for_each_ramslice_extent(extents, n, start) {
		for (i = 0; i < extents->nr_pages; i++) {
			unsigned long pfn = start + i;

			memset64(page_address(pfn_to_page(pfn)),
				 sim_pattern(pfn), PAGE_SIZE / sizeof(u64));
			if (!(i % 1024))
				cond_resched();
		}
	}
	atomic_inc(&sim_nr_off);
	return 0;
}

static int sim_wake(u32 id, const struct ramslice_extents *extents,
		    unsigned int state)
{
	if (sleeping)
		sim_hang(&hang_wake);
	if (wake_delay_us && sleeping)
		fsleep(wake_delay_us);
	else if (wake_delay_us)
		udelay(wake_delay_us);
	if (sim_take_one(&fail_wake))
		return -EIO;
	if (unmapped)
		sim_check_unmapped(id, extents);
	atomic_dec(&sim_nr_off);
	return 0;
}

static void sim_check(u32 id, unsigned long pfn, unsigned long nr_pages)
{
	unsigned long end = pfn + nr_pages;
	unsigned int i;

	if (unmapped)
		return;
	for (; pfn < end; pfn++) {
		const u64 *word = page_address(pfn_to_page(pfn));
		u64 expected = sim_pattern(pfn);

		for (i = 0; i < PAGE_SIZE / sizeof(u64); i++) {
			if (likely(word[i] == expected))
				continue;
			if (!violations++)
				pr_err("violation: slice %u was written to while off: pfn %lu offset %zu holds %llx\n",
				       id, pfn, i * sizeof(u64), word[i]);
		}
	}
}

static struct ramslice_power_state sim_states[] = {
	{
		.name = "scrambled",
		.entry_latency_us = 100,
		.exit_latency_us = 100,
	}, {
		.name = "self-refresh",
		.entry_latency_us = 1,
		.exit_latency_us = 1,
	},
};

static int sim_rest(u32 id, const struct ramslice_extents *extents,
		    unsigned int state, bool may_rest)
{
	int err = 0;

	if (may_rest && sim_take_one(&fail_rest))
		return -EIO;
	if (sim_hang(&hang_rest)) {
		sim_rest_hung = true;
		return -ETIMEDOUT;
	}
	mutex_lock(&sim_rest_mutex);
	if (state >= ARRAY_SIZE(sim_states) || !sim_states[state].retention) {
		pr_err("violation: slice %u would lose its contents at rest\n",
		       id);
		err = -EINVAL;
	} else if (may_rest == !!xa_load(&sim_resting, id)) {
		pr_err("violation: slice %u is told twice, or rests in vain\n",
		       id);
		err = -EINVAL;
	} else if (may_rest) {
		err = xa_err(xa_store(&sim_resting, id, xa_mk_value(0),
				      GFP_KERNEL));
		nr_resting += !err;
	} else {
		xa_erase(&sim_resting, id);
		nr_resting--;
	}
	violations += err == -EINVAL;
	mutex_unlock(&sim_rest_mutex);
	return err;
}

static struct ramslice_power_driver sim_driver = {
	.name = "sim",
	.states = sim_states,
	.nr_states = 1,
	.off = sim_off,
	.wake = sim_wake,
	.check = sim_check,
};

/* A slice that is off at restart stays off, which the next kernel does not know. */
static int sim_restart_callback(struct notifier_block *nb, unsigned long action,
				void *unused)
{
	pr_info("%d slices off at restart\n",
		atomic_read(&sim_nr_off));
	return NOTIFY_DONE;
}

/* After ramslice's own */
static struct notifier_block sim_restart_nb = {
	.notifier_call = sim_restart_callback,
	.priority = -1,
};

static int __init sim_init(void)
{
	int err;

	sim_seed = get_random_u64();
	sim_states[0].atomic_wake = !sleeping;
	sim_states[0].may_stay_mapped = !unmapped;
	sim_states[0].survives_sleep = survives_sleep;
	sim_states[0].exit_latency_us = max(wake_delay_us, 100U);
	if (rests) {
		sim_states[1].retention = retains;
		sim_driver.nr_states = ARRAY_SIZE(sim_states);
		sim_driver.rest = sim_rest;
	}
	err = ramslice_register_power_driver(&sim_driver);
	if (!err)
		register_reboot_notifier(&sim_restart_nb);
	return err;
}
module_init(sim_init);

static void __exit sim_exit(void)
{
	unregister_reboot_notifier(&sim_restart_nb);
	ramslice_unregister_power_driver(&sim_driver);
	if (nr_resting && !sim_rest_hung)
		pr_err("violation: %u slices still rest\n", nr_resting);
	xa_destroy(&sim_resting);
}
module_exit(sim_exit);

MODULE_DESCRIPTION("ramslice: simulated memory controller");
MODULE_LICENSE("GPL");
