// SPDX-License-Identifier: GPL-2.0
/*
 * Rest: a power driver is told which slices are in use and rarely touched, so that
 * its hardware may idle deep between two accesses and keep what they hold.
 *
 * These are the slices of twins. A worker compares once a second what should rest
 * with what the driver was told, and tells it, slice by slice. Nothing waits for
 * it: a slice that does not rest yet, or rests for a second too long, is right
 * all the same. It does not run while the system is suspended.
 */

#include <linux/workqueue.h>
#include <linux/xarray.h>
#include "internal.h"
#include "cold.h"

#define REST_INTERVAL	HZ

/* Slices that may rest as far as the driver knows. Under ramslice_mutex. */
static DEFINE_XARRAY(ramslice_resting);

/* What the driver failed with: no slice rests from then on. Under ramslice_mutex. */
static int ramslice_rest_err;

/* Does the driver know? */
static bool ramslice_slice_rests(u32 id)
{
	return xa_load(&ramslice_resting, id);
}

/* Bytes of a twin in slices that the driver was told may rest. May sleep. */
u64 ramslice_resting_bytes(int twin)
{
	u64 nr_pages = 0;
	unsigned long id;
	void *entry;

	down_read(&ramslice_table_sem);
	xa_for_each(&ramslice_resting, id, entry) {
		const struct ramslice_slice *s = ramslice_slice(id);

		if (s && zone_to_nid(s->rz->zone) == twin)
			nr_pages += s->nr_pages;
	}
	up_read(&ramslice_table_sem);
	return nr_pages << PAGE_SHIFT;
}

/* In use, and a twin's as a whole. Under ramslice_mutex. */
static bool ramslice_should_rest(u32 id)
{
	const struct ramslice_slice *s = ramslice_slice(id);

	return !ramslice_rest_err && s &&
	       READ_ONCE(s->state) == RAMSLICE_ONLINE &&
	       !READ_ONCE(s->unreclaimable) &&
	       ramslice_partner_of(zone_to_nid(s->rz->zone)) >= 0;
}

/* Tells the driver that a slice rests from now on, or that it no longer does. */
static void ramslice_tell_rest(u32 id, bool rests)
{
	int err;

	lockdep_assert_held(&ramslice_mutex);
	/* Without memory for that, or with too many calls that hang: a second later */
	if (rests && xa_err(xa_store(&ramslice_resting, id, xa_mk_value(0),
				     GFP_KERNEL)))
		return;
	err = ramslice_call_rest(id, rests);
	if (rests ? err : err != -EBUSY)
		xa_erase(&ramslice_resting, id);
	if (!err || err == -EBUSY || ramslice_rest_err)
		return;
	ramslice_rest_err = err;
	pr_err("slice %u: the power driver fails to let it rest (%d); no slice will from now on\n",
	       id, err);
}

/* The next slice from @id on that the driver has wrong; RAMSLICE_NO_ID if none. */
static u32 ramslice_rest_next(u32 id)
{
	for (; id < ramslice_nr_ids; id++) {
		if (ramslice_should_rest(id) != ramslice_slice_rests(id))
			return id;
	}
	return RAMSLICE_NO_ID;
}

static void ramslice_rest(struct work_struct *work)
{
	bool rests = true;
	u32 id = 0;

	/* The mutex is let go between two: requests wait for it */
	while (rests && id != RAMSLICE_NO_ID) {
		mutex_lock(&ramslice_mutex);
		/* One that does not answer is left alone */
		rests = ramslice_power_rests() &&
			ramslice_rest_err != -ETIMEDOUT;
		if (rests)
			id = ramslice_rest_next(id);
		if (rests && id != RAMSLICE_NO_ID) {
			ramslice_tell_rest(id, ramslice_should_rest(id));
			id++;
		}
		mutex_unlock(&ramslice_mutex);
		cond_resched();
	}
	if (rests && !(ramslice_rest_err && xa_empty(&ramslice_resting)))
		queue_delayed_work(system_freezable_wq, to_delayed_work(work),
				   REST_INTERVAL);
}

static DECLARE_DEFERRABLE_WORK(ramslice_rest_work, ramslice_rest);

/* There is a power driver. Under ramslice_mutex. */
void ramslice_rest_begin(void)
{
	lockdep_assert_held(&ramslice_mutex);
	ramslice_rest_err = 0;
	if (ramslice_has_twins() && ramslice_power_rests())
		queue_delayed_work(system_freezable_wq, &ramslice_rest_work, 0);
}

/*
 * Before the driver goes, or slices get another size. False if a slice still
 * rests, as too many of the driver's calls hang. Under ramslice_mutex.
 */
bool ramslice_rest_end(void)
{
	unsigned long id;
	void *entry;

	lockdep_assert_held(&ramslice_mutex);
	xa_for_each(&ramslice_resting, id, entry) {
		if (ramslice_rest_err == -ETIMEDOUT)
			xa_erase(&ramslice_resting, id);
		else
			ramslice_tell_rest(id, false);
	}
	return xa_empty(&ramslice_resting);
}

/* A slice was handed to the driver's off(), which ends it. Under ramslice_mutex. */
void ramslice_rest_forget(u32 id)
{
	lockdep_assert_held(&ramslice_mutex);
	xa_erase(&ramslice_resting, id);
}
