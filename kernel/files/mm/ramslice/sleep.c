// SPDX-License-Identifier: GPL-2.0
/*
 * Before the system sleeps or restarts: nothing goes offline any more, and what is
 * off wakes, unless the power driver says that it lasts.
 */

#include <linux/reboot.h>
#include <linux/suspend.h>
#include <linux/swap.h>
#include <linux/syscore_ops.h>
#include <xen/xen.h>
#include "internal.h"
#include "request.h"

/* Set while nothing may go offline: reboot, suspend. */
static bool ramslice_offline_inhibited;

bool ramslice_inhibited(void)
{
	return READ_ONCE(ramslice_offline_inhibited);
}

/*
 * Lets nothing go offline any more, wakes what is, and waits for what others
 * are waking. False if something stays off that is not lost, or may still go off.
 */
static bool ramslice_inhibit(const char *what)
{
	u32 nr_woken = 0;
	bool all, idle;

	WRITE_ONCE(ramslice_offline_inhibited, true);
	/*
	 * A request under way sees the flag and gives up. One that hangs does not:
	 * its slice has power, and is left as it is.
	 */
	idle = ramslice_interrupt_request();
	if (idle)
		mutex_unlock(&ramslice_mutex);
	else
		pr_err("a request hangs before %s\n", what);
	all = ramslice_wake_all(&nr_woken);
	if (nr_woken)
		pr_info("%u slices woken before %s\n", nr_woken, what);
	if (!all)
		pr_err("slices stay off before %s: the power driver hangs\n",
		       what);
	return all && idle;
}

/*
 * Slices stay off while the system sleeps: the driver says that they do. Nothing
 * goes off any more meanwhile. False if a request hangs.
 */
static bool ramslice_sleep_with_slices_off(void)
{
	WRITE_ONCE(ramslice_offline_inhibited, true);
	if (!ramslice_interrupt_request()) {
		pr_err("a request hangs before sleep\n");
		return false;
	}
	mutex_unlock(&ramslice_mutex);
	pr_info("%lu pages stay off during sleep\n", ramslice_wakeable_pages());
	return true;
}

/* The next kernel, or the firmware, knows nothing of slices. */
static int ramslice_reboot_callback(struct notifier_block *nb,
				    unsigned long action, void *unused)
{
	ramslice_inhibit("restart");
	return NOTIFY_DONE;
}

static struct notifier_block ramslice_reboot_nb = {
	.notifier_call = ramslice_reboot_callback,
};

static int ramslice_pm_callback(struct notifier_block *nb, unsigned long action,
				void *unused)
{
	bool ready;

	switch (action) {
	case PM_HIBERNATION_PREPARE:
	case PM_SUSPEND_PREPARE:
	case PM_RESTORE_PREPARE:
		ready = action == PM_SUSPEND_PREPARE &&
			ramslice_power_survives_sleep() ?
			ramslice_sleep_with_slices_off() :
			ramslice_inhibit("sleep");
		if (!ready) {
			WRITE_ONCE(ramslice_offline_inhibited, false);
			return notifier_from_errno(-EBUSY);
		}
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_SUSPEND:
	case PM_POST_RESTORE:
		WRITE_ONCE(ramslice_offline_inhibited, false);
		break;
	}
	return NOTIFY_DONE;
}

/*
 * A kernel that is jumped to by kexec, to come back from, knows nothing of
 * slices either, and no notifier tells. What sleeps by itself has woken all; a
 * guest that Xen saves or moves goes on as it was. No other CPU runs.
 */
static int ramslice_syscore_suspend(void *unused)
{
	if (ramslice_power_idle() || system_state == SYSTEM_SUSPEND ||
	    xen_domain())
		return 0;
	pr_err("slices are off: wake them before a kexec jump\n");
	return -EBUSY;
}

static const struct syscore_ops ramslice_syscore_ops = {
	.suspend = ramslice_syscore_suspend,
};

static struct syscore ramslice_syscore = {
	.ops = &ramslice_syscore_ops,
};

int __init ramslice_sleep_init(void)
{
	register_reboot_notifier(&ramslice_reboot_nb);
	register_syscore(&ramslice_syscore);
	pm_notifier(ramslice_pm_callback, 0);
	return 0;
}
