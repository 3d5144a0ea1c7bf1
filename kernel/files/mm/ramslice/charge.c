// SPDX-License-Identifier: GPL-2.0
/*
 * Charges of contiguous buffers to memory control groups. A group is charged
 * before its buffer is made, and until it is given back, by whichever task.
 */

#include <linux/memcontrol.h>
#include <linux/sizes.h>
#include "internal.h"
#include "buffer.h"

/* The books of a control group count less than 4 GiB in one go. */
#define CHARGE_BYTES	((size_t)SZ_1G)

/* Ends a charge of ramslice_charge(). May sleep. */
void ramslice_uncharge(struct obj_cgroup *objcg, size_t bytes)
{
	while (bytes) {
		size_t part = min(bytes, CHARGE_BYTES);

		obj_cgroup_uncharge(objcg, part);
		bytes -= part;
	}
	obj_cgroup_put(objcg);
}

/**
 * ramslice_charge - charge the caller's control group, killing no process for it
 * @bytes: how much
 * @gfp: how it may reclaim
 * @charged: set to the group, or to NULL if there is none to charge
 *
 * Context: process context, may sleep.
 * Return: 0, or -ENOMEM with nothing charged.
 */
int ramslice_charge(size_t bytes, gfp_t gfp, struct obj_cgroup **charged)
{
	struct obj_cgroup *objcg = get_obj_cgroup_from_current();
	size_t done = 0;

	*charged = NULL;
	if (!objcg)
		return 0;
	gfp = (gfp & GFP_KERNEL) | __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
	while (done < bytes) {
		size_t part = min(bytes - done, CHARGE_BYTES);

		if (obj_cgroup_charge(objcg, gfp, part)) {
			ramslice_uncharge(objcg, done);
			return -ENOMEM;
		}
		done += part;
	}
	*charged = objcg;
	return 0;
}
